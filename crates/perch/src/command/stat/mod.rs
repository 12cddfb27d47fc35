//! `perch stat`: what threads and PUs do, counted over time. It changes nothing but the monitoring groups that some modules
//! need.

mod drawn;
mod followed;
mod modules;
mod output;
mod parquet;
mod plot;
pub mod regions;
mod simulated;
mod trace;
pub mod wanted;

use crate::{args::StatArgs, command::modules::Catalogue, exit, processor, render::stat::Heading};
use anyhow::{Context, Result, bail};
use followed::Followed;
pub(super) use followed::attach;
use modules::Chosen;
use nix::sys::signal::Signal;
use output::Printer;
use perch_core::{Machine, MachineError, Observation, Remark, Wake, diagnostic::did_you_mean};
use perch_engine::{limiter::Limiter, recording::Recording, replay::RecordedMachine};
use perch_linux::{
    LinuxMachine,
    launch::Usage,
    machine::CountersMode,
    modules::{Entry, Place},
    perf::probe,
    signals,
    topology::{Source, load},
};
use perch_profile::Profile;
use perch_stat::{Collector, Totals};
use regions::{Found, Regions};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use wanted::{Formulas, Wanted};

/// How often threads are looked at where no rows are wanted.
const LOOK: Duration = Duration::from_secs(1);

/// The same where events make records: a thread's ring holds a hundred or more.
const LOOK_AT_RECORDS: Duration = Duration::from_millis(100);

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
        return match parquet::is_wanted(file) {
            true => from_parquet(args, file),
            false => from_recording(args, file),
        };
    }
    if let (Some(machine), Some(workload)) = (&args.sim, &args.workload) {
        return simulated::stat(args, machine, workload);
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
    let fallback = format!("{}; software events are counted instead", probe.why);
    if wanted.is_fallback {
        exit::say(&fallback);
    }
    let mut printer = Printer::new(args, &wanted, launches)?;
    if launches {
        signals::Signals::catch_for_good()?;
    }
    let mut runs: Vec<(Totals, Option<Usage>)> = Vec::new();
    let mut status = None;
    let mut heading = Heading::default();
    for run in 0..args.repeat {
        printer.begin_run((args.repeat > 1).then_some(run + 1));
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
        let configured = machine.configure(&wanted.request.plan(&profile));
        configured.map_err(|error| {
            with_hint(error, &args.events, || super::events::short_names(&profile))
        })?;
        let regions = Regions::make();
        let mut followed = Followed::begin(args, &mut machine, &regions)?;
        let mut collector = Collector::new(wanted.options(args), profile.clone());
        if !launches {
            // Events of what runs already are opened at the first look: what happened before it is not counted.
            say(machine.observe()?.remarks.iter());
        }
        let end = drive(
            args,
            Clock::Wall(Instant::now()),
            &mut machine,
            &mut collector,
            &mut printer,
            |machine| followed.newcomers(machine),
            |_| (),
        )?;
        if end.cut_short {
            // As perf-stat(1) does when its time is over.
            machine.forward(Signal::SIGTERM as i32);
        }
        let ended = match (end.status, launches) {
            (None, true) => wait_for_end(&mut machine)?,
            (status, _) => status,
        };
        let found = match launches {
            true => regions.read(&wanted, &collector, &fallback),
            false => Found::default(),
        };
        heading = self::heading(args, &machine.counting(), &end, machine.usage());
        printer.totals(&heading, &collector, &found);
        status = ended;
        if end.stopped {
            // A run that was cut off says nothing of the others.
            break;
        }
        runs.push((collector.totals().clone(), machine.usage()));
    }
    if args.repeat > 1 && !runs.is_empty() {
        printer.repeated(&runs);
    }
    printer.complete(&heading);
    Ok(match (launches, status) {
        (true, Some(status)) => exit::of_program(exit::from_wait_status(status), printer.unwritten),
        (true, None) => ExitCode::from(exit::FAILED),
        (false, _) => finished(&printer),
    })
}

/// The error, with the names that were meant if it is about names that nobody knows.
fn with_hint(
    error: MachineError,
    events: &[String],
    known: impl FnOnce() -> Vec<String>,
) -> anyhow::Error {
    if !matches!(error, MachineError::UnknownEvents(_)) {
        return error.into();
    }
    let known = known();
    let given = events.iter().flat_map(|set| set.split(','));
    let names = given.map(|event| event.split(':').next().unwrap_or_default().trim());
    let unknown = names.filter(|name| !known.iter().any(|known| known == name));
    let hints: Vec<String> = unknown
        .filter_map(|name| did_you_mean(name, known.iter().map(String::as_str)))
        .collect();
    match hints.is_empty() {
        true => error.into(),
        false => anyhow::anyhow!("{error}; {}", hints.join("; ")),
    }
}

/// Refuses what is made from rows if there are none.
fn needs_rows(rows: bool, flag: &str) -> Result<()> {
    if !rows {
        bail!("{flag} needs a series: give the interval too, such as -i 100ms");
    }
    Ok(())
}

/// Without a program, all that can fail is to write.
fn finished(printer: &Printer) -> ExitCode {
    match printer.unwritten {
        true => ExitCode::from(exit::FAILED),
        false => ExitCode::SUCCESS,
    }
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

/// By which clock counting ends.
#[derive(Debug, Clone, Copy)]
enum Clock {
    /// The user's, from this moment on.
    Wall(Instant),
    /// That of what is observed: time of a simulation or a recording passes faster or more slowly.
    Observed,
    /// That of a recording, several periods of which make an interval.
    Merged,
}

fn say<'a>(remarks: impl Iterator<Item = &'a Remark>) {
    remarks.for_each(|remark| exit::say(&remark.text));
}

/// Observes interval after interval, and prints rows as they come. `each` is called before each interval, `seen` with what
/// was observed, before it is counted.
fn drive<M: Machine>(
    args: &StatArgs,
    clock: Clock,
    machine: &mut M,
    collector: &mut Collector,
    printer: &mut Printer,
    mut each: impl FnMut(&mut M),
    mut seen: impl FnMut(&mut Observation),
) -> Result<End> {
    let interval = args.interval.unwrap_or(match printer.windows() {
        true => LOOK_AT_RECORDS,
        false => LOOK,
    });
    let mut limiter = Limiter::default();
    let mut samples = 0u64;
    let mut took = Duration::ZERO;
    loop {
        each(machine);
        let left = args.duration.map(|most| most.saturating_sub(took));
        let shortest = Duration::from_millis(1);
        let time = left.map_or(interval, |left| interval.min(left.max(shortest)));
        let (wake, mut observation) = match clock {
            Clock::Merged => periods(machine, time)?,
            _ => (machine.wait(time)?, machine.observe()?),
        };
        seen(&mut observation);
        limiter.limit(observation.at, &mut observation.remarks);
        say(observation.remarks.iter());
        let rows = collector.take(&observation, &machine.topology());
        let left = args.samples.map_or(u64::MAX, |most| most - samples);
        // A look may bring more records than are wanted.
        let shown = match printer.windows() {
            true => &rows[..rows.len().min(usize::try_from(left).unwrap_or(usize::MAX))],
            false => &rows[..],
        };
        if args.interval.is_some() || printer.windows() {
            printer.rows(shown);
        }
        samples += match printer.windows() {
            true => shown.len() as u64,
            false => 1,
        };
        took = match clock {
            Clock::Wall(start) => start.elapsed(),
            Clock::Observed | Clock::Merged => Duration::from_nanos(collector.totals().interval),
        };
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

/// The next periods of a recording, as many as make up this time, as one.
fn periods<M: Machine>(machine: &mut M, time: Duration) -> Result<(Wake, Observation)> {
    // Periods are never quite as long as they were meant to be.
    let time = time.mul_f64(0.99).as_nanos() as u64;
    let mut wake = machine.wait(Duration::ZERO)?;
    let mut observation = machine.observe()?;
    while matches!(wake, Wake::Period) && observation.interval < time {
        wake = machine.wait(Duration::ZERO)?;
        observation.absorb(&machine.observe()?);
    }
    Ok((wake, observation))
}

/// Counting is over, the program is not: waits for its end, passing signals on.
pub(super) fn wait_for_end(machine: &mut LinuxMachine) -> Result<Option<i32>> {
    machine.pass_stop();
    loop {
        match machine.wait(Duration::from_secs(3600))? {
            Wake::Ended(status) => return Ok(status),
            Wake::Stop(_) => machine.pass_stop(),
            Wake::Period => {}
        }
    }
}

/// What is counted: the program, or the processes; `None` without either.
pub(super) fn title(program: &[OsString], pids: &[i32]) -> Option<String> {
    if !program.is_empty() {
        let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        return Some(words.join(" "));
    }
    let mut seen = BTreeSet::new();
    let each = pids.iter().filter(|pid| seen.insert(**pid));
    let pids: Vec<String> = each.map(ToString::to_string).collect();
    (!pids.is_empty()).then(|| format!("PID {}", pids.join(", ")))
}

fn heading(args: &StatArgs, counting: &str, end: &End, usage: Option<Usage>) -> Heading {
    let of_targets = || title(&args.program, &args.pids);
    let title = match (&args.from, &args.cgroup, &args.sim, &args.workload) {
        (Some(file), ..) => file.display().to_string(),
        (None, Some(group), ..) => format!("control group {group}"),
        (None, None, Some(machine), Some(workload)) => {
            format!("{workload} on a simulated {machine}")
        }
        _ => of_targets().unwrap_or_else(|| "this machine".to_owned()),
    };
    Heading {
        title,
        counting: counting.to_owned(),
        took: end.took,
        usage,
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
    let printer = Printer::new(args, &wanted, false)?;
    let mut machine = RecordedMachine::new(recording);
    let options = wanted.options(args);
    // What sets counted in turns cannot be told apart once it is added up.
    let clock = match args.interval.is_some() && options.sets < 2 {
        true => Clock::Merged,
        false => Clock::Observed,
    };
    let collector = Collector::new(options, profile);
    without_program(args, clock, &mut machine, collector, printer, |_| ())
}

/// The series of a Parquet file that `perch stat` wrote.
fn from_parquet(args: &StatArgs, file: &Path) -> Result<ExitCode> {
    let chosen = [
        ("--by", args.by().is_some()),
        ("-m", !args.metrics.is_empty()),
        ("-V", !args.virtuals.is_empty()),
        ("--complete-rounds", args.complete_rounds),
        ("--profile", args.profile.is_some()),
        ("--phases", args.phases.is_some()),
        ("-i", args.interval.is_some()),
        ("-n", args.samples.is_some()),
        ("--for", args.duration.is_some()),
    ];
    if let Some((flag, _)) = chosen.iter().find(|(_, given)| *given) {
        bail!(
            "{flag}: {} has the rows and columns with which it was written: leave {flag} out, or give it when you write the \
             file",
            file.display()
        );
    }
    let mut series = parquet::read::File::open(file)?;
    let mut printer = Printer::of_rows(args, &series.wanted)?;
    for group in 0..series.groups() {
        let damaged = || format!("{}: the file is damaged", file.display());
        printer.rows(&series.rows(group).with_context(damaged)?);
    }
    let end = End {
        status: None,
        stopped: false,
        cut_short: false,
        took: Duration::ZERO,
    };
    printer.complete(&heading(args, &series.counting, &end, None));
    Ok(finished(&printer))
}

/// Prints the series and totals of a machine on which nothing is started, by its own clock.
fn without_program<M: Machine>(
    args: &StatArgs,
    clock: Clock,
    machine: &mut M,
    mut collector: Collector,
    mut printer: Printer,
    seen: impl FnMut(&mut Observation),
) -> Result<ExitCode> {
    let end = drive(
        args,
        clock,
        machine,
        &mut collector,
        &mut printer,
        |_| (),
        seen,
    )?;
    let heading = heading(args, &machine.counting(), &end, None);
    printer.totals(&heading, &collector, &Found::default());
    printer.complete(&heading);
    Ok(finished(&printer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_names_suggest_names() {
        let told = |error: MachineError| {
            let events = ["cycels,task-clock:u".to_owned()];
            with_hint(error, &events, || vec!["cycles".to_owned()]).to_string()
        };
        assert_eq!(told(MachineError::Other("no room".into())), "no room");
        let unknown = told(MachineError::UnknownEvents("no such event".into()));
        assert_eq!(unknown, "no such event; did you mean `cycles`?");
    }
}
