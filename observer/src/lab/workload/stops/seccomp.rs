//! `stops seccomp`: a filter asks the tracer about one syscall of ten.

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::WaitStatus;
use nix::unistd::getpid;
use serde_json::Value;

use super::super::clock::Clock;
use super::super::memory::Shared;
use super::super::os::Child;
use super::super::report::{Report, Window};
use super::super::spin::LONGEST_MS;
use super::tracer::{Tracer, Truth, expect_end};

/// Of so many calls one is marked.
const EVERY: u64 = 10;
/// The argument that marks a call.
const MARK: u32 = 1;
/// Where the tracee's truth is.
const TRUTH: usize = 4;
/// Set by the tracee if it may not filter: the error number.
const REFUSED: usize = 1;

/// Options of `stops seccomp`.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct SeccompArgs {
    /// Syscalls in total: each tenth is traced
    #[arg(long, default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub syscalls: u64,
    /// Stop at the exit of a traced syscall too
    #[arg(long)]
    pub exit_stops: bool,
    /// User time of the tracee, milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub burn_ms: u64,
}

/// Runs tracer and tracee.
pub fn run(args: SeccompArgs) -> Result<Value> {
    let (clock, shared) = (Clock::measure()?, Shared::new()?);
    let window = Window::open()?;
    let mut tracee = Child::fork(|| tracee(args, &clock, &shared))?;
    let pid = tracee.pid();
    let mut tracer = Tracer::default();
    match tracer.next(&mut tracee)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        _ => {
            let errno = Errno::from_raw(i32::try_from(shared.get(REFUSED))?);
            bail!("ptrace or seccomp is refused here ({})", errno.desc())
        }
    }
    let options = Options::PTRACE_O_TRACESECCOMP
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(pid, options)?;
    ptrace::cont(pid, None)?;
    let ended = loop {
        match tracer.next(&mut tracee)? {
            WaitStatus::PtraceEvent(..) if args.exit_stops => ptrace::syscall(pid, None)?,
            WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_) => ptrace::cont(pid, None)?,
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            ended => break ended,
        }
    };
    expect_end(&ended)?;
    let closed = window.close()?;
    let report = Report::new("stops")
        .with("case", "seccomp")
        .with("syscalls", args.syscalls)
        .with("traced_syscalls", args.syscalls.div_ceil(EVERY))
        .with("exit_stops", args.exit_stops)
        .with("tracer_tid", getpid().as_raw())
        .with("tracee", Truth::load(&shared, TRUTH, &clock));
    Ok(closed.add_to(tracer.add_to(report)).with_clock(&clock).finish())
}

fn tracee(args: SeccompArgs, clock: &Clock, shared: &Shared) -> i32 {
    let begun = ptrace::traceme().and_then(|()| filter()).and_then(|()| raise(Signal::SIGSTOP));
    if let Err(errno) = begun {
        shared.set(REFUSED, u64::from((errno as i32).unsigned_abs()));
        return 1;
    }
    let mut truth = Truth::burn(clock, args.burn_ms / 2);
    for call in 0..args.syscalls {
        let mark = if call % EVERY == 0 { MARK } else { 0 };
        // SAFETY: getppid ignores its arguments.
        unsafe { libc::syscall(libc::SYS_getppid, mark) };
    }
    truth.burn_on(clock, args.burn_ms.div_ceil(2));
    truth.store(shared, TRUTH, getpid());
    0
}

/// Marked calls of getppid are traced, everything else is allowed.
fn filter() -> Result<(), Errno> {
    // struct seccomp_data (include/uapi/linux/seccomp.h): nr at 0; args at 16, the low half first on both
    // architectures that observer runs on.
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut lines = [
        line(load, 0, 0, NUMBER),
        line(jump, 0, 3, libc::SYS_getppid as u32),
        line(load, 0, 0, FIRST_ARGUMENT),
        line(jump, 0, 1, MARK),
        line(give, 0, 0, libc::SECCOMP_RET_TRACE),
        line(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes integers; PR_SET_SECCOMP reads the program through a pointer that
    // outlives the call.
    let done = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            -1
        } else {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        }
    };
    Errno::result(done).map(drop)
}
