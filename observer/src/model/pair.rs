//! Two tasks that had to do with each other: who woke whom, who traced whom, and whose time went to whom.

use serde::{Deserialize, Serialize};

/// One side of a pair: a task, or what woke it where no task did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// Its account, where it is observed: see [`super::TaskFigures::account`].
    pub account: Option<u64>,
    /// Thread id in the initial namespace; `None` for idle, interrupts and the sum of the rest.
    pub tid: Option<u32>,
    /// Process id; `None` where it is not known.
    pub tgid: Option<u32>,
    /// Thread name; `idle`, `hardirq`, `softirq` or `(other)` where there is no task.
    pub comm: Vec<u8>,
}

/// What a pair is about.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum PairKind {
    /// From a waker to its wakee, and from the previous task of a switch to the next.
    #[default]
    Wake,
    /// From a tracer to its tracee.
    Ptrace,
}

impl PairKind {
    /// The word for it in files and on the screen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Ptrace => "ptrace",
        }
    }
}

/// Where wakeups came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The waker's syscall (`futex`, `write`, ...), `exit`, `fault`, or the interrupt (`timer`, `irq`, `ipi`, ...).
    pub name: String,
    /// Wakeups.
    pub count: u64,
    /// The waker's time in them; part of the pair's `wakeup_cost_ns`.
    pub cost_ns: u64,
}

/// Ptrace stops by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stops {
    /// At the entry of a syscall.
    pub syscall_entry: u64,
    /// At its exit.
    pub syscall_exit: u64,
    /// Before a signal is delivered.
    pub signal: u64,
    /// `PTRACE_EVENT_*` other than exit and stop.
    pub event: u64,
    /// Group stops, and `PTRACE_INTERRUPT`.
    pub group: u64,
    /// `PTRACE_EVENT_EXIT`.
    pub exit: u64,
}

/// Time and switches that went from one to the other, by the reason of the skipped clock update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// Switches whose clock update was skipped.
    pub count: u64,
    /// Time that they moved.
    pub ns: u64,
}

/// A pair, over the session.
///
/// Time moves *from* the task that was switched out *to* the one that was switched in: `to` is billed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairFigures {
    /// What it is about.
    pub kind: PairKind,
    /// Waker, previous task or tracer.
    pub from: Party,
    /// Wakee, next task or tracee.
    pub to: Party,

    /// Wakeups of `to` by `from`; for a ptrace pair, stops.
    pub count: u64,
    /// Of the wakeups, those made by a task.
    pub by_task: u64,
    /// In a soft interrupt.
    pub by_softirq: u64,
    /// In a hard interrupt.
    pub by_hardirq: u64,
    /// By the idle loop.
    pub by_idle: u64,
    /// Of the wakeups, those that made `to` run in place of `from`, which could have run on.
    pub preemptions: u64,
    /// Switches from `from` to `to`.
    pub switches: u64,

    /// Switches whose clock update was skipped.
    pub skips: Option<u64>,
    /// Time that they moved from `from` to `to`, ns.
    pub skip_ns: Option<u64>,
    /// Of it, requested by a wakeup while a task ran.
    pub skip_wakeup: Skip,
    /// Requested by a wakeup on an idle CPU.
    pub skip_idle: Skip,
    /// Requested by `sched_yield`.
    pub skip_yield: Skip,
    /// Requested by something else.
    pub skip_other: Skip,
    /// Time that ordinary switches moved from `from` to `to`.
    pub path_ns: Option<u64>,

    /// `from`'s system time inside these wakeups; `None` where the end of a wakeup is not seen.
    pub wakeup_cost_ns: Option<u64>,
    /// Cycles of it, where they were counted.
    pub wakeup_cost_cycles: Option<u64>,
    /// From the wakeup (for a ptrace pair: from the resume) to the switch-in, all together.
    pub latency_sum_ns: u64,
    /// Times that `latency_sum_ns` is made of.
    pub latency_count: u64,
    /// The longest.
    pub latency_max_ns: u64,
    /// Upper bounds of the histogram's buckets that hold something, ns, and how many.
    pub latency: Vec<(u64, u64)>,

    /// Where the wakeups came from, most frequent first.
    pub origins: Vec<Origin>,

    /// Ptrace pairs: stops by kind.
    pub stops_by_kind: Option<Stops>,
    /// Ptrace pairs: time of `to` in stops.
    pub stopped_ns: Option<u64>,
    /// Ptrace pairs: stops after which `from` ran next on the same CPU.
    pub handoffs: Option<u64>,
    /// Ptrace pairs: the others.
    pub handoffs_across: Option<u64>,
}

impl Skip {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

impl Stops {
    fn add(&mut self, other: &Self) {
        self.syscall_entry += other.syscall_entry;
        self.syscall_exit += other.syscall_exit;
        self.signal += other.signal;
        self.event += other.event;
        self.group += other.group;
        self.exit += other.exit;
    }
}

/// A sum with a part that was not measured is not measured, but for one that has no part yet.
fn add(sum: &mut Option<u64>, part: Option<u64>, is_first: bool) {
    *sum = match (*sum, part) {
        (Some(sum), Some(part)) => Some(sum.saturating_add(part)),
        (None, part) if is_first => part,
        _ => None,
    };
}

impl PairFigures {
    /// Adds another pair's figures; kind and names stay.
    pub fn add(&mut self, other: &Self) {
        let is_first = self.count == 0 && self.switches == 0;
        self.count += other.count;
        self.by_task += other.by_task;
        self.by_softirq += other.by_softirq;
        self.by_hardirq += other.by_hardirq;
        self.by_idle += other.by_idle;
        self.preemptions += other.preemptions;
        self.switches += other.switches;
        add(&mut self.skips, other.skips, is_first);
        add(&mut self.skip_ns, other.skip_ns, is_first);
        self.skip_wakeup.add(other.skip_wakeup);
        self.skip_idle.add(other.skip_idle);
        self.skip_yield.add(other.skip_yield);
        self.skip_other.add(other.skip_other);
        add(&mut self.path_ns, other.path_ns, is_first);
        add(&mut self.wakeup_cost_ns, other.wakeup_cost_ns, is_first);
        add(&mut self.wakeup_cost_cycles, other.wakeup_cost_cycles, is_first);
        self.latency_sum_ns = self.latency_sum_ns.saturating_add(other.latency_sum_ns);
        self.latency_count += other.latency_count;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        for (bound_ns, count) in &other.latency {
            match self.latency.binary_search_by_key(bound_ns, |(bound_ns, _)| *bound_ns) {
                Ok(at) => self.latency[at].1 += count,
                Err(at) => self.latency.insert(at, (*bound_ns, *count)),
            }
        }
        for origin in &other.origins {
            match self.origins.iter_mut().find(|sum| sum.name == origin.name) {
                Some(sum) => {
                    sum.count += origin.count;
                    sum.cost_ns += origin.cost_ns;
                }
                None => self.origins.push(origin.clone()),
            }
        }
        match (&mut self.stops_by_kind, &other.stops_by_kind) {
            (Some(sum), Some(part)) => sum.add(part),
            (sum, part) if is_first => *sum = *part,
            _ => {}
        }
        add(&mut self.stopped_ns, other.stopped_ns, is_first);
        add(&mut self.handoffs, other.handoffs, is_first);
        add(&mut self.handoffs_across, other.handoffs_across, is_first);
    }

    /// The time that this pair moved to `to`'s bill, ns.
    #[must_use]
    pub fn shifted_ns(&self) -> u64 {
        self.skip_ns.unwrap_or(0).saturating_add(self.path_ns.unwrap_or(0))
    }

    /// The latency that this share of all wakeups did not exceed, ns (upper bound of its bucket).
    #[must_use]
    pub fn latency_ns(&self, share: f64) -> Option<u64> {
        let total: u64 = self.latency.iter().map(|(_, count)| count).sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        self.latency.iter().find_map(|(bound_ns, count)| {
            seen += count;
            (seen >= wanted && total > 0).then_some((*bound_ns).min(self.latency_max_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_latencies() {
        let pair = PairFigures {
            latency: vec![(100, 90), (1_000, 9), (10_000, 1)],
            latency_max_ns: 9_000,
            ..PairFigures::default()
        };
        assert_eq!(pair.latency_ns(0.5), Some(100));
        assert_eq!(pair.latency_ns(0.99), Some(1_000));
        assert_eq!(pair.latency_ns(1.0), Some(9_000));
        assert_eq!(PairFigures::default().latency_ns(0.5), None);
    }
}
