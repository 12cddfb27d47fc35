//! Colours, or none: then what matters stands out by other means.

use ratatui::style::{Color, Modifier, Style};

/// How things look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Whether there are colours.
    pub color: bool,
}

impl Theme {
    fn colored(self, color: Color, without: Modifier) -> Style {
        match self.color {
            true => Style::new().fg(color),
            false => Style::new().add_modifier(without),
        }
    }

    /// Bars across the terminal.
    pub fn band(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A selected row, a present screen.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    /// Titles of columns.
    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }

    /// The title of the column that rows are sorted by.
    pub fn sorted(self) -> Style {
        self.title().add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What the reader should know.
    pub fn notice(self) -> Style {
        self.colored(Color::Yellow, Modifier::BOLD)
    }

    /// A load, 0 to 1.
    pub fn load(self, share: f32) -> Style {
        match share {
            s if s >= 0.8 => self.colored(Color::Red, Modifier::BOLD),
            s if s >= 0.4 => self.colored(Color::Yellow, Modifier::empty()),
            _ => self.colored(Color::Green, Modifier::empty()),
        }
    }

    /// Numbers over time.
    pub fn history(self) -> Style {
        self.colored(Color::Cyan, Modifier::empty())
    }
}
