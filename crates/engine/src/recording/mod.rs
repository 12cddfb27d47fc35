//! Recordings of sessions: JSON lines, as docs/recording.md describes them.

mod reader;
mod recorder;

pub use reader::{Reader, Recording};
pub use recorder::Recorder;

use crate::{
    observer::{ActionTaken, Cause, IrqMove, Move, SettingMove},
    restore::RestoreReport,
};
use perch_core::{Observation, Plan, PuSet, Remark, Topology};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

/// The format's version. Version 1 is read too: there a machine that changed was a member of the period, not of the
/// observation, masks and CPU sets that were asked for are missing, and every period but the last one has a plan.
pub const VERSION: u32 = 2;

/// The first line of a recording: machine, policy, profile and settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format; [`VERSION`] in new recordings.
    pub version: u32,
    /// perch's own version.
    pub perch: String,
    /// The kernel's boot, empty if unknown.
    pub boot: String,
    /// When the session began, in seconds since 1970 (UTC).
    pub started: u64,
    /// The command that was run, or the processes that were attached, as given.
    pub command: Vec<String>,
    /// The settings in force, by name.
    pub configuration: BTreeMap<String, serde_json::Value>,
    /// The machine on which the threads ran.
    pub topology: Arc<Topology>,
    /// The what-if topology on which they were placed, if there was one.
    #[serde(default, rename = "paper", skip_serializing_if = "Option::is_none")]
    pub what_if: Option<Arc<Topology>>,
    /// The policy's name.
    pub policy: String,
    /// The profile's name.
    pub profile: String,
    /// The profile's text.
    pub profile_text: String,
    /// The period asked for; written in nanoseconds.
    #[serde(with = "nanoseconds")]
    pub period: Duration,
    /// Source of thread metrics in words: counters or sampling, with rates.
    pub counting: String,
    /// The mask of threads whose affinity was not set.
    pub default_mask: PuSet,
    /// How often the machine was observed, if not once a period; written in nanoseconds.
    #[serde(
        default,
        with = "maybe_nanoseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub interval: Option<Duration>,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether threads that others had placed were placed all the same.
    pub take_over: bool,
    /// The PUs to which perch was limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pus: Option<PuSet>,
    /// The text of a calibration of the machine, if there was one: the one that the policy read, else the machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
}

/// A period: what was observed, planned and changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeriodRecord {
    /// Its number, from 0.
    pub number: u64,
    /// In version 1, the machine from this period on, if it has changed.
    #[serde(default, skip_serializing)]
    pub topology: Option<Arc<Topology>>,
    /// The raw measurements of the interval.
    pub observation: Arc<Observation>,
    /// What the policy asked for, without what was invalid; `None` where it was not asked.
    pub plan: Option<Plan>,
    /// The number of the period about which the policy was asked, if it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<u64>,
    /// Changes of threads' bindings, with their outcomes.
    pub moves: Vec<Move>,
    /// What was changed of interrupts, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq_moves: Vec<IrqMove>,
    /// What was changed of settings, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setting_moves: Vec<SettingMove>,
    /// What else was done to threads, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionTaken>,
    /// Remarks reported in the period.
    pub remarks: Vec<Remark>,
    /// Whether it is the session's last.
    #[serde(default)]
    pub last: bool,
}

/// The last line of a session that came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Why the session ended.
    pub cause: Cause,
    /// Periods that were observed.
    pub periods: u64,
    /// How many masks were restored, and which could not be.
    pub restored: RestoreReport,
}

/// One line of a recording (`docs/recording.md`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first line.
    Header(Box<Header>),
    /// One line per observed period.
    Period(Box<PeriodRecord>),
    /// The last line; missing if perch was killed.
    End(Box<EndRecord>),
}

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("{path}: {error}")]
    Io {
        /// Path of the recording.
        path: String,
        /// Error of the operating system.
        #[source]
        error: io::Error,
    },
    /// A line that is none of a recording.
    #[error("{path}:{line}: {why}")]
    Line {
        /// Path of the recording.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// Description of the error.
        why: String,
    },
}

/// A duration as a whole number of nanoseconds.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_nanos() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

/// The same of a duration that may be missing.
mod maybe_nanoseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        let time = time.map(|time| time.as_nanos() as u64);
        time.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let time = Option::<u64>::deserialize(from)?;
        Ok(time.map(Duration::from_nanos))
    }
}
