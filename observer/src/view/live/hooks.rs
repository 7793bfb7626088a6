//! The hooks: what became of each, and what it costs.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    figure::{self, Kind},
    grid::{self, Cell, Spec},
    state::{HookRow, Model},
    theme::Theme,
};
use crate::view::text::clean;

const SPECS: [Spec; 7] = [
    Spec::text("HOOK", 26, 26, 0),
    Spec::text("VIA", 6, 6, 3),
    Spec::text("STATE", 7, 7, 1),
    Spec::number("runs/s", 9, 2),
    Spec::number("ns/run", 7, 4),
    Spec::number("insns", 7, 5),
    Spec::text("WHY NOT, AND WHAT IS LOST", 12, 160, 6),
];

/// Draws the tab.
pub fn draw(model: &Model, buffer: &mut Buffer, titles: Rect, body: Rect) {
    let placed = grid::fit(&SPECS, body.width);
    grid::titles(buffer, titles, &SPECS, &placed, None);
    let window = model.hook_cursor.window(model.hooks().len(), usize::from(body.height));
    for (y, row) in (body.y..).zip(window) {
        let Some((then, hook)) = model.hook(row) else { break };
        let is_chosen = model.hook_cursor.chosen() == Some(&row);
        let style = if is_chosen { Theme::CHOSEN } else { Theme::PLAIN };
        grid::row(buffer, body, y, &SPECS, &placed, style, |column| {
            let number = |kind, value| figure::cell(kind, value, 1, column.width);
            match column.index {
                0 => hook.line.name.as_str().into(),
                1 => hook.line.via.as_str().into(),
                2 => Cell {
                    text: hook.line.state.as_str().into(),
                    style: match hook.line.state.as_str() {
                        "active" => model.theme.good(),
                        // As the user wished.
                        "off" => Theme::PLAIN,
                        _ => model.theme.warn(),
                    },
                },
                3 => number(Kind::Count, Some(rate(model, then, hook))),
                4 => number(Kind::Count, hook.run_ns.map(i128::from)),
                5 => number(Kind::Count, hook.instructions.map(i128::from)),
                _ => why(hook).into(),
            }
        });
    }
}

/// Runs per second of the view.
fn rate(model: &Model, then: Option<&HookRow>, hook: &HookRow) -> i128 {
    let runs = i128::from(hook.runs.saturating_sub(then.map_or(0, |then| then.runs)));
    runs * 1_000_000_000 / i128::from(model.span_ns().max(1))
}

fn why(hook: &HookRow) -> String {
    match (&hook.line.reason, &hook.line.lost) {
        (None, None) => String::new(),
        (Some(reason), None) => clean(reason),
        (None, Some(lost)) => format!("lost: {}", clean(lost)),
        (Some(reason), Some(lost)) => format!("{}; lost: {}", clean(reason), clean(lost)),
    }
}

/// What is shown, as rows of text, titles first: for the export.
pub fn text(model: &Model) -> Vec<Vec<String>> {
    let number = |value: Option<i128>| figure::show(Kind::Count, value, 1, 20);
    let titles = SPECS.iter().map(|spec| spec.title.to_owned()).collect();
    let lines = (0..model.hooks().len()).filter_map(|row| model.hook(row)).map(|(then, hook)| {
        vec![
            hook.line.name.clone(),
            hook.line.via.clone(),
            hook.line.state.clone(),
            number(Some(rate(model, then, hook))),
            number(hook.run_ns.map(i128::from)),
            number(hook.instructions.map(i128::from)),
            why(hook),
        ]
    });
    std::iter::once(titles).chain(lines).collect()
}
