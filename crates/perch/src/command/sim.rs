//! `perch sim`: a user's own machine, workload and policies, simulated.

use crate::{
    args::SimArgs,
    command::place::{self, Output},
    config::Settings,
    render::{self, explain::Explain, live::Live, progress::Bar},
};
use anyhow::{Context, Result, anyhow, bail};
use perch_core::{Policy, diagnostic::did_you_mean_one_of};
use perch_engine::{
    SessionSink,
    recording::Recorder,
    report::{Collector, Report},
};
use perch_lab::{
    calibrate, parallel,
    scene::{BEST, Caller, DEFAULT, Played, Scene, Shipped, WORST, compare},
    session::Decider,
};
use perch_policy::{Inputs, fixed::Rule, registry};
use perch_sim::{config, detail::Detail, timeline};
use std::{
    fs::OpenOptions,
    path::Path,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

/// Simulates with every policy that was asked for, and compares.
///
/// # Errors
/// Files that are wrong, a policy that is not there, a deadlock.
pub fn sim(args: &SimArgs) -> Result<ExitCode> {
    if args.list {
        let shipped = Shipped::new()?;
        match args.json {
            true => super::print_json(&shipped)?,
            false => super::print(&render::sim::shipped(&shipped))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(machine), Some(workload)) = (&args.machine, &args.workload) else {
        bail!(
            "which machine and which workload? Give --machine and --workload, names or files (see --list)"
        );
    };
    let machine = Arc::new(config::find_machine(machine)?);
    let workload = Arc::new(config::find_workload(workload)?);
    let policies = match args.compare.is_empty() {
        true => vec![match &args.policy {
            Some(policy) => policy.clone(),
            None if !args.pin.is_empty() => "fixed".to_owned(),
            None => DEFAULT.to_owned(),
        }],
        false => args.compare.clone(),
    };
    if !args.pin.is_empty() && !policies.iter().any(|policy| policy == "fixed") {
        bail!(
            "--pin is for the policy `fixed`, which nothing here names: `-p fixed`, or `--compare fixed,…`"
        );
    }
    let rules = args.pin.iter().map(|pin| Ok(pin.parse::<Rule>()?));
    let scene = Scene {
        detail: Detail::new(args.fidelity, &machine, &workload),
        machine,
        workload,
        time: args.time,
        seed: args.seed,
        seeds: args.seeds,
        search: args.search,
        rules: rules.collect::<Result<_>>()?,
        stays: args.timeline.is_some(),
    };
    // Tables and moves that are printed as they happen must stay in order, and a progress bar would overwrite them.
    let telling = args.live || args.explain;
    let wiring = Wiring {
        args,
        scene: &scene,
        names_runs: telling && (policies.len() > 1 || args.seeds > 1),
        calibration: OnceLock::new(),
    };
    if args.compare.is_empty() {
        // A single placement has neither report nor recording.
        wiring.policy(&policies[0])?;
    }
    for file in args.log.iter().chain(&args.timeline) {
        can_be_written(file)?;
    }
    let threads = if telling { 1 } else { parallel::host_threads() };
    worth_waiting(&scene, policies.len(), threads)?;
    let bar = Bar::new(!telling, 0);
    let (comparison, report) = compare(&scene, &policies, &wiring, threads, &bar)?;
    drop(bar);
    if args.json {
        super::print_json(&comparison)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = render::sim::comparison(&comparison, scene.machine.pus());
    if let Some(report) = report.filter(|_| args.report) {
        text += "\n";
        text += &render::report::render(&report);
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Longer than this, in seconds, a simulation is announced: nobody waits for it unprepared.
const ANNOUNCED: f64 = 600.0;

/// And longer than this it is refused: a month.
const REFUSED: f64 = 30.0 * 86_400.0;

/// Announces a simulation that takes long, and refuses one that nobody will see the end of.
fn worth_waiting(scene: &Scene, policies: usize, threads: usize) -> Result<()> {
    let Some(each) = scene.host_seconds() else {
        return Ok(());
    };
    let runs = policies as f64 * f64::from(scene.seeds);
    let seconds = each * (runs / threads.max(1) as f64).max(1.0);
    let time = humantime::format_duration(scene.time);
    if seconds > REFUSED {
        bail!(
            "--time {time}: that would take about {} here: give a shorter time (the limit is 30 days of computing), or \
             --fidelity interval",
            roughly(seconds)
        );
    }
    if seconds > ANNOUNCED {
        anstream::eprintln!(
            "perch: --time {time} takes about {} here; Ctrl-C ends it without a result",
            roughly(seconds)
        );
    }
    Ok(())
}

/// A length of time in one unit.
fn roughly(seconds: f64) -> String {
    let units = [
        (365.0 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
    ];
    let unit = units
        .into_iter()
        .find(|(length, _)| seconds >= 2.0 * length);
    let (length, name) = unit.unwrap_or((1.0, "seconds"));
    format!("{:.0} {name}", seconds / length)
}

/// Before hours of simulation, not after.
fn can_be_written(file: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).open(file);
    opened.with_context(|| format!("{}: cannot be written", file.display()))?;
    Ok(())
}

/// Policies as the flags and the configuration file have them, and what watches them.
struct Wiring<'a> {
    args: &'a SimArgs,
    scene: &'a Scene,
    /// Whether it is said which run is next.
    names_runs: bool,
    /// The machine's calibration as text, once a policy needed it.
    calibration: OnceLock<String>,
}

impl Wiring<'_> {
    fn settings(&self, policy: &str) -> Result<Settings> {
        if [BEST, WORST].contains(&policy) {
            bail!("`{policy}` is no policy: give it to --compare, together with others");
        }
        let mut settings = Settings::new(&self.args.place(policy))?;
        if settings.lacks_calibration() {
            settings.calibrated_with(self.scene.machine.name.clone(), self.calibration()?);
        }
        if self.args.log.is_some() {
            settings.keep_calibration(None);
        }
        Ok(settings)
    }

    /// A policy and its settings.
    fn policy(&self, policy: &str) -> Result<(Box<dyn Policy>, Settings)> {
        let settings = self.settings(policy)?;
        let topology = perch_sim::topology::topology(&self.scene.machine);
        let decides = match policy {
            DEFAULT => registry::build("observe", &toml::Table::new(), &Inputs::default())?,
            _ => place::policy(&settings, &topology).map_err(|error| {
                match registry::names().any(|known| known == policy) {
                    true => error,
                    // Those who misspell may have meant what is none.
                    false => {
                        let names = registry::names().chain([DEFAULT, BEST, WORST]);
                        let hint = did_you_mean_one_of(policy, names.collect::<Vec<_>>());
                        anyhow!("no policy `{policy}`; {hint}")
                    }
                }
            })?,
        };
        Ok((decides, settings))
    }

    /// The text of the machine's calibration, measured as `perch calibrate` does.
    fn calibration(&self) -> Result<String> {
        if let Some(known) = self.calibration.get() {
            return Ok(known.clone());
        }
        let machine = &self.scene.machine;
        let how = calibrate::How::new("as it was simulated".to_owned());
        let measured = calibrate::simulated(machine, &how, |_, _| ());
        let measured =
            measured.map_err(|why| anyhow!("{}: cannot be calibrated: {why}", machine.name))?;
        let text = measured.to_toml()?;
        Ok(self.calibration.get_or_init(|| text).clone())
    }
}

impl Caller for Wiring<'_> {
    type Error = anyhow::Error;
    type Kept = Report;

    fn decider(&self, policy: &str) -> Result<Decider> {
        let (policy, settings) = self.policy(policy)?;
        Ok(Decider {
            period: settings.period,
            pus: settings.pus,
            metrics: self.args.metrics.clone(),
            ..Decider::new(policy)
        })
    }

    fn play(&self, policy: &str, seed: u64, played: &mut Played<'_>) -> Result<Report> {
        let args = self.args;
        if self.names_runs {
            let policy = perch_core::text::printable(policy);
            anstream::eprintln!("perch: policy {policy}, seed {seed}");
        }
        let (machine, workload) = (&self.scene.machine, &self.scene.workload);
        let command = [format!("{} on {}", workload.name, machine.name)];
        let mut collector = Collector::new(&command);
        let mut recorder = match &args.log {
            Some(path) => {
                let settings = self.settings(policy)?;
                let recorder =
                    Recorder::create(path, &command)?.with_configuration(settings.told());
                Some(recorder.with_calibration(settings.calibration))
            }
            None => None,
        };
        let (mut live, mut explain) = (Live::default(), Explain::default());
        let mut observers: Vec<&mut dyn SessionSink> = vec![&mut collector];
        if let Some(recorder) = &mut recorder {
            observers.push(recorder);
        }
        if args.explain {
            observers.push(&mut explain);
        }
        if args.live {
            observers.push(&mut live);
        }
        let drawing = args.timeline.as_deref().map(Output::open).transpose()?;
        played.run(&mut observers)?;
        if let Some(recorder) = &mut recorder {
            recorder.finish()?;
        }
        if let Some(file) = drawing {
            file.write(&timeline::trace(played.system())?)?;
        }
        Ok(collector.report())
    }
}
