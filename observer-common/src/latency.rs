//! A histogram of latencies, log-linear: a fixed number of buckets for each doubling.

/// Latencies are counted in this many nanoseconds, as a shift: 64 ns.
pub const UNIT_SHIFT: u32 = 6;
/// Buckets of each doubling, as a shift: 16, so that a bucket's upper bound is at most 1/16 above any value in
/// it (6.3 %); below 16 units (1 us) a bucket is one unit wide.
pub const SUB_SHIFT: u32 = 4;
/// Values from here on go to the last bucket: 2^27 units, 8.6 s.
pub const MAX_SHIFT: u32 = 27;
/// How many buckets there are.
pub const BUCKETS: usize = (((MAX_SHIFT - SUB_SHIFT) << SUB_SHIFT) + (1 << SUB_SHIFT) + 1) as usize;

/// Sum, maximum and distribution of latencies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Sum, ns.
    pub sum_ns: u64,
    /// Longest, ns.
    pub max_ns: u64,
    /// How many.
    pub count: u64,
    /// By [`bucket`].
    pub buckets: [u32; BUCKETS],
    /// Explicit padding: [`BUCKETS`] is odd.
    pub _pad: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { sum_ns: 0, max_ns: 0, count: 0, buckets: [0; BUCKETS], _pad: 0 }
    }
}

impl Latency {
    /// Counts one.
    #[inline(always)]
    pub fn add(&mut self, ns: u64) {
        self.sum_ns += ns;
        self.count += 1;
        if ns > self.max_ns {
            self.max_ns = ns;
        }
        let index = bucket(ns);
        // Always true; said for the verifier.
        if index < BUCKETS {
            self.buckets[index] += 1;
        }
    }
}

impl Latency {
    /// Adds another one's.
    pub fn merge(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count = self.count.saturating_add(other.count);
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// The bucket of a latency.
#[must_use]
#[inline(always)]
pub fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    if units < 1 << SUB_SHIFT {
        return units as usize;
    }
    if units >= 1 << MAX_SHIFT {
        return BUCKETS - 1;
    }
    let exponent = log2(units as u32);
    let sub = (units as u32 >> (exponent - SUB_SHIFT)) & ((1 << SUB_SHIFT) - 1);
    (((exponent - SUB_SHIFT + 1) << SUB_SHIFT) + sub) as usize
}

/// The smallest latency above a bucket, ns; `u64::MAX` for the last one.
#[must_use]
pub fn upper_ns(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let above = (bucket + 1) as u64;
    let octave = (above >> SUB_SHIFT) as u32;
    let sub = above & ((1 << SUB_SHIFT) - 1);
    if octave == 0 {
        return above << UNIT_SHIFT;
    }
    ((1 << SUB_SHIFT) + sub) << (octave - 1) << UNIT_SHIFT
}

/// Position of the highest bit; `value` is not zero. Without a loop and without `clz`, which the bpf target
/// has only as a long table-free sequence on 64 bits.
#[inline(always)]
fn log2(value: u32) -> u32 {
    let mut rest = value;
    let mut log = 0;
    if rest >= 1 << 16 {
        rest >>= 16;
        log += 16;
    }
    if rest >= 1 << 8 {
        rest >>= 8;
        log += 8;
    }
    if rest >= 1 << 4 {
        rest >>= 4;
        log += 4;
    }
    if rest >= 1 << 2 {
        rest >>= 2;
        log += 2;
    }
    log + (rest >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_below_its_buckets_upper_bound_and_not_far() {
        let mut ns = 1_u64;
        while ns < 8_000_000_000 {
            for value in [ns - 1, ns, ns + 1] {
                let index = bucket(value);
                let upper_ns = upper_ns(index);
                assert!(value < upper_ns, "{value}: bucket {index} ends at {upper_ns}");
                if value >= 1_024 {
                    let error = (upper_ns - 1 - value) as f64 / value as f64;
                    assert!(error <= 1.0 / 16.0, "{value}: {error}");
                }
                if index > 0 {
                    assert!(super::upper_ns(index - 1) <= value);
                }
            }
            ns += ns / 7 + 1;
        }
    }

    #[test]
    fn what_is_too_long_goes_to_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket((1 << (MAX_SHIFT + UNIT_SHIFT)) - 1), BUCKETS - 2);
        assert_eq!(upper_ns(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn sums_and_the_longest() {
        let mut latency = Latency::default();
        [5_000, 1_000, 20_000].into_iter().for_each(|ns| latency.add(ns));
        assert_eq!((latency.sum_ns, latency.max_ns, latency.count), (26_000, 20_000, 3));
        assert_eq!(latency.buckets.iter().sum::<u32>(), 3);
    }
}
