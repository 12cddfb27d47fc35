//! Checks what a measure is narrowed down to.

use super::{
    Quantity, Run, Span,
    checker::{Checked, Checker},
    file,
};
use std::time::Duration;

/// What a measure is narrowed down to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Only {
    /// Threads that were last in this package.
    pub package: Option<u32>,
    /// This one of the steps that compute, from 1.
    pub step: Option<usize>,
    /// Moves with this in their reason.
    pub reason: Option<String>,
}

impl Checker<'_> {
    pub(super) fn only(&self, measure: &file::Measure, of: Quantity, run: &Run) -> Checked<Only> {
        let what = measure.of.get_ref();
        if let Some(package) = &measure.package {
            let known = run.machine.cores.iter().map(|core| core.package);
            let packages = known.max().map_or(0, |most| most + 1);
            let message = match of.is_of_packages() {
                false => format!("`{what}` is of all packages together"),
                true if *package.get_ref() >= packages => {
                    format!(
                        "no package {}: the machine has {packages}",
                        package.get_ref()
                    )
                }
                true => String::new(),
            };
            if !message.is_empty() {
                return Err(self.wrong(package.span(), message, None));
            }
        }
        match &measure.step {
            Some(step) if of != Quantity::StepTime => {
                return Err(self.wrong(step.span(), "only with `step-time`", None));
            }
            Some(step) if *step.get_ref() == 0 => {
                return Err(self.wrong(step.span(), "steps are counted from 1", None));
            }
            None if of == Quantity::StepTime => {
                let hint = "those that compute are counted from 1: `step = 1`".to_owned();
                return Err(self.wrong(measure.of.span(), "of which `step`?", Some(hint)));
            }
            _ => {}
        }
        if of == Quantity::StepTime && measure.thread.is_none() {
            return Err(self.wrong(measure.of.span(), "of which `thread`?", None));
        }
        if let Some(reason) = &measure.reason
            && of != Quantity::Moves
        {
            return Err(self.wrong(reason.span(), "only with `moves`", None));
        }
        let cold = matches!(
            run.times.warm_up,
            Span::Cycles(0) | Span::Time(Duration::ZERO)
        );
        if of.needs_marks() && !cold {
            let message = format!("`{what}` is counted from the beginning: no warm-up");
            return Err(self.wrong(measure.of.span(), message, None));
        }
        Ok(Only {
            package: measure.package.as_ref().map(|package| *package.get_ref()),
            step: measure.step.as_ref().map(|step| *step.get_ref()),
            reason: measure
                .reason
                .as_ref()
                .map(|reason| reason.get_ref().clone()),
        })
    }
}
