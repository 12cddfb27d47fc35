//! Manual binding: rules, locations, turns.

use crate::support::*;
use perch_core::{ActionKind, Policy, PuSet, ThreadId};
use perch_policy::{
    Fixed, FixedConfig,
    fixed::{Location, Rule, parse_rules},
};
use proptest::prelude::*;
use std::path::Path;

fn fixed(rules: &[&str]) -> Fixed {
    let pin = rules.iter().map(|rule| (*rule).to_owned()).collect();
    Fixed::new(&FixedConfig {
        pin,
        ..FixedConfig::default()
    })
    .unwrap()
}

fn error(rule: &str) -> String {
    let pin = vec![rule.to_owned()];
    Fixed::new(&FixedConfig {
        pin,
        ..FixedConfig::default()
    })
    .unwrap_err()
    .to_string()
}

/// Two packages of two cores of two PUs.
fn resolve(location: &str) -> String {
    let topology = topology(&cores(2, 2, 2));
    let location: Location = location.parse().unwrap();
    location
        .resolve(&topology)
        .map_or_else(|error| error.to_string(), |pus| pus.to_string())
}

#[test]
fn locations_mean_what_hwloc_calc_says() {
    for (location, pus) in [
        ("0-3,7", "0-3,7"),
        ("all", "0-7"),
        ("core:1", "2-3"),
        ("core:all.pu:1", "1,3,5,7"),
        ("core:0-1.pu:0", "0,2"),
        ("core:2-.pu:0", "4,6"),
        ("package:1", "4-7"),
        ("package:1.core:0", "4-5"),
        ("package:all.core:1.pu:0", "2,6"),
        ("numa:0,core:3", "0-3,6-7"),
        ("node:1.pu:3", "7"),
        ("pu:odd", "1,3,5,7"),
        ("core:even", "0-1,4-5"),
        ("pu:6:4", "0-1,6-7"),
        ("l3:1", "4-7"),
    ] {
        assert_eq!(resolve(location), pus, "{location}");
    }
    // As likwid-pin(1) counts: the first PUs of all cores, then the second ones.
    for (location, pus) in [
        ("N:0-3", "0,2,4,6"),
        ("N:0-4", "0-2,4,6"),
        ("S0:0-1", "0,2"),
        ("S1:0,2", "4-5"),
        ("S0:0@S1:0-1", "0,4,6"),
        ("M1:3,core:0,7", "0-1,7"),
        ("7,C0:0,1,3", "0,2-3,7"),
        ("S0:1@6", "2,6"),
    ] {
        assert_eq!(resolve(location), pus, "{location}");
        let parsed: Location = location.parse().unwrap();
        assert_eq!(parsed.to_string().parse::<Location>().unwrap(), parsed);
    }
    assert_eq!(resolve("S2:0"), "there is no S2; there are S0 to S1");
    assert_eq!(resolve("N:8"), "there is no 8 in N:8, which has PUs 0 to 7");
    assert_eq!(resolve("core:4"), "there is no core:4; there are core:0-3");
    assert_eq!(resolve("6-9"), "there is no PU 8-9; there are 0-7");
}

#[test]
fn the_first_rule_that_matches_wins() {
    let mut world = World::regular(1, 4, 2, &[0.0; 3]);
    world.snapshot.threads[1].info.name = "worker-1".into();
    world.snapshot.threads[2].info.process = "other".into();
    let plan = fixed(&["worker*=core:1", "app=0,9"]).decide(&world.snapshot);
    assert!(
        plan.remarks[0].text.contains("no PU 9"),
        "{:?}",
        plan.remarks
    );
    let plan = fixed(&["worker*=core:1", "app=0"]).decide(&world.snapshot);
    let bound: Vec<_> = plan
        .bindings
        .iter()
        .map(|b| (b.thread, b.pus.to_string()))
        .collect();
    assert_eq!(bound, [(id(0), "0".to_owned()), (id(1), "2-3".to_owned())]);
    assert_eq!(plan.bindings[1].reason.text, "rule 'worker*=core:1'");
}

fn with_ways(rules: &[&str]) -> Result<Fixed, String> {
    let ways = rules.iter().map(|rule| (*rule).to_owned()).collect();
    Fixed::new(&FixedConfig {
        ways,
        ..FixedConfig::default()
    })
    .map_err(|error| error.to_string())
}

#[test]
fn of_each_level_the_first_rule_of_ways_wins() {
    let mut world = World::regular(1, 4, 2, &[0.0; 3]);
    world.snapshot.threads[1].info.name = "stream-1".into();
    world.snapshot.threads[2].info.process = "other".into();
    let rules = ["stream*=L3:0x3", "app=L3:0xffc", "app=L2:0x1", "*-1=L3:0x1"];
    let mut policy = with_ways(&rules).unwrap();
    assert!(!policy.wants_weights());
    let plan = policy.decide(&world.snapshot);
    let given: Vec<(ThreadId, String, &str)> = plan
        .actions
        .iter()
        .map(|action| match action.what {
            ActionKind::CacheWays(ways) => (action.thread, ways.to_string(), &*action.reason.text),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        given,
        [
            (id(0), "L3:0xffc".to_owned(), "rule 'app=L3:0xffc'"),
            (id(0), "L2:0x1".to_owned(), "rule 'app=L2:0x1'"),
            (id(1), "L3:0x3".to_owned(), "rule 'stream*=L3:0x3'"),
            (id(1), "L2:0x1".to_owned(), "rule 'app=L2:0x1'"),
        ]
    );
    assert!(plan.bindings.is_empty());
    let json = serde_json::to_value(plan.actions[2].what).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"cache-ways": {"level": 3, "ways": 3}})
    );
}

#[test]
fn bad_rules_of_ways_are_shown_with_the_place() {
    let wrong = |rule| with_ways(&[rule]).unwrap_err();
    for (rule, why, at) in [
        ("stream L3:0x3", "there is no '='", 13),
        ("=L3:0x3", "no pattern before '='", 0),
        ("stream*=0x3", "such as L3:0x3, not `0x3`", 8),
        ("stream*=L3:3", "such as L3:0x3, not `L3:3`", 8),
        ("stream*=L3:0x0", "at least one way", 8),
        ("stream*=L3:0x5", "next to each other", 8),
        ("stream*=L1:0x1", "level 2 or 3, not 1", 8),
    ] {
        let text = wrong(rule);
        assert!(text.contains(why), "{text}");
        assert!(
            text.ends_with(&format!("\n    {rule}\n    {}^", " ".repeat(at))),
            "{text}"
        );
    }
}

#[test]
fn threads_take_the_listed_pus_in_that_order() {
    let mut world = World::regular(1, 4, 2, &[0.0; 5]);
    let on = |rule: &str, world: &World| -> Vec<String> {
        let plan = fixed(&[rule]).decide(&world.snapshot);
        plan.bindings.iter().map(|b| b.pus.to_string()).collect()
    };
    assert_eq!(on("*=each:6,0,5", &world), ["6", "0", "5", "6", "0"]);
    // A PU that is listed twice is for two.
    assert_eq!(on("*=each:7,7,2", &world), ["7", "7", "2", "7", "7"]);
    world.snapshot.threads[3].info.name = "worker-1".into();
    world.snapshot.threads[3].info.process = "other".into();
    world.snapshot.threads[4].info.name = "worker-1".into();
    assert_eq!(on("other/worker-1=3", &world), ["3"]);
}

#[test]
fn bad_rules_are_shown_with_the_place() {
    insta::assert_snapshot!(
        [
            error("worker 0-3"),
            error("=0-3"),
            error("worker*="),
            error("worker*=3-1"),
            error("worker*=0,cors:1"),
            error("worker*=each:core:x"),
            error("worker*=core:0.pu"),
            error("worker*=D0:0-3"),
            error("worker*=E:N:4"),
            error("worker*=S:0"),
            error("worker*=S0:0,2-x"),
            error("worker*=S0:scatter"),
            Fixed::new(&FixedConfig::default()).unwrap_err().to_string(),
        ]
        .join("\n")
    );
    let errors = parse_rules(
        "# who goes where\n\nmain=0\nworker*=cor:1\n",
        Path::new("pins.conf"),
    )
    .unwrap_err();
    assert!(
        errors[0]
            .to_string()
            .starts_with("pins.conf:4: no kind of object `cor`; did you mean `core`?")
    );
    assert_eq!(
        parse_rules("# nothing\n a = 1 \n", Path::new("pins.conf"))
            .unwrap()
            .len(),
        1
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_rule_or_refused(text in "[ -~é]{0,24}") {
        let topology = topology(&cores(1, 2, 2));
        match text.parse::<Rule>() {
            Ok(rule) => match rule.pus.resolve(&topology) {
                Ok(pus) => prop_assert!(pus.is_subset(&topology.all())),
                Err(error) => prop_assert!(error.to_string().starts_with("there is no ")),
            },
            Err(error) => prop_assert!(error.to_string().ends_with('^')),
        }
    }

    #[test]
    fn locations_are_printed_as_they_are_read(
        kind in prop_oneof!["core", "pu", "package", "numa", "l2"],
        indexes in prop_oneof!["[0-9]", "[0-4]-[5-9]", "[0-9]-", "[0-9]:[1-9]", "all", "odd", "even"],
        numbers in 0..100u32,
    ) {
        let text = format!("{kind}:{indexes}.pu:0,{numbers}");
        prop_assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
    }

    #[test]
    fn turns_are_even_and_stay(
        pus in proptest::collection::btree_set(0..8u32, 1..8),
        count in 1..20usize,
        leave in proptest::collection::vec(0..20usize, 0..5),
    ) {
        let set: PuSet = pus.iter().copied().collect();
        let mut policy = fixed(&[&format!("t*=each:{set}")]);
        let mut world = World::regular(1, 4, 2, &vec![0.0; count]);
        let before = places(&policy.decide(&world.snapshot));
        let loads: Vec<usize> = pus.iter().map(|pu| before.values().filter(|p| *p == pu).count()).collect();
        prop_assert_eq!(before.len(), count);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        world.snapshot.threads.retain(|t| !leave.contains(&((t.info.id.tid - 1000) as usize)));
        for (thread, pu) in places(&policy.decide(&world.snapshot)) {
            prop_assert_eq!(before[&thread], pu);
        }
    }

    #[test]
    fn bindings_are_within_what_is_usable_and_allowed(cores in any_cores(), threads in any_threads(), each in any::<bool>()) {
        let world = World::new(&cores, &threads);
        let plan = fixed(&[if each { "*=each:all" } else { "*=core:even" }]).decide(&world.snapshot);
        for binding in &plan.bindings {
            let thread = world.snapshot.thread(binding.thread).unwrap();
            prop_assert!(thread.unmanaged.is_none());
            prop_assert!(!binding.pus.is_empty() && binding.pus.is_subset(&thread.allowed));
            prop_assert!(binding.pus.is_subset(&world.snapshot.topology.usable()));
        }
    }
}
