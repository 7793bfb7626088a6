//! `spin` and `sleep`: nothing but user time, and nothing at all.

use std::str::FromStr;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::clock::{Amount, Clock};
use super::os::Place;
use super::report::{Report, Window};

/// Longest length any program accepts, ms (one hour).
pub const LONGEST_MS: u64 = 3_600_000;
/// Options of `spin`.
#[derive(clap::Args, Clone, Debug)]
pub struct SpinArgs {
    /// Own user time to use, milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
    /// What the thread that called exec had burned (set by exec-thread)
    #[arg(long, hide = true, value_name = "TID:USER_NS:GAP_NS")]
    pub before_exec: Option<BeforeExec>,
}

/// What a thread did before it replaced the process by exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeExec {
    /// The thread's id before exec; afterwards it has the leader's.
    pub tid: i32,
    /// Its user time, ns.
    pub user_ns: u64,
    /// Its gaps, ns.
    pub gap_ns: u64,
}

impl FromStr for BeforeExec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut next = || parts.next().unwrap_or("").parse::<u64>();
        let parsed = (next(), next(), next());
        match (parsed, parts.next()) {
            ((Ok(tid), Ok(user_ns), Ok(gap_ns)), None) => {
                let tid = i32::try_from(tid).map_err(|_| "the tid is too large".to_owned())?;
                Ok(Self { tid, user_ns, gap_ns })
            }
            _ => Err("must be TID:USER_NS:GAP_NS".to_owned()),
        }
    }
}

impl std::fmt::Display for BeforeExec {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}:{}", self.tid, self.user_ns, self.gap_ns)
    }
}

/// Options of `sleep`.
#[derive(clap::Args, Clone, Debug)]
pub struct SleepArgs {
    /// Length, milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Uses a given amount of user time.
///
/// # Errors
/// If the CPU is not allowed.
pub fn spin(args: &SpinArgs) -> Result<Value> {
    args.place.apply()?;
    spin_as(Report::new("spin"), args.ms, args.before_exec)
}

/// Sleeps once.
///
/// # Errors
/// If the CPU is not allowed.
pub fn sleep(args: &SleepArgs) -> Result<Value> {
    args.place.apply()?;
    let window = Window::open()?;
    std::thread::sleep(Duration::from_millis(args.ms));
    let closed = window.close()?;
    Ok(closed.add_to(Report::new("sleep").with("requested_ms", args.ms)).finish())
}

/// Spins and finishes the report.
pub(super) fn spin_as(report: Report, ms: u64, before_exec: Option<BeforeExec>) -> Result<Value> {
    let clock = Clock::measure()?;
    let window = Window::open()?;
    let tally = clock.burn(Amount::UserNs(ms * 1_000_000));
    let closed = window.close()?;
    let mut report = report.with("requested_ms", ms).with_tally(&clock, &tally);
    if let Some(before) = before_exec {
        let fields = json!({
            "tid": before.tid,
            "user_ns": clock.known(before.user_ns),
            "gap_ns": clock.known(before.gap_ns),
        });
        let total_ns = before.user_ns.saturating_add(tally.user_ns);
        report = report.with("before_exec", fields).with("total_user_ns", clock.known(total_ns));
    }
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_exec_survives_the_command_line() {
        let before = BeforeExec { tid: 42, user_ns: 5_000_000_001, gap_ns: 7 };
        assert_eq!(before.to_string().parse(), Ok(before));
        for bad in ["", "1:2", "1:2:3:4", "1:2:x", "-1:2:3", "99999999999:2:3"] {
            assert!(bad.parse::<BeforeExec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spin_uses_what_was_asked_for() {
        let args = SpinArgs { ms: 20, place: Place::default(), before_exec: None };
        let report = spin(&args).unwrap();
        let field = |name: &str| report[name].as_u64().unwrap();
        assert!((20_000_000..20_400_000).contains(&field("user_ns")), "{report}");
        assert!(field("user_ns") + field("gap_ns") <= field("wall_ns"));
        // The kernel bills interrupts and the host's time too, but not a preemption.
        assert!(field("thread_cpu_ns") * 102 / 100 >= field("user_ns"), "{report}");
        assert!(field("thread_cpu_ns") <= field("wall_ns") * 102 / 100, "{report}");
    }

    #[test]
    fn sleep_takes_its_time_and_no_cpu() {
        let report = sleep(&SleepArgs { ms: 30, place: Place::default() }).unwrap();
        assert!(report["wall_ns"].as_u64().unwrap() >= 30_000_000);
        assert!(report["thread_cpu_ns"].as_u64().unwrap() < 10_000_000);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_one_clear_line() {
        let place = Place { cpu: Some(1_000) };
        let error = spin(&SpinArgs { ms: 1, place, before_exec: None }).unwrap_err();
        let line = format!("{error:#}");
        assert!(line.starts_with("cannot pin to CPU 1000") && !line.contains('\n'), "{line}");
    }
}
