//! Misses of translation lookaside buffers.

use super::{
    eviction::Visitor,
    fate::{Fate, Kept},
    known::Known,
    layout::Layout,
    owner::Owner,
    running::Running,
};
use std::collections::BTreeMap;

/// Who visits pages through a TLB.
pub(super) struct Tlb {
    number: usize,
    /// Place of a thread, of its lines, and of the visitor to whom they belong.
    members: Vec<(usize, usize, usize)>,
    known: Known,
}

/// The TLBs that are visited.
pub(super) fn tlbs(layout: &Layout, running: &[Running<'_>]) -> Vec<Tlb> {
    if layout.tlbs.is_empty() {
        return Vec::new();
    }
    let mut of_tlb: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (thread, who) in running.iter().enumerate() {
        let tlb = layout.pus[who.pu].tlb;
        of_tlb.entry(tlb).or_default().push(thread);
    }
    let mut tlbs = Vec::new();
    for (number, threads) in of_tlb {
        let mut shared: Vec<(Owner, usize)> = Vec::new();
        let mut visitors = 0;
        let mut members = Vec::new();
        for thread in threads {
            let sets = running[thread].demand.lines.iter().enumerate();
            for (which, lines) in sets.filter(|(_, lines)| lines.page_visits > 0.0) {
                let known = shared.iter().find(|(owner, _)| *owner == lines.owner);
                let at = known.map(|(_, at)| *at).unwrap_or_else(|| {
                    if lines.owner != Owner::Thread {
                        shared.push((lines.owner, visitors));
                    }
                    visitors += 1;
                    visitors - 1
                });
                members.push((thread, which, at));
            }
        }
        tlbs.push(Tlb {
            number,
            members,
            known: Known::default(),
        });
    }
    tlbs
}

impl Tlb {
    pub fn translate(
        &mut self,
        layout: &Layout,
        running: &[Running<'_>],
        speeds: &[f64],
        fates: &mut [Fate],
    ) {
        let (shape, _) = layout.tlbs[self.number];
        let mut visitors: Vec<Visitor> = Vec::new();
        for (thread, which, at) in &self.members {
            let lines = &running[*thread].demand.lines[*which];
            let rate = lines.page_visits * speeds[*thread];
            match visitors.get_mut(*at) {
                Some(visitor) => visitor.rate += rate,
                None => visitors.push(Visitor {
                    rate,
                    lines: lines.pages,
                    reuse: lines.page_reuse.clone(),
                    skips: 1.0,
                    block: match lines.owner {
                        Owner::Thread => (*thread, lines.first_page),
                        _ => (running.len() + *at, 0.0),
                    },
                    taken: 0.0,
                    ways: 0,
                    here: 1.0,
                }),
            }
        }
        self.known.update(shape, visitors);
        for (thread, which, at) in &self.members {
            let visits = running[*thread].demand.lines[*which].page_visits;
            let ratio = self.known.missed[*at].ratio;
            let fate = &mut fates[*thread];
            fate.tlb += visits * ratio;
            fate.kept.push(Kept {
                cache: layout.caches.len() + self.number,
                which: *which,
                lines: self.known.visitors[*at].lines * (1.0 - ratio),
                hits: visits * (1.0 - ratio),
                misses: visits * ratio,
                unsaved: visits * ratio,
            });
        }
    }
}
