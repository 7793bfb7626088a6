//! `syscalls`: a loop of empty syscalls, whose own user time is measured with the syscall left out.
//!
//! Every iteration reads the clock. Rounds of the full loop alternate with shorter rounds of the
//! bare loop (the same, with a function that only returns in place of the one that makes the
//! syscall), because a machine's speed changes within a second. Then
//!
//! - user truth = time of the bare rounds + count x mean bare iteration;
//! - system truth = time of the full rounds, without gaps, - count x mean bare iteration.
//!
//! Both leave out gaps (interrupts, preemptions, a host's pauses). The way into and out of the
//! kernel counts as system. What the syscall costs the loop afterwards (cold predictors, and where
//! page tables are switched at each crossing, TLB misses) is user time that this does not see:
//! 1 % of the loop's own time on x86_64 without page table isolation, more under emulation.

use std::hint::black_box;

use anyhow::Result;
use serde_json::Value;

use super::clock::{Clock, Tally, now_ns};
use super::os::Place;
use super::report::{Report, Window};
use super::spin::LONGEST_MS;

/// Iterations with the syscall per round.
const FULL_ROUND: u64 = 1_024;
/// Iterations without it per round.
const BARE_ROUND: u64 = 256;

/// Options of `syscalls`.
#[derive(clap::Args, Clone, Debug)]
#[group(id = "length", required = true, multiple = false, args = ["ms", "count"])]
pub struct SyscallsArgs {
    /// Stop after so many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=LONGEST_MS))]
    pub ms: Option<u64>,
    /// Stop after so many syscalls
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    #[command(flatten)]
    /// Where to run
    pub place: Place,
}

/// Both loops, summed over all rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Loops {
    full: Tally,
    bare: Tally,
}

impl Loops {
    /// User time of one iteration of the loop itself, in ps: a ns is too coarse for 1e7 of them.
    fn bare_iteration_ps(&self) -> u64 {
        ratio(self.bare.user_ns, 1_000, self.bare.steps)
    }

    /// User time of the full rounds, ns.
    fn full_user_ns(&self) -> u64 {
        ratio(self.full.steps, self.bare.user_ns, self.bare.steps)
    }
}

/// Makes empty syscalls.
///
/// # Errors
/// If the CPU is not allowed.
pub fn run(args: &SyscallsArgs) -> Result<Value> {
    args.place.apply()?;
    let bare_clock = measure(returns_at_once)?;
    let full_clock = measure(getppid)?;
    let mut loops = Loops::default();

    let window = Window::open()?;
    let deadline_ns = now_ns() + args.ms.unwrap_or(LONGEST_MS) * 1_000_000;
    let wanted = args.count.unwrap_or(u64::MAX);
    loop {
        let left = wanted.saturating_sub(loops.full.steps);
        if left == 0 || (args.count.is_none() && now_ns() >= deadline_ns) {
            break;
        }
        iterate(&full_clock, &mut loops.full, left.min(FULL_ROUND), getppid);
        iterate(&bare_clock, &mut loops.bare, BARE_ROUND, returns_at_once);
    }
    let closed = window.close()?;

    let user_ns = loops.bare.user_ns + loops.full_user_ns();
    let system_ns = loops.full.user_ns.saturating_sub(loops.full_user_ns());
    let gap_ns = loops.full.gap_ns + loops.bare.gap_ns;
    let report = Report::new("syscalls")
        .with("count", loops.full.steps)
        .with("bare_iterations", loops.bare.steps)
        .with("loop_user_ps", bare_clock.known(loops.bare_iteration_ps()))
        .with("user_ns", bare_clock.known(user_ns))
        .with("system_ns", bare_clock.known(system_ns))
        .with("gaps", loops.full.gaps + loops.bare.gaps)
        .with("gap_ns", gap_ns)
        .with("gap_threshold_ns", full_clock.threshold_ns);
    Ok(closed.add_to(report).with_clock(&bare_clock).finish())
}

/// The clock of this loop: its step is one iteration.
fn measure(call: fn() -> libc::c_long) -> Result<Clock> {
    let mut distances = Vec::new();
    let mut last = now_ns();
    for _ in 0..FULL_ROUND {
        black_box(call());
        let now = now_ns();
        distances.push(now.saturating_sub(last));
        last = now;
    }
    let Clock { step_ns, threshold_ns, .. } = Clock::from_distances(&mut distances);
    // Marks say nothing here: some syscalls return by iret, most do not.
    Ok(Clock { step_ns, threshold_ns, marks: false, ..Clock::measure()? })
}

fn iterate(clock: &Clock, tally: &mut Tally, count: u64, call: fn() -> libc::c_long) {
    // A function pointer that the compiler cannot see through, so that both loops are the same.
    let call = black_box(call);
    let mut last = now_ns();
    for _ in 0..count {
        black_box(call());
        let now = now_ns();
        tally.add(clock, now.saturating_sub(last), false);
        last = now;
    }
}

/// The cheapest syscall that no library answers by itself.
#[inline(never)]
pub(super) fn getppid() -> libc::c_long {
    // SAFETY: getppid has no arguments and no effects.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

#[inline(never)]
fn returns_at_once() -> libc::c_long {
    black_box(libc::SYS_getppid)
}

/// `a * b / c`, wide inside; 0 if c is 0.
fn ratio(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product.checked_div(u128::from(c)).and_then(|q| u64::try_from(q).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ms: Option<u64>, count: Option<u64>) -> SyscallsArgs {
        SyscallsArgs { ms, count, place: Place::default() }
    }

    #[test]
    fn user_time_of_the_loop_is_that_of_the_bare_rounds() {
        let bare = Tally::from_words([256, 12_800, 0, 0, 0, 0, 0]);
        let full = Tally::from_words([10_000, 2_000_000, 0, 0, 0, 0, 0]);
        let loops = Loops { full, bare };
        assert_eq!(loops.bare_iteration_ps(), 50_000);
        assert_eq!(loops.full_user_ns(), 500_000);
        assert_eq!(Loops::default().full_user_ns(), 0);
        assert_eq!(ratio(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn count_is_exact_and_the_parts_add_up() {
        let report = run(&args(None, Some(20_001))).unwrap();
        let field = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(field("count"), 20_001);
        assert_eq!(field("bare_iterations"), 20 * BARE_ROUND);
        let parts_ns = field("user_ns") + field("system_ns") + field("gap_ns");
        assert!(parts_ns <= field("wall_ns"), "{report}");
        assert!(parts_ns >= field("wall_ns") * 8 / 10, "{report}");
        assert!(field("system_ns") > 0 && field("user_ns") > 0, "{report}");
    }

    #[test]
    fn time_limit_holds() {
        let report = run(&args(Some(10), None)).unwrap();
        let wall_ns = report["wall_ns"].as_u64().unwrap();
        assert!(wall_ns >= 10_000_000, "{report}");
        assert!(report["count"].as_u64().unwrap() >= FULL_ROUND);
    }
}
