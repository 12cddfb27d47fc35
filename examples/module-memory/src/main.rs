//! perch with a monitoring module of one's own: the memory of each process. `docs/modules.md` explains it piece by piece.
//!
//!     cargo run -- stat -V rss --by process -i 1s -- ./app
//!     cargo run -- modules memory

use perch_core::{
    MachineError, Metric, MetricInfo, MetricKind, MetricScope, MetricSource, Module, ModuleContext,
    ModuleValues, Reading, Subject,
};
use perch_linux::modules::Entry;
use std::{collections::BTreeSet, fs, process::ExitCode};

/// Resident memory of each process, from `/proc/PID/statm`.
struct Memory {
    page: u64,
}

impl Memory {
    fn resident(&self, pid: i32) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * self.page)
    }
}

/// What the module provides: bytes, of each process, as a state at the end of the interval.
fn provided() -> Vec<MetricInfo> {
    vec![MetricInfo::new(
        "rss",
        "B",
        MetricScope::Process,
        MetricKind::Level,
        "resident memory",
    )]
}

impl Module for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn provides(&self) -> Vec<MetricInfo> {
        provided()
    }

    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        let pids: BTreeSet<i32> = context
            .threads
            .iter()
            .map(|thread| thread.info.pid)
            .collect();
        // A process that has exited has no memory any more, and no reading.
        let readings = pids.into_iter().filter_map(|pid| {
            Some(Reading {
                subject: Subject::Process(pid),
                name: "rss".into(),
                kind: MetricKind::Level,
                metric: Metric {
                    value: self.resident(pid)? as f64,
                    confidence: 1.0,
                    source: MetricSource::Sensor,
                },
            })
        });
        Ok(ModuleValues {
            threads: Vec::new(),
            readings: readings.collect(),
        })
    }

    fn description(&self) -> String {
        "resident memory by /proc/PID/statm".to_owned()
    }
}

fn main() -> ExitCode {
    let memory = Entry::own("memory", "memory of each process", provided(), |_| {
        let page = rustix::param::page_size() as u64;
        Ok(Box::new(Memory { page }))
    });
    perch::main_with(vec![memory])
}
