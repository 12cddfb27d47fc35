//! What a thread of known phases does.

use crate::random;
use perch_sim::{
    stream::Random,
    workload::{Mix, ProgramModel, Step, ThreadModel, WorkloadModel},
};

/// Different behaviours of a thread.
const MIXES: u64 = 4;

/// The least and the greatest number of rows that a phase fills at one instruction a cycle.
const LENGTHS: (f64, f64) = (4.0, 60.0);

/// A part of a thread's run in which it does the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Which of the course's mixes.
    pub mix: usize,
    /// How many instructions.
    pub instructions: u64,
}

/// One thread's phases, in order.
#[derive(Debug, Clone)]
pub struct Course {
    /// Its behaviours.
    pub mixes: Vec<Mix>,
    /// Its phases; the last goes on for ever.
    pub phases: Vec<Phase>,
}

impl Course {
    /// Draws one for rows of `row` cycles: mixes at random, and phases of random length of which none has the mix of the
    /// one before. At one instruction a cycle it fills `rows` rows.
    pub fn drawn(row: u64, rows: u64, random: &mut Random) -> Self {
        let mixes: Vec<Mix> = (0..MIXES)
            .map(|number| random::mix(format!("m{number}"), random))
            .collect();
        let (mut phases, mut left) = (Vec::<Phase>::new(), (row * rows) as f64);
        while left > 0.0 {
            let spread = (LENGTHS.1 / LENGTHS.0).ln();
            let length = row as f64 * LENGTHS.0 * (spread * random.unit()).exp();
            let before = phases.last().map(|phase| phase.mix);
            let mix = match before {
                None => random.below(MIXES) as usize,
                Some(before) => (before + 1 + random.below(MIXES - 1) as usize) % MIXES as usize,
            };
            phases.push(Phase {
                mix,
                instructions: length as u64,
            });
            left -= length;
        }
        if let Some(last) = phases.last_mut() {
            last.instructions = u64::MAX;
        }
        Self { mixes, phases }
    }

    /// After how many instructions of the thread each phase but the last ends.
    pub fn ends(&self) -> Vec<u64> {
        let mut sum = 0u64;
        let ended = self.phases.iter().map(|phase| {
            sum = sum.saturating_add(phase.instructions);
            sum
        });
        ended.filter(|end| *end < u64::MAX).collect()
    }
}

/// A program of threads `t0`, `t1`, … with these courses.
pub(super) fn workload(courses: &[Course]) -> WorkloadModel {
    let mut mixes: Vec<Mix> = Vec::new();
    let threads = courses.iter().enumerate().map(|(number, course)| {
        let first = mixes.len();
        for (at, mix) in course.mixes.iter().enumerate() {
            mixes.push(Mix {
                name: format!("t{number}m{at}"),
                ..mix.clone()
            });
        }
        let steps = course.phases.iter().map(|phase| Step::Compute {
            mix: first + phase.mix,
            instructions: phase.instructions,
        });
        ThreadModel {
            name: format!("t{number}"),
            count: 1,
            steps: steps.collect(),
            repeat: 1,
            nice: 0,
            pus: Vec::new(),
        }
    });
    let threads = threads.collect();
    WorkloadModel {
        name: "phases".into(),
        about: "threads of known phases".into(),
        sources: Vec::new(),
        mixes,
        devices: Vec::new(),
        programs: vec![ProgramModel {
            name: "p".into(),
            count: 1,
            start: 0,
            restart: false,
            system: false,
            requests: None,
            threads,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_phase_goes_on_as_the_one_before() {
        for seed in 0..20 {
            let course = Course::drawn(1_000, 100, &mut Random::new(seed));
            for pair in course.phases.windows(2) {
                assert_ne!(pair[0].mix, pair[1].mix);
            }
            let ends = course.ends();
            assert_eq!(ends.len() + 1, course.phases.len());
            assert!(ends.is_sorted() && ends.iter().all(|end| *end > 0));
        }
    }
}
