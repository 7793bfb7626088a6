//! The measurement: subjects of ours that cross one kind of border over and over, a batch at a time.
//!
//! The kinds take turns in rounds. A host that is slow for some milliseconds then slows a few batches of each kind,
//! which the lower quartile leaves out and the spread tells, in place of all batches of one kind, which nothing tells.

use std::{
    hint::black_box,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use log::debug;
use nix::unistd::{getppid, gettid};
use observer_common::{
    names::hook,
    task::{Task, crossing, mode, state},
};
use rustix::thread::sched_setaffinity;

use super::{
    cost::{Batch, costs},
    place::Stay,
    tracee::Tracee,
};
use crate::{
    lab::workload::{
        clock::{Amount, Clock},
        memory::Pages,
    },
    model::Crossings,
    probe::Probe,
};

/// Long enough for cold caches not to matter, short enough for a look.
const SYSCALLS: u64 = 1_000;
const PAGES: usize = 256;
const INTERRUPTS: u32 = 100;
const SPIN_NS: u64 = 2_500_000;

/// How many batches of each kind of a round, and how many rounds.
struct Plan {
    rounds: usize,
    batches: &'static [(usize, usize)],
}

/// Every kind. Interrupts are few to a batch and long; a host that is slow in one of four rounds, or in two, moves no
/// cost.
const FULL: Plan = Plan {
    rounds: 4,
    batches: &[
        (crossing::SYSCALL, 2),
        (crossing::STOP, 2),
        (crossing::FAULT, 2),
        (crossing::INTERRUPT, 1),
    ],
};
/// The two kinds that are the most of what programs cross, and that a slow host shows in. The first batch of a turn
/// finds the caches of another kind, so it has a second one.
const LOOK: Plan = Plan { rounds: 2, batches: &[(crossing::SYSCALL, 2), (crossing::STOP, 2)] };

/// Measures every kind: about 60 ms.
pub fn measure(probe: &mut Probe) -> Crossings {
    run(probe, &FULL)
}

/// Measures a syscall and a stop: about 13 ms.
pub fn look(probe: &mut Probe) -> Crossings {
    run(probe, &LOOK)
}

/// Somebody who crosses borders of one kind.
pub trait Subject {
    /// One batch; none where something came in between.
    fn batch(&mut self, probe: &Probe) -> Result<Option<Batch>>;

    /// Ends it, and its account: what the calibration observed must not turn up among the session's tasks.
    fn end(self: Box<Self>, probe: &Probe);
}

fn subject(probe: &mut Probe, kind: usize, stay: Option<&Stay>) -> Result<Box<dyn Subject>> {
    Ok(match kind {
        crossing::SYSCALL => Box::new(syscalls(probe)?),
        crossing::STOP => Box::new(Tracee::start(probe)?),
        crossing::FAULT => Box::new(faults(probe)?),
        _ => Box::new(interrupts(probe, stay)?),
    })
}

fn run(probe: &mut Probe, plan: &Plan) -> Crossings {
    let stay = Stay::here();
    let mut batches: [Vec<Batch>; crossing::COUNT] = Default::default();
    let mut subjects = Vec::new();
    for (kind, count) in plan.batches {
        match subject(probe, *kind, stay.as_ref()) {
            Ok(subject) => subjects.push((*kind, *count, subject)),
            Err(error) => debug!("calibration of {}: {error:#}", crossing::NAMES[*kind]),
        }
    }
    for _ in 0..plan.rounds {
        for (kind, count, subject) in &mut subjects {
            for _ in 0..*count {
                match subject.batch(probe) {
                    Ok(batch) => batches[*kind].extend(batch),
                    Err(error) => debug!("calibration of {}: {error:#}", crossing::NAMES[*kind]),
                }
            }
        }
    }
    for (_, _, subject) in subjects {
        subject.end(probe);
    }
    costs(&batches)
}

/// A thread that is observed, and works when told to.
struct Worker {
    slot: u32,
    /// Its account when it last went to sleep.
    last: Task,
    go: Sender<()>,
    done: Receiver<u64>,
    thread: thread::JoinHandle<()>,
    /// What we do while it works; it gets the slot.
    meanwhile: fn(&Probe, u32),
    batch: fn(&Task, &Task, u64) -> Option<Batch>,
}

impl Worker {
    /// Starts it. `work` returns its own user time, ns; `batch` makes a batch of the account before and after it,
    /// and of that.
    fn start(
        probe: &mut Probe,
        mut work: impl FnMut() -> u64 + Send + 'static,
        meanwhile: fn(&Probe, u32),
        batch: fn(&Task, &Task, u64) -> Option<Batch>,
    ) -> Result<Self> {
        let (go, begin) = channel::<()>();
        let (report, done) = channel::<u64>();
        let thread = thread::spawn(move || {
            let _ = report.send(u64::from(gettid().as_raw().unsigned_abs()));
            while begin.recv().is_ok() {
                let user_ns = work();
                if report.send(user_ns).is_err() {
                    break;
                }
            }
        });
        let tid = u32::try_from(done.recv()?)?;
        let slot = observe(probe, tid)?;
        let last = settled(probe, slot)?;
        Ok(Self { slot, last, go, done, thread, meanwhile, batch })
    }
}

impl Subject for Worker {
    fn batch(&mut self, probe: &Probe) -> Result<Option<Batch>> {
        self.go.send(())?;
        (self.meanwhile)(probe, self.slot);
        let own_ns = self.done.recv()?;
        let after = settled(probe, self.slot)?;
        let before = std::mem::replace(&mut self.last, after);
        Ok((self.batch)(&before, &self.last, own_ns))
    }

    fn end(self: Box<Self>, probe: &Probe) {
        drop(self.go);
        let _ = self.thread.join();
        wait_for_end(probe, self.slot);
    }
}

/// Waits for the last switch of a task that has been joined or reaped: both come before it (`exit_mm`,
/// `exit_notify`, kernel/exit.c), by as long as the task is preempted there.
pub fn wait_for_end(probe: &Probe, slot: u32) {
    for _ in 0..2000 {
        if probe.task(slot).is_some_and(|task| task.state != state::LIVE) {
            return;
        }
        thread::sleep(Duration::from_micros(100));
    }
    debug!("a task of the calibration (slot {slot}) has not ended");
}

/// Opens an account for a thread, for nobody else yet, and finds its slot.
pub fn observe(probe: &mut Probe, tid: u32) -> Result<u32> {
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
pub fn settled(probe: &Probe, slot: u32) -> Result<Task> {
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

pub fn grown(before: &[u64], after: &[u64], index: usize) -> u64 {
    after[index].saturating_sub(before[index])
}

pub fn user_ns(before: &Task, after: &Task) -> u64 {
    grown(&before.mode_ns, &after.mode_ns, mode::USER)
}

/// A border of a syscall: what getppid adds to the user time of a loop that does a little of its own.
///
/// An empty loop would say more (100 against 92 ns here): there the processor has nothing to overlap the way
/// into the kernel and out of it with. Programs do something between two syscalls, so this loop does too.
fn syscalls(probe: &mut Probe) -> Result<Worker> {
    let work = || {
        let begin = Instant::now();
        for _ in 0..SYSCALLS {
            black_box(Instant::now());
        }
        let own_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..SYSCALLS {
            black_box(getppid());
            black_box(Instant::now());
        }
        2 * own_ns
    };
    Worker::start(
        probe,
        work,
        |_, _| {},
        |before, after, own_ns| {
            let borders = grown(&before.crossings, &after.crossings, crossing::SYSCALL);
            Some(Batch::of(user_ns(before, after).saturating_sub(own_ns), borders))
        },
    )
}

/// A border of a page fault: fresh pages touched one by one.
fn faults(probe: &mut Probe) -> Result<Worker> {
    if !probe.is_active(hook::FAULT) || !probe.is_active(hook::FAULT_MIN) {
        bail!("the end of a page fault is not seen here");
    }
    let work = || {
        if let Ok(pages) = Pages::map(PAGES) {
            (0..PAGES).for_each(|page| pages.touch(page));
        }
        0
    };
    Worker::start(
        probe,
        work,
        |_, _| {},
        |before, after, _| {
            let borders = grown(&before.crossings, &after.crossings, crossing::FAULT);
            (borders >= PAGES as u64).then(|| Batch::of(user_ns(before, after), borders))
        },
    )
}

/// Both sides of an interrupt in user mode: a spin that times itself, interrupted from here.
fn interrupts(probe: &mut Probe, stay: Option<&Stay>) -> Result<Worker> {
    let elsewhere = stay.and_then(Stay::elsewhere);
    let Some(elsewhere) = elsewhere else { bail!("there is no second CPU to interrupt it from") };
    let clock = Clock::measure()?;
    let mut is_there = false;
    let work = move || {
        if !is_there {
            is_there = sched_setaffinity(None, &elsewhere).is_ok();
        }
        let tally = clock.burn(Amount::UserNs(SPIN_NS));
        // A gap without a kernel entry is the hypervisor's: to every hook it is user time.
        let host_ns = if clock.marks { tally.gap_ns - tally.kernel_gap_ns } else { 0 };
        tally.user_ns + host_ns
    };
    let meanwhile = |probe: &Probe, slot: u32| {
        for _ in 0..INTERRUPTS {
            // Reading the CPU that the worker runs on interrupts it.
            let cpu = probe.task(slot).map(|task| task.cpu);
            let _ = cpu.map(|cpu| probe.read_cpu(cpu));
        }
    };
    Worker::start(probe, work, meanwhile, |before, after, own_ns| {
        let interrupts = grown(&before.crossings, &after.crossings, crossing::INTERRUPT);
        // A preemption costs more than an interrupt, in cold caches too.
        let preemptions = after.switches_involuntary - before.switches_involuntary;
        let is_good = interrupts >= u64::from(INTERRUPTS) / 4 && preemptions <= interrupts / 50;
        is_good.then(|| Batch::of(user_ns(before, after).saturating_sub(own_ns), interrupts))
    })
}
