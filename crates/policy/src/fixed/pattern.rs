//! What all rules have: `PATTERN=`, and the threads whose names match.

use super::RuleError;
use perch_core::ThreadInfo;
use std::fmt;
use wildmatch::WildMatch;

/// The pattern of a rule, and the rule as it was given.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    names: WildMatch,
    rule: String,
}

impl Pattern {
    /// Takes a rule without spaces around it apart: its pattern, and where its value begins, in bytes. `form` is how such
    /// a rule is written, for the user.
    pub fn parse(rule: &str, form: &str) -> Result<(Self, usize), RuleError> {
        // Thread names may hold a `=`, values cannot.
        let Some(equals) = rule.rfind('=') else {
            let what = format!("a rule is {form}; there is no '='");
            return Err(wrong(rule, rule.len(), what));
        };
        let names = rule[..equals].trim();
        if names.is_empty() {
            let what = "no pattern before '='; write * for all threads".to_owned();
            return Err(wrong(rule, 0, what));
        }
        let pattern = Self {
            names: WildMatch::new(names),
            rule: rule.to_owned(),
        };
        Ok((pattern, equals + 1))
    }

    /// Whether the thread's own name matches, or its process's, or both as `PROCESS/THREAD`.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        let (process, name) = (&thread.process, &thread.name);
        self.names.matches(name)
            || self.names.matches(process)
            || self.names.matches(&format!("{process}/{name}"))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.rule)
    }
}

/// The error for a rule with an error at byte `at`.
pub(super) fn wrong(rule: &str, at: usize, what: String) -> RuleError {
    RuleError {
        place: String::new(),
        what,
        rule: rule.to_owned(),
        column: rule.get(..at).map_or(0, |before| before.chars().count()),
    }
}
