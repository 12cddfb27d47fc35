//! Decoding 64-bit Arm: base set, floating point, Advanced SIMD, SVE and SME.
//!
//! Floating-point work is identified by mnemonic within the vector encoding classes, where the architecture
//! names it consistently (`f…`, `bf…`, `scvtf`, `ucvtf`); the encoding classes themselves are matched
//! without a catch-all, so that a new one cannot be classified by accident.

mod memory;

use disarm64::InsnOpcode;
use disarm64::decoder::{self, Opcode};
use disarm64_defn::{InsnClass, InsnOperandKind};

use crate::class::Class;
use crate::instruction::{Decoded, Flow};

/// Register number that means "stack pointer" as a base and "zero" elsewhere.
const ZERO_OR_SP: u32 = 31;
/// The link register.
const LINK: u32 = 30;

/// Decodes the word at `ip`; `None` if it is no instruction.
pub(crate) fn decode(word: u32, ip: u64) -> Option<Decoded> {
    let opcode = decoder::decode(word)?;
    let definition = opcode.definition();
    let name = definition.mnemonic;
    let flow = flow(word, ip, definition.class, name);
    let access = memory::access(definition.class, name);
    let class = match flow {
        Flow::Next | Flow::Stop => class(definition.class, name, access),
        _ => Class::Branch,
    };
    let operand = (access.read || access.write)
        .then(|| memory::operand(word, ip, definition.class, name, access))
        .flatten();
    Some(Decoded {
        len: 4,
        class,
        reads: access.read,
        writes: access.write,
        fp_divide: class.is_fp() && matches!(name, "fdiv" | "fdivr" | "fsqrt"),
        rep: access.bulk,
        flow,
        operands: [operand, None],
        written: written(&opcode, access, flow),
    })
}

/// The `width` bits of `word` from bit `low` up.
const fn bits(word: u32, low: u32, width: u32) -> u32 {
    (word >> low) & ((1 << width) - 1)
}

/// The same, as a signed number.
const fn signed_bits(word: u32, low: u32, width: u32) -> i64 {
    ((word << (32 - low - width)) as i32 >> (32 - width)) as i64
}

fn flow(word: u32, ip: u64, class: InsnClass, name: &str) -> Flow {
    let relative = |low, width| ip.wrapping_add((signed_bits(word, low, width) * 4) as u64);
    match class {
        InsnClass::BRANCH_IMM if name == "bl" => Flow::Call(relative(0, 26)),
        InsnClass::BRANCH_IMM => Flow::Jump(relative(0, 26)),
        InsnClass::CONDBRANCH => Flow::CondJump(relative(5, 19)),
        InsnClass::COMPBRANCH if matches!(name, "cbz" | "cbnz") => Flow::CondJump(relative(5, 19)),
        // Compare-and-branch of two registers or a small constant has a nine-bit offset.
        InsnClass::COMPBRANCH => Flow::CondJump(relative(5, 9)),
        InsnClass::TESTBRANCH => Flow::CondJump(relative(5, 14)),
        InsnClass::BRANCH_REG if name.starts_with("blr") => Flow::IndirectCall { slot: None },
        InsnClass::BRANCH_REG if name.starts_with("br") => Flow::IndirectJump { slot: None },
        InsnClass::BRANCH_REG if name.starts_with("ret") => Flow::Return,
        InsnClass::BRANCH_REG => Flow::Stop,
        InsnClass::EXCEPTION if matches!(name, "svc" | "hvc" | "smc") => Flow::Next,
        InsnClass::EXCEPTION => Flow::Stop,
        _ => Flow::Next,
    }
}

/// Whether a mnemonic of a vector or floating-point encoding class is arithmetic, compare or convert.
fn is_fp_name(name: &str) -> bool {
    match name.as_bytes() {
        [b'f', rest @ ..] => !matches!(rest, b"mov" | b"csel" | b"cpy" | b"dup"),
        [b'b', b'f', ..] => true,
        _ => name.starts_with("scvtf") || name.starts_with("ucvtf"),
    }
}

/// Moves, permutations and bitwise logic among the vector mnemonics that are not floating point.
fn is_vector_move(name: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "mov", "mvni", "fmov", "dup", "fdup", "cpy", "fcpy", "trn", "uzp", "zip", "tbl", "tbx",
        "luti", "rev", "ext", "ins",
    ];
    const NAMES: [&str; 48] = [
        "and", "ands", "andv", "andqv", "bic", "bics", "bif", "bit", "bsl", "bsl1n", "bsl2n",
        "bcax", "eor", "eors", "eor3", "eorv", "eorqv", "nbsl", "nand", "nands", "nor", "nors",
        "not", "orn", "orns", "orr", "orrs", "orv", "orqv", "smov", "umov", "xtn", "xtn2", "sel",
        "splice", "compact", "expand", "clasta", "clastb", "lasta", "lastb", "pfalse", "ptrue",
        "ptrues", "pmov", "psel", "rdffr", "zero",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// SVE instructions that compute with general registers: element counts and vector-length sums.
fn is_sve_scalar(name: &str) -> bool {
    const NAMES: [&str; 20] = [
        "cntb", "cntd", "cnth", "cntw", "incb", "incd", "inch", "incw", "decb", "decd", "dech",
        "decw", "addpl", "addvl", "addspl", "addsvl", "rdvl", "rdsvl", "ctermeq", "ctermne",
    ];
    NAMES.contains(&name)
}

fn class(class: InsnClass, name: &str, access: memory::Access) -> Class {
    use InsnClass as I;
    let vector = |fp: Class| {
        if is_fp_name(name) {
            fp
        } else if is_vector_move(name) {
            Class::VectorMove
        } else {
            Class::VectorInt
        }
    };
    match class {
        I::ASIMDALL | I::ASIMDDIFF | I::ASIMDELEM | I::ASIMDMISC | I::ASIMDSAME | I::ASIMDSHF => {
            vector(Class::PackedFp)
        }
        I::ASISDDIFF | I::ASISDELEM | I::ASISDMISC | I::ASISDPAIR | I::ASISDSAME | I::ASISDSHF => {
            vector(Class::ScalarFp)
        }
        I::ASIMDEXT | I::ASIMDIMM | I::ASIMDINS | I::ASIMDPERM | I::ASIMDTBL | I::ASISDONE => {
            Class::VectorMove
        }
        I::BFLOAT16 if name == "bfcvt" => Class::ScalarFp,
        I::BFLOAT16 | I::DOTPRODUCT => vector(Class::PackedFp),
        I::CRYPTOSHA3 => vector(Class::PackedFp),
        I::CRYPTOAES | I::CRYPTOSHA2 | I::CRYPTOSM3 | I::CRYPTOSM4 => Class::VectorInt,
        I::FLOAT2FIX
        | I::FLOAT2INT
        | I::FLOATCCMP
        | I::FLOATCMP
        | I::FLOATDP1
        | I::FLOATDP2
        | I::FLOATDP3
        | I::FPRCVTFLOAT2INT
        | I::FPRCVTINT2FLOAT => vector(Class::ScalarFp),
        I::FLOATIMM | I::FLOATSEL => Class::VectorMove,
        I::LUT | I::SVE_CPY | I::SVE_LIMM | I::SVE_MOVPRFX | I::SME2_MOV | I::SME_MOV => {
            Class::VectorMove
        }
        I::ASISDLSE
        | I::ASISDLSEP
        | I::ASISDLSO
        | I::ASISDLSOP
        | I::LDST_IMM10
        | I::LDST_IMM9
        | I::LDST_POS
        | I::LDST_REGOFF
        | I::LDST_UNPRIV
        | I::LDST_UNSCALED
        | I::LDSTEXCL
        | I::LDSTNAPAIR_OFFS
        | I::LDSTPAIR_INDEXED
        | I::LDSTPAIR_OFF
        | I::LOADLIT
        | I::RCPC3
        | I::SME_LDR
        | I::SME_STR => access.class(),
        // An atomic update computes; the floating-point ones are named ldf… and stf….
        I::LSE_ATOMIC if matches!(name.get(2..), Some(s) if s.starts_with('f') || s.starts_with("bf")) => {
            Class::ScalarFp
        }
        I::LSE_ATOMIC if access.read && access.write => Class::IntAlu,
        I::LSE_ATOMIC => access.class(),
        I::LSE128_ATOMIC | I::THE => Class::IntAlu,
        I::ADDSUB_CARRY
        | I::ADDSUB_EXT
        | I::ADDSUB_IMM
        | I::ADDSUB_SHIFT
        | I::BITFIELD
        | I::CONDCMP_IMM
        | I::CONDCMP_REG
        | I::CONDSEL
        | I::CSSC
        | I::DP_1SRC
        | I::EXTRACT
        | I::LOG_IMM
        | I::LOG_SHIFT
        | I::MOVEWIDE
        | I::PCRELADDR => Class::IntAlu,
        I::DP_2SRC if matches!(name, "sdiv" | "udiv") => Class::IntDivide,
        I::DP_2SRC => Class::IntAlu,
        I::DP_3SRC => Class::IntMultiply,
        I::AARCH64_MISC if name.ends_with("mmla") || name.ends_with("dot") => Class::VectorInt,
        I::AARCH64_MISC if matches!(name, "addpt" | "subpt") => Class::IntAlu,
        I::AARCH64_MISC if matches!(name, "maddpt" | "msubpt") => Class::IntMultiply,
        I::AARCH64_MISC | I::EXCEPTION | I::GCS | I::IC_SYSTEM => Class::Other,
        I::SME_START | I::SME_STOP => Class::Other,
        // Only reached by encodings of these classes that do not branch.
        I::BRANCH_IMM | I::BRANCH_REG | I::COMPBRANCH | I::CONDBRANCH | I::TESTBRANCH => {
            Class::Branch
        }
        I::SME_FP_SD
        | I::SME_INT_SD
        | I::SME_MISC
        | I::SME_PSEL
        | I::SME_SHIFT
        | I::SME_SIZE_12_B
        | I::SME_SIZE_12_BH
        | I::SME_SIZE_12_BHS
        | I::SME_SIZE_12_HS
        | I::SME_SIZE_22_HSD
        | I::SME_SIZE_22
        | I::SME_SZ_23
        | I::SVE_INDEX
        | I::SVE_MISC
        | I::SVE_PRED_ZM
        | I::SVE_SHIFT_PRED
        | I::SVE_SHIFT_TSZ_BHSD
        | I::SVE_SHIFT_TSZ_HSD
        | I::SVE_SHIFT_UNPRED
        | I::SVE_SIZE_13
        | I::SVE_SIZE_BH
        | I::SVE_SIZE_BHS
        | I::SVE_SIZE_BHSD
        | I::SVE_SIZE_HSD
        | I::SVE_SIZE_HSD2
        | I::SVE_SIZE_HSD3
        | I::SVE_SIZE_SD
        | I::SVE_SIZE_SD2
        | I::SVE_SIZE_SD3
        | I::SVE_SIZE_SD4
        | I::SVE_SIZE_TSZ_BHS
        | I::SVE2_URQVS => {
            if access.read || access.write {
                access.class()
            } else if is_sve_scalar(name) {
                Class::IntAlu
            } else if name.starts_with("prf") || name.starts_with("rprf") {
                Class::Other
            } else {
                vector(Class::PackedFp)
            }
        }
    }
}

/// Bit set of the general registers written.
fn written(opcode: &Opcode, access: memory::Access, flow: Flow) -> u64 {
    let word = opcode.bits();
    let mut set = 0u64;
    let mut add = |number: u32, with_sp: bool| {
        if number != ZERO_OR_SP || with_sp {
            set |= 1u64 << number;
        }
    };
    let definition = opcode.definition();
    for operand in definition.operands {
        match operand.kind {
            InsnOperandKind::Rd => add(bits(word, 0, 5), false),
            InsnOperandKind::Rd_SP => add(bits(word, 0, 5), true),
            InsnOperandKind::Rt if access.read => add(bits(word, 0, 5), false),
            InsnOperandKind::Rt2 if access.read => add(bits(word, 10, 5), false),
            // Status of an exclusive store, old value of a compare-and-swap.
            InsnOperandKind::Rs if access.write => add(bits(word, 16, 5), false),
            _ => {}
        }
    }
    if memory::writes_back(word, definition.class) {
        add(bits(word, 5, 5), true);
    }
    if matches!(flow, Flow::Call(_) | Flow::IndirectCall { .. }) {
        add(LINK, false);
    }
    if access.bulk {
        // Memory copy and set advance all three of their registers.
        add(bits(word, 0, 5), false);
        add(bits(word, 5, 5), false);
        add(bits(word, 16, 5), false);
    }
    set
}

#[cfg(test)]
mod tests;
