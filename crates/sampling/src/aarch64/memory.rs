//! Which memory an Arm instruction reads and writes (Arm ARM, DDI 0487, sections C4.1.94 and C8.1).

use disarm64_defn::InsnClass;

use super::{ZERO_OR_SP, bits, signed_bits};
use crate::class::Class;
use crate::instruction::MemoryOperand;

/// Memory accesses of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
    /// A memory copy or set instruction, which may run for long.
    pub(super) bulk: bool,
}

impl Access {
    const NONE: Access = Access {
        read: false,
        write: false,
        bulk: false,
    };
    const READ: Access = Access {
        read: true,
        write: false,
        bulk: false,
    };
    const WRITE: Access = Access {
        read: false,
        write: true,
        bulk: false,
    };
    const UPDATE: Access = Access {
        read: true,
        write: true,
        bulk: false,
    };

    /// Class of an instruction that does nothing but this.
    pub(super) fn class(self) -> Class {
        match (self.read, self.write) {
            (true, _) => Class::Load,
            (false, true) => Class::Store,
            (false, false) => Class::Other,
        }
    }
}

pub(super) fn access(class: InsnClass, name: &str) -> Access {
    use InsnClass as I;
    let by_name = || {
        if name.starts_with("ld") {
            Access::READ
        } else if name.starts_with("st") && !name.starts_with("stmop") {
            Access::WRITE
        } else {
            Access::NONE
        }
    };
    match class {
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
        | I::SME_STR
        | I::SME_MISC
        | I::SVE_MISC
        | I::SVE_SIZE_SD2 => by_name(),
        I::LSE_ATOMIC if matches!(name, "ld64b") => Access::READ,
        I::LSE_ATOMIC if name.starts_with("st64b") => Access::WRITE,
        I::LSE_ATOMIC | I::LSE128_ATOMIC | I::THE => Access::UPDATE,
        I::AARCH64_MISC if name.starts_with("cpy") => Access {
            bulk: true,
            ..Access::UPDATE
        },
        I::AARCH64_MISC if name.starts_with("set") => Access {
            bulk: true,
            ..Access::WRITE
        },
        _ => Access::NONE,
    }
}

/// Whether the base register is updated by the access.
pub(super) fn writes_back(word: u32, class: InsnClass) -> bool {
    match class {
        InsnClass::LDST_IMM9 => bits(word, 10, 1) == 1,
        InsnClass::LDST_IMM10 => bits(word, 11, 1) == 1,
        InsnClass::LDSTPAIR_INDEXED | InsnClass::ASISDLSEP | InsnClass::ASISDLSOP => true,
        _ => false,
    }
}

/// The operand, if general registers determine its address.
pub(super) fn operand(
    word: u32,
    ip: u64,
    class: InsnClass,
    name: &str,
    access: Access,
) -> Option<MemoryOperand> {
    use InsnClass as I;
    let vector = bits(word, 26, 1) == 1;
    let size_field = bits(word, 30, 2);
    // A 128-bit vector register has size 0 and the high bit of opc set.
    let scale = if vector && size_field == 0 && bits(word, 23, 1) == 1 {
        4
    } else {
        size_field
    };
    let simple = MemoryOperand {
        base: Some(bits(word, 5, 5) as u8),
        index: None,
        scale: 1,
        narrow_index: None,
        displacement: 0,
        size: 1 << scale,
        read: access.read,
        write: access.write,
    };
    Some(match class {
        I::LDST_POS => MemoryOperand {
            displacement: i64::from(bits(word, 10, 12)) << scale,
            ..simple
        },
        I::LDST_IMM9 | I::LDST_UNSCALED | I::LDST_UNPRIV => {
            // Post-indexed forms access the base itself.
            let post = class == I::LDST_IMM9 && bits(word, 10, 2) == 0b01;
            let displacement = if post { 0 } else { signed_bits(word, 12, 9) };
            MemoryOperand {
                displacement,
                ..simple
            }
        }
        I::LDST_IMM10 => {
            let sign = -i64::from(bits(word, 22, 1)) << 9;
            MemoryOperand {
                displacement: (sign | i64::from(bits(word, 12, 9))) * 8,
                size: 8,
                ..simple
            }
        }
        I::LDST_REGOFF => MemoryOperand {
            scale: if bits(word, 12, 1) == 1 {
                1 << scale
            } else {
                1
            },
            narrow_index: match bits(word, 13, 3) {
                0b010 => Some(false),
                0b110 => Some(true),
                _ => None,
            },
            ..with_index(simple, bits(word, 16, 5))
        },
        I::LDSTPAIR_OFF | I::LDSTPAIR_INDEXED | I::LDSTNAPAIR_OFFS => {
            let element = match (vector, size_field) {
                (true, field) => 2 + field,
                (false, 0b10 | 0b11) => 3,
                (false, _) => 2,
            };
            let post = class == I::LDSTPAIR_INDEXED && bits(word, 23, 2) == 0b01;
            let offset = signed_bits(word, 15, 7) << element;
            MemoryOperand {
                displacement: if post { 0 } else { offset },
                size: 2 << element,
                ..simple
            }
        }
        I::LOADLIT => MemoryOperand {
            base: None,
            displacement: (ip as i64).wrapping_add(signed_bits(word, 5, 19) * 4),
            size: 4 << bits(word, 30, 1),
            ..simple
        },
        I::LDSTEXCL | I::LSE_ATOMIC | I::RCPC3 => simple,
        I::LSE128_ATOMIC | I::THE => MemoryOperand { size: 16, ..simple },
        I::ASISDLSE | I::ASISDLSEP => MemoryOperand {
            size: 8 << bits(word, 30, 1),
            ..simple
        },
        I::ASISDLSO | I::ASISDLSOP => MemoryOperand { size: 8, ..simple },
        I::SVE_MISC => sve_operand(word, name, simple)?,
        _ => return None,
    })
}

/// Contiguous SVE accesses; the constant of the scalar-plus-immediate form counts vector lengths, which
/// the encoding does not tell, and is left out. Gathers and scatters have no single address.
fn sve_operand(word: u32, name: &str, simple: MemoryOperand) -> Option<MemoryOperand> {
    let contiguous = matches!(bits(word, 25, 7), 0b1010010 | 0b1110010);
    if !contiguous {
        return None;
    }
    let element: u32 = match name.as_bytes().last() {
        Some(b'b') => 0,
        Some(b'h') => 1,
        Some(b'w') => 2,
        Some(b'd') => 3,
        Some(b'q') => 4,
        _ => return None,
    };
    let store = bits(word, 30, 1) == 1;
    let plain = MemoryOperand { size: 0, ..simple };
    match (store, bits(word, 13, 3)) {
        (_, 0b010) | (_, 0b011) | (false, 0b000 | 0b110) => Some(MemoryOperand {
            scale: 1 << element,
            ..with_index(plain, bits(word, 16, 5))
        }),
        // Of stores, 0b101 is a scatter.
        (_, 0b111) | (false, 0b001 | 0b101) => Some(plain),
        _ => None,
    }
}

fn with_index(operand: MemoryOperand, number: u32) -> MemoryOperand {
    MemoryOperand {
        index: (number != ZERO_OR_SP).then_some(number as u8),
        ..operand
    }
}
