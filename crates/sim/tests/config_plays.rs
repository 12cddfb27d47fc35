//! What is shipped plays as its files say: alone on a core, the paper's threads have the paper's CPI.

use perch_sim::{
    config::{find_machine, find_workload, shipped_machines, workload_from_text},
    core::{Core, Supply},
    memory::Memory,
    model::MachineModel,
    stream::{Instruction, MixStream, Random},
    workload::{Mix, WorkloadModel},
};
use std::path::Path;

/// Endless streams, one a thread, each with its own code and data.
struct Streams(Vec<MixStream>);

impl Supply for Streams {
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        into.fill_with(|| self.0[thread as usize].next());
        into.len()
    }

    fn give_back(&mut self, _: u32, _: &[Instruction]) {}
}

/// Instructions a cycle of the machine's first core, with a thread of each of these mixes on its contexts.
fn throughput(machine: &MachineModel, mixes: &[&Mix]) -> f64 {
    let streams = mixes.iter().enumerate().map(|(thread, mix)| {
        let base = (thread as u64 + 1) << 32;
        let bases: Vec<u64> = (1..=mix.working_sets.len() as u64)
            .map(|set| base + (set << 24))
            .collect();
        MixStream::new(mix, base, &bases, Random::new(thread as u64))
    });
    let mut streams = Streams(streams.collect());
    let mut memory = Memory::new(machine);
    let mut core = Core::new(0, machine.kind(&machine.cores[0]));
    for thread in 0..mixes.len() {
        core.assign(thread, Some(thread as u32), 0, &mut streams, &mut memory);
    }
    // The caches are cold at first: what is counted is what comes after.
    let span = 100_000 * core.cycle_time();
    core.run(span, &mut streams, &mut memory, |_| ());
    let count = |core: &mut Core| {
        (0..mixes.len())
            .map(|context| core.take_counters(context).instructions())
            .sum::<u64>()
    };
    count(&mut core);
    core.run(2 * span, &mut streams, &mut memory, |_| ());
    count(&mut core) as f64 / 100_000.0
}

fn mix<'w>(workload: &'w WorkloadModel, name: &str) -> &'w Mix {
    workload
        .mixes
        .iter()
        .find(|mix| mix.name == name)
        .expect("the mix is there")
}

#[track_caller]
fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 0.01, "{value}, not {wanted}");
}

#[test]
fn table_1_s_threads_have_their_cpi() {
    let machine = find_machine("cmt-4x4").unwrap();
    let workload = find_workload("cmt-table1").unwrap();
    for cpi in [1, 6, 11, 16] {
        near(
            1.0 / throughput(&machine, &[mix(&workload, &format!("cpi-{cpi}"))]),
            f64::from(cpi),
        );
    }
}

/// Section 4: a CPU-bound thread fills the pipeline; loads leave room for four.
#[test]
fn contexts_hide_loads_and_not_alu_instructions() {
    let machine = find_machine("cmt-b").unwrap();
    let (cpu, memory) = (
        find_workload("cmt-cpu-bound").unwrap(),
        find_workload("cmt-memory-bound").unwrap(),
    );
    let (alu, loads) = (mix(&cpu, "alu"), mix(&memory, "loads"));
    near(throughput(&machine, &[alu]), 1.0);
    near(throughput(&machine, &[alu; 4]), 1.0);
    near(throughput(&machine, &[loads]), 0.2);
    near(throughput(&machine, &[loads; 4]), 0.8);
}

#[test]
fn every_shipped_machine_runs_every_sort_of_instruction() {
    let workload = find_workload("mixed").unwrap();
    for file in shipped_machines() {
        let machine = find_machine(file.name).unwrap();
        let kind = machine.kind(&machine.cores[0]);
        for mix in &workload.mixes {
            let alone = throughput(&machine, &[mix]);
            assert!(
                alone > 0.0 && alone <= f64::from(kind.width),
                "{}, {}: {alone}",
                file.name,
                mix.name
            );
        }
    }
}

/// What a core completes in a cycle: one thread of ALU instructions alone, one of floating-point instructions alone, two
/// of either, one of each. From the manuals' widths and units: nothing waits for anything.
#[test]
fn cores_of_the_papers_machines_share_what_their_manuals_say() {
    let workload = workload_from_text(
        r#"
about = "Nothing but one operation"
[mixes]
alu = { shares = { alu = 1 } }
fp = { shares = { fp = 1 } }
[[programs]]
name = "both"
[[programs.threads]]
name = "main"
steps = [{ compute = "alu", instructions = 1 }, { compute = "fp", instructions = 1 }]
"#,
        Path::new("pure.toml"),
    )
    .unwrap();
    let (alu, fp) = (mix(&workload, "alu"), mix(&workload, "fp"));
    for (name, [alone, alone_fp, two, two_fp, mixed]) in [
        // Each cluster has its two ALUs, the module two FMAC pipes.
        ("amd-bulldozer", [2.0, 2.0, 4.0, 2.0, 4.0]),
        // For all contexts two fixed-point pipes, two load-store pipes that add too, and two vector-scalar pipes.
        ("ibm-power7-smt2", [4.0, 2.0, 4.0, 2.0, 6.0]),
        ("ibm-power7-smt4", [4.0, 2.0, 4.0, 2.0, 6.0]),
        // Three micro-operations a cycle of one context; floating point every second cycle, in which the other has no turn.
        ("intel-xeon-ht", [3.0, 0.5, 3.0, 0.5, 2.0]),
    ] {
        let machine = find_machine(name).unwrap();
        near(throughput(&machine, &[alu]), alone);
        near(throughput(&machine, &[fp]), alone_fp);
        near(throughput(&machine, &[alu, alu]), two);
        near(throughput(&machine, &[fp, fp]), two_fp);
        near(throughput(&machine, &[alu, fp]), mixed);
    }
    let off = find_machine("intel-xeon-noht").unwrap();
    near(throughput(&off, &[alu]), 3.0);
    near(throughput(&off, &[fp]), 0.5);
}
