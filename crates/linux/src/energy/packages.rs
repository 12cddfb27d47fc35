//! The energy of all processor packages together, for `perch compare`.

use super::{
    counter::Counter,
    power_pmu,
    rapl::{self, Domains},
};
use perch_core::MachineError;
use std::{fmt, io, path::Path};

/// The domain that covers a whole package.
const PACKAGE: &str = "package";

/// The counters of all packages.
pub struct Energy {
    packages: Vec<Package>,
    /// In joules.
    used: f64,
    /// A reading has failed, and with it what was used meanwhile may be missing.
    lost: bool,
}

enum Package {
    File(Counter),
    Perf(power_pmu::Domain),
}

impl Energy {
    /// The packages below the live `/sys`, through powercap or, where this user may not read those files, through perf's PMU
    /// `power`; `None` if there are none with a counter.
    ///
    /// # Errors
    /// A counter that cannot be read, with its path: most often for lack of permission.
    pub fn open(sysfs: &Path) -> Result<Option<Self>, MachineError> {
        let packages: Vec<Package> = match rapl::open(sysfs)? {
            Domains::Files(zones) => {
                let packages = zones.into_iter().filter(|zone| zone.domain == PACKAGE);
                packages.map(|zone| Package::File(zone.counter)).collect()
            }
            Domains::Perf(domains) => {
                let packages = domains.into_iter().filter(|of| of.domain == PACKAGE);
                packages.map(Package::Perf).collect()
            }
        };
        Ok((!packages.is_empty()).then_some(Self {
            packages,
            used: 0.0,
            lost: false,
        }))
    }

    /// The energy that all packages have used since this was opened, in joules. A counter wraps around after minutes to hours
    /// and must be read more often than that.
    ///
    /// # Errors
    /// A counter that cannot be read any more, or could not be at some time.
    pub fn used(&mut self) -> io::Result<f64> {
        let read = self.read();
        if read.is_ok() && self.lost {
            return Err(io::Error::other("a reading of energy was lost"));
        }
        self.lost |= read.is_err();
        read
    }

    fn read(&mut self) -> io::Result<f64> {
        for package in &mut self.packages {
            self.used += match package {
                Package::File(counter) => {
                    counter.update()?;
                    let lost = || io::Error::other("a reading of energy was lost");
                    counter.take().ok_or_else(lost)? as f64 / 1e6
                }
                Package::Perf(domain) => {
                    let lost = || io::Error::other("perf's PMU `power` cannot be read any more");
                    domain.take().ok_or_else(lost)?
                }
            };
        }
        Ok(self.used)
    }
}

impl fmt::Debug for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Energy")
            .field("packages", &self.packages.len())
            .field("used", &self.used)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::powercap;
    use super::*;
    use std::fs;

    fn zone(folder: &Path, zone: &str, name: &str, energy: u64) {
        super::super::powercap::tests::zone(folder, zone, name, energy);
        fs::write(folder.join(zone).join("max_energy_range_uj"), "1000\n").unwrap();
    }

    #[test]
    fn packages_are_summed_and_counters_wrap_around() {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = &sysfs.path().join(powercap::POWERCAP);
        zone(folder, "intel-rapl:0", "package-0", 100);
        zone(folder, "intel-rapl:1", "package-1", 900);
        // Parts of a package, the platform, and the same package again do not count.
        zone(folder, "intel-rapl:0:0", "core", 50);
        zone(folder, "intel-rapl:2", "psys", 70);
        zone(folder, "intel-rapl-mmio:0", "package-0", 100);
        let mut energy = Energy::open(sysfs.path()).unwrap().unwrap();
        let mut used = || (energy.used().unwrap() * 1e6).round();
        assert_eq!(used(), 0.0);
        zone(folder, "intel-rapl:0", "package-0", 350);
        zone(folder, "intel-rapl:1", "package-1", 20);
        zone(folder, "intel-rapl:2", "psys", 700);
        assert_eq!(used(), 250.0 + 120.0);
        zone(folder, "intel-rapl:0", "package-0", 349);
        assert_eq!(used(), 370.0 + 999.0);
    }

    #[test]
    fn without_counters_there_is_no_energy_and_what_is_wrong_with_one_is_said() {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = &sysfs.path().join(powercap::POWERCAP);
        assert!(Energy::open(sysfs.path()).unwrap().is_none());
        zone(folder, "intel-rapl:0", "package-0", 1);
        fs::write(folder.join("intel-rapl:0/energy_uj"), "much").unwrap();
        let error = Energy::open(sysfs.path()).unwrap_err().to_string();
        assert!(error.contains("intel-rapl:0/energy_uj"), "{error}");
    }
}
