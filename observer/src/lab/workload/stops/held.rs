//! Stops that a living tracer holds: exit, group and interrupt.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, pause};
use serde_json::Value;

use super::super::clock::{Clock, now_ns};
use super::super::memory::Shared;
use super::super::os::Child;
use super::super::report::{Report, Window};
use super::HoldArgs;
use super::tracer::{
    EVENT_EXIT, EVENT_STOP, GO, TRUTH_WORDS, Tracer, Truth, expect_end, expect_event, is_killed,
    seize, settle, wait_for, wait_until,
};

/// Where the tracee's truth is; that of the untraced task follows it.
const TRUTH: usize = 4;
/// See [`TRUTH`].
const UNTRACED: usize = TRUTH + TRUTH_WORDS;
/// From the report of a job-control stop to its switch: nobody can ask a task that is not traced.
const SETTLE_MS: u64 = 20;

/// Holds a tracee in PTRACE_EVENT_EXIT, on its way out by itself or by SIGKILL.
pub fn exit_event(args: HoldArgs, killed: bool) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let mut tracee = Child::fork(|| {
        wait_for(&shared, GO);
        Truth::burn(&clock, args.burn_ms).store(&shared, TRUTH, getpid());
        if killed {
            pause();
        }
        0
    })?;
    let pid = tracee.pid();
    seize(pid, Options::PTRACE_O_TRACEEXIT)?;
    shared.set(GO, 1);
    if killed {
        wait_until(&shared, TRUTH)?;
        kill(pid, Signal::SIGKILL)?;
    }
    let mut tracer = Tracer::default();
    expect_event(&tracer.next(&mut tracee)?, EVENT_EXIT)?;
    let moved = if killed {
        // From 6.1 on another SIGKILL does not take it out of this stop.
        tracer.hold(pid, args.hold_ms / 2)?;
        kill(pid, Signal::SIGKILL)?;
        tracer.hold(pid, args.hold_ms.div_ceil(2)).is_err()
    } else {
        tracer.hold(pid, args.hold_ms)?;
        false
    };
    if !moved {
        ptrace::cont(pid, None)?;
    }
    let ended = tracer.follow(&mut tracee)?;
    ensure!(is_killed(&ended) == killed, "the tracee ended otherwise: {ended:?}");
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", if killed { "kill-at-exit" } else { "exit-event" })
        .with("moved_by_second_kill", moved)
        .with("tracer_tid", getpid().as_raw())
        .with("tracee", Truth::load(&shared, TRUTH, &clock));
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

/// A SIGSTOP that is delivered to a seized task, and one to a task that nobody traces.
pub fn group_stop(args: HoldArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let stops_itself = |at: usize| {
        wait_for(&shared, GO);
        let mut truth = Truth::burn(&clock, args.burn_ms / 2);
        if raise(Signal::SIGSTOP).is_err() {
            return 1;
        }
        truth.burn_on(&clock, args.burn_ms.div_ceil(2));
        truth.store(&shared, at, getpid());
        0
    };
    let mut tracee = Child::fork(|| stops_itself(TRUTH))?;
    let pid = tracee.pid();
    seize(pid, Options::empty())?;
    shared.set(GO, 1);
    let mut tracer = Tracer::default();
    match tracer.next(&mut tracee)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => ptrace::cont(pid, Signal::SIGSTOP)?,
        other => bail!("expected SIGSTOP, got {other:?}"),
    }
    expect_event(&tracer.next(&mut tracee)?, EVENT_STOP)?;
    // As debuggers do it: the tracee stays stopped, but SIGCONT will end that.
    settle(pid)?;
    listen(pid)?;
    let start_ns = now_ns();
    sleep(Duration::from_millis(args.hold_ms));
    tracer.held_ns += now_ns().saturating_sub(start_ns);
    kill(pid, Signal::SIGCONT)?;
    expect_end(&tracer.follow(&mut tracee)?)?;

    let untraced = Child::fork(|| stops_itself(UNTRACED))?;
    let job_held_ns = hold_job(untraced.pid(), args.hold_ms)?;
    let code = untraced.wait()?.code;
    ensure!(code == 0, "the untraced task ended with status {code}");
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "group-stop")
        .with("tracer_tid", getpid().as_raw())
        .with("tracee", Truth::load(&shared, TRUTH, &clock))
        .with("untraced", Truth::load(&shared, UNTRACED, &clock))
        .with("job_held_ns", job_held_ns);
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

/// Waits for the job-control stop of a child, and ends it by SIGCONT; how long it lasted at least, ns.
pub fn hold_job(pid: Pid, ms: u64) -> Result<u64> {
    let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).context("cannot wait for a stop")?;
    ensure!(matches!(status, WaitStatus::Stopped(..)), "expected a stop, got {status:?}");
    sleep(Duration::from_millis(SETTLE_MS));
    let start_ns = now_ns();
    sleep(Duration::from_millis(ms));
    let held_ns = now_ns().saturating_sub(start_ns);
    kill(pid, Signal::SIGCONT)?;
    Ok(held_ns)
}

/// Stops a tracee, lets go of it, and only then lets it burn.
pub fn detach(args: HoldArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let mut tracee = Child::fork(|| {
        while shared.get(GO) == 0 {
            sleep(Duration::from_millis(1));
        }
        Truth::burn(&clock, args.burn_ms).store(&shared, TRUTH, getpid());
        0
    })?;
    let pid = tracee.pid();
    let mut tracer = Tracer::default();
    seize(pid, Options::empty())?;
    ptrace::interrupt(pid)?;
    expect_event(&tracer.next(&mut tracee)?, EVENT_STOP)?;
    tracer.hold(pid, args.hold_ms)?;
    shared.set(GO, 1);
    ptrace::detach(pid, None)?;
    let ended = tracee.wait()?;
    ensure!(ended.code == 0, "the tracee ended with status {}", ended.code);
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "detach")
        .with("tracer_tid", getpid().as_raw())
        .with("tracee", Truth::load(&shared, TRUTH, &clock));
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

/// PTRACE_LISTEN.
fn listen(pid: Pid) -> Result<()> {
    // SAFETY: PTRACE_LISTEN reads no memory through its arguments.
    let done = unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid.as_raw(), 0_usize, 0_usize) };
    Errno::result(done).map(drop).context("PTRACE_LISTEN is refused")
}
