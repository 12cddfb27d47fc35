//! The tables of docs/validation.md are what `perch lab validate` prints.

use crate::{between, read};
use perch_lab::validate::Measurements;
use std::process::Command;

#[test]
fn the_page_has_what_comes_out() {
    let page = read("docs/validation.md");
    for machine in Measurements::machines() {
        let output = Command::new(env!("CARGO_BIN_EXE_perch"))
            .args(["lab", "validate", machine])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let table = between(&printed, "", "\n\nAn input is");
        assert!(
            page.contains(&format!("```text\n{table}\n```")),
            "docs/validation.md lacks:\n{table}"
        );
    }
}
