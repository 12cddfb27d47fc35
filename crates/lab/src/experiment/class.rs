//! What a claim is worth: a prediction, something that was put in, or an aim of our own.

use super::{
    Holds,
    checker::{Checked, Checker},
    file,
};
use crate::published::{self, Kind};
use serde::Serialize;

/// What it says if a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The published value was not used to make the machine or the workload: the simulation predicts it.
    Prediction,
    /// The published value, or what it follows from, was put in: that it comes out again checks the files, no more.
    Input,
    /// Nobody published it: what perch itself wants to be so.
    Aim,
}

impl Class {
    /// All of them, with the names that files use.
    pub const ALL: [(&'static str, Self); 3] = [
        ("prediction", Self::Prediction),
        ("input", Self::Input),
        ("aim", Self::Aim),
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        let of = Self::ALL.iter().find(|(_, class)| *class == self);
        of.map_or("", |(name, _)| name)
    }
}

impl Checker<'_> {
    /// The class of a claim; `id` is the published value that it is about.
    pub(super) fn class(&self, claim: &file::Claim, id: Option<&str>) -> Checked<Class> {
        let row = id.and_then(published::find);
        let implied = match row.map(|row| row.kind) {
            None => Class::Aim,
            Some(Kind::Input) => Class::Input,
            Some(_) => Class::Prediction,
        };
        let Some(written) = &claim.class else {
            return Ok(implied);
        };
        let class = self.choice("class of claims", written, Class::ALL.into_iter())?;
        let why = match (implied, class) {
            (Class::Aim, Class::Aim) => return Ok(class),
            (Class::Aim, _) => "what nobody published is an `aim`",
            (_, Class::Aim) => "what is published is no `aim` of ours",
            (Class::Input, Class::Prediction) => {
                "published.tsv has it as an input: it cannot be predicted"
            }
            _ => return Ok(class),
        };
        Err(self.wrong(written.span(), why, None))
    }

    /// What ours would be if nothing that the experiment compares made a difference.
    pub(super) fn null(&self, claim: &file::Claim, holds: &Holds) -> Checked<Option<f64>> {
        let Some(null) = &claim.null else {
            return Ok(None);
        };
        if matches!(holds, Holds::Rising(_)) {
            let message = "if nothing makes a difference no order holds: leave `null` out";
            return Err(self.wrong(null.span(), message, None));
        }
        if !null.get_ref().is_finite() {
            return Err(self.wrong(null.span(), "no number", None));
        }
        Ok(Some(*null.get_ref()))
    }
}
