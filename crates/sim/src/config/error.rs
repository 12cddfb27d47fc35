//! What can be wrong with a machine or workload file, told with file, line, column and the line itself.

use std::{fmt, ops::Range, path::PathBuf};

/// Why a machine or a workload cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        #[source]
        error: std::io::Error,
    },
    /// A file with a mistake.
    #[error("{0}")]
    Mistake(#[from] Box<Mistake>),
    /// No shipped file of that name.
    #[error("no {what} `{name}`{hint}; shipped are {shipped}, and a path to a file works too")]
    Unknown {
        /// `machine` or `workload`.
        what: &'static str,
        /// As asked for.
        name: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
        /// All names.
        shipped: String,
    },
}

/// A mistake in the text of a file.
///
/// Shown as `FILE:LINE:COLUMN: message`, then the line with carets under the mistake, then a hint where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as it was given.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// That line of the file.
    pub text: String,
    /// How many characters of the line are wrong, at least 1.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it, if more can be said.
    pub hint: Option<String>,
}

/// The longest piece of a line that is shown, in characters.
const SHOWN: usize = 100;

impl Mistake {
    /// The mistake at these bytes of `text`; what lies outside of it is moved to its end.
    pub(super) fn at(
        path: &str,
        text: &str,
        bytes: Range<usize>,
        message: String,
        hint: Option<String>,
    ) -> Self {
        let start = boundary(text, bytes.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or("");
        let line_end = line_start + line.len();
        // Between a carriage return and its line feed is behind the line's end.
        let start = start.min(line_end);
        let end = boundary(text, bytes.end).clamp(start, line_end);
        Self {
            path: path.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: line.to_owned(),
            width: text[start..end].chars().count().max(1),
            message,
            hint,
        }
    }
}

/// The nearest boundary of a character at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}:{}:{}: {}",
            self.path, self.line, self.column, self.message
        )?;
        let left_out = if self.column > SHOWN {
            self.column - SHOWN / 2
        } else {
            0
        };
        let shown: String = (self.text.chars().skip(left_out).take(SHOWN))
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let before = self.column - 1 - left_out;
        let carets = "^".repeat(self.width.min(SHOWN.saturating_sub(before)).max(1));
        let number = self.line.to_string();
        writeln!(f, "  {number} | {}", shown.trim_end())?;
        write!(f, "  {:1$} | {2:3$}{carets}", "", number.len(), "", before)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Mistake {}

/// "did you mean `x`?", if a candidate looks enough like `wrong`.
pub(super) fn did_you_mean<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(wrong, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}
