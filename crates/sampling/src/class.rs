//! What an instruction does, in the twelve classes that a mix is made of.

/// The class of one instruction. Every instruction has exactly one.
///
/// Floating point means arithmetic, comparison and conversion. Moves, shuffles and bitwise logic on
/// vector registers are [`VectorMove`](Class::VectorMove), whatever element type their names carry:
/// memcpy and ciphers use vector registers without doing any floating-point work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Floating-point arithmetic on one element.
    ScalarFp,
    /// Floating-point arithmetic on several elements at once.
    PackedFp,
    /// x87 arithmetic.
    OtherFp,
    /// Integer arithmetic, comparison, shift or cipher step on a vector register.
    VectorInt,
    /// Move, shuffle, broadcast, blend or bitwise logic on vector registers; x87 register moves.
    VectorMove,
    /// An instruction whose work is to read memory into a register.
    Load,
    /// An instruction whose work is to write a register to memory.
    Store,
    /// Jump, conditional jump, call or return.
    Branch,
    /// Integer arithmetic and logic, including with a memory operand, and atomic updates.
    IntAlu,
    /// Integer multiplication.
    IntMultiply,
    /// Integer division.
    IntDivide,
    /// No-operation, system, hint and string instructions.
    Other,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 12;

    /// All classes, in the order of their indices.
    pub const ALL: [Class; Class::COUNT] = [
        Class::ScalarFp,
        Class::PackedFp,
        Class::OtherFp,
        Class::VectorInt,
        Class::VectorMove,
        Class::Load,
        Class::Store,
        Class::Branch,
        Class::IntAlu,
        Class::IntMultiply,
        Class::IntDivide,
        Class::Other,
    ];

    /// Position in [`Class::ALL`] and in every table by class.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the instruction does floating-point work.
    #[inline]
    pub const fn is_fp(self) -> bool {
        matches!(self, Class::ScalarFp | Class::PackedFp | Class::OtherFp)
    }

    /// Short lower-case name for tables and journals.
    pub const fn name(self) -> &'static str {
        match self {
            Class::ScalarFp => "scalar-fp",
            Class::PackedFp => "packed-fp",
            Class::OtherFp => "other-fp",
            Class::VectorInt => "vector-int",
            Class::VectorMove => "vector-move",
            Class::Load => "load",
            Class::Store => "store",
            Class::Branch => "branch",
            Class::IntAlu => "int-alu",
            Class::IntMultiply => "int-multiply",
            Class::IntDivide => "int-divide",
            Class::Other => "other",
        }
    }
}
