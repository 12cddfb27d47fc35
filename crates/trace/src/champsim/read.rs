//! Reading ChampSim's traces.

use super::{BRANCH, DESTINATIONS, LOADS, READ, RECORD, SOURCES, STORES, TAKEN, WRITTEN};
use crate::{
    Access, Branch, Class, Code, Encoder, Limits, Recording,
    load::CODE_BYTES,
    recording::CodeTable,
    registers::{FLAGS, INSTRUCTION_POINTER, NONE, STACK_POINTER, VECTOR},
};
use rustc_hash::FxHashMap;
use std::io::{self, Read};

/// Bytes of an access: the format does not tell.
const ACCESS: u16 = 8;

/// The length of an instruction of which the trace does not tell it.
const LENGTH: u8 = 4;

/// Longest instruction of x86.
const LONGEST: u64 = 15;

/// Reads a trace, as a recording of one thread.
///
/// Lengths are told by the addresses that follow. Classes are told as far as they can be: branches; instructions that only
/// read or only write memory as loads and stores; those that compute with vector registers as perch numbers them as
/// floating-point; all others are integer arithmetic. What an instruction reads counts for its addresses and its data.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read(input: &mut dyn Read, limits: &Limits) -> Result<Recording, String> {
    let mut table = CodeTable::default();
    let mut encoder = Encoder::default();
    let mut lengths = FxHashMap::default();
    let mut before: Option<[u8; RECORD]> = None;
    let mut bytes = 0;
    for number in 0.. {
        let record = record(input, number)?;
        if let Some(record) = &record {
            plausible(record, number)?;
        }
        if let Some(before) = before {
            let next = record.map(|record| word(&record, 0));
            let length = length(&before, next, &mut lengths);
            let (code, addresses) = code(&before, length);
            let taken = before[TAKEN] == 1 && code.branch.is_some();
            let known = table.codes().len();
            let id = table.id(code);
            bytes += (table.codes().len() - known) as u64 * CODE_BYTES;
            encoder.push(&table, id, &addresses, taken);
            if bytes + encoder.ready() as u64 > limits.bytes {
                return Err(limits.exceeded());
            }
        }
        if record.is_none() {
            break;
        }
        before = record;
    }
    Ok(Recording::from_parts("", table, [encoder]))
}

/// The next record; `None` at the end.
fn record(input: &mut dyn Read, number: u64) -> Result<Option<[u8; RECORD]>, String> {
    let mut record = [0; RECORD];
    let mut filled = 0;
    while filled < RECORD {
        match input.read(&mut record[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => {
                return Err(format!(
                    "neither a recording of perch nor whole records of ChampSim: record {number} has {filled} of {RECORD} bytes"
                ));
            }
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
    }
    Ok(Some(record))
}

fn plausible(record: &[u8; RECORD], number: u64) -> Result<(), String> {
    for (at, what) in [(BRANCH, "is a branch"), (TAKEN, "branched")] {
        if record[at] > 1 {
            return Err(format!(
                "neither a recording of perch nor a trace of ChampSim: whether it {what} is {} in record {number}, not 0 or 1",
                record[at]
            ));
        }
    }
    Ok(())
}

fn word(record: &[u8; RECORD], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The length, from the next instruction's address if control went there, else as it was found before.
fn length(record: &[u8; RECORD], next: Option<u64>, lengths: &mut FxHashMap<u64, u8>) -> u8 {
    let address = word(record, 0);
    let distance = next.map(|next| next.wrapping_sub(address));
    match distance {
        Some(distance @ 1..=LONGEST) if record[TAKEN] == 0 => {
            lengths.insert(address, distance as u8);
            distance as u8
        }
        _ => lengths.get(&address).copied().unwrap_or(LENGTH),
    }
}

fn code(record: &[u8; RECORD], length: u8) -> (Code, Vec<u64>) {
    let registers = |at: usize, count: usize| -> Box<[u8]> {
        let some = record[at..at + count].iter();
        some.filter(|register| **register != NONE)
            .copied()
            .collect()
    };
    let destinations = registers(WRITTEN, DESTINATIONS);
    let sources = registers(READ, SOURCES);
    let (mut accesses, mut addresses) = (Vec::new(), Vec::new());
    for (store, start, count) in [(false, LOADS, SOURCES), (true, STORES, DESTINATIONS)] {
        for slot in 0..count {
            let address = word(record, start + 8 * slot);
            if address != 0 {
                accesses.push(Access {
                    bytes: ACCESS,
                    store,
                });
                addresses.push(address);
            }
        }
    }
    let branch = (record[BRANCH] == 1 || destinations.contains(&INSTRUCTION_POINTER))
        .then(|| branch(&sources, &destinations));
    let vector = |list: &[u8]| list.iter().any(|register| *register >= VECTOR);
    let stores = accesses.iter().filter(|access| access.store).count();
    let class = if branch.is_some() {
        Class::Branch
    } else if stores == accesses.len() && stores > 0 {
        Class::Store
    } else if stores == 0
        && !accesses.is_empty()
        && !vector(&sources)
        && !sources.contains(&FLAGS)
        && moves(&sources, &destinations)
    {
        Class::Load
    } else if vector(&sources) || vector(&destinations) {
        Class::Fp
    } else {
        Class::Alu
    };
    let code = Code {
        address: word(record, 0),
        length,
        class,
        branch,
        bases: match accesses.is_empty() {
            true => Box::default(),
            false => sources.clone(),
        },
        sources,
        destinations,
        accesses: accesses.into(),
    };
    (code, addresses)
}

/// Whether an instruction that reads memory only loads it: what it writes, it does not read, and it sets no flags.
fn moves(sources: &[u8], destinations: &[u8]) -> bool {
    destinations.iter().all(|register| {
        *register == STACK_POINTER || (*register != FLAGS && !sources.contains(register))
    })
}

/// ChampSim's own rules (`inc/instruction.h`).
fn branch(sources: &[u8], destinations: &[u8]) -> Branch {
    let reads = |register| sources.contains(&register);
    let special = [STACK_POINTER, FLAGS, INSTRUCTION_POINTER];
    let other = sources.iter().any(|register| !special.contains(register));
    let stack = reads(STACK_POINTER) && destinations.contains(&STACK_POINTER);
    match (stack, reads(INSTRUCTION_POINTER), reads(FLAGS)) {
        (true, false, _) => Branch::Return,
        (true, true, _) if other => Branch::IndirectCall,
        (true, true, _) => Branch::Call,
        (false, false, false) if other => Branch::IndirectJump,
        (false, _, false) if !other => Branch::Jump,
        _ => Branch::Conditional,
    }
}
