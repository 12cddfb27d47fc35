//! Instructions made up from a mix: shares of operations, dependencies, working sets, branches.

use super::{
    Instruction, Random,
    distances::{BITS, Distances},
};
use crate::{
    model::Op,
    workload::{Depends, Mix, Pattern},
};

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;

/// Operations are drawn from this many places: shares are exact to a 4096th.
const PLACES: u32 = 4096;

/// Bits of a number that decide what an operation does; those above decide its dependency, the highest what it is.
const LOW: u32 = 32;

const _: () = assert!(LOW + BITS + PLACES.ilog2() <= 64);

/// Groups of places that lie side by side.
const GROUPS: usize = 256;

/// One working set as the stream walks through it.
#[derive(Debug, Clone)]
struct Walk {
    /// The first address.
    base: u64,
    bytes: u64,
    pattern: Pattern,
    stride: u64,
    /// Where the last access was, in bytes from the base.
    at: u64,
    /// Accesses are to this set while a number drawn from 2^32 is below.
    below: u64,
}

/// A thread's instructions while it runs one mix.
#[derive(Debug, Clone)]
pub struct MixStream {
    random: Random,
    /// The place where each operation's end, by its number; the last one's are all the rest.
    ends: [u16; Op::COUNT],
    /// The operation of the first place of each group of places: a table of all would fill the host's caches.
    firsts: Box<[Op; GROUPS]>,
    /// Distance to the instruction on which one depends, if all have the same; 0: none depends.
    depends: u16,
    /// Else what it is drawn from.
    distances: Option<Distances>,
    extra: u16,
    /// A branch is mispredicted while a number drawn from 2^32 is below.
    mispredicted: u64,
    code: u64,
    code_bytes: u64,
    at: u64,
    walks: Vec<Walk>,
}

impl MixStream {
    /// The stream of a mix. `code` is where its instructions stand; `bases` where each of its working sets begins.
    pub fn new(mix: &Mix, code: u64, bases: &[u64], random: Random) -> Self {
        let total: f64 = mix.shares.iter().sum();
        let (mut end, mut sum) = (0, 0.0);
        let mut ends = mix.shares.map(|share| {
            sum += share;
            end = ((sum / total * f64::from(PLACES)).round() as u16).max(end);
            end
        });
        // There is no operation behind the last one.
        ends[Op::COUNT - 1] = u16::MAX;
        let mut op = 0;
        let firsts = std::array::from_fn(|group| {
            while usize::from(ends[op]) <= group * (PLACES as usize / GROUPS) {
                op += 1;
            }
            Op::ALL[op]
        });
        let weights: f64 = mix.working_sets.iter().map(|set| set.share).sum();
        let mut share = 0.0;
        let walks = mix
            .working_sets
            .iter()
            .zip(bases)
            .map(|(set, base)| {
                share += set.share / weights;
                Walk {
                    base: *base,
                    bytes: set.bytes.max(8),
                    pattern: set.pattern,
                    stride: set.stride,
                    at: 0,
                    below: (share * 2f64.powi(32)).round() as u64,
                }
            })
            .collect();
        Self {
            random,
            ends,
            firsts: Box::new(firsts),
            depends: match mix.depends {
                Depends::Always(distance) => distance,
                Depends::Shares(_) => 0,
            },
            distances: match &mix.depends {
                Depends::Always(_) => None,
                Depends::Shares(shares) => Some(Distances::new(shares)),
            },
            extra: mix.extra,
            mispredicted: (mix.mispredicted * 2f64.powi(32)).round() as u64,
            code,
            code_bytes: mix.code_bytes.max(INSTRUCTION) / INSTRUCTION * INSTRUCTION,
            at: 0,
            walks,
        }
    }

    /// Where its code begins, how many bytes that is, and through how many of them one instruction goes.
    pub fn code_span(&self) -> (u64, u64, f64) {
        (self.code, self.code_bytes, INSTRUCTION as f64)
    }

    /// The same of each working set; an access goes through no more than a line.
    pub fn data_spans(&self, line: u64) -> impl Iterator<Item = (u64, u64, f64)> {
        let first = self.ends[Op::Load as usize - 1];
        let accesses = f64::from(self.ends[Op::Store as usize] - first) / f64::from(PLACES);
        let mut before = 0;
        self.walks.iter().map(move |walk| {
            let share = (walk.below - before) as f64 / 2f64.powi(32);
            before = walk.below;
            let each = match walk.pattern {
                Pattern::Random => line,
                Pattern::Stride => walk.stride.min(line),
            };
            (walk.base, walk.bytes, accesses * share * each as f64)
        })
    }

    /// The next instructions.
    pub fn fill(&mut self, into: &mut [Instruction]) {
        let mut at = self.at;
        for instruction in into {
            let draw = self.random.next();
            let place = (draw >> (64 - PLACES.ilog2())) as u16;
            let mut op = self.firsts[usize::from(place) * GROUPS / PLACES as usize];
            while self.ends[op as usize] <= place {
                op = Op::ALL[(op as usize + 1) % Op::COUNT];
            }
            let low = low_bits(draw, LOW);
            instruction.op = op;
            // Neither the operation nor what else is decided by the lower half uses these bits.
            instruction.depends = match &self.distances {
                None => self.depends,
                Some(distances) => distances.draw(low_bits(draw >> LOW, BITS)),
            };
            instruction.extra = self.extra;
            instruction.mispredicted = (op == Op::Branch) & (low < self.mispredicted);
            instruction.at = self.code + at;
            instruction.data = 0;
            if matches!(op, Op::Load | Op::Store) {
                instruction.data = self.data(low);
            }
            let next = at + INSTRUCTION;
            at = if next < self.code_bytes { next } else { 0 };
        }
        self.at = at;
    }

    /// The next instruction.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> Instruction {
        let mut next = [Instruction {
            op: Op::Alu,
            depends: 0,
            extra: 0,
            mispredicted: false,
            at: 0,
            data: 0,
        }];
        self.fill(&mut next);
        let [next] = next;
        next
    }

    #[inline]
    fn data(&mut self, draw: u64) -> u64 {
        let chosen = match self.walks.len() {
            0 => return self.code,
            1 => 0,
            sets => {
                let chosen = self.walks.iter().position(|walk| draw < walk.below);
                chosen.unwrap_or(sets - 1)
            }
        };
        let walk = &mut self.walks[chosen];
        walk.at = match walk.pattern {
            Pattern::Random => self.random.below(walk.bytes) & !7,
            Pattern::Stride => {
                let next = walk.at + walk.stride;
                if next < walk.bytes {
                    next
                } else {
                    next % walk.bytes
                }
            }
        };
        walk.base + walk.at
    }
}

fn low_bits(number: u64, bits: u32) -> u64 {
    number & ((1 << bits) - 1)
}
