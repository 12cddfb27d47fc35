//! Pictures and tables for people, as text of at most 80 columns.

pub mod calibration;
pub mod compare;
pub mod events;
pub mod explain;
pub mod irq;
pub mod live;
pub mod mixes;
pub mod noise;
pub mod outcome;
pub mod page;
pub mod power;
pub mod progress;
pub mod report;
pub mod restored;
pub mod sim;
pub mod stat;
pub mod stderr;
pub mod svg;
pub mod table;
pub mod topology;
pub mod tournament;
pub mod trace;

use perch_core::text::{acts, printable_lines};
pub use perch_stat::text::{WIDTH, fit, wrapped};
use std::borrow::Cow;

/// A size in bytes in the unit that fits, such as `32 MiB`.
pub fn bytes(size: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = size as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() < 0.05 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// What is printed: all but line ends, tabs and colours (SGR sequences, which only perch writes: names are made printable
/// where they enter) stands as `\\x1b` and the like.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| acts(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut parts = text.split('\x1b');
    shown += &printable_lines(parts.next().unwrap_or_default());
    for part in parts {
        let colour = part
            .strip_prefix('[')
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'))
            .is_some_and(|rest| rest.starts_with('m'));
        shown += if colour { "\x1b" } else { "\\x1b" };
        shown += &printable_lines(part);
    }
    Cow::Owned(shown)
}

/// JSON with escapes for what a terminal would obey.
pub fn json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match acts(c) && c != '\n' {
            // None of them is beyond 16 bits.
            true => plain += &format!("\\u{:04x}", u32::from(c)),
            false => plain.push(c),
        }
    }
    plain
}

/// `1 core`, `2 cores`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Why a thread is left alone, in two words.
pub fn unmanaged(why: perch_core::Unmanaged) -> &'static str {
    match why {
        perch_core::Unmanaged::PlacedBefore => "placed before",
        perch_core::Unmanaged::ChangedByOthers => "placed by others",
        perch_core::Unmanaged::Unknown => "placed or inherited, not known which",
        perch_core::Unmanaged::NotPermitted => "not permitted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(25_148_000_000), "23.4 GiB");
        assert_eq!(bytes(0), "0 B");
    }

    #[test]
    fn only_colours_reach_the_terminal() {
        let red = "\x1b[1;31mred\x1b[0m\tand\n";
        assert_eq!(shown(red), red);
        assert_eq!(shown("\x1b[2J\x1b]0;x\x07"), "\\x1b[2J\\x1b]0;x\\x07");
        assert_eq!(json("{\n\"a\u{9b}\u{202e}\"}"), "{\n\"a\\u009b\\u202e\"}");
    }
}
