//! The measured speeds of co-running threads correct what the calibration predicts for them.
//!
//! For each thread its speed alone, how much more or less than predicted it suffers, how much more or less others suffer
//! from it, and what is left for a pair: small where little was seen, so that one odd period does not decide.

use super::loss::Pairs;

/// Ridge penalty that pulls a thread's factors towards 1, in squared logarithms of slowdowns.
const HELD: f64 = 0.02;

/// Factors stay between 1/e^this and e^this, and no cost becomes greater than this (logarithm): as `cost::MOST`.
const FURTHEST: f64 = 1.5;

/// Rounds of the alternating fit.
const ROUNDS: usize = 30;

/// What is left is not spread over less time together than this (a square of a part): it would be magnified.
const LEAST_TIME: f64 = 0.25;

/// A pair may gain from co-running by at most this (logarithm): more is noise.
const GAIN: f64 = 0.25;

/// Speed of a thread next to some others. Threads that do the same are of one class and learn from each other.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Its class: threads that execute the same mix share what is learned.
    pub runner: usize,
    /// The classes of those who share with it what is closest, and the part of its time that each was there.
    pub beside: Vec<(usize, f64)>,
    /// Logarithm of its speed, less what it is predicted to have lost to threads farther away.
    pub speed: f64,
}

/// Corrects speeds and the costs of a level, the closest at which anything was measured; `class` is each thread's,
/// numbered from 0. Linear in what was seen.
pub(super) fn correct(pairs: &mut Pairs, level: usize, seen: &[Seen], class: &[usize]) {
    let classes = class.iter().max().map_or(0, |most| most + 1);
    let base = of_classes(pairs, level, class, classes);
    let threads = classes;
    let (mut suffers, mut presses) = (vec![0.0; threads], vec![0.0; threads]);
    let mut of_runner: Vec<Vec<usize>> = vec![Vec::new(); threads];
    let mut of_other: Vec<Vec<(usize, f64)>> = vec![Vec::new(); threads];
    for (at, one) in seen.iter().enumerate() {
        of_runner[one.runner].push(at);
        for (other, part) in &one.beside {
            of_other[*other].push((at, *part));
        }
    }
    let cost = |one: usize, other: usize, suffers: &[f64], presses: &[f64]| {
        (base[one * threads + other] * f64::exp(suffers[one] + presses[other])).min(FURTHEST)
    };
    let lost = |one: &Seen, suffers: &[f64], presses: &[f64]| -> f64 {
        let beside = one.beside.iter();
        beside
            .map(|(other, part)| part * cost(one.runner, *other, suffers, presses))
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
            for (at, time) in &of_other[other] {
                let one = &seen[*at];
                let Some(speed) = alone[one.runner] else {
                    continue;
                };
                // Of one who was seen next to one group only, nothing tells speed from loss.
                if of_runner[one.runner].len() < 2 {
                    continue;
                }
                let part = time * cost(one.runner, other, &suffers, &presses);
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
        let squares: f64 = one.beside.iter().map(|(_, part)| part * part).sum();
        for (other, part) in &one.beside {
            let (sum, count) = &mut left[one.runner * threads + other];
            *sum += rest * part / squares.max(LEAST_TIME);
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
            pairs.levels[level][one * pairs.threads + other] = corrected[of * threads + of_other];
        }
        if let Some(speed) = alone[*of] {
            pairs.speed[one] = speed.exp();
        }
    }
}

/// The costs of a level between classes: means over their threads.
fn of_classes(pairs: &Pairs, level: usize, class: &[usize], classes: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); classes * classes];
    for (one, of) in class.iter().enumerate() {
        for (other, of_other) in class.iter().enumerate() {
            if one != other {
                let (sum, count) = &mut sums[of * classes + of_other];
                *sum += pairs.cost(level, one, other);
                *count += 1.0;
            }
        }
    }
    let mean = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { 0.0 };
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_for_half_of_the_time_is_believed_by_half() {
        let threads = 3;
        let mut pairs = Pairs {
            threads,
            levels: vec![vec![0.0; threads * threads], vec![0.2; threads * threads]],
            talk: Vec::new(),
            speed: vec![1.0; threads],
        };
        // Alone it is as fast as predicted; next to two that were time-shared it lost three times as much.
        let seen = [
            Seen {
                runner: 0,
                beside: Vec::new(),
                speed: 0.0,
            },
            Seen {
                runner: 0,
                beside: vec![(1, 0.5), (2, 0.5)],
                speed: -0.6,
            },
        ];
        correct(&mut pairs, 1, &seen, &[0, 1, 2]);
        let lost = 0.5 * pairs.cost(1, 0, 1) + 0.5 * pairs.cost(1, 0, 2);
        let alone = pairs.speed[0].ln();
        assert!(alone > -0.1, "{alone}");
        assert!((alone - lost + 0.6).abs() < 0.12, "{alone} {lost}");
        // The other level is as it was, and so are those of whom nothing was seen.
        assert!(pairs.levels[0].iter().all(|cost| *cost == 0.0));
        assert!((pairs.cost(1, 1, 0) - 0.2).abs() < 1e-9);
    }
}
