//! The three ways to write an event, told apart without asking any table.

use std::fmt;

/// How an event is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spelling<'a> {
    /// libpfm4's: `pmu::EVENT:UMASK`.
    Pfm {
        /// The PMU, such as `amd64_fam19h_zen4`.
        pmu: &'a str,
        /// The event with its unit masks and modifiers.
        event: &'a str,
    },
    /// A device's own: `cpu/event=0xc0,umask=0x1/` or `cpu_atom/instructions/`.
    Device {
        /// The device below `/sys/bus/event_source/devices`; `cpu` stands for the core's PMU whatever its name.
        device: &'a str,
        /// The terms, `name` or `name=value`.
        terms: Vec<(&'a str, Option<&'a str>)>,
    },
    /// A raw code of the core's PMU, as `perf` writes it: `r0075`.
    Raw(u64),
    /// One of the kernel's generic events: `cycles`.
    Generic(&'a str),
}

/// The generic hardware events of perf_event_open(2).
pub const GENERIC: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "ref-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
];

/// A text that writes no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpellingError(pub String);

impl<'a> Spelling<'a> {
    /// Tells the ways apart.
    ///
    /// # Errors
    /// What the text lacks.
    pub fn parse(text: &'a str) -> Result<Self, SpellingError> {
        let wrong = |why: &str| Err(SpellingError(format!("`{}`: {why}", text.escape_debug())));
        let plain = |part: &str, more: &str| {
            !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c))
        };
        if let Some((pmu, event)) = text.split_once("::") {
            if !plain(pmu, "") || !plain(event, ".:=#") {
                return wrong("libpfm4 writes events as `pmu::EVENT:UMASK`");
            }
            return Ok(Self::Pfm { pmu, event });
        }
        if let Some((device, rest)) = text.split_once('/') {
            let Some(inside) = rest.strip_suffix('/') else {
                return wrong("a device's event ends in a slash: `cpu/event=0xc0,umask=0x1/`");
            };
            let terms: Vec<_> = inside
                .split(',')
                .map(|term| match term.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (term, None),
                })
                .collect();
            let sound = plain(device, "")
                && terms.iter().all(|(name, value)| {
                    plain(name, ".") && value.is_none_or(|value| number(value).is_some())
                });
            if !sound {
                return wrong(
                    "a device's event is `device/name/` or `device/term=number,term=number/`",
                );
            }
            return Ok(Self::Device { device, terms });
        }
        if let Some(code) = text.strip_prefix('r')
            && !code.is_empty()
            && code.chars().all(|c| c.is_ascii_hexdigit())
        {
            return match u64::from_str_radix(code, 16) {
                Ok(code) => Ok(Self::Raw(code)),
                Err(_) => wrong("a raw code has at most 16 hexadecimal digits"),
            };
        }
        if GENERIC.contains(&text) {
            return Ok(Self::Generic(text));
        }
        let near = perch_core::diagnostic::did_you_mean(text, GENERIC)
            .map(|near| format!("; {near}"))
            .unwrap_or_default();
        wrong(&format!(
            "neither `pmu::EVENT` (libpfm4), `device/term=number/` (kernel), `rHEX` (raw) nor one of the kernel's \
             generic events{near}"
        ))
    }
}

/// A number as the kernel writes it: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| {
        text.chars()
            .all(|c| c.is_digit(radix))
            .then(|| u64::from_str_radix(text, radix).ok())
            .flatten()
    };
    match text.strip_prefix("0x") {
        Some(hexadecimal) => digits(hexadecimal, 16),
        None => digits(text, 10),
    }
}

impl fmt::Display for Spelling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pfm { pmu, event } => write!(f, "{pmu}::{event}"),
            Self::Raw(code) => write!(f, "r{code:x}"),
            Self::Generic(name) => f.write_str(name),
            Self::Device { device, terms } => {
                write!(f, "{device}/")?;
                for (at, (name, value)) in terms.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    match value {
                        Some(value) => write!(f, "{comma}{name}={value}")?,
                        None => write!(f, "{comma}{name}")?,
                    }
                }
                f.write_str("/")
            }
        }
    }
}
