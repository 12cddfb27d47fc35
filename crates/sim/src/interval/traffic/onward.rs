//! What of a cache's visits hits there, and what goes on to the next one.

use super::{Stores, Traffic};
use crate::interval::{
    fate::{Fate, Kept},
    links::farther,
    ports::{passing, written_through},
    reuse::Point,
};

impl Traffic<'_> {
    /// Divides what comes to a cache into hits and misses, now that it is known who misses how much.
    pub(super) fn pass_on(
        &mut self,
        (number, groups): (usize, &[usize]),
        stores: &Stores,
        speeds: &[f64],
        fates: &mut [Fate],
    ) {
        let (layout, running) = (self.layout, self.running);
        let cache = &layout.caches[number];
        let through = match cache.line_transfer > 0.0 {
            true => written_through(layout, running, (number, speeds)),
            false => Vec::new(),
        };
        let known = &self.known[number];
        let found = known.visitors.iter().zip(&known.missed);
        for (group, (visitor, missed)) in groups.iter().zip(found) {
            let group = &self.groups[number][*group];
            let ratio = missed.ratio;
            for at in &group.members {
                let flow = &mut self.flows[*at];
                if flow.visits <= 0.0 {
                    continue;
                }
                let who = running[flow.thread];
                let lines = &who.demand.lines[flow.lines];
                let pu = &layout.pus[who.pu];
                let path = if lines.code { &pu.fetch } else { &pu.data };
                let fate = &mut fates[flow.thread];
                if !cache.prefetchers.is_empty() {
                    flow.cover.wasted = flow.cover.wasted.max(flow.cover.brought(ratio));
                }
                let (hits, gone) = (flow.visits * (1.0 - ratio), flow.visits * ratio);
                if cache.line_transfer > 0.0 {
                    let its = (flow.thread, flow.lines, &who);
                    let visits = (flow.visits, ratio);
                    let lines = passing(layout, (number, &through), its, visits);
                    let vain = flow.visits * flow.cover.wasted;
                    fate.pass(number, lines, (vain, flow.cover.at_once));
                }
                if visitor.taken > 0.0 {
                    let time = |after: f64| after / visitor.rate.max(1e-30);
                    let taken = |point: &Point| 1.0 - (-visitor.taken * time(point.after)).exp();
                    let points = visitor.reuse.points().iter();
                    let share: f64 = points.map(|point| point.share * taken(point)).sum();
                    let taken = flow.visits * share;
                    // What one level has lost to others is looked for in vain in the next ones too: that is one loss.
                    if path.first() == Some(&number) {
                        fate.coherence += taken;
                    }
                    if path.last() == Some(&number) {
                        // It is written back and brought again, from where the writer is.
                        fate.transfer(taken, who.homes.of(group.owner), who.homes);
                        fate.farther += taken * farther(layout, stores, group.owner, number, who);
                    }
                }
                fate.kept.push(Kept {
                    cache: number,
                    which: flow.lines,
                    lines: visitor.lines * (1.0 - ratio),
                    hits,
                    misses: gone,
                    unsaved: gone * (1.0 - flow.cover.share),
                });
                let counts = if lines.code {
                    &mut fate.fetch
                } else {
                    &mut fate.data
                };
                counts[cache.level] += gone * (1.0 - flow.cover.share);
                if !cache.prefetchers.is_empty()
                    && !lines.code
                    && path.get(flow.step) == Some(&number)
                {
                    fate.prefetches += gone * (flow.cover.share + flow.cover.wasted);
                }
                flow.visits = gone;
                flow.reuse = missed.rest.clone();
            }
        }
    }
}
