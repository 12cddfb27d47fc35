//! Rules of CPU weights: `PATTERN=WEIGHT`.

use super::RuleError;
use perch_core::{ThreadInfo, Weight, weight::WeightError};
use std::{fmt, str::FromStr};
use wildmatch::WildMatch;

/// Threads of that name get this weight.
#[derive(Debug, Clone)]
pub struct WeightRule {
    pattern: WildMatch,
    /// What they get.
    pub weight: Weight,
    text: String,
}

impl WeightRule {
    /// Whether the rule is for that thread: its own name or its process's matches the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(&thread.name) || self.pattern.matches(&thread.process)
    }
}

impl fmt::Display for WeightRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.text)
    }
}

impl FromStr for WeightRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let wrong = |column: usize, what: String| RuleError {
            place: String::new(),
            what,
            rule: text.to_owned(),
            column: text[..column].chars().count(),
        };
        let Some(equals) = text.rfind('=') else {
            let what = "a rule is PATTERN=WEIGHT, such as backup*=10; there is no '='".to_owned();
            return Err(wrong(text.len(), what));
        };
        let pattern = text[..equals].trim();
        if pattern.is_empty() {
            let what = "no pattern before '='; write * for all threads".to_owned();
            return Err(wrong(0, what));
        }
        let weight = text[equals + 1..].trim();
        Ok(Self {
            pattern: WildMatch::new(pattern),
            weight: weight
                .parse()
                .map_err(|error: WeightError| wrong(equals + 1, error.to_string()))?,
            text: text.to_owned(),
        })
    }
}
