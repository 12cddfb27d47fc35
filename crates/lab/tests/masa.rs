//! MASA's experiments: that programs alone are as the paper has them alone, and that what is new in measuring is right.

use perch_lab::{Results, experiment::parse, load, results::Value, run};
use std::path::Path;

fn ours(results: &Results, name: &str) -> f64 {
    let mut measured = results.measured.iter();
    let found = measured.find(|measured| measured.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).value
}

fn holds(results: &Results, name: &str) -> bool {
    let mut rows = results.rows.iter();
    let found = rows.find(|row| row.name.contains(name));
    found.unwrap_or_else(|| panic!("no {name}")).holds
}

fn without_variants(name: &str) -> perch_lab::Experiment {
    let mut experiment = load(name).unwrap();
    experiment.variants.clear();
    experiment
}

/// The row Base of table 4 is an input: 5 seconds of a program that has the machine to itself.
#[test]
fn programs_alone_are_as_the_paper_has_them_alone() {
    let results = run(&without_variants("masa/table4"), &mut ()).unwrap();
    let an_instruction = |what: &str, o: &str| {
        ours(&results, &format!("base_{o}_{what}")) / ours(&results, &format!("base_{o}_inst"))
    };
    let near = |ours: f64, published: f64, part: f64| {
        assert!((ours / published - 1.0).abs() < part, "{ours} {published}");
    };
    near(an_instruction("l2", "fp"), 9.733e-5, 0.1);
    near(an_instruction("l2", "l2c"), 7.134e-3, 0.1);
    // Instructions a cycle of 2.2 GHz. L2C is 5 % too slow at the cycle level. At the interval level it is 7 % too fast, as
    // are other single threads that use much of the bus (docs/fidelity.md).
    near(ours(&results, "base_l2c_inst"), 6.577e9 / 5.0 / 2.2e9, 0.08);
    near(ours(&results, "base_fp_inst"), 8.713e9 / 5.0 / 2.2e9, 0.05);
}

#[test]
fn limits_are_what_one_program_alone_does() {
    let results = run(&without_variants("masa/table6"), &mut ()).unwrap();
    assert!(holds(&results, "limit of L2 misses"));
    assert!(holds(&results, "limit of FP operations"));
    // And they are those that the other experiments give MASA.
    for name in ["binding", "test-case-1", "test-case-2", "constants"] {
        let path = format!(
            "{}/../../experiments/masa/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).unwrap();
        let limits = results
            .rows
            .iter()
            .filter(|row| row.name.starts_with("limit of"));
        for limit in limits {
            // What is measured, not what the claim aims at: the claim's tolerance once hid that the policy was given an
            // older limit.
            let Value::Number(told) = limit.ours else {
                panic!("{} is no number", limit.name)
            };
            let written = text.split("limit = ").skip(1);
            let written = written.map(|rest| {
                rest.split_whitespace()
                    .next()
                    .unwrap()
                    .parse::<f64>()
                    .unwrap()
            });
            assert!(
                written
                    .clone()
                    .any(|value| (value / told - 1.0).abs() < 2e-3),
                "{name} {told}"
            );
        }
    }
}

#[test]
fn without_hyper_threading_programs_share_a_processor_by_halves() {
    for table in ["masa/table1", "masa/table2"] {
        let results = run(&without_variants(table), &mut ()).unwrap();
        assert!(holds(&results, "half of the processor"), "{table}");
    }
}

#[test]
fn masa_finds_the_placement_of_table_1_by_one_swap_from_any_start() {
    let mut experiment = load("masa/binding").unwrap();
    experiment.seeds = vec![1, 2, 3, 4];
    let results = run(&experiment, &mut ()).unwrap();
    for name in [
        "INT and FP: MASA is as fast",
        "INT and FP: one swap",
        "INT and FP: runs differ less",
    ] {
        assert!(holds(&results, name), "{name}");
    }
}

/// Two programs one after the other, with and without a policy; nothing else runs.
const STEPS: &str = r#"title = "Steps"
fidelity = "interval"
time = { warm-up = "0 s", length = "20 s" }

[[run]]
name = "plain"
machine = "intel-xeon-ht"
workload = "./steps.toml"

[[run]]
name = "watched"
machine = "intel-xeon-ht"
workload = "./steps.toml"
policy = "observe"
period = "500 ms"

[measure]
first = { of = "step-time", run = "plain", thread = "shell", step = 1 }
second = { of = "step-time", run = "plain", thread = "shell", step = 2 }
total = { of = "total-time", run = "plain" }
watched = { of = "total-time", run = "watched" }
watched_second = { of = "step-time", run = "watched", thread = "shell", step = 2 }
moves = { of = "moves", run = "watched" }
here = { of = "work", run = "plain", package = 0 }
there = { of = "work", run = "plain", package = 1 }
all = { of = "work", run = "plain" }
fp = { of = "fp-work", run = "plain" }
misses = { of = "l2-work", run = "plain" }

[[claim]]
name = "The whole is its steps"
aim = 1
place = "arithmetic"
ours = "(first + second) / total"
tolerance = 0.001
"#;

const WORKLOAD: &str = r#"about = "Two programs one after the other"
sources = ["a test"]
[mixes.a]
shares = { alu = 1 }
depends = 1
[mixes.b]
shares = { alu = 0.5, fp = 0.5 }
depends = 1
[[programs]]
name = "shell"
[[programs.threads]]
name = "shell"
steps = [
    { compute = "a", instructions = "4M" },
    { compute = "b", instructions = "2M" },
]
"#;

fn steps(text: &str) -> Result<perch_lab::Experiment, String> {
    let sibling = |_: &str| Ok(WORKLOAD.to_owned());
    parse("steps", text, Path::new("steps.toml"), &sibling).map_err(|error| error.to_string())
}

#[test]
fn times_of_steps_are_those_of_their_instructions() {
    let results = run(&steps(STEPS).unwrap(), &mut ()).unwrap();
    let of = |name| ours(&results, name);
    // 4 million cycles of 2.2 GHz, a thousand times as long for the operating system; the second step has a result every
    // cycle and one every five in turn, half of them followed by the other.
    assert!(
        (of("first") - 4e6 * 455e-12 * 1e3).abs() < 0.01,
        "{}",
        of("first")
    );
    assert!((of("first") + of("second") - of("total")).abs() < 1e-6);
    assert!(
        (of("watched") - of("total")).abs() < 0.005,
        "{} {}",
        of("watched"),
        of("total")
    );
    assert!((of("watched_second") - of("second")).abs() < 0.3);
    assert_eq!(of("moves"), 0.0);
    // One package has it all.
    assert_eq!(of("here") + of("there"), of("all"));
    assert_eq!(of("here") * of("there"), 0.0);
    assert!(of("fp") > 0.0 && of("fp") < of("all") && of("misses") < 0.001);
}

#[test]
fn mistakes_of_what_is_measured_are_told() {
    let left_out = |ids: &str, why: &str| {
        format!("[[left-out]]\npublished = [{ids}]\nwhy = \"{why}\"\n\n[[claim]]")
    };
    let changes = [
        (
            "thread = \"shell\", step = 2 }\ntotal",
            "step = 2 }\ntotal".to_owned(),
        ),
        ("step = 2 }\ntotal", "step = 0 }\ntotal".to_owned()),
        (", step = 2 }\ntotal", " }\ntotal".to_owned()),
        (
            "run = \"plain\", package = 1",
            "run = \"plain\", package = 2".to_owned(),
        ),
        ("of = \"moves\"", "of = \"moves\", package = 0".to_owned()),
        (
            "of = \"work\", run = \"plain\" }",
            "of = \"work\", run = \"plain\", reason = \"x\" }".to_owned(),
        ),
        ("warm-up = \"0 s\"", "warm-up = \"1 s\"".to_owned()),
        ("[[claim]]", left_out("", "x")),
        ("[[claim]]", left_out("\"masa-limt\"", "x")),
        ("[[claim]]", left_out("\"masa-limit\"", " ")),
    ];
    let told: Vec<String> = changes
        .iter()
        .map(|(from, to)| {
            assert!(STEPS.contains(from), "{from}");
            let refused = steps(&STEPS.replacen(from, to, 1)).unwrap_err();
            format!("{from} -> {to}\n{refused}\n")
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_is_left_out_is_told_with_its_reason() {
    let results = run(&without_variants("masa/table6"), &mut ()).unwrap();
    let notes = results.notes.join("\n");
    assert!(
        notes.contains("Not reproducible here: table 5, Inktomi Traffic Server"),
        "{notes}"
    );
    assert!(notes.contains("an erratum"), "{notes}");
}
