//! What the user's actions change.

use super::{Chosen, Key, MAIN, Model, Place, Scope, Screen};
use crate::input::Action;
use ratatui::layout::{Position, Rect};

/// What an action asks of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// To draw.
    Draw,
    /// To draw everything, as if nothing had been drawn.
    Redraw,
    /// To take the mouse, or to leave it.
    Mouse(bool),
    /// To stop in the background.
    Suspend,
    /// To end.
    Quit,
}

/// How long a filter may be.
const LONGEST_FILTER: usize = 64;

impl Model {
    /// Does what the user asks for.
    pub fn apply(&mut self, action: &Action) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Redraw => return Effect::Redraw,
            Action::Mouse => {
                self.mouse = !self.mouse;
                return Effect::Mouse(self.mouse);
            }
            Action::Help => self.help = self.help.map_or(Some(0), |_| None),
            Action::Back => self.back(),
            Action::Screen(number) => self.show(*number),
            Action::NextScreen => self.show((self.main_screen() + 1) % MAIN.len()),
            Action::Step(by) => self.step(*by),
            Action::Scroll(by) => self.scroll(*by),
            Action::Page(by) => self.step(by.saturating_mul(self.page.max(1) as isize)),
            Action::First => self.step(isize::MIN / 2),
            Action::Last => self.step(isize::MAX / 2),
            Action::Enter => self.enter(),
            Action::SortBy(by) => self.sort_beside(*by),
            Action::SortKey(letter) => self.sort_by(match letter {
                'w' => Key::Waiting,
                'n' => Key::Name,
                'p' => Key::Pu,
                't' => Key::Tid,
                _ => Key::Cpu,
            }),
            Action::Reverse => {
                self.sort.reversed = !self.sort.reversed;
                self.listing = None;
            }
            Action::Tree => {
                self.tree = !self.tree;
                self.listing = None;
            }
            Action::Fold => self.fold(),
            Action::Running => {
                self.filter.running = !self.filter.running;
                self.listing = None;
            }
            Action::Filter => self.writing = Some(self.filter.text.clone()),
            Action::Type(c) => self.write(Some(*c)),
            Action::Erase => self.write(None),
            Action::Confirm => self.writing = None,
            Action::Level => self.next_level(),
            Action::Click(x, y) => self.click(Position::new(*x, *y), false),
            Action::ClickEnter(x, y) => self.click(Position::new(*x, *y), true),
            Action::Pause
            | Action::Time(_)
            | Action::Oldest
            | Action::Newest
            | Action::Speed(_) => self.time(action),
        }
        Effect::Draw
    }

    fn time(&mut self, action: &Action) {
        let history = &self.history;
        match action {
            Action::Pause => self.playback.pause(history),
            Action::Time(by) => self.playback.step(*by, history),
            Action::Oldest => self.playback.oldest(history),
            Action::Newest => self.playback.newest(history),
            Action::Speed(faster) => self.playback.change_speed(*faster),
            _ => {}
        }
        self.changed();
    }

    fn back(&mut self) {
        if self.help.take().is_some() {
            return;
        }
        if let Some(before) = self.writing.take() {
            self.filter.text = before;
        } else if self.places.len() > 1 {
            self.places.pop();
        } else if self.place().cursor.active {
            let place = self.place_mut();
            (place.cursor.active, place.chosen) = (false, None);
        } else {
            self.filter.text.clear();
        }
        self.listing = None;
    }

    fn show(&mut self, number: usize) {
        if let Some(screen) = MAIN.get(number) {
            self.help = None;
            self.places = vec![Place::new(screen.clone())];
            self.listing = None;
        }
    }

    fn open(&mut self, screen: Screen) {
        if *self.screen() != screen {
            self.places.push(Place::new(screen));
            self.listing = None;
        }
    }

    fn step(&mut self, by: isize) {
        if let Some(top) = &mut self.help {
            *top = top.saturating_add_signed(by);
            return;
        }
        let (rows, page) = (self.rows(), self.page);
        self.follow_chosen();
        let place = self.place_mut();
        place.chosen = None;
        place.cursor.step(by, rows, page);
    }

    fn scroll(&mut self, by: isize) {
        if self.help.is_some() {
            return self.step(by);
        }
        let (rows, page) = (self.rows(), self.page);
        self.follow_chosen();
        let place = self.place_mut();
        place.chosen = None;
        place.cursor.scroll(by, rows, page);
    }

    fn enter(&mut self) {
        if self.help.take().is_some() {
            return;
        }
        let cursor = self.place().cursor;
        if !cursor.active {
            return self.step(0);
        }
        match self.screen().clone() {
            Screen::Threads(scope) => {
                self.follow_chosen();
                self.choose();
                match self.place().chosen {
                    Some(Chosen::Thread(id)) => self.open(Screen::Thread(id)),
                    Some(Chosen::Process(pid)) if scope != Scope::Process(pid) => {
                        self.open(Screen::Threads(Scope::Process(pid)));
                    }
                    _ => {}
                }
            }
            Screen::Machine => {
                if let Some(branch) = self.layout.tree.get(cursor.index).copied() {
                    self.open(Screen::Threads(Scope::Unit(branch.level, branch.unit)));
                }
            }
            Screen::Moves => {
                let range = cursor.index..cursor.index + 1;
                let id = self.moves_in(range).first().map(|(_, made)| made.id);
                if let Some(id) = id {
                    self.open(Screen::Thread(id));
                }
            }
            Screen::Thread(id) => {
                let frame = self.frame();
                let thread = frame.and_then(|frame| Some(&frame.threads[frame.find(id)?]));
                if let Some(pid) = thread.map(|thread| thread.pid) {
                    self.open(Screen::Threads(Scope::Process(pid)));
                }
            }
        }
    }

    fn sort_by(&mut self, key: Key) {
        if self.sort.key == key {
            self.sort.reversed = !self.sort.reversed;
        } else {
            self.sort = super::Sort {
                key,
                reversed: false,
            };
        }
        self.listing = None;
    }

    fn sort_beside(&mut self, by: isize) {
        let Some(keys) = self.frame().map(|frame| Key::all(frame)) else {
            return;
        };
        let at = keys.iter().position(|key| *key == self.sort.key);
        let to = (at.unwrap_or(0) as isize + by).rem_euclid(keys.len() as isize);
        self.sort = super::Sort {
            key: keys[to as usize].clone(),
            reversed: false,
        };
        self.listing = None;
    }

    fn fold(&mut self) {
        if !self.tree {
            return;
        }
        if !self.place().cursor.active {
            return self.step(0);
        }
        self.follow_chosen();
        self.choose();
        let frame = self.frame();
        let pid = match self.place().chosen {
            Some(Chosen::Process(pid)) => Some(pid),
            Some(Chosen::Thread(id)) => {
                frame.and_then(|frame| Some(frame.threads[frame.find(id)?].pid))
            }
            None => None,
        };
        let Some(pid) = pid else { return };
        if !self.folded.remove(&pid) {
            self.folded.insert(pid);
        }
        self.place_mut().chosen = Some(Chosen::Process(pid));
        self.listing = None;
    }

    fn write(&mut self, c: Option<char>) {
        let text = &mut self.filter.text;
        match c {
            Some(c) if text.chars().count() < LONGEST_FILTER => text.push(c),
            Some(_) => {}
            None => {
                text.pop();
            }
        }
        self.listing = None;
    }

    /// By what fits, then each level.
    fn next_level(&mut self) {
        self.level = match self.level {
            None => Some(0),
            Some(level) if level + 1 < self.layout.levels.len() => Some(level + 1),
            Some(_) => None,
        };
    }

    fn click(&mut self, at: Position, enter: bool) {
        if self.help.take().is_some() {
            return;
        }
        let within = |area: &Rect| area.contains(at);
        let hits = &self.hits;
        if let Some((_, number)) = hits.screens.iter().find(|(area, _)| within(area)) {
            return self.show(*number);
        }
        if let Some((_, key)) = hits.titles.iter().find(|(area, _)| within(area)) {
            return self.sort_by(key.clone());
        }
        if let Some((_, level, unit)) = hits.units.iter().find(|(area, ..)| within(area)) {
            let (level, unit) = (*level, *unit);
            return self.open(Screen::Threads(Scope::Unit(level, unit)));
        }
        if !within(&hits.rows) {
            return;
        }
        let row = usize::from(at.y - hits.rows.y);
        let (rows, page) = (self.rows(), self.page);
        let place = self.place_mut();
        let index = place.cursor.top + row;
        if index >= rows {
            return;
        }
        // A second click on the selected row opens it.
        let again = place.cursor.active && place.cursor.index == index;
        place.chosen = None;
        place.cursor.select(index, rows, page);
        if again || enter {
            self.enter();
        }
    }
}
