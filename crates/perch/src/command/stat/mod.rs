//! `perch stat`: what threads and PUs do, counted over time. It changes nothing but the monitoring groups that some modules
//! need.

mod counted;
mod drawn;
mod drive;
mod followed;
pub mod formulas;
mod modules;
mod output;
mod parquet;
mod plot;
pub mod regions;
mod simulated;
mod trace;
mod unknown;
pub mod wanted;

use crate::{
    args::StatArgs,
    command::{
        modules::Catalogue,
        replay::{is_empty, without_periods},
    },
    exit, processor,
    render::stat::{Heading, repeated::Counted},
};
use anyhow::{Context, Result, bail};
use drive::{Clock, End, drive};
use followed::Followed;
pub(super) use followed::attach;
use formulas::{Formulas, check_names};
use modules::Chosen;
use nix::sys::signal::Signal;
use output::Printer;
use perch_core::{Machine, Observation, Wake};
use perch_engine::{recording::Recording, replay::RecordedMachine};
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
use perch_stat::Collector;
use regions::{Found, Regions};
use std::{
    collections::BTreeSet, ffi::OsString, os::unix::process::ExitStatusExt, path::Path,
    process::ExitCode, sync::Arc, time::Duration,
};
use wanted::Wanted;

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
    check_names(args, &profile, &derived, &modules)?;
    let wanted = Wanted::new(args, &profile, probe.pmu_usable, formulas, &modules)?;
    let fallback = format!("{}; software events are counted instead", probe.why);
    if wanted.is_fallback {
        exit::note(&fallback);
    }
    let mut printer = Printer::new(args, &wanted, launches)?;
    if launches {
        signals::Signals::catch_for_good()?;
    }
    let mut runs: Vec<Counted> = Vec::new();
    let mut status = None;
    let mut failures: Vec<String> = Vec::new();
    let mut heading = Heading::default();
    let mut stopped_by = None;
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
        if wanted.uses_migrations() {
            machine.watch_migrations();
        }
        let configured = machine.configure(&wanted.request.plan(&profile));
        configured.map_err(|error| {
            unknown::explain(error, &wanted.request, || {
                super::events::short_names(&profile)
            })
        })?;
        let regions = Regions::make();
        if launches {
            machine.begin();
        }
        let mut followed = Followed::begin(args, &mut machine, &regions)?;
        let mut collector = Collector::new(wanted.options(args), profile.clone());
        let end = drive(
            args,
            Clock::Wall,
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
        stopped_by = machine.stopped_by();
        if let Some(status) = ended.filter(|_| !end.cut_short && stopped_by.is_none()) {
            failures.extend(match args.repeat > 1 {
                true => failure(status).map(|how| format!("run {} {how}", run + 1)),
                false => killed(status).map(|how| format!("the program {how}")),
            });
        }
        // With several runs, the first that failed decides.
        status = match status {
            Some(before) if before != 0 => Some(before),
            _ => ended,
        };
        if stopped_by.is_some() {
            // A run that was cut off says nothing of the others.
            status = ended;
            break;
        }
        runs.push(Counted::of(&collector, machine.usage()));
    }
    if args.repeat > 1 && !runs.is_empty() {
        printer.repeated(&runs);
    }
    failures.iter().for_each(|how| exit::note(how));
    printer.complete(&heading);
    if let Some(signal) = stopped_by.filter(|_| args.repeat > 1) {
        // The run that was cut off may have succeeded nevertheless, the series has not.
        return Err(stopped_after(runs.len(), args.repeat, signal).into());
    }
    Ok(match (launches, status) {
        (true, Some(status)) => exit::of_program(exit::from_wait_status(status), printer.unwritten),
        (true, None) => ExitCode::from(exit::FAILED),
        (false, _) => finished(&printer),
    })
}

/// What is said, and with which status perch ends, if the user has stopped it before all runs were complete.
fn stopped_after(complete: usize, runs: u32, signal: i32) -> exit::Stopped {
    let is = if complete == 1 { "is" } else { "are" };
    exit::Stopped {
        signal,
        left: format!("{complete} of {runs} runs {is} complete").into(),
    }
}

/// How a program failed that ended with this wait status; `None` if it did not.
fn failure(status: i32) -> Option<String> {
    match std::process::ExitStatus::from_raw(status).code() {
        Some(0) => None,
        Some(code) => Some(format!("exited with status {code}")),
        None => killed(status),
    }
}

/// Which signal killed it. What else a program ends with is its own affair.
fn killed(status: i32) -> Option<String> {
    let signal = std::process::ExitStatus::from_raw(status).signal()?;
    Some(format!("was killed by {}", signals::name(signal)))
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
    exit::of_program(0, printer.unwritten)
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
    let of_machine = !args.program.is_empty() || !args.pids.is_empty() || args.cgroup.is_some();
    Heading {
        title,
        meanwhile: of_machine,
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
    let mut wanted = Wanted::of_recording(args, &profile)?;
    if let Some(counted) = counted::events(file)? {
        wanted.settle_units(&counted);
        // Files have the same columns whatever was counted.
        if !args.csv && !args.json && args.output.is_none() {
            wanted.leave_out_uncounted(&counted, args);
        }
    }
    if is_empty(file) {
        exit::say(&without_periods(file));
    }
    let printer = Printer::new(args, &wanted, false)?;
    let mut machine = RecordedMachine::new(recording);
    let options = wanted.options(args);
    // What sets counted in turns cannot be told apart once it is added up.
    let clock = match args.interval.is_some() && options.sets < 2 {
        true => Clock::Merged,
        false => Clock::Observed,
    };
    let by = options.by;
    let collector = Collector::new(options, profile);
    let mut of_pus = false;
    let code = without_program(
        args,
        clock,
        &mut machine,
        collector,
        printer,
        |observation| {
            of_pus |= !observation.pus.is_empty();
        },
    )?;
    if by.is_of_pus() && !of_pus {
        bail!(
            "--by {}: {} tells nothing of PUs, only of threads: leave --by out",
            by.name(),
            file.display()
        );
    }
    Ok(code)
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
