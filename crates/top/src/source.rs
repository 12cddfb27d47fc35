//! Where frames come from.

pub mod local;
pub mod recording;
pub mod stream;

use crate::Frame;

/// Why a source cannot go on, in words for the user.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// What a source gives next.
#[derive(Debug)]
pub enum Next {
    /// The machine over one more interval.
    Frame(Box<Frame>),
    /// There is no more. The wait status (wait(2)) of a program that was started, if it has ended.
    End(Option<i32>),
    /// A signal asks to stop.
    Stop(i32),
}

/// How a source keeps time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Frames come as they happen.
    Live,
    /// Frames come as fast as they are wanted, and are shown by their own clock.
    Recorded,
}

/// One frame after the other.
pub trait Source: Send {
    /// What is shown, for the title: `this machine`, a file's name, …; printable.
    fn title(&self) -> String;

    /// How it keeps time.
    fn pace(&self) -> Pace;

    /// The next frame. Blocks until there is one.
    ///
    /// # Errors
    /// A machine, file or connection that cannot go on.
    fn next(&mut self) -> Result<Next, SourceError>;

    /// Whether [`Source::next`] returns the signals that ask to stop; else the caller must catch them.
    fn catches_signals(&self) -> bool {
        false
    }
}
