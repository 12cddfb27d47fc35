//! `perch events`, on this machine and for a processor that it is not.

use serde_json::Value;
use std::process::{Command, Output};

fn events(args: &[&str]) -> Output {
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    perch.arg("events").args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = events(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).unwrap()
}

fn names(found: &Value) -> Vec<&str> {
    let entries = found.as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

#[test]
fn it_is_said_that_there_are_no_counters() {
    let said = |args: &[&str]| {
        let output = events(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).contains("can be counted here")
    };
    let usable = perch_linux::perf::probe().pmu_usable;
    assert_eq!(said(&["cache", "miss"]), !usable);
    assert_eq!(said(&[]), !usable);
    // Nothing of these needs any; and on another processor everything might be otherwise.
    assert!(!said(&["page", "fault"]) && !said(&["--profile", "power7"]));
}

#[test]
fn what_the_kernel_counts_is_listed_and_fits() {
    let listed = text(&[]);
    for name in ["page-faults", "context-switches", "LLC-load-misses"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    for line in listed.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn an_event_is_explained_and_says_whether_it_counts_here() {
    let explained = json(&["page-faults"]);
    assert_eq!(explained["counted"], Value::Null, "{explained}");
    // perf_event_open(2): PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS.
    assert_eq!(explained["code"][0], 1);
    assert_eq!(explained["code"][1][0], 2);
    assert!(text(&["page-faults"]).contains("counted here  yes"));
}

#[test]
fn words_are_looked_for_in_names_and_descriptions() {
    let found = json(&["page", "fault"]);
    assert!(names(&found).contains(&"major-faults"), "{found}");
    let output = events(&["no", "such", "words"]);
    assert_eq!(output.status.code(), Some(125));
    let output = events(&["page-fualts"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("did you mean `page-faults`"), "{said}");
}

#[test]
fn another_processor_s_events_are_translated_in_both_directions() {
    // AMD PPR for family 19h: PMCx0C0 "Retired Instructions", PMCx076 "Cycles not in Halt".
    let sets = json(&["--profile", "zen4", "-e", "instructions,cycles"]);
    let set = sets[0].as_array().unwrap();
    assert_eq!(set[0]["device"], "cpu/event=0xc0/", "{sets}");
    assert_eq!(set[0]["raw"], "rc0");
    assert_eq!(set[1]["pmctrack"], "pmc1=0x76");
    for code in ["rc0", "cpu/event=0xc0/", "pmc3=0xc0"] {
        let found = json(&["--profile", "zen4", code]);
        let names = names(&found);
        assert!(names.contains(&"instructions"), "{code}: {found}");
        assert!(names.contains(&"RETIRED_INSTRUCTIONS"), "{code}: {found}");
    }
    let listed = json(&["--profile", "zen4", "--all"]);
    assert!(names(&listed).len() > 200, "{}", names(&listed).len());
}

#[test]
fn a_code_that_no_event_has_can_still_be_counted() {
    let output = events(&["--profile", "zen4", "r12ff"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("perch stat -e 'r12ff'"), "{said}");
    assert_eq!(json(&["--profile", "zen4", "r12ff"]), serde_json::json!([]));
}

#[test]
fn pmus_are_listed() {
    let pmus = json(&["--pmus"]);
    let software = pmus["pmus"].as_array().unwrap().iter();
    let mut software = software.filter(|pmu| pmu["name"] == "software");
    assert_eq!(software.next().unwrap()["kind"], 1);
    assert!(pmus["libpfm4"].as_array().unwrap().len() > 50);
    assert!(text(&["--pmus"]).contains("of other processors"));
}
