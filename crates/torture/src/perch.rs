//! The real perch: started, stopped, killed, and what it left.

use crate::{masks::await_that, puppet::Puppet, sandbox::Sandbox};
use anyhow::{Context, Result};
use nix::{sys::signal::Signal, unistd::Pid};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// A perch that has not ended for so long hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How perch is called.
#[derive(Debug, Clone)]
pub struct Perch<'a> {
    sandbox: &'a Sandbox,
    /// Where it keeps its journals; its own choice if none is given.
    state: Option<PathBuf>,
    user: Option<u32>,
    prefix: Vec<OsString>,
    rules: Vec<String>,
    weights: Vec<String>,
    period: &'static str,
}

/// A perch at work.
#[derive(Debug)]
pub struct Session {
    child: Child,
    said: PathBuf,
}

/// A perch that has ended.
#[derive(Debug)]
pub struct Done {
    /// How; `None` if it hung and was killed.
    pub status: Option<ExitStatus>,
    /// What it said on either channel.
    pub said: Vec<u8>,
    /// CPU time in seconds.
    pub cpu: f64,
}

impl Done {
    /// Its exit code; `None` if a signal ended it or it hung.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// What it said, as far as it is text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Whether it crashed.
    pub fn crashed(&self) -> bool {
        let killed = self.status.and_then(|status| status.signal());
        self.code() == Some(101)
            || killed.is_some_and(|signal| {
                [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGILL].contains(&signal)
            })
            || self.text().contains("panicked at")
    }
}

impl<'a> Perch<'a> {
    /// perch with a state directory of this try, that binds threads and programs named w… to PU 0.
    pub fn new(sandbox: &'a Sandbox) -> Self {
        Self {
            sandbox,
            state: Some(sandbox.state.clone()),
            user: None,
            prefix: Vec::new(),
            rules: vec!["w*=0".to_owned()],
            weights: Vec::new(),
            period: "10ms",
        }
    }

    /// Another state directory; perch's own choice if none is given.
    pub fn state(mut self, state: Option<&Path>) -> Self {
        self.state = state.map(Path::to_owned);
        self
    }

    /// As another user.
    pub fn user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Behind another command, such as unshare(1).
    pub fn behind<S: Into<OsString>>(mut self, prefix: impl IntoIterator<Item = S>) -> Self {
        self.prefix = prefix.into_iter().map(Into::into).collect();
        self
    }

    /// Other rules than `w*=0`.
    pub fn rules(mut self, rules: &[&str]) -> Self {
        self.rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        self
    }

    /// These CPU weights too.
    pub fn weights(mut self, weights: &[&str]) -> Self {
        self.weights = weights.iter().map(|rule| (*rule).to_owned()).collect();
        self
    }

    /// A usual period rather than a very short one.
    pub fn usual_period(mut self) -> Self {
        self.period = "1s";
        self
    }

    /// A command line of perch.
    pub fn command<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut words = self.prefix.clone();
        words.push(self.sandbox.perch.clone().into());
        words.extend(args.into_iter().map(Into::into));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.sandbox.home());
        if let Some(state) = &self.state {
            command.env("PERCH_STATE_DIR", state);
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn placing(&self, verb: &str, more: &[&str]) -> Vec<String> {
        let mut args: Vec<String> = [verb, "-q", "-p", "fixed", "--period", self.period]
            .map(str::to_owned)
            .to_vec();
        for rule in &self.rules {
            args.extend(["--pin".to_owned(), rule.clone()]);
        }
        for rule in &self.weights {
            args.extend(["--weight".to_owned(), rule.clone()]);
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    /// Attaches to processes.
    pub fn attach(&self, pids: &[i32], more: &[&str]) -> Result<Session> {
        let mut args = self.placing("attach", more);
        args.extend(pids.iter().map(ToString::to_string));
        self.start(args)
    }

    /// Any other call, without input.
    pub fn start<S: Into<OsString>>(&self, args: impl IntoIterator<Item = S>) -> Result<Session> {
        let (said, file) = self.sandbox.said()?;
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(file.try_clone()?);
        let child = command.stderr(file).spawn().context("starting perch")?;
        Ok(Session { child, said })
    }

    /// Starts a victim under perch, which may not live to start it: see [`Puppet::meet`].
    pub fn run(&self, more: &[&str], program: &Command) -> Result<(Session, Meeting)> {
        let mut args: Vec<OsString> = self
            .placing("run", more)
            .into_iter()
            .map(Into::into)
            .collect();
        args.push("--".into());
        args.push(program.get_program().into());
        args.extend(program.get_args().map(Into::into));
        let (said, file) = self.sandbox.said()?;
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(file).spawn().context("starting perch")?;
        let orders = child.stdin.take().context("no pipe")?;
        let replies = child.stdout.take().context("no pipe")?;
        Ok((Session { child, said }, Meeting { orders, replies }))
    }

    /// `perch restore`.
    pub fn restore(&self) -> Result<Done> {
        self.start(["restore"])?.wait(PATIENCE)
    }

    /// Journals and their unfinished copies in the state directory.
    pub fn left(&self) -> Vec<PathBuf> {
        self.state.as_deref().map_or_else(Vec::new, journals)
    }
}

/// Journals and their unfinished copies in a directory.
pub fn journals(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("journal" | "new"))
        })
        .collect()
}

/// The pipes to a victim that perch starts.
#[derive(Debug)]
pub struct Meeting {
    orders: std::process::ChildStdin,
    replies: std::process::ChildStdout,
}

impl Meeting {
    /// Waits for the victim; `None` if perch never started it.
    pub fn meet(self) -> Result<Option<Puppet>> {
        Puppet::meet(self.orders, self.replies)
    }

    /// The bare pipes, for a program that is no victim.
    pub fn pipes(self) -> (std::process::ChildStdin, std::process::ChildStdout) {
        (self.orders, self.replies)
    }
}

impl Session {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is not reaped yet, so the number is its own.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_raw(self.pid());
        pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    /// CPU time that it has used so far, in seconds.
    pub fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let both = ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0);
        both / rustix::param::clock_ticks_per_second() as f64
    }

    /// Kills it.
    pub fn kill(self) -> Result<Done> {
        self.signal(Signal::SIGKILL as i32);
        self.wait(PATIENCE)
    }

    /// Stops it politely.
    pub fn stop(self) -> Result<Done> {
        self.signal(Signal::SIGTERM as i32);
        self.wait(PATIENCE)
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap_or_default()).into_owned()
    }

    /// Waits for its end, which a hung one does not find by itself.
    pub fn wait(mut self, limit: Duration) -> Result<Done> {
        let ended = await_that(limit, || !self.is_alive());
        let cpu = self.cpu();
        if !ended {
            let _ = nix::sys::signal::kill(Pid::from_raw(self.pid()), Signal::SIGKILL);
        }
        let status = self.child.wait()?;
        let said = fs::read(&self.said).unwrap_or_default();
        let _ = fs::remove_file(&self.said);
        Ok(Done {
            status: ended.then_some(status),
            said,
            cpu,
        })
    }
}

impl Drop for Session {
    /// Nothing that perch does goes on after its try.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.said);
    }
}

/// An empty file, for something to be written to.
pub fn fresh_file(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("{}", path.display()))
}
