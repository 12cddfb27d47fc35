//! What threads really did beside each other corrects what the calibration predicts for them.
//!
//! For each thread its speed alone, how much more or less than predicted it suffers, how much more or less others suffer
//! from it, and what is left for a pair: small where little was seen, so that one odd period does not decide.

use super::loss::Pairs;

/// How strongly a thread's factors are held to 1 (in squares of logarithms of slowdowns).
const HELD: f64 = 0.02;

/// Factors stay between 1/e^this and e^this.
const FURTHEST: f64 = 1.5;

const ROUNDS: usize = 30;

/// A pair may gain from being together, by at most this (logarithm): more is chance.
const GAIN: f64 = 0.25;

/// How fast a thread was beside some others.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Who.
    pub runner: usize,
    /// Beside whom: all on its unit.
    pub beside: Vec<usize>,
    /// Logarithm of its speed, less what it is predicted to have lost to threads on other units.
    pub speed: f64,
}

/// Corrects speeds and the costs of the closest level. Linear in what was seen.
pub(super) fn correct(pairs: &mut Pairs, seen: &[Seen]) {
    let threads = pairs.threads;
    let (mut suffers, mut presses) = (vec![0.0; threads], vec![0.0; threads]);
    let mut of_runner: Vec<Vec<usize>> = vec![Vec::new(); threads];
    let mut of_other: Vec<Vec<usize>> = vec![Vec::new(); threads];
    for (at, one) in seen.iter().enumerate() {
        of_runner[one.runner].push(at);
        for other in &one.beside {
            of_other[*other].push(at);
        }
    }
    let base = pairs.levels[0].clone();
    let cost = |one: usize, other: usize, suffers: &[f64], presses: &[f64]| {
        base[one * threads + other] * f64::exp(suffers[one] + presses[other])
    };
    let lost = |one: &Seen, suffers: &[f64], presses: &[f64]| -> f64 {
        let beside = one.beside.iter();
        beside
            .map(|other| cost(one.runner, *other, suffers, presses))
            .sum()
    };
    let mut alone: Vec<Option<f64>> = vec![None; threads];
    for _ in 0..ROUNDS {
        for runner in 0..threads {
            let mine = &of_runner[runner];
            if mine.is_empty() {
                continue;
            }
            let speeds = mine
                .iter()
                .map(|at| seen[*at].speed + lost(&seen[*at], &suffers, &presses));
            let speed = speeds.sum::<f64>() / mine.len() as f64;
            alone[runner] = Some(speed);
            if mine.len() < 2 {
                continue;
            }
            let (mut up, mut down) = (-HELD * suffers[runner], HELD);
            for at in mine {
                let predicted = lost(&seen[*at], &suffers, &presses);
                up += (speed - seen[*at].speed - predicted) * predicted;
                down += predicted * predicted;
            }
            suffers[runner] = (suffers[runner] + 0.5 * up / down).clamp(-FURTHEST, FURTHEST);
        }
        for other in 0..threads {
            let (mut up, mut down) = (-HELD * presses[other], HELD);
            for at in &of_other[other] {
                let one = &seen[*at];
                let Some(speed) = alone[one.runner] else {
                    continue;
                };
                // Of one who was seen beside one group only, nothing tells speed from loss.
                if of_runner[one.runner].len() < 2 {
                    continue;
                }
                let part = cost(one.runner, other, &suffers, &presses);
                up += (speed - one.speed - lost(one, &suffers, &presses)) * part;
                down += part * part;
            }
            presses[other] = (presses[other] + 0.5 * up / down).clamp(-FURTHEST, FURTHEST);
        }
    }
    let costs = &mut pairs.levels[0];
    for one in 0..threads {
        for other in 0..threads {
            costs[one * threads + other] = cost(one, other, &suffers, &presses);
        }
        if let Some(speed) = alone[one] {
            pairs.speed[one] = speed.exp();
        }
    }
    // What is left belongs to those who were together.
    let mut left: Vec<(usize, f64, f64)> = Vec::new();
    for one in seen {
        let Some(speed) = alone[one.runner].filter(|_| !one.beside.is_empty()) else {
            continue;
        };
        let rest = speed - one.speed - lost(one, &suffers, &presses);
        for other in &one.beside {
            let pair = one.runner * threads + other;
            left.push((pair, rest / one.beside.len() as f64, 1.0));
        }
    }
    left.sort_by_key(|(pair, ..)| *pair);
    left.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
            kept.2 += 1.0;
        }
        same
    });
    for (pair, sum, count) in left {
        costs[pair] = (costs[pair] + sum / count).max(-GAIN);
    }
}
