//! What an experiment puts in place of what the files of its machines and workloads say.

use super::file::{self, Choice, Places, Text};
use std::ops::Range;
use toml::Value;

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
