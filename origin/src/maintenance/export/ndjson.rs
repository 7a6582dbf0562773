//! A table as lines of JSON: an object a row, every column in it, bytes in base64.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_shared::limits;
use serde_json::{Map, Value};

use super::hashed::Hashed;
use super::tables::{Cell, Column, Kind};

/// Writes a table.
#[derive(Debug)]
pub(super) struct Writer {
    to: Hashed,
    columns: Vec<Column>,
    line: Vec<u8>,
}

impl Writer {
    pub(super) fn new(to: Hashed, columns: Vec<Column>) -> Self {
        Self { to, columns, line: Vec::new() }
    }

    pub(super) fn put(&mut self, row: &[Cell]) -> io::Result<()> {
        self.line.clear();
        for (place, (column, cell)) in self.columns.iter().zip(row).enumerate() {
            self.line.extend(if place == 0 { b"{\"" } else { b",\"" });
            self.line.extend(column.name.as_bytes());
            self.line.extend(b"\":");
            match cell {
                Cell::Null => self.line.extend(b"null"),
                Cell::Int(n) => write!(self.line, "{n}")?,
                Cell::Bool(yes) => write!(self.line, "{yes}")?,
                Cell::Text(text) => serde_json::to_writer(&mut self.line, text)?,
                Cell::Bytes(bytes) => write!(self.line, "\"{}\"", STANDARD.encode(bytes))?,
            }
        }
        self.line.extend(b"}\n");
        self.to.write_all(&self.line)
    }

    pub(super) fn finish(self) -> Hashed {
        self.to
    }
}

/// Reads a table.
#[derive(Debug)]
pub(super) struct Reader {
    from: BufReader<std::fs::File>,
    columns: Vec<Column>,
    line: Vec<u8>,
}

impl Reader {
    pub(super) fn open(path: &Path, columns: Vec<Column>) -> io::Result<Self> {
        Ok(Self { from: BufReader::new(std::fs::File::open(path)?), columns, line: Vec::new() })
    }

    /// The next row; `None` behind the last.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn next(&mut self) -> Result<Option<Vec<Cell>>, String> {
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
            serde_json::from_slice(&self.line).map_err(|e| format!("it is no JSON object: {e}"))?;
        self.columns.iter().map(|column| cell(column, row.get(column.name))).collect::<Result<_, _>>().map(Some)
    }
}

fn cell(column: &Column, value: Option<&Value>) -> Result<Cell, String> {
    let name = column.name;
    Ok(match (column.kind, value) {
        (_, None) => return Err(format!("there is no `{name}`")),
        (_, Some(Value::Null)) => Cell::Null,
        (_, Some(Value::Bool(yes))) => Cell::Bool(*yes),
        (Kind::Bytes, Some(Value::String(text))) => {
            Cell::Bytes(STANDARD.decode(text).map_err(|e| format!("`{name}` is not base64: {e}"))?)
        }
        (_, Some(Value::String(text))) => Cell::Text(text.clone()),
        (_, Some(Value::Number(number))) => {
            Cell::Int(number.as_i64().ok_or_else(|| format!("`{name}` is not a whole number of 64 bits"))?)
        }
        (_, Some(Value::Array(_) | Value::Object(_))) => return Err(format!("`{name}` is neither text nor number")),
    })
}
