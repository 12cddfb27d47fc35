//! Journals of what belongs to no target: interrupts, and settings of the machine.

use crate::{
    journal::{Header, Journal, Record, file::JournalFile, state_dir::StateDir},
    restore::RestoreCounts,
};
use perch_core::{PuSet, Remark};
use std::io;

/// One such journal, made before its first record. It has a number that no target gets.
pub(super) struct Apart {
    target: u32,
    pub file: Option<JournalFile>,
}

impl Apart {
    pub fn irqs() -> Self {
        Self {
            target: u32::MAX,
            file: None,
        }
    }

    pub fn settings() -> Self {
        Self {
            target: u32::MAX - 1,
            file: None,
        }
    }

    /// Writes what is about to be changed.
    ///
    /// # Errors
    /// A journal that cannot be made or written.
    pub fn log_intent(
        &mut self,
        dir: &StateDir,
        header: &Header,
        records: &[Record],
    ) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let header = Header {
                    target: self.target,
                    // No thread has this journal's default mask.
                    default: PuSet::new(),
                    ..header.clone()
                };
                self.file.insert(JournalFile::create(dir, header)?)
            }
        };
        file.log_intent(records)
    }

    /// Writes what has been done, if there is a journal.
    pub fn log_outcome(&mut self, records: &[Record], remarks: &mut Vec<Remark>) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.log_outcome(records)
        {
            let text = format!("{}: {error}", file.path().display());
            remarks.push(Remark::error("journal", text));
        }
    }

    /// Restores what the journal records, and removes it. With something left to restore it stays, for `perch restore`.
    pub fn give_back<Of>(
        &mut self,
        restore: impl FnOnce(&Journal) -> RestoreCounts<Of>,
    ) -> RestoreCounts<Of>
    where
        RestoreCounts<Of>: Default,
    {
        let Some(file) = self.file.take() else {
            return RestoreCounts::default();
        };
        let mut counts = restore(file.journal());
        if !counts.failed.is_empty() {
            self.file = Some(file);
            return counts;
        }
        let path = file.path().display().to_string();
        if let Err(error) = file.remove() {
            counts.fail_all(format!("{path}: {error}"));
        }
        counts
    }
}
