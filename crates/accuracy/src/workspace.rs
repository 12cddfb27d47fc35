//! The temporary folder in which the experiment's programs are built and run.

use crate::catalogue::{Build, Program, is_here, missing_executable};
use crate::data;
use crate::estimate::Rights;
use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// glibc picks its functions by the processor's features; valgrind hides some of them. Without these in
/// both runs, both take the same code.
#[cfg(target_arch = "x86_64")]
const SAME_DISPATCH: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-ERMS,-FSRM,-RTM",
);

/// User and group of the unprivileged runs.
pub const NOBODY: u32 = 65_534;

/// A folder that every user can read, removed when dropped.
#[derive(Debug)]
pub struct Workspace {
    root: TempDir,
}

impl Workspace {
    /// Creates it, with a copy of the scripts.
    ///
    /// # Errors
    /// A full or unwritable temporary folder.
    pub fn create() -> Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("perch-accuracy-")
            .tempdir()?;
        fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
        let workspace = Self { root };
        for folder in ["bin", "data", "src", "runs"] {
            fs::create_dir(workspace.root.path().join(folder))?;
        }
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        for entry in fs::read_dir(&scripts)? {
            let entry = entry?;
            fs::copy(
                entry.path(),
                workspace.folder("src").join(entry.file_name()),
            )?;
        }
        Ok(workspace)
    }

    /// Generates the programs' input.
    ///
    /// # Errors
    /// A full temporary folder, or no Python.
    pub fn generate_data(&self) -> Result<()> {
        data::write_all(&self.folder("data")).context("cannot write the input data")?;
        self.build(&Build {
            command: ["python3", "{src}/inputs.py", "{data}"]
                .map(String::from)
                .into(),
            needs: Vec::new(),
            arch: None,
        })
    }

    /// A fresh folder for one run with these rights: what it writes goes there, beside links to the input data.
    ///
    /// # Errors
    /// As for any folder.
    pub fn scratch(&self, rights: Rights) -> Result<TempDir> {
        let scratch = tempfile::tempdir_in(self.folder("runs"))?;
        for entry in fs::read_dir(self.folder("data"))? {
            let entry = entry?;
            std::os::unix::fs::symlink(entry.path(), scratch.path().join(entry.file_name()))?;
        }
        if rights == Rights::Nobody {
            std::os::unix::fs::chown(scratch.path(), Some(NOBODY), Some(NOBODY))?;
        }
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755))?;
        Ok(scratch)
    }

    /// Copies perch to where every user can run it; the path of the copy.
    ///
    /// # Errors
    /// As for any file.
    pub fn adopt(&self, perch: &Path) -> Result<PathBuf> {
        let copy = self.folder("bin").join("perch");
        fs::copy(perch, &copy).with_context(|| format!("cannot copy {}", perch.display()))?;
        Ok(copy)
    }

    /// One of its folders.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs a build step; one whose tools are missing is skipped, as are the programs that need them.
    ///
    /// # Errors
    /// A build that fails.
    pub fn build(&self, build: &Build) -> Result<()> {
        if !is_here(build.arch.as_deref()) || missing_executable(&build.needs).is_some() {
            return Ok(());
        }
        let command = self.expand(&build.command, &self.folder("data"));
        let output = Command::new(&command[0])
            .args(&command[1..])
            .output()
            .with_context(|| {
                format!(
                    "cannot run {} (apt-get install gcc make libc6-dev)",
                    command[0]
                )
            })?;
        if !output.status.success() {
            bail!(
                "{} failed:\n{}",
                command.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// A command with its placeholders filled in; the input data is in `data`.
    pub fn expand(&self, command: &[String], data: &Path) -> Vec<String> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let places = [
            ("{bin}", self.folder("bin")),
            ("{src}", self.folder("src")),
            ("{data}", data.to_path_buf()),
            ("{examples}", examples),
        ];
        command
            .iter()
            .map(|word| {
                places.iter().fold(word.clone(), |word, (name, folder)| {
                    word.replace(name, &folder.to_string_lossy())
                })
            })
            .collect()
    }

    /// `words` as a command in a scratch folder, with the program's environment.
    pub fn command(&self, program: &Program, words: &[String], scratch: &Path) -> Command {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .envs(&program.env)
            .current_dir(scratch);
        #[cfg(target_arch = "x86_64")]
        if program.truth == crate::catalogue::TruthMethod::Callgrind {
            command.env(SAME_DISPATCH.0, SAME_DISPATCH.1);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_folders_that_others_can_read() {
        let workspace = Workspace::create().unwrap();
        let scratch = workspace.scratch(Rights::Own).unwrap();
        let words = workspace.expand(
            &["{src}/integers.py".into(), "a{data}".into()],
            scratch.path(),
        );
        assert!(Path::new(&words[0]).is_file());
        assert_eq!(words[1], format!("a{}", scratch.path().display()));
        let mode = fs::metadata(workspace.folder("data"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o005, 0o005);
    }
}
