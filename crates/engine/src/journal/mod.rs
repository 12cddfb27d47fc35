//! The journal: what perch has changed, on disk before it is changed, so that it can be undone after any death.
//!
//! One file a session, JSON lines. The first line is the [`Header`]; each later one a [`Record`]. Reading it gives a
//! [`Journal`], the state that the records add up to; [`file::JournalFile`] writes it, [`state_dir`] says where, and
//! [`crate::restore`] undoes it.

pub mod file;
pub mod state_dir;

use perch_core::{Outcome, ProcessId, PuSet, ThreadId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The format's version.
pub const VERSION: u32 = 1;

/// Whose journal it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub journal: u32,
    /// The session's mark: its name, and the value that its program finds in its environment.
    pub session: String,
    /// The kernel's boot (`/proc/sys/kernel/random/boot_id`); masks do not survive it.
    pub boot: String,
    /// The perch that writes it.
    pub perch: ProcessId,
    /// The mask of threads that nobody placed.
    pub default: PuSet,
}

/// What can be changed of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Its affinity mask.
    Affinity,
}

/// A thread's mask is about to be changed, or was found to be perch's doing: inherited, or what the kernel has made of
/// one that perch set when PUs went away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// Who.
    pub thread: ThreadId,
    /// What.
    pub knob: Knob,
    /// The mask that it goes back to.
    pub before: PuSet,
    /// The mask that it has; and the one that was asked for, if the kernel has made that of it.
    pub from: Vec<PuSet>,
    /// The mask that it gets.
    pub set: PuSet,
    /// When, in clock ticks after boot, as threads' starts are; the largest number where nothing is set now.
    pub at: u64,
}

/// A mask that the session has set on some thread: whoever is born later with it may have inherited it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskRecord {
    /// The mask.
    pub set: PuSet,
    /// The mask that such a thread had before.
    pub before: PuSet,
    /// When it was first set, in clock ticks after boot.
    pub at: u64,
}

/// An interrupt's mask is about to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqRecord {
    /// Its number.
    pub irq: u32,
    /// Its devices: the number alone may be another's later.
    pub device: String,
    /// The mask that it goes back to.
    pub before: PuSet,
    /// The mask that it has now.
    pub from: PuSet,
    /// The mask that it gets.
    pub set: PuSet,
}

/// One line after the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A change that is about to be made.
    Set(SetRecord),
    /// What became of it.
    Done {
        /// Who.
        thread: ThreadId,
        /// What.
        outcome: Outcome,
    },
    /// A thread that somebody else has placed, or that has its mask back: not to be touched.
    Free {
        /// Who.
        thread: ThreadId,
    },
    /// A process of the session.
    Process(ProcessId),
    /// A mask that was set on a thread that has ended since (written when the file is made shorter).
    Mask(MaskRecord),
    /// An interrupt's mask is about to be changed.
    Irq(IrqRecord),
    /// What became of it.
    IrqDone {
        /// The interrupt.
        irq: u32,
        /// What.
        outcome: Outcome,
    },
    /// The default mask has changed.
    Default {
        /// The new one.
        mask: PuSet,
    },
}

/// What is to be done with a thread on restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Its mask is perch's doing.
    Held(Held),
    /// Leave it alone.
    Free,
}

/// A mask that is perch's doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The mask that it goes back to.
    pub before: PuSet,
    /// Other masks that it may have from perch: until a change is known to be done, those of before it; and what the
    /// kernel has made of the mask that was asked for.
    pub from: Vec<PuSet>,
    /// The mask that it has, or was about to get.
    pub set: PuSet,
}

/// A journal that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The first line is no header.
    #[error("line 1 is no journal header: {0}")]
    Header(String),
    /// Written by another perch.
    #[error(
        "journal format {0} is not known to this perch (it knows {VERSION}): use the perch that wrote it"
    )]
    Version(u32),
}

/// What the records of a journal add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Whose it is; its default mask is kept up to date.
    pub header: Header,
    /// Lines that could not be read.
    pub damaged: usize,
    threads: BTreeMap<ThreadId, Kept>,
    masks: Vec<MaskRecord>,
    processes: BTreeSet<ProcessId>,
    irqs: BTreeMap<u32, IrqRecord>,
}

impl Journal {
    /// A journal in which nothing stands yet.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            damaged: 0,
            threads: BTreeMap::new(),
            masks: Vec::new(),
            processes: BTreeSet::new(),
            irqs: BTreeMap::new(),
        }
    }

    /// Reads a journal. A line that is cut short or makes no sense is counted and passed over: the changes that the
    /// other lines tell of must be undone all the same.
    ///
    /// # Errors
    /// A first line that is no header, a version that is not known.
    pub fn parse(bytes: &[u8]) -> Result<Self, JournalError> {
        #[derive(Deserialize)]
        struct Version {
            journal: u32,
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let error = |error: serde_json::Error| JournalError::Header(error.to_string());
        let version: Version = serde_json::from_slice(first).map_err(error)?;
        if version.journal != VERSION {
            return Err(JournalError::Version(version.journal));
        }
        let mut journal = Self::new(serde_json::from_slice(first).map_err(error)?);
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Record>(line) {
                Ok(record) => journal.add(&record),
                Err(_) => journal.damaged += 1,
            }
        }
        Ok(journal)
    }

    /// Takes in one record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Set(set) => self.add_set(set),
            Record::Done { thread, outcome } => self.add_outcome(*thread, *outcome),
            Record::Free { thread } => {
                self.threads.insert(*thread, Kept::Free);
            }
            Record::Process(process) => {
                self.processes.insert(*process);
            }
            Record::Mask(mask) => self.add_mask(mask.clone()),
            Record::Irq(irq) => {
                self.irqs.insert(irq.irq, irq.clone());
            }
            Record::IrqDone { irq, outcome } => self.add_irq_outcome(*irq, *outcome),
            Record::Default { mask } => {
                for kept in self.threads.values_mut() {
                    if let Kept::Held(held) = kept
                        && held.before == self.header.default
                    {
                        held.before = mask.clone();
                    }
                }
                self.header.default = mask.clone();
            }
        }
    }

    fn add_set(&mut self, record: &SetRecord) {
        if record.set != record.before && record.at != u64::MAX {
            self.add_mask(MaskRecord {
                set: record.set.clone(),
                before: record.before.clone(),
                at: record.at,
            });
        }
        let held = Held {
            before: record.before.clone(),
            from: record.from.clone(),
            set: record.set.clone(),
        };
        self.threads.insert(record.thread, Kept::Held(held));
    }

    fn add_mask(&mut self, mask: MaskRecord) {
        let known = self
            .masks
            .iter_mut()
            .find(|known| known.set == mask.set && known.before == mask.before);
        match known {
            Some(known) => known.at = known.at.min(mask.at),
            None => self.masks.push(mask),
        }
    }

    fn add_outcome(&mut self, thread: ThreadId, outcome: Outcome) {
        let Some(Kept::Held(held)) = self.threads.get_mut(&thread) else {
            return;
        };
        match outcome {
            Outcome::Applied => held.from.clear(),
            // Whether the kernel or somebody else has changed a mask is seen when it is read again.
            Outcome::NotApplied
            | Outcome::NotPermitted
            | Outcome::NoUsablePu
            | Outcome::ChangedByOthers => {
                if let Some(asked) = held.from.pop() {
                    held.set = asked;
                }
            }
            Outcome::Gone => {
                self.threads.remove(&thread);
                return;
            }
        }
        if held.set == held.before {
            self.threads.insert(thread, Kept::Free);
        }
    }

    fn add_irq_outcome(&mut self, irq: u32, outcome: Outcome) {
        let Some(record) = self.irqs.get_mut(&irq) else {
            return;
        };
        match outcome {
            Outcome::Applied => record.from = record.set.clone(),
            Outcome::NotApplied | Outcome::NotPermitted | Outcome::NoUsablePu => {
                record.set = record.from.clone();
            }
            // Another device's, or somebody else's doing: not to be touched.
            Outcome::Gone | Outcome::ChangedByOthers => {
                self.irqs.remove(&irq);
                return;
            }
        }
        if record.set == record.before {
            self.irqs.remove(&irq);
        }
    }

    /// The interrupts whose masks are perch's doing, or may be.
    pub fn irqs(&self) -> impl Iterator<Item = &IrqRecord> {
        self.irqs.values()
    }

    /// What is known of an interrupt whose mask is perch's doing.
    pub fn irq(&self, irq: u32) -> Option<&IrqRecord> {
        self.irqs.get(&irq)
    }

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
    }

    /// Forgets a process that has ended.
    pub fn forget_process(&mut self, process: ProcessId) {
        self.processes.remove(&process);
    }

    /// The threads that it knows.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &Kept)> {
        self.threads.iter().map(|(thread, kept)| (*thread, kept))
    }

    /// What it knows of a thread.
    pub fn thread(&self, thread: ThreadId) -> Option<&Kept> {
        self.threads.get(&thread)
    }

    /// The masks that the session has set.
    pub fn masks(&self) -> &[MaskRecord] {
        &self.masks
    }

    /// The processes of the session.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.processes.iter().copied()
    }

    /// The shortest records that add up to this state.
    pub fn records(&self) -> Vec<Record> {
        let masks = self.masks.iter().cloned().map(Record::Mask);
        let processes = self.processes.iter().copied().map(Record::Process);
        let threads = self.threads.iter().map(|(thread, kept)| match kept {
            Kept::Free => Record::Free { thread: *thread },
            Kept::Held(held) => Record::Set(SetRecord {
                thread: *thread,
                knob: Knob::Affinity,
                before: held.before.clone(),
                from: held.from.clone(),
                set: held.set.clone(),
                at: u64::MAX,
            }),
        });
        let irqs = self.irqs.values().cloned().map(Record::Irq);
        masks.chain(processes).chain(threads).chain(irqs).collect()
    }
}
