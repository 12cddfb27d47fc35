//! Which value did a setting of the machine have before perch? And what does a plan change of it?

use crate::observer::SettingMove;
use perch_core::{
    Observation, Outcome, Plan, PuSet, Reason, Remark, Setting, SettingBinding, SettingChange,
    SettingSample, SettingState, SettingValue, Settings, Snapshot,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A setting, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// The value that it had before perch changed it.
    before: SettingValue,
    /// The value that it has, as far as perch knows: the kernel may have rounded the one that perch gave it.
    current: SettingValue,
    /// The value that perch has given it.
    given: Option<SettingValue>,
    /// Another process has changed it since perch gave it a value: it is left alone.
    foreign: bool,
    /// It was not in the last observation: the PUs of a cpufreq policy are offline, or the kernel limits its clock.
    absent: bool,
}

/// The settings of a session.
#[derive(Debug, Default)]
pub(crate) struct KnownSettings {
    known: BTreeMap<Setting, Known>,
    /// Settings whose values are no longer perch's doing, since they were last taken.
    released: Vec<Setting>,
}

impl KnownSettings {
    /// Takes in values. One that is not the value which perch has given was set by another process; so was one that has
    /// changed while a dry run had given it another.
    pub fn observe(&mut self, samples: &[SettingSample]) {
        let there: HashSet<&Setting> = samples.iter().map(|sample| &sample.setting).collect();
        for (setting, known) in &mut self.known {
            known.absent |= !there.contains(setting);
        }
        for SettingSample { setting, value, .. } in samples {
            let Some(known) = self.known.get_mut(setting) else {
                let known = Known {
                    before: value.clone(),
                    current: value.clone(),
                    given: None,
                    foreign: false,
                    absent: false,
                };
                self.known.insert(setting.clone(), known);
                continue;
            };
            let was_absent = std::mem::take(&mut known.absent);
            if known.given.is_some() && known.current != *value {
                // A cpufreq policy that was made anew has the value that it had before perch.
                known.foreign |= !(was_absent && known.before == *value);
                known.given = None;
                self.released.push(setting.clone());
            }
            if known.given.is_none() {
                known.before.clone_from(value);
            }
            known.current.clone_from(value);
        }
    }

    /// The settings whose values have turned out not to be perch's any more, each with whether another process set it.
    pub fn take_released(&mut self) -> Vec<(Setting, bool)> {
        let released = std::mem::take(&mut self.released).into_iter();
        released
            .map(|setting| {
                let foreign = self.known.get(&setting).is_some_and(|known| known.foreign);
                (setting, foreign)
            })
            .collect()
    }

    /// The value that a setting had before perch, if perch has given it another.
    pub fn before(&self, setting: &Setting) -> Option<&SettingValue> {
        let known = self.known.get(setting)?;
        known.given.as_ref().map(|_| &known.before)
    }

    /// The settings that were observed, as a policy may know them, in order.
    pub fn states(&self, observation: &Observation) -> Vec<SettingState> {
        let state = |sample: &SettingSample| {
            let known = self.known.get(&sample.setting)?;
            Some(SettingState {
                setting: sample.setting.clone(),
                governs: sample.governs.clone(),
                before: known.before.clone(),
                choices: sample.choices.clone(),
                given: known.given.clone(),
                foreign: known.foreign,
            })
        };
        let mut states: Vec<SettingState> = observation.settings.iter().filter_map(state).collect();
        states.sort_by(|one, other| one.setting.cmp(&other.setting));
        states.dedup_by(|one, other| one.setting == other.setting);
        states
    }

    /// The change that a move needs, and the value that the setting goes back to in the end; `None` for a setting that
    /// must be left alone.
    pub fn change(&self, made: &SettingMove) -> Option<(SettingChange, SettingValue)> {
        let known = self.known.get(&made.setting)?;
        let change = (!known.foreign && !known.absent).then(|| SettingChange {
            setting: made.setting.clone(),
            expect: known.current.clone(),
            set: made.to.clone().unwrap_or_else(|| known.before.clone()),
        });
        Some((change?, known.before.clone()))
    }

    /// All settings but these, which could not be restored, have the values again that they had before perch.
    pub fn let_go(&mut self, failed: &HashSet<Setting>) {
        let restored = |setting: &Setting| !failed.contains(setting);
        for (_, known) in self.known.iter_mut().filter(|(of, _)| restored(of)) {
            if known.given.take().is_some() {
                known.current.clone_from(&known.before);
            }
        }
    }

    /// Takes in what became of a move; in a dry run it counts as done.
    pub fn moved(&mut self, made: &SettingMove, dry_run: bool) {
        let Some(known) = self.known.get_mut(&made.setting) else {
            return;
        };
        match made.outcome {
            Outcome::Applied => {
                let set = made.to.as_ref().unwrap_or(&known.before);
                known.current = made.found.as_ref().unwrap_or(set).clone();
                known.given.clone_from(&made.to);
            }
            Outcome::ChangedByOthers => {
                known.given = None;
                known.foreign = true;
            }
            Outcome::NotApplied if dry_run => known.given.clone_from(&made.to),
            // The next look shows what it has.
            Outcome::Gone
            | Outcome::NotApplied
            | Outcome::NotPermitted
            | Outcome::Failed
            | Outcome::NoUsablePu => {}
        }
    }
}

/// Makes a change and looks what the kernel has made of it: the outcome, and the value if it is not the one that was
/// asked for.
pub(crate) fn make(
    settings: &mut dyn Settings,
    change: &SettingChange,
) -> (Outcome, Option<SettingValue>) {
    let outcome = settings.change_setting(change);
    if outcome != Outcome::Applied {
        return (outcome, None);
    }
    match settings.setting(&change.setting) {
        Ok(found) if found == change.set => (outcome, None),
        Ok(found) if change.setting.may_become(&change.set, &found) => (outcome, Some(found)),
        // It took the write and did nothing.
        Ok(found) if found == change.expect => (Outcome::Failed, None),
        Ok(_) => (Outcome::ChangedByOthers, None),
        Err(_) => (outcome, None),
    }
}

/// Takes out of a plan what must not be done to settings; the remarks name the policy's error.
pub(crate) fn check(plan: &mut Plan, snapshot: &Snapshot, policy: &str) -> Vec<Remark> {
    let mut wrong = Vec::new();
    let mut seen = HashSet::new();
    let online = snapshot.topology.online();
    plan.settings.retain(|binding| {
        let fault = fault(binding, snapshot, &online, &mut seen);
        wrong.extend(fault.map(|fault| {
            let text = format!(
                "a bug in policy {policy}: it {fault} ({}); it was not given the value {}",
                binding.setting, binding.value
            );
            Remark::error("policy-bug", text)
        }));
        fault.is_none()
    });
    wrong
}

/// Takes out of a plan that was made for an earlier snapshot what is no longer possible.
pub(crate) fn drop_outdated(plan: &mut Plan, present: &Snapshot) {
    let mut seen = HashSet::new();
    let online = present.topology.online();
    plan.settings
        .retain(|binding| fault(binding, present, &online, &mut seen).is_none());
}

fn state<'a>(snapshot: &'a Snapshot, setting: &Setting) -> Option<&'a SettingState> {
    let states = &snapshot.settings;
    let at = states.binary_search_by(|state| state.setting.cmp(setting));
    at.ok().map(|at| &states[at])
}

fn fault(
    binding: &SettingBinding,
    snapshot: &Snapshot,
    online: &PuSet,
    seen: &mut HashSet<Setting>,
) -> Option<&'static str> {
    let SettingBinding { setting, value, .. } = binding;
    let Some(state) = state(snapshot, setting) else {
        return Some("changed a setting that is not there");
    };
    if state.foreign {
        return Some("changed a setting that another process has changed");
    }
    // What it had before may be none of the choices.
    if !state.choices.allow(value) && *value != state.before {
        return Some("gave a setting a value that it cannot have");
    }
    if setting.is_faster(value, &state.before) {
        return Some("gave a setting a value that may make the machine faster than before perch");
    }
    if matches!(value, SettingValue::Pus(pus) if pus.is_disjoint(online)) {
        return Some("gave a setting no PU that is online");
    }
    (!seen.insert(setting.clone())).then_some("gave a setting two values")
}

/// The differences between a plan and the values in force, in order; the outcome of each is open as yet.
pub(crate) fn difference(plan: &Plan, snapshot: &Snapshot) -> Vec<SettingMove> {
    let wanted: HashMap<&Setting, &SettingBinding> = plan
        .settings
        .iter()
        .map(|binding| (&binding.setting, binding))
        .collect();
    let differs = |state: &SettingState| {
        let binding = wanted.get(&state.setting);
        // The value that it had before is given by giving it none.
        let to = binding.map(|binding| &binding.value);
        let to = to.filter(|value| **value != state.before);
        (to != state.given.as_ref()).then(|| SettingMove {
            setting: state.setting.clone(),
            from: state.given.clone(),
            to: to.cloned(),
            reason: binding.map_or_else(
                || Reason::new("no longer in the plan"),
                |binding| binding.reason.clone(),
            ),
            outcome: Outcome::NotApplied,
            found: None,
        })
    };
    snapshot.settings.iter().filter_map(differs).collect()
}
