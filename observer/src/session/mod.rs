//! Who is observed, and the accounts over time.

pub mod calibration;
pub mod cgroups;
pub mod child;
mod header;
pub mod ledger;
pub mod own;
pub mod target;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use anyhow::Result;
use log::debug;
use observer_common::{
    cpu::Cpu,
    layout::Config,
    names::{RING_RECORD_BYTES, RING_WAKE_BYTES, hook},
    task::{Task, flag, state},
};

use self::{
    ledger::{Ledger, account_of},
    own::OwnCost,
    target::Target,
};
use crate::{
    clock::now_ns,
    kernel::{Accounting, Btf, Limits, Unsupported},
    model::{
        Account, Crossings, Ended, Folded, Header, Report, TaskFigures, Trailer, account::Able,
        report::cpu_figures,
    },
    probe::{self, Cycles, Probe, Sizes, cycles, selection::Selection},
};

/// So many ended accounts fill the table of pairs if it is not read.
const MANY_ENDED: usize = 512;
/// From so many on their pairs are taken out at a reading: going through the tables costs more than all else of it.
const SOME_ENDED: usize = 64;

/// Ended accounts are taken in this often where slots are scarce or many have ended.
const OFTEN: Duration = Duration::from_millis(50);
/// Where there are plenty, the ring's own wakeup comes before they are used up, so this is for memory and figures.
const SELDOM: Duration = Duration::from_millis(500);
/// Plenty: twice as many as have ended when the ring wakes us.
const PLENTY: usize = (2 * RING_WAKE_BYTES / RING_RECORD_BYTES) as usize;

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Who is observed.
    pub target: Target,
    /// Room for this many accounts.
    pub max_tasks: Option<u32>,
    /// Room for this many pairs of each kind; whether any are kept is [`Selection::no_pairs`].
    pub max_pairs: Option<u32>,
    /// Which hooks.
    pub hooks: Selection,
    /// Whether to count cycles.
    pub cycles: cycles::Choice,
    /// Ended tasks that are not kept one by one are wanted: see [`Session::take_evicted`].
    pub hands_out: bool,
}

impl Options {
    fn keeps_pairs(&self) -> bool {
        self.hooks.wants(hook::PAIRS)
    }
}

/// A running session. Its drop detaches everything.
pub struct Session {
    probe: Probe,
    header: Header,
    able: Able,
    crossings: Crossings,
    live: BTreeMap<u32, Account>,
    ended: Ended,
    ledger: Ledger,
    keeps_pairs: bool,
    /// Of the last snapshot.
    read_ns: u64,
    /// Ended slots that the ring did not name, seen once: taken when seen twice. With their processes.
    unnamed: HashMap<(u32, u32), u32>,
    /// So many had ended when the ring was read last.
    ended_last: usize,
    missed_readings: u64,
    cost: OwnCost,
    /// The CPUs before anything was observed: after loading and calibrating.
    cpus_at_start: BTreeMap<u32, Cpu>,
    started_ns: u64,
}

impl Session {
    /// Loads the kernel side and calibrates it. Nothing is observed yet: see [`Session::observe`].
    ///
    /// # Errors
    /// [`Unsupported`] when this kernel or these rights do not allow it.
    pub fn start(options: &Options) -> Result<Self> {
        let btf = Btf::from_sysfs().map_err(Unsupported::from)?;
        debug!("start: types read");
        let mut limits = Limits::detect(Some(&btf));
        limits.check()?;
        limits.raise_memlock();
        let layout = probe::layout::layout(&btf).map_err(|missing| Unsupported {
            what: "cannot read this kernel's tasks".to_owned(),
            why: missing.to_string(),
            way_out: "a kernel with these is needed".to_owned(),
        })?;
        let cycles = Cycles::choose(options.cycles, &limits.online_cpus)?;
        let config = Config {
            cycles: u64::from(cycles.is_counted()),
            ..configure(probe::layout::config(&btf)?, &btf, options)
        };
        let sizes = Sizes::choose(
            &limits,
            options.max_tasks,
            options.max_pairs,
            options.target.all,
            options.target.ids(),
        );
        let mut probe = Probe::load(&probe::Request {
            btf: &btf,
            limits: &limits,
            layout: &layout,
            config: &config,
            sizes: &sizes,
            selection: &options.hooks,
        })?;
        probe.count_cycles(&cycles)?;
        options.target.apply(&mut probe)?;
        probe.learn_offsets()?;
        debug!("start: clock offsets learned");
        let able = Able {
            split: probe.is_active(hook::SYS_ENTER) && probe.is_active(hook::SYS_EXIT),
            bill: probe::layout::has_run_queue(&layout),
            skip: probe::SEES_REQUESTS.iter().any(|hook| probe.is_active(*hook))
                || probe::layout::notes_queueing(&layout),
            waking: probe.is_active(hook::WAKING),
            wait: probe.is_active(hook::WAKEUP),
            irq: probe.is_active(hook::IRQ_ENTER) && probe.is_active(hook::SOFTIRQ_ENTER),
            fault: probe.is_active(hook::FAULT),
            cycles: cycles.is_counted(),
        };
        let crossings = calibration::crossings(&mut probe, &limits, able);
        debug!("start: crossings calibrated, or the kept ones looked at");
        // Not before: statistics add to each run, and so to what the borders cost.
        let cost = OwnCost::begin();
        let accounting = Accounting::detect(&btf);
        debug!("start: accounting mode found");
        let header =
            header::header(&limits, &accounting, &probe, &cycles, &crossings, &options.target)?;
        let started_ns = header.started_ns;
        Ok(Self {
            probe,
            header,
            able,
            crossings,
            live: BTreeMap::new(),
            ended: Ended::new(options.hands_out),
            ledger: Ledger::default(),
            keeps_pairs: options.keeps_pairs(),
            read_ns: started_ns,
            unnamed: HashMap::new(),
            ended_last: 0,
            missed_readings: 0,
            cost,
            cpus_at_start: BTreeMap::new(),
            started_ns,
        })
    }

    /// Opens the accounts of the tasks that exist and are wanted.
    pub fn observe(&mut self) -> Result<()> {
        self.discard_ended()?;
        // Before the first account is opened: what the CPUs book from here on is at least what the tasks book.
        self.probe.read_cpus()?;
        self.started_ns = now_ns();
        self.cpus_at_start = self.probe.cpus().collect();
        self.probe.find_tasks()?;
        debug!("start: tasks found");
        self.snapshot_with_pairs()
    }

    /// The kernel side.
    pub fn probe_mut(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// The kernel side, to look at.
    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The first record.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What one crossing costs here.
    #[must_use]
    pub fn crossings(&self) -> &Crossings {
        &self.crossings
    }

    /// What the calibration observed is not the user's business.
    fn discard_ended(&mut self) -> Result<()> {
        self.pump()?;
        self.sweep()?;
        self.sweep()?;
        self.take_out_pairs()?;
        self.ended.clear();
        self.live.clear();
        self.ledger.clear();
        self.probe.forget_folded()
    }

    /// Takes in the accounts that have ended since the last time, and gives their slots back.
    pub fn pump(&mut self) -> Result<()> {
        let ended = self.probe.take_ended();
        self.ended_last = ended.len();
        for (slot, opened) in ended {
            self.close(slot, opened)?;
        }
        self.cost.tick(&self.probe);
        if self.ledger.ended() > MANY_ENDED || self.ended.is_crowded() {
            // Their pairs would fill the table before the next reading, and their figures memory.
            self.sweep()?;
            self.take_out_pairs()?;
            self.ended.relieve(|| alive(&self.live, &self.unnamed));
        }
        Ok(())
    }

    /// How long ended accounts may wait until they are taken in. An idle process that wakes up costs more than all
    /// that it then does.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let is_plenty = self.probe.slots().saturating_sub(self.live.len()) > PLENTY;
        let is_quiet = is_plenty && self.ended_last < SOME_ENDED && !self.cost.is_sampling();
        if is_quiet { SELDOM } else { OFTEN }
    }

    /// Closes one ended account; `opened` is the low half of its opening time.
    fn close(&mut self, slot: u32, opened: u32) -> Result<()> {
        let Some(task) = self.probe.task(slot) else {
            self.missed_readings += 1;
            return Ok(());
        };
        if task.state != state::EXITED || task.opened_ns as u32 != opened {
            // The sweep was faster, and the slot may have been used again.
            return Ok(());
        }
        let mut account = match self.live.remove(&slot) {
            Some(account) if same(&account.task, &task) => account,
            _ => Account::new(account_of(slot, &task), task),
        };
        account.update(task);
        if self.keeps_pairs {
            self.ledger.end(slot, &task);
        }
        self.ended.add(account.figures(&self.crossings, self.able, self.read_ns));
        self.probe.release(slot)
    }

    /// Finds ended accounts that the ring had no room for, and reads the live ones.
    fn sweep(&mut self) -> Result<()> {
        let mut unnamed = HashMap::new();
        self.ledger.read_at(now_ns());
        for (slot, life) in self.probe.used_slots() {
            let known = self.live.get(&slot).filter(|_| life == state::LIVE);
            if known.is_some_and(|known| self.probe.is_unchanged(slot, &known.task)) {
                continue;
            }
            let reading = self.probe.task(slot);
            if life == state::EXITED {
                let Some(task) = reading else { continue };
                self.ended.see(task.tid, task.tgid, task.start_ns);
                let account = (slot, task.opened_ns as u32);
                if self.unnamed.contains_key(&account) {
                    self.close(account.0, account.1)?;
                } else {
                    unnamed.insert(account, task.tgid);
                }
                continue;
            }
            match reading {
                Some(task) if task.state == state::LIVE => {
                    if self.keeps_pairs {
                        self.ledger.see(slot, &task);
                    }
                    self.ended.see(task.tid, task.tgid, task.start_ns);
                    match self.live.get_mut(&slot) {
                        Some(account) if same(&account.task, &task) => account.update(task),
                        _ => {
                            let account = Account::new(account_of(slot, &task), task);
                            self.live.insert(slot, account);
                        }
                    }
                }
                Some(_) => {}
                None => self.missed_readings += 1,
            }
        }
        self.unnamed = unnamed;
        Ok(())
    }

    /// Reads all accounts, open intervals included, up to now. The pairs stay as they were.
    pub fn snapshot(&mut self) -> Result<()> {
        self.read_accounts()?;
        if self.ledger.ended() > SOME_ENDED { self.take_out_pairs() } else { Ok(()) }
    }

    /// The same, and the pairs.
    pub fn snapshot_with_pairs(&mut self) -> Result<()> {
        self.read_accounts()?;
        self.read_pairs()
    }

    fn read_accounts(&mut self) -> Result<()> {
        self.pump()?;
        self.probe.read_cpus()?;
        self.sweep()?;
        self.ended.begin_reading(|| alive(&self.live, &self.unnamed));
        self.read_ns = now_ns();
        self.pump()?;
        self.ended.show();
        Ok(())
    }

    fn read_pairs(&mut self) -> Result<()> {
        if self.keeps_pairs { self.ledger.read(&mut self.probe, self.able) } else { Ok(()) }
    }

    /// Makes room in the tables of pairs.
    fn take_out_pairs(&mut self) -> Result<()> {
        if self.keeps_pairs { self.ledger.take_out(&mut self.probe, self.able) } else { Ok(()) }
    }

    /// The last snapshot of a session: also what only a second look takes in.
    ///
    /// A task that was reaped or joined may still stand before its last switch (`exit_notify` comes before
    /// `do_task_dead`, kernel/exit.c), so the ends of those that are exiting are waited for, up to 0.1 s.
    pub fn finish(&mut self) -> Result<()> {
        self.snapshot()?;
        for _ in 0..100 {
            if !self.live.values().any(|account| account.task.has(flag::EXITING)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.snapshot()?;
        }
        self.sweep()?;
        self.read_pairs()
    }

    /// True when no observed task is alive, as of the last snapshot.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.live.is_empty()
    }

    /// The figures of the tasks that live or have ended since the snapshot before, by on-CPU time, largest first.
    #[must_use]
    pub fn figures(&self) -> Vec<TaskFigures> {
        self.with_living(self.ended.recent().iter())
    }

    /// The figures of all tasks that still have their own, by on-CPU time, largest first.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskFigures> {
        self.with_living(self.ended.tasks())
    }

    fn with_living<'a>(&self, ended: impl Iterator<Item = &'a TaskFigures>) -> Vec<TaskFigures> {
        let accounts = self.live.values();
        let live =
            accounts.map(|account| account.figures(&self.crossings, self.able, self.read_ns));
        let mut figures: Vec<TaskFigures> = ended.cloned().chain(live).collect();
        figures.sort_by(|a, b| b.oncpu_ns.cmp(&a.oncpu_ns).then(a.tid.cmp(&b.tid)));
        figures
    }

    /// The sums of those that have ended and are no longer kept one by one.
    #[must_use]
    pub fn folded(&self) -> Vec<Folded> {
        self.ended.folded().cloned().collect()
    }

    /// The ended tasks that are no longer kept one by one, each once, if they were asked for.
    pub fn take_evicted(&mut self) -> Vec<TaskFigures> {
        self.ended.take_evicted()
    }

    /// How many tasks have ended and were in no snapshot's [`Session::figures`], since the last call.
    pub fn take_unshown(&mut self) -> u64 {
        self.ended.take_unshown()
    }

    /// Everything there is to say, as of the last snapshot; the pairs as of the last one with pairs.
    #[must_use]
    pub fn report(&self) -> Report {
        let (tasks, folded) = (self.tasks(), self.folded());
        let all = tasks.iter().chain(folded.iter().map(|folded| &folded.figures));
        let residual_ns = all.map(|task| task.residual_ns).sum();
        let trailer = Trailer { residual_ns, ..self.trailer() };
        let cpus = self.cpus().map(|(number, cpu)| cpu_figures(number, &cpu)).collect();
        let header = self.header.clone();
        Report {
            header,
            tasks,
            folded,
            pairs: self.ledger.figures(),
            cpus,
            trailer,
            sentences: Vec::new(),
            rusage_ns: None,
        }
    }

    fn trailer(&self) -> Trailer {
        let mut trailer = Trailer {
            elapsed_ns: now_ns().saturating_sub(self.started_ns),
            lost_events: self.missed_readings,
            observer_cpu_ns: self.cost.cpu_ns(),
            recursion_misses: self.recursion_misses(),
            ..Trailer::default()
        };
        for (_, cpu) in self.cpus() {
            trailer.map_full += cpu.map_full;
            trailer.pairs_folded += cpu.pairs_folded;
            trailer.clocks_compared += cpu.compared;
            trailer.clocks_disagreed += cpu.disagreed;
            trailer.clocks_apart_ns += cpu.compared_apart_ns;
            trailer.clocks_apart_max_ns = trailer.clocks_apart_max_ns.max(cpu.compared_max_ns);
            trailer.clock_backwards += cpu.clock_backwards;
            trailer.cycles_discarded += cpu.meter.discarded;
            trailer.clock_jumps += cpu.clock_jumps;
            trailer.unmatched += cpu.unmatched;
            trailer.missed_switches += cpu.missed_switches;
            // A run whose slot belonged to another task went to the unobserved.
            trailer.lost_events += cpu.stale_slots;
        }
        let runs = probe::runs(self.cpus());
        trailer.hook_runs = runs.iter().sum();
        trailer.hook_ns = self.cost.hook_ns(&runs);
        trailer
    }

    /// The CPUs since the session observes: loading and calibration are not in it.
    fn cpus(&self) -> impl Iterator<Item = (u32, Cpu)> + '_ {
        self.probe.cpus().map(|(number, cpu)| match self.cpus_at_start.get(&number) {
            Some(before) => (number, cpu.after(before)),
            None => (number, cpu),
        })
    }

    fn recursion_misses(&self) -> Option<u64> {
        let active = self.probe.status().iter().filter(|status| status.is_active());
        active.map(|status| self.probe.stats(status).map(|stats| stats.recursion_misses)).sum()
    }
}

/// The processes that may get more members, after all accounts have been looked at.
fn alive(live: &BTreeMap<u32, Account>, unnamed: &HashMap<(u32, u32), u32>) -> HashSet<u32> {
    live.values().map(|account| account.task.tgid).chain(unnamed.values().copied()).collect()
}

/// True when two readings are of the same account: a slot is used again.
fn same(a: &Task, b: &Task) -> bool {
    a.address == b.address && a.opened_ns == b.opened_ns
}

fn configure(config: Config, btf: &Btf, options: &Options) -> Config {
    let target = &options.target;
    // The loader takes it back where the hook does not work after all.
    let expects = |tracepoint: &str, index: usize| {
        u64::from(btf.has_tracepoint(tracepoint) && options.hooks.wants(index))
    };
    Config {
        has_entry: expects("sched_entry_tp", hook::ENTRY),
        has_requests: u64::from(probe::SEES_REQUESTS.iter().any(|hook| options.hooks.wants(*hook))),
        has_exit: expects("sched_exit_tp", hook::LEAVE),
        all: u64::from(target.all),
        by_comm: u64::from(target.glob.is_some()),
        by_cgroup: u64::from(target.cgroup.is_some()),
        follow: u64::from(!target.no_follow),
        self_tgid: u64::from(std::process::id()),
        pairs: u64::from(options.keeps_pairs()),
        split: u64::from(!options.hooks.no_split),
        ..config
    }
}
