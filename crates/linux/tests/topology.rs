//! Topologies of machines that are not this one.

use perch_core::{
    PuSet, ShareLevel, Topology,
    topology::{PuState, TopologySource},
};
use perch_linux::topology::{Source, export_xml, keep_offline, load, restrict};
use proptest::prelude::*;

fn synthetic(text: &str) -> Topology {
    load(&Source::Synthetic(text.into())).unwrap().topology
}

/// What must hold for every topology.
fn check(topology: &Topology) {
    assert!(
        !topology.numa_nodes.is_empty()
            && !topology.kinds.is_empty()
            && !topology.packages.is_empty()
    );
    assert!(topology.pus.is_sorted_by_key(|pu| pu.os));
    assert!(topology.cores.is_sorted_by_key(|core| core.pus.first()));
    for pu in &topology.pus {
        assert!(topology.cores[pu.core].pus.contains(pu.os));
    }
    let count: usize = topology.cores.iter().map(|core| core.pus.len()).sum();
    assert_eq!(count, topology.pus.len(), "each PU is in one core");
    for core in &topology.cores {
        let kind = &topology.kinds[core.kind];
        assert!(core.pus.is_subset(&kind.pus));
        let package = topology
            .packages
            .iter()
            .find(|p| p.os == core.package)
            .unwrap();
        assert!(core.pus.is_subset(&package.pus));
        assert!(topology.numa_nodes.iter().any(|n| n.os == core.numa_node));
    }
    for level in [
        ShareLevel::Pu,
        ShareLevel::Core,
        ShareLevel::L2,
        ShareLevel::Llc,
        ShareLevel::Package,
    ] {
        let all = topology
            .domains(level)
            .iter()
            .fold(PuSet::new(), |sum, d| sum.or(&d.pus));
        assert_eq!(all, topology.all(), "{level:?}");
    }
}

#[test]
fn smt4_numa_single_and_large_machines() {
    for (text, packages, nodes, cores, pus) in [
        ("package:1 core:4 pu:2", 1, 1, 4, 8),
        ("package:1 core:4 pu:4", 1, 1, 4, 16),
        (
            "package:2 [numanode] l3:2 l2:4 l1d:1 core:1 pu:2",
            2,
            2,
            16,
            32,
        ),
        ("package:1 core:1 pu:1", 1, 1, 1, 1),
        ("package:8 [numanode] l3:8 core:8 pu:2", 8, 8, 512, 1024),
    ] {
        let topology = synthetic(text);
        check(&topology);
        assert_eq!(topology.packages.len(), packages, "{text}");
        assert_eq!(topology.numa_nodes.len(), nodes, "{text}");
        assert_eq!(topology.cores.len(), cores, "{text}");
        assert_eq!(topology.usable().len(), pus, "{text}");
        assert_eq!(topology.domains(ShareLevel::Core).len(), cores, "{text}");
        assert_eq!(topology.source.as_str(), text);
    }
}

#[test]
fn cores_know_their_node() {
    let topology = synthetic("package:2 [numanode] core:2 pu:2");
    let nodes: Vec<u32> = topology.cores.iter().map(|core| core.numa_node).collect();
    assert_eq!(nodes, [0, 0, 1, 1]);
}

#[test]
fn this_machine() {
    let loaded = load(&Source::Native).unwrap();
    check(&loaded.topology);
    assert_eq!(loaded.topology.source, TopologySource::ThisMachine);
    let architecture = ("Architecture".to_owned(), std::env::consts::ARCH.to_owned());
    assert!(loaded.infos.contains(&architecture), "{:?}", loaded.infos);
}

#[test]
fn a_saved_topology_is_read_back() {
    let text = "package:2 [numanode] l3:1 core:4 pu:2";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("machine.xml");
    std::fs::write(&file, export_xml(&Source::Synthetic(text.into())).unwrap()).unwrap();
    assert_eq!(
        Source::from_text(file.to_str().unwrap()),
        Source::Xml(file.clone())
    );
    let saved = load(&Source::Xml(file.clone())).unwrap().topology;
    check(&saved);
    let original = synthetic(text);
    assert_eq!(saved.source.as_str(), file.display().to_string());
    assert_eq!(
        Topology {
            source: text.into(),
            ..saved
        },
        original
    );
}

#[test]
fn what_is_no_topology_is_refused_with_a_way_out() {
    for text in [
        "",
        "nonsense",
        "package:0 pu:1",
        "core:4",
        "pu:2 core:4",
        "package:1 core:4 pu:2 x:3",
    ] {
        if let Ok(loaded) = load(&Source::Synthetic(text.into())) {
            // hwloc completes some descriptions by itself; then they must be sound.
            check(&loaded.topology);
        }
    }
    let error = load(&Source::Synthetic("nonsense".into()))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("package:1 core:4 pu:2") && error.contains("lstopo"),
        "{error}"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.xml");
    std::fs::write(&file, "<topology><object").unwrap();
    let error = load(&Source::Xml(file)).unwrap_err().to_string();
    assert!(
        error.contains("bad.xml") && error.contains("lstopo"),
        "{error}"
    );
    let error = load(&Source::Xml("/no/such.xml".into()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/no/such.xml"), "{error}");
}

#[test]
fn pus_that_the_user_excludes_are_not_used() {
    let mut topology = synthetic("package:1 core:4 pu:2");
    restrict(&mut topology, &"0-3,99".parse().unwrap()).unwrap();
    assert_eq!(topology.usable().to_string(), "0-3");
    assert_eq!(topology.online().to_string(), "0-7");
    let error = restrict(&mut topology, &"6".parse().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("usable are 0-3"), "{error}");
}

#[test]
fn an_offline_pu_keeps_its_place() {
    let before = synthetic("package:2 [numanode] core:2 pu:2");
    // As the kernel shows it after PU 5 went: nothing but its number, alone in a core of the nearest package.
    let mut now = before.clone();
    now.cores[2].pus.remove(5);
    now.cores.insert(
        3,
        perch_core::topology::Core {
            pus: PuSet::single(5),
            package: 0,
            numa_node: 0,
            kind: 0,
        },
    );
    for pu in &mut now.pus {
        if pu.os >= 5 {
            pu.core = if pu.os == 5 { 3 } else { pu.core + 1 };
        }
        if pu.os == 5 {
            pu.state = PuState::Offline;
        }
    }
    keep_offline(&mut now, &before);
    check(&now);
    assert_eq!(now.cores, before.cores);
    assert_eq!(now.usable().to_string(), "0-4,6-7");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_regular_machine(packages in 1..4u32, l3 in 1..3u32, cores in 1..5u32, pus in 1..9u32) {
        let topology = synthetic(&format!("package:{packages} [numanode] l3:{l3} core:{cores} pu:{pus}"));
        check(&topology);
        prop_assert_eq!(topology.pus.len() as u32, packages * l3 * cores * pus);
        prop_assert_eq!(topology.domains(ShareLevel::Llc).len() as u32, packages * l3);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(package|core|pu|l3|numanode|[a-z\\[\\]]{1,4}|:[0-9]{1,2}| ){0,8}") {
        // Large products would only measure hwloc's patience.
        let size: u64 = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|n| n.parse::<u64>().ok())
            .map(|n| n.max(1))
            .product();
        prop_assume!(size <= 4096);
        if let Ok(loaded) = load(&Source::Synthetic(text)) {
            check(&loaded.topology);
        }
    }
}
