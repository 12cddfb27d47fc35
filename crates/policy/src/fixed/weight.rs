//! Rules of CPU weights: `PATTERN=WEIGHT`.

use super::{
    RuleError,
    pattern::{Pattern, wrong},
};
use perch_core::{ThreadInfo, Weight, weight::WeightError};
use std::{fmt, str::FromStr};

/// Threads of that name get this weight.
#[derive(Debug, Clone)]
pub struct WeightRule {
    pattern: Pattern,
    /// The weight of matching threads.
    pub weight: Weight,
}

impl WeightRule {
    /// Whether the rule is for that thread: its own name or its process's matches the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(thread)
    }
}

impl fmt::Display for WeightRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

impl FromStr for WeightRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (pattern, start) = Pattern::parse(text, "PATTERN=WEIGHT, such as backup*=10")?;
        let weight = text[start..].trim().parse();
        Ok(Self {
            pattern,
            weight: weight.map_err(|error: WeightError| wrong(text, start, error.to_string()))?,
        })
    }
}
