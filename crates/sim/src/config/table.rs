//! Walks through a parsed file: every look at a value knows its place in the text, for the mistakes.

use super::{error::Diagnostic, quantity::Sort};
use perch_core::diagnostic::{did_you_mean, did_you_mean_one_of, one_of};
use std::ops::{Range, RangeInclusive};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Something read, or the first mistake.
pub(super) type Checked<T> = Result<T, Box<Diagnostic>>;

/// The text that is read, and its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub path: &'a str,
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The file as a table, to be opened by [`Table::new`].
    pub(super) fn parse(self) -> Checked<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let message = error
                .message()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            self.wrong(error.span().unwrap_or(0..0), message, None)
        })
    }

    pub(super) fn wrong(
        self,
        at: Range<usize>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Box<Diagnostic> {
        Box::new(Diagnostic::at(
            self.path,
            self.text,
            at,
            message.into(),
            hint,
        ))
    }
}

/// Whether a file's key is this one. Underscores are as good as hyphens.
fn is_key(name: &str, key: &str) -> bool {
    name == key || name.replace('_', "-") == key
}

/// A table with known keys.
#[derive(Debug, Clone)]
pub(super) struct Table<'a> {
    source: Source<'a>,
    /// What it describes, with its article: `a cache`.
    what: &'static str,
    known: &'static [&'static str],
    table: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> Table<'a> {
    /// The table, if all its keys are known ones.
    pub(super) fn new(
        source: Source<'a>,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Checked<Self> {
        let is_known = |name: &str| known.iter().any(|known| is_key(name, known));
        let unknown = table.keys().filter(|key| !is_known(key.get_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let name = key.get_ref();
            return Err(source.wrong(
                key.span(),
                format!("unknown key `{}`", name.escape_debug()),
                Some(did_you_mean_one_of(name, known.iter().copied())),
            ));
        }
        for key in table.keys() {
            let name: &str = key.get_ref();
            if name.contains('_') && table.contains_key(&*name.replace('_', "-")) {
                let message = format!("a second key `{}`", name.replace('_', "-"));
                return Err(source.wrong(key.span(), message, None));
            }
        }
        Ok(Self {
            source,
            what,
            known,
            table,
            span,
        })
    }

    /// A value, if it is there.
    pub(super) fn get(&self, key: &'static str) -> Option<Item<'a>> {
        debug_assert!(self.known.contains(&key), "{key}");
        let value = self.table.get(key);
        let value = value.or_else(|| self.table.get(&*key.replace('-', "_")))?;
        Some(Item {
            source: self.source,
            value,
        })
    }

    /// A value that must be there.
    pub(super) fn need(&self, key: &'static str) -> Checked<Item<'a>> {
        self.get(key)
            .ok_or_else(|| self.wrong(format!("missing key `{key}` of {}", self.what)))
    }

    /// A value of another key than these.
    pub(super) fn beside(&self, keys: &[&str]) -> Option<Item<'a>> {
        let mut all = self.table.iter();
        let (_, value) =
            all.find(|(name, _)| !keys.iter().any(|key| is_key(name.get_ref(), key)))?;
        Some(Item {
            source: self.source,
            value,
        })
    }

    /// A mistake of the table as a whole.
    pub(super) fn wrong(&self, message: impl Into<String>) -> Box<Diagnostic> {
        self.source.wrong(self.span.clone(), message, None)
    }
}

/// A value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    source: Source<'a>,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    /// A mistake here.
    pub(super) fn wrong(self, message: impl Into<String>) -> Box<Diagnostic> {
        self.source.wrong(self.value.span(), message, None)
    }

    /// A mistake here, and what to do.
    pub(super) fn wrong_hint(
        self,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Box<Diagnostic> {
        self.source.wrong(self.value.span(), message, hint)
    }

    fn expected(self, what: &str) -> Box<Diagnostic> {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "`true` or `false`",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.wrong(format!("expected {what}, found {found}"))
    }

    /// A text that says something.
    pub(super) fn text(self) -> Checked<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) if text.trim().is_empty() => Err(self.wrong("an empty string")),
            DeValue::String(text) => Ok(text),
            _ => Err(self.expected("a string")),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(self) -> Checked<bool> {
        self.value
            .get_ref()
            .as_bool()
            .ok_or_else(|| self.expected("`true` or `false`"))
    }

    /// A number within bounds.
    pub(super) fn number(self, within: RangeInclusive<f64>) -> Checked<f64> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => self
                .digits(number.as_str(), number.radix())
                .map(|number| number as f64),
            DeValue::Float(number) => Ok(number.as_str().parse().unwrap_or(f64::NAN)),
            _ => Err(self.expected("a number")),
        }?;
        // Also what is not a number is not within.
        if within.contains(&number) {
            return Ok(number);
        }
        let (least, most) = (within.start(), within.end());
        Err(self.wrong(if *most == f64::MAX {
            format!("must be a number of {least} or more")
        } else {
            format!("must be from {least} to {most}")
        }))
    }

    /// A whole number within bounds.
    pub(super) fn whole<N>(self, within: RangeInclusive<N>) -> Checked<N>
    where
        N: TryFrom<i128> + PartialOrd + std::fmt::Display,
    {
        let DeValue::Integer(number) = self.value.get_ref() else {
            return Err(self.expected("a whole number"));
        };
        let number = self.digits(number.as_str(), number.radix())?;
        match N::try_from(number) {
            Ok(number) if within.contains(&number) => Ok(number),
            _ => Err(self.wrong(format!(
                "must be from {} to {}",
                within.start(),
                within.end()
            ))),
        }
    }

    fn digits(self, digits: &str, radix: u32) -> Checked<i128> {
        i128::from_str_radix(digits, radix).map_err(|_| self.wrong("too large a number"))
    }

    /// A quantity: a text with a unit, or a bare number.
    pub(super) fn quantity(self, sort: &Sort) -> Checked<u64> {
        let parsed = match self.value.get_ref() {
            DeValue::String(text) => sort.parse(text),
            DeValue::Integer(number) => {
                sort.parse(&self.digits(number.as_str(), number.radix())?.to_string())
            }
            DeValue::Float(number) => sort.parse(number.as_str()),
            _ => return Err(self.expected(&format!("{}: {}", sort.what(), sort.example()))),
        };
        parsed.map_err(|why| self.wrong(why))
    }

    /// A quantity within bounds, which messages show as `bounds`.
    pub(super) fn quantity_within(
        self,
        sort: &Sort,
        within: RangeInclusive<u64>,
        bounds: &str,
    ) -> Checked<u64> {
        let quantity = self.quantity(sort)?;
        if within.contains(&quantity) {
            return Ok(quantity);
        }
        Err(self.wrong(format!("must be {bounds}")))
    }

    /// Whether it is a number without a unit.
    pub(super) fn is_number(self) -> bool {
        matches!(
            self.value.get_ref(),
            DeValue::Integer(_) | DeValue::Float(_)
        )
    }

    /// Whether it is a whole number without a unit.
    pub(super) fn is_whole(self) -> bool {
        self.value.get_ref().is_integer()
    }

    /// Whether it is a list.
    pub(super) fn is_list(self) -> bool {
        self.value.get_ref().is_array()
    }

    /// Where it stands: file, line and column.
    pub(super) fn place(self) -> String {
        let here = self.wrong("");
        format!("{}:{}:{}", here.path, here.line, here.column)
    }

    /// The text, if it is one.
    pub(super) fn as_text(self) -> Option<&'a str> {
        self.value.get_ref().as_str()
    }

    /// One of a list of words.
    pub(super) fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Checked<T> {
        let word = self.text()?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word) {
            return Ok(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let message = format!(
            "unknown value `{}`, {}",
            word.escape_debug(),
            one_of(&names)
        );
        Err(self.wrong_hint(message, did_you_mean(word, names)))
    }

    /// The place of a name among those that are defined.
    pub(super) fn reference<'n>(
        self,
        what: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Checked<usize> {
        let name = self.text()?;
        names
            .clone()
            .position(|defined| defined == name)
            .ok_or_else(|| {
                self.wrong_hint(
                    format!("no {what} `{}`", name.escape_debug()),
                    did_you_mean(name, names),
                )
            })
    }

    /// The elements of a list.
    pub(super) fn list(self) -> Checked<Vec<Item<'a>>> {
        match self.value.get_ref() {
            DeValue::Array(list) => Ok(list.iter().map(|value| Item { value, ..self }).collect()),
            _ => Err(self.expected("a list")),
        }
    }

    /// The elements of a list that has some.
    pub(super) fn some(self) -> Checked<Vec<Item<'a>>> {
        let list = self.list()?;
        if list.is_empty() {
            Err(self.wrong("an empty list"))
        } else {
            Ok(list)
        }
    }

    /// The elements of a list of tables, each written `[[…]]` or in one line.
    pub(super) fn tables(
        self,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Checked<Vec<Table<'a>>> {
        self.some()?
            .into_iter()
            .map(|item| item.table(what, known))
            .collect()
    }

    /// A table with known keys.
    pub(super) fn table(
        self,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Checked<Table<'a>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Table::new(self.source, table, self.value.span(), what, known),
            _ => Err(self.expected("a table")),
        }
    }

    /// Whether it is a table.
    pub(super) fn is_table(self) -> bool {
        self.value.get_ref().is_table()
    }

    /// A table whose keys are names that the file gives, in the order of the file; at least one.
    pub(super) fn named(self) -> Checked<Vec<(&'a str, Item<'a>)>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            return Err(self.expected("a table"));
        };
        let mut named: Vec<_> = table.iter().collect();
        if named.is_empty() {
            return Err(self.wrong("an empty table"));
        }
        named.sort_by_key(|(key, _)| key.span().start);
        for (key, _) in &named {
            if key.get_ref().trim().is_empty() {
                return Err(self.source.wrong(key.span(), "an empty name", None));
            }
        }
        Ok(named
            .into_iter()
            .map(|(key, value)| (&**key.get_ref(), Item { value, ..self }))
            .collect())
    }
}
