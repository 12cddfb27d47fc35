//! Rules that give threads a value: `PATTERN=WEIGHT`, `PATTERN=LEVEL:MASK`.

use super::{
    RuleError,
    pattern::{Pattern, wrong},
};
use perch_core::{CacheWays, ThreadInfo, Weight};
use std::{fmt, str::FromStr};

/// What a rule can give to threads.
pub trait Given: FromStr<Err: fmt::Display> {
    /// What such a rule looks like, for messages.
    const FORM: &'static str;
}

impl Given for Weight {
    const FORM: &'static str = "PATTERN=WEIGHT, such as backup*=10";
}

impl Given for CacheWays {
    const FORM: &'static str = "PATTERN=WAYS, such as stream*=L3:0x3";
}

/// Threads of that name get this value.
#[derive(Debug, Clone)]
pub struct ValueRule<T> {
    pattern: Pattern,
    /// What matching threads get.
    pub value: T,
}

/// A rule of CPU weights.
pub type WeightRule = ValueRule<Weight>;

/// A rule of the ways of caches that threads may fill.
pub type WaysRule = ValueRule<CacheWays>;

impl<T> ValueRule<T> {
    /// Whether the rule is for that thread: its own name or its process's matches the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(thread)
    }
}

impl<T> fmt::Display for ValueRule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

impl<T: Given> FromStr for ValueRule<T> {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (pattern, start) = Pattern::parse(text, T::FORM)?;
        let value = text[start..].trim().parse();
        Ok(Self {
            pattern,
            value: value.map_err(|error: T::Err| wrong(text, start, error.to_string()))?,
        })
    }
}
