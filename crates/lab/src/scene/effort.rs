//! How long a simulation may take, before it is begun.

use super::Scene;
use perch_sim::detail::Detail;

/// Cycles of one thread that the cycle level simulates in a second of one host CPU, about (docs/simulator-speed.md).
const CYCLES: f64 = 15e6;

/// Seconds of one host CPU that the interval level takes for a second of the operating system, at least: 250 ticks.
const INTERVALS: f64 = 250.0 * 2e-6;

impl Scene {
    /// Seconds of one host CPU that a run takes at most, about: to tell minutes from years. `None` if the workload ends
    /// by itself, whatever time it is given.
    pub fn host_seconds(&self) -> Option<f64> {
        if !self.workload.is_endless() {
            return None;
        }
        let seconds = self.time.as_secs_f64();
        Some(match &self.detail {
            Detail::Interval(_) => seconds * INTERVALS,
            Detail::Cycle => {
                let programs = self.workload.programs.iter();
                let threads = programs.map(|program| {
                    let each = program.threads.iter().map(|thread| f64::from(thread.count));
                    f64::from(program.count) * each.sum::<f64>()
                });
                let busy = threads.sum::<f64>().min(self.machine.pus() as f64);
                let length = self.machine.first_cycle() as f64 * 1e-12;
                seconds / self.machine.scale / length * busy / CYCLES
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::{config, detail::Fidelity};
    use std::{sync::Arc, time::Duration};

    fn seconds(workload: &str, fidelity: Fidelity, time: u64) -> Option<f64> {
        let machine = Arc::new(config::find_machine("smt2-zen").unwrap());
        let workload = Arc::new(config::find_workload(workload).unwrap());
        let scene = Scene {
            detail: Detail::new(fidelity, &machine, &workload),
            machine,
            workload,
            time: Duration::from_secs(time),
            seed: 1,
            seeds: 1,
            search: 1,
            rules: Vec::new(),
            weights: Vec::new(),
            ways: Vec::new(),
            stays: false,
        };
        scene.host_seconds()
    }

    #[test]
    fn ten_years_are_more_than_ten_seconds() {
        let years = 10 * 365 * 86_400;
        let short = seconds("fp-int-8", Fidelity::Cycle, 10).unwrap();
        assert!((1.0..300.0).contains(&short), "{short}");
        let long = seconds("fp-int-8", Fidelity::Cycle, years).unwrap();
        assert!(long > 1e7 * short);
        assert!(seconds("fp-int-8", Fidelity::Interval, years).unwrap() < long / 100.0);
        // It ends by itself.
        assert_eq!(seconds("fork-join", Fidelity::Cycle, years), None);
    }
}
