//! The energy counters of processors, by whichever way this user may read them.

use super::{power_pmu, powercap, refused};
use perch_core::MachineError;
use std::path::Path;

/// The domains of all packages.
pub(super) enum Domains {
    /// Files of powercap.
    Files(Vec<powercap::Zone>),
    /// perf's PMU `power`; empty where there is none.
    Perf(Vec<power_pmu::Domain>),
}

/// Opens powercap's files, or perf's PMU where there are none or this user may not read them.
///
/// # Errors
/// Counters that cannot be read by either way, most often for lack of permission.
pub(super) fn open(sysfs: &Path) -> Result<Domains, MachineError> {
    match powercap::zones(&sysfs.join(powercap::POWERCAP)) {
        Ok(zones) if !zones.is_empty() => Ok(Domains::Files(zones)),
        by_file => match (power_pmu::open(sysfs), by_file) {
            (Ok(domains), Ok(_)) => Ok(Domains::Perf(domains)),
            (Ok(domains), Err(_)) if !domains.is_empty() => Ok(Domains::Perf(domains)),
            // What it says holds for both ways.
            (_, Err(error)) => Err(refused(error)),
            (Err(error), Ok(_)) => Err(error),
        },
    }
}
