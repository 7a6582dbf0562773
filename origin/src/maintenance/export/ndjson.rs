//! A table as lines of JSON: one object per row with every column, bytes in base64.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_shared::base::limits;
use serde_json::{Map, Value};

use super::hashed_file::HashedFile;
use super::tables::{ColumnKind, ExportColumn, FileCell};

/// Writer of an NDJSON table.
#[derive(Debug)]
pub(super) struct NdjsonWriter {
    to: HashedFile,
    columns: Vec<ExportColumn>,
    line: Vec<u8>,
}

impl NdjsonWriter {
    pub(super) fn new(to: HashedFile, columns: Vec<ExportColumn>) -> Self {
        Self { to, columns, line: Vec::new() }
    }

    pub(super) fn put(&mut self, row: &[FileCell]) -> io::Result<()> {
        self.line.clear();
        for (index, (column, cell)) in self.columns.iter().zip(row).enumerate() {
            self.line.extend(if index == 0 { b"{\"" } else { b",\"" });
            self.line.extend(column.name.as_bytes());
            self.line.extend(b"\":");
            match cell {
                FileCell::Null => self.line.extend(b"null"),
                FileCell::Int(n) => write!(self.line, "{n}")?,
                FileCell::Bool(yes) => write!(self.line, "{yes}")?,
                FileCell::Text(text) => serde_json::to_writer(&mut self.line, text)?,
                FileCell::Bytes(bytes) => write!(self.line, "\"{}\"", STANDARD.encode(bytes))?,
            }
        }
        self.line.extend(b"}\n");
        self.to.write_all(&self.line)
    }

    pub(super) fn finish(self) -> HashedFile {
        self.to
    }
}

/// Reader of an NDJSON table.
#[derive(Debug)]
pub(super) struct NdjsonReader {
    from: BufReader<std::fs::File>,
    columns: Vec<ExportColumn>,
    line: Vec<u8>,
}

impl NdjsonReader {
    pub(super) fn open(path: &Path, columns: Vec<ExportColumn>) -> io::Result<Self> {
        Ok(Self { from: BufReader::new(std::fs::File::open(path)?), columns, line: Vec::new() })
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// A description of the row's fault.
    pub(super) fn next(&mut self) -> Result<Option<Vec<FileCell>>, String> {
        self.line.clear();
        let most = limits::EXPORT_LINE_BYTES as u64;
        let read = self.from.by_ref().take(most + 1).read_until(b'\n', &mut self.line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 > most {
            return Err(format!("it is longer than {most} bytes"));
        }
        let row: Map<String, Value> =
            serde_json::from_slice(&self.line).map_err(|e| format!("it is not a JSON object: {e}"))?;
        self.columns.iter().map(|column| read_cell(column, row.get(column.name))).collect::<Result<_, _>>().map(Some)
    }
}

fn read_cell(column: &ExportColumn, value: Option<&Value>) -> Result<FileCell, String> {
    let name = column.name;
    Ok(match (column.kind, value) {
        (_, None) => return Err(format!("`{name}` is missing")),
        (_, Some(Value::Null)) => FileCell::Null,
        (_, Some(Value::Bool(yes))) => FileCell::Bool(*yes),
        (ColumnKind::Bytes, Some(Value::String(text))) => {
            FileCell::Bytes(STANDARD.decode(text).map_err(|e| format!("`{name}` is not base64: {e}"))?)
        }
        (_, Some(Value::String(text))) => FileCell::Text(text.clone()),
        (_, Some(Value::Number(number))) => {
            FileCell::Int(number.as_i64().ok_or_else(|| format!("`{name}` is not a whole number of 64 bits"))?)
        }
        (_, Some(Value::Array(_) | Value::Object(_))) => return Err(format!("`{name}` is neither text nor number")),
    })
}
