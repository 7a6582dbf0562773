//! The file of one table in any of the formats, written with its digest, or read.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::hashed_file::HashedFile;
use super::tables::{ExportTable, FileCell};
use super::{csv, ndjson, parquet};

/// Format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportFormat {
    /// Parquet.
    Parquet,
    /// One JSON object per line.
    Ndjson,
    /// CSV with one line per row.
    Csv,
}

impl ExportFormat {
    /// The name of a table's file.
    #[must_use]
    pub fn name(self, table: &str) -> String {
        match self {
            Self::Parquet => format!("{table}.parquet"),
            Self::Ndjson => format!("{table}.ndjson"),
            Self::Csv => format!("{table}.csv"),
        }
    }
}

/// The writer of a table's file.
#[derive(Debug)]
pub(super) enum TableSink {
    Parquet(Box<parquet::ParquetWriter>),
    Ndjson(ndjson::NdjsonWriter),
    Csv(csv::CsvWriter),
}

impl TableSink {
    pub(super) fn create(form: ExportFormat, path: &Path, table: &ExportTable) -> io::Result<Self> {
        let (to, columns) = (HashedFile::create(path)?, table.file_columns());
        Ok(match form {
            ExportFormat::Parquet => Self::Parquet(Box::new(parquet::ParquetWriter::new(to, columns)?)),
            ExportFormat::Ndjson => Self::Ndjson(ndjson::NdjsonWriter::new(to, columns)),
            ExportFormat::Csv => Self::Csv(csv::CsvWriter::new(to, &columns)?),
        })
    }

    pub(super) fn put(&mut self, row: Vec<FileCell>) -> io::Result<()> {
        match self {
            Self::Parquet(to) => to.put(row),
            Self::Ndjson(to) => to.put(&row),
            Self::Csv(to) => to.put(&row),
        }
    }

    pub(super) fn finish(self) -> io::Result<(u64, String)> {
        match self {
            Self::Parquet(to) => to.finish()?.finish(),
            Self::Ndjson(to) => to.finish().finish(),
            Self::Csv(to) => to.finish().finish(),
        }
    }
}

/// The reader of a table's file.
#[derive(Debug)]
pub(super) enum TableSource {
    Parquet(Box<parquet::ParquetReader>),
    Ndjson(ndjson::NdjsonReader),
    Csv(csv::CsvReader),
}

impl TableSource {
    /// # Errors
    /// A description of the file's fault.
    pub(super) fn open(form: ExportFormat, path: &Path, table: &ExportTable) -> Result<Self, String> {
        let columns = table.file_columns();
        Ok(match form {
            ExportFormat::Parquet => Self::Parquet(Box::new(parquet::ParquetReader::open(path, columns)?)),
            ExportFormat::Ndjson => Self::Ndjson(ndjson::NdjsonReader::open(path, columns).map_err(|e| e.to_string())?),
            ExportFormat::Csv => Self::Csv(csv::CsvReader::open(path, columns)?),
        })
    }

    /// The next row, with the tenant's name first; `None` after the last.
    ///
    /// # Errors
    /// A description of the row's fault.
    pub(super) fn next(&mut self) -> Result<Option<Vec<FileCell>>, String> {
        match self {
            Self::Parquet(from) => from.next(),
            Self::Ndjson(from) => from.next(),
            Self::Csv(from) => from.next(),
        }
    }
}
