//! Every guest boots and is the machine that it was asked to be; output and status come back whole.

use std::collections::BTreeMap;

use perch_testbed::look::pu_list;
use perch_testbed::{Guest, Kernel, Topology, vm_tests_skipped};

/// Prints `KEY VALUE` lines of what the kernel says about itself.
const SURVEY: &str = r#"
echo release $(uname -r)
echo online $(cat /sys/devices/system/cpu/online)
echo nodes $(cat /sys/devices/system/node/online)
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    echo siblings-${cpu##*/cpu} $(cat $cpu/topology/thread_siblings_list)
    echo package-${cpu##*/cpu} $(cat $cpu/topology/physical_package_id)
done
for node in /sys/devices/system/node/node[0-9]*; do
    echo node-${node##*/node} $(cat $node/cpulist)
done
echo oops >&2
exit 7
"#;

fn check(topology: Topology) {
    if vm_tests_skipped() {
        return;
    }
    let output = Guest::new(topology).run(SURVEY).unwrap();
    assert_eq!(
        (output.status, output.stderr.as_str()),
        (7, "oops\n"),
        "{}",
        output.console
    );
    let said: BTreeMap<&str, &str> = output
        .stdout
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    assert_eq!(said["release"], Kernel::fetch().unwrap().release());
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

#[test]
fn flat1_boots() {
    check(Topology::Flat1);
}

#[test]
fn flat2_boots() {
    check(Topology::Flat2);
}

#[test]
fn smt2_boots() {
    check(Topology::Smt2);
}

#[test]
fn smt4_boots() {
    check(Topology::Smt4);
}

#[test]
fn smt4_with_four_cores_boots() {
    check(Topology::Smt4x4);
}

#[test]
fn numa2_boots() {
    check(Topology::Numa2);
}

#[test]
fn two_packages_boot() {
    check(Topology::Packages2);
}
