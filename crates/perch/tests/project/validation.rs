//! What `perch lab validate` prints. That docs/results/validation.json is what it comes to, a test of the lab says.

use std::process::Command;

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
