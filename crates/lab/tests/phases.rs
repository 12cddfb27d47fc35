//! docs/phases.md is made from docs/results/phases.json, and that from these simulations.

use perch_lab::phases::{Outcome, Score, Trial, judge};
use perch_sim::config;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

fn docs(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn kept() -> Vec<Outcome> {
    serde_json::from_str(&docs("results/phases.json")).unwrap()
}

#[test]
fn the_page_has_the_sums_of_what_was_kept() {
    let mut sums: BTreeMap<(u32, String), Score> = BTreeMap::new();
    for outcome in kept() {
        // Seeds below 1000 are for development.
        assert!((1000..1020).contains(&outcome.trial.seed));
        for (method, score) in outcome.scores {
            *sums.entry((outcome.trial.threads, method)).or_default() += score;
        }
    }
    assert_eq!(sums.len(), 4);
    let page = docs("phases.md");
    for ((threads, method), s) in sums {
        let row = format!(
            "| {threads} | `{method}` | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            s.rows,
            s.changes,
            s.at_once,
            s.late,
            s.missed,
            s.false_alarms,
            s.rounds,
            s.mixed,
            s.dropped
        );
        assert!(page.contains(&row), "docs/phases.md lacks: {row}");
    }
}

#[test]
fn a_trial_comes_out_as_it_was_kept() {
    let machine = Arc::new(config::find_machine("smt2-zen").unwrap());
    let trial = Trial {
        threads: 1,
        seed: 1003,
    };
    let again = judge(&machine, &[trial], |_| ()).unwrap();
    let kept: Vec<Outcome> = kept()
        .into_iter()
        .filter(|kept| kept.trial == trial)
        .collect();
    assert_eq!(again, kept);
}
