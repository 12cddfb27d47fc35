//! What a placement is predicted to deliver: how fast all threads are, 1 for each as alone, slowed down by those around it
//! and by waiting for a PU.

use super::scene::Scene;

/// Costs below this are as good as none: a level all of whose costs are below is not looked at.
const NOTHING: f64 = 1e-4;

/// What it costs, in threads, that one more waits on a PU than elsewhere: an even spread is as good as one in which the
/// same wait at one place, and fairer.
const UNEVEN: f64 = 0.1;

/// What each thread does to each other at each level, for up to some hundred threads.
#[derive(Debug, Clone)]
pub(super) struct Pairs {
    pub threads: usize,
    /// By level, the closest first, row by row: by how much (logarithm) the thread of the column slows that of the row.
    pub levels: Vec<Vec<f64>>,
    /// Seconds a second that each loses to communication with another, by level, for those that share memory.
    pub talk: Vec<Talk>,
    /// Speed alone, thread by thread.
    pub speed: Vec<f64>,
}

/// Two threads that need each other's lines.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    pub pair: (usize, usize),
    /// The part of their time that it takes, by level, the closest first, then where they share nothing that was measured.
    pub cost: Vec<f64>,
}

impl Pairs {
    /// What `other` does to `one` at a level.
    pub fn cost(&self, level: usize, one: usize, other: usize) -> f64 {
        self.levels[level][one * self.threads + other]
    }

    fn matters(&self, level: usize) -> bool {
        self.levels[level].iter().any(|cost| *cost > NOTHING)
    }
}

/// A placement, and what it is predicted to deliver.
#[derive(Debug, Clone)]
pub(super) struct Placed<'a> {
    scene: &'a Scene,
    pairs: &'a Pairs,
    /// The unit of each runner.
    pub unit: Vec<usize>,
    /// The runners of each unit, in no order.
    members: Vec<Vec<usize>>,
    /// What each suffers from those on other units.
    far: Vec<f64>,
    /// Levels above the closest at which anything is suffered.
    above: Vec<usize>,
    /// The level between two units, row by row; as [`Scene::between`].
    between: Vec<u8>,
    /// The pairs that talk, runner by runner.
    talks: Vec<Vec<usize>>,
    /// PUs that the runners of each unit want.
    load: Vec<f64>,
}

/// No level in [`Placed::between`].
const NONE: u8 = u8::MAX;

/// A change of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Two runners of different units change places.
    Swap(usize, usize),
    /// One goes to another unit.
    Move(usize, usize),
    /// All runners of two units change places.
    Exchange(usize, usize),
}

impl<'a> Placed<'a> {
    /// The placement in which these units are the runners'.
    pub fn new(scene: &'a Scene, pairs: &'a Pairs, unit: Vec<usize>) -> Self {
        let units = scene.units.len();
        let mut members = vec![Vec::new(); units];
        for (runner, unit) in unit.iter().enumerate() {
            members[*unit].push(runner);
        }
        let above: Vec<usize> = (1..pairs.levels.len())
            .filter(|level| pairs.matters(*level))
            .collect();
        let mut talks = vec![Vec::new(); pairs.threads];
        for (at, talk) in pairs.talk.iter().enumerate() {
            talks[talk.pair.0].push(at);
            talks[talk.pair.1].push(at);
        }
        let between = match above.is_empty() && pairs.talk.is_empty() {
            true => Vec::new(),
            false => (0..units * units)
                .map(|at| scene.between(at / units, at % units))
                .map(|level| level.map_or(NONE, |level| level as u8))
                .collect(),
        };
        let mut placed = Self {
            scene,
            pairs,
            far: vec![0.0; unit.len()],
            unit,
            members,
            above,
            between,
            talks,
            load: vec![0.0; units],
        };
        placed.recount();
        placed
    }

    fn recount(&mut self) {
        let present = |runner: &usize| self.scene.runners[*runner].present;
        let loads = self.members.iter();
        self.load = loads
            .map(|members| members.iter().map(present).sum())
            .collect();
        for runner in 0..self.unit.len() {
            self.far[runner] = self.far_at(runner, self.unit[runner], &[]);
        }
    }

    fn level(&self, one: usize, other: usize) -> u8 {
        self.between[one * self.scene.units.len() + other]
    }

    fn has_above(&self) -> bool {
        !self.above.is_empty()
    }

    /// The part of the time that a runner is on a PU, seen from other units.
    fn present(&self, runner: usize) -> f64 {
        let unit = self.unit[runner];
        let width = self.scene.units[unit].width as f64;
        self.scene.runners[runner].present * (width / self.load[unit]).min(1.0)
    }

    /// What a runner suffers on a unit from others than those there; `except` are left out.
    fn far_at(&self, runner: usize, unit: usize, except: &[usize]) -> f64 {
        if !self.has_above() {
            return 0.0;
        }
        let mut suffered = 0.0;
        for (other, at) in self.unit.iter().enumerate() {
            if other == runner || *at == unit || except.contains(&other) {
                continue;
            }
            let level = self.level(unit, *at);
            if level != NONE {
                let present = self.present(other);
                suffered += self.pairs.cost(usize::from(level), runner, other) * present;
            }
        }
        suffered
    }

    /// What these deliver together on a unit, given what each suffers from elsewhere.
    fn deliver(&self, unit: usize, members: &[usize], far: impl Fn(usize) -> f64) -> f64 {
        let width = self.scene.units[unit].width as f64;
        let runners = &self.scene.runners;
        let load: f64 = members.iter().map(|runner| runners[*runner].present).sum();
        // Where there are more threads than PUs, each co-runs with a part of the others.
        let beside = match load > width {
            true => ((width - 1.0) / (load - 1.0)).max(0.0),
            false => 1.0,
        };
        let over = self.waiting(unit, members);
        let one = |runner: usize| {
            let others = members.iter().filter(|other| **other != runner);
            let near: f64 = others
                .map(|other| self.pairs.cost(0, runner, *other) * runners[*other].present)
                .sum();
            runners[runner].present * (-(near * beside + far(runner))).exp()
        };
        let speeds: f64 = members.iter().map(|runner| one(*runner)).sum();
        let time = if over > 0.0 { 1.0 - over / load } else { 1.0 };
        speeds * time - UNEVEN * over * over / width
    }

    /// How many of these wait for a PU of a unit on the average, if each wants one whenever it likes.
    fn waiting(&self, unit: usize, members: &[usize]) -> f64 {
        let width = self.scene.units[unit].width;
        if members.len() <= width {
            return 0.0;
        }
        // The probability that exactly N want one, for each N below the width.
        let mut wanted = vec![0.0; width];
        wanted[0] = 1.0;
        let mut load = 0.0;
        for runner in members {
            let present = self.scene.runners[*runner].present;
            load += present;
            for number in (0..width).rev() {
                let one_less = number.checked_sub(1).map_or(0.0, |less| wanted[less]);
                wanted[number] = wanted[number] * (1.0 - present) + one_less * present;
            }
        }
        let idle = wanted.iter().enumerate();
        let idle: f64 = idle
            .map(|(number, chance)| (width - number) as f64 * chance)
            .sum();
        (load - width as f64 + idle).max(0.0)
    }

    /// What a talk costs between two units.
    fn talk(&self, talk: &Talk, one: usize, other: usize) -> f64 {
        let level = match self.level(one, other) {
            NONE => talk.cost.len() - 1,
            level => usize::from(level),
        };
        talk.cost[level]
    }

    /// Predicted sum of the speeds of all threads relative to isolation, less the cost of exchanged lines, in threads.
    pub fn value(&self) -> f64 {
        let units = 0..self.members.len();
        let speed: f64 = units
            .map(|unit| self.deliver(unit, &self.members[unit], |runner| self.far[runner]))
            .sum();
        let talks = self.pairs.talk.iter();
        let talk: f64 = talks
            .map(|talk| self.talk(talk, self.unit[talk.pair.0], self.unit[talk.pair.1]))
            .sum();
        speed - talk
    }

    /// What a runner loses (logarithm) to all around it, as long as it runs.
    pub fn lost(&self, runner: usize) -> f64 {
        let members = self.members[self.unit[runner]].iter();
        let others = members.filter(|other| **other != runner);
        let near = others
            .map(|other| self.pairs.cost(0, runner, *other) * self.scene.runners[*other].present);
        near.sum::<f64>() + self.far[runner]
    }

    /// What it loses to those on other units.
    pub fn lost_afar(&self, runner: usize) -> f64 {
        self.far[runner]
    }

    /// Those who share a level with a runner and nothing closer.
    pub fn around(&self, runner: usize, level: usize) -> Vec<usize> {
        let unit = self.unit[runner];
        let others = (0..self.unit.len()).filter(|other| *other != runner);
        others
            .filter(|other| self.scene.between(unit, self.unit[*other]) == Some(level))
            .collect()
    }

    /// What it loses to those with whom it shares less than a level.
    pub fn lost_beyond(&self, runner: usize, level: usize) -> f64 {
        if level == 0 {
            return self.far[runner];
        }
        let around = self.around(runner, level).into_iter();
        let near = around.map(|other| self.pairs.cost(level, runner, other) * self.present(other));
        self.far[runner] - near.sum::<f64>()
    }

    /// How many runners a unit has.
    pub fn count(&self, unit: usize) -> usize {
        self.members[unit].len()
    }

    /// The runners of a unit.
    pub fn members(&self, unit: usize) -> &[usize] {
        &self.members[unit]
    }

    /// Who moves where by a change.
    fn moved(&self, change: Change) -> Vec<(usize, usize)> {
        match change {
            Change::Swap(one, other) => vec![(one, self.unit[other]), (other, self.unit[one])],
            Change::Move(runner, unit) => vec![(runner, unit)],
            Change::Exchange(one, other) => {
                let there = self.members[one].iter().map(|runner| (*runner, other));
                let here = self.members[other].iter().map(|runner| (*runner, one));
                there.chain(here).collect()
            }
        }
    }

    /// By how much a change raises what is delivered. Those who do not move and share only higher levels with those who do
    /// are taken to have lost nothing on their own units.
    pub fn gain(&self, change: Change) -> f64 {
        let (one, other) = match change {
            Change::Swap(one, other) => (self.unit[one], self.unit[other]),
            Change::Move(runner, unit) => (self.unit[runner], unit),
            Change::Exchange(one, other) => (one, other),
        };
        let moved = self.moved(change);
        let goes = |runner: usize| moved.iter().find(|(who, _)| *who == runner);
        let mut gain = 0.0;
        let mut far_now: Vec<(usize, f64)> = Vec::new();
        if self.has_above() {
            let movers: Vec<usize> = moved.iter().map(|(runner, _)| *runner).collect();
            for (runner, unit) in &moved {
                let mut far = self.far_at(*runner, *unit, &movers);
                for (who, there) in &moved {
                    let level = self.level(*unit, *there);
                    if who != runner && there != unit && level != NONE {
                        let present = self.present(*who);
                        far += self.pairs.cost(usize::from(level), *runner, *who) * present;
                    }
                }
                far_now.push((*runner, far));
            }
            for (bystander, at) in self.unit.iter().enumerate() {
                if goes(bystander).is_some() {
                    continue;
                }
                let mut change = 0.0;
                for (who, there) in &moved {
                    let present = self.present(*who);
                    let cost = |unit: usize| match self.level(*at, unit) {
                        NONE | 0 => 0.0,
                        level => self.pairs.cost(usize::from(level), bystander, *who) * present,
                    };
                    change += cost(*there) - cost(self.unit[*who]);
                }
                if *at == one || *at == other {
                    far_now.push((bystander, self.far[bystander] + change));
                } else if change != 0.0 {
                    let lost = -(-change).exp_m1();
                    gain -= (-self.far[bystander]).exp() * lost * self.present(bystander);
                }
            }
        }
        let far = |runner: usize| {
            let now = far_now.iter().find(|(who, _)| *who == runner);
            now.map_or(self.far[runner], |(_, far)| *far)
        };
        for unit in [one, other] {
            let stay = self.members[unit].iter().filter(|r| goes(**r).is_none());
            let come = moved.iter().filter(|(_, there)| *there == unit);
            let then: Vec<usize> = stay
                .chain(come.map(|(runner, _)| runner))
                .copied()
                .collect();
            gain += self.deliver(unit, &then, far);
            gain -= self.deliver(unit, &self.members[unit], |runner| self.far[runner]);
        }
        let mut heard: Vec<usize> = Vec::new();
        for (runner, _) in &moved {
            for at in &self.talks[*runner] {
                if heard.contains(at) {
                    continue;
                }
                heard.push(*at);
                let talk = &self.pairs.talk[*at];
                let (a, b) = talk.pair;
                let then =
                    |runner: usize| goes(runner).map_or(self.unit[runner], |(_, unit)| *unit);
                gain += self.talk(talk, self.unit[a], self.unit[b]);
                gain -= self.talk(talk, then(a), then(b));
            }
        }
        gain
    }

    /// Makes a change.
    pub fn make(&mut self, change: Change) {
        for (runner, unit) in self.moved(change) {
            let from = self.unit[runner];
            self.members[from].retain(|other| *other != runner);
            self.members[unit].push(runner);
            self.unit[runner] = unit;
        }
        self.recount();
    }

    /// Whether a change puts every thread on a unit that it may use.
    pub fn allows(&self, change: Change) -> bool {
        self.moved(change).iter().all(|(runner, unit)| {
            let runner = &self.scene.runners[*runner];
            runner.ours && self.scene.masks[runner.mask][*unit]
        })
    }
}
