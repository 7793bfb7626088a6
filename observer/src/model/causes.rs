//! Why a report differs from what was measured: parts that add up to the difference exactly.
//!
//! The sums are in `i128`, where no sum of 64-bit figures can overflow.

use super::report::{Header, TaskFigures};

/// How the kernel tells user from system time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One sample per tick; the ratio of the samples is scaled to the run time (`cputime_adjust`,
    /// kernel/sched/cputime.c).
    Ticks(u64),
    /// Each crossing is timed, but up to a tick of either side may be pending (`vtime_account_system`,
    /// kernel/sched/cputime.c).
    Vtime(u64),
    /// Each crossing is timed and booked.
    Native,
}

impl Source {
    /// The source behind the figures of a session.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        match header.accounting.as_str() {
            "native" => Self::Native,
            "vtime active" => Self::Vtime(header.tick_ns.max(1)),
            // Dormant vtime counts ticks.
            _ => Self::Ticks(header.tick_ns.max(1)),
        }
    }
}

/// Reported minus measured run time, by cause: their sum is [`Causes::total_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What skipped clock updates added to the bill, less what they took from it; `None` where no hook sees them.
    pub skip_ns: Option<i128>,
    /// The same for ordinary switches; for all switches where skips are not told apart.
    pub path_ns: i128,
    /// Interrupts and steal that the kernel left out of the bill: never above zero.
    pub left_out_ns: i128,
    /// What none of these explains.
    pub residual_ns: i128,
}

impl Parts {
    /// All of them together.
    #[must_use]
    pub fn sum_ns(&self) -> i128 {
        self.skip_ns.unwrap_or(0) + self.path_ns + self.left_out_ns + self.residual_ns
    }
}

/// Reported minus measured user time, by where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The sum of the two parts.
    pub delta_ns: i128,
    /// The user share of the run time's difference.
    pub total_part_ns: i128,
    /// What splitting the run time into user and system adds.
    pub split_part_ns: i128,
}

/// The causes of one task's (or one group's) differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Causes {
    /// Reported minus measured run time.
    pub total_ns: i128,
    /// Its causes; `None` where the run queues' clocks were not read.
    pub parts: Option<Parts>,
    /// Where the difference of the user time comes from; `None` where user time was not measured.
    pub user: Option<User>,
    /// Ticks that the split rests on; `None` where it does not rest on ticks.
    pub ticks: Option<u64>,
    /// The resolution of the split: what one tick is worth after the kernel's scaling; without a tick, the length
    /// of one.
    pub quantum_ns: u64,
    /// True where the measured user time is only a bound: see [`is_bound`].
    pub user_is_bound: bool,
    /// One standard deviation of as many samples as there were ticks, each of which is user with the measured
    /// probability: how far a split is off by chance. Zero where it does not rest on ticks.
    pub scatter_ns: u64,
}

/// How far the split is off, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitIs {
    /// By no more than its source can resolve: nothing is wrong.
    WithinResolution,
    /// By more, but by no more than chance makes of so few samples in 19 of 20 cases (two standard deviations).
    WithinScatter,
    /// By more than that.
    BeyondBoth,
}

impl SplitIs {
    /// The words for it on the screen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WithinResolution => "within resolution",
            Self::WithinScatter => "within scatter",
            Self::BeyondBoth => "beyond both",
        }
    }
}

impl Causes {
    /// The causes of `task`'s differences. A sum of tasks ([`super::group::sum`]) has them as well.
    #[must_use]
    pub fn of(task: &TaskFigures, source: Source) -> Self {
        let total_ns = i128::from(task.delta_runtime_ns);
        let (ticks, quantum_ns) = resolution(task, source);
        let scatter_ns = ticks.map_or(0, |ticks| scatter_ns(task, ticks));
        Self {
            total_ns,
            parts: parts(task),
            user: user(task),
            ticks,
            quantum_ns,
            user_is_bound: is_bound(task),
            scatter_ns,
        }
    }

    /// How far the split is off; `None` where it was not measured, or not well enough to tell.
    #[must_use]
    pub fn split_is(&self) -> Option<SplitIs> {
        let user = self.user.filter(|_| !self.user_is_bound)?;
        let size_ns = user.split_part_ns.unsigned_abs();
        Some(if size_ns <= u128::from(self.quantum_ns) {
            SplitIs::WithinResolution
        } else if size_ns <= 2 * u128::from(self.scatter_ns) {
            SplitIs::WithinScatter
        } else {
            SplitIs::BeyondBoth
        })
    }
}

/// True where the borders with the kernel, at their calibrated cost, took all of the user time and would have taken
/// more: then nobody knows the split, and the kernel's cannot be called wrong. Less than 2 % of the user time is
/// left aside, as a sum may have a member of a microsecond.
#[must_use]
pub fn is_bound(task: &TaskFigures) -> bool {
    let (Some(cut_ns), Some(user_ns)) = (task.crossing_cut_ns, task.user_ns) else { return false };
    cut_ns > user_ns / 50
}

fn parts(task: &TaskFigures) -> Option<Parts> {
    let skip_ns = task.skip_in_ns.zip(task.skip_out_ns);
    let skip_ns = skip_ns.map(|(to, away)| i128::from(to) - i128::from(away));
    let path_ns = i128::from(task.path_in_ns?) - i128::from(task.path_out_ns?);
    let left_out_ns = -i128::from(task.left_out_ns?);
    let residual_ns =
        i128::from(task.delta_runtime_ns) - skip_ns.unwrap_or(0) - path_ns - left_out_ns;
    Some(Parts { skip_ns, path_ns, left_out_ns, residual_ns })
}

fn user(task: &TaskFigures) -> Option<User> {
    let delta_ns = i128::from(task.delta_user_ns?);
    let total_part_ns = i128::from(task.delta_user_total_ns?);
    Some(User { delta_ns, total_part_ns, split_part_ns: delta_ns - total_part_ns })
}

/// Ticks and quantum.
fn resolution(task: &TaskFigures, source: Source) -> (Option<u64>, u64) {
    let tick_ns = match source {
        Source::Native => return (None, 1),
        Source::Vtime(tick_ns) => return (None, tick_ns),
        Source::Ticks(tick_ns) => tick_ns,
    };
    let raw_ns = u128::from(task.raw_utime_ns) + u128::from(task.raw_stime_ns);
    let ticks = u64::try_from(raw_ns / u128::from(tick_ns)).unwrap_or(u64::MAX);
    if ticks == 0 {
        return (Some(0), tick_ns);
    }
    let scaled_ns = u128::from(task.reported_runtime_ns) * u128::from(tick_ns) / raw_ns;
    (Some(ticks), u64::try_from(scaled_ns).unwrap_or(u64::MAX).max(1))
}

fn scatter_ns(task: &TaskFigures, ticks: u64) -> u64 {
    let Some(user_ns) = task.user_ns.filter(|_| task.oncpu_ns != 0 && ticks != 0) else { return 0 };
    let share = (user_ns as f64 / task.oncpu_ns as f64).min(1.0);
    // A conversion from f64 saturates.
    (task.reported_runtime_ns as f64 * (share * (1.0 - share) / ticks as f64).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use observer_common::{
        bill::Bill,
        task::{Task, flag},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Account, Crossings, account::Able};

    const MS: u64 = 1_000_000;
    const TICK: Source = Source::Ticks(4 * MS);

    /// A task of 50 ms whose split is off by `split_ns`; `ticks` ticks of 4 ms were seen.
    fn split(split_ns: i64, ticks: u64) -> TaskFigures {
        TaskFigures {
            oncpu_ns: 50 * MS,
            user_ns: Some(25 * MS),
            reported_runtime_ns: 50 * MS,
            raw_utime_ns: ticks * 4 * MS,
            delta_user_ns: Some(split_ns),
            delta_user_total_ns: Some(0),
            ..TaskFigures::default()
        }
    }

    #[test]
    fn the_quantum_is_scaled_as_the_kernel_scales() {
        // 10 ticks of 4 ms stand for 50 ms: one is worth 5 ms.
        let causes = Causes::of(&split(0, 10), TICK);
        assert_eq!((causes.ticks, causes.quantum_ns), (Some(10), 5 * MS));
        // Ten coins have a standard deviation of 1.58: 7.9 ms.
        assert_eq!(causes.scatter_ns / 100_000, 79);
        // One tick hit a task of 0.2 ms: it cannot be worth more than the task.
        let short = TaskFigures { reported_runtime_ns: 200_000, ..split(0, 1) };
        assert_eq!(Causes::of(&short, TICK).quantum_ns, 200_000);
    }

    #[test]
    fn without_a_tick_the_quantum_is_a_tick() {
        let causes = Causes::of(&split(0, 0), TICK);
        assert_eq!((causes.ticks, causes.quantum_ns, causes.scatter_ns), (Some(0), 4 * MS, 0));
    }

    #[test]
    fn a07_below_the_resolution_is_within_resolution() {
        let is = |split_ns, ticks, source| Causes::of(&split(split_ns, ticks), source).split_is();
        assert_eq!(is(-4_000_000, 0, TICK), Some(SplitIs::WithinResolution));
        assert_eq!(is(4_000_001, 0, TICK), Some(SplitIs::BeyondBoth));
        assert_eq!(is(-5_000_000, 10, TICK), Some(SplitIs::WithinResolution));
        assert_eq!(is(-15_000_000, 10, TICK), Some(SplitIs::WithinScatter));
        assert_eq!(is(16_000_000, 10, TICK), Some(SplitIs::BeyondBoth));
        assert_eq!(is(4_000_000, 10, Source::Vtime(4 * MS)), Some(SplitIs::WithinResolution));
        assert_eq!(is(4_000_001, 10, Source::Vtime(4 * MS)), Some(SplitIs::BeyondBoth));
        assert_eq!(is(2, 10, Source::Native), Some(SplitIs::BeyondBoth));
        assert_eq!(Causes::of(&TaskFigures::default(), TICK).split_is(), None);
    }

    #[test]
    fn a_user_time_that_is_only_a_bound_judges_nobody() {
        let task = |cut_ns, user_ns| TaskFigures {
            crossing_cut_ns: Some(cut_ns),
            user_ns: Some(user_ns),
            ..split(20_000_000, 10)
        };
        assert_eq!(Causes::of(&task(1, 0), TICK).split_is(), None);
        assert_eq!(Causes::of(&task(MS, 25 * MS), TICK).split_is(), None);
        assert!(Causes::of(&task(1_000, 25 * MS), TICK).split_is().is_some());
        assert!(Causes::of(&task(0, 0), TICK).split_is().is_some());
    }

    #[test]
    fn a_task_that_is_all_user_does_not_scatter() {
        let task = TaskFigures { user_ns: Some(50 * MS), ..split(0, 10) };
        assert_eq!(Causes::of(&task, TICK).scatter_ns, 0);
    }

    #[test]
    fn the_header_names_the_source() {
        let header = |accounting: &str| Header {
            accounting: accounting.to_owned(),
            tick_ns: 4 * MS,
            ..Header::default()
        };
        assert_eq!(Source::of(&header("tick")), TICK);
        assert_eq!(Source::of(&header("vtime dormant")), TICK);
        assert_eq!(Source::of(&header("vtime active")), Source::Vtime(4 * MS));
        assert_eq!(Source::of(&header("native")), Source::Native);
    }

    #[test]
    fn what_was_not_measured_has_no_causes() {
        let task =
            TaskFigures { skip_in_ns: Some(1), delta_runtime_ns: 5, ..TaskFigures::default() };
        let causes = Causes::of(&task, TICK);
        assert_eq!((causes.total_ns, causes.parts, causes.user), (5, None, None));
    }

    proptest! {
        #[test]
        fn the_parts_add_up_whatever_the_figures(
            skips in any::<[u64; 2]>(), paths in any::<[u64; 2]>(), left_out_ns: u64,
            delta_runtime_ns: i64, delta_user_ns: i64, total_part_ns: i64,
        ) {
            let task = TaskFigures {
                skip_in_ns: Some(skips[0]),
                skip_out_ns: Some(skips[1]),
                path_in_ns: Some(paths[0]),
                path_out_ns: Some(paths[1]),
                left_out_ns: Some(left_out_ns),
                delta_runtime_ns,
                delta_user_ns: Some(delta_user_ns),
                delta_user_total_ns: Some(total_part_ns),
                ..TaskFigures::default()
            };
            let causes = Causes::of(&task, TICK);
            prop_assert_eq!(causes.parts.unwrap().sum_ns(), i128::from(delta_runtime_ns));
            let user = causes.user.unwrap();
            prop_assert_eq!(user.total_part_ns + user.split_part_ns, i128::from(delta_user_ns));
        }

        /// The causes of an account's figures say what the exported fields say.
        #[test]
        fn the_causes_of_an_account_are_its_exported_figures(
            modes in any::<[u32; 5]>(), runtime_ns: u32, utime_ticks in 0_u64..50, stime_ticks in 0_u64..50,
            shifts in any::<[u32; 4]>(), left_out_ns: u32,
        ) {
            let task = Task {
                flags: flag::BASED,
                mode_ns: modes.map(u64::from),
                bill: Bill {
                    runtime_ns: runtime_ns.into(),
                    utime_ns: utime_ticks * 4 * MS,
                    stime_ns: stime_ticks * 4 * MS,
                    ..Bill::default()
                },
                skip_in_ns: shifts[0].into(),
                skip_out_ns: shifts[1].into(),
                path_in_ns: shifts[2].into(),
                path_out_ns: shifts[3].into(),
                left_out_ns: left_out_ns.into(),
                ..Task::default()
            };
            let figures = Account::new(1, task).figures(&Crossings::default(), Able::ALL, 0);
            let causes = Causes::of(&figures, TICK);
            prop_assert_eq!(causes.parts.unwrap().residual_ns, i128::from(figures.residual_ns.unwrap()));
            let user = causes.user.unwrap();
            prop_assert_eq!(user.split_part_ns, i128::from(figures.delta_user_split_ns.unwrap()));
            prop_assert_eq!(causes.ticks, Some(utime_ticks + stime_ticks));
        }
    }
}
