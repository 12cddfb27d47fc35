//! Threads that execute their mix for ever.

use perch_sim::workload::{Mix, ProgramModel, Step, ThreadModel, WorkloadModel};

/// A program of this many threads for each of these mixes.
pub(crate) fn workload(name: &str, mixes: Vec<Mix>, each: u32) -> WorkloadModel {
    let thread = |mix| ThreadModel {
        name: name.into(),
        count: each,
        steps: vec![Step::Compute {
            mix,
            instructions: u64::MAX,
        }],
        repeat: 1,
        nice: 0,
        pus: Vec::new(),
    };
    WorkloadModel {
        name: name.into(),
        about: "threads that execute a mix for ever".into(),
        sources: Vec::new(),
        programs: vec![ProgramModel {
            name: name.into(),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: (0..mixes.len()).map(thread).collect(),
        }],
        mixes,
        devices: Vec::new(),
    }
}
