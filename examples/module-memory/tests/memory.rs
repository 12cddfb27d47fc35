//! The command with the module, on a real program.

use serde_json::Value;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let folder = std::env::temp_dir();
    Command::new(env!("CARGO_BIN_EXE_module-memory"))
        .args(args)
        .env("PERCH_STATE_DIR", folder)
        .output()
        .expect("it starts")
}

#[test]
fn the_memory_of_a_program() {
    // The shell keeps 30 MB while it sleeps.
    let script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 2; echo ${#x}";
    let args = [
        "stat", "--json", "-i", "100ms", "--by", "process", "-V", "rss",
    ];
    let output = run(&[&args[..], &["--", "sh", "-c", script]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let last = said.lines().last().expect("totals");
    let totals: Value = serde_json::from_str(last).expect("JSON");
    let processes = totals["totals"].as_array().expect("a list");
    let shell = processes.iter().find(|process| process["name"] == "sh");
    let rss = &shell.expect("the shell")["metrics"]["rss"];
    // The mean over its life.
    assert!(rss["value"].as_f64() > Some(5e6), "{said}");
    // Of the process itself, not of more than that.
    assert!(rss["of"].is_null(), "{said}");
    assert_eq!(totals["all"]["metrics"]["rss"]["unit"], "B", "{said}");
}

#[test]
fn it_is_listed_among_the_others() {
    let output = run(&["modules", "--json"]);
    let modules: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let modules = modules.as_array().expect("a list");
    let memory = modules.iter().find(|module| module["name"] == "memory");
    let memory = memory.expect("the own module");
    assert_eq!(memory["works"], true);
    assert_eq!(memory["metrics"][0]["name"], "rss");
    assert!(modules.iter().any(|module| module["name"] == "energy"));
}
