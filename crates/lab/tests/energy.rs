//! The energy of a run is that of the time that is counted.

use perch_lab::{load, run};
use std::fs;

/// Only cores with a thread take energy: the only thread begins after the first tenth of the run.
const ENERGY: &str = r#"
[energy]
caches = [0, 0]
transfer = 0

[energy.kinds.simple]
active = "1 W"
ops = { alu = 0, multiply = 0, divide = 0, fp = 0, fp-divide = 0, load = 0, store = 0, branch = 0 }
"#;

const WORKLOAD: &str = r#"
about = "a thread that begins late"

[mixes.m]
shares = { alu = 1 }

[[programs]]
name = "late"

[[programs.threads]]
name = "main"
steps = [{ sleep = "100 ms" }, { compute = "m", instructions = "forever" }]
"#;

const EXPERIMENT: &str = r#"
title = "Power after the warm-up"
about = "The thread begins before the warm-up is over."
time = { warm-up = "200 ms", length = "1 s" }

[[run]]
name = "default"
machine = "./m.toml"
workload = "./w.toml"

[[run]]
name = "policy"
machine = "./m.toml"
workload = "./w.toml"
policy = "observe"
period = "90 ms"

[measure]
default = { of = "power", run = "default" }
policy = { of = "power", run = "policy" }

[[claim]]
name = "one core of 1 W, without a policy"
aim = 1
place = "the machine's file"
ours = "default"
unit = "W"
kind = "within"
tolerance = 0.002
class = "aim"

[[claim]]
name = "one core of 1 W, with a policy"
aim = 1
place = "the machine's file"
ours = "policy"
unit = "W"
kind = "within"
tolerance = 0.002
class = "aim"
"#;

#[test]
fn the_warm_up_takes_no_energy() {
    let folder = tempfile::tempdir().unwrap();
    let page = include_str!("../../../docs/machines.md");
    let machine = page.split("```toml\n").nth(1).unwrap();
    let machine = machine.split("```").next().unwrap();
    let machine = format!("scale = 1000\n{machine}\n{ENERGY}");
    for (name, text) in [
        ("m.toml", &machine[..]),
        ("w.toml", WORKLOAD),
        ("e.toml", EXPERIMENT),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let experiment = load(folder.path().join("e.toml").to_str().unwrap()).unwrap();
    let results = run(&experiment, &mut ()).unwrap();
    for row in &results.rows {
        assert!(row.holds, "{row:?}");
    }
    assert_eq!(results.rows.len(), 2);
}
