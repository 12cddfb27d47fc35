//! Recordings that no machine here would make: hostile names, many threads, many periods.

use serde_json::{Value, json};
use std::fmt::Write;

/// A period, in nanoseconds.
const PERIOD: u64 = 1_000_000_000;

/// A recording.
pub struct Recording {
    /// The names of its threads.
    pub names: Vec<String>,
    periods: u64,
    cores: u32,
    /// PUs of a core.
    siblings: u32,
    /// Whether some time was not observed, and some not measured.
    gaps: bool,
    reason: &'static str,
}

/// Names that would be markup, end a script or steer a terminal.
pub fn hostile() -> Recording {
    let names = [
        "</script><b>x",
        "<script>alert(1)",
        "<!--<script>",
        "\"'`&amp;${1}",
        "\u{1b}[2J\u{202e}",
        "\u{2028}line",
        "@@DATA@@",
        "__proto__",
    ];
    Recording {
        names: names.map(str::to_owned).into(),
        gaps: true,
        reason: "</script><img src=x onerror=alert(1)>",
        ..Recording::of(0, 6)
    }
}

impl Recording {
    /// Threads that are all busy, in periods of a second; the first thread is moved in each.
    pub fn of(threads: usize, periods: u64) -> Self {
        Self {
            names: (0..threads)
                .map(|number| format!("worker-{number}"))
                .collect(),
            periods,
            cores: 2,
            siblings: 2,
            gaps: false,
            reason: "a reason",
        }
    }

    /// The same on another machine.
    pub fn on(self, cores: u32, siblings: u32) -> Self {
        Self {
            cores,
            siblings,
            ..self
        }
    }

    fn header(&self) -> Value {
        let all = format!("0-{}", self.cores * self.siblings - 1);
        let cores = 0..self.cores;
        let set = |core: u32| {
            format!(
                "{}-{}",
                core * self.siblings,
                (core + 1) * self.siblings - 1
            )
        };
        let cores: Vec<Value> = cores
            .map(|core| json!({ "pus": set(core), "package": 0, "numa_node": 0, "kind": 0 }))
            .collect();
        let pus = 0..self.cores * self.siblings;
        let pus: Vec<Value> = pus
            .map(|pu| json!({ "os": pu, "core": pu / self.siblings, "state": "usable" }))
            .collect();
        json!({
            "record": "header", "version": 2, "perch": "0.1.0", "boot": "", "started": 1_795_298_097,
            "command": ["./app", "<b>"], "configuration": {},
            "topology": {
                "source": "this machine",
                "packages": [{ "os": 0, "pus": all, "model": "" }],
                "numa_nodes": [{ "os": 0, "pus": all, "memory": 0 }],
                "caches": [],
                "cores": cores,
                "kinds": [{ "name": "core", "pus": all }],
                "pus": pus,
            },
            "policy": "workover", "profile": "generic",
            "profile_text": include_str!("../../../../profiles/generic.toml"),
            "period": PERIOD, "counting": "a test", "default_mask": all, "dry_run": false, "take_over": false,
        })
    }

    fn period(&self, number: u64) -> Value {
        // Between the third and the fourth, nothing was observed for a while.
        let gap = if self.gaps && number > 2 {
            2 * PERIOD
        } else {
            0
        };
        let pus = u64::from(self.cores * self.siblings);
        let threads = self.names.iter().enumerate().map(|(at, name)| {
            let cpu = PERIOD / 2 / (at as u64 + 1) + 1000 * (number % 7);
            json!({
                "info": { "id": { "tid": 1000 + at, "start": 100 }, "pid": 1000 + at / 8, "name": name, "process": "app" },
                "interval": PERIOD, "cpu_time": cpu, "wait_time": 1000, "switches": 3, "migrations": 0,
                "last_pu": (at as u64 + number) % pus, "mask": null,
                "metrics": [["fp_share", { "value": 0.25, "confidence": 0.5, "source": "sampling" }]],
            })
        });
        let threads: Vec<Value> = threads.collect();
        json!({
            "record": "period", "number": number,
            "observation": {
                "at": (number + 1) * PERIOD + gap, "interval": PERIOD, "threads": threads, "ended": [],
                "unseen": u64::from(self.gaps), "unmeasured": if self.gaps { PERIOD / 4 } else { 0 },
                "remarks": [], "own_cpu_time": 1_000_000,
            },
            "plan": null,
            "moves": [{
                "thread": { "tid": 1000, "start": 100 }, "from": null, "to": (number % pus).to_string(),
                "reason": { "text": self.reason, "numbers": [["fp_share", 0.25]] }, "outcome": "applied",
            }],
            "remarks": [{ "code": "x", "scope": "session", "severity": "warning", "text": "<b>one</b>" }],
            "last": number + 1 == self.periods,
        })
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = self.header().to_string() + "\n";
        for number in 0..self.periods {
            let _ = writeln!(text, "{}", self.period(number));
        }
        let end = json!({
            "record": "end", "cause": { "ended": 0 }, "periods": self.periods,
            "restored": {
                "restored": 1, "inherited": 0, "already": 0, "gone": 0, "left_alone": 0, "failed": [], "damaged": 0,
            },
        });
        let _ = writeln!(text, "{end}");
        text
    }
}
