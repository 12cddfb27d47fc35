//! What came of placements: speeds next to neighbours, and whether a move brought what was predicted.

use super::{
    LONGEST_REST, SETTLE, Symbiosis, here,
    learned::{self, Seen},
    loss::{Pairs, Placed},
    noise::changed,
    scene::{Runner, Scene},
};
use perch_core::{Snapshot, ThreadId};
use std::collections::HashMap;

/// A move failed if less than this fraction of the promised gain was measured.
const CAME_TRUE: f64 = 0.3;

/// A loss by more than this fraction is no noise: threads are moved back. As the default of the option `gain`.
const WORSE: f64 = 0.003;

/// This part of all threads must still do what they did before a move for it to be judged.
const JUDGES: f64 = 0.5;

/// A thread that wants a PU for this part of a period is taken to have been there, and for that part to have slept.
const AWAKE: f64 = 0.9;
const ASLEEP: f64 = 0.3;

/// After a gain that did not come true the next one must be this many times as large. A gain of the second value is
/// always enough.
const BAR: (f64, f64) = (1.5, 0.5);

impl Symbiosis {
    /// Remembers the speeds of threads next to their neighbours, and lets that correct what is predicted.
    pub(super) fn learn(
        &mut self,
        snapshot: &Snapshot,
        scene: &Scene,
        pairs: &mut Pairs,
        now: &[f64],
    ) {
        // Threads that time-share a PU never run at the same time: what they share is one level up, if anything.
        let level = usize::from(scene.turns);
        if level >= pairs.levels.len() {
            return;
        }
        let id = |runner: usize| snapshot.threads[scene.runners[runner].at].info.id;
        let runner_of: HashMap<ThreadId, usize> =
            (0..scene.runners.len()).map(|r| (id(r), r)).collect();
        let class = self.classes(snapshot, scene);
        let placed = Placed::new(scene, pairs, here(scene));
        let settled = self
            .moved
            .as_ref()
            .is_none_or(|m| snapshot.period >= m.period + SETTLE);
        let mut changed = Vec::new();
        let wanted = |at: usize| {
            let thread = &snapshot.threads[scene.runners[at].at];
            thread.wanted()
        };
        for (runner, of) in scene.runners.iter().enumerate() {
            let mut beside = placed.around(runner, level);
            beside.sort_unstable_by_key(|other| id(*other));
            let beside_ids: Vec<ThreadId> = beside.iter().map(|other| id(*other)).collect();
            let first = scene.units[of.unit].pus.first().unwrap_or(0);
            let width = scene.units[of.unit].width;
            let memory = &mut self.memory[of.at];
            if memory.phase == snapshot.period {
                memory.ramp.spoil();
            }
            if let Some(lost) = memory.ramp.take(first, now[runner]) {
                self.cold.take(lost, snapshot.interval);
            }
            let stayed = memory.stayed(first, &beside_ids);
            // Where more threads than PUs are on a unit it is not known which threads co-ran, and which slept for a
            // part of the period was there for a part of it.
            let away = |other: usize| wanted(other) <= ASLEEP && wanted(runner) >= AWAKE;
            let known = (scene.turns || placed.count(of.unit) <= width)
                && wanted(runner) >= AWAKE
                && (beside.iter()).all(|other| wanted(*other) >= AWAKE || away(*other));
            if stayed && settled && now[runner] > 0.0 && known {
                let speed = now[runner].ln() + placed.lost_beyond(runner, level);
                beside.retain(|other| !away(*other));
                let ran = |other: &usize| match scene.turns {
                    true => snapshot.threads[scene.runners[*other].at].activity,
                    false => 1.0,
                };
                let beside = beside.iter().map(|other| (id(*other), ran(other)));
                if memory.saw(beside.collect(), speed) {
                    memory.phase = snapshot.period;
                    changed.push(id(runner));
                }
            }
        }
        drop(placed);
        if !changed.is_empty() {
            self.phase = snapshot.period;
        }
        let mut seen = Vec::new();
        for (runner, of) in scene.runners.iter().enumerate() {
            let memory = &mut self.memory[of.at];
            if !changed.contains(&id(runner)) {
                memory.forget(&changed);
            }
            seen.extend(memory.seen.iter().filter_map(|known| {
                let beside = known.beside.iter();
                let beside = beside.map(|(id, part)| Some((class[*runner_of.get(id)?], *part)));
                Some(Seen {
                    runner: class[runner],
                    beside: beside.collect::<Option<Vec<_>>>()?,
                    speed: known.speed,
                })
            }));
        }
        learned::correct(pairs, level, &seen, &class);
    }

    /// Threads of one process that use the same are of one class.
    fn classes(&self, snapshot: &Snapshot, scene: &Scene) -> Vec<usize> {
        let mut first: Vec<usize> = Vec::new();
        let runners = scene.runners.iter().enumerate();
        let class = runners.map(|(runner, of)| {
            let pid = |at: usize| snapshot.threads[at].info.pid;
            let alike = first.iter().position(|other| {
                let other = &scene.runners[*other];
                pid(other.at) == pid(of.at) && self.memory[other.at].is_like(&self.memory[of.at])
            });
            alike.unwrap_or_else(|| {
                first.push(runner);
                first.len() - 1
            })
        });
        class.collect()
    }

    /// Whether the last move brought what was predicted. If it made things worse, the placement before.
    pub(super) fn judge(
        &mut self,
        snapshot: &Snapshot,
        scene: &Scene,
        alone: &[f64],
        now: &[f64],
    ) -> Option<Vec<usize>> {
        let settled = |moved: &&super::Moved| snapshot.period > moved.period + SETTLE;
        let moved = self.moved.as_ref().filter(settled)?;
        // By those who do what they did before.
        let steady = |runner: &Runner| self.memory[runner.at].phase < moved.period;
        let all: f64 = scene.runners.iter().map(|runner| runner.present).sum();
        let judges = scene.runners.iter().filter(|runner| steady(runner));
        let known: f64 = judges.map(|runner| runner.present).sum();
        let gained = changed(scene, alone, &moved.before, now, steady);
        let came_true = gained >= CAME_TRUE * moved.predicted;
        let worse = gained < -self.noise.level().max(WORSE);
        let back = worse.then(|| moved.from.clone());
        // If most change before the result of a move is known, moving them does not pay.
        let same = self.changed < moved.period && known >= JUDGES * all;
        self.bar = match came_true && same {
            true => self.bar / 2.0,
            false => (BAR.0 * moved.predicted).max(2.0 * self.bar).min(BAR.1),
        };
        self.moved = None;
        if !same {
            self.rest = (snapshot.period + LONGEST_REST / 2, LONGEST_REST);
            return None;
        }
        back.filter(|from| from.len() == scene.runners.len())
    }
}
