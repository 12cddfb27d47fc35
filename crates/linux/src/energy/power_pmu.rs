//! perf's PMU `power`: the RAPL counters of processors again, for users who may count on whole PUs but are not root
//! (`arch/x86/events/rapl.c` of the kernel).

use crate::perf::{encode::Encoder, privilege::refusal};
use perch_core::{MachineError, PuSet, Subject};
use perf_event::{Builder, Counter};
use std::{fs, io, path::Path};

/// Its name.
const PMU: &str = "power";

/// Its events, and what powercap calls the same domains.
const EVENTS: [(&str, &str); 5] = [
    ("energy-pkg", "package"),
    ("energy-cores", "core"),
    ("energy-gpu", "uncore"),
    ("energy-ram", "dram"),
    ("energy-psys", "psys"),
];

/// One domain of one package.
pub(super) struct Domain {
    /// What powercap calls it.
    pub domain: &'static str,
    pub subject: Subject,
    counter: Counter,
    /// Joules in a count.
    scale: f64,
    last: u64,
}

impl Domain {
    /// Joules since the last call; `None` if the counter cannot be read.
    pub(super) fn take(&mut self) -> Option<f64> {
        let now = self.counter.read().ok()?;
        let before = std::mem::replace(&mut self.last, now);
        Some(now.checked_sub(before)? as f64 * self.scale)
    }
}

/// An event, its domain, and how many joules a count is.
#[derive(Debug, PartialEq)]
struct Found {
    event: &'static str,
    domain: &'static str,
    scale: f64,
}

/// The events of the PMU, as sysfs describes them.
fn events(sysfs: &Path) -> Vec<Found> {
    let folder = sysfs
        .join("bus/event_source/devices")
        .join(PMU)
        .join("events");
    let event = |(event, domain): &(&'static str, &'static str)| {
        let scale = fs::read_to_string(folder.join(format!("{event}.scale"))).ok()?;
        let scale = scale.trim().parse().ok()?;
        folder.join(event).is_file().then_some(Found {
            event,
            domain,
            scale,
        })
    };
    EVENTS.iter().filter_map(event).collect()
}

/// The PUs on which its events are read: one a package.
fn pus(sysfs: &Path) -> PuSet {
    let mask = sysfs
        .join("bus/event_source/devices")
        .join(PMU)
        .join("cpumask");
    let text = fs::read_to_string(mask).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn package_of(sysfs: &Path, pu: u32) -> Option<u32> {
    let file = format!("devices/system/cpu/cpu{pu}/topology/physical_package_id");
    fs::read_to_string(sysfs.join(file))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Opens all domains of all packages, if there is such a PMU.
///
/// # Errors
/// Its events are refused: with the remedy.
pub(super) fn open(sysfs: &Path) -> Result<Vec<Domain>, MachineError> {
    let encoder = Encoder::with_sysfs(sysfs);
    let mut domains = Vec::new();
    for found in events(sysfs) {
        for pu in pus(sysfs).iter() {
            let spelling = format!("{PMU}/{}/", found.event);
            let encoded = encoder
                .encode(&spelling, None)
                .map_err(|error| MachineError::Other(error.to_string()))?;
            let mut builder = Builder::new(encoded.code);
            builder.any_pid().one_cpu(pu as usize).include_kernel();
            builder.include_hv().exclude_idle(false);
            let opened = builder.build().and_then(|mut counter| {
                counter.enable()?;
                let last = counter.read()?;
                Ok((counter, last))
            });
            let (counter, last) = opened.map_err(|error| refused(&spelling, error))?;
            let subject = match (found.domain, package_of(sysfs, pu)) {
                ("psys", _) | (_, None) => Subject::Machine,
                (_, Some(package)) => Subject::Package(package),
            };
            domains.push(Domain {
                domain: found.domain,
                subject,
                counter,
                scale: found.scale,
                last,
            });
        }
    }
    Ok(domains)
}

/// An event that cannot be opened, with the remedy: other events of threads need less.
fn refused(spelling: &str, error: io::Error) -> MachineError {
    let what = format!("counting {spelling}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => MachineError::NotPermitted {
            what,
            remedy:
                "it counts on whole packages: run perch as root or with CAP_PERFMON, or `sysctl \
                     kernel.perf_event_paranoid=0`, which lets all users count so"
                    .to_owned(),
        },
        _ => refusal(&what, error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The PMU as a processor of two packages lists it.
    pub fn two_packages(sysfs: &Path) {
        let folder = sysfs.join("bus/event_source/devices/power");
        fs::create_dir_all(folder.join("events")).unwrap();
        fs::create_dir_all(folder.join("format")).unwrap();
        for (file, text) in [
            ("type", "23"),
            ("cpumask", "0,20"),
            ("format/event", "config:0-7"),
            ("events/energy-pkg", "event=0x02"),
            ("events/energy-pkg.scale", "2.3283064365386962890625e-10"),
            ("events/energy-pkg.unit", "Joules"),
            ("events/energy-ram", "event=0x03"),
            ("events/energy-ram.scale", "2.3283064365386962890625e-10"),
        ] {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
        for (pu, package) in [(0, 0), (20, 1)] {
            let cpu = sysfs.join(format!("devices/system/cpu/cpu{pu}/topology"));
            fs::create_dir_all(&cpu).unwrap();
            fs::write(cpu.join("physical_package_id"), format!("{package}\n")).unwrap();
        }
    }

    #[test]
    fn events_and_packages_are_those_that_sysfs_lists() {
        let folder = tempfile::tempdir().unwrap();
        assert!(events(folder.path()).is_empty());
        two_packages(folder.path());
        let found = events(folder.path());
        let domains: Vec<&str> = found.iter().map(|found| found.domain).collect();
        assert_eq!(domains, ["package", "dram"]);
        assert!((found[0].scale * 2f64.powi(32) - 1.0).abs() < 1e-12);
        let packages: Vec<Option<u32>> = pus(folder.path())
            .iter()
            .map(|pu| package_of(folder.path(), pu))
            .collect();
        assert_eq!(packages, [Some(0), Some(1)]);
    }
}
