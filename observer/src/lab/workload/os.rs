//! What the known-answer programs need from the kernel: pinning, policies, and children that never
//! outlive their parent.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid};

/// The pinning option of every program.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Place {
    /// Pin to this CPU
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
}

impl Place {
    /// Pins the calling thread if a CPU was asked for.
    ///
    /// # Errors
    /// If the CPU is offline or not allowed.
    pub fn apply(self) -> Result<()> {
        self.cpu.map_or(Ok(()), pin)
    }
}

/// Pins the calling thread (children inherit it).
///
/// # Errors
/// If the CPU is offline or not allowed; the line names those that are.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    if let Err(errno) = pinned {
        let allowed = allowed_cpus()?;
        bail!("cannot pin to CPU {cpu} ({}); allowed here: {allowed:?}", errno.desc());
    }
    Ok(())
}

/// The highest CPU the calling thread may use.
///
/// # Errors
/// If the affinity cannot be read.
pub fn last_cpu() -> Result<usize> {
    allowed_cpus()?.last().copied().context("no CPU is allowed")
}

fn allowed_cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("cannot read the CPU affinity")?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// A scheduling policy.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`
    Other,
    /// `SCHED_BATCH`
    Batch,
    /// `SCHED_IDLE`
    Idle,
    /// `SCHED_FIFO`, priority 1
    Fifo,
}

impl Policy {
    /// Gives the calling thread this policy (children inherit it).
    ///
    /// # Errors
    /// If these rights do not allow it.
    pub fn apply(self) -> Result<()> {
        let (name, policy, priority) = match self {
            Self::Other => ("SCHED_OTHER", libc::SCHED_OTHER, 0),
            Self::Batch => ("SCHED_BATCH", libc::SCHED_BATCH, 0),
            Self::Idle => ("SCHED_IDLE", libc::SCHED_IDLE, 0),
            Self::Fifo => ("SCHED_FIFO", libc::SCHED_FIFO, 1),
        };
        // The kernel's struct sched_param is this one int. Not through the library: musl's function
        // of that name always fails.
        let priority: libc::c_int = priority;
        // SAFETY: sched_setscheduler reads one int through the pointer, which outlives the call.
        let done =
            unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
        Errno::result(done).map(drop).with_context(|| {
            format!("{name} is refused: real-time policies need CAP_SYS_NICE (run as root)")
        })
    }
}

/// A child; killed and reaped on drop unless it was waited for.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    reaped: bool,
}

/// How a child ended, and what the kernel says that it used.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit status as a shell gives it: 128 + N after signal N.
    pub code: i32,
    /// utime of `wait4`, ns.
    pub user_ns: u64,
    /// stime of `wait4`, ns.
    pub system_ns: u64,
    /// Context switches the child asked for.
    pub voluntary_switches: u64,
    /// Context switches it did not ask for.
    pub involuntary_switches: u64,
}

impl Child {
    /// Forks. The child runs `body` and exits with its result; it never returns from here.
    /// It is killed when the thread that forked it ends.
    ///
    /// # Errors
    /// If there can be no more processes.
    pub fn fork(body: impl FnOnce() -> i32) -> Result<Self> {
        let parent = nix::unistd::getpid();
        // SAFETY: the child runs only code of these programs, which take no lock that another
        // thread of the parent could have held, and leaves by _exit.
        match unsafe { fork() }.context("cannot fork")? {
            ForkResult::Parent { child } => Ok(Self { pid: child, reaped: false }),
            ForkResult::Child => {
                // Without this a parent that dies at once would leave the child behind.
                let tied = rustix::process::set_parent_process_death_signal(Some(
                    rustix::process::Signal::KILL,
                ));
                if tied.is_err() || getppid() != parent {
                    exit_now(1);
                }
                exit_now(catch_unwind(AssertUnwindSafe(body)).unwrap_or(101))
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it is no longer there to be waited for.
    pub fn wait(mut self) -> Result<Ended> {
        let (status, usage) = wait4(self.pid).context("cannot wait for a child")?;
        self.reaped = true;
        let code = if libc::WIFSIGNALED(status) {
            128 + libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        };
        Ok(Ended {
            code,
            user_ns: timeval_ns(usage.ru_utime),
            system_ns: timeval_ns(usage.ru_stime),
            voluntary_switches: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
            involuntary_switches: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
        })
    }

    /// Waits for a stop of a traced child; an end is reported too.
    ///
    /// # Errors
    /// If it is no longer there to be waited for.
    pub fn wait_stop(&mut self) -> Result<WaitStatus> {
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for a traced child"),
                Ok(status) => {
                    self.reaped =
                        matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                    return Ok(status);
                }
            }
        }
    }

    /// Waits for its end without reaping it, so that its clocks can still be read.
    ///
    /// # Errors
    /// If it is no longer there to be waited for.
    pub fn wait_dead(&self) -> Result<()> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::Pid(self.pid), flags) {
                Err(Errno::EINTR) => {}
                other => return other.map(drop).context("cannot wait for a child"),
            }
        }
    }

    /// Waits for its end where the kernel reaps it itself (SIGCHLD ignored).
    pub fn wait_gone(mut self) {
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
        self.reaped = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill(self.pid, Signal::SIGKILL);
            while waitpid(self.pid, None) == Err(Errno::EINTR) {}
        }
    }
}

/// Leaves without running destructors or exit handlers, which belong to the parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no precondition.
    unsafe { libc::_exit(code) }
}

fn wait4(pid: Pid) -> Result<(libc::c_int, libc::rusage), Errno> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is a struct of integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to locals of the types that wait4 writes.
        let done = unsafe { libc::wait4(pid.as_raw(), &raw mut status, 0, &raw mut usage) };
        match Errno::result(done) {
            Ok(_) => return Ok((status, usage)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn timeval_ns(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
}
