//! What came of a run besides what its threads did: requests, devices and energy.

use super::System;
use crate::{
    energy::{EnergyStats, Mark},
    os::{DeviceStats, RequestStats, Served},
    units::Ps,
};
use serde::Serialize;

/// What came of a run besides what its threads did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The requests of each program that serves some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestStats>,
    /// The devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceStats>,
    /// What the machine took, if its energy is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyStats>,
}

impl System {
    /// What came of the run up to now.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            requests: self.requests(0),
            devices: self.devices.stats(self.now),
            energy: self.energy(),
        }
    }

    /// What the machine took of energy up to now, if that is modelled: from the beginning, or from the moment from which it
    /// is measured.
    pub fn energy(&self) -> Option<EnergyStats> {
        let now = self.mark()?;
        let from = self.measured.1.unwrap_or(now);
        Some(EnergyStats::between(&from, &now))
    }

    /// Measures energy from this moment on; if it is none at which a run ends, from the end of that run on.
    pub fn measure_energy_from(&mut self, from: Ps) {
        self.measured = (from, None);
        self.account();
        self.measure();
    }

    /// Brings up to date what is known of energy; threads must have been accounted for.
    pub(super) fn measure(&mut self) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        for (pu, deed) in self.deeds.iter_mut().enumerate() {
            deed.rest += meter.take_rest(pu, self.now);
        }
        if self.measured.1.is_none() && self.now >= self.measured.0 {
            self.measured.1 = self.mark();
        }
    }

    fn mark(&self) -> Option<Mark> {
        let threads = self.threads.iter();
        Some(Mark {
            at: self.now,
            energy: self.meter.as_ref()?.total(self.now),
            instructions: threads.map(|thread| thread.counters.instructions()).sum(),
        })
    }

    /// Statistics of the requests that were served from a moment on, for each program that serves some. Arrivals and
    /// refusals are those of the whole run.
    pub fn requests(&self, from: Ps) -> Vec<RequestStats> {
        let programs = self.workload.programs.iter().enumerate();
        let serving = programs.filter(|(_, program)| program.requests.is_some());
        let one = |(number, program): (usize, &crate::workload::ProgramModel)| {
            let processes = self.processes.iter().filter(|p| p.program == number);
            let queues = processes.filter_map(|process| process.requests.as_ref());
            let (mut served, mut arrived, mut dropped) = (Vec::new(), 0, 0);
            let mut unfinished = 0;
            for queue in queues {
                let counted = queue.served.iter().filter(|one| one.done >= from);
                served.extend(counted.copied());
                arrived += queue.arrived;
                dropped += queue.dropped;
                unfinished += queue.present() as u64;
            }
            let time = self.now.saturating_sub(from);
            let scale = self.machine.scale;
            let name = &program.name;
            RequestStats::of(name, &served, arrived, dropped, unfinished, time, scale)
        };
        serving.map(one).collect()
    }

    /// The requests of a process that were served so far, in the order of their replies.
    pub fn served(&self, process: usize) -> &[Served] {
        let requests = self.processes[process].requests.as_ref();
        requests.map_or(&[], |queue| &queue.served)
    }

    /// Requests of a process that wait or are in work.
    pub fn present(&self, process: usize) -> usize {
        let requests = self.processes[process].requests.as_ref();
        requests.map_or(0, |queue| queue.present())
    }
}
