//! `perch stat`: what threads and PUs do, counted over time. It changes nothing but the monitoring groups that some modules
//! need.

mod modules;
mod output;
pub mod wanted;

use crate::{args::StatArgs, command::modules::Catalogue, exit, processor, render::stat::Heading};
use anyhow::{Context, Result, bail};
use modules::Chosen;
use nix::sys::signal::Signal;
use output::Printer;
use perch_core::{Launch, Machine, MachineError, Wake};
use perch_engine::{limiter::Limiter, recording::Recording, replay::RecordedMachine};
use perch_linux::{
    LinuxMachine,
    machine::CountersMode,
    modules::{Entry, Place},
    perf::probe,
    signals,
    topology::{Source, load},
};
use perch_profile::Profile;
use perch_stat::{Collector, Totals};
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use wanted::{Formulas, Wanted};

/// How often threads are looked at where no rows are wanted.
const LOOK: Duration = Duration::from_secs(1);

/// Counts until the program, the processes or the recording end, or the user stops it.
///
/// # Errors
/// Events that cannot be counted, modules that do not work, a program or a process that is not there, permissions that
/// are missing.
pub fn stat(args: &StatArgs, own: Vec<Entry>) -> Result<ExitCode> {
    if args.repeat > 1 && args.program.is_empty() {
        bail!("--repeat runs a program again and again: give one, behind --");
    }
    if let Some(file) = &args.from {
        return from_recording(args, file);
    }
    let launches = !args.program.is_empty();
    if launches {
        // What asks perch to stop before there is a program may end it; what is for the program waits for it.
        signals::keep_passed()?;
    }
    let source = Source::Native;
    let here = load(&source)?;
    let profile = processor::choose(args.profile.as_deref(), &source, &here)?.profile;
    let probe = probe();
    let formulas = Formulas::read(args, &profile)?;
    let place = Place::here(Arc::new(here.topology.clone()));
    let catalogue = Catalogue::new(own, &args.modules, place)?;
    let mut modules = Chosen::new(args, &catalogue, &formulas.derived)?;
    let derived = formulas.derived.clone();
    let wanted = Wanted::new(args, &profile, probe.pmu_usable, formulas, &modules)?;
    if wanted.is_fallback {
        exit::say(&format!(
            "{}; software events are counted instead",
            probe.why
        ));
    }
    let mut printer = Printer::new(args, &wanted, launches)?;
    if launches {
        signals::Signals::catch_for_good()?;
    }
    let mut runs: Vec<Totals> = Vec::new();
    let mut status = None;
    for run in 0..args.repeat {
        if run > 0 {
            modules = Chosen::new(args, &catalogue, &derived)?;
        }
        let builder = LinuxMachine::builder()
            .topology(here.topology.clone())
            .counters(CountersMode::Chosen {
                sample: wanted.sample,
            });
        let opened = std::mem::take(&mut modules.opened);
        let mut machine = opened
            .into_iter()
            .fold(builder, |builder, module| builder.module(module))
            .build()?;
        machine.watch_pus(wanted.by.is_of_pus())?;
        machine.configure(&wanted.request.plan(&profile))?;
        begin(args, &mut machine)?;
        let mut collector = Collector::new(wanted.options(args), profile.clone());
        let end = drive(args, &mut machine, &mut collector, &mut printer)?;
        if end.cut_short {
            // As perf-stat(1) does when its time is over.
            machine.forward(Signal::SIGTERM as i32);
        }
        let ended = match (end.status, launches) {
            (None, true) => wait_for_end(&mut machine)?,
            (status, _) => status,
        };
        printer.totals(&heading(args, &machine.counting(), &end), &collector);
        runs.push(collector.totals().clone());
        status = ended;
        if end.stopped {
            break;
        }
    }
    if args.repeat > 1 {
        printer.repeated(&runs);
    }
    Ok(match (launches, status) {
        (true, Some(status)) => ExitCode::from(exit::from_wait_status(status)),
        (true, None) => ExitCode::from(exit::FAILED),
        (false, _) => finished(&printer),
    })
}

/// Without a program, all that can fail is to write.
fn finished(printer: &Printer) -> ExitCode {
    match printer.unwritten {
        true => ExitCode::from(exit::FAILED),
        false => ExitCode::SUCCESS,
    }
}

/// Starts the program, attaches to the processes, or stays without either.
fn begin(args: &StatArgs, machine: &mut LinuxMachine) -> Result<()> {
    if args.program.is_empty() && args.pids.is_empty() {
        machine.stay(args.duration.map(|duration| Instant::now() + duration));
        return Ok(());
    }
    let Some(targets) = machine.targets() else {
        bail!("this machine starts no programs");
    };
    if !args.program.is_empty() {
        let launch = Launch {
            command: args.program.clone(),
            environment: Vec::new(),
        };
        targets.launch(&launch)?;
    }
    let mut exited = 0;
    for pid in &args.pids {
        match targets.attach(*pid) {
            Err(MachineError::NoSuchProcess(pid)) if exited + 1 < args.pids.len() => {
                exited += 1;
                exit::say(&format!(
                    "{}; the others are counted",
                    MachineError::NoSuchProcess(pid)
                ));
            }
            answer => {
                answer?;
            }
        }
    }
    Ok(())
}

/// How counting ended.
struct End {
    /// The program's wait status, if it has ended.
    status: Option<i32>,
    /// The user asked to stop.
    stopped: bool,
    /// `--samples` or `--for` ended it.
    cut_short: bool,
    /// How long it took.
    took: Duration,
}

/// Observes interval after interval, and prints rows as they come.
fn drive(
    args: &StatArgs,
    machine: &mut dyn Machine,
    collector: &mut Collector,
    printer: &mut Printer,
) -> Result<End> {
    let interval = args.interval.unwrap_or(LOOK);
    let start = Instant::now();
    let mut limiter = Limiter::default();
    let mut samples = 0u64;
    loop {
        let wake = machine.wait(interval)?;
        let mut observation = machine.observe()?;
        limiter.limit(observation.at, &mut observation.remarks);
        for remark in &observation.remarks {
            exit::say(&remark.text);
        }
        let rows = collector.take(&observation, &machine.topology());
        if args.interval.is_some() {
            printer.rows(&rows);
        }
        samples += 1;
        let took = start.elapsed();
        let end = |status, stopped, cut_short| End {
            status,
            stopped,
            cut_short,
            took,
        };
        match wake {
            Wake::Ended(status) => return Ok(end(status, false, false)),
            Wake::Stop(_) => return Ok(end(None, true, false)),
            Wake::Period => {}
        }
        let enough = args.samples.is_some_and(|most| samples >= most)
            || args.duration.is_some_and(|most| took >= most);
        if enough {
            return Ok(end(None, false, true));
        }
    }
}

/// Counting is over, the program is not: waits for its end, passing signals on.
fn wait_for_end(machine: &mut LinuxMachine) -> Result<Option<i32>> {
    machine.pass_stop();
    loop {
        match machine.wait(Duration::from_secs(3600))? {
            Wake::Ended(status) => return Ok(status),
            Wake::Stop(_) => machine.pass_stop(),
            Wake::Period => {}
        }
    }
}

fn heading(args: &StatArgs, counting: &str, end: &End) -> Heading {
    let words: Vec<String> = args
        .program
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let title = match (&args.from, words.is_empty(), args.pids.is_empty()) {
        (Some(file), ..) => file.display().to_string(),
        (None, false, _) => words.join(" "),
        (None, true, false) => {
            let pids: Vec<String> = args.pids.iter().map(ToString::to_string).collect();
            format!("PID {}", pids.join(", "))
        }
        (None, true, true) => "this machine".to_owned(),
    };
    Heading {
        title,
        counting: counting.to_owned(),
        took: end.took,
    }
}

/// The series of a recording.
fn from_recording(args: &StatArgs, file: &std::path::Path) -> Result<ExitCode> {
    let recording = Recording::open(file)?;
    let header = std::sync::Arc::clone(recording.header());
    let profile = match &args.profile {
        Some(asked) => processor::library()?.choose(asked)?.clone(),
        None => Profile::parse(
            &header.profile_text,
            &format!("{}: profile {}", file.display(), header.profile),
        )
        .context("the recording's profile")?,
    };
    let wanted = Wanted::of_recording(args, &profile)?;
    let mut printer = Printer::new(args, &wanted, false)?;
    let mut machine = RecordedMachine::new(recording);
    let mut collector = Collector::new(wanted.options(args), profile);
    let mut end = drive(args, &mut machine, &mut collector, &mut printer)?;
    end.took = Duration::from_nanos(collector.totals().interval);
    printer.totals(&heading(args, &machine.counting(), &end), &collector);
    Ok(finished(&printer))
}
