//! User registers at the moment of a sample.

use crate::instruction::Arch;

/// Most registers of any architecture (aarch64: X0..X29, LR, SP, PC).
const MAX_REGS: usize = 33;

/// General registers in the kernel's `perf_regs` order (`asm/perf_regs.h`).
///
/// | number | x86-64 | aarch64 |
/// | --- | --- | --- |
/// | 0..=7 | AX BX CX DX SI DI BP SP | X0..X7 |
/// | 8 | IP | X8 |
/// | 9..=15 | flags and segments, not used | X9..X15 |
/// | 16..=23 | R8..R15 | X16..X23 |
/// | 24..=29 | | X24..X29 |
/// | 30, 31, 32 | | LR, SP, PC |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regs {
    arch: Arch,
    present: u64,
    values: [u64; MAX_REGS],
}

impl Regs {
    /// No register known.
    pub fn empty(arch: Arch) -> Self {
        Self {
            arch,
            present: 0,
            values: [0; MAX_REGS],
        }
    }

    /// Registers as `PERF_SAMPLE_REGS_USER` delivers them: one value for each bit set in `mask`, lowest
    /// bit first. Bits and values beyond what the architecture has are ignored, and so are bits for
    /// which there is no value.
    pub fn from_mask(arch: Arch, mask: u64, values: &[u64]) -> Self {
        let mut regs = Self::empty(arch);
        let mut rest = mask;
        for &value in values {
            if rest == 0 {
                break;
            }
            regs.set(rest.trailing_zeros() as u8, value);
            rest &= rest - 1;
        }
        regs
    }

    /// Instruction set of the registers.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Sets register `number`; numbers that the type does not hold are ignored.
    pub fn set(&mut self, number: u8, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(number)) {
            *slot = value;
            self.present |= 1 << number;
        }
    }

    /// The value of register `number`, if it was sampled.
    #[inline]
    pub fn get(&self, number: u8) -> Option<u64> {
        (usize::from(number) < MAX_REGS && self.present & (1 << number) != 0)
            .then(|| self.values[usize::from(number)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_bits_of_the_mask() {
        let regs = Regs::from_mask(Arch::X86_64, 0b1_0000_0000_1000_0001, &[10, 20, 30, 40]);
        assert_eq!(regs.get(0), Some(10));
        assert_eq!(regs.get(7), Some(20));
        assert_eq!(regs.get(16), Some(30));
        assert_eq!(regs.get(1), None);
        assert_eq!(regs.get(63), None);
    }

    #[test]
    fn recommended_masks_fit() {
        for arch in [Arch::X86, Arch::X86_64, Arch::Aarch64] {
            let mask = arch.sample_regs_mask();
            let values: Vec<u64> = (0..u64::from(mask.count_ones())).collect();
            let regs = Regs::from_mask(arch, mask, &values);
            let known = (0..64u8).filter(|&n| regs.get(n).is_some()).count();
            assert_eq!(known as u32, mask.count_ones());
            assert!(regs.get(arch.stack_pointer()).is_some());
        }
    }
}
