//! `perch power` where nothing measures energy, and its command line. What it measures is tested in virtual machines with
//! counters of energy (crates/testbed).

use std::process::{Command, Output};

fn power(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    perch
        .arg("power")
        .args(args)
        .env("PERCH_STATE_DIR", folder.path());
    perch.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn energy_is_measured_or_the_program_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let proof = folder.path().join("started");
    let output = power(&["--", "touch", proof.to_str().unwrap()]);
    let said = said(&output);
    if output.status.success() {
        // A machine with counters of energy that this user may read.
        assert!(proof.exists() && said.contains("energy (J)"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(!proof.exists());
    let missing = said.contains("/sys/class/powercap") && said.contains("intel_rapl");
    let refused = said.contains("only root may") || said.contains("stand still");
    assert!(missing || refused, "{said}");
}

#[test]
fn idle_power_needs_a_program() {
    let output = power(&["--idle", "1s", "--for", "1s"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("--idle"), "{}", said(&output));
}
