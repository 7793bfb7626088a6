//! A program to be measured: it waits behind a gate until whatever observes it is attached.

use std::{
    ffi::OsString,
    io::Write as _,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

/// What is run, and how much work that is.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Switches, syscalls: what a time is divided by.
    pub units: f64,
}

/// What a job has used, ns per unit.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// CPU time of the program and its children, as the scheduler billed it: other people's programs on the same
    /// CPU are not in it.
    pub cpu_ns: f64,
    /// From the gate's opening to the end.
    pub wall_ns: f64,
}

/// A job before its begin.
pub struct Gate {
    child: Child,
    units: f64,
}

impl Gate {
    /// Starts the shell that waits for [`Gate::open`] and then becomes the program (`prefix` in front of it).
    ///
    /// # Errors
    /// When there is no shell.
    pub fn start(job: &Job, prefix: &[OsString]) -> Result<Self> {
        let mut command = Command::new("nice");
        // Ahead of other programs on the same CPU; the fair scheduler's path is the same.
        command.args(["-n", "-20", "sh", "-c", "read -r go && exec \"$@\"", "sh"]);
        command.args(prefix).args(&job.command);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start a shell")?;
        Ok(Self { child, units: job.units })
    }

    /// The process, before and after it became the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run, and waits for its end.
    ///
    /// # Errors
    /// When it fails.
    pub fn open(mut self) -> Result<Spent> {
        let mut stdin = self.child.stdin.take().context("the gate has no input")?;
        let begin = Instant::now();
        stdin.write_all(b"go\n")?;
        drop(stdin);
        let (mut status, mut usage) = (0, zero_usage());
        let pid = i32::try_from(self.child.id())?;
        // SAFETY: both are written by the kernel and live over the call; the child is ours and not yet reaped.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        let wall_ns = begin.elapsed().as_nanos() as f64;
        ensure!(waited == pid, "waiting for a job: {}", std::io::Error::last_os_error());
        if status != 0 {
            bail!("a job ended with status {status:#x}");
        }
        let cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        Ok(Spent { cpu_ns: cpu_ns / self.units, wall_ns: wall_ns / self.units })
    }
}

fn zero_usage() -> libc::rusage {
    // SAFETY: a struct of integers; all zero is valid.
    unsafe { std::mem::zeroed() }
}

fn ns(time: libc::timeval) -> f64 {
    time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3
}
