//! The share of a PU that a thread gets relative to others that want it: its CPU weight, and access to it.

use crate::{MaskError, Outcome, ThreadId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A CPU weight on the scale of cgroup v2's `cpu.weight`: 1 to 10000, where 100 is the default. Of two threads that
/// want one PU, each gets time in proportion to its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

/// A text or number that is not a weight.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a weight is a whole number from 1 to 10000 (100 is the usual one), not `{0}`")]
pub struct WeightError(String);

/// The scheduler's weights of nice -20 to 19 (`sched_prio_to_weight`, kernel/sched/core.c).
const OF_NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

impl Weight {
    /// The smallest weight, as of `cpu.weight`.
    pub const MIN: u32 = 1;
    /// The largest weight, as of `cpu.weight`.
    pub const MAX: u32 = 10_000;

    /// The weight of this number; `None` outside of 1 to 10000.
    pub fn new(weight: u32) -> Option<Self> {
        (Self::MIN..=Self::MAX)
            .contains(&weight)
            .then_some(Self(weight))
    }

    /// The weight as a number, 1 to 10000.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The nice value whose share is nearest: the one that `cpu.weight.nice` shows for this weight.
    pub fn nice(self) -> i32 {
        // As the kernel scales it (`sched_weight_from_cgroup`).
        let weight = (self.0 * 1024 + 50) / 100;
        let nearest = OF_NICE
            .iter()
            .zip(-20..)
            .min_by_key(|(of, _)| of.abs_diff(weight));
        nearest.map_or(0, |(_, nice)| nice)
    }
}

/// The scheduler's weight of a nice value: 1024 for 0, and about a quarter more for each step down. Values beyond -20 to
/// 19 count as the nearest of these.
pub fn scheduler_weight(nice: i32) -> u32 {
    OF_NICE[(nice.clamp(-20, 19) + 20) as usize]
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let number = text.parse().ok();
        number
            .and_then(Self::new)
            .ok_or_else(|| WeightError(text.to_owned()))
    }
}

impl TryFrom<u32> for Weight {
    type Error = WeightError;

    fn try_from(weight: u32) -> Result<Self, WeightError> {
        Self::new(weight).ok_or_else(|| WeightError(weight.to_string()))
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

/// A thread's nice value when an interval ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiceSample {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// PID of its process.
    pub pid: i32,
    /// Nice value, -20 to 19.
    pub nice: i32,
}

/// Sets a thread's nice value to `set`, if it is still `expect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NiceChange {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The nice value that it must have now, -20 to 19.
    pub expect: i32,
    /// The nice value that it gets, -20 to 19.
    pub set: i32,
}

/// Access to CPU weights, on machines that have them. Threads have them as nice values.
pub trait Weights {
    /// The thread's nice value.
    ///
    /// # Errors
    /// A thread that has exited, or that cannot be read.
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError>;

    /// Whether a change may be made, and undone later. All users may raise the nice values of their own threads, but
    /// lowering them takes a privilege.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    fn permitted(&self, change: &NiceChange) -> Result<(), String>;

    /// Whether the thread may be given a nice value as low as this without a privilege (`RLIMIT_NICE`, getrlimit(2)).
    fn may_be_lowered(&self, thread: ThreadId, nice: i32) -> bool;

    /// Compare and set: identity and present value are checked right before.
    fn change_nice(&mut self, change: &NiceChange) -> Outcome;

    /// Access to control groups, on machines that have them.
    fn groups(&mut self) -> Option<&mut dyn WeightGroups> {
        None
    }
}

/// Gives a thread a weight by a control group of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupChange {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// PID of its process.
    pub process: i32,
    /// The group's directory, as [`WeightGroups::group_for`] has named it.
    pub group: String,
    /// The group's weight.
    pub weight: Weight,
}

/// Control groups of single threads, each with a CPU weight (cgroup v2, thread mode). They need no privilege where the
/// threads' own group is delegated to the user, and can always be undone: who is in a group is there to be read.
pub trait WeightGroups {
    /// The directory that a group for this thread would have, below the thread's own group.
    ///
    /// # Errors
    /// Why there can be none: what is not delegated, or what stands in the way.
    fn group_for(&self, thread: ThreadId, process: i32) -> Result<String, String>;

    /// Makes the group if it is not there, gives it its weight and moves the thread into it. What the thread starts from
    /// then on is in the group too.
    fn enter(&mut self, change: &GroupChange) -> Outcome;

    /// Moves all threads of a group to the group above it, and removes it. With `owner`, only if the group above is that
    /// user's.
    fn dissolve(&mut self, group: &str, owner: Option<u32>) -> Outcome;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_nice_values_are_those_of_the_kernel() {
        // Computed by the kernel's rule (`cpu_weight_nice_read_s64`, kernel/sched/core.c).
        let nice = |weight| Weight::new(weight).unwrap().nice();
        assert_eq!(
            [1, 10, 33, 100, 305, 1000, 10_000].map(nice),
            [19, 10, 5, 0, -5, -10, -20]
        );
        // And the weights that the kernel gives for nice values lead back to them, where the scale has room for it.
        for (of, value) in OF_NICE.iter().zip(-20..) {
            let weight = (of * 100 + 512) / 1024;
            if let Some(weight) = Weight::new(weight).filter(|weight| weight.get() >= 10) {
                assert_eq!(weight.nice(), value);
            }
        }
    }

    #[test]
    fn heavier_is_never_nicer() {
        let all = (Weight::MIN..=Weight::MAX).filter_map(Weight::new);
        assert!(all.map(Weight::nice).is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn what_is_no_weight_is_refused() {
        for text in ["0", "10001", "-1", "1.5", "", "heavy"] {
            let error = text.parse::<Weight>().unwrap_err().to_string();
            assert!(
                error.contains("1 to 10000") && error.contains(text),
                "{error}"
            );
        }
        assert!(serde_json::from_str::<Weight>("0").is_err());
        assert_eq!("250".parse::<Weight>().unwrap().get(), 250);
    }
}
