use super::*;
use crate::instruction::Arch;
use crate::regs::Regs;
use proptest::prelude::*;

const IP: u64 = 0x10_0000;

fn at(word: u32) -> Decoded {
    decode(word, IP).unwrap_or_else(|| panic!("{word:#010x} does not decode"))
}

#[test]
fn classes_of_known_encodings() {
    // Assembled with llvm-mc -triple aarch64 -show-encoding.
    let cases = [
        (0x1e622820, Class::ScalarFp, "fadd d0, d1, d2"),
        (0x4e62cc20, Class::PackedFp, "fmla v0.2d, v1.2d, v2.2d"),
        (0x9e670020, Class::VectorMove, "fmov d0, x1"),
        (0x1e620c20, Class::VectorMove, "fcsel d0, d1, d2, eq"),
        (0x1e620020, Class::ScalarFp, "scvtf d0, w1"),
        (0x1e612000, Class::ScalarFp, "fcmp d0, d1"),
        (0x1e61c020, Class::ScalarFp, "fsqrt d0, d1"),
        (0x6e22fc20, Class::PackedFp, "fdiv v0.4s, v1.4s, v2.4s"),
        (0x4ea28420, Class::VectorInt, "add v0.4s, v1.4s, v2.4s"),
        (0x4e221c20, Class::VectorMove, "and v0.16b, v1.16b, v2.16b"),
        (0x4e181c60, Class::VectorMove, "mov v0.d[1], x3"),
        (0xf9400820, Class::Load, "ldr x0, [x1, #16]"),
        (0x3c820c40, Class::Store, "str q0, [x2, #32]!"),
        (0xa8c27bfd, Class::Load, "ldp x29, x30, [sp], #32"),
        (0x6d3f2468, Class::Store, "stp d8, d9, [x3, #-16]"),
        (0x9b020c20, Class::IntMultiply, "madd x0, x1, x2, x3"),
        (0x9b027c20, Class::IntMultiply, "mul x0, x1, x2"),
        (0x9ac20c20, Class::IntDivide, "sdiv x0, x1, x2"),
        (0x91000420, Class::IntAlu, "add x0, x1, #1"),
        (0xf8210062, Class::IntAlu, "ldadd x1, x2, [x3]"),
        (0xd503201f, Class::Other, "nop"),
        (0xd4000001, Class::Other, "svc #0"),
        (0xf9800020, Class::Other, "prfm pldl1keep, [x1]"),
        (0x4cdfad20, Class::Load, "ld1 {v0.2d, v1.2d}, [x9], #32"),
        (0x4e284820, Class::VectorInt, "aese v0.16b, v1.16b"),
        (
            0x4e020020,
            Class::VectorMove,
            "tbl v0.16b, {v1.16b}, v2.16b",
        ),
        (0xb3431020, Class::IntAlu, "bfxil x0, x1, #3, #2"),
        (0x65c20020, Class::PackedFp, "fadd z0.d, z1.d, z2.d"),
        (0x65e20020, Class::PackedFp, "fmla z0.d, p0/m, z1.d, z2.d"),
        (
            0xa5e24020,
            Class::Load,
            "ld1d {z0.d}, p0/z, [x1, x2, lsl #3]",
        ),
        (0xe540e060, Class::Store, "st1w {z0.s}, p0, [x3]"),
        (0x04a20020, Class::VectorInt, "add z0.s, z1.s, z2.s"),
        (0x04f0e3e4, Class::IntAlu, "incd x4"),
        (0x25e21420, Class::VectorInt, "whilelo p0.d, x1, x2"),
        (0x04613020, Class::VectorMove, "mov z0.d, z1.d"),
    ];
    for (word, class, text) in cases {
        assert_eq!(at(word).class, class, "{text}");
    }
}

#[test]
fn division_and_memory_flags() {
    assert!(at(0x1e61c020).fp_divide && at(0x6e22fc20).fp_divide);
    assert!(!at(0x1e622820).fp_divide && !at(0x9ac20c20).fp_divide);
    let atomic = at(0xf8210062);
    assert!(atomic.reads && atomic.writes);
    let prefetch = at(0xf9800020);
    assert!(!prefetch.reads && !prefetch.writes && prefetch.operands == [None; 2]);
}

#[test]
fn scatters_have_no_one_address() {
    // st1b {z0.d}, p0, [x0, z0.d]; st1b {z0.d}, p0, [z3.d]
    for word in [0xe400_a000, 0xe440_a060] {
        assert_eq!(at(word).operands, [None; 2], "{word:x}");
    }
}

#[test]
fn flow_and_targets() {
    // b .+16; b.ne .-8; cbz x0, .+12; tbnz w1, #3, .-4; bl .+256
    assert_eq!(at(0x14000004).flow, Flow::Jump(IP + 16));
    assert_eq!(at(0x54ffffc1).flow, Flow::CondJump(IP - 8));
    assert_eq!(at(0xb4000060).flow, Flow::CondJump(IP + 12));
    assert_eq!(at(0x371fffe1).flow, Flow::CondJump(IP - 4));
    let call = at(0x94000040);
    assert_eq!((call.flow, call.written), (Flow::Call(IP + 256), 1 << 30));
    assert_eq!(at(0xd63f0100).flow, Flow::IndirectCall { slot: None });
    assert_eq!(at(0xd61f0120).flow, Flow::IndirectJump { slot: None });
    assert_eq!(at(0xd65f03c0).flow, Flow::Return);
    assert_eq!(at(0xd4200020).flow, Flow::Stop);
    assert_eq!(at(0xd4000001).flow, Flow::Next);
    for word in [0x14000004, 0x54ffffc1, 0x94000040, 0xd65f03c0] {
        assert_eq!(at(word).class, Class::Branch);
    }
}

#[test]
fn effective_addresses() {
    let mut regs = Regs::empty(Arch::Aarch64);
    for number in 0..32 {
        regs.set(number, 0x1_0000 * (u64::from(number) + 1));
    }
    // ldr w5, [x6, w7, sxtw #2] with w7 = -1
    regs.set(7, 0xffff_ffff);
    let cases = [
        (0xf9400820, 0x2_0000 + 16, 8, "ldr x0, [x1, #16]"),
        (0x3c820c40, 0x3_0000 + 32, 16, "str q0, [x2, #32]!"),
        (0xa8c27bfd, 0x20_0000, 16, "ldp x29, x30, [sp], #32"),
        (0x6d3f2468, 0x4_0000 - 16, 16, "stp d8, d9, [x3, #-16]"),
        (0xb867d8c5, 0x7_0000 - 4, 4, "ldr w5, [x6, w7, sxtw #2]"),
        (0xf8408483, 0x5_0000, 8, "ldr x3, [x4], #8"),
        (0x58000108, IP + 32, 8, "ldr x8, .+32"),
        (
            0xa5e24020,
            0x2_0000 + 8 * 0x3_0000,
            0,
            "ld1d {z0.d}, p0/z, [x1, x2, lsl #3]",
        ),
    ];
    for (word, address, size, text) in cases {
        let operand = at(word).operands[0].expect(text);
        assert_eq!(operand.address(&regs), Some(address), "{text}");
        assert_eq!(operand.size, size, "{text}");
    }
}

#[test]
fn written_registers() {
    assert_eq!(at(0x91000420).written, 1, "add x0, x1, #1");
    assert_eq!(at(0xf8408483).written, 1 << 3 | 1 << 4, "ldr x3, [x4], #8");
    assert_eq!(
        at(0xa8c27bfd).written,
        1 << 29 | 1 << 30 | 1 << 31,
        "ldp x29, x30, [sp], #32"
    );
    assert_eq!(at(0x3c820c40).written, 1 << 2, "str q0, [x2, #32]!");
    assert_eq!(at(0xf9400820).written, 1, "ldr x0, [x1, #16]");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_word_decodes_consistently(word in any::<u32>(), ip in any::<u64>()) {
        if let Some(decoded) = decode(word, ip & !3) {
            prop_assert_eq!(decoded.len, 4);
            prop_assert_eq!(decoded.class == Class::Branch, !matches!(decoded.flow, Flow::Next | Flow::Stop));
            prop_assert!(!decoded.fp_divide || decoded.class.is_fp());
            for operand in decoded.operands.into_iter().flatten() {
                prop_assert!(operand.read || operand.write);
                prop_assert!(operand.base.is_none_or(|base| base < 32));
                prop_assert!(decoded.reads >= operand.read && decoded.writes >= operand.write);
            }
        }
    }
}
