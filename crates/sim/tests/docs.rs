//! Every example of the pages can be read and does what the page says.

use crate::support::{machine, system};
use perch_sim::{
    config::{find_machine, find_workload, machine_from_text, workload_from_text},
    model::Multithreading,
    system::System,
    units::SECOND,
};
use std::{path::Path, sync::Arc};

/// The TOML examples of a page.
fn examples(page: &'static str) -> Vec<&'static str> {
    let parts = page.split("```toml\n").skip(1);
    let example = |part: &'static str| part.split_once("```").expect("an example has an end").0;
    parts.map(example).collect()
}

fn play(text: &str) -> System {
    let workload = workload_from_text(text, Path::new("docs/workloads.md"));
    let workload = workload.unwrap_or_else(|error| panic!("{error}"));
    let mut system = system(machine(2, 2, Multithreading::FineGrained), workload, 1);
    system
        .run(SECOND / 2)
        .unwrap_or_else(|error| panic!("{error}"));
    system
}

#[test]
fn examples_of_workloads_run() {
    let examples = examples(include_str!("../../../docs/workloads.md"));
    let [first, server, team, imports] = examples[..] else {
        panic!("{} examples", examples.len());
    };
    let workload = workload_from_text(first, Path::new("first.toml")).unwrap();
    assert_eq!(workload.programs.len(), 2);
    let served = play(server);
    let outcome = served.outcome();
    assert!(served.is_done());
    assert_eq!(
        (outcome.requests[0].served, outcome.devices[0].operations),
        (50, 50)
    );
    let team = play(team);
    assert!(team.is_done());
    assert_eq!(team.threads().len(), 1 + 2 * 8);
    assert!(play(imports).is_done());
}

#[test]
fn the_other_examples_belong_to_that_of_a_machine() {
    let examples = examples(include_str!("../../../docs/machines.md"));
    let [whole, noise, energy, cache] = examples[..] else {
        panic!("{} examples", examples.len());
    };
    let (before, second) = whole.split_once("[[caches]]\nlevel = 2").unwrap();
    let behind = second.split_once("\n\n").unwrap().1;
    // Its clock has to change for that to cost anything.
    let clock = "clock = \"1 GHz\"\n";
    let before = before.replace(
        clock,
        &format!("{clock}clocks = [\"500 MHz\", \"1 GHz\"]\n"),
    );
    let text = format!("{before}{cache}\n{behind}\n{energy}\n{noise}");
    let machine = machine_from_text(&text, Path::new("m.toml"));
    let machine = machine.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.caches[1].prefetchers.len(), 2);
    assert_eq!(machine.os.irqs.len(), 2);
    assert_eq!(machine.os.costs.set_clock, 20_000);
    let workload = find_workload("mixed").unwrap();
    let mut system = System::new(
        Arc::new(machine),
        Arc::new(workload),
        perch_sim::os::SchedulerModel::default(),
        1,
    );
    system.run(SECOND / 10_000).unwrap();
    let stats = system.energy().unwrap();
    // Two cores, both busy, and the base.
    assert!(stats.watts > 16.0 && stats.dynamic > 0.0, "{stats:?}");
}

#[test]
fn the_shipped_server_is_not_overloaded_and_the_shipped_team_ends() {
    let play = |name: &str, until| {
        let machine = find_machine("cmt-4x4").unwrap();
        let workload = find_workload(name).unwrap();
        let scheduler = perch_sim::os::SchedulerModel::default();
        let mut system = System::new(Arc::new(machine), Arc::new(workload), scheduler, 1);
        system.run(until).unwrap();
        system
    };
    let server = play("web-server", SECOND / 1_000);
    let stats = &server.outcome().requests[0];
    assert!(stats.served > 200 && stats.dropped == 0, "{stats:?}");
    assert!(stats.mean < 0.05, "{stats:?}");
    let team = play("fork-join", SECOND / 10);
    assert!(team.is_done());
    assert_eq!(team.threads().len(), 1 + 20 * 12);
}
