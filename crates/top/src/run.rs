//! The loop: what happens is a message, each message may change the model, and what has changed is drawn.
//!
//! One thread asks the source, one reads keys, one waits for signals, one for the end of the terminal. None of them runs
//! while nothing happens.

use crate::{
    Frame,
    input::action,
    model::{Effect, Model},
    source::{Next, Pace, Source, SourceError},
    terminal::{self, Taken},
    view::theme::Theme,
};
use perch_linux::signals::Signals;
use ratatui::crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    time::{Duration, Instant},
};

/// How many messages wait.
const WAITING: usize = 256;

/// How many frames are asked for ahead.
const AHEAD: usize = 2;

/// How the view is begun.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether there are colours.
    pub color: bool,
    /// Whether the mouse is perch's.
    pub mouse: bool,
}

/// Why the view has ended.
#[derive(Debug)]
pub enum End {
    /// The user wanted it.
    Quit,
    /// A signal asked for it.
    Stopped(i32),
    /// The terminal is gone.
    Lost,
}

/// How it ended, and what became of a program that was started.
#[derive(Debug)]
pub struct Ended {
    /// Why.
    pub end: End,
    /// The program's wait status (wait(2)), if it ended before.
    pub status: Option<i32>,
    /// Why the source ended before, if it failed.
    pub error: Option<SourceError>,
}

enum Message {
    Frame(Box<Frame>),
    SourceEnd(Option<i32>),
    SourceFailed(SourceError),
    Event(Event),
    Stop(i32),
    Lost,
}

/// Shows what a source gives until the user quits. `first` are frames that it gave already.
///
/// # Errors
/// No terminal, or no thread or descriptor left.
pub fn run(
    source: Box<dyn Source>,
    first: Vec<Frame>,
    options: Options,
) -> Result<Ended, SourceError> {
    let no_terminal = |error: io::Error| {
        format!("no terminal to draw on ({error}): use --json for a program or a file")
    };
    let mut model = Model::new(&source.title(), source.pace());
    model.mouse = options.mouse;
    first.into_iter().for_each(|frame| model.push(frame));
    let (to, messages) = sync_channel(WAITING);
    let (tokens, wanted) = channel();
    let watches_signals = !source.catches_signals();
    // Before the threads: a thread that panics gives it back.
    let mut taken = Taken::take(options.mouse).map_err(no_terminal)?;
    if watches_signals {
        watch_signals(to.clone())?;
    }
    watch_keys(to.clone())?;
    let recorded = source.pace() == Pace::Recorded;
    let feeder = std::thread::Builder::new().spawn(move || feed(source, &wanted, &to))?;
    let mut view = View {
        model,
        tokens,
        owed: AHEAD,
        status: None,
        error: None,
        theme: Theme {
            color: options.color,
        },
    };
    let end = view.show(&mut taken, &messages);
    drop(taken);
    let View {
        status,
        error,
        tokens,
        ..
    } = view;
    drop((tokens, messages));
    if recorded {
        // It does not wait for anything, and may have something to clean up.
        let _ = feeder.join();
    }
    Ok(Ended { end, status, error })
}

struct View {
    model: Model,
    tokens: Sender<()>,
    /// How many frames may be asked for.
    owed: usize,
    status: Option<i32>,
    error: Option<SourceError>,
    theme: Theme,
}

impl View {
    fn show(&mut self, taken: &mut Taken, messages: &Receiver<Message>) -> End {
        let mut last = Instant::now();
        let mut changed = true;
        loop {
            while self.owed > 0 && self.model.wants_more() {
                self.owed -= 1;
                let _ = self.tokens.send(());
            }
            if changed && taken.draw(&mut self.model, self.theme).is_err() {
                return End::Lost;
            }
            let message = match self.model.due() {
                Some(due) => messages.recv_timeout(due),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let now = Instant::now();
            changed = self.model.advance(now - last);
            last = now;
            let mut next = match message {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return End::Lost,
            };
            // All that has happened is drawn once.
            let mut most = WAITING;
            while let Some(message) = next {
                match self.take(message, taken) {
                    Ok(draw) => changed |= draw,
                    Err(end) => return end,
                }
                most -= 1;
                next = if most > 0 {
                    messages.try_recv().ok()
                } else {
                    None
                };
            }
        }
    }

    /// Takes in a message; whether to draw.
    fn take(&mut self, message: Message, taken: &mut Taken) -> Result<bool, End> {
        match message {
            Message::Frame(frame) => {
                self.model.push(*frame);
                self.owed += 1;
            }
            Message::SourceEnd(status) => {
                self.status = status;
                self.model.ended = Some(match status {
                    Some(_) => "the program has ended; q quits".to_owned(),
                    None => "this is the end; Left and Right go through time, q quits".to_owned(),
                });
            }
            Message::SourceFailed(error) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                let line = perch_core::text::printable(line);
                self.model.ended = Some(format!("{line}; q quits"));
                self.error = Some(error);
            }
            Message::Event(event) => {
                let Some(action) = action(&event, self.model.writing.is_some()) else {
                    return Ok(false);
                };
                let done = match self.model.apply(&action) {
                    Effect::Quit => return Err(End::Quit),
                    Effect::Draw => Ok(()),
                    Effect::Redraw => taken.clear(),
                    Effect::Mouse(mouse) => taken.set_mouse(mouse),
                    Effect::Suspend => taken.suspend(),
                };
                if done.is_err() {
                    return Err(End::Lost);
                }
            }
            Message::Stop(signal) => return Err(End::Stopped(signal)),
            Message::Lost => return Err(End::Lost),
        }
        Ok(true)
    }
}

/// Asks the source for a frame each time that one is wanted.
fn feed(mut source: Box<dyn Source>, wanted: &Receiver<()>, to: &SyncSender<Message>) {
    while wanted.recv().is_ok() {
        let message = match catch_unwind(AssertUnwindSafe(|| source.next())) {
            Ok(Ok(Next::Frame(frame))) => Message::Frame(frame),
            Ok(Ok(Next::End(status))) => {
                let _ = to.send(Message::SourceEnd(status));
                // It has nothing to wait for any more, and would tell of no signal.
                if source.catches_signals()
                    && let Ok(signals) = Signals::catch()
                {
                    tell_of(signals, to);
                }
                return;
            }
            Ok(Ok(Next::Stop(signal))) => Message::Stop(signal),
            Ok(Err(error)) => {
                let _ = to.send(Message::SourceFailed(error));
                return;
            }
            // The hook has told it and given the terminal back.
            Err(_) => Message::Lost,
        };
        if to.send(message).is_err() {
            return;
        }
    }
}

fn watch_signals(to: SyncSender<Message>) -> Result<(), SourceError> {
    let signals = Signals::catch()?;
    std::thread::Builder::new().spawn(move || tell_of(signals, &to))?;
    Ok(())
}

/// Waits for signals, until nobody wants to know of them any more.
fn tell_of(mut signals: Signals, to: &SyncSender<Message>) {
    loop {
        match signals.wait(Duration::from_secs(3600), |_| ()) {
            Ok(None) => {}
            Ok(Some(signal)) => {
                if to.send(Message::Stop(signal)).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

fn watch_keys(to: SyncSender<Message>) -> Result<(), SourceError> {
    let lost = to.clone();
    std::thread::Builder::new().spawn(move || {
        loop {
            match event::read() {
                Ok(event) => {
                    if to.send(Message::Event(event)).is_err() {
                        return;
                    }
                }
                Err(_) => return drop(to.send(Message::Lost)),
            }
        }
    })?;
    // From a terminal that is gone the library would read for ever.
    let terminal = terminal::open()?;
    std::thread::Builder::new().spawn(move || {
        loop {
            let mut fds = [PollFd::new(&terminal, PollFlags::empty())];
            match poll(&mut fds, None) {
                Ok(_) => return drop(lost.send(Message::Lost)),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}
