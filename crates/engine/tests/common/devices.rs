//! A machine in memory whose devices interrupt its PUs.

use super::{
    killer::{Kill, Killer},
    set, topology,
};
use perch_core::{
    Affinity, EventPlan, IrqChange, IrqSample, IrqState, Irqs, Machine, MachineError, MaskChange,
    MaskError, Observation, Outcome, ProcessId, PuSet, ThreadId, Topology, Wake,
    affinity::Descendant,
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, RwLock},
    time::Duration,
};

/// How long a period is, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Something that happens to an interrupt.
#[derive(Debug, Clone)]
pub enum IrqOp {
    /// Another process sets its mask.
    Set { irq: u32, mask: PuSet },
    /// Its number goes over to another device.
    Replace { irq: u32, device: String },
    /// It comes this often a second.
    Rate { irq: u32, rate: u64 },
}

/// One period of the script: what happens before perch looks, and between its look and its deed.
#[derive(Debug, Clone, Default)]
pub struct IrqStep {
    pub before: Vec<IrqOp>,
    pub race: Vec<IrqOp>,
}

#[derive(Debug, Default)]
struct Shared {
    irqs: BTreeMap<u32, (IrqState, u64)>,
    killer: Killer,
}

/// Interrupts that a test and its machine share.
#[derive(Clone, Default)]
pub struct Devices(Arc<RwLock<Shared>>);

impl Devices {
    pub fn of(masks: &[(u32, &str)]) -> Self {
        let devices = Self::default();
        for (irq, mask) in masks {
            devices.put(*irq, "eth0", set(mask));
        }
        devices
    }

    pub fn put(&self, irq: u32, device: &str, mask: PuSet) {
        let state = IrqState {
            device: device.to_owned(),
            mask,
            movable: true,
        };
        self.0.write().unwrap().irqs.insert(irq, (state, 100));
    }

    pub fn manage(&self, irq: u32) {
        self.0
            .write()
            .unwrap()
            .irqs
            .get_mut(&irq)
            .unwrap()
            .0
            .movable = false;
    }

    pub fn run(&self, op: &IrqOp) {
        let mut shared = self.0.write().unwrap();
        let (IrqOp::Set { irq, .. } | IrqOp::Replace { irq, .. } | IrqOp::Rate { irq, .. }) = op;
        let Some((state, often)) = shared.irqs.get_mut(irq) else {
            return;
        };
        match op {
            IrqOp::Set { mask, .. } => state.mask = mask.clone(),
            IrqOp::Replace { device, .. } => state.device.clone_from(device),
            IrqOp::Rate { rate, .. } => *often = *rate,
        }
    }

    pub fn kill(&self, kill: Kill, dir: &Path) {
        self.0.write().unwrap().killer.arm(kill, dir);
    }

    /// The journals that a killed perch left; it is dead from now on, and others may change masks again.
    pub fn take_killed(&self) -> Option<Vec<Vec<u8>>> {
        self.0.write().unwrap().killer.take()
    }

    pub fn masks(&self) -> BTreeMap<u32, String> {
        let shared = self.0.read().unwrap();
        let irqs = shared.irqs.iter();
        irqs.map(|(irq, (state, _))| (*irq, state.mask.to_string()))
            .collect()
    }
}

impl Irqs for Devices {
    fn irq(&self, irq: u32) -> Result<IrqState, MaskError> {
        let shared = self.0.read().unwrap();
        let found = shared.irqs.get(&irq).map(|(state, _)| state.clone());
        found.ok_or(MaskError::Gone)
    }

    fn change_irq(&mut self, change: &IrqChange) -> Outcome {
        let mut shared = self.0.write().unwrap();
        if shared.killer.before_change() {
            return Outcome::Applied;
        }
        let outcome = match shared.irqs.get_mut(&change.irq) {
            Some((state, _)) if state.device != change.device => Outcome::Gone,
            Some((state, _)) if !state.movable => Outcome::NotPermitted,
            Some((state, _)) if state.mask == change.expect => {
                state.mask = change.set.clone();
                Outcome::Applied
            }
            Some(_) => Outcome::ChangedByOthers,
            None => Outcome::Gone,
        };
        shared.killer.after_change();
        outcome
    }
}

impl Affinity for Devices {
    fn settle(&self) {}

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, _: ThreadId) -> Result<PuSet, MaskError> {
        Err(MaskError::Gone)
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::Gone
    }

    fn irqs(&mut self) -> Option<&mut dyn Irqs> {
        Some(self)
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        None
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        Ok(Vec::new())
    }
}

/// A machine of four PUs without any threads of perch's, which follows a script.
pub struct Interrupted {
    pub devices: Devices,
    steps: Vec<IrqStep>,
    at: usize,
    watches: bool,
}

impl Interrupted {
    pub fn new(devices: &Devices, steps: &[IrqStep]) -> Self {
        Self {
            devices: devices.clone(),
            steps: steps.to_vec(),
            at: 0,
            watches: false,
        }
    }
}

impl Machine for Interrupted {
    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        Vec::new()
    }

    fn topology(&self) -> Arc<Topology> {
        Arc::new(topology(2, &set("0-3")))
    }

    fn configure(&mut self, _: &EventPlan) -> Result<(), MachineError> {
        Ok(())
    }

    fn watch_irqs(&mut self, watch: bool) -> Result<(), MachineError> {
        self.watches = watch;
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<Wake, MachineError> {
        let Some(step) = self.steps.get(self.at) else {
            return Ok(Wake::Ended(None));
        };
        step.before.iter().for_each(|op| self.devices.run(op));
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        let shared = self.devices.0.read().unwrap();
        let irqs = shared.irqs.iter().filter(|_| self.watches);
        let sample = |(irq, (state, rate)): (&u32, &(IrqState, u64))| IrqSample {
            label: irq.to_string(),
            what: "a test".to_owned(),
            interval: SECOND,
            // All come on the lowest PU of the mask.
            counts: vec![(state.mask.first().unwrap_or(0), *rate)],
            state: Some(state.clone()),
        };
        let mut irqs: Vec<IrqSample> = irqs.map(sample).collect();
        drop(shared);
        if self.watches {
            irqs.push(IrqSample {
                label: "LOC".to_owned(),
                what: "Local timer interrupts".to_owned(),
                interval: SECOND,
                counts: vec![(0, 250), (3, 250)],
                state: None,
            });
        }
        if let Some(step) = self.steps.get(self.at) {
            step.race.iter().for_each(|op| self.devices.run(op));
        }
        self.at += 1;
        Ok(Observation {
            at: self.at as u64 * SECOND,
            interval: SECOND,
            irqs,
            ..Observation::default()
        })
    }

    fn default_mask(&self) -> PuSet {
        set("0-3")
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.devices
    }

    fn counting(&self) -> String {
        "a script".to_owned()
    }
}
