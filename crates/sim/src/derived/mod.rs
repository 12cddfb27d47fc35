//! A mix that resembles a recording: what statistical simulation calls a profile (Genbrugge, Eeckhout and De Bosschere,
//! Accurate memory data flow modeling in statistical simulation, ICS 2006).

mod fit;
mod text;

pub use text::text;

use crate::{
    model::Op,
    reuse_times::{Histogram, LastVisits},
    stream::RecordedStream,
    workload::{Depends, FURTHEST, Mix, Trace},
};
use rustc_hash::FxHashMap;

/// Bytes of a line, in which reuse is counted.
const LINE: u64 = 64;

/// A streaming access comes back to its line after more accesses than this; else it makes no difference in which order
/// lines are visited, since all first levels hold them.
const STREAM: u64 = 256;

/// Bytes of an instruction of a mix.
const INSTRUCTION: f64 = 4.0;

/// The code of a mix is a loop, of which a cache holds all or nothing. It gets the size of a cache that would miss this
/// share of the recorded visits of lines of code.
const CODE_MISSES: f64 = 0.01;

/// Shares below are not modelled: streams draw operations from this many places.
const PLACES: f64 = 4096.0;

/// What was found.
#[derive(Debug, Clone)]
pub struct Derived {
    /// The mix.
    pub mix: Mix,
    /// Operations of the recording.
    pub operations: u64,
    /// Of these, loads and stores.
    pub accesses: u64,
    /// Different lines of 64 bytes of data and of code.
    pub lines: [u64; 2],
}

/// What is counted of one pass through a recording.
#[derive(Default)]
struct Counted {
    ops: [u64; Op::COUNT],
    distances: Vec<u64>,
    mispredicted: u64,
    /// Reuse times of data that are visited line by line, in accesses.
    streams: Histogram,
    /// Of all others.
    others: Histogram,
    /// Of code, in visits of lines.
    code: Histogram,
}

/// Walks through a recording.
#[derive(Default)]
struct Walk {
    data: LastVisits,
    code: LastVisits,
    code_line: u64,
    /// The line that each instruction visited last, by its address and what it does, and whether it had come from a
    /// neighbouring line.
    before: FxHashMap<(u64, Op), (u64, bool)>,
}

/// The mix of a recorded thread, counted from 0; `None` if it has no instructions. The recording is walked twice, and
/// counted the second time: the simulator repeats recordings, too.
pub fn mix(trace: &Trace, thread: usize, name: &str) -> Option<Derived> {
    let mut stream = RecordedStream::new(&trace.with_thread(Some(thread)), 0, 0)?;
    let (mut walk, mut counted) = (Walk::default(), Counted::default());
    counted.distances = vec![0; usize::from(FURTHEST) + 1];
    for pass in 0..2 {
        let mut of_pass = (pass == 1).then_some(&mut counted);
        loop {
            let operation = stream.next();
            // The first operation of the next pass is one of this pass, too.
            walk.step(&operation, of_pass.as_deref_mut());
            if stream.passes() > pass {
                break;
            }
        }
    }
    Some(counted.derived(name, &walk))
}

impl Walk {
    fn step(&mut self, operation: &crate::stream::Instruction, counted: Option<&mut Counted>) {
        let line = operation.at / LINE;
        let fetched = (line != self.code_line).then(|| self.code.visit(line));
        self.code_line = line;
        let touched = matches!(operation.op, Op::Load | Op::Store).then(|| {
            let line = operation.data / LINE;
            let key = (operation.at, operation.op);
            let streams = match self.before.get(&key) {
                Some((before, streams)) if *before == line => *streams,
                Some((before, _)) => before.abs_diff(line) == 1,
                None => false,
            };
            self.before.insert(key, (line, streams));
            (self.data.visit(line), streams)
        });
        let Some(counted) = counted else {
            return;
        };
        counted.ops[operation.op as usize] += 1;
        counted.distances[usize::from(operation.depends.min(FURTHEST))] += 1;
        counted.mispredicted += u64::from(operation.mispredicted);
        if let Some(Some(after)) = fetched {
            counted.code.add(after);
        }
        match touched {
            Some((Some(after), true)) if after > STREAM => counted.streams.add(after),
            Some((Some(after), _)) => counted.others.add(after),
            _ => {}
        }
    }
}

impl Counted {
    fn derived(&self, name: &str, walk: &Walk) -> Derived {
        let operations: u64 = self.ops.iter().sum();
        let branches = self.ops[Op::Branch as usize].max(1);
        let accesses = self.ops[Op::Load as usize] + self.ops[Op::Store as usize];
        let shares = self.ops.map(|count| {
            let share = count as f64 / operations.max(1) as f64;
            if share < 1.0 / PLACES { 0.0 } else { share }
        });
        let distances: Vec<(u16, f64)> = (0..)
            .zip(&self.distances)
            .map(|(distance, count)| (distance, *count as f64))
            .collect();
        Derived {
            mix: Mix {
                name: name.to_owned(),
                shares,
                depends: Depends::listed(&distances).unwrap_or_default(),
                extra: 0,
                mispredicted: self.mispredicted as f64 / branches as f64,
                code_bytes: self.code_bytes(walk.code.different() as f64, operations),
                working_sets: fit::working_sets(&self.streams, &self.others),
                trace: None,
            },
            operations,
            accesses,
            lines: [&walk.data, &walk.code].map(|visits| visits.different() as u64),
        }
    }

    /// The size of the loop that stands for the code.
    fn code_bytes(&self, lines: f64, operations: u64) -> u64 {
        let visits = self.code.visits().max(1) as f64;
        // A loop visits a new line more rarely than a program that branches.
        let rarer = visits * LINE as f64 / INSTRUCTION / operations.max(1) as f64;
        let misses = CODE_MISSES / rarer.max(1.0);
        let size = fit::distances(&self.code)
            .find(|(_, farther)| *farther <= misses)
            .map_or(lines, |(size, _)| size);
        (size.clamp(1.0, lines.max(1.0)) * LINE as f64) as u64
    }
}
