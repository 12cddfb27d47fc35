//! What threads did in the course of time, package by package, and why a policy moved them.

use crate::{
    experiment::{Measure, Only, Quantity, Run},
    sample::{Mark, Sample, ThreadStats},
};
use perch_sim::workload::{Step, ThreadModel, WorkloadModel};

/// The moment at which a thread had executed `instructions` instructions; between two marks its speed is taken as
/// steady.
fn moment(marks: &[Mark], instructions: u64) -> Option<f64> {
    let start = Mark {
        at: 0.0,
        instructions: 0,
    };
    let after = marks
        .iter()
        .position(|mark| mark.instructions >= instructions)?;
    let (to, from) = (
        marks[after],
        after.checked_sub(1).map_or(start, |at| marks[at]),
    );
    let done = to.instructions - from.instructions;
    if done == 0 {
        return Some(from.at);
    }
    let part = (instructions - from.instructions) as f64 / done as f64;
    Some(from.at + part * (to.at - from.at))
}

/// Instructions of each step that computes; `None` if one never ends.
fn steps(model: &ThreadModel) -> Option<Vec<u64>> {
    let computing = model.steps.iter().filter_map(|step| match step {
        Step::Compute { instructions, .. } => Some(*instructions),
        _ => None,
    });
    let steps: Vec<u64> = computing.collect();
    let ends = !steps.is_empty() && steps.iter().all(|step| *step < u64::MAX);
    ends.then_some(steps)
}

/// The kind of a thread.
fn model<'w>(workload: &'w WorkloadModel, stats: &ThreadStats) -> Option<&'w ThreadModel> {
    let programs = workload.programs.iter();
    let mut kinds = programs
        .filter(|program| program.name == stats.program)
        .flat_map(|program| &program.threads);
    kinds.find(|kind| kind.name == stats.name)
}

/// Seconds that one run of a thread's steps takes at the speed that it had on average.
fn run_time(stats: &ThreadStats, seconds: f64, workload: &WorkloadModel) -> Option<f64> {
    let whole: u64 = steps(model(workload, stats)?)?.iter().sum();
    Some(seconds * whole as f64 / stats.instructions as f64)
}

/// Seconds from the beginning to the end of a thread's computing step, counted from 1.
fn step_time(stats: &ThreadStats, step: usize, workload: &WorkloadModel) -> Option<f64> {
    let steps = steps(model(workload, stats)?)?;
    let before: u64 = steps.get(..step.checked_sub(1)?)?.iter().sum();
    let after = before + steps.get(step - 1)?;
    Some(moment(&stats.marks, after)? - moment(&stats.marks, before)?)
}

/// Seconds until a thread has done all its steps once.
fn end(stats: &ThreadStats, workload: &WorkloadModel) -> Option<f64> {
    let whole = steps(model(workload, stats)?)?.iter().sum();
    moment(&stats.marks, whole)
}

/// The values of a measure at one point of its run's sweep, one for each of the samples, which are those that count.
pub(crate) fn values(measure: &Measure, run: &Run, at: usize, samples: &[&Sample]) -> Vec<f64> {
    let workload = &run.workloads[at];
    samples
        .iter()
        .filter_map(|sample| value(measure, run, workload, sample))
        .filter(|value| value.is_finite())
        .collect()
}

fn value(measure: &Measure, run: &Run, workload: &WorkloadModel, sample: &Sample) -> Option<f64> {
    let places = run.machine.places();
    let Only {
        package,
        step,
        reason,
    } = &measure.only;
    let there = |stats: &&ThreadStats| {
        let core = &run.machine.cores[places[stats.pu as usize].0];
        package.is_none_or(|package| core.package == package)
    };
    let named = |stats: &&ThreadStats| {
        let name = measure.thread.as_deref();
        name.is_none_or(|name| stats.name == name)
    };
    let threads = || sample.threads.iter().filter(there).filter(named);
    let sum = |what: fn(&ThreadStats) -> u64| {
        Some(threads().map(what).sum::<u64>() as f64 / sample.cycles)
    };
    let mean = |of: &dyn Fn(&ThreadStats) -> Option<f64>| {
        let values: Vec<f64> = threads().map(of).collect::<Option<_>>()?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    match measure.of {
        Quantity::Work => sum(|stats| stats.instructions),
        Quantity::FpWork => sum(|stats| stats.fp_instructions),
        Quantity::L2Work => sum(|stats| stats.l2_misses),
        Quantity::RunTime => mean(&|stats| run_time(stats, sample.seconds, workload)),
        Quantity::StepTime => mean(&|stats| step_time(stats, (*step)?, workload)),
        Quantity::TotalTime => {
            let ends: Vec<f64> = threads()
                .map(|stats| end(stats, workload))
                .collect::<Option<_>>()?;
            Some(ends.iter().sum())
        }
        Quantity::Moves => {
            let word = reason.as_deref().unwrap_or("");
            let moves = sample.moves.iter();
            Some(moves.filter(|reason| reason.contains(word)).count() as f64)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::config::find_workload;
    use proptest::prelude::*;

    fn marks(points: &[(f64, u64)]) -> Vec<Mark> {
        let mark = |(at, instructions): &(f64, u64)| Mark {
            at: *at,
            instructions: *instructions,
        };
        points.iter().map(mark).collect()
    }

    #[test]
    fn moments_between_marks_are_told_by_the_speed_between_them() {
        let marks = marks(&[(5.0, 100), (10.0, 100), (15.0, 300)]);
        assert_eq!(moment(&marks, 0), Some(0.0));
        assert_eq!(moment(&marks, 50), Some(2.5));
        assert_eq!(moment(&marks, 100), Some(5.0));
        assert_eq!(moment(&marks, 200), Some(12.5));
        assert_eq!(moment(&marks, 301), None);
    }

    proptest! {
        #[test]
        fn the_steps_add_up_to_the_whole(
            speeds in proptest::collection::vec(1u64..50, 40..60),
            lengths in proptest::collection::vec(1u64..100, 1..6),
        ) {
            let mut workload = find_workload("phases").unwrap();
            let program = workload.programs[0].name.clone();
            let kind = &mut workload.programs[0].threads[0];
            kind.steps = lengths
                .iter()
                .map(|instructions| Step::Compute { mix: 0, instructions: *instructions })
                .collect();
            let name = kind.name.clone();
            let mut done = 5_000;
            let mut all = vec![Mark { at: 1.0, instructions: done }];
            for (at, speed) in speeds.iter().enumerate() {
                done += speed;
                all.push(Mark { at: at as f64 + 2.0, instructions: done });
            }
            let stats = ThreadStats { name, program, marks: all, instructions: done, ..ThreadStats::default() };
            let steps: Option<f64> = (1..=lengths.len()).map(|step| step_time(&stats, step, &workload)).sum();
            let whole = end(&stats, &workload).unwrap();
            prop_assert!((steps.unwrap() - whole).abs() < 1e-9);
            prop_assert_eq!(step_time(&stats, lengths.len() + 1, &workload), None);
            prop_assert_eq!(step_time(&stats, 0, &workload), None);
        }
    }

    #[test]
    fn a_run_takes_what_its_instructions_take_at_the_mean_speed() {
        let mut workload = find_workload("phases").unwrap();
        let program = workload.programs[0].name.clone();
        let kind = &mut workload.programs[0].threads[0];
        kind.steps = vec![Step::Compute {
            mix: 0,
            instructions: 300,
        }];
        let stats = ThreadStats {
            name: kind.name.clone(),
            program,
            instructions: 1_000,
            ..ThreadStats::default()
        };
        assert_eq!(run_time(&stats, 10.0, &workload), Some(3.0));
        workload.programs[0].threads[0].steps = vec![Step::Sleep(1)];
        assert_eq!(run_time(&stats, 10.0, &workload), None);
    }
}
