//! The command of `observer run`: stopped before its exec, as the invoking user, its status passed on.

use std::{
    ffi::{CString, OsString},
    io::{self, Read as _, Write as _},
    os::unix::ffi::OsStringExt as _,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    sys::signal::{SigHandler, Signal, kill, signal},
    unistd::{
        ForkResult, Gid, Pid, Uid, User, execvp, fork, initgroups, setgid, setgroups, setuid,
    },
};

/// A command that waits for [`Child::release`].
pub struct Child {
    pid: Pid,
    gate: io::PipeWriter,
    failure: io::PipeReader,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status, or 128+N for signal N.
    pub status: i32,
    /// User time by `wait4`, ns: the command and the descendants that were waited for.
    pub user_ns: u64,
    /// System time, likewise.
    pub system_ns: u64,
}

/// The user behind sudo.
struct Invoker {
    uid: Uid,
    gid: Gid,
    name: Option<CString>,
}

impl Child {
    /// Forks. The child waits at a gate; it has not run its program.
    pub fn spawn(command: &[OsString]) -> Result<Self> {
        let arguments = command
            .iter()
            .map(|argument| CString::new(argument.clone().into_vec()))
            .collect::<Result<Vec<_>, _>>()
            .context("an argument of the command holds a NUL byte")?;
        let program = arguments.first().ok_or_else(|| anyhow!("there is no command to run"))?;
        let invoker = invoker();
        let (gate_in, gate) = io::pipe()?;
        let (failure, failure_in) = io::pipe()?;
        // SAFETY: this process has one thread here (the runtime starts later), so the child may do anything.
        match unsafe { fork() }.context("cannot fork")? {
            ForkResult::Parent { child } => Ok(Self { pid: child, gate, failure }),
            ForkResult::Child => {
                drop((gate, failure));
                let errno = become_command(gate_in, invoker.as_ref(), program, &arguments);
                let _ = (&failure_in).write_all(&(errno as i32).to_ne_bytes());
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(127) }
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Lets it run its program. `Err` holds the exit status that a shell would give: 127 not found, else 126.
    pub fn release(&mut self, name: &OsString) -> Result<Result<(), (i32, String)>> {
        self.gate.write_all(b"g").context("the command has ended before it began")?;
        let mut errno = [0; 4];
        match self.failure.read_exact(&mut errno) {
            // The pipe closes on exec.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Ok(())),
            Err(error) => Err(error).context("cannot hear from the command"),
            Ok(()) => {
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                Ok(Err((status, format!("cannot run {}: {error}", name.display()))))
            }
        }
    }

    /// Passes a signal on.
    pub fn signal(&self, number: i32) {
        if let Ok(number) = Signal::try_from(number) {
            // It may be gone already.
            let _ = kill(self.pid, number);
        }
    }

    /// Looks whether it has ended; does not wait.
    pub fn try_wait(&self) -> Result<Option<Ended>> {
        let mut status = 0;
        // SAFETY: all zero is a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are of live locals.
        let result = unsafe {
            libc::wait4(self.pid.as_raw(), &raw mut status, libc::WNOHANG, &raw mut usage)
        };
        match result {
            0 => Ok(None),
            pid if pid == self.pid.as_raw() => Ok(Some(Ended {
                status: exit_status(status),
                user_ns: timeval_ns(usage.ru_utime),
                system_ns: timeval_ns(usage.ru_stime),
            })),
            _ => Err(io::Error::last_os_error()).context("cannot wait for the command"),
        }
    }
}

fn exit_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

fn timeval_ns(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(micros * 1000)
}

/// `SUDO_UID` and `SUDO_GID`, believed only by root.
fn invoker() -> Option<Invoker> {
    if !Uid::effective().is_root() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let uid = Uid::from_raw(number("SUDO_UID")?);
    let gid = Gid::from_raw(number("SUDO_GID")?);
    let name = User::from_uid(uid).ok().flatten().and_then(|user| CString::new(user.name).ok());
    Some(Invoker { uid, gid, name })
}

/// In the child: waits at the gate, then becomes the command. Returns only on failure.
fn become_command(
    mut gate: io::PipeReader,
    invoker: Option<&Invoker>,
    program: &CString,
    arguments: &[CString],
) -> nix::Error {
    let mut go = [0; 1];
    if gate.read_exact(&mut go).is_err() {
        // observer gave up.
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }
    let prepared = invoker.map_or(Ok(()), |invoker| {
        match &invoker.name {
            Some(name) => initgroups(name, invoker.gid)?,
            None => setgroups(&[invoker.gid])?,
        }
        setgid(invoker.gid)?;
        setuid(invoker.uid)
    });
    if let Err(errno) = prepared {
        return errno;
    }
    // Rust ignores SIGPIPE; programs expect it to end them.
    // SAFETY: sets a default action, no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    match execvp(program, arguments) {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

/// Refuses an empty command.
pub fn check(command: &[OsString]) -> Result<()> {
    if command.first().is_none_or(|program| program.is_empty()) {
        bail!("there is no command to run: observer run -- CMD [ARGS]");
    }
    Ok(())
}
