//! Interrupts are balanced where that helps, and nowhere else.

use crate::support::{CoreSpec, World, cores, topology};
use perch_core::{
    IrqLevel, IrqLoad, IrqStep, Policy, PuSet, Snapshot, Topology, topology::PuState,
};
use perch_policy::irq::{Irq, IrqConfig, Source, balance, imbalance, package_loads};
use proptest::prelude::*;

fn source(irq: u32, pu: u32, rate: f64, allowed: &str) -> Source {
    Source {
        irq,
        rates: vec![(pu, rate)],
        allowed: allowed.parse().unwrap(),
    }
}

fn decide(sources: &[Source], topology: &Topology) -> Vec<IrqStep> {
    balance(sources, topology, &topology.online(), &IrqConfig::default())
}

/// The sources after the moves.
fn moved(sources: &[Source], moves: &[IrqStep]) -> Vec<Source> {
    let mut after = sources.to_vec();
    for made in moves {
        let source = after
            .iter_mut()
            .find(|source| source.irq == made.irq)
            .unwrap();
        source.rates = vec![(made.to, source.rate())];
    }
    after
}

fn loads(sources: &[Source], topology: &Topology, pus: &PuSet) -> Vec<f64> {
    let loads = package_loads(sources, topology, pus);
    loads.into_iter().map(|(_, load)| load).collect()
}

#[test]
fn one_of_two_busy_devices_goes_to_the_other_package() {
    let machine = topology(&cores(2, 1, 2));
    let sources = [source(24, 0, 1000.0, "0-3"), source(25, 0, 900.0, "0-3")];
    let moves = decide(&sources, &machine);
    let between: Vec<&IrqStep> = moves
        .iter()
        .filter(|m| m.level == IrqLevel::Package)
        .collect();
    let [made] = &between[..] else {
        panic!("{moves:?}")
    };
    assert_eq!((made.irq, made.from, made.to), (24, 0, 2));
    assert_eq!((made.before, made.after), ((1900.0, 0.0), (900.0, 1000.0)));
}

#[test]
fn a_swap_is_made_where_no_single_move_does_as_well() {
    let machine = topology(&cores(2, 1, 1));
    let sources = [
        source(1, 0, 900.0, "0-1"),
        source(2, 0, 700.0, "0-1"),
        source(3, 1, 500.0, "0-1"),
    ];
    // 1600 and 500: to swap 900 and 500 leaves 1200 and 900, to move 700 leaves 900 and 1200; 700 and 500: 1400 and 700.
    let moves = decide(&sources, &machine);
    assert_eq!(moves.len(), 1, "as good without a second change: {moves:?}");
    assert_eq!(moves[0].irq, 2);
    let heavy = [
        source(1, 0, 900.0, "0-1"),
        source(2, 0, 900.0, "0"),
        source(3, 1, 400.0, "0-1"),
        source(4, 1, 1.0, "1"),
    ];
    // 1800 and 401: to move 900 leaves 900 and 1301, to swap it with 400 leaves 1300 and 901.
    let moves = decide(&heavy, &machine);
    assert!(imbalance(&loads(&moved(&heavy, &moves), &machine, &machine.online())) < 0.25);
}

#[test]
fn a_single_busy_device_stays_since_the_load_would_only_wander() {
    let machine = topology(&cores(2, 1, 2));
    assert_eq!(decide(&[source(24, 0, 9000.0, "0-3")], &machine), []);
}

#[test]
fn nothing_is_done_below_the_threshold_or_for_little() {
    let machine = topology(&cores(2, 1, 1));
    // (1000 - 510) / 2 is less than a quarter of 1000.
    let near = [
        source(1, 0, 990.0, "0-1"),
        source(2, 0, 10.0, "0-1"),
        source(3, 1, 510.0, "0-1"),
    ];
    assert_eq!(decide(&near, &machine), []);
    let rare = [source(1, 0, 40.0, "0-1"), source(2, 0, 40.0, "0-1")];
    assert_eq!(decide(&rare, &machine), []);
}

/// A machine with some PUs offline, and interrupts with what they may.
fn worlds() -> impl Strategy<Value = (Vec<CoreSpec>, Vec<Source>)> {
    let shape = (1u32..4, 1usize..4, 1usize..3);
    shape.prop_flat_map(|(packages, per_package, smt)| {
        let pus = packages as usize * per_package * smt;
        let online = proptest::collection::vec(prop::bool::weighted(0.85), pus);
        let rate = prop_oneof![Just(0.0), 0.0..50.0f64, 50.0..20_000.0f64];
        let mask = proptest::collection::vec(prop::bool::weighted(0.7), pus);
        // Most come on one PU only, some were moved meanwhile.
        let rates = proptest::collection::vec((0..pus as u32, rate), 1..3);
        let sources = proptest::collection::vec((rates, mask, prop::bool::weighted(0.3)), 0..9);
        (online, sources).prop_map(move |(online, sources)| {
            let mut specs = cores(packages, per_package, smt);
            let states = specs.iter_mut().flat_map(|spec| &mut spec.states);
            for (state, online) in states.zip(&online) {
                if !online {
                    *state = PuState::Offline;
                }
            }
            let here = |pu: &u32| online[*pu as usize];
            let sources = (1u32..).zip(sources).map(|(irq, (rates, mask, fixed))| {
                let allowed = (0..pus as u32).filter(|pu| mask[*pu as usize] && !fixed);
                Source {
                    irq,
                    rates: rates.into_iter().filter(|(pu, _)| here(pu)).collect(),
                    allowed: allowed.collect(),
                }
            });
            (specs, sources.collect())
        })
    })
}

proptest! {
    #[test]
    fn interrupts_go_only_where_they_may_and_once(world in worlds()) {
        let (specs, sources) = world;
        let machine = topology(&specs);
        let moves = decide(&sources, &machine);
        for made in &moves {
            let source = sources.iter().find(|source| source.irq == made.irq).unwrap();
            prop_assert!(source.allowed.contains(made.to), "{made:?} {source:?}");
            prop_assert!(machine.online().contains(made.to));
            prop_assert_eq!(Some(made.from), source.pu());
            prop_assert!(made.from != made.to);
            prop_assert_eq!(moves.iter().filter(|other| other.irq == made.irq).count(), 1);
        }
    }

    #[test]
    fn packages_are_never_less_in_balance_and_untouched_below_the_threshold(world in worlds()) {
        let (specs, sources) = world;
        let machine = topology(&specs);
        let pus = machine.online();
        let moves = decide(&sources, &machine);
        let before = imbalance(&loads(&sources, &machine, &pus));
        let after = imbalance(&loads(&moved(&sources, &moves), &machine, &pus));
        prop_assert!(after <= before + 1e-9, "{before} to {after} by {moves:?}");
        if before < 0.25 {
            prop_assert!(moves.iter().all(|made| made.level == IrqLevel::Pu), "{moves:?}");
        }
        for made in &moves {
            let (high, low) = made.after;
            prop_assert!((high - low).abs() < made.before.0 - made.before.1, "{made:?}");
        }
    }

    #[test]
    fn what_was_balanced_is_left_alone(world in worlds()) {
        let (specs, sources) = world;
        let machine = topology(&specs);
        let mut now = sources;
        // Each step takes a part of some difference away, so it comes to rest, and then it stays.
        for _ in 0..20 {
            let moves = decide(&now, &machine);
            if moves.is_empty() {
                return Ok(());
            }
            now = moved(&now, &moves);
        }
        prop_assert!(decide(&now, &machine).is_empty(), "{now:?}");
    }

    #[test]
    fn numbers_do_not_matter(world in worlds(), shift in 1u32..1000) {
        let (specs, sources) = world;
        let machine = topology(&specs);
        let renamed: Vec<Source> = sources.iter().map(|source| Source {
            irq: source.irq + shift,
            ..source.clone()
        }).collect();
        let told = |moves: Vec<IrqStep>, shift: u32| -> Vec<(u32, u32, u32)> {
            moves.iter().map(|made| (made.irq - shift, made.from, made.to)).collect()
        };
        prop_assert_eq!(told(decide(&sources, &machine), 0), told(decide(&renamed, &machine), shift));
    }
}

/// A snapshot of these interrupts, each with where it is bound.
fn snapshot(topology: &Topology, irqs: &[(Source, Option<&str>)]) -> Snapshot {
    let mut scene = World::regular(1, 1, 1, &[]).snapshot;
    scene.topology = topology.clone().into();
    scene.irqs = irqs
        .iter()
        .map(|(source, bound)| IrqLoad {
            irq: source.irq,
            rates: source.rates.clone(),
            allowed: source.allowed.clone(),
            bound: bound.map(|bound| bound.parse().unwrap()),
        })
        .collect();
    scene
}

#[test]
fn the_policy_asks_for_what_balances_and_keeps_what_it_has_sent() {
    let machine = topology(&cores(2, 1, 2));
    let both = [
        (source(24, 0, 1000.0, "0-3"), None),
        (source(25, 0, 900.0, "0-3"), None),
    ];
    let mut policy = Irq::default();
    assert!(policy.wants_irqs());
    let plan = policy.decide(&snapshot(&machine, &both));
    assert!(plan.bindings.is_empty());
    let asked: Vec<(u32, u32)> = plan
        .irqs
        .iter()
        .map(|binding| (binding.irq, binding.pus.first().unwrap()))
        .collect();
    let steps: Vec<(u32, u32)> = decide(&both.clone().map(|(source, _)| source), &machine)
        .iter()
        .map(|step| (step.irq, step.to))
        .collect();
    assert_eq!(asked, steps);
    assert!(plan.irqs.iter().all(|binding| binding.step.is_some()));
    // It came there, so it stays; one that may not go there any more is released, and so is what was never sent.
    let balanced = [
        (source(24, 2, 1000.0, "0-3"), Some("2")),
        (source(25, 0, 900.0, "0-3"), None),
        (source(26, 1, 5.0, ""), Some("1")),
    ];
    let plan = policy.decide(&snapshot(&machine, &balanced));
    let kept: Vec<(u32, String)> = plan
        .irqs
        .iter()
        .filter(|binding| binding.step.is_none())
        .map(|binding| (binding.irq, binding.pus.to_string()))
        .collect();
    assert_eq!(kept, [(24, "2".to_owned())]);
}
