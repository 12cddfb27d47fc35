//! What is in a recording, in numbers.

use crate::{Class, Cursor, Instruction, Recording};
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

/// Bytes of a line, as far as summaries count lines.
pub const LINE: u64 = 64;

/// What one thread did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ThreadSummary {
    /// Its number, from 1, in the order in which threads began.
    pub thread: usize,
    /// Instructions.
    pub instructions: u64,
    /// Instructions of each class, by name.
    pub classes: BTreeMap<&'static str, u64>,
    /// Accesses that read, those of instructions that compute too.
    pub loads: u64,
    /// Accesses that write.
    pub stores: u64,
    /// Branches that were taken.
    pub taken: u64,
    /// Different lines of 64 bytes that data lie in.
    pub data_lines: u64,
    /// Different lines of 64 bytes that instructions lie in.
    pub code_lines: u64,
}

/// What is in a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The program, as it was started; empty if that is not known.
    pub program: String,
    /// Different instructions.
    pub distinct_instructions: usize,
    /// Its threads.
    pub threads: Vec<ThreadSummary>,
}

impl Summary {
    /// Walks through a recording.
    pub fn of(recording: &Arc<Recording>) -> Self {
        let mut tally = Tally::default();
        for thread in 0..recording.threads().len() {
            let Some(mut cursor) = Cursor::new(Arc::clone(recording), thread) else {
                continue;
            };
            while let Some(instruction) = cursor.next() {
                tally.add(thread, &instruction);
            }
        }
        tally.finish(
            &recording.program,
            recording.table().codes().len(),
            recording.threads().len(),
        )
    }

    /// Instructions of all threads.
    pub fn instructions(&self) -> u64 {
        self.threads.iter().map(|thread| thread.instructions).sum()
    }
}

/// Counts instructions as they come.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<Counts>);

#[derive(Debug, Default)]
struct Counts {
    classes: [u64; Class::COUNT],
    loads: u64,
    stores: u64,
    taken: u64,
    data: FxHashSet<u64>,
    code: FxHashSet<u64>,
    /// The lines that were added last, by their lowest bits: most accesses go there again.
    recent: Vec<u64>,
    code_line: u64,
}

/// Places of [`Counts::recent`].
const RECENT: usize = 1024;

impl Tally {
    /// Counts an instruction of a thread.
    #[inline]
    pub(crate) fn add(&mut self, thread: usize, instruction: &Instruction<'_>) {
        if self.0.len() <= thread {
            self.0.resize_with(thread + 1, Counts::default);
        }
        let counts = &mut self.0[thread];
        let code = instruction.code;
        counts.classes[code.class as usize] += 1;
        counts.taken += u64::from(instruction.taken);
        let line = code.address / LINE + 1;
        if line != counts.code_line {
            counts.code_line = line;
            counts.code.insert(line);
        }
        for (access, address) in code.accesses.iter().zip(instruction.addresses) {
            match access.store {
                true => counts.stores += 1,
                false => counts.loads += 1,
            }
            let last = address.saturating_add(u64::from(access.bytes.max(1)) - 1) / LINE;
            for line in address / LINE..=last {
                counts.touch(line + 1);
            }
        }
    }

    pub(crate) fn finish(self, program: &str, distinct: usize, threads: usize) -> Summary {
        let mut counts = self.0;
        counts.resize_with(threads, Counts::default);
        let threads = counts.into_iter().enumerate().map(|(number, counts)| {
            let classes = Class::ALL.into_iter().zip(counts.classes);
            ThreadSummary {
                thread: number + 1,
                instructions: counts.classes.iter().sum(),
                classes: classes
                    .map(|(class, count)| (class.name(), count))
                    .collect(),
                loads: counts.loads,
                stores: counts.stores,
                taken: counts.taken,
                data_lines: counts.data.len() as u64,
                code_lines: counts.code.len() as u64,
            }
        });
        Summary {
            program: program.to_owned(),
            distinct_instructions: distinct,
            threads: threads.collect(),
        }
    }
}

impl Counts {
    #[inline]
    fn touch(&mut self, line: u64) {
        if self.recent.is_empty() {
            self.recent.resize(RECENT, 0);
        }
        let place = &mut self.recent[line as usize % RECENT];
        if *place != line {
            *place = line;
            self.data.insert(line);
        }
    }
}
