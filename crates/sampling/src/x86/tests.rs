use super::*;
use crate::instruction::Arch;
use crate::regs::Regs;
use proptest::prelude::*;
use std::collections::BTreeSet;

const IP: u64 = 0x10_0000;

fn at(bytes: &[u8]) -> Decoded {
    X86Decoder::new(false)
        .decode(bytes, IP)
        .unwrap_or_else(|| panic!("{bytes:x?} does not decode"))
}

#[test]
fn classes_of_known_encodings() {
    // Assembled with llvm-mc -triple x86_64 -show-encoding; AT&T syntax.
    let cases: &[(&[u8], Class, &str)] = &[
        (
            &[0xf2, 0x0f, 0x58, 0xc1],
            Class::ScalarFp,
            "addsd %xmm1, %xmm0",
        ),
        (
            &[0xc4, 0xe2, 0xf5, 0xb8, 0xd0],
            Class::PackedFp,
            "vfmadd231pd %ymm0, %ymm1, %ymm2",
        ),
        (&[0x0f, 0x51, 0x18], Class::PackedFp, "sqrtps (%rax), %xmm3"),
        (
            &[0x62, 0xf5, 0x6c, 0x48, 0x5e, 0xd9],
            Class::PackedFp,
            "vdivph %zmm1, %zmm2, %zmm3",
        ),
        (
            &[0x62, 0xf5, 0x6e, 0x08, 0x58, 0xd9],
            Class::ScalarFp,
            "vaddsh %xmm1, %xmm2, %xmm3",
        ),
        (
            &[0xf2, 0x0f, 0x2a, 0xc0],
            Class::ScalarFp,
            "cvtsi2sd %eax, %xmm0",
        ),
        (
            &[0x66, 0x0f, 0x2e, 0xc1],
            Class::ScalarFp,
            "ucomisd %xmm1, %xmm0",
        ),
        (
            &[0x0f, 0x5a, 0x00],
            Class::PackedFp,
            "cvtps2pd (%rax), %xmm0",
        ),
        (
            &[0xc4, 0xe3, 0xe9, 0x69, 0xd8, 0x10],
            Class::PackedFp,
            "vfmaddpd (FMA4)",
        ),
        (
            &[0x0f, 0x28, 0xc8],
            Class::VectorMove,
            "movaps %xmm0, %xmm1",
        ),
        (
            &[0xf2, 0x0f, 0x10, 0x44, 0x98, 0x08],
            Class::Load,
            "movsd 8(%rax,%rbx,4), %xmm0",
        ),
        (
            &[0x66, 0x0f, 0x29, 0x47, 0x10],
            Class::Store,
            "movapd %xmm0, 16(%rdi)",
        ),
        (&[0x0f, 0x57, 0xc0], Class::VectorMove, "xorps %xmm0, %xmm0"),
        (
            &[0x0f, 0xc6, 0xc8, 0x01],
            Class::VectorMove,
            "shufps $1, %xmm0, %xmm1",
        ),
        (
            &[0x62, 0xf3, 0x75, 0x48, 0x25, 0xd0, 0x03],
            Class::VectorMove,
            "vpternlogd",
        ),
        (
            &[0xc5, 0xf8, 0x93, 0xc1],
            Class::VectorMove,
            "kmovw %k1, %eax",
        ),
        (
            &[0x66, 0x0f, 0xfe, 0xc8],
            Class::VectorInt,
            "paddd %xmm0, %xmm1",
        ),
        (
            &[0x62, 0xf2, 0x75, 0x28, 0x50, 0xd0],
            Class::VectorInt,
            "vpdpbusd %ymm0, %ymm1, %ymm2",
        ),
        (
            &[0xc5, 0xf5, 0xd4, 0x16],
            Class::VectorInt,
            "vpaddq (%rsi), %ymm1, %ymm2",
        ),
        (
            &[0x66, 0x0f, 0x38, 0xdc, 0xc8],
            Class::VectorInt,
            "aesenc %xmm0, %xmm1",
        ),
        (
            &[0x66, 0x0f, 0x38, 0x00, 0x01],
            Class::VectorMove,
            "pshufb (%rcx), %xmm0",
        ),
        (
            &[0xc4, 0xe2, 0x7d, 0x58, 0x02],
            Class::Load,
            "vpbroadcastd (%rdx), %ymm0",
        ),
        (
            &[0xc4, 0xe2, 0xfd, 0x92, 0x14, 0xc8],
            Class::Load,
            "vgatherdpd",
        ),
        (&[0xdb, 0x28], Class::Load, "fldt (%rax)"),
        (&[0xde, 0xc9], Class::OtherFp, "fmulp %st, %st(1)"),
        (&[0xd9, 0xfa], Class::OtherFp, "fsqrt"),
        (&[0xd9, 0xc9], Class::VectorMove, "fxch %st(1)"),
        (&[0xdd, 0x1c, 0x24], Class::Store, "fstpl (%rsp)"),
        (&[0x48, 0x89, 0xc3], Class::IntAlu, "mov %rax, %rbx"),
        (&[0x4d, 0x8b, 0x2c, 0x24], Class::Load, "mov (%r12), %r13"),
        (&[0x45, 0x89, 0x41, 0x04], Class::Store, "mov %r8d, 4(%r9)"),
        (&[0x0f, 0xb6, 0x08], Class::Load, "movzbl (%rax), %ecx"),
        (&[0x48, 0x03, 0x08], Class::IntAlu, "add (%rax), %rcx"),
        (
            &[0xf0, 0x0f, 0xc1, 0x02],
            Class::IntAlu,
            "lock xadd %eax, (%rdx)",
        ),
        (
            &[0x48, 0x8d, 0x58, 0x08],
            Class::IntAlu,
            "lea 8(%rax), %rbx",
        ),
        (
            &[0xf3, 0x48, 0x0f, 0xb8, 0xd8],
            Class::IntAlu,
            "popcnt %rax, %rbx",
        ),
        (
            &[0x48, 0x0f, 0xaf, 0xc3],
            Class::IntMultiply,
            "imul %rbx, %rax",
        ),
        (&[0x48, 0xf7, 0xf1], Class::IntDivide, "div %rcx"),
        (&[0x53], Class::Store, "push %rbx"),
        (&[0x5b], Class::Load, "pop %rbx"),
        (
            &[0x66, 0x0f, 0x1f, 0x40, 0x08],
            Class::Other,
            "nopw 8(%rax)",
        ),
        (&[0x0f, 0x18, 0x08], Class::Other, "prefetcht0 (%rax)"),
        (&[0x0f, 0x05], Class::Other, "syscall"),
        (&[0xf3, 0x0f, 0x1e, 0xfa], Class::Other, "endbr64"),
        (&[0xf3, 0xa4], Class::Other, "rep movsb"),
        // The SSE2 compare shares its name with the string instruction, and so does the move.
        (
            &[0xf2, 0x0f, 0xc2, 0xc8, 0x02],
            Class::ScalarFp,
            "cmplesd %xmm0, %xmm1",
        ),
        (&[0xa5], Class::Other, "movsl"),
        (&[0xa7], Class::Other, "cmpsl"),
        (&[0xc3], Class::Branch, "ret"),
        // Control goes on behind it unless the transaction aborts.
        (&[0xc7, 0xf8, 0, 0, 0, 0], Class::Other, "xbegin .+6"),
    ];
    for (bytes, class, text) in cases {
        let decoded = at(bytes);
        assert_eq!(decoded.class, *class, "{text}");
        assert_eq!(usize::from(decoded.len), bytes.len(), "{text}");
    }
    // Every class is that of some instruction, tables have them in that order, and each has a name of its own.
    let met: BTreeSet<Class> = cases.iter().map(|(_, class, _)| *class).collect();
    assert!(met.into_iter().eq(Class::ALL));
    let names: BTreeSet<&str> = Class::ALL.iter().map(|class| class.name()).collect();
    assert_eq!(names.len(), Class::COUNT);
}

#[test]
fn memory_flags() {
    let flags = |bytes: &[u8]| {
        let decoded = at(bytes);
        (decoded.reads, decoded.writes)
    };
    assert_eq!(
        flags(&[0x48, 0x03, 0x08]),
        (true, false),
        "add (%rax), %rcx"
    );
    assert_eq!(
        flags(&[0xf0, 0x0f, 0xc1, 0x02]),
        (true, true),
        "lock xadd %eax, (%rdx)"
    );
    assert_eq!(
        flags(&[0x48, 0x8d, 0x58, 0x08]),
        (false, false),
        "lea 8(%rax), %rbx"
    );
    assert_eq!(
        flags(&[0x0f, 0x18, 0x08]),
        (false, false),
        "prefetcht0 (%rax)"
    );
    assert_eq!(
        flags(&[0x66, 0x0f, 0x1f, 0x40, 0x08]),
        (false, false),
        "nopw 8(%rax)"
    );
    assert_eq!(flags(&[0x53]), (false, true), "push %rbx");
    assert_eq!(flags(&[0xf3, 0xa4]), (true, true), "rep movsb");
    assert!(at(&[0xf3, 0xa4]).rep && !at(&[0xa4]).rep);
    assert!(at(&[0x0f, 0x51, 0x18]).fp_divide && at(&[0xd9, 0xfa]).fp_divide);
    assert!(!at(&[0xde, 0xc9]).fp_divide);
}

#[test]
fn flow_and_targets() {
    assert_eq!(at(&[0xeb, 0x10]).flow, Flow::Jump(IP + 0x12));
    assert_eq!(at(&[0x75, 0xfe]).flow, Flow::CondJump(IP));
    assert_eq!(at(&[0xe8, 0, 1, 0, 0]).flow, Flow::Call(IP + 0x105));
    assert_eq!(at(&[0xff, 0xd0]).flow, Flow::IndirectCall { slot: None });
    let stub = at(&[0xff, 0x25, 0x10, 0, 0, 0]);
    assert_eq!(
        stub.flow,
        Flow::IndirectJump {
            slot: Some(IP + 0x16)
        }
    );
    assert_eq!(at(&[0xc3]).flow, Flow::Return);
    assert_eq!(at(&[0x0f, 0x0b]).flow, Flow::Stop);
    assert_eq!(at(&[0xf4]).flow, Flow::Stop);
    assert_eq!(at(&[0x0f, 0x05]).flow, Flow::Next);
}

#[test]
fn operands_and_written_registers() {
    let mut regs = Regs::empty(Arch::X86_64);
    regs.set(0, 0x1000);
    regs.set(1, 0x20);
    // movsd 8(%rax,%rbx,4), %xmm0
    let load = at(&[0xf2, 0x0f, 0x10, 0x44, 0x98, 0x08]).operands[0].unwrap();
    assert_eq!(load.address(&regs), Some(0x1000 + 0x80 + 8));
    assert_eq!((load.size, load.read, load.write), (8, true, false));
    // mov 0x10(%rip), %rax: resolved, and rax is overwritten.
    let relative = at(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0]);
    assert_eq!(
        relative.operands[0].unwrap().address(&regs),
        Some(IP + 7 + 0x10)
    );
    assert_eq!(relative.written, 1);
    // mov (%r12), %r13 needs a register that was not sampled.
    let other = at(&[0x4d, 0x8b, 0x2c, 0x24]);
    assert_eq!(other.operands[0].unwrap().address(&regs), None);
    assert_eq!(other.written, 1 << 21);
    // mov %fs:0x28, %rax and the gather have no address in general registers.
    assert_eq!(
        at(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]).operands,
        [None; 2]
    );
    assert_eq!(
        at(&[0xc4, 0xe2, 0xfd, 0x92, 0x14, 0xc8]).operands,
        [None; 2]
    );
}

#[test]
fn narrow_code_is_decoded_as_such() {
    let mut narrow = X86Decoder::new(true);
    // 0x48 is dec %eax in 32-bit code and a prefix in 64-bit code.
    let dec = narrow.decode(&[0x48, 0x89, 0xc3], IP).unwrap();
    assert_eq!((dec.len, dec.class, dec.written), (1, Class::IntAlu, 1));
    // mov -4(%eax), %ecx wraps at 32 bits.
    let mut regs = Regs::empty(Arch::X86);
    regs.set(0, 0);
    let load = narrow.decode(&[0x8b, 0x48, 0xfc], IP).unwrap().operands[0].unwrap();
    assert_eq!(load.address(&regs), Some(0xffff_fffc));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes_decode_consistently(
        bytes in prop::collection::vec(any::<u8>(), 0..32),
        ip in any::<u64>(),
        narrow in any::<bool>(),
    ) {
        if let Some(decoded) = X86Decoder::new(narrow).decode(&bytes, ip) {
            prop_assert!((1..=15).contains(&decoded.len) && usize::from(decoded.len) <= bytes.len());
            prop_assert_eq!(decoded.class == Class::Branch, !matches!(decoded.flow, Flow::Next | Flow::Stop));
            prop_assert!(!decoded.fp_divide || decoded.class.is_fp());
            for operand in decoded.operands.into_iter().flatten() {
                prop_assert!(operand.read || operand.write);
                prop_assert!(operand.base.is_none_or(|base| base < 24));
                prop_assert!(decoded.reads >= operand.read && decoded.writes >= operand.write);
            }
        }
    }
}
