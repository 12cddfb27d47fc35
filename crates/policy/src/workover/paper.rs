//! WorkOver to the letter: rank, cut into groups, one group for the first PU of each domain, one for the second, …

use super::{Decision, Memory, Placed, View, WorkOverConfig, explain};
use crate::{
    domains::Domains,
    history::PerThread,
    matching,
    ranking::{Candidate, by_fp_share},
};
use std::collections::HashMap;

pub(super) fn decide(
    view: &View<'_>,
    memory: &mut PerThread<Memory>,
    config: &WorkOverConfig,
) -> Decision {
    let snapshot = view.snapshot;
    let mut census = by_fp_share(snapshot, config.min_confidence, |_, thread| {
        thread.activity >= config.min_activity
    });
    // Equals stay in the order of their groups, else they would change places for nothing.
    census.ranked.sort_by(|a, b| {
        let group = |candidate: &Candidate| memory[candidate.at].group.unwrap_or(usize::MAX);
        (b.known.share.total_cmp(&a.known.share))
            .then(b.activity.total_cmp(&a.activity))
            .then(group(a).cmp(&group(b)))
    });
    let domains = Domains::new(snapshot, &census.reachable);
    let before: Vec<Option<usize>> = census.ranked.iter().map(|c| memory[c.at].group).collect();
    for at in 0..snapshot.threads.len() {
        memory[at].group = None;
    }
    if let Some(why) = view.nothing_to_do(&census, &domains) {
        return Decision::nothing(why);
    }
    let mut decision = Decision {
        busy: census.busy(),
        pus: domains.pus(),
        ..Decision::default()
    };
    let names = explain::Names::new();
    let mut first = 0;
    for group in 0..domains.width() {
        let slots: Vec<u32> = domains
            .iter()
            .filter_map(|domain| domain.pus.get(group).copied())
            .collect();
        let last = (first + slots.len()).min(census.ranked.len());
        let members = &census.ranked[first..last];
        let wishes = wishes(view, memory, members, &slots, |member| {
            before[first + member] == Some(group)
        });
        let slots_of = matching::assign(&wishes, slots.len(), |member, slot| {
            snapshot.threads[members[member].at]
                .allowed
                .contains(slots[slot])
        });
        for (member, slot) in slots_of.into_iter().enumerate() {
            let candidate = &members[member];
            memory[candidate.at].group = Some(group);
            let Some(pu) = slot.map(|slot| slots[slot]) else {
                continue;
            };
            let rank = first + member;
            let domain = domains.of(pu).map(|domain| &domains[domain]);
            let label = domain.map_or(String::new(), |d| d.label(&snapshot.topology));
            let moved = explain::movement(
                snapshot,
                candidate.at,
                view.present[candidate.at],
                pu,
                &domains,
            );
            let text = format!(
                "FP rank {} of {}: group {}, PU {pu} of {label}; {moved}",
                rank + 1,
                census.ranked.len(),
                group + 1,
            );
            decision.placed.push(Placed {
                at: candidate.at,
                pu,
                reason: names.reason(text, rank, candidate, pu, None),
            });
        }
        first = last;
    }
    decision
}

/// Each member's wish among the slots: its present PU if it was in this group before. Otherwise, of the PUs on which no
/// thread stays, the one that it used most.
fn wishes(
    view: &View<'_>,
    memory: &PerThread<Memory>,
    members: &[Candidate],
    slots: &[u32],
    was_in_group: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let slot_of: HashMap<u32, usize> = slots.iter().copied().zip(0..).collect();
    let mut taken = vec![false; slots.len()];
    let mut wishes = vec![None; members.len()];
    for (member, candidate) in members.iter().enumerate() {
        let present = view.present[candidate.at].filter(|_| was_in_group(member));
        wishes[member] = present.and_then(|pu| slot_of.get(&pu).copied());
        if let Some(slot) = wishes[member] {
            taken[slot] = true;
        }
    }
    for (wish, candidate) in wishes.iter_mut().zip(members) {
        if wish.is_none() {
            let free = |pu: u32| slot_of.get(&pu).is_some_and(|slot| !taken[*slot]);
            let used = memory[candidate.at].usage.most_used(free);
            *wish = used.map(|pu| slot_of[&pu]);
        }
    }
    wishes
}
