//! What killed perches left behind, undone before this one begins.

use super::restore;
use anyhow::Result;
use perch_core::Remark;
use perch_engine::{Recovery, StateDir, recover_all};
use perch_linux::{affinity::LinuxAffinity, proc::check_numbers, resctrl};

/// Restores what killed perch processes left behind, with remarks for the user.
///
/// # Errors
/// A directory of journals that cannot be read.
pub(super) fn recover(dir: &StateDir) -> Result<Vec<Remark>> {
    check_numbers().map_err(anyhow::Error::msg)?;
    let mut affinity = LinuxAffinity::new();
    let mut recovered = recover_all(dir, &mut affinity)?;
    for dir in StateDir::others_of_caller() {
        recovered.extend(recover_all(&dir, &mut affinity)?);
    }
    let remarks = recovered
        .into_iter()
        .filter_map(|(path, recovery)| match &recovery {
            Recovery::Restored(report) if !report.has_failed() => {
                let restored = report.masks.restored
                    + report.weights.restored
                    + report.irqs.restored
                    + report.settings.restored;
                (restored > 0).then(|| {
                    let text = format!(
                        "a killed perch left changes behind: {}",
                        restore::sentence(&recovery)
                    );
                    Remark::note("recovered", text)
                })
            }
            Recovery::Alive { .. } | Recovery::OtherBoot => None,
            _ => {
                let text = format!(
                    "what a killed perch left in {}: {}",
                    path.display(),
                    restore::sentence(&recovery)
                );
                Some(Remark::error("not-recovered", text))
            }
        });
    Ok(remarks.chain(recover_groups()).collect())
}

/// Removes monitoring groups of killed perches, with remarks for the user.
fn recover_groups() -> Vec<Remark> {
    let leftovers = resctrl::remove_leftovers();
    let removed = (leftovers.removed > 0).then(|| {
        let text = format!(
            "of a killed perch {} removed",
            restore::groups(leftovers.removed)
        );
        Remark::note("recovered", text)
    });
    let failed = leftovers.failed.into_iter().map(|why| {
        let text = format!("a killed perch left a monitoring group: {why}");
        Remark::error("not-recovered", text)
    });
    removed.into_iter().chain(failed).collect()
}
