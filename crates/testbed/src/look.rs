//! What the kernel says about every thread's mask, taken down just after perch has acted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::until::{State, Waiting, core_of_pus, read_lines};

/// How often files are looked at while waiting.
const POLL: Duration = Duration::from_millis(20);

/// How a complete period begins in perch's log.
pub(crate) const PERIOD_RECORD: &str = r#"{"record":"period""#;

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
    let begin = Instant::now();
    let wait = |path: &Path, count: &dyn Fn(&Path) -> usize, wanted: usize| {
        while count(path) < wanted {
            if begin.elapsed().as_secs_f64() > options.limit {
                bail!(
                    "{}: {} has {} of {wanted} after {} s",
                    options.label,
                    path.display(),
                    count(path),
                    options.limit
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    };
    if let Some((path, wanted)) = &options.lines {
        wait(path, &lines, *wanted)?;
    }
    if let Some((path, more)) = &options.periods {
        wait(path, &periods, periods(path) + more)?;
    }
    let log = options.log.as_ref();
    let log = log.or(options.periods.as_ref().map(|(path, _)| path));
    if let (Some(state), Some((lines, _)), Some(log)) = (options.until, &options.lines, log) {
        let cores = core_of_pus();
        let mut waiting = Waiting::new(state);
        loop {
            let mut look = still_look(log, &options.label);
            let text = fs::read_to_string(log).unwrap_or_default();
            if waiting.is_over(&mut look, &read_lines(lines), &cores, &text) {
                return Ok(look);
            }
            // The state is judged once a period, at its end.
            wait(log, &periods, look.periods + 1)?;
        }
    }
    Ok(match log {
        Some(log) => still_look(log, &options.label),
        None => Look {
            label: options.label.clone(),
            periods: 0,
            settled: None,
            tasks: tasks(),
        },
    })
}

/// All tasks, and the period in which they were so: no other began while they were read.
fn still_look(log: &Path, label: &str) -> Look {
    loop {
        let before = periods(log);
        let tasks = tasks();
        if periods(log) == before {
            return Look {
                label: label.to_owned(),
                periods: before,
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

/// Complete period records of a log.
fn periods(path: &Path) -> usize {
    let text = fs::read(path).unwrap_or_default();
    text.split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n") && line.starts_with(PERIOD_RECORD.as_bytes()))
        .count()
}

/// Every thread of every process that has memory of its own; those that end meanwhile are left out.
fn tasks() -> Vec<Task> {
    let numbers = |path: &Path| -> Vec<i32> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    };
    let mut tasks = Vec::new();
    for pid in numbers(Path::new("/proc")) {
        for tid in numbers(&PathBuf::from(format!("/proc/{pid}/task"))) {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) else {
                continue;
            };
            let field = |name: &str| {
                let line = status
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.map(|value| value.trim().to_owned())
            };
            // Kernel threads have no memory, and neither has a process that is about to exit.
            if let (Some(_), Some(name), Some(parent), Some(allowed)) = (
                field("VmSize"),
                field("Name"),
                field("PPid"),
                field("Cpus_allowed_list"),
            ) {
                let parent = parent.parse().unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(pu_list("0-3,6,8-9\n"), [0, 1, 2, 3, 6, 8, 9]);
        assert_eq!(pu_list(""), [0_usize; 0]);
    }

    #[test]
    fn only_whole_period_records_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(
            file.path(),
            format!("{{\"record\":\"header\"}}\n{PERIOD_RECORD}}}\n{PERIOD_RECORD}"),
        )
        .unwrap();
        assert_eq!((periods(file.path()), lines(file.path())), (1, 2));
    }

    #[test]
    fn this_very_thread_is_seen() {
        let me = std::process::id().cast_signed();
        let task = tasks().into_iter().find(|task| task.pid == me).unwrap();
        assert!(!task.pus().is_empty());
    }
}
