//! The CPUs: where the time went, and whether it adds up.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    figure::{self, Kind, grown, moved},
    grid::{self, Spec},
    state::Model,
    theme::Theme,
};
use crate::model::CpuFigures;

const SPECS: [Spec; 9] = [
    Spec::number("CPU", 4, 0),
    Spec::number("busy%", 6, 1),
    Spec::text("", 10, 40, 8),
    Spec::number("observed%", 9, 3),
    Spec::number("idle%", 6, 2),
    Spec::number("hardirq%", 8, 4),
    Spec::number("softirq%", 8, 5),
    Spec::number("residual ms", 11, 6),
    Spec::number("elapsed ms", 12, 7),
];

/// Draws the tab. The shares are of the CPU's own elapsed time, so they sum to 100 %.
pub fn draw(model: &Model, buffer: &mut Buffer, titles: Rect, body: Rect) {
    let placed = grid::fit(&SPECS, body.width);
    grid::titles(buffer, titles, &SPECS, &placed, None);
    let window = model.cpu_cursor.window(model.cpus().len(), usize::from(body.height));
    for (y, row) in (body.y..).zip(window) {
        let Some((then, cpu)) = model.cpu(row) else { break };
        let is_chosen = model.cpu_cursor.chosen() == Some(&cpu.cpu);
        let style = if is_chosen { Theme::CHOSEN } else { Theme::PLAIN };
        let elapsed_ns = u64::try_from(elapsed(then, cpu)).unwrap_or(0);
        grid::row(buffer, body, y, &SPECS, &placed, style, |column| {
            let (kind, value) = value(column.index, then, cpu);
            match column.index {
                2 => {
                    let busy_ns = u64::try_from(value.unwrap_or(0)).unwrap_or(0);
                    grid::bar(busy_ns.min(elapsed_ns), elapsed_ns, column.width.into()).into()
                }
                7 => grid::Cell {
                    style: if value == Some(0) { Theme::PLAIN } else { model.theme.warn() },
                    ..figure::cell(kind, value, elapsed_ns, column.width)
                },
                _ => figure::cell(kind, value, elapsed_ns, column.width),
            }
        });
    }
}

fn elapsed(then: Option<&CpuFigures>, cpu: &CpuFigures) -> i128 {
    grown(then, cpu, |cpu| Some(cpu.elapsed_ns)).unwrap_or(0)
}

fn value(index: usize, then: Option<&CpuFigures>, cpu: &CpuFigures) -> (Kind, Option<i128>) {
    let part = |pick: fn(&CpuFigures) -> Option<u64>| (Kind::Percent, grown(then, cpu, pick));
    match index {
        0 => (Kind::Id, Some(cpu.cpu.into())),
        1 | 2 => part(|cpu| Some(cpu.busy_ns)),
        3 => part(|cpu| Some(cpu.observed_ns)),
        4 => part(|cpu| Some(cpu.idle_ns)),
        5 => part(|cpu| Some(cpu.hardirq_ns)),
        6 => part(|cpu| Some(cpu.softirq_ns)),
        7 => (Kind::SignedMs, moved(then, cpu, |cpu| Some(cpu.residual_ns))),
        _ => (Kind::Ms, Some(elapsed(then, cpu))),
    }
}

/// What is shown, as rows of text, titles first: for the export.
pub fn text(model: &Model) -> Vec<Vec<String>> {
    let shown = || (0..SPECS.len()).filter(|index| *index != 2);
    let titles = shown().map(|index| SPECS[index].title.to_owned()).collect();
    let lines = (0..model.cpus().len()).filter_map(|row| model.cpu(row)).map(|(then, cpu)| {
        let elapsed_ns = u64::try_from(elapsed(then, cpu)).unwrap_or(0);
        shown()
            .map(|index| {
                let (kind, value) = value(index, then, cpu);
                figure::show(kind, value, elapsed_ns, 20)
            })
            .collect()
    });
    std::iter::once(titles).chain(lines).collect()
}
