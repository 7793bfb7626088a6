//! The sentences under the table: *why*, for the differences that matter, the most important first.
//!
//! Each sentence names a cause that was measured. A difference that no cause explains has a sentence of its own.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    text::{cut, ms, tick},
    tracer,
};
use crate::model::{
    Causes, Header, Report, TaskFigures,
    causes::{Source, SplitIs, is_bound},
    report::escape,
};

/// More would not be read.
const MOST: usize = 6;
/// Cells of a name in a sentence; an escaped name may have four times its 15 bytes.
pub(super) const NAME: usize = 24;
/// What is smaller does not matter, in whatever share.
const LEAST_NS: u64 = 1_000_000;

/// One sentence, and what it weighs: class first, then nanoseconds.
struct Finding {
    class: Class,
    size_ns: u64,
    text: String,
}

/// The most important last, so that the order derives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Below what the kernel can resolve: said, but nobody's fault.
    Resolution,
    /// A difference, or what bounds it.
    Difference,
    /// A traced pair: what the reader came for.
    Traced,
}

/// The sentences: at most six about differences, then what is missing.
#[must_use]
pub fn sentences(report: &Report) -> Vec<String> {
    // Where the pairs say what moved between tracer and tracee, that comes first; else what the bills say.
    let traces = tracer::traces(report);
    let mut findings: Vec<Finding> = traces
        .iter()
        .enumerate()
        .filter(|(index, trace)| *index == 0 || trace.size_ns() > LEAST_NS)
        .map(|(_, trace)| Finding {
            class: Class::Traced,
            size_ns: trace.size_ns(),
            text: trace.sentence(),
        })
        .collect();
    if traces.is_empty() {
        findings = traced(report);
    }
    let covered = |tid: u32| {
        report
            .tasks
            .iter()
            .any(|task| task.ptrace_stops != 0 && (task.tid == tid || task.tracer_tid == Some(tid)))
    };
    let has_traced_finding = !findings.is_empty();
    for task in &report.tasks {
        let is_said = if traces.is_empty() {
            has_traced_finding && covered(task.tid)
        } else {
            traces.iter().any(|trace| trace.explains(report, task))
        };
        if !is_said {
            findings.extend(skipped(report, task));
        }
        findings.extend(path(report, task));
        findings.extend(left_out(report, task));
        findings.extend(unexplained(report, task));
        findings.extend(split(report, task));
        findings.extend(interrupts(task));
        findings.extend(unclassified(report, task));
    }
    findings.sort_by_key(|finding| Reverse((finding.class, finding.size_ns)));
    let missing: Vec<String> = unwaited(report).into_iter().chain(incomplete(report)).collect();
    if findings.is_empty() {
        return [agreement(report)].into_iter().chain(missing).collect();
    }
    let room = MOST - missing.len();
    let mut sentences: Vec<String> = Vec::with_capacity(MOST);
    let more = findings.len().saturating_sub(room);
    sentences.extend(findings.into_iter().take(room).map(|finding| finding.text));
    if more != 0
        && let Some(last) = sentences.last_mut()
    {
        last.push_str(&format!(" ({more} smaller findings are not listed.)"));
    }
    sentences.extend(missing);
    sentences
}

pub(super) fn name(task: &TaskFigures) -> String {
    format!("{} ({})", cut(&escape(&task.comm), NAME), task.tid)
}

/// `1.234 ms (5.6 %)`.
pub(super) fn share(part_ns: u64, of_ns: u64) -> String {
    if of_ns == 0 {
        return ms(part_ns);
    }
    format!("{} ({:.1} %)", ms(part_ns), part_ns as f64 * 100.0 / of_ns as f64)
}

/// More than 1 ms, and either 2 % or a tick and half a percent: the tick alone says nothing about an hour.
pub(super) fn matters(header: &Header, size_ns: u64, of_ns: u64) -> bool {
    size_ns > LEAST_NS
        && (size_ns > of_ns / 50 || (size_ns > header.tick_ns && size_ns > of_ns / 200))
}

/// What clock skips added to the bill, less what they took.
fn skip_shift(task: &TaskFigures) -> Option<i64> {
    Some(difference(task.skip_in_ns?, task.skip_out_ns?))
}

/// The difference of the run time without what nothing explains: that has a sentence of its own, and must not
/// be put down to a tracer.
fn explained(task: &TaskFigures) -> i64 {
    task.delta_runtime_ns.saturating_sub(task.residual_ns.unwrap_or(0))
}

fn difference(a: u64, b: u64) -> i64 {
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or(if a < b { i64::MIN } else { i64::MAX })
}

fn direction(delta_ns: i64) -> &'static str {
    if delta_ns < 0 { "too little" } else { "too much" }
}

/// Several tracees of one tracer, taken together.
struct Tracees<'a> {
    /// The one whose bill is furthest off.
    first: &'a TaskFigures,
    count: usize,
    oncpu_ns: u64,
    delta_ns: i64,
    shift_ns: i64,
    skip_in: u64,
    skip_out: u64,
    switches: u64,
}

impl<'a> Tracees<'a> {
    /// `None` where the run queues' clocks were not read: then there is no cause to name.
    fn of(tasks: &[&'a TaskFigures]) -> Option<Self> {
        let first = *tasks.iter().max_by_key(|task| explained(task).unsigned_abs())?;
        let mut sum = Self {
            first,
            count: tasks.len(),
            oncpu_ns: 0,
            delta_ns: 0,
            shift_ns: 0,
            skip_in: 0,
            skip_out: 0,
            switches: 0,
        };
        for task in tasks {
            sum.oncpu_ns = sum.oncpu_ns.saturating_add(task.oncpu_ns);
            sum.delta_ns = sum.delta_ns.saturating_add(explained(task));
            sum.shift_ns = sum.shift_ns.saturating_add(skip_shift(task)?);
            sum.skip_in = sum.skip_in.saturating_add(task.skip_in?);
            sum.skip_out = sum.skip_out.saturating_add(task.skip_out?);
            sum.switches = sum
                .switches
                .saturating_add(task.switches_voluntary)
                .saturating_add(task.switches_involuntary);
        }
        Some(sum)
    }

    fn name(&self) -> String {
        match self.count {
            1 => format!("tracee {}", name(self.first)),
            count => format!("its {count} tracees ({} and others)", name(self.first)),
        }
    }

    /// How the clock was skipped, in the direction that moved more.
    fn cause(&self) -> String {
        let whose = if self.count == 1 { "the tracee" } else { "the tracees" };
        if self.shift_ns < 0 {
            format!(
                "{} of {} switches away from {whose} skipped the clock update",
                self.skip_out, self.switches
            )
        } else {
            format!("{} switches to {whose} skipped the clock update", self.skip_in)
        }
    }
}

/// A tracer and its tracees, where clock skips are the cause.
fn traced(report: &Report) -> Vec<Finding> {
    let mut by_tracer: BTreeMap<u32, Vec<&TaskFigures>> = BTreeMap::new();
    for task in report.tasks.iter().filter(|task| task.ptrace_stops != 0) {
        if let Some(tracer_tid) = task.tracer_tid {
            by_tracer.entry(tracer_tid).or_default().push(task);
        }
    }
    by_tracer
        .into_iter()
        .filter_map(|(tracer_tid, tasks)| traced_group(report, tracer_tid, &Tracees::of(&tasks)?))
        .collect()
}

fn traced_group(report: &Report, tracer_tid: u32, tracees: &Tracees<'_>) -> Option<Finding> {
    let tracer = report.tasks.iter().find(|task| task.tid == tracer_tid);
    let is_cause = |delta_ns: i64, shift_ns: i64| {
        (delta_ns < 0) == (shift_ns < 0) && shift_ns.unsigned_abs() >= delta_ns.unsigned_abs() / 2
    };
    let size_ns = tracees.delta_ns.unsigned_abs();
    let counts = is_cause(tracees.delta_ns, tracees.shift_ns)
        && matters(&report.header, size_ns, tracees.oncpu_ns);
    let tracer_counts = tracer.is_some_and(|tracer| {
        skip_shift(tracer).is_some_and(|shift_ns| is_cause(explained(tracer), shift_ns))
            && matters(&report.header, explained(tracer).unsigned_abs(), tracer.oncpu_ns)
    });
    if !counts && !tracer_counts {
        return None;
    }
    let tracee_side = format!(
        "{} {} {}",
        tracees.name(),
        share(size_ns, tracees.oncpu_ns),
        direction(tracees.delta_ns)
    );
    let text = match tracer {
        Some(tracer) => format!(
            "Tracer {} was billed {} {} and {tracee_side}: {}.",
            name(tracer),
            share(explained(tracer).unsigned_abs(), tracer.oncpu_ns),
            direction(explained(tracer)),
            tracees.cause(),
        ),
        None => {
            let who = if tracees.count == 1 {
                format!("Tracee {}", name(tracees.first))
            } else {
                format!("{} tracees ({} and others)", tracees.count, name(tracees.first))
            };
            let verb = if tracees.count == 1 { "was" } else { "were" };
            format!(
                "{who} {verb} billed {} {}: {}. The side of tracer {tracer_tid} is not observed; \
                 `observer --tid {tracer_tid}` shows it.",
                share(size_ns, tracees.oncpu_ns),
                direction(tracees.delta_ns),
                tracees.cause(),
            )
        }
    };
    Some(Finding { class: Class::Traced, size_ns, text })
}

/// Clock skips without a tracer.
fn skipped(report: &Report, task: &TaskFigures) -> Option<Finding> {
    let shift_ns = skip_shift(task)?;
    let size_ns = shift_ns.unsigned_abs();
    let amount = share(size_ns, task.oncpu_ns);
    let text = if shift_ns < 0 {
        format!(
            "{amount} that {} used were billed to others: {} of its {} switches away skipped the clock update.",
            name(task),
            task.skip_out?,
            task.switches_voluntary.saturating_add(task.switches_involuntary),
        )
    } else {
        format!(
            "{} was billed {amount} that others (or idle) used: {} switches to it skipped the clock update.",
            name(task),
            task.skip_in?,
        )
    };
    difference_of(report, task, size_ns, text)
}

/// A finding about a difference, if it matters.
fn difference_of(
    report: &Report,
    task: &TaskFigures,
    size_ns: u64,
    text: String,
) -> Option<Finding> {
    matters(&report.header, size_ns, task.oncpu_ns).then_some(Finding {
        class: Class::Difference,
        size_ns,
        text,
    })
}

/// Ordinary switches: each moves little, but there may be millions.
fn path(report: &Report, task: &TaskFigures) -> Option<Finding> {
    let shift_ns = difference(task.path_in_ns?, task.path_out_ns?);
    let text = format!(
        "{} was billed {} {} on the path of ordinary switches: the kernel reads its clock before the switch is done.",
        name(task),
        share(shift_ns.unsigned_abs(), task.oncpu_ns),
        direction(shift_ns),
    );
    difference_of(report, task, shift_ns.unsigned_abs(), text)
}

/// Interrupts and steal that the bill leaves out.
fn left_out(report: &Report, task: &TaskFigures) -> Option<Finding> {
    let size_ns = task.left_out_ns?;
    let text = format!(
        "{} on the CPU of {} went to interrupts or to the hypervisor (steal) and are left out of its bill.",
        share(size_ns, task.oncpu_ns),
        name(task),
    );
    difference_of(report, task, size_ns, text)
}

fn unexplained(report: &Report, task: &TaskFigures) -> Option<Finding> {
    // Without the run queues' clocks there is no residual, but the difference is there all the same.
    let (delta_ns, why) = match task.residual_ns {
        Some(residual_ns) => (residual_ns, "no measured cause explains it"),
        None => (task.delta_runtime_ns, "its causes are not measured here"),
    };
    let text = format!(
        "{} was billed {} {}: {why}.",
        name(task),
        share(delta_ns.unsigned_abs(), task.oncpu_ns),
        direction(delta_ns),
    );
    difference_of(report, task, delta_ns.unsigned_abs(), text)
}

/// The split into user and system.
fn split(report: &Report, task: &TaskFigures) -> Option<Finding> {
    let delta_ns = task.delta_user_split_ns?;
    let size_ns = delta_ns.unsigned_abs();
    if !matters(&report.header, size_ns, task.oncpu_ns) {
        return None;
    }
    if is_bound(task) {
        return Some(Finding { class: Class::Difference, size_ns, text: borders(task)? });
    }
    let (more, less) = if delta_ns > 0 { ("user", "system") } else { ("system", "user") };
    let moved = format!("{} of {less} time as {more}", share(size_ns, task.oncpu_ns));
    let who = name(task);
    let mode = &report.header.accounting;
    if mode == "native" || mode == "vtime active" {
        let text = format!(
            "The user/system split of {who} reports {moved}, although this kernel times each crossing ({mode})."
        );
        return Some(Finding { class: Class::Difference, size_ns, text });
    }
    let tick_ns = report.header.tick_ns.max(1);
    let quantum = tick(tick_ns);
    let ticks = task.raw_utime_ns.saturating_add(task.raw_stime_ns) / tick_ns;
    let causes = Causes::of(task, Source::of(&report.header));
    if causes.split_is() == Some(SplitIs::WithinResolution) {
        let text = format!(
            "The user/system split of {who} differs by {} from what was measured: within resolution (one \
             tick is worth {}).",
            share(size_ns, task.oncpu_ns),
            tick(causes.quantum_ns),
        );
        return Some(Finding { class: Class::Resolution, size_ns, text });
    }
    // The rule looks at all ticks of the task's life; only if the report agrees did it see none either.
    let all_user = task.raw_stime_ns == 0 && task.reported_system_ns == 0;
    let all_system = task.raw_utime_ns == 0 && task.reported_user_ns == 0;
    let why = if ticks == 0 && (all_user || all_system) {
        let side = if all_user { "user" } else { "system" };
        format!("no tick ({quantum}) hit it, so all of its time is reported as {side}")
    } else if all_user {
        format!("none of its {ticks} ticks hit the kernel, so all of its time is reported as user")
    } else if all_system {
        format!("none of its {ticks} ticks hit user mode, so all of its time is reported as system")
    } else {
        let scatter = match causes.split_is() {
            Some(SplitIs::WithinScatter) => {
                format!(", which scatter by ± {}", ms(causes.scatter_ns))
            }
            _ => String::new(),
        };
        format!("it rests on {ticks} ticks (± {} per tick){scatter}", tick(causes.quantum_ns))
    };
    let text = format!("The user/system split of {who} reports {moved}: {why}.");
    Some(Finding { class: Class::Difference, size_ns, text })
}

/// Why nobody knows the user time.
pub(super) fn borders(task: &TaskFigures) -> Option<String> {
    let cut_ns = task.crossing_cut_ns?;
    Some(format!(
        "How {} divides into user and system is not known better than the kernel says: by calibration the {} borders \
         that no hook sees took {}, which is {} more than there was.",
        name(task),
        task.crossings?,
        ms(task.crossing_ns?.saturating_add(cut_ns)),
        ms(cut_ns),
    ))
}

/// Interrupts that the task pays for. They are part of both sides, so that no difference shows them.
fn interrupts(task: &TaskFigures) -> Option<Finding> {
    let inside_ns = task.hardirq_ns?.saturating_add(task.softirq_ns?);
    let size_ns = inside_ns.saturating_sub(task.left_out_ns.unwrap_or(0));
    (size_ns > LEAST_NS && size_ns > task.oncpu_ns / 100).then(|| Finding {
        class: Class::Difference,
        size_ns,
        text: format!(
            "{} of what {} is billed as system time are interrupts that came while it ran, not its own work.",
            share(size_ns, task.oncpu_ns),
            name(task),
        ),
    })
}

fn unclassified(report: &Report, task: &TaskFigures) -> Option<Finding> {
    let (open_ns, user_ns) = (task.unclassified_ns?, task.user_ns?);
    let text = format!(
        "{} of {} after page faults are user or system, not known which: its user time lies between {} and {}.",
        share(open_ns, task.oncpu_ns),
        name(task),
        ms(user_ns),
        ms(user_ns.saturating_add(open_ns)),
    );
    difference_of(report, task, open_ns, text)
}

/// What `wait4` misses: descendants that nobody waited for.
fn unwaited(report: &Report) -> Option<String> {
    let (user_ns, system_ns) = report.rusage_ns?;
    let waited_ns = user_ns.saturating_add(system_ns);
    let sums = report.folded.iter().map(|folded| &folded.figures);
    let all_ns = report.tasks.iter().chain(sums).fold(0, |sum: u64, task| {
        sum.saturating_add(task.reported_user_ns).saturating_add(task.reported_system_ns)
    });
    let missing_ns = all_ns.saturating_sub(waited_ns);
    let running = report.tasks.iter().filter(|task| task.state != "exited").count();
    let still = match running {
        0 => "none is still running".to_owned(),
        1 => "1 is still running".to_owned(),
        count => format!("{count} are still running"),
    };
    (missing_ns > 5_000_000.max(all_ns / 50)).then(|| {
        format!(
            "wait4 reports only {}: {} more were used by descendants that were not waited for ({still}).",
            ms(waited_ns),
            ms(missing_ns),
        )
    })
}

pub(super) fn incomplete(report: &Report) -> Option<String> {
    let trailer = &report.trailer;
    let losses: Vec<String> = [
        (trailer.map_full, "tasks were not observed (no free slot: raise --max-tasks)"),
        (trailer.lost_events, "readings were missed"),
        (trailer.recursion_misses.unwrap_or(0), "hook runs were left out by the kernel"),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!losses.is_empty()).then(|| format!("Incomplete: {}.", losses.join(", ")))
}

pub(super) fn agreement(report: &Report) -> String {
    let ran =
        || report.tasks.iter().filter(|task| task.oncpu_ns != 0 || task.delta_runtime_ns != 0);
    let deltas =
        |pick: fn(&TaskFigures) -> Option<i64>| ran().filter_map(pick).map(i64::unsigned_abs).max();
    let folded = report.folded.iter();
    let total_ns = deltas(|task| Some(task.delta_runtime_ns));
    let Some(total_ns) = total_ns.max(folded.clone().map(|folded| folded.apart_ns).max()) else {
        return "No observed task has run.".to_owned();
    };
    let parts_ns = deltas(|task| task.delta_user_ns).max(deltas(|task| task.delta_system_ns));
    match parts_ns.max(folded.filter_map(|folded| folded.parts_apart_ns).max()) {
        Some(parts_ns) => format!(
            "Reported and measured agree within {} for every task (a tick is {}).",
            ms(parts_ns.max(total_ns)),
            tick(report.header.tick_ns),
        ),
        None => format!(
            "Reported and measured run time agree within {} for every task; user and system are not measured.",
            ms(total_ns)
        ),
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
