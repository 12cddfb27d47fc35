//! Where the experiment ran: processor, kernel, versions. No date, so that equal results are equal files.

use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// The machine and the tools.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// PUs.
    pub pus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// perch, the C compiler, valgrind.
    pub versions: Vec<String>,
    /// Whether perch also ran as nobody.
    pub as_root: bool,
}

impl Machine {
    /// Looks.
    pub fn look(perch: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str, separator: char| {
            text.lines()
                .filter_map(|line| line.split_once(separator))
                .find(|(key, _)| key.trim() == name)
                .map_or_else(
                    || "unknown".to_string(),
                    |(_, value)| value.trim().trim_matches('"').to_string(),
                )
        };
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name", ':'),
            pus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '='),
            versions: [perch, Path::new("cc"), Path::new("valgrind")]
                .iter()
                .filter_map(|program| first_line(program))
                .collect(),
            as_root: nix::unistd::geteuid().is_root(),
        }
    }
}

/// The first line that a program says about its version.
fn first_line(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().next()?.to_string())
}
