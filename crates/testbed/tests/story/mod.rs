//! What a scenario in a guest left behind, run by run, and the judgements that several tests share.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perch_testbed::even::{last_roles, uneven};
use perch_testbed::load::{Line, Role};
use perch_testbed::look::{Look, Task, pu_list};
use perch_testbed::until::HOLD;
use perch_testbed::{Guest, Topology, perch_binary};
use serde_json::Value;

/// What every scenario's script begins with.
const PRELUDE: &str = include_str!("../../../../testbed/guest/scenario.sh");

/// One run of the workload under perch.
#[derive(Debug, Default)]
pub struct Run {
    pub name: String,
    pub looks: Vec<Look>,
    /// What the workload said, in order.
    pub lines: Vec<Line>,
    /// perch's recording.
    pub header: Value,
    pub periods: Vec<Value>,
    /// Exit statuses by the names that the script gave.
    pub ended: BTreeMap<String, i64>,
    /// All other JSON that the script printed.
    pub others: Vec<Value>,
}

/// A guest with perch and the workload in it; half an hour for its script, since how fast it is depends on the host.
pub fn guest(topology: Topology) -> Guest {
    with_programs(
        topology,
        [
            &perch_binary().unwrap(),
            Path::new(env!("CARGO_BIN_EXE_guest-load")),
            Path::new(env!("CARGO_BIN_EXE_guest-look")),
        ],
    )
}

/// The same with the programs of a folder.
pub fn guest_of(topology: Topology, programs: &Path) -> Guest {
    let programs = ["perch", "guest-load", "guest-look"].map(|name| programs.join(name));
    with_programs(topology, programs.each_ref().map(PathBuf::as_path))
}

fn with_programs(topology: Topology, programs: [&Path; 3]) -> Guest {
    let guest = Guest::new(topology).limit(Duration::from_secs(1800));
    programs.into_iter().fold(guest, Guest::program)
}

/// Runs a script with the scenario functions in the guest and takes apart what it printed.
pub fn tell(guest: &Guest, script: &str) -> Vec<Run> {
    let output = guest
        .run(&format!("{PRELUDE}\n{script}\nexit 0"))
        .unwrap()
        .ok()
        .unwrap();
    // Kept for whoever wonders why a judgement was as it was.
    eprintln!("{}", output.stderr);

    let runs = runs(&output.stdout);
    for run in &runs {
        for look in &run.looks {
            eprintln!(
                "{}, {}: period {}, settled {:?}",
                run.name, look.label, look.periods, look.settled
            );
        }
    }
    runs
}

/// What a script has printed, run by run.
pub fn runs(stdout: &str) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for text in stdout.lines() {
        let value: Value =
            serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in the guest's line {text}"));
        if let Some(name) = value["run"].as_str() {
            runs.push(Run {
                name: name.to_owned(),
                ..Run::default()
            });
            continue;
        }
        let run = runs.last_mut().expect("the script begins a run first");
        if value.get("label").is_some() {
            run.looks.push(serde_json::from_value(value).unwrap());
        } else if value.get("role").is_some() {
            run.lines.push(serde_json::from_value(value).unwrap());
        } else if let Some(name) = value["ended"].as_str() {
            run.ended
                .insert(name.to_owned(), value["status"].as_i64().unwrap());
        } else {
            match value["record"].as_str() {
                Some("header") => run.header = value,
                Some("period") => run.periods.push(value),
                _ => run.others.push(value),
            }
        }
    }
    runs
}

impl Run {
    pub fn look(&self, label: &str) -> &Look {
        let look = self.looks.iter().find(|look| look.label == label);
        look.unwrap_or_else(|| panic!("{}: no look {label}", self.name))
    }

    /// The roles that threads began with.
    pub fn first_roles(&self) -> BTreeMap<i32, Role> {
        self.lines
            .iter()
            .rev()
            .map(|line| (line.tid, line.role))
            .collect()
    }

    /// The roles that threads had last.
    pub fn last_roles(&self) -> BTreeMap<i32, Role> {
        last_roles(&self.lines)
    }

    /// A thread as the kernel showed it.
    pub fn task<'a>(&self, look: &'a Look, tid: i32) -> &'a Task {
        let task = look.tasks.iter().find(|task| task.tid == tid);
        task.unwrap_or_else(|| panic!("{}, {}: thread {tid} is gone", self.name, look.label))
    }

    /// Every FP thread and every integer thread has a place of its own, and both are spread over the cores
    /// as evenly as they can be; the kernel's masks and perch's plan of that moment agree.
    ///
    /// Gives back what is wrong, empty if nothing is.
    pub fn misplaced(
        &self,
        topology: Topology,
        label: &str,
        roles: &BTreeMap<i32, Role>,
    ) -> Vec<String> {
        let look = self.look(label);
        let mut wrong = Vec::new();
        if look.settled == Some(false) {
            wrong.push(format!("it did not last for {HOLD} periods"));
        }
        // On a busy host a decision may come late: until then the one before it is in force.
        let bindings = self.periods[..look.periods].iter().rev();
        let bindings = bindings
            .filter_map(|period| period["plan"]["bindings"].as_array())
            .find(|bindings| !bindings.is_empty())
            .cloned()
            .unwrap_or_default();
        let mut masks = BTreeMap::new();
        for (&tid, role) in roles {
            let pus = self.task(look, tid).pus();
            let start = self
                .lines
                .iter()
                .find(|line| line.tid == tid)
                .map(|line| line.start_time);
            let planned = bindings
                .iter()
                .find(|b| b["thread"]["tid"] == tid && b["thread"]["start"].as_u64() == start)
                .map(|b| pu_list(b["pus"].as_str().unwrap_or_default()));
            if planned.as_ref() != Some(&pus) {
                let seen = self.seen(tid, look.periods);
                wrong.push(format!(
                    "{role:?} thread {tid} may use {pus:?}, the plan says {planned:?}; in the last periods: {seen}"
                ));
            }
            masks.insert(tid, pus);
        }
        let core_of: Vec<usize> = (0..topology.pus()).map(|pu| topology.core_of(pu)).collect();
        wrong.extend(uneven(roles, &masks, &core_of));
        wrong
    }

    /// What perch saw of a thread and did to it in the last periods before a look: for failures.
    fn seen(&self, tid: i32, periods: usize) -> String {
        let mut text = String::new();
        for period in &self.periods[periods.saturating_sub(4)..periods] {
            let sample = period["observation"]["threads"]
                .as_array()
                .and_then(|threads| threads.iter().find(|t| t["info"]["id"]["tid"] == tid));
            let of_thread = |list: &Value| -> Vec<Value> {
                let all = list.as_array().into_iter().flatten();
                all.filter(|v| v["thread"]["tid"] == tid).cloned().collect()
            };
            let _ = writeln!(
                text,
                "\n  period {}: {}\n    origins {}\n    released {:?}\n    moved {:?}\n    remarks {} {}",
                period["number"],
                sample.unwrap_or(&Value::Null),
                period["observation"]["origins"],
                of_thread(&period["plan"]["released"]),
                of_thread(&period["moves"]),
                period["remarks"],
                period["observation"]["remarks"],
            );
        }
        text
    }

    /// Nothing is wrong with where threads of these roles are in the look.
    pub fn assert_placed(&self, topology: Topology, label: &str, roles: &BTreeMap<i32, Role>) {
        let wrong = self.misplaced(topology, label, roles);
        assert_eq!(wrong, [""; 0], "{}, {label}", self.name);
    }

    /// Every thread that has spoken is alive in the look and has exactly these PUs.
    pub fn assert_allowed(&self, label: &str, allowed: &str) {
        let look = self.look(label);
        for line in &self.lines {
            let task = self.task(look, line.tid);
            assert_eq!(
                task.allowed,
                allowed,
                "{}, {label}: mask of {line:?}; in the last periods: {}\n{look:#?}",
                self.name,
                self.seen(line.tid, self.periods.len())
            );
        }
    }
}
