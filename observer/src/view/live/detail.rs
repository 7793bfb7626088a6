//! The chosen task or pair: causes that add up, its drift, its pairs, its latencies.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Modifier,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    causes::{self, Cause},
    figure::{self, Kind},
    grid,
    history::WINDOW_S,
    pairs::{self, Column},
    state::{Model, Tab},
    theme::Theme,
};
use crate::{
    model::{PairFigures, PairKind, TaskFigures, report::escape},
    view::text::{cut, pad},
};

/// Cells of a column of blocks: as many columns as fit side by side.
const COLUMN: u16 = 58;
const BETWEEN: u16 = 2;
/// Pairs of a task; the Pairs tab has all.
const MOST_PAIRS: usize = 6;
/// Lines of a histogram.
const MOST_BUCKETS: usize = 12;
const BAR: usize = 13;

/// A title and lines.
type Block = Vec<Line<'static>>;

/// Draws the pane.
pub fn draw(model: &Model, buffer: &mut Buffer, area: Rect) {
    let columns = ((area.width + BETWEEN) / (COLUMN + BETWEEN)).clamp(1, 4);
    let width = (area.width - (columns - 1) * BETWEEN) / columns;
    let (title, blocks) = match model.tab {
        Tab::Tasks => task(model, usize::from(width)),
        _ => pair(model, usize::from(width)),
    };
    let title = cut(&format!("── {title} "), usize::from(area.width));
    let rule = "─".repeat(usize::from(area.width).saturating_sub(title.width()));
    buffer.set_stringn(area.x, area.y, title + &rule, usize::from(area.width), Theme::TITLE);
    let inner = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };

    // Each block goes below the shortest column.
    let mut stacks: Vec<Block> = vec![Vec::new(); usize::from(columns)];
    for block in blocks {
        if let Some(stack) = stacks.iter_mut().min_by_key(|stack| stack.len()) {
            if !stack.is_empty() {
                stack.push(Line::default());
            }
            stack.extend(block);
        }
    }
    let tallest = stacks.iter().map(Vec::len).max().unwrap_or(0);
    let most = tallest.saturating_sub(usize::from(inner.height));
    let top = model.detail_top.min(most);
    for (x, stack) in (inner.x..).step_by(usize::from(width + BETWEEN)).zip(&stacks) {
        for (y, line) in (inner.y..inner.bottom()).zip(stack.iter().skip(top)) {
            buffer.set_line(x, y, line, width);
        }
    }
    if top < most && inner.height != 0 {
        let hint = " PgDn: more ";
        let x = area.right().saturating_sub(hint.len() as u16 + 2);
        buffer.set_string(x, area.y, hint, Theme::CHOSEN);
    }
}

fn heading(text: impl Into<String>) -> Line<'static> {
    Line::styled(text.into(), Theme::TITLE)
}

fn task(model: &Model, width: usize) -> (String, Vec<Block>) {
    let Some((_, then, now)) = model.chosen_row().and_then(|row| model.rows.row(row)) else {
        return ("no task is chosen: j and k choose one".to_owned(), Vec::new());
    };
    let members = model.chosen_tasks();
    let blocks = vec![
        run_time(model, then, now),
        drift(model, &members, width),
        task_pairs(model, &members, width),
        user_time(model, then, now),
        scheduling(model, then, now, width),
        latencies(&to_task(model, &members), width),
    ];
    (
        title(model, now, members.len()),
        blocks.into_iter().filter(|block| !block.is_empty()).collect(),
    )
}

fn title(model: &Model, task: &TaskFigures, threads: usize) -> String {
    let mut words = vec![format!("{} ({})", escape(&task.comm), task.tid)];
    if model.rows.wanted().processes {
        words.push(format!("{threads} thread{}", if threads == 1 { "" } else { "s" }));
    } else if task.tid != task.tgid {
        words.push(format!("of process {}", task.tgid));
    }
    words.push(format!("parent {}", task.parent_tgid));
    if let Some(former) = task.former_tid {
        words.push(format!("before exec {former}"));
    }
    if let Some(tracer) = task.tracer_tid {
        words.push(format!("traced by {tracer}"));
    }
    words.push(if task.state == "exited" { "has ended" } else { "alive" }.to_owned());
    words.push(
        if model.cumulative() { "since the begin" } else { "since the last reading" }.to_owned(),
    );
    words.join(" · ")
}

fn ms(ns: Option<i128>) -> String {
    format!("{:>11}", figure::show(Kind::SignedMs, ns, 1, 11))
}

/// One cause with its bar, in 57 cells: a block has at least that many from 60 columns on.
fn cause_line(model: &Model, cause: &Cause, most: i128) -> Line<'static> {
    let ns = cause.ns.unwrap_or(0);
    let count = cause.count.map_or(String::new(), |count| {
        format!(" {:>8}", figure::show(Kind::Count, Some(count), 1, 8))
    });
    Line::from(vec![
        Span::raw(format!("  {}{} ", pad(cause.name, 21), ms(cause.ns))),
        Span::styled(grid::signed_bar(ns, most, BAR as u16), model.theme.signed(ns)),
        Span::styled(count, Theme::DIM),
    ])
}

fn run_time(model: &Model, then: Option<&TaskFigures>, now: &TaskFigures) -> Block {
    let causes = causes::run_time(then, now);
    let total = causes::difference(then, now);
    let sizes = causes.iter().filter_map(|cause| cause.ns).map(i128::abs);
    let most = sizes.max().unwrap_or(0).max(total.abs());
    let mut block = vec![heading("Run time: why reported differs, ms, switches")];
    block.extend(causes.iter().map(|cause| cause_line(model, cause, most)));
    let sum = Cause { name: "= reported - measured", ns: Some(total), count: None };
    block.push(cause_line(model, &sum, most).style(Theme::TITLE));
    block
}

fn user_time(model: &Model, then: Option<&TaskFigures>, now: &TaskFigures) -> Block {
    let [total, split, sum] = causes::user_time(then, now);
    if sum.ns.is_none() {
        return Vec::new();
    }
    let most = [total, split, sum].iter().filter_map(|cause| cause.ns).map(i128::abs).max();
    let mut block = vec![heading("User time: why reported differs, ms")];
    for cause in [total, split] {
        block.push(cause_line(model, &cause, most.unwrap_or(0)));
    }
    let sum = Cause { name: "= reported - measured", ..sum };
    block.push(cause_line(model, &sum, most.unwrap_or(0)).style(Theme::TITLE));
    block
}

/// Bars above the line for what was billed too much, below it for too little.
fn drift(model: &Model, members: &[&TaskFigures], width: usize) -> Block {
    let room = width.saturating_sub(2);
    let Some(count) = [120, 60, 40, 30, 24, 20, 15, 12, 10].into_iter().find(|n| *n <= room) else {
        return Vec::new();
    };
    let parts = model.history.parts(members.iter().copied(), count);
    let most = parts.iter().map(|ns| ns.unsigned_abs()).max().unwrap_or(0);
    let seconds = WINDOW_S as usize / count;
    let heading = heading(format!("Drift of the last two minutes, per {seconds} s"));
    if most == 0 {
        return vec![heading, Line::styled("  none", Theme::DIM)];
    }
    let (mut above, mut below) = (vec![Span::raw("  ")], vec![Span::raw("  ")]);
    for part in &parts {
        // Eighths of a cell, at least one for what is there at all.
        let eighths = match part.unsigned_abs() {
            0 => 0,
            size => ((size as f64 * 8.0 / most as f64).round() as u32).clamp(1, 8),
        };
        let (up, down) = if *part > 0 { (eighths, 0) } else { (0, eighths) };
        above.push(Span::styled(lower_block(up).to_string(), model.theme.more()));
        below.push(match down {
            0 => Span::raw(" "),
            // The upper eighths: the lower ones, with the colours changed over.
            down => Span::styled(
                lower_block(8 - down).to_string(),
                model.theme.less().add_modifier(Modifier::REVERSED),
            ),
        });
    }
    let signed = |ns: i64| figure::show(Kind::SignedMs, Some(ns.into()), 1, 12);
    let (high, low) = (parts.iter().max().copied(), parts.iter().min().copied());
    let scale = format!(
        "  -2 min … now; highest {} ms, lowest {} ms",
        signed(high.unwrap_or(0).max(0)),
        signed(low.unwrap_or(0).min(0)),
    );
    vec![
        heading,
        Line::from(above),
        Line::from(below),
        Line::styled(cut(&scale, width), Theme::DIM),
    ]
}

/// The lower `eighths` of a cell.
fn lower_block(eighths: u32) -> char {
    [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighths.min(8) as usize]
}

fn scheduling(model: &Model, then: Option<&TaskFigures>, now: &TaskFigures, width: usize) -> Block {
    use super::tasks::{Column, value};
    let count = |column| {
        let value = value(column, then, now);
        figure::show(Kind::Count, value, model.span_ns(), 12)
    };
    let time = |column| value(column, then, now).map_or("-".to_owned(), duration);
    let made = figure::grown(then, now, |task| task.wakes_made);
    let crossing = figure::grown(then, now, |task| task.crossing_ns);
    let open = figure::grown(then, now, |task| task.unclassified_ns);
    let lines = [
        format!(
            "on CPU {}, user {}, system {}",
            time(Column::Cpu),
            time(Column::User),
            time(Column::System)
        ),
        format!(
            "of it borders {}, unclassified {}",
            crossing.map_or("-".to_owned(), duration),
            open.map_or("-".to_owned(), duration)
        ),
        format!(
            "switches {} voluntary, {} involuntary; migrations {}",
            count(Column::Voluntary),
            count(Column::Involuntary),
            count(Column::Migrations)
        ),
        format!(
            "woken {}, woke {}, waited {}",
            count(Column::Wakeups),
            figure::show(Kind::Count, made, 1, 12),
            time(Column::Wait)
        ),
        format!("ptrace stops {}, stopped {}", count(Column::Stops), time(Column::Stopped)),
    ];
    let lines = lines.into_iter().chain(cycles(then, now));
    let lines = lines.map(|line| Line::raw(cut(&format!("  {line}"), width)));
    std::iter::once(heading("Scheduling")).chain(lines).collect()
}

/// The second witness of the split; nothing without a PMU.
fn cycles(then: Option<&TaskFigures>, now: &TaskFigures) -> Vec<String> {
    let grown = |pick: fn(&TaskFigures) -> Option<u64>| {
        figure::grown(then, now, pick).and_then(|count| u64::try_from(count).ok())
    };
    let added = TaskFigures {
        cycles_user: grown(|task| task.cycles_user),
        cycles_system: grown(|task| task.cycles_system),
        cycles_discarded: grown(|task| task.cycles_discarded),
        user_ns: grown(|task| task.user_ns),
        oncpu_ns: grown(|task| Some(task.oncpu_ns)).unwrap_or(0),
        ..TaskFigures::default()
    };
    let (Some(user), Some(system)) = (added.cycles_user, added.cycles_system) else {
        return Vec::new();
    };
    let count = |count: u64| figure::show(Kind::Count, Some(count.into()), 1, 12);
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.1} %"));
    let mut lines = vec![
        format!("cycles {} user, {} system", count(user), count(system)),
        format!(
            "user share {} by cycles, {} by time",
            percent(added.user_percent_by_cycles()),
            percent(added.user_percent_by_time()),
        ),
    ];
    if let Some(discarded @ 1..) = added.cycles_discarded {
        lines.push(format!("runs without known cycles {}", count(discarded)));
    }
    lines
}

/// Who woke or traced it, and whom it woke or traced.
fn task_pairs(model: &Model, members: &[&TaskFigures], width: usize) -> Block {
    let mut block = Vec::new();
    for (kind, words) in [(PairKind::Wake, "Wake pairs"), (PairKind::Ptrace, "Ptrace pairs")] {
        let of_kind = model.pairs.of(members, model.cumulative());
        let mut pairs: Vec<_> = of_kind.filter(|(_, pair)| pair.kind == kind).collect();
        pairs.sort_by_cached_key(|(then, now)| {
            let number = |column| pairs::value(column, *then, now).unwrap_or(0);
            std::cmp::Reverse((number(Column::Shifted), number(Column::Count)))
        });
        if pairs.is_empty() {
            continue;
        }
        if !block.is_empty() {
            block.push(Line::default());
        }
        let name_width = width.saturating_sub(5 + 8 + 12);
        let title = pad(&format!("{words} ({})", pairs.len()), name_width + 5);
        let counted = if kind == PairKind::Wake { "wakeups" } else { "stops" };
        block.push(heading(format!("{title}{counted:>8}{:>12}", "moved ns/s")));
        for (then, now) in pairs.into_iter().take(MOST_PAIRS) {
            let is_to = members.iter().any(|task| pairs::is(&now.to, task));
            let (arrow, other) = if is_to { ("<-", &now.from) } else { ("->", &now.to) };
            let number = |column, kind, width| {
                figure::show(kind, pairs::value(column, then, now), model.span_ns(), width)
            };
            block.push(Line::raw(format!(
                "  {arrow} {}{:>8}{:>12}",
                pad(&pairs::name(other), name_width),
                number(Column::Count, Kind::Count, 8),
                number(Column::Shifted, Kind::NsPerSecond, 11),
            )));
        }
    }
    block
}

/// The latencies of all wakeups (and resumes) of some tasks.
fn to_task(model: &Model, members: &[&TaskFigures]) -> Vec<(u64, u64)> {
    let pairs = model.pairs.of(members, true);
    pairs
        .filter(|(_, pair)| members.iter().any(|task| pairs::is(&pair.to, task)))
        .flat_map(|(_, pair)| pair.latency.iter().copied())
        .collect()
}

/// A histogram with one line for each power of two, or of four where these would be too many.
fn latencies(buckets: &[(u64, u64)], width: usize) -> Block {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return Vec::new();
    }
    let class = |bound_ns: u64| bound_ns.max(1).next_power_of_two().trailing_zeros();
    let classes =
        || buckets.iter().filter(|(_, count)| *count != 0).map(|(bound, _)| class(*bound));
    let (first, last) = (classes().min().unwrap_or(0), classes().max().unwrap_or(0));
    let step = 1 + (last - first) / MOST_BUCKETS as u32;
    let mut counts = vec![0_u64; ((last - first) / step + 1) as usize];
    for (bound_ns, count) in buckets.iter().filter(|(_, count)| *count != 0) {
        let slot = (class(*bound_ns) - first) / step;
        if let Some(sum) = counts.get_mut(slot as usize) {
            *sum = sum.saturating_add(*count);
        }
    }
    let most = counts.iter().max().copied().unwrap_or(0);
    let room = width.saturating_sub(2 + 2 + 9 + 1 + 8 + 1);
    let mut block = vec![heading(format!("Latency from wakeup to run, since the begin ({total})"))];
    for (slot, count) in (0..).zip(counts) {
        let bound_ns = 1_u64 << (first + slot * step + step - 1).min(63);
        block.push(Line::raw(format!(
            "  ≤ {:>9} {:>8} {}",
            duration(bound_ns.into()),
            figure::show(Kind::Count, Some(count.into()), 1, 8),
            grid::bar(count, most, room),
        )));
    }
    block
}

/// A time in the unit that suits it.
fn duration(ns: i128) -> String {
    let value = ns as f64;
    match ns.unsigned_abs() {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

fn pair(model: &Model, width: usize) -> (String, Vec<Block>) {
    let chosen = model.pair_cursor.chosen().and_then(|key| model.pairs.find(key));
    let Some((_, now)) = chosen.and_then(|row| model.pairs.row(row, model.cumulative())) else {
        return ("no pair is chosen: j and k choose one".to_owned(), Vec::new());
    };
    let title = format!(
        "{}: {} -> {} · since the begin",
        now.kind.name(),
        pairs::name(&now.from),
        pairs::name(&now.to)
    );
    let blocks =
        vec![reasons(now, width), origins(now, width), stops(now), latencies(&now.latency, width)];
    (title, blocks.into_iter().filter(|block| !block.is_empty()).collect())
}

fn reasons(pair: &PairFigures, width: usize) -> Block {
    let skips = [
        ("wakeup while a task ran", pair.skip_wakeup),
        ("wakeup on an idle CPU", pair.skip_idle),
        ("sched_yield", pair.skip_yield),
        ("something else", pair.skip_other),
    ];
    let mut block = vec![heading("Time moved, by who asked for the skip")];
    for (words, skip) in skips {
        block.push(Line::raw(format!(
            "  {}{:>9}{:>12}",
            pad(words, 25),
            figure::show(Kind::Count, Some(skip.count.into()), 1, 9),
            duration(skip.ns.into()),
        )));
    }
    let path = pair.path_ns.map_or("-".to_owned(), |ns| duration(ns.into()));
    block.push(Line::raw(format!("  {}{:>9}{path:>12}", pad("ordinary switches", 25), "")));
    let cost = pair.wakeup_cost_ns.map_or("-".to_owned(), |ns| duration(ns.into()));
    let words = format!(
        "  switches {}, preemptions {}, wakeup cost {cost}",
        pair.switches, pair.preemptions
    );
    block.push(Line::raw(cut(&words, width)));
    if let Some(cycles) = pair.wakeup_cost_cycles {
        let cycles = figure::show(Kind::Count, Some(cycles.into()), 1, 12);
        block.push(Line::raw(cut(&format!("  cycles in these wakeups {cycles}"), width)));
    }
    block
}

fn origins(pair: &PairFigures, width: usize) -> Block {
    if pair.origins.is_empty() {
        return Vec::new();
    }
    let name_width = width.saturating_sub(2 + 9 + 12).min(25);
    let lines = pair.origins.iter().take(MOST_PAIRS).map(|origin| {
        Line::raw(format!(
            "  {}{:>9}{:>12}",
            pad(&crate::view::text::clean(&origin.name), name_width),
            figure::show(Kind::Count, Some(origin.count.into()), 1, 9),
            duration(origin.cost_ns.into()),
        ))
    });
    std::iter::once(heading("Where the wakeups came from, count, cost")).chain(lines).collect()
}

fn stops(pair: &PairFigures) -> Block {
    let Some(stops) = pair.stops_by_kind else { return Vec::new() };
    let kinds = [
        ("syscall entry", stops.syscall_entry),
        ("syscall exit", stops.syscall_exit),
        ("signal", stops.signal),
        ("event", stops.event),
        ("group", stops.group),
        ("exit", stops.exit),
    ];
    let mut block = vec![heading("Stops, by kind")];
    let lines = kinds.iter().filter(|(_, count)| *count != 0);
    block.extend(lines.map(|(words, count)| Line::raw(format!("  {}{count:>9}", pad(words, 25)))));
    let stopped = pair.stopped_ns.map_or("-".to_owned(), |ns| duration(ns.into()));
    block.push(Line::raw(format!("  {}{stopped:>9}", pad("time in stops", 25))));
    for (words, count) in
        [("hand-offs on one CPU", pair.handoffs), ("hand-offs across", pair.handoffs_across)]
    {
        let count = count.map_or("-".to_owned(), |count| count.to_string());
        block.push(Line::raw(format!("  {}{count:>9}", pad(words, 25))));
    }
    block
}
