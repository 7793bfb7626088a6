//! The verdict on the screen.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

pub use super::interval::{interval_block, interval_title, interval_unshown};
use super::{
    causes, groups, pairs,
    rows::{Row, rows},
    text::{Scale, clean, cut, fill, pad, tick, wrap},
};
use crate::model::{Group, Header, Report, TaskFigures, Trailer};

/// From this width on, a task has one line if its figures fit.
const WIDE: usize = 120;
/// A tid has at most seven digits.
const TID: usize = 7;
/// A thread name has at most 15 bytes; names of sums may be longer.
const NAME_MOST: usize = 18;
/// As much of a name in the wide layout as still tells tasks apart.
const NAME_LEAST_WIDE: usize = 10;
/// `system`.
const LABEL: usize = 6;
/// `+999.9 %`.
const PERCENT: usize = 8;
/// As wide as half of ` clock skip ` over two columns.
const SKIP: &str = "-0.000";
/// Names of inactive hooks that are spelled out.
const HOOKS_NAMED: usize = 3;

const BOLD: Style = Style::new().bold();
const LARGE: Style = AnsiColor::Yellow.on_default();
const HUGE: Style = AnsiColor::Red.on_default();

/// How the verdict is to look.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Cells in a line, from 60 on.
    pub width: usize,
    /// This many tasks (or groups) with most on-CPU time have rows of their own; the others share one, with
    /// exact sums.
    pub top: usize,
    /// Pairs of each kind; 0 for none.
    pub pairs: usize,
    /// If there are any, the rows are these groups.
    pub groups: &'a [Group],
    /// Colour only adds: nothing is said by it alone.
    pub color: bool,
}

/// Everything there is to say.
#[must_use]
pub fn render(report: &Report, look: &Look<'_>) -> String {
    let (width, color) = (look.width, look.color);
    let mut text = String::new();
    header(&mut text, &report.header, width);
    text.push('\n');
    let rows = rows(&report.tasks, &report.folded, look.groups, look.top.max(1));
    if !rows.is_empty() {
        tasks(&mut text, &rows, width, color);
        text.push('\n');
    }
    for block in [
        groups::cgroups(look.groups, look.top.max(1), width),
        causes::block(&report.header, &rows, width),
        pairs::block(&report.pairs, look.pairs, width),
    ] {
        if !block.is_empty() {
            text.push_str(&block);
            text.push('\n');
        }
    }
    for sentence in &report.sentences {
        wrap(&mut text, sentence, width);
    }
    if !report.sentences.is_empty() {
        text.push('\n');
    }
    footer(&mut text, &report.trailer, width);
    text
}

fn header(text: &mut String, header: &Header, width: usize) {
    let active = header.hooks.iter().filter(|hook| hook.state == "active").count();
    let parts = [
        format!("observer {}", header.version),
        format!("Linux {} {}", header.kernel, header.arch),
        format!("accounting {}, HZ {} (± {})", header.accounting, header.hz, tick(header.tick_ns)),
        format!("preempt {}", header.preempt),
        format!("{active} of {} hooks active", header.hooks.len()),
    ]
    .map(|part| clean(&part));
    fill(text, &parts.each_ref().map(String::as_str), " · ", width);
    if let Some(line) = off(header) {
        wrap(text, &line, width);
    }
    // What is lost is the news; hooks that lose the same share a line, such as the ten x86 vectors elsewhere.
    let mut groups: Vec<(&str, Vec<&str>, &str, &str)> = Vec::new();
    let lacking =
        || header.hooks.iter().filter(|hook| !matches!(hook.state.as_str(), "active" | "off"));
    for hook in lacking().filter(|hook| !hook.refines) {
        let lost = hook.lost.as_deref().unwrap_or("not known");
        let reason = hook.reason.as_deref().unwrap_or("no reason known");
        match groups.iter_mut().find(|group| group.0 == lost && group.2 == hook.state) {
            Some(group) => group.1.push(&hook.name),
            None => groups.push((lost, vec![&hook.name], &hook.state, reason)),
        }
    }
    for (lost, names, state, reason) in groups {
        let mut list = names[..names.len().min(HOOKS_NAMED)].join(", ");
        if names.len() > HOOKS_NAMED {
            let _ = write!(list, " and {} more", names.len() - HOOKS_NAMED);
        }
        wrap(text, &format!("{list} {state} ({reason}); what is lost: {lost}"), width);
    }
    let refining = lacking().filter(|hook| hook.refines).count();
    if refining > 0 {
        let words = format!(
            "{refining} hooks that only refine what others give are not active: observer doctor says why"
        );
        wrap(text, &words, width);
    }
}

/// Hooks that an option left out, by option: the user knows what for. `None` where there is none but those that are
/// attached on request only.
fn off(header: &Header) -> Option<String> {
    let mut options: Vec<(&str, usize)> = Vec::new();
    for hook in header.hooks.iter().filter(|hook| hook.state == "off" && !hook.refines) {
        let reason = hook.reason.as_deref().unwrap_or("by an option");
        // What follows the option says what it means for this hook: observer doctor has room for it.
        let reason = reason.split([';', ':']).next().unwrap_or(reason);
        match options.iter_mut().find(|option| option.0 == reason) {
            Some(option) => option.1 += 1,
            None => options.push((reason, 1)),
        }
    }
    let parts: Vec<_> =
        options.iter().map(|(reason, count)| format!("{count} {}", clean(reason))).collect();
    (!parts.is_empty()).then(|| format!("hooks off: {}", parts.join("; ")))
}

/// Interrupts are part of the system time that the kernel reports, and so of the measured side here.
pub(super) fn system(task: &TaskFigures) -> Option<u64> {
    let interrupts_ns = task.hardirq_ns.unwrap_or(0).saturating_add(task.softirq_ns.unwrap_or(0));
    Some(task.system_ns?.saturating_add(interrupts_ns))
}

/// Measured, reported and their difference, as shown.
struct Line {
    own: String,
    reported: String,
    delta: String,
    percent: String,
    style: Style,
}

/// A row in one scale.
struct Block<'a> {
    row: &'a Row,
    /// User, system, total.
    lines: [Line; 3],
    skips: [String; 2],
    unclassified: Option<String>,
}

impl<'a> Block<'a> {
    fn new(row: &'a Row, scale: Scale) -> Self {
        let task = &row.figures;
        let line = |own_ns: Option<u64>, reported_ns: u64, delta_ns: Option<i64>| Line {
            own: scale.show(own_ns),
            reported: scale.show(Some(reported_ns)),
            delta: scale.signed(delta_ns),
            percent: percent(own_ns, delta_ns),
            style: style(own_ns, delta_ns),
        };
        Self {
            row,
            lines: [
                line(task.user_ns, task.reported_user_ns, task.delta_user_ns),
                line(system(task), task.reported_system_ns, task.delta_system_ns),
                line(Some(task.oncpu_ns), task.reported_runtime_ns, Some(task.delta_runtime_ns)),
            ],
            skips: [scale.show(task.skip_in_ns), scale.show(task.skip_out_ns)],
            unclassified: task
                .unclassified_ns
                .filter(|ns| scale.shows(*ns))
                .map(|ns| format!("± {}", scale.show(Some(ns)))),
        }
    }
}

/// The difference in percent of what was measured.
fn percent(own_ns: Option<u64>, delta_ns: Option<i64>) -> String {
    match (own_ns, delta_ns) {
        (Some(own_ns), Some(delta_ns)) if own_ns != 0 => {
            let percent = delta_ns as f64 * 100.0 / own_ns as f64;
            match percent.abs() {
                size if size < 0.05 => "0.0 %".to_owned(),
                size if size < 999.95 => format!("{percent:+.1} %"),
                size if size < 9_999.5 => format!("{percent:+.0} %"),
                _ => "> 9999 %".to_owned(),
            }
        }
        _ => "-".to_owned(),
    }
}

/// A difference stands out beyond both 5 % and 1 ms, and more so beyond 20 %.
fn style(own_ns: Option<u64>, delta_ns: Option<i64>) -> Style {
    match (own_ns, delta_ns.map(i64::unsigned_abs)) {
        (Some(own_ns), Some(size_ns)) if size_ns > 1_000_000 && size_ns > own_ns / 5 => HUGE,
        (Some(own_ns), Some(size_ns)) if size_ns > 1_000_000 && size_ns > own_ns / 20 => LARGE,
        _ => Style::new(),
    }
}

/// The first layout and scale that fit.
fn tasks(text: &mut String, rows: &[Row], width: usize, color: bool) {
    let largest_ns = rows
        .iter()
        .map(|row| row.figures.oncpu_ns.max(row.figures.reported_runtime_ns))
        .max()
        .unwrap_or(0);
    let blocks = |scale: Scale| -> Vec<Block<'_>> {
        rows.iter().map(|row| Block::new(row, scale)).collect()
    };
    let scale = Scale::for_largest(largest_ns);
    if width >= WIDE && wide(text, &blocks(scale), scale, width, color) {
        return;
    }
    let scales = [scale, Scale::COARSE, Scale::SECONDS, Scale::WHOLE];
    for scale in scales {
        if narrow(text, &blocks(scale), scale, width, true, color) {
            return;
        }
    }
    narrow(text, &blocks(Scale::WHOLE), Scale::WHOLE, width, false, color);
}

/// The widest of the cells and the title.
fn widest<'a>(title: &str, cells: impl Iterator<Item = &'a String>) -> usize {
    cells.map(|cell| cell.chars().count()).chain([title.len()]).max().unwrap_or(0)
}

/// Three lines per task; false if they do not fit.
fn narrow(
    text: &mut String,
    blocks: &[Block<'_>],
    scale: Scale,
    width: usize,
    with_skips: bool,
    color: bool,
) -> bool {
    let lines = || blocks.iter().flat_map(|block| &block.lines);
    let own = widest("measured", lines().map(|line| &line.own));
    let reported = widest("reported", lines().map(|line| &line.reported));
    let delta = widest("difference", lines().map(|line| &line.delta));
    let skip = widest("", blocks.iter().flat_map(|block| &block.skips)).max(6);
    let skips = if with_skips { 2 + 4 + skip } else { 0 };
    let least = 1 + LABEL + 1 + own + 1 + reported + 1 + delta + skips;
    if with_skips && least + TID > width {
        return false;
    }
    let room = width.saturating_sub(least);
    // A column for the percentage, if the names keep as much as a thread name needs.
    let with_percent = room >= 15 + 1 + PERCENT;
    let name = (room - if with_percent { 1 + PERCENT } else { 0 }).min(NAME_MOST);
    let percent =
        |cell: &str| if with_percent { format!(" {cell:>PERCENT$}") } else { String::new() };
    let title = format!(
        "{} {:<LABEL$} {:>own$} {:>reported$} {:>delta$}{}{}",
        pad("TASK", name),
        scale.unit,
        "measured",
        "reported",
        "difference",
        percent("%"),
        if with_skips { format!("  {:>1$}", "clock skip", 4 + skip) } else { String::new() },
    );
    push(text, &paint(title.trim_end(), BOLD, color));
    for block in blocks {
        let tid = block.row.tid.map(|tid| tid.to_string()).unwrap_or_default();
        let skip_cells = [("in ", &block.skips[0]), ("out", &block.skips[1])];
        for (index, (label, line)) in
            ["user", "system", "total"].into_iter().zip(&block.lines).enumerate()
        {
            let left = pad([block.row.name.as_str(), &tid, &block.row.note][index], name);
            let left = if index == 0 { paint(&left, BOLD, color) } else { left };
            let delta_cell = format!("{:>delta$}{}", line.delta, percent(&line.percent));
            let right = match skip_cells.get(index) {
                Some((way, cell)) if with_skips => format!("  {way} {cell:>skip$}"),
                _ => String::new(),
            };
            let content = format!(
                "{left} {label:<LABEL$} {:>own$} {:>reported$} {}{right}",
                line.own,
                line.reported,
                paint(&delta_cell, line.style, color),
            );
            push(text, content.trim_end());
        }
        if let Some(unclassified) = &block.unclassified {
            let content = format!(
                "{} {:<LABEL$} {unclassified:>own$} unclassified: user or system",
                pad("", name),
                ""
            );
            push(text, &cut(&content, width));
        }
    }
    true
}

/// What the wide layout shows, in the order in which it is given up.
const WIDE_LAYOUTS: [(bool, [&str; 3]); 3] = [
    (true, ["measured", "reported", "difference"]),
    (false, ["measured", "reported", "diff"]),
    (false, ["meas.", "rep.", "diff"]),
];

/// One line per task; false if the figures do not fit.
fn wide(text: &mut String, blocks: &[Block<'_>], scale: Scale, width: usize, color: bool) -> bool {
    WIDE_LAYOUTS.into_iter().any(|(with_percent, titles)| {
        let table = Wide::new(blocks, with_percent, titles);
        let Some(name) = width.checked_sub(table.others).filter(|room| *room >= NAME_LEAST_WIDE)
        else {
            return false;
        };
        table.write(text, blocks, scale, name.min(NAME_MOST), color);
        true
    })
}

struct Wide {
    titles: [&'static str; 3],
    with_percent: bool,
    /// Widths of measured, reported and difference, for user, system and total.
    columns: [[usize; 3]; 3],
    skips: [usize; 2],
    /// Zero where no task has any.
    unclassified: usize,
    /// Everything but the name.
    others: usize,
}

impl Wide {
    fn new(blocks: &[Block<'_>], with_percent: bool, titles: [&'static str; 3]) -> Self {
        let columns = [0, 1, 2].map(|part| {
            let lines = || blocks.iter().map(|block| &block.lines[part]);
            [
                widest(titles[0], lines().map(|line| &line.own)),
                widest(titles[1], lines().map(|line| &line.reported)),
                widest(titles[2], lines().map(|line| &line.delta)),
            ]
        });
        let skips = [0, 1].map(|way| widest(SKIP, blocks.iter().map(|block| &block.skips[way])));
        let some = || blocks.iter().filter_map(|block| block.unclassified.as_ref());
        let unclassified = some().next().map_or(0, |_| widest("uncl.", some()));
        let mut wide = Self { titles, with_percent, columns, skips, unclassified, others: 0 };
        let groups: usize = (0..3).map(|part| 2 + wide.group(part)).sum();
        let tail = if unclassified == 0 { 0 } else { 2 + unclassified };
        wide.others = TID + 1 + 1 + groups + 2 + skips[0] + 1 + skips[1] + tail;
        wide
    }

    fn group(&self, part: usize) -> usize {
        let percent = if self.with_percent { 1 + PERCENT } else { 0 };
        self.columns[part].iter().sum::<usize>() + 2 + percent
    }

    fn write(
        &self,
        text: &mut String,
        blocks: &[Block<'_>],
        scale: Scale,
        name: usize,
        color: bool,
    ) {
        let skip = self.skips[0] + 1 + self.skips[1];
        let mut groups = " ".repeat(TID + 1 + 1 + name);
        let mut title = format!("{:>TID$}  {}", "TID", pad("NAME", name));
        for (part, label) in ["user", "system", "total"].into_iter().enumerate() {
            let group = self.group(part);
            let _ = write!(groups, "  {:─^group$}", format!(" {label}, {} ", scale.unit));
            let [own, reported, delta] = self.columns[part];
            let [a, b, c] = self.titles;
            let _ = write!(title, "  {a:>own$} {b:>reported$} {c:>delta$}");
            if self.with_percent {
                let _ = write!(title, " {:>PERCENT$}", "%");
            }
        }
        let _ = write!(groups, "  {:─^skip$}", " clock skip ");
        let _ = write!(title, "  {:>1$} {2:>3$}", "in", self.skips[0], "out", self.skips[1]);
        if self.unclassified != 0 {
            let _ = write!(title, "  {:>1$}", "uncl.", self.unclassified);
        }
        push(text, &paint(&groups, BOLD, color));
        push(text, &paint(&title, BOLD, color));
        for block in blocks {
            push(text, self.line(block, name, color).trim_end());
        }
        if blocks.iter().any(|block| block.row.is_exited) {
            push(text, &format!("{:>TID$}  exited", "*"));
        }
        if self.unclassified != 0 {
            push(
                text,
                &format!("{:>TID$}  unclassified: user or system, not known which", "uncl."),
            );
        }
    }

    fn line(&self, block: &Block<'_>, name: usize, color: bool) -> String {
        let tid = block.row.tid.map(|tid| tid.to_string()).unwrap_or_default();
        let mark = if block.row.is_exited { "*" } else { " " };
        let mut content = format!("{tid:>TID$}{mark} {}", pad(&block.row.name, name));
        for (line, [own, reported, delta]) in block.lines.iter().zip(self.columns) {
            let mut difference = format!("{:>delta$}", line.delta);
            if self.with_percent {
                let _ = write!(difference, " {:>PERCENT$}", line.percent);
            }
            let difference = paint(&difference, line.style, color);
            let _ =
                write!(content, "  {:>own$} {:>reported$} {difference}", line.own, line.reported);
        }
        let ([into, out], [a, b]) = (&block.skips, self.skips);
        let _ = write!(content, "  {into:>a$} {out:>b$}");
        if let Some(unclassified) = &block.unclassified {
            let _ = write!(content, "  {unclassified:>0$}", self.unclassified);
        }
        content
    }
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn paint(text: &str, style: Style, color: bool) -> String {
    if color && style != Style::new() { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

fn footer(text: &mut String, trailer: &Trailer, width: usize) {
    let show = |ns: u64| format!("{} ms", Scale::FINE.show(Some(ns)));
    let losses: Vec<String> = [
        (trailer.map_full, "tasks not observed (no free slot: raise --max-tasks)"),
        (trailer.lost_events, "readings missed"),
        (trailer.recursion_misses.unwrap_or(0), "hook runs left out by the kernel"),
        (trailer.clock_jumps, "clock jumps"),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    let lost = match (losses.is_empty(), trailer.recursion_misses) {
        (true, Some(_)) => "nothing".to_owned(),
        (true, None) => "nothing known (this kernel does not count misses)".to_owned(),
        (false, _) => losses.join(", "),
    };
    let hook_time = trailer.hook_ns.map_or("time not measured".to_owned(), show);
    let own = format!(
        "observer itself: {} CPU, hooks ran {} times ({hook_time}) in {}; lost: {lost}; residual {}",
        show(trailer.observer_cpu_ns),
        trailer.hook_runs,
        show(trailer.elapsed_ns),
        match trailer.residual_ns {
            Some(_) => format!("{} ms (unexplained)", Scale::FINE.signed(trailer.residual_ns)),
            None => "not measured".to_owned(),
        }
    );
    wrap(text, &own, width);
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
