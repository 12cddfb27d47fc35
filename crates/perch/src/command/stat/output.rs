//! Where rows and totals go, and in which form.

use super::{regions::Found, wanted::Wanted};
use crate::{
    args::StatArgs,
    command::{self, place::Output},
    exit,
    render::{
        self,
        stat::{Heading, export, regions},
        stderr,
    },
};
use anyhow::Result;
use perch_stat::{Collector, Row, Totals};

/// The form of rows and totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Csv,
    Json,
}

/// Prints rows as they come, and totals.
pub struct Printer {
    form: Form,
    wanted: Wanted,
    /// Whether rows are printed, so that totals follow them.
    rows: bool,
    begun: bool,
    /// Whether something could not be written, which was said by then.
    pub unwritten: bool,
    to: To,
}

enum To {
    Stdout,
    Stderr,
    File(Output),
}

impl Printer {
    /// Opens the file, if one is named.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn new(args: &StatArgs, wanted: &Wanted, launches: bool) -> Result<Self> {
        let to = match (&args.output, launches) {
            (Some(path), _) => To::File(Output::open(path)?),
            (None, true) => To::Stderr,
            (None, false) => To::Stdout,
        };
        Ok(Self {
            form: match (args.csv, args.json) {
                (true, _) => Form::Csv,
                (_, true) => Form::Json,
                _ => Form::Text,
            },
            wanted: wanted.clone(),
            rows: args.interval.is_some() || wanted.windows,
            begun: false,
            unwritten: false,
            to,
        })
    }

    /// Whether events make the rows, not the clock.
    pub fn windows(&self) -> bool {
        self.wanted.windows
    }

    /// One interval's rows. That they cannot be written is said, and no error: the program that is counted must go on.
    pub fn rows(&mut self, rows: &[Row]) {
        if rows.is_empty() || self.unwritten {
            return;
        }
        let written = self.try_rows(rows);
        self.note(written);
    }

    fn try_rows(&mut self, rows: &[Row]) -> Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        let text = match self.form {
            Form::Text => render::stat::rows(&self.wanted, rows, first),
            Form::Csv => export::csv(&self.wanted, rows, first)?,
            Form::Json => export::json_rows(&self.wanted, rows)?,
        };
        self.print(&text)
    }

    /// What a run came to, and the program's regions. CSV has the totals only where it has no rows.
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
        let text = match self.form {
            Form::Text => {
                render::stat::totals(&self.wanted, heading, collector)
                    + &regions::text(found, collector)
            }
            Form::Csv => {
                let first = !std::mem::replace(&mut self.begun, true);
                let totals = match self.rows {
                    true => Vec::new(),
                    false => export::total_rows(collector),
                };
                export::csv(&self.wanted, &totals, first)?
                    + &regions::csv(&self.wanted, found, collector)?
            }
            Form::Json => export::json_totals(&self.wanted, heading, collector, found)?,
        };
        self.print(&text)
    }

    /// Mean and spread over several runs; the other forms have the totals of each run.
    pub fn repeated(&mut self, runs: &[Totals]) {
        if self.form == Form::Text {
            let text = render::stat::repeated(&self.wanted, runs);
            let written = self.print(&text);
            self.note(written);
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
        match &mut self.to {
            To::Stdout => command::print(text),
            To::Stderr => {
                stderr::write_until_stopped(&render::shown(text));
                Ok(())
            }
            To::File(output) => output.append(&render::shown(text)),
        }
    }
}
