//! The best and the worst placement, by search.
//!
//! By throughput from the start, and the same for a user's own workload of any size. The tournament searches for the
//! greatest speedup, from placements that others found.

use super::{Scene, SceneError, meter::Progress, play::placed};
use crate::{
    parallel,
    placement::{self, Placement},
};
use perch_sim::{stream::Random, system::System, thread::Thread};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// The search goes round by round: each plays the placements that are left for this part of the whole time, and keeps
/// the most promising.
const ROUNDS: [u32; 3] = [100, 20, 4];

/// One of this many stays in the next round.
const KEEP: usize = 16;

/// But this many at least.
const LEAST: usize = 4;

/// Which end of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The greatest throughput.
    Best,
    /// The least.
    Worst,
}

/// The placements that are searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidates {
    placements: Vec<Placement>,
    /// Whether they are all that differ.
    pub all: bool,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// How many placements were tried.
    pub tried: usize,
    /// Whether these are all that differ.
    pub exhaustive: bool,
    /// The PU of each thread, in the order of the workload's file.
    pub placement: Placement,
    /// The same with the threads' names.
    pub threads: Vec<Seat>,
}

/// A thread and its PU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// The thread's program.
    pub program: String,
    /// The thread's name.
    pub thread: String,
    /// The PU.
    pub pu: u32,
}

impl Found {
    /// Rules of the policy `fixed` that put threads of these names on the same PUs. Threads of one name, of several
    /// processes of one program, take their PUs in the order in which they start.
    pub fn rules(&self) -> Vec<String> {
        let mut names: Vec<(&str, &str)> = Vec::new();
        let mut pus: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for seat in &self.threads {
            let name = (seat.program.as_str(), seat.thread.as_str());
            if !names.contains(&name) {
                names.push(name);
            }
            pus.entry(name).or_default().push(seat.pu.to_string());
        }
        let rule = |name: (&str, &str)| {
            let pus = &pus[&name];
            let each = if pus.len() > 1 { "each:" } else { "" };
            let (program, thread) = (as_pattern(name.0), as_pattern(name.1));
            format!("{program}/{thread}={each}{}", pus.join(","))
        };
        names.into_iter().map(rule).collect()
    }
}

/// The name as a pattern: what means something else in a rule or in a file of rules is matched by `?`.
fn as_pattern(name: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '*');
    let plain = |c| if special(c) { '?' } else { c };
    name.chars().map(plain).collect()
}

impl Candidates {
    /// All placements that differ, if these are no more than `most`; else `most` of them, drawn at random: every other one
    /// spreads the threads over cores first, as operating systems do.
    ///
    /// # Errors
    /// A workload whose threads do not all start at the beginning, once.
    pub fn new(scene: &Scene, most: usize) -> Result<Self, SceneError> {
        let programs = &scene.workload.programs;
        if let Some(program) = programs
            .iter()
            .find(|p| !p.system && (p.start > 0 || p.restart))
        {
            return Err(SceneError::StartsLater {
                program: program.name.clone(),
                workload: scene.workload.name.clone(),
            });
        }
        let slots = placement::slots(&scene.workload);
        if let Some(placements) = placement::every(&scene.machine, &slots, most) {
            let all = true;
            return Ok(Self { placements, all });
        }
        let mut random = Random::new(scene.seed);
        let machine = &scene.machine;
        let draw = |number: usize| {
            let mut drawn = match number % 2 {
                0 => placement::spread(machine, slots.len(), &mut random),
                _ => placement::random(machine.pus(), slots.len(), &mut random),
            };
            placement::respect_pins(&mut drawn, &slots, &mut random);
            drawn
        };
        Ok(Self {
            placements: (0..most).map(draw).collect(),
            all: false,
        })
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.placements.len()
    }

    /// How many milliseconds a search for `ends` ends simulates.
    pub fn steps(&self, scene: &Scene, ends: usize) -> u64 {
        let mut left = self.len();
        let mut steps = 0;
        for (round, part) in ROUNDS.into_iter().enumerate() {
            let searches = if round == 0 { 1 } else { ends };
            steps += (left * searches) as u64 * super::meter::steps(scene.look(part));
            left = kept(left);
        }
        steps
    }

    /// The placements at these ends. The same whatever the number of host threads is.
    ///
    /// # Errors
    /// A deadlock.
    pub fn search(
        &self,
        scene: &Scene,
        ends: &[End],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Vec<Found>, SceneError> {
        let everyone: Vec<usize> = (0..self.len()).collect();
        let play = |of: &[usize], part: u32| -> Result<Vec<(f64, usize)>, SceneError> {
            let time = scene.look(part);
            let work = |at: usize| throughput(scene, &self.placements[of[at]], time);
            let done = |_| progress.adds(super::meter::steps(time));
            let found = parallel::each(of.len(), threads, work, done).map_err(|(_, why)| why)?;
            Ok(found.into_iter().zip(of.iter().copied()).collect())
        };
        let first = play(&everyone, ROUNDS[0])?;
        let find = |end: &End| -> Result<Found, SceneError> {
            let mut known = first.clone();
            for part in &ROUNDS[1..] {
                sort(&mut known, *end);
                known.truncate(kept(known.len()));
                let left: Vec<usize> = known.iter().map(|(_, at)| *at).collect();
                known = play(&left, *part)?;
            }
            sort(&mut known, *end);
            let at = known.first().map_or(0, |(_, at)| *at);
            let placement = self.placements.get(at).cloned().unwrap_or_default();
            Ok(Found {
                tried: self.len(),
                exhaustive: self.all,
                threads: seats(scene, &placement)?,
                placement,
            })
        };
        ends.iter().map(find).collect()
    }
}

/// The threads by name, each with its PU.
fn seats(scene: &Scene, placement: &Placement) -> Result<Vec<Seat>, SceneError> {
    let system = placed(scene, placement, scene.seed)?;
    let threads = system.program_threads().zip(placement);
    let seat = |((_, thread), pu): ((usize, &Thread), &u32)| Seat {
        program: system.processes()[thread.identity.process].name.clone(),
        thread: thread.identity.name.clone(),
        pu: *pu,
    };
    Ok(threads.map(seat).collect())
}

fn kept(of: usize) -> usize {
    of.div_ceil(KEEP).max(LEAST).min(of)
}

/// The most promising first; of those that are alike the first.
fn sort(known: &mut [(f64, usize)], end: End) {
    known.sort_by(|a, b| {
        let order = match end {
            End::Best => b.0.total_cmp(&a.0),
            End::Worst => a.0.total_cmp(&b.0),
        };
        order.then(a.1.cmp(&b.1))
    });
}

/// Instructions a picosecond in the second half of this time, when caches are no longer cold.
fn throughput(scene: &Scene, placement: &Placement, time: Duration) -> Result<f64, SceneError> {
    let until = scene.machine.machine_time(time.as_nanos() as u64);
    let mut system = placed(scene, placement, scene.seed)?;
    let done = |system: &System| -> u64 {
        let threads = system.program_threads();
        threads
            .map(|(_, thread)| thread.counters.instructions())
            .sum()
    };
    system.run(until / 2)?;
    let (begun, before) = (system.now(), done(&system));
    system.run(until)?;
    if system.is_done() {
        return Ok(done(&system) as f64 / system.now().max(1) as f64);
    }
    Ok((done(&system) - before) as f64 / (system.now() - begun).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_placement_is_told_as_rules() {
        let seat = |program: &str, thread: &str, pu| Seat {
            program: program.to_owned(),
            thread: thread.to_owned(),
            pu,
        };
        let found = Found {
            tried: 1,
            exhaustive: true,
            placement: vec![3, 0, 3, 1],
            threads: vec![
                seat("a", "t-1", 3),
                seat("b c", "#*=t", 0),
                seat("a", "t-1", 3),
                seat("a", "t-2", 1),
            ],
        };
        assert_eq!(found.rules(), ["a/t-1=each:3,3", "b?c/??=t=0", "a/t-2=1"]);
        for rule in found.rules() {
            rule.parse::<perch_policy::fixed::Rule>().unwrap();
        }
    }

    proptest! {
        /// No core has two threads more than another one, and no PU two while another has none.
        #[test]
        fn spread_placements_fill_cores_first(threads in 1usize..60, seed in any::<u64>()) {
            let machine = perch_sim::config::find_machine("smt2-zen").unwrap();
            let placed = placement::spread(&machine, threads, &mut Random::new(seed));
            prop_assert_eq!(placed.len(), threads);
            let places = machine.places();
            let of_core = |core: usize| placed.iter().filter(|pu| places[**pu as usize].0 == core).count();
            let of_pu = |pu: usize| placed.iter().filter(|at| **at as usize == pu).count();
            for counts in [
                (0..machine.cores.len()).map(of_core).collect::<Vec<_>>(),
                (0..machine.pus()).map(of_pu).collect(),
            ] {
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
            }
        }

        #[test]
        fn the_most_promising_come_first_and_some_always_stay(
            values in proptest::collection::vec(0u8..9, 1..200),
        ) {
            let all: Vec<(f64, usize)> = values.iter().map(|v| f64::from(*v)).zip(0..).collect();
            let (mut best, mut worst) = (all.clone(), all);
            sort(&mut best, End::Best);
            sort(&mut worst, End::Worst);
            let of = |known: &[(f64, usize)]| known.first().map(|(value, _)| *value as u8);
            prop_assert_eq!(of(&best), values.iter().max().copied());
            prop_assert_eq!(of(&worst), values.iter().min().copied());
            prop_assert!((1..=values.len()).contains(&kept(values.len())));
        }
    }
}
