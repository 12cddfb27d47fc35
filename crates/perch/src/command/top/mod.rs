//! `perch top`: threads and shared units, live, recorded or simulated. It changes nothing on the machine.

mod remote;
mod sim;
mod streams;

use super::{check_output, replay::without_periods};
use crate::{
    args::{Counters, TopArgs},
    exit, processor,
};
use anyhow::{Context, Result, anyhow, bail};
use perch_core::{Launch, Machine, MachineError, text::printable};
use perch_engine::Processor;
use perch_linux::{
    LinuxMachine,
    machine::CountersMode,
    topology::{self, load},
};
use perch_top::{
    Frame,
    run::{End, Options, run},
    source::{Next, Source, local::LocalSource, recording::RecordingSource},
    wire,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{io::Write, process::ExitCode};
use streams::Streams;
use termini::{NumberCapability, TermInfo};

/// What a source says, as an error of the command.
fn told(error: perch_top::source::SourceError) -> anyhow::Error {
    anyhow!(error)
}

/// Shows, or prints, until the user or the source ends it.
///
/// # Errors
/// No terminal, a file that is no recording, a machine that cannot be reached, a program that cannot be started.
pub fn top(args: &TopArgs) -> Result<ExitCode> {
    // Before a program is started.
    if !args.json && args.host.is_none() && perch_top::terminal::open().is_err() {
        bail!("perch top draws on a terminal, and there is none: use --json to print snapshots");
    }
    // Without it, nobody knows what such a terminal makes of the sequences that draw.
    let term = std::env::var("TERM").unwrap_or_default();
    if !args.json && matches!(&*term, "" | "dumb") {
        bail!(
            "perch top cannot draw on a terminal of which nothing is known (TERM={term}): set TERM, or use --json to print \
             snapshots"
        );
    }
    if args.json {
        check_output()?;
    }
    let mut streams = Streams::default();
    let mut program = None;
    let mut source: Box<dyn Source> = if let Some(file) = &args.from {
        Box::new(RecordingSource::open(file, args.follow).map_err(told)?)
    } else if args.sim.is_some() {
        Box::new(sim::start(args)?)
    } else if let Some(host) = &args.host {
        Box::new(remote::connect(args, host)?)
    } else {
        let (source, pid) = local(args, &mut streams)?;
        program = pid;
        Box::new(source)
    };
    if args.json {
        return print(args, source, &mut streams);
    }
    let mut first: Vec<Frame> = Vec::new();
    if args.host.is_some() {
        // ssh may have to ask for a password, on this terminal.
        match source.next().map_err(told)? {
            Next::Frame(frame) => first.push(*frame),
            Next::End(_) | Next::Stop(_) => bail!("{}: it said nothing", source.title()),
        }
    }
    let options = Options {
        color: has_colors(),
        mouse: !args.no_mouse,
    };
    let ended = run(source, first, options).map_err(told);
    if let Some(pid) = program.filter(|_| !ended.as_ref().is_ok_and(|ended| ended.status.is_some()))
    {
        // It is a child of perch that nobody has waited for, so this is its number still.
        let _ = kill_process(pid, Signal::TERM);
    }
    streams.give_back();
    let ended = ended?;
    if let Some(error) = ended.error {
        return Err(told(error));
    }
    Ok(match (ended.end, ended.status) {
        (_, Some(status)) => ExitCode::from(exit::from_wait_status(status)),
        (End::Stopped(signal), None) => stopped(signal),
        (End::Lost, None) => ExitCode::from(exit::FAILED),
        _ => ExitCode::SUCCESS,
    })
}

/// The exit code after a signal. Ctrl-C is how a user ends what would go on for ever.
fn stopped(signal: i32) -> ExitCode {
    match signal == Signal::INT.as_raw() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit::SIGNALLED.wrapping_add(signal as u8)),
    }
}

/// Whether the user wants colours (https://no-color.org), and the terminal has them.
fn has_colors() -> bool {
    let none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let term = std::env::var_os("TERM").unwrap_or_default();
    let has = match TermInfo::from_env() {
        Ok(known) => known.number_cap(NumberCapability::MaxColors) > Some(2),
        // Nothing is known of it. Most terminals have colours, or ignore them.
        Err(_) => term != "dumb",
    };
    !none && has
}

/// This machine, and the process number of the program that was started.
fn local(args: &TopArgs, streams: &mut Streams) -> Result<(LocalSource, Option<Pid>)> {
    let native = topology::Source::Native;
    let here = load(&native)?;
    let profile = processor::choose(args.profile.as_deref(), &native, &here)?.profile;
    let all = args.program.is_empty() && args.pids.is_empty();
    let counters = match (args.counters, all) {
        (None, true) => CountersMode::Nothing,
        (None, false) | (Some(Counters::Auto), _) => CountersMode::Auto,
        (Some(Counters::Pmu), _) => CountersMode::Pmu,
        (Some(Counters::Sampling), _) => CountersMode::Sampling,
    };
    let mut machine = LinuxMachine::builder()
        .topology(here.topology)
        .counters(counters)
        .build()?;
    machine.watch_pus(true)?;
    machine.configure(&Processor::event_plan(&profile))?;
    let mut program = None;
    if all {
        machine.observe_all();
    } else if let Some(targets) = machine.targets() {
        if !args.program.is_empty() {
            streams.redirect(args.output.as_deref(), args.json)?;
            let launch = Launch {
                command: args.program.clone(),
                environment: Vec::new(),
            };
            let launched = targets.launch(&launch);
            if launched.is_err() {
                streams.give_back();
            }
            program = Pid::from_raw(launched?);
        }
        attach(&args.pids, |pid| targets.attach(pid).map(|_| ()))?;
    }
    let title = title(args);
    Ok((
        LocalSource::new(machine, profile, args.interval, title),
        program,
    ))
}

/// Attaches to all processes that are still there; at least one must be.
fn attach(pids: &[i32], mut one: impl FnMut(i32) -> Result<(), MachineError>) -> Result<()> {
    let mut exited = 0;
    for pid in pids {
        match one(*pid) {
            Err(MachineError::NoSuchProcess(_)) if exited + 1 < pids.len() => exited += 1,
            answer => answer?,
        }
    }
    Ok(())
}

fn title(args: &TopArgs) -> String {
    if !args.program.is_empty() {
        let words: Vec<String> = args
            .program
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return printable(&words.join(" ")).into_owned();
    }
    match args.pids.is_empty() {
        true => "this machine".to_owned(),
        false => {
            let pids: Vec<String> = args.pids.iter().map(ToString::to_string).collect();
            format!("PID {}", pids.join(", "))
        }
    }
}

/// Prints snapshots, one a line.
fn print(args: &TopArgs, mut source: Box<dyn Source>, streams: &mut Streams) -> Result<ExitCode> {
    let mut output = streams.output()?;
    let mut topology = None;
    let mut printed = 0;
    loop {
        let frame = match source.next().map_err(told)? {
            Next::Frame(frame) => frame,
            Next::End(status) => {
                if let Some(file) = args.from.as_deref().filter(|_| printed == 0) {
                    exit::say(&without_periods(file));
                }
                let status = status.map_or(0, exit::from_wait_status);
                return Ok(ExitCode::from(status));
            }
            Next::Stop(signal) => return Ok(stopped(signal)),
        };
        let is_new = topology
            .as_ref()
            .is_none_or(|known| !std::sync::Arc::ptr_eq(known, &frame.topology));
        let mut line = crate::render::json(&wire::line(&frame, is_new)?);
        line.push('\n');
        topology = Some(std::sync::Arc::clone(&frame.topology));
        let written = output
            .write_all(line.as_bytes())
            .and_then(|()| output.flush());
        match written {
            // The reader has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            written => written.context("standard output: cannot be written")?,
        }
        printed += 1;
        if args.samples.is_some_and(|most| printed >= most) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
