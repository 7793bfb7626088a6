//! The task table.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    figure::{self, Kind, grown, moved, system_ns},
    grid::{self, Cell, Placed, Spec},
    order::Rows,
    state::Model,
    theme::Theme,
};
use crate::model::{TaskFigures, report::escape};

/// The columns, from left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// Thread or process id.
    Tid,
    /// Name.
    Name,
    /// Measured.
    User,
    /// Measured, with interrupts.
    System,
    /// Measured.
    #[default]
    Cpu,
    /// Reported.
    ReportedUser,
    /// Reported.
    ReportedSystem,
    /// Reported.
    ReportedCpu,
    /// Reported minus measured run time.
    Difference,
    /// The same as a bar.
    Bar,
    /// Clock skips of switches to it.
    SkipIn,
    /// Clock skips of switches away.
    SkipOut,
    /// Times woken.
    Wakeups,
    /// Time waiting on a run queue.
    Wait,
    /// Ptrace stops.
    Stops,
    /// Tracer at the last stop.
    Tracer,
    /// Reported minus measured user time.
    UserDifference,
    /// What no cause explains.
    Residual,
    /// Time in ptrace stops.
    Stopped,
    /// Voluntary switches.
    Voluntary,
    /// Involuntary switches.
    Involuntary,
    /// Migrations.
    Migrations,
    /// Process id.
    Process,
    /// Process id of the parent.
    Parent,
}

const COUNT: usize = 24;

/// All, by their number.
pub const COLUMNS: [Column; COUNT] = [
    Column::Tid,
    Column::Name,
    Column::User,
    Column::System,
    Column::Cpu,
    Column::ReportedUser,
    Column::ReportedSystem,
    Column::ReportedCpu,
    Column::Difference,
    Column::Bar,
    Column::SkipIn,
    Column::SkipOut,
    Column::Wakeups,
    Column::Wait,
    Column::Stops,
    Column::Tracer,
    Column::UserDifference,
    Column::Residual,
    Column::Stopped,
    Column::Voluntary,
    Column::Involuntary,
    Column::Migrations,
    Column::Process,
    Column::Parent,
];

const SPECS: [Spec; COUNT] = [
    Spec::number("TID", 7, 0),
    Spec::text("NAME", 10, 26, 1),
    Spec::number("usr%", 5, 2).of("measured"),
    Spec::number("sys%", 5, 3).of("measured"),
    Spec::number("cpu%", 5, 4).of("measured"),
    Spec::number("rusr%", 5, 6).of("reported"),
    Spec::number("rsys%", 5, 7).of("reported"),
    Spec::number("rcpu%", 5, 10).of("reported"),
    Spec::number("diff ms", 8, 5).of("difference"),
    Spec::text("less│more", 9, 21, 8).of("difference"),
    Spec::number("in ms", 6, 9).of("clock skip"),
    Spec::number("out ms", 6, 9).of("clock skip"),
    Spec::number("wakeups", 7, 11),
    Spec::number("wait ms", 7, 12),
    Spec::number("stops", 7, 13).of("ptrace"),
    Spec::number("tracer", 7, 14).of("ptrace"),
    Spec::number("usr ms", 8, 15).of("usr diff"),
    Spec::number("resid ms", 8, 16),
    Spec::number("stop ms", 7, 17),
    Spec::number("volunt.", 7, 18).of("switches"),
    Spec::number("involun.", 8, 19).of("switches"),
    Spec::number("migr.", 6, 20),
    Spec::number("PID", 7, 21),
    Spec::number("PARENT", 7, 22),
];

impl Column {
    fn number(self) -> usize {
        self as usize
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        SPECS[self.number()].title
    }

    /// Large numbers first, names and ids from the first on.
    pub fn is_largest_first(self) -> bool {
        !matches!(self, Self::Tid | Self::Name | Self::Process | Self::Parent | Self::Tracer)
    }

    fn kind(self) -> Kind {
        match self {
            Self::User
            | Self::System
            | Self::Cpu
            | Self::ReportedUser
            | Self::ReportedSystem
            | Self::ReportedCpu => Kind::Percent,
            Self::Difference | Self::Bar | Self::UserDifference | Self::Residual => Kind::SignedMs,
            Self::SkipIn | Self::SkipOut | Self::Wait | Self::Stopped => Kind::Ms,
            Self::Tid | Self::Name | Self::Tracer | Self::Process | Self::Parent => Kind::Id,
            _ => Kind::Count,
        }
    }
}

/// A column's number, before it is put into words; `None` is not measured.
pub fn value(column: Column, then: Option<&TaskFigures>, now: &TaskFigures) -> Option<i128> {
    let grown = |pick: fn(&TaskFigures) -> Option<u64>| grown(then, now, pick);
    let moved = |pick: fn(&TaskFigures) -> Option<i64>| moved(then, now, pick);
    match column {
        Column::Tid => Some(now.tid.into()),
        Column::Name => None,
        Column::User => grown(|task| task.user_ns),
        Column::System => grown(system_ns),
        Column::Cpu => grown(|task| Some(task.oncpu_ns)),
        Column::ReportedUser => grown(|task| Some(task.reported_user_ns)),
        Column::ReportedSystem => grown(|task| Some(task.reported_system_ns)),
        Column::ReportedCpu => grown(|task| Some(task.reported_runtime_ns)),
        Column::Difference | Column::Bar => moved(|task| Some(task.delta_runtime_ns)),
        Column::SkipIn => grown(|task| task.skip_in_ns),
        Column::SkipOut => grown(|task| task.skip_out_ns),
        Column::Wakeups => grown(|task| task.wakeups),
        Column::Wait => grown(|task| task.wait_ns),
        Column::Stops => grown(|task| Some(task.ptrace_stops)),
        Column::Tracer => now.tracer_tid.map(i128::from),
        Column::UserDifference => moved(|task| task.delta_user_ns),
        Column::Residual => moved(|task| task.residual_ns),
        Column::Stopped => grown(|task| Some(task.ptrace_stopped_ns)),
        Column::Voluntary => grown(|task| Some(task.switches_voluntary)),
        Column::Involuntary => grown(|task| Some(task.switches_involuntary)),
        Column::Migrations => grown(|task| Some(task.migrations)),
        Column::Process => Some(now.tgid.into()),
        Column::Parent => Some(now.parent_tgid.into()),
    }
}

/// The columns that fit; more than that the name does not need.
pub fn columns(width: u16) -> Vec<Placed> {
    grid::fit(&SPECS, width)
}

/// The columns shown that can be sorted by.
pub fn sortable(width: u16) -> Vec<Column> {
    columns(width)
        .iter()
        .map(|placed| COLUMNS[placed.index])
        .filter(|column| *column != Column::Bar)
        .collect()
}

/// The text of a cell.
fn cell<'a>(
    model: &Model,
    column: Column,
    width: u16,
    depth: u16,
    (then, now): (Option<&TaskFigures>, &'a TaskFigures),
) -> Cell<'a> {
    let value = value(column, then, now);
    match column {
        Column::Name => name(now, depth).into(),
        Column::Bar => Cell {
            text: grid::signed_bar(value.unwrap_or(0), model.rows.largest_delta_ns(), width).into(),
            style: model.theme.signed(value.unwrap_or(0)),
        },
        Column::Difference | Column::UserDifference | Column::Residual => Cell {
            style: model.theme.signed(value.unwrap_or(0)),
            ..figure::cell(column.kind(), value, model.span_ns(), width)
        },
        _ => figure::cell(column.kind(), value, model.span_ns(), width),
    }
}

/// The name at its place in the tree; an `x` says that the task has ended.
fn name(task: &TaskFigures, depth: u16) -> String {
    let end = if task.state == "exited" { "x " } else { "" };
    let branch = match depth {
        0 => String::new(),
        depth => format!("{}└ ", " ".repeat(usize::from(depth.min(9)) - 1)),
    };
    format!("{branch}{end}{}", escape(&task.comm))
}

/// Draws the titles into the upper area, the rows into the middle one, and the sum into the lower one.
pub fn draw(model: &Model, buffer: &mut Buffer, titles: Rect, body: Rect, sum: Rect) {
    let placed = columns(body.width);
    grid::titles(buffer, titles, &SPECS, &placed, Some(model.rows.wanted().sort.number()));
    if model.rows.wanted().processes
        && let Some(first) = placed.first()
        && titles.height != 0
    {
        let x = titles.x + first.width - 3;
        buffer.set_string(x, titles.bottom() - 1, "PID", Theme::TITLE);
    }
    let window = model.cursor.window(model.rows.len(), usize::from(body.height));
    for (y, row) in (body.y..).zip(window) {
        let Some((entry, then, now)) = model.rows.row(row) else { break };
        let mut style = Theme::PLAIN;
        if now.state == "exited" {
            style = style.patch(Theme::DIM);
        }
        if model.rows.key(row).as_ref() == model.cursor.chosen() {
            style = style.patch(Theme::CHOSEN);
        }
        grid::row(buffer, body, y, &SPECS, &placed, style, |column| {
            cell(model, COLUMNS[column.index], column.width, entry.depth, (then, now))
        });
    }
    if model.rows.len() == 0 && body.height != 0 {
        let words = if model.rows.wanted().filter.is_empty() {
            "no task is observed yet"
        } else {
            "no task has this in its name, or as its id"
        };
        buffer.set_stringn(body.x, body.y, words, usize::from(body.width), Theme::DIM);
    }
    draw_sum(model, buffer, sum, &placed);
}

fn draw_sum(model: &Model, buffer: &mut Buffer, area: Rect, placed: &[Placed]) {
    if area.height == 0 {
        return;
    }
    let (then, now) = model.rows.sum();
    let count = model.rows.len();
    let what = match (model.rows.wanted().processes, count) {
        (false, 1) => "task",
        (false, _) => "tasks",
        (true, 1) => "process",
        (true, _) => "processes",
    };
    grid::row(buffer, area, area.y, &SPECS, placed, Theme::TITLE, |column| {
        match COLUMNS[column.index] {
            Column::Tid => "sum".into(),
            Column::Name => format!("{count} {what}").into(),
            Column::Tracer | Column::Process | Column::Parent => "".into(),
            Column::Bar => " ".into(),
            other => cell(model, other, column.width, 0, (then, now)),
        }
    });
}

/// What is shown, as rows of text, titles first: for the export.
pub fn text(rows: &Rows, width: u16, span_ns: u64) -> Vec<Vec<String>> {
    let columns: Vec<Column> = columns(width)
        .iter()
        .map(|placed| COLUMNS[placed.index])
        .filter(|c| *c != Column::Bar)
        .collect();
    let titles = columns.iter().map(|column| column.title().to_owned()).collect();
    let lines = (0..rows.len()).filter_map(|row| rows.row(row)).map(|(_, then, now)| {
        columns
            .iter()
            .map(|column| match column {
                Column::Name => escape(&now.comm),
                column => figure::show(column.kind(), value(*column, then, now), span_ns, 20),
            })
            .collect()
    });
    std::iter::once(titles).chain(lines).collect()
}
