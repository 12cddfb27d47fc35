//! Sizes and times as files write them.

use super::Span;

const UNITS: [(&str, u64); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Bytes: `8 B`, `64 KiB`, `2 MiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(*factor)
        .filter(|bytes| *bytes >= 8)
}

/// A time: `20000 cycles`, `3 s`, `200 ms`.
pub(super) fn span(text: &str) -> Option<Span> {
    match text.trim().strip_suffix("cycles") {
        Some(number) => number.trim().parse().ok().map(Span::Cycles),
        None => humantime::parse_duration(text.trim()).ok().map(Span::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sizes_and_times_are_read() {
        assert_eq!(bytes("8 B"), Some(8));
        assert_eq!(bytes("2 MiB"), Some(2 << 20));
        for wrong in ["", "8", "8 MB", "4 B", "-1 B", "99999999999999999 GiB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(span("20000 cycles"), Some(Span::Cycles(20_000)));
        assert_eq!(span("0 cycles"), Some(Span::Cycles(0)));
        assert_eq!(span("200 ms"), Some(Span::Time(Duration::from_millis(200))));
        for wrong in ["", "cycles", "3", "-3 s", "soon"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
