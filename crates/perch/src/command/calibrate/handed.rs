//! What it costs to hand a line from one PU to another, measured now and then while the kernels run.

use perch_kernels::{Crew, CrewError};
use perch_lab::calibrate::Sites;
use perch_policy::{Share, Transfer};
use std::time::Duration;

/// How long a line is handed back and forth at each level on a visit.
const TIME: Duration = Duration::from_millis(20);

/// Visits of each level, spread over the calibration: a hypervisor moves the PUs of its guests between cores, where they
/// stay for some seconds, and a line costs several times as much when the two do not share a core.
const VISITS: f64 = 20.0;

/// A cost that varies by more than this factor is worth a note.
const VARIES: f64 = 2.0;

/// One level, and the seconds a line of each visit.
struct Level {
    share: Share,
    pus: [u32; 2],
    found: Vec<f64>,
}

/// The costs of all levels so far.
pub struct Handed {
    levels: Vec<Level>,
    every: f64,
    due: f64,
}

impl Handed {
    /// Nothing yet, in a calibration of so many seconds.
    pub fn new(sites: &Sites, seconds: f64) -> Self {
        let level = |level: &perch_lab::calibrate::Level| Level {
            share: level.share,
            pus: [level.pus[0], level.pus[1]],
            found: Vec::new(),
        };
        Self {
            levels: sites.levels.iter().map(level).collect(),
            every: seconds / VISITS,
            due: 0.0,
        }
    }

    /// Visits each level if it is time, so many seconds after the beginning.
    ///
    /// # Errors
    /// A PU to which no thread can be bound.
    pub fn visit(&mut self, crew: &mut Crew, now: f64) -> Result<(), CrewError> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + self.every;
        for level in &mut self.levels {
            let [a, b] = level.pus;
            level.found.extend(crew.hand_over(a, b, TIME)?);
        }
        Ok(())
    }

    /// The cost at each level that could be measured, and what a reader should know.
    pub fn transfers(self) -> (Vec<Transfer>, Vec<String>) {
        let (mut transfers, mut notes) = (Vec::new(), Vec::new());
        for mut level in self.levels {
            level.found.sort_unstable_by(f64::total_cmp);
            let (Some(low), Some(high)) = (level.found.first(), level.found.last()) else {
                notes.push(
                    "others had the PUs most of the time: what it costs to hand a line over is unknown"
                        .to_owned(),
                );
                continue;
            };
            let several = level.found.len() > 1;
            if several && *high > VARIES * low {
                notes.push(format!(
                    "handing a line from PU {} to PU {} cost {:.0} to {:.0} ns: on a virtual machine, PUs share a core of \
                     the host at some times and not at others",
                    level.pus[0],
                    level.pus[1],
                    low * 1e9,
                    high * 1e9
                ));
            }
            transfers.push(Transfer {
                share: level.share,
                seconds: level.found[level.found.len() / 2],
                low: several.then_some(*low),
                high: several.then_some(*high),
            });
        }
        (transfers, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(found: &[f64]) -> Handed {
        let level = Level {
            share: Share::Llc,
            pus: [0, 1],
            found: found.to_vec(),
        };
        Handed {
            levels: vec![level],
            every: 1.0,
            due: 0.0,
        }
    }

    #[test]
    fn the_median_is_told_with_the_least_and_the_most() {
        let (transfers, notes) = handed(&[1.6e-7, 3.2e-8, 3.3e-8, 3.2e-8]).transfers();
        let told = Transfer {
            share: Share::Llc,
            seconds: 3.3e-8,
            low: Some(3.2e-8),
            high: Some(1.6e-7),
        };
        assert_eq!(transfers, [told]);
        assert!(notes[0].contains("32 to 160 ns"), "{notes:?}");
    }

    #[test]
    fn one_visit_has_no_interval_and_none_no_cost() {
        let (transfers, notes) = handed(&[3.2e-8]).transfers();
        assert_eq!((transfers[0].low, notes.len()), (None, 0));
        let (transfers, notes) = handed(&[]).transfers();
        assert_eq!((transfers.len(), notes.len()), (0, 1));
    }
}
