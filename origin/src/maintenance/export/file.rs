//! One table's file, written with its digest or read, in either form.

pub(crate) use crate::maintenance::export::hashed::Hashed;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::tables::{Cell, Table, hex};
use super::{csv, ndjson, parquet};

/// Form of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Columns, packed.
    Parquet,
    /// A JSON object a line.
    Ndjson,
    /// A line a row.
    Csv,
}

impl Form {
    /// The file's name of a table.
    #[must_use]
    pub fn name(self, table: &str) -> String {
        match self {
            Self::Parquet => format!("{table}.parquet"),
            Self::Ndjson => format!("{table}.ndjson"),
            Self::Csv => format!("{table}.csv"),
        }
    }
}

/// How many bytes a file has, and their digest.
pub(super) fn digest(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 * 1_024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hex(&digest.finalize())));
        }
        digest.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}

/// A table's file that is written.
#[derive(Debug)]
pub(super) enum Sink {
    Parquet(Box<parquet::Writer>),
    Ndjson(ndjson::Writer),
    Csv(csv::Writer),
}

impl Sink {
    pub(super) fn create(form: Form, path: &Path, table: &Table) -> io::Result<Self> {
        let (to, columns) = (Hashed::create(path)?, table.file_columns());
        Ok(match form {
            Form::Parquet => Self::Parquet(Box::new(parquet::Writer::new(to, columns)?)),
            Form::Ndjson => Self::Ndjson(ndjson::Writer::new(to, columns)),
            Form::Csv => Self::Csv(csv::Writer::new(to, &columns)?),
        })
    }

    pub(super) fn put(&mut self, row: Vec<Cell>) -> io::Result<()> {
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

/// A table's file that is read.
#[derive(Debug)]
pub(super) enum Source {
    Parquet(Box<parquet::Reader>),
    Ndjson(ndjson::Reader),
    Csv(csv::Reader),
}

impl Source {
    /// # Errors
    /// What is wrong with the file.
    pub(super) fn open(form: Form, path: &Path, table: &Table) -> Result<Self, String> {
        let columns = table.file_columns();
        Ok(match form {
            Form::Parquet => Self::Parquet(Box::new(parquet::Reader::open(path, columns)?)),
            Form::Ndjson => Self::Ndjson(ndjson::Reader::open(path, columns).map_err(|e| e.to_string())?),
            Form::Csv => Self::Csv(csv::Reader::open(path, columns)?),
        })
    }

    /// The next row, the tenant's name in front; `None` behind the last.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Cell>>, String> {
        match self {
            Self::Parquet(from) => from.next(),
            Self::Ndjson(from) => from.next(),
            Self::Csv(from) => from.next(),
        }
    }
}
