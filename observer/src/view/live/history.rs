//! How each task's bill drifted over the last two minutes.

use std::collections::{HashMap, HashSet, VecDeque};

use super::order::{Key, key};
use crate::model::TaskFigures;

/// How far back.
pub const WINDOW_S: u64 = 120;
const SECOND_NS: u64 = 1_000_000_000;

/// What was added to the difference between reported and measured run time, by second.
#[derive(Clone, Debug, Default)]
struct Drift {
    level_ns: i64,
    /// Seconds with a change, the oldest first; tasks that do not run need no memory.
    changes: VecDeque<(u64, i64)>,
}

/// Of all tasks: whoever is chosen has a past.
#[derive(Clone, Debug, Default)]
pub struct History {
    drifts: HashMap<Key, Drift>,
    has_begun: bool,
    now_s: u64,
}

impl History {
    /// Takes the next reading.
    pub fn take(&mut self, now_ns: u64, tasks: &[TaskFigures]) {
        self.now_s = now_ns / SECOND_NS;
        let oldest_s = self.now_s.saturating_sub(WINDOW_S);
        for task in tasks {
            let is_first = !self.has_begun;
            let drift = self.drifts.entry(key(task)).or_default();
            let change_ns = task.delta_runtime_ns.saturating_sub(drift.level_ns);
            drift.level_ns = task.delta_runtime_ns;
            // What was there before the first reading did not happen in one second.
            if change_ns != 0 && !is_first {
                match drift.changes.back_mut() {
                    Some((second, sum_ns)) if *second == self.now_s => {
                        *sum_ns = sum_ns.saturating_add(change_ns);
                    }
                    _ => drift.changes.push_back((self.now_s, change_ns)),
                }
            }
            while drift.changes.front().is_some_and(|(second, _)| *second <= oldest_s) {
                drift.changes.pop_front();
            }
            if drift.changes.is_empty() {
                drift.changes = VecDeque::new();
            }
        }
        self.has_begun = true;
        // Those that are no longer kept one by one need no past.
        if self.drifts.len() > tasks.len().saturating_mul(2) {
            let there: HashSet<Key> = tasks.iter().map(key).collect();
            self.drifts.retain(|key, _| there.contains(key));
        }
    }

    /// The drift of some tasks together in `count` equal parts of the last two minutes, the oldest first, ns.
    pub fn parts<'a>(
        &self,
        tasks: impl Iterator<Item = &'a TaskFigures>,
        count: usize,
    ) -> Vec<i64> {
        let mut parts = vec![0_i64; count];
        let drifts = tasks.filter_map(|task| self.drifts.get(&key(task)));
        for (second, change_ns) in drifts.flat_map(|drift| &drift.changes) {
            let age_s = self.now_s.saturating_sub(*second).min(WINDOW_S - 1);
            let part = (WINDOW_S - 1 - age_s) as usize * count / WINDOW_S as usize;
            if let Some(sum_ns) = parts.get_mut(part) {
                *sum_ns = sum_ns.saturating_add(*change_ns);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(tid: u32, delta_runtime_ns: i64) -> TaskFigures {
        TaskFigures { tid, delta_runtime_ns, ..TaskFigures::default() }
    }

    #[test]
    fn changes_fall_into_their_second() {
        let mut history = History::default();
        let at = |second: u64| second * SECOND_NS;
        history.take(at(1000), &[task(1, 500), task(2, 0)]);
        history.take(at(1001), &[task(1, 510), task(2, 0)]);
        history.take(at(1001) + 5, &[task(1, 507), task(2, 0)]);
        history.take(at(1060), &[task(1, 500), task(2, 40), task(3, 9)]);
        let parts = |tid| history.parts([task(tid, 0)].iter(), 120);
        assert_eq!((parts(1)[119], parts(1)[60]), (-7, 7));
        assert_eq!(parts(1).iter().sum::<i64>(), 0);
        assert_eq!((parts(2)[119], parts(3)[119]), (40, 9));
        let both = [task(1, 0), task(2, 0)];
        assert_eq!(history.parts(both.iter(), 2), [0, 40]);
        history.take(at(1170), &[task(1, 500), task(2, 40)]);
        assert_eq!(history.parts(both.iter(), 1), [33]);
        history.take(at(1180), &[task(1, 500), task(2, 40)]);
        assert_eq!(history.parts(both.iter(), 1), [0]);
    }
}
