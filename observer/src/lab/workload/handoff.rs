//! `pingpong` and `yield`: two processes that do nothing but switch.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};

use anyhow::{Context as _, Result, ensure};
use nix::sched::sched_yield;
use serde_json::Value;

use super::clock::now_ns;
use super::memory::Shared;
use super::os::{Child, Ended, Place, Policy, last_cpu, pin};
use super::report::{Closed, Report, Window};

/// Counter shared with the second process: who is ready to yield.
const READY: usize = 0;
/// How long to wait for it, ns.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Options of `pingpong`.
#[derive(clap::Args, Clone, Debug)]
pub struct PingpongArgs {
    /// Round trips
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Policy of both; with `fifo` nobody preempts the other, so each byte is a wakeup
    #[arg(long, value_enum, default_value_t = Policy::Other)]
    pub policy: Policy,
    #[command(flatten)]
    /// Where both run
    pub place: Place,
}

/// Options of `yield`.
#[derive(clap::Args, Clone, Debug)]
pub struct YieldArgs {
    /// Calls of sched_yield of each process
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    #[command(flatten)]
    /// Where both run (default: the last allowed CPU)
    pub place: Place,
}

/// Hands a byte there and back.
///
/// # Errors
/// If the CPU or the policy is not allowed or the second process ends early.
pub fn pingpong(args: &PingpongArgs) -> Result<Value> {
    args.place.apply()?;
    args.policy.apply()?;
    let (mut from_first, mut to_second) = pipe().context("cannot make a pipe")?;
    let (mut from_second, mut to_first) = pipe().context("cannot make a pipe")?;
    let count = args.count;
    let second = Child::fork(move || {
        let returned = (0..count).try_for_each(|_| {
            let byte = receive(&mut from_first)?;
            send(&mut to_first, byte)
        });
        i32::from(returned.is_err())
    })?;

    let window = Window::open()?;
    for round in 0..count {
        let byte = round.to_le_bytes()[0];
        send(&mut to_second, byte)?;
        let back = receive(&mut from_second)?;
        ensure!(back == byte, "sent {byte}, got {back} back");
    }
    let closed = window.close()?;
    finish(Report::new("pingpong"), count, &closed, second)
}

/// Yields back and forth.
///
/// # Errors
/// If the CPU is not allowed or the second process ends early.
pub fn yielding(args: &YieldArgs) -> Result<Value> {
    // On two CPUs there would be nobody to yield to.
    pin(args.place.cpu.map_or_else(last_cpu, Ok)?)?;
    let shared = Shared::new()?;
    let count = args.count;
    let second = Child::fork(|| {
        i32::from(meet(&shared).is_err() || (0..count).any(|_| sched_yield().is_err()))
    })?;

    meet(&shared)?;
    let window = Window::open()?;
    for _ in 0..count {
        sched_yield().context("cannot yield")?;
    }
    let closed = window.close()?;
    finish(Report::new("yield"), count, &closed, second)
}

fn finish(report: Report, count: u64, closed: &Closed, second: Child) -> Result<Value> {
    let pid = second.pid().as_raw();
    let Ended { code, user_ns, system_ns, voluntary_switches, involuntary_switches } =
        second.wait()?;
    ensure!(code == 0, "the second process ended with status {code}");
    let report = report.with("count", count).with("second_tid", pid);
    Ok(closed
        .add_to(report)
        .with("second_reported_user_ns", user_ns)
        .with("second_reported_system_ns", system_ns)
        .with("second_switches_voluntary", voluntary_switches)
        .with("second_switches_involuntary", involuntary_switches)
        .finish())
}

/// Returns once both have come here.
fn meet(shared: &Shared) -> Result<()> {
    shared.add(READY, 1);
    let patience_ns = now_ns() + PATIENCE_NS;
    while shared.get(READY) < 2 {
        ensure!(now_ns() < patience_ns, "the other process did not start");
        sched_yield().context("cannot yield")?;
    }
    Ok(())
}

fn send(to: &mut PipeWriter, byte: u8) -> Result<()> {
    to.write_all(&[byte]).context("the other process is gone")
}

fn receive(from: &mut PipeReader) -> Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte).context("the other process is gone")?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_one_cpu_each_round_trip_is_a_switch_of_each() {
        let place = Place { cpu: Some(last_cpu().unwrap()) };
        let report = pingpong(&PingpongArgs { count: 500, policy: Policy::Other, place }).unwrap();
        let field = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(field("count"), 500);
        let all = field("second_switches_voluntary") + field("second_switches_involuntary");
        assert!(all >= 499, "{report}");
        assert!(field("second_switches_voluntary") <= 510, "{report}");
    }

    #[test]
    fn yields_switch() {
        let report = yielding(&YieldArgs { count: 2_000, place: Place::default() }).unwrap();
        let field = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(field("count"), 2_000);
        assert!(field("second_switches_involuntary") > 100, "{report}");
    }
}
