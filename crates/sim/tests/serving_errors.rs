//! Errors in arrivals, devices, spawning and energy are reported with their position; the whole texts are in
//! `snapshots/`.

use perch_sim::config::{find_machine, machine_from_text, shipped_machines, workload_from_text};
use std::path::Path;

/// A sound workload, in which each case breaks something.
const WORKLOAD: &str = r#"about = "A server"

[mixes.m]
shares = { alu = 1 }

[devices.disk]
latency = "1 ms"
bandwidth = "100 MB/s"

[devices.clock]
latency = "1 us"

[[programs]]
name = "server"
arrivals = { rate = "100 / s", queue = 10 }

[[programs.threads]]
name = "worker"
serves = true
steps = [
    { compute = "m", instructions = 100 },
    { io = "disk", bytes = "4 KiB" },
    { spawn = "child", count = 2 },
    { join = "child" },
]

[[programs.threads]]
name = "child"
count = 0
steps = [{ sleep = "1 ms" }]
"#;

/// What a machine says of energy.
const ENERGY: &str = r#"
[energy]
caches = ["50 pJ", "400 pJ"]
transfer = "20 nJ"
base = "15 W"

[energy.kinds.cmt]
active = "500 mW"
ops = { alu = 1, multiply = 1, divide = 1, fp = 1, fp-divide = 1, load = 1, store = 1, branch = 1 }
"#;

fn all(base: &str, cases: &[(&str, &str)], read: impl Fn(&str) -> Result<(), String>) -> String {
    read(base).unwrap_or_else(|error| panic!("{error}"));
    let told = cases.iter().map(|(from, to)| {
        assert_eq!(base.matches(from).count(), 1, "`{from}` must be there once");
        let text = base.replace(from, to);
        read(&text).expect_err(&text)
    });
    told.collect::<Vec<_>>().join("\n\n")
}

fn snapshot(name: &str, told: &str) {
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, told) });
}

#[test]
fn of_servers_devices_and_teams() {
    let read = |text: &str| {
        let read = workload_from_text(text, Path::new("my/server.toml"));
        read.map(drop).map_err(|error| error.to_string())
    };
    let cases = [
        ("rate = \"100 / s\"", "rate = \"100 / h\""),
        ("rate = \"100 / s\"", "rate = 0"),
        ("rate = \"100 / s\", queue = 10", "queue = 10"),
        ("rate = \"100 / s\"", "rate = 5, clients = 5"),
        ("rate = \"100 / s\"", "rate = 5, think = 5"),
        ("rate = \"100 / s\"", "clients = 5"),
        ("queue = 10", "process = \"poison\""),
        ("arrivals = { rate = \"100 / s\", queue = 10 }", ""),
        ("serves = true", "serves = false"),
        ("serves = true", "serves = true\nrepeat = 5"),
        ("instructions = 100", "instructions = \"forever\""),
        ("name = \"server\"", "name = \"server\"\nrestart = true"),
        ("io = \"disk\"", "io = \"dsik\""),
        ("io = \"disk\"", "io = \"clock\""),
        ("[devices.disk]", "[devices.disk]\nparalel = 3"),
        ("bandwidth = \"100 MB/s\"", "bandwidth = \"100 MB\""),
        ("bytes = \"4 KiB\"", "count = 2"),
        ("spawn = \"child\"", "spawn = \"chlid\""),
        ("{ join = \"child\" }", "{ join = \"worker\" }"),
        (
            "    { spawn = \"child\", count = 2 },\n    { join = \"child\" },\n",
            "",
        ),
        ("serves = true", "serves = true\ncount = 0"),
        ("sleep = \"1 ms\"", "join = \"child\""),
    ];
    snapshot("of_servers_devices_and_teams", &all(WORKLOAD, &cases, read));
}

#[test]
fn a_server_whose_requests_need_no_time() {
    let text = WORKLOAD
        .replace("    { compute = \"m\", instructions = 100 },\n", "")
        .replace("    { io = \"disk\", bytes = \"4 KiB\" },\n", "")
        .replace("sleep = \"1 ms\"", "sleep = 0");
    let error = workload_from_text(&text, Path::new("my/server.toml")).unwrap_err();
    snapshot("of_a_server_without_work", &error.to_string());
}

#[test]
fn of_energy() {
    let machines = shipped_machines();
    let base = machines.iter().find(|file| file.name == "cmt-4x4").unwrap();
    let kind = find_machine("cmt-4x4").unwrap().kinds[0].name.clone();
    let read = |energy: &str| {
        let text = format!(
            "{}\n{}",
            base.text,
            energy.replace("kinds.cmt]", &format!("kinds.{kind}]"))
        );
        let read = machine_from_text(&text, Path::new("my/machine.toml"));
        read.map(drop).map_err(|error| error.to_string())
    };
    let cases = [
        ("[\"50 pJ\", \"400 pJ\"]", "[\"50 pJ\"]"),
        ("\"20 nJ\"", "\"20 W\""),
        ("transfer = \"20 nJ\"", ""),
        ("\"15 W\"", "\"15 Wh\""),
        ("[energy.kinds.cmt]", "[energy.kinds.big]"),
        ("fp = 1, ", ""),
        ("active = \"500 mW\"", "activ = \"500 mW\""),
        ("active = \"500 mW\"", "voltage = 0"),
        ("active = \"500 mW\"", "voltages = [0.8, 1]"),
        ("active = \"500 mW\"", "caches = [1]"),
        ("base = \"15 W\"", "uncore = \"15 nJ\""),
    ];
    snapshot("of_energy", &all(ENERGY, &cases, read));
}

#[test]
fn of_voltages() {
    let base = shipped_machines();
    let base = base.iter().find(|file| file.name == "cmt-4x4").unwrap();
    let kind = find_machine("cmt-4x4").unwrap().kinds[0].clone();
    let clock = format!("{} kHz", kind.highest_clock());
    let name = format!("[kinds.{}]", kind.name);
    assert_eq!(base.text.matches(&name).count(), 1);
    let text = base
        .text
        .replace(&name, &format!("{name}\nclocks = [\"1 MHz\", \"{clock}\"]"));
    let energy = ENERGY
        .replace("kinds.cmt]", &format!("kinds.{}]", kind.name))
        .replace("active = \"500 mW\"", "voltages = [0.8, 1]");
    let read = |energy: &str| {
        let text = format!("{text}\n{energy}");
        let read = machine_from_text(&text, Path::new("my/machine.toml"));
        read.map(drop).map_err(|error| error.to_string())
    };
    let cases = [
        ("[0.8, 1]", "[1]"),
        ("[0.8, 1]", "[1, 0.8]"),
        ("[0.8, 1]", "[0, 1]"),
        ("[0.8, 1]", "[0.8, 1]\nvoltage = 1"),
    ];
    snapshot("of_voltages", &all(&energy, &cases, read));
}
