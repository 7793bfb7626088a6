//! Clocks, in nanoseconds. The kernel side reads the same one: `bpf_ktime_get_ns` is CLOCK_MONOTONIC.

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC; through the vdso, so without entering the kernel on usual clock sources.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread as the kernel bills it (`sum_exec_runtime`). A syscall.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The same of this process, its ended threads included.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// A clock that always exists (0 if the kernel nevertheless refuses it).
#[must_use]
pub fn read_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| {
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}
