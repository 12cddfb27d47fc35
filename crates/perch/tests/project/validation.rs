//! The tables of docs/validation.md are what `perch lab validate` prints.

use crate::{between, read};
use perch_lab::validate::Measurements;
use std::process::Command;

fn printed(arguments: &[&str]) -> String {
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    let output = perch.args(["lab", "validate"]).args(arguments).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    between(&text, "", "\n\nAn input is").to_owned()
}

/// A machine without prefetchers: all values of those with prefetchers take minutes.
#[test]
fn the_page_has_what_comes_out() {
    let page = read("docs/validation.md");
    let table = printed(&["intel-xeon-ht"]);
    assert!(
        page.contains(&format!("```text\n{table}\n```")),
        "docs/validation.md lacks:\n{table}"
    );
}

/// The values that are cheap to simulate: of instructions, and of the first two levels. For the others, a test of the lab
/// compares the number of the simulator with which the page was made.
#[test]
fn cheap_values_of_all_machines_are_on_the_page() {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let page: Vec<Vec<String>> = read("docs/validation.md").lines().map(words).collect();
    for machine in Measurements::machines() {
        let mut found = 0;
        for only in ["dependent", "level 1", "level 2"] {
            // Below the machine's name and the titles, above what they come to.
            let table = printed(&[machine, "--only", only]);
            let rows = table.split("\n\n").nth(1).unwrap_or_default().lines();
            for row in rows.skip(1) {
                found += 1;
                assert!(
                    page.contains(&words(row)),
                    "{machine}: docs/validation.md lacks:\n{row}"
                );
            }
        }
        assert!(found > 4, "{machine}: {found} values");
    }
}
