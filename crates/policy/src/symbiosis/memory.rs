//! What is remembered of a thread: what it would use alone, and how fast it was beside whom.

use super::uses::{Basis, SIGNATURE, Values};
use perch_core::{PuSet, Reason, ThreadId};

/// Weight of a new value in the mean of those before.
const NEW_COUNTED: f64 = 0.4;
const NEW_SAMPLED: f64 = 0.2;

/// A share that changes by more than this part of it and by more than this much: another phase.
const OTHER_PHASE: (f64, f64) = (0.3, 0.04);

/// Neighbourhoods remembered of each thread.
const REMEMBERED: usize = 48;

/// One thread's.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Its uses: rates for each unit of speed, others as they are.
    uses: Vec<f64>,
    /// Its speed alone, if speeds are counted.
    pub speed: Option<f64>,
    signature: Option<[f64; SIGNATURE.len()]>,
    /// The lowest PU of the unit on which it was, and who was there with it.
    place: Option<(u32, Vec<ThreadId>)>,
    /// Speeds beside others, the latest last.
    pub seen: Vec<Neighbours>,
    /// Where it is to be, and why.
    pub target: Option<(PuSet, Reason)>,
}

/// Who was on its unit, and how fast it was.
#[derive(Debug, Clone)]
pub(super) struct Neighbours {
    pub beside: Vec<ThreadId>,
    /// Logarithm of its speed, less what it lost to others elsewhere.
    pub speed: f64,
}

impl Memory {
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

    /// Whether the thread spent this period where it spent the last one, with the same others.
    pub fn stayed(&mut self, unit: u32, beside: &[ThreadId]) -> bool {
        let now = Some((unit, beside.to_vec()));
        let same = self.place == now;
        self.place = now;
        same
    }

    /// Remembers a speed beside others.
    pub fn saw(&mut self, beside: Vec<ThreadId>, speed: f64) {
        if let Some(at) = self.seen.iter().position(|known| known.beside == beside) {
            let mut known = self.seen.remove(at);
            known.speed += 0.5 * (speed - known.speed);
            self.seen.push(known);
            return;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.remove(0);
        }
        self.seen.push(Neighbours { beside, speed });
    }

    /// Forgets what it did beside a thread that is no longer what it was.
    pub fn forget(&mut self, changed: &[ThreadId]) {
        let has = |seen: &Neighbours| seen.beside.iter().any(|id| changed.contains(id));
        self.seen.retain(|seen| !has(seen));
    }
}
