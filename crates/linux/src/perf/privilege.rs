//! What this process may do with perf events, found by trying, and what to tell the user where it may not.
//!
//! The sysctl alone does not say it: distributions patch in levels above 2, containers filter the system call, and
//! a capability inside a user namespace does not count. See perf_event_open(2), "/proc interfaces", and
//! `Documentation/admin-guide/perf-security.rst` of the kernel.

use crate::capability;
use perch_core::MachineError;
use perf_event::{Builder, events::Software};
use std::{fs, io};

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// What perf events this process may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    /// `kernel.perf_event_paranoid`; `None` where the kernel has no perf events or /proc hides it.
    pub paranoid: Option<i32>,
    /// Events of all threads on one CPU.
    pub system_wide: bool,
    /// Events that also count in the kernel.
    pub kernel: bool,
}

impl Privilege {
    /// Tries what is allowed, with software events only.
    ///
    /// # Errors
    /// Not even events of one's own threads in user space: with the remedy.
    pub fn detect() -> Result<Self, MachineError> {
        let mut wide = Builder::new(Software::CPU_CLOCK);
        let first = super::limits::online_cpus().first().unwrap_or(0);
        let system_wide = wide
            .any_pid()
            .one_cpu(first as usize)
            .include_kernel()
            .build()
            .is_ok();
        // An event of a thread slows every context switch of the machine down by some 50 ns, until a second after it was
        // closed (`perf_sched_events`, kernel/events/core.c).
        let kernel = system_wide || {
            let mut own = Builder::new(Software::CPU_CLOCK);
            own.build()
                .map_err(|error| refusal("perf_event_open for one's own thread", error))?;
            own.include_kernel().build().is_ok()
        };
        Ok(Self {
            paranoid: paranoid(),
            system_wide,
            kernel,
        })
    }

    /// See [`paranoid_text`].
    pub fn paranoid_text(&self) -> String {
        paranoid_text(self.paranoid)
    }
}

/// The sysctl as it is written in remarks: `kernel.perf_event_paranoid=2`.
pub fn paranoid_text(level: Option<i32>) -> String {
    match level {
        Some(level) => format!("kernel.perf_event_paranoid={level}"),
        None => "kernel.perf_event_paranoid is not readable".to_owned(),
    }
}

/// The sysctl's value.
pub fn paranoid() -> Option<i32> {
    fs::read_to_string(PARANOID).ok()?.trim().parse().ok()
}

/// Whether a seccomp filter is in force for this process (proc(5), `Seccomp: 2`).
fn filtered() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .filter_map(|line| line.strip_prefix("Seccomp:"))
            .any(|mode| mode.trim() == "2")
    })
}

/// Puts a refused perf event into words: the sysctl, capability, filter or limit that is in the way.
pub fn refusal(what: &str, error: io::Error) -> MachineError {
    explain(what, error, paranoid(), filtered())
}

fn explain(what: &str, error: io::Error, level: Option<i32>, filtered: bool) -> MachineError {
    let denied = |remedy: String| MachineError::NotPermitted {
        what: what.to_owned(),
        remedy,
    };
    match error.raw_os_error() {
        Some(libc::ENOSYS) => denied(
            "the system call perf_event_open is missing or blocked: in a container allow it (docker, podman: \
             `--cap-add PERFMON`, or a seccomp profile with perf_event_open); otherwise the kernel needs \
             CONFIG_PERF_EVENTS"
                .to_owned(),
        ),
        Some(libc::EPERM | libc::EACCES) => denied(match level {
            None => "the kernel has no perf events (CONFIG_PERF_EVENTS), or /proc/sys is hidden: give the \
                     container /proc/sys and `--cap-add PERFMON`"
                .to_owned(),
            Some(level) if level > 2 => format!(
                "kernel.perf_event_paranoid={level} forbids it to ordinary users: `sysctl \
                 kernel.perf_event_paranoid=1` allows all users to watch their own threads; or {}",
                capability::advice("CAP_PERFMON")
            ),
            Some(level) if filtered => format!(
                "a seccomp filter is in force (kernel.perf_event_paranoid={level}): start the container with \
                 `--cap-add PERFMON` or with a seccomp profile that allows perf_event_open"
            ),
            Some(level) => format!(
                "kernel.perf_event_paranoid={level}: run as the owner of the threads and `sysctl \
                 kernel.perf_event_paranoid=1` (-1 for all CPUs, which lets every user watch all); in a container \
                 `--cap-add PERFMON`; or {}",
                capability::advice("CAP_PERFMON")
            ),
        }),
        Some(libc::EMFILE | libc::ENFILE) => denied(super::limits::NOFILE_REMEDY.to_owned()),
        _ => MachineError::Io {
            what: what.to_owned(),
            error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_skip::skip;

    fn words(code: i32, level: Option<i32>, filtered: bool) -> String {
        explain("x", io::Error::from_raw_os_error(code), level, filtered).to_string()
    }

    #[test]
    fn every_refusal_names_its_remedy() {
        assert!(words(libc::ENOSYS, Some(-1), true).contains("--cap-add PERFMON"));
        assert!(words(libc::EPERM, Some(-1), true).contains("seccomp"));
        assert!(
            words(libc::EACCES, Some(4), false).contains("sysctl kernel.perf_event_paranoid=1")
        );
        assert!(words(libc::EACCES, Some(2), false).contains("CAP_PERFMON"));
        for level in [2, 4] {
            assert!(words(libc::EACCES, Some(level), false).contains("must not have it"));
        }
        assert!(words(libc::EPERM, None, false).contains("CONFIG_PERF_EVENTS"));
        assert!(words(libc::EMFILE, Some(2), false).contains("ulimit -n"));
        assert!(words(libc::EINVAL, Some(2), false).starts_with("x: "));
    }

    #[test]
    fn detection_agrees_with_the_sysctl() {
        let Ok(privilege) = Privilege::detect() else {
            return skip!(Perf, "there is nothing to compare with");
        };
        if privilege.paranoid.is_some_and(|level| level <= -1) {
            assert!(privilege.system_wide && privilege.kernel);
        }
        assert!(privilege.kernel || !privilege.system_wide);
    }
}
