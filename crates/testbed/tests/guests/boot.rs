//! Every guest is the machine that it was asked to be; output and status come back whole. Machines in which other tests
//! run are looked over there, see [`SURVEY`]: a boot costs seconds.

use std::collections::BTreeMap;

use crate::story::Run;
use perch_skip::skip;
use perch_testbed::look::pu_list;
use perch_testbed::{Architecture, Guest, Kernel, Topology, vm_tests_skipped};

/// Prints what the kernel says about itself, as a run of the name `survey`.
pub const SURVEY: &str = r#"
say() { echo "{\"survey\":\"$1\",\"is\":\"$2\"}"; }
echo '{"run":"survey"}'
say release $(uname -r)
say online $(cat /sys/devices/system/cpu/online)
say nodes $(cat /sys/devices/system/node/online)
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    say siblings-${cpu##*/cpu} $(cat $cpu/topology/thread_siblings_list)
    say package-${cpu##*/cpu} $(cat $cpu/topology/physical_package_id)
done
for node in /sys/devices/system/node/node[0-9]*; do
    say node-${node##*/node} $(cat $node/cpulist)
done
"#;

/// The kernel is the one that was fetched, and says what the topology does.
pub fn assert_is(topology: Topology, survey: &Run) {
    assert_eq!(survey.name, "survey");
    let said: BTreeMap<&str, &str> = survey
        .others
        .iter()
        .filter_map(|line| Some((line["survey"].as_str()?, line["is"].as_str()?)))
        .collect();
    assert_eq!(
        said["release"],
        Kernel::fetch(Architecture::default()).unwrap().release()
    );
    assert_eq!(pu_list(said["online"]).len(), topology.pus());
    assert_eq!(pu_list(said["nodes"]).len(), topology.nodes());
    for pu in 0..topology.pus() {
        let core = topology.core_of(pu);
        let siblings: Vec<usize> = topology.pus_of_core(core).collect();
        assert_eq!(
            pu_list(said[format!("siblings-{pu}").as_str()]),
            siblings,
            "siblings of PU {pu}"
        );
        let package = said[format!("package-{pu}").as_str()]
            .parse::<usize>()
            .unwrap();
        assert!(
            topology.pus_of_node(package).contains(&pu),
            "PU {pu} in package {package}"
        );
    }
    for node in 0..topology.nodes() {
        let pus: Vec<usize> = topology.pus_of_node(node).collect();
        assert_eq!(
            pu_list(said[format!("node-{node}").as_str()]),
            pus,
            "PUs of node {node}"
        );
    }
}

/// A machine in which nothing else is tested.
fn check(topology: Topology) {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let script = format!("{SURVEY}\necho oops >&2\nexit 7");
    let output = Guest::new(topology).run(&script).unwrap();
    assert_eq!(
        (output.status, output.stderr.as_str()),
        (7, "oops\n"),
        "{}",
        output.console
    );
    assert_is(topology, &crate::story::runs(&output.stdout)[0]);
}

#[test]
fn flat1_boots() {
    check(Topology::Flat1);
}

#[test]
fn flat2_boots() {
    check(Topology::Flat2);
}
