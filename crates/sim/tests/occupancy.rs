//! How full queues are, as counters.

use crate::support::{compute, mix, plan, workload};
use perch_core::Machine;
use perch_sim::{
    config::{find_machine, machine_from_text},
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{MachineModel, Op},
    os::SchedulerModel,
    system::System,
    workload::{Depends, Mix, WorkloadModel},
};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

const EVENTS: [&str; 4] = [
    "CYCLES",
    "FP_SCHEDULER_EMPTY_CYCLES",
    "QUEUE_ENTRY_CYCLES",
    "QUEUE_ENTRY_CYCLES.fp-scheduler",
];

fn simulated(fidelity: Fidelity, machine: MachineModel, workload: WorkloadModel) -> SimMachine {
    let (machine, workload) = (Arc::new(machine), Arc::new(workload));
    let detail = Detail::new(fidelity, &machine, &workload);
    let system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    SimMachine::new(system, None)
}

/// What each thread counted in a while, a cycle, by event.
fn rates(mut machine: SimMachine) -> Vec<BTreeMap<String, f64>> {
    machine.configure(&plan(&EVENTS)).unwrap();
    machine.wait(Duration::from_millis(20)).unwrap();
    machine.observe().unwrap();
    machine.wait(Duration::from_millis(200)).unwrap();
    let threads = machine.observe().unwrap().threads;
    let rates = threads.iter().map(|thread| {
        let count = |name: &str| {
            let mut counts = thread.counts.iter();
            counts.find(|count| &*count.alias == name).unwrap().value
        };
        let rate = |name: &str| (name.to_owned(), count(name) / count("CYCLES"));
        EVENTS.into_iter().map(rate).collect()
    });
    rates.collect()
}

fn programs(mixes: Vec<Mix>) -> WorkloadModel {
    let steps = (0..mixes.len()).map(|mix| vec![compute(mix, u64::MAX)]);
    let steps = steps.collect();
    workload(mixes, steps)
}

/// A chain of floating-point operations fills the scheduler; independent ones leave it at once; and integer operations are
/// never in it. Each is on a module of its own.
#[test]
fn a_chain_fills_the_scheduler_and_what_need_not_wait_leaves_it_empty() {
    let chain = mix("chain", &[(Op::Fp, 1.0)], 64);
    let mut free = mix("free", &[(Op::Fp, 0.05), (Op::Alu, 0.95)], 64);
    free.depends = Depends::Always(0);
    let integers = mix("integers", &[(Op::Alu, 1.0)], 64);
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let work = programs(vec![chain.clone(), free.clone(), integers.clone()]);
        let machine = find_machine("amd-bulldozer").unwrap();
        let rates = rates(simulated(fidelity, machine, work));
        let of = |thread: usize, event: &str| rates[thread][event];
        // 60 entries, of which the one in front leaves every 5 cycles.
        let held = of(0, "QUEUE_ENTRY_CYCLES.fp-scheduler");
        assert!((58.0..60.1).contains(&held), "{fidelity:?}: {held}");
        assert!(of(0, "QUEUE_ENTRY_CYCLES") >= held);
        assert!(of(0, "FP_SCHEDULER_EMPTY_CYCLES") < 0.01);
        for thread in [1, 2] {
            assert!(of(thread, "QUEUE_ENTRY_CYCLES.fp-scheduler") < 0.01);
            assert!(of(thread, "FP_SCHEDULER_EMPTY_CYCLES") > 0.99);
        }
        // A chain of additions fills the integer scheduler, of 40.
        let held = of(2, "QUEUE_ENTRY_CYCLES");
        assert!((38.0..40.1).contains(&held), "{fidelity:?}: {held}");
    }
}

/// The interval level takes the occupancy from the core that it simulates.
#[test]
fn both_levels_find_queues_equally_full() {
    let shares = [
        (Op::Fp, 0.3),
        (Op::Load, 0.3),
        (Op::Alu, 0.3),
        (Op::Branch, 0.1),
    ];
    let mut some = mix("some", &shares, 16 << 10);
    some.depends = Depends::Always(4);
    let mut other = mix("other", &[(Op::Alu, 0.6), (Op::Load, 0.4)], 256 << 10);
    other.depends = Depends::Always(2);
    let at = |fidelity| {
        let mut machine = find_machine("amd-bulldozer").unwrap();
        // One module: both threads share its scheduler.
        machine.cores.truncate(1);
        machine.caches.iter_mut().for_each(|level| {
            level.shared_by.retain(|pus| pus[0] < 2);
            level
                .shared_by
                .iter_mut()
                .for_each(|pus| pus.retain(|pu| *pu < 2));
        });
        rates(simulated(
            fidelity,
            machine,
            programs(vec![some.clone(), other.clone()]),
        ))
    };
    let (cycle, interval) = (at(Fidelity::Cycle), at(Fidelity::Interval));
    for thread in 0..2 {
        for event in &EVENTS[1..] {
            let (exact, estimate) = (cycle[thread][*event], interval[thread][*event]);
            let off = (exact - estimate).abs();
            assert!(
                off < 0.02 + 0.1 * exact,
                "{thread} {event}: {estimate}, not {exact}"
            );
        }
    }
    assert!(
        cycle[0]["QUEUE_ENTRY_CYCLES.fp-scheduler"] > 0.1,
        "{cycle:?}"
    );
}

#[test]
fn what_a_machine_does_not_have_is_not_counted() {
    let work = || programs(vec![mix("integers", &[(Op::Alu, 1.0)], 64)]);
    let mut plain = simulated(Fidelity::Cycle, find_machine("cmt-a").unwrap(), work());
    plain.configure(&plan(&EVENTS[..3])).unwrap();
    plain.wait(Duration::from_millis(1)).unwrap();
    let counts = &plain.observe().unwrap().threads[0].counts;
    let counted: Vec<&str> = counts.iter().map(|count| &*count.alias).collect();
    assert_eq!(counted, ["CYCLES"]);

    let machine = find_machine("amd-bulldozer").unwrap();
    let mut machine = simulated(Fidelity::Cycle, machine, work());
    let error = machine.configure(&plan(&["QUEUE_ENTRY_CYCLES.fp-schedule"]));
    assert_eq!(
        error.unwrap_err().to_string(),
        "event `QUEUE_ENTRY_CYCLES.fp-schedule`: a simulated machine does not count \
         `sim::QUEUE_ENTRY_CYCLES.fp-schedule`; did you mean `sim::QUEUE_ENTRY_CYCLES.fp-scheduler`?"
    );
}

/// Kinds of cores have their queues in different orders: a name means the same on all.
#[test]
fn queues_have_the_same_number_by_their_name() {
    let text = std::fs::read_to_string("../../machines/amd-bulldozer.toml").unwrap();
    let from = text.find("[kinds.module]").unwrap();
    let end = text.find("[[caches]]").unwrap();
    let mut other = text[from..end].replace("kinds.module", "kinds.other");
    let line = |text: &str, name: &str| {
        let from = text.find(name).unwrap();
        text[from..=from + text[from..].find('\n').unwrap()].to_owned()
    };
    let first = line(&other, "integer-scheduler");
    other = other.replace(&first, "");
    other = other.replace(
        "[kinds.other.latencies]",
        &format!("{first}\n[kinds.other.latencies]"),
    );
    let text = format!("{}{other}{}", &text[..end], &text[end..]);
    let text = text.replace("[topology]", "[topology]\nkind = \"module\"");
    let machine = machine_from_text(&text, Path::new("two.toml")).unwrap();
    let [one, two] = &machine.kinds[..] else {
        panic!("{} kinds", machine.kinds.len());
    };
    assert_ne!(one.queues[0].name, two.queues[0].name);
    for queue in &one.queues {
        let same = two.queues.iter().find(|other| other.name == queue.name);
        assert_eq!(same.unwrap().number, queue.number);
    }
}
