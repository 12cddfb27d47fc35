//! Formulas: arithmetic over named numbers, parsed once and evaluated often.

mod mistake;

use exmex::{Express, FlatEx, FloatOpsFactory, MakeOperators};
use std::{fmt, ops::Range, sync::LazyLock};

/// The longest formula that is read, in bytes: far more than any metric needs, and short enough that no nesting of
/// parentheses can exhaust the stack of the parser.
const LONGEST: usize = 600;

/// A parsed formula.
#[derive(Clone)]
pub struct Formula {
    text: String,
    expression: FlatEx<f64>,
}

/// A text that is no formula.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FormulaError {
    /// The bytes of the text that are wrong.
    pub at: Range<usize>,
    /// Description of the error.
    pub message: String,
}

/// A formula without a value for the numbers given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoValue(pub String);

impl Formula {
    /// Reads a formula: numbers, names, `+ - * / ^`, parentheses, and `min`, `max`, `abs`, `sqrt` and what else the
    /// `exmex` library knows.
    ///
    /// # Errors
    /// The place in the text and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        let wrong = |at: Range<usize>, message: String| FormulaError { at, message };
        if text.trim().is_empty() {
            return Err(wrong(0..text.len(), "an empty formula".to_owned()));
        }
        if text.len() > LONGEST {
            return Err(wrong(
                0..text.len(),
                format!("a formula of more than {LONGEST} bytes"),
            ));
        }
        if let Some((at, strange)) = text
            .char_indices()
            .find(|(_, c)| !(c.is_ascii_alphanumeric() || " \t+-*/^()._,".contains(*c)))
        {
            return Err(wrong(
                at..at + strange.len_utf8(),
                format!("`{}` has no place in a formula", strange.escape_debug()),
            ));
        }
        if let Some(number) =
            numbers(text).find(|word| text[word.clone()].contains(char::is_alphabetic))
        {
            let message = format!(
                "`{}` is no number: write it out, as in 1000 or 0.001",
                &text[number.clone()]
            );
            return Err(wrong(number, message));
        }
        let expression = FlatEx::<f64>::parse(&braced(text)).map_err(|_| {
            let unknown = || {
                let why = "not a formula: write numbers, names, + - * / ^, parentheses, and functions such as \
                           min(a, b)";
                (0..text.len(), why.to_owned())
            };
            let (at, message) = mistake::first(text).unwrap_or_else(unknown);
            wrong(at, message)
        })?;
        // Make sure that both see the same names.
        let mut names: Vec<&str> = words(text).map(|word| &text[word]).collect();
        names.retain(|name| is_name(name));
        names.sort_unstable();
        names.dedup();
        if !names.iter().copied().eq(expression.var_names()) {
            return Err(wrong(
                0..text.len(),
                "not a formula: a name in it cannot be told from a function; rename it".to_owned(),
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            expression,
        })
    }

    /// The names in it, sorted; the order in which [`Formula::evaluate`] wants their values.
    pub fn names(&self) -> &[String] {
        self.expression.var_names()
    }

    /// Byte range of the first occurrence of a name in the text.
    pub fn position(&self, name: &str) -> Range<usize> {
        words(&self.text)
            .find(|word| &self.text[word.clone()] == name)
            .unwrap_or(0..self.text.len())
    }

    /// The value for these numbers, in the order of [`Formula::names`].
    ///
    /// # Errors
    /// A division by zero, or anything else that gives no finite number, with the reason.
    pub fn evaluate(&self, values: &[f64]) -> Result<f64, NoValue> {
        match self.expression.eval(values) {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(NoValue(self.why_no_value(values))),
            Err(error) => Err(NoValue(error.msg().to_owned())),
        }
    }

    fn why_no_value(&self, values: &[f64]) -> String {
        let zeros: Vec<&str> = self
            .names()
            .iter()
            .zip(values)
            .filter(|(_, value)| **value == 0.0)
            .map(|(name, _)| name.as_str())
            .collect();
        if zeros.is_empty() {
            format!("`{}` gives no number", self.text)
        } else {
            format!(
                "`{}` has no value where {} {} 0",
                self.text,
                zeros.join(" and "),
                if zeros.len() > 1 { "are" } else { "is" }
            )
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Formula({})", self.text)
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Whether this can name a number in a formula: a letter first, then letters, digits and `_`, and no function or
/// constant of the expression library.
pub fn is_name(word: &str) -> bool {
    let mut characters = word.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && word.len() <= 64
        && !FUNCTIONS.iter().any(|function| function == word)
}

/// The names of the expression library's functions and constants.
static FUNCTIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let operators = FloatOpsFactory::<f64>::make();
    let names = operators.iter().map(|operator| operator.repr());
    names.map(str::to_owned).collect()
});

/// The text with names in braces, as the expression library wants those that begin as a function's does: `minor_faults`.
fn braced(text: &str) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for word in words(text).filter(|word| is_name(&text[word.clone()])) {
        out += &text[from..word.start];
        out += &format!("{{{}}}", &text[word.clone()]);
        from = word.end;
    }
    out + &text[from..]
}

/// The words of a text (letters, digits, `_`, `.`) that may name something.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    all_words(text).filter(|word| !begins_number(&text[word.clone()]))
}

/// The words of a text that begin as a number does.
fn numbers(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    all_words(text).filter(|word| begins_number(&text[word.clone()]))
}

fn begins_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

fn all_words(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(word)?;
        let length = text[start..].find(|c| !word(c));
        at = length.map_or(text.len(), |length| start + length);
        Some(start..at)
    })
}
