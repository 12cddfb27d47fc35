//! Regions of instrumented programs: what perch asks of them through their environment, and the reports that they leave.

use super::wanted::{EventColumn, Wanted};
use crate::args::StatArgs;
use perch_regions::{Merged, Report, folder, merge};
use perch_stat::{ACCOUNTED, Collector, Readings};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

/// How the names of folders for reports begin.
const PREFIX: &str = "perch-regions-";

/// A folder for the reports of one run.
pub struct Regions {
    folder: Option<Folder>,
}

/// A folder that is removed in the end. It is locked until then: one that is not locked was left by a perch that was killed.
struct Folder {
    folder: TempDir,
    _lock: File,
}

/// The regions of one run.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The regions of all processes.
    pub regions: Vec<Merged>,
    /// How many processes left reports.
    pub processes: usize,
    /// What is counted in them; some of it may not be counted elsewhere.
    pub columns: Option<Wanted>,
    /// What the user should know, a sentence each.
    pub remarks: Vec<String>,
}

impl Regions {
    /// Makes the folder, and removes those that were left behind. Without one, regions are not shown.
    pub fn make() -> Self {
        Folder::remove_leftovers();
        Self {
            folder: Folder::make(),
        }
    }

    /// What the program is told: where its report goes, and to count in its regions what perch counts.
    pub fn environment(&self, args: &StatArgs) -> Vec<(OsString, OsString)> {
        let Some(folder) = &self.folder else {
            return Vec::new();
        };
        let is_accounted =
            |name: &&String| ACCOUNTED.iter().any(|(known, _)| *known == name.trim());
        let virtuals: Vec<String> = args
            .virtuals
            .iter()
            .filter(is_accounted)
            .map(|name| name.trim().to_owned())
            .collect();
        let space = match (args.user, args.kernel) {
            (true, _) => "user",
            (_, true) => "kernel",
            _ => "",
        };
        let mut variables = vec![(
            OsString::from(folder::VARIABLE),
            folder.folder.path().as_os_str().to_owned(),
        )];
        let events = args.events.iter().map(|set| without_thresholds(set));
        let events: Vec<String> = events.collect();
        let texts = [
            ("PERCH_REGION_EVENTS", events.join(";")),
            ("PERCH_REGION_METRICS", args.metrics.join(";")),
            ("PERCH_REGION_VIRTUALS", virtuals.join(",")),
            ("PERCH_REGION_SPACE", space.to_owned()),
            (
                "PERCH_PROFILE",
                args.profile.as_deref().map(profile).unwrap_or_default(),
            ),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        variables.extend(texts.map(|(name, text)| (name.into(), text.into())));
        variables
    }

    /// The reports that are there now; a remark that was `said` is not repeated.
    pub fn read(&self, wanted: &Wanted, collector: &Collector, said: &str) -> Found {
        let Some(folder) = &self.folder else {
            return Found::default();
        };
        let reports = match folder::read(folder.folder.path()) {
            Ok(found) => found,
            Err(error) => folder::Found {
                problems: vec![format!("regions cannot be read: {error}")],
                ..folder::Found::default()
            },
        };
        let (regions, left_out) = merge(&reports.reports);
        // Every process says the same.
        let told: BTreeSet<&String> = reports.reports.iter().flat_map(|r| &r.remarks).collect();
        let news = told.into_iter().filter(|remark| *remark != said);
        let mut remarks: Vec<String> = news.take(10).cloned().collect();
        remarks.extend(reports.problems);
        if left_out > 0 {
            remarks.push(format!("{left_out} regions are left out: too many"));
        }
        remarks.extend(reports.unfinished.map(unfinished));
        let processes: BTreeSet<i32> = reports.reports.iter().map(|report| report.pid).collect();
        let columns = columns(wanted, &reports.reports, &regions, collector);
        Found {
            processes: processes.len(),
            columns: Some(columns),
            regions,
            remarks,
        }
    }
}

impl Folder {
    fn make() -> Option<Self> {
        // Another perch may take a folder that is not yet locked for one that was left behind.
        (0..3).find_map(|_| {
            let folder = TempDir::with_prefix(PREFIX).ok()?;
            let lock = File::open(folder.path()).ok()?;
            lock.lock().ok()?;
            folder.path().exists().then_some(Self {
                folder,
                _lock: lock,
            })
        })
    }

    /// Removes this user's folders that no perch holds.
    fn remove_leftovers() {
        let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
            return;
        };
        let own = rustix::process::geteuid().as_raw();
        let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
        for entry in entries.flatten().filter(named) {
            let is_own = |found: &fs::Metadata| found.is_dir() && found.uid() == own;
            if !entry.metadata().is_ok_and(|found| is_own(&found)) {
                continue;
            }
            let path = entry.path();
            if let Ok(lock) = File::open(&path)
                && lock.try_lock().is_ok()
            {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// What regions lack of processes that wrote no last report.
fn unfinished((processes, oldest): (usize, Duration)) -> String {
    let which = match processes {
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    format!(
        "{which} wrote no last report (killed, ended by _exit(2) or execve(2) without perch_finish(), or still running): \
         the last {:.1} s may be missing",
        oldest.as_secs_f64()
    )
}

/// Events without `:every=N`: regions have no records, and count the same events.
fn without_thresholds(set: &str) -> String {
    let mut parts = set.split(":every=");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.extend(part.find(',').map(|at| &part[at..]));
    }
    text
}

/// A profile's name, or the path of its file for a program that may run in another directory.
fn profile(asked: &str) -> String {
    let is_path = asked.contains('/') || asked.ends_with(".toml");
    let path = std::fs::canonicalize(asked).ok().filter(|_| is_path);
    path.map_or_else(|| asked.to_owned(), |path| path.display().to_string())
}

/// The events of the reports, and those metrics that are known of some region.
fn columns(
    wanted: &Wanted,
    reports: &[Report],
    regions: &[Merged],
    collector: &Collector,
) -> Wanted {
    let mut columns = wanted.clone();
    columns.events.clear();
    let mut seen = BTreeSet::new();
    let events = reports.iter().flat_map(|report| &report.events);
    for (name, alias) in events.filter(|(_, alias)| seen.insert(Arc::clone(alias))) {
        columns.events.push(EventColumn {
            name: Arc::clone(name),
            alias: Arc::clone(alias),
        });
    }
    let known: Vec<_> = regions
        .iter()
        .map(|region| collector.metrics(&region.amounts, &Readings::default(), region.wall))
        .collect();
    columns.metrics.retain(|metric| {
        known
            .iter()
            .any(|known| known.values.get(&metric.name).is_some())
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_count_the_same_events_without_records() {
        for (set, wanted) in [
            ("instructions:every=500M,cycles", "instructions,cycles"),
            ("a:u:every=5", "a:u"),
            ("cpu/event=1,umask=2/:every=1k,b", "cpu/event=1,umask=2/,b"),
            ("cycles", "cycles"),
            ("", ""),
        ] {
            assert_eq!(without_thresholds(set), wanted);
        }
    }
}
