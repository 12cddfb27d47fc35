//! Policies by name.

use perch_policy::registry;
use std::collections::BTreeMap;

fn refused(name: &str, config: &str) -> String {
    match registry::build(name, &toml::from_str(config).unwrap()) {
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
        assert_eq!(registry::build(name, &config).unwrap().name(), name);
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
        assert_eq!(root, "no", "{name}");
        assert!(words.contains("no root") || words == "needs nothing");
        let mut config = registry::default_config(name).unwrap();
        if name == "fixed" {
            config.insert("pin".to_owned(), vec!["*=0"].into());
        }
        if name == "masa" {
            config.insert("calibration".to_owned(), "built-in".into());
        }
        let policy = registry::build(name, &config).unwrap();
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
