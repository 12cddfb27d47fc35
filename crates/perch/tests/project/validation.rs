//! The values that docs/results/validation.json keeps are what `perch lab validate` prints.

use crate::read;
use perch_lab::validate::{Row, Validation};
use std::process::Command;

fn printed(arguments: &[&str]) -> Vec<Row> {
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    perch.args(["lab", "validate", "--json"]).args(arguments);
    let output = perch.output().unwrap().stdout;
    // Nothing that was measured has such a name.
    if output.is_empty() {
        return Vec::new();
    }
    let all: Validation = serde_json::from_slice(&output).unwrap();
    all.machines.into_iter().flat_map(|one| one.rows).collect()
}

/// The values that are cheap to simulate: of instructions, of loops, and of the first two levels. For the others, a test
/// of the lab compares the number of the simulator with which they were made.
#[test]
fn cheap_values_of_all_machines_are_kept() {
    let kept: Validation = serde_json::from_str(&read("docs/results/validation.json")).unwrap();
    for one in &kept.machines {
        let mut found = 0;
        for only in ["dependent", "alone", "level 1", "level 2"] {
            for row in printed(&[&one.machine, "--only", only]) {
                found += 1;
                assert!(
                    one.rows.contains(&row),
                    "{}: docs/results/validation.json lacks {row:?}: `make validation`",
                    one.machine
                );
            }
        }
        assert!(found > 4, "{}: {found} values", one.machine);
    }
}

/// A table says what came out, and what that comes to.
#[test]
fn a_table_has_its_values() {
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    let output = perch.args(["lab", "validate", "intel-xeon-ht", "--only", "alu: dep"]);
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    let row = text.lines().find(|line| line.starts_with("alu: dependent"));
    let words: Vec<_> = row.unwrap().split_whitespace().collect();
    assert_eq!(words[2..5], ["cycles", "0.50", "1.00"], "{text}");
    assert!(text.contains("1 of 1 values are more than 10 % off; of 0 predictions 0 hold."));
}
