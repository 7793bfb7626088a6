//! `exec-thread`: a thread other than the leader replaces the whole process by exec.
//!
//! The kernel then ends the leader and gives its id to the thread (`de_thread`, `fs/exec.c`): two
//! different tasks bear the same pid one after the other.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::clock::{Amount, Clock};
use super::os::Place;
use super::spin::{BeforeExec, LONGEST_MS};

/// Options of `exec-thread`.
#[derive(clap::Args, Clone, Debug)]
pub struct ExecThreadArgs {
    /// User time in total, milliseconds: half before exec, half after it
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=LONGEST_MS))]
    pub ms: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Does not return unless something failed: the report is that of `spin`, in the new process
/// image, with `before_exec` in it.
///
/// # Errors
/// If the CPU is not allowed, or no thread can be started, or exec fails.
pub fn run(args: &ExecThreadArgs) -> Result<Value> {
    args.place.apply()?;
    let clock = Clock::measure()?;
    let half_ms = args.ms / 2;
    // The leader waits here until exec ends it.
    match thread::scope(|scope| scope.spawn(|| burn_and_exec(&clock, half_ms, args)).join()) {
        Ok(Err(error)) => Err(error),
        Ok(Ok(never)) => match never {},
        Err(_) => Err(anyhow!("the second thread panicked")),
    }
}

fn burn_and_exec(clock: &Clock, half_ms: u64, args: &ExecThreadArgs) -> Result<Infallible> {
    let tally = clock.burn(Amount::UserNs(half_ms * 1_000_000));
    let before = BeforeExec {
        tid: nix::unistd::gettid().as_raw(),
        user_ns: tally.user_ns,
        gap_ns: tally.gap_ns,
    };
    // This very file, even if it was replaced or removed meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(spin_arguments(args.ms - half_ms, args.place, before));
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    Err(command.exec()).context("cannot exec /proc/self/exe")
}

/// The command line of the second half.
fn spin_arguments(ms: u64, place: Place, before: BeforeExec) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["workload", "spin", "--ms"].into_iter().map(str::to_owned).collect();
    arguments.push(ms.to_string());
    if let Some(cpu) = place.cpu {
        arguments.extend(["--cpu".to_owned(), cpu.to_string()]);
    }
    arguments.extend(["--before-exec".to_owned(), before.to_string()]);
    arguments
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Workload;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        workload: Workload,
    }

    #[test]
    fn the_second_half_understands_its_command_line() {
        let before = BeforeExec { tid: 7, user_ns: 50_000_000, gap_ns: 12 };
        let arguments = spin_arguments(51, Place { cpu: Some(1) }, before);
        assert_eq!(arguments[0], "workload");
        let Workload::Spin(spin) = Line::try_parse_from(arguments).unwrap().workload else {
            panic!("not spin")
        };
        assert_eq!((spin.ms, spin.place.cpu, spin.before_exec), (51, Some(1), Some(before)));
    }
}
