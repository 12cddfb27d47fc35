//! What is shipped plays as its files say: alone on a core, the paper's threads have the paper's CPI.

use perch_sim::{
    config::{find_machine, find_workload, shipped_machines},
    core::{Core, Supply},
    memory::Memory,
    model::MachineModel,
    stream::{Instruction, MixStream, Random},
    workload::{Mix, WorkloadModel},
};

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
