//! The executed instructions of one thread as bytes: runs of neighbours in the table of code, and where memory is touched.
//!
//! A run is a difference (its first number in the table against the one behind the last run) and a count whose lowest bit
//! tells whether the last instruction of the run branched; all others did not. The addresses of the whole run follow, each
//! as the difference to the address that the same access of the same instruction had the last time.

use crate::{recording::CodeTable, varint};

/// Instructions of a run at most, so that a run's addresses are held back only for so long.
const LONGEST: u32 = 1 << 16;

/// What one thread executes, as it comes.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// First number of the run that is being made.
    start: u32,
    count: u32,
    /// Its addresses.
    addresses: Vec<u8>,
    /// The number behind the last finished run.
    expected: u32,
    /// The last address of every access of every instruction.
    last: Vec<u64>,
    instructions: u64,
}

impl Encoder {
    /// Appends an execution of the instruction of that number. There must be an address for each of its accesses.
    #[inline]
    pub fn push(&mut self, table: &CodeTable, id: u32, addresses: &[u64], taken: bool) {
        if self.count > 0 && (id != self.start.wrapping_add(self.count) || self.count == LONGEST) {
            self.close(false);
        }
        if self.count == 0 {
            self.start = id;
        }
        self.count += 1;
        self.instructions += 1;
        if !addresses.is_empty() {
            let slot = table.slot(id);
            debug_assert_eq!(table.code(id).accesses.len(), addresses.len());
            if self.last.len() < slot + addresses.len() {
                self.last.resize(table.slots(), 0);
            }
            for (last, address) in self.last[slot..].iter_mut().zip(addresses) {
                varint::put_signed(&mut self.addresses, address.wrapping_sub(*last) as i64);
                *last = *address;
            }
        }
        if taken {
            self.close(true);
        }
    }

    /// Instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Bytes that are ready to be taken.
    pub fn ready(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes so far without those of the last run, which may go on.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The bytes so far; what comes next is another run.
    pub fn finish(&mut self) -> Vec<u8> {
        if self.count > 0 {
            self.close(false);
        }
        self.take()
    }

    fn close(&mut self, taken: bool) {
        let difference = i64::from(self.start) - i64::from(self.expected);
        varint::put_signed(&mut self.bytes, difference);
        varint::put(
            &mut self.bytes,
            u64::from(self.count) << 1 | u64::from(taken),
        );
        self.bytes.append(&mut self.addresses);
        self.expected = self.start.wrapping_add(self.count);
        self.count = 0;
    }
}
