//! Writing ChampSim's traces.

use super::{BRANCH, DESTINATIONS, LOADS, READ, RECORD, SOURCES, STORES, TAKEN, WRITTEN};
use crate::{
    Branch, Code, Cursor, Instruction, Recording, TraceError,
    compress::Packer,
    registers::{FLAGS, INSTRUCTION_POINTER, NONE, OTHER, STACK_POINTER},
};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Writes each thread of a recording as a file of its own: `path` if there is one thread; else with the thread's number,
/// from 1, before the file's endings (`app.champsimtrace.gz` becomes `app.2.champsimtrace.gz`). Packed as the name ends.
///
/// # Errors
/// Of writing, with the file's name.
pub fn write(recording: &Arc<Recording>, path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let files = files(recording, path);
    for (thread, file) in files.iter().enumerate() {
        let written = File::create(file).and_then(|out| {
            let mut out = Packer::by_name(file, BufWriter::with_capacity(1 << 16, out))?;
            write_thread(recording, thread, &mut out)?;
            out.finish()
        });
        written.map_err(|error| TraceError::Io {
            path: file.clone(),
            what: "cannot be written",
            error,
        })?;
    }
    Ok(files)
}

/// The files that [`write`] writes.
pub fn files(recording: &Recording, path: &Path) -> Vec<PathBuf> {
    match recording.threads().len() {
        1 => vec![path.to_owned()],
        threads => (1..=threads).map(|number| numbered(path, number)).collect(),
    }
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, endings) = name.split_once('.').unwrap_or((&name, ""));
    let dot = if endings.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}.{number}{dot}{endings}"))
}

/// Writes one thread, counted from 0; nothing if there is no such thread.
///
/// # Errors
/// Of writing.
pub fn write_thread(
    recording: &Arc<Recording>,
    thread: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(mut cursor) = Cursor::new(Arc::clone(recording), thread) else {
        return Ok(());
    };
    while let Some(instruction) = cursor.next() {
        out.write_all(&record(&instruction))?;
    }
    Ok(())
}

/// An instruction as ChampSim has it. What does not fit is left out: registers and addresses beyond the record's room,
/// the sizes of accesses, the class of the operation.
fn record(instruction: &Instruction<'_>) -> [u8; RECORD] {
    let code = instruction.code;
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&code.address.to_le_bytes());
    record[BRANCH] = u8::from(code.branch.is_some());
    record[TAKEN] = u8::from(instruction.taken);
    let (destinations, sources) = match code.branch {
        Some(branch) => of_branch(branch, code),
        None => of_others(code),
    };
    record[WRITTEN..WRITTEN + DESTINATIONS].copy_from_slice(&destinations);
    record[READ..READ + SOURCES].copy_from_slice(&sources);
    for (store, start, room) in [(true, STORES, DESTINATIONS), (false, LOADS, SOURCES)] {
        let accesses = code.accesses.iter().zip(instruction.addresses);
        let addresses = accesses.filter(|(access, _)| access.store == store);
        for (slot, (_, address)) in addresses.take(room).enumerate() {
            let at = start + 8 * slot;
            record[at..at + 8].copy_from_slice(&address.to_le_bytes());
        }
    }
    record
}

/// The registers by which ChampSim tells kinds of branches apart.
fn of_branch(branch: Branch, code: &Code) -> ([u8; DESTINATIONS], [u8; SOURCES]) {
    let special = |register: &u8| [STACK_POINTER, FLAGS, INSTRUCTION_POINTER].contains(register);
    let mut others = code.sources.iter().chain(&code.bases);
    // A target from a fixed place in memory depends on no register; ChampSim needs one to see that it is not direct.
    let other = others.find(|register| !special(register)).copied();
    let other = other.unwrap_or(OTHER);
    let (ip, sp) = (INSTRUCTION_POINTER, STACK_POINTER);
    match branch {
        Branch::Jump => ([ip, NONE], [ip, NONE, NONE, NONE]),
        Branch::IndirectJump => ([ip, NONE], [other, NONE, NONE, NONE]),
        Branch::Conditional => ([ip, NONE], [ip, FLAGS, NONE, NONE]),
        Branch::Call => ([ip, sp], [ip, sp, NONE, NONE]),
        Branch::IndirectCall => ([ip, sp], [ip, sp, other, NONE]),
        Branch::Return => ([ip, sp], [sp, NONE, NONE, NONE]),
    }
}

fn of_others(code: &Code) -> ([u8; DESTINATIONS], [u8; SOURCES]) {
    (
        some(code.destinations.iter()),
        some(code.sources.iter().chain(&code.bases)),
    )
}

/// As many as there is room for, each once, flags last: few instructions depend on them.
fn some<'a, const ROOM: usize>(registers: impl Iterator<Item = &'a u8> + Clone) -> [u8; ROOM] {
    let first = registers.clone().filter(|register| **register != FLAGS);
    let flags = registers.filter(|register| **register == FLAGS);
    let (mut list, mut count) = ([NONE; ROOM], 0);
    for register in first.chain(flags) {
        // Only branches write the instruction pointer, for ChampSim.
        if count < ROOM && *register != INSTRUCTION_POINTER && !list.contains(register) {
            list[count] = *register;
            count += 1;
        }
    }
    list
}
