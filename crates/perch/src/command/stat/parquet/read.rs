//! Reading a Parquet file of `perch stat`.

use super::{LAYOUT, Layout};
use crate::{
    command::stat::wanted::Wanted,
    render::stat::fields::{Cell, Kind, fields},
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use parquet::{
    column::reader::{ColumnReader, get_typed_column_reader},
    data_type::{ByteArrayType, DataType, DoubleType, Int64Type},
    file::reader::{FileReader, RowGroupReader, SerializedFileReader},
};
use perch_core::{Metric, MetricScope, MetricSource, ThreadId, text::printable};
use perch_stat::{
    Amounts, By, Entity, Event, Row, RowMetrics, Value,
    text::{PARTIAL, SCALED},
};
use std::{collections::HashMap, io::Read, path::Path, sync::Arc};

/// Larger files are refused: they are read into memory as a whole.
const MOST_BYTES: u64 = 1 << 30;
/// Row groups have at most as many rows as this: perch writes a few thousand.
const MOST_ROWS: i64 = 1 << 20;

/// A file that is open.
pub struct File {
    reader: SerializedFileReader<Bytes>,
    /// Its columns.
    pub wanted: Wanted,
    /// How it was counted, if the file tells.
    pub counting: String,
    rounds: HashMap<Entity, Round>,
}

/// The present round of an entity.
struct Round {
    phase: u64,
    round: u64,
    began: u64,
    rows: usize,
}

impl File {
    /// Opens a file.
    ///
    /// # Errors
    /// One that is no Parquet file of `perch stat`.
    pub fn open(path: &Path) -> Result<Self> {
        let place = || format!("{}: cannot be read", path.display());
        let mut bytes = Vec::new();
        let mut input = perch_files::input(path)
            .with_context(place)?
            .take(MOST_BYTES + 1);
        input.read_to_end(&mut bytes).with_context(place)?;
        if bytes.len() as u64 > MOST_BYTES {
            bail!("{}: more than {} MiB", path.display(), MOST_BYTES >> 20);
        }
        let incomplete = || {
            format!(
                "{}: this is no complete Parquet file (perch may have been killed before it wrote the end)",
                path.display()
            )
        };
        let reader = SerializedFileReader::new(Bytes::from(bytes)).with_context(incomplete)?;
        let told = reader.metadata().file_metadata().key_value_metadata();
        let told = |key: &str| {
            let mut told = told.into_iter().flatten();
            told.find(|told| told.key == key)?.value.clone()
        };
        let layout = told(LAYOUT).and_then(|text| serde_json::from_str::<Layout>(&text).ok());
        let Some(wanted) = layout.and_then(|layout| layout.wanted()) else {
            bail!(
                "{}: this Parquet file was not written by perch stat",
                path.display()
            );
        };
        let schema = reader.metadata().file_metadata().schema_descr();
        let columns = schema.columns().iter().map(|column| column.name());
        if !columns.eq(fields(&wanted).iter().map(|field| field.name.as_str())) {
            bail!(
                "{}: its columns are not those that perch stat writes",
                path.display()
            );
        }
        let counting = told("perch.counting").unwrap_or_default();
        let counting = printable(&counting).into_owned();
        Ok(Self {
            reader,
            wanted,
            counting,
            rounds: HashMap::new(),
        })
    }

    /// How many row groups there are.
    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// The rows of a row group, but for those of regions.
    ///
    /// # Errors
    /// A file that is damaged.
    pub fn rows(&mut self, group: usize) -> Result<Vec<Row>> {
        let mut columns = Vec::new();
        let fields = fields(&self.wanted);
        {
            let group = self.reader.get_row_group(group)?;
            let rows = group.metadata().num_rows();
            if !(0..=MOST_ROWS).contains(&rows) {
                bail!("a row group of {rows} rows is too long");
            }
            // The library takes for granted that these are not negative.
            for chunk in group.metadata().columns() {
                let start = chunk.dictionary_page_offset();
                let start = start.unwrap_or(chunk.data_page_offset());
                if start < 0 || chunk.compressed_size() < 0 {
                    bail!(
                        "damaged: the column {} lies outside of the file",
                        printable(chunk.column_path().parts().join(".").as_str())
                    );
                }
            }
            for (at, field) in fields.iter().enumerate() {
                columns.push(column(&*group, at, field.kind, rows as usize)?);
            }
        }
        let length = columns.iter().map(Vec::len).min().unwrap_or(0);
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let mut rows = Vec::with_capacity(length);
        for _ in 0..length {
            let cells: Vec<Cell> = columns.iter_mut().filter_map(Iterator::next).collect();
            rows.extend(self.row(&cells));
        }
        Ok(rows)
    }

    /// A row from its values; `None` for what is no row of a series.
    fn row(&mut self, cells: &[Cell]) -> Option<Row> {
        let real = |at: usize| match cells.get(at) {
            Some(Cell::Real(number)) if number.is_finite() => Some(*number),
            _ => None,
        };
        let whole = |at: usize| match cells.get(at) {
            Some(Cell::Whole(number)) => Some(*number),
            _ => None,
        };
        let text = |at: usize| match cells.get(at) {
            Some(Cell::Text(text)) => text.as_str(),
            _ => "",
        };
        let ns = |at: usize| real(at).map_or(0, |seconds| (seconds * 1e9).round() as u64);
        let number = |at: usize| whole(at).map_or(0, |number| number.max(0) as u64);
        let event = match text(2) {
            "tick" => Event::Tick,
            "exit" => Event::Exit,
            "window" => Event::Window,
            "total" => Event::Total,
            _ => return None,
        };
        let name: Arc<str> = printable(text(5)).into();
        let covered = ns(11);
        let events = self.wanted.events.len();
        let mut amounts = Amounts::default();
        amounts.members = number(6).try_into().unwrap_or(u32::MAX);
        (amounts.cpu_time, amounts.covered) = (ns(10), covered);
        for (at, event) in self.wanted.events.iter().enumerate() {
            if let (Some(count), Some(share)) = (real(13 + at), real(13 + events + at)) {
                let value = Value {
                    counted: count * share,
                    time: covered as f64 * share,
                    doubt: None,
                };
                amounts.values.insert(Arc::clone(&event.alias), value);
            }
        }
        let mut metrics = RowMetrics::default();
        let first = 13 + 2 * events;
        for (at, metric) in self.wanted.metrics.iter().enumerate() {
            if let Some(value) = real(first + at) {
                let metric_value = Metric {
                    value,
                    confidence: 1.0,
                    source: MetricSource::Counters,
                };
                metrics.values.set(Arc::clone(&metric.name), metric_value);
            }
        }
        let first = first + self.wanted.metrics.len();
        for (at, metric) in self.wanted.metrics.iter().enumerate() {
            let mark = text(first + at);
            if mark.contains(PARTIAL) {
                metrics.partial.insert(Arc::clone(&metric.name));
            }
            if mark.contains(SCALED) {
                metrics.scaled.insert(Arc::clone(&metric.name));
            }
        }
        let first = first + self.wanted.metrics.len();
        for (at, metric) in self.wanted.of_modules().enumerate() {
            let of = MetricScope::ALL
                .iter()
                .find(|(name, _)| *name == text(first + at));
            if let Some((_, scope)) = of {
                metrics.wider.insert(Arc::clone(&metric.name), *scope);
            }
        }
        let mut row = Row {
            at: ns(0),
            interval: ns(1),
            entity: entity(self.wanted.by, whole(3), &name)?,
            name,
            pid: whole(4).and_then(|pid| i32::try_from(pid).ok()),
            event,
            set: whole(7).and_then(|set| u32::try_from(set - 1).ok()),
            round: number(8),
            phase: number(9),
            new_phase: false,
            broken: None,
            amounts,
            readings: Default::default(),
            metrics,
        };
        self.follow(&mut row);
        Some(row)
    }

    /// A change of phase is where the phase's number changes; it broke the round before if that has too few rows.
    fn follow(&mut self, row: &mut Row) {
        let from = row.at.saturating_sub(row.interval);
        let sets = self.wanted.request.sets.len();
        let new = Round {
            phase: row.phase,
            round: row.round,
            began: from,
            rows: 0,
        };
        let known = self.rounds.entry(row.entity.clone()).or_insert(new);
        if known.phase != row.phase {
            row.new_phase = true;
            row.broken = (known.rows > 0 && known.rows < sets).then_some(known.began);
        }
        if (known.phase, known.round) != (row.phase, row.round) {
            *known = Round {
                phase: row.phase,
                round: row.round,
                began: from,
                rows: 0,
            };
        }
        known.rows += usize::from(row.set.is_some());
    }
}

/// What a row is about, from its number and name.
fn entity(by: By, number: Option<i64>, name: &Arc<str>) -> Option<Entity> {
    let small = || number.and_then(|number| i32::try_from(number).ok());
    let unsigned = || number.and_then(|number| u32::try_from(number).ok());
    Some(match by {
        By::Thread => Entity::Thread(ThreadId {
            tid: small()?,
            start: 0,
        }),
        By::Process => Entity::Process(small()?),
        By::Command => Entity::Command(Arc::clone(name)),
        By::All => Entity::All,
        By::Pu => Entity::Pu(unsigned()?),
        By::Core => Entity::Core(usize::try_from(number?).ok()?),
        By::Package => Entity::Package(unsigned()?),
        By::Node => Entity::Node(unsigned()?),
        By::Machine => Entity::Machine,
    })
}

/// The values of a column in a row group.
fn column(group: &dyn RowGroupReader, at: usize, kind: Kind, rows: usize) -> Result<Vec<Cell>> {
    let reader = group.get_column_reader(at)?;
    match kind {
        Kind::Seconds(_) | Kind::Share | Kind::Real => {
            values::<DoubleType>(reader, rows, &Cell::Real)
        }
        Kind::Count => values::<Int64Type>(reader, rows, &|count| Cell::Real(count as u64 as f64)),
        Kind::Whole => values::<Int64Type>(reader, rows, &Cell::Whole),
        Kind::Text => values::<ByteArrayType>(reader, rows, &|bytes| {
            Cell::Text(String::from_utf8_lossy(bytes.data()).into_owned())
        }),
    }
}

fn values<T: DataType>(
    reader: ColumnReader,
    rows: usize,
    cell: &dyn Fn(T::T) -> Cell,
) -> Result<Vec<Cell>> {
    if reader_type(&reader) != T::get_physical_type() {
        bail!("a column has another type than perch stat writes");
    }
    let mut reader = get_typed_column_reader::<T>(reader);
    let (mut known, mut values) = (Vec::new(), Vec::new());
    while known.len() < rows {
        let (read, ..) =
            reader.read_records(rows - known.len(), Some(&mut known), None, &mut values)?;
        if read == 0 {
            bail!("a column is shorter than its row group");
        }
    }
    let mut values = values.into_iter();
    let cells = known.into_iter().map(|known| match known {
        0 => Cell::Missing,
        _ => values.next().map_or(Cell::Missing, cell),
    });
    Ok(cells.collect())
}

fn reader_type(reader: &ColumnReader) -> parquet::basic::Type {
    use parquet::basic::Type;
    match reader {
        ColumnReader::BoolColumnReader(_) => Type::BOOLEAN,
        ColumnReader::Int32ColumnReader(_) => Type::INT32,
        ColumnReader::Int64ColumnReader(_) => Type::INT64,
        ColumnReader::Int96ColumnReader(_) => Type::INT96,
        ColumnReader::FloatColumnReader(_) => Type::FLOAT,
        ColumnReader::DoubleColumnReader(_) => Type::DOUBLE,
        ColumnReader::ByteArrayColumnReader(_) => Type::BYTE_ARRAY,
        ColumnReader::FixedLenByteArrayColumnReader(_) => Type::FIXED_LEN_BYTE_ARRAY,
    }
}
