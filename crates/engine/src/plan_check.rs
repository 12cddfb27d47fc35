//! Checks a plan before anything of it is done, and finds what it changes.

use crate::{observer::Move, ownership::Ownership};
use perch_core::{Binding, Outcome, Plan, PuSet, Reason, Remark, Snapshot, ThreadId};
use std::collections::{HashMap, HashSet};

/// Takes out of a plan what must not be done; the remarks name the policy's error.
pub(crate) fn check(plan: &mut Plan, snapshot: &Snapshot, policy: &str) -> Vec<Remark> {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    plan.bindings
        .retain(|binding| match fault(binding, snapshot, &mut seen) {
            None => true,
            Some(fault) => {
                let text =
                    format!("a bug in policy {policy}: it {fault}; the binding was not made");
                wrong.push(Remark::error("policy-bug", text));
                false
            }
        });
    wrong
}

fn fault(
    binding: &Binding,
    snapshot: &Snapshot,
    seen: &mut HashSet<ThreadId>,
) -> Option<&'static str> {
    let Some(thread) = snapshot.thread(binding.thread) else {
        return Some("bound a thread that is not there");
    };
    if binding.pus.is_empty() {
        return Some("bound a thread to no PU");
    }
    if thread.unmanaged.is_some() {
        return Some("bound a thread that must be left alone");
    }
    if !binding.pus.is_subset(&thread.allowed) {
        return Some("bound a thread to a PU that is not allowed");
    }
    (!seen.insert(binding.thread)).then_some("bound a thread twice")
}

/// Takes out of a plan that was made for an earlier snapshot what is no longer possible.
pub(crate) fn drop_outdated(plan: &mut Plan, present: &Snapshot) {
    let mut seen = HashSet::new();
    plan.bindings
        .retain(|binding| fault(binding, present, &mut seen).is_none());
}

/// The differences between a plan and the state in force, by rising thread; the outcome of each is open as yet.
pub(crate) fn difference(plan: &Plan, snapshot: &Snapshot) -> Vec<Move> {
    let wanted: HashMap<ThreadId, &Binding> = plan
        .bindings
        .iter()
        .map(|binding| (binding.thread, binding))
        .collect();
    let mut released: HashMap<ThreadId, &Reason> = plan
        .released
        .iter()
        .map(|(thread, reason)| (*thread, reason))
        .collect();
    let threads = snapshot
        .threads
        .iter()
        .filter(|thread| thread.unmanaged.is_none());
    threads
        .filter_map(|thread| {
            let id = thread.info.id;
            let binding = wanted.get(&id);
            let to = binding.map(|binding| &binding.pus);
            if to == thread.bound.as_ref() {
                return None;
            }
            let reason = match binding {
                Some(binding) => binding.reason.clone(),
                None => released
                    .remove(&id)
                    .cloned()
                    .unwrap_or_else(|| Reason::new("no longer in the plan")),
            };
            Some(Move {
                thread: id,
                from: thread.bound.clone(),
                to: to.cloned(),
                reason,
                outcome: Outcome::NotApplied,
                span: None,
                rest: None,
            })
        })
        .collect()
}

/// The mask that a move sets, and whether it changes the one in force.
pub(crate) fn target(ownership: &Ownership, change: &Move) -> Option<(PuSet, bool)> {
    let owned = ownership.get(change.thread)?;
    let set = change.to.clone().unwrap_or_else(|| owned.before.clone());
    // A binding that the kernel has replaced is requested, or released, again: it remembers the old one.
    let let_go = set == owned.before && owned.asked.is_some();
    let changes = set != owned.current || owned.lapsed() || let_go;
    Some((set, changes))
}
