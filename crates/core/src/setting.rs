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
    /// The value that it had before perch, to which it will be restored.
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

/// The longest name of a file (`NAME_MAX`, limits.h).
const LONGEST_NAME: usize = 255;

/// Frequencies that are closer than this, in kHz, may be one step of the hardware: the bus clock of Intel's processors,
/// by which their driver counts (`intel_pstate`). Drivers with tables of steps set exactly what is asked for.
const FREQUENCY_STEP: u64 = 100_000;

/// Energy preferences, the fastest first (`Documentation/admin-guide/pm/intel_pstate.rst`, `amd-pstate.rst`).
const PREFERENCES: [&str; 4] = [
    "performance",
    "balance_performance",
    "balance_power",
    "power",
];

impl Setting {
    /// Whether it names a file of the kernel: a work queue's name that is no plain file name would lead elsewhere.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::WorkQueue(name) => {
                let plain = |c: char| c != '/' && !c.is_control();
                !matches!(&**name, "" | "." | "..")
                    && name.len() <= LONGEST_NAME
                    && name.chars().all(plain)
            }
            _ => true,
        }
    }

    /// Whether one value makes the machine faster than another does, or may. Of PUs, those that the other set lacks
    /// count as that: work would come to PUs from which it was kept.
    pub fn is_faster(&self, value: &SettingValue, before: &SettingValue) -> bool {
        let rank = |name: &String| PREFERENCES.iter().position(|known| known == name);
        match (self, value, before) {
            (_, value, before) if value == before => false,
            (Self::MaxFrequency(_), SettingValue::Number(value), SettingValue::Number(before)) => {
                value > before
            }
            (Self::Throttling(_), SettingValue::Number(value), SettingValue::Number(before)) => {
                value < before
            }
            (_, SettingValue::Name(value), SettingValue::Name(before)) => {
                match (rank(value), rank(before)) {
                    (Some(value), Some(before)) => value < before,
                    _ => true,
                }
            }
            (_, SettingValue::Pus(value), SettingValue::Pus(before)) => !value.is_subset(before),
            _ => true,
        }
    }

    /// Whether the kernel may have made `found` of a value that was written: it rounds frequencies to steps of the
    /// hardware.
    pub fn may_become(&self, written: &SettingValue, found: &SettingValue) -> bool {
        match (self, written, found) {
            (Self::MaxFrequency(_), SettingValue::Number(written), SettingValue::Number(found)) => {
                written.abs_diff(*found) < FREQUENCY_STEP
            }
            _ => written == found,
        }
    }
}

impl SettingValue {
    /// Whether a name is one word, as the kernel's are; numbers and sets always are what they are.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Name(name) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(plain)
            }
            Self::Number(_) | Self::Pus(_) => true,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SettingValue {
        SettingValue::Name(text.to_owned())
    }

    fn pus(text: &str) -> SettingValue {
        SettingValue::Pus(text.parse().unwrap())
    }

    #[test]
    fn a_work_queue_names_a_file_in_one_folder() {
        for name in ["", ".", "..", "../../x", "a/b", "/etc", "a\nb", "a\0"] {
            assert!(!Setting::WorkQueue(name.into()).is_plain(), "{name:?}");
        }
        assert!(!Setting::WorkQueue("x".repeat(256)).is_plain());
        for name in ["writeback", "nvme-wq", "..x"] {
            assert!(Setting::WorkQueue(name.into()).is_plain(), "{name:?}");
        }
        assert!(name("balance_power").is_plain() && name("128").is_plain());
        assert!(!name("a b").is_plain() && !name("a\n").is_plain() && !name("").is_plain());
    }

    #[test]
    fn faster_is_a_higher_clock_less_throttling_or_more_pus() {
        use SettingValue::Number;
        let faster =
            |setting: Setting, a, b| (setting.is_faster(&a, &b), setting.is_faster(&b, &a));
        let (high, low) = (Number(3_000_000), Number(2_000_000));
        assert_eq!(faster(Setting::MaxFrequency(0), high, low), (true, false));
        assert_eq!(
            faster(Setting::Throttling(0), Number(1), Number(2)),
            (true, false)
        );
        let preference = Setting::EnergyPreference(0);
        let (quick, slow) = (name("balance_performance"), name("power"));
        assert_eq!(
            faster(preference.clone(), quick.clone(), slow),
            (true, false)
        );
        // What a number means is the processor's affair.
        assert_eq!(faster(preference.clone(), quick, name("128")), (true, true));
        assert!(!preference.is_faster(&name("128"), &name("128")));
        assert_eq!(
            faster(Setting::NewIrqs, pus("0-3"), pus("0")),
            (true, false)
        );
        assert_eq!(
            faster(Setting::WorkQueues, pus("1"), pus("0")),
            (true, true)
        );
        assert!(Setting::WorkQueues.is_faster(&pus("0"), &Number(1)));
    }

    #[test]
    fn only_frequencies_are_rounded() {
        use SettingValue::Number;
        let clock = Setting::MaxFrequency(3);
        assert!(clock.may_become(&Number(2_345_678), &Number(2_300_000)));
        assert!(clock.may_become(&Number(2_345_678), &Number(2_400_000)));
        assert!(!clock.may_become(&Number(2_400_000), &Number(2_300_000)));
        assert!(!Setting::Throttling(0).may_become(&Number(3), &Number(2)));
    }
}
