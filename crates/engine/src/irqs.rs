//! Whose mask does an interrupt have? And what does a plan change of it?

use crate::observer::IrqMove;
use perch_core::{
    IrqBinding, IrqChange, IrqLoad, IrqSample, Observation, Outcome, Plan, PuSet, Reason, Remark,
    Snapshot,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An interrupt of a device, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    device: String,
    movable: bool,
    /// The mask that it had before perch moved it.
    before: PuSet,
    /// The mask that it has, as far as perch knows.
    current: PuSet,
    /// The PUs to which perch has bound it.
    bound: Option<PuSet>,
    /// Another process has changed its mask since perch moved it: it is left alone.
    foreign: bool,
}

/// The interrupts of a session.
#[derive(Debug, Default)]
pub(crate) struct KnownIrqs {
    known: BTreeMap<u32, Known>,
    /// Whether interrupts may leave the masks that they had.
    take_over: bool,
    /// Interrupts whose masks are no longer perch's doing, since they were last taken; each with what has become of it.
    released: Vec<(u32, Outcome)>,
}

impl KnownIrqs {
    pub fn new(take_over: bool) -> Self {
        Self {
            take_over,
            ..Self::default()
        }
    }

    /// Takes in masks. A mask that is not the one which perch has set was set by another process; so was one that has
    /// changed while a dry run had it bound.
    pub fn observe(&mut self, samples: &[IrqSample]) {
        for sample in samples {
            let Some(irq) = sample.irq() else { continue };
            // What cannot be read for a moment is what it was.
            let Some(state) = &sample.state else {
                continue;
            };
            let new = || Known {
                device: state.device.clone(),
                movable: state.movable,
                before: state.mask.clone(),
                current: state.mask.clone(),
                bound: None,
                foreign: false,
            };
            let known = self.known.entry(irq).or_insert_with(new);
            if !state.may_be_of(&known.device) {
                if known.bound.is_some() {
                    self.released.push((irq, Outcome::Gone));
                }
                *known = new();
                continue;
            }
            if !state.device.is_empty() {
                known.device.clone_from(&state.device);
            }
            known.movable = state.movable;
            if known.bound.is_none() {
                known.before.clone_from(&state.mask);
            } else if known.current != state.mask {
                known.bound = None;
                known.foreign = true;
                self.released.push((irq, Outcome::ChangedByOthers));
            }
            known.current.clone_from(&state.mask);
        }
    }

    /// The interrupts whose masks have turned out not to be perch's any more, and what has become of them.
    pub fn take_released(&mut self) -> Vec<(u32, Outcome)> {
        std::mem::take(&mut self.released)
    }

    /// The mask that an interrupt had before perch, if perch holds it elsewhere.
    pub fn before(&self, irq: u32) -> Option<&PuSet> {
        let known = self.known.get(&irq)?;
        known.bound.as_ref().map(|_| &known.before)
    }

    /// The interrupts of devices as a policy may know them, by rising number. `pus` are those to which any may be sent.
    pub fn loads(&self, observation: &Observation, pus: &PuSet) -> Vec<IrqLoad> {
        let load = |sample: &IrqSample| {
            let irq = sample.irq()?;
            let known = self.known.get(&irq);
            let free = known.filter(|known| known.movable && !known.foreign);
            Some(IrqLoad {
                irq,
                rates: sample.rates(),
                allowed: free.map_or_else(PuSet::new, |known| match self.take_over {
                    true => pus.clone(),
                    false => known.before.and(pus),
                }),
                bound: known.and_then(|known| known.bound.clone()),
            })
        };
        let mut loads: Vec<IrqLoad> = observation.irqs.iter().filter_map(load).collect();
        loads.sort_by_key(|load| load.irq);
        loads.dedup_by_key(|load| load.irq);
        loads
    }

    /// The change of a mask that a move needs, and the mask that it goes back to in the end; `None` for an interrupt
    /// that must be left alone.
    pub fn change(&self, made: &IrqMove) -> Option<(IrqChange, PuSet)> {
        let known = self.known.get(&made.irq)?;
        let free = known.movable && !known.foreign;
        let change = free.then(|| IrqChange {
            irq: made.irq,
            device: known.device.clone(),
            expect: known.current.clone(),
            set: made.to.clone().unwrap_or_else(|| known.before.clone()),
        });
        Some((change?, known.before.clone()))
    }

    /// All interrupts but these, which could not be restored, have the masks again that they had before perch.
    pub fn let_go(&mut self, failed: &HashSet<u32>) {
        let restored = |irq: &u32| !failed.contains(irq);
        for (_, known) in self.known.iter_mut().filter(|(irq, _)| restored(irq)) {
            if known.bound.take().is_some() {
                known.current.clone_from(&known.before);
            }
        }
    }

    /// Takes in what became of a move; in a dry run it counts as done.
    pub fn moved(&mut self, made: &IrqMove, dry_run: bool) {
        let Some(known) = self.known.get_mut(&made.irq) else {
            return;
        };
        match made.outcome {
            Outcome::Applied => {
                let set = made.to.as_ref().unwrap_or(&known.before);
                known.current = set.clone();
                known.bound.clone_from(&made.to);
            }
            Outcome::ChangedByOthers => {
                known.bound = None;
                known.foreign = true;
            }
            Outcome::NotApplied if dry_run => known.bound.clone_from(&made.to),
            // The next look shows whose it is.
            Outcome::Gone
            | Outcome::NotApplied
            | Outcome::NotPermitted
            | Outcome::Failed
            | Outcome::NoUsablePu => {}
        }
    }
}

/// Takes out of a plan what must not be done to interrupts; the remarks name the policy's error.
pub(crate) fn check(plan: &mut Plan, snapshot: &Snapshot, policy: &str) -> Vec<Remark> {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    plan.irqs.retain(|binding| {
        let fault = fault(binding, snapshot, &mut seen);
        wrong.extend(fault.map(|fault| {
            let text =
                format!("a bug in policy {policy}: it {fault}; the interrupt was not sent there");
            Remark::error("policy-bug", text)
        }));
        fault.is_none()
    });
    wrong
}

/// Takes out of a plan that was made for an earlier snapshot what is no longer possible.
pub(crate) fn drop_outdated(plan: &mut Plan, present: &Snapshot) {
    let mut seen = HashSet::new();
    plan.irqs
        .retain(|binding| fault(binding, present, &mut seen).is_none());
}

fn load(snapshot: &Snapshot, irq: u32) -> Option<&IrqLoad> {
    let at = snapshot.irqs.binary_search_by_key(&irq, |load| load.irq);
    at.ok().map(|at| &snapshot.irqs[at])
}

fn fault(
    binding: &IrqBinding,
    snapshot: &Snapshot,
    seen: &mut HashSet<u32>,
) -> Option<&'static str> {
    let Some(load) = load(snapshot, binding.irq) else {
        return Some("sent an interrupt somewhere that is not there");
    };
    if binding.pus.is_empty() {
        return Some("sent an interrupt to no PU");
    }
    if !binding.pus.is_subset(&load.allowed) {
        return Some("sent an interrupt to a PU that is not allowed");
    }
    (!seen.insert(binding.irq)).then_some("sent an interrupt twice")
}

/// The differences between a plan and the masks in force, by rising number; the outcome of each is open as yet.
pub(crate) fn difference(plan: &Plan, snapshot: &Snapshot) -> Vec<IrqMove> {
    let wanted: HashMap<u32, &IrqBinding> = plan
        .irqs
        .iter()
        .map(|binding| (binding.irq, binding))
        .collect();
    let differs = |load: &IrqLoad| {
        let binding = wanted.get(&load.irq);
        let to = binding.map(|binding| &binding.pus);
        (to != load.bound.as_ref()).then(|| IrqMove {
            irq: load.irq,
            from: load.bound.clone(),
            to: to.cloned(),
            reason: binding.map_or_else(
                || Reason::new("no longer in the plan"),
                |binding| binding.reason.clone(),
            ),
            outcome: Outcome::NotApplied,
        })
    };
    snapshot.irqs.iter().filter_map(differs).collect()
}
