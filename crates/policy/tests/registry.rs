//! Policies by name.

use perch_policy::{Calibration, Inputs, registry};
use std::collections::BTreeMap;

fn refused(name: &str, config: &str) -> String {
    let config = toml::from_str(config).unwrap();
    match registry::build(name, &config, &Inputs::default()) {
        Ok(policy) => panic!("built {}", policy.name()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_policy_is_built_by_its_name_and_its_defaults() {
    for name in registry::names() {
        let mut config = registry::default_config(name).unwrap();
        if name == "fixed" {
            config.insert("pin".to_owned(), vec!["*=0"].into());
        }
        if name == "masa" {
            // Without a calibration it says how to get one.
            let refusal = refused(name, "");
            assert!(refusal.contains("perch calibrate"), "{refusal}");
            config.insert("calibration".to_owned(), "built-in".into());
        }
        registry::check(name, &config).unwrap();
        let policy = registry::build(name, &config, &Inputs::default());
        assert_eq!(policy.unwrap().name(), name);
    }
}

/// The README's table of policies: what it says of counters, calibration and root, by name.
fn readme() -> BTreeMap<String, [String; 3]> {
    let text = include_str!("../../../README.md");
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("| policy | what it does"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').rsplitn(4, '|').collect();
        let [root, calibration, counters, policy] = cells[..] else {
            panic!("{line}")
        };
        let name = policy.split('`').nth(1).expect("a name in backquotes");
        let says = [counters, calibration, root].map(|cell| cell.trim().to_owned());
        (name.to_owned(), says)
    };
    table.map(row).collect()
}

#[test]
fn what_a_policy_needs_is_the_same_in_its_words_in_the_readme_and_in_what_it_does() {
    let readme = readme();
    assert!(registry::names().eq(registry::names().filter(|name| readme.contains_key(*name))));
    assert_eq!(readme.len(), registry::names().count());
    for name in registry::names() {
        let words = registry::needs(name).unwrap();
        let [counters, calibration, root] = &readme[name];
        assert_eq!(
            words.contains("needs a calibration"),
            calibration.contains("calibrate"),
            "{name}: {words}"
        );
        let needs_root = words.contains("needs root");
        assert_eq!(root, if needs_root { "yes" } else { "no" }, "{name}");
        assert!(needs_root || words.contains("no root") || words == "needs nothing");
        let mut config = registry::default_config(name).unwrap();
        if name == "fixed" {
            config.insert("pin".to_owned(), vec!["*=0"].into());
        }
        if name == "masa" {
            config.insert("calibration".to_owned(), "built-in".into());
        }
        let policy = registry::build(name, &config, &Inputs::default()).unwrap();
        let blind = words.contains("no counters") || words == "needs nothing";
        assert_eq!(policy.needs().is_empty(), blind, "{name}: {words}");
        match counters.as_str() {
            // Who only watches shows what there is.
            "no" | "or sampling" if blind => {}
            "yes" => assert!(words.contains("counted;"), "{name}: {words}"),
            "or sampling" => assert!(words.contains(" or "), "{name}: {words}"),
            other => panic!("{name}: the README says '{other}'"),
        }
    }
}

#[test]
fn every_option_is_in_the_schema_with_its_meaning_and_default() {
    for name in registry::names() {
        let schema = registry::schema(name).unwrap();
        for (option, value) in registry::default_config(name).unwrap() {
            let described = &schema.as_value()["properties"][&option];
            assert!(described["description"].is_string(), "{name}: {option}");
            let default: toml::Value =
                serde_json::from_value(described["default"].clone()).unwrap();
            assert_eq!(default, value, "{name}: {option}");
        }
    }
}

#[test]
fn mistakes_are_named_with_what_is_right() {
    insta::assert_snapshot!(
        [
            refused("workovr", ""),
            refused("fifo", ""),
            refused("workover", "varient = 'paper'"),
            refused("workover", "variant = 'peper'"),
            refused("workover", "min_activity = 'much'"),
            refused("workover", "min_activity = 2"),
            refused("workover", "patience = 0"),
            refused("observe", "margin = 1"),
            refused("fixed", "pin = ['a=b:1']"),
        ]
        .join("\n")
    );
}

const MEASURED: &str = r#"
machine = "m"
date = "2026-11-22"
metric = [{ name = "fp_load", priority = 1, share = "core", limit = 1e9 }]
kernel = [{ name = "fp", metrics = { ipc = 1.5 } }]
coupling = [{ share = "core", kernel = "fp", beside = ["fp"], slowdown = 1.5 }]
"#;

/// The file that the options name is read before, or not at all: it need not be there when a policy is built.
#[test]
fn a_policy_is_given_its_calibration_and_opens_no_file() {
    let measured = Inputs::from(Calibration::parse(MEASURED, "m.toml").unwrap());
    for name in ["masa", "symbiosis"] {
        let named: toml::Table = toml::from_str("calibration = '/nowhere/c.toml'").unwrap();
        let built = registry::build(name, &named, &measured).unwrap();
        assert_eq!(built.name(), name);
        // Options may be right while the file is not: they are checked by themselves.
        registry::check(name, &named).unwrap();
        let without = registry::build(name, &named, &Inputs::default());
        let why = without.err().unwrap().to_string();
        assert!(why.contains("was not read"), "{why}");
        let why = Inputs::read(name, &named).unwrap_err().to_string();
        assert!(
            why.contains(name) && why.contains("/nowhere/c.toml"),
            "{why}"
        );
    }
    for name in registry::names() {
        let defaults = registry::default_config(name).unwrap();
        assert_eq!(Inputs::read(name, &defaults).unwrap(), Inputs::default());
        let takes = ["masa", "symbiosis"].contains(&name);
        assert_eq!(registry::lacks_calibration(name, &defaults), takes);
    }
    let learned: toml::Table = toml::from_str("calibration = 'built-in'").unwrap();
    assert_eq!(Inputs::read("masa", &learned).unwrap(), Inputs::default());
    assert!(!registry::lacks_calibration("masa", &learned));
    let given = "limits = [{ metric = 'fp_load', share = 'core', limit = 1.0 }]";
    assert!(!registry::lacks_calibration(
        "masa",
        &toml::from_str(given).unwrap()
    ));
}

/// What `perch calibrate` would measure may be missing while options are checked; nothing else may be wrong.
#[test]
fn options_are_checked_without_a_calibration() {
    registry::check("masa", &toml::Table::new()).unwrap();
    let wrong = |text: &str| {
        let options = toml::from_str(text).unwrap();
        registry::check("masa", &options).unwrap_err().to_string()
    };
    assert!(wrong("imbalance = 2.0").contains("imbalance"));
    assert!(wrong("variant = 'paper'\ncalibration = 'built-in'").contains("measured limits"));
    let both = "calibration = 'c.toml'\nlimits = [{ metric = 'a', share = 'l2', limit = 1.0 }]";
    assert!(wrong(both).contains("either"));
}
