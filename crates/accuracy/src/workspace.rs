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

/// A folder that every user can read, gone when dropped.
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
        for folder in ["bin", "data", "src", "truth", "own", "nobody"] {
            fs::create_dir(workspace.root.path().join(folder))?;
        }
        if nix::unistd::geteuid().is_root() {
            let nobody = workspace.home(Rights::Nobody);
            std::os::unix::fs::chown(nobody, Some(NOBODY), Some(NOBODY))?;
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
    /// A full temporary folder.
    pub fn generate_data(&self) -> Result<()> {
        data::write_all(&self.folder("data")).context("cannot write the input data")
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

    /// A home for perch, which it can write to with these rights.
    pub fn home(&self, rights: Rights) -> PathBuf {
        self.folder(match rights {
            Rights::Own => "own",
            Rights::Nobody => "nobody",
        })
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
        let command = self.expand(&build.command);
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

    /// A command with its placeholders filled in.
    pub fn expand(&self, command: &[String]) -> Vec<String> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let places = [
            ("{bin}", self.folder("bin")),
            ("{src}", self.folder("src")),
            ("{data}", self.folder("data")),
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

    /// `words` as a command with the program's environment.
    pub fn command(&self, program: &Program, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(&program.env);
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
        let words = workspace.expand(&["{src}/integers.py".into(), "a{data}".into()]);
        assert!(Path::new(&words[0]).is_file());
        assert!(words[1].starts_with("a/"));
        let mode = fs::metadata(workspace.folder("data"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o005, 0o005);
    }
}
