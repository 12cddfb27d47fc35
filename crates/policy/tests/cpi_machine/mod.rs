//! A model of cores that issue one instruction a cycle: how they answer to where threads are, and which plans can be
//! applied to them.
#![allow(dead_code)]

use crate::support::{Spec, World, cores};
use perch_core::{
    Metric, MetricName, MetricSource, Plan, Policy, PuSet, Snapshot, ThreadId, metric::names,
};
use perch_policy::{Cpi, CpiConfig, cpi::Variant};
use std::collections::BTreeMap;

pub fn policy(variant: Variant) -> Cpi {
    Cpi::new(CpiConfig {
        variant,
        width: 1.0,
        ..CpiConfig::default()
    })
}

pub fn set(snapshot: &mut Snapshot, thread: usize, name: &str, value: f64) {
    let metric = Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Counters,
    };
    snapshot.threads[thread]
        .metrics
        .set(MetricName::from(name), metric);
}

/// Busy threads, one on each PU in turn, with these demands in instructions a cycle.
pub struct Machine {
    pub world: World,
    pub demands: Vec<f64>,
}

impl Machine {
    pub fn new(per_node: usize, smt: usize, demands: &[f64], homes: &[usize]) -> Self {
        let threads: Vec<Spec> = (0..demands.len())
            .map(|at| Spec {
                last_pu: homes[at],
                activity: 1.0,
                ..Spec::busy(0.0)
            })
            .collect();
        let mut machine = Self {
            world: World::new(&cores(1, per_node, smt), &threads),
            demands: demands.to_vec(),
        };
        machine.respond();
        machine
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.world.snapshot
    }

    /// The threads on each core, by where they are bound or else were last.
    pub fn members(&self) -> Vec<Vec<usize>> {
        let topology = &self.snapshot().topology;
        let mut members = vec![Vec::new(); topology.cores.len()];
        for (at, thread) in self.snapshot().threads.iter().enumerate() {
            let bound = thread.bound.as_ref().and_then(PuSet::first);
            let pu = bound.or(thread.last_pu).unwrap();
            members[topology.pu(pu).unwrap().core].push(at);
        }
        members
    }

    /// Each core issues one instruction a cycle and shares it fairly: no thread gets more than it asks for, and none
    /// gets less than another one that asks for as much. If there are more threads than PUs, they time-share.
    pub fn respond(&mut self) {
        for (core, members) in self.members().into_iter().enumerate() {
            let pus = self.snapshot().topology.cores[core].pus.len();
            let turns = f64::max(1.0, members.len() as f64 / pus as f64);
            for at in &members {
                let thread = &mut self.world.snapshot.threads[*at];
                thread.activity = 1.0 / turns;
                thread.waiting = 1.0 - thread.activity;
            }
            // While it runs, a thread has as much more of the core as it runs less.
            let mut left = turns;
            let mut by_demand = members.clone();
            by_demand.sort_by(|a, b| self.demands[*a].total_cmp(&self.demands[*b]));
            for (nth, thread) in by_demand.iter().enumerate() {
                let share: f64 = left / (members.len() - nth) as f64;
                let got = share.min(self.demands[*thread]);
                left -= got;
                set(&mut self.world.snapshot, *thread, names::IPC, got);
            }
        }
    }

    /// What all cores deliver by the paper's model.
    pub fn throughput(&self) -> f64 {
        let sums = self.members().into_iter();
        sums.map(|members| self.sum(&members).min(1.0)).sum()
    }

    pub fn sum(&self, members: &[usize]) -> f64 {
        members.iter().map(|at| self.demands[*at]).sum()
    }

    /// The demands on each core, sorted.
    pub fn balance(&self) -> Vec<Vec<u64>> {
        let demands = |members: Vec<usize>| {
            let mut demands: Vec<u64> = members
                .iter()
                .map(|at| self.demands[*at].to_bits())
                .collect();
            demands.sort_unstable();
            demands
        };
        let mut balance: Vec<_> = self.members().into_iter().map(demands).collect();
        balance.sort_unstable();
        balance
    }

    pub fn step(&mut self, policy: &mut dyn Policy) -> Plan {
        let plan = policy.decide(self.snapshot());
        check(self.snapshot(), &plan);
        apply(&mut self.world.snapshot, &plan);
        plan
    }
}

pub fn apply(snapshot: &mut Snapshot, plan: &Plan) {
    let bound = places(plan);
    for thread in &mut snapshot.threads {
        thread.bound = bound.get(&thread.info.id).cloned();
        if let Some(pus) = &thread.bound
            && !pus.contains(thread.last_pu.unwrap())
        {
            thread.last_pu = pus.first();
        }
    }
    snapshot.period += 1;
}

pub fn places(plan: &Plan) -> BTreeMap<ThreadId, PuSet> {
    let bindings = plan.bindings.iter();
    bindings.map(|b| (b.thread, b.pus.clone())).collect()
}

/// A plan binds live threads that are ours to usable, allowed PUs of one core, once each; at most one a PU unless
/// threads are more than PUs, and then whole cores' PUs.
pub fn check(snapshot: &Snapshot, plan: &Plan) {
    let usable = snapshot.topology.usable();
    let mut seen = std::collections::BTreeSet::new();
    let mut single = PuSet::new();
    for binding in &plan.bindings {
        let thread = snapshot.thread(binding.thread).expect("a live thread");
        assert!(thread.unmanaged.is_none(), "{binding:?} is not ours");
        assert!(seen.insert(binding.thread), "{binding:?} twice");
        assert!(!binding.pus.is_empty(), "{binding:?}");
        assert!(binding.pus.is_subset(&usable), "{binding:?} is not usable");
        assert!(binding.pus.is_subset(&thread.allowed), "{binding:?}");
        let core = snapshot.topology.core_of(binding.pus.first().unwrap());
        assert!(binding.pus.is_subset(&core.unwrap().pus), "{binding:?}");
        assert!(!binding.reason.numbers.is_empty());
        if snapshot.threads.len() <= usable.len() {
            assert!(binding.pus.is_disjoint(&single), "{binding:?}: two on a PU");
            single = single.or(&binding.pus);
        }
    }
    for (released, _) in &plan.released {
        assert!(snapshot.thread(*released).unwrap().bound.is_some());
        assert!(!seen.contains(released));
    }
}
