//! The independent clock: user time found by reading CLOCK_MONOTONIC in a tight loop.
//!
//! Two successive readings are one *step* apart (a little arithmetic and one reading). Whatever
//! keeps the thread from running user code (interrupt, preemption, page fault, a hypervisor that
//! runs something else) makes a distance longer. A distance above the threshold is a *gap*; all
//! but one step of it is not user time. The rest is user time.
//!
//! **Threshold**: 20 median steps, at least 500 ns. On the machine where it was chosen (x86_64 in a
//! VM, step 37 ns) the distances fall into two heaps: cache and pipeline effects below 250 ns, and
//! VM exits and interrupts above 1 us, with about 0.01 % of the time in between.
//! The factor makes it follow slow machines (emulation), where a step and an interrupt grow alike.
//!
//! **Marks**: inside a VM some gaps are the host's: the guest kernel was never entered, so to it
//! (and to any observer in it) that is user time. On x86_64 the two can be told apart: a null
//! selector with a non-zero privilege part (here 1 in ES) survives in user mode, but `iret` to user
//! mode replaces it by 0 ("SegScope", HPCA 2024). ES is not used by 64-bit code,
//! and Linux saves it per task (`__switch_to`, `arch/x86/kernel/process_64.c`). On guests with exact
//! accounting (`nohz_full`, kernels 6.1 and 6.12) the user time the kernel reports is `user_ns` plus
//! the gaps without an entry within 0.1 %, where these gaps are 4 % of the time. Whether marks work
//! here is found out at start, with a page fault; where they do not (another architecture, FRED),
//! all gaps are of unknown origin.
//!
//! **Clock sources that the vdso cannot read** (hpet, acpi_pm; found by comparing with a plain
//! syscall): each reading is then system time, and the truth is given as null. In an emulated
//! machine `clocksource=tsc tsc=reliable` on the kernel's command line helps.

use std::hint::black_box;

use anyhow::Result;
use serde_json::{Value, json};

mod mark;
mod tally;

pub use tally::Tally;

/// Steps measured to find the median. Together about 0.1 ms.
const CALIBRATION_STEPS: usize = 2_001;
/// Readings of each kind in the test for the vdso.
const VDSO_READINGS: usize = 101;
/// A distance above this many median steps is a gap.
const THRESHOLD_STEPS: u64 = 20;
/// No distance up to this is a gap unless a mark says so.
const THRESHOLD_FLOOR_NS: u64 = 500;

pub(super) use crate::clock::read_ns;
pub use crate::clock::{now_ns, thread_cpu_ns};

/// What one step takes on this machine, and where gaps begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Median distance of two readings, ns, at least 1.
    pub step_ns: u64,
    /// A longer distance is a gap.
    pub threshold_ns: u64,
    /// Marks tell kernel entries from gaps the kernel did not see.
    pub marks: bool,
    /// The clock is read without entering the kernel. Without that there is no truth of user time.
    pub vdso: bool,
}

/// How long to burn.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// So much own user time, ns.
    UserNs(u64),
    /// So many steps: the same instructions each time.
    Steps(u64),
}

impl Clock {
    /// Measures this machine, on the CPU the thread runs on. Takes a fraction of a millisecond.
    ///
    /// # Errors
    /// If no page can be mapped.
    pub fn measure() -> Result<Self> {
        let mut distances = Vec::with_capacity(CALIBRATION_STEPS);
        let mut value = now_ns();
        let mut last = now_ns();
        for _ in 0..CALIBRATION_STEPS {
            value = arithmetic(value);
            let now = now_ns();
            distances.push(now.saturating_sub(last));
            last = now;
        }
        Ok(Self {
            marks: mark::work()?,
            vdso: reads_without_syscall(),
            ..Self::from_distances(&mut distances)
        })
    }

    /// Step and threshold from measured distances; `marks` and `vdso` false.
    #[must_use]
    pub fn from_distances(distances_ns: &mut [u64]) -> Self {
        let step_ns = median(distances_ns).max(1);
        let threshold_ns = (step_ns * THRESHOLD_STEPS).max(THRESHOLD_FLOOR_NS);
        Self { step_ns, threshold_ns, marks: false, vdso: false }
    }

    /// Burns user time and returns what it really was.
    #[must_use]
    pub fn burn(&self, amount: Amount) -> Tally {
        let mut tally = Tally::default();
        let mut value = 0x9e37_79b9_7f4a_7c15;
        let mut last = now_ns();
        if self.marks {
            mark::set();
        }
        while !tally.reached(amount) {
            value = arithmetic(value);
            let now = now_ns();
            let entered = self.marks && mark::is_gone();
            if entered {
                mark::set();
            }
            tally.add(self, now.saturating_sub(last), entered);
            last = now;
        }
        if self.marks {
            // A set mark makes the kernel's own context switch longer, by a segment load.
            mark::clear();
        }
        tally
    }

    /// A truth found with this clock: none if reading it enters the kernel.
    #[must_use]
    pub fn known(&self, value_ns: u64) -> Option<u64> {
        self.vdso.then_some(value_ns)
    }

    /// The fields that say how far the truth can be trusted.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "step_ns": self.step_ns,
            "threshold_ns": self.threshold_ns,
            "vdso": self.vdso,
            "marks": self.marks,
        })
    }
}

/// Middle value (the upper one of two); 0 of nothing. Sorts in place.
#[must_use]
pub fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// A few dependent operations that no compiler folds.
#[inline]
fn arithmetic(mut value: u64) -> u64 {
    for _ in 0..8 {
        value ^= value >> 29;
        value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    black_box(value)
}

/// Compares the library's reading with a certain syscall: the vdso takes a fraction of it.
fn reads_without_syscall() -> bool {
    let by_library = median_reading(now_ns);
    let by_syscall = median_reading(|| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime writes one timespec through the pointer, which outlives the call.
        unsafe {
            libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time);
        }
        black_box(time.tv_nsec.unsigned_abs())
    });
    by_library * 5 < by_syscall * 3
}

fn median_reading(read: impl Fn() -> u64) -> u64 {
    // Sixteen readings per sample: one may be shorter than the clock's resolution.
    let mut samples: Vec<u64> = (0..VDSO_READINGS)
        .map(|_| {
            let start = now_ns();
            for _ in 0..16 {
                black_box(read());
            }
            now_ns().saturating_sub(start)
        })
        .collect();
    median(&mut samples)
}

#[cfg(test)]
mod tests;
