//! Mistakes in the configuration file.

use perch::config::{ConfigFile, settings_folder};
use std::path::{Path, PathBuf};

#[test]
fn each_mistake_is_told_with_its_place_and_what_was_meant() {
    let told: Vec<String> = [
        "polcy = \"cpi\"\n",
        "colour = \"red\"\n",
        "policy = \"cpi\"\nperiod = \"soon\"\n",
        "period = \"1ms\"\n",
        "sampling-rate = 0\n",
        "pus = \"0-\"\n",
        "counters = \"pmv\"\n",
        "take-over = 1\n",
        "policy = [\n",
        "[policy]\nname = \"cpi\"\n",
        "pin = \"a=0\"\n",
        "sampling_rate = \"99\"\n",
        "[policies.workovr]\n",
        "[policies]\nworkover = 3\n",
        "[policies.sos]\nsampls = 3\n",
        "[policies.sos]\nsamples = \"many\"\n",
        "period = \"1s\"\npolicy = \"wrokover\"\n",
    ]
    .iter()
    .map(|text| {
        ConfigFile::parse(text, Path::new("c.toml"))
            .unwrap_err()
            .to_string()
    })
    .collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn where_the_users_settings_are() {
    let folder = |config: &str, home: &str| {
        let value = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        settings_folder(value(config), value(home))
    };
    assert_eq!(folder("/c", "/h"), Some("/c/perch".into()));
    assert_eq!(folder("", "/h"), Some("/h/.config/perch".into()));
    assert_eq!(folder("relative", "/h"), Some("/h/.config/perch".into()));
    assert_eq!(folder("", "relative"), None);
    assert_eq!(folder("", ""), None);
}

/// Options are checked as they are, not beside made-up ones: a policy that needs a calibration may do without one here.
#[test]
fn options_of_a_policy_that_lacks_a_calibration_are_checked_too() {
    let parse = |text: &str| ConfigFile::parse(text, Path::new("c.toml")).map(|_| ());
    parse("[policies.masa]\nvariant = \"paper\"\nimbalance = 0.5\n").unwrap();
    let told = |text: &str| parse(text).unwrap_err().to_string();
    let error = told("[policies.masa]\nvariant = \"paper\"\nimbalance = 5.0\n");
    assert!(error.starts_with("c.toml:3:"), "{error}");
    let error = told("[policies.masa]\nvariant = \"paper\"\ncalibration = \"built-in\"\n");
    assert!(error.contains("measured limits"), "{error}");
    // A file that is named must be there.
    let error = told("[policies.symbiosis]\ngain = 0.1\ncalibration = \"/nowhere/c.toml\"\n");
    assert!(
        error.starts_with("c.toml:3:") && error.contains("/nowhere/c.toml"),
        "{error}"
    );
}
