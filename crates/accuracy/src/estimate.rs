//! What perch says about a program: `perch run --policy observe --counters sampling --log FILE -- program`.

use crate::catalogue::Program;
use crate::process::Running;
use crate::workspace::{NOBODY, Workspace};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// Time on CPU that every program gets, beside its start-up.
pub const CPU_TIME: Duration = Duration::from_millis(2300);
/// Give up on a program that does not get its time on CPU.
const MOST_WAITING: Duration = Duration::from_secs(90);
/// perch's period is one second; a program that shares its PU gets a little less of it.
const ONE_SECOND: u64 = 950_000_000;

/// With which rights perch runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Those of the user who runs the experiment: root, for the table in the documentation.
    Own,
    /// Those of the user nobody, without any capability.
    Nobody,
}

/// Shares of instructions, 0 to 1, as perch reports them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// Floating-point instructions.
    pub fp: f64,
    /// Standard error of that which perch states; over several periods or threads the mean, as if they erred together.
    pub fp_error: f64,
    /// The other shares that perch gives, by the metric's name.
    pub others: BTreeMap<String, f64>,
    /// Time on CPU behind them, in seconds.
    pub cpu_seconds: f64,
}

/// What perch says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// After the first second on CPU after start-up.
    pub first_second: Shares,
    /// From all that came after start-up.
    pub whole: Shares,
    /// Whether the program ended by itself, so that this is all of it.
    pub to_the_end: bool,
    /// The largest factor between the floating-point shares of two consecutive periods after start-up.
    pub largest_step: f64,
}

/// One line of a recording; only what is needed here.
#[derive(Deserialize)]
struct Line {
    observation: Option<Observation>,
}

#[derive(Deserialize)]
struct Observation {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Thread {
    cpu_time: u64,
    #[serde(default)]
    metrics: Vec<(String, Metric)>,
}

#[derive(Deserialize)]
struct Metric {
    value: f64,
}

/// Runs a program under perch until it has been on CPU for long enough.
///
/// # Errors
/// perch or the program fail, or perch gives no floating-point share.
pub fn estimate(
    program: &Program,
    rights: Rights,
    perch: &Path,
    workspace: &Workspace,
) -> Result<Estimate> {
    let scratch = workspace.scratch(rights)?;
    let home = scratch.path();
    let log = home.join("recording.jsonl");
    let messages = home.join("messages");

    let mut words: Vec<String> = match rights {
        Rights::Own => Vec::new(),
        Rights::Nobody => format!(
            "setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps -all --bounding-set -all"
        )
        .split(' ')
        .map(String::from)
        .collect(),
    };
    words.push(perch.display().to_string());
    words.extend(
        "run --policy observe --counters sampling --period 1s --quiet --log"
            .split(' ')
            .map(String::from),
    );
    words.extend([log.display().to_string(), "--".into()]);
    words.extend(workspace.expand(&program.run, home));

    let mut command = workspace.command(program, &words, home);
    // Some programs insist on a folder that they can write to.
    command.envs(
        [
            "HOME",
            "XDG_STATE_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
        ]
        .map(|name| (name, home)),
    );
    let mut running = Running::start(&mut command, fs::File::create(&messages)?.into())?;
    running.wait_for_cpu_time(program.start_up() + CPU_TIME, MOST_WAITING)?;
    let to_the_end = running.ended()?.is_some();
    running.terminate_descendants();
    running.wait_for_end(MOST_WAITING).context("perch")?;
    let said = || fs::read_to_string(&messages).unwrap_or_default();
    let file = fs::File::open(&log)
        .with_context(|| format!("perch wrote no recording: {}", said().trim()))?;
    let periods = read_periods(BufReader::new(file))?;
    judge(&periods, program.start_up(), to_the_end)
        .with_context(|| format!("perch gives no floating-point share: {}", said().trim()))
}

/// A period's sums over threads: time on CPU in nanoseconds, and each share times that time.
#[derive(Debug, Clone, Default, PartialEq)]
struct Period {
    cpu_time: u64,
    known: BTreeMap<String, (f64, f64)>,
}

impl Period {
    fn add(&mut self, other: &Period) {
        self.cpu_time += other.cpu_time;
        for (name, (sum, weight)) in &other.known {
            let entry = self.known.entry(name.clone()).or_default();
            entry.0 += sum;
            entry.1 += weight;
        }
    }

    fn shares(&self) -> Option<Shares> {
        let mut others: BTreeMap<String, f64> = self
            .known
            .iter()
            .filter(|(name, (_, weight))| name.ends_with("_share") && *weight > 0.0)
            .map(|(name, (sum, weight))| (name.clone(), sum / weight))
            .collect();
        let fp = others.remove("fp_share")?;
        let (sum, weight) = self.known.get("fp_share_error")?;
        Some(Shares {
            fp,
            fp_error: sum / weight,
            others,
            cpu_seconds: self.cpu_time as f64 * 1e-9,
        })
    }
}

fn read_periods(recording: impl BufRead) -> Result<Vec<Period>> {
    let mut periods = Vec::new();
    for (number, line) in recording.lines().enumerate() {
        let line: Line = serde_json::from_str(&line?)
            .with_context(|| format!("line {} of perch's recording", number + 1))?;
        let Some(observation) = line.observation else {
            continue;
        };
        let mut period = Period::default();
        for thread in observation.threads {
            period.cpu_time += thread.cpu_time;
            for (name, metric) in thread.metrics {
                let entry = period.known.entry(name).or_default();
                entry.0 += metric.value * thread.cpu_time as f64;
                entry.1 += thread.cpu_time as f64;
            }
        }
        periods.push(period);
    }
    Ok(periods)
}

/// The shares after one second on CPU and in all, without the periods of the start-up.
fn judge(periods: &[Period], start_up: Duration, to_the_end: bool) -> Option<Estimate> {
    let mut used = 0;
    let mut started = periods.iter().skip_while(|period| {
        let starting = used < start_up.as_nanos() as u64;
        used += period.cpu_time;
        starting
    });
    let mut sum = Period::default();
    let mut first_second = None;
    let mut largest_step = 1.0f64;
    let mut before: Option<f64> = None;
    for period in started.by_ref() {
        // The last period is a fraction of one, with few samples.
        if let Some(shares) = period
            .shares()
            .filter(|_| period.cpu_time >= ONE_SECOND / 2)
        {
            if let Some(before) = before.filter(|before| *before > 0.0 && shares.fp > 0.0) {
                largest_step = largest_step.max(before / shares.fp).max(shares.fp / before);
            }
            before = Some(shares.fp);
        }
        sum.add(period);
        if first_second.is_none() && sum.cpu_time >= ONE_SECOND {
            first_second = sum.shares();
        }
    }
    Some(Estimate {
        first_second: first_second?,
        whole: sum.shares()?,
        to_the_end,
        largest_step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(threads: &[(u64, f64)]) -> String {
        let threads: Vec<String> = threads
            .iter()
            .map(|(milliseconds, fp)| {
                format!(
                    r#"{{"cpu_time":{},"metrics":[["fp_share",{{"value":{fp},"confidence":1,"source":"sampling"}}],["fp_share_error",{{"value":0.03,"confidence":1,"source":"sampling"}}]]}}"#,
                    milliseconds * 1_000_000
                )
            })
            .collect();
        format!(
            "{{\"record\":\"period\",\"observation\":{{\"threads\":[{}]}}}}\n",
            threads.join(",")
        )
    }

    fn read(lines: &[String], start_up: f64) -> Option<Estimate> {
        let text = format!(
            "{{\"record\":\"header\"}}\n{}{{\"record\":\"end\"}}\n",
            lines.concat()
        );
        judge(
            &read_periods(text.as_bytes()).unwrap(),
            Duration::from_secs_f64(start_up),
            false,
        )
    }

    #[test]
    fn threads_and_periods_count_by_their_time() {
        let estimate = read(
            &[
                line(&[(500, 0.2), (100, 0.8)]),
                line(&[(600, 0.1)]),
                line(&[(800, 0.5)]),
            ],
            0.0,
        )
        .unwrap();
        let first = (500.0 * 0.2 + 100.0 * 0.8 + 600.0 * 0.1) / 1200.0;
        assert!((estimate.first_second.fp - first).abs() < 1e-12);
        assert!((estimate.first_second.cpu_seconds - 1.2).abs() < 1e-12);
        assert!((estimate.whole.fp - (first * 1200.0 + 400.0) / 2000.0).abs() < 1e-12);
        assert!((estimate.whole.fp_error - 0.03).abs() < 1e-12);
        assert!((estimate.largest_step - 5.0).abs() < 1e-12);
    }

    #[test]
    fn start_up_is_not_judged() {
        let estimate = read(
            &[
                line(&[(900, 0.0)]),
                line(&[(900, 0.0)]),
                line(&[(990, 0.4)]),
            ],
            1.0,
        )
        .unwrap();
        assert!((estimate.whole.fp - 0.4).abs() < 1e-12);
        assert_eq!(estimate.first_second, estimate.whole);
    }

    #[test]
    fn less_than_a_second_is_no_estimate() {
        assert_eq!(read(&[line(&[(900, 0.3)])], 0.0), None);
        assert_eq!(read(&[], 0.0), None);
    }

    #[test]
    fn a_broken_recording_is_named() {
        let error = read_periods("{}\n{\"observation\":3}\n".as_bytes()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
