//! Giving settings of the machine the values back that they had before perch.

use super::report::{Refusals, RestoreCounts};
use crate::{journal::Journal, settings::make};
use perch_core::{MaskError, Outcome, Setting, SettingChange, Settings};

const REFUSALS: Refusals = Refusals {
    not_permitted: "not permitted: run it as root",
    failed: "the kernel does not take the value now: run `perch restore` later",
    no_usable_pu: "none of the PUs that it had is online now",
    not_applied: "this machine does not change settings",
};

/// Gives each setting of a journal the value that it had before perch, if it still has one that perch may have set.
/// `settings` is `None` on a machine that has none.
pub fn restore_settings(
    mut settings: Option<&mut dyn Settings>,
    journal: &Journal,
) -> RestoreCounts<Setting> {
    let mut report = RestoreCounts::default();
    // Throttling before clocks: a clock that is throttled shows the kernel's limit.
    for record in journal.settings().rev() {
        let setting = &record.setting;
        let Some(settings) = settings.as_deref_mut() else {
            report.gone += 1;
            continue;
        };
        let outcome = match settings.setting(setting) {
            Ok(value) if value == record.before => {
                report.already += 1;
                continue;
            }
            Ok(value) if record.may_have_set(&value) => {
                let change = SettingChange {
                    setting: setting.clone(),
                    expect: value,
                    set: record.before.clone(),
                };
                make(settings, &change).0
            }
            Ok(_) => Outcome::ChangedByOthers,
            Err(MaskError::Gone) => Outcome::Gone,
            Err(MaskError::Hidden) => Outcome::NotPermitted,
            Err(MaskError::Other(why)) => {
                report.fail(setting.clone(), why);
                continue;
            }
        };
        report.count(setting.clone(), outcome, &REFUSALS);
    }
    report
}
