//! Where rows and totals go, and in which form.

use super::{
    needs_rows,
    parquet::{self, write::Writer},
    plot::Plot,
    regions::Found,
    trace::Trace,
    wanted::Wanted,
};
use crate::{
    args::StatArgs,
    command::{self, place::Output},
    exit,
    render::{
        self,
        stat::{
            Heading, export,
            fields::cells_of,
            regions,
            repeated::{Counted, repeated},
        },
        stderr,
    },
};
use anyhow::{Result, bail};
use perch_stat::{Collector, Row};
use std::time::SystemTime;

/// The form of rows and totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Csv,
    Json,
    Parquet,
}

/// Prints rows as they come, and totals; feeds picture and timeline.
pub struct Printer {
    form: Form,
    wanted: Wanted,
    /// Whether rows are printed, so that totals follow them.
    rows: bool,
    /// The run, from 1, where there are several (`--repeat`).
    run: Option<u32>,
    begun: bool,
    /// Whether something could not be written, which was said by then.
    pub unwritten: bool,
    to: To,
    plot: Option<Plot>,
    trace: Option<Trace>,
}

enum To {
    Stdout,
    Stderr,
    File(Output),
    Parquet(Box<Writer>),
}

impl Printer {
    /// Opens the files that are named.
    ///
    /// # Errors
    /// A file that cannot be written; a picture or a trace of no rows.
    pub fn new(args: &StatArgs, wanted: &Wanted, launches: bool) -> Result<Self> {
        let live = args.from.is_none() && args.sim.is_none();
        let rows = args.interval.is_some() || wanted.windows;
        Self::opened(args, wanted, launches, rows, live)
    }

    /// The same for rows that are there already.
    ///
    /// # Errors
    /// As for [`Printer::new`].
    pub fn of_rows(args: &StatArgs, wanted: &Wanted) -> Result<Self> {
        Self::opened(args, wanted, false, true, false)
    }

    fn opened(
        args: &StatArgs,
        wanted: &Wanted,
        launches: bool,
        rows: bool,
        live: bool,
    ) -> Result<Self> {
        if args.samples.is_some() {
            needs_rows(rows, "-n")?;
        }
        let plot = Plot::new(args, rows)?;
        let trace = Trace::new(args, wanted, rows)?;
        let form = form(args)?;
        if rows && args.repeat > 1 && matches!(form, Form::Csv | Form::Parquet) {
            bail!(
                "--repeat: rows of several runs cannot be told apart in CSV and Parquet: use --json, or leave out what \
                 makes rows (-i, :every=)"
            );
        }
        let to = match (&args.output, launches) {
            (Some(path), _) if form == Form::Parquet => {
                let now = || humantime::format_rfc3339(SystemTime::now()).to_string();
                To::Parquet(Box::new(Writer::create(path, wanted, live.then(now))?))
            }
            (Some(path), _) if path.as_os_str() == "-" => To::Stdout,
            (Some(path), _) => To::File(Output::open(path)?),
            (None, true) => To::Stderr,
            (None, false) => To::Stdout,
        };
        Ok(Self {
            form,
            wanted: wanted.clone(),
            rows,
            run: None,
            begun: false,
            unwritten: false,
            to,
            plot,
            trace,
        })
    }

    /// A run begins: its number, from 1, if there are several.
    pub fn begin_run(&mut self, run: Option<u32>) {
        self.run = run;
    }

    /// How many event sets are in rotation.
    pub fn sets(&self) -> usize {
        self.wanted.request.sets.len()
    }

    /// Whether events make the rows, not the clock.
    pub fn windows(&self) -> bool {
        self.wanted.windows
    }

    /// One interval's rows. That they cannot be written is said, and no error: the program that is counted must go on.
    pub fn rows(&mut self, rows: &[Row]) {
        if let Some(plot) = &mut self.plot {
            plot.rows(&self.wanted, rows);
        }
        if let Some(trace) = &mut self.trace {
            trace.rows(&self.wanted, rows);
        }
        if rows.is_empty() || self.unwritten {
            return;
        }
        let written = self.try_rows(rows);
        self.note(written);
    }

    fn try_rows(&mut self, rows: &[Row]) -> Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        if let To::Parquet(writer) = &mut self.to {
            let mut rows = rows.iter();
            return rows.try_for_each(|row| writer.row(cells_of(&self.wanted, row)));
        }
        let text = match self.form {
            Form::Text | Form::Parquet => render::stat::rows(&self.wanted, rows, first),
            Form::Csv => export::csv(&self.wanted, rows, first)?,
            Form::Json => export::json_rows(&self.wanted, rows, self.run)?,
        };
        self.print(&text)
    }

    /// What a run came to, and the program's regions. CSV has the totals only where it has no rows; then Parquet has them
    /// in its metadata.
    pub fn totals(&mut self, heading: &Heading, collector: &Collector, found: &Found) {
        let written = self.try_totals(heading, collector, found);
        self.note(written);
    }

    fn try_totals(
        &mut self,
        heading: &Heading,
        collector: &Collector,
        found: &Found,
    ) -> Result<()> {
        let (totals, all) = match self.rows {
            true => (Vec::new(), None),
            false => (
                export::total_rows(collector),
                export::row_of_all(&self.wanted, collector),
            ),
        };
        let regions = regions::rows(&self.wanted, found, collector);
        let behind = all.into_iter().chain(regions);
        if let To::Parquet(writer) = &mut self.to {
            if self.rows {
                let line = export::json_totals(&self.wanted, heading, collector, found, self.run)?;
                writer.tell("perch.totals", line.trim_end());
            }
            let totals = totals.iter().map(|row| cells_of(&self.wanted, row));
            let mut rows = totals.chain(behind);
            return rows.try_for_each(|row| writer.row(row));
        }
        let text = match self.form {
            Form::Text | Form::Parquet => {
                render::stat::totals(&self.wanted, heading, collector)
                    + &regions::text(found, collector)
            }
            Form::Csv => {
                let first = !std::mem::replace(&mut self.begun, true);
                export::csv(&self.wanted, &totals, first)?
                    + &export::csv_of_cells(&self.wanted, behind)?
            }
            Form::Json => export::json_totals(&self.wanted, heading, collector, found, self.run)?,
        };
        self.print(&text)
    }

    /// Mean and spread over several runs; CSV and Parquet have the totals of each run only.
    pub fn repeated(&mut self, runs: &[Counted]) {
        let text = match self.form {
            Form::Text => Ok(repeated(&self.wanted, runs)),
            Form::Json => export::json_repeated(&self.wanted, runs),
            Form::Csv | Form::Parquet => return,
        };
        let written = text.and_then(|text| self.print(&text));
        self.note(written);
    }

    /// Completes the files: nothing follows.
    pub fn complete(&mut self, heading: &Heading) {
        let closed = match &mut self.to {
            To::Parquet(writer) => {
                writer.tell("perch.command", &heading.title);
                writer.tell("perch.counting", &heading.counting);
                writer.close()
            }
            _ => Ok(()),
        };
        self.note(closed);
        let drawn = match &mut self.plot {
            Some(plot) => plot.finish(&self.wanted, heading),
            None => Ok(()),
        };
        let traced = match &mut self.trace {
            Some(trace) => trace.finish(),
            None => Ok(()),
        };
        for error in [drawn.err(), traced.err()].into_iter().flatten() {
            exit::report(&error);
            self.unwritten = true;
        }
    }

    fn note(&mut self, written: Result<()>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.unwritten, true)
        {
            exit::report(&error);
        }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            // Standard output would get an empty line.
            return Ok(());
        }
        match &mut self.to {
            To::Stdout => command::print(text),
            To::Stderr => {
                let written = stderr::write_until_stopped(&render::shown(text));
                anyhow::ensure!(written, "standard error: cannot be written");
                Ok(())
            }
            To::File(output) => output.append(&render::shown(text)),
            // It has no text.
            To::Parquet(_) => Ok(()),
        }
    }
}

/// The form that the flags, or the name of the file, ask for.
fn form(args: &StatArgs) -> Result<Form> {
    let parquet = args
        .output
        .as_deref()
        .filter(|path| parquet::is_wanted(path));
    Ok(match (args.csv, args.json, parquet) {
        (true, _, None) => Form::Csv,
        (_, true, None) => Form::Json,
        (false, false, Some(_)) => Form::Parquet,
        (false, false, None) => Form::Text,
        (_, _, Some(path)) => bail!(
            "-o {}: a name that ends in .parquet asks for Parquet: leave --csv and --json out, or give another name",
            path.display()
        ),
    })
}
