//! What the borders cost that no hook sees, on this machine, with these hooks.
//!
//! From the trap instruction to the first hook, and from the last hook to the first user instruction, a task is
//! in the kernel and the hooks do not know. So programs of ours are observed whose own user time is known or
//! next to nothing: what is left of their measured user time is the borders'.

use std::{
    fs,
    hint::black_box,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use log::debug;
use nix::{
    sys::{
        ptrace,
        signal::{Signal, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork},
};
use observer_common::{
    names::hook,
    task::{Task, crossing, mode, state},
};

use crate::{
    kernel::Limits,
    lab::workload::{
        clock::{Amount, Clock},
        memory::Pages,
    },
    model::{Crossings, account::Able},
    probe::Probe,
};

/// Enough for a median, few enough for a start: about 20 ms together.
const BATCHES: usize = 9;
const SYSCALLS: u64 = 2_000;
const STOPS: u64 = 100;
const STOP_BATCHES: usize = 7;
const PAGES: usize = 256;
const INTERRUPTS: u32 = 100;
const INTERRUPT_BATCHES: usize = 5;
const SPIN_NS: u64 = 5_000_000;

/// The costs: from this boot's cache, else measured now. A kind that cannot be measured stays unknown.
#[must_use]
pub fn crossings(probe: &mut Probe, limits: &Limits, able: Able) -> Crossings {
    if !able.split {
        return Crossings::default();
    }
    let key = cache_key(probe, limits, able);
    if let Some(crossings) = load_cache(&key) {
        return crossings;
    }
    let crossings = measure(probe);
    // What failed once, or was measured on a busy machine, may come out better at the next start.
    if crossings.is_whole() && is_steady(&crossings) {
        store_cache(&key, &crossings);
    }
    crossings
}

/// The batches of each kind lay within a sixth of their cost, of interrupts (few, and long) within a third: nobody
/// else used this CPU's caches.
fn is_steady(crossings: &Crossings) -> bool {
    (0..crossing::COUNT).all(|kind| {
        let part = if kind == crossing::INTERRUPT || kind == crossing::PREEMPTION { 3 } else { 6 };
        let spread_ps = crossings.spread_ps[kind].unwrap_or(u64::MAX);
        spread_ps.saturating_mul(part) <= crossings.cost_ps[kind].unwrap_or(0)
    })
}

/// Measures every kind.
pub fn measure(probe: &mut Probe) -> Crossings {
    let mut crossings = Crossings::default();
    let mut note = |kind: usize, result: Result<Cost>| match result {
        Ok(cost) => {
            crossings.cost_ps[kind] = Some(cost.ps);
            crossings.spread_ps[kind] = Some(cost.spread_ps);
        }
        Err(error) => debug!("calibration of {}: {error:#}", crossing::NAMES[kind]),
    };
    let syscall = syscall_cost(probe);
    let syscall_ps = syscall.as_ref().map_or(0, |cost| cost.ps);
    note(crossing::SYSCALL, syscall);
    note(crossing::STOP, stop_cost(probe, syscall_ps));
    note(crossing::FAULT, fault_cost(probe));
    let interrupt = interrupt_cost(probe);
    // Out of user mode and back: the same entry and exit code as an interrupt, whose two sides are counted as one.
    note(crossing::PREEMPTION, interrupt.as_ref().map(Cost::half).map_err(|e| anyhow!("{e:#}")));
    note(crossing::INTERRUPT, interrupt);
    crossings
}

/// A thread that is observed, and works when told to.
struct Worker {
    slot: u32,
    go: Sender<()>,
    done: Receiver<u64>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    /// Starts it. `work` returns its own user time, ns.
    fn start(probe: &mut Probe, mut work: impl FnMut() -> u64 + Send + 'static) -> Result<Self> {
        let (go, begin) = channel::<()>();
        let (report, done) = channel::<u64>();
        let thread = thread::spawn(move || {
            // SAFETY: a syscall without arguments.
            let tid = unsafe { libc::gettid() };
            let _ = report.send(u64::from(tid.unsigned_abs()));
            while begin.recv().is_ok() {
                let user_ns = work();
                if report.send(user_ns).is_err() {
                    break;
                }
            }
        });
        let tid = u32::try_from(done.recv()?)?;
        let slot = observe(probe, tid)?;
        Ok(Self { slot, go, done, thread })
    }

    /// One piece of work: what the books say it added, and what the work itself says of its user time.
    fn piece(&self, probe: &Probe, meanwhile: impl FnOnce(&Task)) -> Result<(Task, Task, u64)> {
        let before = settled(probe, self.slot)?;
        self.go.send(())?;
        meanwhile(&before);
        let own_ns = self.done.recv()?;
        let after = settled(probe, self.slot)?;
        Ok((before, after, own_ns))
    }

    /// Ends it, and its account: what the calibration observed must not turn up among the session's tasks.
    fn end(self, probe: &Probe) {
        drop(self.go);
        let _ = self.thread.join();
        wait_for_end(probe, self.slot);
    }
}

/// Lets a worker do `pieces` and returns what they cost.
fn cost_of(
    probe: &mut Probe,
    work: impl FnMut() -> u64 + Send + 'static,
    pieces: impl FnOnce(&Worker, &Probe) -> Result<Vec<u64>>,
) -> Result<Cost> {
    let worker = Worker::start(probe, work)?;
    let costs = pieces(&worker, probe);
    worker.end(probe);
    Cost::of(costs?)
}

/// Waits for the last switch of a task that has been joined or reaped: both come before it (`exit_mm`,
/// `exit_notify`, kernel/exit.c), by as long as the task is preempted there.
fn wait_for_end(probe: &Probe, slot: u32) {
    for _ in 0..2000 {
        if probe.task(slot).is_some_and(|task| task.state != state::LIVE) {
            return;
        }
        thread::sleep(Duration::from_micros(100));
    }
    debug!("a task of the calibration (slot {slot}) has not ended");
}

/// Opens an account for a thread, for nobody else yet, and finds its slot.
fn observe(probe: &mut Probe, tid: u32) -> Result<u32> {
    probe.find_only(tid)?;
    let used = probe.used_slots();
    used.into_iter()
        .map(|(slot, _)| slot)
        .find(|slot| {
            probe.task(*slot).is_some_and(|task| task.tid == tid && task.state == state::LIVE)
        })
        .ok_or_else(|| anyhow!("thread {tid} was not found"))
}

/// The account when its task has gone to sleep: then nothing is open.
fn settled(probe: &Probe, slot: u32) -> Result<Task> {
    let mut last = probe.task(slot).ok_or_else(|| anyhow!("no account"))?;
    for _ in 0..200 {
        thread::sleep(Duration::from_micros(50));
        let now = probe.task(slot).ok_or_else(|| anyhow!("no account"))?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
    bail!("the account does not hold still")
}

fn grown(before: &[u64], after: &[u64], index: usize) -> u64 {
    after[index].saturating_sub(before[index])
}

/// A border of a syscall: what getppid adds to the user time of a loop that does a little of its own.
///
/// An empty loop would say more (100 against 92 ns here): there the processor has nothing to overlap the way
/// into the kernel and out of it with. Programs do something between two syscalls, so this loop does too.
fn syscall_cost(probe: &mut Probe) -> Result<Cost> {
    let work = || {
        let begin = Instant::now();
        for _ in 0..SYSCALLS {
            black_box(Instant::now());
        }
        let own_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..SYSCALLS {
            // SAFETY: a syscall without arguments.
            black_box(unsafe { libc::syscall(libc::SYS_getppid) });
            black_box(Instant::now());
        }
        2 * own_ns
    };
    cost_of(probe, work, |worker, probe| {
        let mut costs = Vec::new();
        for _ in 0..BATCHES {
            let (before, after, own_ns) = worker.piece(probe, |_| {})?;
            let borders = grown(&before.crossings, &after.crossings, crossing::SYSCALL);
            let user_ns = grown(&before.mode_ns, &after.mode_ns, mode::USER).saturating_sub(own_ns);
            costs.extend((user_ns * 1000).checked_div(borders));
        }
        Ok(costs)
    })
}

/// A border of a ptrace stop: a tracee that does nothing between its stops.
fn stop_cost(probe: &mut Probe, syscall_ps: u64) -> Result<Cost> {
    // SAFETY: the child calls only what is safe after a fork of a process with threads, and ends by _exit.
    let child = match unsafe { fork() }? {
        ForkResult::Child => tracee(),
        ForkResult::Parent { child } => child,
    };
    let result = trace(probe, child);
    // It may have ended.
    let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    let (slot, readings) = result?;
    wait_for_end(probe, slot);
    let costs = readings.windows(2).filter_map(|pair| {
        let (before, after) = (&pair[0], &pair[1]);
        let stops = grown(&before.crossings, &after.crossings, crossing::STOP);
        let syscalls = grown(&before.crossings, &after.crossings, crossing::SYSCALL);
        let user_ps = grown(&before.mode_ns, &after.mode_ns, mode::USER) * 1000;
        user_ps.saturating_sub(syscalls * syscall_ps).checked_div(stops)
    });
    Cost::of(costs.collect())
}

fn tracee() -> ! {
    if ptrace::traceme().is_err() {
        // Somebody traces it already (`strace -f observer`): its parent would wait for this stop for ever.
        // SAFETY: ends this process without running anything of its parent's.
        unsafe { libc::_exit(1) };
    }
    let _ = raise(Signal::SIGSTOP);
    loop {
        // SAFETY: a syscall without arguments; the tracer ends this process by SIGKILL.
        black_box(unsafe { libc::syscall(libc::SYS_getppid) });
    }
}

/// The tracee's slot, and readings of its account with [`STOPS`] stops between each.
fn trace(probe: &mut Probe, child: Pid) -> Result<(u32, Vec<Task>)> {
    let WaitStatus::Stopped(..) = waitpid(child, None)? else { bail!("the tracee did not stop") };
    ptrace::setoptions(child, ptrace::Options::PTRACE_O_EXITKILL)?;
    let slot = observe(probe, child.as_raw().unsigned_abs())?;
    let run = |stops: u64| -> Result<Task> {
        for _ in 0..stops {
            ptrace::syscall(child, None)?;
            waitpid(child, None)?;
        }
        settled(probe, slot)
    };
    // The first stops are of cold code.
    let first = run(20);
    let readings = std::iter::once(first).chain((0..STOP_BATCHES).map(|_| run(STOPS)));
    Ok((slot, readings.collect::<Result<_>>()?))
}

/// A border of a page fault: fresh pages touched one by one.
fn fault_cost(probe: &mut Probe) -> Result<Cost> {
    if !probe.is_active(hook::FAULT) || !probe.is_active(hook::FAULT_MIN) {
        bail!("the end of a page fault is not seen here");
    }
    let work = || {
        if let Ok(pages) = Pages::map(PAGES) {
            (0..PAGES).for_each(|page| pages.touch(page));
        }
        0
    };
    cost_of(probe, work, |worker, probe| {
        let mut costs = Vec::new();
        for _ in 0..BATCHES {
            let (before, after, _) = worker.piece(probe, |_| {})?;
            let borders = grown(&before.crossings, &after.crossings, crossing::FAULT);
            if borders >= PAGES as u64 {
                costs.push(grown(&before.mode_ns, &after.mode_ns, mode::USER) * 1000 / borders);
            }
        }
        Ok(costs)
    })
}

/// Both sides of an interrupt in user mode: a spin that times itself, interrupted from here.
fn interrupt_cost(probe: &mut Probe) -> Result<Cost> {
    let clock = Clock::measure()?;
    let work = move || {
        let tally = clock.burn(Amount::UserNs(SPIN_NS));
        // A gap without a kernel entry is the hypervisor's: to every hook it is user time.
        let host_ns = if clock.marks { tally.gap_ns - tally.kernel_gap_ns } else { 0 };
        tally.user_ns + host_ns
    };
    cost_of(probe, work, |worker, probe| {
        let mut costs = Vec::new();
        for _ in 0..INTERRUPT_BATCHES {
            let (before, after, own_ns) = worker.piece(probe, |before| {
                for _ in 0..INTERRUPTS {
                    // Reading the CPU that the worker runs on interrupts it.
                    let _ = probe.read_cpu(before.cpu);
                }
            })?;
            let interrupts = grown(&before.crossings, &after.crossings, crossing::INTERRUPT);
            let user_ns = grown(&before.mode_ns, &after.mode_ns, mode::USER);
            // A preemption costs more than an interrupt, in cold caches too.
            let preemptions = after.switches_involuntary - before.switches_involuntary;
            if interrupts >= u64::from(INTERRUPTS) / 4 && preemptions <= interrupts / 50 {
                costs.push(user_ns.saturating_sub(own_ns) * 1000 / interrupts);
            }
        }
        Ok(costs)
    })
}

/// What one border costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    /// The lower quartile of the batches, ps: whoever else uses the machine only ever adds.
    ps: u64,
    /// Half of the range between the quartiles, ps.
    spread_ps: u64,
}

impl Cost {
    fn half(&self) -> Self {
        Self { ps: self.ps / 2, spread_ps: self.spread_ps / 2 }
    }

    fn of(mut batches_ps: Vec<u64>) -> Result<Self> {
        batches_ps.sort_unstable();
        let quarter = batches_ps.len() / 4;
        let quartiles = (batches_ps.get(quarter), batches_ps.iter().rev().nth(quarter));
        let (Some(low_ps), Some(high_ps)) = quartiles else {
            bail!("nothing could be measured");
        };
        Ok(Self { ps: *low_ps, spread_ps: (high_ps - low_ps) / 2 })
    }
}

/// The costs hold for this boot, this program and these hooks.
fn cache_key(probe: &Probe, limits: &Limits, able: Able) -> String {
    let active: String =
        probe.status().iter().map(|status| if status.is_active() { '1' } else { '0' }).collect();
    format!(
        "{}-{}-{}-{active}{}",
        limits.boot_id.as_deref().unwrap_or("unknown"),
        env!("CARGO_PKG_VERSION"),
        crate::probe::OBJECT.len(),
        // Reading counters lengthens each switch.
        if able.cycles { "c" } else { "" },
    )
}

fn cache_path(key: &str) -> Option<PathBuf> {
    // Only root's word is taken: the folder must be ours.
    nix::unistd::Uid::effective().is_root().then(|| PathBuf::from("/run/observer").join(key))
}

fn load_cache(key: &str) -> Option<Crossings> {
    let text = fs::read_to_string(cache_path(key)?).ok()?;
    let (cost_ps, spread_ps) = serde_json::from_str(&text).ok()?;
    Some(Crossings { cost_ps, spread_ps })
}

fn store_cache(key: &str, crossings: &Crossings) {
    let store = || -> Option<()> {
        let path = cache_path(key)?;
        let _ = fs::DirBuilder::new().mode(0o755).create(path.parent()?);
        let draft = path.with_extension("tmp");
        fs::write(&draft, serde_json::to_vec(&(crossings.cost_ps, crossings.spread_ps)).ok()?)
            .ok()?;
        fs::rename(draft, path).ok()
    };
    if store().is_none() {
        debug!("the calibration could not be kept for the next start");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_does_not_move_the_cost() {
        let quiet = Cost::of(vec![101, 100, 99, 100, 102, 98, 100]).unwrap();
        let busy = Cost::of(vec![900, 100, 99, 100, 150, 98, 5_000]).unwrap();
        assert_eq!(quiet.ps, busy.ps);
        assert!(busy.spread_ps > 20 * quiet.spread_ps.max(1), "and the spread says that it was");
        assert!(Cost::of(Vec::new()).is_err());
        assert_eq!(Cost::of(vec![7]).unwrap(), Cost { ps: 7, spread_ps: 0 });
    }
}
