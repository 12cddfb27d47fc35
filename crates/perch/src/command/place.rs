//! What `run` and `attach` share: machine, profile, policy and observers wired together, and the report at the end.

use crate::{
    args::{Counters, PlaceArgs},
    command::{
        compare::Changes,
        recover::recover,
        rules::{Rules, Unmatched},
        uncalibrated,
    },
    config::{CALIBRATED_POLICY, ConfigFile, DEFAULT_POLICY, Settings},
    exit,
    processor::{self, Chosen},
    render,
    render::{explain::Explain, live::Live},
    timeline::TimelineFile,
};
use anyhow::{Context, Result, bail};
use perch_core::{Policy, PuSet, Remark, Topology};
use perch_engine::{
    Acting, Cause, Deciding, Options, Session, SessionEnd, SessionSink, StateDir,
    recording::Recorder,
    report::{Collector, Report},
};
use perch_linux::{
    LinuxMachine,
    energy::EnergyModule,
    irq,
    lock::{Lock, LockError},
    machine::CountersMode,
    topology::{self, Loaded, Source, load},
};
use perch_policy::{Calibration, Inputs, registry};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Observing waits at most this long for the policy's answer, and no longer than a quarter of the interval.
const PATIENCE: Duration = Duration::from_millis(200);

/// After a signal that asks to stop, the report waits no longer than this for its reader.
const STOPPED_PATIENCE: Duration = Duration::from_millis(500);

/// Everything that is needed before a program is launched or attached.
pub struct Placing {
    /// The session, its machine still empty.
    pub session: Session<LinuxMachine>,
    collector: Collector,
    recorder: Option<Recorder<File>>,
    timeline: Option<TimelineFile>,
    output: Option<Output>,
    unwritten: bool,
    live: Option<Live>,
    explain: Option<Explain>,
    unmatched: Unmatched,
    others: Vec<Box<dyn SessionSink>>,
    remarks: Vec<Remark>,
    changes: Changes,
    _locks: Vec<Lock>,
}

/// The settings in force, and this machine's calibration file if there is one and no other machine is asked for. A file
/// that cannot be read changes no default; policies that need it say what is wrong with it.
///
/// # Errors
/// A configuration file that cannot be read or is wrong.
pub fn settings(args: &PlaceArgs) -> Result<(Settings, Option<PathBuf>)> {
    settings_with(args, ConfigFile::load(args.tuning.config.as_deref())?)
}

/// The same with a configuration file that has been read already.
///
/// # Errors
/// Settings that are wrong.
pub fn settings_with(args: &PlaceArgs, file: ConfigFile) -> Result<(Settings, Option<PathBuf>)> {
    let calibration = super::calibrate::where_to_read().filter(|_| args.topology.is_none());
    let default = || match calibration.as_deref().map(Calibration::read) {
        Some(Ok(calibration)) if calibration.tells_of_kernels() => CALIBRATED_POLICY,
        _ => DEFAULT_POLICY,
    };
    Ok((Settings::merged(args, file, default)?, calibration))
}

/// Reads settings, chooses profile and policy, recovers what a dead perch left, and opens the machine. `alone` says that
/// no program of perch's writes to its terminal.
///
/// # Errors
/// Settings that are wrong, permissions that are missing.
pub fn prepare(args: &PlaceArgs, command: &[String], alone: bool) -> Result<Placing> {
    if args.json && args.output.is_none() && (args.explain || args.live) {
        bail!(
            "--json and {} would both write to standard error: give the report a file, --output FILE",
            if args.explain { "--explain" } else { "--live" }
        );
    }
    // Before anything else happens: a place where nothing can be written is no surprise for the end.
    let output = args.output.as_deref().map(Output::open).transpose()?;
    let (mut settings, calibration) = settings(args)?;
    let here = load(&Source::Native)?;
    let what_if = args
        .topology
        .as_deref()
        .map(|text| load(&Source::from_text(text)))
        .transpose()?;
    let machine = what_if.as_ref().unwrap_or(&here);
    let Chosen { profile, why } = chosen(&settings, &here, machine)?;
    if let Some(calibration) = &calibration {
        settings.calibrated_by(calibration);
    }
    if args.log.is_some() {
        settings.keep_calibration(calibration.as_deref());
    }
    let rules = Rules::of(&settings)?;
    let unmatched = Unmatched::new(rules.clone());
    let (policy, period) = deciding(&settings, rules, &machine.topology)?;
    let mut remarks = Vec::new();
    if profile.name == "generic" {
        let text = format!("profile generic: {why}");
        remarks.push(Remark::warning("generic-profile", text));
    }
    remarks.extend(uncalibrated::remark(&settings, &here.topology));
    remarks.extend(uncalibrated::foreign(&settings, &machine.topology));

    let (acting, policy, locks) = if args.dry_run {
        let other = what_if.map(|loaded| Arc::new(loaded.topology));
        (Acting::DryRun(other), policy, Vec::new())
    } else {
        let dir = StateDir::standard()?;
        remarks.extend(recover(&dir)?);
        let asked_for = args.policy.is_some() || args.tuning.has_rules();
        let (policy, locks) =
            permitted(policy, asked_for, &settings, &here.topology, &mut remarks)?;
        (Acting::Live(dir), policy, locks)
    };
    if let Some(why) = irq::refusal().filter(|_| policy.name() == "irq" && !args.dry_run) {
        let text = format!("{why}: none is moved; `perch irq` shows what would be better");
        remarks.push(Remark::warning("irqs-refused", text));
    }
    let changes = Changes {
        observed_only: policy.name() == "observe" && settings.policy != "observe",
        ..Changes::default()
    };
    let recorder = match &args.log {
        Some(path) => {
            let recorder = Recorder::create(path, command).context("--log")?;
            let recorder = recorder.with_configuration(settings.told());
            Some(recorder.with_calibration(settings.calibration.take()))
        }
        None => None,
    };
    let timeline = args.timeline.as_deref().map(TimelineFile::create);
    let timeline = timeline.transpose()?;
    let session = Session::new(
        open(&settings, here.topology)?,
        Options {
            deciding: Deciding::Apart(PATIENCE.min(settings.interval.unwrap_or(period) / 4)),
            period: settings.period,
            interval: settings.interval,
            take_over: settings.take_over,
            pus: settings.pus.clone(),
            ..Options::new(policy, Box::new(profile), acting)
        },
    )?;
    Ok(Placing {
        session,
        collector: Collector::new(command),
        recorder,
        timeline,
        output,
        unwritten: false,
        live: args.live.then(|| Live::new(alone && !args.explain)),
        explain: args.explain.then(Explain::default),
        unmatched,
        others: Vec::new(),
        remarks,
        changes,
        _locks: locks,
    })
}

/// The profile, if the PUs and the processor that the settings name are there. The profile defines how threads are counted,
/// and so depends on this machine; of a what-if topology only the units matter.
fn chosen(settings: &Settings, here: &Loaded, machine: &Loaded) -> Result<Chosen> {
    if let Some(pus) = &settings.pus {
        topology::check_named(&machine.topology, pus)?;
    }
    processor::choose(settings.profile.as_deref(), &Source::Native, here)
}

/// The policy, and how often it decides.
fn deciding(
    settings: &Settings,
    rules: Rules,
    topology: &Topology,
) -> Result<(Box<dyn Policy>, Duration)> {
    let policy = rules.policy(settings, topology)?;
    let period = settings.period.unwrap_or_else(|| policy.period());
    if let Some(interval) = settings.interval.filter(|interval| *interval > period) {
        bail!(
            "--interval {interval:?} is longer than the period of {period:?} in which policy {} decides: observe more \
             often, or give --period too",
            policy.name()
        );
    }
    Ok((policy, period))
}

/// Whether `perch run` could act by these settings on this machine, if no other perch does. The rules of the policy `fixed`
/// may still come.
///
/// # Errors
/// What it would say.
pub(super) fn can_be_used(settings: &Settings) -> Result<()> {
    let here = load(&Source::Native)?;
    chosen(settings, &here, &here)?;
    let rules = Rules::of(settings)?;
    let has_rules = !rules.is_empty();
    if settings.policy == "fixed" && !has_rules && settings.policy_config.is_empty() {
        return Ok(());
    }
    deciding(settings, rules, &here.topology).map(drop)
}

/// The policy with locks on what it may change: the PUs that it may place threads on, their CPU weights, or the
/// interrupts. While another perch holds some of that, it is `observe` instead, unless the policy was `asked_for` in this
/// very call: then observing is not what the user wants.
fn permitted(
    policy: Box<dyn Policy>,
    asked_for: bool,
    settings: &Settings,
    topology: &Topology,
    remarks: &mut Vec<Remark>,
) -> Result<(Box<dyn Policy>, Vec<Lock>)> {
    if settings.policy == "observe" {
        return Ok((policy, Vec::new()));
    }
    match locks(&*policy, settings, topology, remarks) {
        Ok(locks) => Ok((policy, locks)),
        Err(held) if asked_for => bail!("policy {} cannot act: {held}", settings.policy),
        Err(held) => {
            let text = format!("{held}; this one only observes");
            remarks.push(Remark::warning("pus-locked", text));
            Ok((
                registry::build("observe", &toml::Table::new(), &Inputs::default())?,
                Vec::new(),
            ))
        }
    }
}

/// The name of the policy that `perch run` would have with these, if it could act now.
///
/// # Errors
/// Settings that are wrong; another perch holds what the policy would place.
pub(super) fn check(args: &PlaceArgs) -> Result<String> {
    let (mut settings, calibration) = settings(args)?;
    let here = load(&Source::Native)?;
    if let Some(calibration) = &calibration {
        settings.calibrated_by(calibration);
    }
    let (policy, _) = deciding(&settings, Rules::of(&settings)?, &here.topology)?;
    if settings.policy != "observe"
        && let Err(held) = locks(&*policy, &settings, &here.topology, &mut Vec::new())
    {
        bail!(
            "{held}: policy {} could only observe; end the other perch, or leave it its PUs (--pus)",
            settings.policy
        );
    }
    Ok(settings.policy)
}

/// All locks that the policy needs with these settings; none if there is no place for them.
fn locks(
    policy: &dyn Policy,
    settings: &Settings,
    topology: &Topology,
    remarks: &mut Vec<Remark>,
) -> Result<Vec<Lock>, LockError> {
    let mut locks = Vec::new();
    // The policy `irq` leaves threads alone.
    if settings.policy != "irq" {
        let pus = match policy.wants_system() {
            // It moves threads of the whole machine, those of another perch's program too.
            true => topology.usable(),
            false => wanted(settings, topology),
        };
        let Some(pus) = super::lock::pus(&pus, remarks)? else {
            return Ok(Vec::new());
        };
        locks.push(pus);
    }
    // PUs of its own do not make a thread's weight perch's own.
    if policy.wants_weights() {
        locks.extend(super::lock::weights(remarks)?);
    }
    if policy.wants_irqs() {
        locks.extend(super::lock::irqs(remarks)?);
    }
    if policy.wants_settings() {
        locks.extend(super::lock::settings(remarks)?);
    }
    Ok(locks)
}

/// The PUs that threads may be placed on.
fn wanted(settings: &Settings, topology: &Topology) -> PuSet {
    let usable = topology.usable();
    match &settings.pus {
        Some(pus) => usable.and(pus),
        None => usable,
    }
}

/// This machine, counting as the settings say.
fn open(settings: &Settings, topology: Topology) -> Result<LinuxMachine> {
    let mut builder =
        LinuxMachine::builder()
            .topology(topology)
            .counters(match settings.counters {
                Counters::Auto => CountersMode::Auto,
                Counters::Pmu => CountersMode::Pmu,
                Counters::Sampling => CountersMode::Sampling,
            });
    if let Some(rate) = settings.sampling_rate {
        builder = builder.sampling_rate(rate);
    }
    if let Some(pus) = &settings.pus {
        builder = builder.restrict(pus);
    }
    // The report says how much energy the packages used, where they count that.
    if let Some(energy) = EnergyModule::of_processors(Path::new("/sys")) {
        builder = builder.module(Box::new(energy));
    }
    Ok(builder.build()?)
}

impl Placing {
    /// Whether the report, the recording or the timeline could not be written to its file, which was said by then.
    pub fn unwritten(&self) -> bool {
        self.unwritten
    }

    /// Adds to what the user is to know when the session starts.
    pub fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// Adds a sink that sees each period.
    pub fn watch(&mut self, sink: Box<dyn SessionSink>) {
        self.others.push(sink);
    }

    /// What was changed so far.
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// Runs the session with everybody watching; then the report. A file that cannot be written is said, and no error:
    /// the program's exit code must come through.
    ///
    /// # Errors
    /// A machine that cannot go on.
    pub fn run(&mut self, args: &PlaceArgs) -> Result<SessionEnd> {
        let mut observers: Vec<&mut dyn SessionSink> = Vec::new();
        self.collector.remark(std::mem::take(&mut self.remarks));
        observers.push(&mut self.collector);
        observers.push(&mut self.changes);
        observers.push(&mut self.unmatched);
        for other in &mut self.others {
            observers.push(&mut **other);
        }
        if let Some(recorder) = &mut self.recorder {
            observers.push(recorder);
        }
        if let Some(timeline) = &mut self.timeline {
            observers.push(timeline);
        }
        if let Some(explain) = &mut self.explain {
            observers.push(explain);
        }
        if let Some(live) = &mut self.live {
            observers.push(live);
        }
        let end = self.session.run(&mut observers)?;
        self.collector.remark(self.unmatched.remarks());
        let recorded = match &mut self.recorder {
            Some(recorder) => recorder.finish().context("--log"),
            None => Ok(()),
        };
        let drawn = match &mut self.timeline {
            Some(timeline) => timeline.finish(&self.collector.report()),
            None => Ok(()),
        };
        let told = match args.quiet {
            true => Ok(()),
            false => {
                let stopped = matches!(end.cause, Cause::Stopped(_));
                tell(
                    &self.collector.report(),
                    args.json,
                    self.output.take(),
                    stopped,
                )
            }
        };
        for error in [recorded.err(), drawn.err(), told.err()]
            .into_iter()
            .flatten()
        {
            exit::report(&error);
            self.unwritten = true;
        }
        Ok(end)
    }
}

/// A file for what is printed at the end, open from the beginning.
pub struct Output {
    file: File,
    path: PathBuf,
}

impl Output {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// One that cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let file = perch_files::output(path)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        let path = path.to_owned();
        Ok(Self { file, path })
    }

    /// Writes on, without colours.
    ///
    /// # Errors
    /// No more room.
    pub fn append(&mut self, text: &str) -> Result<()> {
        let plain = anstream::adapter::strip_str(text).to_string();
        self.file
            .write_all(plain.as_bytes())
            .with_context(|| format!("{}: cannot be written", self.path.display()))
    }

    /// Writes all of it, without colours.
    ///
    /// # Errors
    /// No more room.
    pub fn write(mut self, text: &str) -> Result<()> {
        self.append(text)
    }
}

/// Prints the report to standard error, or writes it to a file. If perch was `stopped`, its program must hear of that soon.
fn tell(report: &Report, json: bool, output: Option<Output>, stopped: bool) -> Result<()> {
    let text = if json {
        render::json(&serde_json::to_string_pretty(report)?) + "\n"
    } else {
        render::shown(&render::report::render(report)).into_owned()
    };
    match output {
        Some(output) => output.write(&text),
        None => {
            // Standard error may be closed, full or unread: the program's exit code must come through all the same.
            match stopped {
                true => render::stderr::write_within(&text, STOPPED_PATIENCE),
                false => render::stderr::write_until_stopped(&text),
            };
            Ok(())
        }
    }
}
