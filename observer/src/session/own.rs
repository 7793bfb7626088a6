//! What observer itself costs.

use std::os::fd::OwnedFd;

use aya::sys::{Stats, enable_stats};
use observer_common::names::HOOKS;

use crate::probe::{Probe, ProgramStats};

/// The kernel's program statistics cost two clock reads for each run, so they are on for this long only; what
/// a run costs is taken from this sample.
const SAMPLE_NS: u64 = 200_000_000;

/// observer's own cost.
pub struct OwnCost {
    statistics: Option<OwnedFd>,
    began_ns: u64,
    cpu_at_begin_ns: u64,
    sample: [ProgramStats; HOOKS],
    have_sample: bool,
}

impl OwnCost {
    /// Begins to count, and to sample where the kernel keeps statistics (5.8, `CAP_SYS_ADMIN`).
    #[must_use]
    pub fn begin() -> Self {
        Self {
            statistics: enable_stats(Stats::RunTime).ok(),
            began_ns: super::now_ns(),
            cpu_at_begin_ns: cpu_ns(),
            sample: [ProgramStats::default(); HOOKS],
            have_sample: false,
        }
    }

    /// Ends the sample when it is long enough.
    pub fn tick(&mut self, probe: &Probe) {
        if self.statistics.is_none() {
            return;
        }
        for status in probe.status().iter().filter(|status| status.is_active()) {
            if let Some(stats) = probe.stats(status) {
                self.sample[status.hook.index] = stats;
                self.have_sample = true;
            }
        }
        if super::now_ns().saturating_sub(self.began_ns) > SAMPLE_NS {
            self.statistics = None;
        }
    }

    /// observer's own CPU time since the begin.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns().saturating_sub(self.cpu_at_begin_ns)
    }

    /// Time in the programs: runs times the mean of the sample. It leaves out what the kernel needs to call them.
    #[must_use]
    pub fn hook_ns(&self, runs: &[u64; HOOKS]) -> Option<u64> {
        self.have_sample.then(|| {
            self.sample
                .iter()
                .zip(runs)
                .filter(|(sample, _)| sample.run_count != 0)
                .map(|(sample, runs)| {
                    let estimate = u128::from(sample.run_time_ns) * u128::from(*runs)
                        / u128::from(sample.run_count);
                    u64::try_from(estimate).unwrap_or(u64::MAX)
                })
                .sum()
        })
    }
}

fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
