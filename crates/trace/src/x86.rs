//! What a decoded x86-64 instruction is in a recording.

use crate::{
    Branch, Class, Code,
    registers::{FLAGS, GENERAL, INSTRUCTION_POINTER, MASK, OTHER, VECTOR, X87},
};
use iced_x86::{
    Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, RflagsBits, UsedMemory,
};
use perch_sampling::{Arch, Flow, InstructionDecoder};

/// Decodes an instruction; its accesses are left open. `None` if the bytes are none.
pub fn decode(bytes: &[u8], address: u64) -> Option<Code> {
    let decoded = InstructionDecoder::new(Arch::X86_64).decode(bytes, address)?;
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);

    let mut bases = Vec::new();
    let of_address = |memory: &UsedMemory| [memory.segment(), memory.base(), memory.index()];
    for register in info.used_memory().iter().flat_map(of_address) {
        // The program's own segments begin at 0 and never change; those of its threads do.
        add(
            &mut bases,
            register,
            &[Register::CS, Register::DS, Register::ES, Register::SS],
        );
    }
    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    for used in info.used_registers() {
        use OpAccess::*;
        let register = used.register();
        let is_base = number(register).is_some_and(|number| bases.contains(&number));
        let access = used.access();
        // A base that is also data is told twice, with what each is.
        if matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
            && !register.is_segment_register()
        {
            let only_base = is_base && !is_data(&instruction, register);
            if !only_base {
                add(&mut sources, register, &[]);
            }
        }
        if matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite) {
            add(&mut destinations, register, &[]);
        }
    }
    if instruction.rflags_read() != RflagsBits::NONE {
        sources.push(FLAGS);
    }
    if instruction.rflags_modified() != RflagsBits::NONE {
        destinations.push(FLAGS);
    }
    let branch = match decoded.flow {
        Flow::Next | Flow::Stop => None,
        Flow::Jump(_) => Some(Branch::Jump),
        Flow::CondJump(_) => Some(Branch::Conditional),
        Flow::Call(_) => Some(Branch::Call),
        Flow::IndirectJump { .. } => Some(Branch::IndirectJump),
        Flow::IndirectCall { .. } => Some(Branch::IndirectCall),
        Flow::Return => Some(Branch::Return),
    };
    Some(Code {
        address,
        length: decoded.len,
        class: class(decoded.class, decoded.fp_divide, branch),
        branch,
        bases: bases.into(),
        sources: sources.into(),
        destinations: destinations.into(),
        accesses: Box::default(),
    })
}

fn class(class: perch_sampling::Class, fp_divide: bool, branch: Option<Branch>) -> Class {
    use perch_sampling::Class as Sampled;
    match class {
        _ if branch.is_some() => Class::Branch,
        Sampled::ScalarFp | Sampled::PackedFp | Sampled::OtherFp if fp_divide => Class::FpDivide,
        Sampled::ScalarFp | Sampled::PackedFp | Sampled::OtherFp | Sampled::VectorInt => Class::Fp,
        Sampled::Load => Class::Load,
        Sampled::Store => Class::Store,
        Sampled::IntMultiply => Class::Multiply,
        Sampled::IntDivide => Class::Divide,
        // Moves and shuffles of vectors do no arithmetic: so do the live profiles count.
        Sampled::VectorMove | Sampled::IntAlu | Sampled::Other | Sampled::Branch => Class::Alu,
    }
}

/// Whether a register is an operand itself, not only a part of an address.
fn is_data(instruction: &iced_x86::Instruction, register: Register) -> bool {
    let full = register.full_register();
    (0..instruction.op_count())
        .any(|operand| instruction.op_register(operand).full_register() == full)
}

fn add(list: &mut Vec<u8>, register: Register, except: &[Register]) {
    if let Some(number) = number(register)
        && !except.contains(&register)
        && !list.contains(&number)
    {
        list.push(number);
    }
}

/// Its number ([`crate::registers`]).
fn number(register: Register) -> Option<u8> {
    Some(match register.full_register() {
        Register::None => return None,
        full if full.is_gpr() => GENERAL[full.number()],
        full if full.is_vector_register() => VECTOR + full.number() as u8,
        full if full.is_st() || full.is_mm() => X87 + full.number() as u8,
        full if full.is_k() => MASK,
        full if full.is_ip() => INSTRUCTION_POINTER,
        _ => OTHER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::STACK_POINTER;

    fn of(bytes: &[u8]) -> Code {
        decode(bytes, 0x1000).unwrap()
    }

    #[test]
    fn addresses_and_data_are_told_apart() {
        // addsd xmm0, [rdi+rax*8]
        let code = of(&[0xf2, 0x0f, 0x58, 0x04, 0xc7]);
        assert_eq!((code.class, code.length), (Class::Fp, 5));
        assert_eq!(&*code.bases, [GENERAL[7], GENERAL[0]]);
        assert_eq!(&*code.sources, [VECTOR]);
        assert_eq!(&*code.destinations, [VECTOR]);
        // mov [rax], rax
        let code = of(&[0x48, 0x89, 0x00]);
        assert_eq!(
            (code.class, &*code.bases, &*code.sources),
            (Class::Store, &[GENERAL[0]][..], &[GENERAL[0]][..])
        );
        assert!(code.destinations.is_empty());
    }

    #[test]
    fn branches_and_flags() {
        // jne -2
        let code = of(&[0x75, 0xfe]);
        assert_eq!(
            (code.class, code.branch),
            (Class::Branch, Some(Branch::Conditional))
        );
        assert_eq!(&*code.sources, [FLAGS]);
        // ret
        let code = of(&[0xc3]);
        assert_eq!(code.branch, Some(Branch::Return));
        assert!(code.destinations.contains(&STACK_POINTER));
        // cmp eax, ecx; syscall does not branch as far as the program sees
        assert_eq!(&*of(&[0x39, 0xc8]).destinations, [FLAGS]);
        assert_eq!(of(&[0x0f, 0x05]).branch, None);
        // xor eax, eax reads nothing
        assert!(of(&[0x31, 0xc0]).sources.is_empty());
        // divsd xmm1, xmm2; imul rax, rcx; div rcx
        assert_eq!(of(&[0xf2, 0x0f, 0x5e, 0xca]).class, Class::FpDivide);
        assert_eq!(of(&[0x48, 0x0f, 0xaf, 0xc1]).class, Class::Multiply);
        assert_eq!(of(&[0x48, 0xf7, 0xf1]).class, Class::Divide);
    }
}
