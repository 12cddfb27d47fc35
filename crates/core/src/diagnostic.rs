//! Mistakes in files that people write, reported with file, line, column and the line itself.

pub use crate::{
    plain_words::from_deserializer,
    suggest::{did_you_mean, did_you_mean_one_of, nearest, one_of},
};

use crate::text::acts;
use std::{fmt, ops::Range};
use unicode_width::UnicodeWidthChar;

/// An error in the text of a file that people write.
///
/// Shown as `FILE:LINE:COLUMN: message`, the line with carets under the error, and a hint where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, as it was given.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// That line of the file.
    pub text: String,
    /// Number of wrong characters in the line, at least 1.
    pub width: usize,
    /// Description of the error.
    pub message: String,
    /// A suggested correction, if there is one.
    pub hint: Option<String>,
}

/// The longest piece of a line that is shown, in characters.
const SHOWN: usize = 100;

impl Diagnostic {
    /// The error at these bytes of `source`; a range outside of it is moved to its end.
    pub fn at(
        path: &str,
        source: &str,
        bytes: Range<usize>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Self {
        let start = floor_boundary(source, bytes.start);
        let end = floor_boundary(source, bytes.end);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = source[line_start..].lines().next().unwrap_or("");
        let line_end = line_start + line.len();
        // An error at a line's end may lie between its carriage return and its line feed.
        let start = start.min(line_end);
        let end = end.clamp(start, line_end);
        Self {
            path: path.to_owned(),
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            text: line.to_owned(),
            width: source[start..end].chars().count().max(1),
            message: message.into(),
            hint,
        }
    }
}

/// The nearest character boundary at or before `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}:{}:{}: {}",
            self.path, self.line, self.column, self.message
        )?;
        let number = self.line.to_string();
        let skip = if self.column > SHOWN {
            self.column - SHOWN / 2
        } else {
            0
        };
        let shown: String = self
            .text
            .chars()
            .skip(skip)
            .take(SHOWN)
            .map(|c| if acts(c) { ' ' } else { c })
            .collect();
        // The error is known in characters, but carets stand in columns: some characters take two, some none.
        let before = self.column - 1 - skip;
        let columns = |from: usize, count: usize| -> usize {
            let part = shown.chars().skip(from).take(count);
            part.filter_map(UnicodeWidthChar::width).sum()
        };
        let width = columns(before, self.width).max(1);
        let before = columns(0, before);
        writeln!(f, "  {number} | {}", shown.trim_end())?;
        write!(
            f,
            "  {:1$} | {2:3$}{4}",
            "",
            number.len(),
            "",
            before,
            "^".repeat(width)
        )?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wide characters take two columns, combining ones none, and those that act on a terminal are blanks.
    #[test]
    fn carets_stand_below_the_mistake() {
        for (before, columns) in [
            ("plain", 5),
            ("日本", 4),
            ("e\u{301}", 1),
            ("a\u{202e}b", 3),
        ] {
            let source = format!("{before}bad = 1\n");
            let at = before.len()..before.len() + 3;
            let told = Diagnostic::at("f", &source, at, "wrong", None).to_string();
            let carets = told.lines().last().unwrap();
            assert_eq!(carets, format!("    | {}^^^", " ".repeat(columns)));
            assert!(!told.contains(|c| acts(c) && c != '\n'));
            let characters = before.chars().count() + 1;
            assert!(
                told.starts_with(&format!("f:1:{characters}: wrong")),
                "{told}"
            );
        }
        let wide = Diagnostic::at("f", "日本 = 1", 0..6, "wrong", None).to_string();
        assert!(wide.ends_with("| ^^^^"), "{wide}");
    }
}
