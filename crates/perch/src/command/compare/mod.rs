//! `perch compare`: a program with and without perch, or under several policies, alternately, and what the differences
//! are worth.

pub mod account;
pub mod conditions;
pub mod measure;
pub mod metrics;
pub mod results;
mod sides;

pub use account::Changes;
pub use metrics::CompareMetric;

use crate::{
    args::CompareArgs,
    command::place::Output as ToFile,
    exit,
    render::{compare as render, progress::Bar},
};
use anyhow::{Result, bail};
use measure::{Kind, Meter, Output, Run};
use perch_linux::energy::Energy;
use results::{NOTHING, Results, startup_of};
use sides::Side;
use std::{ffi::OsString, path::Path, process::ExitCode};

/// Start-up is measured before the first round until its interval reaches at most so many seconds to either side, or this
/// part of it, but not more often than this.
const TIGHT: f64 = 1e-3;
const TIGHT_PART: f64 = 0.05;
const MOST_STARTS: usize = 30;

/// So often at least, so that there is an interval.
const FEWEST_STARTS: usize = 6;

/// Runs all sides and prints the comparison.
///
/// # Errors
/// A program that fails, or fails to start; settings that are wrong; another perch that is placing threads.
pub fn compare(args: &CompareArgs) -> Result<ExitCode> {
    let output = args.output.as_deref().map(ToFile::open).transpose()?;
    let mut remarks = conditions::frequency_remarks(Path::new(conditions::CPUS));
    let energy = Energy::open(Path::new("/sys")).unwrap_or_else(|error| {
        remarks.push(format!("package energy is not measured: {error}"));
        None
    });
    let metrics = args.metrics();
    if let (Some(metric), None) = (metrics.first(), &energy) {
        bail!(
            "--metric {}: {}",
            metric.title(),
            remarks.pop().unwrap_or_else(|| {
                "no processor package here has a counter of energy (`perch modules energy`)"
                    .to_owned()
            })
        );
    }
    let meter = Meter::new(energy)?;
    let sides = sides::sides(args, &meter.account())?;
    let mut series = Series::new(args, sides, meter);
    let measured = series.all();
    let Series {
        sides,
        mut runs,
        meter,
        bar,
        complete,
        ..
    } = series;
    drop(bar);
    let stopped = match (measured, meter.stopped) {
        (Ok(()), _) => None,
        (Err(error), None) => return Err(error),
        (Err(_), Some(signal)) => Some(stopped_after(complete, args.runs, signal)),
    };
    if let Some(stopped) = stopped.as_ref().filter(|_| complete == 0) {
        return Err(stopped.clone().into());
    }
    // Sides are compared by rounds: one with only some of them is none.
    runs.retain(|run| run.round <= complete);
    remarks.extend(stopped.as_ref().map(ToString::to_string));
    if meter.outlived && args.prepare.is_none() {
        remarks.push(
            "processes of the program outlived its runs: what they did later is not counted, and \
             may have disturbed the runs that followed"
                .to_owned(),
        );
    }
    let names: Vec<String> = sides.into_iter().map(|side| side.name).collect();
    let program = args
        .program
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let mut results = Results::new(program.collect(), &names, &metrics, runs, remarks);
    let signal = stopped.as_ref().map(|stopped| stopped.signal);
    results.stopped_by = signal.map(perch_linux::signals::name);
    let text = render::render(&results, args.format())?;
    match output {
        None => super::print(&text)?,
        Some(output) => output.write(&text)?,
    }
    match stopped {
        None => Ok(ExitCode::SUCCESS),
        Some(stopped) => Err(stopped.into()),
    }
}

/// What is said, and with which status perch ends, if the user has stopped it.
fn stopped_after(complete: usize, rounds: u32, signal: i32) -> exit::Stopped {
    let left = match complete {
        0 => format!("none of {rounds} rounds is complete, so nothing can be compared"),
        1 => format!("1 of {rounds} rounds is complete, and only that is compared"),
        _ => format!("{complete} of {rounds} rounds are complete, and only those are compared"),
    };
    exit::Stopped {
        signal,
        left: left.into(),
    }
}

/// All runs, one after the other.
struct Series<'a> {
    args: &'a CompareArgs,
    sides: Vec<Side>,
    /// The program alone, and all sides with perch.
    starts: Vec<Side>,
    nothing: Vec<OsString>,
    meter: Meter,
    bar: Bar,
    runs: Vec<Run>,
    /// Rounds in which all sides have run.
    complete: usize,
}

impl<'a> Series<'a> {
    fn new(args: &'a CompareArgs, sides: Vec<Side>, meter: Meter) -> Self {
        let with_perch = sides.iter().filter(|side| side.has_perch());
        let starts: Vec<Side> = [Side::plain()]
            .into_iter()
            .chain(with_perch.cloned())
            .collect();
        let rounds = u64::from(args.runs) * (sides.len() + starts.len()) as u64;
        Self {
            bar: Bar::new(!args.show_output, u64::from(args.warm_up) + rounds),
            nothing: NOTHING.iter().map(OsString::from).collect(),
            args,
            sides,
            starts,
            meter,
            runs: Vec::new(),
            complete: 0,
        }
    }

    fn all(&mut self) -> Result<()> {
        self.warm_up()?;
        self.starts()?;
        for round in 1..=self.args.runs as usize {
            self.round(round)?;
            self.complete = round;
        }
        Ok(())
    }

    /// An error if the user has asked to stop. [`stopped_after`] makes the message.
    fn heed(&mut self) -> Result<()> {
        match self.meter.heed() {
            Some(_) => bail!("stopped"),
            None => Ok(()),
        }
    }

    /// Runs that do not count: of the program, and of perch, to see whether they work at all.
    fn warm_up(&mut self) -> Result<()> {
        for side in self.starts.clone() {
            self.heed()?;
            self.bar.says("warm-up");
            self.meter
                .run(&side, Kind::StartUp, &self.nothing, Output::Kept)?;
        }
        for _ in 0..self.args.warm_up {
            self.timed(0, &self.sides[0].clone(), Kind::Program)?;
            self.bar.adds(1);
        }
        Ok(())
    }

    /// Start-up only, until it is known well enough. What --prepare does would be missing here.
    fn starts(&mut self) -> Result<()> {
        if self.args.prepare.is_some() {
            return Ok(());
        }
        for time in 0..MOST_STARTS {
            let tight = |side: &Side| {
                let found = startup_of(&side.name, &self.runs);
                found.is_some_and(|found| found.half() <= TIGHT.max(TIGHT_PART * found.estimate))
            };
            if time >= FEWEST_STARTS && self.starts[1..].iter().all(tight) {
                break;
            }
            for side in alternating(time, &self.starts) {
                let run = self.timed(0, &side, Kind::StartUp)?;
                self.runs.push(run);
            }
        }
        Ok(())
    }

    fn round(&mut self, round: usize) -> Result<()> {
        let starts = alternating(round, &self.starts);
        let sides = alternating(round, &self.sides);
        for (kind, sides) in [(Kind::StartUp, starts), (Kind::Program, sides)] {
            for side in sides {
                let run = self.timed(round, &side, kind)?;
                self.runs.push(run);
                self.bar.adds(1);
            }
        }
        Ok(())
    }

    /// One run, with what the user wants before and after it.
    fn timed(&mut self, round: usize, side: &Side, kind: Kind) -> Result<Run> {
        self.heed()?;
        let args = self.args;
        let output = match (args.show_output, kind) {
            (true, _) => Output::Shown,
            (false, Kind::Program) => Output::Dropped,
            (false, Kind::StartUp) => Output::Kept,
        };
        let shell = |meter: &mut Meter, flag: &str, command: &Option<String>| match command {
            Some(command) => meter.shell(
                flag,
                command,
                match args.show_output {
                    true => Output::Shown,
                    false => Output::Kept,
                },
            ),
            None => Ok(()),
        };
        self.bar.says(&match (round, kind) {
            (0, Kind::StartUp) => "start-up".to_owned(),
            (0, Kind::Program) => "warm-up".to_owned(),
            _ => format!("round {round} of {}, {}", args.runs, side.name),
        });
        shell(&mut self.meter, "--prepare", &args.prepare)?;
        self.heed()?;
        let program = match kind {
            Kind::StartUp => &self.nothing.clone(),
            Kind::Program => &args.program,
        };
        let run = self.meter.run(side, kind, program, output);
        // Of a run that was stopped too.
        if run.is_ok() || self.meter.heed().is_some() {
            shell(&mut self.meter, "--cleanup", &args.cleanup)?;
        }
        self.heed()?;
        let mut run = run?;
        run.round = round;
        if run.status != 0 && !(args.ignore_failure && kind == Kind::Program) {
            let text = format!(
                "{} ended with status {} ({}): only runs that succeed are compared; see its output with \
                 --show-output, or compare all the same with --ignore-failure",
                program[0].to_string_lossy(),
                run.status,
                side.name,
            );
            return Err(exit::ProgramFailed {
                code: run.status,
                text,
            }
            .into());
        }
        Ok(run)
    }
}

/// A B, then B A: a machine that drifts treats all alike.
fn alternating(round: usize, sides: &[Side]) -> Vec<Side> {
    let mut sides = sides.to_vec();
    if round.is_multiple_of(2) {
        sides.reverse();
    }
    sides
}
