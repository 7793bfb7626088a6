//! The tasks that have ended: those with most time one by one, the others as sums.
//!
//! An account is final when it comes here, so no reading looks at it again. It is *recent* until the next reading has
//! shown it. Then the [`KEPT`] with most time keep their figures, and the others are added up by process, name and
//! cgroup, so that the groups of each kind stay exact. Of processes that are over, those with least time lose their id.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet, btree_map::Entry},
    mem,
};

use super::{
    group::{Leaders, Process, sum},
    report::TaskFigures,
};

/// Ended tasks that are kept one by one, and processes that are over: at least so many, and at most twice as many.
pub const KEPT: usize = 2_048;

/// Several ended tasks as one.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// How many.
    pub members: u64,
    /// Their process; `None` for those of small processes that are over.
    pub process: Option<Process>,
    /// Their sums, with the name and the cgroup that they share, and the ids of their process's leader if it is among
    /// them.
    pub figures: TaskFigures,
    /// How far reported and measured run time of one of them lay apart at most.
    pub apart_ns: u64,
    /// The same of user and system time, where they are measured.
    pub parts_apart_ns: Option<u64>,
}

impl Folded {
    fn of(task: &TaskFigures, process: Process) -> Self {
        let size = |delta_ns: Option<i64>| delta_ns.map(i64::unsigned_abs);
        let is_leader = task.tid == task.tgid;
        Self {
            members: 1,
            process: Some(process),
            figures: TaskFigures {
                tid: if is_leader { task.tid } else { 0 },
                tgid: task.tgid,
                parent_tgid: task.parent_tgid,
                start_ns: task.start_ns,
                comm: task.comm.clone(),
                cgroup_id: task.cgroup_id,
                state: task.state,
                ..sum(&[task])
            },
            apart_ns: task.delta_runtime_ns.unsigned_abs(),
            parts_apart_ns: size(task.delta_user_ns).max(size(task.delta_system_ns)),
        }
    }

    /// Adds what has the same process, name and cgroup.
    fn add(&mut self, other: &Self) {
        let (mine, others) = (&self.figures, &other.figures);
        let leader = if others.tid != 0 { others } else { mine };
        self.figures = TaskFigures {
            tid: leader.tid,
            tgid: leader.tgid,
            parent_tgid: leader.parent_tgid,
            start_ns: leader.start_ns,
            comm: mine.comm.clone(),
            cgroup_id: mine.cgroup_id,
            state: mine.state,
            ..sum(&[mine, others])
        };
        self.members += other.members;
        self.apart_ns = self.apart_ns.max(other.apart_ns);
        self.parts_apart_ns = self.parts_apart_ns.max(other.parts_apart_ns);
    }
}

/// What the tasks of a sum have in common: process, name and cgroup.
type Kin = (Option<Process>, Vec<u8>, Option<u64>);

/// The tasks that have ended.
#[derive(Default)]
pub struct Ended {
    hands_out: bool,
    limit: usize,
    /// The last ones, in their order.
    recent: Vec<TaskFigures>,
    /// So many of them were in a reading.
    shown: usize,
    /// So many were in none, and are no longer recent.
    unshown: u64,
    kept: Vec<TaskFigures>,
    folded: BTreeMap<Kin, Folded>,
    leaders: Leaders,
    evicted: Vec<TaskFigures>,
}

impl Ended {
    /// Nobody has ended yet. `hands_out`: whoever is no longer kept one by one goes to [`Ended::take_evicted`].
    #[must_use]
    pub fn new(hands_out: bool) -> Self {
        Self::with_limit(hands_out, KEPT)
    }

    fn with_limit(hands_out: bool, limit: usize) -> Self {
        Self { hands_out, limit, ..Self::default() }
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        *self = Self::with_limit(self.hands_out, self.limit);
    }

    /// Takes in the final figures of a task.
    pub fn add(&mut self, task: TaskFigures) {
        self.see(task.tid, task.tgid, task.start_ns);
        self.recent.push(task);
    }

    /// Notes a task: the start of its leader tells a process from another one with the same id.
    pub fn see(&mut self, tid: u32, tgid: u32, start_ns: u64) {
        if tid == tgid {
            self.leaders.add(tgid, start_ns);
        }
    }

    /// True when there are so many recent ones that memory must not wait for the next reading.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.recent.len() > self.limit.saturating_mul(2)
    }

    /// Nobody is recent any more, if there were so many. All accounts have just been looked at, so whoever leads a
    /// process is known; `alive` are the processes that may get more members.
    pub fn relieve(&mut self, alive: impl FnOnce() -> HashSet<u32>) {
        if self.is_crowded() {
            self.retire(self.recent.len(), alive);
        }
    }

    /// The same, for a new reading: what the one before has shown is no longer recent.
    pub fn begin_reading(&mut self, alive: impl FnOnce() -> HashSet<u32>) {
        self.retire(self.shown, alive);
    }

    /// The reading shows those that are recent now.
    pub fn show(&mut self) {
        self.shown = self.recent.len();
    }

    /// Those that have ended since the reading before.
    #[must_use]
    pub fn recent(&self) -> &[TaskFigures] {
        &self.recent
    }

    /// Everybody who still has figures of its own.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskFigures> {
        self.recent.iter().chain(&self.kept)
    }

    /// The others.
    pub fn folded(&self) -> impl Iterator<Item = &Folded> {
        self.folded.values()
    }

    /// Those that have lost their figures since the last call, each once.
    pub fn take_evicted(&mut self) -> Vec<TaskFigures> {
        mem::take(&mut self.evicted)
    }

    /// How many have ended since the last call and were in no reading.
    pub fn take_unshown(&mut self) -> u64 {
        mem::take(&mut self.unshown)
    }

    /// The first `count` are no longer recent.
    fn retire(&mut self, count: usize, alive: impl FnOnce() -> HashSet<u32>) {
        self.unshown += count.saturating_sub(self.shown) as u64;
        self.shown = self.shown.saturating_sub(count);
        self.kept.extend(self.recent.drain(..count));
        let many = self.limit.saturating_mul(2);
        if self.kept.len() <= many {
            return;
        }
        // None of its differences is larger than this.
        self.kept.select_nth_unstable_by_key(self.limit, |task| Reverse(size(task)));
        for task in self.kept.drain(self.limit..) {
            let process = self.leaders.process_of(&task);
            let kin = (Some(process), task.comm.clone(), task.cgroup_id);
            put(&mut self.folded, kin, Folded::of(&task, process));
            if self.hands_out {
                self.evicted.push(task);
            }
        }
        if self.folded.len() > many {
            self.fold_processes(alive());
        }
    }

    /// Takes their ids from those processes that are over, have nobody with figures of its own, and had least time.
    fn fold_processes(&mut self, alive: HashSet<u32>) {
        // By the start of its leader too: ids are used again, and each that is needed would keep all who ever had it.
        let of_kept = self.tasks().map(|task| self.leaders.process_of(task));
        let of_living = alive.into_iter().map(|tgid| self.leaders.latest(tgid));
        let needed: HashSet<Process> = of_kept.chain(of_living).collect();
        let mut sums: BTreeMap<Process, u64> = BTreeMap::new();
        for folded in self.folded.values() {
            if let Some(process) = folded.process.filter(|process| !needed.contains(process)) {
                *sums.entry(process).or_default() += size(&folded.figures);
            }
        }
        if sums.len() <= self.limit {
            return;
        }
        let mut sums: Vec<(Process, u64)> = sums.into_iter().collect();
        sums.select_nth_unstable_by_key(self.limit, |(_, ns)| Reverse(*ns));
        let small: HashSet<Process> =
            sums.drain(self.limit..).map(|(process, _)| process).collect();
        for process in &small {
            self.leaders.remove(*process);
        }
        for ((process, comm, cgroup_id), sum) in mem::take(&mut self.folded) {
            let process = process.filter(|process| !small.contains(process));
            put(&mut self.folded, (process, comm, cgroup_id), Folded { process, ..sum });
        }
    }
}

fn size(task: &TaskFigures) -> u64 {
    task.oncpu_ns.max(task.reported_runtime_ns)
}

fn put(folded: &mut BTreeMap<Kin, Folded>, kin: Kin, more: Folded) {
    match folded.entry(kin) {
        Entry::Occupied(entry) => entry.into_mut().add(&more),
        Entry::Vacant(entry) => {
            entry.insert(more);
        }
    }
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
