//! The rule by which the kernel turns raw ticks into the user and system time that it reports.
//!
//! Source: `cputime_adjust` (kernel/sched/cputime.c), read in 5.10, 6.1, 6.12, 7.2 and 7.3. What differs
//! between them is only how the product is kept in range (6.1 and 6.12 clamp `stime` to `rtime` after an
//! imprecise multiplication); with 128-bit arithmetic there is nothing to clamp, and on x86-64 the kernel's
//! own arithmetic is exact too. `getrusage`, `times`, `wait4` and `/proc/PID/stat` all report through it.

use crate::bill::Bill;

/// A pair of user and system time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cputime {
    /// User time.
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
}

impl Cputime {
    /// User and system time together; saturates.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// Which branch of the rule decided the result: what there is to say about how a split came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The previous pair already covers the run time: it is handed out again.
    Frozen,
    /// No tick ever hit system mode: everything is user time.
    AllUser,
    /// No tick ever hit user mode: everything is system time.
    AllSystem,
    /// Scaled by the ratio of the ticks.
    Scaled,
    /// Scaled, then one side was held at its previous value so that it does not run backwards.
    Clamped,
}

/// What the kernel would report for `bill` if it last reported `previous`.
#[must_use]
pub fn adjust(bill: &Bill, previous: Cputime) -> (Cputime, Rule) {
    let rtime_ns = bill.runtime_ns;
    if previous.total_ns() >= rtime_ns {
        return (previous, Rule::Frozen);
    }
    let (scaled_ns, rule) = if bill.stime_ns == 0 {
        (0, Rule::AllUser)
    } else if bill.utime_ns == 0 {
        (rtime_ns, Rule::AllSystem)
    } else {
        (scale(bill.stime_ns, rtime_ns, bill.utime_ns), Rule::Scaled)
    };
    let mut system_ns = scaled_ns.max(previous.system_ns);
    let mut user_ns = rtime_ns.saturating_sub(system_ns);
    if user_ns < previous.user_ns {
        user_ns = previous.user_ns;
        system_ns = rtime_ns.saturating_sub(user_ns);
    }
    let rule = if system_ns == scaled_ns { rule } else { Rule::Clamped };
    (Cputime { user_ns, system_ns }, rule)
}

/// `stime * rtime / (stime + utime)`, exactly. Needs `stime > 0`; the result is at most `rtime`.
fn scale(stime_ns: u64, rtime_ns: u64, utime_ns: u64) -> u64 {
    let ticks_ns = u128::from(stime_ns) + u128::from(utime_ns);
    let scaled_ns = u128::from(stime_ns) * u128::from(rtime_ns) / ticks_ns;
    u64::try_from(scaled_ns).unwrap_or(rtime_ns)
}

/// What observer's readings look like from outside: successive reports of one task.
///
/// Reading `/proc/PID/stat` moves `prev_cputime`; our readings do not touch the kernel, so the clamp that a
/// real reader would have seen is kept here. Where another reader moved `prev_cputime` further, that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reporter {
    previous: Cputime,
}

impl Reporter {
    /// The next report; user and system never decrease.
    pub fn report(&mut self, bill: &Bill) -> (Cputime, Rule) {
        let kernel = Cputime { user_ns: bill.prev_utime_ns, system_ns: bill.prev_stime_ns };
        // Only a pair as a whole is consistent: take the one that covers more.
        if kernel.total_ns() > self.previous.total_ns()
            && kernel.user_ns >= self.previous.user_ns
            && kernel.system_ns >= self.previous.system_ns
        {
            self.previous = kernel;
        }
        let (report, rule) = adjust(bill, self.previous);
        self.previous = report;
        (report, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn bill(runtime_ns: u64, utime_ns: u64, stime_ns: u64) -> Bill {
        Bill { runtime_ns, utime_ns, stime_ns, ..Bill::default() }
    }

    fn pair(user_ns: u64, system_ns: u64) -> Cputime {
        Cputime { user_ns, system_ns }
    }

    #[test]
    fn without_a_system_tick_everything_is_user_time() {
        assert_eq!(
            adjust(&bill(3 * MS, 0, 0), pair(0, 0)),
            (pair(3 * MS, 0), Rule::AllUser),
            "a task shorter than a tick has no ticks at all"
        );
        assert_eq!(adjust(&bill(9 * MS, 8 * MS, 0), pair(0, 0)), (pair(9 * MS, 0), Rule::AllUser));
    }

    #[test]
    fn without_a_user_tick_everything_is_system_time() {
        assert_eq!(
            adjust(&bill(9 * MS, 0, 4 * MS), pair(0, 0)),
            (pair(0, 9 * MS), Rule::AllSystem)
        );
    }

    #[test]
    fn ticks_only_give_the_ratio() {
        // 3 user ticks and 1 system tick of 4 ms, but only 10 ms were billed.
        assert_eq!(
            adjust(&bill(10 * MS, 12 * MS, 4 * MS), pair(0, 0)),
            (pair(7_500_000, 2_500_000), Rule::Scaled)
        );
    }

    #[test]
    fn a_report_that_covers_the_run_time_is_frozen() {
        assert_eq!(adjust(&bill(10 * MS, 4 * MS, 4 * MS), pair(6 * MS, 4 * MS)).1, Rule::Frozen);
        assert_eq!(
            adjust(&bill(10 * MS, 4 * MS, 4 * MS), pair(7 * MS, 4 * MS)),
            (pair(7 * MS, 4 * MS), Rule::Frozen)
        );
    }

    #[test]
    fn system_time_does_not_run_backwards() {
        // 5 ms of system time were reported; the ratio now says 2.5.
        assert_eq!(
            adjust(&bill(10 * MS, 12 * MS, 4 * MS), pair(MS, 5 * MS)),
            (pair(5 * MS, 5 * MS), Rule::Clamped)
        );
    }

    #[test]
    fn user_time_does_not_run_backwards() {
        assert_eq!(
            adjust(&bill(10 * MS, 4 * MS, 12 * MS), pair(5 * MS, 0)),
            (pair(5 * MS, 5 * MS), Rule::Clamped)
        );
    }

    #[test]
    fn a_year_on_256_cpus_does_not_overflow() {
        let year_ns = 365 * 86_400 * 1_000_000_000_u64;
        let rtime_ns = year_ns * 256;
        let (report, rule) = adjust(&bill(rtime_ns, rtime_ns / 3, rtime_ns / 3 * 2), pair(0, 0));
        assert_eq!(rule, Rule::Scaled);
        assert_eq!(report.total_ns(), rtime_ns);
        let third_ns = rtime_ns / 3;
        assert!(report.user_ns.abs_diff(third_ns) <= 1);
        let (report, _) = adjust(&bill(u64::MAX, u64::MAX, u64::MAX), pair(0, 0));
        assert_eq!(report.total_ns(), u64::MAX);
    }

    #[test]
    fn the_reporter_follows_another_reader() {
        let mut reporter = Reporter::default();
        let moved =
            Bill { prev_utime_ns: 2 * MS, prev_stime_ns: 8 * MS, ..bill(10 * MS, 12 * MS, 4 * MS) };
        assert_eq!(reporter.report(&moved), (pair(2 * MS, 8 * MS), Rule::Frozen));
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole_unless_frozen(
            rtime in 0_u64.., utime in 0..=u64::MAX / 2, stime in 0..=u64::MAX / 2,
            user in 0..=u64::MAX / 2, system in 0..=u64::MAX / 2,
        ) {
            let (report, rule) = adjust(&bill(rtime, utime, stime), pair(user, system));
            if rule == Rule::Frozen {
                prop_assert_eq!(report, pair(user, system));
            } else {
                prop_assert_eq!(report.total_ns(), rtime);
                prop_assert!(report.user_ns >= user && report.system_ns >= system);
            }
        }

        #[test]
        fn successive_reports_never_decrease(
            steps in proptest::collection::vec((0..50 * MS, 0_u64..4, 0_u64..4, 0..50 * MS, 0..50 * MS), 1..40),
        ) {
            let mut reporter = Reporter::default();
            let mut now = Bill::default();
            let mut last = Cputime::default();
            for (run_ns, user_ticks, system_ticks, prev_utime_ns, prev_stime_ns) in steps {
                now.runtime_ns += run_ns;
                now.utime_ns += user_ticks * 4 * MS;
                now.stime_ns += system_ticks * 4 * MS;
                now.prev_utime_ns = prev_utime_ns;
                now.prev_stime_ns = prev_stime_ns;
                let (report, _) = reporter.report(&now);
                prop_assert!(report.user_ns >= last.user_ns && report.system_ns >= last.system_ns);
                last = report;
            }
        }
    }
}
