//! Decoding x86 and x86-64, including AVX-512, AVX512-FP16, FMA4, XOP and x87.

mod groups;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, UsedMemory,
};

use crate::class::Class;
use crate::instruction::{Decoded, Flow, MemoryOperand};
use groups::Group;

/// Decoder of 32-bit or 64-bit code.
pub(crate) struct X86Decoder {
    bits: u32,
    instruction: Instruction,
    factory: InstructionInfoFactory,
}

impl X86Decoder {
    pub(crate) fn new(narrow: bool) -> Self {
        Self {
            bits: if narrow { 32 } else { 64 },
            instruction: Instruction::default(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Length of the instruction at the start of `bytes`, without looking at what it does.
    pub(crate) fn length(&mut self, bytes: &[u8], ip: u64) -> Option<u8> {
        let mut decoder = Decoder::with_ip(self.bits, bytes, ip, DecoderOptions::NONE);
        decoder.decode_out(&mut self.instruction);
        (!self.instruction.is_invalid()).then(|| self.instruction.len() as u8)
    }

    pub(crate) fn decode(&mut self, bytes: &[u8], ip: u64) -> Option<Decoded> {
        let bytes = &bytes[..bytes.len().min(15)];
        let mut decoder = Decoder::with_ip(self.bits, bytes, ip, DecoderOptions::NONE);
        decoder.decode_out(&mut self.instruction);
        let instruction = &self.instruction;
        if instruction.is_invalid() {
            return None;
        }
        let string = instruction.is_string_instruction();
        let group = groups::group(instruction.mnemonic());
        let group = if string { Group::Other } else { group };
        let touches_memory = accesses_memory(instruction);

        let info = self.factory.info(instruction);
        let (mut reads, mut writes) = (false, false);
        let mut operands = [None; 2];
        let mut free = operands.iter_mut();
        if touches_memory {
            for memory in info.used_memory() {
                let (read, write) = access(memory.access());
                if !(read || write) {
                    continue;
                }
                reads |= read;
                writes |= write;
                if let Some(operand) = operand(memory, read, write)
                    && let Some(slot) = free.next()
                {
                    *slot = Some(operand);
                }
            }
        }
        let mut written = 0;
        for register in info.used_registers() {
            if access(register.access()).1
                && let Some(number) = perf_number(register.register())
            {
                written |= 1u64 << number;
            }
        }

        let flow = flow(instruction);
        let class = if !matches!(flow, Flow::Next | Flow::Stop) {
            Class::Branch
        } else {
            class(group, reads, writes)
        };
        Some(Decoded {
            len: instruction.len() as u8,
            class,
            reads,
            writes,
            fp_divide: matches!(
                group,
                Group::ScalarFpDivide | Group::PackedFpDivide | Group::X87Divide
            ),
            rep: string && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
            flow,
            operands,
            written,
        })
    }
}

/// Address computations and hints name a memory operand that they do not access.
fn accesses_memory(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    !matches!(
        instruction.mnemonic(),
        Lea | Nop
            | Reservednop
            | Prefetch
            | Prefetchit0
            | Prefetchit1
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchw
            | Prefetchwt1
            | Clflush
            | Clflushopt
            | Clwb
            | Cldemote
    )
}

/// Whether an access reads, and whether it writes.
fn access(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

fn class(group: Group, reads: bool, writes: bool) -> Class {
    match group {
        Group::ScalarFp | Group::ScalarFpDivide => Class::ScalarFp,
        Group::PackedFp | Group::PackedFpDivide => Class::PackedFp,
        Group::X87 | Group::X87Divide => Class::OtherFp,
        Group::VectorInt => Class::VectorInt,
        Group::VectorMove | Group::VectorLoad if writes => Class::Store,
        Group::VectorLoad if reads => Class::Load,
        Group::VectorMove | Group::VectorLoad => Class::VectorMove,
        Group::Move | Group::X87Move if writes => Class::Store,
        Group::Move | Group::X87Move if reads => Class::Load,
        Group::X87Move => Class::VectorMove,
        Group::Move => Class::IntAlu,
        Group::IntMultiply => Class::IntMultiply,
        Group::IntDivide => Class::IntDivide,
        Group::IntAlu => Class::IntAlu,
        // A listed branch that does not branch here: the start of a transaction.
        Group::Branch | Group::Other => Class::Other,
    }
}

fn flow(instruction: &Instruction) -> Flow {
    use Mnemonic::*;
    let slot = || {
        // Only an absolute or instruction-relative pointer has a fixed address.
        let fixed = instruction.op0_kind() == OpKind::Memory
            && instruction.memory_index() == Register::None
            && matches!(
                instruction.memory_base(),
                Register::RIP | Register::EIP | Register::None
            )
            && !matches!(instruction.memory_segment(), Register::FS | Register::GS);
        fixed.then(|| instruction.memory_displacement64())
    };
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            Hlt => Flow::Stop,
            _ => Flow::Next,
        },
        FlowControl::UnconditionalBranch if is_far(instruction) => {
            Flow::IndirectJump { slot: None }
        }
        FlowControl::UnconditionalBranch => Flow::Jump(instruction.near_branch_target()),
        FlowControl::ConditionalBranch => Flow::CondJump(instruction.near_branch_target()),
        FlowControl::IndirectBranch => Flow::IndirectJump { slot: slot() },
        FlowControl::Call => match instruction.mnemonic() {
            // A system call returns like any other instruction as far as user code is concerned.
            Syscall | Sysenter | Vmcall | Vmmcall | Vmgexit => Flow::Next,
            _ if is_far(instruction) => Flow::IndirectCall { slot: None },
            _ => Flow::Call(instruction.near_branch_target()),
        },
        FlowControl::IndirectCall => Flow::IndirectCall { slot: slot() },
        FlowControl::Return => Flow::Return,
        // A transaction's abort handler is as good as never reached.
        FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::Interrupt => match instruction.mnemonic() {
            Int3 | Int1 => Flow::Stop,
            _ => Flow::Next,
        },
        FlowControl::Exception => Flow::Stop,
    }
}

fn is_far(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::FarBranch16 | OpKind::FarBranch32
    )
}

/// The operand if general registers determine its address.
fn operand(memory: &UsedMemory, read: bool, write: bool) -> Option<MemoryOperand> {
    // FS and GS hold the thread's own block, whose address no sampled register gives.
    if matches!(memory.segment(), Register::FS | Register::GS) {
        return None;
    }
    let number = |register: Register| match register {
        Register::None => Some(None),
        other => perf_number(other).map(Some),
    };
    Some(MemoryOperand {
        base: number(memory.base())?,
        index: number(memory.index())?,
        scale: memory.scale() as u8,
        narrow_index: None,
        displacement: memory.displacement() as i64,
        size: memory.memory_size().size() as u16,
        read,
        write,
    })
}

/// The register's number in `asm/perf_regs.h`, for any width of a general register.
fn perf_number(register: Register) -> Option<u8> {
    let full = register.full_register();
    Some(match full {
        Register::RAX => 0,
        Register::RBX => 1,
        Register::RCX => 2,
        Register::RDX => 3,
        Register::RSI => 4,
        Register::RDI => 5,
        Register::RBP => 6,
        Register::RSP => 7,
        Register::R8 => 16,
        Register::R9 => 17,
        Register::R10 => 18,
        Register::R11 => 19,
        Register::R12 => 20,
        Register::R13 => 21,
        Register::R14 => 22,
        Register::R15 => 23,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
