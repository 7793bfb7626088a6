//! A screen as a picture: for the README.

use std::fmt::Write as _;

use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A cell in units of the picture; a common monospace font of 14 units is 8.4 wide.
const CELL: (f64, f64) = (8.4, 17.0);
const MARGIN: f64 = 10.0;
const FONT: f64 = 14.0;
const FOREGROUND: &str = "#d8dee9";
const BACKGROUND: &str = "#1e222a";

/// What is drawn in one go: neighbours that look the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    foreground: &'static str,
    background: Option<&'static str>,
    is_bold: bool,
    is_dim: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let is_reversed = cell.modifier.contains(Modifier::REVERSED);
        let foreground = color(cell.fg).unwrap_or(FOREGROUND);
        let background = color(cell.bg);
        let (foreground, background) = if is_reversed {
            (background.unwrap_or(BACKGROUND), Some(foreground))
        } else {
            (foreground, background)
        };
        Self {
            foreground,
            background,
            is_bold: cell.modifier.contains(Modifier::BOLD),
            is_dim: cell.modifier.contains(Modifier::DIM),
        }
    }
}

/// The colours that the view uses, as a dark terminal shows them.
fn color(color: Color) -> Option<&'static str> {
    match color {
        Color::Red => Some("#ff6b6b"),
        Color::Green => Some("#8fd694"),
        Color::Cyan => Some("#5ccfe6"),
        Color::Magenta => Some("#d6a0f0"),
        _ => None,
    }
}

/// Draws `frames` of one size, each for `seconds`, over and over; a single one stands still.
#[must_use]
pub fn svg(frames: &[Buffer], seconds: f64) -> String {
    let area = frames.first().map(|frame| frame.area).unwrap_or_default();
    let (width, height) = (
        f64::from(area.width) * CELL.0 + 2.0 * MARGIN,
        f64::from(area.height) * CELL.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-size=\"{FONT}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    if frames.len() > 1 {
        let (count, whole) = (frames.len() as f64, frames.len() as f64 * seconds);
        let share = 100.0 / count;
        let _ = writeln!(
            out,
            "<style>.f{{visibility:hidden;animation:f {whole}s infinite step-end}}\
             @keyframes f{{0%{{visibility:visible}}{share:.3}%{{visibility:hidden}}}}</style>"
        );
    }
    for (index, frame) in frames.iter().enumerate() {
        if frames.len() > 1 {
            let delay = index as f64 * seconds;
            let _ = writeln!(out, "<g class=\"f\" style=\"animation-delay:{delay}s\">");
        } else {
            out.push_str("<g>\n");
        }
        (0..frame.area.height).for_each(|y| row(&mut out, frame, y));
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn row(out: &mut String, frame: &Buffer, y: u16) {
    let top = MARGIN + f64::from(y) * CELL.1;
    let mut x = 0;
    while x < frame.area.width {
        let look = Look::of(&frame[(x, y)]);
        let start = x;
        let mut text = String::new();
        while x < frame.area.width && Look::of(&frame[(x, y)]) == look {
            let symbol = frame[(x, y)].symbol();
            text.push_str(symbol);
            x += (symbol.width() as u16).max(1);
        }
        run(out, (start, x), top, &text, look);
    }
}

fn run(out: &mut String, (start, end): (u16, u16), top: f64, text: &str, look: Look) {
    let left = |x: u16| MARGIN + f64::from(x) * CELL.0;
    if let Some(background) = look.background {
        let width = f64::from(end - start) * CELL.0;
        rect(out, (left(start), top, width, CELL.1), background, look);
    }
    // Blocks are drawn, those in a row as one: fonts and edges leave gaps between them.
    let mut x = start;
    let characters: Vec<char> = text.chars().collect();
    for same in characters.chunk_by(|a, b| a == b) {
        let cells: u16 = same.iter().map(|c| c.width().unwrap_or(0) as u16).sum();
        if let Some((from_left, from_top, width, height)) = block(same[0]) {
            let each = (from_left * CELL.0, top + from_top * CELL.1, height * CELL.1);
            let mut draw = |x: u16, width: f64| {
                rect(
                    out,
                    (left(x) + each.0, each.1, width * CELL.0, each.2),
                    look.foreground,
                    look,
                );
            };
            if width < 1.0 {
                (x..x + cells).for_each(|x| draw(x, width));
            } else {
                draw(x, f64::from(cells));
            }
        }
        x += cells;
    }
    let words: String =
        text.chars().map(|c| if block(c).is_some() { '\u{a0}' } else { c }).collect();
    let blank = |c: char| c == ' ' || c == '\u{a0}';
    let trimmed = words.trim_matches(blank);
    if trimmed.is_empty() {
        return;
    }
    let before = words.chars().take_while(|c| blank(*c)).count() as u16;
    let cells = trimmed.width() as u16;
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" fill=\"{}\"{}{} xml:space=\"preserve\">{}</text>",
        left(start + before),
        top + CELL.1 - 4.5,
        f64::from(cells) * CELL.0,
        look.foreground,
        if look.is_bold { " font-weight=\"bold\"" } else { "" },
        if look.is_dim { " opacity=\".6\"" } else { "" },
        escape(trimmed),
    );
}

fn rect(out: &mut String, (x, y, width, height): (f64, f64, f64, f64), fill: &str, look: Look) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"{}/>",
        if look.is_dim { " opacity=\".6\"" } else { "" },
    );
}

/// The part of its cell that a block character fills: left, top, width, height.
fn block(character: char) -> Option<(f64, f64, f64, f64)> {
    let eighths = match character {
        '▁'..='█' => character as u32 - '▁' as u32 + 1,
        '▌' => return Some((0.0, 0.0, 0.5, 1.0)),
        '▐' => return Some((0.5, 0.0, 0.5, 1.0)),
        _ => return None,
    };
    let height = f64::from(eighths) / 8.0;
    Some((0.0, 1.0 - height, 1.0, height))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    #[test]
    fn text_blocks_and_looks() {
        let mut frame = Buffer::empty(Rect::new(0, 0, 12, 2));
        frame.set_string(0, 0, "a<b", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        frame.set_string(4, 0, "│██▌", Style::new());
        frame.set_string(0, 1, "on", Style::new().add_modifier(Modifier::REVERSED));
        let text = svg(&[frame.clone()], 1.0);
        assert!(
            text.contains("fill=\"#ff6b6b\" font-weight=\"bold\" xml:space=\"preserve\">a&lt;b<")
        );
        // Full blocks and a half one: two filled rectangles, and one behind the reversed text.
        assert_eq!(text.matches("<rect x=").count(), 3, "{text}");
        assert!(!text.contains("animation"));
        let moving = svg(&[frame.clone(), frame], 2.0);
        assert!(moving.contains("animation:f 4s") && moving.contains("50.000%"));
        assert_eq!(moving.matches("<g").count(), 2);
    }
}
