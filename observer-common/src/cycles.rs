//! Cycles of a task by mode, from two counters per CPU: one runs in user mode only, one in the kernel only.
//!
//! The counters belong to the CPU, not to a task, and run all the time; what a task spent is the difference between
//! the readings at both ends of its run. A reading that cannot be had, or a counter that did not run all the time in
//! between (another user of the PMU took its place), makes the whole run worthless: it is discarded and counted, never
//! scaled. Interrupts that came in between are in the kernel's cycles.

use crate::task::Task;

/// Index of the counter that runs in user mode.
pub const USER: usize = 0;
/// Index of the counter that runs in the kernel.
pub const SYSTEM: usize = 1;

/// One reading: `struct bpf_perf_event_value` (include/uapi/linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Cycles so far; wraps at 64 bits.
    pub count: u64,
    /// Time for which the counter was wanted, ns.
    pub enabled_ns: u64,
    /// Time for which it counted, ns.
    pub running_ns: u64,
}

impl Sample {
    /// Cycles since an earlier reading; `None` if the counter stood still for a while, or went back.
    #[must_use]
    #[inline(always)]
    pub fn since(&self, earlier: &Self) -> Option<u64> {
        let enabled_ns = self.enabled_ns.wrapping_sub(earlier.enabled_ns);
        let running_ns = self.running_ns.wrapping_sub(earlier.running_ns);
        let count = self.count.wrapping_sub(earlier.count);
        // The kernel adds up what the hardware counter moved: half of all numbers is out of reach within one run.
        if enabled_ns != running_ns || count > u64::MAX / 2 {
            return None;
        }
        Some(count)
    }
}

/// The counters of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// The reading that is booked next, by [`USER`] and [`SYSTEM`]. The caller reads into it: so it needs no stack.
    pub now: [Sample; 2],
    /// The reading at the begin of the run that is open.
    pub mark: [Sample; 2],
    /// The kernel's counter at the begin of the wakeup that runs.
    pub waking: Sample,
    /// 1: `mark` was read.
    pub is_marked: u64,
    /// 1: `waking` was read.
    pub is_waking: u64,
    /// Runs and wakeups whose cycles are not known.
    pub discarded: u64,
}

impl Meter {
    /// Books what the owner of this CPU spent up to [`Meter::now`], if that is an observed task, and begins the next
    /// run there. `is_read`: both counters could be read.
    #[inline(always)]
    pub fn turn(&mut self, owner: Option<&mut Task>, is_read: bool) {
        if let Some(task) = owner {
            let spent = if is_read && self.is_marked != 0 { self.spent() } else { None };
            task.begin();
            match spent {
                Some((user, system)) => {
                    task.cycles_user = task.cycles_user.wrapping_add(user);
                    task.cycles_system = task.cycles_system.wrapping_add(system);
                }
                None => {
                    task.cycles_discarded += 1;
                    self.discarded += 1;
                }
            }
            task.end();
        }
        self.mark = self.now;
        self.is_marked = is_read as u64;
    }

    #[inline(always)]
    fn spent(&self) -> Option<(u64, u64)> {
        match (self.now[USER].since(&self.mark[USER]), self.now[SYSTEM].since(&self.mark[SYSTEM])) {
            (Some(user), Some(system)) => Some((user, system)),
            _ => None,
        }
    }

    /// A wakeup begins; `is_read`: the kernel's counter could be read.
    #[inline(always)]
    pub fn wakeup_begins(&mut self, is_read: bool) {
        self.waking = self.now[SYSTEM];
        self.is_waking = is_read as u64;
    }

    /// It ends on the same CPU: its cycles; 0 if they are not known, which is counted.
    #[must_use]
    #[inline(always)]
    pub fn wakeup_ends(&mut self, is_read: bool) -> u64 {
        let was_read = self.is_waking != 0;
        self.is_waking = 0;
        if is_read
            && was_read
            && let Some(cycles) = self.now[SYSTEM].since(&self.waking)
        {
            return cycles;
        }
        self.discarded += 1;
        0
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn sample(count: u64, enabled_ns: u64, running_ns: u64) -> Sample {
        Sample { count, enabled_ns, running_ns }
    }

    #[test]
    fn a_counter_that_stood_still_says_nothing() {
        let earlier = sample(1_000, 500, 400);
        assert_eq!(sample(1_700, 900, 800).since(&earlier), Some(700));
        assert_eq!(sample(1_700, 900, 799).since(&earlier), None, "multiplexed");
        assert_eq!(sample(1_000, 900, 400).since(&earlier), None, "stopped");
        assert_eq!(sample(999, 900, 800).since(&earlier), None, "backwards");
    }

    #[test]
    fn all_three_may_wrap() {
        let earlier = sample(u64::MAX - 9, u64::MAX - 4, u64::MAX);
        assert_eq!(sample(20, 5, 9).since(&earlier), Some(30));
    }

    #[test]
    fn a_run_whose_begin_was_not_read_is_discarded() {
        let mut meter = Meter { now: [sample(5, 1, 1), sample(7, 1, 1)], ..Meter::default() };
        let mut task = Task::default();
        meter.turn(Some(&mut task), true);
        assert_eq!((task.cycles_user, task.cycles_discarded, meter.discarded), (0, 1, 1));
        meter.now = [sample(6, 2, 2), sample(9, 2, 2)];
        meter.turn(Some(&mut task), true);
        assert_eq!((task.cycles_user, task.cycles_system), (1, 2));
        meter.turn(Some(&mut task), false);
        meter.turn(Some(&mut task), true);
        assert_eq!(task.cycles_discarded, 3, "an unread end spoils this run and the next one");
        assert_eq!(task.sequence % 2, 0);
    }

    #[test]
    fn a_wakeup_costs_what_the_kernel_spent_in_it() {
        let mut meter = Meter { now: [sample(0, 9, 0), sample(100, 9, 9)], ..Meter::default() };
        meter.wakeup_begins(true);
        meter.now[SYSTEM] = sample(350, 12, 12);
        assert_eq!(meter.wakeup_ends(true), 250);
        assert_eq!((meter.wakeup_ends(true), meter.discarded), (0, 1), "one end for each begin");
        meter.wakeup_begins(false);
        assert_eq!((meter.wakeup_ends(true), meter.discarded), (0, 2));
    }

    /// A stretch of time on the CPU.
    #[derive(Clone, Debug)]
    struct Stretch {
        /// Which of three tasks; 0 is not observed.
        who: usize,
        cycles: [u64; 2],
        ns: u64,
        /// How long the counters stood still.
        lost_ns: [u64; 2],
        /// The readings at its end fail.
        unread: bool,
    }

    fn stretch() -> impl Strategy<Value = Stretch> {
        let lost = || prop_oneof![4 => Just(0_u64), 1 => 1_u64..50];
        let cycles = || 0_u64..1 << 40;
        (0_usize..3, cycles(), cycles(), 50_u64..1 << 40, lost(), lost(), prop::bool::weighted(0.1))
            .prop_map(|(who, user, system, ns, a, b, unread)| Stretch {
                who,
                cycles: [user, system],
                ns,
                lost_ns: [a, b],
                unread,
            })
    }

    proptest! {
        /// Whatever was lost: a task has exactly the cycles of the runs that were read whole, and one discarded run
        /// for each of the others.
        #[test]
        fn cycles_are_exact_or_discarded(
            runs in prop::collection::vec(stretch(), 1..40),
            start in any::<[u64; 6]>(),
        ) {
            let mut hardware = [
                sample(start[0], start[1], start[2]),
                sample(start[3], start[4], start[5]),
            ];
            let mut meter = Meter { now: hardware, ..Meter::default() };
            meter.turn(None, true);
            let mut tasks = [Task::default(); 3];
            let mut truth = [[0_u64; 3]; 3];
            let mut begin_read = true;
            for run in &runs {
                for (counter, sample) in hardware.iter_mut().enumerate() {
                    sample.count = sample.count.wrapping_add(run.cycles[counter]);
                    sample.enabled_ns = sample.enabled_ns.wrapping_add(run.ns);
                    sample.running_ns = sample.running_ns.wrapping_add(run.ns - run.lost_ns[counter]);
                }
                meter.now = if run.unread { [Sample::default(); 2] } else { hardware };
                let owner = if run.who == 0 { None } else { Some(&mut tasks[run.who]) };
                meter.turn(owner, !run.unread);
                let whole = begin_read && !run.unread && run.lost_ns == [0, 0];
                let books = &mut truth[run.who];
                if whole {
                    books[0] += run.cycles[USER];
                    books[1] += run.cycles[SYSTEM];
                } else {
                    books[2] += 1;
                }
                begin_read = !run.unread;
            }
            let booked: Vec<[u64; 3]> = tasks[1..]
                .iter()
                .map(|task| [task.cycles_user, task.cycles_system, task.cycles_discarded])
                .collect();
            prop_assert_eq!(&booked[..], &truth[1..]);
            prop_assert_eq!(meter.discarded, truth[1][2] + truth[2][2]);
        }
    }
}
