//! What each busy thread is predicted to do to each other, from its metrics and the machine's calibration.

use super::{
    Symbiosis,
    cost::Costs,
    here,
    loss::{Pairs, Placed, Talk},
    scene::Scene,
    uses::{Basis, Values, believed, of_kernel},
};
use crate::calibration::Share;
use perch_core::{Snapshot, ThreadId, metric::names};
use std::collections::HashMap;

/// No thread is taken to have lost more than this (logarithm) when its speed alone is guessed: half of it.
const MOST_LOST: f64 = 0.7;

/// How often the speed alone of a new thread is guessed again with what it is then predicted to lose.
const FIRST_GUESSES: usize = 4;

/// Weight of a new guess of a speed alone.
const GUESS: f64 = 0.3;

/// Shared memory with a lower confidence is ignored, and never costs more than this fraction of a thread's time.
const TALK: (f64, f64) = (0.3, 0.9);

impl Symbiosis {
    /// The costs for what these threads' metrics can tell.
    pub(super) fn costs(&mut self, snapshot: &Snapshot) -> Option<Costs> {
        let calibration = self.calibration.as_ref()?;
        let least = self.config.min_confidence;
        let kernels: Vec<_> = calibration
            .kernels
            .iter()
            .map(|kernel| of_kernel(&kernel.metrics))
            .collect();
        let threads: Vec<_> = snapshot
            .threads
            .iter()
            .filter(|thread| crate::busy::is_busy(thread, self.config.min_activity))
            .map(|thread| believed(&thread.metrics, least))
            .collect();
        let with = |name: &str| threads.iter().filter(|value| value(name).is_some()).count();
        let counted = 2 * with(names::IPC) > threads.len()
            && kernels.iter().all(|value| value(names::IPC).is_some());
        let main = if counted { names::IPC } else { names::FP_SHARE };
        let known = threads.iter().filter(|value| value(main).is_some());
        let all: Vec<&Values<'_>> = kernels
            .iter()
            .map(|value| value as &Values<'_>)
            .chain(known.map(|value| value as &Values<'_>))
            .collect();
        let basis = Basis::common(counted, &all);
        if basis.ways.is_empty() {
            return None;
        }
        if self.costs.as_ref().is_none_or(|costs| costs.basis != basis) {
            let topology = &snapshot.topology;
            let last = topology.llc_level().filter(|level| *level > 2);
            let caches = [
                topology.cache_size(1),
                topology.cache_size(2),
                last.and_then(|level| topology.cache_size(level)),
            ];
            self.costs = Some(Costs::fit(calibration, basis, &caches));
        }
        self.costs.clone()
    }

    /// What each busy thread does to each other, and how fast it is now.
    pub(super) fn pairs(
        &mut self,
        snapshot: &Snapshot,
        scene: &Scene,
        costs: &Costs,
    ) -> (Pairs, Vec<f64>) {
        let threads = scene.runners.len();
        let least = self.config.min_confidence;
        let mut changed: Vec<ThreadId> = Vec::new();
        let mut speeds: Vec<Option<f64>> = Vec::with_capacity(threads);
        // Where the processor itself counts what a sibling takes, that need not be predicted.
        let mut counted: Vec<Option<f64>> = Vec::with_capacity(threads);
        for runner in &scene.runners {
            let thread = &snapshot.threads[runner.at];
            let value = believed(&thread.metrics, least);
            let read = costs.basis.read(&value);
            if let Some(read) = &read
                && self.memory[runner.at].take(&costs.basis, read, &value)
            {
                changed.push(thread.info.id);
                self.memory[runner.at].phase = snapshot.period;
            }
            let taken = value(names::SMT_CONTENTION);
            counted.push(taken.map(|taken| -(1.0 - taken.clamp(0.0, 0.9)).ln()));
            speeds.push(read.filter(|_| costs.basis.counted).map(|read| read[0]));
        }
        if !changed.is_empty() {
            self.phase = snapshot.period;
            for runner in &scene.runners {
                self.memory[runner.at].forget(&changed);
            }
        }
        let now = |runner: usize| speeds[runner].unwrap_or(1.0);
        // What a thread would do alone follows from what it does and what it is predicted to lose, which depends on it
        // in turn. Of one that is new this is followed a few times, for old ones once a period.
        let mut alone: Vec<f64> = (0..threads)
            .map(|runner| {
                let memory = &self.memory[scene.runners[runner].at];
                memory.alone.unwrap_or(now(runner))
            })
            .collect();
        let any_new = (scene.runners.iter()).any(|runner| self.memory[runner.at].alone.is_none());
        let mut pairs = self.predict(scene, costs, &alone);
        let rounds = match (costs.basis.counted, any_new) {
            (true, true) => FIRST_GUESSES,
            (true, false) => 1,
            (false, _) => 0,
        };
        let known: Vec<Option<f64>> = (scene.runners.iter())
            .map(|runner| self.memory[runner.at].alone)
            .collect();
        for _ in 0..rounds {
            let placed = Placed::new(scene, &pairs, here(scene));
            for runner in 0..threads {
                let lost = match counted[runner] {
                    Some(near) => near + placed.lost_afar(runner),
                    None => placed.lost(runner),
                };
                let guess = now(runner) * lost.min(MOST_LOST).exp();
                alone[runner] =
                    known[runner].map_or(guess, |known| known + GUESS * (guess - known));
            }
            drop(placed);
            pairs = self.predict(scene, costs, &alone);
        }
        if costs.basis.counted {
            for (runner, alone) in scene.runners.iter().zip(&alone) {
                self.memory[runner.at].alone = Some(*alone);
            }
        }
        pairs.talk = self.talk(snapshot, scene, costs);
        let now = (0..threads).map(now).collect();
        (pairs, now)
    }

    fn predict(&self, scene: &Scene, costs: &Costs, alone: &[f64]) -> Pairs {
        let threads = scene.runners.len();
        let known: Vec<Option<Vec<f64>>> = (0..threads)
            .map(|runner| {
                let memory = &self.memory[scene.runners[runner].at];
                memory.uses(&costs.basis, alone[runner])
            })
            .collect();
        // A thread of which nothing is known is like the mean of the others.
        let mut mean = vec![0.0; costs.basis.ways.len()];
        let count = known.iter().flatten().count().max(1) as f64;
        for uses in known.iter().flatten() {
            for (sum, value) in mean.iter_mut().zip(uses) {
                *sum += value / count;
            }
        }
        let mut terms = Vec::new();
        let uses = |runner: usize| known[runner].as_deref().unwrap_or(&mean);
        let levels = scene.levels.iter().map(|level| {
            let mut costs_of_level = vec![0.0; threads * threads];
            for one in 0..threads {
                for other in 0..threads {
                    if one != other {
                        let cost = costs.of(*level, uses(one), uses(other), &mut terms);
                        costs_of_level[one * threads + other] = cost;
                    }
                }
            }
            costs_of_level
        });
        // Threads that time-share a PU do nothing to each other there.
        let turns = scene.turns.then(|| vec![0.0; threads * threads]);
        Pairs {
            threads,
            levels: turns.into_iter().chain(levels).collect(),
            talk: Vec::new(),
            speed: alone.to_vec(),
        }
    }

    /// What communication costs those who share memory.
    fn talk(&self, snapshot: &Snapshot, scene: &Scene, costs: &Costs) -> Vec<Talk> {
        let transfers = match &self.calibration {
            Some(calibration) => &calibration.transfers,
            None => return Vec::new(),
        };
        let farthest = transfers
            .iter()
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Some(farthest) = farthest.filter(|of| of.seconds > 0.0) else {
            return Vec::new();
        };
        if snapshot.sharing.is_empty() {
            return Vec::new();
        }
        let longest = farthest.seconds;
        // Levels whose costs were not told apart are alike.
        let seconds = |share: Share| {
            let mut of_level = transfers.iter().filter(|of| of.share == share);
            let cheaper = of_level.find(|of| of.is_cheaper_than(farthest));
            cheaper.map_or(longest, |transfer| transfer.seconds)
        };
        let mut levels: Vec<f64> = scene
            .levels
            .iter()
            .map(|level| seconds(costs.levels[*level].share))
            .collect();
        if scene.turns {
            levels.insert(0, 0.0);
        }
        levels.push(longest);
        let runner_of: HashMap<ThreadId, usize> = scene
            .runners
            .iter()
            .enumerate()
            .map(|(runner, of)| (snapshot.threads[of.at].info.id, runner))
            .collect();
        let (least, most) = TALK;
        let believed = snapshot.sharing.iter().filter(|s| s.confidence >= least);
        believed
            .filter_map(|sharing| {
                let one = *runner_of.get(&sharing.threads.0)?;
                let other = *runner_of.get(&sharing.threads.1)?;
                let cost = |seconds: &f64| (sharing.transfers * seconds).clamp(0.0, most);
                Some(Talk {
                    pair: (one, other),
                    cost: levels.iter().map(cost).collect(),
                })
            })
            .collect()
    }
}
