//! The help, made from the same table as the keys.

use ratatui::{buffer::Buffer, layout::Rect};
use unicode_width::UnicodeWidthStr as _;

use super::{keys::BINDINGS, state::Model, theme::Theme};

/// What the columns mean.
const COLUMNS: [(&str, &str); 12] = [
    ("usr% sys% cpu%", "measured time, as a share of one CPU; interrupts count as system"),
    ("rusr% rsys% rcpu%", "what the kernel reports for the same time"),
    ("diff ms", "reported minus measured run time; the bar's full length is the largest shown"),
    ("in ms, out ms", "clock skip: billed to it, and taken from it, by skipped clock updates"),
    ("wakeups, wait ms", "times woken; time on a run queue"),
    ("stops, tracer", "ptrace stops, and who made them"),
    ("x before a name", "the task has ended"),
    ("-", "not measured here; the Hooks tab says why"),
    ("shifted ns/s", "pairs: time moved from the first's bill to the second's, per second"),
    ("latency, µs", "pairs: from the wakeup (a stop: from the resume) to the switch-in"),
    ("residual", "what no named cause explains"),
    ("own cost", "of observer itself and of its hooks, as shares of one CPU"),
];

const KEY_WIDTH: u16 = 18;

/// Lines of it.
pub const LINES: usize = BINDINGS.len() + 1 + COLUMNS.len();

/// Draws it.
pub fn draw(model: &Model, buffer: &mut Buffer, area: Rect) {
    let keys = BINDINGS.iter().map(|binding| Some((binding.keys, binding.words)));
    let columns = COLUMNS.iter().map(|(name, words)| Some((*name, *words)));
    let lines = keys.chain([None]).chain(columns);
    // The end of the help stays at the end of the screen.
    let top = model.help_top.min(LINES.saturating_sub(usize::from(area.height)));
    for (y, line) in (area.y..area.bottom()).zip(lines.skip(top)) {
        let Some((name, words)) = line else { continue };
        let (x, _) =
            buffer.set_stringn(area.x + 1, y, name, usize::from(area.width), model.theme.key());
        let x = x.max(area.x + KEY_WIDTH + 1) + 1;
        let room = usize::from(area.right().saturating_sub(x));
        buffer.set_stringn(x, y, crate::view::text::cut(words, room), room, Theme::PLAIN);
        debug_assert!(name.width() <= usize::from(KEY_WIDTH));
    }
}
