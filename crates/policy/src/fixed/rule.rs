//! Rules of manual binding: `PATTERN=PUS`, on the command line or one a line in a file.

use super::{Location, LocationError};
use perch_core::ThreadInfo;
use std::{fmt, path::Path, str::FromStr};
use wildmatch::WildMatch;

/// Threads of that name go there.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: WildMatch,
    /// The PUs to which it binds.
    pub pus: Location,
    /// Whether each matching thread gets a PU of its own, in turn.
    pub each: bool,
    text: String,
}

/// A rule that cannot be read; shows the rule with a caret under the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{what}\n    {rule}\n    {}^", " ".repeat(rule.chars().take(*column).count()))]
pub struct RuleError {
    /// `FILE:LINE: ` or nothing.
    pub place: String,
    /// What is wrong, and what would be right.
    pub what: String,
    /// The rule as given.
    pub rule: String,
    /// Where in the rule, in characters from 0.
    pub column: usize,
}

impl Rule {
    /// Whether the rule is for that thread: its own name or its process's matches the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(&thread.name) || self.pattern.matches(&thread.process)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.text)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let wrong = |column: usize, what: String| RuleError {
            place: String::new(),
            what,
            rule: text.to_owned(),
            column: text
                .get(..column)
                .map_or(0, |before| before.chars().count()),
        };
        // Thread names may hold a `=`, PU sets cannot.
        let Some(equals) = text.rfind('=') else {
            let what = "a rule is PATTERN=PUS, such as worker*=0-3; there is no '='".to_owned();
            return Err(wrong(text.len(), what));
        };
        let (pattern, pus) = (text[..equals].trim(), &text[equals + 1..]);
        if pattern.is_empty() {
            let what = "no pattern before '='; write * for all threads".to_owned();
            return Err(wrong(0, what));
        }
        let mut start = equals + 1;
        let each = pus.trim_start().starts_with("each:");
        if each {
            start = equals + 1 + pus.find(':').map_or(0, |colon| colon + 1);
        }
        let pus = text[start..]
            .parse()
            .map_err(|error: LocationError| wrong(start + error.at, error.what))?;
        Ok(Self {
            pattern: WildMatch::new(pattern),
            pus,
            each,
            text: text.to_owned(),
        })
    }
}

/// The rules of a file's text: one a line; empty lines and those that begin with `#` are skipped. `file` is named in
/// errors.
///
/// # Errors
/// All lines that are no rules.
pub fn parse_rules(text: &str, file: &Path) -> Result<Vec<Rule>, Vec<RuleError>> {
    let mut rules = Vec::new();
    let mut errors = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.parse() {
            Ok(rule) => rules.push(rule),
            Err(error) => errors.push(RuleError {
                place: format!("{}:{number}: ", file.display()),
                ..error
            }),
        }
    }
    if errors.is_empty() {
        Ok(rules)
    } else {
        Err(errors)
    }
}
