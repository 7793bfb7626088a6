//! Tracers and threads: one traced thread of three, exec from a thread, and a waiter that is not the tracer.

use std::io::{Read as _, pipe};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, getpid, gettid};
use serde_json::Value;

use super::super::clock::Clock;
use super::super::memory::Shared;
use super::super::os::{Child, Place};
use super::super::report::{Report, Window};
use super::super::spin::LONGEST_MS;
use super::super::syscalls::getppid;
use super::super::{exec_thread as exec, os::exit_now};
use super::tracer::{
    EVENT_STOP, GO, TRUTH_WORDS, Tracer, Truth, expect_end, expect_event, seize, wait_for,
    wait_until,
};

/// `PTRACE_EVENT_CLONE`.
const EVENT_CLONE: i32 = ptrace::Event::PTRACE_EVENT_CLONE as i32;
/// `PTRACE_EVENT_EXEC`.
const EVENT_EXEC: i32 = ptrace::Event::PTRACE_EVENT_EXEC as i32;
/// Threads of `one-thread`.
const THREADS: usize = 3;
/// The one that is traced.
const TRACED: usize = 1;
/// Flags: the tids of the threads, and the end of tracing.
const TIDS: usize = 4;
/// See [`TIDS`].
const LET_GO: usize = 8;
/// Where the truths are.
const TRUTHS: usize = 16;

/// Options of `stops one-thread`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OneThreadArgs {
    /// Stops
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub stops: u64,
    /// Length of each, milliseconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub hold_ms: u64,
    /// User time of each thread, milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub burn_ms: u64,
}

/// Options of `stops exec-thread`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ExecThreadArgs {
    /// User time in total, milliseconds: half before exec, half after it
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=LONGEST_MS))]
    pub ms: u64,
}

/// Options of `stops other-waiter`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OtherWaiterArgs {
    /// Syscalls of the tracee
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub syscalls: u64,
    /// User time of the tracee, milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub burn_ms: u64,
}

/// Interrupts and resumes the second of three busy threads.
pub fn one_thread(args: OneThreadArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let process = Child::fork(|| {
        thread::scope(|scope| {
            for index in 0..THREADS {
                let (clock, shared) = (&clock, &shared);
                scope.spawn(move || busy(index, args.burn_ms, clock, shared));
            }
        });
        0
    })?;
    for index in 0..THREADS {
        wait_until(&shared, TIDS + index)?;
    }
    let tid = Pid::from_raw(i32::try_from(shared.get(TIDS + TRACED))?);
    let mut tracer = Tracer::default();
    seize(tid, Options::empty())?;
    shared.set(GO, 1);
    for stop in 1..=args.stops {
        ptrace::interrupt(tid)?;
        expect_event(&tracer.next_of(tid)?, EVENT_STOP)?;
        tracer.hold(tid, args.hold_ms)?;
        // A thread that ends while it is traced would wait for its tracer.
        if stop == args.stops { ptrace::detach(tid, None)? } else { ptrace::cont(tid, None)? }
    }
    shared.set(LET_GO, 1);
    let pid = process.pid();
    let code = process.wait()?.code;
    ensure!(code == 0, "the process ended with status {code}");
    let closed = window.close()?;
    let threads: Vec<Value> = (0..THREADS)
        .map(|index| Truth::load(&shared, TRUTHS + index * TRUTH_WORDS, &clock))
        .collect();
    let report = Report::new("stops")
        .with("case", "one-thread")
        .with("tracer_tid", getpid().as_raw())
        .with("process", pid.as_raw())
        .with("traced_tid", tid.as_raw())
        .with("threads", threads);
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

/// A busy thread: at least its user time, and not over before the tracer has done its part.
fn busy(index: usize, burn_ms: u64, clock: &Clock, shared: &Shared) {
    shared.set(TIDS + index, u64::from(gettid().as_raw().unsigned_abs()));
    while shared.get(GO) == 0 {
        thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut truth = Truth::burn(clock, burn_ms);
    while shared.get(LET_GO) == 0 {
        truth.burn_on(clock, 1);
    }
    truth.store(shared, TRUTHS + index * TRUTH_WORDS, gettid());
}

/// Follows a process through an exec by its second thread.
pub fn exec_thread(args: ExecThreadArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let (mut from_tracee, to_tracer) = pipe().context("cannot make a pipe")?;
    let window = Window::open()?;
    let mut tracee = Child::fork(|| {
        // SAFETY: dup2 of a file that this process owns onto its standard output, which nothing in it uses.
        if unsafe { libc::dup2(to_tracer.as_raw_fd(), 1) } < 0 {
            exit_now(1);
        }
        wait_for(&shared, GO);
        // Returns only if it failed.
        let failed = exec::run(&exec::ExecThreadArgs { ms: args.ms, place: Place::default() });
        eprintln!("{failed:?}");
        1
    })?;
    drop(to_tracer);
    let leader = tracee.pid();
    seize(leader, Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEEXEC)?;
    shared.set(GO, 1);
    let mut tracer = Tracer::default();

    expect_event(&tracer.next(&mut tracee)?, EVENT_CLONE)?;
    let thread = Pid::from_raw(i32::try_from(ptrace::getevent(leader)?)?);
    ptrace::cont(leader, None)?;
    expect_event(&tracer.next_of(thread)?, EVENT_STOP)?;
    ptrace::cont(thread, None)?;
    // Comes under the id of the leader, which is gone.
    expect_event(&tracer.next(&mut tracee)?, EVENT_EXEC)?;
    let former = ptrace::getevent(leader)?;
    ensure!(former == i64::from(thread.as_raw()), "exec by {former}, not by {thread}");
    ptrace::cont(leader, None)?;
    expect_end(&tracer.follow(&mut tracee)?)?;

    let mut text = String::new();
    from_tracee.read_to_string(&mut text).context("the tracee's report")?;
    let after: Value = serde_json::from_str(&text).context("the tracee's report")?;
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "exec-thread")
        .with("tracer_tid", getpid().as_raw())
        .with("tracee_tid", leader.as_raw())
        .with("former_tid", thread.as_raw())
        .with("tracee", after);
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

/// One thread attaches and resumes; another one of its process waits.
pub fn other_waiter(args: OtherWaiterArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let mut tracee = Child::fork(|| {
        wait_for(&shared, GO);
        for _ in 0..args.syscalls {
            getppid();
        }
        Truth::burn(&clock, args.burn_ms).store(&shared, TRUTHS, getpid());
        shared.set(LET_GO, 1);
        0
    })?;
    let pid = tracee.pid();
    let mut waiter = Tracer::default();
    let tracer_tid = thread::scope(|scope| -> Result<Pid> {
        let (stopped, stops) = mpsc::channel::<bool>();
        let shared = &shared;
        let tracer = scope.spawn(move || -> Result<Pid> {
            seize(pid, Options::PTRACE_O_TRACESYSGOOD)?;
            ptrace::interrupt(pid)?;
            shared.set(GO, 1);
            for traced in stops {
                if traced { ptrace::syscall(pid, None)? } else { ptrace::cont(pid, None)? }
            }
            Ok(gettid())
        });
        // Until the tracee is attached there is nothing to wait for but its end.
        wait_until(shared, GO)?;
        loop {
            match waiter.next(&mut tracee)? {
                WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_) => {}
                other => bail!("the tracee ended too early: {other:?}"),
            }
            let last = shared.get(LET_GO) == 1;
            stopped.send(!last).context("the tracer has given up")?;
            if last {
                break;
            }
        }
        // The end of a thread that traces is the end of its tracees.
        tracee.wait_dead()?;
        drop(stopped);
        tracer.join().map_err(|_| anyhow!("the tracer panicked"))?
    })?;
    let code = tracee.wait()?.code;
    ensure!(code == 0, "the tracee ended with status {code}");
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "other-waiter")
        .with("syscalls", args.syscalls)
        .with("tracer_tid", tracer_tid.as_raw())
        .with("waiter_tid", getpid().as_raw())
        .with("tracee", Truth::load(&shared, TRUTHS, &clock));
    Ok(closed.add_to(waiter.add_to(report)).with_clock(&clock).finish())
}
