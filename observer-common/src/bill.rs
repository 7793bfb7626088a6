//! The kernel's own figures for a task, read where they cannot be changing.

/// What `task_struct` holds about CPU time, all in nanoseconds.
///
/// Source: `struct task_struct` (include/linux/sched.h), 4.11 and later keep `utime` and `stime` in
/// nanoseconds. `prev_*` is `prev_cputime`, the last pair that the kernel handed out for the task
/// (`cputime_adjust`, kernel/sched/cputime.c).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// `se.sum_exec_runtime`: the run time that the scheduler billed.
    pub runtime_ns: u64,
    /// `utime`: raw, before scaling; whole ticks under tick accounting.
    pub utime_ns: u64,
    /// `stime`: raw, before scaling.
    pub stime_ns: u64,
    /// `prev_cputime.utime`.
    pub prev_utime_ns: u64,
    /// `prev_cputime.stime`.
    pub prev_stime_ns: u64,
}

/// The run queue's clocks at a switch (`struct rq`, kernel/sched/sched.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunQueue {
    /// `clock`: `sched_clock_cpu()` at the last effective `update_rq_clock()`.
    pub clock_ns: u64,
    /// `clock_task`: `clock` without the interrupt and steal time that the kernel subtracts.
    pub clock_task_ns: u64,
    /// `clock_update_flags`.
    pub update_flags: u32,
}

/// `RQCF_REQ_SKIP` (kernel/sched/sched.h): the next `__schedule` is asked not to update the clock.
pub const RQCF_REQ_SKIP: u32 = 1;
/// `RQCF_ACT_SKIP`: `__schedule` is honouring it. Up to 6.6 it is still set at `sched_switch`; later kernels
/// clear it right after `__schedule`'s own update.
pub const RQCF_ACT_SKIP: u32 = 2;

impl RunQueue {
    /// Interrupt and steal time that `clock_task` has left out so far.
    #[must_use]
    #[inline(always)]
    pub fn left_out_ns(&self) -> u64 {
        self.clock_ns.saturating_sub(self.clock_task_ns)
    }
}
