//! The programs of the experiment, as `programs.toml` lists them.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How a program's true instruction mix is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TruthMethod {
    /// Every instruction, by valgrind's callgrind.
    Callgrind,
    /// Single steps in random bursts of a native run.
    Stepper,
}

impl TruthMethod {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            TruthMethod::Callgrind => "callgrind",
            TruthMethod::Stepper => "stepper",
        }
    }
}

/// Something to build before the programs can run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// The command, with placeholders.
    pub command: Vec<String>,
    /// Skipped, with the programs that need them, where one of these executables is missing.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Only on this architecture.
    pub arch: Option<String>,
}

/// One program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name in the table.
    pub name: String,
    /// What sort of program it is.
    pub kind: String,
    /// The command that perch watches, with placeholders.
    pub run: Vec<String>,
    /// A shorter run of the same code that comes to its end under callgrind; `run`, cut off, otherwise.
    pub truth_run: Option<Vec<String>>,
    /// How the truth is counted.
    pub truth: TruthMethod,
    /// Seconds on CPU until the program does what it is here for; neither counted nor judged.
    #[serde(default)]
    start_up: f64,
    /// Whether it does the same in every second, so that its share may not change.
    #[serde(default)]
    pub stationary: bool,
    /// Executables to look for.
    #[serde(default)]
    pub needs: Vec<String>,
    /// A Python module to look for.
    pub python: Option<String>,
    /// The apt package to install where something is missing.
    pub package: Option<String>,
    /// Environment variables in every run.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Only on this architecture.
    pub arch: Option<String>,
}

/// All of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// In this order.
    #[serde(rename = "build", default)]
    pub builds: Vec<Build>,
    /// In the order of the table.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
}

impl Catalogue {
    /// Reads `programs.toml`.
    ///
    /// # Errors
    /// An unreadable or malformed file (with its line), or two programs of one name.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let catalogue: Self =
            toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        let mut names: Vec<_> = catalogue.programs.iter().map(|p| &p.name).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        ensure!(
            names.len() == all,
            "two programs of one name in {}",
            path.display()
        );
        Ok(catalogue)
    }
}

/// Whether an architecture's entry is for the machine that this runs on.
pub fn is_here(arch: Option<&str>) -> bool {
    arch.is_none_or(|arch| arch == std::env::consts::ARCH)
}

/// The first of `needs` that is no executable on the path.
pub fn missing_executable(needs: &[String]) -> Option<&str> {
    needs
        .iter()
        .map(String::as_str)
        .find(|name| find_executable(name).is_none())
}

/// Where an executable is.
pub fn find_executable(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

impl Program {
    /// Time on CPU until the program does what it is here for.
    pub fn start_up(&self) -> Duration {
        Duration::from_secs_f64(self.start_up)
    }

    /// What is missing here to run this program, as a sentence; `None` if nothing.
    pub fn missing(&self) -> Option<String> {
        if !is_here(self.arch.as_deref()) {
            return Some(format!(
                "only on {}",
                self.arch.as_deref().unwrap_or_default()
            ));
        }
        let hint = |what: &str| match &self.package {
            Some(package) => format!("{what} is missing: apt-get install {package}"),
            None => format!("{what} is missing"),
        };
        if let Some(executable) = missing_executable(&self.needs) {
            return Some(hint(executable));
        }
        let module = self.python.as_deref()?;
        let imported = Command::new(&self.run[0])
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        let found = imported.is_ok_and(|status| status.success());
        (!found).then(|| hint(&format!("Python's {module}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> Catalogue {
        listed("programs.toml")
    }

    fn listed(list: &str) -> Catalogue {
        Catalogue::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(list)).unwrap()
    }

    #[test]
    fn every_package_can_be_installed_from_the_list() {
        let list = include_str!("../apt-packages.txt");
        for program in [shipped(), listed("held-out.toml")]
            .map(|c| c.programs)
            .into_iter()
            .flatten()
        {
            if let Some(package) = program.package {
                assert!(list.lines().any(|line| line == package), "{package}");
            }
        }
    }

    #[test]
    fn no_program_is_in_both_lists() {
        let held_out = listed("held-out.toml").programs;
        for program in shipped().programs {
            assert!(
                held_out.iter().all(|other| other.run != program.run),
                "{}",
                program.name
            );
        }
    }

    #[test]
    fn missing_programs_name_their_package() {
        let mut program = shipped().programs.remove(0);
        program.needs = vec!["sh".into(), "no-such-program".into()];
        program.package = Some("some-package".into());
        assert_eq!(
            program.missing().unwrap(),
            "no-such-program is missing: apt-get install some-package"
        );
        program.needs.pop();
        assert_eq!(program.missing(), None);
        program.arch = Some("pdp11".into());
        assert_eq!(program.missing().unwrap(), "only on pdp11");
    }
}
