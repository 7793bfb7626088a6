//! The verdict on the screen, and plain lines for each interval.

use std::{collections::HashMap, fmt::Write as _};

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::model::{Header, Report, TaskFigures, Trailer, report::escape};

/// Blocks between two headers of the interval view.
const BLOCKS_PER_HEADER: u64 = 20;
const BOLD: Style = Style::new().bold();
const WARN: Style = AnsiColor::Yellow.on_default();
/// From this width on there is room for one line per task.
const WIDE: usize = 138;

/// The whole screen.
#[must_use]
pub fn render(report: &Report, width: usize, top: usize, color: bool) -> String {
    let mut text = String::new();
    header(&mut text, &report.header, width);
    text.push('\n');
    let rows = rows(&report.tasks, top.max(1));
    if width >= WIDE {
        wide(&mut text, &rows, color);
    } else {
        narrow(&mut text, &rows, width, color);
    }
    if !report.sentences.is_empty() {
        text.push('\n');
    }
    for sentence in &report.sentences {
        wrap(&mut text, sentence, width);
    }
    text.push('\n');
    footer(&mut text, &report.trailer, width);
    text
}

fn header(text: &mut String, header: &Header, width: usize) {
    let active = header.hooks.iter().filter(|hook| hook.state == "active").count();
    let line = format!(
        "observer {} · Linux {} {} · accounting {}, HZ {} (± {} ms) · preempt {} · {} of {} hooks active",
        header.version,
        header.kernel,
        header.arch,
        header.accounting,
        header.hz,
        header.tick_ns as f64 / 1e6,
        header.preempt,
        active,
        header.hooks.len(),
    );
    wrap(text, &line, width);
    // Hooks that lose the same thing share a line.
    let mut lost: Vec<(String, Vec<&str>)> = Vec::new();
    for hook in header.hooks.iter().filter(|hook| hook.state != "active") {
        let why = format!(
            "{}: {}; lost: {}",
            hook.state,
            hook.reason.as_deref().unwrap_or("unknown"),
            hook.lost.as_deref().unwrap_or("nothing"),
        );
        match lost.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&hook.name),
            None => lost.push((why, vec![&hook.name])),
        }
    }
    for (why, names) in lost {
        wrap(text, &format!("without {} ({why})", names.join(", ")), width);
    }
}

/// One row: a task, or a sum.
struct Row {
    tid: String,
    name: String,
    figures: TaskFigures,
}

fn rows(tasks: &[TaskFigures], top: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = tasks.iter().take(top).map(row).collect();
    let rest = tasks.get(top..).unwrap_or(&[]);
    if !rest.is_empty() {
        let name = format!("{} other tasks", rest.len());
        rows.push(Row { tid: String::new(), name, figures: sum(rest) });
    }
    if tasks.len() > 1 {
        let name = format!("all {} tasks", tasks.len());
        rows.push(Row { tid: String::new(), name, figures: sum(tasks) });
    }
    rows
}

fn row(task: &TaskFigures) -> Row {
    Row { tid: task.tid.to_string(), name: escape(&task.comm), figures: task.clone() }
}

/// The exact sum of what the table shows; a part that one task does not have, the sum does not have.
fn sum(tasks: &[TaskFigures]) -> TaskFigures {
    let add = |pick: fn(&TaskFigures) -> Option<u64>| tasks.iter().map(pick).sum::<Option<u64>>();
    let add_signed =
        |pick: fn(&TaskFigures) -> Option<i64>| tasks.iter().map(pick).sum::<Option<i64>>();
    TaskFigures {
        oncpu_ns: tasks.iter().map(|task| task.oncpu_ns).sum(),
        user_ns: add(|task| task.user_ns),
        system_ns: add(|task| task.system_ns),
        hardirq_ns: add(|task| task.hardirq_ns),
        softirq_ns: add(|task| task.softirq_ns),
        unclassified_ns: add(|task| task.unclassified_ns),
        reported_user_ns: tasks.iter().map(|task| task.reported_user_ns).sum(),
        reported_system_ns: tasks.iter().map(|task| task.reported_system_ns).sum(),
        reported_runtime_ns: tasks.iter().map(|task| task.reported_runtime_ns).sum(),
        delta_user_ns: add_signed(|task| task.delta_user_ns),
        delta_system_ns: add_signed(|task| task.delta_system_ns),
        delta_runtime_ns: tasks.iter().map(|task| task.delta_runtime_ns).sum(),
        skip_in_ns: add(|task| task.skip_in_ns),
        skip_out_ns: add(|task| task.skip_out_ns),
        ..TaskFigures::default()
    }
}

/// Measured, reported, difference.
type Triple = (Option<u64>, u64, Option<i64>);

/// Interrupts are part of the system time that the kernel reports, and so of the measured side here.
fn triples(task: &TaskFigures) -> [(&'static str, Triple); 3] {
    let system_ns =
        task.system_ns.map(|ns| ns + task.hardirq_ns.unwrap_or(0) + task.softirq_ns.unwrap_or(0));
    [
        ("user", (task.user_ns, task.reported_user_ns, task.delta_user_ns)),
        ("system", (system_ns, task.reported_system_ns, task.delta_system_ns)),
        ("total", (Some(task.oncpu_ns), task.reported_runtime_ns, Some(task.delta_runtime_ns))),
    ]
}

fn narrow(text: &mut String, rows: &[Row], width: usize, color: bool) {
    let name_width = width.saturating_sub(60).clamp(0, 15);
    let title = format!(
        "{:>7} {} {:<6} {:>10} {:>10} {:>10} {:>10}",
        "TID",
        pad("NAME", name_width),
        "ms",
        "measured",
        "reported",
        "difference",
        "skip",
    );
    line(text, &title, BOLD, color);
    for row in rows {
        let skips = [("in", row.figures.skip_in_ns), ("out", row.figures.skip_out_ns), ("", None)];
        for (index, ((what, (own, reported, delta)), (way, skip))) in
            triples(&row.figures).into_iter().zip(skips).enumerate()
        {
            let (tid, name) = match index {
                0 if name_width == 0 => (row.tid.as_str(), String::new()),
                0 => (row.tid.as_str(), pad(&row.name, name_width)),
                1 if row.figures.state == "exited" => ("", pad("(exited)", name_width)),
                _ => ("", pad("", name_width)),
            };
            let skip =
                if way.is_empty() { String::new() } else { format!("{way} {}", short(skip)) };
            let content = format!(
                "{tid:>7} {name} {what:<6} {:>10} {:>10} {:>10} {skip:>10}",
                ms(own),
                ms(Some(reported)),
                signed_ms(delta),
            );
            line(text, content.trim_end(), style(own, delta), color);
        }
    }
}

fn wide(text: &mut String, rows: &[Row], color: bool) {
    let group = format!(
        "{:>7} {:<16}{:^31} {:^31} {:^31}{:>17}",
        "", "", "user ms", "system ms", "total ms", "clock skip ms"
    );
    line(text, group.trim_end(), BOLD, color);
    let part = format!("{:>10} {:>10} {:>9}", "measured", "reported", "diff");
    let title = format!("{:>7} {:<16}{part} {part} {part} {:>8} {:>8}", "TID", "NAME", "in", "out");
    line(text, &title, BOLD, color);
    for row in rows {
        let mut content = format!("{:>7} {} ", row.tid, pad(&row.name, 15));
        let mut worst = Style::new();
        for (_, (own, reported, delta)) in triples(&row.figures) {
            let _ = write!(
                content,
                "{:>10} {:>10} {:>9} ",
                ms(own),
                ms(Some(reported)),
                signed_ms(delta)
            );
            if style(own, delta) != Style::new() {
                worst = WARN;
            }
        }
        let _ = write!(
            content,
            "{:>8} {:>8}",
            short(row.figures.skip_in_ns),
            short(row.figures.skip_out_ns)
        );
        line(text, &content, worst, color);
    }
}

/// A difference stands out when it is beyond both 5 % and 1 ms.
fn style(own: Option<u64>, delta: Option<i64>) -> Style {
    match (own, delta) {
        (Some(own), Some(delta))
            if delta.unsigned_abs() > 1_000_000 && delta.unsigned_abs() > own / 20 =>
        {
            WARN
        }
        _ => Style::new(),
    }
}

fn footer(text: &mut String, trailer: &Trailer, width: usize) {
    let hooks = trailer.hook_ns.map_or("-".to_owned(), |ns| format!("{} ms", ms(Some(ns))));
    wrap(
        text,
        &format!(
            "observer itself: {} ms CPU, hooks ran {} times ({hooks}) in {} ms",
            ms(Some(trailer.observer_cpu_ns)),
            trailer.hook_runs,
            ms(Some(trailer.elapsed_ns)),
        ),
        width,
    );
    let lost: Vec<String> = [
        (trailer.map_full, "tasks not observed (raise --max-tasks)"),
        (trailer.lost_events, "readings missed"),
        (trailer.recursion_misses.unwrap_or(0), "hook runs left out by the kernel"),
        (trailer.clock_jumps, "switches with a clock that jumped"),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    let lost = if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") };
    let residual = signed_ms(trailer.residual_ns);
    wrap(text, &format!("lost: {lost}; residual that no cause explains: {residual} ms"), width);
}

/// One interval: what was added to each task since the last reading.
///
/// `number` counts from 0; the header comes with the first block and every 20 blocks.
#[must_use]
pub fn interval_block(
    before: &[TaskFigures],
    now: &[TaskFigures],
    elapsed_ns: u64,
    number: u64,
    width: usize,
) -> String {
    let mut text = String::new();
    let name_width = width.saturating_sub(65).clamp(0, 15);
    if number.is_multiple_of(BLOCKS_PER_HEADER) {
        let _ = writeln!(
            text,
            "{:>7} {} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6}",
            "TID",
            pad("NAME", name_width),
            "usr%",
            "rep%",
            "sys%",
            "rep%",
            "cpu%",
            "diff ms",
            "skip+",
            "skip-",
        );
    }
    let known: HashMap<(u32, u64), &TaskFigures> =
        before.iter().map(|task| ((task.tid, task.opened_ns), task)).collect();
    let none = TaskFigures::default();
    for task in now {
        let then = known.get(&(task.tid, task.opened_ns)).copied().unwrap_or(&none);
        let grown = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or(0)))
        };
        let oncpu_ns = task.oncpu_ns.saturating_sub(then.oncpu_ns);
        if task.state == "exited" && oncpu_ns == 0 {
            continue;
        }
        let share = |ns: Option<u64>| {
            ns.map_or("-".to_owned(), |ns| {
                format!("{:.1}", ns as f64 * 100.0 / elapsed_ns.max(1) as f64)
            })
        };
        let _ = writeln!(
            text,
            "{:>7} {} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>6}",
            task.tid,
            pad(&escape(&task.comm), name_width),
            share(grown(task.user_ns, then.user_ns)),
            share(grown(Some(task.reported_user_ns), Some(then.reported_user_ns))),
            share(grown(task.system_ns, then.system_ns)),
            share(grown(Some(task.reported_system_ns), Some(then.reported_system_ns))),
            share(Some(oncpu_ns)),
            signed_ms(Some(task.delta_runtime_ns - then.delta_runtime_ns)),
            short(grown(task.skip_in_ns, then.skip_in_ns)),
            short(grown(task.skip_out_ns, then.skip_out_ns)),
        );
    }
    text
}

/// Milliseconds with three decimals; `-` for not measured.
#[must_use]
pub fn ms(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

/// The same with its sign.
#[must_use]
pub fn signed_ms(ns: Option<i64>) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:+.3}", ns as f64 / 1e6))
}

/// Milliseconds in at most six characters.
fn short(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(0) => "0".to_owned(),
        Some(ns) if ns < 100_000_000 => format!("{:.2}", ns as f64 / 1e6),
        Some(ns) => format!("{:.0}", ns as f64 / 1e6),
    }
}

/// Cut or filled to a width in terminal cells.
fn pad(name: &str, width: usize) -> String {
    let full = name.width();
    if full <= width {
        return format!("{name}{}", " ".repeat(width - full));
    }
    let mut text = String::new();
    let mut used = 0;
    for character in name.chars() {
        let cells = character.width().unwrap_or(0);
        if used + cells + 1 > width {
            break;
        }
        text.push(character);
        used += cells;
    }
    if used < width {
        text.push('…');
        used += 1;
    }
    text.push_str(&" ".repeat(width.saturating_sub(used)));
    text
}

fn line(text: &mut String, content: &str, style: Style, color: bool) {
    let _ = if color && style != Style::new() {
        writeln!(text, "{style}{content}{style:#}")
    } else {
        writeln!(text, "{content}")
    };
}

/// Breaks a sentence between words.
fn wrap(text: &mut String, sentence: &str, width: usize) {
    let mut used = 0;
    for word in sentence.split(' ') {
        let cells = word.width();
        if used != 0 && used + 1 + cells > width {
            text.push('\n');
            text.push_str("  ");
            used = 2;
        } else if used != 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += cells;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::SCHEMA;

    fn report(names: &[&[u8]]) -> Report {
        let tasks = names
            .iter()
            .enumerate()
            .map(|(index, name)| TaskFigures {
                tid: 4_194_300 + index as u32,
                comm: name.to_vec(),
                state: "exited",
                oncpu_ns: 123_456_789_012,
                user_ns: Some(100_000_000_000),
                system_ns: Some(23_456_789_012),
                reported_user_ns: 110_000_000_000,
                delta_user_ns: Some(10_000_000_000),
                skip_in_ns: Some(7_000_000),
                ..TaskFigures::default()
            })
            .collect();
        let header = Header {
            schema: SCHEMA.to_owned(),
            version: "0.1.0".to_owned(),
            kernel: "6.18.44".to_owned(),
            arch: "x86_64".to_owned(),
            hz: 250,
            tick_ns: 4_000_000,
            accounting: "tick".to_owned(),
            preempt: "none".to_owned(),
            cpus: 2,
            clock: "CLOCK_MONOTONIC".to_owned(),
            clocksource: "tsc".to_owned(),
            started_unix_ns: 0,
            started_ns: 0,
            hooks: Vec::new(),
            crossing_costs_ns: Vec::new(),
            target: String::new(),
        };
        let sentences = vec!["a sentence of many words ".repeat(12).trim().to_owned()];
        let trailer = Trailer::default();
        Report { header, tasks, cpus: Vec::new(), trailer, sentences, rusage_ns: None }
    }

    #[test]
    fn every_line_fits() {
        let report = report(&[b"bash", b"\x1b[31m\n\x07 evil", "日本語の名前".as_bytes(), b"x"]);
        for width in [60, 80, 100, 138, 250] {
            for line in render(&report, width, 2, false).lines() {
                assert!(line.width() <= width, "{width}: {} cells: {line}", line.width());
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }

    #[test]
    fn the_rest_is_summed_exactly() {
        let report = report(&[b"a", b"b", b"c"]);
        let rows = rows(&report.tasks, 1);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1].name, "2 other tasks");
        assert_eq!(rows[1].figures.oncpu_ns, 2 * 123_456_789_012);
        assert_eq!(rows[2].figures.delta_user_ns, Some(30_000_000_000));
    }

    #[test]
    fn not_measured_is_a_dash() {
        assert_eq!(ms(None), "-");
        assert_eq!(signed_ms(Some(-1_500)), "-0.002");
        assert_eq!(pad("日本語", 5), "日本…");
    }
}
