//! Simulated instructions in a second of one host core, and how that grows with threads.

use divan::{Bencher, counter::ItemsCount};
use perch_sim::{
    config,
    detail::{Detail, Fidelity},
    model::Op,
    os::SchedulerModel,
    system::System,
    workload::{Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};
use std::sync::Arc;

fn main() {
    divan::main();
}

/// Endless threads of one mix: arithmetic, 25 % loads and 10 % stores over a working set, 15 % branches.
fn workload(threads: u32, bytes: u64) -> WorkloadModel {
    let mut shares = [0.0; Op::COUNT];
    for (op, share) in [
        (Op::Alu, 0.4),
        (Op::Fp, 0.1),
        (Op::Load, 0.25),
        (Op::Store, 0.1),
        (Op::Branch, 0.15),
    ] {
        shares[op as usize] = share;
    }
    WorkloadModel {
        name: "speed".into(),
        about: "what the simulator's speed is measured on".into(),
        sources: Vec::new(),
        mixes: vec![Mix {
            name: "mixed".into(),
            shares,
            depends: 1.into(),
            extra: 0,
            mispredicted: 0.0,
            code_bytes: 16 << 10,
            working_sets: vec![WorkingSet {
                bytes,
                share: 1.0,
                pattern: Pattern::Random,
                stride: 64,
                region: None,
            }],
            trace: None,
        }],
        devices: Vec::new(),
        programs: vec![ProgramModel {
            name: "speed".into(),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads: vec![ThreadModel {
                name: "t".into(),
                count: threads,
                steps: vec![Step::Compute {
                    mix: 0,
                    instructions: u64::MAX,
                }],
                repeat: 1,
                nice: 0,
                pus: Vec::new(),
            }],
        }],
    }
}

fn run(bencher: Bencher<'_, '_>, fidelity: Fidelity, machine: &str, threads: u32, bytes: u64) {
    let machine = Arc::new(config::find_machine(machine).expect("a shipped machine"));
    let workload = Arc::new(workload(threads, bytes));
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    // Warm, and how many instructions a span has then.
    let span = 500_000_000;
    system.run(span).expect("no deadlock");
    let done = |system: &System| -> u64 {
        system
            .threads()
            .iter()
            .map(|t| t.counters.instructions())
            .sum()
    };
    let before = done(&system);
    system.run(2 * span).expect("no deadlock");
    let instructions = done(&system) - before;
    let mut until = 2 * span;
    bencher
        .counter(ItemsCount::new(instructions))
        .bench_local(|| {
            until += span;
            system.run(until).expect("no deadlock");
        });
}

/// 4 cores of 4 contexts, a thread each, by working set in KiB.
#[divan::bench(args = [8, 256, 4096], sample_count = 10)]
fn four_by_four(bencher: Bencher<'_, '_>, kib: u64) {
    run(bencher, Fidelity::Cycle, "cmt-4x4", 16, kib << 10);
}

/// The out-of-order machine: 8 cores of 2 contexts.
#[divan::bench(args = [256], sample_count = 10)]
fn out_of_order(bencher: Bencher<'_, '_>, kib: u64) {
    run(bencher, Fidelity::Cycle, "smt2-zen", 16, kib << 10);
}

/// The same machine with more and more threads: time must not grow faster than work.
#[divan::bench(args = [4, 16, 64, 256, 1024], sample_count = 5)]
fn threads(bencher: Bencher<'_, '_>, threads: u32) {
    run(bencher, Fidelity::Cycle, "cmt-4x4", threads, 32 << 10);
}

/// 4 cores of 4 contexts at the interval level.
#[divan::bench(args = [8, 256, 4096], sample_count = 20)]
fn interval_four_by_four(bencher: Bencher<'_, '_>, kib: u64) {
    run(bencher, Fidelity::Interval, "cmt-4x4", 16, kib << 10);
}

/// The out-of-order machine at the interval level.
#[divan::bench(args = [256], sample_count = 20)]
fn interval_out_of_order(bencher: Bencher<'_, '_>, kib: u64) {
    run(bencher, Fidelity::Interval, "smt2-zen", 16, kib << 10);
}

/// The interval level with more and more threads, which time-share the PUs.
#[divan::bench(args = [4, 16, 64, 256, 1024], sample_count = 5)]
fn interval_threads(bencher: Bencher<'_, '_>, threads: u32) {
    run(bencher, Fidelity::Interval, "cmt-4x4", threads, 32 << 10);
}
