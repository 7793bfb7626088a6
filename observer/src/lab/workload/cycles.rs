//! `cycles`: work in user mode and in the kernel by turns, in a thread that counts its own cycles.

use std::{fs::File, io::Read as _, thread};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::{
    clock::{Amount, Clock, Tally},
    report::{Report, Window},
};
use crate::probe::cycles::OwnCycles;

/// What each round reads: the kernel clears so much memory.
const READ_BYTES: usize = 64 * 1024;

/// Options of `cycles`.
#[derive(clap::Args, Clone, Debug)]
pub struct CyclesArgs {
    /// Rounds of arithmetic and one read of 64 KiB from /dev/zero
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rounds: u64,
    /// Arithmetic in each round, in steps: the same instructions on every machine
    #[arg(long, default_value_t = 1_000, value_name = "STEPS",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub work_steps: u64,
}

/// Runs it. `cycles_user` and `cycles_system` are what the thread's own counters say from its first moment to its last;
/// null, with `cycles_reason`, where it cannot have any.
///
/// # Errors
/// If /dev/zero cannot be read.
pub fn run(args: &CyclesArgs) -> Result<Value> {
    let args = args.clone();
    thread::spawn(move || work(&args)).join().map_err(|_| anyhow!("the thread has panicked"))?
}

fn work(args: &CyclesArgs) -> Result<Value> {
    let counters = OwnCycles::open();
    let clock = Clock::measure()?;
    let mut zeros = File::open("/dev/zero").context("/dev/zero")?;
    let mut memory = vec![1_u8; READ_BYTES];
    let mut tally = Tally::default();
    let window = Window::open()?;
    for _ in 0..args.rounds {
        tally.merge(&clock.burn(Amount::Steps(args.work_steps)));
        zeros.read_exact(&mut memory).context("/dev/zero")?;
    }
    let closed = window.close()?;
    let cycles = counters.and_then(|counters| counters.read());
    let (own, reason) = match cycles {
        Ok(Some(own)) => (Some(own), None),
        Ok(None) => (None, Some("the counters did not count all the time".to_owned())),
        Err(error) => (None, Some(error.to_string())),
    };
    let report = Report::new("cycles")
        .with("count", args.rounds)
        .with("cycles_user", own.map(|(user, _)| user))
        .with("cycles_system", own.map(|(_, system)| system))
        .with("cycles_reason", reason)
        .with_tally(&clock, &tally);
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_its_own_cycles_or_says_why_not() {
        let report = run(&CyclesArgs { rounds: 20, work_steps: 500 }).unwrap();
        assert_eq!(report["steps"], 20 * 500);
        assert_ne!(report["tid"], report["pid"], "a thread of its own");
        match report["cycles_user"].as_u64() {
            Some(user) => assert!(user > 0 && report["cycles_system"].as_u64().unwrap() > 0),
            None => assert!(report["cycles_reason"].is_string(), "{report}"),
        }
    }
}
