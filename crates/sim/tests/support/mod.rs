//! Small machines and workloads for tests.

#![allow(dead_code, reason = "each test binary uses some of it")]

use perch_core::{EventChoice, EventPlan, EventSet};
use perch_sim::{
    counters::Counters,
    model::{
        CacheLevel, CoreAt, CoreKind, Holds, Latency, MachineModel, MemoryModel, Multithreading,
        Op, UnitPool,
    },
    os::SchedulerModel,
    system::System,
    workload::{Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};
use proptest::prelude::*;
use std::sync::Arc;

/// In-order cores with one pipelined unit for everything, one cycle for all but loads, 4 cycles for these; small
/// private L1 caches and one L2.
pub fn machine(cores: usize, contexts: u32, multithreading: Multithreading) -> MachineModel {
    let mut latencies = [Latency { cycles: 1, busy: 1 }; Op::COUNT];
    latencies[Op::Load as usize].cycles = 4;
    let width = match multithreading {
        Multithreading::FineGrained => 1,
        Multithreading::Simultaneous => 4,
    };
    let kind = CoreKind {
        name: "simple".into(),
        cycle: 1_000,
        clocks: Vec::new(),
        dmips_per_mhz: None,
        contexts,
        multithreading,
        width,
        window: 1,
        window_shared: false,
        partition: None,
        tlb: None,
        micro_ops: [1; Op::COUNT],
        replay: 0,
        queues: Vec::new(),
        misses: 0,
        misses_per_context: None,
        misses_of_stores: true,
        store_commits: 1,
        misses_private: false,
        in_order: true,
        units: vec![UnitPool {
            name: "all".into(),
            ops: Op::ALL.to_vec(),
            count: width,
            private: false,
            partitioned: false,
        }],
        latencies,
        branch_delay: 2,
        mispredict: 0,
        duty: 1.0,
        modulation: 3_000_000,
        duty_steps: 0,
    };
    let pus = cores as u32 * contexts;
    let of_core = |core: u32| (core * contexts..(core + 1) * contexts).collect::<Vec<u32>>();
    let level = |level, holds, size, latency, shared_by| CacheLevel {
        level,
        holds,
        size,
        ways: 4,
        line: 64,
        latency,
        shared_by,
        prefetchers: Vec::new(),
        victim: false,
        line_transfer: 0,
        write_through: None,
    };
    let by_core: Vec<Vec<u32>> = (0..cores as u32).map(of_core).collect();
    MachineModel {
        name: "test".into(),
        about: "a machine for tests".into(),
        sources: Vec::new(),
        scale: 1_000.0,
        scheduler: Default::default(),
        os: Default::default(),
        kinds: vec![kind],
        cores: vec![
            CoreAt {
                kind: 0,
                package: 0,
                numa_node: 0,
            };
            cores
        ],
        caches: vec![
            level(1, Holds::Instructions, 16 << 10, 0, by_core.clone()),
            level(1, Holds::Data, 8 << 10, 0, by_core),
            level(2, Holds::Both, 1 << 20, 10_000, vec![(0..pus).collect()]),
        ],
        tlb: None,
        memory: MemoryModel {
            latency: 100_000,
            bandwidth: 1e10,
            link_bandwidth: 0.0,
            distance: vec![vec![1.0]],
        },
        energy: None,
    }
}

/// A mix of these operations, each of which needs the result of the one before.
pub fn mix(name: &str, shares: &[(Op, f64)], bytes: u64) -> Mix {
    let mut all = [0.0; Op::COUNT];
    for (op, share) in shares {
        all[*op as usize] = *share;
    }
    Mix {
        name: name.into(),
        shares: all,
        depends: 1.into(),
        extra: 0,
        mispredicted: 0.0,
        code_bytes: 1024,
        working_sets: vec![WorkingSet {
            bytes,
            share: 1.0,
            pattern: Pattern::Random,
            stride: 64,
            region: None,
        }],
        trace: None,
    }
}

/// One program for each of these threads.
pub fn workload(mixes: Vec<Mix>, threads: Vec<Vec<Step>>) -> WorkloadModel {
    let programs = threads
        .into_iter()
        .enumerate()
        .map(|(number, steps)| ProgramModel {
            name: format!("p{number}"),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: vec![ThreadModel {
                name: format!("t{number}"),
                count: 1,
                steps,
                repeat: 1,
                nice: 0,
                pus: Vec::new(),
            }],
        });
    WorkloadModel {
        name: "test".into(),
        about: "a workload for tests".into(),
        sources: Vec::new(),
        devices: Vec::new(),
        programs: programs.collect(),
        mixes,
    }
}

/// Instructions of a mix.
pub fn compute(mix: usize, instructions: u64) -> Step {
    Step::Compute { mix, instructions }
}

pub fn system(machine: MachineModel, workload: WorkloadModel, seed: u64) -> System {
    System::new(
        Arc::new(machine),
        Arc::new(workload),
        SchedulerModel::default(),
        seed,
    )
}

/// Integer arithmetic only.
pub const ALU: &[(Op, f64)] = &[(Op::Alu, 1.0)];

/// Arithmetic, memory and branches.
pub const MIXED: &[(Op, f64)] = &[
    (Op::Alu, 0.5),
    (Op::Load, 0.25),
    (Op::Store, 0.1),
    (Op::Branch, 0.15),
];

/// All that a run can tell of its threads.
pub fn state(system: &System) -> Vec<(u64, u64, u64, Option<u64>, Counters)> {
    let threads = system.threads().iter();
    threads
        .map(|t| (t.cpu_time, t.wait_time, t.cycles, t.ended, t.counters))
        .collect()
}

/// Both ways to share a pipeline.
pub fn kinds() -> impl Strategy<Value = Multithreading> {
    prop_oneof![
        Just(Multithreading::FineGrained),
        Just(Multithreading::Simultaneous)
    ]
}

/// Instructions of each thread, and cycles that its core counts, in this time.
pub fn done(system: &mut System, time: u64) -> Vec<(u64, u64)> {
    let of = |system: &System| -> Vec<(u64, u64)> {
        let threads = system.threads().iter();
        threads
            .map(|thread| (thread.counters.instructions(), thread.cycles))
            .collect()
    };
    let before = of(system);
    system.run(system.now() + time).unwrap();
    let both = of(system).into_iter().zip(before);
    both.map(|(now, before)| (now.0 - before.0, now.1 - before.1))
        .collect()
}

/// A plan that counts these events of the simulator, each under its name.
pub fn plan(events: &[&str]) -> EventPlan {
    let event = |name: &&str| EventChoice {
        alias: (*name).into(),
        spellings: vec![format!("sim::{name}")],
        pmu: None,
    };
    EventPlan {
        limits: None,
        sets: vec![EventSet::new("all", events.iter().map(event).collect())],
    }
}
