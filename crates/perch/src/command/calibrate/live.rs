//! Kernels on this machine.

use super::{alone, conditions::conditions, handed::Handed, siblings, today};
use crate::{args::CalibrateArgs, exit, exit::Stopped, processor, render::progress::Bar};
use anyhow::{Result, bail};
use perch_core::{Machine, Topology, diagnostic::did_you_mean_one_of};
use perch_kernels::{Crew, KERNELS, Kernel, Rate, Seat, Window};
use perch_lab::calibrate::{
    self as lab, Effort, Kind, Measured, Measurements, Rig, Run, Sample, Sites,
    kernels::{Sizes as Caches, load_metrics},
    measure,
};
use perch_linux::{
    LinuxMachine,
    signals::Signals,
    topology::{Source, check_named, load},
};
use perch_policy::Calibration;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Of a window: for the caches to fill, and measured; where all data fit into a core's own caches, and where not.
const SMALL: Window = Window {
    warm: Duration::from_millis(2),
    measured: Duration::from_millis(8),
};
const LARGE: Window = Window {
    warm: Duration::from_millis(10),
    measured: Duration::from_millis(12),
};

/// Groups are measured if all takes so many seconds at most.
const WITH_GROUPS: f64 = 300.0;

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
        check_named(&topology, pus)?;
        usable = usable.and(pus);
    }
    let fp_domains = profile.fp_domains(&topology);
    let Some(sites) = Sites::new(&topology, &fp_domains, &usable) else {
        bail!("none of these PUs can be used: see `perch topology`");
    };
    let caches = Caches::of(&topology);
    let kernels = wanted(args, &caches)?;
    let kinds: Vec<Kind<'_>> = kernels.iter().map(|kernel| kind(kernel)).collect();
    let groups = if args.quick { 0.0 } else { WITH_GROUPS };
    let runs = sites.runs_within(&kinds, groups);
    let effort = Effort::of(&runs);
    let before = conditions(usable.len());

    let looking = kernels.len() as f64 * alone::EACH.as_secs_f64();
    let tried = siblings::pairs(&usable.iter().collect::<Vec<u32>>());
    let trying = (siblings::TRY.warm + siblings::TRY.measured).as_secs_f64();
    let total = looking + effort.seconds + trying * tried.len() as f64;
    let bar = Bar::new(true, (total * 1000.0) as u64);
    bar.says("kernels in isolation");
    let seen = alone::metrics(machine, profile, &kernels, sites.first, &bar)?;
    let at_once = runs.iter().map(|run| run.seats.len()).max().unwrap_or(1);
    let sizes = alone::sizes(&caches, at_once);
    let mut crew = Crew::new(sizes);
    bar.says("kernels co-running");
    let mut told = 0.0;
    let handed = Handed::new(&sites, effort.seconds);
    let mut here = Here::new(&mut crew, &kernels, &sizes, handed);
    let outcome = measure(&mut here, &runs, &effort, |seconds| {
        bar.adds(((seconds - told) * 1000.0) as u64);
        told = seconds;
        heed(&mut signals)
    })?;
    let (transfers, unsure) = here.handed.transfers();
    let mut measured = outcome.measured;
    add_metrics(&mut measured, &runs, &kernels, &sites, &seen.metrics);
    bar.says("who shares a core");
    let mut wrong = Vec::new();
    if let Some(kernel) = perch_kernels::find("integer") {
        let done = || {
            bar.adds((trying * 1000.0) as u64);
            heed(&mut signals)
        };
        wrong = siblings::check(&mut crew, &topology, &fp_domains, &tried, kernel, done)?;
    }
    drop(crew);
    drop(bar);

    let measurements = Measurements {
        kernels: kinds,
        sites: &sites,
        runs: &runs,
        measured: &measured,
    };
    let mut calibration = measurements.calibration(name(&topology), today(), &load_metrics());
    calibration.transfers = transfers;
    let notes = &mut calibration.notes;
    notes.extend(wrong);
    notes.extend(unsure);
    notes.splice(0..0, before);
    notes.push(format!("metrics in isolation: {}", seen.counting));
    notes.push(format!(
        "slowdowns of PUs {usable} are of {} visits or more, those that vary of up to {}; kernels were on their PUs for \
         {:.0} % of the time",
        outcome.visits,
        effort.most,
        100.0 * outcome.share
    ));
    if outcome.visits < effort.least && !sites.levels.is_empty() {
        notes.push(format!(
            "time ran out after {} of {} visits: intervals are wide; other load slows the calibration",
            outcome.visits, effort.least
        ));
    }
    Ok(calibration)
}

/// The kernels that are measured: those that the user names, else all that this machine has caches for.
fn wanted(args: &CalibrateArgs, caches: &Caches) -> Result<Vec<&'static Kernel>> {
    for name in &args.kernels {
        if perch_kernels::find(name).is_none() {
            let names = KERNELS.iter().map(|kernel| kernel.name);
            let hint = did_you_mean_one_of(name, names);
            bail!("no kernel `{name}`; {hint}");
        }
    }
    let is_wanted = |kernel: &&Kernel| match args.kernels.is_empty() {
        true => (kernel.pure || !args.quick) && (caches.beyond || !kernel.needs_llc),
        false => args.kernels.iter().any(|name| name == kernel.name),
    };
    Ok(KERNELS.iter().filter(is_wanted).collect())
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
    let left = "what was measured so far is dropped, nothing was written".into();
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

/// This machine, on which a crew runs kernels.
struct Here<'a> {
    crew: &'a mut Crew,
    kernels: &'a [&'static Kernel],
    /// Of each kernel, whether its data are beyond what a core has for itself.
    large: Vec<bool>,
    handed: Handed,
    begun: Instant,
}

impl<'a> Here<'a> {
    fn new(
        crew: &'a mut Crew,
        kernels: &'a [&'static Kernel],
        sizes: &perch_kernels::Sizes,
        handed: Handed,
    ) -> Self {
        let large = kernels.iter().map(|kernel| kernel.bytes(sizes) > sizes.l2);
        Self {
            crew,
            large: large.collect(),
            kernels,
            handed,
            begun: Instant::now(),
        }
    }
}

impl Rig for Here<'_> {
    type Error = anyhow::Error;

    fn window(&mut self, seats: &[lab::Seat]) -> Result<Vec<Sample>> {
        self.handed
            .visit(self.crew, self.begun.elapsed().as_secs_f64())?;
        let large = seats.iter().any(|seat| self.large[seat.kernel]);
        let seats = seats.iter().map(|seat| Seat {
            pu: seat.pu,
            kernel: self.kernels[seat.kernel],
        });
        let seats: Vec<Seat> = seats.collect();
        let rates = self.crew.run(&seats, if large { LARGE } else { SMALL })?;
        let sample = |rate: Rate| Sample {
            speed: rate.speed,
            share: rate.share,
        };
        Ok(rates.into_iter().map(sample).collect())
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
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

/// Adds the metrics to those that ran in isolation where metrics were measured.
fn add_metrics(
    measured: &mut [Vec<Measured>],
    runs: &[Run],
    kernels: &[&'static Kernel],
    sites: &Sites,
    metrics: &BTreeMap<String, BTreeMap<String, f64>>,
) {
    for (run, measured) in runs.iter().zip(measured) {
        let seat = run.seats[0];
        if run.level.is_none() && seat.pu == sites.first {
            let seen = metrics.get(kernels[seat.kernel].name);
            measured[0].metrics = seen.cloned().unwrap_or_default();
        }
    }
}
