//! Lines that pass the ports of caches: refills, write-backs, and stores that are written through.
//!
//! Stores to one line are merged while the buffer behind a first level holds it: it is a small cache of the lines that
//! are written to, which everything passes that misses there ([`super::eviction`]).

use super::{
    eviction::{Shape, Visitor, misses},
    layout::Layout,
    running::Running,
};

/// Stores to one thread's lines of one sort that go on to the second level, by one instruction.
pub(super) struct Through {
    thread: usize,
    which: usize,
    stores: f64,
}

/// What is written through first levels before a cache.
pub(super) fn written_through(
    layout: &Layout,
    running: &[Running<'_>],
    (number, speeds): (usize, &[f64]),
) -> Vec<Through> {
    let buffer = |path: &[usize]| match path {
        [first, next, ..] if *next == number => layout.caches[*first].through,
        _ => None,
    };
    let (mut all, mut visitors, mut places) = (Vec::new(), Vec::new(), 0.0f64);
    for (thread, who) in running.iter().enumerate() {
        let Some(lines) = buffer(&layout.pus[who.pu].data) else {
            continue;
        };
        places = places.max(lines);
        for (which, lines) in who.demand.lines.iter().enumerate() {
            if lines.code || lines.written <= 0.0 || lines.visits <= 0.0 {
                continue;
            }
            all.push(Through {
                thread,
                which,
                stores: lines.stores(),
            });
            let writing = lines.visits * (1.0 - (1.0 - lines.written).powf(lines.accesses));
            visitors.push((
                writing,
                Visitor {
                    rate: writing * speeds[thread],
                    lines: lines.lines,
                    reuse: lines.reuse.clone(),
                    skips: 1.0,
                    block: (thread, lines.start),
                    taken: 0.0,
                    ways: 0,
                    here: 1.0,
                },
            ));
        }
    }
    if places > 0.0 {
        let shape = Shape {
            sets: 1.0,
            ways: places,
            own_ways: places,
        };
        let (writing, visitors): (Vec<f64>, Vec<Visitor>) = visitors.into_iter().unzip();
        let missed = misses(shape, &visitors);
        for (at, through) in all.iter_mut().enumerate() {
            let points = visitors[at].reuse.points().iter().zip(&missed[at]);
            let ratio: f64 = points.map(|(point, missed)| point.share * missed).sum();
            through.stores = writing[at] * ratio;
        }
    }
    all
}

/// The lines of one thread and sort that pass the port of a cache by one instruction, if `visits` come there that missed
/// the caches before, and this part of them misses too.
pub(super) fn passing(
    layout: &Layout,
    (number, through): (usize, &[Through]),
    (thread, which, who): (usize, usize, &Running<'_>),
    (visits, ratio): (f64, f64),
) -> f64 {
    let lines = &who.demand.lines[which];
    let pu = &layout.pus[who.pu];
    let path = if lines.code { &pu.fetch } else { &pu.data };
    if path.first() == Some(&number) {
        return 0.0;
    }
    if layout.caches[number].victim {
        // Hits go up, and for each line that comes into the cache before one goes down.
        return visits * (1.0 - ratio) + visits;
    }
    let first = path.first().map(|first| &layout.caches[*first]);
    let next = path.get(1) == Some(&number);
    if next && !lines.code && first.is_some_and(|first| first.through.is_some()) {
        let mut its = through.iter();
        let its = its.find(|its| its.thread == thread && its.which == which);
        // Stores that miss bring no line.
        return visits * (1.0 - lines.written) + its.map_or(0.0, |its| its.stores);
    }
    visits * (1.0 + lines.dirty(visits))
}
