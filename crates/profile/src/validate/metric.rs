//! Constants and metrics: formulas read, their names looked up.

use super::{Checked, Reader, of_kind};
use crate::{
    formula::{Formula, is_name},
    profile::{CPU_SECONDS, Input, MetricPlan, MetricRule, Profile, Scope},
    schema,
};
use perch_core::diagnostic::did_you_mean;
use std::{collections::BTreeMap, ops::Range, sync::Arc};
use toml::Spanned;

/// More names than these are in no formula.
pub(crate) const MOST_INPUTS: usize = 16;

impl Reader<'_> {
    pub(super) fn metrics(
        &self,
        metrics: &[schema::Metric],
        constants: &BTreeMap<Spanned<String>, schema::Constant>,
        profile: &mut Profile,
    ) -> Checked<()> {
        let mut numbers: Vec<(&str, f64)> = Vec::new();
        for (name, constant) in constants {
            let taken = profile.events.iter().any(|e| *e.name == **name.get_ref());
            if !is_name(name.get_ref()) || name.get_ref() == CPU_SECONDS || taken {
                return Err(self.wrong(
                    name.span(),
                    "a constant's name has letters, digits and `_`, begins with a letter and names nothing else",
                ));
            }
            if !constant.value.is_finite() {
                return Err(self.wrong(name.span(), "a constant is a finite number"));
            }
            self.said(&constant.source, "source")?;
            numbers.push((name.get_ref(), constant.value));
        }
        for metric in metrics {
            let rule = self.metric(metric, &numbers, profile)?;
            profile.metrics.push(rule);
        }
        Ok(())
    }

    fn metric(
        &self,
        metric: &schema::Metric,
        numbers: &[(&str, f64)],
        profile: &Profile,
    ) -> Checked<MetricRule> {
        let name: Arc<str> = self.said(&metric.name, "name")?.into();
        if profile.metrics.iter().any(|other| other.name == name) {
            return Err(self.wrong(metric.name.span(), format!("a second metric `{name}`")));
        }
        let formula = Formula::parse(metric.formula.get_ref()).map_err(|error| {
            self.wrong(
                self.inside(&metric.formula, error.at.clone()),
                error.message,
            )
        })?;
        if formula.names().len() > MOST_INPUTS {
            return Err(self.wrong(
                metric.formula.span(),
                format!("a formula with more than {MOST_INPUTS} names"),
            ));
        }
        let chosen = self.kind(metric.kind.as_ref(), &profile.kinds)?;
        let kinds: Vec<Option<usize>> = match (chosen, profile.kinds.len()) {
            (Some(kind), _) => vec![Some(kind)],
            (None, 0) => vec![None],
            (None, count) => (0..count).map(Some).collect(),
        };
        let mut plans = Vec::new();
        let mut unknown: Option<&str> = None;
        for kind in kinds {
            let inputs: Result<Vec<Input>, &str> = formula
                .names()
                .iter()
                .map(|name| input(name, kind, numbers, profile).ok_or(name.as_str()))
                .collect();
            match inputs {
                Ok(inputs) => plans.push(MetricPlan {
                    kind,
                    on_demand: on_demand(&inputs, profile),
                    inputs,
                }),
                Err(name) => unknown = Some(unknown.unwrap_or(name)),
            }
        }
        if let (Some(unknown), true) = (unknown, plans.is_empty()) {
            let known = profile.events.iter().map(|event| &*event.name);
            let known = known.chain(numbers.iter().map(|(name, _)| *name));
            return Err(self.wrong_hint(
                self.inside(&metric.formula, formula.position(unknown)),
                format!(
                    "`{unknown}` is no event and no constant{}",
                    of_kind(chosen, profile)
                ),
                did_you_mean(unknown, known.chain([CPU_SECONDS])),
            ));
        }
        let range = match &metric.range {
            None => None,
            Some(range) => {
                let [least, greatest] = *range.get_ref();
                if !(least.is_finite() && greatest.is_finite() && least < greatest) {
                    return Err(self.wrong(
                        range.span(),
                        "a range is `[least, greatest]`, the least first",
                    ));
                }
                Some((least, greatest))
            }
        };
        let scope = metric.scope.as_ref();
        Ok(MetricRule {
            name,
            formula,
            unit: metric.unit.clone(),
            scope: match scope {
                Some(scope) => self.choice(scope, "scope", &Scope::ALL)?,
                None => Scope::Thread,
            },
            range,
            total: metric.total,
            description: metric.description.clone(),
            source: self.said(&metric.source, "source")?,
            plans,
        })
    }

    /// Where bytes of a string's value stand in the file, as far as it is written without escapes.
    fn inside(&self, string: &Spanned<String>, at: Range<usize>) -> Range<usize> {
        let span = string.span();
        let written = self.text.get(span.clone()).unwrap_or("");
        match written.find(string.get_ref().as_str()) {
            Some(quote) => span.start + quote + at.start..span.start + quote + at.end,
            None => span,
        }
    }
}

/// What stands for a name in a formula on a kind of core.
fn input(
    name: &str,
    kind: Option<usize>,
    numbers: &[(&str, f64)],
    profile: &Profile,
) -> Option<Input> {
    if name == CPU_SECONDS {
        return Some(Input::CpuSeconds);
    }
    let number = numbers.iter().find(|(number, _)| *number == name);
    match number {
        Some((_, value)) => Some(Input::Constant(*value)),
        None => profile.event(name, kind).map(Input::Event),
    }
}

/// Whether some event of a formula is only in sets that are counted on demand.
fn on_demand(inputs: &[Input], profile: &Profile) -> bool {
    inputs.iter().any(|input| match input {
        Input::Event(at) => !profile
            .sets
            .iter()
            .any(|set| !set.on_demand && set.events.contains(at)),
        Input::Constant(_) | Input::CpuSeconds => false,
    })
}
