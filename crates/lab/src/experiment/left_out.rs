//! Published values that cannot be had here, and why.

use super::{
    checker::{Checked, Checker},
    file,
};
use crate::published;
use perch_core::diagnostic::did_you_mean;

/// Published values that cannot be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Their names in the table of published values.
    pub ids: Vec<String>,
    /// Why it is not reproduced, for the page.
    pub why: String,
}

impl Checker<'_> {
    pub(super) fn left_out(&self, written: &file::LeftOut) -> Checked<LeftOut> {
        let ids = written.published.get_ref();
        if ids.is_empty() {
            return Err(self.wrong(written.published.span(), "nothing is left out", None));
        }
        if written.why.get_ref().trim().is_empty() {
            return Err(self.wrong(written.why.span(), "say why", None));
        }
        for id in ids {
            if published::find(id.get_ref()).is_none() {
                let known = published::all().iter().map(|row| row.id.as_str());
                let message = format!("no published value `{}`", id.get_ref());
                return Err(self.wrong(id.span(), message, did_you_mean(id.get_ref(), known)));
            }
        }
        let why: Vec<&str> = written.why.get_ref().split_whitespace().collect();
        Ok(LeftOut {
            ids: ids.iter().map(|id| id.get_ref().clone()).collect(),
            why: why.join(" "),
        })
    }
}

impl LeftOut {
    /// The note for the reader.
    pub fn note(&self) -> String {
        let rows = self.ids.iter().filter_map(|id| published::find(id));
        let mut what: Vec<String> = Vec::new();
        for row in rows {
            let name = format!("{}, {}", row.place, row.configuration);
            if !what.contains(&name) {
                what.push(name);
            }
        }
        format!("Not reproducible here: {}: {}", what.join("; "), self.why)
    }
}
