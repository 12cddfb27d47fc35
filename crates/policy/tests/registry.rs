//! Policies by name.

use perch_policy::registry;

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
        assert!(registry::needs(name).unwrap().contains("needs"));
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
