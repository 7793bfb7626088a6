//! What a burn was: user time and gaps.

use super::{Amount, Clock};

/// What a burn was. `user_ns + gap_ns` is the time it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps done.
    pub steps: u64,
    /// Time certainly in user mode, ns.
    pub user_ns: u64,
    /// Gaps of any origin.
    pub gaps: u64,
    /// Their length, ns.
    pub gap_ns: u64,
    /// Gaps with a kernel entry (part of `gaps`; only with marks).
    pub kernel_gaps: u64,
    /// Their length, ns. Includes what a host took on the way into or out of the kernel.
    pub kernel_gap_ns: u64,
    /// Kernel entries too short to be a gap; counted as user time.
    pub short_entries: u64,
    /// A mark was gone but the distance was short: the entry fell between the reading of the clock
    /// and that of the mark, so its gap, if any, is the next distance.
    pending: bool,
}

impl Tally {
    /// Books one distance. `entered`: a mark set before it was gone after it.
    #[inline]
    pub fn add(&mut self, clock: &Clock, distance_ns: u64, entered: bool) {
        self.steps += 1;
        let in_kernel = entered || self.pending;
        // With the proof of an entry, twice the usual distance is enough.
        if distance_ns > clock.threshold_ns || (in_kernel && distance_ns > 2 * clock.step_ns) {
            let gap_ns = distance_ns - clock.step_ns.min(distance_ns);
            self.user_ns += distance_ns - gap_ns;
            self.gaps += 1;
            self.gap_ns += gap_ns;
            if in_kernel {
                self.kernel_gaps += 1;
                self.kernel_gap_ns += gap_ns;
            }
            self.pending = false;
        } else {
            self.user_ns += distance_ns;
            self.short_entries += u64::from(self.pending);
            self.pending = entered;
        }
    }

    /// Adds another burn of the same clock.
    pub fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.user_ns += other.user_ns;
        self.gaps += other.gaps;
        self.gap_ns += other.gap_ns;
        self.kernel_gaps += other.kernel_gaps;
        self.kernel_gap_ns += other.kernel_gap_ns;
        self.short_entries += other.short_entries;
    }

    /// Its figures as plain words, to pass through shared memory.
    #[must_use]
    pub fn to_words(&self) -> [u64; 7] {
        [
            self.steps,
            self.user_ns,
            self.gaps,
            self.gap_ns,
            self.kernel_gaps,
            self.kernel_gap_ns,
            self.short_entries,
        ]
    }

    /// The reverse of [`Self::to_words`].
    #[must_use]
    pub fn from_words(words: [u64; 7]) -> Self {
        let [steps, user_ns, gaps, gap_ns, kernel_gaps, kernel_gap_ns, short_entries] = words;
        let pending = false;
        Self { steps, user_ns, gaps, gap_ns, kernel_gaps, kernel_gap_ns, short_entries, pending }
    }

    #[inline]
    pub(super) fn reached(&self, amount: Amount) -> bool {
        match amount {
            Amount::UserNs(ns) => self.user_ns >= ns,
            Amount::Steps(steps) => self.steps >= steps,
        }
    }
}
