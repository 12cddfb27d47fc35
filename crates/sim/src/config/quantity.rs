//! Quantities with units: `"32 KiB"`, `"2.5 GHz"`, `"10M"`.

use super::error::did_you_mean;

/// A sort of quantity: what its units are worth.
#[derive(Debug)]
pub(super) struct Sort {
    /// What it is, with its article.
    what: &'static str,
    /// Units and what each is worth, in that of the result; the unit of a bare number first.
    units: &'static [(&'static str, u64)],
    /// How it may be written.
    example: &'static str,
    /// Whether the result must come out whole, rather than be rounded.
    whole: bool,
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
    whole: true,
};

/// Picoseconds of the machine; bare numbers are told apart from them before, as cycles.
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
    whole: false,
};

/// Cycles.
pub(super) const CYCLES: Sort = Sort {
    what: "a number of cycles",
    units: &[("cycles", 1), ("cycle", 1)],
    example: "`\"12 cycles\"` or `12`",
    whole: true,
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
    ],
    example: "`\"10 ms\"` or a number of seconds",
    whole: false,
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
    whole: false,
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
    whole: false,
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
    whole: true,
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
        let factor = match self.units.iter().find(|(name, _)| *name == unit) {
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
            if self.whole && worth % divisor != 0 {
                let unit = self
                    .units
                    .iter()
                    .find(|(_, factor)| *factor == 1)
                    .map_or("", |(name, _)| *name);
                return Err(format!(
                    "not a whole number{}",
                    if unit.is_empty() {
                        String::new()
                    } else {
                        format!(" of {unit}")
                    }
                ));
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
        let near = did_you_mean(unit, names.clone())
            .map(|hint| format!("; {hint}"))
            .unwrap_or_default();
        let names: Vec<&str> = names.collect();
        format!(
            "unknown unit `{}` of {}, expected one of `{}`{near}",
            unit.escape_debug(),
            self.what,
            names.join("`, `")
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

    /// Its units and what they are worth.
    #[cfg(test)]
    pub(super) fn units(&self) -> &'static [(&'static str, u64)] {
        self.units
    }
}
