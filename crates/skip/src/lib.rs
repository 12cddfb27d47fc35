//! For tests whose environment does not allow what they try.
//!
//! Such a test ends with [`skip!`], which prints one line, `skipped: TEST: NEED: why`. libtest hides what a passing
//! test prints, so the line also goes to the file that `PERCH_SKIP_LOG` names; `make test` shows that file at its end.
//!
//! Where `PERCH_NO_SKIPS` is set, a test may only be skipped for the needs listed there, as in `pmu pus`; for any other
//! need it fails. So a machine that can run a test does run it.
//!
//! ```no_run
//! fn counts_cycles() {
//!     let Ok(events) = std::fs::read_dir("/sys/bus/event_source/devices/cpu") else {
//!         return perch_skip::skip!(Pmu, "this machine shows no PMU");
//!     };
//!     // …
//! }
//! ```

use std::{
    fmt::{self, Display},
    fs::File,
    io::{self, Write},
    path::Path,
};

/// Environment variable that names the file to which skips are appended.
pub const LOG: &str = "PERCH_SKIP_LOG";

/// Environment variable that forbids skips, other than for the needs that it lists.
pub const FORBID: &str = "PERCH_NO_SKIPS";

/// What a machine lacks for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `perf_event_open`, at least for one's own threads.
    Perf,
    /// Perf events of whole PUs.
    SystemWidePerf,
    /// Hardware counters.
    Pmu,
    /// More PUs than there are.
    Pus,
    /// A control group that the test may create and enter.
    Cgroup,
    /// Kernel threads in `/proc`; containers hide them.
    KernelThreads,
    /// A program that is not installed.
    Tool,
    /// Virtual machines, which `PERCH_SKIP_VM=1` asked to leave out.
    Vm,
    /// Root's rights.
    Root,
}

impl Need {
    /// How it is written in the line and in [`FORBID`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::SystemWidePerf => "system-wide-perf",
            Self::Pmu => "pmu",
            Self::Pus => "pus",
            Self::Cgroup => "cgroup",
            Self::KernelThreads => "kernel-threads",
            Self::Tool => "tool",
            Self::Vm => "vm",
            Self::Root => "root",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Says that this test is skipped for a [`Need`], and why, in the words of `format!`.
///
/// It does not return from the test: write `return skip!(Perf, "…")`.
///
/// # Panics
/// When `PERCH_NO_SKIPS` does not allow it.
#[macro_export]
macro_rules! skip {
    ($need:ident, $($why:tt)+) => {{
        fn here() {}
        $crate::skipped($crate::function(&here), $crate::Need::$need, &format!($($why)+))
    }};
}

/// The function in which [`skip!`] defined its marker.
#[doc(hidden)]
pub fn function<T>(_marker: &T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.trim_end_matches("::here")
        .trim_end_matches("::{{closure}}")
}

/// What [`skip!`] does.
#[doc(hidden)]
pub fn skipped(test: &str, need: Need, why: &str) {
    let line = line(test, need, why);
    eprint!("{line}");
    if let Some(file) = std::env::var_os(LOG)
        && let Err(error) = append(Path::new(&file), &line)
    {
        panic!(
            "cannot append to {} ({LOG}): {error}",
            Path::new(&file).display()
        );
    }
    if let Ok(allowed) = std::env::var(FORBID) {
        assert!(
            is_allowed(&allowed, need),
            "{line}{FORBID} does not allow to skip a test for '{need}' on this machine"
        );
    }
}

/// One line, whatever an error message holds.
fn line(test: &str, need: Need, why: &str) -> String {
    format!("skipped: {test}: {need}: {}\n", why.replace('\n', "; "))
}

/// In one write, since tests run in parallel.
fn append(file: &Path, line: &str) -> io::Result<()> {
    File::options()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(line.as_bytes())
}

fn is_allowed(allowed: &str, need: Need) -> bool {
    allowed
        .split([' ', ','])
        .any(|allowed| allowed == need.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_names_the_test_also_in_a_closure() {
        fn here() {}
        let name = function(&here);
        assert!(
            name.ends_with("the_marker_names_the_test_also_in_a_closure"),
            "{name}"
        );
        let inner = || {
            fn here() {}
            function(&here)
        };
        assert_eq!(inner(), name);
    }

    #[test]
    fn only_needs_in_the_list_are_allowed() {
        for list in ["pmu pus", "pus,pmu", "pmu"] {
            assert!(is_allowed(list, Need::Pmu), "{list}");
        }
        for list in ["", "pus", "pmus", "system-wide-pmu"] {
            assert!(!is_allowed(list, Need::Pmu), "{list}");
        }
    }

    #[test]
    fn lines_are_gathered_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        for why in ["first", "second\nand more"] {
            append(&file, &line("a::test", Need::Perf, why)).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(file).unwrap(),
            "skipped: a::test: perf: first\nskipped: a::test: perf: second; and more\n"
        );
    }

    /// Not a test by itself: skips, in a process of its own.
    #[test]
    #[ignore = "the process of the next test"]
    fn skips() {
        skip!(Perf, "a try")
    }

    #[test]
    fn a_skip_fails_where_it_is_forbidden() {
        let run = |allowed: Option<&str>| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "tests::skips"]);
            command.env_remove(LOG).env_remove(FORBID);
            if let Some(allowed) = allowed {
                command.env(FORBID, allowed);
            }
            command.output().unwrap().status.success()
        };
        assert!(run(None) && run(Some("pmu perf")));
        assert!(!run(Some("")) && !run(Some("pmu")));
    }
}
