//! Columns that fit, and rows in them.

use std::borrow::Cow;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};
use unicode_width::UnicodeWidthStr as _;

use super::theme::Theme;
use crate::view::text::cut;

/// A column as it could be.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its title.
    pub title: &'static str,
    /// What several columns have in common; a line above the titles.
    pub group: &'static str,
    /// Cells that it needs.
    pub width: u16,
    /// Cells that it can use.
    pub most: u16,
    /// Columns with the lowest rank come first into a narrow view.
    pub rank: u8,
    /// Text, not a number.
    pub is_text: bool,
}

impl Spec {
    /// A number in `width` cells.
    pub const fn number(title: &'static str, width: u16, rank: u8) -> Self {
        Self { title, group: "", width, most: width, rank, is_text: false }
    }

    /// Text in `width` to `most` cells.
    pub const fn text(title: &'static str, width: u16, most: u16, rank: u8) -> Self {
        Self { title, group: "", width, most, rank, is_text: true }
    }

    /// With a line above the titles.
    pub const fn of(self, group: &'static str) -> Self {
        Self { group, ..self }
    }
}

/// A column as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Which, as an index into the specs.
    pub index: usize,
    /// Cells from the left.
    pub x: u16,
    /// Cells.
    pub width: u16,
}

/// The columns that fit into `width`, in the order of the specs, one cell apart.
pub fn fit(specs: &[Spec], width: u16) -> Vec<Placed> {
    let mut by_rank: Vec<usize> = (0..specs.len()).collect();
    by_rank.sort_by_key(|index| specs[*index].rank);
    let mut widths = vec![0; specs.len()];
    let mut left = width.saturating_add(1);
    for index in &by_rank {
        let needed = specs[*index].width + 1;
        // What comes later is less important: it does not slip in where this one did not fit.
        let Some(rest) = left.checked_sub(needed) else { break };
        (widths[*index], left) = (specs[*index].width, rest);
    }
    for index in by_rank {
        if widths[index] != 0 {
            let more = left.min(specs[index].most - specs[index].width);
            widths[index] += more;
            left -= more;
        }
    }
    let mut x = 0;
    let mut placed = Vec::with_capacity(specs.len());
    for (index, width) in widths.into_iter().enumerate().filter(|(_, width)| *width != 0) {
        placed.push(Placed { index, x, width });
        x += width + 1;
    }
    placed
}

/// What stands in a cell.
pub struct Cell<'a> {
    /// The text; cut to the column.
    pub text: Cow<'a, str>,
    /// Added to the row's style.
    pub style: Style,
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self { text: text.into(), style: Theme::PLAIN }
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self { text: text.into(), style: Theme::PLAIN }
    }
}

/// Draws the titles in the last line of `area`, the groups above them if there is room.
pub fn titles(
    buffer: &mut Buffer,
    area: Rect,
    specs: &[Spec],
    placed: &[Placed],
    sort: Option<usize>,
) {
    let Some(y) = area.bottom().checked_sub(1).filter(|_| area.height != 0) else { return };
    for column in placed {
        let spec = &specs[column.index];
        let style = if sort == Some(column.index) {
            Theme::TITLE.patch(Theme::CHOSEN)
        } else {
            Theme::TITLE
        };
        put(buffer, area, y, *column, spec.is_text, spec.title, style);
    }
    if area.height < 2 {
        return;
    }
    for run in placed.chunk_by(|a, b| specs[a.index].group == specs[b.index].group) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let group = specs[first.index].group;
        let width = usize::from(last.x + last.width - first.x);
        if !group.is_empty() && width >= group.width() {
            let label =
                if width >= group.width() + 4 { format!(" {group} ") } else { group.to_owned() };
            let line = format!("{label:─^width$}");
            buffer.set_stringn(area.x + first.x, y - 1, line, width, Theme::DIM);
        }
    }
}

/// Draws one row.
pub fn row<'a>(
    buffer: &mut Buffer,
    area: Rect,
    y: u16,
    specs: &[Spec],
    placed: &[Placed],
    style: Style,
    mut cell: impl FnMut(Placed) -> Cell<'a>,
) {
    for column in placed {
        let cell = cell(*column);
        // Colours changed over would be large areas of red.
        let is_chosen = style.add_modifier.contains(Modifier::REVERSED);
        let style = if is_chosen { style } else { cell.style.patch(style) };
        put(buffer, area, y, *column, specs[column.index].is_text, &cell.text, style);
    }
    buffer.set_style(Rect { y, height: 1, ..area }.intersection(area), style);
}

fn put(
    buffer: &mut Buffer,
    area: Rect,
    y: u16,
    column: Placed,
    is_text: bool,
    text: &str,
    style: Style,
) {
    let width = usize::from(column.width).min(usize::from(area.width.saturating_sub(column.x)));
    let text = cut(text, width);
    let indent = if is_text { 0 } else { width.saturating_sub(text.width()) };
    if y < area.bottom() && width != 0 {
        buffer.set_stringn(area.x + column.x + indent as u16, y, text, width - indent, style);
    }
}

/// A bar from the middle of `width` cells: to the right for more, to the left for less, in half cells.
///
/// `value / most` is the share of a half that it fills; what is there at all shows as half a cell.
pub fn signed_bar(value: i128, most: i128, width: u16) -> String {
    let half = usize::from(width.saturating_sub(1) / 2);
    let steps = match value.unsigned_abs() {
        0 => 0,
        size => {
            let share = size as f64 / most.unsigned_abs().max(1) as f64;
            ((share * 2.0 * half as f64).round() as usize).max(1).min(2 * half)
        }
    };
    let (full, odd) = (steps / 2, steps % 2);
    let blanks = " ".repeat(half - full - odd);
    let blocks = "█".repeat(full);
    let empty = " ".repeat(half);
    if value < 0 {
        format!("{blanks}{}{blocks}│{empty}", "▐".repeat(odd))
    } else {
        format!("{empty}│{blocks}{}{blanks}", "▌".repeat(odd))
    }
}

/// A bar from the left of `width` cells, in half cells; what is there at all shows.
pub fn bar(value: u64, most: u64, width: usize) -> String {
    let steps = match value {
        0 => 0,
        value => {
            let share = value as f64 / most.max(1) as f64;
            ((share * 2.0 * width as f64).round() as usize).max(1).min(2 * width)
        }
    };
    format!("{}{}", "█".repeat(steps / 2), "▌".repeat(steps % 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: [Spec; 4] = [
        Spec::number("a", 5, 0),
        Spec::text("name", 4, 8, 1),
        Spec::number("c", 6, 3),
        Spec::number("d", 3, 2),
    ];

    #[test]
    fn columns_come_by_rank_and_stand_in_order() {
        let shown = |width| -> Vec<(usize, u16, u16)> {
            fit(&SPECS, width).iter().map(|p| (p.index, p.x, p.width)).collect()
        };
        assert_eq!(shown(4), []);
        assert_eq!(shown(5), [(0, 0, 5)]);
        assert_eq!(shown(12), [(0, 0, 5), (1, 6, 6)]);
        assert_eq!(shown(14), [(0, 0, 5), (1, 6, 4), (3, 11, 3)]);
        assert_eq!(shown(21), [(0, 0, 5), (1, 6, 4), (2, 11, 6), (3, 18, 3)]);
        assert_eq!(shown(90), [(0, 0, 5), (1, 6, 8), (2, 15, 6), (3, 22, 3)]);
    }

    #[test]
    fn bars_have_their_width_and_their_sign() {
        assert_eq!(signed_bar(0, 10, 9), "    │    ");
        assert_eq!(signed_bar(10, 10, 9), "    │████");
        assert_eq!(signed_bar(-5, 10, 9), "  ██│    ");
        assert_eq!(signed_bar(1, 1_000_000, 9), "    │▌   ");
        assert_eq!(signed_bar(-1, 0, 9), "████│    ");
        for value in [i128::MIN, -3, 0, 7, i128::MAX] {
            for width in [1, 3, 9, 21] {
                assert_eq!(signed_bar(value, 7, width).width(), usize::from(width), "{value}");
            }
        }
        assert_eq!(
            (bar(0, 5, 4), bar(5, 5, 4), bar(1, 90, 4)),
            (String::new(), "████".into(), "▌".into())
        );
        assert_eq!(bar(9, 0, 4), "████");
    }
}
