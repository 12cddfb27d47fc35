//! A tool that watches a victim, and what it costs.

use crate::victim::command;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, getpriority_process, kill_process, setpriority_process};
use std::{
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

/// What is counted where both count the same.
const EVENTS: &str = "task-clock,context-switches,page-faults,cpu-migrations";

/// A running perch or perf, ended and awaited when dropped.
pub struct Tool {
    child: Child,
}

impl Tool {
    /// `perch attach` to a process, watching only.
    ///
    /// # Errors
    /// A perch that cannot be started.
    pub fn perch(perch: &Path, pid: u32, options: &[&str], as_nobody: bool) -> Result<Self> {
        let state = std::env::temp_dir().join(format!(
            "perch-bench-{}",
            if as_nobody { "nobody" } else { "own" }
        ));
        let mut tool = command(perch, as_nobody);
        tool.args(["attach", "--quiet", "--policy", "observe"])
            .args(options)
            .arg(pid.to_string());
        Self::start(tool.env("PERCH_STATE_DIR", state))
    }

    /// `perf stat --per-thread -I` with four software events, which any perf user would have running.
    ///
    /// # Errors
    /// A perf that cannot be started.
    pub fn perf(perf: &Path, pid: u32, interval: Duration) -> Result<Self> {
        let mut tool = command(perf, false);
        tool.args(["stat", "--per-thread", "-I"])
            .arg(interval.as_millis().to_string());
        tool.args(["-e", EVENTS, "-p"]).arg(pid.to_string());
        Self::start(&mut tool)
    }

    /// `perch stat` with the same events and a row for each thread.
    ///
    /// # Errors
    /// A perch that cannot be started.
    pub fn perch_stat(perch: &Path, pid: u32, interval: Duration) -> Result<Self> {
        let mut tool = command(perch, false);
        tool.args(["stat", "-e", EVENTS, "-i"])
            .arg(format!("{}ms", interval.as_millis()))
            .arg("-p")
            .arg(pid.to_string());
        Self::start(&mut tool)
    }

    /// `perch stat` with a record for every `every` context switches of a thread.
    ///
    /// # Errors
    /// A perch that cannot be started.
    pub fn perch_records(perch: &Path, pid: u32, every: u64) -> Result<Self> {
        let mut tool = command(perch, false);
        tool.args(["stat", "-e"])
            .arg(format!("context-switches:every={every}"))
            .arg("-p")
            .arg(pid.to_string());
        Self::start(&mut tool)
    }

    fn start(command: &mut std::process::Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{}: not found", command.get_program().to_string_lossy()))?;
        Ok(Self { child })
    }

    /// Time that it has had on a PU.
    ///
    /// # Errors
    /// A tool that has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.child.id())
    }

    /// Descriptors that it holds: how far it has come with attaching.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// While it lives, tools that are started have priority over the threads that they watch (where the user may give it), so
/// that they get all the time that they need even where a hundred of those run on two PUs.
pub struct Priority {
    before: Option<i32>,
}

impl Priority {
    /// Raises the priority of this thread, which what it starts inherits.
    pub fn raise() -> Self {
        const NICENESS: i32 = -15;
        let before = getpriority_process(None).ok();
        Self {
            before: before.filter(|_| setpriority_process(None, NICENESS).is_ok()),
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = setpriority_process(None, before);
        }
    }
}

/// Time that a process has had on PUs, all live threads together (schedstat, proc(5)).
///
/// # Errors
/// A process that has ended.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("the process has ended")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text
            .split(' ')
            .next()
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}
