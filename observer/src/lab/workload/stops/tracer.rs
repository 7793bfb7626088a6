//! What the cases have in common: a tracer that counts and holds stops, and a tracee that knows its user time.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::super::clock::{Amount, Clock, Tally, now_ns, thread_cpu_ns};
use super::super::memory::Shared;
use super::super::os::Child;
use super::super::report::Report;

/// `PTRACE_EVENT_EXIT` as [`WaitStatus`] has it.
pub const EVENT_EXIT: i32 = ptrace::Event::PTRACE_EVENT_EXIT as i32;
/// `PTRACE_EVENT_STOP`.
pub const EVENT_STOP: i32 = ptrace::Event::PTRACE_EVENT_STOP as i32;
/// The tracee may begin.
pub const GO: usize = 0;
/// Words that a [`Truth`] takes in shared memory.
pub const TRUTH_WORDS: usize = 9;

/// Counts the stops that it sees, by kind, and how long it held them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracer {
    syscall: u64,
    signal: u64,
    event: u64,
    group: u64,
    exit: u64,
    /// Time in stops that were held, ns.
    pub held_ns: u64,
}

impl Tracer {
    /// The next stop, or the end, of a child.
    pub fn next(&mut self, tracee: &mut Child) -> Result<WaitStatus> {
        let status = tracee.wait_stop()?;
        self.count(&status);
        Ok(status)
    }

    /// The next stop of a thread that is no child, or of a child that stays unreaped.
    pub fn next_of(&mut self, tid: Pid) -> Result<WaitStatus> {
        loop {
            match waitpid(tid, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for a tracee"),
                Ok(status) => {
                    self.count(&status);
                    return Ok(status);
                }
            }
        }
    }

    fn count(&mut self, status: &WaitStatus) {
        match status {
            WaitStatus::PtraceSyscall(_) => self.syscall += 1,
            WaitStatus::Stopped(..) => self.signal += 1,
            WaitStatus::PtraceEvent(_, _, EVENT_EXIT) => self.exit += 1,
            WaitStatus::PtraceEvent(_, _, EVENT_STOP) => self.group += 1,
            WaitStatus::PtraceEvent(..) => self.event += 1,
            _ => {}
        }
    }

    /// All of them.
    pub fn stops(&self) -> u64 {
        self.syscall + self.signal + self.event + self.group + self.exit
    }

    /// Keeps a tracee in the stop that it is in.
    pub fn hold(&mut self, tid: Pid, ms: u64) -> Result<()> {
        settle(tid)?;
        let start_ns = now_ns();
        sleep(Duration::from_millis(ms));
        self.held_ns += now_ns().saturating_sub(start_ns);
        Ok(())
    }

    /// Resumes it at each stop, with the signal that it stopped for, until it has ended.
    pub fn follow(&mut self, tracee: &mut Child) -> Result<WaitStatus> {
        loop {
            let status = self.next(tracee)?;
            match status {
                WaitStatus::Stopped(pid, signal) => ptrace::cont(pid, signal)?,
                WaitStatus::PtraceEvent(pid, ..) | WaitStatus::PtraceSyscall(pid) => {
                    ptrace::cont(pid, None)?;
                }
                ended => return Ok(ended),
            }
        }
    }

    /// Its fields of a report.
    pub fn add_to(&self, report: Report) -> Report {
        report.with("stops", self.stops()).with("held_ns", self.held_ns).with(
            "stops_by_kind",
            json!({
                "syscall": self.syscall,
                "signal": self.signal,
                "event": self.event,
                "group": self.group,
                "exit": self.exit,
            }),
        )
    }
}

/// Returns once a stopped tracee has left its CPU.
pub fn settle(tid: Pid) -> Result<()> {
    ptrace::getevent(tid).map(drop).context("the tracee is not stopped")
}

/// Is this the group stop or the stop by PTRACE_INTERRUPT?
pub fn expect_event(status: &WaitStatus, wanted: i32) -> Result<Pid> {
    match status {
        WaitStatus::PtraceEvent(pid, _, event) if *event == wanted => Ok(*pid),
        other => bail!("expected ptrace event {wanted}, got {other:?}"),
    }
}

/// Traces a child that need not have stopped.
///
/// # Errors
/// If these rights do not allow it.
pub fn seize(tid: Pid, options: ptrace::Options) -> Result<()> {
    ptrace::seize(tid, options | ptrace::Options::PTRACE_O_EXITKILL)
        .context("ptrace is refused here: see kernel.yama.ptrace_scope")
}

/// In the tracee: waits until it is told to begin. Without a syscall, so without a stop.
pub fn wait_for(shared: &Shared, flag: usize) {
    while shared.get(flag) == 0 {
        std::hint::spin_loop();
    }
}

/// In the tracer: the same, patiently.
pub fn wait_until(shared: &Shared, flag: usize) -> Result<()> {
    let patience_ns = now_ns() + 30_000_000_000;
    while shared.get(flag) == 0 {
        ensure!(now_ns() < patience_ns, "the tracee does not come on");
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// What a task knows of itself: its CPU time before, and what it burned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    before_ns: u64,
    tally: Tally,
}

impl Truth {
    /// Burns, and says what it was.
    pub fn burn(clock: &Clock, ms: u64) -> Self {
        let before_ns = thread_cpu_ns();
        Self { before_ns, tally: clock.burn(Amount::UserNs(ms * 1_000_000)) }
    }

    /// Burns more.
    pub fn burn_on(&mut self, clock: &Clock, ms: u64) {
        self.tally.merge(&clock.burn(Amount::UserNs(ms * 1_000_000)));
    }

    /// Leaves it to the parent, from word `at` on.
    pub fn store(&self, shared: &Shared, at: usize, tid: Pid) {
        for (index, word) in self.tally.to_words().into_iter().enumerate() {
            shared.set(at + 2 + index, word);
        }
        shared.set(at + 1, self.before_ns);
        shared.set(at, u64::from(tid.as_raw().unsigned_abs()));
    }

    /// What was left there, as JSON: null if nothing was.
    pub fn load(shared: &Shared, at: usize, clock: &Clock) -> Value {
        let tid = shared.get(at);
        if tid == 0 {
            return Value::Null;
        }
        let tally = Tally::from_words(std::array::from_fn(|index| shared.get(at + 2 + index)));
        Report::default()
            .with("tid", tid)
            .with("cpu_before_ns", shared.get(at + 1))
            .with_tally(clock, &tally)
            .finish()
    }
}

/// Was it a normal end?
pub fn expect_end(status: &WaitStatus) -> Result<()> {
    ensure!(matches!(status, WaitStatus::Exited(_, 0)), "the tracee ended otherwise: {status:?}");
    Ok(())
}

/// Was it killed?
pub fn is_killed(status: &WaitStatus) -> bool {
    matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _))
}
