//! One hardware context: its thread's next instructions, when results are there, and what its cycles went to.

use crate::{
    counters::Counters,
    model::{CoreKind, Op},
    stream::Instruction,
};

/// This many instructions are fetched from the thread at once.
const AHEAD: usize = 16;

/// No cycle of any run: with room below it for a context's number.
pub(super) const NEVER: u64 = u64::MAX >> 6;

/// What stands where no instruction is.
const NOTHING: Instruction = Instruction {
    op: Op::Alu,
    depends: 0,
    extra: 0,
    mispredicted: false,
    at: 0,
    data: 0,
};

/// A hardware context.
#[derive(Debug, Clone)]
pub(super) struct Context {
    /// The thread that is on it and has instructions.
    pub thread: Option<u32>,
    /// The next instruction in `buffer`.
    next: u8,
    /// Where those in `buffer` end.
    end: u8,
    /// The line of code that was fetched last.
    pub line: u64,
    /// Instructions so far.
    count: u64,
    /// The latest completion of all.
    pub last_completion: u64,
    /// When the last load or fetch is there that missed level 1.
    pub memory_until: u64,
    /// The first cycle in which the next instruction could issue if the core were its own.
    pub able: u64,
    /// When each of the last results is there, by number modulo the length; empty if none is ever asked for.
    completion: Box<[u64]>,
    /// When each of these would have been there if all loads had hit the first level; empty if that is never asked for.
    expected: Box<[u64]>,
    /// The micro-operations of each, if instructions have several; else empty.
    micro_ops: Box<[u32]>,
    /// Micro-operations of the last instructions, from number `oldest` on: those that the window held last.
    in_window: u64,
    oldest: u64,
    buffer: [Instruction; AHEAD],
    pub counters: Counters,
    /// Whether its cycles belong to a thread: from the time when one came until it was taken off.
    pub taken: bool,
    /// The cycles before this one are counted.
    counted: u64,
    /// What was counted when all was counted last: the cycle, and how many before it had a floating-point instruction.
    settled: u64,
    settled_fp_cycles: u64,
}

impl Context {
    /// An idle one of this kind of core, which remembers `remembered` results, a power of two or 0.
    pub fn new(kind: &CoreKind, remembered: usize) -> Self {
        let several = kind.micro_ops.iter().any(|number| *number > 1);
        let replays = kind.replay > 0;
        Self {
            expected: vec![0; if replays { remembered } else { 0 }].into(),
            micro_ops: vec![0; if several { remembered } else { 0 }].into(),
            in_window: 0,
            oldest: 0,
            thread: None,
            next: 0,
            end: 0,
            line: u64::MAX,
            count: 0,
            last_completion: 0,
            memory_until: 0,
            able: NEVER,
            completion: vec![0; remembered].into_boxed_slice(),
            buffer: [NOTHING; AHEAD],
            counters: Counters::default(),
            taken: false,
            counted: 0,
            settled: 0,
            settled_fp_cycles: 0,
        }
    }

    /// A new thread depends on nothing of the thread before it.
    pub fn forget(&mut self, cycle: u64) {
        (self.next, self.end) = (0, 0);
        self.line = u64::MAX;
        self.completion.fill(0);
        self.expected.fill(0);
        (self.in_window, self.oldest) = (0, self.count);
        self.last_completion = cycle;
        self.memory_until = 0;
        self.able = NEVER;
    }

    /// The instructions that were fetched and not issued.
    pub fn rest(&self) -> &[Instruction] {
        &self.buffer[usize::from(self.next)..usize::from(self.end)]
    }

    /// The next instruction, which is there while `able` is not never.
    #[inline]
    pub fn pending(&self) -> &Instruction {
        &self.buffer[usize::from(self.next) % AHEAD]
    }

    /// Goes on to the next instruction, of those that `fill` brings if there is none left. Returns whether there is one.
    #[inline]
    pub fn advance(&mut self, fill: impl FnOnce(&mut [Instruction]) -> usize) -> bool {
        self.next += 1;
        if self.next >= self.end {
            self.next = 0;
            self.end = fill(&mut self.buffer).min(AHEAD) as u8;
        }
        self.end > 0
    }

    /// Remembers when the result is there of the instruction that issues now.
    #[inline]
    pub fn complete(&mut self, at: u64) {
        if !self.completion.is_empty() {
            let mask = self.completion.len() - 1;
            self.completion[self.count as usize & mask] = at;
        }
        self.count += 1;
        self.last_completion = self.last_completion.max(at);
    }

    /// Remembers when the same would be there if all loads had hit the first level; before [`Self::complete`].
    #[inline]
    pub fn expect(&mut self, at: u64) {
        let mask = self.expected.len().wrapping_sub(1);
        if let Some(expected) = self.expected.get_mut(self.count as usize & mask) {
            *expected = at;
        }
    }

    /// The same of the instruction that is `back` back from the next one.
    #[inline]
    pub fn expected(&self, back: u64) -> u64 {
        match back == 0 || back > self.count || back as usize > self.expected.len() {
            true => 0,
            false => self.expected[(self.count - back) as usize & (self.expected.len() - 1)],
        }
    }

    /// When the next instruction, of `next` micro-operations, has room in a window of `window` of them. The one that issued
    /// last has `last`. The oldest that do not fit into the window beside the next one must be complete by then.
    #[inline]
    pub fn room(&mut self, window: u64, last: u32, next: u32) -> u64 {
        let mask = self.micro_ops.len() - 1;
        self.micro_ops[(self.count - 1) as usize & mask] = last;
        self.in_window += u64::from(last);
        let mut room = 0;
        // The ring is at least as long as the window, and each has one at least.
        while self.oldest < self.count && self.in_window + u64::from(next) > window {
            let place = self.oldest as usize & mask;
            room = room.max(self.completion[place]);
            self.in_window -= u64::from(self.micro_ops[place]);
            self.oldest += 1;
        }
        room
    }

    /// When the instruction is complete that is `back` back from the next one.
    #[inline]
    pub fn back(&self, back: u64) -> u64 {
        let mask = self.completion.len().wrapping_sub(1);
        if back == 0 || back > self.count || back > mask as u64 || self.completion.is_empty() {
            return 0;
        }
        self.completion[(self.count - back) as usize & mask]
    }

    /// An instruction issues in this cycle: those before, since the last issue, were stalls.
    #[inline]
    pub fn count_issue(&mut self, cycle: u64) {
        if cycle >= self.counted {
            // There are none if it issued in the cycle before; the host could not predict a branch on that.
            self.count_stalls(cycle);
            self.counters.issue_cycles += 1;
            self.counted = cycle + 1;
        }
    }

    /// Nothing has issued up to this cycle, which is not counted yet, since those that are.
    #[inline]
    pub fn count_stalls(&mut self, cycle: u64) {
        let own = self.able.clamp(self.counted, cycle);
        self.counters.stall_cycles += cycle - self.counted;
        self.counters.contention_cycles += cycle - own;
        self.counters.memory_stall_cycles +=
            self.memory_until.min(own).saturating_sub(self.counted);
        self.counted = cycle;
    }

    /// Counts what the cycles before this one went to, if they belong to a thread. `fp_cycles` of the core's cycles had
    /// a floating-point instruction in a unit until then.
    pub fn settle(&mut self, cycle: u64, fp_cycles: u64) {
        if self.taken {
            self.count_stalls(cycle);
            let busy = fp_cycles - self.settled_fp_cycles;
            self.counters.fp_empty_cycles += cycle - self.settled - busy;
        }
        self.counted = cycle;
        self.settled = cycle;
        self.settled_fp_cycles = fp_cycles;
    }
}
