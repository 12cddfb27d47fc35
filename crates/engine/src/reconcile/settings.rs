//! Settings of the machine: journaled before they are changed, and restored.

use super::Reconciler;
use crate::{
    journal::{Journal, Record, SettingRecord},
    observer::SettingMove,
    restore::{RestoreReport, restore_settings},
    settings::{KnownSettings, make},
};
use perch_core::{Affinity, Outcome, Remark, Setting, SettingChange, SettingValue};

impl Reconciler {
    /// Journals and makes changes of settings, and fills in what became of them. Moves of settings that must be left
    /// alone by now are taken out.
    pub fn apply_settings(
        &mut self,
        known: &KnownSettings,
        affinity: &mut dyn Affinity,
        moves: &mut Vec<SettingMove>,
        remarks: &mut Vec<Remark>,
    ) {
        let mut changes = Vec::new();
        moves.retain(|made| {
            let change = known.change(made);
            let free = change.is_some();
            changes.extend(change);
            free
        });
        let Some(settings) = affinity.settings().filter(|_| !changes.is_empty()) else {
            return;
        };
        if let Err(why) = self.log_intent_of_settings(&changes) {
            remarks.push(Remark::error("journal", why));
            return;
        }
        let mut done = Vec::new();
        for ((change, _), made) in changes.iter().zip(moves) {
            (made.outcome, made.found) = make(settings, change);
            done.push(Record::SettingDone {
                setting: made.setting.clone(),
                outcome: made.outcome,
                found: made.found.clone(),
            });
        }
        self.settings.log_outcome(&done, remarks);
    }

    /// Journals which settings are not perch's doing any more, so that they are left alone on restore too.
    pub(super) fn release_settings(
        &mut self,
        released: &[(Setting, bool)],
        remarks: &mut Vec<Remark>,
    ) {
        let records = released
            .iter()
            .map(|(setting, foreign)| Record::SettingDone {
                setting: setting.clone(),
                outcome: match foreign {
                    true => Outcome::ChangedByOthers,
                    false => Outcome::Gone,
                },
                found: None,
            });
        let records: Vec<Record> = records.collect();
        self.settings.log_outcome(&records, remarks);
        remarks.extend(
            released
                .iter()
                .filter(|(_, foreign)| *foreign)
                .map(|(setting, _)| {
                    let text =
                        format!("another process has changed {setting}: perch leaves it alone");
                    Remark::note("setting-changed-by-others", text)
                }),
        );
    }

    /// Writes to the journal what is about to be changed, each with the value that it goes back to.
    fn log_intent_of_settings(
        &mut self,
        changes: &[(SettingChange, SettingValue)],
    ) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let records = changes.iter().map(|(change, before)| {
            Record::Setting(SettingRecord {
                setting: change.setting.clone(),
                before: before.clone(),
                from: change.expect.clone(),
                set: change.set.clone(),
            })
        });
        let records: Vec<Record> = records.collect();
        let announced = self.settings.log_intent(&self.dir, &self.header, &records);
        announced.map_err(|error| self.fail(&error))
    }

    /// Gives every setting back that still has the value which it was given.
    pub(crate) fn give_back_settings(&mut self, affinity: &mut dyn Affinity) -> RestoreReport {
        let restore = |journal: &Journal| restore_settings(affinity.settings(), journal);
        RestoreReport {
            settings: self.settings.give_back(restore),
            ..RestoreReport::default()
        }
    }
}
