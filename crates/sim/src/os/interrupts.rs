//! Time that PUs spend on interrupts and on changes from outside, which they take from their threads.

use crate::{
    model::{IrqModel, MachineModel},
    stream::Random,
    units::{NANOSECOND, Ps},
    workload::Gaps,
};
use std::{cmp::Reverse, collections::BinaryHeap};

/// Interrupts of one sort on one PU.
#[derive(Debug, Clone)]
struct Source {
    pu: usize,
    gap: f64,
    gaps: Gaps,
    time: Ps,
    random: Random,
}

impl Source {
    /// From one to the next.
    fn next(&mut self) -> Ps {
        let factor = match self.gaps {
            Gaps::Constant => 1.0,
            // 1 - u is above 0, so the logarithm is finite.
            Gaps::Poisson => -(1.0 - self.random.unit()).ln(),
        };
        ((self.gap * factor).round() as Ps).max(1)
    }
}

/// When interrupts come, and until when PUs are taken.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts {
    sources: Vec<Source>,
    /// When the next one of each source comes, the first first.
    next: BinaryHeap<Reverse<(Ps, usize)>>,
    /// Until when each PU is taken.
    taken: Vec<Ps>,
}

impl Interrupts {
    /// Those of a machine. The first of each PU comes at a random moment within its gap, so that PUs are not in step.
    pub fn new(machine: &MachineModel, random: &Random) -> Self {
        let mut sources = Vec::new();
        for model in &machine.os.irqs {
            let IrqModel {
                pus, gaps, time, ..
            } = model;
            for pu in pus {
                sources.push(Source {
                    pu: *pu as usize,
                    gap: model.gap * NANOSECOND as f64 / machine.scale,
                    gaps: *gaps,
                    time: machine.machine_time(*time),
                    random: random.part(sources.len() as u64),
                });
            }
        }
        let first = |(number, source): (usize, &mut Source)| {
            let at = match source.gaps {
                Gaps::Constant => (source.gap * source.random.unit()) as Ps,
                Gaps::Poisson => source.next(),
            };
            Reverse((at.max(1), number))
        };
        Self {
            next: sources.iter_mut().enumerate().map(first).collect(),
            sources,
            taken: vec![0; machine.pus()],
        }
    }

    /// When the next one comes.
    pub fn next(&self) -> Option<Ps> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    /// Until when a PU is taken, at least `from`.
    pub fn until(&self, pu: usize, from: Ps) -> Ps {
        self.taken[pu].max(from)
    }

    /// A PU is taken for some time from `at` on, or after what it does then.
    pub fn seize(&mut self, pu: usize, at: Ps, time: Ps) {
        self.taken[pu] = self.until(pu, at) + time;
    }

    /// The first interrupt that has come by now takes its PU: which, and for how long.
    pub fn take(&mut self, now: Ps) -> Option<(usize, Ps)> {
        let Reverse((at, number)) = *self.next.peek()?;
        if at > now {
            return None;
        }
        self.next.pop();
        let source = &mut self.sources[number];
        let (pu, time, next) = (source.pu, source.time, at.saturating_add(source.next()));
        self.next.push(Reverse((next, number)));
        self.seize(pu, at, time);
        Some((pu, time))
    }
}
