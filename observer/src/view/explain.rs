//! Why the figures of a task differ, in a paragraph that one can act on: how much, which way, by whom, by which
//! mechanism, and what would give a reliable number here.
//!
//! Each clause has a condition: what was not measured or is not known is not claimed.

use std::{cmp::Reverse, fmt::Write as _};

mod advice;
mod partner;

use self::{advice::advice, partner::Partner};
use super::{
    text::{fill, ms, tick, wrap},
    tracer,
    verdict::{self, matters, name, share},
};
use crate::model::{
    Causes, Report, TaskFigures,
    causes::{Source, SplitIs, is_bound},
};

/// More would not be read.
const MOST: usize = 6;

/// Everything there is to explain, in lines of at most `width` cells (from 60 on).
#[must_use]
pub fn render(report: &Report, width: usize) -> String {
    let header = &report.header;
    let parts = [
        format!("Linux {} {}", header.kernel, header.arch),
        format!("accounting {}, HZ {} (± {})", header.accounting, header.hz, tick(header.tick_ns)),
        format!("preempt {}", header.preempt),
        format!("{} CPUs", header.cpus),
    ]
    .map(|part| super::text::clean(&part));
    let mut text = String::new();
    fill(&mut text, &parts.each_ref().map(String::as_str), " · ", width);
    for paragraph in paragraphs(report) {
        text.push('\n');
        wrap(&mut text, &paragraph, width);
    }
    text
}

/// One paragraph for each task that matters, the largest difference first; without one, what agrees.
#[must_use]
pub fn paragraphs(report: &Report) -> Vec<String> {
    let mut tasks: Vec<&TaskFigures> = report
        .tasks
        .iter()
        .filter(|task| matters(&report.header, size(task), task.oncpu_ns))
        .collect();
    tasks.sort_by_key(|task| Reverse(size(task)));
    let more = tasks.len().saturating_sub(MOST);
    let mut paragraphs: Vec<String> = Vec::new();
    let mut given: Vec<String> = Vec::new();
    for task in tasks.iter().take(MOST) {
        let paragraph = Paragraph::new(report, task);
        let mut text = paragraph.text();
        let ways = advice(&paragraph);
        let (known, mut new): (Vec<String>, Vec<String>) =
            ways.into_iter().partition(|way| given.contains(way));
        given.extend(new.iter().cloned());
        if !known.is_empty() {
            new.insert(0, "see above".to_owned());
        }
        if !new.is_empty() {
            let _ = write!(text, " For a report that is nearer, {}.", new.join("; or "));
        }
        paragraphs.push(text);
    }
    if more != 0 {
        paragraphs.push(format!("{more} more tasks with smaller differences are left out."));
    }
    paragraphs.push(if tasks.is_empty() { verdict::agreement(report) } else { reliable(&tasks) });
    paragraphs.extend(verdict::incomplete(report));
    paragraphs
}

/// What does not depend on how the kernel bills.
fn reliable(tasks: &[&TaskFigures]) -> String {
    let known = tasks.iter().filter(|task| task.user_ns.is_some() && !is_bound(task)).count();
    let what = match known {
        0 => "the run time (user and system are not known here)",
        known if known < tasks.len() => "the run time, and user and system where they are known,",
        _ => "user, system and total",
    };
    format!(
        "For a reliable number here, take {what} from observer's measured columns: none of this is in them."
    )
}

fn size(task: &TaskFigures) -> u64 {
    task.delta_runtime_ns.unsigned_abs().max(task.delta_user_ns.map_or(0, i64::unsigned_abs))
}

/// What moved most of a task's run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Skip,
    Path,
    LeftOut,
    Residual,
}

struct Paragraph<'a> {
    report: &'a Report,
    task: &'a TaskFigures,
    causes: Causes,
    /// True where the run time itself differs enough to speak of it.
    total_matters: bool,
    mechanism: Option<Mechanism>,
    partner: Option<Partner<'a>>,
}

impl<'a> Paragraph<'a> {
    fn new(report: &'a Report, task: &'a TaskFigures) -> Self {
        let causes = Causes::of(task, Source::of(&report.header));
        let total_ns = task.delta_runtime_ns.unsigned_abs();
        let total_matters = matters(&report.header, total_ns, task.oncpu_ns);
        let mechanism = mechanism(&causes).filter(|_| total_matters);
        let moved = matches!(mechanism, Some(Mechanism::Skip | Mechanism::Path));
        let partner = if moved { partner::main(report, task, causes.total_ns) } else { None };
        Self { report, task, causes, total_matters, mechanism, partner }
    }

    fn text(&self) -> String {
        let mut text = format!("{}: ", name(self.task));
        self.total(&mut text);
        self.moved(&mut text);
        self.split(&mut text);
        self.cycles(&mut text);
        self.stops(&mut text);
        text
    }

    /// How much, and which way.
    fn total(&self, text: &mut String) {
        let task = self.task;
        let amount = |delta_ns: i64, own_ns: u64| share(delta_ns.unsigned_abs(), own_ns);
        let way = |delta_ns: i64| if delta_ns < 0 { "less" } else { "more" };
        if self.total_matters {
            let _ = write!(
                text,
                "the kernel reports {} {} run time than it used ({} for {}).",
                amount(task.delta_runtime_ns, task.oncpu_ns),
                way(task.delta_runtime_ns),
                ms(task.reported_runtime_ns),
                ms(task.oncpu_ns),
            );
        } else {
            let _ = write!(
                text,
                "its run time is right within {}.",
                ms(task.delta_runtime_ns.unsigned_abs())
            );
        }
        if let (Some(delta_ns), Some(user_ns)) = (task.delta_user_ns, task.user_ns)
            && !self.causes.user_is_bound
            && matters(&self.report.header, delta_ns.unsigned_abs(), task.oncpu_ns)
        {
            let _ = write!(
                text,
                " It reports {} {} user time than was measured ({} for {}).",
                amount(delta_ns, user_ns),
                way(delta_ns),
                ms(task.reported_user_ns),
                ms(user_ns),
            );
        }
    }

    /// By whom, and by which mechanism.
    fn moved(&self, text: &mut String) {
        let (Some(mechanism), Some(parts)) = (self.mechanism, self.causes.parts) else {
            if self.total_matters {
                text.push_str(" Its causes are not measured here.");
            }
            return;
        };
        let size = |ns: i128| ms(u64::try_from(ns.unsigned_abs()).unwrap_or(u64::MAX));
        match (mechanism, &self.partner) {
            (Mechanism::Skip | Mechanism::Path, Some(partner)) => {
                let _ = write!(text, " {}", partner.sentence(self.causes.total_ns));
            }
            (Mechanism::Skip, None) => {
                let (count, way) = if parts.skip_ns.is_some_and(|ns| ns < 0) {
                    (self.task.skip_out.unwrap_or(0), "away from")
                } else {
                    (self.task.skip_in.unwrap_or(0), "to")
                };
                let _ = write!(
                    text,
                    " {} moved with {count} switches {way} it whose clock update was skipped; which task is on \
                     the other side is not recorded.",
                    size(parts.skip_ns.unwrap_or(0)),
                );
            }
            (Mechanism::Path, None) => {
                let _ = write!(
                    text,
                    " {} moved on the path of its ordinary switches: the kernel reads its clock before the switch \
                     is done.",
                    size(parts.path_ns),
                );
            }
            (Mechanism::LeftOut, _) => {
                let _ = write!(
                    text,
                    " {} on its CPU went to interrupts or to the hypervisor (steal), which this kernel leaves out of \
                     a task's run time.",
                    size(parts.left_out_ns),
                );
            }
            (Mechanism::Residual, _) => {
                let _ = write!(
                    text,
                    " No measured cause explains {}: measure again before you trust it.",
                    size(parts.residual_ns),
                );
            }
        }
    }

    /// What the split into user and system adds.
    fn split(&self, text: &mut String) {
        if self.causes.user_is_bound {
            let _ = write!(text, " {}", verdict::borders(self.task).unwrap_or_default());
            return;
        }
        let (Some(user), Some(word)) = (self.causes.user, self.causes.split_is()) else { return };
        let size_ns = u64::try_from(user.split_part_ns.unsigned_abs()).unwrap_or(u64::MAX);
        if !matters(&self.report.header, size_ns, self.task.oncpu_ns) {
            return;
        }
        let quantum = tick(self.causes.quantum_ns);
        let rests = match self.causes.ticks {
            None => format!("this kernel times each crossing, but books whole ticks (± {quantum})"),
            Some(0) => "no tick hit it, so all of its time counts as one of the two".to_owned(),
            Some(1) => format!("it rests on one tick, worth {quantum}"),
            Some(ticks) => format!("it rests on {ticks} ticks, each worth {quantum}"),
        };
        let verdict = match word {
            SplitIs::WithinResolution => "That is within resolution.".to_owned(),
            SplitIs::WithinScatter => format!(
                "So many samples scatter by ± {}: that is chance.",
                ms(self.causes.scatter_ns)
            ),
            // Not the kernel's ticks alone: what was subtracted is more than what is left.
            SplitIs::BeyondBoth if self.task.crossing_ns > self.task.user_ns => format!(
                "The measured side rests on {} borders that no hook sees, {} by calibration.",
                self.task.crossings.unwrap_or(0),
                ms(self.task.crossing_ns.unwrap_or(0)),
            ),
            SplitIs::BeyondBoth if self.causes.ticks == Some(0) => {
                format!("That is more than its resolution (± {quantum}).")
            }
            SplitIs::BeyondBoth => {
                "That is more than chance would make of so many samples.".to_owned()
            }
        };
        let what =
            if user.split_part_ns < 0 { "user time as system" } else { "system time as user" };
        let _ = write!(
            text,
            " The split into user and system counts {} of {what}: {rests}. {verdict}",
            share(size_ns, self.task.oncpu_ns),
        );
    }

    /// The second witness of the split, on a machine with a PMU.
    fn cycles(&self, text: &mut String) {
        let task = self.task;
        if let (Some(time), Some(cycles)) =
            (task.user_percent_by_time(), task.user_percent_by_cycles())
        {
            let _ = write!(
                text,
                " User mode had {cycles:.1} % of its cycles, and {time:.1} % of its time."
            );
        }
    }

    fn stops(&self, text: &mut String) {
        let task = self.task;
        if task.ptrace_stops != 0 {
            let by = task.tracer_tid.map_or_else(String::new, |tid| format!(" by tracer {tid}"));
            let _ = write!(
                text,
                " It was stopped {} times{by}, for {} in all, which is no CPU time.",
                task.ptrace_stops,
                ms(task.ptrace_stopped_ns),
            );
        }
    }
}

/// The largest cause that points the way of the whole.
fn mechanism(causes: &Causes) -> Option<Mechanism> {
    let parts = causes.parts?;
    [
        (Mechanism::Skip, parts.skip_ns.unwrap_or(0)),
        (Mechanism::Path, parts.path_ns),
        (Mechanism::LeftOut, parts.left_out_ns),
        (Mechanism::Residual, parts.residual_ns),
    ]
    .into_iter()
    .filter(|(_, ns)| ns.signum() == causes.total_ns.signum())
    .max_by_key(|(_, ns)| ns.unsigned_abs())
    .map(|(mechanism, _)| mechanism)
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
