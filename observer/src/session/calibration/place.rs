//! Where the calibration runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// While it lives, this thread and whatever it starts stay on one CPU.
///
/// Where a tracee stops is half of what its stop costs: with its tracer on the same CPU the border was 1.2 µs here,
/// on another one, which idles between two stops and is woken by an interrupt, 1.4 to 2.2. Left to the scheduler a
/// calibration was of the one or the other, with all its batches alike. So it is of the same CPU: the lower one, as
/// everywhere, and the one that can be had on every machine.
pub struct Stay {
    home: CpuSet,
    cpu: usize,
}

impl Stay {
    /// None where the system does not let us.
    pub fn here() -> Option<Self> {
        let home = sched_getaffinity(None).ok()?;
        let cpu = sched_getcpu();
        let mut here = CpuSet::new();
        here.set(cpu);
        sched_setaffinity(None, &here).ok()?;
        Some(Self { home, cpu })
    }

    /// The other CPUs that were allowed before; none where there is only this one.
    pub fn elsewhere(&self) -> Option<CpuSet> {
        let mut others = self.home;
        others.unset(self.cpu);
        (others.count() > 0).then_some(others)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // All of them may have gone offline meanwhile; the kernel has then found a place itself.
        let _ = sched_setaffinity(None, &self.home);
    }
}
