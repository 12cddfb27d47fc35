//! The module over captured trees.

use super::{hwmon::tests::juno, powercap::tests::zone, *};
use perch_core::Topology;
use std::{fs, sync::Arc};

fn period(module: &mut EnergyModule) -> BTreeMap<(Subject, String), f64> {
    let topology = Arc::new(empty());
    let values = module
        .period(&ModuleContext {
            topology: &topology,
            interval: 1_000_000_000,
            threads: &[],
            pus: &[],
            ended: &[],
        })
        .unwrap();
    let told = |reading: Reading| {
        (
            (reading.subject, reading.name.to_string()),
            reading.metric.value,
        )
    };
    values.readings.into_iter().map(told).collect()
}

/// A machine of which nothing is known.
fn empty() -> Topology {
    Topology {
        source: "test".into(),
        packages: Vec::new(),
        numa_nodes: Vec::new(),
        caches: Vec::new(),
        cores: Vec::new(),
        kinds: Vec::new(),
        pus: Vec::new(),
    }
}

#[test]
fn joules_of_packages_and_domains() {
    let sysfs = tempfile::tempdir().unwrap();
    let powercap = sysfs.path().join("class/powercap");
    zone(&powercap, "intel-rapl:0", "package-0", 1_000_000);
    zone(&powercap, "intel-rapl:0:0", "dram", 0);
    zone(
        &powercap,
        "intel-rapl:1",
        "package-1-die-0",
        262_143_000_000,
    );
    zone(&powercap, "intel-rapl:2", "package-1-die-1", 0);
    let mut module = EnergyModule::open_unchecked(sysfs.path()).unwrap();
    assert_eq!(module.refresh_every(), Some(Duration::from_secs(262)));
    // What is used before the first period does not count.
    zone(&powercap, "intel-rapl:0", "package-0", 11_000_000);
    module.begin();
    zone(&powercap, "intel-rapl:0", "package-0", 41_000_000);
    zone(&powercap, "intel-rapl:0:0", "dram", 2_500_000);
    // Past the end of its range, 262,143.328850 J.
    zone(&powercap, "intel-rapl:1", "package-1-die-0", 671_150);
    zone(&powercap, "intel-rapl:2", "package-1-die-1", 4_000_000);
    let found = period(&mut module);
    let at = |subject, name: &str| found[&(subject, name.to_owned())];
    assert_eq!(at(Subject::Package(0), "energy_pkg"), 30.0);
    assert_eq!(at(Subject::Package(0), "energy_dram"), 2.5);
    assert!((at(Subject::Package(1), "energy_pkg") - 5.0).abs() < 1e-6);
    let provided = module.provides();
    assert_eq!(provided.len(), 2);
    assert!(provided.iter().all(|metric| metric.unit == "J"));
    // Without one zone, what the machine uses is not known; that is said.
    fs::remove_file(powercap.join("intel-rapl:2/energy_uj")).unwrap();
    let found = period(&mut module);
    let names: Vec<&str> = found.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["energy_dram"]);
    let remarks = module.remarks();
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].text.contains("intel-rapl:2/energy_uj"));
}

#[test]
fn counters_that_stand_still_are_not_believed() {
    let sysfs = tempfile::tempdir().unwrap();
    let powercap = sysfs.path().join("class/powercap");
    zone(&powercap, "intel-rapl:0", "package-0", 0);
    let why = EnergyModule::open(sysfs.path()).err().unwrap().to_string();
    assert!(
        why.contains("stand still") && why.contains("powercap"),
        "{why}"
    );
    // A sensor may.
    juno(&sysfs.path().join("class/hwmon"));
    let mut module = EnergyModule::open(sysfs.path()).unwrap();
    assert!(
        module
            .provides()
            .iter()
            .all(|metric| &*metric.name != "energy_pkg")
    );
    assert!(module.remarks()[0].text.contains("energy_pkg"));
}

#[test]
fn a_board_with_sensors() {
    let sysfs = tempfile::tempdir().unwrap();
    juno(&sysfs.path().join("class/hwmon"));
    let mut module = EnergyModule::open_unchecked(sysfs.path()).unwrap();
    assert!(module.description().contains("sensors"));
    let energy = sysfs.path().join("class/hwmon/hwmon0/energy1_input");
    fs::write(energy, "11500000\n").unwrap();
    let found = period(&mut module);
    let at = |name: &str| found[&(Subject::Machine, name.to_owned())];
    assert_eq!(at("energy_scmi_sensors_pvlt_big"), 2.5);
    assert_eq!(at("power_scmi_sensors_pvlt_big"), 2.5);
    assert_eq!(at("energy_scmi_sensors_2"), 0.0);
}

#[test]
fn a_machine_without_any_says_what_was_looked_for() {
    let sysfs = tempfile::tempdir().unwrap();
    let why = EnergyModule::open(sysfs.path()).err().unwrap().to_string();
    for word in ["class/powercap", "`power`", "class/hwmon"] {
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_refusal_names_the_file_and_the_remedy() {
    let denied = io::Error::new(
        io::ErrorKind::PermissionDenied,
        "/sys/class/powercap/intel-rapl:0/energy_uj: Permission denied (os error 13)",
    );
    let why = refused(denied).to_string();
    assert!(
        why.contains("intel-rapl:0/energy_uj: not permitted"),
        "{why}"
    );
    assert!(
        why.contains("as root") && !why.contains("os error"),
        "{why}"
    );
}

#[test]
fn names_are_those_of_metrics() {
    assert_eq!(plain("pvlt-big 1.8V"), "pvlt_big_1_8v");
    let usual = usual_metrics();
    assert!(usual.iter().any(|metric| &*metric.name == "energy_pkg"));
}
