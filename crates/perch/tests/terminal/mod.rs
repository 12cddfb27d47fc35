//! Programs on a pseudo-terminal, whose screen a terminal emulator keeps.

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    num::NonZero,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// However busy the machine is.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A program on a terminal of its own.
pub struct Terminal {
    /// The side on which a user would sit; closed to pull the plug.
    pub master: Option<File>,
    /// The program's side, kept open so that its settings can be read afterwards.
    pub slave: Option<File>,
    before: Termios,
    pub child: Child,
    pub screen: Arc<Mutex<vt100::Parser>>,
    errors: PathBuf,
    pub folder: TempDir,
}

pub fn perch() -> Command {
    Command::new(env!("CARGO_BIN_EXE_perch"))
}

impl Terminal {
    /// Starts perch top with these arguments on 80 columns and 24 rows.
    pub fn top(args: &[&str]) -> Self {
        let mut command = perch();
        command.arg("top").args(args);
        Self::start(&command, &[])
    }

    pub fn start(command: &Command, environment: &[(&str, &str)]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name, flags, Mode::empty()).unwrap());
        let master = File::from(master);
        tcsetwinsize(&master, size(80, 24)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("errors");
        let before = tcgetattr(&slave).unwrap();
        // setsid(1) makes its standard input the controlling terminal.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env("TERM", "xterm-256color")
            .env("PERCH_STATE_DIR", folder.path())
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(24), cells(80), 0)));
        let (shown, mut output) = (Arc::clone(&screen), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self {
            master: Some(master),
            before,
            slave: Some(slave),
            child,
            screen,
            errors,
            folder,
        }
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows what is wanted.
    pub fn wait_for(&mut self, what: &str, shown: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let text = self.text();
            if shown(&text) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < LIMIT,
                "no {what} ({ended:?}):\n{text}\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn wait_for_text(&mut self, text: &str) {
        self.wait_for(text, |shown| shown.contains(text));
    }

    pub fn keys(&mut self, keys: &str) {
        let master = self.master.as_mut().unwrap();
        master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        let mut screen = self.screen.lock().unwrap();
        screen.screen_mut().set_size(cells(rows), cells(columns));
        let master = self.master.as_ref().unwrap();
        tcsetwinsize(master, size(columns, rows)).unwrap();
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    pub fn wait_for_end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it goes on:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The terminal is as it was: its settings, the screen, the cursor, the mouse.
    pub fn assert_given_back(&self) {
        let after = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.local_modes);
        assert_eq!(modes(&after), modes(&self.before));
        let start = Instant::now();
        loop {
            let screen = self.screen.lock().unwrap();
            let screen = screen.screen();
            let mouse = screen.mouse_protocol_mode();
            let left = screen.alternate_screen()
                || screen.hide_cursor()
                || mouse != vt100::MouseProtocolMode::None;
            if !left {
                return;
            }
            // What the program wrote last may not have been read yet.
            assert!(start.elapsed() < LIMIT, "{}", screen.contents());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
