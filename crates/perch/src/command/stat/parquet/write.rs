//! Writing rows as a Parquet file, a row group after the other.

use super::{LAYOUT, Layout, UNITS};
use crate::{
    command::stat::wanted::Wanted,
    render::stat::fields::{Cell, Field, Kind, fields},
};
use anyhow::{Context, Result};
use parquet::{
    basic::{LogicalType, Repetition, Type as Physical},
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::Type,
};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Rows of a row group: a few megabytes at most wait in memory.
const GROUP: usize = 8192;

/// A file that is being written. It is complete once it is closed, or dropped.
pub struct Writer {
    file: Option<SerializedFileWriter<File>>,
    path: PathBuf,
    fields: Vec<Field>,
    /// Rows that wait for their row group, column by column.
    waiting: Vec<Vec<Cell>>,
}

impl Writer {
    /// Makes the file, or empties it. `began` is when counting began, for what happens now.
    ///
    /// # Errors
    /// One that cannot be written.
    pub fn create(path: &Path, wanted: &Wanted, began: Option<String>) -> Result<Self> {
        let cannot = || format!("{}: cannot be written", path.display());
        let file = perch_files::output(path).with_context(cannot)?;
        let fields = fields(wanted);
        let columns = fields.iter().map(|field| column(field).map(Arc::new));
        let schema = Type::group_type_builder("perch_stat")
            .with_fields(columns.collect::<Result<_>>()?)
            .build()?;
        let units: serde_json::Map<String, serde_json::Value> = fields
            .iter()
            .filter(|field| !field.unit.is_empty())
            .map(|field| (field.name.clone(), field.unit.clone().into()))
            .collect();
        let mut told = vec![
            (LAYOUT, serde_json::to_string(&Layout::new(wanted))?),
            (UNITS, serde_json::to_string(&units)?),
        ];
        told.extend(began.map(|began| ("perch.began", began)));
        let told = told.into_iter();
        let told = told.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_created_by(format!("perch {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(told.collect()))
            .build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            file: Some(writer.with_context(cannot)?),
            path: path.to_owned(),
            waiting: vec![Vec::new(); fields.len()],
            fields,
        })
    }

    /// Adds a row: a value for each column.
    ///
    /// # Errors
    /// No more room.
    pub fn row(&mut self, cells: Vec<Cell>) -> Result<()> {
        for (waiting, cell) in self.waiting.iter_mut().zip(cells) {
            waiting.push(cell);
        }
        match self.waiting.first().is_some_and(|rows| rows.len() >= GROUP) {
            true => self.group(),
            false => Ok(()),
        }
    }

    /// Adds to the file's metadata.
    pub fn tell(&mut self, key: &str, value: &str) {
        if let Some(file) = &mut self.file {
            file.append_key_value_metadata(KeyValue::new(key.to_owned(), value.to_owned()));
        }
    }

    /// Writes what waits, and the end without which the file cannot be read.
    ///
    /// # Errors
    /// No more room.
    pub fn close(&mut self) -> Result<()> {
        if self.waiting.first().is_some_and(|rows| !rows.is_empty()) {
            self.group()?;
        }
        match self.file.take() {
            Some(file) => file.close().map(drop).with_context(|| self.cannot()),
            None => Ok(()),
        }
    }

    fn cannot(&self) -> String {
        format!("{}: cannot be written", self.path.display())
    }

    fn group(&mut self) -> Result<()> {
        let written = self.try_group();
        if written.is_err() {
            // Half a row group spoils the file: nothing can be written after it.
            self.file = None;
        }
        written.with_context(|| self.cannot())
    }

    fn try_group(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut group = file.next_row_group()?;
        for (field, cells) in self.fields.iter().zip(&mut self.waiting) {
            if let Some(mut column) = group.next_column()? {
                write(&mut column, field.kind, std::mem::take(cells))?;
                column.close()?;
            }
        }
        group.close()?;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Perch itself fails, which it says elsewhere.
        let _ = self.close();
    }
}

/// A column of the schema. Every value may be missing.
fn column(field: &Field) -> Result<Type> {
    let (physical, logical) = match field.kind {
        Kind::Seconds(_) | Kind::Share | Kind::Real => (Physical::DOUBLE, None),
        Kind::Whole => (Physical::INT64, None),
        Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let column = Type::primitive_type_builder(&field.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(column)
}

/// Writes the values of a row group. Texts get a dictionary, as all columns do where that is shorter.
fn write(
    column: &mut SerializedColumnWriter<'_>,
    kind: Kind,
    cells: Vec<Cell>,
) -> parquet::errors::Result<()> {
    let known: Vec<i16> = cells
        .iter()
        .map(|cell| i16::from(*cell != Cell::Missing))
        .collect();
    let real = |cell: &Cell| match cell {
        Cell::Real(number) => Some(*number),
        _ => None,
    };
    match kind {
        Kind::Seconds(_) | Kind::Share | Kind::Real => {
            let values: Vec<f64> = cells.iter().filter_map(real).collect();
            let column = column.typed::<DoubleType>();
            column.write_batch(&values, Some(&known), None)?;
        }
        Kind::Count => {
            // The 64 bits of an unsigned number.
            let values = cells.iter().filter_map(real);
            let values: Vec<i64> = values.map(|count| (count.round() as u64) as i64).collect();
            let column = column.typed::<Int64Type>();
            column.write_batch(&values, Some(&known), None)?;
        }
        Kind::Whole => {
            let whole = |cell: &Cell| match cell {
                Cell::Whole(number) => Some(*number),
                _ => None,
            };
            let values: Vec<i64> = cells.iter().filter_map(whole).collect();
            let column = column.typed::<Int64Type>();
            column.write_batch(&values, Some(&known), None)?;
        }
        Kind::Text => {
            let text = |cell: Cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(text.into_bytes())),
                _ => None,
            };
            let values: Vec<ByteArray> = cells.into_iter().filter_map(text).collect();
            let column = column.typed::<ByteArrayType>();
            column.write_batch(&values, Some(&known), None)?;
        }
    }
    Ok(())
}
