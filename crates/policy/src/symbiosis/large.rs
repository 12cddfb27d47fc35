//! Placement of more threads than can be looked at pair by pair: classes of like threads, dealt out.
//!
//! Threads that use about the same are of one class. Those that disturb and suffer most are dealt out first, one to each
//! unit, and then the units in turn are filled from the other end, so that each has some of both. Time grows with the
//! number of threads, times the square of that of classes for the prediction.

use super::{
    cost::Costs,
    scene::{Runner, Scene},
};
use std::collections::HashMap;

/// Largest number of classes. Chosen: more of them improve the prediction little.
pub(super) const CLASSES: usize = 48;

/// Uses are rounded to this many steps of the largest. The steps are halved until there are few enough classes.
const STEPS: u32 = 32;

/// Threads by class, and what the classes do to each other on one unit.
#[derive(Debug, Clone)]
pub(super) struct Classes {
    /// The class of each runner.
    pub of: Vec<usize>,
    count: usize,
    /// Row by row, as [`super::loss::Pairs::levels`] at the closest level.
    cost: Vec<f64>,
}

impl Classes {
    /// Classes of runners with these uses; those of which nothing is known are of one class.
    pub fn new(costs: &Costs, level: usize, uses: &[Option<Vec<f64>>]) -> Self {
        let ways = costs.basis.ways.len();
        let mut largest = vec![0.0; ways];
        for uses in uses.iter().flatten() {
            for (largest, value) in largest.iter_mut().zip(uses) {
                *largest = f64::max(*largest, *value);
            }
        }
        let mut steps = STEPS;
        let (of, count) = loop {
            let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
            let class = |uses: &Option<Vec<f64>>| {
                let step = |(value, largest): (&f64, &f64)| match *largest > 0.0 {
                    true => (value / largest * f64::from(steps)) as u8 + 1,
                    false => 0,
                };
                let uses = uses.iter().flatten().zip(&largest);
                let key: Vec<u8> = uses.map(step).collect();
                let next = known.len();
                *known.entry(key).or_insert(next)
            };
            let of: Vec<usize> = uses.iter().map(class).collect();
            if known.len() <= CLASSES || steps <= 1 {
                break (of, known.len());
            }
            steps /= 2;
        };
        let mut means = vec![(vec![0.0; ways], 0.0); count];
        for (class, uses) in of.iter().zip(uses) {
            let (sums, threads) = &mut means[*class];
            for (sum, value) in sums.iter_mut().zip(uses.iter().flatten()) {
                *sum += value;
            }
            *threads += 1.0;
        }
        for (sums, threads) in &mut means {
            sums.iter_mut().for_each(|sum| *sum /= *threads);
        }
        let mut terms = Vec::new();
        let cost = (0..count * count)
            .map(|at| {
                costs.of(
                    level,
                    &means[at / count].0,
                    &means[at % count].0,
                    &mut terms,
                )
            })
            .collect();
        Self { of, count, cost }
    }

    /// What all deliver with each runner on its unit.
    pub fn value(&self, scene: &Scene, unit: &[usize]) -> f64 {
        let classes = self.count;
        let mut present = vec![0.0; scene.units.len() * classes];
        for (runner, unit) in unit.iter().enumerate() {
            present[unit * classes + self.of[runner]] += scene.runners[runner].present;
        }
        let there = present.chunks(classes).zip(&scene.units);
        there
            .map(|(present, unit)| {
                let width = unit.width as f64;
                let load: f64 = present.iter().sum();
                let (time, beside) = match load > width {
                    true => (width / load, ((width - 1.0) / (load - 1.0)).max(0.0)),
                    false => (1.0, 1.0),
                };
                let mut delivered = 0.0;
                for (class, threads) in present.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                    let row = &self.cost[class * classes..][..classes];
                    let all: f64 = row.iter().zip(present).map(|(cost, p)| cost * p).sum();
                    let others = (all - row[class] * threads.min(1.0)) * beside;
                    delivered += threads * time * (-others).exp();
                }
                delivered
            })
            .sum()
    }

    /// A unit for each runner: dealt out by what their classes do to each other. Those that may not be anywhere stay, and
    /// so do threads of a class as far as their unit gets as many of them.
    pub fn deal(&self, scene: &Scene) -> Vec<usize> {
        let classes = self.count;
        let weight = |class: usize| -> f64 {
            let others = 0..classes;
            others
                .map(|other| {
                    self.cost[class * classes + other] + self.cost[other * classes + class]
                })
                .sum()
        };
        let free = |runner: &Runner| runner.ours && scene.masks[runner.mask].iter().all(|may| *may);
        let mut unit: Vec<usize> = scene.runners.iter().map(|runner| runner.unit).collect();
        let mut room = rooms(scene);
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); classes];
        for (runner, of) in scene.runners.iter().enumerate() {
            match free(of) {
                true => waiting[self.of[runner]].push(runner),
                false => room[of.unit] = room[of.unit].saturating_sub(1),
            }
        }
        let mut order: Vec<usize> = (0..classes).collect();
        order.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
        // Who is dealt: by class, in that order; the turns alternate between its ends.
        let mut cards: std::collections::VecDeque<usize> = order
            .iter()
            .flat_map(|class| std::iter::repeat_n(*class, waiting[*class].len()))
            .collect();
        let mut quota = vec![0usize; scene.units.len() * classes];
        for round in 0.. {
            let heavy = round % 2 == 0;
            let mut dealt = false;
            for at in 0..scene.units.len() {
                // The heaviest gets the lightest; two rounds forth and two back, so that the first units do not always get
                // the heaviest.
                let back = round % 4 >= 2;
                let at = if back { scene.units.len() - 1 - at } else { at };
                if room[at] == 0 {
                    continue;
                }
                let card = if heavy {
                    cards.pop_front()
                } else {
                    cards.pop_back()
                };
                let Some(class) = card else { break };
                room[at] -= 1;
                quota[at * classes + class] += 1;
                dealt = true;
            }
            if !dealt {
                break;
            }
        }
        // Those who are where as many of their class belong stay.
        for class in 0..classes {
            let mut homeless = Vec::new();
            for runner in std::mem::take(&mut waiting[class]) {
                let left = &mut quota[unit[runner] * classes + class];
                match *left {
                    0 => homeless.push(runner),
                    _ => *left -= 1,
                }
            }
            let mut at = 0;
            for runner in homeless {
                while at < scene.units.len() && quota[at * classes + class] == 0 {
                    at += 1;
                }
                if at < scene.units.len() {
                    quota[at * classes + class] -= 1;
                    unit[runner] = at;
                }
            }
        }
        unit
    }
}

/// How many threads each unit takes: as many as PUs, or its part of all; enough for all.
fn rooms(scene: &Scene) -> Vec<usize> {
    let pus: usize = scene.units.iter().map(|unit| unit.width).sum();
    let threads = scene.runners.len();
    if threads <= scene.units.len() {
        return vec![1; scene.units.len()];
    }
    let part = |width: usize| (threads * width).div_ceil(pus.max(1)).max(1);
    scene.units.iter().map(|unit| part(unit.width)).collect()
}
