//! Which processor a machine has, read from texts that the caller brings, and rules that match it.

use std::{collections::BTreeSet, fmt};

/// A processor as it names itself. What is not known is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuIdentity {
    /// x86: `GenuineIntel`, `AuthenticAMD`, …
    pub vendor: Option<String>,
    /// x86: the family, extended family included.
    pub family: Option<u32>,
    /// x86: the model, extended model included.
    pub model: Option<u32>,
    /// Arm: implementer and part of every kind of core (fields of MIDR_EL1).
    pub arm: BTreeSet<(u32, u32)>,
    /// POWER: the upper half of the processor version register.
    pub pvr: Option<u32>,
    /// POWER: `POWER9`, the first word of cpuinfo's `cpu` line.
    pub cpu: Option<String>,
    /// The marketing name, for people.
    pub model_name: Option<String>,
    /// Whether a hypervisor stands below.
    pub virtual_machine: bool,
}

impl CpuIdentity {
    /// Reads /proc/cpuinfo of x86, aarch64 or ppc64le. Lines that it does not know are passed over.
    pub fn from_cpuinfo(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            Some((key.trim(), value.trim()))
        });
        let mut identity = Self::default();
        let mut implementer = None;
        for (key, value) in pairs {
            match key {
                "vendor_id" => keep(&mut identity.vendor, value),
                "cpu family" => keep_number(&mut identity.family, value),
                "model" if number(value).is_some() => keep_number(&mut identity.model, value),
                "model name" => keep(&mut identity.model_name, value),
                "flags" => {
                    identity.virtual_machine |= value.split(' ').any(|f| f == "hypervisor");
                }
                "CPU implementer" => implementer = number(value),
                "CPU part" => {
                    if let (Some(implementer), Some(part)) = (implementer, number(value)) {
                        identity.arm.insert((implementer, part));
                    }
                }
                "cpu" => {
                    keep(
                        &mut identity.cpu,
                        value.split([' ', ',']).next().unwrap_or(""),
                    );
                    keep(&mut identity.model_name, value);
                    identity.virtual_machine |= value.contains("(architected)");
                }
                "revision" => {
                    // 2.2 (pvr 004e 1202)
                    let pvr = value
                        .split_once("(pvr ")
                        .and_then(|(_, rest)| rest.split([' ', ')']).next())
                        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                    identity.pvr = identity.pvr.or(pvr);
                }
                _ => {}
            }
        }
        identity
    }

    /// From the information that hwloc attaches to packages and machines (`CPUVendor`, `CPUFamilyNumber`,
    /// `CPUModelNumber`, `CPUModel`; `CPUImplementer`, `CPUPart`), as pairs of key and value.
    pub fn from_hwloc<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut identity = Self::default();
        let mut implementer = None;
        let mut parts = Vec::new();
        for (key, value) in pairs {
            let value = value.trim();
            match key {
                "CPUVendor" => keep(&mut identity.vendor, value),
                "CPUFamilyNumber" => keep_number(&mut identity.family, value),
                "CPUModelNumber" => keep_number(&mut identity.model, value),
                "CPUModel" => {
                    keep(&mut identity.model_name, value);
                    let word = value.split([' ', ',']).next().unwrap_or("");
                    if word.starts_with("POWER") {
                        keep(&mut identity.cpu, word);
                    }
                }
                "CPUImplementer" => implementer = implementer.or(number(value)),
                "CPUPart" => parts.extend(number(value)),
                _ => {}
            }
        }
        if let Some(implementer) = implementer {
            identity
                .arm
                .extend(parts.into_iter().map(|part| (implementer, part)));
        }
        identity
    }

    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        self.family.is_none() && self.arm.is_empty() && self.pvr.is_none() && self.cpu.is_none()
    }
}

impl fmt::Display for CpuIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(family), Some(model)) = (self.family, self.model) {
            let vendor = self.vendor.as_deref().unwrap_or("unknown vendor");
            write!(f, "{vendor} family {family:#x} model {model:#x}")?;
        } else if !self.arm.is_empty() {
            for (at, (implementer, part)) in self.arm.iter().enumerate() {
                let and = if at > 0 { " and " } else { "" };
                write!(f, "{and}implementer {implementer:#x} part {part:#x}")?;
            }
        } else if let Some(cpu) = &self.cpu {
            f.write_str(cpu)?;
            if let Some(pvr) = self.pvr {
                write!(f, " pvr {pvr:#06x}")?;
            }
        } else if let Some(pvr) = self.pvr {
            write!(f, "pvr {pvr:#06x}")?;
        } else {
            f.write_str("an unknown processor")?;
        }
        match &self.model_name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

fn keep(slot: &mut Option<String>, value: &str) {
    if slot.is_none() && !value.is_empty() {
        *slot = Some(value.to_owned());
    }
}

fn keep_number(slot: &mut Option<u32>, value: &str) {
    if slot.is_none() {
        *slot = number(value);
    }
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    crate::spelling::number(text).and_then(|value| u32::try_from(value).ok())
}

/// Which processors a profile is for. One of several rules must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// By vendor, family and model (inclusive ranges; none for all models).
    X86 {
        /// As in /proc/cpuinfo.
        vendor: String,
        /// Extended family included.
        family: u32,
        /// First and last model of each range.
        models: Vec<(u32, u32)>,
    },
    /// By the fields of MIDR_EL1.
    Arm {
        /// Such as 0x41 for Arm.
        implementer: u32,
        /// Such as 0xd0c for Neoverse N1.
        parts: Vec<u32>,
    },
    /// By the version register or the kernel's name.
    Power {
        /// Upper halves of the processor version register.
        pvr: Vec<u32>,
        /// First words of cpuinfo's `cpu` line.
        cpu: Vec<String>,
    },
    /// Any processor for which there is nothing better.
    Any,
}

impl Rule {
    /// How well the rule fits: 0 not at all, more for the more exact.
    pub fn fits(&self, identity: &CpuIdentity) -> u8 {
        match self {
            Self::Any => 1,
            Self::X86 {
                vendor,
                family,
                models,
            } => {
                if identity.vendor.as_ref() != Some(vendor) || identity.family != Some(*family) {
                    return 0;
                }
                let listed = identity.model.is_some_and(|model| {
                    models
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&model))
                });
                match (listed, models.is_empty()) {
                    (true, _) => 3,
                    (false, true) => 2,
                    (false, false) => 0,
                }
            }
            Self::Arm { implementer, parts } => {
                let all = !identity.arm.is_empty()
                    && identity
                        .arm
                        .iter()
                        .all(|(i, part)| i == implementer && parts.contains(part));
                if all { 3 } else { 0 }
            }
            Self::Power { pvr, cpu } => match (&identity.pvr, &identity.cpu) {
                (Some(have), _) if pvr.contains(have) => 3,
                (_, Some(have)) if cpu.contains(have) => 3,
                _ => 0,
            },
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
            items.iter().map(show).collect::<Vec<_>>().join(", ")
        }
        match self {
            Self::Any => f.write_str("any processor"),
            Self::X86 {
                vendor,
                family,
                models,
            } => {
                write!(f, "{vendor} family {family:#x}")?;
                if models.is_empty() {
                    return Ok(());
                }
                let models = list(models, |(first, last)| {
                    if first == last {
                        format!("{first:#x}")
                    } else {
                        format!("{first:#x}-{last:#x}")
                    }
                });
                write!(f, " models {models}")
            }
            Self::Arm { implementer, parts } => {
                let parts = list(parts, |part| format!("{part:#x}"));
                write!(f, "implementer {implementer:#x} part {parts}")
            }
            Self::Power { pvr, cpu } => {
                let pvr = list(pvr, |pvr| format!("{pvr:#06x}"));
                write!(f, "pvr {pvr} or {}", cpu.join(", "))
            }
        }
    }
}
