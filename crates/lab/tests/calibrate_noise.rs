//! Calibrations of machines whose true slowdowns are known, measured through noise: the intervals hold as often as they
//! state, nothing is blamed for noise, and what is large enough is found. Time is virtual, and every seed is fixed.

use perch_lab::calibrate::Kind;
use perch_lab::calibrate::{
    Effort, LEVEL, Level, Measured, Measurements, Rig, Run, Sample, Seat, Sites, judge, measure,
};
use perch_policy::Share;
use std::convert::Infallible;

/// Kernels of a machine; pairs of one level.
const KERNELS: usize = 6;

/// Calibrations of each machine.
const TRIES: u64 = 120;

/// What happens while a machine is measured.
#[derive(Debug, Clone, Copy, Default)]
struct World {
    /// Standard deviation of a window's speed (logarithm).
    jitter: f64,
    /// How the speed drifts: standard deviation after a second (logarithm).
    drift: f64,
    /// Another guest's bursts: part of the time, mean seconds of each, how many times as long all takes meanwhile.
    bursts: Option<(f64, f64, f64)>,
    /// Part of the windows in which a thread has only part of its PU, and is slower for it.
    stolen: f64,
}

/// Numbers without a pattern (splitmix64; Steele et al., OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.next(), self.next());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

struct Noisy<'a> {
    world: World,
    /// By kernel and neighbour.
    truth: &'a [[f64; KERNELS]; KERNELS],
    random: Random,
    now: f64,
    drift: f64,
    burst: bool,
    /// When the burst, or the time without one, ends.
    until: f64,
}

impl<'a> Noisy<'a> {
    fn new(world: World, truth: &'a [[f64; KERNELS]; KERNELS], seed: u64) -> Self {
        Self {
            world,
            truth,
            random: Random(seed),
            now: 0.0,
            drift: 0.0,
            burst: false,
            until: 0.0,
        }
    }
}

impl Rig for Noisy<'_> {
    type Error = Infallible;

    fn window(&mut self, seats: &[Seat]) -> Result<Vec<Sample>, Infallible> {
        let time = 0.015;
        self.now += time;
        self.drift += self.world.drift * f64::sqrt(time) * self.random.normal();
        let mut slower = self.drift;
        if let Some((part, long, factor)) = self.world.bursts {
            while self.now > self.until {
                self.burst = !self.burst;
                let mean = if self.burst {
                    long
                } else {
                    long * (1.0 - part) / part
                };
                self.until += -mean * (1.0 - self.random.next()).ln();
            }
            slower += if self.burst { f64::ln(factor) } else { 0.0 };
        }
        let mut samples = Vec::new();
        for (at, seat) in seats.iter().enumerate() {
            let others = seats.iter().enumerate().filter(|(other, _)| *other != at);
            let lost: f64 = others
                .map(|(_, other)| self.truth[seat.kernel][other.kernel].ln())
                .sum();
            let jitter = self.world.jitter * self.random.normal();
            let share = match self.random.next() < self.world.stolen {
                true => 0.3 + 0.7 * self.random.next(),
                false => 1.0,
            };
            // Who had the PU meanwhile also left its caches cold.
            let cold = 0.1 * (1.0 - share);
            let speed = 1e6 * (seat.kernel + 1) as f64 * (-(lost + slower + jitter + cold)).exp();
            samples.push(Sample { speed, share });
        }
        Ok(samples)
    }

    fn seconds(&self) -> f64 {
        self.now
    }
}

const KIND: Kind<'static> = Kind {
    name: "k",
    pure: true,
    core: false,
};

/// Two PUs that share only their last cache.
fn sites() -> Sites {
    Sites {
        first: 0,
        levels: vec![Level {
            share: Share::Llc,
            pus: vec![0, 1],
        }],
    }
}

/// All pairs of the kernels.
fn runs() -> Vec<Run> {
    sites().runs(&[KIND; KERNELS], false)
}

/// One calibration.
fn measured(
    world: World,
    truth: &[[f64; KERNELS]; KERNELS],
    runs: &[Run],
    seed: u64,
) -> Vec<Vec<Measured>> {
    let mut rig = Noisy::new(world, truth, seed);
    let Ok(outcome) = measure(&mut rig, runs, &Effort::of(runs), |_| Ok(()));
    assert!(
        rig.now < Effort::of(runs).seconds + 30.0,
        "it ends in time: {}",
        rig.now
    );
    outcome.measured
}

/// What came of the calibrations of one machine.
#[derive(Debug, Default)]
struct Count {
    /// Calibrations of which an interval was wrong, and that blamed a kernel that does no harm.
    wrong: usize,
    blamed: usize,
    /// Intervals of one slowdown that were right, of all.
    own: (usize, usize),
    /// Slowdowns of at least 1.3 that were found, of all.
    found: (usize, usize),
    /// The same from 1.1 on.
    smaller: (usize, usize),
}

fn count(world: World, truth: &[[f64; KERNELS]; KERNELS], seed: u64) -> Count {
    let runs = runs();
    let mut count = Count::default();
    for try_number in 0..TRIES {
        let measured = measured(world, truth, &runs, seed + (try_number << 20));
        let judged = judge(&runs, &measured, LEVEL);
        let (mut wrong, mut blamed) = (false, false);
        for (run, judged) in runs.iter().zip(&judged) {
            for (seat, judged) in judged.iter().enumerate() {
                let Some(judged) = judged else { continue };
                let true_one = truth[run.seats[seat].kernel][run.seats[1 - seat].kernel];
                let holds = |low: f64, high: f64| {
                    low - 1e-9 <= true_one.ln() && true_one.ln() <= high + 1e-9
                };
                wrong |= !holds(judged.all.low(), judged.all.high());
                count.own.0 += usize::from(holds(judged.own.low(), judged.own.high()));
                count.own.1 += 1;
                blamed |= judged.is_significant() && true_one <= 1.0;
                if true_one >= 1.1 {
                    count.smaller.0 += usize::from(judged.is_significant());
                    count.smaller.1 += 1;
                }
                if true_one >= 1.3 {
                    count.found.0 += usize::from(judged.is_significant());
                    count.found.1 += 1;
                }
            }
        }
        count.wrong += usize::from(wrong);
        count.blamed += usize::from(blamed);
    }
    count
}

/// No more than a rate of `level` explains, three standard deviations included.
fn most(level: f64) -> usize {
    let tries = TRIES as f64;
    (tries * level + 3.0 * (tries * level * (1.0 - level)).sqrt()).floor() as usize
}

const WORLDS: [World; 6] = [
    // An idle machine.
    World {
        jitter: 0.003,
        drift: 0.0,
        bursts: None,
        stolen: 0.0,
    },
    // Others use the PUs now and then.
    World {
        jitter: 0.01,
        drift: 0.02,
        bursts: None,
        stolen: 0.1,
    },
    // The speed of all changes by a factor of two within minutes (a random walk).
    World {
        jitter: 0.02,
        drift: 0.1,
        bursts: None,
        stolen: 0.0,
    },
    // Another guest's bursts, as long as a window, as a few visits, as a pass; twice as slow all alike.
    World {
        jitter: 0.005,
        drift: 0.0,
        bursts: Some((0.3, 0.02, 2.0)),
        stolen: 0.0,
    },
    World {
        jitter: 0.005,
        drift: 0.01,
        bursts: Some((0.2, 0.2, 2.0)),
        stolen: 0.05,
    },
    World {
        jitter: 0.05,
        drift: 0.02,
        bursts: Some((0.4, 3.0, 1.5)),
        stolen: 0.0,
    },
];

/// Half of the kernels slow each other down.
fn mixed() -> [[f64; KERNELS]; KERNELS] {
    let slowdown = [1.05, 1.1, 1.3, 1.6, 2.0, 3.0];
    std::array::from_fn(|own| {
        std::array::from_fn(|other| match own >= 3 && other >= 3 {
            true => slowdown[(own * 2 + other * 3) % slowdown.len()],
            false => 1.0,
        })
    })
}

#[test]
fn where_nothing_contends_nothing_is_blamed() {
    let none = [[1.0; KERNELS]; KERNELS];
    for (number, world) in WORLDS.into_iter().enumerate() {
        let count = count(world, &none, 1 + number as u64);
        println!("{world:?}: {count:?}");
        assert!(count.blamed <= most(LEVEL), "{world:?}: {count:?}");
        assert!(count.wrong <= most(LEVEL), "{world:?}: {count:?}");
    }
}

#[test]
fn intervals_hold_as_often_as_they_state_and_large_slowdowns_are_found() {
    let truth = mixed();
    for (number, world) in WORLDS.into_iter().enumerate() {
        let count = count(world, &truth, 100 + number as u64);
        println!("{world:?}: {count:?}");
        assert!(count.wrong <= most(LEVEL), "{world:?}: {count:?}");
        assert!(count.blamed <= most(LEVEL), "{world:?}: {count:?}");
        let own = count.own.0 as f64 / count.own.1 as f64;
        assert!(own >= 1.0 - LEVEL, "{world:?}: {count:?}");
        // Where single windows are good to a few percent, all is found that is worth a move.
        if world.bursts.is_none() {
            assert_eq!(count.found.0, count.found.1, "{world:?}: {count:?}");
        }
        if world.jitter <= 0.01 && world.bursts.is_none() {
            assert!(
                count.smaller.0 as f64 >= 0.95 * count.smaller.1 as f64,
                "{world:?}: {count:?}"
            );
        }
    }
}

/// Two calibrations of a machine, of which the second meets others' bursts, agree: no interval of the one is beside that
/// of the other more often than both state.
#[test]
fn two_calibrations_agree_with_and_without_a_disturbance() {
    let (truth, runs) = (mixed(), runs());
    let mut apart = 0;
    for seed in 0..TRIES {
        let one = judge(
            &runs,
            &measured(WORLDS[0], &truth, &runs, 7 + (seed << 20)),
            LEVEL,
        );
        let other = judge(
            &runs,
            &measured(WORLDS[4], &truth, &runs, 8 + (seed << 20)),
            LEVEL,
        );
        let mut pairs = one
            .iter()
            .flatten()
            .flatten()
            .zip(other.iter().flatten().flatten());
        apart += usize::from(
            pairs.any(|(a, b)| a.all.low() > b.all.high() || b.all.low() > a.all.high()),
        );
    }
    assert!(apart <= most(LEVEL), "{apart} of {TRIES}");
}

/// Where all threads share the same whatever placement does, that is what the calibration says, be there contention or not.
#[test]
fn two_pus_with_a_last_cache_in_common_leave_nothing_to_placement() {
    let (sites, runs) = (sites(), runs());
    let none = [[1.0; KERNELS]; KERNELS];
    for (truth, why) in [
        (none, "no slowdown is more than noise"),
        (mixed(), "each two PUs share the same"),
    ] {
        for (number, world) in WORLDS.into_iter().enumerate() {
            let measured = measured(world, &truth, &runs, 40 + number as u64);
            let measurements = Measurements {
                kernels: vec![KIND; KERNELS],
                sites: &sites,
                runs: &runs,
                measured: &measured,
            };
            let calibration = measurements.calibration("m".into(), "d".into(), &[]);
            let told = calibration.notes.join("\n");
            let expected = format!("nothing that placement could use: {why}");
            assert!(told.contains(&expected), "{world:?}: {told}");
        }
    }
}
