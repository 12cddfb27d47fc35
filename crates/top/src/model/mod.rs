//! What is shown, as pure state: no terminal, no clock, no file.

mod cursor;
mod history;
mod listing;
mod order;
mod playback;
mod step;

pub use cursor::Cursor;
pub use history::History;
pub use listing::{Chosen, How, Listing, ProcessRow, Row, Scope};
pub use order::{Comparison, Filter, Key, Sort};
pub use playback::Playback;
pub use step::Effect;

use crate::{Frame, frame::Moved, source::Pace, units::Layout};
use perch_core::{ThreadId, Topology};
use ratatui::layout::Rect;
use rustc_hash::FxHashSet;
use std::{ops::Range, sync::Arc, time::Duration};

/// What fills the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screen {
    /// A table of threads.
    Threads(Scope),
    /// The machine as a tree.
    Machine,
    /// What the policy changed.
    Moves,
    /// One thread.
    Thread(ThreadId),
}

/// The screens that have a number.
const MAIN: [Screen; 3] = [Screen::Threads(Scope::All), Screen::Machine, Screen::Moves];

/// A screen, with where one is in it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The screen.
    pub screen: Screen,
    /// The selected row.
    pub cursor: Cursor,
    /// What the selected row of a table stands for.
    pub chosen: Option<Chosen>,
}

impl Place {
    fn new(screen: Screen) -> Self {
        Self {
            screen,
            cursor: Cursor::default(),
            chosen: None,
        }
    }
}

/// Where on the terminal things are that the mouse finds; the view sets it.
#[derive(Debug, Clone, Default)]
pub struct Hits {
    /// The rows of the list.
    pub rows: Rect,
    /// The titles of columns.
    pub titles: Vec<(Rect, Key)>,
    /// The units at the top: level and number.
    pub units: Vec<(Rect, usize, usize)>,
    /// The names of the main screens.
    pub screens: Vec<(Rect, usize)>,
}

/// All that the view draws.
#[derive(Debug)]
pub struct Model {
    /// What is shown, such as `this machine`.
    pub title: String,
    /// Frames so far.
    pub history: History,
    /// Which of them is shown.
    pub playback: Playback,
    /// The screens that were entered, the present one last.
    places: Vec<Place>,
    /// How threads are sorted.
    pub sort: Sort,
    /// Which threads are shown.
    pub filter: Filter,
    /// Whether the filter's text is being written; what it was before.
    pub writing: Option<String>,
    /// Whether threads stand below their processes.
    pub tree: bool,
    folded: FxHashSet<i32>,
    /// The level of the units at the top; by what fits if `None`.
    pub level: Option<usize>,
    /// Whether the help is shown, and from which line on.
    pub help: Option<usize>,
    /// Whether the mouse is perch's.
    pub mouse: bool,
    /// Why no more frames come.
    pub ended: Option<String>,
    /// Where things are on the terminal.
    pub hits: Hits,
    /// How many rows of the list are seen.
    page: usize,
    layout: Arc<Layout>,
    layout_of: Option<Arc<Topology>>,
    listing: Option<Listing>,
}

impl Model {
    /// One without frames.
    pub fn new(title: &str, pace: Pace) -> Self {
        Self {
            title: title.to_owned(),
            history: History::default(),
            playback: Playback::new(pace),
            places: vec![Place::new(MAIN[0].clone())],
            sort: Sort::default(),
            filter: Filter::default(),
            writing: None,
            tree: false,
            folded: FxHashSet::default(),
            level: None,
            help: None,
            mouse: true,
            ended: None,
            hits: Hits::default(),
            page: 0,
            layout: Arc::new(Layout {
                levels: Vec::new(),
                tree: Vec::new(),
            }),
            layout_of: None,
            listing: None,
        }
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: Frame) {
        let gone = self.history.push(Arc::new(frame));
        self.playback.pushed(&self.history, gone);
        self.changed();
    }

    /// Time has passed; whether there is something new to draw.
    pub fn advance(&mut self, passed: Duration) -> bool {
        let moved = self.playback.advance(passed, &self.history);
        if moved {
            self.changed();
        }
        moved
    }

    /// How long until there is something new to draw by itself.
    pub fn due(&self) -> Option<Duration> {
        self.playback.due(&self.history)
    }

    /// Whether more frames are wanted.
    pub fn wants_more(&self) -> bool {
        self.playback.wants_more(&self.history)
    }

    /// The frame that is shown.
    pub fn frame(&self) -> Option<&Arc<Frame>> {
        self.history.get(self.playback.position())
    }

    /// The machine's parts, as of the frame that is shown.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The present screen.
    pub fn screen(&self) -> &Screen {
        &self.place().screen
    }

    /// The number of the present main screen, or of the one below a detail.
    pub fn main_screen(&self) -> usize {
        let bottom = self.places.first().map(|place| &place.screen);
        let known = MAIN.iter().position(|screen| Some(screen) == bottom);
        known.unwrap_or(0)
    }

    /// How many details are open.
    pub fn depth(&self) -> usize {
        self.places.len() - 1
    }

    fn place(&self) -> &Place {
        // There is always one.
        &self.places[self.places.len() - 1]
    }

    fn place_mut(&mut self) -> &mut Place {
        let last = self.places.len() - 1;
        &mut self.places[last]
    }

    /// What is shown, or how, has changed.
    fn changed(&mut self) {
        self.listing = None;
        let Some(frame) = self.frame() else {
            return;
        };
        let topology = Arc::clone(&frame.topology);
        let known = self.layout_of.as_ref();
        if !known.is_some_and(|known| Arc::ptr_eq(known, &topology)) {
            self.layout = Arc::new(Layout::new(&topology));
            self.layout_of = Some(topology);
            self.level = self.level.filter(|level| *level < self.layout.levels.len());
        }
    }

    /// The table of threads, if the present screen is one.
    pub fn listing(&mut self) -> Option<&mut Listing> {
        let frame = Arc::clone(self.frame()?);
        let Screen::Threads(scope) = &self.place().screen else {
            return None;
        };
        if self.listing.is_none() {
            self.listing = Some(Listing::new(
                &frame,
                &How {
                    scope,
                    filter: &self.filter,
                    sort: &self.sort,
                    tree: self.tree && !matches!(scope, Scope::Process(_)),
                    folded: &self.folded,
                    layout: &self.layout,
                },
            ));
        }
        self.listing.as_mut()
    }

    /// How many rows the present list has.
    fn rows(&mut self) -> usize {
        match self.place().screen {
            Screen::Threads(_) => self.listing().map_or(0, |listing| listing.len()),
            Screen::Machine => self.layout.tree.len(),
            Screen::Moves => self.moves(),
            Screen::Thread(_) => 0,
        }
    }

    /// Shows the present list in `page` rows: which ones, and which of the list is selected.
    pub fn window(&mut self, page: usize) -> (Range<usize>, Option<usize>) {
        self.page = page;
        let rows = self.rows();
        self.follow_chosen();
        let cursor = &mut self.place_mut().cursor;
        cursor.fit(rows, page);
        let (top, selected) = (cursor.top, cursor.active.then_some(cursor.index));
        if selected.is_some() {
            self.choose();
        }
        (top..(top + page).min(rows), selected)
    }

    /// The rows of a table of threads.
    pub fn thread_rows(&mut self, range: Range<usize>) -> Vec<Row> {
        self.listing()
            .map_or_else(Vec::new, |listing| listing.rows(range))
    }

    /// The selection stays with what was selected.
    fn follow_chosen(&mut self) {
        let Some(chosen) = self.place().chosen else {
            return;
        };
        let found = self.listing().and_then(|listing| listing.find(chosen));
        if let Some(index) = found {
            self.place_mut().cursor.index = index;
        }
    }

    /// Remembers what the selected row stands for.
    fn choose(&mut self) {
        let index = self.place().cursor.index;
        let Some(frame) = self.frame().cloned() else {
            return;
        };
        let row = self.thread_rows(index..index + 1).pop();
        self.place_mut().chosen = row.and_then(|row| row.chosen(&frame));
    }

    /// How many moves there were in the kept frames up to the one that is shown.
    pub fn moves(&self) -> usize {
        let frames = self.history.until(self.playback.position(), usize::MAX);
        frames.map(|frame| frame.moves.len()).sum()
    }

    /// The moves of a range, the last one first, each with when it was.
    pub fn moves_in(&self, range: Range<usize>) -> Vec<(u64, &Moved)> {
        let frames = self.history.until(self.playback.position(), usize::MAX);
        let moves = frames
            .rev()
            .flat_map(|frame| frame.moves.iter().rev().map(|made| (frame.at, made)));
        moves.skip(range.start).take(range.len()).collect()
    }

    /// The moves of a thread, the last one first.
    pub fn moves_of(&self, id: ThreadId, most: usize) -> Vec<(u64, &Moved)> {
        let frames = self.history.until(self.playback.position(), usize::MAX);
        let moves = frames
            .rev()
            .flat_map(|frame| frame.moves.iter().rev().map(|made| (frame.at, made)));
        let moves = moves.filter(|(_, made)| made.id == id);
        moves.take(most).collect()
    }
}
