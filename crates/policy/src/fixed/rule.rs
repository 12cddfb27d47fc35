//! Rules of manual binding: `PATTERN=PUS`, on the command line or one a line in a file.

use super::{
    Location, LocationError,
    pattern::{Pattern, wrong},
};
use perch_core::ThreadInfo;
use std::{fmt, path::Path, str::FromStr};

/// Threads of that name go there.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    /// The PUs to which it binds.
    pub pus: Location,
    /// Whether each matching thread gets a PU of its own, in turn, in the order in which they are written.
    pub each: bool,
}

/// A rule that cannot be read; shows the rule with a caret under the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{what}\n    {rule}\n    {}^", " ".repeat(rule.chars().take(*column).count()))]
pub struct RuleError {
    /// `FILE:LINE: ` or nothing.
    pub place: String,
    /// Description of the error, and the valid syntax.
    pub what: String,
    /// The rule as given.
    pub rule: String,
    /// Position in the rule, in characters from 0.
    pub column: usize,
}

impl Rule {
    /// Whether the rule is for that thread: its own name, its process's, or both as `PROCESS/THREAD`
    /// match the pattern.
    pub fn matches(&self, thread: &ThreadInfo) -> bool {
        self.pattern.matches(thread)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (pattern, mut start) = Pattern::parse(text, "PATTERN=PUS, such as worker*=0-3")?;
        let pus = &text[start..];
        let each = pus.trim_start().starts_with("each:");
        if each {
            start += pus.find(':').map_or(0, |colon| colon + 1);
        }
        let pus = text[start..]
            .parse()
            .map_err(|error: LocationError| wrong(text, start + error.at, error.what))?;
        Ok(Self { pattern, pus, each })
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
