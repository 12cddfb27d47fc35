//! The columns of a file of rows, whichever its format: CSV and Parquet.

use super::export::event_name;
use crate::command::stat::wanted::Wanted;
use perch_stat::Row;

/// What is in a column, and how CSV writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Seconds, with this many decimals.
    Seconds(usize),
    /// A number of something.
    Whole,
    /// An event's count, which may be scaled up.
    Count,
    /// A share, 0 to 1.
    Share,
    /// A metric's value.
    Real,
    /// One of a few texts, or a name.
    Text,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its unit, empty for numbers of something, ratios and texts.
    pub unit: String,
    /// What is in it.
    pub kind: Kind,
}

/// A row's value in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Not measured, or there is no such thing.
    Missing,
    /// Of [`Kind::Whole`].
    Whole(i64),
    /// Of all other numbers.
    Real(f64),
    /// Of [`Kind::Text`].
    Text(String),
}

impl Cell {
    fn whole(number: Option<i64>) -> Self {
        number.map_or(Self::Missing, Self::Whole)
    }

    fn real(number: Option<f64>) -> Self {
        number.map_or(Self::Missing, Self::Real)
    }

    /// As CSV has it.
    pub fn csv(&self, kind: Kind) -> String {
        match (self, kind) {
            (Self::Missing, _) => String::new(),
            (Self::Text(text), _) => text.clone(),
            (Self::Whole(number), _) => number.to_string(),
            (Self::Real(number), Kind::Seconds(decimals)) => format!("{number:.decimals$}"),
            (Self::Real(number), Kind::Count) => format!("{number:.0}"),
            (Self::Real(number), Kind::Share) => format!("{number:.4}"),
            (Self::Real(number), _) => number.to_string(),
        }
    }
}

/// The columns: those that all files have, then the events' counts and shares, the metrics with their marks, and what
/// metrics of modules are about.
pub fn fields(wanted: &Wanted) -> Vec<Field> {
    let field = |name: String, unit: &str, kind: Kind| Field {
        name,
        unit: unit.to_owned(),
        kind,
    };
    let mut fields: Vec<Field> = [
        ("time_s", "s", Kind::Seconds(6)),
        ("interval_s", "s", Kind::Seconds(6)),
        ("event", "", Kind::Text),
        ("id", "", Kind::Whole),
        ("pid", "", Kind::Whole),
        ("name", "", Kind::Text),
        ("threads", "", Kind::Whole),
        ("set", "", Kind::Whole),
        ("round", "", Kind::Whole),
        ("phase", "", Kind::Whole),
        ("cpu_s", "s", Kind::Seconds(9)),
        ("counted_s", "s", Kind::Seconds(9)),
        ("calls", "", Kind::Whole),
    ]
    .map(|(name, unit, kind)| field(name.to_owned(), unit, kind))
    .into();
    let events = wanted.events.iter();
    fields.extend(events.map(|event| field(event.name.to_string(), "", Kind::Count)));
    let events = wanted.events.iter();
    fields.extend(events.map(|event| field(format!("share_{}", event.name), "", Kind::Share)));
    let metrics = wanted.metrics.iter();
    fields.extend(metrics.map(|metric| field(metric.name.to_string(), &metric.unit, Kind::Real)));
    let metrics = wanted.metrics.iter();
    fields.extend(metrics.map(|metric| field(format!("mark_{}", metric.name), "", Kind::Text)));
    let modules = wanted.of_modules();
    fields.extend(modules.map(|metric| field(format!("of_{}", metric.name), "", Kind::Text)));
    fields
}

/// A row's values, one for each column. `event` says why there is a row; `calls` is for regions.
pub fn cells(wanted: &Wanted, row: &Row, event: &str, calls: Option<u64>) -> Vec<Cell> {
    let seconds = |ns: u64| Cell::Real(ns as f64 / 1e9);
    let number = |number: u64| Cell::whole(i64::try_from(number).ok());
    let mut cells = vec![
        seconds(row.at),
        seconds(row.interval),
        Cell::Text(event.to_owned()),
        Cell::whole(row.entity.number()),
        Cell::whole(row.pid.map(i64::from)),
        Cell::Text(row.name.to_string()),
        Cell::Whole(row.amounts.threads().round() as i64),
        Cell::whole(row.set.map(|set| i64::from(set) + 1)),
        number(row.round),
        number(row.phase),
        seconds(row.amounts.cpu_time),
        seconds(row.amounts.covered),
        calls.map_or(Cell::Missing, number),
    ];
    let value = |alias: &str| {
        let value = row.amounts.value(alias);
        value.filter(|value| value.doubt.is_none())
    };
    let covered = row.amounts.covered;
    cells.extend(wanted.events.iter().map(|event| {
        let estimate = value(&event.alias).and_then(|value| value.estimate(covered));
        Cell::real(estimate)
    }));
    cells.extend(wanted.events.iter().map(|event| {
        let share = value(&event.alias).map(|value| value.share(covered));
        Cell::real(share)
    }));
    let metrics = wanted.metrics.iter();
    cells.extend(metrics.map(|metric| Cell::real(row.metrics.values.value(&metric.name))));
    cells.extend(wanted.metrics.iter().map(|metric| {
        let mark = row.metrics.mark(&metric.name);
        match mark.is_empty() {
            true => Cell::Missing,
            false => Cell::Text(mark),
        }
    }));
    cells.extend(wanted.of_modules().map(|metric| {
        let scope = row.metrics.wider.get(&metric.name);
        Cell::Text(scope.map_or("row", |scope| scope.name()).to_owned())
    }));
    cells
}

/// A row's values, where it is one of a series or a total.
pub fn cells_of(wanted: &Wanted, row: &Row) -> Vec<Cell> {
    cells(wanted, row, event_name(row.event), None)
}
