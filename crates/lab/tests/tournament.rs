//! A small tournament of the shipped kind, and the shipped rules.

use perch_lab::tournament::{Contestant, Line, Outcome, Rules, picture, play};
use std::collections::BTreeSet;

#[test]
fn the_shipped_rules_name_machines_and_policies() {
    let rules = Rules::shipped();
    assert!(rules.machines.len() >= 6);
    for entry in &rules.machines {
        perch_sim::config::find_machine(&entry.name).unwrap();
        assert!(entry.workloads > 0, "{}", entry.name);
    }
    let known: Vec<&str> = perch_policy::registry::names().collect();
    let mut names = BTreeSet::from(["default"]);
    for contestant in &rules.contestants {
        assert!(
            known.contains(&contestant.policy.as_str()),
            "{contestant:?}"
        );
        assert!(names.insert(&contestant.name), "{contestant:?} twice");
    }
}

/// The shipped rules, but for how much is simulated.
fn small() -> Rules {
    let mut rules = Rules::shipped();
    rules
        .machines
        .retain(|m| ["core2-quad", "intel-xeon-ht"].contains(&m.name.as_str()));
    rules.machines.iter_mut().for_each(|m| m.workloads = 2);
    let wanted = ["workover", "symbiosis", "symbiosis, sampled"];
    rules
        .contestants
        .retain(|c| wanted.contains(&c.name.as_str()));
    rules.contestants.push(Contestant {
        name: "nobody".to_owned(),
        policy: "observe".to_owned(),
        options: toml::Table::new(),
        calibrated: false,
        sampled: false,
    });
    Rules {
        // Placements that the interval level tells apart are among these.
        seed: 7,
        default_seeds: 2,
        policy_seeds: 1,
        warm_up: 3,
        length: 3,
        judged_again: 3,
        ..rules
    }
}

fn check(outcome: &Outcome, rules: &Rules) {
    let played: u64 = rules.machines.iter().map(|machine| machine.workloads).sum();
    assert_eq!(outcome.matches.len() as u64, played);
    assert!((1..=rules.judged_again).contains(&(outcome.again.len() as u64)));
    for again in &outcome.again {
        assert!(
            (again.interval - 1.0).abs() > 0.005 && again.cycle > 0.0,
            "{again:?}"
        );
    }
    assert_eq!(outcome.standings.len(), rules.contestants.len() + 1);
    assert_eq!(
        outcome.by_machine.len(),
        outcome.standings.len() * rules.machines.len()
    );
    let lines = |at: usize| {
        outcome.matches.iter().map(move |found| match at {
            0 => &found.default,
            _ => &found.lines[at - 1],
        })
    };
    for (at, standing) in outcome.standings.iter().enumerate() {
        let regrets: Vec<f64> = lines(at).map(|line: &Line| line.regret).collect();
        for (line, found) in lines(at).zip(&outcome.matches) {
            // Means of equal numbers may differ from them by rounding.
            assert!((-1e-9..1.0).contains(&line.regret), "{line:?}");
            assert!((0.0..=1.0).contains(&line.fairness), "{line:?}");
            assert!((0.0..1.01).contains(&line.harmonic), "{line:?}");
            assert_eq!(line.placement.len(), found.threads);
        }
        let mean = regrets.iter().sum::<f64>() / regrets.len() as f64;
        assert!((standing.mean_regret - mean).abs() < 1e-9, "{standing:?}");
        assert!(standing.mean_regret <= standing.worst_regret + 1e-9);
        assert!(standing.wins + standing.losses <= standing.workloads);
    }
}

#[test]
fn a_small_tournament_is_consistent_and_always_the_same() {
    let rules = small();
    let mut told = Vec::new();
    let outcome = play(&rules, |done, count| told.push((done, count))).unwrap();
    let of = outcome.matches.len();
    assert_eq!(told, (1..=of).map(|done| (done, of)).collect::<Vec<_>>());
    check(&outcome, &rules);
    assert!(
        outcome
            .standings
            .iter()
            .any(|standing| standing.worst_regret > 0.0),
        "nothing to choose: {:?}",
        outcome.standings
    );
    // A policy that moves no thread is as good as the default scheduler, whatever the seed.
    let observe = rules.contestants.len() - 1;
    for found in &outcome.matches {
        assert!((found.lines[observe].ratio - 1.0).abs() < 1e-3, "{found:?}");
    }
    // The other machines change neither a machine's workloads nor its results.
    let mut one = rules.clone();
    one.machines.retain(|machine| machine.name == "core2-quad");
    let again = play(&one, |_, _| ()).unwrap();
    let alike = outcome.matches.iter();
    let alike: Vec<_> = alike
        .filter(|found| found.machine == "core2-quad")
        .collect();
    assert_eq!(again.matches.iter().collect::<Vec<_>>(), alike);
    let drawn = picture(&outcome).unwrap();
    let dots = drawn.matches("<circle").count();
    let machines = rules.machines.len();
    assert_eq!(
        dots,
        outcome.matches.len() * outcome.standings.len() + machines
    );
    for name in outcome.standings.iter().map(|standing| &standing.name) {
        assert!(drawn.contains(name.as_str()), "{name}");
    }
}

#[test]
fn machines_that_are_not_there_are_told() {
    let mut rules = small();
    rules.machines[0].name = "core2-quat".to_owned();
    let why = play(&rules, |_, _| ()).unwrap_err();
    assert!(why.contains("core2-quad"), "{why}");
}
