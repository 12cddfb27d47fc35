//! What is shipped can be read and says what it should; names find files.

use perch_sim::{
    config::{
        ConfigError, find_machine, find_workload, machine, machine_from_text, shipped_machines,
        shipped_workloads, workload_from_text,
    },
    model::{CoreKind, Holds, Multithreading, Op, UnitPool},
    workload::Step,
};
use std::{collections::BTreeSet, path::Path};

#[test]
fn all_shipped_machines_are_sound() {
    let names: Vec<&str> = shipped_machines().iter().map(|file| file.name).collect();
    assert!(
        names.contains(&"cmt-4x4") && names.contains(&"numa-2"),
        "{names:?}"
    );
    for name in names {
        let machine = find_machine(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.name, name);
        assert!(
            !machine.sources.is_empty(),
            "{name} does not say where its numbers are from"
        );
        assert_eq!(machine.places().len(), machine.pus());
        for pu in 0..machine.pus() as u32 {
            for holds in [Holds::Instructions, Holds::Data] {
                let levels: Vec<u8> = machine
                    .caches
                    .iter()
                    .filter(|cache| cache.holds == holds || cache.holds == Holds::Both)
                    .filter(|cache| cache.shared_by.iter().flatten().any(|other| *other == pu))
                    .map(|cache| cache.level)
                    .collect();
                assert!(levels.len() >= 2, "{name}: PU {pu} has levels {levels:?}");
                assert!(
                    levels.windows(2).all(|pair| pair[0] < pair[1]),
                    "{name}: PU {pu} has levels {levels:?}"
                );
            }
        }
    }
}

#[test]
fn all_shipped_workloads_are_sound() {
    for file in shipped_workloads() {
        let workload = find_workload(file.name).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            !workload.sources.is_empty(),
            "{} does not say where its numbers are from",
            file.name
        );
        let used: BTreeSet<usize> = workload
            .programs
            .iter()
            .flat_map(|program| &program.threads)
            .flat_map(|thread| &thread.steps)
            .filter_map(|step| match step {
                Step::Compute { mix, .. } => Some(*mix),
                _ => None,
            })
            .collect();
        assert_eq!(
            used.len(),
            workload.mixes.len(),
            "{} has mixes that nobody executes",
            file.name
        );
    }
}

/// Cores, contexts, PUs, packages, nodes.
#[test]
fn shipped_machines_have_the_shape_that_their_names_say() {
    for (name, cores, contexts, packages, nodes) in [
        ("cmt-a", 1, 1, 1, 1),
        ("cmt-b", 1, 4, 1, 1),
        ("cmt-c", 4, 1, 1, 1),
        ("cmt-4x4", 4, 4, 1, 1),
        ("cmt-16x8", 16, 8, 1, 1),
        ("smt2-zen", 8, 2, 1, 1),
        ("amd-bulldozer", 4, 2, 1, 1),
        ("ibm-power7-smt2", 8, 2, 1, 1),
        ("ibm-power7-smt4", 8, 4, 1, 1),
        ("intel-xeon-ht", 2, 2, 2, 1),
        ("intel-xeon-noht", 2, 1, 2, 1),
        ("big-little", 8, 1, 1, 1),
        ("numa-2", 16, 2, 2, 2),
    ] {
        let machine = find_machine(name).unwrap_or_else(|error| panic!("{error}"));
        let count = |of: fn(&perch_sim::model::CoreAt) -> u32| {
            machine.cores.iter().map(of).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(machine.cores.len(), cores, "{name}");
        assert_eq!(machine.pus(), cores * contexts, "{name}");
        assert_eq!(count(|core| core.package), packages, "{name}");
        assert_eq!(count(|core| core.numa_node), nodes, "{name}");
        assert_eq!(machine.memory.distance.len(), nodes, "{name}");
    }
}

/// Fedorova et al. 2004, section 4: ALU 0, a load that hits 4, a branch 2 cycles of delay; one L1 a core, one L2.
#[test]
fn the_paper_s_chip_has_the_paper_s_numbers() {
    let machine = find_machine("cmt-4x4").unwrap();
    let [kind] = &machine.kinds[..] else {
        panic!("{} kinds", machine.kinds.len())
    };
    assert_eq!(kind.multithreading, Multithreading::FineGrained);
    assert_eq!((kind.width, kind.window, kind.in_order), (1, 1, true));
    assert_eq!(kind.latencies[Op::Alu as usize].cycles, 1);
    assert_eq!(kind.latencies[Op::Load as usize].cycles, 5);
    assert_eq!(kind.branch_delay, 2);
    assert!(
        kind.units
            .iter()
            .all(|pool| pool.count == 1 && !pool.private)
    );
    let sharing: Vec<(u8, usize)> = machine
        .caches
        .iter()
        .map(|cache| (cache.level, cache.shared_by.len()))
        .collect();
    assert_eq!(sharing, [(1, 4), (1, 4), (2, 1)]);
    assert_eq!(machine.caches[0].shared_by[1], [4, 5, 6, 7]);
    assert!(!machine.tlb.unwrap().private);
}

/// WorkOver, sections 3.1, 3.2 and 5.1: clocks, who shares which cache, the sizes that it prints.
#[test]
fn workover_s_machines_have_the_paper_s_numbers() {
    let sharers = |name: &str| -> Vec<(u8, usize)> {
        let machine = find_machine(name).unwrap();
        machine
            .caches
            .iter()
            .map(|cache| (cache.level, cache.shared_by[0].len()))
            .collect()
    };
    assert_eq!(sharers("amd-bulldozer"), [(1, 2), (1, 1), (2, 2), (3, 8)]);
    assert_eq!(find_machine("amd-bulldozer").unwrap().kinds[0].cycle, 385);
    for (name, contexts) in [("ibm-power7-smt2", 2), ("ibm-power7-smt4", 4)] {
        let machine = find_machine(name).unwrap();
        let sizes: Vec<u64> = machine
            .caches
            .iter()
            .map(|cache| cache.size >> 10)
            .collect();
        assert_eq!(sizes, [32, 32, 256, 4096], "{name}");
        assert_eq!(machine.kinds[0].cycle, 303, "{name}");
        assert_eq!(
            sharers(name),
            [(1, contexts), (1, contexts), (2, contexts), (3, contexts)],
            "{name}"
        );
    }
}

/// The modes of one processor differ in their contexts alone.
#[test]
fn modes_of_multithreading_have_the_same_core() {
    for (one, other) in [
        ("ibm-power7-smt2", "ibm-power7-smt4"),
        ("intel-xeon-noht", "intel-xeon-ht"),
    ] {
        let (one, other) = (find_machine(one).unwrap(), find_machine(other).unwrap());
        let (narrow, wide) = (&one.kinds[0], &other.kinds[0]);
        assert_eq!(narrow.contexts * 2, wide.contexts);
        assert_eq!(narrow.cycle, wide.cycle);
        assert_eq!((narrow.width, narrow.window), (wide.width, wide.window));
        // Only with four contexts are they ever divided.
        let whole = |kind: &CoreKind| -> Vec<UnitPool> {
            let whole = |pool: &UnitPool| UnitPool {
                partitioned: false,
                ..pool.clone()
            };
            kind.units.iter().map(whole).collect()
        };
        assert_eq!(whole(narrow), whole(wide));
        assert_eq!(narrow.latencies, wide.latencies);
        assert_eq!(one.memory, other.memory);
        assert_eq!(one.tlb, other.tlb);
        for (a, b) in one.caches.iter().zip(&other.caches) {
            assert_eq!(
                (a.level, a.size, a.ways, a.line, a.latency),
                (b.level, b.size, b.ways, b.line, b.latency)
            );
            assert_eq!(a.shared_by.len(), b.shared_by.len());
        }
    }
}

#[test]
fn bulldozer_s_clusters_are_private_and_its_floating_point_unit_is_not() {
    let machine = find_machine("amd-bulldozer").unwrap();
    let of = |op| {
        machine.kinds[0]
            .units
            .iter()
            .find(|pool| pool.ops.contains(&op))
            .unwrap()
    };
    assert!(of(Op::Alu).private && of(Op::Load).private);
    assert!(!of(Op::Fp).private);
}

/// Table 1: four threads each of CPI 1, 6, 11, 16 where an ALU instruction takes a cycle.
#[test]
fn table_1_has_the_paper_s_threads() {
    let workload = find_workload("cmt-table1").unwrap();
    let threads = &workload.programs[0].threads;
    let cpis: Vec<(u32, u16)> = threads
        .iter()
        .map(|thread| match thread.steps[0] {
            Step::Compute {
                mix,
                instructions: u64::MAX,
            } => (thread.count, 1 + workload.mixes[mix].extra),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(cpis, [(4, 1), (4, 6), (4, 11), (4, 16)]);
    assert!(
        workload
            .mixes
            .iter()
            .all(|mix| mix.depends == 1.into() && mix.shares[Op::Alu as usize] == 1.0)
    );
}

#[test]
fn the_server_has_a_hundred_threads() {
    let workload = find_workload("cmt-oltp-100").unwrap();
    let threads = workload
        .programs
        .iter()
        .flat_map(|program| &program.threads);
    assert_eq!(threads.map(|thread| thread.count).sum::<u32>(), 100);
}

/// What the pages tell a researcher to begin with can be read.
#[test]
fn the_examples_of_the_docs_are_sound() {
    let example = |page: &'static str| -> &'static str {
        let (_, rest) = page
            .split_once("```toml\n")
            .expect("the page has an example");
        rest.split_once("```").expect("the example has an end").0
    };
    let machine = example(include_str!("../../../docs/machines.md"));
    let workload = example(include_str!("../../../docs/workloads.md"));
    let path = Path::new("my.toml");
    assert_eq!(
        machine_from_text(machine, path)
            .unwrap_or_else(|error| panic!("{error}"))
            .pus(),
        4
    );
    let workload = workload_from_text(workload, path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(workload.programs.len(), 2);
}

/// Every shipped file is on its page.
#[test]
fn the_docs_name_all_shipped_files() {
    for (files, page) in [
        (
            shipped_machines(),
            include_str!("../../../docs/machines.md"),
        ),
        (
            shipped_workloads(),
            include_str!("../../../docs/workloads.md"),
        ),
    ] {
        let (_, shipped) = page.split_once("## Shipped").expect("the page has a list");
        for file in files {
            assert!(
                shipped.contains(&format!("`{}`", file.name)),
                "{} is not on its page",
                file.name
            );
        }
    }
}

#[test]
fn a_path_is_a_path_and_a_name_is_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("my machine.toml");
    let text = shipped_machines()
        .into_iter()
        .find(|file| file.name == "cmt-b")
        .unwrap()
        .text;
    std::fs::write(&path, text).unwrap();
    assert_eq!(
        find_machine(path.to_str().unwrap()).unwrap().name,
        "my machine"
    );
    assert_eq!(machine(&path).unwrap().cores.len(), 1);
    // No slash, but the ending: looked for where one is, not among the shipped.
    assert!(matches!(
        find_machine("cmt-b.toml"),
        Err(ConfigError::Read { .. })
    ));
    assert!(matches!(
        machine(Path::new("/nonexistent/x")),
        Err(ConfigError::Read { .. })
    ));
    let error = find_machine("cmt-4x5").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "no machine `cmt-4x5`; did you mean `cmt-4x4`?; shipped are amd-bulldozer, "
        ),
        "{error}"
    );
    let error = find_workload("fp_int_8").unwrap_err().to_string();
    assert!(
        error.starts_with("no workload `fp_int_8`; did you mean `fp-int-8`?; shipped are "),
        "{error}"
    );
}
