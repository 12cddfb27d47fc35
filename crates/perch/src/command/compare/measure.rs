//! One run after the other, timed.

use super::{
    account::{Account, Usage},
    sides::Side,
};
use crate::exit;
use anyhow::{Context, Result, bail};
use perch_linux::{
    energy::Energy,
    signals::{Sender, Signals},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process, wait},
};
use serde::Serialize;
use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Seek},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// RAPL counters of large packages wrap around within some minutes.
const READ_ENERGY: Duration = Duration::from_secs(20);

/// So much of what a command said is shown if it fails, in bytes.
const SHOWN: usize = 4096;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The program that does nothing.
    StartUp,
    /// The program that is compared.
    Program,
}

/// One run. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// The round, from 1; 0 for start-up runs before the first.
    pub round: usize,
    /// The side's name.
    pub side: String,
    /// What was run.
    pub kind: Kind,
    /// Wall time.
    pub wall_s: f64,
    /// User time of the program and its descendants.
    pub user_s: f64,
    /// Their system time.
    pub system_s: f64,
    /// Their voluntary context switches.
    pub voluntary: u64,
    /// Their involuntary context switches.
    pub involuntary: u64,
    /// User and system time of perch itself; `None` without perch.
    pub perch_cpu_s: Option<f64>,
    /// Energy of all packages, whatever ran on them, in joules.
    pub energy_j: Option<f64>,
    /// Threads that were bound or moved, and other changes; `None` without perch.
    pub changes: Option<u64>,
    /// The exit status, 128 + N after signal N.
    pub status: u8,
}

/// What becomes of a command's standard output and error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// It is thrown away.
    Dropped,
    /// It goes where perch's own goes.
    Shown,
    /// It is shown if the command fails.
    Kept,
}

/// Runs commands, and reads the clocks and counters.
#[derive(Debug)]
pub struct Meter {
    account: File,
    energy: Option<Energy>,
    signals: Signals,
    /// The signal by which the user has asked to stop.
    pub stopped: Option<i32>,
    /// Whether processes outlived a program's run.
    pub outlived: bool,
}

impl Meter {
    /// With the packages' energy, if it can be read.
    ///
    /// # Errors
    /// No memory for a file that has no name, no more descriptors.
    pub fn new(energy: Option<Energy>) -> Result<Self> {
        // Orphans of programs come here, as they come to `perch run`: their times count on both sides.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("perch cannot become a child subreaper (prctl)")?;
        let account = memfd_create("perch-account", MemfdFlags::CLOEXEC).context("memfd_create")?;
        Ok(Self {
            account: account.into(),
            energy,
            signals: Signals::catch()?,
            stopped: None,
            outlived: false,
        })
    }

    /// Where `perch run` is to write its account, by a name that ends with this process.
    pub fn account(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.account.as_raw_fd());
        format!("/proc/{pid}/fd/{fd}").into()
    }

    /// Runs the program once as that side does.
    ///
    /// # Errors
    /// A program that does not start, and whatever `perch run` fails with; not a program that fails.
    pub fn run(
        &mut self,
        side: &Side,
        kind: Kind,
        program: &[OsString],
        output: Output,
    ) -> Result<Run> {
        let command: Vec<&OsString> = side.prefix.iter().chain(program).collect();
        let name = command[0].to_string_lossy().into_owned();
        let said = Said::new(output)?;
        ftruncate(&self.account, 0).context("ftruncate")?;
        reap();
        let before = Usage::of_children()?;
        let energy = self.energy_used()?;
        let start = Instant::now();
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(said.output()?)
            .stderr(said.output()?)
            .spawn()
            .map_err(|error| perch_linux::launch::spawn_error(&name, &error))?;
        let Self {
            energy: counter,
            signals,
            stopped,
            ..
        } = self;
        let status = while_reading(counter.as_mut(), || wait_for(&mut child, signals, stopped))?;
        let wall = start.elapsed();
        let energy = energy.zip(self.energy_used()?);
        self.outlived |= reap();
        let all = Usage::of_children()?.without(before);
        let account = match side.has_perch() {
            true => Some(self.read_account(&side.name, status, said)?),
            false => None,
        };
        if account.is_some_and(|account| account.changes.observed_only) {
            bail!(
                "another perch took the PUs meanwhile, so that policy {} only observed: end it, and compare again",
                side.name
            );
        }
        let program = account.map_or(all, |account| account.program);
        let own = account.map(|_| all.without(program));
        Ok(Run {
            round: 0,
            side: side.name.clone(),
            kind,
            wall_s: wall.as_secs_f64(),
            user_s: program.user,
            system_s: program.system,
            voluntary: program.voluntary,
            involuntary: program.involuntary,
            perch_cpu_s: own.map(|own| own.user + own.system),
            energy_j: energy.map(|(before, after)| after - before),
            changes: account.map(|account| account.changes.made),
            status: exit::from_wait_status(status.into_raw()),
        })
    }

    /// Runs a command of the user's through the shell; `flag` is where it is from.
    ///
    /// # Errors
    /// A command that fails, with what it said.
    pub fn shell(&mut self, flag: &str, command: &str, output: Output) -> Result<()> {
        let said = Said::new(output)?;
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(said.output()?)
            .stderr(said.output()?)
            .spawn()
            .context("sh cannot be started")?;
        let status = wait_for(&mut child, &mut self.signals, &mut self.stopped)?;
        if status.success() {
            return Ok(());
        }
        let code = exit::from_wait_status(status.into_raw());
        bail!(
            "{flag} {command:?} ended with status {code}{}",
            said.shown()
        );
    }

    /// The signal by which the user has asked to stop, if one came.
    pub fn heed(&mut self) -> Option<i32> {
        let arrived = self.signals.take();
        arrived.passed.into_iter().for_each(exit::say_ignored);
        self.stopped = self.stopped.or(arrived.stop.map(|stop| stop.signal));
        self.stopped
    }

    /// In joules.
    fn energy_used(&mut self) -> Result<Option<f64>> {
        Ok(self.energy.as_mut().map(Energy::used).transpose()?)
    }

    /// What `perch run` wrote; if nothing, it failed before the program had ended.
    fn read_account(&mut self, side: &str, status: ExitStatus, said: Said) -> Result<Account> {
        let mut text = String::new();
        self.account.rewind().context("rewind")?;
        self.account.read_to_string(&mut text).context("read")?;
        if let Ok(account) = serde_json::from_str(&text) {
            return Ok(account);
        }
        let code = exit::from_wait_status(status.into_raw());
        let why = match said.shown() {
            shown if shown.is_empty() => "; see why with --show-output".to_owned(),
            shown => shown,
        };
        let text = format!("perch run --policy {side} ended with status {code}{why}");
        Err(exit::ProgramFailed { code, text }.into())
    }
}

/// Where a command's output goes.
#[derive(Debug)]
struct Said {
    output: Output,
    file: Option<File>,
}

impl Said {
    fn new(output: Output) -> Result<Self> {
        // No pipe: whatever a command leaves running would keep it open.
        let file = match output {
            Output::Kept => Some(tempfile::tempfile().context("a temporary file")?),
            _ => None,
        };
        Ok(Self { output, file })
    }

    fn output(&self) -> Result<Stdio> {
        Ok(match (&self.file, self.output) {
            (Some(file), _) => file.try_clone()?.into(),
            (None, Output::Shown) => Stdio::inherit(),
            (None, _) => Stdio::null(),
        })
    }

    /// The end of what was said, behind a colon; nothing if nothing was kept.
    fn shown(self) -> String {
        let mut bytes = Vec::new();
        if let Some(mut file) = self.file
            && file.rewind().is_ok()
        {
            let _ = file.read_to_end(&mut bytes);
        }
        let text =
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned();
        match text.trim() {
            "" => String::new(),
            text => format!(":\n{text}"),
        }
    }
}

/// Waits for a child. Signals that ask perch to stop are for the child too; from a terminal it has them already.
fn wait_for(
    child: &mut Child,
    signals: &mut Signals,
    stopped: &mut Option<i32>,
) -> Result<ExitStatus> {
    loop {
        let arrived = signals.take();
        arrived.passed.into_iter().for_each(exit::say_ignored);
        let status = child.try_wait().context("wait")?;
        if let Some(stop) = arrived.stop {
            *stopped = Some(stop.signal);
            if let (None, Sender::Process(_)) = (status, stop.sender)
                && let Some(signal) = Signal::from_named_raw(stop.signal)
            {
                let _ = kill_process(Pid::from_child(child), signal);
            }
        }
        if let Some(status) = status {
            return Ok(status);
        }
        let mut wake = [PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN)];
        match poll(&mut wake, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("poll"),
        }
    }
}

/// Waits while counters of energy are read often enough.
fn while_reading<T>(energy: Option<&mut Energy>, wait: impl FnOnce() -> T) -> T {
    let Some(energy) = energy else { return wait() };
    thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        scope.spawn(move || {
            while end.recv_timeout(READ_ENERGY) == Err(RecvTimeoutError::Timeout) {
                // The reading at the run's end reports what is wrong.
                let _ = energy.used();
            }
        });
        let result = wait();
        drop(ended);
        result
    })
}

/// Reaps children that came here as orphans; whether some are still running.
fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(Into::into).collect()
    }

    /// In a process of its own, and not two tests: a run reaps all children of its process, and other tests have some too
    /// (insta asks cargo for the workspace).
    #[test]
    fn runs_and_shell_commands() {
        const ALONE: &str = "PERCH_TEST_MEASURES_ALONE";
        if std::env::var_os(ALONE).is_some() {
            a_run_is_measured_with_all_of_its_descendants();
            a_shell_command_that_fails_is_told_with_what_it_said();
            return;
        }
        let name = "command::compare::measure::tests::runs_and_shell_commands";
        let own = std::env::current_exe().unwrap();
        let output = std::process::Command::new(own)
            .args(["--exact", name])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    fn a_run_is_measured_with_all_of_its_descendants() {
        let folder = tempfile::tempdir().unwrap();
        let zone = folder.path().join("class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        for (name, text) in [
            ("name", "package-0"),
            ("energy_uj", "3000000"),
            ("max_energy_range_uj", "10000000"),
        ] {
            fs::write(zone.join(name), text).unwrap();
        }
        let energy = Energy::open(folder.path()).unwrap();
        let mut meter = Meter::new(energy).unwrap();
        // A grandchild that its parent does not wait for computes; the counter wraps around meanwhile.
        let script = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo 500000 > \"$0\") & \
                      while ! grep -q ^5 \"$0\"; do sleep 0.02; done; \
                      while grep -qs '^State:.[RSD]' /proc/$!/status; do sleep 0.02; done; exit 3";
        let counter = zone.join("energy_uj");
        let program = words(&["sh", "-c", script, counter.to_str().unwrap()]);
        let run = meter.run(&Side::plain(), Kind::Program, &program, Output::Dropped);
        let run = run.unwrap();
        assert_eq!(run.status, 3);
        assert!(
            run.energy_j
                .is_some_and(|energy| (energy - 7.5).abs() < 1e-9)
        );
        assert!(run.user_s > 0.02 && run.user_s < run.wall_s, "{run:?}");
        assert!(run.voluntary > 0 && !meter.outlived, "{run:?}");
        assert_eq!((run.perch_cpu_s, run.changes), (None, None));

        let program = words(&["sh", "-c", "sleep 2 &"]);
        let run = meter.run(&Side::plain(), Kind::Program, &program, Output::Dropped);
        assert!(run.unwrap().wall_s < 2.0 && meter.outlived);
        assert_eq!(
            wait(WaitOptions::empty()).map(|found| found.is_some()),
            Ok(true)
        );

        // A perch that says nothing of the program has failed.
        let side = Side {
            name: "cpi".to_owned(),
            prefix: words(&["sh", "-c", "echo no such thing >&2; exit 125"]),
        };
        let error = meter
            .run(&side, Kind::StartUp, &[], Output::Kept)
            .unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
        let error = error.downcast::<exit::ProgramFailed>().unwrap();
        assert_eq!(error.code, 125);
    }

    fn a_shell_command_that_fails_is_told_with_what_it_said() {
        let mut meter = Meter::new(None).unwrap();
        meter.shell("--prepare", "exit 0", Output::Kept).unwrap();
        let error = meter.shell("--prepare", "echo no room >&2; exit 4", Output::Kept);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("--prepare") && error.contains("status 4"),
            "{error}"
        );
        assert!(error.contains("no room"), "{error}");
        // What it leaves running holds nothing up.
        let start = Instant::now();
        meter
            .shell("--prepare", "sleep 20 &", Output::Kept)
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
