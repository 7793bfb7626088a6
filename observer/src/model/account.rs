//! One task's account over a session, and the figures that follow from it.

use observer_common::{
    cputime::{Cputime, Reporter},
    task::{Task, crossing, mode, state},
};

use super::report::TaskFigures;

/// What one crossing of each kind costs on this machine, with these hooks; see [`crate::session::calibration`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossings {
    /// By kind, in picoseconds (a syscall's border costs tens of nanoseconds, and there are millions of
    /// them); `None` where it could not be calibrated.
    pub cost_ps: [Option<u64>; crossing::COUNT],
    /// How far the batches of the calibration lay apart (half of the range between their quartiles), in picoseconds.
    pub spread_ps: [Option<u64>; crossing::COUNT],
}

/// Which figures the active hooks can give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Able {
    /// `sys_enter` and `sys_exit`: the split into user and system.
    pub split: bool,
    /// The run queue's clocks: the kernel's bill at each switch.
    pub bill: bool,
    /// A hook that sees requests, or `sched_info`: which switches skipped the clock update. Without, all that switches
    /// moved stands under their path.
    pub skip: bool,
    /// `sched_waking`: wakeups and who made them.
    pub waking: bool,
    /// `sched_wakeup`: the begin of a wait.
    pub wait: bool,
    /// Interrupt hooks.
    pub irq: bool,
    /// `page_fault_user`: without it, no time is unclassified, since a fault counts as user time.
    pub fault: bool,
    /// A PMU: cycles.
    pub cycles: bool,
}

impl Able {
    /// What skips moved stands apart from the path.
    #[must_use]
    pub fn tells_skips(&self) -> bool {
        self.bill && self.skip
    }
}

#[cfg(test)]
impl Able {
    /// Every hook works.
    pub const ALL: Self = Self {
        split: true,
        bill: true,
        skip: true,
        waking: true,
        wait: true,
        irq: true,
        fault: true,
        cycles: true,
    };
}

/// A task over the session.
#[derive(Clone, Debug)]
pub struct Account {
    /// Unique in a session: the slot, and the low half of the opening time.
    pub id: u64,
    /// The books at the last reading.
    pub task: Task,
    reporter: Reporter,
    begin: Option<Cputime>,
    reported: Cputime,
}

impl Account {
    /// Opens the account with its first reading.
    #[must_use]
    pub fn new(id: u64, task: Task) -> Self {
        let mut account = Self {
            id,
            task,
            reporter: Reporter::default(),
            begin: None,
            reported: Cputime::default(),
        };
        account.update(task);
        account
    }

    /// Takes a later reading.
    pub fn update(&mut self, task: Task) {
        self.task = task;
        if !task.has(observer_common::task::flag::BASED) {
            // The opening bill may still change; see lifecycle::found.
            return;
        }
        let begin = *self.begin.get_or_insert_with(|| self.reporter.report(&task.bill_begin).0);
        let (now, _) = self.reporter.report(&task.bill);
        self.reported = Cputime {
            user_ns: now.user_ns.saturating_sub(begin.user_ns),
            system_ns: now.system_ns.saturating_sub(begin.system_ns),
        };
    }

    /// The figures, as of a reading at `read_ns`: what is open then counts up to then.
    #[must_use]
    pub fn figures(&self, crossings: &Crossings, able: Able, read_ns: u64) -> TaskFigures {
        let task = &self.task;
        let oncpu_ns = task.oncpu_ns();
        let split = Split::of(task, crossings);
        let runtime_ns = task.bill.runtime_ns.saturating_sub(task.bill_begin.runtime_ns);
        let delta_runtime_ns = difference(runtime_ns, oncpu_ns);
        let delta_user_ns = difference(self.reported.user_ns, split.user_ns);
        // Measured system includes interrupts: the kernel bills them too (but for `left_out_ns`), as system.
        let own_system_ns =
            oncpu_ns.saturating_sub(split.user_ns).saturating_sub(task.mode_ns[mode::UNCLASSIFIED]);
        let total_part_ns = share(delta_runtime_ns, split.user_ns, oncpu_ns);
        let shift_ns = difference(task.skip_in_ns, task.skip_out_ns)
            .saturating_add(difference(task.path_in_ns, task.path_out_ns));
        let explained_ns = shift_ns.saturating_sub(signed(task.left_out_ns));
        let on = |able: bool, value: u64| able.then_some(value);
        let is_live = task.state == state::LIVE;
        let open = |since_ns: u64| match since_ns {
            0 => 0,
            _ if !is_live => 0,
            _ => read_ns.saturating_sub(since_ns),
        };
        TaskFigures {
            account: self.id,
            tid: task.tid,
            tgid: task.tgid,
            parent_tgid: task.parent_tgid,
            start_ns: task.start_ns,
            comm: task.comm.iter().copied().take_while(|byte| *byte != 0).collect(),
            cgroup_id: Some(task.cgroup_id).filter(|id| *id != 0),
            state: if task.state == state::EXITED { "exited" } else { "running" },
            opened_ns: task.opened_ns,
            updated_ns: task.updated_ns,
            oncpu_ns,
            user_ns: on(able.split, split.user_ns),
            system_ns: on(able.split, split.system_ns),
            hardirq_ns: on(able.irq, task.mode_ns[mode::HARDIRQ]),
            softirq_ns: on(able.irq, task.mode_ns[mode::SOFTIRQ]),
            unclassified_ns: on(able.split && able.fault, task.mode_ns[mode::UNCLASSIFIED]),
            crossings: on(able.split, task.crossings.iter().sum()),
            crossing_ns: split.crossing_ns.filter(|_| able.split),
            crossing_cut_ns: split.cut_ns.filter(|_| able.split),
            reported_user_ns: self.reported.user_ns,
            reported_system_ns: self.reported.system_ns,
            reported_runtime_ns: runtime_ns,
            raw_utime_ns: task.bill.utime_ns.saturating_sub(task.bill_begin.utime_ns),
            raw_stime_ns: task.bill.stime_ns.saturating_sub(task.bill_begin.stime_ns),
            delta_user_ns: able.split.then_some(delta_user_ns),
            delta_system_ns: able
                .split
                .then_some(difference(self.reported.system_ns, own_system_ns)),
            delta_runtime_ns,
            delta_user_split_ns: able.split.then_some(delta_user_ns.saturating_sub(total_part_ns)),
            delta_user_total_ns: able.split.then_some(total_part_ns),
            skip_in: on(able.tells_skips(), task.skip_in),
            skip_in_ns: on(able.tells_skips(), task.skip_in_ns),
            skip_out: on(able.tells_skips(), task.skip_out),
            skip_out_ns: on(able.tells_skips(), task.skip_out_ns),
            path_in_ns: on(able.bill, task.path_in_ns),
            path_out_ns: on(able.bill, task.path_out_ns),
            left_out_ns: on(able.bill, task.left_out_ns),
            residual_ns: able.bill.then_some(delta_runtime_ns.saturating_sub(explained_ns)),
            wait_ns: on(able.wait, task.wait_ns + open(task.wait_since_ns)),
            waits: on(able.wait, task.waits),
            wakeups: on(able.waking, task.wakeups),
            wakes_made: on(able.waking, task.wakes_made),
            wakeup_cost_ns: on(able.waking && able.wait, task.wakeup_cost_ns),
            switches_voluntary: task.switches_voluntary,
            switches_involuntary: task.switches_involuntary,
            migrations: task.migrations,
            ptrace_stops: task.ptrace_stops,
            ptrace_stopped_ns: task.stopped_ns + open(task.stopped_since_ns),
            job_stops: task.job_stops,
            job_stopped_ns: task.job_stopped_ns + open(task.job_stopped_since_ns),
            tracer_tid: Some(task.tracer_tid).filter(|tid| *tid != 0),
            former_tid: Some(task.former_tid).filter(|tid| *tid != 0),
            cycles_user: on(able.cycles, task.cycles_user),
            cycles_system: on(able.cycles, task.cycles_system),
            cycles_discarded: on(able.cycles, task.cycles_discarded),
        }
    }
}

/// User and system after the crossings are booked.
struct Split {
    user_ns: u64,
    system_ns: u64,
    crossing_ns: Option<u64>,
    /// What the crossings would have cost above the user time that there was.
    cut_ns: Option<u64>,
}

impl Split {
    /// Count times cost moves from user to system; user never goes below zero by it.
    fn of(task: &Task, crossings: &Crossings) -> Self {
        let user_ns = task.mode_ns[mode::USER];
        let system_ns = task.mode_ns[mode::SYSTEM];
        let mut wanted_ps = 0_u128;
        let mut known = false;
        for (count, cost_ps) in task.crossings.iter().zip(crossings.cost_ps) {
            if let Some(cost_ps) = cost_ps {
                known = true;
                wanted_ps += u128::from(*count) * u128::from(cost_ps);
            }
        }
        if !known {
            return Self { user_ns, system_ns, crossing_ns: None, cut_ns: None };
        }
        let wanted_ns = u64::try_from(wanted_ps / 1000).unwrap_or(u64::MAX);
        let moved_ns = wanted_ns.min(user_ns);
        Self {
            user_ns: user_ns - moved_ns,
            system_ns: system_ns.saturating_add(moved_ns),
            crossing_ns: Some(moved_ns),
            cut_ns: Some(wanted_ns - moved_ns),
        }
    }
}

/// `a - b`, signed; saturates.
fn difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `whole * part / of`; zero where there is nothing to share.
fn share(whole: i64, part: u64, of: u64) -> i64 {
    if of == 0 {
        return 0;
    }
    let shared = i128::from(whole) * i128::from(part) / i128::from(of);
    i64::try_from(shared).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use observer_common::{bill::Bill, task::flag};

    use super::*;

    fn task() -> Task {
        Task {
            flags: flag::BASED,
            mode_ns: [6_000, 3_000, 500, 500, 0],
            crossings: [10, 0, 0, 0, 0],
            bill: Bill { runtime_ns: 12_000, utime_ns: 4_000, ..Bill::default() },
            skip_in_ns: 2_500,
            path_out_ns: 400,
            left_out_ns: 50,
            ..Task::default()
        }
    }

    #[test]
    fn the_causes_add_up() {
        let crossings =
            Crossings { cost_ps: [Some(50_000), None, None, None, None], ..Crossings::default() };
        let figures = Account::new(1, task()).figures(&crossings, Able::ALL, 0);
        assert_eq!(figures.oncpu_ns, 10_000);
        assert_eq!((figures.user_ns, figures.system_ns), (Some(5_500), Some(3_500)));
        assert_eq!(figures.crossing_ns, Some(500));
        assert_eq!(figures.delta_runtime_ns, 2_000);
        // No system tick: everything is reported as user.
        assert_eq!((figures.reported_user_ns, figures.reported_system_ns), (12_000, 0));
        assert_eq!(figures.delta_user_ns, Some(6_500));
        assert_eq!(figures.delta_system_ns, Some(-4_500));
        assert_eq!(figures.delta_user_total_ns, Some(1_100));
        assert_eq!(figures.delta_user_split_ns, Some(5_400));
        assert_eq!(figures.residual_ns, Some(2_000 - (2_500 - 400) + 50));
    }

    #[test]
    fn user_time_never_goes_below_zero_by_crossings() {
        let crossings = Crossings {
            cost_ps: [Some(10_000_000), None, None, None, None],
            ..Crossings::default()
        };
        let figures = Account::new(1, task()).figures(&crossings, Able::ALL, 0);
        assert_eq!((figures.user_ns, figures.crossing_ns), (Some(0), Some(6_000)));
        assert_eq!(figures.crossing_cut_ns, Some(94_000), "counted, not hidden");
    }

    #[test]
    fn what_is_open_counts_up_to_the_reading() {
        let waiting = Task { state: state::LIVE, wait_ns: 5, wait_since_ns: 1_000, ..task() };
        let figures = Account::new(1, waiting).figures(&Crossings::default(), Able::ALL, 1_300);
        assert_eq!(figures.wait_ns, Some(305));
        let stopped = Task { state: state::LIVE, stopped_since_ns: 1_000, ..task() };
        let figures = Account::new(1, stopped).figures(&Crossings::default(), Able::ALL, 1_300);
        assert_eq!((figures.ptrace_stopped_ns, figures.job_stopped_ns), (300, 0));
        let gone = Task { state: state::EXITED, ..stopped };
        let figures = Account::new(1, gone).figures(&Crossings::default(), Able::ALL, 1_300);
        assert_eq!(figures.ptrace_stopped_ns, 0);
    }

    #[test]
    fn what_no_hook_measures_is_not_zero_but_nothing() {
        let figures = Account::new(1, task()).figures(&Crossings::default(), Able::default(), 0);
        assert_eq!(figures.user_ns, None);
        assert_eq!(figures.skip_in_ns, None);
        assert_eq!(figures.residual_ns, None);
        assert_eq!((figures.wakeups, figures.wakes_made), (None, None));
        assert_eq!(figures.oncpu_ns, 10_000);
    }

    #[test]
    fn where_no_hook_sees_skips_all_that_switches_moved_is_their_path() {
        let unseen = Task { skip_in_ns: 0, path_in_ns: 2_500, ..task() };
        let able = Able { skip: false, ..Able::ALL };
        let figures = Account::new(1, unseen).figures(&Crossings::default(), able, 0);
        assert_eq!((figures.skip_in, figures.skip_out_ns), (None, None));
        assert_eq!(figures.path_in_ns, Some(2_500));
        assert_eq!(figures.residual_ns, Some(2_000 - (2_500 - 400) + 50), "it is explained");
    }
}
