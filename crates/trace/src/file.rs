//! perch's own format: classes of operations, registers and all threads of a program in one file.
//!
//! A file is a head ([`MAGIC`], then the version as four bytes, the lowest first) and sections. A section has a kind (one
//! byte), a thread (four bytes, counted from 0; 0 where there is none), the length of its content, the length of its
//! content as stored (four bytes each), and the content, stored as a zlib stream, whose checksum tells damage. Kinds:
//!
//! 1. the program as it was started, as text;
//! 2. instructions that the table of code gains;
//! 3. what a thread executed, a part ([`crate::Encoder`]);
//! 4. the end: the number of threads, then of each thread's instructions. A file without it was cut off.
//!
//! `docs/traces.md` says it in full. Sections are written as the recorder comes by them, so that a recording need not fit
//! into memory while it is made.

use crate::{
    Access, Branch, Class, Code, Limits, Recording,
    load::CODE_BYTES,
    recording::{CodeTable, ThreadRecord},
    varint,
};
use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};
use std::io::{self, Read, Write};

/// How a file begins.
pub const MAGIC: [u8; 8] = *b"perchtrc";

/// The version of the format that is written and read.
pub const VERSION: u32 = 1;

/// Bytes of a section's content at most.
const LARGEST: usize = 1 << 24;

/// Bytes of a thread's instructions that are worth a section.
pub(crate) const WORTH: usize = 1 << 20;

/// Threads of a recording at most.
pub const MOST_THREADS: usize = 65_536;

/// Registers in a list, and accesses of an instruction, at most.
const LONGEST_LIST: usize = 255;

const PROGRAM: u8 = 1;
const CODE: u8 = 2;
const PIECE: u8 = 3;
const END: u8 = 4;

/// Writes a recording as it is made.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    /// Instructions of the table that are written.
    codes: usize,
    /// Where the last of them ends.
    after: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// Of writing.
    pub fn new(mut out: W, program: &str) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Self {
            out,
            codes: 0,
            after: 0,
        };
        let mut end = program.len().min(LARGEST);
        while !program.is_char_boundary(end) {
            end -= 1;
        }
        writer.section(PROGRAM, 0, &program.as_bytes()[..end])?;
        Ok(writer)
    }

    /// Writes what a thread, counted from 0, executed next. The instructions that the table has gained are written before.
    ///
    /// # Errors
    /// Of writing.
    pub fn piece(&mut self, table: &CodeTable, thread: u32, bytes: &[u8]) -> io::Result<()> {
        self.codes(table)?;
        for part in bytes.chunks(LARGEST) {
            self.section(PIECE, thread, part)?;
        }
        Ok(())
    }

    /// Writes the end, with the number of instructions of each thread.
    ///
    /// # Errors
    /// Of writing.
    pub fn finish(mut self, table: &CodeTable, instructions: &[u64]) -> io::Result<W> {
        self.codes(table)?;
        let mut raw = Vec::new();
        varint::put(&mut raw, instructions.len() as u64);
        for number in instructions {
            varint::put(&mut raw, *number);
        }
        self.section(END, 0, &raw)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn codes(&mut self, table: &CodeTable) -> io::Result<()> {
        let mut raw = Vec::new();
        for code in &table.codes()[self.codes..] {
            put_code(&mut raw, code, self.after);
            self.after = code.end();
            if raw.len() >= WORTH {
                self.section(CODE, 0, &raw)?;
                raw.clear();
            }
        }
        self.codes = table.codes().len();
        match raw.is_empty() {
            true => Ok(()),
            false => self.section(CODE, 0, &raw),
        }
    }

    fn section(&mut self, kind: u8, thread: u32, raw: &[u8]) -> io::Result<()> {
        // The fastest level: the recorded program waits for it.
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(raw)?;
        let stored = encoder.finish()?;
        self.out.write_all(&[kind])?;
        for number in [thread, raw.len() as u32, stored.len() as u32] {
            self.out.write_all(&number.to_le_bytes())?;
        }
        self.out.write_all(&stored)
    }
}

/// Writes a whole recording.
///
/// # Errors
/// Of writing.
pub fn write<W: Write>(recording: &Recording, out: W) -> io::Result<W> {
    let mut writer = Writer::new(out, &recording.program)?;
    for (number, thread) in recording.threads.iter().enumerate() {
        for part in thread.bytes.chunks(WORTH) {
            writer.piece(&recording.table, number as u32, part)?;
        }
    }
    let instructions: Vec<u64> = recording.threads.iter().map(|t| t.instructions).collect();
    writer.finish(&recording.table, &instructions)
}

fn put_code(raw: &mut Vec<u8>, code: &Code, after: u64) {
    varint::put_signed(raw, code.address.wrapping_sub(after) as i64);
    raw.push(code.length);
    let branch = code.branch.map_or(0, |branch| branch as u8 + 1);
    raw.push(code.class as u8 | branch << 4);
    for list in [&code.bases, &code.sources, &code.destinations] {
        let list = &list[..list.len().min(LONGEST_LIST)];
        raw.push(list.len() as u8);
        raw.extend_from_slice(list);
    }
    raw.push(code.accesses.len() as u8);
    for access in &code.accesses {
        varint::put(raw, u64::from(access.bytes) << 1 | u64::from(access.store));
    }
}

fn get_code(raw: &[u8], at: &mut usize, after: u64) -> Option<Code> {
    let byte = |at: &mut usize| {
        let byte = *raw.get(*at)?;
        *at += 1;
        Some(byte)
    };
    let address = after.wrapping_add(varint::get_signed(raw, at)? as u64);
    let length = byte(at)?;
    let kinds = byte(at)?;
    let class = *Class::ALL.get(usize::from(kinds & 15))?;
    let branch = match kinds >> 4 {
        0 => None,
        number => Some(*Branch::ALL.get(usize::from(number) - 1)?),
    };
    if branch.is_some() != (class == Class::Branch) {
        return None;
    }
    let list = |at: &mut usize| -> Option<Box<[u8]>> {
        let length = usize::from(byte(at)?);
        let list = raw.get(*at..*at + length)?;
        *at += length;
        Some(list.into())
    };
    let (bases, sources, destinations) = (list(at)?, list(at)?, list(at)?);
    let accesses = (0..byte(at)?)
        .map(|_| {
            let number = varint::get(raw, at)?;
            Some(Access {
                bytes: u16::try_from(number >> 1).ok()?,
                store: number & 1 == 1,
            })
        })
        .collect::<Option<_>>()?;
    Some(Code {
        address,
        length,
        class,
        branch,
        bases,
        sources,
        destinations,
        accesses,
    })
}

/// Reads a recording behind its [`MAGIC`].
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn read(input: &mut dyn Read, limits: &Limits) -> Result<Recording, String> {
    let mut version = [0; 4];
    input.read_exact(&mut version).map_err(cut_off)?;
    let version = u32::from_le_bytes(version);
    if version != VERSION {
        return Err(format!(
            "written in version {version} of the format; this perch reads version {VERSION}: record it again"
        ));
    }
    let mut recording = Recording::default();
    let (mut after, mut bytes) = (0, 0u64);
    loop {
        let (kind, thread, raw) = section(input)?;
        bytes += raw.len() as u64;
        if bytes > limits.bytes {
            return Err(limits.exceeded());
        }
        match kind {
            PROGRAM => recording.program = String::from_utf8_lossy(&raw).into_owned(),
            CODE => {
                let mut at = 0;
                while at < raw.len() {
                    let code = get_code(&raw, &mut at, after)
                        .ok_or("damaged: an instruction of its table is none")?;
                    after = code.end();
                    // In memory it is many times as large as in the file.
                    bytes += CODE_BYTES;
                    if bytes > limits.bytes {
                        return Err(limits.exceeded());
                    }
                    recording.table.add(code);
                }
                // Each may name the whole table's slots; what they take is bounded with the rest.
                bytes += recording.table.slots() as u64;
            }
            PIECE => {
                let thread = thread as usize;
                if thread >= MOST_THREADS {
                    return Err(format!("damaged: it names a thread {thread}"));
                }
                if recording.threads.len() <= thread {
                    recording
                        .threads
                        .resize_with(thread + 1, ThreadRecord::default);
                }
                recording.threads[thread].bytes.extend_from_slice(&raw);
            }
            END => {
                end(&raw, &mut recording.threads)?;
                recording.check().map_err(|why| format!("damaged: {why}"))?;
                return Ok(recording);
            }
            other => return Err(format!("damaged: a section of the unknown kind {other}")),
        }
    }
}

fn end(raw: &[u8], threads: &mut Vec<ThreadRecord>) -> Result<(), String> {
    let wrong = "damaged: its end does not fit to its threads";
    let mut at = 0;
    let number = varint::get(raw, &mut at).ok_or(wrong)?;
    if number < threads.len() as u64 || number > MOST_THREADS as u64 {
        return Err(wrong.into());
    }
    threads.resize_with(number as usize, ThreadRecord::default);
    for thread in threads {
        thread.instructions = varint::get(raw, &mut at).ok_or(wrong)?;
    }
    Ok(())
}

/// The next section's kind, thread and content.
fn section(input: &mut dyn Read) -> Result<(u8, u32, Vec<u8>), String> {
    let mut head = [0; 13];
    input.read_exact(&mut head).map_err(cut_off)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (length, stored) = (number(5) as usize, number(9) as usize);
    // Content that cannot be made smaller is stored a little larger.
    if length > LARGEST || stored > 2 * LARGEST {
        return Err("damaged: a section that is larger than any".into());
    }
    let mut bytes = Vec::new();
    input
        .take(stored as u64)
        .read_to_end(&mut bytes)
        .map_err(cut_off)?;
    if bytes.len() < stored {
        return Err(cut_off(io::ErrorKind::UnexpectedEof.into()));
    }
    let mut raw = Vec::new();
    ZlibDecoder::new(&bytes[..])
        .take(length as u64 + 1)
        .read_to_end(&mut raw)
        .map_err(|error| format!("damaged: {error}"))?;
    if raw.len() != length {
        return Err("damaged: a section has another length than it says".into());
    }
    Ok((head[0], number(1), raw))
}

fn cut_off(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "it ends too early: recording or copying it was interrupted; record it again".into()
        }
        _ => format!("cannot be read: {error}"),
    }
}
