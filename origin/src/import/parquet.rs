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

/// A row's columns that have a value. What JSON has no form for is `false`, which no column of ours takes: the line is refused
/// where it is needed.
fn object(row: &Row) -> Value {
    let there = row.get_column_iter().filter(|(_, field)| !matches!(field, Field::Null));
    let told = |field| value(field).unwrap_or(Value::Bool(false));
    Value::Object(there.map(|(name, field)| (name.clone(), told(field))).collect())
}

fn value(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Null => Value::Null,
        Field::Bool(is) => (*is).into(),
        Field::Byte(n) => (*n).into(),
        Field::Short(n) => (*n).into(),
        Field::Int(n) => (*n).into(),
        Field::Long(n) | Field::TimestampMillis(n) => (*n).into(),
        Field::UByte(n) => (*n).into(),
        Field::UShort(n) => (*n).into(),
        Field::UInt(n) => (*n).into(),
        Field::ULong(n) => (*n).into(),
        // What is no number is missing there, as those write it who have no other word for that.
        Field::Float(n) => (*n).into(),
        Field::Double(n) => (*n).into(),
        Field::Str(text) => text.as_str().into(),
        // Text that nobody said is text.
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok()?.into(),
        Field::TimestampMicros(n) => (*n / 1_000).into(),
        Field::Group(row) => members(row.get_column_iter().map(|(name, field)| (Some(name.as_str()), field)))?,
        Field::MapInternal(map) => members(map.entries().iter().map(|(key, field)| (text(key), field)))?,
        Field::ListInternal(list) => list.elements().iter().map(value).collect::<Option<Vec<_>>>()?.into(),
        Field::Float16(_) | Field::Decimal(_) | Field::Date(_) | Field::TimeMillis(_) | Field::TimeMicros(_) => {
            return None;
        }
    })
}

fn text(key: &Field) -> Option<&str> {
    match key {
        Field::Str(text) => Some(text),
        _ => None,
    }
}

/// An object of what has a name and a value; `None` where anything of it has no form.
fn members<'f>(all: impl Iterator<Item = (Option<&'f str>, &'f Field)>) -> Option<Value> {
    let there = all.filter(|(_, field)| !matches!(field, Field::Null));
    there.map(|(name, field)| Some((name?.to_owned(), value(field)?))).collect::<Option<Map<_, _>>>().map(Value::Object)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use ::parquet::column::writer::ColumnWriter;
    use ::parquet::data_type::Decimal;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_json_has_no_form_for_is_taken_for_nothing_else() {
        let decimal = || Field::Decimal(Decimal::from_i64(1_800_000_000_000, 18, 0));
        let nested = Field::Group(Row::new(vec![("price".to_owned(), decimal())]));
        for field in [decimal(), Field::Date(20_000), Field::TimeMicros(5), Field::Bytes(vec![0xff].into()), nested] {
            let line = object(&Row::new(vec![("at_ms".to_owned(), field), ("id".to_owned(), Field::Null)]));
            let line = line.as_object().unwrap();
            assert_eq!(line.len(), 1);
            let told = || line["at_ms"].clone();
            assert!(serde_json::from_value::<Option<u64>>(told()).is_err(), "{line:?}");
            assert!(serde_json::from_value::<Option<String>>(told()).is_err(), "{line:?}");
            assert!(serde_json::from_value::<Option<Map<String, Value>>>(told()).is_err(), "{line:?}");
        }
        let nothing = Field::Group(Row::new(vec![("x".to_owned(), Field::Null)]));
        assert_eq!(value(&nothing), Some(json!({})));
    }

    #[test]
    fn a_map_with_text_keys_is_an_object() {
        const SCHEMA: &str = "message events { optional group properties (MAP) { repeated group key_value {
            required binary key (UTF8); optional int32 value; } } }";
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        let mut rows = writer.next_row_group().unwrap();
        while let Some(mut column) = rows.next_column().unwrap() {
            let written = match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(keys) => {
                    keys.write_batch(&["size".into(), "x".into()], Some(&[2, 2]), Some(&[0, 1])).unwrap()
                }
                ColumnWriter::Int32ColumnWriter(values) => {
                    values.write_batch(&[4], Some(&[3, 2]), Some(&[0, 1])).unwrap()
                }
                _ => unreachable!(),
            };
            assert!(written > 0);
            column.close().unwrap();
        }
        rows.close().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, writer.into_inner().unwrap()).unwrap();
        let mut rows = SerializedFileReader::new(file.reopen().unwrap()).unwrap().into_iter();
        assert_eq!(object(&rows.next().unwrap().unwrap()), json!({ "properties": { "size": 4 } }));
    }
}
