//! Calibrations of simulated machines: what is measured is what the machine is.

use perch_core::{
    PuSet, ShareLevel, Topology,
    topology::{Cache, Core, CoreKind, NumaNode, Package, Pu, PuState},
};
use perch_lab::calibrate::{How, Kind, Sites, simulated};
use perch_policy::{Calibration, Share, calibration::Closest};
use perch_sim::config::find_machine;
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

fn how(quick: bool, threads: usize) -> How {
    How {
        quick,
        threads,
        ..How::new("2026-11-22".into())
    }
}

fn calibrate(machine: &str, quick: bool) -> Calibration {
    let machine = Arc::new(find_machine(machine).unwrap());
    simulated(&machine, &how(quick, 2), |_, _| {}).unwrap()
}

/// The quick calibration of the machine with SMT, which takes long: once for all tests.
fn of_zen() -> &'static Calibration {
    static CALIBRATION: LazyLock<Calibration> = LazyLock::new(|| calibrate("smt2-zen", true));
    &CALIBRATION
}

/// The slowdown of a kernel beside others.
fn slowdown(calibration: &Calibration, share: Share, kernel: &str, beside: &[&str]) -> f64 {
    let mut couplings = calibration.couplings.iter();
    let found = couplings.find(|coupling| {
        coupling.share == share && coupling.kernel == kernel && coupling.beside == beside
    });
    found
        .unwrap_or_else(|| panic!("{kernel} beside {beside:?} was not measured"))
        .slowdown
}

fn metric(calibration: &Calibration, kernel: &str, metric: &str) -> f64 {
    let mut kernels = calibration.kernels.iter();
    kernels.find(|one| one.name == kernel).unwrap().metrics[metric]
}

#[test]
fn pus_that_share_nothing_do_not_slow_each_other_down() {
    let calibration = calibrate("intel-xeon-noht", false);
    assert!(!calibration.couplings.is_empty());
    // The two packages share their bus and nothing else.
    let of_memory = |name: &String| name.starts_with("memory");
    for coupling in &calibration.couplings {
        let all = coupling.beside.iter().chain([&coupling.kernel]);
        if all.filter(|name| of_memory(name)).count() == 0 {
            assert!((coupling.slowdown - 1.0).abs() < 0.01, "{coupling:?}");
        }
    }
    // Four loads that miss at a time do not fill it; stores do.
    let stores = slowdown(&calibration, Share::Node, "memory-store", &["memory-store"]);
    assert!(stores > 1.5, "{stores}");
    let told = calibration.notes.join("\n");
    assert!(told.contains("no SMT"), "{told}");
    // Nothing but the bus, and what goes over it, is worth a priority.
    let own = calibration
        .metrics
        .iter()
        .filter(|metric| metric.name == "fp_load");
    for metric in own {
        assert!(
            metric.ratio.unwrap_or(0.0) * metric.limit < 0.01,
            "{metric:?}"
        );
    }
}

#[test]
fn kernels_do_what_they_claim() {
    let calibration = of_zen();
    let most = |name: &str| {
        let kernels = calibration.kernels.iter();
        let values = kernels.map(|kernel| (kernel.metrics[name], kernel.name.as_str()));
        values.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
    };
    assert_eq!(most("fp_load"), "fp");
    assert_eq!(most("access_load"), "l1");
    assert_eq!(most("tlb_load"), "tlb");
    assert_eq!(most("branch_share"), "branch");
    assert_eq!(most("divide_share"), "divide");
    assert!(["memory", "memory-store"].contains(&most("bus_load")));
    assert!(metric(calibration, "fp", "fp_share") > 0.8);
    assert_eq!(metric(calibration, "integer", "fp_share"), 0.0);
    assert_eq!(metric(calibration, "l2", "l2_load"), 0.0);
    assert_eq!(metric(calibration, "llc", "bus_load"), 0.0);
    assert!(metric(calibration, "llc", "l2_load") > 0.0);
}

#[test]
fn what_a_core_shares_costs_its_pus_only_and_memory_costs_all() {
    let calibration = of_zen();
    for kernel in ["fp", "integer", "l1"] {
        assert!(
            slowdown(calibration, Share::Core, kernel, &[kernel]) > 1.5,
            "{kernel}"
        );
        assert!((slowdown(calibration, Share::Llc, kernel, &[kernel]) - 1.0).abs() < 0.01);
    }
    // Each alone takes the whole bandwidth.
    for share in [Share::Core, Share::Llc] {
        let beside = slowdown(calibration, share, "memory-store", &["memory-store"]);
        assert!((1.8..2.2).contains(&beside), "{beside}");
    }
    let cost = |share| {
        let mut transfers = calibration.transfers.iter();
        transfers
            .find(|transfer| transfer.share == share)
            .unwrap()
            .seconds
    };
    assert!(cost(Share::Core) < cost(Share::Llc));
}

#[test]
fn groups_fill_cores_and_caches() {
    let calibration = calibrate("cmt-4x4", false);
    let one = slowdown(&calibration, Share::Core, "integer", &["integer"]);
    let three = slowdown(&calibration, Share::Core, "integer", &["integer"; 3]);
    // Four contexts of a core that issues one instruction a cycle.
    assert!(one > 1.5 && three > 3.2 && three < 4.1, "{one} {three}");
    let cores = slowdown(&calibration, Share::L2, "integer", &["integer"; 3]);
    assert!((cores - 1.0).abs() < 0.01, "{cores}");
}

#[test]
fn metrics_are_in_an_order_and_their_limits_are_what_one_thread_does() {
    // Its prefetchers save the misses of the kernels that go through memory: with them, the order is another one.
    let mut machine = find_machine("intel-xeon-ht").unwrap();
    let caches = machine.caches.iter_mut();
    caches.for_each(|cache| cache.prefetchers.clear());
    let calibration = simulated(&Arc::new(machine), &how(true, 2), |_, _| ()).unwrap();
    let names: Vec<&str> = calibration
        .metrics
        .iter()
        .map(|metric| metric.name.as_str())
        .collect();
    // The paper's: an L2 miss before a floating-point operation.
    let place = |name: &str| names.iter().position(|other| *other == name).unwrap();
    assert!(place("l2_load") < place("fp_load"), "{names:?}");
    for metric in &calibration.metrics {
        let kernels = calibration.kernels.iter();
        let most = kernels
            .map(|kernel| kernel.metrics[&metric.name])
            .fold(0.0, f64::max);
        assert_eq!(metric.limit, most, "{}", metric.name);
    }
    let fp = calibration
        .metrics
        .iter()
        .find(|metric| metric.name == "fp_load")
        .unwrap();
    // Beside itself a kernel of one unit takes twice as long: as much is lost as there is.
    let lost = fp.ratio.unwrap() * fp.limit;
    assert!((lost - 1.0).abs() < 0.1, "{lost}");
}

#[test]
fn the_same_machine_has_the_same_calibration_and_its_file_says_it() {
    let machine = Arc::new(find_machine("cmt-b").unwrap());
    let (mut last, mut all) = (0, 0);
    let one = simulated(&machine, &how(true, 1), |done, of| {
        assert!(done > last && done <= of);
        (last, all) = (done, of);
    });
    let one = one.unwrap();
    assert_eq!(last, all);
    assert_eq!(simulated(&machine, &how(true, 3), |_, _| {}).unwrap(), one);
    let text = one.to_toml().unwrap();
    assert_eq!(Calibration::parse(&text, "calibration.toml").unwrap(), one);
}

/// Packages of cores of contexts, some cores below each L2.
fn topology(packages: u32, cores: u32, contexts: u32, below: u32) -> Topology {
    let set = |from: u32, count: u32| (from..from + count).collect::<PuSet>();
    let package = cores * contexts;
    let all = packages * package;
    let l2 = (0..all).step_by((below * contexts) as usize).map(|first| {
        // An L2 does not reach into the next package.
        let end = (first / package + 1) * package;
        Cache {
            level: 2,
            size: 1 << 20,
            pus: set(first, (below * contexts).min(end - first)),
        }
    });
    let l2: Vec<Cache> = match cores % below {
        0 => l2.collect(),
        _ => Vec::new(),
    };
    let l3 = (0..packages).map(|number| Cache {
        level: 3,
        size: 8 << 20,
        pus: set(number * package, package),
    });
    Topology {
        source: "a test".into(),
        packages: (0..packages)
            .map(|os| Package {
                os,
                pus: set(os * package, package),
                model: String::new(),
            })
            .collect(),
        numa_nodes: (0..packages)
            .map(|os| NumaNode {
                os,
                pus: set(os * package, package),
                ..NumaNode::default()
            })
            .collect(),
        caches: l2.into_iter().chain(l3).collect(),
        cores: (0..packages * cores)
            .map(|core| Core {
                pus: set(core * contexts, contexts),
                package: core / cores,
                numa_node: core / cores,
                kind: 0,
            })
            .collect(),
        kinds: vec![CoreKind {
            name: "core".into(),
            pus: set(0, all),
        }],
        pus: (0..all)
            .map(|os| Pu {
                os,
                core: (os / contexts) as usize,
                state: PuState::Usable,
            })
            .collect(),
    }
}

proptest! {
    /// Every level that two usable PUs have is measured, on PUs each two of which have just that in common, and on none
    /// that may not be used.
    #[test]
    fn sites_cover_all_levels(
        packages in 1u32..4,
        cores in 1u32..5,
        contexts in 1u32..5,
        below in 1u32..3,
        left_out in proptest::collection::btree_set(0u32..64, 0..20),
    ) {
        let topology = topology(packages, cores, contexts, below);
        let fp_domains = topology.domains(ShareLevel::Core);
        let usable: PuSet = topology.usable().iter().filter(|pu| !left_out.contains(pu)).collect();
        let closest = Closest::new(&topology, &fp_domains);
        let pus: Vec<u32> = usable.iter().collect();
        let there: BTreeSet<String> = pus
            .iter()
            .flat_map(|a| pus.iter().filter(move |b| a < b).map(move |b| (*a, *b)))
            .map(|(a, b)| format!("{:?}", closest.share(a, b)))
            .collect();
        let Some(sites) = Sites::new(&topology, &fp_domains, &usable) else {
            prop_assert!(pus.is_empty());
            return Ok(());
        };
        prop_assert!(usable.contains(sites.first));
        let found: BTreeSet<String> = sites.levels.iter().map(|level| format!("{:?}", level.share)).collect();
        prop_assert_eq!(found.len(), sites.levels.len());
        prop_assert_eq!(found, there);
        for level in &sites.levels {
            prop_assert!(level.pus.len() >= 2);
            for (at, a) in level.pus.iter().enumerate() {
                prop_assert!(usable.contains(*a));
                for b in &level.pus[at + 1..] {
                    prop_assert_eq!(closest.share(*a, *b), level.share);
                    prop_assert_eq!(closest.share(*b, *a), level.share);
                }
            }
        }
    }

    /// Each pair meets once at each level, no two kernels share a PU, and each kernel of a pair ran there in isolation
    /// before.
    #[test]
    fn runs_are_complete(cores in 1u32..5, contexts in 1u32..5, pure in proptest::collection::vec(any::<bool>(), 1..6), groups in any::<bool>()) {
        let topology = topology(1, cores, contexts, 1);
        let fp_domains = topology.domains(ShareLevel::Core);
        let sites = Sites::new(&topology, &fp_domains, &topology.usable()).unwrap();
        let kinds: Vec<Kind<'_>> = pure.iter().map(|pure| Kind { name: "k", pure: *pure, core: false }).collect();
        let runs = sites.runs(&kinds, groups);
        let mut pairs: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        let mut alone = BTreeSet::new();
        for run in &runs {
            let pus: BTreeSet<u32> = run.seats.iter().map(|seat| seat.pu).collect();
            prop_assert_eq!(pus.len(), run.seats.len());
            match run.level {
                None => { alone.insert(run.seats[0]); }
                Some(level) => {
                    for seat in &run.seats {
                        prop_assert!(alone.contains(seat));
                    }
                    if let [a, b] = run.seats[..] {
                        *pairs.entry((level, a.kernel, b.kernel)).or_default() += 1;
                    } else {
                        prop_assert!(groups && kinds[run.seats[1].kernel].pure);
                    }
                }
            }
        }
        let each = kinds.len() * (kinds.len() + 1) / 2;
        prop_assert_eq!(pairs.len(), each * sites.levels.len());
        prop_assert!(pairs.values().all(|count| *count == 1));
    }
}

#[test]
fn the_example_of_the_documentation_is_a_calibration() {
    let text = include_str!("../../../docs/calibration.md");
    let example = text.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let read = Calibration::parse(example, "docs/calibration.md").unwrap();
    assert_eq!(read.couplings.len(), 1);
}
