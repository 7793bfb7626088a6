//! A border of a ptrace stop: a tracee that does nothing between its stops.

use std::hint::black_box;

use anyhow::{Result, bail};
use nix::{
    sys::{
        ptrace,
        signal::{Signal, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, getppid},
};
use observer_common::task::{Task, crossing};

use super::{
    cost::Batch,
    measure::{Subject, grown, observe, settled, user_ns, wait_for_end},
};
use crate::probe::Probe;

const STOPS: u64 = 100;
/// The first stops are of cold code.
const FIRST_STOPS: u64 = 20;

/// A child of ours that we trace.
pub struct Tracee {
    child: Child,
    slot: u32,
    /// Its account at the last stop.
    last: Task,
}

/// Killed and reaped when dropped.
struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended.
        let _ = nix::sys::signal::kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

impl Tracee {
    /// Starts it, and has it stop a few times.
    pub fn start(probe: &mut Probe) -> Result<Self> {
        // SAFETY: the child calls only what is safe after a fork of a process with threads, and ends by _exit.
        let child = match unsafe { fork() }? {
            ForkResult::Child => stop_for_ever(),
            ForkResult::Parent { child } => Child(child),
        };
        let WaitStatus::Stopped(..) = waitpid(child.0, None)? else {
            bail!("the tracee did not stop")
        };
        ptrace::setoptions(child.0, ptrace::Options::PTRACE_O_EXITKILL)?;
        let slot = observe(probe, child.0.as_raw().unsigned_abs())?;
        let last = stopped(probe, child.0, slot, FIRST_STOPS)?;
        Ok(Self { child, slot, last })
    }
}

impl Subject for Tracee {
    fn batch(&mut self, probe: &Probe) -> Result<Option<Batch>> {
        let after = stopped(probe, self.child.0, self.slot, STOPS)?;
        let before = std::mem::replace(&mut self.last, after);
        let count = |kind| grown(&before.crossings, &self.last.crossings, kind);
        let batch = Batch::of(user_ns(&before, &self.last), count(crossing::STOP));
        Ok(Some(batch.with_syscalls(count(crossing::SYSCALL))))
    }

    fn end(self: Box<Self>, probe: &Probe) {
        let Self { child, slot, .. } = *self;
        drop(child);
        wait_for_end(probe, slot);
    }
}

/// Its account after so many stops more.
fn stopped(probe: &Probe, child: Pid, slot: u32, stops: u64) -> Result<Task> {
    for _ in 0..stops {
        ptrace::syscall(child, None)?;
        waitpid(child, None)?;
    }
    settled(probe, slot)
}

fn stop_for_ever() -> ! {
    if ptrace::traceme().is_err() {
        // Somebody traces it already (`strace -f observer`): its parent would wait for this stop for ever.
        // SAFETY: ends this process without running anything of its parent's.
        unsafe { libc::_exit(1) };
    }
    let _ = raise(Signal::SIGSTOP);
    loop {
        // The tracer ends this process by SIGKILL.
        black_box(getppid());
    }
}
