//! `stops`: ptrace stops of every kind, held for a known time.
//!
//! How long a stop was held comes from the tracer's own clock, from below: its begin is read after a request that
//! the kernel answers only once the tracee has left its CPU (`ptrace_check_attach`, kernel/ptrace.c), its end
//! before the request that resumes it. So a measured stop is never shorter than `held_ns`.

use anyhow::Result;
use serde_json::Value;

use super::spin::LONGEST_MS;

mod dies;
mod held;
mod seccomp;
mod threads;
mod tracer;

/// Options of `stops`.
#[derive(clap::Args, Clone, Debug)]
pub struct StopsArgs {
    /// What happens
    #[command(subcommand)]
    pub case: Case,
}

/// One case.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Case {
    /// The tracee burns, exits, and is held in its exit stop
    ExitEvent(HoldArgs),
    /// The same, ended by SIGKILL; another one comes in the middle of the stop
    KillAtExit(HoldArgs),
    /// A group stop of a seized task, then a job-control stop of one that nobody traces
    GroupStop(HoldArgs),
    /// Stopped, detached, and only then the tracee burns
    Detach(HoldArgs),
    /// The tracer is killed
    TracerDies(dies::DiesArgs),
    /// Three busy threads, of which only the second is traced
    OneThread(threads::OneThreadArgs),
    /// A traced process is replaced by exec from a thread that is not its leader
    ExecThread(threads::ExecThreadArgs),
    /// One thread traces, and another one waits for the stops
    OtherWaiter(threads::OtherWaiterArgs),
    /// A seccomp filter stops one syscall of ten
    Seccomp(seccomp::SeccompArgs),
}

/// How long.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct HoldArgs {
    /// Length of each held stop, milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub hold_ms: u64,
    /// User time of the tracee, milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub burn_ms: u64,
}

/// Runs one case.
///
/// # Errors
/// If ptrace, or what else the case needs, is refused here.
pub fn run(args: &StopsArgs) -> Result<Value> {
    match &args.case {
        Case::ExitEvent(args) => held::exit_event(*args, false),
        Case::KillAtExit(args) => held::exit_event(*args, true),
        Case::GroupStop(args) => held::group_stop(*args),
        Case::Detach(args) => held::detach(*args),
        Case::TracerDies(args) => dies::run(args),
        Case::OneThread(args) => threads::one_thread(*args),
        Case::ExecThread(args) => threads::exec_thread(*args),
        Case::OtherWaiter(args) => threads::other_waiter(*args),
        Case::Seccomp(args) => seccomp::run(*args),
    }
}

#[cfg(test)]
mod tests;
