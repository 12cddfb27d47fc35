//! The energy of all processor packages together, for `perch compare`.

use super::powercap::{Zone, zones};
use std::{io, path::Path};

/// The counters of all packages.
#[derive(Debug)]
pub struct Energy {
    packages: Vec<Zone>,
    used: u64,
}

impl Energy {
    /// The packages below this folder; `None` if there are none with a counter.
    ///
    /// # Errors
    /// A counter that cannot be read, with its path: most often for lack of permission.
    pub fn open(powercap: &Path) -> io::Result<Option<Self>> {
        let mut packages = zones(powercap)?;
        packages.retain(|zone| zone.domain == "package");
        Ok((!packages.is_empty()).then_some(Self { packages, used: 0 }))
    }

    /// The energy that all packages have used since this was opened, in microjoules. A counter wraps around after minutes
    /// to hours and must be read more often than that.
    ///
    /// # Errors
    /// A counter that cannot be read any more.
    pub fn used(&mut self) -> io::Result<u64> {
        for package in &mut self.packages {
            package.counter.update()?;
            self.used += package.counter.take().unwrap_or(0);
        }
        Ok(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn zone(folder: &Path, zone: &str, name: &str, energy: u64) {
        super::super::powercap::tests::zone(folder, zone, name, energy);
        fs::write(folder.join(zone).join("max_energy_range_uj"), "1000\n").unwrap();
    }

    #[test]
    fn packages_are_summed_and_counters_wrap_around() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        zone(folder, "intel-rapl:0", "package-0", 100);
        zone(folder, "intel-rapl:1", "package-1", 900);
        // Parts of a package, the platform, and the same package again do not count.
        zone(folder, "intel-rapl:0:0", "core", 50);
        zone(folder, "intel-rapl:2", "psys", 70);
        zone(folder, "intel-rapl-mmio:0", "package-0", 100);
        let mut energy = Energy::open(folder).unwrap().unwrap();
        assert_eq!(energy.used().unwrap(), 0);
        zone(folder, "intel-rapl:0", "package-0", 350);
        zone(folder, "intel-rapl:1", "package-1", 20);
        zone(folder, "intel-rapl:2", "psys", 700);
        assert_eq!(energy.used().unwrap(), 250 + 120);
        zone(folder, "intel-rapl:0", "package-0", 349);
        assert_eq!(energy.used().unwrap(), 370 + 999);
    }

    #[test]
    fn without_counters_there_is_no_energy_and_what_is_wrong_with_one_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(Energy::open(&folder.join("none")).unwrap().is_none());
        assert!(Energy::open(folder).unwrap().is_none());
        zone(folder, "intel-rapl:0", "package-0", 1);
        fs::write(folder.join("intel-rapl:0/energy_uj"), "much").unwrap();
        let error = Energy::open(folder).unwrap_err().to_string();
        assert!(error.contains("intel-rapl:0/energy_uj"), "{error}");
    }
}
