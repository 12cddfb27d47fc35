//! A journal as bytes.
//!
//! Formats 2 to 6: a line `perch-journal 2 LENGTH`, in which LENGTH (16 hexadecimal digits) says how long the file is
//! known to be and is written over in place; then lines `CHECK NUMBER JSON`: the CRC-32 of what follows it, the line's number,
//! and the header (twice, so that one damaged line does not lose it) or a record. So damage of any kind shows: a changed
//! line by its check value, a missing, doubled or moved one by its number, a missing end by the length. Bytes behind
//! LENGTH are those of a write that was cut short; nothing was changed on their account.
//!
//! Format 1, which perch 0.1 wrote: the header and then records, a JSON object a line, with no protection.

use super::{Header, Journal, JournalError, Record, VERSION};
use perch_core::PuSet;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// What the first line begins with.
const MAGIC: &[u8] = b"perch-journal 2 ";
/// Digits of the length.
const DIGITS: usize = 16;
/// Bytes of the first line.
pub(super) const PREAMBLE: usize = MAGIC.len() + DIGITS + 1;
/// Where the length stands.
pub(super) const LENGTH_AT: u64 = MAGIC.len() as u64;
/// Bytes of a record for each PU that a mask may name: all of its few masks need much less.
const LINE: u64 = 64;
/// How often the header is written.
const HEADERS: u64 = 2;

/// The length as written in the first line.
pub(super) fn length(length: u64) -> String {
    format!("{length:0DIGITS$x}")
}

/// Appends a line.
fn line(text: &mut Vec<u8>, number: u64, value: &impl serde::Serialize) -> io::Result<()> {
    let mut checked = Vec::new();
    write!(checked, "{number} ")?;
    serde_json::to_writer(&mut checked, value)?;
    write!(text, "{:08x} ", crc32fast::hash(&checked))?;
    text.append(&mut checked);
    text.push(b'\n');
    Ok(())
}

/// Lines for records, the first of which has this number.
pub(super) fn lines(records: &[Record], first: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for (record, number) in records.iter().zip(first..) {
        line(&mut text, number, record)?;
    }
    Ok(text)
}

/// A whole file, and the number of the line that comes next.
pub(super) fn whole(journal: &Journal) -> io::Result<(Vec<u8>, u64)> {
    let mut text = vec![0; PREAMBLE];
    for number in 0..HEADERS {
        line(&mut text, number, &journal.header)?;
    }
    let records = journal.records();
    text.extend(lines(&records, HEADERS)?);
    let preamble = [MAGIC, length(text.len() as u64).as_bytes(), b"\n"].concat();
    text[..PREAMBLE].copy_from_slice(&preamble);
    Ok((text, HEADERS + records.len() as u64))
}

/// Reads a journal of any format that was ever written. Records of PUs that are greater than `largest` count as damaged.
pub(super) fn parse(bytes: &[u8], largest: u32) -> Result<Journal, JournalError> {
    if bytes.first() == Some(&b'{') {
        return parse_1(bytes, largest);
    }
    let mut damaged = 0usize;
    let (first, rest) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    let known = known_length(first);
    let known = known.unwrap_or_else(|| {
        damaged += 1;
        0
    });
    let mut lines = BTreeMap::new();
    let mut bad = 0;
    let (mut last, mut highest) = (None, None);
    let mut at = first.len() + 1;
    for line in rest.split_inclusive(|byte| *byte == b'\n') {
        let cut_short = !line.ends_with(b"\n") && at as u64 >= known && known > 0;
        at += line.len();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        match checked(line) {
            Some((number, json)) => {
                // Doubled or moved.
                let moved = last.is_some_and(|last| number <= last);
                bad += usize::from(moved);
                lines.entry(number).or_insert(json);
                last = Some(number);
                highest = highest.max(last);
            }
            None => bad += usize::from(!cut_short),
        }
    }
    // A number may be anything: the user who wrote the line can compute its check value.
    let expected = highest.map_or(0, |highest: u64| highest.saturating_add(1));
    let missing = usize::try_from(expected)
        .unwrap_or(usize::MAX)
        .saturating_sub(lines.len());
    damaged = damaged.saturating_add(bad.max(missing));
    if (bytes.len() as u64) < known {
        damaged = damaged.max(1);
    }
    let header = (0..HEADERS).find_map(|number| serde_json::from_slice(lines.get(&number)?).ok());
    let Some(header) = header.filter(|header: &Header| is_within(&header.default, largest)) else {
        return Err(JournalError::Header(
            "it is damaged, or no journal at all".to_owned(),
        ));
    };
    let mut journal = Journal::new(header);
    if !(2..=VERSION).contains(&journal.header.journal) {
        return Err(JournalError::Version(journal.header.journal));
    }
    for json in lines.range(HEADERS..).map(|(_, json)| json) {
        match record(json, largest) {
            // Only format 1 has it.
            None | Some(Record::Default { .. }) => damaged = damaged.saturating_add(1),
            Some(record) => journal.add(&record),
        }
    }
    journal.damaged = damaged;
    Ok(journal)
}

/// The length in the first line, if that is whole.
fn known_length(line: &[u8]) -> Option<u64> {
    hexadecimal(line.strip_prefix(MAGIC)?, DIGITS)
}

/// Parses a hexadecimal number of exactly `digits` lower-case digits.
fn hexadecimal(text: &[u8], digits: usize) -> Option<u64> {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let whole = text.len() == digits && text.iter().all(digit);
    whole.then(|| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok())?
}

/// A line's number and JSON, if the check value agrees.
fn checked(line: &[u8]) -> Option<(u64, &[u8])> {
    let (check, rest) = line.split_at_checked(8)?;
    let text = rest.strip_prefix(b" ")?;
    if u64::from(crc32fast::hash(text)) != hexadecimal(check, 8)? {
        return None;
    }
    let blank = text.iter().position(|byte| *byte == b' ')?;
    let number = std::str::from_utf8(&text[..blank]).ok()?.parse().ok()?;
    Some((number, &text[blank + 1..]))
}

/// Whether all of these PUs can be there.
fn is_within(pus: &PuSet, largest: u32) -> bool {
    pus.last().is_none_or(|last| last <= largest)
}

/// A record, unless it is damaged.
fn record(json: &[u8], largest: u32) -> Option<Record> {
    // Its masks are only looked at when all of them have been made.
    if json.len() as u64 > LINE * (u64::from(largest) + 1) {
        return None;
    }
    let record: Record = serde_json::from_slice(json).ok()?;
    let possible = record.masks().all(|mask| is_within(mask, largest));
    (possible && record.is_plain()).then_some(record)
}

fn parse_1(bytes: &[u8], largest: u32) -> Result<Journal, JournalError> {
    #[derive(Deserialize)]
    struct Version {
        journal: u32,
    }
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let error = |error: serde_json::Error| JournalError::Header(error.to_string());
    let version: Version = serde_json::from_slice(first).map_err(error)?;
    if version.journal != 1 {
        return Err(JournalError::Version(version.journal));
    }
    let mut journal = Journal::new(serde_json::from_slice(first).map_err(error)?);
    if !is_within(&journal.header.default, largest) {
        return Err(JournalError::Header(
            "it names PUs that this machine cannot have".to_owned(),
        ));
    }
    // The lines in which default masks were last replaced, and in which threads were last set. A thread that goes back to
    // the default follows every change of it: so it goes back to the last one.
    let mut replaced = BTreeMap::new();
    let mut set = BTreeMap::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        match record(line, largest) {
            Some(Record::Default { mask }) => {
                let former = std::mem::replace(&mut journal.header.default, mask);
                replaced.insert(former, number);
            }
            Some(record) => {
                if let Record::Set(record) = &record {
                    set.insert(record.thread, number);
                }
                journal.add(&record);
            }
            None => journal.damaged += 1,
        }
    }
    journal.follow_default(|thread, before| replaced.get(before) > set.get(&thread));
    Ok(journal)
}
