//! Energy counters of processors below `/sys/class/powercap`: one zone for each package and for its domains (cores, DRAM,
//! …), as the kernel's RAPL drivers for Intel and AMD list them (`Documentation/power/powercap/powercap.rst`).
//!
//! A counter covers everything that runs on its part of the machine. Kernels since 5.10 let only root read it.

use super::counter::{Counter, number_in, text_in};
use perch_core::{MetricScope, Subject};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Where the kernel has the counters, below `/sys`.
pub const POWERCAP: &str = "class/powercap";

/// The control type of RAPL. `intel-rapl-mmio` is another view of the same counters.
const RAPL: &str = "intel-rapl:";

/// The control type of Arm's system control processors: zones tell their power.
const SCMI: &str = "arm-scmi:";

/// A zone with an energy counter.
#[derive(Debug)]
pub(super) struct Zone {
    /// What it covers: `package`, `core`, `uncore`, `dram`, `psys`.
    pub domain: String,
    /// The part of the machine that it belongs to.
    pub subject: Subject,
    pub counter: Counter,
}

/// A zone that tells its power only.
#[derive(Debug)]
pub(super) struct PowerZone {
    pub name: String,
    /// In microwatts.
    pub file: PathBuf,
}

/// The RAPL zones, those of packages first.
///
/// # Errors
/// A counter that cannot be read, with its path: most often for lack of permission.
pub(super) fn zones(powercap: &Path) -> io::Result<Vec<Zone>> {
    let mut folders: Vec<(Vec<u32>, PathBuf)> = list(powercap, RAPL);
    // A package's zone has one number, those of its domains have two.
    folders.sort_by_key(|(numbers, _)| (numbers.len(), numbers.clone()));
    let (mut zones, mut parents) = (Vec::new(), BTreeMap::new());
    for (numbers, folder) in folders {
        let Ok(name) = text_in(&folder.join("name")) else {
            continue;
        };
        let subject = match numbers.as_slice() {
            [number] => {
                let subject = package(&name).map_or(Subject::Machine, Subject::Package);
                parents.insert(*number, subject);
                subject
            }
            [number, _] => match parents.get(number) {
                Some(subject) => *subject,
                None => continue,
            },
            _ => continue,
        };
        let domain = match package(&name) {
            Some(_) => "package".to_owned(),
            None => name,
        };
        let range = number_in(&folder.join("max_energy_range_uj"))?;
        zones.push(Zone {
            domain,
            subject,
            counter: Counter::open(folder.join("energy_uj"), Some(range))?,
        });
    }
    Ok(zones)
}

/// Zones of Arm boards that tell their power.
pub(super) fn power_zones(powercap: &Path) -> Vec<PowerZone> {
    let zone = |(_, folder): (_, PathBuf)| {
        let file = folder.join("power_uw");
        number_in(&file).ok()?;
        Some(PowerZone {
            name: text_in(&folder.join("name")).ok()?,
            file,
        })
    };
    list(powercap, SCMI).into_iter().filter_map(zone).collect()
}

/// The zones of a control type, each with its numbers.
fn list(powercap: &Path, prefix: &str) -> Vec<(Vec<u32>, PathBuf)> {
    let entries = fs::read_dir(powercap).into_iter().flatten().flatten();
    let zone = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let numbers = name.to_str()?.strip_prefix(prefix)?.split(':');
        let numbers: Result<Vec<u32>, _> = numbers.map(str::parse).collect();
        Some((numbers.ok()?, entry.path()))
    };
    let mut zones: Vec<_> = entries.filter_map(zone).collect();
    zones.sort();
    zones
}

/// The package's number from a zone's name: `package-0`, `package-1-die-0`.
fn package(name: &str) -> Option<u32> {
    let number = name.strip_prefix("package-")?.split('-').next()?;
    number.parse().ok()
}

impl Zone {
    /// The scope of its values.
    pub(super) fn scope(&self) -> MetricScope {
        self.subject.scope()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes a zone as the kernel lays it out.
    pub fn zone(powercap: &Path, zone: &str, name: &str, energy: u64) {
        let zone = powercap.join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }

    #[test]
    fn domains_belong_to_their_package() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // The numbers of zones are in the order of registration, not those of packages.
        zone(folder, "intel-rapl:0", "package-1", 1);
        zone(folder, "intel-rapl:1", "package-0-die-1", 1);
        zone(folder, "intel-rapl:2", "psys", 1);
        zone(folder, "intel-rapl:0:0", "core", 1);
        zone(folder, "intel-rapl:1:0", "dram", 1);
        zone(folder, "intel-rapl-mmio:0", "package-0", 1);
        fs::create_dir(folder.join("intel-rapl")).unwrap();
        let found = zones(folder).unwrap();
        let found: Vec<(&str, Subject)> = found
            .iter()
            .map(|zone| (zone.domain.as_str(), zone.subject))
            .collect();
        assert_eq!(
            found,
            [
                ("package", Subject::Package(1)),
                ("package", Subject::Package(0)),
                ("psys", Subject::Machine),
                ("core", Subject::Package(1)),
                ("dram", Subject::Package(0)),
            ]
        );
    }

    #[test]
    fn arm_zones_tell_their_power() {
        let folder = tempfile::tempdir().unwrap();
        let zone = folder.path().join("arm-scmi:0");
        fs::create_dir(&zone).unwrap();
        fs::write(zone.join("name"), "big-cluster\n").unwrap();
        assert!(power_zones(folder.path()).is_empty());
        fs::write(zone.join("power_uw"), "1250000\n").unwrap();
        assert_eq!(power_zones(folder.path())[0].name, "big-cluster");
    }

    proptest! {
        #[test]
        fn any_name_is_survived(name in "\\PC{0,20}") {
            let number = package(&name);
            prop_assert!(number.is_none() || name.starts_with("package-"));
        }
    }
}
