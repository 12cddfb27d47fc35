//! Pictures and tables for people, as text of at most 80 columns.

pub mod calibration;
pub mod compare;
pub mod events;
pub mod explain;
pub mod irq;
pub mod live;
pub mod outcome;
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
use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The width that everything fits.
pub const WIDTH: usize = 80;

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

/// The text cut or padded to this many columns.
pub fn fit(text: &str, columns: usize) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let fitting = match clean.width() <= columns {
        true => clean,
        false => {
            let room = columns.saturating_sub(1);
            let mut used = 0;
            let fits = |c: &char| {
                used += c.width().unwrap_or(0);
                used <= room
            };
            let cut: String = clean.chars().take_while(fits).collect();
            match columns {
                0 => cut,
                _ => cut + "…",
            }
        }
    };
    let padding = columns.saturating_sub(fitting.width());
    fitting + &" ".repeat(padding)
}

/// The text behind a label, in lines that fit, the following ones indented.
pub fn wrapped(label: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = label.to_owned();
    for word in text.split_whitespace() {
        if line.width() + word.width() + 1 > WIDTH && line.trim() != label.trim() {
            out += line.trim_end();
            out.push('\n');
            line = " ".repeat(label.width());
        }
        line += word;
        line.push(' ');
    }
    out + line.trim_end() + "\n"
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

    #[test]
    fn fitting() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("a\x1b[31m", 3), "a?…");
        assert_eq!(fit("abc", 0), "");
        // Wide characters take two columns, and half of one cannot be shown.
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 8), "日本語  ");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日… ");
    }
}
