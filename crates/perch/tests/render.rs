//! What people see: pictures and tables fit 80 columns, and look as they did.

use perch::render::{WIDTH, report, topology, tournament};
use perch_engine::Report;
use perch_lab::tournament::{Again, Line, Match, Outcome, Standing};
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
        thread.stats.switches = Some(u64::MAX);
        thread.stats.migrations = Some(u64::MAX / 2);
        thread.bound = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    for made in &mut report.moves.first {
        made.reason.text = "because ".repeat(30);
        made.to = Some((0..1000).filter(|pu| pu % 2 == 0).collect());
    }
    report.remarks = vec![perch_core::Remark::note("long", "word ".repeat(100))];
    assert_fits(&plain(&report));
}

#[test]
fn how_far_sampled_shares_may_be_off_is_what_perch_states() {
    let mut report = sample();
    for (thread, error) in report.threads.iter_mut().zip([0.01, 0.03]) {
        thread.stats.cpu_time = 1_000_000_000;
        thread
            .stats
            .metrics
            .push(perch_engine::report::MetricReport {
                name: "fp_share_error".into(),
                value: error,
                confidence: 1.0,
                source: perch_core::MetricSource::Sampling,
            });
    }
    let text = plain(&report)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("right within 3.3 points (90 %)"), "{text}");
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

/// A tournament of made-up numbers.
fn played() -> Outcome {
    let policies = [
        "default",
        "workover",
        "masa",
        "cpi",
        "sos",
        "symbiosis",
        "symbiosis, sampled",
    ];
    let standing = |machine: &str, at: usize| Standing {
        name: policies[at].to_owned(),
        machine: machine.to_owned(),
        workloads: 320,
        mean_regret: 0.061 - 0.01 * at as f64,
        worst_regret: 0.4321 - 0.05 * at as f64,
        ratio: 1.0 + 0.0123 * at as f64,
        worst_ratio: 0.98765,
        wins: 40 * at,
        losses: 7 * at,
        moves: 12.3456 * at as f64,
        unfairness: 3.21,
    };
    let standings =
        |machine: &'static str| (0..policies.len()).map(move |at| standing(machine, at));
    let line = Line {
        speedup: 1.0,
        regret: 0.0,
        ratio: 1.0,
        moves: 0.0,
        unfairness: 1.0,
        placement: vec![0],
    };
    let found = |exhaustive| Match {
        machine: "numa-2".to_owned(),
        workload: 0,
        threads: 1,
        best: 1.0,
        best_placement: Vec::new(),
        exhaustive,
        default: line.clone(),
        lines: vec![line.clone(); policies.len() - 1],
    };
    let again = |interval, cycle| Again {
        machine: "numa-2".to_owned(),
        workload: 0,
        contestant: "masa".to_owned(),
        interval,
        cycle,
    };
    let machines = ["ibm-power7-smt4", "intel-xeon-ht", "numa-2"];
    Outcome {
        standings: standings("").collect(),
        by_machine: machines.into_iter().flat_map(standings).collect(),
        matches: vec![found(true), found(false), found(false)],
        again: vec![again(1.1, 1.08), again(0.9, 1.01), again(1.002, 0.99)],
    }
}

#[test]
fn a_tournament() {
    let text = tournament::tournament(&played());
    assert_fits(&text);
    insta::assert_snapshot!(text);
    let none = Outcome {
        again: Vec::new(),
        ..played()
    };
    assert!(!tournament::tournament(&none).contains("judged again"));
}
