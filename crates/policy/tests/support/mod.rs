//! A model of a machine: domains of PUs, threads with FP shares, and what applying a plan does to them.
#![allow(dead_code)]

use perch_core::{
    Metric, MetricName, MetricSource, Plan, Policy, PuSet, SharingDomain, Snapshot, ThreadId,
    ThreadInfo, ThreadState, Topology, UnitClass, metric::names, snapshot::Unmanaged, topology::*,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

/// The FP threshold of the modelled machine.
pub const THRESHOLD: f64 = 0.05;

/// A core to be built.
#[derive(Debug, Clone)]
pub struct CoreSpec {
    pub node: u32,
    pub states: Vec<PuState>,
}

/// A thread to be built.
#[derive(Debug, Clone)]
pub struct Spec {
    pub share: Option<f64>,
    pub activity: f64,
    pub allowed: Option<Vec<bool>>,
    pub unmanaged: bool,
    pub last_pu: usize,
    pub bound: bool,
}

impl Spec {
    pub fn busy(share: f64) -> Self {
        Self {
            share: Some(share),
            activity: 0.9,
            allowed: None,
            unmanaged: false,
            last_pu: 0,
            bound: false,
        }
    }
}

/// Cores of `smt` usable PUs, in order of node; PU numbers count core by core.
pub fn cores(nodes: u32, per_node: usize, smt: usize) -> Vec<CoreSpec> {
    let nodes = (0..nodes).flat_map(|node| std::iter::repeat_n(node, per_node));
    let states = vec![PuState::Usable; smt];
    nodes
        .map(|node| CoreSpec {
            node,
            states: states.clone(),
        })
        .collect()
}

pub fn topology(specs: &[CoreSpec]) -> Topology {
    let mut next = 0;
    let mut topology = Topology {
        source: "a test".into(),
        packages: Vec::new(),
        numa_nodes: Vec::new(),
        caches: Vec::new(),
        cores: Vec::new(),
        kinds: Vec::new(),
        pus: Vec::new(),
    };
    for (core, spec) in specs.iter().enumerate() {
        let pus: PuSet = (next..next + spec.states.len() as u32).collect();
        for (os, state) in pus.iter().zip(&spec.states) {
            topology.pus.push(Pu {
                os,
                core,
                state: *state,
            });
        }
        next += spec.states.len() as u32;
        topology.cores.push(Core {
            pus,
            package: spec.node,
            numa_node: spec.node,
            kind: 0,
        });
    }
    let mut nodes: BTreeMap<u32, PuSet> = BTreeMap::new();
    for core in &topology.cores {
        let node = nodes.entry(core.numa_node).or_default();
        *node = node.or(&core.pus);
    }
    for (os, pus) in nodes {
        topology.packages.push(Package {
            os,
            pus: pus.clone(),
            model: String::new(),
        });
        topology.caches.push(Cache {
            level: 3,
            size: 0,
            pus: pus.clone(),
        });
        topology.numa_nodes.push(NumaNode {
            os,
            pus,
            ..NumaNode::default()
        });
    }
    topology.kinds.push(CoreKind {
        name: "core".to_owned(),
        pus: topology.all(),
    });
    topology
}

/// The world: a snapshot that goes on from period to period.
#[derive(Debug, Clone)]
pub struct World {
    pub snapshot: Snapshot,
}

impl World {
    pub fn new(cores: &[CoreSpec], threads: &[Spec]) -> Self {
        let topology = topology(cores);
        let domains: Vec<SharingDomain> = (topology.cores.iter())
            .map(|core| SharingDomain {
                pus: core.pus.clone(),
                numa_node: core.numa_node,
                package: core.package,
            })
            .collect();
        let usable = topology.usable();
        let count = topology.pus.len();
        let mut taken = PuSet::new();
        let threads = threads.iter().enumerate().map(|(at, spec)| {
            let allowed: PuSet = match &spec.allowed {
                Some(allowed) => {
                    let pus = usable.iter();
                    pus.filter(|pu| allowed[*pu as usize % allowed.len()])
                        .collect()
                }
                None => usable.clone(),
            };
            let last_pu = (spec.last_pu % count) as u32;
            let bound = spec.bound && allowed.contains(last_pu) && taken.insert(last_pu);
            let mut thread = ThreadState {
                info: ThreadInfo {
                    id: id(at),
                    pid: 100,
                    name: format!("t{at}").into(),
                    process: "app".into(),
                    work: perch_core::Work::default(),
                },
                target: 0,
                allowed,
                bound: (bound && !spec.unmanaged).then(|| PuSet::single(last_pu)),
                unmanaged: spec.unmanaged.then_some(Unmanaged::PlacedBefore),
                last_pu: Some(last_pu),
                activity: spec.activity,
                waiting: 0.0,
                metrics: Default::default(),
            };
            if let Some(share) = spec.share {
                set_share(&mut thread, share);
            }
            thread
        });
        Self {
            snapshot: Snapshot {
                settings: Vec::new(),
                period: 0,
                at: 0,
                interval: 1_000_000_000,
                threads: threads.collect(),
                pus: Vec::new(),
                irqs: Vec::new(),
                sharing: Vec::new(),
                energy: None,
                units: Arc::new([(UnitClass::Fp, domains)].into_iter().collect()),
                topology: Arc::new(topology),
                thresholds: [(names::FP_SHARE.into(), THRESHOLD)].into_iter().collect(),
                last_outcomes: Vec::new(),
            },
        }
    }

    /// `nodes` × `per_node` cores of `smt` PUs, and busy threads with these FP shares, each last seen on the PU of its
    /// number.
    pub fn regular(nodes: u32, per_node: usize, smt: usize, shares: &[f64]) -> Self {
        let threads = shares.iter().enumerate().map(|(at, share)| Spec {
            last_pu: at,
            ..Spec::busy(*share)
        });
        Self::new(&cores(nodes, per_node, smt), &threads.collect::<Vec<_>>())
    }

    pub fn set_share(&mut self, thread: usize, share: f64) {
        set_share(&mut self.snapshot.threads[thread], share);
    }

    /// The thread's FP share is one of few samples.
    pub fn set_sampled(&mut self, thread: usize, share: f64, samples: u32) {
        let metrics = &mut self.snapshot.threads[thread].metrics;
        for (name, value) in [
            (names::FP_SHARE, share),
            (names::SAMPLES, f64::from(samples)),
        ] {
            let source = MetricSource::Sampling;
            metrics.set(
                MetricName::from(name),
                Metric {
                    value,
                    confidence: 0.9,
                    source,
                },
            );
        }
    }

    pub fn share(&self, thread: usize) -> Option<f64> {
        self.snapshot.threads[thread].metrics.value(names::FP_SHARE)
    }

    /// One period: decides, checks that the plan may be applied, and applies it.
    pub fn step(&mut self, policy: &mut dyn Policy) -> Plan {
        let plan = policy.decide(&self.snapshot);
        self.check(&plan);
        self.apply(&plan);
        plan
    }

    /// Binds threads as a plan says; those that may not stay go where they are bound. The next period begins.
    pub fn apply(&mut self, plan: &Plan) {
        let bound: BTreeMap<ThreadId, &PuSet> =
            plan.bindings.iter().map(|b| (b.thread, &b.pus)).collect();
        for thread in &mut self.snapshot.threads {
            thread.bound = bound.get(&thread.info.id).map(|pus| (*pus).clone());
            if let Some(pus) = &thread.bound
                && !pus.contains(thread.last_pu.unwrap())
            {
                thread.last_pu = pus.first();
            }
        }
        self.snapshot.period += 1;
        self.snapshot.at += self.snapshot.interval;
    }

    /// A plan binds live threads that perch may touch, once each, to usable PUs that they may use, one on each PU.
    pub fn check(&self, plan: &Plan) {
        let usable = self.snapshot.topology.usable();
        let mut threads = std::collections::BTreeSet::new();
        let mut pus = PuSet::new();
        for binding in &plan.bindings {
            let thread = self.snapshot.thread(binding.thread).expect("a live thread");
            assert!(thread.unmanaged.is_none(), "{binding:?} is not ours");
            assert!(threads.insert(binding.thread), "{binding:?} twice");
            assert_eq!(binding.pus.len(), 1, "{binding:?}");
            assert!(binding.pus.is_subset(&usable), "{binding:?} is not usable");
            assert!(
                binding.pus.is_subset(&thread.allowed),
                "{binding:?} is not allowed"
            );
            assert!(binding.pus.is_disjoint(&pus), "{binding:?}: two on a PU");
            pus = pus.or(&binding.pus);
        }
        for (released, _) in &plan.released {
            let thread = self.snapshot.thread(*released).expect("a live thread");
            assert!(thread.bound.is_some() && !threads.contains(released));
        }
    }

    /// In each domain, how many of the threads that `counts` takes are bound.
    pub fn bound(&self, counts: impl Fn(&ThreadState) -> bool) -> Vec<usize> {
        let domains = self.snapshot.units.of(UnitClass::Fp).iter();
        let inside = |domain: &SharingDomain, thread: &&ThreadState| {
            let bound = thread.bound.as_ref();
            bound.is_some_and(|pus| pus.is_subset(&domain.pus)) && counts(thread)
        };
        let threads = &self.snapshot.threads;
        domains
            .map(|domain| {
                threads
                    .iter()
                    .filter(|thread| inside(domain, thread))
                    .count()
            })
            .collect()
    }

    pub fn fp_bound(&self) -> Vec<usize> {
        self.bound(|t| t.metrics.value(names::FP_SHARE) >= Some(THRESHOLD))
    }
}

pub fn id(at: usize) -> ThreadId {
    ThreadId {
        tid: 1000 + at as i32,
        start: 7,
    }
}

fn set_share(thread: &mut ThreadState, share: f64) {
    let metric = Metric {
        value: share,
        confidence: 1.0,
        source: MetricSource::Counters,
    };
    thread
        .metrics
        .set(MetricName::from(names::FP_SHARE), metric);
}

/// Who is bound where.
pub fn places(plan: &Plan) -> BTreeMap<ThreadId, u32> {
    let places = plan.bindings.iter();
    places.map(|b| (b.thread, b.pus.first().unwrap())).collect()
}

/// Pairs of threads that share a domain.
pub fn pairs(counts: &[usize]) -> usize {
    counts.iter().map(|n| n * n.saturating_sub(1) / 2).sum()
}

/// Cores of any width, some PUs offline or not ours.
pub fn any_cores() -> impl Strategy<Value = Vec<CoreSpec>> {
    let state = prop_oneof![
        8 => Just(PuState::Usable),
        1 => Just(PuState::Offline),
        1 => Just(PuState::Disallowed),
    ];
    let core = (0..2u32, proptest::collection::vec(state, 1..5));
    proptest::collection::vec(core, 1..6).prop_map(|cores| {
        let cores = cores.into_iter();
        cores
            .map(|(node, states)| CoreSpec { node, states })
            .collect()
    })
}

pub fn any_share() -> impl Strategy<Value = f64> {
    prop_oneof![2 => 0.0..0.04f64, 2 => 0.06..0.9f64, 1 => Just(0.5), 1 => Just(0.0)]
}

/// Threads of any kind: unknown, idle, not ours, with their own allowed PUs, bound already or not.
pub fn any_threads() -> impl Strategy<Value = Vec<Spec>> {
    let share = prop_oneof![9 => any_share().prop_map(Some), 1 => Just(None)];
    let activity = prop_oneof![1 => Just(0.0), 1 => Just(0.04), 8 => 0.2..1.0f64];
    let allowed = prop_oneof![
        3 => Just(None),
        1 => proptest::collection::vec(any::<bool>(), 1..9).prop_map(Some),
    ];
    let thread = (share, activity, allowed, 0..10u8, 0..20usize, any::<bool>());
    let thread = thread.prop_map(|(share, activity, allowed, off, last_pu, bound)| Spec {
        share,
        activity,
        allowed,
        unmanaged: off == 0,
        last_pu,
        bound,
    });
    proptest::collection::vec(thread, 0..24)
}
