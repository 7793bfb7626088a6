//! Known-answer programs: each knows, from a clock that it reads itself, what it really did.
//!
//! The truth of user time comes from the vdso clock: a program that reads it in a tight loop sees
//! every moment in which it was *not* running user code as a gap between two readings (see
//! [`clock`]). That needs neither the scheduler's nor the observer's view, so either can be checked
//! against it within the same run.
//!
//! Every report carries the window in which its truth holds (`start_ns`, `end_ns`, CLOCK_MONOTONIC)
//! and the CPU time the thread had used before the window (`thread_cpu_before_ns`: process start and
//! calibration), so that an account of the whole process can be compared as well.

pub mod clock;
pub mod cycles;
pub mod exec_thread;
pub mod faults;
pub mod forks;
pub mod handoff;
pub mod hostile_comm;
pub mod memory;
pub mod mixed;
pub mod orphan;
pub mod os;
pub mod ptrace;
pub mod report;
pub mod spin;
pub mod stops;
pub mod syscalls;
pub mod threads;

use anyhow::Result;
use serde_json::Value;

/// The known-answer programs.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Workload {
    /// Pure user time of a given length
    Spin(spin::SpinArgs),
    /// A loop of empty syscalls
    Syscalls(syscalls::SyscallsArgs),
    /// Sleep once
    Sleep(spin::SleepArgs),
    /// Self-timed arithmetic between syscalls
    Mixed(mixed::MixedArgs),
    /// Touch anonymous pages one by one
    Faults(faults::FaultsArgs),
    /// A tracee that times its own arithmetic, and its tracer
    Ptrace(ptrace::PtraceArgs),
    /// Many short-lived children
    Forks(forks::ForksArgs),
    /// Threads that burn different amounts and exit one by one
    Threads(threads::ThreadsArgs),
    /// A second thread replaces the process by exec
    ExecThread(exec_thread::ExecThreadArgs),
    /// A child that runs on after its parent has exited
    Orphan(orphan::OrphanArgs),
    /// Spin under a command name of arbitrary bytes
    HostileComm(hostile_comm::HostileCommArgs),
    /// Ptrace stops of every kind, held for a known time
    Stops(stops::StopsArgs),
    /// Two processes hand a byte to each other through two pipes
    Pingpong(handoff::PingpongArgs),
    /// User and kernel work in a thread that counts its own cycles
    Cycles(cycles::CyclesArgs),
    /// Two processes on one CPU call sched_yield
    Yield(handoff::YieldArgs),
}

/// Runs one program to its end and returns its report, a JSON object.
///
/// # Errors
/// One line: what this kernel, these rights or the options did not allow.
pub fn run(workload: &Workload) -> Result<Value> {
    match workload {
        Workload::Spin(args) => spin::spin(args),
        Workload::Syscalls(args) => syscalls::run(args),
        Workload::Sleep(args) => spin::sleep(args),
        Workload::Mixed(args) => mixed::run(args),
        Workload::Faults(args) => faults::run(args),
        Workload::Ptrace(args) => ptrace::run(args),
        Workload::Forks(args) => forks::run(args),
        Workload::Threads(args) => threads::run(args),
        Workload::ExecThread(args) => exec_thread::run(args),
        Workload::Orphan(args) => orphan::run(args),
        Workload::HostileComm(args) => hostile_comm::run(args),
        Workload::Stops(args) => stops::run(args),
        Workload::Pingpong(args) => handoff::pingpong(args),
        Workload::Cycles(args) => cycles::run(args),
        Workload::Yield(args) => handoff::yielding(args),
    }
}

/// Runs one ignored test in a process of its own, for what other tests must not see or disturb.
#[cfg(test)]
fn test_alone(module: &str, name: &str) {
    let (_crate, path) = module.split_once("::").unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{path}::{name}"), "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
