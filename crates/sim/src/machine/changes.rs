//! What perch may change on a simulated machine: masks, nice values, clocks and their modulation, at once and without privileges.

use super::SimMachine;
use crate::{memory::CONFINABLE, model::OperatingPoint};
use perch_core::{
    Affinity, CacheAllocation, CacheWays, MaskChange, MaskError, NiceChange, Outcome, ProcessId,
    PuSet, Setting, SettingChange, SettingChoices, SettingSample, SettingValue, Settings, ThreadId,
    WayMask, WaysChange, Weights, affinity::Descendant,
};

impl Affinity for SimMachine {
    /// Masks change at once.
    fn settle(&self) {}

    /// There are no users.
    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        let index = self.index(thread).ok_or(MaskError::Gone)?;
        Ok(self.system.threads()[index].mask.clone())
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let Some(index) = self.index(change.thread) else {
            return Outcome::Gone;
        };
        if self.system.threads()[index].mask != change.expect {
            return Outcome::ChangedByOthers;
        }
        let usable = change.set.and(self.system.default_mask());
        if usable.is_empty() {
            return Outcome::NoUsablePu;
        }
        self.system.set_mask(index, usable);
        Outcome::Applied
    }

    fn weights(&mut self) -> Option<&mut dyn Weights> {
        Some(self)
    }

    fn cache_allocation(&mut self) -> Result<&mut dyn CacheAllocation, String> {
        Ok(self)
    }

    fn settings(&mut self) -> Option<&mut dyn Settings> {
        match self.points().is_empty() {
            true => None,
            false => Some(self),
        }
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        Some(self.system.default_mask().clone())
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        // A thread of a simulated program never inherits a mask: each starts with the default one.
        Ok(Vec::new())
    }
}

impl Weights for SimMachine {
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError> {
        let index = self.index(thread).ok_or(MaskError::Gone)?;
        Ok(self.system.threads()[index].nice)
    }

    /// There are no users, so no privileges.
    fn permitted(&self, _: &NiceChange) -> Result<(), String> {
        Ok(())
    }

    fn may_be_lowered(&self, _: ThreadId, _: i32) -> bool {
        true
    }

    fn change_nice(&mut self, change: &NiceChange) -> Outcome {
        let Some(index) = self.index(change.thread) else {
            return Outcome::Gone;
        };
        if self.system.threads()[index].nice != change.expect {
            return Outcome::ChangedByOthers;
        }
        self.system.set_nice(index, change.set);
        Outcome::Applied
    }
}

/// Caches of all machines can be allocated, whether or not those of the processor can that is modelled.
impl CacheAllocation for SimMachine {
    fn ways(&self, thread: ThreadId, level: u8) -> Result<Option<WayMask>, MaskError> {
        let index = self.index(thread).ok_or(MaskError::Gone)?;
        Ok(self.system.threads()[index].ways.of(level))
    }

    fn fits(&self, thread: ThreadId, ways: CacheWays) -> Result<(), String> {
        if self.index(thread).is_some_and(|index| index >= CONFINABLE) {
            return Err(format!(
                "only the first {CONFINABLE} threads of a run can be confined to ways of a cache"
            ));
        }
        let machine = self.system.machine();
        let name = &machine.name;
        let caches = machine.caches.iter();
        let of_level = caches.filter(|cache| cache.level == ways.level());
        match of_level.map(|cache| cache.ways).min() {
            None => Err(format!("{name} has no cache of level {}", ways.level())),
            Some(number) if number < ways.ways().needs() => Err(format!(
                "{ways} needs {} ways, but a cache of level {} of {name} has only {number}",
                ways.ways().needs(),
                ways.level()
            )),
            Some(_) => Ok(()),
        }
    }

    fn change_ways(&mut self, change: &WaysChange) -> Outcome {
        let Some(index) = self.index(change.thread) else {
            return Outcome::Gone;
        };
        if self.system.threads()[index].ways.of(change.level) != change.expect {
            return Outcome::ChangedByOthers;
        }
        let ways = change.set.map(|set| CacheWays::new(change.level, set));
        let fits = |ways| self.fits(change.thread, ways).is_ok();
        if !ways.is_none_or(|ways| ways.is_ok_and(fits)) {
            return Outcome::NotPermitted;
        }
        self.system.set_ways(index, change.level, change.set);
        Outcome::Applied
    }
}

impl SimMachine {
    /// What can be set of cores, with what it is now. Each core whose kind has several clocks has a cpufreq policy of its
    /// own, and each whose clock modulation can be set a cooling device, with the number of its first PU.
    pub(super) fn points(&self) -> Vec<SettingSample> {
        let machine = self.system.machine();
        let mut first = 0;
        let samples = machine.cores.iter().enumerate().flat_map(|(core, at)| {
            let kind = machine.kind(at);
            let pus = first..first + kind.contexts;
            first = pus.end;
            let sample = |setting, value: u64, choices| SettingSample {
                setting,
                governs: pus.clone().collect(),
                value: SettingValue::Number(value),
                choices,
            };
            let point = self.system.point(core);
            let clock = (!kind.clocks.is_empty()).then(|| {
                let choices = SettingChoices::Numbers(kind.clocks.clone());
                sample(Setting::MaxFrequency(pus.start), point.clock, choices)
            });
            let throttling = kind.duty_steps.checked_sub(1).map(|most| {
                let choices = SettingChoices::Range(0, u64::from(most));
                let state = u64::from(point.throttling);
                sample(Setting::Throttling(pus.start), state, choices)
            });
            [clock, throttling]
        });
        samples.flatten().collect()
    }

    fn point(&self, setting: &Setting) -> Option<SettingSample> {
        let mut all = self.points().into_iter();
        all.find(|sample| sample.setting == *setting)
    }
}

impl Settings for SimMachine {
    fn settings(&self) -> Vec<SettingSample> {
        self.points()
    }

    fn setting(&self, setting: &Setting) -> Result<SettingValue, MaskError> {
        let unknown = || MaskError::Other(format!("{setting}: this machine does not have it"));
        let found = self.point(setting).map(|sample| sample.value);
        found.ok_or_else(unknown)
    }

    fn change_setting(&mut self, change: &SettingChange) -> Outcome {
        let Some(sample) = self.point(&change.setting) else {
            return Outcome::Gone;
        };
        if sample.value != change.expect {
            return Outcome::ChangedByOthers;
        }
        let (SettingValue::Number(value), true) = (&change.set, sample.choices.allow(&change.set))
        else {
            return Outcome::NotPermitted;
        };
        let pu = sample.governs.first().unwrap_or_default() as usize;
        let core = self.system.machine().places()[pu].0;
        let before = self.system.point(core);
        let point = match change.setting {
            Setting::Throttling(_) => OperatingPoint {
                throttling: *value as u32,
                ..before
            },
            _ => OperatingPoint {
                clock: *value,
                ..before
            },
        };
        self.system.set_point(core, point);
        Outcome::Applied
    }
}
