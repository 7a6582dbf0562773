//! Rows of a Parquet file as lines of JSON: an object of the columns that have a value.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::reader::RowIter;
use ::parquet::record::{Field, Row};
use serde_json::{Map, Value};

use crate::export::parquet::guarded;

/// The lines, as bytes to read.
pub(super) struct Rows {
    /// None after an error.
    rows: Option<RowIter<'static>>,
    line: io::Cursor<Vec<u8>>,
    done: u64,
    all: u64,
    /// Of the file, and how many of them the rows so far come to.
    bytes: u64,
    read: Arc<AtomicU64>,
}

impl Rows {
    /// Reads the file's end, which says what it holds.
    pub(super) fn open(file: File, read: Arc<AtomicU64>) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let open = || SerializedFileReader::new(file).map_err(|e| e.to_string());
        let reader = guarded(open).map_err(io::Error::other)?;
        let all = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or_default();
        let line = io::Cursor::new(Vec::new());
        Ok(Self { rows: Some(reader.into_iter()), line, done: 0, all, bytes, read })
    }
}

impl Read for Rows {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.line.read(to)?;
        if read > 0 || to.is_empty() {
            return Ok(read);
        }
        let Some(mut rows) = self.rows.take() else { return Ok(0) };
        let next = || rows.next().transpose().map_err(|e| e.to_string());
        let Some(row) = guarded(next).map_err(io::Error::other)? else { return Ok(0) };
        self.rows = Some(rows);
        let mut line = serde_json::to_vec(&object(&row))?;
        line.push(b'\n');
        self.line = io::Cursor::new(line);
        self.done += 1;
        let share = u128::from(self.bytes) * u128::from(self.done) / u128::from(self.all.max(1));
        self.read.store(u64::try_from(share).unwrap_or(self.bytes), Ordering::Relaxed);
        self.line.read(to)
    }
}

fn object(row: &Row) -> Value {
    let there = row.get_column_iter().filter(|(_, field)| !matches!(field, Field::Null));
    Value::Object(there.map(|(name, field)| (name.clone(), value(field))).collect::<Map<_, _>>())
}

/// What JSON has no form for is null, and so refused with its line where it is needed.
fn value(field: &Field) -> Value {
    match field {
        Field::Bool(is) => (*is).into(),
        Field::Byte(n) => (*n).into(),
        Field::Short(n) => (*n).into(),
        Field::Int(n) => (*n).into(),
        Field::Long(n) | Field::TimestampMillis(n) => (*n).into(),
        Field::UByte(n) => (*n).into(),
        Field::UShort(n) => (*n).into(),
        Field::UInt(n) => (*n).into(),
        Field::ULong(n) => (*n).into(),
        Field::Float(n) => (*n).into(),
        Field::Double(n) => (*n).into(),
        Field::Str(text) => text.as_str().into(),
        // Text that nobody said is text.
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).map_or(Value::Null, Value::from),
        Field::TimestampMicros(n) => (*n / 1_000).into(),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::Null
        | Field::Float16(_)
        | Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::MapInternal(_) => Value::Null,
    }
}
