//! What is remembered of a thread: what it would use in isolation, and its speed next to its neighbours.

use super::{
    cold::Ramp,
    uses::{Basis, SIGNATURE, Values},
};
use crate::busy::stays_busy;
use perch_core::{PuSet, Reason, ThreadId, ThreadState};

/// Weight of a new value in the exponential average, counted and sampled: samples are noisier.
const NEW_COUNTED: f64 = 0.4;
const NEW_SAMPLED: f64 = 0.2;

/// A share that changes by more than this part of it and by more than this much: another phase.
const OTHER_PHASE: (f64, f64) = (0.3, 0.04);

/// Speeds next to the same neighbours that differ by more than this (logarithm) are no noise but another phase.
const OTHER_SPEED: f64 = 0.15;

/// Shares of instructions that differ by less than this part and this much more are the same.
const ALIKE: (f64, f64) = (0.03, 0.005);

/// Weight of a new period in the mean share of the time that a thread wants a PU: a thread that sleeps for a second or
/// two must not look like another thread each time.
const NEW_PRESENCE: f64 = 0.2;

/// Neighbourhoods remembered of each thread.
const REMEMBERED: usize = 48;

/// What the policy remembers of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Its uses: rates for each unit of speed, others as they are.
    uses: Vec<f64>,
    /// A guess of its speed alone, if speeds are counted.
    pub alone: Option<f64>,
    /// Mean share of the time that it wanted a PU.
    present: Option<f64>,
    signature: Option<[f64; SIGNATURE.len()]>,
    /// The lowest PU of the unit on which it was, and who was there with it.
    place: Option<(u32, Vec<ThreadId>)>,
    /// Speeds next to others, the latest last.
    pub seen: Vec<Neighbours>,
    /// The period in which it began to do something else; 0 if it never did.
    pub phase: u64,
    /// Where it is to be, and why.
    pub target: Option<(PuSet, Reason)>,
    /// How it got warm where it is.
    pub ramp: Ramp,
}

/// Who shared with it what is closest, and how fast it was.
#[derive(Debug, Clone)]
pub(super) struct Neighbours {
    /// By rising id, and the part of the period that each ran.
    pub beside: Vec<(ThreadId, f64)>,
    /// Logarithm of its speed, less what it lost to others farther away.
    pub speed: f64,
    /// Whether it was another one the last time.
    off: bool,
}

impl Memory {
    /// Takes in the share of a period that it wanted a PU; the mean of those so far, if it is busy by that. Threads that
    /// sleep now and then must not come and go.
    pub fn wanted(&mut self, thread: &ThreadState, least: f64) -> f64 {
        let now = thread.wanted();
        let mean = self.present.get_or_insert(now);
        *mean += NEW_PRESENCE * (now - *mean);
        match stays_busy(*mean, least, self.target.is_some()) {
            true => *mean,
            false => 0.0,
        }
    }

    /// Takes in a period's uses. Whether the thread is in another phase than before: then all that was known is forgotten.
    pub fn take(&mut self, basis: &Basis, read: &[f64], value: &Values<'_>) -> bool {
        let signature = SIGNATURE.map(|name| value(name).unwrap_or(0.0));
        let (part, much) = OTHER_PHASE;
        let differs = |(now, then): (&f64, &f64)| {
            let apart = (now - then).abs();
            apart > part * now.max(*then) && apart > much
        };
        let changed = basis.counted
            && (self.signature.as_ref())
                .is_some_and(|then| signature.iter().zip(then).any(differs));
        if changed {
            let target = self.target.take();
            *self = Self {
                target,
                present: self.present,
                ..Self::default()
            };
        }
        if self.signature.is_none() || changed {
            self.signature = Some(signature);
        }
        let speed = match basis.counted {
            true => read.first().copied().unwrap_or(1.0).max(1e-9),
            false => 1.0,
        };
        let new = if basis.counted {
            NEW_COUNTED
        } else {
            NEW_SAMPLED
        };
        if self.uses.len() != read.len() {
            self.uses.clear();
        }
        for (place, (way, value)) in basis.ways.iter().zip(read).enumerate() {
            let value = match way.is_rate(basis.counted) {
                true => value / speed,
                false => *value,
            };
            match self.uses.get_mut(place) {
                // Neighbours only ever add misses.
                Some(known) if way.is_misses() && basis.counted => *known = known.min(value),
                Some(known) => *known += new * (value - *known),
                None => self.uses.push(value),
            }
        }
        changed
    }

    /// Its uses at that speed; nothing before any were read.
    pub fn uses(&self, basis: &Basis, speed: f64) -> Option<Vec<f64>> {
        let complete = self.uses.len() == basis.ways.len() && !self.uses.is_empty();
        let ways = basis.ways.iter().zip(&self.uses);
        complete.then(|| {
            ways.map(|(way, value)| match way.is_rate(basis.counted) {
                true => value * speed,
                false => *value,
            })
            .collect()
        })
    }

    /// Whether both execute the same kinds of instructions. How often they miss is their neighbours' doing too.
    pub fn is_like(&self, other: &Self) -> bool {
        let (part, much) = ALIKE;
        let near = |(one, other): (f64, f64)| (one - other).abs() <= part * one.max(other) + much;
        let both = self.signature.zip(other.signature);
        both.is_some_and(|(one, other)| one.into_iter().zip(other).all(near))
    }

    /// Whether the thread spent this period where it spent the last one, with the same others.
    pub fn stayed(&mut self, unit: u32, beside: &[ThreadId]) -> bool {
        let now = Some((unit, beside.to_vec()));
        let same = self.place == now;
        self.place = now;
        same
    }

    /// Remembers a speed next to others. Whether that is another speed than it had next to the same others: then it
    /// does something else, though its instructions are of the same kinds, and all that was known is forgotten.
    pub fn saw(&mut self, beside: Vec<(ThreadId, f64)>, speed: f64) -> bool {
        let ids = |beside: &[(ThreadId, f64)]| -> Vec<ThreadId> {
            beside.iter().map(|(id, _)| *id).collect()
        };
        let now = ids(&beside);
        if let Some(at) = (self.seen.iter()).position(|known| ids(&known.beside) == now) {
            let mut known = self.seen.remove(at);
            let off = (speed - known.speed).abs() > OTHER_SPEED;
            // Once may be chance: another thread may have been there for a moment.
            let other = off && known.off;
            if off && !other {
                known.off = true;
                self.seen.push(known);
                return false;
            }
            known.off = false;
            if other {
                self.seen.clear();
                self.uses.clear();
                self.alone = None;
                known.speed = speed;
            }
            known.speed += 0.5 * (speed - known.speed);
            for ((_, known), (_, now)) in known.beside.iter_mut().zip(&beside) {
                *known += 0.5 * (now - *known);
            }
            self.seen.push(known);
            return other;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.remove(0);
        }
        self.seen.push(Neighbours {
            beside,
            speed,
            off: false,
        });
        false
    }

    /// Forgets what it did next to a thread that is no longer what it was.
    pub fn forget(&mut self, changed: &[ThreadId]) {
        let has = |seen: &Neighbours| seen.beside.iter().any(|(id, _)| changed.contains(id));
        self.seen.retain(|seen| !has(seen));
    }
}
