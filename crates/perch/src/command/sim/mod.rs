//! `perch sim`: a user's own machine, workload and policies, simulated.

mod pictures;

use crate::{
    args::SimArgs,
    command::{
        place::Output,
        rules::{self, Rules},
    },
    config::Settings,
    render::{self, explain::Explain, live::Live, progress::Bar},
    timeline::is_picture,
};
use anyhow::{Context, Result, anyhow, bail};
use perch_core::{Policy, diagnostic::did_you_mean_one_of};
use perch_engine::{
    SessionSink,
    recording::Recorder,
    report::{Collector, Report},
    timeline::{Slice, Timeline, join},
};
use perch_lab::{
    calibrate, parallel,
    scene::{BEST, Caller, Comparison, DEFAULT, Played, Scene, Shipped, WORST, compare},
    session::Decider,
};
use perch_policy::{Inputs, registry};
use perch_sim::{
    config,
    detail::Detail,
    timeline::{self, Stay},
};
use pictures::Drawn;
use std::{
    collections::HashSet,
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
    let policies = match args.compare.is_empty() {
        true => vec![match &args.policy {
            Some(policy) => policy.clone(),
            None if args.has_rules() => "fixed".to_owned(),
            None => DEFAULT.to_owned(),
        }],
        false => args.compare.clone(),
    };
    if args.has_rules() && !policies.iter().any(|policy| policy == "fixed") {
        bail!(
            "--pin, --pin-file, --weight and --ways are for the policy `fixed`, which nothing here names: `-p fixed`, or \
             `--compare fixed,…`"
        );
    }
    let mut seen = HashSet::new();
    if let Some(twice) = policies.iter().find(|policy| !seen.insert(*policy)) {
        bail!("--compare: `{twice}` is named twice, and would be compared with itself");
    }
    if args.pins.is_some() && !policies.iter().any(|policy| is_searched(policy)) {
        bail!(
            "--pins writes the placement that a search found, and nothing here searches: `-p best`, or `--compare best,…`"
        );
    }
    let scene = scene(args)?;
    // Tables and moves that are printed as they happen must stay in order, and a progress bar would overwrite them.
    let telling = args.live || args.explain;
    let wiring = Wiring {
        args,
        scene: &scene,
        policies: &policies,
        names_runs: telling && (policies.len() > 1 || args.seeds > 1),
        calibration: OnceLock::new(),
    };
    for policy in policies.iter().filter(|policy| !is_searched(policy)) {
        wiring.policy(policy)?;
    }
    let files = [&args.log, &args.timeline, &args.placement, &args.pins];
    for file in files.into_iter().flatten() {
        can_be_written(file)?;
    }
    let threads = if telling { 1 } else { parallel::host_threads() };
    worth_waiting(&scene, policies.len(), threads)?;
    let bar = Bar::new(!telling, 0);
    let (comparison, mut kept) = compare(&scene, &policies, &wiring, threads, &bar)?;
    drop(bar);
    write_files(args, &scene, &comparison, &mut kept)?;
    if args.json {
        super::print_json(&comparison)?;
        return Ok(ExitCode::SUCCESS);
    }
    let topology = perch_sim::topology::topology(&scene.machine);
    let mut text = render::sim::comparison(&comparison, &topology);
    if let ([only], true) = (kept.as_slice(), args.report) {
        text += "\n";
        text += &render::report::render(&only.report);
    }
    super::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is simulated.
///
/// # Errors
/// A machine or a workload that is not there or wrong.
pub fn scene(args: &SimArgs) -> Result<Scene> {
    let (Some(machine), Some(workload)) = (&args.machine, &args.workload) else {
        bail!(
            "which machine and which workload? Give --machine and --workload, names or files (see --list)"
        );
    };
    let mut machine = config::find_machine(machine)?;
    if let Some(scheduler) = args.scheduler {
        machine.scheduler = scheduler;
    }
    let machine = Arc::new(machine);
    let workload = Arc::new(config::find_workload(workload)?);
    let rules = Rules::read(
        args.pin_file.as_deref(),
        [&args.pin, &args.weight, &args.ways],
    )?;
    Ok(Scene {
        detail: Detail::new(args.fidelity, &machine, &workload),
        machine,
        workload,
        time: args.time,
        seed: args.seed,
        seeds: args.seeds,
        search: args.search,
        rules: rules.pus,
        weights: rules.weights,
        ways: rules.ways,
        stays: args.timeline.is_some() || args.placement.is_some(),
    })
}

/// A policy for a scene, as the flags and the configuration file have it.
///
/// # Errors
/// No such policy, settings that do not fit it or the machine.
pub fn decider(args: &SimArgs, scene: &Scene, policy: &str) -> Result<Decider> {
    if is_searched(policy) {
        bail!(
            "`{policy}` is found by simulating many placements: `perch sim -p {policy} --pins FILE` writes it as rules"
        );
    }
    let policies = [policy.to_owned()];
    let wiring = Wiring {
        args,
        scene,
        policies: &policies,
        names_runs: false,
        calibration: OnceLock::new(),
    };
    Caller::decider(&wiring, policy)
}

/// What is kept of a run.
struct Kept {
    report: Report,
    /// Its part of the trace, if one is wanted.
    trace: Vec<u8>,
    /// Who was where, if that is to be drawn.
    stays: Vec<Stay>,
}

/// Whether the name stands for a placement that is searched.
fn is_searched(policy: &str) -> bool {
    [BEST, WORST].contains(&policy)
}

/// Writes the files that were asked for, but for the recording.
fn write_files(
    args: &SimArgs,
    scene: &Scene,
    comparison: &Comparison,
    kept: &mut [Kept],
) -> Result<()> {
    if let Some(file) = &args.pins {
        // The best one, if there are both.
        let found = |name: &str| {
            comparison
                .results
                .iter()
                .find(|result| result.policy == name)
        };
        let found = found(BEST).or_else(|| found(WORST));
        if let Some((name, found)) = found.and_then(|of| Some((&of.policy, of.search.as_ref()?))) {
            Output::open(file)?.write(&render::sim::pins(comparison, name, found))?;
        }
    }
    let runs = || {
        let runs = comparison.results.iter().zip(kept.iter());
        runs.map(|(result, kept)| Drawn {
            title: format!(
                "{}: {:.3} instructions / cycle",
                result.policy, result.throughput
            ),
            stays: &kept.stays,
        })
    };
    if let Some(file) = &args.placement {
        let picture = pictures::placements(&scene.machine, &runs().collect::<Vec<_>>());
        Output::open(file)?.write(&picture)?;
    }
    if let Some(file) = &args.timeline {
        let text = match is_picture(file) {
            true => pictures::timelines(&scene.machine, &runs().collect::<Vec<_>>()),
            false => {
                let parts: Vec<Vec<u8>> = kept
                    .iter_mut()
                    .map(|kept| std::mem::take(&mut kept.trace))
                    .collect();
                String::from_utf8(join(&parts))?
            }
        };
        Output::open(file)?.write(&text)?;
    }
    Ok(())
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
    let cannot = || format!("{}: cannot be written", file.display());
    let is_new = file.symlink_metadata().is_err();
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).open(file);
    opened.with_context(cannot)?;
    // One that is stopped leaves no empty file.
    if is_new {
        std::fs::remove_file(file).with_context(cannot)?;
    }
    Ok(())
}

/// Policies as the flags and the configuration file have them, and what watches them.
struct Wiring<'a> {
    args: &'a SimArgs,
    scene: &'a Scene,
    policies: &'a [String],
    /// Whether it is said which run is next.
    names_runs: bool,
    /// The machine's calibration as text, once a policy needed it.
    calibration: OnceLock<String>,
}

impl Wiring<'_> {
    fn settings(&self, policy: &str) -> Result<Settings> {
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
            _ => rules::policy(&settings, &topology).map_err(|error| {
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
    type Kept = Kept;

    fn decider(&self, policy: &str) -> Result<Decider> {
        let (policy, settings) = self.policy(policy)?;
        Ok(Decider {
            period: settings.period,
            pus: settings.pus,
            metrics: self.args.metrics.clone(),
            ..Decider::new(policy)
        })
    }

    fn play(&self, policy: &str, seed: u64, played: &mut Played<'_>) -> Result<Kept> {
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
        let (mut live, mut explain) = (Live::new(!args.explain), Explain::default());
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
        let number = self.policies.iter().position(|known| known == policy);
        let prefix = match self.policies {
            [_] => String::new(),
            _ => format!("{policy}: "),
        };
        let traced = args
            .timeline
            .as_deref()
            .is_some_and(|file| !is_picture(file));
        let part = Timeline::part(number.unwrap_or(0) as u32, &prefix);
        let mut part = traced.then(|| part.with_exact_slices());
        if let Some(part) = &mut part {
            observers.push(part);
        }
        played.run(&mut observers)?;
        if let Some(recorder) = &mut recorder {
            recorder.finish()?;
        }
        let stays = timeline::stays(played.system());
        let trace = part.map(|mut part| {
            part.slices(stays.iter().map(|stay| Slice {
                pu: stay.pu,
                tid: stay.tid,
                name: &stay.name,
                process: &stay.program,
                from: stay.from,
                to: stay.to,
            }));
            part.into_part()
        });
        Ok(Kept {
            report: collector.report(),
            trace: trace.unwrap_or_default(),
            stays,
        })
    }
}
