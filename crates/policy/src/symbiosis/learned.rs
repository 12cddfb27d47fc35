//! What threads really did beside each other corrects what the calibration predicts for them.
//!
//! For each thread its speed alone, how much more or less than predicted it suffers, how much more or less others suffer
//! from it, and what is left for a pair: small where little was seen, so that one odd period does not decide.

use super::loss::Pairs;

/// How strongly a thread's factors are held to 1 (in squares of logarithms of slowdowns).
const HELD: f64 = 0.02;

/// Factors stay between 1/e^this and e^this, and no cost becomes greater than this.
const FURTHEST: f64 = 1.5;

const ROUNDS: usize = 30;

/// A pair may gain from being together, by at most this (logarithm): more is chance.
const GAIN: f64 = 0.25;

/// How fast a thread was beside some others. Threads that do the same are of one class and learn from each other.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Its class.
    pub runner: usize,
    /// The classes of those beside it: all on its unit.
    pub beside: Vec<usize>,
    /// Logarithm of its speed, less what it is predicted to have lost to threads on other units.
    pub speed: f64,
}

/// Corrects speeds and the costs of the closest level; `class` is each thread's, numbered from 0. Linear in what was
/// seen.
pub(super) fn correct(pairs: &mut Pairs, seen: &[Seen], class: &[usize]) {
    let classes = class.iter().max().map_or(0, |most| most + 1);
    let base = of_classes(pairs, class, classes);
    let threads = classes;
    let (mut suffers, mut presses) = (vec![0.0; threads], vec![0.0; threads]);
    let mut of_runner: Vec<Vec<usize>> = vec![Vec::new(); threads];
    let mut of_other: Vec<Vec<usize>> = vec![Vec::new(); threads];
    for (at, one) in seen.iter().enumerate() {
        of_runner[one.runner].push(at);
        for other in &one.beside {
            of_other[*other].push(at);
        }
    }
    let cost = |one: usize, other: usize, suffers: &[f64], presses: &[f64]| {
        (base[one * threads + other] * f64::exp(suffers[one] + presses[other])).min(FURTHEST)
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
    let mut corrected = vec![0.0; threads * threads];
    for one in 0..threads {
        for other in 0..threads {
            corrected[one * threads + other] = cost(one, other, &suffers, &presses);
        }
    }
    // What is left belongs to those who were together.
    let mut left = vec![(0.0, 0.0); threads * threads];
    for one in seen {
        let Some(speed) = alone[one.runner].filter(|_| !one.beside.is_empty()) else {
            continue;
        };
        let rest = speed - one.speed - lost(one, &suffers, &presses);
        for other in &one.beside {
            let (sum, count) = &mut left[one.runner * threads + other];
            *sum += rest / one.beside.len() as f64;
            *count += 1.0;
        }
    }
    for (cost, (sum, count)) in corrected.iter_mut().zip(left) {
        if count > 0.0 {
            *cost = (*cost + sum / count).clamp(-GAIN, FURTHEST);
        }
    }
    for (one, of) in class.iter().enumerate() {
        for (other, of_other) in class.iter().enumerate() {
            pairs.levels[0][one * pairs.threads + other] = corrected[of * threads + of_other];
        }
        if let Some(speed) = alone[*of] {
            pairs.speed[one] = speed.exp();
        }
    }
}

/// The costs of the closest level between classes: means over their threads.
fn of_classes(pairs: &Pairs, class: &[usize], classes: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); classes * classes];
    for (one, of) in class.iter().enumerate() {
        for (other, of_other) in class.iter().enumerate() {
            if one != other {
                let (sum, count) = &mut sums[of * classes + of_other];
                *sum += pairs.cost(0, one, other);
                *count += 1.0;
            }
        }
    }
    let mean = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { 0.0 };
    sums.into_iter().map(mean).collect()
}
