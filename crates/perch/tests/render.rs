//! What people see: pictures and tables fit 80 columns, and look as they did.

use perch::render::{WIDTH, report, topology};
use perch_engine::Report;
use perch_linux::topology::{Source, load};
use std::collections::BTreeMap;

fn sample() -> Report {
    serde_json::from_str(include_str!("data/report.json")).unwrap()
}

fn plain(report: &Report) -> String {
    anstream::adapter::strip_str(&report::render(report)).to_string()
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= WIDTH,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

fn draw(description: &str) -> String {
    let loaded = load(&Source::Synthetic(description.to_owned())).unwrap();
    topology::draw(&loaded.topology, &BTreeMap::new())
}

#[test]
fn a_report_of_a_recorded_run() {
    let text = plain(&sample());
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_report_with_long_names_and_large_numbers_fits() {
    let mut report = sample();
    report.command = vec!["/usr/lib/very/long/path/".repeat(20)];
    for thread in &mut report.threads {
        thread.name = "a-name-of-15-by".to_owned();
        thread.deeds.switches = Some(u64::MAX);
        thread.deeds.migrations = Some(u64::MAX / 2);
        thread.bound = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    for made in &mut report.moves.first {
        made.reason.text = "because ".repeat(30);
        made.to = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    report.remarks = vec!["word ".repeat(100)];
    assert_fits(&plain(&report));
}

#[test]
fn an_empty_report_says_so() {
    let report = perch_engine::Collector::new(&["true".to_owned()]).report();
    let text = plain(&report);
    assert_fits(&text);
    assert!(text.contains("No thread was busy"), "{text}");
}

#[test]
fn machines_of_all_sizes_fit() {
    insta::assert_snapshot!(
        "two_nodes",
        draw("package:2 numanode:1 l3:1 l2:2 core:1 pu:2")
    );
    insta::assert_snapshot!("many_cores", draw("package:2 numanode:1 l3:8 core:8 pu:8"));
    for description in [
        "pu:1",
        "core:3 pu:4",
        "package:4 l3:2 core:5 pu:1",
        "package:8 numanode:1 core:128 pu:1",
    ] {
        assert_fits(&draw(description));
    }
}
