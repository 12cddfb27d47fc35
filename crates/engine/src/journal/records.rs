//! The contents of a journal: its header and its records.

use super::settings::{SettingRecord, pus};
use perch_core::{Outcome, ProcessId, PuSet, Setting, SettingValue, ThreadId, affinity::Image};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format's version. Format 5 had no settings of the machine, format 4 knew less of ended processes and of threads
/// that were only seen, format 3 also had no control groups, format 2 no nice values either.
pub const VERSION: u32 = 6;

/// The first line of a journal: the session and target that it belongs to, and the machine on which they run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format; [`VERSION`] in new journals.
    pub journal: u32,
    /// The session's mark: its name, and the value that its program finds in its environment.
    pub session: String,
    /// The target's number in the session.
    #[serde(default)]
    pub target: u32,
    /// The kernel's boot (`/proc/sys/kernel/random/boot_id`); masks do not survive it.
    pub boot: String,
    /// The machine, as [`machine`](super::state_dir::machine) returns it; empty where it is not known.
    #[serde(default)]
    pub machine: String,
    /// The perch process that writes the journal, by PID and start time.
    pub perch: ProcessId,
    /// The namespaces by which threads are numbered, their starts counted and control groups named (`/proc/self/ns/pid`,
    /// `time` and `cgroup`); 0 where it is not known.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// The mask of threads whose affinity was not set.
    pub default: PuSet,
    /// Whether that is all that the CPU set allows.
    #[serde(default = "yes")]
    pub whole: bool,
}

/// Inode numbers of namespaces (`/proc/self/ns/*`, namespaces(7)); 0 where unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Inode of the PID namespace.
    pub pid: u64,
    /// Inode of the time namespace, which offsets the clock since boot.
    pub time: u64,
    /// Inode of the cgroup namespace.
    #[serde(default)]
    pub cgroup: u64,
}

/// In format 1 every default mask was taken for all that the CPU set allows.
fn yes() -> bool {
    true
}

/// The property of a thread that is changed.
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
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// Its process; 0 in format 1.
    #[serde(default)]
    pub process: i32,
    /// The property that is changed.
    pub knob: Knob,
    /// The mask to which it will be restored.
    pub before: PuSet,
    /// Whether that is all that its CPU set allows: then it gets that, whatever the CPU set is by then. In format 1 it is
    /// if it equals the header's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<bool>,
    /// Masks that perch has asked for before. The thread may still have one of them, or a mask that the kernel has
    /// derived from one. In format 1: the mask that it has, no matter which process set it, and the one that was asked
    /// for.
    pub from: Vec<PuSet>,
    /// The mask that it is about to get.
    pub set: PuSet,
    /// Whether it is released by this change. In format 1 it is if `set` equals `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go: Option<bool>,
    /// When, in clock ticks after boot, as threads' starts are; the largest number where nothing is set now.
    pub at: u64,
}

/// A mask that the session has set on some thread of a process: what that process starts later and has this mask may
/// have inherited it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MaskRecord {
    /// The process; 0 in format 1.
    #[serde(default)]
    pub process: i32,
    /// The mask that perch set.
    pub set: PuSet,
    /// The mask that such a thread had before.
    pub before: PuSet,
    /// Whether `before` is all that the CPU set allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<bool>,
    /// When it was first set, in clock ticks after boot.
    pub at: u64,
}

/// An interrupt's mask is about to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqRecord {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// Its devices: the number alone may be another's later.
    pub device: String,
    /// The mask to which it will be restored.
    pub before: PuSet,
    /// The mask that it has now.
    pub from: PuSet,
    /// The mask that it is about to get.
    pub set: PuSet,
}

/// A thread's nice value is about to be changed, or was found to be perch's doing: inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiceRecord {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// PID of its process.
    pub process: i32,
    /// The nice value to which it will be restored, -20 to 19.
    pub before: i32,
    /// The value that it has now.
    pub from: i32,
    /// The nice value that it is about to get.
    pub set: i32,
    /// When, in clock ticks after boot: what the thread creates from then on may have the value; the largest number if
    /// another record says that.
    pub at: u64,
}

/// A nice value that was set on some thread of a process, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiceSetRecord {
    /// PID of the process.
    pub process: i32,
    /// The nice value that perch set, -20 to 19.
    pub set: i32,
    /// The nice value to which threads with `set` will be restored.
    pub before: i32,
    /// When it was first set, in clock ticks after boot.
    pub at: u64,
}

/// A process of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The process, by PID and start time.
    #[serde(flatten)]
    pub id: ProcessId,
    /// Address-space layout that identifies the program that it executes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Whether perch had no time to look at its threads: they may have inherited their masks from the process that
    /// started it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unseen: bool,
    /// Whether its first thread had ended already: if that lives again, another has taken over its number (since format 5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_ended: bool,
    /// When it was seen to have ended, in clock ticks after boot (since format 5): what starts later does not descend from
    /// it, and its number may be another's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

/// One line after the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A change that is about to be made.
    Set(SetRecord),
    /// The outcome of a change of a thread's mask.
    Done {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// Whether the change was applied, and if not, why.
        outcome: Outcome,
    },
    /// Threads that perch has seen with masks which it has set on none of them, in a process in which it has set some: what
    /// they have later they have not inherited (since format 5). By number and start.
    Seen {
        /// PID of their process.
        process: i32,
        /// The threads, as pairs of TID and start time in clock ticks after boot.
        threads: Vec<(i32, u64)>,
    },
    /// The same of nice values (since format 5).
    NiceSeen {
        /// PID of their process.
        process: i32,
        /// The threads, as pairs of TID and start time in clock ticks after boot.
        threads: Vec<(i32, u64)>,
    },
    /// A thread that a process other than perch has placed. Leave it alone, and so every thread that inherited its
    /// mask.
    Placed {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// PID of its process.
        process: i32,
        /// The mask that the other process set, as far as that is known.
        mask: PuSet,
    },
    /// A thread whose mask has been restored: leave it alone. In format 1 also one that another process has placed.
    Free {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// Its process; 0 in format 1.
        #[serde(default)]
        process: i32,
    },
    /// A thread that perch had bound now has this mask. Another process set it, unless a change of PUs or CPU sets that
    /// perch has not seen yet explains it.
    Doubt {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// The mask that the thread has now.
        mask: PuSet,
    },
    /// A process of the session, or the program that it executes now.
    Process(ProcessRecord),
    /// A process that ended so long ago that all it has started is known: its number says nothing any more (since
    /// format 5).
    Forgotten {
        /// The process, by PID and start time.
        process: ProcessId,
    },
    /// A mask that was set on a thread that has ended since (written when the file is made shorter).
    Mask(MaskRecord),
    /// An interrupt's mask is about to be changed.
    Irq(IrqRecord),
    /// The outcome of a change of an interrupt's mask.
    IrqDone {
        /// Interrupt number, as in `/proc/irq/N`.
        irq: u32,
        /// Whether the change was applied, and if not, why.
        outcome: Outcome,
    },
    /// A setting of the machine is about to be changed (since format 6).
    Setting(SettingRecord),
    /// The outcome of a change of a setting; or it has turned out later that it is not perch's doing any more.
    SettingDone {
        /// Which setting.
        setting: Setting,
        /// Whether the change was applied, and if not, why.
        outcome: Outcome,
        /// The value that it has, if it is not the one that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<SettingValue>,
    },
    /// A thread's nice value is about to be changed (since format 3).
    Nice(NiceRecord),
    /// The outcome of a change of a nice value.
    NiceDone {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// Whether the change was applied, and if not, why.
        outcome: Outcome,
    },
    /// Another process has set a thread's nice value: leave it alone.
    NicePlaced {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// PID of its process.
        process: i32,
        /// The value, as far as it is known.
        nice: Option<i32>,
    },
    /// A nice value that was set on a thread that may have ended since (written when the file is made shorter).
    NiceSet(NiceSetRecord),
    /// A control group is about to be made for a thread, which has its CPU weight by it (since format 4).
    Group {
        /// The thread, by TID and start time.
        thread: ThreadId,
        /// Path of the group's directory.
        group: String,
    },
    /// A control group of perch's has been removed.
    GroupRemoved {
        /// Path of the group's directory.
        group: String,
    },
    /// The default mask has changed (format 1 only).
    Default {
        /// The new default mask.
        mask: PuSet,
    },
}

/// Threads in one record: if it is damaged, only these are lost.
const TOGETHER: usize = 256;

impl Record {
    /// The masks in it.
    pub(super) fn masks(&self) -> impl Iterator<Item = &PuSet> {
        let (masks, from): (Vec<&PuSet>, &[PuSet]) = match self {
            Self::Set(set) => (vec![&set.before, &set.set], &set.from),
            Self::Mask(mask) => (vec![&mask.set, &mask.before], &[]),
            Self::Irq(irq) => (vec![&irq.before, &irq.from, &irq.set], &[]),
            Self::Setting(record) => (record.values().into_iter().filter_map(pus).collect(), &[]),
            Self::SettingDone { found, .. } => (found.iter().filter_map(pus).collect(), &[]),
            Self::Placed { mask, .. } | Self::Doubt { mask, .. } | Self::Default { mask } => {
                (vec![mask], &[])
            }
            Self::Done { .. }
            | Self::Free { .. }
            | Self::Process(_)
            | Self::IrqDone { .. }
            | Self::Nice(_)
            | Self::NiceDone { .. }
            | Self::NicePlaced { .. }
            | Self::NiceSet(_)
            | Self::Group { .. }
            | Self::GroupRemoved { .. }
            | Self::Seen { .. }
            | Self::Forgotten { .. }
            | Self::NiceSeen { .. } => (Vec::new(), &[]),
        };
        masks.into_iter().chain(from)
    }

    /// Whether it names only what the kernel has.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Setting(record) => record.is_plain(),
            Self::SettingDone { setting, found, .. } => {
                setting.is_plain() && found.as_ref().is_none_or(SettingValue::is_plain)
            }
            _ => true,
        }
    }

    /// Records that these threads were seen, each with its process.
    pub fn seen(threads: impl IntoIterator<Item = (i32, ThreadId)>, nice: bool) -> Vec<Self> {
        let mut processes = BTreeMap::<i32, Vec<(i32, u64)>>::new();
        for (process, ThreadId { tid, start }) in threads {
            processes.entry(process).or_default().push((tid, start));
        }
        let mut records = Vec::new();
        for (process, threads) in processes {
            records.extend(threads.chunks(TOGETHER).map(|threads| {
                let threads = threads.to_vec();
                match nice {
                    false => Self::Seen { process, threads },
                    true => Self::NiceSeen { process, threads },
                }
            }));
        }
        records
    }

    /// How many threads it lists beyond the first.
    pub(super) fn more(&self) -> usize {
        match self {
            Self::Seen { threads, .. } | Self::NiceSeen { threads, .. } => {
                threads.len().saturating_sub(1)
            }
            _ => 0,
        }
    }
}
