//! What a thread asks of the machine while it runs a mix: lines, pages, operations.

use super::{homes::Homes, owner::Owner, reuse::Reuse};
use crate::{
    model::{CoreKind, Op},
    stream::{Instruction, Random},
    ways::Ways,
    workload::{Depends, Mix, Pattern, WorkingSet},
};

/// Instructions of a sample.
pub(super) const SAMPLE: usize = 4_096;

/// Bytes of a made-up instruction.
const INSTRUCTION: f64 = 4.0;

/// Lines that a mix visits.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub owner: Owner,
    /// Whether they are fetched rather than loaded and stored.
    pub code: bool,
    /// Visits by one instruction: several accesses in a row to one line are one visit.
    pub visits: f64,
    /// Share of its accesses that write.
    pub written: f64,
    /// Accesses by one visit.
    pub accesses: f64,
    pub lines: f64,
    /// Lines, and pages, from the beginning of the thread's own data to these.
    pub start: f64,
    pub first_page: f64,
    pub reuse: Reuse,
    /// Lines from one visit to the next, if they are visited in order.
    pub step: Option<f64>,
    /// It uses only one set in this many.
    pub skips: f64,
    /// Pages, visits of pages by one instruction, and how it comes back to them.
    pub pages: f64,
    pub page_visits: f64,
    pub page_reuse: Reuse,
}

/// What one instruction of a mix asks for, on the average.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    /// Shares of the operations.
    pub ops: [f64; Op::COUNT],
    /// Share of the instructions that are mispredicted branches.
    pub mispredicted: f64,
    pub lines: Vec<Lines>,
    /// Some instructions as they follow each other.
    pub sample: Box<[Instruction]>,
}

/// Who runs a mix: what decides which lines are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Class {
    pub mix: usize,
    pub program: usize,
    /// The process; 0 if the mix has no shared regions, as then it makes no difference.
    pub process: usize,
    /// The NUMA nodes of its data.
    pub homes: Homes,
    /// Of a recording, which of its threads, from 1; else 0.
    pub recorded: usize,
    /// The ways of caches that it may fill.
    pub ways: Ways,
}

/// A class as numbers, the last one for its ways: the order of classes never depends on which one came first.
pub(super) type Packed = (u128, u64);

/// No thread.
pub(super) const IDLE: Packed = (u128::MAX, u64::MAX);

impl Class {
    /// Packs it. Up to 2^16 mixes, 2^14 programs, 2^18 processes, 2^6 nodes and 2^10 recorded threads are
    /// distinguished, and the homes of 8 regions.
    pub fn pack(self) -> Packed {
        let fields = [
            (self.mix, 16),
            (self.program, 14),
            (self.process, 18),
            (self.homes.own, 6),
            (self.recorded, 10),
        ];
        let regions = u128::from(self.homes.regions);
        let packed = fields.iter().fold(regions, |packed, (value, bits)| {
            packed << bits | (*value as u128 & ((1 << bits) - 1))
        });
        (packed, self.ways.pack())
    }
}

/// A class with what it asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub class: Class,
    pub packed: Packed,
    pub demand: Demand,
}

impl Demand {
    /// Loads and stores by one instruction.
    pub fn accesses(&self) -> f64 {
        self.ops[Op::Load as usize] + self.ops[Op::Store as usize]
    }

    /// The part of them that the thread waits for; 1 if there are none.
    pub fn loads(&self) -> f64 {
        match self.accesses() > 0.0 {
            true => self.ops[Op::Load as usize] / self.accesses(),
            false => 1.0,
        }
    }

    /// Cycles for which one instruction's floating-point operations are in a unit.
    pub fn fp_cycles(&self, kind: &CoreKind) -> f64 {
        let of = |op: Op| self.ops[op as usize] * f64::from(kind.latencies[op as usize].cycles);
        of(Op::Fp) + of(Op::FpDivide)
    }

    /// Lines fetched by one instruction.
    pub fn fetches(&self) -> f64 {
        let code = self.lines.iter().filter(|lines| lines.code);
        code.map(|lines| lines.visits).sum()
    }

    /// Of a class, on a machine with lines of `line` bytes and pages of `page` bytes. `regions` are the names of all
    /// regions.
    pub fn new(mix: &Mix, class: Class, regions: &[String], line: f64, page: f64) -> Self {
        let total: f64 = mix.shares.iter().sum();
        let ops = mix.shares.map(|share| share / total.max(f64::MIN_POSITIVE));
        let (loads, stores) = (ops[Op::Load as usize], ops[Op::Store as usize]);
        let accesses = loads + stores;
        let written = if accesses > 0.0 {
            stores / accesses
        } else {
            0.0
        };
        let code_bytes = (mix.code_bytes.max(4) / 4 * 4) as f64;
        let code_lines = (code_bytes / line).ceil();
        let mut lines = vec![Lines {
            owner: Owner::Code(class.program, class.mix),
            code: true,
            visits: if code_lines > 1.0 {
                INSTRUCTION / line
            } else {
                0.0
            },
            written: 0.0,
            accesses: 1.0,
            lines: code_lines,
            start: 0.0,
            first_page: 0.0,
            reuse: Reuse::cyclic(code_lines),
            step: Some(1.0),
            skips: 1.0,
            pages: 1.0,
            page_visits: 0.0,
            page_reuse: Reuse::cyclic(1.0),
        }];
        let weights: f64 = mix.working_sets.iter().map(|set| set.share).sum();
        let mut own = 0;
        lines.extend(mix.working_sets.iter().map(|set| {
            let accesses = accesses * set.share / weights;
            let name = set.region.as_ref();
            let region = name.and_then(|name| regions.iter().position(|other| other == name));
            let owner = region.map_or(Owner::Thread, |at| Owner::Region(class.process, at));
            let lines = Lines::of_set(set, owner, accesses, written, line, page);
            let start = own as f64;
            if owner == Owner::Thread {
                own += set.room();
            }
            Lines {
                start: (start / line).floor(),
                first_page: (start / page).floor(),
                ..lines
            }
        }));
        if mix.working_sets.is_empty() && accesses > 0.0 {
            // They all touch the line where the code begins.
            let set = WorkingSet {
                bytes: 8,
                share: 1.0,
                pattern: Pattern::Random,
                stride: 8,
                region: None,
            };
            lines.push(Lines::of_set(
                &set,
                Owner::Thread,
                accesses,
                written,
                line,
                page,
            ));
        }
        Self {
            ops,
            mispredicted: ops[Op::Branch as usize] * mix.mispredicted,
            lines,
            sample: sample(mix, Random::new(class.mix as u64)),
        }
    }
}

/// Instructions of a mix in which every sort has its share, in random order.
fn sample(mix: &Mix, mut random: Random) -> Box<[Instruction]> {
    let total: f64 = mix.shares.iter().sum();
    let (mut sorts, mut sum, mut wrong) = (Vec::with_capacity(SAMPLE), 0.0, 0.0);
    for op in Op::ALL {
        sum += mix.shares[op as usize] / total * SAMPLE as f64;
        while sorts.len() < (sum.round() as usize).min(SAMPLE) {
            wrong += if op == Op::Branch {
                mix.mispredicted
            } else {
                0.0
            };
            let mispredicted = wrong >= 0.5;
            wrong -= f64::from(u8::from(mispredicted));
            sorts.push((op, mispredicted));
        }
    }
    random.shuffle(&mut sorts);
    let distances = distances(&mix.depends, random.part(1));
    let code = (mix.code_bytes.max(4) / 4) as usize;
    let instruction = |(at, (op, mispredicted))| Instruction {
        op,
        depends: distances[at],
        extra: mix.extra,
        mispredicted,
        at: (at % code * 4) as u64,
        data: 0,
    };
    sorts.into_iter().enumerate().map(instruction).collect()
}

/// The distance of each instruction's dependency: every distance has its share, in random order.
fn distances(depends: &Depends, mut random: Random) -> Vec<u16> {
    let shares = match depends {
        Depends::Always(distance) => return vec![*distance; SAMPLE],
        Depends::Shares(shares) => shares,
    };
    let (mut distances, mut sum) = (Vec::with_capacity(SAMPLE), 0.0);
    for (distance, share) in (0..).zip(shares) {
        sum += share * SAMPLE as f64;
        distances.resize((sum.round() as usize).min(SAMPLE), distance);
    }
    distances.resize(SAMPLE, 0);
    random.shuffle(&mut distances);
    distances
}

impl Lines {
    /// The part of the lines that go out of a cache, `visits` by one instruction, that anything wrote to while they were
    /// there.
    pub fn dirty(&self, visits: f64) -> f64 {
        let stay = self.visits * self.accesses / visits.max(1e-30);
        1.0 - (1.0 - self.written).powf(stay.min(1e9))
    }

    /// Stores by one instruction.
    pub fn stores(&self) -> f64 {
        self.visits * self.accesses * self.written
    }

    fn of_set(
        set: &WorkingSet,
        owner: Owner,
        accesses: f64,
        written: f64,
        line: f64,
        page: f64,
    ) -> Self {
        let bytes = set.bytes.max(8) as f64;
        let units = |unit: f64| (bytes / unit).ceil();
        let stride = (set.stride.max(1) as f64).min(bytes);
        let (visits, page_visits, lines, pages, skips) = match set.pattern {
            Pattern::Random => (accesses, accesses, units(line), units(page), 1.0),
            Pattern::Stride => (
                accesses * (stride / line).min(1.0),
                accesses * (stride / page).min(1.0),
                units(stride.max(line)),
                units(stride.max(page)),
                power_of_two_part(stride / line),
            ),
        };
        let reuse = |number: f64| match set.pattern {
            Pattern::Random => Reuse::random(number),
            Pattern::Stride => Reuse::cyclic(number),
        };
        Self {
            owner,
            code: false,
            visits,
            written,
            accesses: if visits > 0.0 { accesses / visits } else { 1.0 },
            lines,
            start: 0.0,
            first_page: 0.0,
            reuse: reuse(lines),
            step: match set.pattern {
                Pattern::Random => None,
                Pattern::Stride => Some((stride / line).max(1.0)),
            },
            skips,
            pages,
            page_visits,
            page_reuse: reuse(pages),
        }
    }
}

/// The greatest power of two that divides a number of lines, N. A stride of N lines uses only one set in that many.
fn power_of_two_part(lines: f64) -> f64 {
    if lines < 1.0 || lines.fract() != 0.0 {
        return 1.0;
    }
    (1u64 << (lines as u64).trailing_zeros().min(20)) as f64
}
