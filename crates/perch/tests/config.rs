//! Mistakes in the configuration file.

use perch::config::ConfigFile;
use std::path::Path;

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
        "[policies.workovr]\n",
        "[policies]\nworkover = 3\n",
        "[policies.sos]\nsampls = 3\n",
        "[policies.sos]\nsamples = \"many\"\n",
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
