//! Settings of the machine that are neither a thread's nor an interrupt's: how fast PUs may run, and which PUs work
//! queues and new interrupts use.

use crate::{MaskError, Outcome, PuSet, Reason};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A setting of the machine. Its display is the file of the kernel that holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// The highest clock that a cpufreq policy may choose, in kHz (`scaling_max_freq`,
    /// `Documentation/admin-guide/pm/cpufreq.rst` of the kernel). A number.
    MaxFrequency(u32),
    /// A cpufreq policy's preference between performance and energy (`energy_performance_preference`,
    /// `Documentation/admin-guide/pm/intel_pstate.rst`). A name.
    EnergyPreference(u32),
    /// The throttling state of a processor's cooling device, 0 for none (`Documentation/driver-api/thermal/`): the
    /// clock modulation of machines without cpufreq. A number.
    Throttling(u32),
    /// The PUs on which unbound work queues run (`/sys/devices/virtual/workqueue/cpumask`,
    /// `Documentation/core-api/workqueue.rst`). PUs.
    WorkQueues,
    /// The PUs of one unbound work queue that is listed in `/sys/devices/virtual/workqueue`. PUs.
    WorkQueue(String),
    /// The PUs of interrupts that are set up from now on (`/proc/irq/default_smp_affinity`). PUs.
    NewIrqs,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingValue {
    /// A frequency in kHz, or a throttling state.
    Number(u64),
    /// A set of PUs.
    Pus(PuSet),
    /// One of the names that the kernel offers.
    Name(String),
}

/// The values that a setting can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingChoices {
    /// All numbers from the first to the second, as far as the hardware can tell them apart.
    Range(u64, u64),
    /// These numbers, rising.
    Numbers(Vec<u64>),
    /// These names, in the kernel's order.
    Names(Vec<String>),
    /// Any set of PUs that holds one which is online.
    Pus,
}

impl SettingChoices {
    /// Whether a setting with these choices can have the value.
    pub fn allow(&self, value: &SettingValue) -> bool {
        match (self, value) {
            (Self::Range(least, most), SettingValue::Number(number)) => {
                (least..=most).contains(&number)
            }
            (Self::Numbers(numbers), SettingValue::Number(number)) => numbers.contains(number),
            (Self::Names(names), SettingValue::Name(name)) => names.contains(name),
            (Self::Pus, SettingValue::Pus(pus)) => !pus.is_empty(),
            _ => false,
        }
    }
}

/// A setting when an interval ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingSample {
    /// Which setting.
    pub setting: Setting,
    /// The PUs whose speed it governs; all of the machine for one that holds PUs.
    pub governs: PuSet,
    /// Its value.
    pub value: SettingValue,
    /// The values that it can have.
    pub choices: SettingChoices,
}

/// A setting in one period, as a policy sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingState {
    /// Which setting.
    pub setting: Setting,
    /// The PUs whose speed it governs; all of the machine for one that holds PUs.
    pub governs: PuSet,
    /// The value that it had before perch, and gets back.
    pub before: SettingValue,
    /// The values that it can have.
    pub choices: SettingChoices,
    /// The value that perch has given it; `None` if it has not.
    pub given: Option<SettingValue>,
    /// Another process has changed it since perch gave it a value: it is left alone.
    pub foreign: bool,
}

/// A setting, the value that it shall have, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingBinding {
    /// Which setting.
    pub setting: Setting,
    /// The value that it shall have; never faster than before perch.
    pub value: SettingValue,
    /// The reason, for the user.
    pub reason: Reason,
}

/// Gives a setting the value `set`, if it still has the value `expect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// Which setting.
    pub setting: Setting,
    /// The value that it must have now.
    pub expect: SettingValue,
    /// The value that it shall have.
    pub set: SettingValue,
}

/// Access to settings, on machines that have any.
pub trait Settings {
    /// All settings that this machine has, with what they are now.
    fn settings(&self) -> Vec<SettingSample>;

    /// What a setting is now.
    ///
    /// # Errors
    /// A setting that this machine does not have (any more), a file that cannot be read.
    fn setting(&self, setting: &Setting) -> Result<SettingValue, MaskError>;

    /// Compare and set: the present value is checked right before.
    fn change_setting(&mut self, change: &SettingChange) -> Outcome;
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxFrequency(policy) => {
                write!(f, "cpufreq/policy{policy}/scaling_max_freq")
            }
            Self::EnergyPreference(policy) => {
                write!(f, "cpufreq/policy{policy}/energy_performance_preference")
            }
            Self::Throttling(device) => write!(f, "thermal/cooling_device{device}/cur_state"),
            Self::WorkQueues => f.write_str("workqueue/cpumask"),
            Self::WorkQueue(name) => write!(f, "workqueue/{name}/cpumask"),
            Self::NewIrqs => f.write_str("irq/default_smp_affinity"),
        }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Pus(pus) => pus.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}
