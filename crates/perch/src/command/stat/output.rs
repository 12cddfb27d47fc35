//! Where rows and totals go, and in which form.

use super::wanted::Wanted;
use crate::{
    args::StatArgs,
    command::{self, place::Output},
    render::{self, stat::Heading, stderr},
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
            rows: args.interval.is_some(),
            begun: false,
            to,
        })
    }

    /// One interval's rows.
    ///
    /// # Errors
    /// An output that cannot be written.
    pub fn rows(&mut self, rows: &[Row]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let first = !std::mem::replace(&mut self.begun, true);
        let text = match self.form {
            Form::Text => render::stat::rows(&self.wanted, rows, first),
            Form::Csv => render::stat::csv(&self.wanted, rows, first)?,
            Form::Json => render::stat::json_rows(&self.wanted, rows)?,
        };
        self.print(&text)
    }

    /// What a run came to. CSV has the totals only where it has no rows.
    ///
    /// # Errors
    /// An output that cannot be written.
    pub fn totals(&mut self, heading: &Heading, collector: &Collector) -> Result<()> {
        let text = match self.form {
            Form::Text => render::stat::totals(&self.wanted, heading, collector),
            Form::Csv if self.rows => return Ok(()),
            Form::Csv => {
                let first = !std::mem::replace(&mut self.begun, true);
                render::stat::csv(&self.wanted, &render::stat::total_rows(collector), first)?
            }
            Form::Json => render::stat::json_totals(&self.wanted, heading, collector)?,
        };
        self.print(&text)
    }

    /// Mean and spread over several runs.
    ///
    /// # Errors
    /// An output that cannot be written.
    pub fn repeated(&mut self, runs: &[Totals]) -> Result<()> {
        match self.form {
            Form::Text => {
                let text = render::stat::repeated(&self.wanted, runs);
                self.print(&text)
            }
            // The totals of each run are there.
            Form::Csv | Form::Json => Ok(()),
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
