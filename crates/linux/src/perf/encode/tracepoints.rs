//! The kernel's tracepoints as events: `sched:sched_switch` (`/sys/kernel/tracing/events`).

use super::Code;
use perf_event_open_sys::bindings::PERF_TYPE_TRACEPOINT;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The folder of tracepoints.
pub struct Tracepoints {
    events: PathBuf,
}

impl Tracepoints {
    /// Those below a `/sys`, captured or live.
    pub(super) fn new(sysfs: &Path) -> Self {
        Self {
            events: sysfs.join("kernel/tracing/events"),
        }
    }

    /// The code of `SUBSYSTEM:EVENT`; `None` if it is not the name of a tracepoint.
    ///
    /// # Errors
    /// A tracepoint that this user may not read.
    pub(super) fn code(&self, name: &str) -> Result<Option<Code>, String> {
        let Some((subsystem, event)) = name.split_once(':').filter(|(a, b)| plain(a) && plain(b))
        else {
            return Ok(None);
        };
        let path = self.events.join(subsystem).join(event).join("id");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(
                    "only root can read /sys/kernel/tracing: count tracepoints as root".into(),
                );
            }
            Err(_) => return Ok(None),
        };
        let id = text
            .trim()
            .parse()
            .map_err(|_| format!("{} is no number", path.display()))?;
        let config = [id, 0, 0, 0];
        let kind = PERF_TYPE_TRACEPOINT;
        Ok(Some(Code { kind, config }))
    }

    /// Whether a name that nobody knows may be that of a tracepoint, of which none can be looked up: tracefs is not mounted.
    pub(super) fn may_lack(&self, name: &str) -> bool {
        let is_of_kernel = |part: &str| plain(part) && !part.contains(|c: char| c.is_uppercase());
        let parts = name.split_once(':');
        parts.is_some_and(|(a, b)| is_of_kernel(a) && is_of_kernel(b)) && !self.events.is_dir()
    }

    /// All of them, in alphabetical order; none where tracefs is not mounted or not readable.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for subsystem in folders(&self.events) {
            let events = folders(&self.events.join(&subsystem));
            names.extend(events.map(|event| format!("{subsystem}:{event}")));
        }
        names.sort();
        names
    }
}

fn folders(path: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok())
}

fn plain(name: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.chars().all(sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes() {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = sysfs.path().join("kernel/tracing/events/sched");
        for (event, id) in [("sched_switch", "316\n"), ("sched_wakeup", "x")] {
            fs::create_dir_all(folder.join(event)).unwrap();
            fs::write(folder.join(event).join("id"), id).unwrap();
        }
        fs::write(folder.join("enable"), "0").unwrap();
        let tracepoints = Tracepoints::new(sysfs.path());
        let code = tracepoints.code("sched:sched_switch").unwrap().unwrap();
        assert_eq!((code.kind, code.config[0]), (PERF_TYPE_TRACEPOINT, 316));
        assert!(tracepoints.code("sched:sched_wakeup").is_err());
        for other in ["sched:gone", "INST_RETIRED:ANY", "sched:../x", "sched", ":"] {
            assert_eq!(tracepoints.code(other), Ok(None), "{other}");
        }
        assert_eq!(
            tracepoints.names(),
            ["sched:sched_switch", "sched:sched_wakeup"]
        );
        assert!(!tracepoints.may_lack("sched:gone"));
        let unmounted = Tracepoints::new(&sysfs.path().join("elsewhere"));
        assert!(unmounted.may_lack("sched:sched_switch"));
        for other in ["INST_RETIRED:ANY", "zen3::CYCLES", "cycles", "cycles:"] {
            assert!(!unmounted.may_lack(other), "{other}");
        }
    }
}
