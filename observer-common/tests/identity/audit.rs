//! What must hold at the end of a run.
//!
//! Write M for our clock, C for the run queue's at a switch, D = M - C, S for the shift that the machine booked,
//! and E = D - S for the offset that it thereby used. The kernel bills a run with C_out - C_in (less what it
//! left out), we measure M_out - M_in, so
//!
//! ```text
//! runtime - oncpu = (S_in - S_out) - left_out + (E_in - E_out)
//! ```
//!
//! Whatever the offset is, this holds to the nanosecond: that is the machine's bookkeeping. The residual, the
//! sum of E_in - E_out over the runs of a task, is the estimate's fault, and bounded:
//!
//! - E is a minimum of samples `offset + b`, with b the path from the clock's update to the hook, between b_min
//!   and b_max. A bias that both ends of a run share cancels; only changes of E while the task runs remain.
//! - E rises only when a window closes and its smallest sample is forgotten: by at most b_max - b_min, and by
//!   what the offset drifted in the two windows, which adds up to twice the drift of the whole run.
//! - What it falls it has risen before, but for b_max - b_min at the begin.
//!
//! So with R windows in time T all changes together are at most
//! `(2 R + 1) (b_max - b_min) + 4 drift T`, and no task can have more than all of them. A window lasts 2 ms or
//! more: 0.02 % of T, the worst case in which one task has all the rises and another all the falls.

use observer_common::clock::{WINDOW_BUSY_NS, WINDOW_MAX_NS};

use crate::kernel::{Kernel, PATH_NS};

/// b_max - b_min.
pub const SPREAD_NS: i64 = (PATH_NS.end - 1 - PATH_NS.start) as i64;

/// The bound that is derived above.
pub fn tolerance_ns(kernel: &Kernel) -> i64 {
    kernel.cpus.iter().map(|cpu| cpu.elapsed_ns() as i64).fold(0, |sum, elapsed_ns| {
        let windows = elapsed_ns / WINDOW_BUSY_NS as i64 + 1;
        let drift_ns = kernel.setup.drift_ppm.abs() * elapsed_ns / 1_000_000;
        sum + (2 * windows + 1) * SPREAD_NS + 4 * drift_ns
    })
}

/// `runtime - oncpu - (in - out - left_out)` of one task.
pub fn residual_ns(kernel: &Kernel, thread: usize) -> i64 {
    let task = &kernel.accounts[thread];
    let reported_ns = task.bill.runtime_ns as i64 - task.bill_begin.runtime_ns as i64;
    let shifted_in_ns = (task.skip_in_ns + task.path_in_ns) as i64;
    let shifted_out_ns = (task.skip_out_ns + task.path_out_ns) as i64;
    let explained_ns = shifted_in_ns - shifted_out_ns - task.left_out_ns as i64;
    reported_ns - task.oncpu_ns() as i64 - explained_ns
}

/// To the nanosecond, whatever the clocks do.
pub fn exact(kernel: &Kernel) {
    let mut shifts_ns = 0;
    for (index, thread) in kernel.threads.iter().enumerate().filter(|(_, thread)| thread.observed) {
        assert_eq!(residual_ns(kernel, index), thread.unexplained_ns(), "task {index}");
        let task = &kernel.accounts[index];
        shifts_ns += (task.skip_in_ns + task.path_in_ns) as i64;
        shifts_ns -= (task.skip_out_ns + task.path_out_ns) as i64;
    }
    for cpu in &kernel.cpus {
        assert_eq!(cpu.accounted_ns(), cpu.elapsed_ns());
        shifts_ns += cpu.shift_ns.iter().sum::<i64>();
    }
    assert_eq!(shifts_ns, 0, "what one got another lost");
}

/// As good as the offset can be known.
pub fn within_tolerance(kernel: &Kernel) {
    exact(kernel);
    // A staleness that comes out negative is cut off: by the drift since the last sample, or by a path shorter than any
    // sample so far, at a switch that is none: one whose update was skipped, or is taken to have been.
    let most_ns = tolerance_ns(kernel) / 100 + SPREAD_NS * kernel.cpus.len() as i64;
    assert!((0..=most_ns).contains(&kernel.clamped_ns), "{} of {most_ns}", kernel.clamped_ns);
    let bound_ns = tolerance_ns(kernel) + 2 * kernel.clamped_ns;
    for (index, _) in kernel.threads.iter().enumerate().filter(|(_, thread)| thread.observed) {
        let residual_ns = residual_ns(kernel, index);
        assert!(residual_ns.abs() <= bound_ns, "task {index}: {residual_ns} ns of {bound_ns} ns");
    }
    offset_is_known(kernel, WINDOW_MAX_NS as i64);
}

/// The offset follows the true one within three windows.
pub fn offset_is_known(kernel: &Kernel, window_ns: i64) {
    // Never below the true one but by the drift of two windows, never above it by more than
    // the longest path.
    let lag_ns = kernel.setup.drift_ppm.abs() * 3 * window_ns / 1_000_000;
    let (least_ns, most_ns) = kernel.offset_error_ns;
    assert!(least_ns >= PATH_NS.start as i64 - lag_ns - 1, "{least_ns}");
    assert!(most_ns <= PATH_NS.end as i64 + lag_ns, "{most_ns}");
}

/// Every skipped update is counted, and nothing else.
pub fn skips_are_counted(kernel: &Kernel) {
    let counted: u64 = kernel.cpus.iter().map(|cpu| cpu.skips).sum();
    assert_eq!(counted, kernel.skips);
    for (index, thread) in kernel.threads.iter().enumerate().filter(|(_, thread)| thread.observed) {
        let task = &kernel.accounts[index];
        assert_eq!(
            (task.skip_in, task.skip_out),
            (thread.skip_in, thread.skip_out),
            "task {index}"
        );
    }
}

/// What a skip shifted beyond the usual path, within `slack_ns` for each of them.
pub fn skips_are_measured(kernel: &Kernel, slack_ns: i64) {
    for (index, thread) in kernel.threads.iter().enumerate().filter(|(_, thread)| thread.observed) {
        let task = &kernel.accounts[index];
        for (ours_ns, true_ns, count) in [
            (task.skip_in_ns, thread.skip_in_ns, thread.skip_in),
            (task.skip_out_ns, thread.skip_out_ns, thread.skip_out),
        ] {
            let error_ns = ours_ns as i64 - true_ns;
            let bound_ns = slack_ns * count as i64;
            assert!(
                error_ns.abs() <= bound_ns,
                "task {index}: {ours_ns} for {true_ns} ns, {count}"
            );
        }
    }
}
