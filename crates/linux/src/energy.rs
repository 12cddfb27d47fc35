//! The energy that processor packages have used, from their RAPL counters below `/sys/class/powercap`.
//!
//! A package's counter covers everything that runs on it. Kernels since 5.10 let only root read it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Where the kernel has the counters.
pub const POWERCAP: &str = "/sys/class/powercap";

/// The counters of all packages.
#[derive(Debug)]
pub struct Energy {
    packages: Vec<Package>,
    used: u64,
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The value after which the counter continues at 0.
    range: u64,
    last: u64,
}

impl Energy {
    /// The packages below this folder; `None` if there are none with a counter.
    ///
    /// # Errors
    /// A counter that cannot be read, with its path: most often for lack of permission.
    pub fn open(powercap: &Path) -> io::Result<Option<Self>> {
        let Ok(zones) = fs::read_dir(powercap) else {
            return Ok(None);
        };
        let mut packages = Vec::new();
        for zone in zones.flatten() {
            // Zones below a package have a second number; intel-rapl-mmio is another view of the same counters.
            let name = zone.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("intel-rapl:"));
            if number.is_none_or(|number| number.contains(':')) {
                continue;
            }
            let zone = zone.path();
            let kind = fs::read_to_string(zone.join("name")).unwrap_or_default();
            if !kind.starts_with("package") {
                continue;
            }
            let counter = zone.join("energy_uj");
            packages.push(Package {
                last: number_in(&counter)?,
                range: number_in(&zone.join("max_energy_range_uj"))?,
                counter,
            });
        }
        Ok((!packages.is_empty()).then_some(Self { packages, used: 0 }))
    }

    /// The energy that all packages have used since this was opened, in microjoules. A counter wraps around after minutes
    /// to hours and must be read more often than that.
    ///
    /// # Errors
    /// A counter that cannot be read any more.
    pub fn used(&mut self) -> io::Result<u64> {
        for package in &mut self.packages {
            let now = number_in(&package.counter)?;
            self.used += match now.checked_sub(package.last) {
                Some(used) => used,
                None => (package.range - package.last.min(package.range)) + now,
            };
            package.last = now;
        }
        Ok(self.used)
    }
}

fn number_in(path: &Path) -> io::Result<u64> {
    let wrong =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(wrong)?;
    let number = text.trim().parse();
    number.map_err(|_| {
        wrong(io::Error::new(
            io::ErrorKind::InvalidData,
            "is not a number",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(folder: &Path, zone: &str, name: &str, energy: u64) {
        let zone = folder.join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(zone.join("max_energy_range_uj"), "1000\n").unwrap();
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
