//! The other side: who got most of what a task lost, or lost most of what it got.

use super::tracer::{is_same, name, task_of};
use crate::{
    model::{PairFigures, PairKind, Party, Report, TaskFigures, pair::Skip},
    view::text::ms,
};

/// Who it was, and how.
pub struct Partner<'a> {
    pub party: &'a Party,
    /// What the task got of it, net; below zero the task lost it.
    pub gained_ns: i128,
    /// True if it traces the task, or the task traces it.
    pub tie: Tie,
    pub reason: Reason,
    /// True if the side that was switched out had woken the other one: then both were on one CPU.
    pub is_waker: bool,
    /// Switches in the way of the gain, and of them those with a skipped clock update.
    pub switches: u64,
    pub skips: u64,
}

/// What two tasks are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    Tracer,
    Tracee,
    None,
}

/// Why the kernel's clock was behind at most of the time that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Wakeup,
    Idle,
    Yield,
    Other,
    Path,
}

/// The partner with the largest share of what moved, if that is a quarter of `total_ns` or more and points the
/// same way.
pub fn main<'a>(report: &'a Report, task: &TaskFigures, total_ns: i128) -> Option<Partner<'a>> {
    let is_task =
        |party: &Party| task_of(report, party).is_some_and(|known| std::ptr::eq(known, task));
    let mut partners: Vec<(&Party, i128)> = Vec::new();
    let wake = || report.pairs.iter().filter(|pair| pair.kind == PairKind::Wake);
    for pair in wake() {
        let (party, gained_ns) = match (is_task(&pair.from), is_task(&pair.to)) {
            (true, false) => (&pair.to, -i128::from(pair.shifted_ns())),
            (false, true) => (&pair.from, i128::from(pair.shifted_ns())),
            _ => continue,
        };
        match partners.iter_mut().find(|(known, _)| is_one(known, party)) {
            Some((_, sum_ns)) => *sum_ns += gained_ns,
            None => partners.push((party, gained_ns)),
        }
    }
    let (party, gained_ns) = partners
        .into_iter()
        .filter(|(_, ns)| ns.signum() == total_ns.signum() && 4 * ns.abs() >= total_ns.abs())
        .max_by_key(|(_, ns)| ns.abs())?;
    let on_the_way = || {
        wake().filter(move |pair| {
            let (other, own) =
                if gained_ns < 0 { (&pair.to, &pair.from) } else { (&pair.from, &pair.to) };
            is_one(other, party) && is_task(own)
        })
    };
    Some(Partner {
        party,
        gained_ns,
        tie: tie(report, party, &is_task),
        reason: reason(on_the_way()),
        is_waker: party.tid.is_some() && on_the_way().any(|pair| pair.count != 0),
        switches: on_the_way().map(|pair| pair.switches).sum(),
        skips: on_the_way().filter_map(|pair| pair.skips).sum(),
    })
}

/// The task that woke it most.
pub fn waker<'a>(report: &'a Report, task: &TaskFigures) -> Option<&'a Party> {
    let wake = report.pairs.iter().filter(|pair| pair.kind == PairKind::Wake && pair.count != 0);
    wake.filter(|pair| pair.from.tid.is_some())
        .filter(|pair| task_of(report, &pair.to).is_some_and(|known| std::ptr::eq(known, task)))
        .max_by_key(|pair| pair.count)
        .map(|pair| &pair.from)
}

/// As [`is_same`], but idle is one with idle.
fn is_one(a: &Party, b: &Party) -> bool {
    is_same(a, b) || (a.tid.is_none() && b.tid.is_none() && a.comm == b.comm)
}

fn tie(report: &Report, party: &Party, is_task: &impl Fn(&Party) -> bool) -> Tie {
    let mut ptrace = report.pairs.iter().filter(|pair| pair.kind == PairKind::Ptrace);
    ptrace
        .find_map(|pair| {
            if is_one(&pair.from, party) && is_task(&pair.to) {
                Some(Tie::Tracer)
            } else if is_one(&pair.to, party) && is_task(&pair.from) {
                Some(Tie::Tracee)
            } else {
                None
            }
        })
        .unwrap_or(Tie::None)
}

fn reason<'a>(pairs: impl Iterator<Item = &'a PairFigures>) -> Reason {
    let mut sums = [
        (Reason::Wakeup, 0_u64),
        (Reason::Idle, 0),
        (Reason::Yield, 0),
        (Reason::Other, 0),
        (Reason::Path, 0),
    ];
    for pair in pairs {
        let PairFigures { skip_wakeup, skip_idle, skip_yield, skip_other, .. } = pair;
        let by_reason =
            [*skip_wakeup, *skip_idle, *skip_yield, *skip_other].map(|skip: Skip| skip.ns);
        let path_ns = pair.path_ns.unwrap_or(0);
        for ((_, sum_ns), ns) in sums.iter_mut().zip(by_reason.into_iter().chain([path_ns])) {
            *sum_ns = sum_ns.saturating_add(ns);
        }
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns).map_or(Reason::Other, |(reason, _)| reason)
}

impl Partner<'_> {
    pub fn is_task(&self) -> bool {
        self.party.tid.is_some()
    }

    pub fn who(&self) -> String {
        let who = name(self.party);
        match self.tie {
            Tie::Tracer => format!("its tracer {who}"),
            Tie::Tracee => format!("its tracee {who}"),
            Tie::None => who,
        }
    }

    /// `19.000 ms of it went to its tracer strace (123): ...`
    pub fn sentence(&self, total_ns: i128) -> String {
        let size_ns = u64::try_from(self.gained_ns.unsigned_abs()).unwrap_or(u64::MAX);
        // The partner may have more than the whole, where others went the other way.
        let amount = if self.gained_ns.unsigned_abs() <= total_ns.unsigned_abs() {
            format!("{} of it", ms(size_ns))
        } else {
            ms(size_ns)
        };
        let way = if self.gained_ns < 0 { "went to" } else { "came from" };
        format!("{amount} {way} {}: {}.", self.who(), self.why())
    }

    fn why(&self) -> String {
        let Self { switches, skips, .. } = self;
        let (from, to) =
            if self.gained_ns < 0 { ("it", self.short()) } else { (self.short(), "it") };
        let skipped =
            format!("{skips} of {switches} switches from {from} to {to} skipped the clock update");
        match self.reason {
            Reason::Wakeup => format!(
                "{skipped}, since a wakeup had asked for the switch already: what ran from then on is billed to the \
                 next task"
            ),
            Reason::Idle => format!(
                "{skipped}, since the CPU was idle at the wakeup: what it takes to leave idle is billed to the task"
            ),
            Reason::Yield => format!("{skipped} at a sched_yield"),
            Reason::Other => skipped,
            Reason::Path => format!(
                "each of {switches} switches from {from} to {to} moves a little, since the kernel reads its clock \
                 before the switch is done"
            ),
        }
    }

    fn short(&self) -> &'static str {
        match self.tie {
            Tie::Tracer => "the tracer",
            Tie::Tracee => "the tracee",
            Tie::None if self.is_task() => "the other",
            Tie::None => "there",
        }
    }
}
