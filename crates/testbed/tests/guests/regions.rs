//! Regions count hardware events: those of the stand-in PMU, which advance with a thread's time as they were told to.

use perch_skip::skip;
use perch_testbed::{Guest, Topology, vm_tests_skipped};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

const SCRIPT: &str = r#"
set -e
insmod /testbed/fakepmu.ko events=wibble:0x1c3
echo "* cpu-cycles=2000000000 instructions=1500000000 wibble=1000000" >/sys/module/fakepmu/parameters/rules
echo one $(guest-region --seconds 1 -e instructions,cycles,cpu/wibble/)
echo turns $(guest-region --seconds 2 --calls 40 -e instructions -e cycles)
echo standard $(guest-region --seconds 0.5)
echo Y >/sys/module/fakepmu/parameters/lie
echo lied $(guest-region --seconds 1 -e instructions,cycles)
"#;

/// An event's count, and the seconds in which it was counted.
fn counted(report: &Value, alias: &str) -> (f64, f64) {
    let count = &report["regions"][0]["counts"][alias];
    let number = |key: &str| count[key].as_f64().unwrap_or_else(|| panic!("{report:#}"));
    (number("counted"), number("time_s"))
}

fn assert_rate(report: &Value, alias: &str, rate: f64) {
    let (count, time) = counted(report, alias);
    assert!(
        (count / time / rate - 1.0).abs() < 0.01,
        "{alias}: {count} in {time} s instead of {rate} a second: {report:#}"
    );
}

#[test]
fn hardware_events_of_a_region_are_those_that_there_were() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Smt2)
        .fake_pmu()
        .program(Path::new(env!("CARGO_BIN_EXE_guest-region")))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    let reports: BTreeMap<&str, Value> = output
        .stdout
        .lines()
        .filter_map(|line| line.split_once(" {"))
        .map(|(name, json)| (name, serde_json::from_str(&format!("{{{json}")).unwrap()))
        .collect();
    let one = &reports["one"];
    assert_rate(one, "instructions", 1.5e9);
    assert_rate(one, "cycles", 2e9);
    assert_rate(one, "cpu/wibble/", 1e6);
    let region = &one["regions"][0];
    let seconds = |key: &str| region[key].as_f64().unwrap();
    // All of the region's time was counted.
    assert!(
        (counted(one, "cycles").1 / seconds("cpu_s") - 1.0).abs() < 0.01,
        "{one:#}"
    );
    assert!((seconds("cpu_s") - 1.0).abs() < 0.1, "{one:#}");
    assert!(
        one["counted_by"]
            .as_str()
            .unwrap()
            .starts_with("hardware counters")
    );

    // Sets in rotation count half of the calls each; together they count all of the time.
    let turns = &reports["turns"];
    assert_rate(turns, "instructions", 1.5e9);
    assert_rate(turns, "cycles", 2e9);
    let (instructions, cycles) = (counted(turns, "instructions").1, counted(turns, "cycles").1);
    let all = turns["regions"][0]["cpu_s"].as_f64().unwrap();
    assert!(
        ((instructions + cycles) / all - 1.0).abs() < 0.01,
        "{turns:#}"
    );
    assert!((instructions / all - 0.5).abs() < 0.2, "{turns:#}");

    // Not asked for events, it tries the PMU with work of a known size. This one counts by time, and is not believed.
    let remarks = reports["standard"]["remarks"].to_string();
    assert!(remarks.contains("cannot be believed"), "{remarks}");
    assert!(
        remarks.contains("software events are counted instead"),
        "{remarks}"
    );

    // And it notices counters that lie.
    let lied = &reports["lied"]["regions"][0]["counts"]["instructions"];
    assert!(
        lied["doubtful"]
            .as_str()
            .is_some_and(|why| why.contains("the counters do not count")),
        "{lied:#}"
    );
    assert_eq!(lied["value"], Value::Null);
}
