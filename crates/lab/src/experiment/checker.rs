//! Checks parts of an experiment's file and says where they are wrong.

use super::{changes::InForce, file::Text};
use crate::error::Diagnostic;
use perch_core::diagnostic::{did_you_mean, did_you_mean_one_of, from_deserializer};
use std::{cell::RefCell, ops::Range};

pub(super) type Checked<T> = Result<T, Box<Diagnostic>>;

/// How tables are written, by the type that is read from them.
const FORMS: &[(&str, &str)] = &[
    (
        "struct Time",
        "time = { warm-up = \"1 s\", length = \"3 s\" }",
    ),
    (
        "struct Sweep",
        "[sweep] and working-set = [\"8 KiB\", \"64 KiB\"] below",
    ),
    (
        "struct Measure",
        "name = { of = \"throughput\", run = \"RUN\" } below [measure]",
    ),
    ("struct Figure", "[figure] and its keys below"),
    ("struct Run", "[[run]] and its keys below"),
    ("struct Claim", "[[claim]] and its keys below"),
    (
        "struct Changes",
        "[set.machine] or [set.workload] and keys below",
    ),
    ("struct Variation", "[variation] and its keys below"),
];

pub(super) struct Checker<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    pub(super) sibling: &'a dyn Fn(&str) -> Result<String, String>,
    /// What replaces the values of the machines' and workloads' files.
    pub(super) in_force: RefCell<InForce>,
}

impl Checker<'_> {
    pub(super) fn wrong(
        &self,
        at: Range<usize>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Box<Diagnostic> {
        Box::new(Diagnostic::at(self.path, self.text, at, message, hint))
    }

    /// Where a header first stands.
    pub(super) fn find(&self, header: &str) -> Range<usize> {
        let start = self.text.find(header).unwrap_or(0);
        start..start + header.len()
    }

    /// What serde or the parser complains of.
    pub(super) fn toml(&self, error: &toml::de::Error) -> Box<Diagnostic> {
        let (message, hint) = from_deserializer(error.message(), FORMS);
        self.wrong(error.span().unwrap_or(0..0), message, hint)
    }

    /// Which of these a name means.
    pub(super) fn choice<T: Copy>(
        &self,
        what: &str,
        name: &Text,
        known: impl Iterator<Item = (&'static str, T)> + Clone,
    ) -> Checked<T> {
        let wanted = name.get_ref();
        if let Some((_, found)) = known.clone().find(|(known, _)| known == wanted) {
            return Ok(found);
        }
        let names: Vec<&str> = known.map(|(name, _)| name).collect();
        let hint = did_you_mean_one_of(wanted, names);
        let wanted = wanted.escape_debug();
        Err(self.wrong(
            name.span(),
            format!("unknown {what} `{wanted}`"),
            Some(hint),
        ))
    }

    pub(super) fn reference<'n>(
        &self,
        what: &str,
        name: &Text,
        known: impl Iterator<Item = &'n str> + Clone,
    ) -> Checked<usize> {
        let wanted = name.get_ref();
        known
            .clone()
            .position(|known| known == wanted)
            .ok_or_else(|| {
                let hint = did_you_mean(wanted, known);
                self.wrong(name.span(), format!("no {what} `{wanted}`"), hint)
            })
    }
}
