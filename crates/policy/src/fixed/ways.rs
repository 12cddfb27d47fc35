//! Rules of the ways of caches that threads may fill: `PATTERN=LEVEL:MASK`.

use super::{
    RuleError,
    pattern::{Pattern, wrong},
};
use perch_core::{CacheWays, CacheWaysError, ThreadInfo};
use std::{fmt, str::FromStr};

/// Threads of that name may fill only these ways.
#[derive(Debug, Clone)]
pub struct WaysRule {
    pattern: Pattern,
    /// The ways of matching threads.
    pub ways: CacheWays,
}

impl WaysRule {
    /// Whether the rule is for that thread: its own name or its process's matches the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(thread)
    }
}

impl fmt::Display for WaysRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

impl FromStr for WaysRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (pattern, start) = Pattern::parse(text, "PATTERN=WAYS, such as stream*=L3:0x3")?;
        let ways = text[start..].trim().parse();
        Ok(Self {
            pattern,
            ways: ways.map_err(|error: CacheWaysError| wrong(text, start, error.to_string()))?,
        })
    }
}
