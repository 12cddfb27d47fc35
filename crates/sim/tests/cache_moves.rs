//! Victim caches and ports of limited bandwidth: both levels agree on what they do, and mistakes in files are found.

use crate::support::{compute, machine, mix, workload};
use perch_core::PuSet;
use perch_sim::{
    config::machine_from_text,
    detail::{Detail, Fidelity},
    model::{MachineModel, Multithreading, Op},
    os::SchedulerModel,
    system::System,
    workload::{Depends, Mix},
};
use std::{path::Path, sync::Arc};

/// Instructions of threads on these PUs in 0.4 s, after as long a time in which caches fill.
fn run(fidelity: Fidelity, machine: &MachineModel, bytes: u64, pus: &[u32]) -> Vec<f64> {
    let shares = [(Op::Alu, 0.5), (Op::Load, 0.4), (Op::Store, 0.1)];
    run_mix(fidelity, machine, mix("loads", &shares, bytes), pus)
}

fn run_mix(fidelity: Fidelity, machine: &MachineModel, mix: Mix, pus: &[u32]) -> Vec<f64> {
    run_mixes(fidelity, machine, vec![mix; pus.len()], pus)
}

/// The same, a mix for each thread.
fn run_mixes(fidelity: Fidelity, machine: &MachineModel, mixes: Vec<Mix>, pus: &[u32]) -> Vec<f64> {
    let steps = (0..pus.len()).map(|thread| vec![compute(thread, u64::MAX)]);
    let workload = Arc::new(workload(mixes, steps.collect()));
    let machine = Arc::new(machine.clone());
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    for (thread, pu) in pus.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*pu));
    }
    system.run(1_500_000_000).unwrap();
    let done = |system: &System| -> Vec<f64> {
        let threads = system.threads().iter();
        threads
            .map(|thread| thread.counters.instructions() as f64)
            .collect()
    };
    let before = done(&system);
    system.run(1_900_000_000).unwrap();
    let both = done(&system).into_iter().zip(before);
    both.map(|(after, before)| after - before).collect()
}

/// Two cores with a second level of 32 KiB each, before a third of 64 KiB for both.
fn behind(victim: bool) -> MachineModel {
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    let mut third = machine.caches[2].clone();
    machine.caches[2].shared_by = vec![vec![0], vec![1]];
    machine.caches[2].size = 32 << 10;
    third.level = 3;
    third.size = 64 << 10;
    third.ways = 16;
    third.latency = 30_000;
    third.victim = victim;
    machine.caches.push(third);
    machine
}

/// Two contexts that share a core and the port of its second level.
fn ported(line_transfer: u64) -> MachineModel {
    let mut machine = machine(1, 2, Multithreading::FineGrained);
    machine.caches[2].line_transfer = line_transfer;
    machine
}

fn agree(machine: &MachineModel, bytes: u64, pus: &[u32], part: f64) -> f64 {
    let sum = |fidelity| run(fidelity, machine, bytes, pus).iter().sum::<f64>();
    let (exact, ours) = (sum(Fidelity::Cycle), sum(Fidelity::Interval));
    assert!(
        (ours / exact - 1.0).abs() < part,
        "{ours} instructions, {exact} at the cycle level"
    );
    exact
}

#[test]
fn a_victim_cache_adds_to_the_level_before_it_at_both_levels() {
    // 88 KiB fit into 32 and 64, but not into 64.
    let (with, without) = (
        agree(&behind(true), 88 << 10, &[0], 0.05),
        agree(&behind(false), 88 << 10, &[0], 0.05),
    );
    assert!(with > 1.2 * without, "{with} {without}");
    // Two times 60 KiB just fit into two times 32, and 64: where so little decides, the levels differ more.
    let (with, without) = (
        agree(&behind(true), 60 << 10, &[0, 1], 0.1),
        agree(&behind(false), 60 << 10, &[0, 1], 0.1),
    );
    assert!(with > 1.1 * without, "{with} {without}");
}

#[test]
fn siblings_queue_at_the_port_of_their_second_level_at_both_levels() {
    // 64 KiB are mostly in the second level, so most accesses refill the first.
    let wide = agree(&ported(0), 64 << 10, &[0, 1], 0.05);
    let narrow = agree(&ported(8_000), 64 << 10, &[0, 1], 0.03);
    assert!(narrow < 0.85 * wide, "{narrow} {wide}");
    // The port moves a line in 8 ns: 50,000 lines in 0.4 ms of the machine.
    assert!(narrow * 0.4 < 50_000.0 * 1.05, "{narrow}");
}

/// A thread that hides all of its misses is as fast as the port moves lines, and the queue there has an end.
#[test]
fn a_port_bounds_threads_that_hide_their_misses() {
    let mut machine = ported(8_000);
    let kind = &mut machine.kinds[0];
    (kind.in_order, kind.window, kind.misses, kind.width) = (false, 64, 16, 4);
    kind.units[0].count = 4;
    let mix = Mix {
        depends: Depends::Always(0),
        ..mix("loads", &[(Op::Alu, 0.6), (Op::Load, 0.4)], 256 << 10)
    };
    for pus in [&[0][..], &[0, 1]] {
        let sum = |fidelity| {
            run_mix(fidelity, &machine, mix.clone(), pus)
                .iter()
                .sum::<f64>()
        };
        let (exact, ours) = (sum(Fidelity::Cycle), sum(Fidelity::Interval));
        assert!(
            (ours / exact - 1.0).abs() < 0.03,
            "{ours}, {exact} at the cycle level"
        );
        // All but one in 32 accesses miss the first level.
        let lines = exact * 0.4 * 31.0 / 32.0;
        assert!((lines / 50_000.0 - 1.0).abs() < 0.1, "{lines}");
    }
}

/// A thread that waits for each line before it asks for the next one hardly waits for its own lines at a port; one that
/// asks for many at once waits behind these.
#[test]
fn threads_that_ask_for_one_and_for_many_lines_share_a_port_at_both_levels() {
    let mut machine = ported(4_000);
    let kind = &mut machine.kinds[0];
    (kind.in_order, kind.window, kind.misses, kind.width) = (false, 64, 16, 4);
    (kind.window_shared, kind.multithreading) = (true, Multithreading::Simultaneous);
    kind.units[0].count = 4;
    let depends = |distance: u16, loads: f64, kib: u64| Mix {
        depends: Depends::Always(distance),
        ..mix(
            "loads",
            &[(Op::Alu, 1.0 - loads), (Op::Load, loads)],
            kib << 10,
        )
    };
    let mixes = [depends(0, 0.14, 12), depends(1, 0.4, 60)];
    let run = |fidelity| run_mixes(fidelity, &machine, mixes.to_vec(), &[0, 1]);
    let (exact, ours) = (run(Fidelity::Cycle), run(Fidelity::Interval));
    for (ours, exact) in ours.iter().zip(&exact) {
        assert!(
            (ours / exact - 1.0).abs() < 0.06,
            "{ours} instructions, {exact} at the cycle level"
        );
    }
}

#[test]
fn stores_that_are_written_through_fill_the_port_at_both_levels() {
    let through = |buffer: Option<u64>| {
        let mut machine = ported(8_000);
        machine.caches[1].write_through = buffer;
        machine
    };
    // Of 32 KiB, one line in eight is in the buffer.
    let share = |machine: &MachineModel| agree(machine, 32 << 10, &[0, 1], 0.03);
    let (back, alone, merged) = (
        share(&through(None)),
        share(&through(Some(0))),
        share(&through(Some(4 << 10))),
    );
    assert!(alone > 0.0 && back > 0.0);
    assert!(merged >= alone, "{merged} {alone}");
}

/// What is wrong with a machine file in which something is replaced.
fn mistake(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    let text = text.replacen(from, to, 1);
    let error = machine_from_text(&text, Path::new("machine.toml"));
    error.unwrap_err().to_string()
}

#[test]
fn files_say_where_a_cache_cannot_be_like_that() {
    let text = include_str!("../../../machines/core2-quad.toml");
    let (data, both) = ("holds = \"data\"", "holds = \"both\"");
    let cases = [
        (data, "victim = true", "no cache is before the first level"),
        (
            data,
            "line-transfer = 2",
            "no cache is before the first level",
        ),
        (both, "line-transfer = 0", "moving a line takes some time"),
        (both, "line-transfer = \"2 B\"", "latency"),
        (
            both,
            "write = \"through\"",
            "only a first level that holds data",
        ),
        (data, "write = \"trough\"", "did you mean `through`?"),
        (data, "coalescing = \"4 KiB\"", "nothing to merge"),
        (
            data,
            "write = \"through\"\ncoalescing = \"5 KiB\"",
            "1 to 64 lines",
        ),
        (both, "victim = 1", "expected `true` or `false`"),
        (
            both,
            "victim = true",
            "give the prefetchers to the cache before it",
        ),
    ];
    for (what, key, why) in cases {
        let error = mistake(text, what, &format!("{what}\n{key}"));
        assert!(error.contains(why), "{error}");
        assert!(error.starts_with("machine.toml:"), "{error}");
    }
    // Instructions come to the second level past all caches.
    let text = include_str!("../../../machines/cmt-a.toml");
    let text = text.replace("holds = \"both\"", "holds = \"both\"\nvictim = true");
    let first = "holds = \"instructions\"\nsize = \"16 KiB\"\nways = 4\nshared-by = \"core\"\n\n[[caches]]\nlevel = 1\n";
    let error = mistake(&text, first, "");
    assert!(
        error.contains("PU 0 has no cache before this one"),
        "{error}"
    );
}
