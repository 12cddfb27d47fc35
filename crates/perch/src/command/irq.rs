//! `perch irq`: which devices interrupt which PUs, and a better balance, shown or made. It is a session of the policy
//! `irq` that follows no program.

use crate::{
    args::{IrqArgs, PlaceArgs},
    command::recover,
    config::Settings,
    exit, render,
};
use anyhow::{Context, Result, bail};
use perch_core::{
    IrqSample, IrqStep, Machine, MachineError, Outcome, PuSet, Remark, Topology, Wake, text,
};
use perch_engine::{
    Acting, Cause, Options, Period, Session, SessionEnd, SessionSink, StateDir, recording::Recorder,
};
use perch_linux::{
    LinuxMachine,
    irq::irqbalance,
    machine::CountersMode,
    topology::{Source, load},
};
use perch_policy::irq::{package_loads, sources};
use perch_profile::Library;
use serde::Serialize;
use std::{process::ExitCode, time::Instant};

/// The profile for machines of which nothing is known: what PUs share does not matter to interrupts.
const PROFILE: &str = "generic";

/// One interrupt over one interval.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its number, or the short name of one that every PU has of its own.
    pub label: String,
    /// Its devices, or what the kernel says of it.
    pub device: String,
    /// How often it came, a second.
    pub rate: f64,
    /// The same by PU, where it came at all.
    pub by_pu: Vec<(u32, f64)>,
    /// The PUs to which it may go; `None` for one that cannot be moved.
    pub allowed: Option<PuSet>,
    /// Whether every PU has it of its own.
    pub per_pu: bool,
}

/// What was seen in one interval, and what follows from it.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// All interrupts.
    pub interrupts: Vec<Line>,
    /// Interrupts of devices a second on each package.
    pub packages: Vec<(u32, f64)>,
    /// What would be better.
    pub moves: Vec<IrqStep>,
    /// What became of the moves; empty where nothing was to be applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<(u32, Outcome)>,
    /// The process of irqbalance(1), which moves interrupts too.
    pub irqbalance: Option<i32>,
}

/// Shows, proposes, or applies.
///
/// # Errors
/// A /proc that cannot be read, a journal that cannot be written, another perch that is running.
pub fn irq(args: &IrqArgs) -> Result<ExitCode> {
    if args.apply
        && let Some(why) = perch_linux::irq::refusal()
    {
        bail!("--apply: {why}; without --apply perch shows what would be better");
    }
    let mut remarks = Vec::new();
    let (acting, _lock) = match args.apply {
        false => (Acting::DryRun(None), None),
        true => {
            let lock = super::lock::irqs(&mut remarks)?;
            let dir = StateDir::standard()?;
            let recovered = recover::recover(&dir);
            remarks
                .extend(recovered.context("what a killed perch left behind cannot be restored")?);
            (Acting::Live(dir), lock)
        }
    };
    tell_remarks(&remarks);
    let settings = Settings::new(&PlaceArgs {
        policy: Some("irq".to_owned()),
        ..PlaceArgs::default()
    })?;
    let mut recorder = match &args.log {
        Some(path) => {
            let recorder = Recorder::create(path, &[]).context("--log")?;
            Some(recorder.with_configuration(settings.told()))
        }
        None => None,
    };
    let mut machine = LinuxMachine::builder()
        .topology(load(&Source::Native)?.topology)
        .counters(CountersMode::Nothing)
        .leave_orphans(true)
        .build()?;
    machine.stay(args.duration.map(|duration| Instant::now() + duration));
    let profile = Library::load(&[])?.choose(PROFILE)?.clone();
    let mut session = Session::new(
        machine,
        Options {
            period: Some(args.interval),
            take_over: args.take_over,
            ..Options::new(settings.build()?, Box::new(profile), acting)
        },
    )?;
    let mut view = View::new(args);
    let mut observers: Vec<&mut dyn SessionSink> = vec![&mut view];
    if let Some(recorder) = &mut recorder {
        observers.push(recorder);
    }
    let end = match args.apply {
        true => session.run(&mut observers)?,
        false => once(&mut session, args, &mut observers)?,
    };
    if let Some(recorder) = &mut recorder {
        recorder.finish().context("--log")?;
    }
    view.failed.map_or(Ok(()), Err)?;
    if let (false, Cause::Stopped(signal)) = (args.apply, end.cause) {
        let left = "the interval was not over, so nothing is shown".into();
        return Err(exit::Stopped { signal, left }.into());
    }
    if args.apply && !args.json {
        super::print(&render::restored::irqs(&end.restored.irqs))?;
    }
    Ok(ExitCode::from(u8::from(end.restored.has_failed())))
}

/// One period, and what the policy would do after it.
fn once(
    session: &mut Session<LinuxMachine>,
    args: &IrqArgs,
    observer: &mut dyn SessionSink,
) -> Result<SessionEnd> {
    observer.start(&session.begin());
    let mut period = || -> Result<Cause, MachineError> {
        let stopped = match session.machine().wait(args.interval)? {
            Wake::Stop(signal) => Some(Cause::Stopped(signal)),
            Wake::Period | Wake::Ended(_) => None,
        };
        let observation = session.machine().observe()?;
        observer.period(&session.step(observation, stopped.is_some()));
        if stopped.is_none() {
            // The last observation decides nothing.
            let observation = session.machine().observe()?;
            observer.period(&session.step(observation, true));
        }
        Ok(stopped.unwrap_or(Cause::Commanded))
    };
    let ended = period();
    let end = session.finish(ended)?;
    observer.end(&end);
    Ok(end)
}

fn tell_remarks(remarks: &[Remark]) {
    for remark in remarks {
        crate::exit::say(&remark.text);
    }
}

/// Prints each period as it ends.
struct View<'a> {
    args: &'a IrqArgs,
    first: bool,
    failed: Option<anyhow::Error>,
}

impl<'a> View<'a> {
    fn new(args: &'a IrqArgs) -> Self {
        Self {
            args,
            first: true,
            failed: None,
        }
    }

    fn tell(&mut self, period: &Period) -> Result<()> {
        let Some(seen) = seen(period, self.args) else {
            return Ok(());
        };
        let topology = &period.snapshot.topology;
        let first = std::mem::replace(&mut self.first, false);
        if self.args.json {
            return super::print(&render::json(&serde_json::to_string(&seen)?));
        }
        if first {
            super::print(&render::irq::table(&seen, topology, self.args.all))?;
        }
        match (self.args.apply, first) {
            (true, true) => super::print("Held so; Ctrl-C puts everything back."),
            (true, false) if !seen.outcomes.is_empty() => super::print(&render::irq::moves(&seen)),
            _ => Ok(()),
        }
    }
}

impl SessionSink for View<'_> {
    fn period(&mut self, period: &Period) {
        tell_remarks(&period.remarks);
        // A reader that fails must not keep masks from being restored.
        if let Err(error) = self.tell(period) {
            self.failed.get_or_insert(error);
        }
    }
}

/// What a period that was decided on showed.
fn seen(period: &Period, args: &IrqArgs) -> Option<Seen> {
    let plan = period.plan()?;
    let (observation, snapshot) = (&period.observation, &period.snapshot);
    let topology: &Topology = &snapshot.topology;
    let interval = observation.irqs.first().map(|sample| sample.interval);
    let outcomes = period.irq_moves.iter();
    Some(Seen {
        seconds: interval.unwrap_or(observation.interval) as f64 * 1e-9,
        interrupts: observation
            .irqs
            .iter()
            .map(|sample| line(sample, period))
            .collect(),
        packages: package_loads(&sources(&snapshot.irqs), topology, &topology.online()),
        moves: plan
            .irqs
            .iter()
            .filter_map(|binding| binding.step.clone())
            .collect(),
        outcomes: match args.apply {
            true => outcomes.map(|made| (made.irq, made.outcome)).collect(),
            false => Vec::new(),
        },
        irqbalance: irqbalance(),
    })
}

fn line(sample: &IrqSample, period: &Period) -> Line {
    let by_pu = sample.rates();
    let irq = sample.irq();
    let loads = &period.snapshot.irqs;
    let allowed = irq
        .and_then(|irq| loads.binary_search_by_key(&irq, |load| load.irq).ok())
        .map(|at| loads[at].allowed.clone());
    let device = sample.state.as_ref().map_or("", |state| &*state.device);
    Line {
        label: sample.label.clone(),
        device: match device {
            "" => sample.what.clone(),
            device => text::printable(device).into_owned(),
        },
        rate: by_pu.iter().fold(0.0, |sum, (_, rate)| sum + rate),
        by_pu,
        allowed: allowed.filter(|allowed| !allowed.is_empty()),
        per_pu: irq.is_none(),
    }
}
