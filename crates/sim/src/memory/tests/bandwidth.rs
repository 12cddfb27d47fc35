//! A memory channel against queueing theory and against its own bandwidth.

use crate::{
    memory::bandwidth::Channel,
    stream::Random,
    units::{Ps, SECOND},
};
use proptest::prelude::*;

/// 64 bytes at 6.4 GB/s.
const SERVICE: Ps = 10_000;

fn channel() -> Channel {
    Channel::new(64, 64.0 * SECOND as f64 / SERVICE as f64)
}

/// Arrivals of a Poisson process that loads the channel this much.
fn arrivals(load: f64, count: usize, seed: u64) -> Vec<Ps> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    let next = |_| {
        at -= (1.0 - random.unit()).ln() * SERVICE as f64 / load;
        at as Ps
    };
    (0..count).map(next).collect()
}

/// Moves a part of the arrivals back in time as cores do that are simulated one after the other: of every quantum first
/// those of one half, then those of the other.
fn by_quanta(times: &[Ps], quantum: Ps) -> Vec<Ps> {
    let mut random = Random::new(7);
    let mut marked: Vec<(Ps, bool, Ps)> = times
        .iter()
        .map(|at| (at / quantum, random.unit() < 0.5, *at))
        .collect();
    marked.sort();
    marked.into_iter().map(|(_, _, at)| at).collect()
}

fn mean(waits: &[Ps]) -> f64 {
    waits.iter().sum::<Ps>() as f64 / waits.len() as f64
}

/// M/D/1: W = load × service / (2 (1 − load)).
#[test]
fn waits_as_the_formula_says() {
    for (load, seed) in [(0.2, 1), (0.5, 2), (0.7, 3), (0.85, 4)] {
        let mut channel = channel();
        let waits: Vec<Ps> = arrivals(load, 400_000, seed)
            .into_iter()
            .map(|at| channel.request(at))
            .collect();
        let expected = load * SERVICE as f64 / (2.0 * (1.0 - load));
        let off = mean(&waits) / expected - 1.0;
        assert!(
            off.abs() < 0.03,
            "load {load}: mean wait {} ps, by the formula {expected}",
            mean(&waits)
        );
    }
}

/// Requests that come in quanta wait no longer on the whole than a small part of a quantum more, however long it goes on.
#[test]
fn out_of_order_requests_do_not_drift() {
    for load in [0.3, 0.6, 0.8] {
        let times = arrivals(load, 200_000, 5);
        let mut ordered = channel();
        let fair: Vec<Ps> = times.iter().map(|at| ordered.request(*at)).collect();
        let quantum = 10 * SERVICE;
        let mut jittered = channel();
        let waits: Vec<Ps> = by_quanta(&times, quantum)
            .iter()
            .map(|at| jittered.request(*at))
            .collect();
        let (first, second) = waits.split_at(waits.len() / 2);
        assert!(
            mean(&waits) < mean(&fair) + quantum as f64,
            "load {load}: {} for {}",
            mean(&waits),
            mean(&fair)
        );
        assert!(
            mean(second) < mean(first) * 1.2,
            "load {load}: {} after {}",
            mean(second),
            mean(first)
        );
    }
}

/// Short idle times between transfers are used together: no bandwidth is lost.
#[test]
fn idle_times_that_are_too_short_for_a_line_are_used_together() {
    let mut channel = channel();
    for at in [0, 15_000, 30_000] {
        assert_eq!(channel.request(at), 0);
    }
    // 5,000 from 10,000 on, and 5,000 from 25,000 on.
    assert_eq!(channel.request(0), 20_000);
    assert_eq!(channel.request(0), 40_000);
}

#[test]
fn without_a_limit_nobody_waits() {
    for bandwidth in [f64::INFINITY, 0.0, -1.0, f64::NAN] {
        let mut channel = Channel::new(64, bandwidth);
        assert!((0..100).all(|_| channel.request(5) == 0), "{bandwidth}");
    }
}

proptest! {
    /// In order of time it is the plain queue: each request waits until all before it are done.
    #[test]
    fn first_come_first_served_in_order(steps in prop::collection::vec(0u64..30_000, 1..300)) {
        let mut channel = channel();
        let (mut now, mut free) = (0, 0);
        for step in steps {
            now += step;
            let wait = channel.request(now);
            prop_assert_eq!(wait, free.max(now) - now);
            free = free.max(now) + SERVICE;
        }
    }

    /// Whatever the order of the requests, from no moment on more is done than the bandwidth allows.
    #[test]
    fn the_bandwidth_is_never_exceeded(times in prop::collection::vec(0u64..1_000_000, 1..100)) {
        let mut channel = channel();
        let done: Vec<(Ps, Ps)> = times
            .iter()
            .map(|at| (*at, at + channel.request(*at) + SERVICE))
            .collect();
        for (from, _) in &done {
            for (_, to) in &done {
                let inside = done.iter().filter(|(at, end)| at >= from && end <= to).count() as u64;
                prop_assert!(inside * SERVICE <= to.saturating_sub(*from), "{from} to {to}: {inside}");
            }
        }
    }

    /// A request for an idle time far back is not held up by what comes later.
    #[test]
    fn late_requests_use_idle_times(start in 0u64..1_000_000, ahead in 1_000_000u64..1_000_000_000) {
        let mut channel = channel();
        channel.request(start + ahead);
        prop_assert_eq!(channel.request(start), 0);
        prop_assert_eq!(channel.request(start), SERVICE);
    }
}
