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

/// What JSON has no form for is an object: no field takes one, so that its line is refused where the column is one of ours.
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
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).map_or_else(|_| foreign(), Value::from),
        Field::TimestampMicros(n) => (*n / 1_000).into(),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::Null => Value::Null,
        Field::Float16(_)
        | Field::Decimal(_)
        | Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::MapInternal(_) => foreign(),
    }
}

fn foreign() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use ::parquet::data_type::Decimal;

    use super::*;

    #[test]
    fn what_json_has_no_form_for_is_taken_for_nothing_else() {
        let decimal = Field::Decimal(Decimal::from_i64(1_800_000_000_000, 18, 0));
        for field in [decimal, Field::Date(20_000), Field::TimeMicros(5), Field::Bytes(vec![0xff].into())] {
            let line = value(&field);
            assert!(serde_json::from_value::<Option<u64>>(line.clone()).is_err(), "{field:?}");
            assert!(serde_json::from_value::<Option<String>>(line).is_err(), "{field:?}");
        }
        assert_eq!(serde_json::from_value::<Option<u64>>(value(&Field::Null)).unwrap(), None);
    }
}
