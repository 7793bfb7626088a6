//! `mixed`: arithmetic that times itself, then one syscall, over and over.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use serde_json::Value;

use super::clock::{Amount, Clock, Tally, now_ns};
use super::os::Place;
use super::report::{Report, Window};
use super::spin::LONGEST_MS;
use super::syscalls::getppid;

/// Longest stretch of work between two syscalls, microseconds.
const LONGEST_WORK_US: u64 = 10_000_000;

/// The work between two syscalls.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct WorkArgs {
    /// Arithmetic before each syscall, microseconds of own user time (0: none)
    #[arg(long, default_value_t = 0, value_name = "US",
          value_parser = clap::value_parser!(u64).range(0..=LONGEST_WORK_US))]
    pub work_us: u64,
    /// Arithmetic before each syscall, in steps: the same instructions on every machine
    #[arg(long, conflicts_with = "work_us", value_name = "STEPS",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub work_steps: Option<u64>,
}

impl WorkArgs {
    /// One stretch; none if no work was asked for.
    #[must_use]
    pub fn amount(self) -> Option<Amount> {
        match (self.work_steps, self.work_us) {
            (Some(steps), _) => Some(Amount::Steps(steps)),
            (None, 0) => None,
            (None, us) => Some(Amount::UserNs(us * 1_000)),
        }
    }
}

/// Options of `mixed`.
#[derive(clap::Args, Clone, Debug)]
pub struct MixedArgs {
    /// Stop after so many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: u64,
    #[command(flatten)]
    /// What to do between syscalls
    pub work: WorkArgs,
    /// Begin each stretch at a multiple of so many microseconds of CLOCK_MONOTONIC, and sleep until then: the
    /// sleep is the syscall
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(10..=LONGEST_WORK_US))]
    pub every_us: Option<u64>,
    /// Begin so much later
    #[arg(long, default_value_t = 0, value_name = "US", requires = "every_us",
          value_parser = clap::value_parser!(u64).range(0..=LONGEST_WORK_US))]
    pub phase_us: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Works and calls in turn. `user_ns` is what the arithmetic measured of itself; the loop around it
/// (some 50 ns per syscall, of which about half is user time) is not in it.
///
/// # Errors
/// If the CPU is not allowed.
pub fn run(args: &MixedArgs) -> Result<Value> {
    args.place.apply()?;
    let clock = Clock::measure()?;
    let mut tally = Tally::default();
    let mut calls = 0_u64;

    let window = Window::open()?;
    let deadline_ns = now_ns() + args.ms * 1_000_000;
    while now_ns() < deadline_ns {
        if let Some(amount) = args.work.amount() {
            tally.merge(&clock.burn(amount));
        }
        match args.every_us {
            Some(every_us) => {
                sleep_until(next_ns(now_ns(), every_us * 1_000, args.phase_us * 1_000))?
            }
            None => drop(getppid()),
        }
        calls += 1;
    }
    let closed = window.close()?;

    let report = Report::new("mixed")
        .with("work_us", args.work.work_us)
        .with("work_steps", args.work.work_steps)
        .with("count", calls)
        .with_tally(&clock, &tally);
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

/// The next moment that is a multiple of `every_ns`, and `phase_ns` more.
fn next_ns(now_ns: u64, every_ns: u64, phase_ns: u64) -> u64 {
    (now_ns.saturating_sub(phase_ns) / every_ns + 1) * every_ns + phase_ns
}

fn sleep_until(end_ns: u64) -> Result<()> {
    let end = TimeSpec::new(
        i64::try_from(end_ns / 1_000_000_000)?,
        i64::try_from(end_ns % 1_000_000_000)?,
    );
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &end) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop).context("cannot sleep"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(ms: u64, work_us: u64, work_steps: Option<u64>) -> Value {
        let work = WorkArgs { work_us, work_steps };
        let (every_us, phase_us) = (None, 0);
        run(&MixedArgs { ms, work, every_us, phase_us, place: Place::default() }).unwrap()
    }

    #[test]
    fn each_stretch_is_as_long_as_asked_for() {
        let report = mixed(20, 200, None);
        let field = |name: &str| report[name].as_u64().unwrap();
        let asked_ns = field("count") * 200_000;
        assert!(field("count") >= 1, "{report}");
        assert!(field("user_ns") >= asked_ns, "{report}");
        assert!(field("user_ns") <= asked_ns * 102 / 100, "{report}");
        assert!(field("user_ns") + field("gap_ns") <= field("wall_ns"), "{report}");
    }

    #[test]
    fn stretches_begin_where_they_should() {
        assert_eq!(next_ns(0, 4_000, 300), 4_300);
        assert_eq!(next_ns(4_299, 4_000, 300), 4_300);
        assert_eq!(next_ns(4_300, 4_000, 300), 8_300);
        let work = WorkArgs { work_us: 100, work_steps: None };
        let (every_us, phase_us) = (Some(1_000), 50);
        let args = MixedArgs { ms: 20, work, every_us, phase_us, place: Place::default() };
        let report = run(&args).unwrap();
        // At most one stretch for each multiple; and each sleep is a switch.
        let count = report["count"].as_u64().unwrap();
        assert!(count <= report["wall_ns"].as_u64().unwrap() / 1_000_000 + 1, "{report}");
        assert!(report["switches_voluntary"].as_u64().unwrap() >= count, "{report}");
    }

    #[test]
    fn steps_are_exact_and_no_work_is_none() {
        let report = mixed(5, 0, Some(300));
        assert_eq!(report["steps"].as_u64().unwrap(), 300 * report["count"].as_u64().unwrap());
        let report = mixed(2, 0, None);
        assert_eq!((report["steps"].as_u64(), report["user_ns"].as_u64()), (Some(0), Some(0)));
    }
}
