//! What a live view costs: `perch top` of the whole machine beside top(1) with threads, each on a terminal of its own, once
//! a second.

use crate::{
    spread::Spread,
    tool::cpu_time,
    victim::{Victim, command},
};
use anyhow::{Context, Result};
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde::Serialize;
use std::{
    fmt,
    fs::File,
    io::Read,
    path::Path,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

/// The share of a PU to stay under with so many threads.
const AIMS: [(usize, f64); 1] = [(2_000, 0.02)];

/// How long each is watched, and after what time: by then all is open that is kept open.
const WINDOW: Duration = Duration::from_secs(8);
const SETTLING: Duration = Duration::from_secs(6);

/// Both on the same machine.
#[derive(Debug, Serialize)]
pub struct Top {
    /// Threads of the victim; those of the rest of the machine are shown too.
    pub threads: usize,
    /// Threads of them that run.
    pub running: usize,
    /// perch's, in PU seconds a second.
    pub perch: Spread,
    /// Of an ordinary user's perch.
    pub ordinary: Spread,
    /// top's, in PU seconds a second.
    pub top: Spread,
    /// What perch's is to stay under, if there is an aim for this many threads.
    pub aim: Option<f64>,
}

impl fmt::Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aim = self
            .aim
            .map_or_else(String::new, |aim| format!(" (aim: under {:.0})", aim * 1e3));
        write!(
            f,
            "  {} threads, {} running: perch top {}{aim}, as an ordinary user {}; top -H {}",
            self.threads,
            self.running,
            self.perch.scaled(1e3),
            self.ordinary.scaled(1e3),
            self.top.scaled(1e3),
        )
    }
}

/// Measures in alternating rounds.
///
/// # Errors
/// A perch or a top that does not work.
pub fn measure(perch: &Path, threads: usize, rounds: u32) -> Result<Top> {
    let running = threads / 20;
    let (all, some) = (threads.to_string(), running.to_string());
    let _victim = Victim::start(&["--threads", &all, "--running", &some], false)?;
    let (mut of_perch, mut ordinary, mut of_top) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => of_perch.push(cost(perch, false, &["top", "-i", "1s"])?),
                1 => ordinary.push(cost(perch, true, &["top", "-i", "1s"])?),
                _ => of_top.push(cost(Path::new("top"), false, &["-H", "-d", "1"])?),
            }
        }
    }
    let aim = AIMS.iter().find(|(of, _)| *of == threads);
    Ok(Top {
        threads,
        running,
        perch: Spread::of(&of_perch),
        ordinary: Spread::of(&ordinary),
        top: Spread::of(&of_top),
        aim: aim.map(|(_, aim)| *aim),
    })
}

/// PU seconds a second of a program on a terminal.
fn cost(program: &Path, as_nobody: bool, args: &[&str]) -> Result<f64> {
    let view = View::start(program, as_nobody, args)?;
    sleep(SETTLING);
    let (before, start) = (cpu_time(view.child.id())?, Instant::now());
    sleep(WINDOW);
    let spent = cpu_time(view.child.id())? - before;
    Ok(spent.as_secs_f64() / start.elapsed().as_secs_f64())
}

/// A program that draws on a terminal of its own, whose output the benchmark reads.
struct View {
    child: Child,
    _master: File,
}

impl View {
    fn start(program: &Path, as_nobody: bool, args: &[&str]) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name, flags, Mode::empty())?);
        let master = File::from(master);
        let size = Winsize {
            ws_col: 120,
            ws_row: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size)?;
        if as_nobody {
            // Opened again by its name.
            rustix::fs::fchmod(&slave, Mode::from_raw_mode(0o666))?;
        }
        let mut shown = master.try_clone()?;
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while shown.read(&mut bytes).is_ok_and(|read| read > 0) {}
        });
        // setsid(1) makes its standard input the controlling terminal, and becomes the program.
        let tool = command(program, as_nobody);
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(tool.get_program())
            .args(tool.get_args())
            .args(args)
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()
            .with_context(|| format!("{}: cannot be started", program.display()))?;
        Ok(Self {
            child,
            _master: master,
        })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
