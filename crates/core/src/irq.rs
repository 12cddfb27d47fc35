//! Interrupts of devices: what was seen of them, where they shall be delivered, and access to their masks.

use crate::{MaskError, Outcome, PuSet, Reason};
use serde::{Deserialize, Serialize};

/// Devices and affinity mask of an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqState {
    /// The devices that it belongs to, as the kernel names them; a number alone may be another device's later.
    pub device: String,
    /// Its affinity mask.
    pub mask: PuSet,
    /// Whether the kernel allows a change of the mask: not that of an interrupt which a driver manages or which belongs
    /// to each PU.
    pub movable: bool,
}

impl IrqState {
    /// Whether it may be the interrupt that had these devices: devices come to a line that others use, and go.
    pub fn may_be_of(&self, devices: &str) -> bool {
        devices_in_common(&self.device, devices)
    }
}

/// Whether two lists of devices, as the kernel names them, have one in common, or the kernel does not tell one of them.
pub fn devices_in_common(one: &str, other: &str) -> bool {
    let mut names = one.split(',');
    one.is_empty() || other.is_empty() || names.any(|name| other.split(',').any(|of| of == name))
}

/// One interrupt over its own interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqSample {
    /// Its number, or the short name of one that every PU has of its own (`LOC`, `RES`).
    pub label: String,
    /// Controller, kind and devices, as `/proc/interrupts` lists them.
    pub what: String,
    /// Length of this sample's interval, in nanoseconds.
    pub interval: u64,
    /// How often it came in the interval, by PU; only where it came.
    pub counts: Vec<(u32, u64)>,
    /// Its devices and its mask when the interval ended; `None` for one that every PU has of its own, and where that
    /// cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<IrqState>,
}

impl IrqSample {
    /// The number of one that belongs to a device.
    pub fn irq(&self) -> Option<u32> {
        self.label.parse().ok()
    }

    /// Interrupts per second on each PU.
    pub fn rates(&self) -> Vec<(u32, f64)> {
        let seconds = (self.interval as f64 * 1e-9).max(1e-3);
        let rate = |(pu, count): &(u32, u64)| (*pu, *count as f64 / seconds);
        self.counts.iter().map(rate).collect()
    }
}

/// An interrupt of a device in one period, as a policy sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqLoad {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// Interrupts per second on each PU that received any.
    pub rates: Vec<(u32, f64)>,
    /// PUs to which it may be sent: online, and in the mask that it had before perch. Empty for one that must stay: the
    /// kernel does not let it be moved, or another process has changed its mask since perch moved it.
    pub allowed: PuSet,
    /// The PUs to which perch has bound it; `None` if it has not.
    pub bound: Option<PuSet>,
}

/// Between what loads were balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IrqLevel {
    /// Loads of packages.
    Package,
    /// Loads of the PUs of one package.
    Pu,
}

/// A step of balancing: an interrupt that should go elsewhere, and what that changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqStep {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// The PU that received it before.
    pub from: u32,
    /// The PU that will receive it.
    pub to: u32,
    /// Between what loads are balanced by it.
    pub level: IrqLevel,
    /// The interrupt with which it is swapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<u32>,
    /// Highest and lowest load before, in interrupts a second.
    pub before: (f64, f64),
    /// The same two loads after.
    pub after: (f64, f64),
}

/// An interrupt, where it shall be delivered, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqBinding {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// Where: never empty, always within the PUs to which it may be sent.
    pub pus: PuSet,
    /// The reason for this binding, for the user.
    pub reason: Reason,
    /// What this period's balancing changes; `None` for one that stays where it was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<IrqStep>,
}

/// Sets an interrupt's mask to `set`, if it is still that device's and its mask still `expect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IrqChange {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// Its devices, as [`IrqState::device`].
    pub device: String,
    /// The mask that it must have now.
    pub expect: PuSet,
    /// The mask that it shall have.
    pub set: PuSet,
}

/// Access to the masks of interrupts, on machines that have any.
pub trait Irqs {
    /// Devices and affinity mask of the interrupt.
    ///
    /// # Errors
    /// No interrupt of that number, a mask that cannot be read.
    fn irq(&self, irq: u32) -> Result<IrqState, MaskError>;

    /// Compare and set: devices and present mask are checked right before.
    fn change_irq(&mut self, change: &IrqChange) -> Outcome;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_another_device_shares_is_the_same() {
        assert!(devices_in_common("eth0", "eth0,usb1"));
        assert!(devices_in_common("eth0", ""));
        assert!(!devices_in_common("eth0", "eth01,usb1"));
    }
}
