//! Starting a program, finding its busiest thread, and ending all that it started.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, Task};
use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks at a running program.
const LOOKS: Duration = Duration::from_millis(30);
/// The longest that a killed process is waited for.
const DYING: Duration = Duration::from_secs(30);

/// A running program; ended with its descendants when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts it in a process group of its own, without input, its standard error going to `messages`.
    ///
    /// # Errors
    /// A program that cannot be executed.
    pub fn start(command: &mut Command, messages: Stdio) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
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

    /// User and system time of it and of all that it started, as far as they still run or were waited for.
    pub fn cpu_time(&self) -> Duration {
        let ticks: u64 = descendants(self.pid())
            .into_iter()
            .filter_map(|pid| Process::new(pid).ok()?.stat().ok())
            .map(|stat| stat.utime + stat.stime + (stat.cutime + stat.cstime).max(0) as u64)
            .sum();
        Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
    }

    /// Waits until all together have been on CPU for `wanted`, or it has ended.
    ///
    /// # Errors
    /// `limit` has passed before.
    pub fn wait_for_cpu_time(&mut self, wanted: Duration, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.cpu_time() < wanted && self.ended()?.is_none() {
            ensure!(
                begin.elapsed() < limit,
                "it was not on CPU for {wanted:?} within {limit:?}"
            );
            sleep(LOOKS);
        }
        Ok(())
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// `limit` has passed before.
    pub fn wait_for_end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(begin.elapsed() < limit, "it does not end within {limit:?}");
            sleep(LOOKS);
        }
    }

    /// Asks it and all that it started to end.
    pub fn terminate(&self) {
        terminate(&descendants(self.pid()));
    }

    /// Asks all that it started to end, but not itself.
    pub fn terminate_descendants(&self) {
        terminate(&descendants(self.pid())[1..]);
    }

    /// The threads of it and its descendants that are on CPU, or ready to be, now: each with its process.
    pub fn running_threads(&self) -> Vec<(i32, i32)> {
        tasks(self.pid())
            .filter(|task| task.stat().is_ok_and(|stat| stat.state == 'R'))
            .map(|task| (task.pid, task.tid))
            .collect()
    }

    /// The thread that has been on CPU longest, with its process, among the program and its descendants.
    pub fn busiest_thread(&self) -> Option<(i32, i32)> {
        let ticks = |task: &Task| task.stat().map_or(0, |stat| stat.utime + stat.stime);
        tasks(self.pid())
            .max_by_key(ticks)
            .map(|task| (task.pid, task.tid))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pids = descendants(self.pid());
        for &pid in &pids {
            // One that has exited already is no error.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
        // The next program shall not be measured while these still give their memory back.
        let begin = Instant::now();
        while pids.iter().any(|&pid| is_alive(pid)) && begin.elapsed() < DYING {
            sleep(LOOKS);
        }
    }
}

/// Whether a process still runs; one that only waits to be reaped does not.
fn is_alive(pid: i32) -> bool {
    Process::new(pid)
        .and_then(|process| process.stat())
        .is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// One that has exited already is no error.
fn terminate(pids: &[i32]) {
    for &pid in pids {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// The threads of a process and of all that it started.
fn tasks(root: i32) -> impl Iterator<Item = Task> {
    descendants(root)
        .into_iter()
        .filter_map(|pid| Process::new(pid).ok()?.tasks().ok())
        .flatten()
        .flatten()
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
    fn time_of_children_that_ended_counts() {
        let mut shell = Command::new("sh");
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        shell.args(["-c", &format!("while :; do sh -c '{busy}'; done")]);
        let mut running = Running::start(&mut shell, Stdio::null()).unwrap();
        let wanted = Duration::from_millis(500);
        running
            .wait_for_cpu_time(wanted, Duration::from_secs(60))
            .unwrap();
    }

    #[test]
    fn grandchildren_are_found_and_ended() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'sleep infinity; true'; true"]);
        let running = Running::start(&mut shell, Stdio::null()).unwrap();
        let root = running.pid();
        while descendants(root).len() < 3 {
            std::thread::yield_now();
        }
        let all = descendants(root);
        drop(running);
        assert!(!std::path::Path::new(&format!("/proc/{root}")).exists());
        for pid in all {
            assert!(!is_alive(pid), "{pid}");
        }
    }
}
