//! `stops tracer-dies`: the tracer is killed while its tracee is stopped, or while it runs.
//!
//! Without PTRACE_O_EXITKILL the tracee goes on: at once, or, if the stop was for a SIGSTOP that its tracer has not
//! waited for, into the job-control stop that this signal asks for.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum as _;
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
use super::tracer::{EVENT_STOP, GO, Tracer, Truth, expect_event, is_killed, settle, wait_until};

/// How the tracer takes its tracee.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// PTRACE_TRACEME, then SIGSTOP
    Traceme,
    /// PTRACE_ATTACH
    Attach,
    /// PTRACE_SEIZE, then PTRACE_INTERRUPT
    Seize,
}

/// Options of `stops tracer-dies`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DiesArgs {
    /// How the tracer takes its tracee
    #[arg(long, value_enum, default_value_t = Means::Seize)]
    pub attach: Means,
    /// The tracee runs when the tracer dies (else it is stopped)
    #[arg(long)]
    pub running: bool,
    /// With PTRACE_O_EXITKILL
    #[arg(long)]
    pub exitkill: bool,
    #[command(flatten)]
    /// How long
    pub hold: HoldArgs,
}

/// Counters shared by all three, by slot; [`GO`] is one of them.
mod slot {
    pub const TRACEE: usize = 1;
    /// The tracee has begun to burn.
    pub const STARTED: usize = 2;
    pub const STOPPED_NS: usize = 3;
    /// The tracer has done its part.
    pub const READY: usize = 4;
    /// The tracee does not die with its parent any more.
    pub const UNTIED: usize = 5;
    pub const TRUTH: usize = 8;
}

/// Runs tracer and tracee, and kills the tracer.
pub fn run(args: &DiesArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    adopt_orphans()?;
    let window = Window::open()?;
    let tracer = Child::fork(|| {
        if let Err(error) = trace(*args, &clock, &shared) {
            eprintln!("{error:#}");
        }
        1
    })?;
    let tracer_pid = tracer.pid();
    let awaited = if args.running { slot::STARTED } else { slot::READY };
    wait_until(&shared, awaited)?;
    if !args.running {
        sleep(Duration::from_millis(args.hold.hold_ms));
    }
    let held_ns = match shared.get(slot::STOPPED_NS) {
        0 => 0,
        stopped_ns => now_ns().saturating_sub(stopped_ns),
    };
    kill(tracer_pid, Signal::SIGKILL)?;
    tracer.wait()?;
    let tracee = Pid::from_raw(i32::try_from(shared.get(slot::TRACEE))?);
    let (ended, job_held_ns) = outlive(tracee, args.hold.hold_ms)?;
    let killed = is_killed(&ended);
    ensure!(killed == args.exitkill, "the tracee ended otherwise: {ended:?}");

    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "tracer-dies")
        .with("attach", args.attach.to_possible_value().map(|value| value.get_name().to_owned()))
        .with("running", args.running)
        .with("exitkill", args.exitkill)
        .with("tracer_tid", tracer_pid.as_raw())
        .with("tracee_tid", tracee.as_raw())
        .with("stops", 1)
        .with("held_ns", held_ns)
        .with("job_stops", u64::from(job_held_ns.is_some()))
        .with("job_held_ns", job_held_ns)
        .with("tracee_killed", killed)
        .with("tracee", Truth::load(&shared, slot::TRUTH, &clock));
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

/// Waits for a tracee's end without its tracer, and continues it if that left it stopped.
fn outlive(pid: Pid, ms: u64) -> Result<(WaitStatus, Option<u64>)> {
    let patience_ns = now_ns() + 30_000_000_000;
    let mut job_held_ns = None;
    while now_ns() < patience_ns {
        match waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => sleep(Duration::from_millis(1)),
            Ok(WaitStatus::Stopped(..)) => {
                let start_ns = now_ns();
                sleep(Duration::from_millis(ms));
                job_held_ns = Some(now_ns().saturating_sub(start_ns));
                kill(pid, Signal::SIGCONT)?;
            }
            Ok(ended) => return Ok((ended, job_held_ns)),
            Err(errno) => return Err(errno).context("cannot wait for the tracee"),
        }
    }
    kill(pid, Signal::SIGKILL)?;
    bail!("the tracee neither ends nor stops")
}

/// The tracer's life.
fn trace(args: DiesArgs, clock: &Clock, shared: &Shared) -> Result<()> {
    let mut tracee = Child::fork(|| tracee(args, clock, shared))?;
    let pid = tracee.pid();
    shared.set(slot::TRACEE, u64::from(pid.as_raw().unsigned_abs()));
    wait_until(shared, slot::UNTIED)?;
    let options = if args.exitkill { Options::PTRACE_O_EXITKILL } else { Options::empty() };
    match args.attach {
        Means::Traceme => {}
        Means::Attach => ptrace::attach(pid).context("ptrace is refused here")?,
        Means::Seize => {
            ptrace::seize(pid, options).context("ptrace is refused here")?;
            ptrace::interrupt(pid)?;
        }
    }
    let stopped = Tracer::default().next(&mut tracee)?;
    if args.attach == Means::Seize {
        expect_event(&stopped, EVENT_STOP)?;
    } else {
        ensure!(matches!(stopped, WaitStatus::Stopped(_, Signal::SIGSTOP)), "{stopped:?}");
        ptrace::setoptions(pid, options)?;
    }
    shared.set(GO, 1);
    if args.running {
        ptrace::cont(pid, None)?;
    } else {
        settle(pid)?;
        shared.set(slot::STOPPED_NS, now_ns());
    }
    shared.set(slot::READY, 1);
    loop {
        pause();
    }
}

/// The tracee's life.
fn tracee(args: DiesArgs, clock: &Clock, shared: &Shared) -> i32 {
    // It has to outlive its parent, and burns for a limited time only.
    let untied = rustix::process::set_parent_process_death_signal(None);
    if untied.is_err() {
        return 1;
    }
    shared.set(slot::UNTIED, 1);
    if args.attach == Means::Traceme
        && ptrace::traceme().and_then(|()| raise(Signal::SIGSTOP)).is_err()
    {
        return 1;
    }
    while shared.get(GO) == 0 {
        sleep(Duration::from_millis(1));
    }
    shared.set(slot::STARTED, 1);
    Truth::burn(clock, args.hold.burn_ms).store(shared, slot::TRUTH, getpid());
    0
}

/// Makes this process the parent of orphaned descendants, so that it can wait for them.
fn adopt_orphans() -> Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes one integer.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    Errno::result(done).map(drop).context("cannot become the parent of orphans")
}
