//! Shares of instruction classes, and how well a number of samples fixes them.

use crate::class::Class;
use crate::instruction::Decoded;

/// Instruction mix: what share of the instructions falls into each class and touches memory.
///
/// The shares by class sum to 1. Reads and writes cut across the classes (an addition may read its
/// operand from memory, a call writes the stack).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    shares: [f32; Class::COUNT],
    reads: f32,
    writes: f32,
    fp_divides: f32,
}

impl Mix {
    /// Share of instructions of this class, 0 to 1.
    #[inline]
    pub fn share(&self, class: Class) -> f64 {
        f64::from(self.shares[class.index()])
    }

    /// Share that does floating-point work (arithmetic, compare, convert), 0 to 1.
    pub fn fp_share(&self) -> f64 {
        Class::ALL
            .into_iter()
            .filter(|class| class.is_fp())
            .map(|class| self.share(class))
            .sum()
    }

    /// Share of packed operations among floating-point and vector arithmetic, 0 to 1; 0 if there is none.
    pub fn vector_share(&self) -> f64 {
        let packed = self.share(Class::PackedFp) + self.share(Class::VectorInt);
        let all = self.fp_share() + self.share(Class::VectorInt);
        if all > 0.0 { packed / all } else { 0.0 }
    }

    /// Share of instructions that read memory, 0 to 1.
    pub fn load_share(&self) -> f64 {
        f64::from(self.reads)
    }

    /// Share of instructions that write memory, 0 to 1.
    pub fn store_share(&self) -> f64 {
        f64::from(self.writes)
    }

    /// Share of branches, calls and returns, 0 to 1.
    pub fn branch_share(&self) -> f64 {
        self.share(Class::Branch)
    }

    /// Share of integer divisions and floating-point divisions and square roots, 0 to 1: the long ones.
    pub fn divide_share(&self) -> f64 {
        self.share(Class::IntDivide) + f64::from(self.fp_divides)
    }

    /// Total-variation distance between the class shares of two mixes, 0 to 1.
    pub fn distance(&self, other: &Mix) -> f64 {
        let sum: f64 = self
            .shares
            .iter()
            .zip(&other.shares)
            .map(|(a, b)| f64::from((a - b).abs()))
            .sum();
        sum / 2.0
    }
}

/// Sums of instructions or of mixes, each with a weight: what a [`Mix`] is made from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MixSum {
    classes: [f64; Class::COUNT],
    reads: f64,
    writes: f64,
    fp_divides: f64,
    weight: f64,
}

impl MixSum {
    /// Adds one instruction executed `weight` times. Weights that are not positive add nothing.
    pub fn add_instruction(&mut self, instruction: &Decoded, weight: f64) {
        if !is_weight(weight) {
            return;
        }
        self.classes[instruction.class.index()] += weight;
        self.reads += weight * f64::from(u8::from(instruction.reads));
        self.writes += weight * f64::from(u8::from(instruction.writes));
        self.fp_divides += weight * f64::from(u8::from(instruction.fp_divide));
        self.weight += weight;
    }

    /// Adds a mix with `weight`.
    #[inline]
    pub fn add(&mut self, mix: &Mix, weight: f64) {
        if !is_weight(weight) {
            return;
        }
        for (sum, share) in self.classes.iter_mut().zip(&mix.shares) {
            *sum += weight * f64::from(*share);
        }
        self.reads += weight * f64::from(mix.reads);
        self.writes += weight * f64::from(mix.writes);
        self.fp_divides += weight * f64::from(mix.fp_divides);
        self.weight += weight;
    }

    /// Adds another sum, every weight in it multiplied by `scale`.
    pub fn merge(&mut self, other: &MixSum, scale: f64) {
        if !is_weight(scale) {
            return;
        }
        for (sum, part) in self.classes.iter_mut().zip(&other.classes) {
            *sum += scale * part;
        }
        self.reads += scale * other.reads;
        self.writes += scale * other.writes;
        self.fp_divides += scale * other.fp_divides;
        self.weight += scale * other.weight;
    }

    /// Sum of the weights.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The shares, or `None` if nothing was added.
    pub fn mix(&self) -> Option<Mix> {
        if !is_weight(self.weight) {
            return None;
        }
        let share = |sum: f64| (sum / self.weight) as f32;
        Some(Mix {
            shares: self.classes.map(share),
            reads: share(self.reads),
            writes: share(self.writes),
            fp_divides: share(self.fp_divides),
        })
    }
}

fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Flow;
    use proptest::prelude::*;

    fn instruction(class: Class, reads: bool, writes: bool, fp_divide: bool) -> Decoded {
        Decoded {
            len: 4,
            class,
            reads,
            writes,
            fp_divide,
            rep: false,
            flow: Flow::Next,
            operands: [None; 2],
            written: 0,
        }
    }

    #[test]
    fn shares_follow_the_instructions() {
        let mut sum = MixSum::default();
        sum.add_instruction(&instruction(Class::PackedFp, true, false, true), 1.0);
        sum.add_instruction(&instruction(Class::ScalarFp, false, false, false), 1.0);
        sum.add_instruction(&instruction(Class::Store, false, true, false), 1.0);
        sum.add_instruction(&instruction(Class::Branch, false, false, false), 1.0);
        let mix = sum.mix().unwrap();
        assert_eq!(mix.fp_share(), 0.5);
        assert_eq!(mix.vector_share(), 0.5);
        assert_eq!(mix.load_share(), 0.25);
        assert_eq!(mix.store_share(), 0.25);
        assert_eq!(mix.branch_share(), 0.25);
        assert_eq!(mix.divide_share(), 0.25);
    }

    #[test]
    fn nothing_added_is_no_mix() {
        let mut sum = MixSum::default();
        assert_eq!(sum.mix(), None);
        sum.add_instruction(&instruction(Class::Load, true, false, false), 0.0);
        sum.add_instruction(&instruction(Class::Load, true, false, false), f64::NAN);
        assert_eq!(sum.mix(), None);
    }

    proptest! {
        #[test]
        fn class_shares_sum_to_one(
            parts in prop::collection::vec((0usize..Class::COUNT, any::<[bool; 3]>(), 1e-6f64..1e6), 1..50),
            scale in 1e-3f64..1e3,
        ) {
            let mut sum = MixSum::default();
            let mut merged = MixSum::default();
            for (class, [reads, writes, divide], weight) in parts {
                let class = Class::ALL[class];
                let mut one = MixSum::default();
                one.add_instruction(&instruction(class, reads, writes, divide && class.is_fp()), weight);
                sum.add(&one.mix().unwrap(), weight);
                merged.merge(&one, scale);
            }
            for mix in [sum.mix().unwrap(), merged.mix().unwrap()] {
                let total: f64 = Class::ALL.iter().map(|&class| mix.share(class)).sum();
                prop_assert!((total - 1.0).abs() < 1e-5);
                for value in [mix.fp_share(), mix.vector_share(), mix.load_share(), mix.store_share(),
                    mix.branch_share(), mix.divide_share()] {
                    prop_assert!((0.0..=1.0 + 1e-5).contains(&value));
                }
            }
            prop_assert!(sum.mix().unwrap().distance(&merged.mix().unwrap()) < 1e-4);
        }
    }
}
