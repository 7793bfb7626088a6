//! Looks. Colour only adds: whatever it says is also said by a sign, a word or a place.

use ratatui::style::{Color, Modifier, Style};

/// How things look.
///
/// Only the terminal's own first colours are used, and of them those that can be read on a light and on a dark
/// background alike: not yellow, not blue, not black or white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Colours may be used.
    pub color: bool,
}

impl Theme {
    /// Text.
    pub const PLAIN: Style = Style::new();
    /// Titles.
    pub const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
    /// What is chosen: a row, a tab, the column that is sorted by.
    pub const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
    /// What is over, or stands back.
    pub const DIM: Style = Style::new().add_modifier(Modifier::DIM);

    fn colored(self, color: Color, without: Style) -> Style {
        if self.color { without.fg(color) } else { without }
    }

    /// Billed too much.
    #[must_use]
    pub fn more(self) -> Style {
        self.colored(Color::Red, Self::PLAIN)
    }

    /// Billed too little.
    #[must_use]
    pub fn less(self) -> Style {
        self.colored(Color::Cyan, Self::PLAIN)
    }

    /// By sign.
    #[must_use]
    pub fn signed(self, value: i128) -> Style {
        match value {
            0 => Self::PLAIN,
            value if value > 0 => self.more(),
            _ => self.less(),
        }
    }

    /// Works as it should.
    #[must_use]
    pub fn good(self) -> Style {
        self.colored(Color::Green, Self::PLAIN)
    }

    /// What the user must know.
    #[must_use]
    pub fn warn(self) -> Style {
        self.colored(Color::Red, Self::TITLE)
    }

    /// A state that was asked for.
    #[must_use]
    pub fn note(self) -> Style {
        self.colored(Color::Magenta, Self::TITLE)
    }

    /// Key names.
    #[must_use]
    pub fn key(self) -> Style {
        self.colored(Color::Cyan, Self::TITLE)
    }
}
