//! From what simulations counted to the numbers that claims are made of.

use crate::{
    course,
    experiment::{Chosen, Experiment, Measure, Place, Quantity, Run, Take},
    placement,
    sample::{Sample, ThreadStats},
};
use perch_policy::cpi::{Running, SoloCpi};
use perch_sim::{model::MachineModel, workload::WorkloadModel};

/// What the simulations of one run came to at one point of the sweep.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// One for each placement and seed.
    pub samples: Vec<Sample>,
    /// Each class of threads in isolation on the machine, with how many threads there are of it; only where a measure
    /// asks for them.
    pub alone: Vec<(Sample, usize)>,
}

/// All that was simulated, by run and by point.
pub type Simulated = Vec<Vec<Point>>;

/// The samples that count: of a search those of the best or the worst placement only.
fn chosen<'a>(run: &Run, point: &'a Point) -> Vec<&'a Sample> {
    let by_throughput = |a: &&Sample, b: &&Sample| a.throughput().total_cmp(&b.throughput());
    let all = point.samples.iter();
    match run.place {
        Place::Search {
            chosen: Chosen::Best,
            ..
        } => all.max_by(by_throughput).into_iter().collect(),
        Place::Search {
            chosen: Chosen::Worst,
            ..
        } => all.min_by(by_throughput).into_iter().collect(),
        _ => all.collect(),
    }
}

/// The values of a quantity at one point of a run's sweep, one for each sample that counts.
pub fn values(of: Quantity, thread: Option<&str>, run: &Run, at: usize, point: &Point) -> Vec<f64> {
    match of {
        Quantity::Bound => vec![bound(&run.machine, speeds(&point.alone))],
        Quantity::Placements => vec![point.samples.len() as f64],
        Quantity::Combinations => vec![combinations(&run.machine, &run.workloads[at])],
        Quantity::CpiError | Quantity::SoloError => {
            let inferred = of == Quantity::SoloError;
            let samples = chosen(run, point).into_iter();
            samples
                .filter_map(|sample| cpi_error(&run.machine, sample, &point.alone, inferred))
                .collect()
        }
        Quantity::Busy => {
            // A PU's cycles are those of its own core's clock.
            let machine = &run.machine;
            let first = machine
                .cores
                .first()
                .map_or(1, |core| machine.kind(core).cycle) as f64;
            let speed = |core| {
                let kind = machine.kind(core);
                f64::from(kind.contexts) * kind.duty * first / kind.cycle as f64
            };
            let pus: f64 = machine.cores.iter().map(speed).sum();
            let cycles = |sample: &Sample| {
                sample.threads.iter().map(|stats| stats.cycles).sum::<u64>() as f64
            };
            chosen(run, point)
                .into_iter()
                .map(|sample| cycles(sample) / sample.cycles / pus)
                .collect()
        }
        Quantity::Speedup => {
            let samples = chosen(run, point).into_iter();
            samples
                .filter_map(|sample| speedup(sample, &point.alone))
                .collect()
        }
        _ => {
            let samples = chosen(run, point).into_iter();
            samples
                .filter_map(|sample| value(of, thread, sample))
                .collect()
        }
    }
}

/// The value in one sample; `None` if nothing happened from which to compute it.
fn value(of: Quantity, thread: Option<&str>, sample: &Sample) -> Option<f64> {
    let threads = sample.threads.iter();
    let threads: Vec<&ThreadStats> = threads
        .filter(|stats| thread.is_none_or(|name| stats.name == name))
        .collect();
    let sum =
        |what: fn(&ThreadStats) -> u64| threads.iter().map(|stats| what(stats)).sum::<u64>() as f64;
    let number = match of {
        Quantity::Throughput => sample.throughput(),
        Quantity::Cpi | Quantity::Delay => {
            let ran = threads.iter().filter(|stats| stats.instructions > 0);
            let cpis: Vec<f64> = ran
                .map(|stats| stats.cycles as f64 / stats.instructions as f64)
                .collect();
            let delay = if of == Quantity::Delay { 1.0 } else { 0.0 };
            cpis.iter().sum::<f64>() / cpis.len() as f64 - delay
        }
        Quantity::FpUsage => mean(&threads, |stats| {
            Some(1.0 - stats.fp_empty_cycles? as f64 / stats.cycles as f64)
        })?,
        Quantity::FpRate => mean(&threads, |stats| {
            Some(stats.fp_instructions as f64 / stats.cycles as f64)
        })?,
        Quantity::L2Rate => mean(&threads, |stats| {
            Some(stats.l2_misses as f64 / stats.cycles as f64)
        })?,
        Quantity::L2Misses => {
            1000.0 * sum(|stats| stats.l2_misses) / sum(|stats| stats.instructions)
        }
        Quantity::L1Hits => 1.0 - sum(|stats| stats.l1_misses) / sum(|stats| stats.accesses),
        Quantity::Migrations => sum(|stats| stats.migrations),
        Quantity::ResponseTime | Quantity::ResponseP95 | Quantity::Requests => {
            requests(of, sample)?
        }
        Quantity::Power => sample.energy.as_ref()?.watts,
        Quantity::Energy => sample.energy.as_ref()?.nanojoules_an_instruction,
        Quantity::Bound
        | Quantity::Work
        | Quantity::FpWork
        | Quantity::L2Work
        | Quantity::RunTime
        | Quantity::StepTime
        | Quantity::TotalTime
        | Quantity::Moves
        | Quantity::CpiError
        | Quantity::SoloError
        | Quantity::Busy
        | Quantity::Speedup
        | Quantity::Placements
        | Quantity::Combinations => {
            return None;
        }
    };
    number.is_finite().then_some(number)
}

/// The mean over the threads that ran; `None` if one of them has no such number.
fn mean(threads: &[&ThreadStats], of: impl Fn(&ThreadStats) -> Option<f64>) -> Option<f64> {
    let ran = threads.iter().filter(|stats| stats.cycles > 0);
    let numbers: Vec<f64> = ran.map(|stats| of(stats)).collect::<Option<_>>()?;
    Some(numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// What became of the requests of a sample; `None` if there were none.
fn requests(of: Quantity, sample: &Sample) -> Option<f64> {
    let replied = !sample.responses.is_empty();
    match of {
        Quantity::Requests => replied.then(|| sample.responses.len() as f64 / sample.seconds),
        Quantity::ResponseTime => {
            replied.then(|| sample.responses.iter().sum::<f64>() / sample.responses.len() as f64)
        }
        _ => {
            let mut times = sample.responses.clone();
            times.sort_by(f64::total_cmp);
            let rank = (0.95 * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied()
        }
    }
}

/// Each thread's speed over that of its kind in isolation, summed. The names of programs and threads identify kinds.
fn speedup(sample: &Sample, alone: &[(Sample, usize)]) -> Option<f64> {
    let ratios = sample.threads.iter().map(|stats| {
        let mut lone = alone
            .iter()
            .filter_map(|(sample, _)| Some((sample.threads.first()?, sample)));
        let (_, lone) = lone.find(|(lone, _)| lone.is_like(stats))?;
        let ratio = stats.instructions as f64 / sample.cycles / lone.throughput();
        ratio.is_finite().then_some(ratio)
    });
    ratios.sum()
}

/// The mean relative error of CPIs beside others, as they are measured or with the CPI alone inferred from them.
fn cpi_error(
    machine: &MachineModel,
    sample: &Sample,
    alone: &[(Sample, usize)],
    inferred: bool,
) -> Option<f64> {
    let places = machine.places();
    let mut errors = Vec::new();
    for (number, core) in machine.cores.iter().enumerate() {
        let here: Vec<&ThreadStats> = sample
            .threads
            .iter()
            .filter(|stats| places[stats.pu as usize].0 == number)
            .collect();
        let running = here.iter().map(|stats| Running {
            ipc: stats.instructions as f64 / stats.cycles as f64,
            presence: stats.cycles as f64 / sample.cycles,
        });
        let running: Vec<Running> = running.collect();
        let kind = machine.kind(core);
        let estimator = SoloCpi {
            width: f64::from(kind.width),
            contexts: kind.contexts as usize,
        };
        let estimates: Vec<f64> = match inferred {
            true => estimator
                .infer(&running)
                .iter()
                .map(|solo| solo.demand)
                .collect(),
            false => running.iter().map(|running| running.ipc).collect(),
        };
        for (stats, ipc) in here.iter().zip(estimates) {
            let lone = alone
                .iter()
                .filter_map(|(sample, _)| sample.threads.first());
            let lone = lone.into_iter().find(|lone| lone.is_like(stats))?;
            let truth = lone.cycles as f64 / lone.instructions as f64;
            errors.push((1.0 / ipc - truth).abs() / truth);
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    mean.is_finite().then_some(mean)
}

/// No placement has a greater throughput, in instructions of all threads in a cycle of the first kind of core: the cores
/// cannot issue more, and the threads, of which one a PU runs at a time, would not do more alone. `alone` has each
/// thread's speed alone, in the same unit. Not for threads that bring data in for each other.
pub fn bound(machine: &MachineModel, alone: impl IntoIterator<Item = f64>) -> f64 {
    let cycle = machine
        .cores
        .first()
        .map_or(1, |core| machine.kind(core).cycle) as f64;
    let issued = machine.cores.iter().map(|core| {
        let kind = machine.kind(core);
        // A slower clock issues less in a cycle of the first.
        f64::from(kind.width) * kind.duty * cycle / kind.cycle as f64
    });
    let mut demands: Vec<f64> = alone.into_iter().collect();
    demands.sort_by(|a, b| b.total_cmp(a));
    let demanded: f64 = demands.iter().take(machine.pus()).sum();
    issued.sum::<f64>().min(demanded)
}

/// Each thread's speed alone, of samples of each class.
fn speeds(alone: &[(Sample, usize)]) -> impl Iterator<Item = f64> {
    alone
        .iter()
        .flat_map(|(sample, threads)| std::iter::repeat_n(sample.throughput(), *threads))
}

/// log10 of n! / ((n - m)! · Π c_i!): m of n threads are chosen for cores of c_i contexts.
fn combinations(machine: &MachineModel, workload: &WorkloadModel) -> f64 {
    let threads = placement::slots(workload).len();
    let factorial = |n: usize| (2..=n).map(|k| (k as f64).log10()).sum::<f64>();
    let mut left = threads;
    let mut all = factorial(threads);
    for core in &machine.cores {
        let here = left.min(machine.kind(core).contexts as usize);
        all -= factorial(here);
        left -= here;
    }
    all - factorial(left)
}

/// Several values as one; `None` of nothing.
pub fn take(how: Take, mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (least, greatest) = (*values.first()?, *values.last()?);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let middle = values.len() / 2;
    Some(match how {
        Take::Mean => mean,
        Take::Median if values.len() % 2 == 1 => values[middle],
        Take::Median => (values[middle - 1] + values[middle]) / 2.0,
        Take::Least => least,
        Take::Greatest => greatest,
        Take::Spread => (greatest - least) / mean,
        Take::Deviation => {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt() / mean
        }
    })
}

/// The number that a measure stands for.
///
/// # Errors
/// In words, if nothing was counted from which to compute it.
pub fn measured(
    measure: &Measure,
    experiment: &Experiment,
    simulated: &Simulated,
) -> Result<f64, String> {
    let run = &experiment.runs[measure.run];
    let thread = measure.thread.as_deref();
    let points = simulated[measure.run].len();
    let at: Vec<usize> = match measure.at.as_slice() {
        [] => (0..points).collect(),
        at => at.to_vec(),
    };
    let mut all = Vec::new();
    for at in at {
        let values = |run: &Run, point: &Point| match measure.of.is_of_course() {
            true => course::values(measure, run, at, &chosen(run, point)),
            false => values(measure.of, thread, run, at, point),
        };
        let here = values(run, &simulated[measure.run][at]);
        let Some(per) = measure.per else {
            all.extend(here);
            continue;
        };
        let other = &experiment.runs[per];
        let there = values(other, &simulated[per][at]);
        let ratio = take(Take::Mean, here).zip(take(Take::Mean, there));
        all.extend(
            ratio
                .map(|(ours, theirs)| ours / theirs)
                .filter(|ratio| ratio.is_finite()),
        );
    }
    take(measure.take, all).ok_or_else(|| {
        format!(
            "no {} was counted for `{}` in run `{}`",
            measure.of.name(),
            measure.name,
            run.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::config::{find_machine, find_workload};
    use proptest::prelude::*;

    fn sample(cycles: f64, instructions: &[u64]) -> Sample {
        let stats = |instructions: &u64| ThreadStats {
            name: "t".to_owned(),
            pu: 0,
            instructions: *instructions,
            cycles: cycles as u64,
            accesses: 10,
            l1_misses: 1,
            migrations: 2,
            fp_instructions: 10,
            fp_empty_cycles: Some(25),
            l2_misses: 3,
            ..ThreadStats::default()
        };
        Sample {
            cycles,
            moves: Vec::new(),
            threads: instructions.iter().map(stats).collect(),
            seconds: 2.0,
            responses: (1..=20).map(f64::from).collect(),
            energy: None,
            settled: true,
        }
    }

    #[test]
    fn quantities_are_what_their_names_say() {
        let sample = sample(100.0, &[50, 25]);
        let of = |of| value(of, None, &sample).unwrap();
        assert_eq!(of(Quantity::Throughput), 0.75);
        assert_eq!(of(Quantity::Cpi), 3.0);
        assert_eq!(of(Quantity::Delay), 2.0);
        assert_eq!(of(Quantity::L1Hits), 0.9);
        assert_eq!(of(Quantity::Migrations), 4.0);
        assert_eq!(of(Quantity::FpUsage), 0.75);
        assert_eq!(of(Quantity::FpRate), 0.1);
        assert_eq!(of(Quantity::L2Rate), 0.03);
        assert_eq!(of(Quantity::L2Misses), 80.0);
        assert_eq!(value(Quantity::Cpi, Some("nobody"), &sample), None);
        assert_eq!(of(Quantity::ResponseTime), 10.5);
        assert_eq!(of(Quantity::ResponseP95), 19.0);
        assert_eq!(of(Quantity::Requests), 10.0);
        assert_eq!(value(Quantity::Power, None, &sample), None);
    }

    #[test]
    fn a_bound_is_the_less_of_what_cores_issue_and_threads_ask_for() {
        let machine = find_machine("cmt-4x4").unwrap();
        let bound = |alone: &[(u64, usize)]| {
            let sample = |(ipc, threads): &(u64, usize)| (sample(100.0, &[*ipc]), *threads);
            let alone: Vec<(Sample, usize)> = alone.iter().map(sample).collect();
            super::bound(&machine, speeds(&alone))
        };
        assert_eq!(bound(&[(100, 4), (50, 12)]), 4.0);
        assert_eq!(bound(&[(50, 4)]), 2.0);
        // Only as many as there are contexts run at a time, the greediest.
        let many = bound(&[(20, 1), (10, 100)]);
        assert!((many - 1.7).abs() < 1e-9, "{many}");
    }

    #[test]
    fn speedup_is_what_threads_do_of_what_they_do_alone() {
        let alone = [(sample(100.0, &[80]), 2)];
        assert_eq!(speedup(&sample(100.0, &[80]), &alone), Some(1.0));
        assert_eq!(speedup(&sample(200.0, &[80, 40]), &alone), Some(0.75));
        // Another program's thread of the same name is another kind.
        let named = |program: &str, done: u64| {
            let mut sample = sample(100.0, &[done]);
            sample.threads[0].program = program.to_owned();
            sample
        };
        let alone = [(named("quick", 80), 1), (named("slow", 20), 1)];
        assert_eq!(speedup(&named("slow", 10), &alone), Some(0.5));
        assert_eq!(speedup(&sample(200.0, &[80, 40]), &[]), None);
    }

    #[test]
    fn errors_of_cpi_are_parts_of_the_cpi_alone() {
        let machine = find_machine("cmt-4x4").unwrap();
        let alone = [(sample(100.0, &[50]), 1)];
        // Alone it takes 2 cycles an instruction, here 4.
        let beside = sample(100.0, &[25]);
        assert_eq!(cpi_error(&machine, &beside, &alone, false), Some(1.0));
        // With no other thread on its core there is nothing to be inferred.
        let inferred = cpi_error(&machine, &beside, &alone, true).unwrap();
        assert!((inferred - 1.0).abs() < 1e-3, "{inferred}");
        assert_eq!(cpi_error(&machine, &beside, &[], false), None);
    }

    #[test]
    fn combinations_are_counted_by_core() {
        let machine = find_machine("cmt-4x4").unwrap();
        let workload = find_workload("cmt-table1").unwrap();
        // 16! / 4!^4 = 63063000.
        let count = 10f64.powf(combinations(&machine, &workload));
        assert!((count / 63_063_000.0 - 1.0).abs() < 1e-9, "{count}");
    }

    proptest! {
        #[test]
        fn what_is_taken_lies_between_least_and_greatest(values in proptest::collection::vec(0.1f64..10.0, 1..20)) {
            let one = |how| take(how, values.clone()).unwrap();
            let (least, greatest) = (one(Take::Least), one(Take::Greatest));
            prop_assert!(values.iter().all(|v| (least..=greatest).contains(v)));
            for how in [Take::Mean, Take::Median] {
                prop_assert!(one(how) >= least - 1e-12 && one(how) <= greatest + 1e-12);
            }
            // Half the width bounds it, but for the sample's correction.
            prop_assert!(one(Take::Deviation) * one(Take::Mean) <= (greatest - least) / 2f64.sqrt() + 1e-9);
            prop_assert!((one(Take::Spread) * one(Take::Mean) - (greatest - least)).abs() < 1e-9);
        }
    }
}
