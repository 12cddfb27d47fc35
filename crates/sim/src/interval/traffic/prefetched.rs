//! What prefetchers bring into a cache, and how that changes who visits it.

use super::{Flow, Group, Traffic};
use crate::interval::{
    eviction::{Shape, Visitor},
    layout::Layout,
    prefetch::{Cover, Learned, cover, missed_alone, remembered, visited_with},
    running::Running,
};

impl Traffic<'_> {
    /// Finds out what the prefetchers of a cache do, and adds what they bring to its visitors; without any, what those of
    /// a cache before it have asked for passes through it.
    pub(super) fn prefetch(
        &mut self,
        (number, groups): (usize, &[usize]),
        shape: Shape,
        visitors: &mut [Visitor],
        speeds: &[f64],
    ) {
        let (layout, running) = (self.layout, self.running);
        let flows = &mut self.flows;
        let groups: Vec<&Group> = groups.iter().map(|at| &self.groups[number][*at]).collect();
        if layout.caches[number].prefetchers.is_empty() {
            for (visitor, group) in visitors.iter_mut().zip(&groups) {
                visitor.rate *= 1.0 + neighbours(running, flows, group, |cover| cover.wasted);
            }
            return;
        }
        let [first, second] = &mut self.guessed[number];
        first.update(shape, visitors.to_vec());
        let members = groups.iter().zip(&first.missed);
        let members = members.flat_map(|(group, missed)| {
            let members = group.members.iter();
            members.map(|at| (*at, missed.ratio))
        });
        let members: Vec<(usize, f64)> = members.collect();
        cover_flows(layout, running, (number, &members), flows, speeds);
        let asked = groups
            .iter()
            .map(|group| neighbours(running, flows, group, |cover| cover.asked));
        let asked: Vec<f64> = asked.collect();
        let mut ratios: Vec<f64> = first.missed.iter().map(|its| its.ratio).collect();
        let rates: Vec<f64> = visitors.iter().map(|visitor| visitor.rate).collect();
        let with_neighbours = |ratios: &[f64], visitors: &mut [Visitor]| {
            let each = ratios.iter().zip(&asked).zip(&rates);
            for (visitor, ((ratio, asked), rate)) in visitors.iter_mut().zip(each) {
                visitor.rate = rate * visited_with(*ratio, *asked);
            }
        };
        with_neighbours(&ratios, visitors);
        if asked.iter().any(|asked| *asked > 0.0) {
            // With what they bring, lines stay for a shorter time.
            second.update(shape, visitors.to_vec());
            for (ratio, (missed, asked)) in ratios.iter_mut().zip(second.missed.iter().zip(&asked))
            {
                *ratio = missed_alone(missed.ratio, *asked);
            }
            with_neighbours(&ratios, visitors);
        }
    }
}

/// Finds out what the prefetchers of a cache do for the flows that come to it. `members` are these flows, each with the share
/// of its visits that miss.
fn cover_flows(
    layout: &Layout,
    running: &[Running<'_>],
    (number, members): (usize, &[(usize, f64)]),
    flows: &mut [Flow],
    speeds: &[f64],
) {
    let prefetchers = &layout.caches[number].prefetchers;
    let lines_of = |flow: &Flow| &running[flow.thread].demand.lines[flow.lines];
    let rate = |(at, ratio): &(usize, f64)| {
        let flow = &flows[*at];
        let missed = flow.visits * ratio * (1.0 - flow.cover.share);
        missed * speeds[flow.thread]
    };
    let strays = members.iter().filter(|(at, _)| {
        let lines = lines_of(&flows[*at]);
        !lines.code && lines.step.is_none()
    });
    let strays: f64 = strays.map(rate).sum();
    let rates: Vec<f64> = members.iter().map(rate).collect();
    let learned = members.iter().zip(&rates).map(|((at, _), rate)| Learned {
        lines: lines_of(&flows[*at]),
        rate: *rate,
    });
    let learned: Vec<Learned<'_>> = learned.filter(|its| !its.lines.code).collect();
    let times = remembered(prefetchers, layout.line, &learned);
    for ((at, _), rate) in members.iter().zip(rates) {
        let flow = &mut flows[*at];
        let who = &running[flow.thread];
        let lines = &who.demand.lines[flow.lines];
        let step = layout.pus[who.pu]
            .data
            .iter()
            .position(|its| *its == number);
        let Some(step) = step.filter(|_| !lines.code) else {
            continue;
        };
        let beside = (&times[..], strays / rate.max(1e-30));
        let found = cover(prefetchers, Learned { lines, rate }, layout.line, beside);
        let wasted = flow.cover.wasted.max(found.wasted);
        if found.share > flow.cover.share || flow.cover == Cover::default() {
            (flow.cover, flow.step) = (found, step);
        }
        flow.cover.wasted = wasted;
        (flow.cover.asked, flow.cover.paired) = (found.asked, found.paired);
        flow.cover.at_once = flow.cover.at_once.max(found.at_once);
    }
}

/// How many lines of a group prefetchers ask for, or bring, with each that is missed, if the group is visited at random: the
/// next line, or the other of a pair, is then one of the group too. It takes a place and may be hit later.
fn neighbours(
    running: &[Running<'_>],
    flows: &[Flow],
    group: &Group,
    of: impl Fn(&Cover) -> f64,
) -> f64 {
    let of_flow = |at: &usize| {
        let flow = &flows[*at];
        let lines = &running[flow.thread].demand.lines[flow.lines];
        match lines.step.is_none() && !lines.code && lines.lines > 1.0 {
            true => of(&flow.cover),
            false => 0.0,
        }
    };
    group.members.iter().map(of_flow).fold(0.0, f64::max)
}
