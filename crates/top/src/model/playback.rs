//! Which of the kept frames is shown, and when the next one is.

use super::history::History;
use crate::source::Pace;
use std::time::Duration;

/// The speeds at which recorded frames are shown.
const SPEEDS: [f64; 9] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 200.0];

/// The usual speed's place there.
const USUAL: usize = 3;

/// The place in time.
#[derive(Debug)]
pub struct Playback {
    pace: Pace,
    /// The frame that is shown.
    position: usize,
    /// Whether the newest frame is always shown, of live frames.
    following: bool,
    paused: bool,
    speed: usize,
    /// The moment that is shown, of recorded frames: in nanoseconds, as [`crate::Frame::at`].
    clock: f64,
}

impl Playback {
    /// At the first frame, going on.
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            position: 0,
            following: pace == Pace::Live,
            paused: false,
            speed: USUAL,
            clock: 0.0,
        }
    }

    /// The place of the frame that is shown.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether time stands still.
    pub fn is_paused(&self) -> bool {
        match self.pace {
            Pace::Live => !self.following,
            Pace::Recorded => self.paused,
        }
    }

    /// Frames are shown so many times as fast as they were.
    pub fn speed(&self) -> Option<f64> {
        (self.pace == Pace::Recorded).then(|| SPEEDS[self.speed])
    }

    /// A frame has come, and so many of the oldest are gone.
    pub fn pushed(&mut self, history: &History, gone: usize) {
        self.position = self.position.saturating_sub(gone);
        if self.following {
            self.position = history.len().saturating_sub(1);
        }
        if history.len() == 1
            && let Some(first) = history.get(0)
        {
            self.clock = first.at as f64;
        }
    }

    /// Time has passed; whether another frame is shown now.
    pub fn advance(&mut self, passed: Duration, history: &History) -> bool {
        if self.pace == Pace::Live || self.paused || history.is_empty() {
            return false;
        }
        let last = history.get(history.len() - 1).map_or(0, |frame| frame.at);
        // It waits at the newest frame, and goes on from there when more have come.
        self.clock = (self.clock + passed.as_nanos() as f64 * SPEEDS[self.speed]).min(last as f64);
        let before = self.position;
        self.position = history.at(self.clock as u64).max(self.position);
        self.position != before
    }

    /// How long until another frame is to be shown; `None` if that is not a matter of time.
    pub fn due(&self, history: &History) -> Option<Duration> {
        if self.pace == Pace::Live || self.paused {
            return None;
        }
        let next = history.get(self.position + 1)?;
        let nanoseconds = (next.at as f64 - self.clock).max(0.0) / SPEEDS[self.speed];
        // Not so often that drawing is all that is done.
        Some(Duration::from_nanos(nanoseconds.min(1e15) as u64).max(Duration::from_millis(20)))
    }

    /// Whether more frames are wanted.
    pub fn wants_more(&self, history: &History) -> bool {
        // In the last quarter the oldest are no longer needed.
        self.pace == Pace::Live
            || !history.is_full()
            || self.position + 1 >= history.len() - history.len() / 4
    }

    /// Stops, or goes on: live from the newest frame.
    pub fn pause(&mut self, history: &History) {
        match self.pace {
            Pace::Recorded => self.paused = !self.paused,
            Pace::Live if self.following => self.following = false,
            Pace::Live => self.newest(history),
        }
    }

    /// To an earlier (negative) or later frame.
    pub fn step(&mut self, by: isize, history: &History) {
        let last = history.len().saturating_sub(1);
        let to = self.position.saturating_add_signed(by).min(last);
        // Live, to stand at the newest frame is to follow.
        self.following = self.pace == Pace::Live && to == last && by > 0;
        self.paused = true;
        self.go(to, history);
    }

    /// To the oldest frame that is kept.
    pub fn oldest(&mut self, history: &History) {
        self.following = false;
        self.go(0, history);
    }

    /// To the newest frame.
    pub fn newest(&mut self, history: &History) {
        self.following = self.pace == Pace::Live;
        self.go(history.len().saturating_sub(1), history);
    }

    fn go(&mut self, to: usize, history: &History) {
        self.position = to;
        if let Some(frame) = history.get(to) {
            self.clock = frame.at as f64;
        }
    }

    /// Shows recorded frames faster, or slower.
    pub fn change_speed(&mut self, faster: bool) {
        self.speed = match faster {
            true => (self.speed + 1).min(SPEEDS.len() - 1),
            false => self.speed.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, check::tests::machine};
    use std::sync::Arc;

    fn history(frames: u64) -> History {
        let mut history = History::default();
        for at in 1..=frames {
            let at = at * 1_000_000_000;
            let frame = Frame::empty(machine(1, 1, 1));
            history.push(Arc::new(Frame { at, ..frame }));
        }
        history
    }

    #[test]
    fn live_follows_until_one_looks_back() {
        let mut history = history(3);
        let mut playback = Playback::new(Pace::Live);
        playback.pushed(&history, 0);
        assert_eq!((playback.position(), playback.is_paused()), (2, false));
        playback.step(-1, &history);
        assert_eq!((playback.position(), playback.is_paused()), (1, true));
        let gone = history.push(Arc::clone(history.get(2).unwrap()));
        playback.pushed(&history, gone);
        assert_eq!(playback.position(), 1);
        assert_eq!(playback.due(&history), None);
        playback.step(1, &history);
        assert!(playback.is_paused());
        playback.step(9, &history);
        assert_eq!((playback.position(), playback.is_paused()), (3, false));
        playback.oldest(&history);
        assert_eq!((playback.position(), playback.is_paused()), (0, true));
        playback.pause(&history);
        assert_eq!((playback.position(), playback.is_paused()), (3, false));
    }

    #[test]
    fn a_recording_is_shown_by_its_own_clock() {
        let history = history(5);
        let mut playback = Playback::new(Pace::Recorded);
        // As they come one by one.
        let mut first = History::default();
        first.push(Arc::clone(history.get(0).unwrap()));
        playback.pushed(&first, 0);
        assert!(!playback.advance(Duration::from_secs(9), &first));
        assert_eq!(playback.due(&first), None);
        assert_eq!(playback.due(&history), Some(Duration::from_secs(1)));
        assert!(!playback.advance(Duration::from_millis(900), &history));
        assert!(playback.advance(Duration::from_millis(100), &history));
        assert_eq!(playback.position(), 1);
        playback.change_speed(true);
        assert_eq!(playback.due(&history), Some(Duration::from_millis(500)));
        playback.pause(&history);
        assert!(!playback.advance(Duration::from_secs(9), &history));
        playback.pause(&history);
        assert!(playback.advance(Duration::from_secs(9), &history));
        assert_eq!(playback.position(), 4);
        playback.step(-2, &history);
        assert_eq!((playback.position(), playback.is_paused()), (2, true));
        playback.newest(&history);
        assert_eq!(playback.position(), 4);
    }

    #[test]
    fn a_long_recording_is_read_as_far_as_it_is_watched() {
        let mut history = History::keeping(40);
        let mut playback = Playback::new(Pace::Recorded);
        let mut at = 0;
        while playback.wants_more(&history) {
            at += 1;
            let frame = Frame::empty(machine(1, 1, 1));
            let gone = history.push(Arc::new(Frame { at, ..frame }));
            playback.pushed(&history, gone);
        }
        assert_eq!((history.len(), history.forgotten()), (10, 0));
        playback.step(8, &history);
        assert!(playback.wants_more(&history));
        let frame = Frame::empty(machine(1, 1, 1));
        let gone = history.push(Arc::new(Frame { at: 99, ..frame }));
        playback.pushed(&history, gone);
        // Still the same frame.
        assert_eq!((gone, playback.position()), (1, 7));
    }
}
