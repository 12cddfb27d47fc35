//! One recorded instruction, whatever format it comes from.

use serde::Serialize;

/// What an instruction does, as far as units and latencies are concerned; what it does with memory is told by its
/// [`Access`]es. The same classes, in the same order, as the simulated machine's operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Class {
    /// Integer arithmetic, logic, moves between registers, and everything that is in no other class.
    Alu,
    /// Integer multiplication.
    Multiply,
    /// Integer division.
    Divide,
    /// Floating-point or SIMD arithmetic.
    Fp,
    /// Floating-point division or square root.
    FpDivide,
    /// Only reads memory.
    Load,
    /// Only writes memory.
    Store,
    /// Changes the flow.
    Branch,
}

impl Class {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// All of them, in the order of their numbers.
    pub const ALL: [Class; Class::COUNT] = [
        Class::Alu,
        Class::Multiply,
        Class::Divide,
        Class::Fp,
        Class::FpDivide,
        Class::Load,
        Class::Store,
        Class::Branch,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Alu => "alu",
            Class::Multiply => "multiply",
            Class::Divide => "divide",
            Class::Fp => "fp",
            Class::FpDivide => "fp-divide",
            Class::Load => "load",
            Class::Store => "store",
            Class::Branch => "branch",
        }
    }
}

/// How a branch finds its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Branch {
    /// Always to the same place.
    Jump,
    /// To a place that a register or memory holds.
    IndirectJump,
    /// To one place, or on to the next instruction.
    Conditional,
    /// To the same place, and back later.
    Call,
    /// To a place that a register or memory holds, and back later.
    IndirectCall,
    /// Back to the caller.
    Return,
}

impl Branch {
    /// All of them, in the order of their numbers.
    pub const ALL: [Branch; 6] = [
        Branch::Jump,
        Branch::IndirectJump,
        Branch::Conditional,
        Branch::Call,
        Branch::IndirectCall,
        Branch::Return,
    ];
}

/// What an instruction does with one piece of memory; where that is, each execution tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// How much, in bytes.
    pub bytes: u16,
    /// Whether it writes.
    pub store: bool,
}

/// What is the same in every execution of an instruction.
///
/// An instruction that touches memory in another way the next time (a repeated string instruction that has nothing left
/// to do) is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Code {
    /// Where it stands, in bytes, in the address space of its program.
    pub address: u64,
    /// Its length, in bytes.
    pub length: u8,
    /// What it does.
    pub class: Class,
    /// How, if it branches; exactly those of [`Class::Branch`] do.
    pub branch: Option<Branch>,
    /// Registers that addresses are made of (numbers: [`crate::registers`]).
    pub bases: Box<[u8]>,
    /// Registers that it reads for anything else.
    pub sources: Box<[u8]>,
    /// Registers that it writes.
    pub destinations: Box<[u8]>,
    /// What it does with memory, in the order in which it does it.
    pub accesses: Box<[Access]>,
}

impl Code {
    /// The address of the instruction behind it.
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.length))
    }

    /// Whether it reads memory.
    pub fn loads(&self) -> bool {
        self.accesses.iter().any(|access| !access.store)
    }

    /// Whether it writes memory.
    pub fn stores(&self) -> bool {
        self.accesses.iter().any(|access| access.store)
    }
}

/// One execution of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// Its number in the recording's table of code.
    pub id: u32,
    /// What is the same each time.
    pub code: &'a Code,
    /// Where it touched memory: an address for each of the code's accesses.
    pub addresses: &'a [u64],
    /// Whether it branched.
    pub taken: bool,
}
