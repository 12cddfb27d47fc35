//! One decoded instruction, the same shape for every architecture.

use crate::class::Class;
use crate::regs::Regs;
use crate::{aarch64, x86};

/// The instruction set that a process executes. Chosen at run time: an x86-64 machine also runs 32-bit
/// x86 processes, and any machine can read a recording of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 32-bit x86.
    X86,
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// Longest instruction in bytes.
    pub const fn max_instruction_len(self) -> usize {
        match self {
            Arch::X86 | Arch::X86_64 => 15,
            Arch::Aarch64 => 4,
        }
    }

    /// The `sample_regs_user` mask whose registers [`Regs::from_mask`] understands: all general
    /// registers and the instruction pointer, numbered as in the kernel's `asm/perf_regs.h`.
    pub const fn sample_regs_mask(self) -> u64 {
        match self {
            // AX..IP (0..=8); 9..=15 are flags and segments; R8..R15 (16..=23).
            Arch::X86 => 0x1ff,
            Arch::X86_64 => 0x1ff | 0xff << 16,
            // X0..X29, LR, SP, PC.
            Arch::Aarch64 => (1 << 33) - 1,
        }
    }

    /// The register number of the stack pointer in perf's order.
    pub const fn stack_pointer(self) -> u8 {
        match self {
            Arch::X86 | Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }

    /// Bytes in a pointer.
    pub const fn pointer_size(self) -> usize {
        match self {
            Arch::X86 => 4,
            Arch::X86_64 | Arch::Aarch64 => 8,
        }
    }
}

/// Effect of an instruction on control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// Always to this address.
    Jump(u64),
    /// To this address or to the next instruction.
    CondJump(u64),
    /// To this address, and back to the next instruction.
    Call(u64),
    /// To an address in a register, or in memory at `slot` if that address is fixed (a linkage table).
    IndirectJump {
        /// Fixed address of the pointer that is jumped through.
        slot: Option<u64>,
    },
    /// Like [`IndirectJump`](Flow::IndirectJump), and back to the next instruction.
    IndirectCall {
        /// Fixed address of the pointer that is called through.
        slot: Option<u64>,
    },
    /// Back to the caller.
    Return,
    /// Nowhere: a trap or halt.
    Stop,
}

/// A memory operand whose address follows from general registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryOperand {
    /// Register number of the base in perf's order; none for an absolute address.
    pub base: Option<u8>,
    /// Register number of the index.
    pub index: Option<u8>,
    /// Factor of the index register.
    pub scale: u8,
    /// The index is 32 bits wide: `Some(true)` if it is sign-extended, `Some(false)` if zero-extended.
    pub narrow_index: Option<bool>,
    /// Constant part of the address; the whole address if there is no base (relative to the
    /// instruction pointer already resolved).
    pub displacement: i64,
    /// Bytes accessed; 0 if unknown.
    pub size: u16,
    /// The instruction reads the operand.
    pub read: bool,
    /// The instruction writes the operand.
    pub write: bool,
}

impl MemoryOperand {
    /// The effective address with these register values, or `None` if a register is missing.
    pub fn address(&self, regs: &Regs) -> Option<u64> {
        let base = match self.base {
            Some(number) => regs.get(number)?,
            None => 0,
        };
        let index = match self.index {
            Some(number) => {
                let value = regs.get(number)?;
                match self.narrow_index {
                    Some(true) => i64::from(value as i32) as u64,
                    Some(false) => u64::from(value as u32),
                    None => value,
                }
            }
            None => 0,
        };
        let address = base
            .wrapping_add(index.wrapping_mul(u64::from(self.scale)))
            .wrapping_add(self.displacement as u64);
        Some(match regs.arch() {
            Arch::X86 => address & 0xffff_ffff,
            Arch::X86_64 | Arch::Aarch64 => address,
        })
    }

    /// Bit set of the registers that the address depends on.
    pub fn registers(&self) -> u64 {
        let bit = |number: Option<u8>| number.map_or(0, |n| 1u64 << n);
        bit(self.base) | bit(self.index)
    }
}

/// One decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Length in bytes.
    pub len: u8,
    /// Class of operation.
    pub class: Class,
    /// It reads memory (prefetches and address computations do not).
    pub reads: bool,
    /// Whether it writes memory.
    pub writes: bool,
    /// It divides or takes a square root in floating point.
    pub fp_divide: bool,
    /// It is a string instruction under a repeat prefix (or an Arm memory copy or set), so that one
    /// instruction may run for long.
    pub rep: bool,
    /// Effect on control flow: next instruction, branch, call or return.
    pub flow: Flow,
    /// Memory operands with an address that registers determine: at most two; vector-indexed and
    /// thread-local ones are left out.
    pub operands: [Option<MemoryOperand>; 2],
    /// Bit set of the general registers that it may write, in perf's numbering.
    pub written: u64,
}

impl Decoded {
    /// Address of the instruction after this one, which is at `ip`.
    #[inline]
    pub fn next(&self, ip: u64) -> u64 {
        ip.wrapping_add(u64::from(self.len))
    }
}

/// Decoder for one architecture; keeps buffers between calls.
pub struct InstructionDecoder {
    arch: Arch,
    x86: x86::X86Decoder,
}

impl InstructionDecoder {
    /// A decoder for `arch`.
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            x86: x86::X86Decoder::new(arch == Arch::X86),
        }
    }

    /// The architecture that it decodes.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The instruction at the start of `bytes`, which were read at address `ip`; `None` if the bytes
    /// are no valid instruction or end within one.
    pub fn decode(&mut self, bytes: &[u8], ip: u64) -> Option<Decoded> {
        match self.arch {
            Arch::X86 | Arch::X86_64 => self.x86.decode(bytes, ip),
            Arch::Aarch64 => {
                let word = bytes.first_chunk::<4>()?;
                aarch64::decode(u32::from_le_bytes(*word), ip)
            }
        }
    }
}

impl InstructionDecoder {
    /// Length of the instruction at the start of `bytes`, or `None` if it is none: cheaper than
    /// [`decode`](Self::decode).
    pub fn length(&mut self, bytes: &[u8], ip: u64) -> Option<u8> {
        match self.arch {
            Arch::X86 | Arch::X86_64 => self.x86.length(&bytes[..bytes.len().min(15)], ip),
            Arch::Aarch64 => self.decode(bytes, ip).map(|decoded| decoded.len),
        }
    }
}

impl std::fmt::Debug for InstructionDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstructionDecoder")
            .field("arch", &self.arch)
            .finish_non_exhaustive()
    }
}
