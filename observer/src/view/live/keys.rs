//! The one table of keys: what each does, and how help and footer name it.

/// A key, as the view knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    /// A character.
    Char(char),
    /// A character with Ctrl.
    Ctrl(char),
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Tab with Shift.
    BackTab,
    /// Backspace.
    Backspace,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End, and print the summary.
    Quit,
    /// Show or hide the help.
    Help,
    /// Let the view stand still; measuring goes on.
    Pause,
    /// Sort by the next column.
    Sort,
    /// Sort by the column before.
    SortBack,
    /// Sort in the other direction.
    Reverse,
    /// Type a filter.
    Filter,
    /// Next row.
    Next,
    /// Row before.
    Previous,
    /// First row.
    First,
    /// Last row.
    Last,
    /// A page down.
    PageDown,
    /// A page up.
    PageUp,
    /// Show the chosen row in detail.
    Detail,
    /// One step back: help, detail, choice, filter.
    Back,
    /// Next tab.
    NextTab,
    /// Tab before.
    PreviousTab,
    /// One row for each process, or for each thread.
    Processes,
    /// As a tree.
    Tree,
    /// Since the begin, or since the reading before.
    Cumulative,
    /// Read more often.
    Faster,
    /// Read less often.
    Slower,
    /// Write what is shown into a file.
    Export,
    /// Take the tasks that have ended out of the view.
    Purge,
    /// Draw everything again.
    Redraw,
    /// Stop, back to the shell.
    Suspend,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The keys.
    pub presses: &'static [Press],
    /// What they do.
    pub action: Action,
    /// The keys in words.
    pub keys: &'static str,
    /// What they do, for the help.
    pub words: &'static str,
    /// The same for the footer; empty for none.
    pub short: &'static str,
}

const fn binding(
    presses: &'static [Press],
    action: Action,
    keys: &'static str,
    words: &'static str,
    short: &'static str,
) -> Binding {
    Binding { presses, action, keys, words, short }
}

use Press::{BackTab, Char, Ctrl, Down, End, Enter, Esc, Home, PageDown, PageUp, Tab, Up};

/// Every key, in the order of the help; the footer has those with a short form, as far as they fit.
pub const BINDINGS: [Binding; 26] = [
    binding(&[Char('q'), Ctrl('c')], Action::Quit, "q", "quit, and print the summary", "quit"),
    binding(&[Char('?'), Char('h')], Action::Help, "?", "this help", "help"),
    binding(&[Enter], Action::Detail, "Enter", "the chosen row in detail", "detail"),
    binding(&[Esc], Action::Back, "Esc", "back: help, detail, choice, filter", ""),
    binding(&[Tab], Action::NextTab, "Tab", "next tab", "tabs"),
    binding(&[BackTab], Action::PreviousTab, "Shift-Tab", "tab before", ""),
    binding(&[Char('s')], Action::Sort, "s", "sort by the next column", "sort"),
    binding(&[Char('S')], Action::SortBack, "S", "sort by the column before", ""),
    binding(&[Char('r')], Action::Reverse, "r", "sort in the other direction", "reverse"),
    binding(
        &[Char('f'), Char('/')],
        Action::Filter,
        "f /",
        "filter by a part of the name, or an id; Enter keeps it, Esc drops it",
        "filter",
    ),
    binding(
        &[Char('c')],
        Action::Cumulative,
        "c",
        "since the begin, or since the last reading",
        "cumulative",
    ),
    binding(&[Char(' ')], Action::Pause, "Space", "pause the view; measuring goes on", "pause"),
    binding(
        &[Char('p')],
        Action::Processes,
        "p",
        "a row for each process, or each thread",
        "process",
    ),
    binding(&[Char('t')], Action::Tree, "t", "children below their parents", "tree"),
    binding(&[Char('e')], Action::Export, "e", "write what is shown to a CSV file", "export"),
    binding(&[Char('x')], Action::Purge, "x", "hide the tasks that have ended", "purge"),
    binding(&[Char('+'), Char('=')], Action::Slower, "+", "a longer interval", ""),
    binding(&[Char('-')], Action::Faster, "-", "a shorter interval", ""),
    binding(&[Down, Char('j')], Action::Next, "j Down", "next row", ""),
    binding(&[Up, Char('k')], Action::Previous, "k Up", "row before", ""),
    binding(&[PageDown, Ctrl('f')], Action::PageDown, "PgDn", "a page down", ""),
    binding(&[PageUp, Ctrl('b')], Action::PageUp, "PgUp", "a page up", ""),
    binding(&[Home, Char('g')], Action::First, "g Home", "first row", ""),
    binding(&[End, Char('G')], Action::Last, "G End", "last row", ""),
    binding(&[Ctrl('l')], Action::Redraw, "Ctrl-L", "draw everything again", ""),
    binding(&[Ctrl('z')], Action::Suspend, "Ctrl-Z", "back to the shell; fg returns", ""),
];

/// What a key does.
#[must_use]
pub fn action(press: Press) -> Option<Action> {
    BINDINGS.iter().find(|binding| binding.presses.contains(&press)).map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_does_one_thing_and_every_action_has_a_key() {
        for (index, one) in BINDINGS.iter().enumerate() {
            for other in &BINDINGS[index + 1..] {
                assert!(!one.presses.iter().any(|press| other.presses.contains(press)), "{one:?}");
                assert_ne!(one.action, other.action);
            }
            assert!(one.presses.iter().all(|press| action(*press) == Some(one.action)));
        }
    }
}
