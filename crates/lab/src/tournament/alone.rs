//! What each thread does alone on the machine: the measure of what it gets beside others.

use crate::{
    experiment::{Span, Times},
    sample::ThreadStats,
    simulate::{Job, Placer, simulate},
};
use perch_core::topology::CoreKind;
use perch_sim::{topology::topology, workload::Step};
use std::{collections::HashMap, sync::Arc};

/// Cycles of the first core before the speed of a mix alone is counted, and while it is.
const COUNTED: (u64, u64) = (100_000, 400_000);

/// A thread in isolation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alone {
    /// What it does, again and again: instructions, and seconds of the operating system for each.
    phases: Vec<(f64, f64)>,
    /// Part of the time that it is on a PU.
    pub present: f64,
}

impl Alone {
    /// One that computes for ever; `pace` is in seconds an instruction.
    #[cfg(test)]
    pub fn steady(pace: f64) -> Self {
        Self {
            phases: vec![(1.0, pace)],
            present: 1.0,
        }
    }

    /// Each thread of a job, in the order in which they start.
    pub fn of_all(job: &Job) -> Result<Vec<Self>, String> {
        let mut paces: HashMap<usize, f64> = HashMap::new();
        let mut all = Vec::new();
        for (number, program) in job.workload.programs.iter().enumerate() {
            for thread in &program.threads {
                let (mut phases, mut asleep) = (Vec::new(), 0.0);
                for step in &thread.steps {
                    match step {
                        Step::Compute { mix, instructions } => {
                            let pace = match paces.get(mix) {
                                Some(known) => *known,
                                None => pace(job, number, *mix)?,
                            };
                            paces.insert(*mix, pace);
                            phases.push((*instructions as f64, pace));
                        }
                        Step::Sleep(time) => asleep += *time as f64 * 1e-9,
                        _ => {}
                    }
                }
                let busy: f64 = phases.iter().map(|(count, pace)| count * pace).sum();
                let alone = Self {
                    phases,
                    present: if asleep > 0.0 {
                        busy / (busy + asleep)
                    } else {
                        1.0
                    },
                };
                let copies = (thread.count * program.count) as usize;
                all.extend(std::iter::repeat_n(alone, copies));
            }
        }
        Ok(all)
    }

    /// Seconds that it needs alone for its first instructions.
    fn needs(&self, instructions: f64) -> f64 {
        let round: f64 = self.phases.iter().map(|(count, _)| count).sum();
        let rounds = (instructions / round).floor();
        let whole: f64 = self.phases.iter().map(|(count, pace)| count * pace).sum();
        let mut left = instructions - rounds * round;
        let mut needs = rounds * whole;
        for (count, pace) in &self.phases {
            let here = left.min(*count);
            needs += here * pace;
            left -= here;
        }
        needs
    }

    /// How fast it went on while it wanted a PU, 1 as alone; nothing if it never wanted one.
    pub fn progress(&self, stats: &ThreadStats) -> Option<f64> {
        let (from, to) = (stats.before, stats.before + stats.instructions);
        let needed = self.needs(to as f64) - self.needs(from as f64);
        (stats.wanted > 0.0).then(|| needed / stats.wanted)
    }

    /// The same of a thread that always wants one, in `seconds` seconds.
    pub fn steady_progress(&self, instructions: u64, seconds: f64) -> f64 {
        self.needs(instructions as f64) / seconds
    }
}

/// Seconds of the operating system that a mix takes alone for an instruction, on the kind of cores that suits it best.
fn pace(job: &Job, program: usize, mix: usize) -> Result<f64, String> {
    let mut workload = (*job.workload).clone();
    workload.programs = vec![workload.programs[program].clone()];
    let one = &mut workload.programs[0];
    one.count = 1;
    one.threads.truncate(1);
    one.threads[0].count = 1;
    one.threads[0].steps = vec![Step::Compute {
        mix,
        instructions: u64::MAX,
    }];
    let job = Job {
        workload: Arc::new(workload),
        times: Times {
            warm_up: Span::Cycles(COUNTED.0),
            length: Span::Cycles(COUNTED.1),
        },
        warm: true,
        ..job.clone()
    };
    let kinds = topology(&job.machine).kinds;
    let of_kind = |kind: &CoreKind| kind.pus.first().map(|pu| Placer::Fixed(vec![pu]));
    // Where all cores are alike, it makes no difference on which it runs.
    let placers: Vec<Placer> = match kinds.as_slice() {
        [_] => vec![Placer::Default],
        several => several.iter().filter_map(of_kind).collect(),
    };
    let mut least = f64::INFINITY;
    for placer in placers {
        let sample = simulate(&Job {
            placer,
            ..job.clone()
        })?;
        let instructions: u64 = sample
            .threads
            .iter()
            .map(|thread| thread.instructions)
            .sum();
        least = least.min(sample.seconds / instructions as f64);
    }
    match least.is_finite() {
        true => Ok(least),
        false => Err(format!("mix {mix} does nothing alone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::{
        config::{find_machine, find_workload},
        detail::{Detail, Fidelity},
    };
    use proptest::prelude::*;

    fn stats(before: u64, instructions: u64, wanted: f64) -> ThreadStats {
        ThreadStats {
            before,
            instructions,
            wanted,
            ..ThreadStats::default()
        }
    }

    proptest! {
        /// Whatever part of its rounds it is in: at its own pace its progress is 1, at half of it one half.
        #[test]
        fn progress_is_that_of_the_phases_passed(
            phases in proptest::collection::vec((1.0f64..1e6, 1e-9f64..1e-6), 1..4),
            before in 0u64..5_000_000,
            instructions in 1u64..5_000_000,
        ) {
            let phases: Vec<(f64, f64)> = phases.iter().map(|(count, pace)| (count.floor(), *pace)).collect();
            let alone = Alone { phases: phases.clone(), present: 1.0 };
            let round: f64 = phases.iter().map(|(count, _)| count).sum();
            // Instruction by instruction would take long: by the ends of phases.
            let mut needed = 0.0;
            let (mut at, end) = (before as f64, (before + instructions) as f64);
            while at < end {
                let mut within = at % round;
                let mut place = 0;
                while within >= phases[place].0 {
                    within -= phases[place].0;
                    place += 1;
                }
                let here = (phases[place].0 - within).min(end - at);
                needed += here * phases[place].1;
                at += here;
            }
            let found = alone.progress(&stats(before, instructions, needed)).unwrap();
            prop_assert!((found - 1.0).abs() < 1e-6, "{found}");
            let found = alone.progress(&stats(before, instructions, 2.0 * needed)).unwrap();
            prop_assert!((found - 0.5).abs() < 1e-6, "{found}");
        }
    }

    /// On a machine of two kinds of cores, the pace is that of the faster one, wherever a scheduler would put the thread.
    #[test]
    fn the_pace_is_that_of_the_best_kind_of_cores() {
        let machine = Arc::new(find_machine("big-little").unwrap().at_real_clocks());
        let workload = Arc::new(find_workload("fp-int-8").unwrap());
        let job = |seed| Job {
            machine: Arc::clone(&machine),
            workload: Arc::clone(&workload),
            detail: Detail::new(Fidelity::Interval, &machine, &workload),
            placer: Placer::Default,
            times: Times {
                warm_up: Span::Cycles(0),
                length: Span::Cycles(1),
            },
            seed,
            warm: false,
            marked: false,
        };
        let paces = |seed| {
            let all = Alone::of_all(&job(seed)).unwrap();
            all.iter()
                .map(|alone| alone.phases[0].1)
                .collect::<Vec<_>>()
        };
        let first = paces(0);
        for seed in 1..8 {
            for (one, other) in paces(seed).iter().zip(&first) {
                let far = (one / other - 1.0).abs();
                assert!(
                    far < 0.01,
                    "seed {seed}: {one} and {other} s an instruction"
                );
            }
        }
    }

    #[test]
    fn who_never_wanted_a_pu_has_no_progress() {
        let alone = Alone {
            phases: vec![(u64::MAX as f64, 1e-9)],
            present: 1.0,
        };
        assert_eq!(alone.progress(&stats(0, 0, 0.0)), None);
        assert_eq!(alone.progress(&stats(7, 0, 1.0)), Some(0.0));
    }
}
