//! What the plugin in qemu tells perch, through a socket.
//!
//! Messages have a head ([`Head`]) and a body. Blocks are told once, before any thread's records name them: for each a
//! number, a count of instructions (four bytes each), and of each instruction its address (eight bytes), its length (one
//! byte) and its bytes. What a thread does is told in [`record`]s of eight bytes. All numbers have the lowest byte first.

/// The version of this language; perch and its plugin must speak the same.
pub const VERSION: u32 = 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The first one: `thread` is the [`VERSION`].
    Hello = 1,
    /// Blocks of instructions.
    Blocks = 2,
    /// What a thread did next; nothing if it still skips.
    Records = 3,
    /// A thread has as many instructions as were asked for.
    Full = 4,
    /// The program ends.
    End = 5,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Hello,
        Kind::Blocks,
        Kind::Records,
        Kind::Full,
        Kind::End,
    ];
}

/// The head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// The thread, counted from 0 in the order in which they began.
    pub thread: u32,
    /// Bytes of the body.
    pub length: u32,
}

impl Head {
    /// Bytes of a head.
    pub const BYTES: usize = 12;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Head::BYTES] {
        let mut bytes = [0; Head::BYTES];
        let numbers = [self.kind as u32, self.thread, self.length];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From bytes; `None` if they are no head.
    pub fn from_bytes(bytes: &[u8; Head::BYTES]) -> Option<Self> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| *kind as u32 == number(0))?;
        Some(Self {
            kind,
            thread: number(4),
            length: number(8),
        })
    }
}

/// What a thread did, in eight bytes.
pub mod record {
    /// Instructions of a block at most (`TCG_MAX_INSNS`).
    pub const MOST_INSTRUCTIONS: usize = 512;

    const MEMORY: u64 = 1 << 63;
    const STORE: u64 = 1 << 62;
    const SIZE: u32 = 59;
    const INDEX: u32 = 50;
    const ADDRESS: u64 = (1 << INDEX) - 1;

    /// What a record says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Record {
        /// The thread begins a block.
        Block(u32),
        /// An instruction of it touched memory.
        Memory {
            /// Which one of the block.
            index: usize,
            /// Whether it wrote.
            store: bool,
            /// How much, in bytes.
            bytes: u16,
            /// The virtual address that is accessed.
            address: u64,
        },
    }

    /// A thread begins a block.
    #[inline]
    pub fn block(number: u32) -> u64 {
        u64::from(number)
    }

    /// An instruction of the block, counted from 0, touched 2^`shift` bytes.
    #[inline]
    pub fn memory(index: usize, store: bool, shift: u32, address: u64) -> u64 {
        MEMORY
            | if store { STORE } else { 0 }
            | u64::from(shift & 7) << SIZE
            | (index as u64 & 0x1ff) << INDEX
            | address & ADDRESS
    }

    /// What a record says.
    #[inline]
    pub fn read(record: u64) -> Record {
        if record & MEMORY == 0 {
            return Record::Block(record as u32);
        }
        Record::Memory {
            index: (record >> INDEX) as usize & 0x1ff,
            store: record & STORE != 0,
            bytes: 1 << (record >> SIZE & 7),
            address: record & ADDRESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{record::Record, *};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(index in 0..record::MOST_INSTRUCTIONS, store in any::<bool>(), shift in 0u32..8, address in 0u64..1 << 50, block in any::<u32>()) {
            let read = record::read(record::memory(index, store, shift, address));
            prop_assert_eq!(read, Record::Memory { index, store, bytes: 1 << shift, address });
            prop_assert_eq!(record::read(record::block(block)), Record::Block(block));
        }

        #[test]
        fn heads_come_back(bytes in any::<[u8; Head::BYTES]>(), kind in 1u8..6) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            prop_assert_eq!(Head::from_bytes(&bytes).map(Head::to_bytes), Some(bytes));
        }
    }
}
