//! A machine in memory with settings.

use super::{
    killer::{Kill, Killer},
    set, topology,
};
use perch_core::{
    Affinity, EventPlan, Machine, MachineError, MaskChange, MaskError, Observation, Outcome,
    ProcessId, PuSet, Setting, SettingChange, SettingChoices, SettingSample, SettingValue,
    Settings, ThreadId, Topology, Wake, affinity::Descendant,
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, RwLock},
    time::Duration,
};

/// How long a period is, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Something that happens to a setting.
#[derive(Debug, Clone)]
pub enum SettingOp {
    /// Another process gives it a value.
    Set(Setting, SettingValue),
    /// Its PUs go offline, or the kernel limits its clock: it is not shown, and keeps its value.
    Hide(Setting),
    /// It is back.
    Show(Setting),
    /// It is made anew, with the value that it had at first.
    Renew(Setting),
}

/// One period of the script: what happens before perch looks, and between its look and its deed.
#[derive(Debug, Clone, Default)]
pub struct SettingStep {
    pub before: Vec<SettingOp>,
    pub race: Vec<SettingOp>,
}

#[derive(Debug)]
struct State {
    first: SettingValue,
    value: SettingValue,
    choices: SettingChoices,
    hidden: bool,
    /// What is written is ignored.
    stuck: bool,
}

#[derive(Debug, Default)]
struct Shared {
    settings: BTreeMap<Setting, State>,
    killer: Killer,
}

/// Settings that a test and its machine share.
#[derive(Clone, Default)]
pub struct Values(Arc<RwLock<Shared>>);

/// The steps to which the kernel rounds frequencies that come from a range, in kHz.
const STEP: u64 = 50_000;

impl Values {
    pub fn put(&self, setting: Setting, value: SettingValue, choices: SettingChoices) {
        let state = State {
            first: value.clone(),
            value,
            choices,
            hidden: false,
            stuck: false,
        };
        self.0.write().unwrap().settings.insert(setting, state);
    }

    pub fn stick(&self, setting: &Setting) {
        let mut shared = self.0.write().unwrap();
        shared.settings.get_mut(setting).unwrap().stuck = true;
    }

    pub fn run(&self, op: &SettingOp) {
        let mut shared = self.0.write().unwrap();
        let (SettingOp::Set(setting, _)
        | SettingOp::Hide(setting)
        | SettingOp::Show(setting)
        | SettingOp::Renew(setting)) = op;
        let state = shared.settings.get_mut(setting).unwrap();
        match op {
            SettingOp::Set(_, value) if !state.hidden => state.value = value.clone(),
            // EBUSY.
            SettingOp::Set(..) => {}
            SettingOp::Hide(_) => state.hidden = true,
            SettingOp::Show(_) => state.hidden = false,
            SettingOp::Renew(_) => {
                state.hidden = false;
                state.value = state.first.clone();
            }
        }
    }

    pub fn show_all(&self) {
        let mut shared = self.0.write().unwrap();
        let states = shared.settings.values_mut();
        states.for_each(|state| state.hidden = false);
    }

    pub fn kill(&self, kill: Kill, dir: &Path) {
        self.0.write().unwrap().killer.arm(kill, dir);
    }

    /// The journals that a killed perch left; it is dead from now on.
    pub fn take_killed(&self) -> Option<Vec<Vec<u8>>> {
        self.0.write().unwrap().killer.take()
    }

    pub fn all(&self) -> BTreeMap<Setting, SettingValue> {
        let shared = self.0.read().unwrap();
        let settings = shared.settings.iter();
        settings
            .map(|(setting, state)| (setting.clone(), state.value.clone()))
            .collect()
    }

    pub fn get(&self, setting: &Setting) -> String {
        self.all()[setting].to_string()
    }
}

impl Settings for Values {
    fn settings(&self) -> Vec<SettingSample> {
        let shared = self.0.read().unwrap();
        let shown = shared.settings.iter().filter(|(_, state)| !state.hidden);
        let sample = |(setting, state): (&Setting, &State)| SettingSample {
            setting: setting.clone(),
            governs: set("0-3"),
            value: state.value.clone(),
            choices: state.choices.clone(),
        };
        shown.map(sample).collect()
    }

    fn setting(&self, setting: &Setting) -> Result<SettingValue, MaskError> {
        let shared = self.0.read().unwrap();
        let state = shared.settings.get(setting).ok_or(MaskError::Gone)?;
        match state.hidden {
            true => Err(MaskError::Other(format!("{setting}: its PUs are offline"))),
            false => Ok(state.value.clone()),
        }
    }

    fn change_setting(&mut self, change: &SettingChange) -> Outcome {
        let mut shared = self.0.write().unwrap();
        if shared.killer.before_change() {
            return Outcome::Applied;
        }
        let outcome = match shared.settings.get_mut(&change.setting) {
            None => Outcome::Gone,
            Some(state) if state.hidden => Outcome::Failed,
            Some(state) if state.stuck => Outcome::Applied,
            Some(state) if state.value == change.expect => {
                state.value = match (&change.set, &state.choices) {
                    (SettingValue::Number(number), SettingChoices::Range(..))
                        if matches!(change.setting, Setting::MaxFrequency(_)) =>
                    {
                        SettingValue::Number(number / STEP * STEP)
                    }
                    (value, _) => value.clone(),
                };
                Outcome::Applied
            }
            Some(_) => Outcome::ChangedByOthers,
        };
        shared.killer.after_change();
        outcome
    }
}

impl Affinity for Values {
    fn settle(&self) {}

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, _: ThreadId) -> Result<PuSet, MaskError> {
        Err(MaskError::Gone)
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::Gone
    }

    fn settings(&mut self) -> Option<&mut dyn Settings> {
        Some(self)
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        None
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        Ok(Vec::new())
    }
}

/// A machine of four PUs without any threads of perch's, which follows a script.
pub struct Settable {
    pub values: Values,
    steps: Vec<SettingStep>,
    at: usize,
    watches: bool,
}

impl Settable {
    pub fn new(values: &Values, steps: &[SettingStep]) -> Self {
        Self {
            values: values.clone(),
            steps: steps.to_vec(),
            at: 0,
            watches: false,
        }
    }
}

impl Machine for Settable {
    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        Vec::new()
    }

    fn topology(&self) -> Arc<Topology> {
        Arc::new(topology(2, &set("0-3")))
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_settings(&mut self, watch: bool) -> Result<(), MachineError> {
        self.watches = watch;
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        let Some(step) = self.steps.get(self.at) else {
            return Ok(Wake::Ended(None));
        };
        step.before.iter().for_each(|op| self.values.run(op));
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let settings = match self.watches {
            true => Settings::settings(&self.values),
            false => Vec::new(),
        };
        if let Some(step) = self.steps.get(self.at) {
            step.race.iter().for_each(|op| self.values.run(op));
        }
        self.at += 1;
        Ok(Observation {
            at: self.at as u64 * SECOND,
            interval: SECOND,
            settings,
            ..Observation::default()
        })
    }

    fn default_mask(&self) -> PuSet {
        set("0-3")
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.values
    }

    fn counting(&self) -> String {
        "a script".to_owned()
    }
}
