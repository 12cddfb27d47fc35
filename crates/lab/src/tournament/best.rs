//! The best placement of a workload: all that differ, or else a long search from those that others found.

use super::{alone::Alone, draw, score::speedup};
use crate::{
    experiment::{Span, Times},
    placement::{self, Placement},
    sample::Sample,
    simulate::{Job, Placer, simulate},
};
use perch_sim::stream::Random;
use std::{collections::HashMap, time::Duration};

/// As many placements are all tried.
const ALL: usize = 200;

/// Cycles of the first core before a placement of steady threads is looked at, and while it is.
const LOOK: (u64, u64) = (100_000, 200_000);

/// Seconds of the operating system for threads that are not steady.
const LONG_LOOK: (u64, u64) = (2, 16);

/// Changes that are tried for each thread and at most, of steady threads and of others.
const TRIES: ((usize, usize), (usize, usize)) = ((20, 240), (5, 40));

/// How many placements that others found are looked at, and how many random ones.
const STARTS: (usize, usize) = (4, 2);

/// Fewer gains than this are chance.
const BETTER: f64 = 1e-5;

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Best {
    pub placement: Placement,
    /// Whether all placements were tried.
    pub exhaustive: bool,
}

/// A workload's placements, each looked at once.
struct Looks<'a> {
    job: &'a Job,
    alone: &'a [Alone],
    steady: bool,
    known: HashMap<Placement, f64>,
}

impl Looks<'_> {
    fn at(&mut self, placement: &Placement) -> Result<f64, String> {
        if let Some(known) = self.known.get(placement) {
            return Ok(*known);
        }
        let sample = trial(self.job, self.steady, placement)?;
        let found = match self.steady {
            true => steady_speedup(&sample, self.alone),
            false => speedup(&sample, self.alone),
        };
        self.known.insert(placement.clone(), found);
        Ok(found)
    }
}

/// Simulates a placement for a short time.
fn trial(job: &Job, steady: bool, placement: &Placement) -> Result<Sample, String> {
    let (warm_up, length) = match steady {
        true => (Span::Cycles(LOOK.0), Span::Cycles(LOOK.1)),
        false => (
            Span::Time(Duration::from_secs(LONG_LOOK.0)),
            Span::Time(Duration::from_secs(LONG_LOOK.1)),
        ),
    };
    simulate(&Job {
        placer: Placer::Fixed(placement.clone()),
        times: Times { warm_up, length },
        warm: steady,
        ..job.clone()
    })
}

/// How fast all threads went on if each always wanted a PU.
fn steady_speedup(sample: &Sample, alone: &[Alone]) -> f64 {
    let threads = alone.iter().zip(&sample.threads);
    threads
        .map(|(alone, stats)| alone.steady_progress(stats.instructions, sample.seconds))
        .sum()
}

/// What a placement of threads that do the same all the time delivers in a short look, and whether its caches had settled.
pub(super) fn look(
    job: &Job,
    alone: &[Alone],
    placement: &Placement,
) -> Result<(f64, bool), String> {
    let sample = trial(job, true, placement)?;
    Ok((steady_speedup(&sample, alone), sample.settled))
}

/// Searches; `starts` are placements that others found, the best first. The same whatever the host does.
pub(super) fn best(
    job: &Job,
    alone: &[Alone],
    starts: impl Iterator<Item = Placement>,
    seed: u64,
) -> Result<Best, String> {
    let mut looks = Looks {
        steady: draw::is_steady(&job.workload, &job.machine),
        job,
        alone,
        known: HashMap::new(),
    };
    let slots = placement::slots(&job.workload);
    if let Some(all) = placement::every(&job.machine, &slots, ALL) {
        let mut best: Option<(f64, Placement)> = None;
        for placement in all {
            let found = looks.at(&placement)?;
            if best.as_ref().is_none_or(|(known, _)| found > *known) {
                best = Some((found, placement));
            }
        }
        let (_, placement) = best.ok_or("no placement at all")?;
        return Ok(Best {
            placement,
            exhaustive: true,
        });
    }
    let pus = job.machine.pus();
    let mut random = Random::new(seed);
    let mut found: Vec<(f64, Placement)> = Vec::new();
    let mut begin: Vec<Placement> = Vec::new();
    for start in starts.filter(|start| start.len() == slots.len()) {
        if begin.len() < STARTS.0 && !begin.contains(&start) {
            begin.push(start);
        }
    }
    begin.extend((0..STARTS.1).map(|_| placement::random(pus, slots.len(), &mut random)));
    for start in begin {
        found.push((looks.at(&start)?, start));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(2);
    let (each, most) = if looks.steady { TRIES.0 } else { TRIES.1 };
    let tries = (each * slots.len()).min(most);
    for (value, placement) in &mut found {
        for _ in 0..tries {
            let mut next = placement.clone();
            let one = random.below(next.len() as u64) as usize;
            let pu = random.below(pus as u64) as u32;
            let from = next[one];
            if from == pu || same_core(job, from, pu) {
                continue;
            }
            // With who is there, or to where there is room.
            match next.iter().position(|other| *other == pu) {
                Some(other) if slots[other].class == slots[one].class => continue,
                Some(other) => next.swap(one, other),
                None => next[one] = pu,
            }
            let then = looks.at(&next)?;
            if then > *value * (1.0 + BETTER) {
                (*value, *placement) = (then, next);
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (_, placement) = found.into_iter().next().ok_or("no placement at all")?;
    Ok(Best {
        placement,
        exhaustive: false,
    })
}

fn same_core(job: &Job, one: u32, other: u32) -> bool {
    let places = job.machine.places();
    places[one as usize].0 == places[other as usize].0
}
