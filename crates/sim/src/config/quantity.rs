//! Quantities with units: `"32 KiB"`, `"2.5 GHz"`, `"10M"`.

use perch_core::diagnostic::{did_you_mean, one_of};

/// A sort of quantity: what its units are worth.
#[derive(Debug)]
pub(super) struct Sort {
    /// What it is, with its article.
    what: &'static str,
    /// Units and what each is worth, in that of the result; the unit of a bare number first.
    units: &'static [(&'static str, u64)],
    /// How it may be written.
    example: &'static str,
    /// What the result must be a whole number of, if it may not be rounded.
    whole: Option<&'static str>,
    /// Whether units may be written in any case: not where a prefix or a letter means another thing in the other one,
    /// as in mW and MW, or Gb/s and GB/s.
    any_case: bool,
}

/// Bytes.
pub(super) const SIZE: Sort = Sort {
    what: "a size",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ],
    example: "`\"32 KiB\"` or a number of bytes",
    whole: Some("bytes"),
    any_case: true,
};

/// Picoseconds of the machine. Bare numbers are cycles and have been sorted out before.
pub(super) const LATENCY: Sort = Sort {
    what: "a latency",
    units: &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("µs", 1_000_000),
        ("ms", 1_000_000_000),
    ],
    example: "`\"20 ns\"`, `\"12 cycles\"` or a number of cycles",
    whole: None,
    any_case: true,
};

/// Cycles.
pub(super) const CYCLES: Sort = Sort {
    what: "a number of cycles",
    units: &[("cycles", 1), ("cycle", 1)],
    example: "`\"12 cycles\"` or `12`",
    whole: Some("cycles"),
    any_case: true,
};

/// Nanoseconds of the operating system.
pub(super) const TIME: Sort = Sort {
    what: "a time",
    units: &[
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("µs", 1_000),
        ("ns", 1),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    example: "`\"10 ms\"` or a number of seconds",
    whole: None,
    any_case: true,
};

/// Cycles a second.
pub(super) const CLOCK: Sort = Sort {
    what: "a clock",
    units: &[
        ("Hz", 1),
        ("kHz", 1_000),
        ("MHz", 1_000_000),
        ("GHz", 1_000_000_000),
    ],
    example: "`\"2.5 GHz\"` or a number of hertz",
    whole: None,
    any_case: true,
};

/// Bytes a second.
pub(super) const BANDWIDTH: Sort = Sort {
    what: "a bandwidth",
    units: &[
        ("B/s", 1),
        ("kB/s", 1_000),
        ("MB/s", 1_000_000),
        ("GB/s", 1_000_000_000),
        ("KiB/s", 1 << 10),
        ("MiB/s", 1 << 20),
        ("GiB/s", 1 << 30),
    ],
    example: "`\"10 GB/s\"` or a number of bytes a second",
    whole: None,
    any_case: false,
};

/// Femtojoules.
pub(super) const ENERGY: Sort = Sort {
    what: "an energy",
    units: &[
        ("nJ", 1_000_000),
        ("fJ", 1),
        ("pJ", 1_000),
        ("uJ", 1_000_000_000),
        ("µJ", 1_000_000_000),
    ],
    example: "`\"0.5 nJ\"` or a number of nanojoules",
    whole: None,
    any_case: false,
};

/// Microwatts.
pub(super) const POWER: Sort = Sort {
    what: "a power",
    units: &[
        ("W", 1_000_000),
        ("uW", 1),
        ("mW", 1_000),
        ("kW", 1_000_000_000),
    ],
    example: "`\"15 W\"` or a number of watts",
    whole: None,
    any_case: false,
};

/// Millionths of a time a second.
pub(super) const RATE: Sort = Sort {
    what: "a rate",
    units: &[
        ("/ s", 1_000_000),
        ("/s", 1_000_000),
        ("/ ms", 1_000_000_000),
        ("/ms", 1_000_000_000),
        ("k / s", 1_000_000_000),
        ("k/s", 1_000_000_000),
    ],
    example: "`\"2000 / s\"` or a number a second",
    whole: None,
    any_case: true,
};

/// How often, how many.
pub(super) const COUNT: Sort = Sort {
    what: "a count",
    units: &[
        ("", 1),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ],
    example: "`\"10M\"` or a number",
    whole: Some("times or pieces"),
    any_case: true,
};

/// More digits than any quantity needs; with them the arithmetic stays within 128 bits.
const DIGITS: usize = 18;

impl Sort {
    /// The quantity that a text writes; a number without a unit has the first one.
    pub(super) fn parse(&self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        // An `e` belongs to the number only if a digit or a sign and a digit follow: `1e6`.
        let end = text
            .char_indices()
            .find(|(at, c)| {
                let rest = text[at + c.len_utf8()..].trim_start_matches(['+', '-']);
                let exponent = matches!(c, 'e' | 'E')
                    && *at > 0
                    && rest.starts_with(|c: char| c.is_ascii_digit());
                let sign =
                    matches!(c, '+' | '-') && (*at == 0 || text[..*at].ends_with(['e', 'E']));
                !(c.is_ascii_digit() || matches!(c, '.' | '_') || exponent || sign)
            })
            .map_or(text.len(), |(at, _)| at);
        let (number, unit) = (&text[..end], text[end..].trim_start());
        if number.is_empty() {
            return Err(format!(
                "`{}` is not {}: write {}",
                text.escape_debug(),
                self.what,
                self.example
            ));
        }
        let exact = self.units.iter().find(|(name, _)| *name == unit);
        let like = |(name, _): &&(&str, u64)| name.to_lowercase() == unit.to_lowercase();
        let found = exact.or_else(|| self.units.iter().find(like).filter(|_| self.any_case));
        let factor = match found {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => self.units[0].1,
            None => return Err(self.unknown_unit(unit)),
        };
        self.worth(number, factor)
    }

    /// A number times what its unit is worth.
    fn worth(&self, number: &str, factor: u64) -> Result<u64, String> {
        let bad = || {
            format!(
                "`{}` is not a number: write {}",
                number.escape_debug(),
                self.example
            )
        };
        if number.starts_with('-') {
            return Err(format!("{} cannot be below 0", self.what));
        }
        let number = number.strip_prefix('+').unwrap_or(number).replace('_', "");
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| bad())?),
            None => (number.as_str(), 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{}", fraction.trim_end_matches('0'));
        let digits = digits.trim_start_matches('0');
        if whole.is_empty()
            || !mantissa.bytes().all(|c| c.is_ascii_digit() || c == b'.')
            || fraction.contains('.')
        {
            return Err(bad());
        }
        if digits.is_empty() {
            return Ok(0);
        }
        let power = exponent.saturating_sub(fraction.trim_end_matches('0').len() as i32);
        let too_large = || format!("too large for {}", self.what);
        if digits.len() > DIGITS + 2 || power > DIGITS as i32 {
            return Err(too_large());
        }
        let worth = digits.parse::<u128>().map_err(|_| bad())? * u128::from(factor);
        let worth = if power >= 0 {
            worth
                .checked_mul(10u128.pow(power.unsigned_abs()))
                .ok_or_else(too_large)?
        } else {
            // Below 10^-37 nothing is left, whatever the digits and the unit.
            let divisor = 10u128.pow(power.unsigned_abs().min(37));
            if let Some(pieces) = self.whole
                && worth % divisor != 0
            {
                return Err(format!("not a whole number of {pieces}"));
            }
            (worth + divisor / 2) / divisor
        };
        u64::try_from(worth).map_err(|_| too_large())
    }

    fn unknown_unit(&self, unit: &str) -> String {
        let names = self
            .units
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !name.is_empty());
        let bits = if unit.ends_with("b/s") {
            " (a small b is for bits)"
        } else {
            ""
        };
        let near = did_you_mean(unit, names.clone())
            .map(|hint| format!("; {hint}{bits}"))
            .unwrap_or_default();
        let names: Vec<&str> = names.collect();
        format!(
            "unknown unit `{}` of {}, {}: write {}{near}",
            unit.escape_debug(),
            self.what,
            one_of(&names),
            self.example
        )
    }

    /// How it may be written.
    pub(super) fn example(&self) -> &'static str {
        self.example
    }

    /// What it is, with its article.
    pub(super) fn what(&self) -> &'static str {
        self.what
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_of_every_sort() {
        for (sort, text, worth) in [
            (&SIZE, "32 KiB", 32 << 10),
            (&SIZE, "1.5KiB", 1536),
            (&SIZE, "3 MiB", 3 << 20),
            (&SIZE, "64", 64),
            (&SIZE, "2 MB", 2_000_000),
            (&SIZE, "32KB", 32_000),
            (&SIZE, "32 mb", 32_000_000),
            (&SIZE, "256 kib", 256 << 10),
            (&TIME, "10 MS", 10_000_000),
            (&TIME, "2 h", 7_200_000_000_000),
            (&CLOCK, "2 ghz", 2_000_000_000),
            (&LATENCY, "5 NS", 5_000),
            (&CLOCK, "3.55 GHz", 3_550_000_000),
            (&LATENCY, "0.5 ns", 500),
            (&LATENCY, "0.3336 ns", 334),
            (&TIME, "10 ms", 10_000_000),
            (&TIME, "0.25", 250_000_000),
            (&TIME, "2 min", 120_000_000_000),
            (&COUNT, "10M", 10_000_000),
            (&COUNT, "1_000", 1_000),
            (&COUNT, "1.5e3", 1_500),
            (&COUNT, "2e-1 k", 200),
            (&COUNT, "+7", 7),
            (&CYCLES, "12 cycles", 12),
            (&BANDWIDTH, "10 GB/s", 10_000_000_000),
            (&RATE, "0.5 / s", 500_000),
            (&RATE, "2000/s", 2_000_000_000),
            (&COUNT, "18446744073709551615", u64::MAX),
        ] {
            assert_eq!(sort.parse(text), Ok(worth), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity() {
        for (sort, text) in [
            (&SIZE, ""),
            (&SIZE, "KiB"),
            (&SIZE, "1.5"),
            (&SIZE, "-1"),
            (&SIZE, "1.2.3 B"),
            (&SIZE, ".5 KiB"),
            (&COUNT, "18446744073709551616"),
            (&COUNT, "1e99"),
            (&COUNT, "1e99999999999"),
            (&COUNT, "10 M M"),
            (&COUNT, "1e"),
            (&TIME, "1 fortnight"),
            (&POWER, "1 MW"),
            (&BANDWIDTH, "1 Gb/s"),
            (&CLOCK, "fast"),
        ] {
            assert!(sort.parse(text).is_err(), "{text}: {:?}", sort.parse(text));
        }
    }

    proptest! {
        /// A whole number of any unit is worth that many of it, however it is spaced, and however it is written.
        #[test]
        fn written_and_read_again(number in 0u64..4_000_000, sort in 0usize..10, unit in any::<proptest::sample::Index>(), space in " {0,2}") {
            let sort = [&SIZE, &LATENCY, &CYCLES, &TIME, &CLOCK, &BANDWIDTH, &RATE, &ENERGY, &POWER, &COUNT][sort];
            let (name, factor) = *unit.get(sort.units);
            prop_assert_eq!(sort.parse(&format!("{number}{space}{name}")), Ok(number * factor));
            prop_assert_eq!(sort.parse(&format!("{number}.000{space}{name}")), Ok(number * factor));
            prop_assert_eq!(sort.parse(&format!("{number}e0{space}{name}")), Ok(number * factor));
        }

        /// Decimals are exact: thousandths of a decimal unit are what the next smaller one says.
        #[test]
        fn decimals_are_exact(number in 0u64..10_000_000) {
            let milli = format!("{}.{:03} ms", number / 1000, number % 1000);
            prop_assert_eq!(TIME.parse(&milli), TIME.parse(&format!("{number} us")));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(?s)[-+0-9.eE_ ]{0,60}.{0,8}", sort in 0usize..10) {
            let _ = [&SIZE, &LATENCY, &CYCLES, &TIME, &CLOCK, &BANDWIDTH, &RATE, &ENERGY, &POWER, &COUNT][sort].parse(&text);
        }
    }
}
