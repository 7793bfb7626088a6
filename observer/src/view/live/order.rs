//! Which tasks are shown, in which order, and what each was at the reading before.
//!
//! All of this happens when a reading comes or a key changes it, never while drawing.

use std::collections::{HashMap, HashSet};

use super::{
    figure,
    tasks::{self, Column},
};
use crate::model::{Folded, TaskFigures, report::escape};

/// No row.
const NONE: u32 = u32::MAX;

/// What a row is about, from one reading to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A task's account.
    Account(u64),
    /// A task whose account has no number: tid and start.
    Task(u32, u64),
    /// A process: its id and its start.
    Process(u32, u64),
}

/// Who a task is.
pub fn key(task: &TaskFigures) -> Key {
    match task.account {
        0 => Key::Task(task.tid, task.start_ns),
        account => Key::Account(account),
    }
}

/// What the user wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One row for each process, not for each thread.
    pub processes: bool,
    /// Children below their parents.
    pub tree: bool,
    /// Since the begin, not since the reading before.
    pub cumulative: bool,
    /// The column that is sorted by.
    pub sort: Column,
    /// In the other direction.
    pub reversed: bool,
    /// A part of the name, or an id; empty for all.
    pub filter: String,
}

/// One row that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    index: u32,
    /// Steps from the root of the tree.
    pub depth: u16,
}

/// One side: all threads, and the processes that they make up if these are wanted.
#[derive(Clone, Debug, Default)]
struct Side {
    threads: Vec<TaskFigures>,
    /// Ended threads that are known as sums only.
    folded: Vec<Folded>,
    groups: Vec<TaskFigures>,
    /// The group of each thread.
    group_of: Vec<u32>,
}

impl Side {
    fn rows(&self, processes: bool) -> &[TaskFigures] {
        if processes { &self.groups } else { &self.threads }
    }

    /// Sums the threads of each process. An id that was used again is another process: a thread belongs to the
    /// latest leader with its id that is not younger than itself.
    fn group(&mut self) {
        let folded = self.folded.iter().filter_map(|folded| Some((folded.process?, folded)));
        let mut leaders: HashMap<u32, Vec<u64>> = HashMap::new();
        for task in self.threads.iter().filter(|task| task.tid == task.tgid) {
            leaders.entry(task.tgid).or_default().push(task.start_ns);
        }
        for ((tgid, start_ns), _) in folded.clone() {
            leaders.entry(tgid).or_default().extend(start_ns);
        }
        let mut known: HashMap<(u32, u64), u32> = HashMap::new();
        let groups = &mut self.groups;
        groups.clear();
        let mut join = |task: &TaskFigures, start_ns: Option<u64>| {
            let starts = leaders.get(&task.tgid).map_or(&[][..], Vec::as_slice);
            let start_ns = start_ns.or_else(|| starts.iter().min().copied()).unwrap_or(0);
            let next = groups.len() as u32;
            let group = *known.entry((task.tgid, start_ns)).or_insert(next);
            if group == next {
                // Its threads change; the process stays the same.
                groups.push(TaskFigures { account: 0, tid: task.tgid, start_ns, ..task.clone() });
                return group;
            }
            let sum = &mut groups[group as usize];
            figure::add(sum, task);
            if task.tid == task.tgid {
                sum.comm.clone_from(&task.comm);
                sum.parent_tgid = task.parent_tgid;
            }
            group
        };
        self.group_of.clear();
        for task in &self.threads {
            let starts = leaders.get(&task.tgid).into_iter().flatten();
            let start_ns = starts.filter(|start| **start <= task.start_ns).max().copied();
            self.group_of.push(join(task, start_ns));
        }
        for ((_, start_ns), folded) in folded {
            join(&folded.figures, start_ns);
        }
    }
}

/// The rows of the task table.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    wanted: Wanted,
    now: Side,
    before: Side,
    /// For each row of `now` the one of `before`.
    then: Vec<u32>,
    /// The ended threads without a row are not to be in the sum.
    purges_folded: bool,
    purged: HashSet<Key>,
    order: Vec<Entry>,
    sum: TaskFigures,
    sum_before: TaskFigures,
    largest: i128,
    /// Kept for its memory.
    keys: Vec<(i128, u32)>,
}

impl Rows {
    /// Takes the next reading; those in `folded` are in the rows of their processes, and in the sum since the begin.
    pub fn take(&mut self, tasks: Vec<TaskFigures>, folded: Vec<Folded>) {
        self.before = std::mem::take(&mut self.now);
        (self.now.threads, self.now.folded) = (tasks, folded);
        self.rebuild();
    }

    /// What is wanted.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Wants something else.
    pub fn want(&mut self, change: impl FnOnce(&mut Wanted)) {
        let processes = self.wanted.processes;
        change(&mut self.wanted);
        if self.wanted.processes == processes { self.reorder() } else { self.rebuild() }
    }

    /// Takes the tasks that have ended out of the view, not out of the summary; says how many rows that were.
    pub fn purge(&mut self) -> usize {
        let is_over = |task: &&TaskFigures| task.state == "exited";
        self.purges_folded = true;
        let count = self.order.len();
        self.purged.extend(self.now.threads.iter().filter(is_over).map(key));
        if !self.wanted.processes {
            self.now.group();
        }
        let processes = self.now.groups.iter().filter(is_over);
        self.purged.extend(processes.map(|task| Key::Process(task.tgid, task.start_ns)));
        self.reorder();
        count - self.order.len()
    }

    /// Rows shown.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// All tasks that there are, and of them those that have ended.
    pub fn threads(&self) -> (usize, usize) {
        let exited = self.now.threads.iter().filter(|task| task.state == "exited").count();
        let folded = self.now.folded.iter().map(|folded| folded.members as usize).sum::<usize>();
        (self.now.threads.len() + folded, exited + folded)
    }

    /// A row: its place in the tree, what it was if only the change counts, and what it is.
    pub fn row(&self, row: usize) -> Option<(Entry, Option<&TaskFigures>, &TaskFigures)> {
        let entry = *self.order.get(row)?;
        let (then, now) = self.figures(entry.index)?;
        Some((entry, then, now))
    }

    fn figures(&self, index: u32) -> Option<(Option<&TaskFigures>, &TaskFigures)> {
        let now = self.now.rows(self.wanted.processes).get(index as usize)?;
        let then = if self.wanted.cumulative {
            None
        } else {
            let then = self.then.get(index as usize).copied().unwrap_or(NONE);
            self.before.rows(self.wanted.processes).get(then as usize)
        };
        Some((then, now))
    }

    /// Who a row is.
    pub fn key(&self, row: usize) -> Option<Key> {
        self.order.get(row).and_then(|entry| self.key_at(entry.index))
    }

    fn key_at(&self, index: u32) -> Option<Key> {
        let task = self.now.rows(self.wanted.processes).get(index as usize)?;
        Some(if self.wanted.processes { Key::Process(task.tgid, task.start_ns) } else { key(task) })
    }

    /// Where a task is now.
    pub fn find(&self, wanted: Key) -> Option<usize> {
        self.order.iter().position(|entry| self.key_at(entry.index) == Some(wanted))
    }

    /// The first row with this process id.
    pub fn find_process(&self, tgid: u32) -> Option<usize> {
        let rows = self.now.rows(self.wanted.processes);
        let of =
            |entry: &&Entry| rows.get(entry.index as usize).is_some_and(|task| task.tgid == tgid);
        // The leader, where it has a row.
        let leader = self.order.iter().find(|entry| {
            of(entry) && rows.get(entry.index as usize).is_some_and(|task| task.tid == tgid)
        });
        let entry = leader.or_else(|| self.order.iter().find(of))?;
        self.order.iter().position(|other| other == entry)
    }

    /// The threads that a row stands for.
    pub fn members(&self, row: usize) -> impl Iterator<Item = &TaskFigures> {
        let index = self.order.get(row).map_or(NONE, |entry| entry.index);
        let processes = self.wanted.processes;
        self.now
            .threads
            .iter()
            .enumerate()
            .filter(move |(thread, _)| {
                if processes {
                    self.now.group_of.get(*thread) == Some(&index)
                } else {
                    *thread == index as usize
                }
            })
            .map(|(_, task)| task)
    }

    /// The sum of all rows shown: what it was, and what it is.
    pub fn sum(&self) -> (Option<&TaskFigures>, &TaskFigures) {
        ((!self.wanted.cumulative).then_some(&self.sum_before), &self.sum)
    }

    /// The largest difference of a row shown, ns: a bar of full length.
    pub fn largest_delta_ns(&self) -> i128 {
        self.largest
    }

    fn rebuild(&mut self) {
        let processes = self.wanted.processes;
        if processes {
            self.now.group();
            self.before.group();
        }
        let who = |task: &TaskFigures| {
            if processes { Key::Process(task.tgid, task.start_ns) } else { key(task) }
        };
        let before: HashMap<Key, u32> = (0..)
            .zip(self.before.rows(processes))
            .map(|(index, task)| (who(task), index))
            .collect();
        self.then.clear();
        let now = self.now.rows(processes);
        self.then.extend(now.iter().map(|task| before.get(&who(task)).copied().unwrap_or(NONE)));
        self.reorder();
    }

    fn reorder(&mut self) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let rows = self.now.rows(self.wanted.processes);
        let needle = self.wanted.filter.to_lowercase();
        (self.sum, self.sum_before, self.largest) =
            (TaskFigures::default(), TaskFigures::default(), 0);
        let (mut sum, mut sum_before, mut largest) = (None::<TaskFigures>, None::<TaskFigures>, 0);
        let add = |sum: &mut Option<TaskFigures>, task: &TaskFigures| match sum {
            Some(sum) => figure::add(sum, task),
            None => *sum = Some(TaskFigures { tracer_tid: None, ..task.clone() }),
        };
        for (index, task) in (0..).zip(rows) {
            let is_purged = !self.purged.is_empty()
                && task.state == "exited"
                && self.key_at(index).is_some_and(|key| self.purged.contains(&key));
            if is_purged || !matches(task, &needle) {
                continue;
            }
            let Some((then, now)) = self.figures(index) else { continue };
            add(&mut sum, now);
            if let Some(then) = then {
                add(&mut sum_before, then);
            }
            let delta = figure::moved(then, now, |task| Some(task.delta_runtime_ns)).unwrap_or(0);
            largest = delta.abs().max(largest);
            // What is not measured comes last.
            let value = tasks::value(self.wanted.sort, then, now).unwrap_or(i128::MIN);
            keys.push((value, index));
        }
        // Who has ended long ago has added nothing since the reading before.
        if self.wanted.cumulative && needle.is_empty() && !self.purges_folded {
            let has_row = |folded: &Folded| self.wanted.processes && folded.process.is_some();
            let rowless = self.now.folded.iter().filter(|folded| !has_row(folded));
            rowless.for_each(|folded| add(&mut sum, &folded.figures));
        }
        self.sort(&mut keys);
        self.order.clear();
        if self.wanted.tree {
            tree(rows, &keys, &mut self.order);
        } else {
            self.order.extend(keys.iter().map(|(_, index)| Entry { index: *index, depth: 0 }));
        }
        self.sum = sum.unwrap_or_default();
        self.sum_before = sum_before.unwrap_or_default();
        (self.largest, self.keys) = (largest, keys);
    }

    fn sort(&self, keys: &mut [(i128, u32)]) {
        let rows = self.now.rows(self.wanted.processes);
        let by_name = self.wanted.sort == Column::Name;
        let descending = self.wanted.sort.is_largest_first() != self.wanted.reversed;
        keys.sort_unstable_by(|a, b| {
            let (one, other) = (&rows[a.1 as usize], &rows[b.1 as usize]);
            let order = if by_name { one.comm.cmp(&other.comm) } else { a.0.cmp(&b.0) };
            let order = if descending { order.reverse() } else { order };
            // Rows that are alike must not change places from one reading to the next.
            order
                .then_with(|| other.oncpu_ns.cmp(&one.oncpu_ns))
                .then_with(|| (one.tid, one.start_ns).cmp(&(other.tid, other.start_ns)))
        });
    }
}

/// True if the name contains `needle` (in lower case), or an id is it.
fn matches(task: &TaskFigures, needle: &str) -> bool {
    needle.is_empty()
        || escape(&task.comm).to_lowercase().contains(needle)
        || needle.parse().is_ok_and(|id: u32| id == task.tid || id == task.tgid)
}

/// Children below their parents, siblings in the order of `sorted`.
fn tree(rows: &[TaskFigures], sorted: &[(i128, u32)], order: &mut Vec<Entry>) {
    let mut leaders: HashMap<u32, Vec<u32>> = HashMap::new();
    for (_, index) in sorted {
        let task = &rows[*index as usize];
        if task.tid == task.tgid {
            leaders.entry(task.tgid).or_default().push(*index);
        }
    }
    // A parent is not younger than its child: so an id that was used again is not mistaken for the parent.
    let parent = |index: u32| -> Option<u32> {
        let task = &rows[index as usize];
        let id = if task.tid == task.tgid { task.parent_tgid } else { task.tgid };
        let older =
            |other: &&u32| **other != index && rows[**other as usize].start_ns <= task.start_ns;
        let candidates = leaders.get(&id)?.iter().filter(older);
        candidates.max_by_key(|other| rows[**other as usize].start_ns).copied()
    };
    let mut first_child = vec![NONE; rows.len()];
    let mut next_sibling = vec![NONE; rows.len()];
    let mut roots = Vec::new();
    for (_, index) in sorted.iter().rev() {
        match parent(*index) {
            Some(parent) => {
                next_sibling[*index as usize] = first_child[parent as usize];
                first_child[parent as usize] = *index;
            }
            None => roots.push(*index),
        }
    }
    let mut is_placed = vec![false; rows.len()];
    let mut stack: Vec<(u32, u16)> = roots.into_iter().map(|root| (root, 0)).collect();
    // Two processes of one age that name each other as parent have no root: they come at the end.
    let mut others = sorted.iter().map(|(_, index)| *index);
    loop {
        while let Some((index, depth)) = stack.pop() {
            if std::mem::replace(&mut is_placed[index as usize], true) {
                continue;
            }
            order.push(Entry { index, depth });
            if next_sibling[index as usize] != NONE && depth != 0 {
                stack.push((next_sibling[index as usize], depth));
            }
            if first_child[index as usize] != NONE {
                stack.push((first_child[index as usize], depth.saturating_add(1)));
            }
        }
        match others.find(|index| !is_placed[*index as usize]) {
            Some(index) => stack.push((index, 0)),
            None => return,
        }
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
