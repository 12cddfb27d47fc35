//! From keys and the mouse to what they ask for.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// End the program.
    Quit,
    /// Stop in the background, as Ctrl-Z does to other programs.
    Suspend,
    /// Draw everything again.
    Redraw,
    /// Show or hide the help.
    Help,
    /// One step back: out of help, a text, a detail; else no row is selected any more.
    Back,
    /// Show one of the main screens, from 0.
    Screen(usize),
    /// Show the next main screen.
    NextScreen,
    /// Move the selection by so many rows.
    Step(isize),
    /// Scroll by so many rows.
    Scroll(isize),
    /// Move the selection by so many pages.
    Page(isize),
    /// Select the first row.
    First,
    /// Select the last row.
    Last,
    /// Show more of the selected row.
    Enter,
    /// Sort by the next column, or the one before.
    SortBy(isize),
    /// Sort by the column with this letter.
    SortKey(char),
    /// Reverse the order.
    Reverse,
    /// Threads below their processes, or not.
    Tree,
    /// Hide or show the threads of the selected process.
    Fold,
    /// Show only threads that run, or all.
    Running,
    /// Begin to write a filter.
    Filter,
    /// A character of a text.
    Type(char),
    /// Take back the last character of a text.
    Erase,
    /// The text is complete.
    Confirm,
    /// Stop time, or let it go on.
    Pause,
    /// To an earlier (negative) or later frame.
    Time(isize),
    /// To the oldest frame.
    Oldest,
    /// To the newest frame.
    Newest,
    /// Show recorded frames faster, or slower.
    Speed(bool),
    /// Show the next level of shared units.
    Level,
    /// Take the mouse, or leave it to the terminal.
    Mouse,
    /// The mouse was pressed at this column and row.
    Click(u16, u16),
    /// The mouse was pressed twice, or with another button.
    ClickEnter(u16, u16),
}

/// What an event asks for, while a text is written or not.
pub fn action(event: &Event, writing: bool) -> Option<Action> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) => match control(key) {
            Some(action) => Some(action),
            None if writing => text(key),
            None => command(key),
        },
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Scroll(-3)),
            MouseEventKind::ScrollDown => Some(Action::Scroll(3)),
            MouseEventKind::Down(MouseButton::Left) => Some(Action::Click(mouse.column, mouse.row)),
            MouseEventKind::Down(_) => Some(Action::ClickEnter(mouse.column, mouse.row)),
            _ => None,
        },
        Event::Resize(..) => Some(Action::Redraw),
        _ => None,
    }
}

fn control(key: &KeyEvent) -> Option<Action> {
    if !key.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    match key.code {
        KeyCode::Char('c') => Some(Action::Quit),
        KeyCode::Char('z') => Some(Action::Suspend),
        KeyCode::Char('l') => Some(Action::Redraw),
        _ => None,
    }
}

fn text(key: &KeyEvent) -> Option<Action> {
    match key.code {
        KeyCode::Enter => Some(Action::Confirm),
        KeyCode::Esc => Some(Action::Back),
        KeyCode::Backspace => Some(Action::Erase),
        KeyCode::Char(c) if !perch_core::text::acts(c) => Some(Action::Type(c)),
        _ => None,
    }
}

fn command(key: &KeyEvent) -> Option<Action> {
    let shift = key.modifiers.contains(KeyModifiers::SHIFT);
    let step = if shift { 10 } else { 1 };
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc | KeyCode::Backspace => Action::Back,
        KeyCode::Char(digit @ '1'..='3') => Action::Screen(digit as usize - '1' as usize),
        KeyCode::Tab => Action::NextScreen,
        KeyCode::Up | KeyCode::Char('k') => Action::Step(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Step(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Enter => Action::Enter,
        KeyCode::Char('<') => Action::SortBy(-1),
        KeyCode::Char('>') => Action::SortBy(1),
        KeyCode::Char(key @ ('c' | 'w' | 'n' | 'p' | 't')) => Action::SortKey(key),
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('v') => Action::Tree,
        KeyCode::Char('f') => Action::Fold,
        KeyCode::Char('b') => Action::Running,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Left => Action::Time(-step),
        KeyCode::Right => Action::Time(step),
        KeyCode::Char('[') => Action::Time(-10),
        KeyCode::Char(']') => Action::Time(10),
        KeyCode::Char('g') => Action::Oldest,
        KeyCode::Char('G') => Action::Newest,
        KeyCode::Char('+' | '=') => Action::Speed(true),
        KeyCode::Char('-') => Action::Speed(false),
        KeyCode::Char('u') => Action::Level,
        KeyCode::Char('m') => Action::Mouse,
        _ => return None,
    })
}

/// The help: keys, and what they do.
pub const HELP: [(&str, &str); 25] = [
    ("q, Ctrl-C", "quit"),
    ("?, h", "this help"),
    ("1 2 3, Tab", "threads, machine, moves of the policy"),
    ("Up Down, j k", "select a row; PgUp, PgDn, Home, End"),
    (
        "Enter",
        "more of the selected thread, process, unit or move",
    ),
    ("Esc", "one step back; clear filter and selection"),
    (
        "/",
        "filter by name, TID or PID; Enter keeps it, Esc undoes it",
    ),
    ("< >", "sort by another column; or click on its title"),
    ("c w n p t", "sort by CPU, waiting, name, PU, TID"),
    ("r", "reverse the order"),
    ("v", "tree: threads below their processes"),
    ("f", "in the tree: hide or show the threads of a process"),
    ("b", "only threads that run, or all"),
    ("u", "the level of the units at the top: PU, core, cache, …"),
    ("Space", "stop time; go on (live: at the newest)"),
    ("Left Right", "to an earlier or later moment"),
    ("[ ]", "by ten moments"),
    ("g G", "to the oldest, to the newest moment"),
    ("+ -", "show a recording faster, or slower"),
    ("m", "mouse: for perch, or for the terminal's own selection"),
    ("Ctrl-L", "draw again"),
    ("", ""),
    ("CPU%", "share of the interval on a PU"),
    ("WAIT%", "share runnable, but without a PU"),
    (
        "PU",
        "where the thread was last seen; BOUND: where perch put it",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_mean_text_while_one_is_written() {
        let q = key(KeyCode::Char('q'));
        assert_eq!(action(&q, false), Some(Action::Quit));
        assert_eq!(action(&q, true), Some(Action::Type('q')));
        let stop = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        for writing in [false, true] {
            assert_eq!(action(&stop, writing), Some(Action::Quit));
        }
        assert_eq!(action(&key(KeyCode::Char('\u{9b}')), true), None);
        assert_eq!(action(&key(KeyCode::Enter), true), Some(Action::Confirm));
        assert_eq!(action(&key(KeyCode::Enter), false), Some(Action::Enter));
    }

    #[test]
    fn help_fits_and_names_every_letter_that_does_something() {
        for (keys, text) in HELP {
            assert!(14 + text.chars().count() <= 76, "{text}");
            assert!(keys.chars().count() <= 13, "{keys}");
        }
        let named: String = HELP[..21].iter().map(|(keys, _)| *keys).collect();
        for c in ('!'..='~').filter(|c| !"=".contains(*c)) {
            let means = action(&key(KeyCode::Char(c)), false).is_some();
            if means {
                assert!(named.contains(c), "{c} is not in the help");
            }
        }
    }
}
