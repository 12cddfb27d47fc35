//! Runs an experiment's simulations on all processors of the host.
//!
//! Each simulation is single-threaded and seeded; results are put together in the order of the file. How many host
//! threads there are therefore makes no difference.

use crate::{
    error::LabError,
    experiment::{Experiment, LeftOut, Place, Run, Shape},
    judge,
    measure::{self, Point, Simulated},
    parallel,
    placement::{self, Placement, Slot},
    results::{Measured, Picture, Results},
    sample::Sample,
    simulate::{Job, Placer, simulate},
    variation,
};
use perch_sim::{
    detail::{Detail, Fidelity},
    model::MachineModel,
    stream::Random,
    workload::WorkloadModel,
};
use std::{collections::HashMap, ops::Range, sync::Arc};

/// Receives the progress of an experiment: the command draws a bar.
pub trait Progress {
    /// An experiment begins.
    fn start(&mut self, _experiment: &str, _simulations: usize) {}

    /// `finished` of its simulations are done.
    fn done(&mut self, _finished: usize) {}

    /// It is over.
    fn end(&mut self) {}
}

/// Ignores the progress.
impl Progress for () {}

/// Runs an experiment on all processors of the host.
///
/// # Errors
/// A simulation that cannot go on; a claim for which nothing was measured.
pub fn run(experiment: &Experiment, progress: &mut dyn Progress) -> Result<Results, LabError> {
    run_on(experiment, parallel::host_threads(), progress)
}

/// Runs an experiment on `threads` host threads.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    experiment: &Experiment,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Results, LabError> {
    let variants = experiment
        .variants
        .iter()
        .map(|variant| &variant.experiment);
    let experiments: Vec<&Experiment> = std::iter::once(experiment).chain(variants).collect();
    let plans: Vec<Plan> = experiments
        .iter()
        .map(|experiment| plan(experiment))
        .collect();
    let all: Vec<(&Job, &String)> = (plans.iter())
        .flat_map(|plan| plan.jobs.iter().zip(&plan.owners))
        .collect();
    progress.start(&experiment.name, all.len());
    let samples = parallel::each(
        all.len(),
        threads,
        |at| simulate(all[at].0),
        |done| progress.done(done),
    );
    progress.end();
    let samples = samples.map_err(|(at, why)| LabError::Simulation {
        experiment: experiment.name.clone(),
        run: all[at].1.clone(),
        why,
    })?;
    let simulations = all.len();
    let mut rest = samples.as_slice();
    let mut outcomes = Vec::new();
    for (experiment, plan) in experiments.iter().zip(&plans) {
        let (own, others) = rest.split_at(plan.jobs.len());
        rest = others;
        let gather = |points: &Vec<Parts>| points.iter().map(|parts| parts.gather(own)).collect();
        let simulated: Simulated = plan.points.iter().map(gather).collect();
        outcomes.push(results(experiment, &simulated, plan)?);
    }
    let mut variants = outcomes.split_off(1).into_iter();
    let mut results = outcomes.remove(0);
    results.simulations = simulations;
    let names = experiment
        .variants
        .iter()
        .map(|variant| variant.name.as_str());
    let variants: Vec<(&str, Results)> = names.zip(variants.by_ref()).collect();
    variation::add_ranges(&mut results, &variants);
    Ok(results)
}

/// Where a point's samples are among all.
#[derive(Debug, Clone, Default)]
struct Parts {
    samples: Range<usize>,
    alone: Range<usize>,
    /// Threads of each class.
    classes: Vec<usize>,
}

impl Parts {
    fn gather(&self, samples: &[Sample]) -> Point {
        let alone = samples[self.alone.clone()].iter().cloned();
        Point {
            samples: samples[self.samples.clone()].to_vec(),
            alone: alone.zip(self.classes.iter().copied()).collect(),
        }
    }
}

/// What is to be simulated.
#[derive(Debug, Default)]
struct Plan {
    jobs: Vec<Job>,
    /// The run on whose account each job is.
    owners: Vec<String>,
    points: Vec<Vec<Parts>>,
    notes: Vec<String>,
    /// The levels of detail of machines with workloads: simulations of the same share what they find out.
    details: Vec<(Arc<MachineModel>, Arc<WorkloadModel>, Fidelity, Detail)>,
    /// Whether caches are warm.
    warm: bool,
    /// Whether it is kept how far threads were.
    marked: bool,
    /// Searches are done once for those who want the best, the worst and all placements.
    searched: HashMap<String, Range<usize>>,
}

fn plan(experiment: &Experiment) -> Plan {
    let mut plan = Plan {
        warm: experiment.warm,
        marked: experiment
            .measures
            .iter()
            .any(|measure| measure.of.needs_marks()),
        ..Plan::default()
    };
    let bounded = |run: usize| {
        let mut measures = experiment.measures.iter();
        measures.any(|measure| {
            let wants = measure.of.needs_alone();
            wants && (measure.run == run || measure.per == Some(run))
        })
    };
    for (number, run) in experiment.runs.iter().enumerate() {
        let points = (0..run.workloads.len()).map(|at| {
            let mut parts = Parts {
                samples: plan.add(run, at, &experiment.seeds),
                ..Parts::default()
            };
            if bounded(number) {
                (parts.alone, parts.classes) = plan.add_alone(run, at, experiment.seeds[0]);
            }
            parts
        });
        let points = points.collect();
        plan.points.push(points);
    }
    let scales = experiment.runs.iter().map(|run| run.machine.scale);
    let scale = scales.fold(1.0, f64::max);
    if scale > 1.0 {
        plan.notes.push(format!(
            "Clocks are scaled down: a second of the operating system is {scale} times shorter on the machine."
        ));
    }
    plan
}

impl Plan {
    fn push(&mut self, run: &Run, at: usize, placer: Placer, seed: u64) {
        let workload = match run.shuffled {
            true => Arc::new(placement::shuffled(
                &run.workloads[at],
                &mut Random::new(seed),
            )),
            false => Arc::clone(&run.workloads[at]),
        };
        self.owners.push(run.name.clone());
        let detail = self.detail(run, at);
        self.jobs.push(Job {
            detail,
            machine: Arc::clone(&run.machine),
            workload,
            placer,
            times: run.times,
            seed,
            warm: self.warm,
            marked: self.marked,
        });
    }

    fn detail(&mut self, run: &Run, at: usize) -> Detail {
        let (machine, workload) = (&run.machine, &run.workloads[at]);
        let mut known = self.details.iter();
        let same = known.find(|(its_machine, its_workload, fidelity, _)| {
            *fidelity == run.fidelity && its_machine == machine && its_workload == workload
        });
        if let Some((.., detail)) = same {
            return detail.clone();
        }
        let detail = Detail::new(run.fidelity, machine, workload);
        let (machine, workload) = (Arc::clone(machine), Arc::clone(workload));
        self.details
            .push((machine, workload, run.fidelity, detail.clone()));
        detail
    }

    /// The simulations of a run at a point of the sweep.
    fn add(&mut self, run: &Run, at: usize, seeds: &[u64]) -> Range<usize> {
        let first = self.jobs.len();
        let workload = &run.workloads[at];
        match &run.place {
            Place::Default => seeds
                .iter()
                .for_each(|seed| self.push(run, at, Placer::Default, *seed)),
            Place::Policy {
                name,
                options,
                inputs,
                period,
            } => {
                for seed in seeds {
                    let placer = Placer::Policy {
                        name: name.clone(),
                        options: options.clone(),
                        inputs: inputs.clone(),
                        period: *period,
                    };
                    self.push(run, at, placer, *seed);
                }
            }
            Place::Listed(placement) => {
                for seed in seeds {
                    self.push(run, at, Placer::Fixed(placement.clone()), *seed);
                }
            }
            Place::Random(draws) => {
                let slots = placement::slots(workload);
                for seed in seeds {
                    let mut random = Random::new(*seed);
                    for _ in 0..*draws {
                        let placement = drawn(run, &slots, &mut random);
                        self.push(run, at, Placer::Fixed(placement), *seed);
                    }
                }
            }
            Place::Search { most, .. } => return self.search(run, at, *most, seeds[0]),
        }
        first..self.jobs.len()
    }

    /// All placements that differ, with the first seed; a random choice if there are too many.
    fn search(&mut self, run: &Run, at: usize, most: usize, seed: u64) -> Range<usize> {
        let workload = &run.workloads[at];
        let key = format!(
            "{} {} {at} {most} {:?} {:?}",
            run.machine.name, workload.name, run.times, run.fidelity
        );
        if let Some(done) = self.searched.get(&key) {
            return done.clone();
        }
        let first = self.jobs.len();
        let slots = placement::slots(workload);
        let placements = placement::every(&run.machine, &slots, most);
        let exhaustive = placements.is_some();
        let placements = placements.unwrap_or_else(|| {
            let mut random = Random::new(seed);
            (0..most).map(|_| drawn(run, &slots, &mut random)).collect()
        });
        let (how, count) = match exhaustive {
            true => ("all placements that differ were tried", placements.len()),
            false => (
                "not all placements were tried, but as many drawn at random",
                most,
            ),
        };
        self.notes
            .push(format!("Run `{}`: {how}: {count}.", run.name));
        for placement in placements {
            self.push(run, at, Placer::Fixed(placement), seed);
        }
        self.searched.insert(key, first..self.jobs.len());
        first..self.jobs.len()
    }

    /// Each class of threads in isolation on the machine.
    fn add_alone(&mut self, run: &Run, at: usize, seed: u64) -> (Range<usize>, Vec<usize>) {
        let first = self.jobs.len();
        let workload = &run.workloads[at];
        let slots = placement::slots(workload);
        let mut classes: Vec<usize> = Vec::new();
        for slot in &slots {
            if slot.class < classes.len() {
                classes[slot.class] += 1;
                continue;
            }
            classes.push(1);
            let mut lone = (**workload).clone();
            let mut program = lone.programs[slot.program].clone();
            program.count = 1;
            program.threads = vec![program.threads[slot.thread].clone()];
            program.threads[0].count = 1;
            lone.programs = vec![program];
            self.owners.push(run.name.clone());
            let detail = self.detail(run, at);
            self.jobs.push(Job {
                detail,
                machine: Arc::clone(&run.machine),
                workload: Arc::new(lone),
                placer: Placer::Default,
                times: run.times,
                seed,
                warm: self.warm,
                marked: false,
            });
        }
        (first..self.jobs.len(), classes)
    }
}

/// A random placement of a workload's threads; pinned ones stay where they are pinned.
fn drawn(run: &Run, slots: &[Slot], random: &mut Random) -> Placement {
    let mut drawn = placement::random(run.machine.pus(), slots.len(), random);
    placement::respect_pins(&mut drawn, slots, random);
    drawn
}

fn results(
    experiment: &Experiment,
    simulated: &Simulated,
    plan: &Plan,
) -> Result<Results, LabError> {
    let no_value = |what: &str, why: String| LabError::NoValue {
        experiment: experiment.name.clone(),
        what: what.to_owned(),
        why,
    };
    let mut measured = Vec::new();
    for measure in &experiment.measures {
        let value = measure::measured(measure, experiment, simulated)
            .map_err(|why| no_value(&measure.name, why))?;
        let (quantity, unit) = (measure.of.name(), measure.of.unit());
        let run = &experiment.runs[measure.run].name;
        let per = measure
            .per
            .map(|per| format!(" / {}", experiment.runs[per].name));
        measured.push(Measured {
            name: measure.name.clone(),
            what: format!("{quantity} of {run}{}", per.as_deref().unwrap_or("")),
            value,
            unit: if per.is_some() { "ratio" } else { unit },
        });
    }
    let rows = experiment
        .claims
        .iter()
        .map(|claim| judge::row(claim, &measured).map_err(|why| no_value(&claim.name, why)));
    let rows = rows.collect::<Result<_, _>>()?;
    let picture = match &experiment.figure {
        None => None,
        Some(figure) => {
            let lines = |of, run: usize| {
                let points = simulated[run].iter().enumerate().map(|(at, point)| {
                    let values = measure::values(of, None, &experiment.runs[run], at, point);
                    measure::take(crate::experiment::Take::Mean, values)
                });
                points.collect::<Option<Vec<f64>>>()
            };
            let wanted = match &figure.shape {
                Shape::Lines {
                    of, lines: wanted, ..
                } => {
                    let all = wanted.iter().map(|line| lines(*of, line.run));
                    all.collect::<Option<Vec<_>>>()
                }
                Shape::Bars(_) => Some(Vec::new()),
            };
            let wanted = wanted
                .ok_or_else(|| no_value("the picture", "a point without a value".to_owned()))?;
            let sweep = experiment.sweep.as_ref();
            let picture = Picture::new(figure, &measured, wanted, sweep);
            Some(picture.map_err(|why| no_value("the picture", why))?)
        }
    };
    Ok(Results {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        rows,
        measured,
        notes: (plan.notes.iter().cloned())
            .chain(experiment.left_out.iter().map(LeftOut::note))
            .collect(),
        simulations: plan.jobs.len(),
        picture,
    })
}
