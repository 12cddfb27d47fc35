//! How far the interval level is from the cycle level: random mixes at random places, simulated at both.
//!
//! The limits were set before any run: over random sets of threads the throughput's mean error below 5 %, the largest
//! below 15 %, and Kendall's tau of the ranking of placements 0.9 or more.

use crate::{
    parallel::{each, host_threads},
    random,
    settled::settle,
    simulate::begin_at,
};
use perch_sim::{
    detail::{Detail, Fidelity},
    model::MachineModel,
    os::SchedulerModel,
    stream::Random,
    system::{SimError, System},
    units::Ps,
    workload::WorkloadModel,
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, str::FromStr, sync::Arc, time::Instant};

/// Limits of the mean and the largest error of the throughput, and of the rank correlation.
pub const LIMITS: (f64, f64, f64) = (0.05, 0.15, 0.9);

/// Throughputs that differ by less rank equal: so much is chance.
const EQUAL: f64 = 0.01;

/// Cycles of the machine's first kind of core before anything is measured, at most, and while it is.
const MOST: u64 = 50_000_000;
const MEASURED: u64 = 600_000;

/// Picoseconds while it is measured where threads time-share PUs: a few slices of each.
const MEASURED_IN_SLICES: Ps = 40_000_000_000;

/// How many threads a workload has: a number, or as many as the machine has PUs, or twice as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCount {
    /// This many.
    Of(u32),
    /// One for each PU: `pus`.
    Pus,
    /// Two for each PU, which they time-share: `2pus`.
    TwicePus,
}

impl ThreadCount {
    /// How many these are on a machine; `None` if there are more than two for each PU.
    pub fn on(self, machine: &MachineModel) -> Option<u32> {
        let pus = machine.pus() as u32;
        let threads = match self {
            Self::Of(threads) => threads,
            Self::Pus => pus,
            Self::TwicePus => 2 * pus,
        };
        (threads <= 2 * pus).then_some(threads)
    }
}

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("pus", _) => Ok(Self::Pus),
            ("2pus", _) => Ok(Self::TwicePus),
            (_, Ok(threads @ 1..=1024)) => Ok(Self::Of(threads)),
            _ => Err("neither a number from 1 to 1024 nor `pus` or `2pus`".to_owned()),
        }
    }
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The machine.
    pub machine: Arc<MachineModel>,
    /// How many threads each workload has: at most twice as many as there are PUs. Those of one PU time-share it.
    pub threads: u32,
    /// How many workloads are drawn.
    pub workloads: u32,
    /// The number of random placements at which each is simulated.
    pub placements: u32,
    /// Whether caches are cold and all is measured from the first access on. Otherwise they are as they are after a long
    /// time: filled at first, and measured when the cycle level has settled ([`settle`]), at the latest after 50 million
    /// cycles.
    pub cold: bool,
    /// Simulated while it is measured.
    pub measured: Ps,
    /// The seed of all that is drawn.
    pub seed: u64,
}

/// What came of it. Errors are parts of the cycle level's figure: 0.01 is 1 %.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The machine's name.
    pub machine: String,
    /// How many threads.
    pub threads: u32,
    /// How many workloads at how many places.
    pub simulations: u32,
    /// The mean error of the throughput of all threads.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// The mean error of one thread's speed.
    pub thread_mean: f64,
    /// The largest.
    pub thread_largest: f64,
    /// The mean over the workloads of Kendall's tau-b of the placements' ranking; `None` if no placement of any
    /// workload was better than another.
    pub tau: Option<f64>,
    /// Simulations that had not settled when they were measured.
    pub unsettled: u32,
    /// How many times faster it was, solving included.
    pub faster: f64,
}

/// Differences, and which simulator they are of: what `perch lab fidelity --json` prints and `docs/results/` keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What both levels computed then ([`State::both`](crate::fingerprint::State) of the levels).
    pub fingerprint: String,
    /// The seed of all that was drawn.
    pub seed: u64,
    /// One for each machine and number of threads.
    pub differences: Vec<Difference>,
}

impl Measured {
    /// As a table of Markdown.
    pub fn table(&self) -> String {
        let mut text =
            "| machine | threads | mean | largest | thread | largest | tau | unsettled | |\n\
             | --- | --: | --: | --: | --: | --: | --: | --: | --- |\n"
                .to_owned();
        let percent = |part: f64| format!("{:.2} %", 100.0 * part);
        for found in &self.differences {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} | {} | {} of {} | {} |",
                found.machine,
                found.threads,
                percent(found.mean),
                percent(found.largest),
                percent(found.thread_mean),
                percent(found.thread_largest),
                found.tau.map_or("-".into(), |tau| format!("{tau:.2}")),
                found.unsettled,
                found.simulations,
                match found.holds() {
                    true => "holds",
                    false => "**misses**",
                }
            );
        }
        text
    }
}

impl Comparison {
    /// The usual times, with warm caches. Where threads time-share PUs, the machine has a scale of 1: at 1000, slices are a
    /// few microseconds, in which no cache is filled.
    pub fn new(
        machine: Arc<MachineModel>,
        threads: u32,
        workloads: u32,
        placements: u32,
        seed: u64,
    ) -> Self {
        let (machine, measured) = match threads as usize > machine.pus() {
            true => (Arc::new(machine.at_real_clocks()), MEASURED_IN_SLICES),
            false => {
                let measured = MEASURED * machine.first_cycle();
                (machine, measured)
            }
        };
        Self {
            machine,
            threads,
            workloads,
            placements,
            cold: false,
            measured,
            seed,
        }
    }
}

impl Difference {
    /// Whether it is within the limits.
    pub fn holds(&self) -> bool {
        let (mean, largest, tau) = LIMITS;
        self.mean < mean && self.largest < largest && self.tau.is_none_or(|found| found >= tau)
    }
}

/// One workload at one placement at both levels.
struct Pair {
    cycle: Vec<f64>,
    interval: Vec<f64>,
    settled: bool,
    seconds: (f64, f64),
}

/// What one level did.
struct Played {
    /// Instructions of each thread in the measured time.
    done: Vec<f64>,
    /// When that began.
    begun: Ps,
    settled: bool,
    /// Of the host.
    seconds: f64,
}

/// Runs a comparison on all of the host's cores. Reports to `done` how many simulations are done.
///
/// # Errors
/// None with the workloads that are drawn here: they never wait for each other.
pub fn compare(comparison: &Comparison, done: impl FnMut(usize)) -> Result<Difference, SimError> {
    let pus = comparison.machine.pus() as u32;
    let threads = comparison.threads.min(2 * pus);
    let mut cases = Vec::new();
    for number in 0..comparison.workloads {
        let (workload, mut chance) = draw(comparison.seed, threads, number);
        for _ in 0..comparison.placements {
            let places = random::places(threads, pus, &mut chance);
            cases.push((Arc::clone(&workload), places));
        }
    }
    let both = |at: usize| {
        let (workload, places) = &cases[at];
        let cycle = play(Fidelity::Cycle, comparison, workload, places, None)?;
        // The same span at both levels.
        let begun = Some(cycle.begun);
        let interval = play(Fidelity::Interval, comparison, workload, places, begun)?;
        Ok(Pair {
            settled: cycle.settled,
            seconds: (cycle.seconds, interval.seconds),
            cycle: cycle.done,
            interval: interval.done,
        })
    };
    let pairs = each(cases.len(), host_threads(), both, done).map_err(|(_, error)| error)?;
    Ok(summary(comparison, threads, &pairs))
}

/// A workload of a comparison, and the chance that draws its placements.
fn draw(seed: u64, threads: u32, number: u32) -> (Arc<WorkloadModel>, Random) {
    let part = u64::from(threads) << 32 | u64::from(number);
    let mut chance = Random::new(seed).part(part);
    (Arc::new(random::workload(threads, &mut chance)), chance)
}

fn summary(comparison: &Comparison, threads: u32, pairs: &[Pair]) -> Difference {
    let wrong = |ours: f64, exact: f64| (ours / exact - 1.0).abs();
    let sum = |each: &[f64]| each.iter().sum::<f64>();
    let errors: Vec<f64> = pairs
        .iter()
        .map(|pair| wrong(sum(&pair.interval), sum(&pair.cycle)))
        .collect();
    let each = |pair: &Pair| -> Vec<f64> {
        let both = pair.interval.iter().zip(&pair.cycle);
        both.map(|(ours, exact)| wrong(*ours, *exact)).collect()
    };
    let of_threads: Vec<f64> = pairs.iter().flat_map(each).collect();
    let rankings = pairs.chunks(comparison.placements.max(1) as usize);
    let taus: Vec<f64> = rankings
        .filter_map(|pairs| {
            let cycle: Vec<f64> = pairs.iter().map(|pair| sum(&pair.cycle)).collect();
            let interval: Vec<f64> = pairs.iter().map(|pair| sum(&pair.interval)).collect();
            tau(&cycle, &interval)
        })
        .collect();
    let mean = |all: &[f64]| sum(all) / all.len().max(1) as f64;
    let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let slow: f64 = pairs.iter().map(|pair| pair.seconds.0).sum();
    let fast: f64 = pairs.iter().map(|pair| pair.seconds.1).sum();
    Difference {
        machine: comparison.machine.name.clone(),
        threads,
        simulations: pairs.len() as u32,
        mean: mean(&errors),
        largest: largest(&errors),
        thread_mean: mean(&of_threads),
        thread_largest: largest(&of_threads),
        tau: (!taus.is_empty()).then(|| mean(&taus)),
        unsettled: pairs.iter().filter(|pair| !pair.settled).count() as u32,
        faster: slow / fast.max(1e-9),
    }
}

/// Plays a workload at a placement, and measures from `begun` on; from when it has settled if that is not given.
fn play(
    fidelity: Fidelity,
    comparison: &Comparison,
    workload: &Arc<WorkloadModel>,
    places: &[u32],
    begun: Option<Ps>,
) -> Result<Played, SimError> {
    let clock = Instant::now();
    let machine = Arc::clone(&comparison.machine);
    let detail = Detail::new(fidelity, &machine, workload);
    let workload = Arc::clone(workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    begin_at(&mut system, places)?;
    let mut settled = true;
    if !comparison.cold {
        system.warm();
        match begun {
            Some(begun) => system.run(begun)?,
            None => settled = settle(&mut system, MOST)?,
        }
    }
    let done = |system: &System| -> Vec<u64> {
        let threads = system.threads().iter();
        threads
            .map(|thread| thread.counters.instructions())
            .collect()
    };
    let (begun, before) = (system.now(), done(&system));
    system.run(begun + comparison.measured)?;
    let after = done(&system);
    let each = after
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64);
    Ok(Played {
        done: each.collect(),
        begun,
        settled,
        seconds: clock.elapsed().as_secs_f64(),
    })
}

/// Kendall's tau-b of two rankings; differences below [`EQUAL`] count as none. `None` if all are equal in the first.
fn tau(exact: &[f64], ours: &[f64]) -> Option<f64> {
    let order = |a: f64, b: f64| match a / b {
        ratio if (ratio - 1.0).abs() < EQUAL => 0i32,
        ratio if ratio > 1.0 => 1,
        _ => -1,
    };
    let (mut agree, mut ranked, mut ranked_by_us) = (0, 0, 0);
    for i in 0..exact.len() {
        for j in 0..i {
            let (a, b) = (order(exact[i], exact[j]), order(ours[i], ours[j]));
            agree += a * b;
            ranked += a.abs();
            ranked_by_us += b.abs();
        }
    }
    let all = (f64::from(ranked) * f64::from(ranked_by_us)).sqrt();
    match ranked {
        0 => None,
        _ if all == 0.0 => Some(0.0),
        _ => Some(f64::from(agree) / all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_are_numbers_or_by_the_number_of_pus() {
        let machine = perch_sim::config::find_machine("core2-quad").unwrap();
        let on = |text: &str| text.parse().map(|count: ThreadCount| count.on(&machine));
        assert_eq!(on("3"), Ok(Some(3)));
        assert_eq!(on("pus"), Ok(Some(4)));
        assert_eq!(on("2pus"), Ok(Some(8)));
        assert_eq!(on("9"), Ok(None));
        for wrong in ["0", "1025", "-1", "", "pu", "3pus"] {
            assert!(on(wrong).is_err(), "{wrong}");
        }
    }

    /// Instructions of the threads of a workload, from 4 million cycles on.
    fn done(
        fidelity: Fidelity,
        machine: &str,
        (seed, threads, number): (u64, u32, u32),
        places: &[u32],
    ) -> Vec<f64> {
        let machine = Arc::new(perch_sim::config::find_machine(machine).unwrap());
        let begun = Some(4_000_000 * machine.first_cycle());
        let comparison = Comparison::new(machine, threads, 1, 1, seed);
        let (workload, _) = draw(seed, threads, number);
        play(fidelity, &comparison, &workload, places, begun)
            .unwrap()
            .done
    }

    /// A correction that was found where a thread missed often was used where it missed rarely: the thread was then 1.6 times
    /// as fast on a sibling of another as on a core of its own.
    #[test]
    fn a_sibling_makes_no_thread_faster() {
        let at = |places: &[u32]| {
            let of = (2911, 4, 2);
            done(Fidelity::Interval, "ibm-power7-smt2", of, places)
        };
        let (alone, shared) = (at(&[13, 14, 10, 6]), at(&[13, 14, 12, 6]));
        assert!(shared[0] <= 1.01 * alone[0], "{shared:?} {alone:?}");
    }

    /// A core with bounded queues depends on which instructions happen to follow each other: a short loop of them is not enough.
    #[test]
    fn a_thread_with_queues_to_itself_is_as_fast_as_at_the_cycle_level() {
        let at = |fidelity| done(fidelity, "amd-bulldozer", (2911, 2, 0), &[1, 7]);
        let (ours, exact) = (at(Fidelity::Interval), at(Fidelity::Cycle));
        for (ours, exact) in ours.iter().zip(&exact) {
            assert!((ours / exact - 1.0).abs() < 0.02, "{ours} {exact}");
        }
    }

    #[test]
    fn rankings_agree_disagree_or_say_nothing() {
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]), Some(1.0));
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(tau(&[1.0, 1.001, 1.002], &[1.0, 2.0, 3.0]), None);
        assert_eq!(tau(&[1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]), Some(0.0));
    }
}
