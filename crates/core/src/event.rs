//! Which hardware events are counted, and what came of counting them.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One event under the profile's own short name, with the spellings to try in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventChoice {
    /// The name under which formulas use it, such as `cycles`.
    pub alias: Arc<str>,
    /// Spellings, first that opens wins: libpfm4's (`amd64_fam19h_zen4::RETIRED_INSTRUCTIONS`), the kernel's
    /// (`cpu/inst_retired.any/`), or raw (`cpu/event=0xc0,umask=0x0/`).
    pub spellings: Vec<String>,
    /// The core kind (PMU) on which it counts, such as `cpu_atom`; `None` for all.
    pub pmu: Option<String>,
}

/// Events that are counted together, as one group a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSet {
    /// Its name in the profile.
    pub name: Arc<str>,
    /// Its events; the first leads the group.
    pub events: Vec<EventChoice>,
    /// If set, the event of that alias makes a record of the whole set each time that a thread has had that number of it
    /// ([`crate::Window`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<(Arc<str>, u64)>,
}

impl EventSet {
    /// A set that is read once an interval.
    pub fn new(name: impl Into<Arc<str>>, events: Vec<EventChoice>) -> Self {
        Self {
            name: name.into(),
            events,
            every: None,
        }
    }
}

/// What no count of a processor can be: a profile's knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The least and the greatest number of cycles in a second on a PU.
    pub cycles_per_second: (f64, f64),
    /// Fewer instructions than these in a second on a PU are none.
    pub min_instructions_per_second: f64,
    /// More instructions than these in a cycle cannot retire.
    pub max_instructions_per_cycle: f64,
    /// With less time on a PU than this (nanoseconds) too few instructions or cycles prove nothing.
    pub judge_after_ns: u64,
}

/// All events that a machine is asked to count. Several sets are multiplexed (one round shows each set once).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventPlan {
    /// The sets, in turn order.
    pub sets: Vec<EventSet>,
    /// What counts cannot be. The machine knows for how long each event was counted, which the profile does not. `None`:
    /// nothing is known, and all counts from 0 on are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Quality of a count: exact, multiplexed or implausible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountQuality {
    /// Counted all the time.
    Exact,
    /// Counted for this share of the time (0 to 1) and scaled up.
    Scaled(f64),
    /// Implausible; the text gives the reason.
    Implausible(String),
}

/// One event's count over one thread's (or PU's) interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// The profile's short name of the event.
    pub alias: Arc<str>,
    /// Occurrences, scaled where it did not count all the time.
    pub value: f64,
    /// Whether it is exact, scaled after multiplexing, or implausible.
    pub quality: CountQuality,
}
