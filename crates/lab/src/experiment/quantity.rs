//! Sizes and times as files write them.

use super::Span;
use std::time::Duration;

/// The smallest working set: a word.
const WORD: u64 = 8;

/// Bytes: `8 B`, `64 KiB`, `2 MB`.
///
/// # Errors
/// What is wrong, and how sizes are written.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match perch_sim::config::size(text)? {
        bytes if bytes < WORD => Err("a working set has 8 B or more, as in \"64 KiB\"".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A time: `20000 cycles`, `3 s`, `200 ms`.
pub(super) fn span(text: &str) -> Option<Span> {
    match text.trim().to_lowercase().strip_suffix("cycles") {
        Some(number) => number.trim().parse().ok().map(Span::Cycles),
        None => duration(text).ok().map(Span::Time),
    }
}

/// A length of time with its unit: `3 s`, `200ms`, `1m 30s`. Units may be written in any case (but `M` is a month).
///
/// # Errors
/// A text that is no time.
pub fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    let text = text.trim();
    humantime::parse_duration(text)
        .or_else(|error| humantime::parse_duration(&text.to_lowercase()).map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(bytes("8 B"), Ok(8));
        assert_eq!(bytes("2 MiB"), Ok(2 << 20));
        assert_eq!(bytes("64 kib"), Ok(64 << 10));
        assert_eq!(bytes("8MB"), Ok(8_000_000));
        for wrong in ["", "4 B", "-1 B", "99999999999999999 GiB", "8 XB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(span("20000 cycles"), Some(Span::Cycles(20_000)));
        assert_eq!(span("0 Cycles"), Some(Span::Cycles(0)));
        let milliseconds = Some(Span::Time(Duration::from_millis(200)));
        assert_eq!(span("200 ms"), milliseconds);
        assert_eq!(span("200 MS"), milliseconds);
        for wrong in ["", "cycles", "3", "-3 s", "soon"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
