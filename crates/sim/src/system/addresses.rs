//! Where programs' code and data lie.

use crate::{
    stream::Random,
    workload::{Mix, ProgramModel, Step, WorkingSet},
};
use std::{collections::HashMap, sync::Arc};

/// Bytes of a page: nothing of two owners lies in one.
const PAGE: u64 = 4096;

/// Bytes between the places in a page at which things begin.
const STEP: u64 = 64;

/// Gives out addresses, each once. Where in its first page a thing begins is chance, as it is on a real machine: else all
/// would meet in the same sets of the caches.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    next: u64,
    random: Random,
    /// The code of each mix of each program: its processes share it, and so do programs of the same name.
    code: HashMap<(usize, usize), u64>,
}

impl Addresses {
    pub(super) fn new(random: Random) -> Self {
        Self {
            next: PAGE,
            random,
            code: HashMap::new(),
        }
    }

    /// Room for `bytes` bytes.
    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        let base = self.next + STEP * self.random.below(PAGE / STEP);
        self.next = (base + bytes.max(1)).next_multiple_of(PAGE);
        base
    }

    /// Where the code of each mix of a program begins.
    pub(super) fn code(&mut self, program: usize, mixes: &[Mix]) -> Vec<u64> {
        let mut bases = Vec::new();
        for (number, mix) in mixes.iter().enumerate() {
            let base = match self.code.get(&(program, number)) {
                Some(base) => *base,
                None => self.take(mix.code_bytes),
            };
            self.code.insert((program, number), base);
            bases.push(base);
        }
        bases
    }

    /// Where the memory of each recording begins that a process of this program executes: one place for all its threads,
    /// another for each process. Begins with a page, so that what lay in one page still does.
    /// Returns where each begins and how many bytes it has.
    pub(super) fn recordings(
        &mut self,
        program: &ProgramModel,
        mixes: &[Mix],
        code: &mut [u64],
    ) -> Vec<(u64, u64)> {
        let steps = program.threads.iter().flat_map(|thread| &thread.steps);
        let mut placed = HashMap::new();
        for step in steps {
            let Step::Compute { mix, .. } = step else {
                continue;
            };
            if let Some(trace) = &mixes[*mix].trace {
                let bytes = trace.layout().bytes();
                let taken = || (self.take(bytes + PAGE).next_multiple_of(PAGE), bytes);
                let recording = Arc::as_ptr(trace.recording());
                code[*mix] = placed.entry(recording).or_insert_with(taken).0;
            }
        }
        placed.into_values().collect()
    }
}

/// Bytes of a thread's own data: those of the mix that has most, since one after the other uses the same.
pub(super) fn own_bytes(mixes: &[Mix]) -> u64 {
    let of_one = |mix: &Mix| -> u64 {
        let own = mix.working_sets.iter().filter(|set| set.region.is_none());
        own.map(WorkingSet::room).sum()
    };
    mixes.iter().map(of_one).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_of_two_owners_lies_in_one_page(sizes in proptest::collection::vec(0u64..100_000, 1..50), seed in any::<u64>()) {
            let mut addresses = Addresses::new(Random::new(seed));
            let mut end = 0;
            for bytes in sizes {
                let base = addresses.take(bytes);
                prop_assert!(base / PAGE >= end);
                end = (base + bytes.max(1)).div_ceil(PAGE);
            }
        }
    }
}
