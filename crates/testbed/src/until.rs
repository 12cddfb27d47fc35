//! Waiting for a state of the workload's masks, by what perch has seen rather than by the clock.
//!
//! On a busy host an emulated machine gets little done in a second, so that a period holds few samples and perch
//! rightly waits for more. So a test gives perch periods until it has enough of them *and* enough samples of every
//! thread: only then is a state that did not come, or did not last, a fault.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde_json::Value;

use crate::even::{last_roles, uneven};
use crate::load::Line;
use crate::look::{Look, pu_list};

/// For this many periods in a row a state must last.
pub const HOLD: usize = 3;

/// Periods that are at least allowed.
const PERIODS: usize = 16;

/// Samples of every thread that are at least allowed: what sixteen periods hold on a host that does nothing else.
const SAMPLES: f64 = 1600.0;

/// What a thread whose events are counted is worth in a period: counts need no second one.
const COUNTED: f64 = SAMPLES / PERIODS as f64;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Floating-point and integer threads are spread evenly, see [`uneven`].
    Even,
    /// At least this many threads of the workload may use one core only.
    Bound(usize),
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "even" {
            return Ok(Self::Even);
        }
        let count = text.strip_prefix("bound:").and_then(|n| n.parse().ok());
        count
            .map(Self::Bound)
            .ok_or_else(|| format!("{text} is no state: even, bound:COUNT"))
    }
}

/// One wait.
pub(crate) struct Waiting {
    state: State,
    /// The core of each PU.
    core_of: Vec<usize>,
    /// Periods in perch's log when it began.
    began: Option<usize>,
    /// For how many periods in a row it has held.
    held: usize,
    /// Up to which period samples have been counted, and how many of each thread since it began.
    counted: usize,
    samples: BTreeMap<i32, f64>,
}

impl Waiting {
    pub(crate) fn new(state: State, core_of: Vec<usize>) -> Self {
        Self {
            state,
            core_of,
            began: None,
            held: 0,
            counted: 0,
            samples: BTreeMap::new(),
        }
    }

    /// Whether there is nothing more to wait for after this look; marks the look as settled if the state has lasted.
    /// `periods` are the records of all periods up to now.
    pub(crate) fn is_over(&mut self, look: &mut Look, lines: &[Line], periods: &[String]) -> bool {
        let began = *self.began.get_or_insert(look.periods);
        self.held = if self.is_so(look, lines) {
            self.held + 1
        } else {
            0
        };
        look.settled = Some(self.held >= HOLD);
        // What has come is given the time to show whether it lasts.
        self.held >= HOLD
            || self.held == 0
                && look.periods >= began + PERIODS
                && self.fewest_samples(began, lines, periods) >= SAMPLES
    }

    fn is_so(&self, look: &Look, lines: &[Line]) -> bool {
        let masks: BTreeMap<i32, Vec<usize>> = look
            .tasks
            .iter()
            .map(|task| (task.tid, task.pus()))
            .collect();
        let roles = last_roles(lines);
        match self.state {
            State::Even => uneven(&roles, &masks, &self.core_of).is_empty(),
            State::Bound(wanted) => {
                let cores = |pus: &Vec<usize>| -> Vec<Option<&usize>> {
                    let mut cores: Vec<_> = pus.iter().map(|pu| self.core_of.get(*pu)).collect();
                    cores.dedup();
                    cores
                };
                let bound = roles.keys().filter_map(|tid| masks.get(tid));
                bound.filter(|pus| cores(pus).len() == 1).count() >= wanted
            }
        }
    }

    /// What perch has seen since the wait began of the thread that it has seen least of.
    fn fewest_samples(&mut self, began: usize, lines: &[Line], periods: &[String]) -> f64 {
        for period in &periods[self.counted.max(began)..] {
            let period: Value = serde_json::from_str(period).unwrap_or_default();
            let threads = period["observation"]["threads"].as_array();
            for thread in threads.into_iter().flatten() {
                let tid = thread["info"]["id"]["tid"].as_i64();
                if let Some(tid) = tid.and_then(|tid| i32::try_from(tid).ok()) {
                    *self.samples.entry(tid).or_default() += samples(thread);
                }
            }
        }
        self.counted = periods.len();
        let of = |line: &Line| self.samples.get(&line.tid).copied().unwrap_or(0.0);
        lines.iter().map(of).fold(f64::INFINITY, f64::min)
    }
}

/// What stands behind what perch knows of a thread in one period.
fn samples(thread: &Value) -> f64 {
    let counted = |v: &Value| v.as_array().is_some_and(|counts| !counts.is_empty());
    if counted(&thread["counts"]) {
        return COUNTED;
    }
    let metrics = thread["metrics"].as_array().into_iter().flatten();
    metrics
        .filter(|metric| metric[0] == "samples")
        .filter_map(|metric| metric[1]["value"].as_f64())
        .sum()
}

/// What the workload has said so far; a line that is being written is left out.
pub(crate) fn read_lines(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// The core of each PU, numbered by its first PU that is online.
pub(crate) fn core_of_pus() -> Vec<usize> {
    let mut cores = Vec::new();
    loop {
        let cpu = format!("/sys/devices/system/cpu/cpu{}", cores.len());
        if !Path::new(&cpu).exists() {
            return cores;
        }
        let siblings = fs::read_to_string(format!("{cpu}/topology/thread_siblings_list"));
        let first = siblings
            .ok()
            .and_then(|list| pu_list(&list).first().copied());
        cores.push(first.unwrap_or(cores.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Role, SpawnKind};
    use crate::look::Task;

    const CORE_OF: [usize; 4] = [0, 0, 2, 2];

    fn lines() -> Vec<Line> {
        let line = |tid, role| Line {
            tid,
            pid: 1,
            start_time: 0,
            name: String::new(),
            role,
            at: 0.0,
            how: SpawnKind::Thread,
            parent: 0,
        };
        vec![line(1, Role::Fp), line(2, Role::Fp)]
    }

    fn look(periods: usize, allowed: [&str; 2]) -> Look {
        let task = |(tid, allowed): (i32, &&str)| Task {
            tid,
            pid: 1,
            parent: 0,
            name: String::new(),
            allowed: (*allowed).to_owned(),
        };
        Look {
            label: String::new(),
            periods,
            settled: None,
            tasks: (1..).zip(&allowed).map(task).collect(),
        }
    }

    fn log(periods: usize, samples: [f64; 2]) -> Vec<String> {
        let thread = |(tid, samples): (i32, &f64)| {
            format!(
                r#"{{"info":{{"id":{{"tid":{tid}}}}},"metrics":[["samples",{{"value":{samples}}}]]}}"#
            )
        };
        let threads: Vec<String> = (1..).zip(&samples).map(thread).collect();
        let record = format!(
            r#"{{"record":"period","observation":{{"threads":[{}]}}}}"#,
            threads.join(",")
        );
        vec![record; periods]
    }

    /// The period after which a wait is over, and whether the state had settled.
    fn outcome(places: impl Fn(usize) -> [&'static str; 2], samples: [f64; 2]) -> (usize, bool) {
        let mut waiting = Waiting::new(State::Even, CORE_OF.to_vec());
        for period in 0..1000 {
            let mut look = look(period, places(period));
            if waiting.is_over(&mut look, &lines(), &log(period, samples)) {
                return (period, look.settled.unwrap());
            }
        }
        panic!("waits for ever");
    }

    #[test]
    fn what_lasts_is_settled_and_what_does_not_is_a_fault_once_enough_was_seen() {
        let right = ["0", "2"];
        let wrong = ["0", "1"];
        assert_eq!(outcome(|_| right, [200.0; 2]), (HOLD - 1, true));
        let late = |period| if period < 5 { wrong } else { right };
        assert_eq!(outcome(late, [200.0; 2]), (7, true));
        // Never right, and right every other period.
        assert_eq!(outcome(|_| wrong, [200.0; 2]), (PERIODS, false));
        let by_turns = |period| if period % 2 == 0 { wrong } else { right };
        assert_eq!(outcome(by_turns, [200.0; 2]), (PERIODS, false));
        // What comes late may show whether it lasts.
        let late = |period| if period < PERIODS { wrong } else { right };
        assert_eq!(outcome(late, [200.0; 2]), (PERIODS + HOLD - 1, true));
        let relapse = |period| if period == PERIODS { right } else { wrong };
        assert_eq!(outcome(relapse, [200.0; 2]), (PERIODS + 1, false));
    }

    #[test]
    fn threads_of_one_core_count_as_bound() {
        let bound = |count, allowed| {
            Waiting::new(State::Bound(count), CORE_OF.to_vec()).is_so(&look(0, allowed), &lines())
        };
        assert!(bound(2, ["0-1", "3"]));
        assert!(bound(1, ["0-3", "3"]) && !bound(2, ["0-3", "3"]));
    }

    #[test]
    fn states_are_read() {
        assert_eq!("even".parse(), Ok(State::Even));
        assert_eq!("bound:8".parse(), Ok(State::Bound(8)));
        assert!("odd".parse::<State>().is_err() && "bound:x".parse::<State>().is_err());
    }
}
