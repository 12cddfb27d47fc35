//! Truths counted before, kept in a file: counting takes minutes a program, and its result does not depend on perch's
//! estimator.
//!
//! A kept truth counts only for the same program (its entry in the list and the bytes of its executable), counted and
//! decoded by the same code. Libraries and input data are not looked at: remove the file when these change.

use super::TrueShares;
use crate::catalogue::{Program, find_executable};
use crate::estimate::CPU_TIME;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io::ErrorKind};

/// All code that a truth depends on.
const COUNTING: [&str; 7] = [
    include_str!("mod.rs"),
    include_str!("callgrind.rs"),
    include_str!("stepper.rs"),
    include_str!("../../../sampling/src/class.rs"),
    include_str!("../../../sampling/src/x86/mod.rs"),
    include_str!("../../../sampling/src/x86/groups.rs"),
    include_str!("../../../sampling/src/aarch64/mod.rs"),
];

/// Truths by program.
#[derive(Debug, Default)]
pub struct Kept {
    file: Option<PathBuf>,
    truths: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    fingerprint: u64,
    truth: TrueShares,
}

impl Kept {
    /// Those of `file`, which need not exist yet; none and nowhere to keep them without one.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else.
    pub fn read(file: Option<&Path>) -> Result<Self> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        let truths = match fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{} holds no truths; remove it", file.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Ok(Self {
            file: Some(file.to_path_buf()),
            truths,
        })
    }

    /// The truth kept for a program, if it still counts.
    pub fn get(&self, program: &Program, workspace: &Workspace) -> Option<TrueShares> {
        let entry = self.truths.get(&program.name)?;
        (entry.fingerprint == fingerprint(program, workspace)).then(|| entry.truth.clone())
    }

    /// Keeps a truth, at once, so that an experiment that is cut off need not count it again.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn put(
        &mut self,
        program: &Program,
        workspace: &Workspace,
        truth: &TrueShares,
    ) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let entry = Entry {
            fingerprint: fingerprint(program, workspace),
            truth: truth.clone(),
        };
        self.truths.insert(program.name.clone(), entry);
        fs::write(file, serde_json::to_string_pretty(&self.truths)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn fingerprint(program: &Program, workspace: &Workspace) -> u64 {
    let mut hasher = DefaultHasher::new();
    COUNTING.hash(&mut hasher);
    (&program.run, &program.truth_run, &program.env).hash(&mut hasher);
    (program.truth.name(), program.start_up(), CPU_TIME).hash(&mut hasher);
    let words = workspace.expand(&program.run, &workspace.folder("data"));
    let executable = find_executable(&words[0]).and_then(|path| fs::read(path).ok());
    executable.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::score::tests::row;

    #[test]
    fn a_truth_counts_for_the_same_program_only() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/programs.toml");
        let mut program = Catalogue::read(Path::new(list)).unwrap().programs.remove(0);
        program.run = vec!["sh".into()];
        let workspace = Workspace::create().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("truths");
        let truth = row("", 23.0, 0.0, 0.0).truth.unwrap();
        let mut kept = Kept::read(Some(&file)).unwrap();
        assert!(kept.get(&program, &workspace).is_none());
        kept.put(&program, &workspace, &truth).unwrap();
        let kept = Kept::read(Some(&file)).unwrap();
        let again = kept.get(&program, &workspace).unwrap();
        assert_eq!(again.fp_percent, 23.0);
        program.run.push("-c".into());
        assert!(kept.get(&program, &workspace).is_none());
        fs::write(&file, "[").unwrap();
        let error = Kept::read(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("remove it"), "{error}");
    }
}
