//! The journal: what perch has changed, on disk before it is changed, so that it can be undone after any death.
//!
//! One file for each target of a session: a [`Header`] and [`Record`]s. Reading it gives a [`Journal`], the state that the
//! records add up to; [`file::JournalFile`] writes it, [`state_dir`] says where, and [`crate::restore`] undoes it.

mod codec;
pub mod file;
mod nices;
mod records;
mod settings;
pub mod state_dir;

pub use nices::NiceKept;
pub use records::{
    Header, IrqRecord, Knob, MaskRecord, Namespaces, NiceRecord, NiceSetRecord, ProcessRecord,
    Record, SetRecord, VERSION,
};
pub use settings::SettingRecord;

use perch_core::{Outcome, ProcessId, PuSet, Setting, ThreadId, irq::devices_in_common};
use std::collections::BTreeMap;

/// The state of a thread's mask, which determines what restore does with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Its mask is perch's doing.
    Held(Held),
    /// Another process has placed it. Leave it alone, and so every thread that inherited its mask.
    Placed {
        /// PID of its process.
        process: i32,
        /// The mask that the other process set.
        mask: PuSet,
    },
    /// Its mask is restored, or was never perch's: leave it alone.
    Free {
        /// Its process; 0 where that is not known.
        process: i32,
    },
}

/// A mask that is perch's doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its process; 0 where that is not known.
    pub process: i32,
    /// The mask that it goes back to.
    pub before: PuSet,
    /// Whether that is all that its CPU set allows.
    pub whole: bool,
    /// Other masks that perch may have asked for: until a change is known to be done, those of before it.
    pub from: Vec<PuSet>,
    /// The mask that it has, or was about to get.
    pub set: PuSet,
    /// Whether it was released by this change: the CPU set may have shrunk to a mask that was asked for, so that does
    /// not tell.
    pub let_go: bool,
    /// A mask that it had since, probably set by another process.
    pub doubt: Option<PuSet>,
}

/// A journal that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// No header can be read.
    #[error("no header can be read: {0}")]
    Header(String),
    /// Written by another perch.
    #[error(
        "journal format {0} is not known to this perch (it knows 1 to {VERSION}): use the perch that wrote it"
    )]
    Version(u32),
}

impl Held {
    /// The masks that perch has asked for, or was about to.
    pub fn asked(&self) -> impl Iterator<Item = &PuSet> {
        let set = (!self.let_go).then_some(&self.set);
        self.from.iter().chain(set)
    }
}

/// The state that results from the records of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Session and target of the journal; its default mask is kept up to date.
    pub header: Header,
    /// Lines that could not be read.
    pub damaged: usize,
    threads: BTreeMap<ThreadId, Kept>,
    /// Since when which masks were set.
    masks: BTreeMap<(i32, PuSet, PuSet, bool), u64>,
    processes: BTreeMap<ProcessId, ProcessRecord>,
    irqs: BTreeMap<u32, IrqRecord>,
    settings: BTreeMap<Setting, SettingRecord>,
    nices: BTreeMap<ThreadId, NiceKept>,
    /// Since when which nice values were set, by process, value and the value before.
    nice_sets: BTreeMap<(i32, i32, i32), u64>,
    /// The thread for which a control group was made, by the group's directory.
    groups: BTreeMap<String, ThreadId>,
}

impl Journal {
    /// A journal in which nothing stands yet.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            damaged: 0,
            threads: BTreeMap::new(),
            masks: BTreeMap::new(),
            processes: BTreeMap::new(),
            irqs: BTreeMap::new(),
            settings: BTreeMap::new(),
            nices: BTreeMap::new(),
            nice_sets: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Reads a journal of any format that was ever written. Lines that are damaged or missing are counted and passed
    /// over: the changes that the other lines tell of must be undone all the same.
    ///
    /// # Errors
    /// No header, a version that is not known.
    pub fn parse(bytes: &[u8]) -> Result<Self, JournalError> {
        codec::parse(bytes, u32::MAX)
    }

    /// The same where no PU can be greater than `largest`: a record that names one is damaged. Such a number is short, and
    /// the mask that it stands for is long.
    ///
    /// # Errors
    /// As [`Journal::parse`].
    pub fn parse_for(bytes: &[u8], largest: u32) -> Result<Self, JournalError> {
        codec::parse(bytes, largest)
    }

    /// Threads that are told to follow the default mask go back to it.
    fn follow_default(&mut self, follows: impl Fn(ThreadId, &PuSet) -> bool) {
        for (thread, kept) in &mut self.threads {
            if let Kept::Held(held) = kept
                && follows(*thread, &held.before)
            {
                held.before.clone_from(&self.header.default);
            }
        }
    }

    /// Number of records that its state needs.
    pub(crate) fn len(&self) -> usize {
        2 + self.threads.len()
            + self.masks.len()
            + self.processes.len()
            + self.irqs.len()
            + self.settings.len()
            + self.nices.len()
            + self.nice_sets.len()
            + self.groups.len()
    }

    /// Takes in one record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Set(set) => self.add_set(set),
            Record::Done { thread, outcome } => self.add_outcome(*thread, *outcome),
            Record::Free { thread, process } => {
                self.threads
                    .insert(*thread, Kept::Free { process: *process });
            }
            Record::Seen { process, threads } => {
                let process = *process;
                let threads = threads.iter().map(|(tid, start)| ThreadId {
                    tid: *tid,
                    start: *start,
                });
                let free = threads.map(|thread| (thread, Kept::Free { process }));
                self.threads.extend(free);
            }
            Record::NiceSeen { process, threads } => {
                let (process, nice) = (*process, None);
                let threads = threads.iter().map(|(tid, start)| ThreadId {
                    tid: *tid,
                    start: *start,
                });
                let free = threads.map(|thread| (thread, NiceKept::Placed { process, nice }));
                self.nices.extend(free);
            }
            Record::Placed {
                thread,
                process,
                mask,
            } => {
                let (process, mask) = (*process, mask.clone());
                self.threads.insert(*thread, Kept::Placed { process, mask });
            }
            Record::Doubt { thread, mask } => {
                if let Some(Kept::Held(held)) = self.threads.get_mut(thread) {
                    held.doubt = Some(mask.clone());
                }
            }
            Record::Process(process) => {
                self.processes.insert(process.id, *process);
            }
            Record::Forgotten { process } => self.forget_process(*process),
            Record::Mask(mask) => self.add_mask(mask),
            Record::Irq(irq) => {
                self.add_irq(irq);
            }
            Record::Setting(setting) => self.add_setting(setting),
            Record::SettingDone {
                setting,
                outcome,
                found,
            } => self.add_setting_outcome(setting, *outcome, found.as_ref()),
            Record::Nice(nice) => self.add_nice(nice),
            Record::NiceDone { thread, outcome } => self.add_nice_outcome(*thread, *outcome),
            Record::NicePlaced {
                thread,
                process,
                nice,
            } => {
                let (process, nice) = (*process, *nice);
                self.nices
                    .insert(*thread, NiceKept::Placed { process, nice });
            }
            Record::NiceSet(set) => self.add_nice_set(set),
            Record::Group { thread, group } => {
                self.groups.insert(group.clone(), *thread);
            }
            Record::GroupRemoved { group } => {
                self.groups.remove(group);
            }
            Record::IrqDone { irq, outcome } => self.add_irq_outcome(*irq, *outcome),
            // A file of format 1 says who follows it.
            Record::Default { mask } => self.header.default = mask.clone(),
        }
    }

    fn add_set(&mut self, record: &SetRecord) {
        let whole = self.is_whole(&record.before, record.whole);
        let let_go = record.let_go.unwrap_or(record.set == record.before);
        if !let_go && record.at != u64::MAX {
            self.add_mask(&MaskRecord {
                process: record.process,
                set: record.set.clone(),
                before: record.before.clone(),
                whole: Some(whole),
                at: record.at,
            });
        }
        let mut from = record.from.clone();
        if self.header.journal == 1 {
            from.retain(|from| *from != record.before);
        }
        let held = Held {
            process: record.process,
            before: record.before.clone(),
            whole,
            from,
            set: record.set.clone(),
            let_go,
            doubt: None,
        };
        self.threads.insert(record.thread, Kept::Held(held));
    }

    fn is_whole(&self, before: &PuSet, told: Option<bool>) -> bool {
        told.unwrap_or(*before == self.header.default)
    }

    fn add_mask(&mut self, mask: &MaskRecord) {
        let whole = self.is_whole(&mask.before, mask.whole);
        let key = (mask.process, mask.set.clone(), mask.before.clone(), whole);
        let at = self.masks.entry(key).or_insert(mask.at);
        *at = mask.at.min(*at);
    }

    fn add_outcome(&mut self, thread: ThreadId, outcome: Outcome) {
        let Some(Kept::Held(held)) = self.threads.get_mut(&thread) else {
            return;
        };
        match outcome {
            Outcome::Applied => held.from.clear(),
            // The next read of the mask shows whether the kernel or another process has changed it.
            Outcome::NotApplied
            | Outcome::NotPermitted
            | Outcome::NoUsablePu
            | Outcome::Failed
            | Outcome::ChangedByOthers => {
                if let Some(asked) = held.from.pop() {
                    (held.set, held.let_go) = (asked, false);
                } else {
                    held.let_go = true;
                }
            }
            Outcome::Gone => {
                self.threads.remove(&thread);
                return;
            }
        }
        if held.let_go && held.from.is_empty() {
            let process = held.process;
            self.threads.insert(thread, Kept::Free { process });
        }
    }

    fn add_irq(&mut self, irq: &IrqRecord) {
        let mut irq = irq.clone();
        // The value before the first change is restored, unless another process has set one since.
        if let Some(first) = self.irqs.get(&irq.irq)
            && devices_in_common(&first.device, &irq.device)
            && (irq.from == first.set || irq.from == first.from)
        {
            irq.before.clone_from(&first.before);
        }
        self.irqs.insert(irq.irq, irq);
    }

    fn add_irq_outcome(&mut self, irq: u32, outcome: Outcome) {
        let Some(record) = self.irqs.get_mut(&irq) else {
            return;
        };
        match outcome {
            Outcome::Applied => record.from = record.set.clone(),
            Outcome::NotApplied | Outcome::NotPermitted | Outcome::Failed | Outcome::NoUsablePu => {
                record.set = record.from.clone();
            }
            // It belongs to another device now, or another process has changed it: leave it alone.
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
        self.nices.remove(&thread);
    }

    /// Forgets a process that has ended, and with it the masks that were set in it: what it has started is known by now.
    pub fn forget_process(&mut self, process: ProcessId) {
        self.processes.remove(&process);
        let pid = process.pid;
        let of_that_number = |start| ProcessId { pid, start };
        let mut left = self
            .processes
            .range(of_that_number(0)..=of_that_number(u64::MAX));
        if left.next().is_none() {
            let first = (pid, PuSet::new(), PuSet::new(), false);
            let masks = self.masks.range(first..).map(|(key, _)| key);
            let masks: Vec<_> = masks.take_while(|key| key.0 == pid).cloned().collect();
            for key in masks {
                self.masks.remove(&key);
            }
            self.nice_sets.retain(|(process, ..), _| *process != pid);
        }
    }

    /// The threads that it knows.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &Kept)> {
        self.threads.iter().map(|(thread, kept)| (*thread, kept))
    }

    /// The state of a thread's mask; `None` if it has no record.
    pub fn thread(&self, thread: ThreadId) -> Option<&Kept> {
        self.threads.get(&thread)
    }

    /// The masks that the session has set.
    pub fn masks(&self) -> impl Iterator<Item = MaskRecord> {
        self.masks
            .iter()
            .map(|((process, set, before, whole), at)| MaskRecord {
                process: *process,
                set: set.clone(),
                before: before.clone(),
                whole: Some(*whole),
                at: *at,
            })
    }

    /// Whether the session has set masks in a process.
    pub fn has_set_masks(&self, process: i32) -> bool {
        let first = (process, PuSet::new(), PuSet::new(), false);
        let next = self.masks.range(first..).next();
        next.is_some_and(|((of, ..), _)| *of == process)
    }

    /// Whether the session has set nice values in a process.
    pub fn has_set_nices(&self, process: i32) -> bool {
        let first = (process, i32::MIN, i32::MIN);
        let next = self.nice_sets.range(first..).next();
        next.is_some_and(|((of, ..), _)| *of == process)
    }

    /// The processes of the session.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.processes.keys().copied()
    }

    /// The record of a process; `None` if there is none.
    pub fn process(&self, process: ProcessId) -> Option<&ProcessRecord> {
        self.processes.get(&process)
    }

    /// The numbers of processes whose threads perch has looked at.
    pub fn looked_at(&self) -> impl Iterator<Item = i32> + '_ {
        let seen = self.processes.values().filter(|process| !process.unseen);
        seen.map(|process| process.id.pid)
    }

    /// The shortest records that add up to this state.
    pub fn records(&self) -> Vec<Record> {
        let masks = self.masks().map(Record::Mask);
        let processes = self.processes.values().copied().map(Record::Process);
        let doubts = self.threads.iter().filter_map(|(thread, kept)| match kept {
            Kept::Held(held) => held.doubt.clone().map(|mask| Record::Doubt {
                thread: *thread,
                mask,
            }),
            Kept::Placed { .. } | Kept::Free { .. } => None,
        });
        let seen = self.threads.iter().filter_map(|(thread, kept)| match kept {
            Kept::Free { process } => Some((*process, *thread)),
            Kept::Placed { .. } | Kept::Held(_) => None,
        });
        let seen = Record::seen(seen, false);
        let nices_seen = self.nices.iter().filter_map(|(thread, kept)| match kept {
            NiceKept::Placed {
                process,
                nice: None,
            } => Some((*process, *thread)),
            NiceKept::Placed { .. } | NiceKept::Held(_) => None,
        });
        let nices_seen = Record::seen(nices_seen, true);
        let threads = self.threads.iter().filter_map(|(thread, kept)| match kept {
            Kept::Placed { process, mask } => Some(Record::Placed {
                thread: *thread,
                process: *process,
                mask: mask.clone(),
            }),
            Kept::Free { .. } => None,
            Kept::Held(held) => Some(Record::Set(SetRecord {
                thread: *thread,
                process: held.process,
                knob: Knob::Affinity,
                before: held.before.clone(),
                whole: Some(held.whole),
                from: held.from.clone(),
                set: held.set.clone(),
                let_go: Some(held.let_go),
                at: u64::MAX,
            })),
        });
        let irqs = self.irqs.values().cloned().map(Record::Irq);
        let settings = self.settings.values().cloned().map(Record::Setting);
        let nices = self.nices.iter().filter_map(|(thread, kept)| match kept {
            NiceKept::Held(held) => Some(Record::Nice(NiceRecord {
                at: u64::MAX,
                ..*held
            })),
            NiceKept::Placed { nice: None, .. } => None,
            NiceKept::Placed { process, nice } => Some(Record::NicePlaced {
                thread: *thread,
                process: *process,
                nice: *nice,
            }),
        });
        let nices = self.nice_sets().map(Record::NiceSet).chain(nices);
        let groups = self.groups().map(|(group, thread)| Record::Group {
            thread,
            group: group.to_owned(),
        });
        masks
            .chain(processes)
            .chain(threads)
            .chain(seen)
            .chain(nices_seen)
            .chain(doubts)
            .chain(irqs)
            .chain(settings)
            .chain(nices)
            .chain(groups)
            .collect()
    }
}
