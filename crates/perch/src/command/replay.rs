//! `perch replay`: any policy over a recording.

use crate::{
    args::{PlaceArgs, ReplayArgs},
    command::place,
    config::Settings,
    processor,
    render::explain::Explain,
};
use anyhow::Result;
use perch_engine::{
    Acting, Observer, Options, Session, recording::Recording, replay::RecordedMachine,
    report::Collector,
};
use perch_linux::topology::{Source, load};
use perch_profile::Profile;
use std::{process::ExitCode, sync::Arc};

/// Replays and reports on standard output.
///
/// # Errors
/// A file that is no recording, settings that are wrong.
pub fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let recording = Recording::open(&args.file)?;
    let header = Arc::clone(recording.header());
    let asked = PlaceArgs {
        policy: args
            .policy
            .clone()
            .or_else(|| args.pin.is_empty().then(|| header.policy.clone())),
        pin: args.pin.clone(),
        pin_file: args.pin_file.clone(),
        config: args.config.clone(),
        ..PlaceArgs::default()
    };
    let settings = Settings::new(&asked)?;
    let other = args
        .topology
        .as_deref()
        .map(|text| load(&Source::from_text(text)))
        .transpose()?;
    // As it was recorded: on paper on another machine, if it was.
    let topology = other
        .map(|loaded| Arc::new(loaded.topology))
        .or_else(|| header.paper.clone());
    let profile = match &args.profile {
        Some(asked) => processor::library()?.choose(asked)?.clone(),
        None => Profile::parse(
            &header.profile_text,
            &format!("{}: profile {}", args.file.display(), header.profile),
        )?,
    };
    let policy = place::policy(&settings, topology.as_ref().unwrap_or(&header.topology))?;
    let command = header.command.clone();
    let period = settings.period.unwrap_or(header.period);
    let mut session = Session::new(
        RecordedMachine::new(recording),
        Options {
            policy,
            processor: Box::new(profile),
            period: Some(period),
            acting: Acting::Paper(topology),
            take_over: settings.take_over,
            pus: settings.pus,
        },
    )?;
    let mut collector = Collector::new(&command);
    let mut explain = Explain::default();
    let mut observers: Vec<&mut dyn Observer> = vec![&mut collector];
    if args.explain {
        observers.push(&mut explain);
    }
    session.run(&mut observers)?;
    let report = collector.report();
    if args.json {
        super::print_json(&report)?;
    } else {
        super::print(&crate::render::report::render(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}
