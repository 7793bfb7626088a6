//! The whole screen: header, tabs, the tab in front, footer.

use std::time::Duration;

use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use unicode_width::UnicodeWidthStr as _;

use super::{
    cpus, detail, help, hooks,
    keys::BINDINGS,
    pairs,
    state::{Model, Tab},
    tasks,
    theme::Theme,
};
use crate::{
    model::Trailer,
    view::text::{clean, cut, tick},
};

/// Smaller than this nothing useful can be shown.
const LEAST: (u16, u16) = (20, 5);
/// From this width on there is room for whole words.
const ROOMY: u16 = 100;

/// Where things are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// What is measured, and how.
    pub header: Rect,
    /// Names of the tabs, and how they show.
    pub tabs: Rect,
    /// Titles of the columns.
    pub titles: Rect,
    /// Rows.
    pub body: Rect,
    /// Their sum.
    pub sum: Rect,
    /// The chosen row in detail.
    pub detail: Rect,
    /// Keys, or what the user types.
    pub footer: Rect,
}

/// Cuts the screen into areas; what has no room has no height.
pub fn areas(model: &Model) -> Areas {
    let (width, height) = model.size;
    let mut y = 0;
    let mut left = height;
    let mut take = |wanted: u16| {
        let lines = wanted.min(left);
        let area = Rect { x: 0, y, width, height: lines };
        (y, left) = (y + lines, left - lines);
        area
    };
    let header = take(if height >= 12 { 2 } else { 1 });
    let tabs = take(1);
    let rest = height.saturating_sub(header.height + tabs.height + 1);
    let wants_detail = model.has_detail && model.takes_detail();
    let detail_height = match rest {
        _ if !wants_detail => 0,
        // A table of a few rows beside a detail of a few lines would serve nobody.
        0..18 => rest,
        _ => (rest * 3 / 5).max(rest.saturating_sub(24)),
    };
    let table = rest - detail_height;
    let titles = take(if table >= 10 { 2 } else { table.min(1) });
    let has_sum = model.tab == Tab::Tasks && table >= 5;
    let body = take(table.saturating_sub(titles.height + u16::from(has_sum)));
    let sum = take(u16::from(has_sum));
    let detail = take(detail_height);
    let footer = take(1);
    Areas { header, tabs, titles, body, sum, detail, footer }
}

/// Draws the model; a pure function of it. The buffer begins at (0, 0) and has the model's size.
pub fn draw(model: &Model, buffer: &mut Buffer) {
    let (width, height) = model.size;
    if width.min(height) == 0 || buffer.area.width < width || buffer.area.height < height {
        return;
    }
    if width < LEAST.0 || height < LEAST.1 {
        buffer.set_stringn(0, 0, "too small", usize::from(width), Theme::PLAIN);
        return;
    }
    let areas = model.areas();
    header(model, buffer, areas.header);
    tabs(model, buffer, areas.tabs);
    if model.has_help {
        let area =
            Rect { y: areas.titles.y, height: areas.footer.y - areas.titles.y, ..areas.titles };
        help::draw(model, buffer, area);
    } else {
        match model.tab {
            Tab::Tasks => tasks::draw(model, buffer, areas.titles, areas.body, areas.sum),
            Tab::Pairs => pairs::draw(model, buffer, areas.titles, areas.body),
            Tab::Cpus => cpus::draw(model, buffer, areas.titles, areas.body),
            Tab::Hooks => hooks::draw(model, buffer, areas.titles, areas.body),
        }
        if areas.detail.height != 0 {
            detail::draw(model, buffer, areas.detail);
        }
    }
    footer(model, buffer, areas.footer);
}

/// A piece of a line; those with a low rank come first where there is little room.
struct Part {
    text: String,
    style: Style,
    rank: u8,
}

fn part(rank: u8, text: String) -> Part {
    Part { text, style: Theme::PLAIN, rank }
}

fn header(model: &Model, buffer: &mut Buffer, area: Rect) {
    let header = &model.header;
    let is_roomy = area.width >= ROOMY;
    let active = model.hooks().iter().filter(|hook| hook.line.state == "active").count();
    let count = model.hooks().len();
    let lost = model.lost_hooks();
    let mut first = vec![
        Part { style: Theme::TITLE, ..part(4, format!("observer {}", header.version)) },
        part(2, cut(&clean(&header.target), usize::from(area.width / 2))),
        part(6, format!("Linux {} {}", clean(&header.kernel), clean(&header.arch))),
        part(
            3,
            if is_roomy {
                format!("{active} of {count} hooks active")
            } else {
                format!("{active}/{count} hooks")
            },
        ),
    ];
    if !lost.is_empty() {
        let text = format!("LOST HOOK: {}", lost.join(", "));
        first.insert(0, Part { style: model.theme.warn(), ..part(1, text) });
    }
    if model.has_ended {
        let text = if is_roomy { "TARGET HAS ENDED: q prints the summary" } else { "TARGET ENDED" };
        first.insert(0, Part { style: model.theme.warn(), ..part(0, text.to_owned()) });
    }
    let elapsed = clock(model.now.trailer.elapsed_ns);
    line(buffer, area, &first, &elapsed, Theme::TITLE);
    if area.height < 2 {
        return;
    }
    let tick = tick(header.tick_ns);
    let losses = losses(&model.now.trailer);
    let (count, ended) = model.rows.threads();
    let tasks = format!("{count} task{}, {ended} ended", if count == 1 { "" } else { "s" });
    let second = [
        part(
            2,
            if is_roomy {
                format!("accounting {}, HZ {} (± {tick})", clean(&header.accounting), header.hz)
            } else {
                format!("{}, HZ {}", clean(&header.accounting), header.hz)
            },
        ),
        part(3, format!("preempt {}", clean(&header.preempt))),
        if losses.is_empty() {
            part(1, if is_roomy { "lost: nothing" } else { "lost 0" }.to_owned())
        } else {
            Part { style: model.theme.warn(), ..part(0, format!("lost: {losses}")) }
        },
        part(4, own_cost(model, is_roomy)),
        part(5, tasks),
    ];
    let below = Rect { y: area.y + 1, height: 1, ..area };
    line(buffer, below, &second, "", Theme::PLAIN);
}

/// Draws the parts that fit, in their order, and `right` at the right end.
fn line(buffer: &mut Buffer, area: Rect, parts: &[Part], right: &str, right_style: Style) {
    const BETWEEN: &str = " · ";
    let width = usize::from(area.width);
    let mut left = width.saturating_sub(right.width() + usize::from(!right.is_empty()));
    let mut by_rank: Vec<usize> = (0..parts.len()).collect();
    by_rank.sort_by_key(|index| parts[*index].rank);
    let mut is_shown = vec![false; parts.len()];
    let mut is_first = true;
    for index in by_rank {
        let needed = parts[index].text.width() + if is_first { 0 } else { BETWEEN.width() };
        if needed <= left {
            (is_shown[index], is_first) = (true, false);
            left -= needed;
        } else if is_first {
            // The most important one is cut rather than left out.
            buffer.set_stringn(area.x, area.y, &parts[index].text, left, parts[index].style);
            break;
        }
    }
    let mut x = area.x;
    for (index, part) in parts.iter().enumerate().filter(|(index, _)| is_shown[*index]) {
        if x != area.x && !parts[index].text.is_empty() {
            (x, _) = buffer.set_stringn(x, area.y, BETWEEN, width, Theme::DIM);
        }
        (x, _) = buffer.set_stringn(x, area.y, &part.text, width, part.style);
    }
    let start = area.right().saturating_sub(right.width() as u16);
    buffer.set_stringn(start, area.y, right, width, right_style);
}

/// What is missing from the figures; empty if nothing is.
fn losses(trailer: &Trailer) -> String {
    let losses: Vec<String> = [
        (trailer.map_full, "tasks (--max-tasks)"),
        (trailer.lost_events, "readings"),
        (trailer.recursion_misses.unwrap_or(0), "hook runs"),
        (trailer.clock_jumps, "clock jumps"),
    ]
    .into_iter()
    .filter(|(count, _)| *count != 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    losses.join(", ")
}

/// Shares of one CPU: of this program, and of the hooks in the kernel.
fn own_cost(model: &Model, is_roomy: bool) -> String {
    let (now, then, span_ns) = (&model.now.trailer, model.then(), model.span_ns());
    let own_ns = now.observer_cpu_ns.saturating_sub(then.map_or(0, |then| then.observer_cpu_ns));
    let hooks_before_ns = then.and_then(|then| then.hook_ns).unwrap_or(0);
    let hooks_ns = now.hook_ns.map(|ns| ns.saturating_sub(hooks_before_ns));
    let share = |ns: u64| format!("{:.1} %", ns as f64 * 100.0 / span_ns.max(1) as f64);
    let hooks = hooks_ns.map_or("-".to_owned(), share);
    match (is_roomy, hooks_ns) {
        (true, _) => format!("own cost {} of a CPU, hooks {hooks}", share(own_ns)),
        (false, Some(hooks_ns)) => format!("cost {}", share(own_ns.saturating_add(hooks_ns))),
        (false, None) => format!("cost {} + hooks", share(own_ns)),
    }
}

/// `1:02:03`.
fn clock(elapsed_ns: u64) -> String {
    let seconds = elapsed_ns / 1_000_000_000;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn tabs(model: &Model, buffer: &mut Buffer, area: Rect) {
    let mut x = area.x;
    for tab in Tab::ALL {
        let style = if tab == model.tab { Theme::CHOSEN.patch(Theme::TITLE) } else { Theme::PLAIN };
        let text = format!(" {} ", tab.name());
        let room = usize::from(area.right().saturating_sub(x));
        (x, _) = buffer.set_stringn(x, area.y, text, room, style);
    }
    let wanted = model.rows.wanted();
    let mut words = Vec::new();
    if model.is_paused {
        words.push("PAUSED".to_owned());
    }
    if !wanted.filter.is_empty() && matches!(model.tab, Tab::Tasks | Tab::Pairs) {
        words.push(format!("filter {}", clean(&wanted.filter)));
    }
    let arrow = |is_descending: bool| if is_descending { "▼" } else { "▲" };
    match model.tab {
        Tab::Tasks => {
            words.extend(wanted.processes.then(|| "processes".to_owned()));
            words.extend(wanted.tree.then(|| "tree".to_owned()));
            let is_descending = wanted.sort.is_largest_first() != wanted.reversed;
            words.push(format!("sort {} {}", wanted.sort.title(), arrow(is_descending)));
        }
        Tab::Pairs => {
            words.push(format!(
                "sort {} {}",
                model.pairs.sort.title(),
                arrow(!model.pairs.reversed)
            ));
        }
        Tab::Cpus | Tab::Hooks => {}
    }
    let interval = seconds(model.interval);
    words.push(if wanted.cumulative {
        format!("since the begin, every {interval}")
    } else if is_near(model.span_ns(), model.interval) {
        format!("last {interval}")
    } else {
        // A pause, a suspension, a reading that came late.
        format!("last {:.1} s, every {interval}", model.span_ns() as f64 / 1e9)
    });
    let room = usize::from(area.right().saturating_sub(x + 1));
    let text = cut(&words.join(" · "), room);
    let start = area.right().saturating_sub(text.width() as u16);
    buffer.set_stringn(start, area.y, text, room, model.theme.note());
}

/// Within a tenth.
fn is_near(span_ns: u64, interval: Duration) -> bool {
    let interval_ns = interval.as_nanos();
    u128::from(span_ns).abs_diff(interval_ns) <= interval_ns / 10
}

/// `0.5 s`.
fn seconds(time: Duration) -> String {
    let text = format!("{:.2}", time.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn footer(model: &Model, buffer: &mut Buffer, area: Rect) {
    let width = usize::from(area.width);
    if model.typing.is_some() {
        let text = clean(&model.rows.wanted().filter);
        let keys = "  Enter keep  Esc drop";
        let room = width.saturating_sub(keys.len());
        let (x, y) =
            buffer.set_stringn(area.x, area.y, format!("filter: {text}"), room, Theme::TITLE);
        let (x, _) = buffer.set_stringn(x, y, " ", width, Theme::CHOSEN);
        buffer.set_stringn(x, y, keys, usize::from(area.right().saturating_sub(x)), Theme::DIM);
        return;
    }
    if let Some(message) = &model.message {
        buffer.set_stringn(area.x, area.y, cut(&clean(message), width), width, model.theme.note());
        return;
    }
    let mut x = area.x;
    for binding in BINDINGS.iter().filter(|binding| !binding.short.is_empty()) {
        let key = binding.keys.split(' ').next().unwrap_or(binding.keys);
        let needed = (key.width() + 1 + binding.short.width()) as u16;
        if x + needed > area.right() {
            break;
        }
        (x, _) = buffer.set_stringn(x, area.y, key, width, model.theme.key());
        (x, _) = buffer.set_stringn(x + 1, area.y, binding.short, width, Theme::PLAIN);
        x += 2;
    }
}
