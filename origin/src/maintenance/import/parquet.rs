//! Rows of a Parquet file as lines of JSON: one object per row, with the columns that have a value.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::reader::RowIter;
use ::parquet::record::{Field, Row};
use ::parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};

use super::parquet_columns::{is_json, is_readable, is_time_of_day, is_uuid, timestamp_per_ms};
use crate::maintenance::export::parquet::catch_panic;

/// A column in which null has a meaning: see [`super::rows`].
const NULL_COLUMN: &str = "expires_ms";
/// Whole numbers up to this one (2^53) are exact as a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A reader of the lines.
pub(super) struct ParquetRows {
    /// `None` after an error.
    rows: Option<RowIter<'static>>,
    schema: TypePtr,
    line: io::Cursor<Vec<u8>>,
    done: u64,
    all: u64,
    /// Size of the file in bytes; `read` counts the share of the rows so far.
    bytes: u64,
    read: Arc<AtomicU64>,
}

impl ParquetRows {
    /// Opens the file and reads its footer with schema and number of rows.
    pub(super) fn open(file: File, read: Arc<AtomicU64>) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let open = || {
            let reader = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
            let of = reader.metadata().file_metadata();
            let (all, schema) = (u64::try_from(of.num_rows()).unwrap_or_default(), of.schema_descr().root_schema_ptr());
            let rows = reader.into_iter().project(project_schema(&schema)?).map_err(|e| e.to_string())?;
            Ok((rows, schema, all))
        };
        let (rows, schema, all) = catch_panic(open).map_err(io::Error::other)?;
        let line = io::Cursor::new(Vec::new());
        Ok(Self { rows: Some(rows), schema, line, done: 0, all, bytes, read })
    }

    /// The schema of the file.
    pub(super) fn schema(&self) -> TypePtr {
        Arc::clone(&self.schema)
    }
}

/// The schema without columns that the Parquet reader cannot read; `None` for all columns.
fn project_schema(schema: &Type) -> Result<Option<Type>, String> {
    let (readable, others): (Vec<_>, Vec<_>) = schema.get_fields().iter().cloned().partition(|of| is_readable(of));
    if others.is_empty() {
        return Ok(None);
    }
    let of = Type::group_type_builder(schema.name()).with_fields(readable);
    of.build().map(Some).map_err(|e| e.to_string())
}

impl Read for ParquetRows {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.line.read(to)?;
        if read > 0 || to.is_empty() {
            return Ok(read);
        }
        let Some(mut rows) = self.rows.take() else { return Ok(0) };
        let next = || rows.next().transpose().map_err(|e| e.to_string());
        let Some(row) = catch_panic(next).map_err(io::Error::other)? else { return Ok(0) };
        self.rows = Some(rows);
        let mut line = serde_json::to_vec(&row_object(&row, &self.schema))?;
        line.push(b'\n');
        self.line = io::Cursor::new(line);
        self.done += 1;
        let share = u128::from(self.bytes) * u128::from(self.done) / u128::from(self.all.max(1));
        self.read.store(u64::try_from(share).unwrap_or(self.bytes), Ordering::Relaxed);
        self.line.read(to)
    }
}

/// A row's columns that have a value. A value without a JSON form becomes `false`, which no column of an import
/// accepts, so the line is refused if the column is read.
fn row_object(row: &Row, schema: &Type) -> Value {
    let there = row.get_column_iter().filter(|(name, field)| !matches!(field, Field::Null) || *name == NULL_COLUMN);
    let column = |(name, field): (&String, &Field)| {
        let of = child_type(Some(schema), name);
        let value = match field {
            Field::Float(n) => whole_number(f64::from(*n)),
            Field::Double(n) => whole_number(*n),
            Field::Str(text) if of.is_some_and(is_json) => serde_json::from_str(text).ok(),
            _ => None,
        };
        (name.clone(), value.or_else(|| value_of(field, of)).unwrap_or(Value::Bool(false)))
    };
    Value::Object(there.map(column).collect())
}

/// A double that is a whole number, as a JSON integer.
fn whole_number(n: f64) -> Option<Value> {
    (n.fract() == 0.0 && n.abs() <= EXACT).then(|| (n as i64).into())
}

fn value_of(field: &Field, of: Option<&Type>) -> Option<Value> {
    Some(match field {
        Field::Null => Value::Null,
        Field::Bool(is) => (*is).into(),
        Field::Byte(n) => (*n).into(),
        Field::Short(n) => (*n).into(),
        Field::Int(n) => (*n).into(),
        Field::Long(n) => match of.and_then(timestamp_per_ms) {
            Some(per_ms) => n.div_euclid(per_ms).into(),
            None if of.is_some_and(is_time_of_day) => return None,
            None => (*n).into(),
        },
        Field::TimestampMillis(n) => (*n).into(),
        Field::UByte(n) => (*n).into(),
        Field::UShort(n) => (*n).into(),
        Field::UInt(n) => (*n).into(),
        Field::ULong(n) => (*n).into(),
        // A float that is not a number becomes null, because such tools write it for a missing value.
        Field::Float(n) => (*n).into(),
        Field::Double(n) => (*n).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) if of.is_some_and(is_uuid) => uuid_text(bytes.data())?.into(),
        // Bytes without a declared type are read as UTF-8 text.
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok()?.into(),
        Field::TimestampMicros(n) => n.div_euclid(1_000).into(),
        Field::Group(row) => object_members(
            row.get_column_iter().map(|(name, field)| (Some(name.as_str()), field, child_type(of, name))),
        )?,
        Field::MapInternal(map) => {
            let values = of.and_then(|of| of.get_fields().first()?.get_fields().get(1));
            object_members(map.entries().iter().map(|(key, field)| (key_text(key), field, values.map(AsRef::as_ref))))?
        }
        Field::ListInternal(list) => {
            let of = of.and_then(element_type);
            list.elements().iter().map(|field| value_of(field, of)).collect::<Option<Vec<_>>>()?.into()
        }
        Field::Float16(_) | Field::Decimal(_) | Field::Date(_) | Field::TimeMillis(_) | Field::TimeMicros(_) => {
            return None;
        }
    })
}

/// The text form of a UUID.
fn uuid_text(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let part = |range: std::ops::Range<usize>| digits.get(range);
    Some([part(0..8)?, part(8..12)?, part(12..16)?, part(16..20)?, part(20..32)?].join("-"))
}

fn key_text(key: &Field) -> Option<&str> {
    match key {
        Field::Str(text) => Some(text),
        _ => None,
    }
}

/// The type of a struct's field.
fn child_type<'t>(of: Option<&'t Type>, name: &str) -> Option<&'t Type> {
    let of = of.filter(|of| of.is_group())?;
    of.get_fields().iter().find(|field| field.name() == name).map(AsRef::as_ref)
}

/// The type of a list's elements. The current list form has a group between list and element, older forms do not.
fn element_type(list: &Type) -> Option<&Type> {
    if list.is_primitive() {
        return Some(list);
    }
    let repeated = list.get_fields().first()?;
    match repeated.is_group().then(|| repeated.get_fields()) {
        Some([only]) if repeated.name() != "array" && !repeated.name().ends_with("_tuple") => Some(only),
        _ => Some(repeated),
    }
}

/// An object of the members that have a value; `None` if a name or a value has no JSON form.
fn object_members<'f>(all: impl Iterator<Item = (Option<&'f str>, &'f Field, Option<&'f Type>)>) -> Option<Value> {
    let there = all.filter(|(_, field, _)| !matches!(field, Field::Null));
    let member = |(name, field, of): (Option<&str>, _, _)| Some((name?.to_owned(), value_of(field, of)?));
    there.map(member).collect::<Option<Map<_, _>>>().map(Value::Object)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
