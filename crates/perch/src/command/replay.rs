//! `perch replay`: any policy over a recording.

use crate::{
    args::{PlaceArgs, ReplayArgs, TuningArgs},
    command::{calibrate::where_to_read, rules},
    config::Settings,
    exit, processor,
    render::explain::Explain,
    timeline::TimelineFile,
};
use anyhow::{Error, Result, anyhow};
use perch_engine::{
    Acting, Options, RecordingError, Session, SessionSink,
    recording::{Header, Record, Recorder, Recording},
    replay::RecordedMachine,
    report::Collector,
};
use perch_linux::topology::{Source, load};
use perch_profile::Profile;
use std::{io::Read, path::Path, process::ExitCode, sync::Arc};

/// Replays and reports on standard output.
///
/// # Errors
/// A file that is no recording, settings that are wrong.
pub fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let recording =
        Recording::open(&args.file).map_err(|error| not_a_recording(error, &args.file))?;
    let header = Arc::clone(recording.header());
    let mut settings = settings(args, &header)?;
    let other = args
        .topology
        .as_deref()
        .map(|text| load(&Source::from_text(text)))
        .transpose()?;
    // As it was recorded: on a what-if topology, if there was one.
    let topology = other
        .map(|loaded| Arc::new(loaded.topology))
        .or_else(|| header.what_if.clone());
    let profile = match &args.profile {
        Some(asked) => processor::library()?.choose(asked)?.clone(),
        None => Profile::parse(
            &header.profile_text,
            &format!("{}: profile {}", args.file.display(), header.profile),
        )?,
    };
    calibrate(&mut settings, args, &header)?;
    let policy = rules::policy(&settings, topology.as_ref().unwrap_or(&header.topology))?;
    let command = header.command.clone();
    let configuration = settings.told();
    let period = settings.period.unwrap_or(header.period);
    let mut session = Session::new(
        RecordedMachine::new(recording),
        Options {
            period: Some(period),
            interval: header.interval,
            take_over: settings.take_over,
            pus: settings.pus,
            ..Options::new(policy, Box::new(profile), Acting::DryRun(topology))
        },
    )?;
    let mut collector = Collector::new(&command);
    let mut explain = Explain::default();
    let mut recorder = match &args.log {
        Some(path) => Some(
            Recorder::create(path, &command)?
                .with_configuration(configuration)
                .with_calibration(header.calibration.clone()),
        ),
        None => None,
    };
    let timeline = args.timeline.as_deref().map(TimelineFile::create);
    let mut timeline = timeline.transpose()?;
    let mut observers: Vec<&mut dyn SessionSink> = vec![&mut collector];
    if args.explain {
        observers.push(&mut explain);
    }
    if let Some(recorder) = &mut recorder {
        observers.push(recorder);
    }
    if let Some(timeline) = &mut timeline {
        observers.push(timeline);
    }
    session.run(&mut observers)?;
    if is_empty(&args.file) {
        exit::say(&without_periods(&args.file));
    }
    if let Some(recorder) = &mut recorder {
        recorder.finish()?;
    }
    let report = collector.report();
    if let Some(timeline) = &mut timeline {
        timeline.finish(&report)?;
    }
    match (args.json, args.quiet) {
        (true, _) => super::print_json(&report)?,
        (_, true) => {}
        _ => super::print(&crate::render::report::render(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The message about a recording without periods.
pub(super) fn without_periods(file: &Path) -> String {
    format!(
        "{}: it holds no period: the recording ended before the first one",
        file.display()
    )
}

/// Whether a recording has no period. A pipe, which can be read only once, and a damaged file count as having some.
pub(super) fn is_empty(file: &Path) -> bool {
    let Some(mut recording) = file.is_file().then(|| Recording::open(file).ok()).flatten() else {
        return false;
    };
    loop {
        match recording.read() {
            Ok(Some(Record::Period(_))) | Err(_) => return false,
            Ok(Some(_)) => {}
            Ok(None) => return true,
        }
    }
}

/// Why a file cannot be opened as a recording; of an instruction trace, what to do with it.
pub(super) fn not_a_recording(error: RecordingError, file: &Path) -> Error {
    match is_trace(file) {
        true => anyhow!(
            "{}: an instruction trace, not a recording of perch's periods: look at it with `perch trace`",
            file.display()
        ),
        false => error.into(),
    }
}

/// Whether a file begins as `perch record-trace` begins it.
fn is_trace(path: &Path) -> bool {
    let magic = perch_trace::file::MAGIC;
    let mut head = Vec::new();
    // Not a pipe, of which the beginning is gone.
    let file = path
        .is_file()
        .then(|| perch_files::input(path).ok())
        .flatten();
    let read = file.map(|file| file.take(magic.len() as u64).read_to_end(&mut head));
    read.is_some_and(|read| read.is_ok()) && head == magic
}

/// Those of the recording where it is asked for no others: its policy again has the options that it had.
fn settings(args: &ReplayArgs, header: &Header) -> Result<Settings> {
    let given = TuningArgs {
        config: args.config.clone(),
        pin: args.pin.clone(),
        weight: args.weight.clone(),
        ways: args.ways.clone(),
        pin_file: args.pin_file.clone(),
        ..TuningArgs::default()
    };
    let pins_given = given.has_rules();
    let mut asked = PlaceArgs {
        policy: args
            .policy
            .clone()
            .or_else(|| (!pins_given).then(|| header.policy.clone())),
        tuning: given,
        ..PlaceArgs::default()
    };
    let again =
        !pins_given && args.config.is_none() && asked.policy.as_ref() == Some(&header.policy);
    if again && header.policy == "fixed" {
        let recorded = |name: &str| {
            let rules = header.configuration.get(name).cloned();
            rules
                .and_then(|rules| serde_json::from_value(rules).ok())
                .unwrap_or_default()
        };
        (asked.tuning.pin, asked.tuning.weight) = (recorded("pin"), recorded("weight"));
        asked.tuning.ways = recorded("ways");
    }
    let mut settings = Settings::new(&asked)?;
    if again {
        settings.options_of(header);
    }
    if args.topology.is_none() {
        settings.pus = settings.pus.or_else(|| header.pus.clone());
    }
    settings.take_over |= header.take_over;
    Ok(settings)
}

/// Gives a policy that needs one the calibration that was recorded, else this machine's own if the recording was made
/// here.
fn calibrate(settings: &mut Settings, args: &ReplayArgs, header: &Header) -> Result<()> {
    if !settings.lacks_calibration() || args.topology.is_some() {
        return Ok(());
    }
    if let Some(text) = &header.calibration {
        let name = format!("{}: calibration", args.file.display());
        settings.calibrated_with(name, text.clone());
    } else if let Some(own) = where_to_read()
        && header.what_if.is_none()
        && load(&Source::Native)?.topology == *header.topology
    {
        settings.calibrated_by(&own);
    }
    Ok(())
}
