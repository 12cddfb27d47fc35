//! `perch sim` and `perch lab` as a user calls them.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

fn perch(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
    // No settings of the user who runs the tests.
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .args(arguments);
    command.output().unwrap()
}

fn told(arguments: &[&str]) -> String {
    let output = perch(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&told(arguments)).unwrap()
}

fn refused(arguments: &[&str], code: i32) -> String {
    let output = perch(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Schedule (d) of paper 004's table 1 is the worst; by the paper's own model the policy's is 1.75 times as good.
#[test]
fn policies_are_compared_on_the_same_machine() {
    let pins: Vec<String> = ["cpi-1", "cpi-6", "cpi-11", "cpi-16"]
        .iter()
        .enumerate()
        .map(|(core, kind)| format!("{kind}-*=core:{core}"))
        .collect();
    let mut arguments = vec![
        "sim",
        "-m",
        "cmt-4x4",
        "-w",
        "cmt-table1",
        "-t",
        "12s",
        "--json",
    ];
    arguments.extend(["--compare", "fixed,cpi"]);
    arguments.extend(pins.iter().flat_map(|pin| ["--pin", pin.as_str()]));
    let results = json(&arguments);
    let throughput = |at: usize| results["results"][at]["throughput"].as_f64().unwrap();
    assert_eq!(
        (
            &results["results"][0]["policy"],
            &results["results"][1]["policy"]
        ),
        (&"fixed".into(), &"cpi".into())
    );
    assert!(
        throughput(1) > 1.5 * throughput(0),
        "{} {}",
        throughput(0),
        throughput(1)
    );
    assert_eq!(
        results["results"][1]["runs"][0]["threads"]
            .as_array()
            .unwrap()
            .len(),
        16
    );
}

#[test]
fn the_same_seed_is_the_same_simulation() {
    let run = |seed: &str| {
        let mut results = json(&[
            "sim", "-m", "smt2-zen", "-w", "mixed", "-t", "200ms", "--seed", seed, "--json",
        ]);
        // How long it took is no part of the simulation.
        results["results"][0]["host_seconds"].take();
        results["results"][0]["runs"][0]["host_seconds"].take();
        results
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn the_best_and_the_worst_placement_hold_the_others_between_them() {
    let compare = |extra: &[&str]| {
        let mut arguments = vec![
            "sim",
            "-m",
            "cmt-4x4",
            "-w",
            "cmt-table1",
            "-t",
            "400ms",
            "--json",
        ];
        arguments.extend([
            "--compare",
            "default,best,worst",
            "--search",
            "100",
            "--seeds",
            "2",
        ]);
        arguments.extend(extra);
        json(&arguments)
    };
    let told = compare(&[]);
    let throughput = |at: usize| told["results"][at]["throughput"].as_f64().unwrap();
    assert!(throughput(1) > throughput(2));
    assert!(throughput(1) >= throughput(0) && throughput(0) >= throughput(2));
    assert!(throughput(1) <= told["bound"].as_f64().unwrap() * 1.01);
    let search = &told["results"][1]["search"];
    assert_eq!(
        (&search["tried"], &search["exhaustive"]),
        (&100.into(), &false.into())
    );
    assert_eq!(search["placement"].as_array().unwrap().len(), 16);
    let seeds: Vec<_> = told["results"][0]["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["seed"])
        .collect();
    assert_eq!(seeds, [1, 2]);

    let alike = json(&[
        "sim",
        "-m",
        "cmt-b",
        "-w",
        "cmt-cpu-bound",
        "-t",
        "50ms",
        "--compare",
        "best,worst",
        "--json",
    ]);
    let found = &alike["results"];
    assert_eq!(
        (
            &found[0]["search"]["tried"],
            &found[0]["search"]["exhaustive"]
        ),
        (&1.into(), &true.into())
    );
    assert_eq!(found[0]["throughput"], found[1]["throughput"]);

    let error = refused(
        &["sim", "-m", "cmt-b", "-w", "phases", "--compare", "best"],
        125,
    );
    assert!(error.contains("starts later or again"), "{error}");
}

/// The PUs of each program's threads, sorted: which of several that do the same is where makes no difference.
fn pus(result: &Value) -> BTreeMap<String, Vec<u64>> {
    let mut pus: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for thread in result["runs"][0]["threads"].as_array().unwrap() {
        let program = thread["program"].as_str().unwrap().to_owned();
        pus.entry(program)
            .or_default()
            .push(thread["pu"].as_u64().unwrap());
    }
    pus.values_mut().for_each(|of| of.sort_unstable());
    pus
}

#[test]
fn the_best_placement_is_told_and_can_be_applied() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let rules = file("best.pins");
    let scene = [
        "sim",
        "-m",
        "amd-bulldozer",
        "-w",
        "fp-int-8",
        "--fidelity",
        "interval",
    ];
    let best = [&scene[..], &["-p", "best", "-t", "1s", "--search", "200"]].concat();
    let all = json(&[&best[..], &["--pins", &rules, "--json"]].concat());
    let found = &all["results"][0];
    assert_eq!(found["policy"], "best");
    let seats = found["search"]["threads"].as_array().unwrap();
    assert_eq!(seats.len(), 8);
    assert_eq!(seats[0]["program"], "fp");
    // Each core has one of either program: that is what is best here.
    let mut cores: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for seat in seats {
        let core = seat["pu"].as_u64().unwrap() / 2;
        cores
            .entry(core)
            .or_default()
            .push(seat["program"].as_str().unwrap());
    }
    assert!(
        cores
            .values()
            .all(|on| on == &["fp", "int"] || on == &["int", "fp"]),
        "{cores:?}"
    );
    let there = pus(found);
    let text = std::fs::read_to_string(&rules).unwrap();
    assert_eq!(
        text.lines().filter(|line| !line.starts_with('#')).count(),
        2,
        "{text}"
    );
    assert!(text.contains("\nfp/main=each:"), "{text}");
    // Other seeds start the threads in another order.
    for seed in ["1", "5"] {
        let fixed = [
            "-p",
            "fixed",
            "--pin-file",
            &rules,
            "-t",
            "1s",
            "--period",
            "50ms",
        ];
        let again = json(&[&scene[..], &fixed, &["--seed", seed, "--json"]].concat());
        assert_eq!(pus(&again["results"][0]), there, "seed {seed}");
        let notes = again["notes"].as_array().unwrap();
        let vain = |note: &Value| note.as_str().unwrap().starts_with("fixed");
        assert!(!notes.iter().any(vain), "{notes:?}");
    }
    let text = told(&best);
    assert!(text.contains("best: the PU of each thread"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // It is watched as a policy is.
    let log = file("best.jsonl");
    let text = told(&[&best[..], &["--report", "--log", &log]].concat());
    assert!(text.contains("with policy observe"), "{text}");
    let report = json(&["replay", &log, "--json"]);
    assert_eq!(report["threads"].as_array().unwrap().len(), 8);
    let error = refused(
        &[&scene[..], &["-p", "cpi", "--pins", &rules]].concat(),
        125,
    );
    assert!(error.contains("`-p best`"), "{error}");
    let error = refused(
        &[&scene[..], &["-p", "fixed", "--pin-file", &log]].concat(),
        125,
    );
    assert!(error.contains("best.jsonl:1: "), "{error}");
}

#[test]
fn the_runs_of_a_comparison_share_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let scene = [
        "sim",
        "-m",
        "amd-bulldozer",
        "-w",
        "fp-int-8",
        "--fidelity",
        "interval",
        "-t",
        "3s",
    ];
    let both = [&scene[..], &["--compare", "default,workover"]].concat();
    let trace = file("both.json");
    told(&[&both[..], &["--timeline", &trace]].concat());
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().any(|event| event["args"]["name"] == name);
    assert!(named("default: core 0") && named("workover: core 3"));
    let moves = events.iter().filter(|event| event["ph"] == "i");
    assert!(moves.count() > 0, "workover moved nothing");
    let draw = |name: &str| {
        let (timeline, placement) = (
            file(&format!("{name}-t.svg")),
            file(&format!("{name}-p.svg")),
        );
        told(
            &[
                &both[..],
                &["--timeline", &timeline, "--placement", &placement],
            ]
            .concat(),
        );
        [timeline, placement].map(|file| std::fs::read_to_string(file).unwrap())
    };
    let [timeline, placement] = draw("one");
    for svg in [&timeline, &placement] {
        assert!(svg.starts_with("<svg "), "{svg}");
        for word in ["default: ", "workover: ", "fp 1", "int 4"] {
            assert!(svg.contains(word), "no {word}");
        }
    }
    assert!(placement.contains("execution units that these PUs share"));
    assert_eq!(draw("two"), [timeline, placement]);
    let error = refused(
        &[&both[..], &["--timeline", "x.json", "--seeds", "2"]].concat(),
        2,
    );
    assert!(error.contains("--seeds"), "{error}");
}

/// How long it took here is left out.
#[test]
fn a_comparison_is_a_table_that_fits() {
    let text = told(&[
        "sim",
        "-m",
        "cmt-4x4",
        "-w",
        "cmt-table1",
        "-t",
        "200ms",
        "--compare",
        "default,best",
        "--search",
        "20",
        "--seeds",
        "3",
    ]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let timeless = text.lines().map(|line| match line.strip_suffix(" s") {
        Some(row) => row
            .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
            .trim_end()
            .to_owned(),
        None => line.to_owned(),
    });
    insta::assert_snapshot!(timeless.collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_is_shipped_is_listed_as_json_too() {
    let shipped = json(&["sim", "--list", "--json"]);
    let has = |what: &str, name: &str| {
        shipped[what]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["name"] == name)
    };
    assert!(has("machines", "cmt-4x4") && has("workloads", "cmt-table1"));
    assert_eq!(
        json(&["profiles", "show", "zen4", "--json"])["name"],
        "zen4"
    );
}

#[test]
fn a_recorded_simulation_can_be_replayed_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, trace) = (file("run.jsonl"), file("trace.json"));
    let text = told(&[
        "sim",
        "-m",
        "cmt-4x4",
        "-w",
        "cmt-table1",
        "-p",
        "cpi",
        "-t",
        "4s",
        "--log",
        &log,
        "--timeline",
        &trace,
    ]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 16);
    let report = json(&["replay", &log, "--policy", "observe", "--json"]);
    assert_eq!(report["threads"].as_array().unwrap().len(), 16);
}

#[test]
fn wrong_files_and_names_are_refused_with_their_place() {
    let error = refused(&["sim", "-m", "cmt-4x5", "-w", "mixed"], 125);
    assert!(error.contains("cmt-4x4"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("m.toml");
    std::fs::write(
        &machine,
        "about = \"x\"\nsources = []\nscale = 1\nspeed = 3\n",
    )
    .unwrap();
    let error = refused(
        &["sim", "-m", machine.to_str().unwrap(), "-w", "mixed"],
        125,
    );
    assert!(error.contains("m.toml:4:1"), "{error}");
    let error = refused(&["sim", "-m", "cmt-a", "-w", "mixed", "-p", "cip"], 125);
    assert!(error.contains("cpi"), "{error}");
    let error = refused(&["sim", "-m", "cmt-a"], 125);
    assert!(error.contains("--workload"), "{error}");
    let error = refused(&["lab", "run", "cmt/figur3"], 125);
    assert!(error.contains("cmt/figure3"), "{error}");
}

#[test]
fn the_tournament_is_listed_and_tells_mistakes() {
    assert!(told(&["lab", "list"]).contains("tournament"));
    let all = json(&["lab", "list", "--json"]);
    let all = all.as_array().unwrap();
    assert!(all.iter().any(|entry| entry["name"] == "tournament"));
    let error = refused(&["lab", "run", "tournament", "--workloads", "0"], 2);
    assert!(error.contains("--workloads"), "{error}");
    let error = refused(&["lab", "run", "tournament", "--machine", "numa-3"], 125);
    assert!(error.contains("numa-2"), "{error}");
    let error = refused(&["lab", "run", "tournament", "cmt"], 125);
    assert!(error.contains("by itself"), "{error}");
    let error = refused(&["lab", "run", "cmt/model", "--workloads", "2"], 125);
    assert!(error.contains("lab run tournament"), "{error}");
    let error = refused(&["lab", "report", "tournament"], 125);
    assert!(error.contains("lab run tournament"), "{error}");
    let error = refused(&["lab", "run", "tournamnt"], 125);
    assert!(error.contains("`tournament`"), "{error}");
}

#[test]
fn a_deadlock_is_reported_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stuck.toml");
    std::fs::write(
        &file,
        r#"about = "two threads that wait for each other"
sources = ["this test"]
[mixes.m]
shares = { alu = 1 }
[[programs]]
name = "p"
[[programs.threads]]
name = "a"
steps = [{ barrier = "one" }, { compute = "m", instructions = 10 }, { barrier = "two" }]
[[programs.threads]]
name = "b"
steps = [{ barrier = "two" }, { compute = "m", instructions = 10 }, { barrier = "one" }]
"#,
    )
    .unwrap();
    let error = refused(&["sim", "-m", "cmt-b", "-w", file.to_str().unwrap()], 125);
    assert!(
        error.contains("deadlock") && error.contains("barrier `one` (1 of 2 are there)"),
        "{error}"
    );
}

#[test]
fn an_experiment_tells_what_was_published_and_what_we_get() {
    let rows = json(&["lab", "run", "cmt/model", "--json"]);
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 3);
    for row in rows {
        for member in [
            "experiment",
            "name",
            "id",
            "class",
            "published",
            "ours",
            "unit",
            "tolerance",
            "holds",
        ] {
            assert!(row.get(member).is_some(), "{member} in {row}");
        }
        assert_eq!(row["holds"], true, "{row}");
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    told(&["lab", "report", "cmt/figure3", "-o", page.to_str().unwrap()]);
    let text = std::fs::read_to_string(Path::new(&page)).unwrap();
    assert!(text.contains("<svg") && !text.contains("http://cdn"));
    assert!(told(&["lab", "list"]).contains("cmt/figure5"));
    assert!(told(&["sim", "--list"]).contains("cmt-4x4"));
}

/// A miss is a result like any other, unless it is asked to be a failure.
#[test]
fn a_miss_fails_only_if_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let text = |tolerance: f64| {
        format!(
            r#"title = "Mine"
time = {{ warm-up = "1000 cycles", length = "10000 cycles" }}
[[run]]
name = "a"
machine = "cmt-a"
workload = "cmt-cpu-bound"
[measure]
x = {{ of = "throughput", run = "a" }}
[[claim]]
name = "ten instructions a cycle"
aim = 10
place = "here"
ours = "x"
tolerance = {tolerance}
"#
        )
    };
    let path = file.to_str().unwrap();
    std::fs::write(&file, text(0.1)).unwrap();
    assert!(told(&["lab", "run", path]).contains("own aims: 0 of 1 hold"));
    refused(&["lab", "run", path, "--strict"], 1);
    std::fs::write(&file, text(20.0)).unwrap();
    assert!(told(&["lab", "run", path, "--strict"]).contains("own aims: 1 of 1 hold"));
    let error = refused(&["lab", "run", "tournament", "--strict"], 125);
    assert!(error.contains("without --strict"), "{error}");
}

/// Requests, devices and energy of a user's own machine and workload, in the table and in JSON.
#[test]
fn servers_devices_and_energy_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (page, energy) = {
        let page = include_str!("../../../docs/machines.md");
        let examples = page.split("```toml\n").skip(1);
        let mut examples = examples.map(|rest| rest.split_once("```").unwrap().0);
        let first = examples.next().unwrap();
        let energy = examples.find(|text| text.contains("[energy]"));
        (first, energy.unwrap())
    };
    let machine = file("m.toml", &format!("{page}\n{energy}"));
    let workload = file(
        "w.toml",
        "about = \"a server\"\n[mixes.m]\nshares = { alu = 0.9, load = 0.1 }\n[devices.disk]\nlatency = \"10 us\"\n\
         [[programs]]\nname = \"server\"\narrivals = { rate = \"20k / s\", count = 40 }\n\
         [[programs.threads]]\nname = \"worker\"\nserves = true\n\
         steps = [{ compute = \"m\", instructions = \"10k\" }, { io = \"disk\" }]\n",
    );
    let call = ["sim", "-m", &machine, "-w", &workload, "-t", "1s"];
    let text = told(&call);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for word in [
        "server", "refused", "disk", "energy", "EDP", "issue", "units", "L1", "lines", "memory",
        "cores", "uncore", "base",
    ] {
        assert!(text.contains(word), "{text}");
    }
    let told_all = json(&[&call[..], &["--json"]].concat());
    let result = &told_all["results"][0]["runs"][0];
    assert_eq!(result["requests"][0]["served"], 40);
    assert_eq!(result["devices"][0]["operations"], 40);
    let energy = &result["energy"];
    assert!(energy["watts"].as_f64().unwrap() > 15.0);
    let part = |name: &str| energy[name].as_f64().unwrap();
    let parts = [
        "issue",
        "units",
        "transfers",
        "background",
        "cores",
        "uncore",
        "base",
    ]
    .map(part);
    let caches = energy["caches"].as_array().unwrap().iter();
    let caches: f64 = caches.map(|level| level.as_f64().unwrap()).sum();
    let sum = parts.iter().sum::<f64>() + caches;
    assert!((sum / part("joules") - 1.0).abs() < 1e-9, "{energy}");
    assert!(parts.iter().all(|part| *part > 0.0), "{energy}");
    // What costs time is counted if it is asked for, and then recorded.
    let log = folder.path().join("log.jsonl").to_str().unwrap().to_owned();
    told(&[&call[..], &["--log", &log]].concat());
    // The profile is in there anyway.
    let named = || {
        std::fs::read_to_string(&log)
            .unwrap()
            .matches("llc_bytes")
            .count()
    };
    let before = named();
    let more = ["--log", &log, "--metrics", "llc_occupancy"];
    told(&[&call[..], &more].concat());
    assert!(named() > before);
}

/// ChampSim's format is simple enough to be written here: the address, then flags, registers and memory of 64 bytes.
#[test]
fn recordings_are_played_at_both_levels() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let records = (0..1000u64).flat_map(|at| {
        let mut record = [0; 64];
        record[..8].copy_from_slice(&(0x1000 + 4 * (at % 100)).to_le_bytes());
        record
    });
    std::fs::write(path("t.champsimtrace"), records.collect::<Vec<u8>>()).unwrap();
    std::fs::write(
        path("w.toml"),
        "about = \"x\"\n[mixes.real]\ntrace = \"t.champsimtrace\"\n[[programs]]\nname = \"p\"\n\
         [[programs.threads]]\nname = \"t\"\nsteps = [{ compute = \"real\", instructions = 5000 }]\n",
    )
    .unwrap();
    let workload = path("w.toml");
    let call = ["sim", "-m", "smt2-zen", "-w", &workload];
    for fidelity in ["cycle", "interval"] {
        let arguments = [&call[..], &["--json", "--fidelity", fidelity]].concat();
        let run = &json(&arguments)["results"][0]["runs"][0];
        assert_eq!(run["instructions"], 5000, "{fidelity}");
    }
}

/// In a run this short cold caches take a fifth of the speed, and programs find each other's code: alone more than
/// together.
#[test]
fn nothing_exceeds_the_bound_while_caches_are_cold() {
    let told = json(&[
        "sim", "-m", "smt2-zen", "-w", "fp-int-8", "-t", "100ms", "--json",
    ]);
    let throughput = told["results"][0]["throughput"].as_f64().unwrap();
    let bound = told["bound"].as_f64().unwrap();
    assert!(throughput <= bound, "{throughput} {bound}");
}

#[test]
fn what_cannot_come_to_anything_is_told() {
    let call = ["sim", "-m", "cmt-b", "-w", "cmt-cpu-bound", "-t", "50ms"];
    let text = told(&[&call[..], &["-p", "cpi", "--period", "50ms"]].concat());
    assert!(text.contains("cpi: decides nothing"), "{text}");
    let text = told(&[&call[..], &["-p", "cpi", "--period", "10ms"]].concat());
    assert!(!text.contains("decides nothing"), "{text}");
    let pins = ["-p", "fixed", "--pin", "cpu*=0", "--pin", "nobody*=1"];
    let text = told(&[&call[..], &pins].concat());
    assert!(
        text.contains("rule 'nobody*=1'") && !text.contains("rule 'cpu*=0'"),
        "{text}"
    );
    // Before the simulation, which would take hours.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    for option in ["--log", "--timeline"] {
        let long = ["sim", "-m", "cmt-b", "-w", "cmt-cpu-bound", "-t", "30days"];
        let error = refused(&[&long[..], &[option, folder]].concat(), 125);
        assert!(error.contains("cannot be written"), "{error}");
    }
    let error = refused(&[&call[..], &["-p", "cpi", "--pin", "a=0"]].concat(), 125);
    assert!(error.contains("`-p fixed`"), "{error}");
    let error = refused(&[&call[..], &["-p", "defualt"]].concat(), 125);
    assert!(error.contains("did you mean `default`?"), "{error}");
    let compared = [&call[..], &["--compare", "cpi,bets"]].concat();
    let error = refused(&compared, 125);
    assert!(error.contains("did you mean `best`?"), "{error}");
    let twice = [&call[..], &["--compare", "default,cpi,default"]].concat();
    let error = refused(&twice, 125);
    assert!(error.contains("`default` is named twice"), "{error}");
    // Nobody would see the end of it.
    let forever = ["sim", "-m", "smt2-zen", "-w", "fp-int-8", "-t", "10 years"];
    let error = refused(&forever, 125);
    assert!(
        error.contains("years here") && error.contains("30 days"),
        "{error}"
    );
}

#[test]
fn a_file_of_that_name_is_pointed_at() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.toml"), "").unwrap();
    std::fs::write(folder.path().join("plain"), "").unwrap();
    let said = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_perch"))
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for args in [
        &["sim", "-m", "mine", "-w", "mixed"][..],
        &["sim", "-m", "cmt-b", "-w", "mine"],
        &["lab", "run", "mine"],
        &["profiles", "show", "mine"],
    ] {
        let error = said(args);
        assert!(error.contains("write `mine.toml`"), "{error}");
    }
    for args in [
        &["sim", "-m", "plain", "-w", "mixed"][..],
        &["run", "--profile", "plain", "--", "true"],
    ] {
        let error = said(args);
        assert!(error.contains("write `./plain`"), "{error}");
    }
    // What begins as a path is one.
    let error = said(&["lab", "run", "./exp.tml"]);
    assert!(
        error.contains("./exp.tml: cannot be read: No such file"),
        "{error}"
    );
}

/// What the operating system's policies and CPU weights change is there in a simulation too.
#[test]
fn weights_and_the_operating_system_s_work_are_simulated() {
    let scene = [
        "sim",
        "-m",
        "core2-quad",
        "-w",
        "daemons",
        "-t",
        "3s",
        "--fidelity",
        "interval",
    ];
    let weights = [
        "-p",
        "fixed",
        "--weight",
        "worker*=10",
        "--weight",
        "nosuch=10",
        "--report",
    ];
    let text = told(&[&scene[..], &weights].concat());
    assert!(text.contains("CPU weight 10: 8 threads (worker-"), "{text}");
    assert!(text.contains("name for the rule 'nosuch"), "{text}");
    let all = json(
        &[
            &scene[..],
            &["--compare", "default,ps-sched-1,ps-sched-2", "--json"],
        ]
        .concat(),
    );
    for result in all["results"].as_array().unwrap() {
        // Only the program's threads are results.
        let threads = result["runs"][0]["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 8, "{}", result["policy"]);
        assert!(threads.iter().all(|thread| thread["program"] == "solver"));
    }
    assert!(
        refused(
            &[&scene[..], &["--weight", "worker=7"], &["-p", "cpi"]].concat(),
            125
        )
        .contains("--weight")
    );
}

/// Files are tried before hours of simulation, and one that is stopped leaves none that was not there.
#[test]
fn files_are_tried_first_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (
        folder.path().join("old.pins"),
        folder.path().join("new.svg"),
    );
    std::fs::write(&old, "*=0\n").unwrap();
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    perch
        .args([
            "sim", "-m", "smt2-zen", "-w", "fp-int-8", "-p", "best", "-t", "10s",
        ])
        .arg("--pins")
        .arg(&old)
        .arg("--placement")
        .arg(&new);
    let refused = perch.arg("--timeline").arg("/nonexistent/t.svg").output();
    assert!(!refused.unwrap().status.success());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "*=0\n");
    assert!(!new.exists());
}
