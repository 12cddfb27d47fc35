//! Files of machines, workloads and experiments; a workload that is accepted is played for a moment.
#![no_main]

use perch_sim::{config, os::SchedulerModel, system::System};
use std::{path::Path, sync::Arc};

libfuzzer_sys::fuzz_target!(|input: (&str, bool)| {
    let (text, is_machine) = input;
    let path = Path::new("fuzz.toml");
    let (machine, workload) = match is_machine {
        true => (config::machine_from_text(text, path), config::find_workload("cmt-table1")),
        false => (config::find_machine("cmt-b"), config::workload_from_text(text, path)),
    };
    let (Ok(machine), Ok(workload)) = (machine, workload) else {
        return;
    };
    let small = machine.pus() <= 64 && workload.programs.len() <= 16;
    let threads = workload.programs.iter().flat_map(|p| &p.threads).map(|t| u64::from(t.count)).sum::<u64>();
    if small && threads <= 64 && workload.programs.iter().all(|program| program.count <= 4) {
        let mut system = System::new(Arc::new(machine), Arc::new(workload), SchedulerModel::default(), 1);
        let _ = system.run(1_000_000);
    }
});
