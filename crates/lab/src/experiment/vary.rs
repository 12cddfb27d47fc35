//! What an experiment puts in place of what the files of its machines and workloads say: for all its runs, and again
//! and again where no source gives a number.

use super::{
    Experiment, Variant,
    check::{Checked, Checker},
    file::{self, Text},
    place::MOST_DRAWS,
};
use perch_sim::stream::Random;
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};
use toml::{Spanned, Value};

/// Values by their place in a file: `memory.latency`, `caches.2.latency`, `mixes.*.depends`; the star stands for each.
type Places = BTreeMap<Text, Value>;

/// What is put in place of what files say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    #[serde(default)]
    pub machine: Places,
    #[serde(default)]
    pub workload: Places,
}

/// `[variation]`: parameters for which there is no source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variation {
    pub seeds: Option<Spanned<Vec<u64>>>,
    pub draws: Option<Spanned<usize>>,
    pub parameter: Vec<Parameter>,
}

/// A parameter with the ends of its range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub name: Text,
    /// Where the range is from. For the reader.
    #[serde(rename = "source")]
    _source: String,
    pub values: Vec<Choice>,
}

/// One of its values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choice {
    pub name: Text,
    #[serde(default)]
    pub machine: Places,
    #[serde(default)]
    pub workload: Places,
}

/// The changes in force, and which of them met something.
#[derive(Debug, Default)]
pub(super) struct InForce {
    machine: Vec<(Text, Value)>,
    workload: Vec<(Text, Value)>,
    met: Vec<Range<usize>>,
}

impl InForce {
    pub fn new(file: &file::File, choices: &[&Choice]) -> Self {
        let own = |places: &Places| -> Vec<(Text, Value)> {
            let places = places.iter();
            places.map(|(at, to)| (at.clone(), to.clone())).collect()
        };
        let mut all = Self::default();
        if let Some(set) = &file.set {
            all.machine = own(&set.machine);
            all.workload = own(&set.workload);
        }
        for choice in choices {
            all.machine.extend(own(&choice.machine));
            all.workload.extend(own(&choice.workload));
        }
        all
    }

    pub fn machine(&mut self, text: &str) -> Option<String> {
        changed(text, &self.machine, &mut self.met)
    }

    pub fn workload(&mut self, text: &str) -> Option<String> {
        changed(text, &self.workload, &mut self.met)
    }

    /// The change of a machine that makes its file wrong.
    pub fn culprit_of_machine(&self, text: &str, accepted: &dyn Fn(&str) -> bool) -> Option<&Text> {
        culprit(text, &self.machine, accepted)
    }

    /// The change of a workload that makes its file wrong.
    pub fn culprit_of_workload(
        &self,
        text: &str,
        accepted: &dyn Fn(&str) -> bool,
    ) -> Option<&Text> {
        culprit(text, &self.workload, accepted)
    }

    /// A change that nothing was there for, in any file.
    pub fn idle(&self) -> Option<&Text> {
        let all = self.machine.iter().chain(&self.workload);
        let mut places = all.map(|(place, _)| place);
        places.find(|place| !self.met.contains(&place.span()))
    }
}

/// A file's text with the changes; `None` if there are none to be made.
fn changed(text: &str, changes: &[(Text, Value)], met: &mut Vec<Range<usize>>) -> Option<String> {
    if changes.is_empty() {
        return None;
    }
    let mut whole = Value::Table(text.parse().ok()?);
    let mut any = false;
    for (place, to) in changes {
        let steps: Vec<&str> = place.get_ref().split('.').collect();
        if put(&mut whole, &steps, to) {
            any = true;
            met.push(place.span());
        }
    }
    any.then(|| toml::to_string(&whole).ok()).flatten()
}

/// The change without which a file would be accepted, else the first with which it is not; none if the file itself is not.
fn culprit<'a>(
    text: &str,
    changes: &'a [(Text, Value)],
    accepted: &dyn Fn(&str) -> bool,
) -> Option<&'a Text> {
    let with = |changes: &[(Text, Value)]| {
        let changed = changed(text, changes, &mut Vec::new());
        accepted(changed.as_deref().unwrap_or(text))
    };
    if !with(&[]) {
        return None;
    }
    let without = |at: usize| {
        let mut rest = changes.to_vec();
        rest.remove(at);
        with(&rest)
    };
    let all = || 0..changes.len();
    let at = all()
        .find(|at| without(*at))
        .or_else(|| all().find(|at| !with(&changes[..=*at])))?;
    Some(&changes[at].0)
}

/// Puts a value in its place, or in all its places; whether there was any.
fn put(into: &mut Value, steps: &[&str], to: &Value) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        *into = to.clone();
        return true;
    };
    let mut met = false;
    match into {
        Value::Table(table) => {
            // What a file leaves out has a default: the last step may be new.
            if rest.is_empty() && *step != "*" {
                table.insert((*step).to_owned(), to.clone());
                return true;
            }
            for (key, value) in table.iter_mut() {
                if *step == "*" || key == step {
                    met |= put(value, rest, to);
                }
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter_mut().enumerate() {
                if *step == "*" || step.parse() == Ok(at) {
                    met |= put(value, rest, to);
                }
            }
        }
        _ => {}
    }
    met
}

impl Checker<'_> {
    /// The experiment at each value of each parameter, the others as they are, and with all of them drawn.
    pub(super) fn variants(&self, name: &str, file: &file::File) -> Checked<Vec<Variant>> {
        let Some(variation) = &file.variation else {
            return Ok(Vec::new());
        };
        if let Some(empty) = variation.parameter.iter().find(|p| p.values.is_empty()) {
            return Err(self.wrong(empty.name.span(), "a parameter without a value", None));
        }
        if let Some(seeds) = &variation.seeds
            && seeds.get_ref().is_empty()
        {
            return Err(self.wrong(seeds.span(), "no seed, so nothing would run", None));
        }
        let mut all = Vec::new();
        for parameter in &variation.parameter {
            for choice in &parameter.values {
                let label = format!("{} {}", parameter.name.get_ref(), choice.name.get_ref());
                all.push((label, vec![choice]));
            }
        }
        let mut random = Random::new(1);
        let draws = variation.draws.as_ref().map_or(0, |draws| *draws.get_ref());
        if let Some(item) = variation.draws.as_ref().filter(|_| draws > MOST_DRAWS) {
            let message =
                format!("must be from 0 to {MOST_DRAWS}: each is a simulation of all runs");
            return Err(self.wrong(item.span(), message, None));
        }
        for draw in 1..=draws {
            // Also as the files have it.
            let drawn = variation.parameter.iter().filter_map(|parameter| {
                let at = random.below(parameter.values.len() as u64 + 1) as usize;
                parameter.values.get(at)
            });
            all.push((format!("draw {draw}"), drawn.collect()));
        }
        let variant = |(label, choices): (String, Vec<&Choice>)| {
            let mut experiment = self.with(name, file, &choices)?;
            if let Some(seeds) = &variation.seeds {
                experiment.seeds.clone_from(seeds.get_ref());
            }
            Ok(Variant {
                name: label,
                experiment,
            })
        };
        all.into_iter().map(variant).collect()
    }

    /// The experiment with these choices.
    pub(super) fn with(
        &self,
        name: &str,
        file: &file::File,
        choices: &[&Choice],
    ) -> Checked<Experiment> {
        self.in_force.replace(InForce::new(file, choices));
        let experiment = self.experiment(name, file)?;
        let in_force = self.in_force.borrow();
        match in_force.idle() {
            None => Ok(experiment),
            Some(place) => {
                let message = format!("no run has anything at `{}`", place.get_ref());
                Err(self.wrong(place.span(), message, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_put_in_all_their_places() {
        let text = "a = 1\n[[list]]\nx = 1\n[[list]]\nx = 2\n[t.one]\ny = 1\n[t.two]\ny = 1\n";
        let mut whole = Value::Table(text.parse().unwrap());
        let mut put = |place: &str, to: i64| {
            let steps: Vec<&str> = place.split('.').collect();
            super::put(&mut whole, &steps, &Value::Integer(to))
        };
        assert!(put("a", 5) && put("list.1.x", 7) && put("t.*.y", 9) && put("t.one.new", 3));
        assert!(!put("list.2.x", 1) && !put("none.x", 1) && !put("a.b", 1));
        let wanted =
            "a = 5\n[[list]]\nx = 1\n[[list]]\nx = 7\n[t.one]\ny = 9\nnew = 3\n[t.two]\ny = 9\n";
        assert_eq!(whole, Value::Table(wanted.parse().unwrap()));
    }
}
