//! The terminal: taken, drawn to, and always given back.

use crate::{model::Model, view, view::theme::Theme};
use ratatui::{
    Terminal,
    backend::{Backend, CrosstermBackend},
    crossterm::{
        cursor::Show,
        event::{DisableMouseCapture, EnableMouseCapture},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use rustix::process::{Signal, kill_current_process_group};
use std::{
    fs::{File, OpenOptions},
    io,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

/// Whether the terminal is in another state than it was.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The controlling terminal, whatever standard output is.
///
/// # Errors
/// There is none.
pub fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// Gives the terminal back as it was; does nothing if it is not taken.
pub fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    if let Ok(mut terminal) = open() {
        let _ = execute!(terminal, DisableMouseCapture, LeaveAlternateScreen, Show);
    }
    let _ = disable_raw_mode();
}

/// The terminal while perch has it. Dropping it gives it back, and so does a panic of any thread.
pub struct Taken {
    terminal: Terminal<CrosstermBackend<File>>,
    mouse: bool,
}

impl Taken {
    /// Takes it.
    ///
    /// # Errors
    /// There is no terminal, or it refuses.
    pub fn take(mouse: bool) -> io::Result<Self> {
        give_back_on_panic();
        let terminal = empty()?;
        let mut taken = Self { terminal, mouse };
        taken.enter()?;
        Ok(taken)
    }

    fn enter(&mut self) -> io::Result<()> {
        // First: whatever fails after it is undone.
        TAKEN.store(true, Ordering::SeqCst);
        let entered = enable_raw_mode().and_then(|()| {
            execute!(self.terminal.backend_mut(), EnterAlternateScreen)?;
            self.set_mouse(self.mouse)
        });
        entered.inspect_err(|_| give_back())?;
        self.clear()
    }

    /// Takes the mouse, or leaves it to the terminal.
    ///
    /// # Errors
    /// A terminal that is gone.
    pub fn set_mouse(&mut self, mouse: bool) -> io::Result<()> {
        self.mouse = mouse;
        let backend = self.terminal.backend_mut();
        match mouse {
            true => execute!(backend, EnableMouseCapture),
            false => execute!(backend, DisableMouseCapture),
        }
    }

    /// Draws what has changed.
    ///
    /// # Errors
    /// A terminal that is gone.
    pub fn draw(&mut self, model: &mut Model, theme: Theme) -> io::Result<()> {
        let drawn = self
            .terminal
            .draw(|frame| view::draw(model, theme, frame.buffer_mut()));
        drawn.map(|_| ())
    }

    /// Forgets what was drawn, so that everything is drawn again.
    ///
    /// # Errors
    /// A terminal that is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        // Terminal::clear asks the terminal where its cursor is, and waits for the answer.
        self.terminal = empty()?;
        self.terminal.backend_mut().clear()
    }

    /// Stops in the background, with the whole job, until the user continues it.
    ///
    /// # Errors
    /// A terminal that is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_current_process_group(Signal::TSTP)?;
        self.enter()
    }
}

/// A terminal of which nothing is known.
fn empty() -> io::Result<Terminal<CrosstermBackend<File>>> {
    Terminal::new(CrosstermBackend::new(open()?))
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The message would be lost with the screen.
            give_back();
            before(panic);
        }));
    });
}
