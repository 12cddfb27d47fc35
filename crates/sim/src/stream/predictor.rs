//! Which branches of a recording are mispredicted: a small predictor of the well-known sort, each thread its own.
//!
//! Conditional branches: gshare (McFarling, Combining branch predictors, WRL TN-36, 1993, section 7): two-bit counters,
//! found by the address exclusive-or the outcomes of the last branches. Indirect ones: the target that the same branch had
//! the last time. Returns: a stack of return addresses. Direct jumps and calls are always right.

use perch_trace::{Branch, Code};

/// Counters of gshare: 2^14, that is 4 KiB of state.
const COUNTERS: usize = 1 << 14;

/// Outcomes that are remembered.
const HISTORY: u64 = (1 << 12) - 1;

/// Targets that are remembered.
const TARGETS: usize = 1024;

/// Return addresses that are remembered.
const RETURNS: usize = 16;

/// The state.
#[derive(Debug, Clone)]
pub struct Predictor {
    /// 0 and 1: not taken; 2 and 3: taken.
    counters: Vec<u8>,
    history: u64,
    targets: Vec<u64>,
    /// A ring, of which the oldest are lost.
    returns: [u64; RETURNS],
    depth: usize,
}

impl Default for Predictor {
    fn default() -> Self {
        Self {
            counters: vec![1; COUNTERS],
            history: 0,
            targets: vec![0; TARGETS],
            returns: [0; RETURNS],
            depth: 0,
        }
    }
}

impl Predictor {
    /// Whether a branch that went to `target` was mispredicted; learns from it.
    pub fn mispredicts(&mut self, code: &Code, taken: bool, target: u64) -> bool {
        match code.branch {
            None | Some(Branch::Jump) => false,
            Some(Branch::Conditional) => self.conditional(code.address, taken),
            Some(Branch::Call) => {
                self.call(code);
                false
            }
            Some(Branch::IndirectJump) => self.indirect(code.address, target),
            Some(Branch::IndirectCall) => {
                self.call(code);
                self.indirect(code.address, target)
            }
            Some(Branch::Return) => {
                self.depth = self.depth.wrapping_sub(1);
                self.returns[self.depth % RETURNS] != target
            }
        }
    }

    fn conditional(&mut self, address: u64, taken: bool) -> bool {
        let place = (address ^ self.history) as usize % COUNTERS;
        let counter = &mut self.counters[place];
        let predicted = *counter >= 2;
        *counter = match taken {
            true => (*counter + 1).min(3),
            false => counter.saturating_sub(1),
        };
        self.history = (self.history << 1 | u64::from(taken)) & HISTORY;
        predicted != taken
    }

    fn indirect(&mut self, address: u64, target: u64) -> bool {
        let known = &mut self.targets[address as usize % TARGETS];
        std::mem::replace(known, target) != target
    }

    fn call(&mut self, code: &Code) {
        self.returns[self.depth % RETURNS] = code.end();
        self.depth = self.depth.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_trace::Class;

    fn branch(address: u64, branch: Branch) -> Code {
        Code {
            address,
            length: 2,
            class: Class::Branch,
            branch: Some(branch),
            bases: Box::default(),
            sources: Box::default(),
            destinations: Box::default(),
            accesses: Box::default(),
        }
    }

    #[test]
    fn a_short_loop_is_learnt_and_chance_is_not() {
        let code = branch(0x40, Branch::Conditional);
        let mut predictor = Predictor::default();
        let mut wrong = |outcome: &mut dyn FnMut(usize) -> bool| {
            let wrongs = (0..10_000).filter(|n| predictor.mispredicts(&code, outcome(*n), 0));
            wrongs.count()
        };
        // Seven times around, then out.
        assert!(wrong(&mut |n| n % 8 != 7) < 200);
        let mut random = super::super::Random::new(3);
        let by_chance = wrong(&mut |_| random.next() & 1 == 1);
        assert!((4000..6000).contains(&by_chance), "{by_chance}");
    }

    #[test]
    fn returns_go_where_they_were_called_from() {
        let mut predictor = Predictor::default();
        for call in 0..RETURNS as u64 {
            assert!(!predictor.mispredicts(&branch(call * 16, Branch::Call), true, 0));
        }
        let back = branch(0x5000, Branch::Return);
        for call in (0..RETURNS as u64).rev() {
            assert!(!predictor.mispredicts(&back, true, call * 16 + 2));
        }
        assert!(predictor.mispredicts(&back, true, 0x77));
    }
}
