//! `ptrace`: a tracee that times its own arithmetic, and the tracer that stops it.
//!
//! After its first SIGSTOP the tracee makes no syscall but those asked for and the one that ends it,
//! so under PTRACE_SYSCALL there are 2 x syscalls + 1 stops (more only where the clock itself cannot
//! be read without one). Its truth comes through shared memory:
//! a syscall to report it would itself be two stops.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use nix::sys::ptrace;
use nix::sys::resource::UsageWho;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::{Pid, getpid};
use serde_json::Value;

use super::clock::{Clock, Tally, now_ns, read_ns, thread_cpu_ns};
use super::memory::Shared;
use super::mixed::WorkArgs;
use super::os::{Child, Place, Policy, last_cpu, pin};
use super::report::{Report, Window, since, usage};
use super::syscalls::getppid;

/// What the tracer does at each stop.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PTRACE_SYSCALL: stop at each syscall's entry and exit
    Syscall,
    /// PTRACE_SINGLESTEP: stop after each instruction
    Singlestep,
}

/// Options of `ptrace`.
#[derive(clap::Args, Clone, Debug)]
pub struct PtraceArgs {
    /// Policy of both
    #[arg(long, value_enum, default_value_t = Policy::Other)]
    pub policy: Policy,
    /// What the tracer does
    #[arg(long, value_enum, default_value_t = Mode::Syscall)]
    pub mode: Mode,
    /// Syscalls that the tracee makes; with --mode singlestep, instructions that it is stepped
    #[arg(long, default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub syscalls: u64,
    #[command(flatten)]
    /// What the tracee does between syscalls
    pub work: WorkArgs,
    /// CPU of the tracer (default: --cpu)
    #[arg(long, value_name = "CPU")]
    pub tracer_cpu: Option<usize>,
    /// CPU of the tracee (default: that of the tracer)
    #[arg(long, value_name = "CPU")]
    pub tracee_cpu: Option<usize>,
    /// The same tracee without a tracer; the parent only waits for it
    #[arg(long, conflicts_with = "mode")]
    pub untraced: bool,
    #[command(flatten)]
    /// CPU of both (default: the last allowed one)
    pub place: Place,
}

impl PtraceArgs {
    fn steps(&self) -> bool {
        self.mode == Mode::Singlestep
    }
}

/// Counters shared with the tracee, by slot.
mod slot {
    pub const DONE: usize = 0;
    pub const STOP: usize = 1;
    pub const LOOPS: usize = 2;
    pub const START_NS: usize = 3;
    pub const END_NS: usize = 4;
    pub const CPU_BEFORE_NS: usize = 5;
    pub const ERRNO: usize = 6;
    /// The seven fields of the tally follow.
    pub const TALLY: usize = 8;
}

/// Stops seen by the tracer, the first SIGSTOP not among them.
#[derive(Clone, Copy, Debug, Default)]
struct Stops {
    syscall: u64,
    step: u64,
    signal: u64,
}

/// Runs tracer and tracee until the tracee has ended.
///
/// # Errors
/// If a CPU, the policy or ptrace is not allowed, or the tracee was killed.
pub fn run(args: &PtraceArgs) -> Result<Value> {
    let tracer_cpu = args.tracer_cpu.or(args.place.cpu).map_or_else(last_cpu, Ok)?;
    let tracee_cpu = args.tracee_cpu.or(args.place.cpu).unwrap_or(tracer_cpu);
    // The tracee inherits everything that can fail, so that it fails here.
    pin(tracee_cpu)?;
    let clock = Clock::measure()?;
    args.policy.apply()?;
    let shared = Shared::new()?;

    let mut tracee = Child::fork(|| tracee(args, &clock, &shared))?;
    pin(tracer_cpu)?;
    let tracee_pid = tracee.pid();
    if !args.untraced {
        first_stop(&mut tracee, &shared)?;
    }
    let own_before = usage(UsageWho::RUSAGE_SELF)?;
    let cpu_before_ns = read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let window = Window::open()?;
    let stops = if args.untraced { None } else { Some(trace(args, &mut tracee, &shared)?) };
    tracee.wait_dead()?;
    let closed = window.close()?;
    let tracer_cpu_ns = read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(cpu_before_ns);
    let tracee_cpu_ns = process_cpu_ns(tracee_pid);
    let ended = tracee.wait()?;
    ensure!(ended.code == 0, "the tracee ended with status {}", ended.code);

    let own = usage(UsageWho::RUSAGE_SELF)?;
    let mut report = Report::new("ptrace")
        .with("policy", name_of(&args.policy))
        .with("mode", name_of(&args.mode))
        .with("traced", !args.untraced)
        .with("syscalls", args.syscalls)
        .with("work_us", args.work.work_us)
        .with("work_steps", args.work.work_steps)
        .with("tracer_cpu", tracer_cpu)
        .with("tracee_cpu", tracee_cpu)
        .with("tracer_tid", getpid().as_raw())
        .with("tracee_tid", tracee_pid.as_raw())
        .with("stops", stops.map(|stops| stops.syscall + stops.step + stops.signal))
        .with("syscall_stops", stops.map(|stops| stops.syscall))
        .with("step_stops", stops.map(|stops| stops.step))
        .with("signal_stops", stops.map(|stops| stops.signal))
        .with("tracer_cpu_ns", tracer_cpu_ns)
        .with("tracer_reported_user_ns", since(own_before.user_time(), own.user_time()))
        .with("tracer_reported_system_ns", since(own_before.system_time(), own.system_time()))
        .with("tracee_cpu_ns", tracee_cpu_ns)
        .with("tracee_cpu_before_ns", shared.get(slot::CPU_BEFORE_NS))
        .with("tracee_reported_user_ns", ended.user_ns)
        .with("tracee_reported_system_ns", ended.system_ns)
        .with("tracee_switches_voluntary", ended.voluntary_switches)
        .with("tracee_switches_involuntary", ended.involuntary_switches);
    // Between single steps, no clock can be read that means anything.
    if !args.steps() {
        report = report
            .with("loops", shared.get(slot::LOOPS))
            .with("tracee_start_ns", shared.get(slot::START_NS))
            .with("tracee_end_ns", shared.get(slot::END_NS))
            .with_tally(&clock, &load_tally(&shared));
    }
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

/// The tracee's life.
fn tracee(args: &PtraceArgs, clock: &Clock, shared: &Shared) -> i32 {
    shared.set(slot::CPU_BEFORE_NS, thread_cpu_ns());
    if !args.untraced
        && let Err(errno) = ptrace::traceme().and_then(|()| kill(getpid(), Signal::SIGSTOP))
    {
        shared.set(slot::ERRNO, u64::from((errno as i32).unsigned_abs()));
        return 1;
    }
    if args.steps() {
        while shared.get(slot::STOP) == 0 {
            std::hint::spin_loop();
        }
        return 0;
    }
    let mut tally = Tally::default();
    let amount = args.work.amount();
    shared.set(slot::START_NS, now_ns());
    for _ in 0..args.syscalls {
        if let Some(amount) = amount {
            tally.merge(&clock.burn(amount));
        }
        getppid();
    }
    shared.set(slot::END_NS, now_ns());
    shared.set(slot::LOOPS, args.syscalls);
    store_tally(shared, &tally);
    shared.set(slot::DONE, 1);
    0
}

/// Waits for the SIGSTOP that the tracee sends itself.
fn first_stop(tracee: &mut Child, shared: &Shared) -> Result<()> {
    match tracee.wait_stop()? {
        WaitStatus::Stopped(pid, Signal::SIGSTOP) => {
            let options =
                ptrace::Options::PTRACE_O_EXITKILL | ptrace::Options::PTRACE_O_TRACESYSGOOD;
            Ok(ptrace::setoptions(pid, options)?)
        }
        _ => {
            let errno = nix::errno::Errno::from_raw(i32::try_from(shared.get(slot::ERRNO))?);
            bail!("ptrace is refused here ({}): see kernel.yama.ptrace_scope", errno.desc())
        }
    }
}

/// Stops and resumes the tracee until it is on its way to exit.
fn trace(args: &PtraceArgs, tracee: &mut Child, shared: &Shared) -> Result<Stops> {
    let pid = tracee.pid();
    let mut stops = Stops::default();
    let mut deliver = None;
    loop {
        if args.steps() && stops.step == args.syscalls {
            shared.set(slot::STOP, 1);
            ptrace::cont(pid, deliver)?;
            return Ok(stops);
        }
        match args.mode {
            Mode::Syscall => ptrace::syscall(pid, deliver)?,
            Mode::Singlestep => ptrace::step(pid, deliver)?,
        }
        deliver = None;
        match tracee.wait_stop()? {
            WaitStatus::PtraceSyscall(_) => stops.syscall += 1,
            WaitStatus::Stopped(_, Signal::SIGTRAP) if args.steps() => stops.step += 1,
            WaitStatus::Stopped(_, signal) => {
                stops.signal += 1;
                deliver = Some(signal);
            }
            other => bail!("the tracee ended too early: {other:?}"),
        }
        if shared.get(slot::DONE) == 1 {
            // The stop before exit_group: from here it needs no tracer.
            ptrace::cont(pid, deliver)?;
            return Ok(stops);
        }
    }
}

/// CPU time of a process that has not been reaped, as the kernel bills it; none if it will not say.
fn process_cpu_ns(pid: Pid) -> Option<u64> {
    let clock = clock_getcpuclockid(pid).ok()?;
    nix::time::clock_gettime(clock).ok()?;
    Some(read_ns(clock))
}

fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn store_tally(shared: &Shared, tally: &Tally) {
    for (index, value) in tally.to_words().into_iter().enumerate() {
        shared.set(slot::TALLY + index, value);
    }
}

fn load_tally(shared: &Shared) -> Tally {
    Tally::from_words(std::array::from_fn(|index| shared.get(slot::TALLY + index)))
}

#[cfg(test)]
mod tests;
