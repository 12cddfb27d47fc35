//! What the kernel says about every thread's mask, taken down just after perch has acted.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::recording::Recording;
use crate::until::{State, Waiting, core_of_pus, read_lines};

/// How often it is looked whether files have grown.
const POLL: Duration = Duration::from_millis(20);

/// When to look, and at what.
#[derive(clap::Parser, Debug)]
#[command(
    about = "Prints every user thread's mask as one JSON line, after waiting for perch to act"
)]
pub struct Options {
    /// What to call this look
    pub label: String,
    /// Wait until the workload's output has COUNT lines
    #[arg(long, value_name = "FILE=COUNT", value_parser = file_and_count)]
    pub lines: Option<(PathBuf, usize)>,
    /// Then wait until perch's log has COUNT more periods
    #[arg(long, value_name = "FILE=COUNT", value_parser = file_and_count)]
    pub periods: Option<(PathBuf, usize)>,
    /// Then wait until things are so, or perch has seen enough to have made them so; with `--lines` and `--log`
    #[arg(long, value_name = "STATE", requires_all = ["lines", "log"])]
    pub until: Option<State>,
    /// perch's log
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 300.0)]
    pub limit: f64,
}

fn file_and_count(text: &str) -> Result<(PathBuf, usize), String> {
    let (file, count) = text.rsplit_once('=').ok_or("not FILE=COUNT")?;
    Ok((
        PathBuf::from(file),
        count.parse().map_err(|_| format!("{count} is no number"))?,
    ))
}

/// All user threads at one moment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Look {
    /// What the script called it.
    pub label: String,
    /// Complete periods in perch's log.
    pub periods: usize,
    /// Whether the state that was waited for had lasted; nothing where none was.
    #[serde(default)]
    pub settled: Option<bool>,
    /// The threads, kernel threads left out.
    pub tasks: Vec<Task>,
}

/// One thread.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    /// Its number.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// Its parent process.
    pub parent: i32,
    /// Its name.
    pub name: String,
    /// The PUs it may use, as `Cpus_allowed_list` says it.
    pub allowed: String,
}

impl Task {
    /// The PUs it may use, as numbers.
    pub fn pus(&self) -> Vec<usize> {
        pu_list(&self.allowed)
    }
}

/// The numbers in a kernel's list such as `0-3,6`; what cannot be read is left out.
pub fn pu_list(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// Waits as ordered and looks.
///
/// # Errors
/// When what is waited for does not come in time.
pub fn run(options: &Options) -> Result<Look> {
    // What is looked at changes with every period: a look must not wait for its turn behind the busy threads.
    // SAFETY: setpriority(2) takes three numbers. Where it is not allowed, looks are slower.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };

    let begin = Instant::now();
    let wait = |what: &Path, count: &mut dyn FnMut() -> usize, wanted: usize| {
        loop {
            let found = count();
            if found >= wanted {
                return Ok(());
            }
            if begin.elapsed().as_secs_f64() > options.limit {
                bail!(
                    "{}: {} has {found} of {wanted} after {} s",
                    options.label,
                    what.display(),
                    options.limit
                );
            }
            std::thread::sleep(POLL);
        }
    };
    if let Some((path, wanted)) = &options.lines {
        wait(path, &mut || lines(path), *wanted)?;
    }
    let more = options.periods.as_ref();
    let Some(log) = options.log.as_ref().or(more.map(|(path, _)| path)) else {
        return Ok(Look {
            label: options.label.clone(),
            periods: 0,
            settled: None,
            tasks: Tasks::default().now(),
        });
    };
    let mut recording = Recording::new(log);
    if let Some((path, more)) = more {
        let wanted = recording.periods().len() + more;
        wait(path, &mut || recording.periods().len(), wanted)?;
    }
    let mut tasks = Tasks::default();
    if let (Some(state), Some((lines, _))) = (options.until, &options.lines) {
        let mut waiting = Waiting::new(state, core_of_pus());
        loop {
            let mut look = still_look(&mut recording, &mut tasks, &options.label);
            if waiting.is_over(&mut look, &read_lines(lines), recording.periods()) {
                return Ok(look);
            }
            // The state is judged once a period, at its end.
            let wanted = look.periods + 1;
            wait(log, &mut || recording.periods().len(), wanted)?;
        }
    }
    Ok(still_look(&mut recording, &mut tasks, &options.label))
}

/// All tasks, and the period in which they were so: no other began while they were read.
fn still_look(recording: &mut Recording, tasks: &mut Tasks, label: &str) -> Look {
    loop {
        let periods = recording.periods().len();
        let tasks = tasks.now();
        if recording.periods().len() == periods {
            return Look {
                label: label.to_owned(),
                periods,
                settled: None,
                tasks,
            };
        }
    }
}

/// Complete lines of a file, 0 if there is none yet.
fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| {
        bytes.iter().filter(|byte| **byte == b'\n').count()
    })
}

/// What shows every thread of every process that has memory of its own.
#[derive(Default)]
struct Tasks {
    /// Threads of the kernel; there are more of them than of anything else, and they are read once.
    kernel: HashSet<i32>,
}

/// The parent of all threads of the kernel but itself.
const KTHREADD: i32 = 2;

impl Tasks {
    /// Those that end meanwhile are left out.
    fn now(&mut self) -> Vec<Task> {
        let numbers = |path: &Path| -> Vec<i32> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .collect()
        };
        let mut tasks = Vec::new();
        for pid in numbers(Path::new("/proc")) {
            if self.kernel.contains(&pid) {
                continue;
            }
            for tid in numbers(&PathBuf::from(format!("/proc/{pid}/task"))) {
                let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))
                else {
                    continue;
                };
                let field = |name: &str| {
                    let line = status
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    line.map(|value| value.trim().to_owned())
                };
                let parent = field("PPid").and_then(|parent| parent.parse().ok());
                if parent == Some(KTHREADD) || pid == KTHREADD {
                    self.kernel.insert(pid);
                }
                // Kernel threads have no memory, and neither has a process that is about to exit.
                if let (Some(_), Some(name), Some(parent), Some(allowed)) = (
                    field("VmSize"),
                    field("Name"),
                    parent,
                    field("Cpus_allowed_list"),
                ) {
                    tasks.push(Task {
                        tid,
                        pid,
                        parent,
                        name,
                        allowed,
                    });
                }
            }
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(pu_list("0-3,6,8-9\n"), [0, 1, 2, 3, 6, 8, 9]);
        assert_eq!(pu_list(""), [0_usize; 0]);
    }

    #[test]
    fn this_very_thread_is_seen() {
        let me = std::process::id().cast_signed();
        let mut tasks = Tasks::default();
        for _ in 0..2 {
            let task = tasks.now().into_iter().find(|task| task.pid == me);
            assert!(!task.unwrap().pus().is_empty());
        }
    }
}
