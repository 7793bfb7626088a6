//! What observer itself costs.

use std::os::fd::OwnedFd;

use aya::sys::{Stats, enable_stats};
use observer_common::names;

use crate::{
    clock::{now_ns, process_cpu_ns},
    probe::{
        Probe, ProgramStats,
        hooks::{HOOKS, Via},
    },
};

/// The kernel's program statistics cost two clock reads for each run, so they are on for this long only; what
/// a run costs is taken from this sample.
const SAMPLE_NS: u64 = 50_000_000;

/// observer's own cost.
pub struct OwnCost {
    statistics: Option<OwnedFd>,
    began_ns: u64,
    cpu_at_begin_ns: u64,
    sample: [ProgramStats; names::HOOKS],
    have_sample: bool,
}

impl OwnCost {
    /// Begins to count, and to sample where the kernel keeps statistics (5.8, `CAP_SYS_ADMIN`).
    #[must_use]
    pub fn begin() -> Self {
        Self {
            statistics: enable_stats(Stats::RunTime).ok(),
            began_ns: now_ns(),
            cpu_at_begin_ns: process_cpu_ns(),
            sample: [ProgramStats::default(); names::HOOKS],
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
        if now_ns().saturating_sub(self.began_ns) > SAMPLE_NS {
            self.statistics = None;
        }
    }

    /// True until [`OwnCost::tick`] has ended the sample.
    #[must_use]
    pub fn is_sampling(&self) -> bool {
        self.statistics.is_some()
    }

    /// observer's own CPU time since the begin.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        process_cpu_ns().saturating_sub(self.cpu_at_begin_ns)
    }

    /// Time in the programs: runs times the mean of the sample. It leaves out what the kernel needs to call them.
    #[must_use]
    pub fn hook_ns(&self, runs: &[u64; names::HOOKS]) -> Option<u64> {
        if !self.have_sample {
            return None;
        }
        let sampled = self.sample.iter().fold((0_u128, 0_u128), |(time, runs), sample| {
            (time + u128::from(sample.run_time_ns), runs + u128::from(sample.run_count))
        });
        // The kernel counts a program that another one goes on in as a part of that.
        let called = HOOKS.iter().filter(|hook| !matches!(hook.via, Via::After(_)));
        let estimate = called.fold(0_u128, |sum, hook| {
            let (sample, runs) = (&self.sample[hook.index], runs[hook.index]);
            // A hook that did not run in the sample is taken for an average one.
            let (time_ns, count) = match sample.run_count {
                0 => sampled,
                count => (u128::from(sample.run_time_ns), u128::from(count)),
            };
            sum + time_ns * u128::from(runs) / count.max(1)
        });
        u64::try_from(estimate).ok()
    }
}
