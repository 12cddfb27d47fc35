//! Calls of `perch stat`, each in a folder of its own.

// Not every test program needs all of it.
#![allow(dead_code)]

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A folder to count in.
pub struct Stat {
    pub folder: TempDir,
}

impl Stat {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Any command of perch, to be run in the folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
        perch
            .args(args)
            .current_dir(self.folder.path())
            .env("PERCH_STATE_DIR", self.folder.path());
        perch
    }

    /// `perch stat` with these arguments.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(&[&["stat"], args].concat()).output().unwrap()
    }

    /// Rows and totals of a run, whatever its exit code is.
    pub fn any_json(&self, args: &[&str]) -> (Vec<Value>, Value, Output) {
        let output = self.run(&[&["--json", "-o", "out.jsonl"], args].concat());
        let text = fs::read_to_string(self.path("out.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        let totals = lines.pop().unwrap_or_else(|| panic!("{}", said(&output)));
        (lines, totals, output)
    }

    /// The same of a run that succeeds.
    pub fn json(&self, args: &[&str]) -> (Vec<Value>, Value) {
        let (rows, totals, output) = self.any_json(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        (rows, totals)
    }
}

/// What was said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}
