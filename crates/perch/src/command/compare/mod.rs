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
use perch_linux::energy::{Energy, POWERCAP};
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
    let energy = Energy::open(Path::new(POWERCAP)).unwrap_or_else(|error| {
        remarks.push(format!("package energy is not measured: {error}"));
        None
    });
    let metrics = args.metrics();
    if let (Some(metric), None) = (metrics.first(), &energy) {
        bail!(
            "--metric {}: {}",
            metric.title(),
            remarks.pop().unwrap_or_else(|| format!(
                "no processor package here has a counter of energy in {POWERCAP} (`perch modules energy`)"
            ))
        );
    }
    let meter = Meter::new(energy)?;
    let sides = sides::sides(args, &meter.account())?;
    let mut series = Series::new(args, sides, meter);
    series.warm_up()?;
    series.starts()?;
    for round in 1..=args.runs as usize {
        series.round(round)?;
    }
    let Series {
        sides,
        runs,
        meter,
        bar,
        ..
    } = series;
    drop(bar);
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
    let text = render::render(
        &Results::new(program.collect(), &names, &metrics, runs, remarks),
        args.format(),
    )?;
    match output {
        None => super::print(&text)?,
        Some(output) => output.write(&text)?,
    }
    Ok(ExitCode::SUCCESS)
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
        }
    }

    /// Runs that do not count: of the program, and of perch, to see whether they work at all.
    fn warm_up(&mut self) -> Result<()> {
        for side in self.starts.clone() {
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
        let args = self.args;
        let output = match (args.show_output, kind) {
            (true, _) => Output::Shown,
            (false, Kind::Program) => Output::Dropped,
            (false, Kind::StartUp) => Output::Kept,
        };
        let shell = |flag: &str, command: &Option<String>| match command {
            Some(command) => Meter::shell(
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
        shell("--prepare", &args.prepare)?;
        let program = match kind {
            Kind::StartUp => &self.nothing,
            Kind::Program => &args.program,
        };
        let mut run = self.meter.run(side, kind, program, output)?;
        run.round = round;
        shell("--cleanup", &args.cleanup)?;
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
