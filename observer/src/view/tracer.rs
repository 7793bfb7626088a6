//! What a tracer took of its tracees, or gave them: from the switches between the two.

use std::collections::BTreeMap;

use super::{
    text::{cut, ms},
    verdict::{NAME, share},
};
use crate::model::{PairFigures, PairKind, Party, Report, TaskFigures, report::escape};

/// A tracee of which less than this part of the largest was taken is left out.
const LEAST: i128 = 100;

/// One tracer and the tracees that stopped for it.
pub struct Trace<'a> {
    pub tracer: &'a Party,
    /// Each with what the tracer took of it; the one of which it took (or to which it gave) most comes first.
    pub tracees: Vec<(&'a Party, i128)>,
    /// What the tracer took of all of them; below zero it gave.
    pub taken_ns: i128,
    /// Measured time of the tracees that are observed.
    oncpu_ns: u64,
    /// Towards the side that gained: switches, of them skipped, and what each kind moved.
    way: Way,
}

/// What went one way between two tasks.
#[derive(Clone, Copy, Default)]
struct Way {
    switches: u64,
    skips: u64,
    skip_ns: u64,
    path_ns: u64,
}

impl Way {
    fn add(&mut self, pair: &PairFigures) {
        self.join(&Self {
            switches: pair.switches,
            skips: pair.skips.unwrap_or(0),
            skip_ns: pair.skip_ns.unwrap_or(0),
            path_ns: pair.path_ns.unwrap_or(0),
        });
    }

    fn join(&mut self, other: &Self) {
        self.switches = self.switches.saturating_add(other.switches);
        self.skips = self.skips.saturating_add(other.skips);
        self.skip_ns = self.skip_ns.saturating_add(other.skip_ns);
        self.path_ns = self.path_ns.saturating_add(other.path_ns);
    }

    fn moved_ns(&self) -> i128 {
        i128::from(self.skip_ns) + i128::from(self.path_ns)
    }
}

/// Every tracer that made a tracee stop, the one that moved most time first. Empty where no pair was recorded, or
/// where the run queues' clocks were not read.
pub fn traces(report: &Report) -> Vec<Trace<'_>> {
    let mut by_tracer: BTreeMap<Option<u32>, Vec<&PairFigures>> = BTreeMap::new();
    let stops = report.pairs.iter().filter(|pair| pair.kind == PairKind::Ptrace && pair.count != 0);
    for pair in stops.filter(|pair| pair.from.tid.is_some()) {
        by_tracer.entry(pair.from.tid).or_default().push(pair);
    }
    let mut traces: Vec<Trace<'_>> =
        by_tracer.values().filter_map(|pairs| trace(report, pairs)).collect();
    traces.sort_by_key(|trace| std::cmp::Reverse(trace.taken_ns.unsigned_abs()));
    traces
}

fn trace<'a>(report: &'a Report, stops: &[&'a PairFigures]) -> Option<Trace<'a>> {
    let tracer = &stops.first()?.from;
    let mut sides: Vec<(&Party, Way, Way)> = Vec::new();
    let mut is_measured = false;
    for pair in stops {
        let (mut there, mut back) = (Way::default(), Way::default());
        for switches in report.pairs.iter().filter(|pair| pair.kind == PairKind::Wake) {
            if is_same(&switches.from, &pair.to) && is_same(&switches.to, tracer) {
                there.add(switches);
            } else if is_same(&switches.from, tracer) && is_same(&switches.to, &pair.to) {
                back.add(switches);
            } else {
                continue;
            }
            is_measured |= switches.skip_ns.is_some();
        }
        sides.push((&pair.to, there, back));
    }
    let taken_ns = |(_, there, back): &(&Party, Way, Way)| there.moved_ns() - back.moved_ns();
    sides.sort_by_key(|side| std::cmp::Reverse(taken_ns(side).unsigned_abs()));
    // strace has children of its own that stop a few times before the command: not worth a plural.
    let largest_ns = sides.first().map_or(0, |side| taken_ns(side).abs());
    let mut is_first = true;
    sides.retain(|side| std::mem::take(&mut is_first) || taken_ns(side).abs() * LEAST > largest_ns);
    let tracees: Vec<(&Party, i128)> = sides.iter().map(|side| (side.0, taken_ns(side))).collect();
    let sum_ns: i128 = tracees.iter().map(|(_, taken_ns)| taken_ns).sum();
    let mut way = Way::default();
    for (_, there, back) in &sides {
        way.join(if sum_ns < 0 { back } else { there });
    }
    let known = tracees.iter().filter_map(|(tracee, _)| task_of(report, tracee));
    let oncpu_ns = known.fold(0, |sum: u64, task| sum.saturating_add(task.oncpu_ns));
    is_measured.then_some(Trace { tracer, tracees, taken_ns: sum_ns, oncpu_ns, way })
}

/// True when both are one task: by account within a session, by thread id in a file.
pub fn is_same(a: &Party, b: &Party) -> bool {
    match (a.account, b.account) {
        (Some(a), Some(b)) => a == b,
        _ => a.tid.is_some() && a.tid == b.tid,
    }
}

/// The task that a side of a pair is; a thread id that was used again means the last one.
pub fn task_of<'a>(report: &'a Report, party: &Party) -> Option<&'a TaskFigures> {
    let by_account =
        party.account.and_then(|account| report.tasks.iter().find(|task| task.account == account));
    by_account.or_else(|| {
        let tasks = report.tasks.iter().filter(|task| Some(task.tid) == party.tid);
        tasks.max_by_key(|task| task.opened_ns)
    })
}

/// `ls (124)`.
pub fn name(party: &Party) -> String {
    let comm = cut(&escape(&party.comm), NAME);
    party.tid.map_or_else(|| comm.clone(), |tid| format!("{comm} ({tid})"))
}

impl Trace<'_> {
    /// The size of what moved.
    pub fn size_ns(&self) -> u64 {
        u64::try_from(self.taken_ns.unsigned_abs()).unwrap_or(u64::MAX)
    }

    /// True when the switches between the two explain most of what skipped updates did to the task's bill.
    pub fn explains(&self, report: &Report, task: &TaskFigures) -> bool {
        let is =
            |party: &Party| task_of(report, party).is_some_and(|known| std::ptr::eq(known, task));
        let gained_ns = if is(self.tracer) {
            self.taken_ns
        } else {
            match self.tracees.iter().find(|(tracee, _)| is(tracee)) {
                Some((_, taken_ns)) => -taken_ns,
                None => return false,
            }
        };
        let (Some(skip_in_ns), Some(skip_out_ns)) = (task.skip_in_ns, task.skip_out_ns) else {
            return false;
        };
        let shift_ns = i128::from(skip_in_ns) - i128::from(skip_out_ns);
        2 * (shift_ns - gained_ns).abs() <= shift_ns.abs()
    }

    /// `Tracer S took X ms (Y %) of tracee T: ...`
    pub fn sentence(&self) -> String {
        let (verb, word) = if self.taken_ns < 0 { ("gave", "to") } else { ("took", "of") };
        let amount = match self.oncpu_ns {
            0 => ms(self.size_ns()),
            oncpu_ns => share(self.size_ns(), oncpu_ns),
        };
        let first = self.tracees.first().map_or_else(String::new, |(tracee, _)| name(tracee));
        let whom = match self.tracees.len() {
            1 => format!("tracee {first}"),
            count => format!("its {count} tracees ({first} and others)"),
        };
        format!("Tracer {} {verb} {amount} {word} {whom}: {}.", name(self.tracer), self.cause())
    }

    fn cause(&self) -> String {
        let ends = match (self.taken_ns < 0, self.tracees.len()) {
            (true, 1) => "from the tracer to the tracee",
            (true, _) => "from the tracer to the tracees",
            (false, 1) => "from the tracee to the tracer",
            (false, _) => "from the tracees to the tracer",
        };
        let Way { switches, skips, skip_ns, path_ns } = self.way;
        if switches == 0 {
            "there was no switch between them".to_owned()
        } else if skip_ns >= path_ns {
            format!("{skips} of {switches} switches {ends} skipped the clock update")
        } else {
            format!("on the path of {switches} ordinary switches {ends}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{self, party, report, wake};

    fn traced() -> Report {
        let tasks = vec![
            TaskFigures { tid: 123, ..samples::task("strace", 100_000_000) },
            TaskFigures { tid: 124, ..samples::task("ls", 76_000_000) },
        ];
        let (strace, ls) = (party("strace", 123), party("ls", 124));
        let mut report = report(tasks);
        report.pairs = vec![
            wake(ls.clone(), strace.clone(), 940, 20_000_000),
            wake(strace.clone(), ls.clone(), 3, 1_000_000),
            wake(strace.clone(), party("other", 7), 3, 9_000_000),
            samples::traced(strace, ls, 950),
        ];
        report
    }

    fn first(report: &Report) -> String {
        traces(report).first().unwrap().sentence()
    }

    #[test]
    fn a_tracer_takes_what_moved_to_it_less_what_moved_back() {
        assert_eq!(
            first(&traced()),
            "Tracer strace (123) took 19.000 ms (25.0 %) of tracee ls (124): 940 of 960 switches from the tracee to \
             the tracer skipped the clock update."
        );
    }

    #[test]
    fn a_tracer_gives() {
        let mut report = traced();
        report.pairs[0].skip_ns = Some(0);
        assert_eq!(
            first(&report),
            "Tracer strace (123) gave 1.000 ms (1.3 %) to tracee ls (124): 3 of 23 switches from the tracer to the \
             tracee skipped the clock update."
        );
    }

    #[test]
    fn ordinary_switches_move_time_too() {
        let mut report = traced();
        (report.pairs[0].skip_ns, report.pairs[0].path_ns) = (Some(0), Some(4_800_000));
        assert_eq!(
            first(&report),
            "Tracer strace (123) took 3.800 ms (5.0 %) of tracee ls (124): on the path of 960 ordinary switches from \
             the tracee to the tracer."
        );
    }

    #[test]
    fn tracees_of_one_tracer_are_taken_together() {
        let mut report = traced();
        let (strace, cat) = (party("strace", 123), party("cat", 130));
        report.tasks.push(TaskFigures { tid: 130, ..samples::task("cat", 24_000_000) });
        report.pairs.push(samples::traced(strace.clone(), cat.clone(), 5));
        report.pairs.push(wake(cat, strace, 5, 1_000_000));
        assert_eq!(
            first(&report),
            "Tracer strace (123) took 20.000 ms (20.0 %) of its 2 tracees (ls (124) and others): 945 of 985 switches \
             from the tracees to the tracer skipped the clock update."
        );
    }

    #[test]
    fn a_tracee_of_which_next_to_nothing_was_taken_is_left_out() {
        let mut report = traced();
        let (strace, probe) = (party("strace", 123), party("strace", 125));
        report.pairs.push(samples::traced(strace.clone(), probe.clone(), 6));
        report.pairs.push(wake(probe, strace, 6, 9_000));
        assert!(first(&report).starts_with(
            "Tracer strace (123) took 19.000 ms (25.0 %) of tracee ls (124): 940 of 960 switches"
        ));
    }

    #[test]
    fn two_cpus_move_nothing_between_the_two() {
        let mut report = traced();
        report.pairs[0] =
            PairFigures { switches: 0, ..wake(party("ls", 124), party("strace", 123), 0, 0) };
        report.pairs.remove(1);
        assert_eq!(
            first(&report),
            "Tracer strace (123) took 0.000 ms (0.0 %) of tracee ls (124): there was no switch between them."
        );
    }

    #[test]
    fn without_the_clocks_or_a_trace_nothing_is_claimed() {
        let mut report = traced();
        report.pairs.iter_mut().for_each(|pair| pair.skip_ns = None);
        assert!(traces(&report).is_empty());
        report = traced();
        report.pairs.pop();
        assert!(traces(&report).is_empty());
    }

    #[test]
    fn what_the_pair_explains_is_not_said_twice() {
        let mut report = traced();
        report.tasks[1].skip_out_ns = Some(20_000_000);
        report.tasks[0].skip_in_ns = Some(90_000_000);
        let traces = traces(&report);
        assert!(traces[0].explains(&report, &report.tasks[1]));
        assert!(!traces[0].explains(&report, &report.tasks[0]), "most of it came from elsewhere");
    }

    #[test]
    fn an_account_tells_tasks_of_one_id_apart() {
        let side = |account, tid| Party { account, ..party("a", tid) };
        assert!(is_same(&side(Some(1), 5), &side(Some(1), 6)), "an exec changed its id");
        assert!(!is_same(&side(Some(1), 5), &side(Some(2), 5)), "the id was used again");
        assert!(is_same(&side(None, 5), &side(Some(2), 5)));
        assert!(!is_same(&Party::default(), &Party::default()));
    }
}
