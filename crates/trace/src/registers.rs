//! Numbers of registers: those that ChampSim's traces use (its tracer takes Pin's for x86-64), so that recordings keep them
//! whichever way they go. What Pin numbers beyond the flags differs from version to version; perch has its own there.

/// No register: the end of a list in ChampSim's records.
pub const NONE: u8 = 0;
/// The stack pointer (`champsim::REG_STACK_POINTER` in ChampSim's `inc/trace_instruction.h`).
pub const STACK_POINTER: u8 = 6;
/// The flags (`champsim::REG_FLAGS`).
pub const FLAGS: u8 = 25;
/// The instruction pointer (`champsim::REG_INSTRUCTION_POINTER`).
pub const INSTRUCTION_POINTER: u8 = 26;
/// The first of the eight x87 and MMX registers.
pub const X87: u8 = 48;
/// AVX-512's mask registers, not told apart.
pub const MASK: u8 = 56;
/// Segment, control and all other registers, not told apart.
pub const OTHER: u8 = 57;
/// The first of the 32 vector registers.
pub const VECTOR: u8 = 64;

/// General registers in the order of the instruction set's own numbers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
pub const GENERAL: [u8; 16] = [
    10,
    9,
    8,
    7,
    STACK_POINTER,
    5,
    4,
    3,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
];
