//! The sentences under the table: *why*, for the differences that matter, the most important first.

use super::table::ms;
use crate::model::{Report, TaskFigures, report::escape};

/// More would not be read.
const MOST: usize = 6;

/// The sentences.
#[must_use]
pub fn sentences(report: &Report) -> Vec<String> {
    let mut said: Vec<(u64, String)> = Vec::new();
    for task in &report.tasks {
        said.extend(tracee(report, task));
        said.extend(skipped(report, task));
        said.extend(split(report, task));
        said.extend(unclassified(task));
        said.extend(left_out(task));
    }
    said.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let mut sentences: Vec<String> = said.into_iter().map(|(_, text)| text).take(MOST).collect();
    sentences.extend(unwaited(report));
    sentences.extend(incomplete(report));
    if sentences.is_empty() {
        sentences.push(agreement(report));
    }
    sentences
}

fn name(task: &TaskFigures) -> String {
    format!("{} ({})", escape(&task.comm), task.tid)
}

fn percent(part_ns: u64, of_ns: u64) -> f64 {
    part_ns as f64 * 100.0 / of_ns.max(1) as f64
}

/// A difference of the run time matters beyond both 0.5 ms and 2 %.
fn matters(delta_ns: u64, of_ns: u64) -> bool {
    delta_ns > 500_000 && delta_ns > of_ns / 50
}

/// A traced task, and where its time went.
fn tracee(report: &Report, task: &TaskFigures) -> Option<(u64, String)> {
    let tracer_tid = task.tracer_tid?;
    let moved_ns = task.delta_runtime_ns.unsigned_abs();
    let way = if task.delta_runtime_ns < 0 { "too little" } else { "too much" };
    let counts = format!(
        "{} of its {} switches away and {} of those to it skipped the run queue's clock update",
        task.skip_out?,
        task.switches_voluntary + task.switches_involuntary,
        task.skip_in?,
    );
    let tracer = report.tasks.iter().find(|other| other.tid == tracer_tid);
    let other = match tracer {
        Some(tracer) => format!(
            "its tracer {} {} ms too {}",
            name(tracer),
            ms(Some(tracer.delta_runtime_ns.unsigned_abs())),
            if tracer.delta_runtime_ns < 0 { "little" } else { "much" },
        ),
        None => {
            format!("its tracer {tracer_tid} is not observed (observe it too: --pid {tracer_tid})")
        }
    };
    matters(moved_ns, task.oncpu_ns).then(|| {
        let text = format!(
            "Tracee {} was billed {} ms ({:.1} %) {way}, {other}: {counts}.",
            name(task),
            ms(Some(moved_ns)),
            percent(moved_ns, task.oncpu_ns),
        );
        // A traced command is what the reader came for: first.
        (u64::MAX / 2 + moved_ns, text)
    })
}

/// Clock skips of a task that is not traced, and is nobody's tracer here.
fn skipped(report: &Report, task: &TaskFigures) -> Option<(u64, String)> {
    let is_tracer = report.tasks.iter().any(|other| other.tracer_tid == Some(task.tid));
    if task.tracer_tid.is_some() || is_tracer {
        return None;
    }
    let (in_ns, out_ns) = (task.skip_in_ns?, task.skip_out_ns?);
    let moved_ns = in_ns.abs_diff(out_ns);
    matters(moved_ns, task.oncpu_ns).then(|| {
        let text = if in_ns > out_ns {
            format!(
                "{} was billed {} ms ({:.1} %) that idle or other tasks used: {} switches to it skipped the \
                 clock update.",
                name(task),
                ms(Some(moved_ns)),
                percent(moved_ns, task.oncpu_ns),
                task.skip_in.unwrap_or(0),
            )
        } else {
            format!(
                "{} ms ({:.1} %) that {} used were billed to others: {} switches away from it skipped the clock \
                 update.",
                ms(Some(moved_ns)),
                percent(moved_ns, task.oncpu_ns),
                name(task),
                task.skip_out.unwrap_or(0),
            )
        };
        (moved_ns, text)
    })
}

/// The split into user and system by ticks.
fn split(report: &Report, task: &TaskFigures) -> Option<(u64, String)> {
    let delta_ns = task.delta_user_split_ns?;
    let size_ns = delta_ns.unsigned_abs();
    let tick_ns = report.header.tick_ns.max(1);
    if report.header.accounting == "native" || !matters(size_ns, task.oncpu_ns) {
        return None;
    }
    let ticks = (task.raw_utime_ns + task.raw_stime_ns) / tick_ns;
    let rule = match (task.raw_utime_ns, task.raw_stime_ns) {
        (0, 0) => "it was never hit by a tick, so all of its time is reported as user".to_owned(),
        (_, 0) => format!("none of its {ticks} ticks hit the kernel, so all is reported as user"),
        (0, _) => format!("none of its {ticks} ticks hit user mode, so all is reported as system"),
        _ => format!("it rests on {ticks} ticks of {} ms", tick_ns as f64 / 1e6),
    };
    let judgement = if size_ns <= tick_ns { ", within the resolution of one tick" } else { "" };
    let text = format!(
        "The user/system split of {} puts {} ms ({:.1} %) on the wrong side, {} reported as {}{judgement}: {rule}.",
        name(task),
        ms(Some(size_ns)),
        percent(size_ns, task.oncpu_ns),
        if delta_ns > 0 { "system" } else { "user" },
        if delta_ns > 0 { "user" } else { "system" },
    );
    Some((size_ns, text))
}

fn unclassified(task: &TaskFigures) -> Option<(u64, String)> {
    let open_ns = task.unclassified_ns?;
    let user_ns = task.user_ns?;
    matters(open_ns, task.oncpu_ns).then(|| {
        let text = format!(
            "{} ms of {} after page faults are user or system, not known which: its user time lies between {} and \
             {} ms.",
            ms(Some(open_ns)),
            name(task),
            ms(Some(user_ns)),
            ms(Some(user_ns + open_ns)),
        );
        (open_ns, text)
    })
}

fn left_out(task: &TaskFigures) -> Option<(u64, String)> {
    let left_ns = task.left_out_ns?;
    matters(left_ns, task.oncpu_ns).then(|| {
        let text = format!(
            "{} ms ({:.1} %) on the CPU of {} went to interrupts or the hypervisor and are not billed to it.",
            ms(Some(left_ns)),
            percent(left_ns, task.oncpu_ns),
            name(task),
        );
        (left_ns, text)
    })
}

/// What `wait4` misses: descendants that nobody waited for.
fn unwaited(report: &Report) -> Option<String> {
    let (user_ns, system_ns) = report.rusage_ns?;
    let waited_ns = user_ns + system_ns;
    let all_ns: u64 = report.tasks.iter().map(|task| task.reported_runtime_ns).sum();
    let missing_ns = all_ns.saturating_sub(waited_ns);
    (missing_ns > 5_000_000.max(all_ns / 50)).then(|| {
        let running = report.tasks.iter().filter(|task| task.state == "running").count();
        format!(
            "wait4 reports {} ms for the command; {} ms more were used by descendants that nobody waited for \
             ({running} still running).",
            ms(Some(waited_ns)),
            ms(Some(missing_ns)),
        )
    })
}

fn incomplete(report: &Report) -> Option<String> {
    let trailer = &report.trailer;
    (trailer.map_full + trailer.lost_events != 0).then(|| {
        format!(
            "Incomplete: {} tasks were not observed (raise --max-tasks), {} readings were missed.",
            trailer.map_full, trailer.lost_events
        )
    })
}

fn agreement(report: &Report) -> String {
    let largest = report
        .tasks
        .iter()
        .flat_map(|task| [Some(task.delta_runtime_ns), task.delta_user_ns])
        .flatten()
        .map(i64::unsigned_abs)
        .max();
    match largest {
        None => "No observed task has run.".to_owned(),
        Some(ns) => format!(
            "Reported and measured agree within {} ms for every task (a tick is {} ms).",
            ms(Some(ns)),
            report.header.tick_ns as f64 / 1e6
        ),
    }
}
