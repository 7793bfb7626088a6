//! `faults`: a known number of page faults.
//!
//! All pages are touched twice, one by one, with a reading of the clock after each touch. The first
//! time each touch faults; the second time none does, and that is the user part of the first.

use anyhow::Result;
use serde_json::Value;

use super::clock::{Clock, Tally, now_ns};
use super::memory::Pages;
use super::os::Place;
use super::report::{Report, Window};

/// Most pages, 4 GiB of small ones.
const MOST_PAGES: u64 = 1 << 20;
/// Touches that find the usual length of one.
const CALIBRATION_TOUCHES: usize = 256;

/// Options of `faults`.
#[derive(clap::Args, Clone, Debug)]
pub struct FaultsArgs {
    /// Pages to touch; they are all held at the same time
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_PAGES))]
    pub pages: u64,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Touches pages.
///
/// # Errors
/// If the CPU is not allowed or the memory cannot be mapped.
pub fn run(args: &FaultsArgs) -> Result<Value> {
    args.place.apply()?;
    let count = usize::try_from(args.pages)?;
    let clock = Clock::measure()?;
    // The clocks of the two passes: a step is one touch.
    let absent_clock = usual_touch()?;
    let pages = Pages::map(count)?;

    let window = Window::open()?;
    let absent = touch_all(&pages, count, &absent_clock);
    let present = touch_all(&pages, count, &clock);
    let closed = window.close()?;

    let system_ns = absent.user_ns.saturating_sub(present.user_ns);
    let report = Report::new("faults")
        .with("pages", args.pages)
        .with("faults_reported", closed.faults())
        .with("absent_ns", absent.user_ns)
        .with("present_ns", present.user_ns)
        .with("touch_ns", absent.user_ns / args.pages)
        .with("user_ns", clock.known(present.user_ns * 2))
        .with("system_ns", clock.known(system_ns))
        .with("gaps", absent.gaps + present.gaps)
        .with("gap_ns", absent.gap_ns + present.gap_ns)
        .with("gap_threshold_ns", absent_clock.threshold_ns);
    Ok(closed.add_to(report).with_clock(&clock).finish())
}

fn touch_all(pages: &Pages, count: usize, clock: &Clock) -> Tally {
    let mut tally = Tally::default();
    let mut last = now_ns();
    for index in 0..count {
        pages.touch(index);
        let now = now_ns();
        tally.add(clock, now.saturating_sub(last), false);
        last = now;
    }
    tally
}

/// The clock of a loop whose every step faults.
fn usual_touch() -> Result<Clock> {
    let pages = Pages::map(CALIBRATION_TOUCHES)?;
    let mut distances = Vec::with_capacity(CALIBRATION_TOUCHES);
    for index in 0..CALIBRATION_TOUCHES {
        let start = now_ns();
        pages.touch(index);
        distances.push(now_ns().saturating_sub(start));
    }
    Ok(Clock::from_distances(&mut distances))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fork in another thread would write-protect the pages, and they would fault again.
    #[test]
    #[ignore = "counts exactly only in a process that does not fork: run by every_page_faults_once"]
    fn alone_every_page_faults_once() {
        let report = run(&FaultsArgs { pages: 1_000, place: Place::default() }).unwrap();
        let field = |name: &str| report[name].as_u64().unwrap();
        // The kernel counts the same, give or take a page of stack or code.
        assert!((1_000..=1_008).contains(&field("faults_reported")), "{report}");
        assert!(field("absent_ns") > field("present_ns"), "{report}");
        let parts_ns = field("absent_ns") + field("present_ns") + field("gap_ns");
        assert!(parts_ns <= field("wall_ns"), "{report}");
        assert!(parts_ns >= field("wall_ns") * 8 / 10, "{report}");
    }

    #[test]
    fn every_page_faults_once() {
        super::super::test_alone(module_path!(), "alone_every_page_faults_once");
    }
}
