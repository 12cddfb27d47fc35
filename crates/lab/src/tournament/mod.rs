//! All policies against each other on random workloads and several machines (`perch lab run tournament`).
//!
//! A workload's **regret** under a policy is how far its speedup is below that of the best placement: of all of them
//! where there are few, else the best that a long search, the default scheduler or any policy found. Policies see metrics
//! and, where their rules ask for it, a calibration that was measured on that machine as `perch calibrate` measures;
//! never the simulator's parameters.

mod agreement;
mod alone;
mod best;
mod draw;
mod file;
mod picture;
mod score;

pub use agreement::Agreement;
pub use file::{Contestant, Entry, Rules};
pub use picture::picture;
pub use score::{Again, Line, Match, Outcome, Standing};

use crate::{
    calibrate,
    experiment::{Span, Times},
    parallel::{each, host_threads},
    placement::Placement,
    sample::Sample,
    simulate::{Job, Placer, simulate, simulate_seen},
};
use alone::Alone;
use perch_policy::Inputs;
use perch_sim::{
    detail::{Detail, Fidelity},
    model::MachineModel,
    stream::Random,
    workload::WorkloadModel,
};
use std::{sync::Arc, time::Duration};

/// A machine and its calibration.
struct Arena {
    machine: Arc<MachineModel>,
    calibration: Inputs,
}

/// One workload on one machine.
struct Case<'a> {
    arena: &'a Arena,
    number: u64,
    workload: Arc<WorkloadModel>,
    seed: u64,
}

/// A machine at its real clocks. Files scale clocks down for the cycle level's sake: time slices would be too short to fill
/// a cache.
fn machine(name: &str) -> Result<Arc<MachineModel>, String> {
    let machine = perch_sim::config::find_machine(name).map_err(|error| error.to_string())?;
    Ok(Arc::new(machine.at_real_clocks()))
}

/// Runs all of it. Reports progress to `done`: how many workloads are done, of how many. The same rules always have the
/// same outcome.
///
/// # Errors
/// In words: a machine that is not there, a policy that cannot be run.
pub fn play(rules: &Rules, mut done: impl FnMut(usize, usize)) -> Result<Outcome, String> {
    let mut arenas = Vec::new();
    for entry in &rules.machines {
        let machine = machine(&entry.name)?;
        let how = calibrate::How::new("of the tournament".to_owned());
        let calibration = calibrate::simulated(&machine, &how, |_, _| ())?.into();
        arenas.push(Arena {
            machine,
            calibration,
        });
    }
    let mut cases = Vec::new();
    for (arena, entry) in arenas.iter().zip(&rules.machines) {
        // The same workloads whichever other machines there are.
        let name = arena.machine.name.bytes();
        let name = name.fold(0, |hash: u64, byte| {
            hash.wrapping_mul(31).wrapping_add(byte.into())
        });
        let of_machine = Random::new(rules.seed).part(name);
        for number in 0..entry.workloads {
            let mut random = of_machine.part(number << 16);
            let workload = draw::workload(number, &arena.machine, &mut random);
            cases.push(Case {
                arena,
                number,
                workload: Arc::new(workload),
                seed: random.below(1 << 32),
            });
        }
    }
    let count = cases.len();
    let fight = |at: usize| cases[at].play(rules);
    let matches =
        each(count, host_threads(), fight, |at| done(at, count)).map_err(|(_, error)| error)?;
    let again = judge_again(rules, &cases, &matches)?;
    Ok(Outcome::new(rules, matches, again))
}

impl Case<'_> {
    fn job(&self, rules: &Rules, fidelity: Fidelity) -> Job {
        let seconds = |seconds: u64| Span::Time(Duration::from_secs(seconds));
        Job {
            machine: Arc::clone(&self.arena.machine),
            workload: Arc::clone(&self.workload),
            detail: Detail::new(fidelity, &self.arena.machine, &self.workload),
            placer: Placer::Default,
            times: Times {
                warm_up: seconds(rules.warm_up),
                length: seconds(rules.length),
            },
            seed: self.seed,
            warm: false,
            marked: false,
        }
    }

    fn placer(&self, contestant: &Contestant) -> Placer {
        Placer::Policy {
            name: contestant.policy.clone(),
            options: contestant.options.clone(),
            inputs: match contestant.calibrated {
                true => self.arena.calibration.clone(),
                false => Inputs::default(),
            },
            period: None,
        }
    }

    /// The speedups of placements / that of the default scheduler's last placement, in short looks, and whether the caches
    /// had settled in both.
    fn ratios(
        &self,
        rules: &Rules,
        fidelity: Fidelity,
        known: &Match,
        placements: &[(&str, &Placement)],
    ) -> Result<Vec<(f64, bool)>, String> {
        let alone = Alone::of_all(&self.job(rules, Fidelity::Interval))?;
        let job = self.job(rules, fidelity);
        let (usual, was_settled) = best::look(&job, &alone, &known.default.placement)?;
        let ratio = |(_, placement): &(&str, &Placement)| {
            let (found, settled) = best::look(&job, &alone, placement)?;
            Ok((found / usual, settled && was_settled))
        };
        placements.iter().map(ratio).collect()
    }

    fn play(&self, rules: &Rules) -> Result<Match, String> {
        let job = self.job(rules, Fidelity::Interval);
        let in_words = |error: String| {
            let machine = &self.arena.machine.name;
            format!("{machine}, {}: {error}", self.workload.name)
        };
        let mut default = Vec::new();
        for seed in 0..rules.default_seeds {
            let seed = self.seed.wrapping_add(seed);
            default.push(
                simulate(&Job {
                    seed,
                    ..job.clone()
                })
                .map_err(in_words)?,
            );
        }
        let mut played: Vec<Vec<Sample>> = Vec::new();
        for contestant in &rules.contestants {
            let mut samples = Vec::new();
            for seed in 0..rules.policy_seeds {
                let seed = self.seed.wrapping_add(seed);
                let placer = self.placer(contestant);
                let job = Job {
                    seed,
                    placer,
                    ..job.clone()
                };
                samples.push(simulate_seen(&job, contestant.sampled).map_err(in_words)?);
            }
            played.push(samples);
        }
        let alone = Alone::of_all(&job).map_err(in_words)?;
        let found = played.iter().chain([&default]).flatten();
        let mut found: Vec<_> = found
            .map(|sample| (score::speedup(sample, &alone), sample.placement()))
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let starts = found.into_iter().map(|(_, placement)| placement);
        let best = best::best(&job, &alone, starts, self.seed).map_err(in_words)?;
        let placer = Placer::Fixed(best.placement.clone());
        let fixed = simulate(&Job {
            placer,
            ..job.clone()
        })
        .map_err(in_words)?;
        Ok(Match::new(
            &self.arena.machine.name,
            self.number,
            best.exhaustive,
            &fixed,
            &alone,
            &default,
            &played,
        ))
    }
}

/// The best placements and the last ones of policies, beside the default scheduler's last one, at both levels: those of
/// steady threads of which the interval level says that one is better.
fn judge_again(rules: &Rules, cases: &[Case<'_>], matches: &[Match]) -> Result<Vec<Again>, String> {
    if rules.judged_again == 0 {
        return Ok(Vec::new());
    }
    let steady: Vec<_> = cases
        .iter()
        .zip(matches)
        .filter(|(case, _)| draw::is_steady(&case.workload, &case.arena.machine))
        .collect();
    let in_words = |(_, error): (usize, String)| error;
    let decided = |at: usize| {
        let (case, known) = steady[at];
        let mut found = Vec::new();
        let placements = placements(rules, known);
        let ratios = case.ratios(rules, Fidelity::Interval, known, &placements)?;
        for ((name, placement), (ratio, _)) in placements.into_iter().zip(ratios) {
            if score::is_decided(ratio) {
                found.push((at, name, placement, ratio));
            }
        }
        Ok(found)
    };
    let decided = each(steady.len(), host_threads(), decided, |_| ()).map_err(in_words)?;
    let mut chosen: Vec<_> = decided.into_iter().flatten().collect();
    Random::new(rules.seed).part(u64::MAX).shuffle(&mut chosen);
    chosen.truncate(rules.judged_again as usize);
    chosen.sort_by_key(|(at, name, ..)| (*at, *name));
    let of_workloads: Vec<_> = chosen.chunk_by(|one, other| one.0 == other.0).collect();
    let again = |at: usize| {
        let chosen = of_workloads[at];
        let (case, known) = steady[chosen[0].0];
        let placements: Vec<_> = chosen.iter().map(|(_, name, of, _)| (*name, *of)).collect();
        let cycle = case.ratios(rules, Fidelity::Cycle, known, &placements)?;
        let both = chosen.iter().zip(cycle);
        let again = both.map(|((_, name, _, interval), (cycle, settled))| Again {
            machine: known.machine.clone(),
            workload: known.workload,
            contestant: (*name).to_owned(),
            interval: *interval,
            cycle,
            settled,
        });
        Ok(again.collect::<Vec<_>>())
    };
    let again = each(of_workloads.len(), host_threads(), again, |_| ()).map_err(in_words)?;
    Ok(again.into_iter().flatten().collect())
}

/// The best placement of a workload and the last ones of policies, by name; those that are the same once.
fn placements<'a>(rules: &'a Rules, known: &'a Match) -> Vec<(&'a str, &'a Placement)> {
    let names = rules.contestants.iter().map(|c| c.name.as_str());
    let lines = known.lines.iter().map(|line| &line.placement);
    let mut different: Vec<(&str, &Placement)> = vec![(BEST, &known.best_placement)];
    for (name, placement) in names.zip(lines) {
        if different.iter().all(|(_, other)| *other != placement) {
            different.push((name, placement));
        }
    }
    different
}

/// What [`Again::contestant`] says of the best placement.
const BEST: &str = "best";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_keep_their_real_clocks() {
        for entry in Rules::shipped().machines {
            let scale = machine(&entry.name).unwrap().scale;
            assert!(
                (scale - 1.0).abs() < f64::EPSILON,
                "{}: {scale}",
                entry.name
            );
        }
    }
}
