//! Kernels on this machine.

use super::{alone, conditions::conditions, siblings, today};
use crate::{args::CalibrateArgs, exit, exit::Stopped, processor, render::progress::Bar};
use anyhow::{Result, bail};
use perch_core::{Machine, PuSet, Topology};
use perch_kernels::{Crew, KERNELS, Kernel, Rate, Seat, Window};
use perch_lab::calibrate::{
    Kind, Measured, Measurements, Run, Sites,
    kernels::{Sizes as Caches, load_metrics},
};
use perch_linux::{
    LinuxMachine,
    signals::Signals,
    topology::{Source, load},
};
use perch_policy::{Calibration, Transfer};
use statrs::statistics::{Data, Median};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Seconds for all windows together: with the metrics' measurement, less than three minutes.
const BUDGET: f64 = 120.0;
const BUDGET_QUICK: f64 = 15.0;

/// How often each run is repeated, in rounds over all runs, so that what changes slowly meets all alike.
const PASSES: usize = 3;

/// Of a window: for the caches to fill, and measured at least and at most.
const WARM: f64 = 0.015;
const SHORTEST: f64 = 0.015;
const LONGEST: f64 = 0.060;

/// Nothing is repeated once the calibration has taken this many times as long as planned.
const LATE: f64 = 1.2;

/// How long a line is handed back and forth at each level.
const HAND_OVER: Duration = Duration::from_millis(100);

/// A window in which a kernel was on its PU for less than this part is repeated, so often at most.
const UNDISTURBED: f64 = 0.95;
pub const AGAIN: usize = 3;

/// Measures.
///
/// # Errors
/// A topology that cannot be read, a kernel that cannot run, the user who stops it.
pub fn live(args: &CalibrateArgs) -> Result<Calibration> {
    let mut signals = Signals::catch()?;
    let loaded = load(&Source::Native)?;
    let profile = processor::choose(args.profile.as_deref(), &Source::Native, &loaded)?.profile;
    let topology = loaded.topology;
    let machine = LinuxMachine::builder()
        .topology(topology.clone())
        .counters(alone::mode(args.counters))
        .build()?;
    let mut usable = topology.usable().and(&machine.default_mask());
    if let Some(pus) = &args.pus {
        usable = usable.and(pus);
    }
    let fp_domains = profile.fp_domains(&topology);
    let Some(sites) = Sites::new(&topology, &fp_domains, &usable) else {
        bail!("none of these PUs can be used: see `perch topology`");
    };
    let caches = Caches::of(&topology);
    let wanted =
        |kernel: &&Kernel| (kernel.pure || !args.quick) && (caches.beyond || !kernel.needs_llc);
    let kernels: Vec<&'static Kernel> = KERNELS.iter().filter(wanted).collect();
    let kinds: Vec<Kind<'_>> = kernels.iter().map(|kernel| kind(kernel)).collect();
    let budget = if args.quick { BUDGET_QUICK } else { BUDGET };
    let plan = Plan::new(&sites, &kinds, budget);
    let before = conditions(usable.len());

    let looking = kernels.len() as f64 * alone::EACH.as_secs_f64();
    let tried = siblings::pairs(&usable.iter().collect::<Vec<u32>>());
    let trying = (siblings::TRY.warm + siblings::TRY.measured).as_secs_f64();
    let total = looking + plan.seconds() + trying * tried.len() as f64;
    let bar = Bar::new(true, (total * 1000.0) as u64);
    bar.says("kernels in isolation");
    let seen = alone::metrics(machine, profile, &kernels, sites.first, &bar)?;
    let at_once = plan
        .runs
        .iter()
        .map(|run| run.seats.len())
        .max()
        .unwrap_or(1);
    let mut crew = Crew::new(alone::sizes(&caches, at_once));
    bar.says("kernels co-running");
    let each = (plan.window.warm + plan.window.measured).as_millis() as u64;
    let (measured, short) = measure(&mut crew, &kernels, &plan, || {
        bar.adds(each);
        heed(&mut signals)
    })?;
    let measured = with_metrics(measured, &plan, &kernels, &sites, &seen.metrics);
    bar.says("who shares a core");
    let mut wrong = Vec::new();
    let mut handed = Vec::new();
    if let Some(kernel) = perch_kernels::find("integer") {
        let done = || {
            bar.adds((trying * 1000.0) as u64);
            heed(&mut signals)
        };
        wrong = siblings::check(&mut crew, &topology, &fp_domains, &tried, kernel, done)?;
    }
    for level in &sites.levels {
        handed.push(Transfer {
            share: level.share,
            seconds: crew.hand_over(level.pus[0], level.pus[1], HAND_OVER)?,
        });
        heed(&mut signals)?;
    }
    drop(crew);
    drop(bar);

    let measurements = Measurements {
        kernels: kinds,
        sites: &sites,
        runs: &plan.runs,
        measured: &measured,
    };
    let mut calibration = measurements.calibration(name(&topology), today(), &load_metrics());
    calibration.transfers = handed;
    let notes = &mut calibration.notes;
    notes.extend(wrong);
    notes.splice(0..0, before);
    notes.push(format!("metrics in isolation: {}", seen.counting));
    notes.push(spread(&measured, &usable));
    notes.extend(short.map(|pass| {
        format!(
            "time ran out in pass {pass} of {PASSES}: medians are of fewer repetitions; other load slows the calibration"
        )
    }));
    Ok(calibration)
}

/// An error if the user has asked to stop.
fn heed(signals: &mut Signals) -> Result<()> {
    let arrived = signals.take();
    arrived.passed.into_iter().for_each(exit::say_ignored);
    arrived
        .stop
        .map_or(Ok(()), |stop| Err(stopped(stop.signal)))
}

/// The message for a user who stopped it.
pub fn stopped(signal: i32) -> anyhow::Error {
    let left = "what was measured so far is dropped, nothing was written";
    Stopped { signal, left }.into()
}

fn kind(kernel: &'static Kernel) -> Kind<'static> {
    Kind {
        name: kernel.name,
        pure: kernel.pure,
        core: kernel.core,
    }
}

/// What the machine is called.
fn name(topology: &Topology) -> String {
    let models = topology.packages.iter().map(|package| package.model.trim());
    let model = models.into_iter().find(|model| !model.is_empty());
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    match model {
        Some(model) => format!("{host}: {model}"),
        None => host,
    }
}

/// What is run, and for how long.
struct Plan {
    runs: Vec<Run>,
    window: Window,
}

impl Plan {
    /// With groups if there is time for them.
    fn new(sites: &Sites, kinds: &[Kind<'_>], budget: f64) -> Self {
        let each = |runs: &[Run]| budget / (runs.len().max(1) * PASSES) as f64 - WARM;
        let mut runs = sites.runs(kinds, true);
        if each(&runs) < SHORTEST {
            runs = sites.runs(kinds, false);
        }
        let measured = each(&runs).clamp(SHORTEST, LONGEST);
        Self {
            runs,
            window: Window {
                warm: Duration::from_secs_f64(WARM),
                measured: Duration::from_secs_f64(measured),
            },
        }
    }

    /// How long all of it takes.
    fn seconds(&self) -> f64 {
        let window = self.window.warm + self.window.measured;
        (self.runs.len() * PASSES) as f64 * window.as_secs_f64()
    }
}

/// Every run in every pass, each of them reported; of each seat the median and the spread. And in which pass the time
/// was over, if it was.
fn measure(
    crew: &mut Crew,
    kernels: &[&'static Kernel],
    plan: &Plan,
    mut told: impl FnMut() -> Result<()>,
) -> Result<(Vec<Vec<Measured>>, Option<usize>)> {
    let mut speeds: Vec<Vec<Vec<f64>>> = plan
        .runs
        .iter()
        .map(|run| vec![Vec::new(); run.seats.len()])
        .collect();
    let begun = Instant::now();
    let each = (plan.window.warm + plan.window.measured).as_secs_f64();
    let late = |done: usize| begun.elapsed().as_secs_f64() > LATE * each * done as f64 + 1.0;
    let mut done = 0;
    let mut short = None;
    'passes: for pass in 1..=PASSES {
        for (run, speeds) in plan.runs.iter().zip(&mut speeds) {
            if pass > 1 && late(plan.runs.len() * PASSES) {
                short = Some(pass);
                break 'passes;
            }
            let seats = run.seats.iter().map(|seat| Seat {
                pu: seat.pu,
                kernel: kernels[seat.kernel],
            });
            let seats: Vec<Seat> = seats.collect();
            // On a machine that is never idle it must end too.
            let tries = if late(done) { 1 } else { AGAIN };
            let rates = undisturbed(crew, &seats, plan.window, tries)?;
            done += 1;
            for (speeds, rate) in speeds.iter_mut().zip(rates) {
                speeds.push(rate.speed);
            }
            told()?;
        }
    }
    let measured = |speeds: Vec<f64>| {
        let repeated = speeds.len() > 1;
        let most = speeds.iter().copied().fold(f64::MIN, f64::max);
        let least = speeds.iter().copied().fold(f64::MAX, f64::min);
        let speed = Data::new(speeds).median();
        Measured {
            speed,
            spread: repeated.then_some((most - least) / speed),
            metrics: BTreeMap::new(),
        }
    };
    let of_run = |speeds: Vec<Vec<f64>>| speeds.into_iter().map(measured).collect();
    Ok((speeds.into_iter().map(of_run).collect(), short))
}

/// One window; again if others took part of it, and of several the least disturbed.
pub fn undisturbed(
    crew: &mut Crew,
    seats: &[Seat],
    window: Window,
    tries: usize,
) -> Result<Vec<Rate>> {
    let least = |rates: &[Rate]| rates.iter().map(|rate| rate.share).fold(1.0, f64::min);
    let mut best = crew.run(seats, window)?;
    for _ in 1..tries {
        if least(&best) >= UNDISTURBED {
            break;
        }
        let again = crew.run(seats, window)?;
        if least(&again) > least(&best) {
            best = again;
        }
    }
    Ok(best)
}

/// The same, with the metrics of those that ran in isolation where metrics were measured.
fn with_metrics(
    mut measured: Vec<Vec<Measured>>,
    plan: &Plan,
    kernels: &[&'static Kernel],
    sites: &Sites,
    metrics: &BTreeMap<String, BTreeMap<String, f64>>,
) -> Vec<Vec<Measured>> {
    for (run, measured) in plan.runs.iter().zip(&mut measured) {
        let seat = run.seats[0];
        if run.level.is_none() && seat.pu == sites.first {
            let seen = metrics.get(kernels[seat.kernel].name);
            measured[0].metrics = seen.cloned().unwrap_or_default();
        }
    }
    measured
}

/// How far the numbers can be trusted.
fn spread(measured: &[Vec<Measured>], usable: &PuSet) -> String {
    let all = measured.iter().flatten().filter_map(|one| one.spread);
    let middle = Data::new(all.collect::<Vec<f64>>()).median();
    format!(
        "speeds of PUs {usable} differed by {:.1} % between repetitions (median of all)",
        100.0 * middle
    )
}
