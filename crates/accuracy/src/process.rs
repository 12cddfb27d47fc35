//! Starting a program, finding its busiest thread, and ending all that it started.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, Task};
use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running program; ended with its descendants when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts it in a process group of its own, silent and without input.
    ///
    /// # Errors
    /// A program that cannot be executed.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
        Ok(Self { child })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The exit status if it ended by itself.
    ///
    /// # Errors
    /// As for `waitpid`.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The thread that has been on CPU longest, with its process, among the program and its descendants.
    pub fn busiest_thread(&self) -> Option<(i32, i32)> {
        let ticks = |task: &Task| task.stat().map_or(0, |stat| stat.utime + stat.stime);
        descendants(self.pid())
            .into_iter()
            .filter_map(|pid| Process::new(pid).ok()?.tasks().ok())
            .flatten()
            .flatten()
            .max_by_key(ticks)
            .map(|task| (task.pid, task.tid))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ends what can be ended; whoever is gone already is no error.
        for pid in descendants(self.pid()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// A process and all that it started, directly or not.
fn descendants(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in procfs::process::all_processes().into_iter().flatten() {
        if let Some(stat) = process.ok().and_then(|process| process.stat().ok()) {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grandchildren_are_found_and_ended() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'sleep 60; true'; true"]);
        let running = Running::start(&mut shell).unwrap();
        let root = running.pid();
        while descendants(root).len() < 3 {
            std::thread::yield_now();
        }
        let all = descendants(root);
        drop(running);
        assert!(!std::path::Path::new(&format!("/proc/{root}")).exists());
        for pid in all {
            let alive = Process::new(pid)
                .and_then(|process| process.stat())
                .is_ok_and(|stat| stat.state != 'Z');
            assert!(!alive, "{pid}");
        }
    }
}
