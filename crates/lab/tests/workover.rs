//! WorkOver's experiments: what they are made of, one of them run, and what a variation does.

use perch_lab::{
    Experiment,
    experiment::{Place, Run, parse},
    load, published, run,
};
use perch_sim::workload::Mix;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

fn mixes(experiment: &Experiment) -> impl Iterator<Item = (&str, &Mix)> {
    let runs = experiment.runs.iter();
    runs.flat_map(|run| {
        let machine = if run.machine.name.starts_with("amd") {
            "amd"
        } else {
            "power7"
        };
        run.workloads[0].mixes.iter().map(move |mix| (machine, mix))
    })
}

/// What runs in pairs is what the tables' experiments hold against the tables.
#[test]
fn pairs_and_teams_are_made_of_the_programs_of_the_tables() {
    let mut alone: BTreeMap<(String, String), Mix> = BTreeMap::new();
    for name in ["workover/table1", "workover/table2"] {
        let experiment = load(name).unwrap();
        for (machine, mix) in mixes(&experiment) {
            alone.insert((machine.to_owned(), mix.name.clone()), mix.clone());
        }
    }
    let mut compared = 0;
    for name in ["figure11", "figure12a", "figure12b", "figure13", "figure14"] {
        let experiment = load(&format!("workover/{name}")).unwrap();
        for (machine, mix) in mixes(&experiment).filter(|(_, mix)| mix.name != "helper") {
            let known = &alone[&(machine.to_owned(), mix.name.clone())];
            assert_eq!(known, mix, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

/// Every number of both tables is there, and is an input.
#[test]
fn both_tables_are_inputs_in_full() {
    let rows = |table: &str| {
        let of = format!("workover-{table}-");
        let rows = published::all()
            .iter()
            .filter(|row| row.id.starts_with(&of));
        assert!(rows.clone().all(|row| row.kind == published::Kind::Input));
        rows.count()
    };
    // 14 programs of SPEC (13 on POWER7, where sphinx3 was not compiled) with two numbers, five of SciMark with one.
    assert_eq!(rows("table1"), 14 * 2 + 5);
    assert_eq!(rows("table2"), 13 * 2 + 5);
}

/// What is left when the others have ended has their bandwidth and caches to itself, however it was placed before.
#[test]
fn what_is_left_at_the_end_runs_alone_in_both_placements() {
    let experiment = load("workover/wall-time").unwrap();
    let run_of = |name: &str| {
        let mut measures = experiment.measures.iter();
        let measure = measures.find(|measure| measure.name == name).unwrap();
        &experiment.runs[measure.run]
    };
    for claim in &experiment.claims {
        let names = claim.ours[0].names();
        let left: Vec<&String> = names
            .iter()
            .filter(|name| name.ends_with("_left"))
            .collect();
        assert_eq!(left.len(), 2, "{}", claim.name);
        for mixed in left {
            let packed = mixed.replace("_left", "_packed");
            assert!(names.contains(&packed), "{}: {packed}", claim.name);
            let (mixed, packed) = (run_of(mixed), run_of(&packed));
            assert_eq!(mixed.workloads, packed.workloads);
            // As it was placed: on twice as many cores if it was mixed.
            assert_eq!(cores(mixed), 2 * cores(packed), "{}", claim.name);
        }
    }
}

/// How many cores a run uses that is placed by hand.
fn cores(run: &Run) -> usize {
    let Place::Listed(placement) = &run.place else {
        panic!("{} is not placed by hand", run.name)
    };
    let places = run.machine.places();
    let cores: BTreeSet<usize> = (placement.iter())
        .map(|pu| places[*pu as usize].0)
        .collect();
    cores.len()
}

#[test]
fn counters_tell_integer_from_floating_point_work() {
    let results = run(&load("workover/figure6").unwrap(), &mut ()).unwrap();
    let missed: Vec<_> = results.rows.iter().filter(|row| !row.holds).collect();
    assert!(missed.is_empty(), "{missed:?}");
    // Nothing is varied in it.
    assert!(results.rows.iter().all(|row| row.varied.is_none()));
}

const VARIED: &str = r#"title = "Loads that hit, of several latencies"
time = { warm-up = "10000 cycles", length = "20000 cycles" }

[set]
machine = { "memory.latency" = "50 ns" }
workload = { "programs.*.threads.0.count" = 1 }

[variation]
draws = 2

[[variation.parameter]]
name = "load"
source = "made up"
values = [
    { name = "2", machine = { "kinds.*.latencies.load" = 2 } },
    { name = "12", machine = { "kinds.*.latencies.load" = 12 } },
]

[[run]]
name = "one"
machine = "cmt-b"
workload = "cmt-memory-bound"
pus = [0]

[measure]
cpi = { of = "cpi", run = "one" }

[[claim]]
name = "a load takes five cycles"
aim = 5
place = "here"
ours = "cpi"
tolerance = 1
"#;

fn read(text: &str) -> Result<Experiment, perch_lab::LabError> {
    let sibling = |_: &str| Err("not here".to_owned());
    parse("test", text, Path::new("test.toml"), &sibling)
}

#[test]
fn a_variation_tells_the_range_of_each_claim() {
    let results = run(&read(VARIED).unwrap(), &mut ()).unwrap();
    let varied = results.rows[0].varied.as_ref().unwrap();
    assert_eq!((varied.holds < varied.of, varied.of), (true, 5));
    let (least, greatest) = (varied.least.unwrap(), varied.greatest.unwrap());
    assert!((1.9..2.2).contains(&least), "{least}");
    // Also what little misses cost.
    assert!((11.9..14.0).contains(&greatest), "{greatest}");
    assert_eq!(varied.least_with, "load 2");
    assert_eq!(varied.greatest_with, "load 12");
    assert!(results.rows[0].holds, "{:?}", results.rows[0]);
    // Five runs: as it is, two values, two draws.
    assert_eq!(results.simulations, 5);
}

#[test]
fn a_place_where_nothing_is_is_told() {
    for (from, to) in [
        ("memory.latency", "memories.latency"),
        (
            "kinds.*.latencies.load\" = 12",
            "kinds.slow.latencies.load\" = 12",
        ),
    ] {
        let error = read(&VARIED.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains("no run has anything at"), "{error}");
    }
    let error = read(&VARIED.replace("\" = 12", "\" = 0"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("test.toml:"), "{error}");
}
