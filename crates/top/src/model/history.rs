//! The frames that are kept.

use crate::Frame;
use perch_core::ThreadId;
use std::{collections::VecDeque, sync::Arc};

/// How many threads of frames are kept in all: about 60 MB. With 2,000 threads and a frame a second, these are four minutes.
const MOST_ROWS: usize = 500_000;

/// How many frames are kept.
const MOST_FRAMES: usize = 50_000;

/// The frames so far, the oldest first; at least the last two.
#[derive(Debug)]
pub struct History {
    frames: VecDeque<Arc<Frame>>,
    rows: usize,
    most_rows: usize,
    forgotten: u64,
}

impl Default for History {
    fn default() -> Self {
        Self::keeping(MOST_ROWS)
    }
}

/// What a frame counts, threads or not.
fn rows(frame: &Frame) -> usize {
    frame.threads.len() + frame.pus.len() / 4 + 4
}

impl History {
    /// One that keeps so many threads of frames in all.
    pub fn keeping(most_rows: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            rows: 0,
            most_rows,
            forgotten: 0,
        }
    }

    /// Adds the newest frame; how many of the oldest were forgotten for it.
    pub fn push(&mut self, frame: Arc<Frame>) -> usize {
        self.rows += rows(&frame);
        self.frames.push_back(frame);
        let mut gone = 0;
        while self.frames.len() > 2
            && (self.rows > self.most_rows || self.frames.len() > MOST_FRAMES)
        {
            if let Some(frame) = self.frames.pop_front() {
                self.rows -= rows(&frame);
                gone += 1;
            }
        }
        self.forgotten += gone as u64;
        gone
    }

    /// Whether the next frame may make it forget one.
    pub fn is_full(&self) -> bool {
        let next = self.frames.back().map_or(0, |frame| rows(frame));
        self.rows + next > self.most_rows || self.frames.len() >= MOST_FRAMES
    }

    /// How many frames are kept.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// A frame by its place.
    pub fn get(&self, at: usize) -> Option<&Arc<Frame>> {
        self.frames.get(at)
    }

    /// The last `count` frames up to a place, the oldest first.
    pub fn until(&self, at: usize, count: usize) -> impl DoubleEndedIterator<Item = &Arc<Frame>> {
        let end = (at + 1).min(self.frames.len());
        self.frames.range(end.saturating_sub(count)..end)
    }

    /// The place of the last frame that is not after a moment; the first if all are.
    pub fn at(&self, moment: u64) -> usize {
        let after = self.frames.partition_point(|frame| frame.at <= moment);
        after.saturating_sub(1)
    }

    /// A number of a thread in the last `count` frames up to a place; `None` in those where it was not.
    pub fn of_thread(
        &self,
        at: usize,
        count: usize,
        id: ThreadId,
        number: impl Fn(&Frame, usize) -> Option<f32>,
    ) -> Vec<Option<f32>> {
        let frames = self.until(at, count);
        frames.map(|frame| number(frame, frame.find(id)?)).collect()
    }
}
