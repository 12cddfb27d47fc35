//! What a journal knows of settings of the machine.

use super::Journal;
use perch_core::{Outcome, PuSet, Setting, SettingValue};
use serde::{Deserialize, Serialize};

/// A setting of the machine is about to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRecord {
    /// Which setting.
    pub setting: Setting,
    /// The value to which it will be restored.
    pub before: SettingValue,
    /// The value that it has now.
    pub from: SettingValue,
    /// The value that it is about to get; once it is known, the one that the kernel has made of that.
    pub set: SettingValue,
}

impl SettingRecord {
    /// Whether this value may be perch's doing. Until the outcome of a change is known, so may one that the kernel makes
    /// of it.
    pub fn may_have_set(&self, value: &SettingValue) -> bool {
        let rounded = || self.from != self.set && self.setting.may_become(&self.set, value);
        *value == self.set || *value == self.from || rounded()
    }

    /// Whether it names a file, and values, that the kernel has: a damaged or forged one may name anything.
    pub(super) fn is_plain(&self) -> bool {
        self.setting.is_plain() && self.values().into_iter().all(SettingValue::is_plain)
    }

    /// The values in it.
    pub(super) fn values(&self) -> [&SettingValue; 3] {
        [&self.before, &self.from, &self.set]
    }
}

/// The PUs of a value that is a set of them.
pub(super) fn pus(value: &SettingValue) -> Option<&PuSet> {
    match value {
        SettingValue::Pus(pus) => Some(pus),
        SettingValue::Number(_) | SettingValue::Name(_) => None,
    }
}

impl Journal {
    /// Takes in a change that is about to be made.
    pub(super) fn add_setting(&mut self, record: &SettingRecord) {
        let mut record = record.clone();
        // The value before the first change is restored, unless another process has set one since.
        if let Some(first) = self.settings.get(&record.setting)
            && (record.from == first.set || record.from == first.from)
        {
            record.before.clone_from(&first.before);
        }
        self.settings.insert(record.setting.clone(), record);
    }

    /// Takes in what became of it.
    pub(super) fn add_setting_outcome(
        &mut self,
        setting: &Setting,
        outcome: Outcome,
        found: Option<&SettingValue>,
    ) {
        let Some(record) = self.settings.get_mut(setting) else {
            return;
        };
        match outcome {
            Outcome::Applied => {
                record.set = found.unwrap_or(&record.set).clone();
                record.from = record.set.clone();
            }
            Outcome::NotApplied | Outcome::NotPermitted | Outcome::Failed | Outcome::NoUsablePu => {
                record.set = record.from.clone();
            }
            Outcome::Gone | Outcome::ChangedByOthers => {
                self.settings.remove(setting);
                return;
            }
        }
        if record.set == record.before {
            self.settings.remove(setting);
        }
    }

    /// The settings of the machine whose values are perch's doing, or may be, in order.
    pub fn settings(&self) -> impl DoubleEndedIterator<Item = &SettingRecord> {
        self.settings.values()
    }
}
