//! How stale the run queue's clock is, in nanoseconds of our own clock.
//!
//! Our clock is `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`), the run queue's is `sched_clock_cpu()`. Their
//! difference is the offset between the two clocks plus the staleness, and staleness is never negative: so the
//! smallest difference seen lately is the offset. "Lately", because NTP slews our clock by up to 500 ppm and
//! not the other: a window of a few milliseconds of busy switching, or 100 ms at most, bounds what can
//! accumulate over two of them (100 µs at the worst slew, 4 µs at the 20 ppm of a disciplined clock, and
//! in the busy case that matters 0.1 µs).

/// A window is closed after this time, whatever it holds.
pub const WINDOW_MAX_NS: u64 = 100_000_000;
/// ... or after this time, once it holds [`WINDOW_SAMPLES`].
pub const WINDOW_BUSY_NS: u64 = 2_000_000;
/// Samples that make a short window good enough.
pub const WINDOW_SAMPLES: u32 = 32;
/// The fastest that NTP slews our clock against the other: 500 ppm, as a divisor.
pub const SLEW_DIVISOR: u64 = 2_000;
/// A staleness above this is a clock that jumped (suspend, a restored machine), not a schedule.
pub const JUMP_NS: u64 = 1_000_000_000;

/// The offset between our clock and one run queue's, as a windowed minimum.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Smallest difference in the open window.
    pub current_min_ns: i64,
    /// Smallest difference in the window before it.
    pub previous_min_ns: i64,
    /// Begin of the open window; 0 = there is none yet.
    pub window_start_ns: u64,
    /// Samples in the open window.
    pub samples: u32,
    /// Explicit padding.
    pub _pad: u32,
}

impl ClockOffset {
    /// Takes one sample of a clock that was updated just now: `difference = own clock - run queue's clock`.
    #[inline(always)]
    pub fn sample(&mut self, now_ns: u64, difference_ns: i64) {
        let age_ns = now_ns.saturating_sub(self.window_start_ns);
        if self.window_start_ns == 0 || age_ns > 2 * WINDOW_MAX_NS {
            // Nothing recent: what lies further back only bounds what can be now.
            let first_ns = self.bounded(age_ns, difference_ns);
            self.previous_min_ns = first_ns;
            self.current_min_ns = first_ns;
            self.window_start_ns = now_ns;
            self.samples = 1;
            return;
        }
        let closes =
            age_ns > WINDOW_MAX_NS || (age_ns > WINDOW_BUSY_NS && self.samples >= WINDOW_SAMPLES);
        if closes {
            let first_ns = self.bounded(age_ns, difference_ns);
            self.previous_min_ns = self.current_min_ns;
            self.current_min_ns = first_ns;
            self.window_start_ns = now_ns;
            self.samples = 1;
            return;
        }
        if difference_ns < self.current_min_ns {
            self.current_min_ns = difference_ns;
        }
        self.samples = self.samples.saturating_add(1);
    }

    /// A difference that begins a window, cut to what the slew allows since the last one: a sample of a clock
    /// that was not young must not become the offset.
    #[inline(always)]
    fn bounded(&self, age_ns: u64, difference_ns: i64) -> i64 {
        match self.get() {
            Some(offset_ns) => {
                let highest_ns = offset_ns.saturating_add((age_ns / SLEW_DIVISOR) as i64 + 1);
                if difference_ns < highest_ns { difference_ns } else { highest_ns }
            }
            None => difference_ns,
        }
    }

    /// The offset, or `None` before the first sample.
    #[must_use]
    #[inline(always)]
    pub fn get(&self) -> Option<i64> {
        if self.window_start_ns == 0 {
            return None;
        }
        Some(if self.previous_min_ns < self.current_min_ns {
            self.previous_min_ns
        } else {
            self.current_min_ns
        })
    }

    /// Forgets everything: the run queue's clock jumped.
    #[inline(always)]
    pub fn reset(&mut self) {
        self.window_start_ns = 0;
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_difference_is_the_offset() {
        let mut offset = ClockOffset::default();
        assert_eq!(offset.get(), None);
        for (now_ns, difference_ns) in [(10_000, 1_000), (11_000, 900), (12_000, 5_000)] {
            offset.sample(now_ns, difference_ns);
        }
        assert_eq!(offset.get(), Some(900));
    }

    #[test]
    fn a_drifting_clock_is_followed_within_two_windows() {
        // 20 ppm, a switch every 10 us, staleness 100 ns: the offset never trails by more than two windows.
        let mut offset = ClockOffset::default();
        for step in 1..100_000_i64 {
            let now_ns = step * 10_000;
            let true_offset_ns = now_ns * 20 / 1_000_000;
            offset.sample(now_ns as u64, true_offset_ns + 100);
            let error_ns = true_offset_ns + 100 - offset.get().unwrap();
            assert!((0..=120).contains(&error_ns), "step {step}: {error_ns} ns");
        }
    }

    #[test]
    fn a_stale_sample_does_not_become_the_offset() {
        let mut offset = ClockOffset::default();
        offset.sample(1_000, 10);
        // An idle CPU: 300 ms later a sample of a clock that is 6 ms old.
        offset.sample(1_000 + 3 * WINDOW_MAX_NS, 6_000_010);
        assert!(offset.get().unwrap() <= 10 + 150_001);
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut offset = ClockOffset::default();
        offset.sample(1_000, 10);
        offset.sample(1_000 + 3 * WINDOW_MAX_NS, 5_000);
        assert_eq!(offset.get(), Some(5_000));
    }
}
