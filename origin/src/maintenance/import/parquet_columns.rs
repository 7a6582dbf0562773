//! The columns that an import reads from a Parquet file, and their supported types.

use ::parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::schema::printer::print_schema;
use ::parquet::schema::types::Type;

use super::ImportKind;

/// Longest quoted part of a column's declaration, in characters.
const QUOTED: usize = 160;

/// The kind of values that a column is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParquetValues {
    Text,
    /// A text, or a whole number that is read as its digits.
    TextOrWhole,
    Whole,
    Number,
    Time,
    Object,
    List,
}

/// A column with an unsupported type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrongType {
    /// Name of the column.
    pub(super) column: String,
    /// Type of the column, as Parquet declares it.
    pub(super) declared: String,
    /// The supported values.
    pub(super) wanted: &'static str,
}

impl ParquetValues {
    fn wanted(self) -> &'static str {
        match self {
            Self::Text => "text or a UUID",
            Self::TextOrWhole => "text, a UUID or a whole number",
            Self::Whole => "a whole number",
            Self::Number => "a number",
            Self::Time => "a timestamp, or a whole number of milliseconds since 1970",
            Self::Object => "a struct, a map with text keys, or JSON",
            Self::List => "a list",
        }
    }

    fn are_of(self, of: &Type) -> bool {
        if self == Self::TextOrWhole {
            return Self::Text.are_of(of) || Self::Whole.are_of(of);
        }
        if !of.is_primitive() {
            let is_list = of.get_basic_info().converted_type() == ConvertedType::LIST || is_repeated(of);
            return self == if is_list { Self::List } else { Self::Object };
        }
        if is_repeated(of) {
            return self == Self::List;
        }
        let (logical, converted) = (of.get_basic_info().logical_type_ref(), of.get_basic_info().converted_type());
        let is_plain = converted == ConvertedType::NONE && logical.is_none();
        if logical == Some(&LogicalType::Unknown) {
            // Every value of the column is null.
            return true;
        }
        let is_integer = is_integer(of);
        match of.get_physical_type() {
            Physical::BYTE_ARRAY if is_json(of) => matches!(self, Self::Text | Self::Object),
            Physical::BYTE_ARRAY => {
                self == Self::Text && (is_plain || matches!(converted, ConvertedType::UTF8 | ConvertedType::ENUM))
            }
            Physical::FIXED_LEN_BYTE_ARRAY => self == Self::Text && is_uuid(of),
            Physical::INT32 if is_plain || is_integer => matches!(self, Self::Whole | Self::Number | Self::Time),
            Physical::INT64 if is_plain || is_integer => matches!(self, Self::Whole | Self::Number | Self::Time),
            Physical::INT64 => self == Self::Time && timestamp_per_ms(of).is_some(),
            Physical::INT96 => self == Self::Time,
            // Tools without nullable whole numbers write all of them as doubles; whole ones are accepted.
            Physical::FLOAT | Physical::DOUBLE => matches!(self, Self::Whole | Self::Number | Self::Time),
            Physical::BOOLEAN | Physical::INT32 => false,
        }
    }
}

/// The columns that an import of this kind reads.
fn columns_read(kind: ImportKind) -> &'static [(&'static str, ParquetValues)] {
    use ParquetValues::{List, Number, Object, Text, TextOrWhole, Time, Whole};
    match kind {
        ImportKind::Segments => &[
            ("visitor", Text),
            ("set", List),
            ("remove", List),
            ("segment", Whole),
            ("expires_ms", Time),
            ("segments", Text),
        ],
        ImportKind::Events => &[
            ("visitor", Text),
            ("type", Text),
            ("id", Text),
            ("at_ms", Time),
            ("session", Whole),
            ("name", Text),
            ("value_micros", Whole),
            ("order_id", TextOrWhole),
            ("properties", Object),
            ("action", Text),
            ("insertion", Text),
            ("view_type", Text),
            ("ad", Whole),
            ("ad_group", Whole),
            ("campaign", Whole),
            ("advertiser", Whole),
        ],
        ImportKind::Links => {
            &[("visitor", Text), ("other", Text), ("kind", Text), ("value", Text), ("weight", Number), ("source", Text)]
        }
    }
}

/// Whether an import of this kind reads a column of this name.
pub(super) fn is_read(kind: ImportKind, name: &str) -> bool {
    columns_read(kind).iter().any(|(column, _)| *column == name)
}

/// The first column that an import of this kind reads and whose type is unsupported.
pub(super) fn wrong_type(kind: ImportKind, schema: &Type) -> Option<WrongType> {
    schema.get_fields().iter().find_map(|column| {
        let (_, values) = columns_read(kind).iter().find(|(name, _)| *name == column.name())?;
        (!values.are_of(column)).then(|| WrongType {
            column: column.name().to_owned(),
            declared: declared_type(column),
            wanted: values.wanted(),
        })
    })
}

/// The type of a column, in one line.
fn declared_type(column: &Type) -> String {
    let mut text = Vec::new();
    print_schema(&mut text, column);
    let text = String::from_utf8_lossy(&text);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    words.join(" ").trim_end_matches(';').chars().take(QUOTED).collect()
}

fn is_integer(of: &Type) -> bool {
    use ConvertedType::{INT_8, INT_16, INT_32, INT_64, UINT_8, UINT_16, UINT_32, UINT_64};
    let converted = of.get_basic_info().converted_type();
    matches!(converted, INT_8 | INT_16 | INT_32 | INT_64 | UINT_8 | UINT_16 | UINT_32 | UINT_64)
}

fn is_repeated(of: &Type) -> bool {
    let info = of.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// Whether a column's bytes are a UUID.
pub(super) fn is_uuid(of: &Type) -> bool {
    of.get_basic_info().logical_type_ref() == Some(&LogicalType::Uuid)
}

/// Whether a column's text is a JSON document.
pub(super) fn is_json(of: &Type) -> bool {
    of.get_basic_info().converted_type() == ConvertedType::JSON
}

/// Units per millisecond of a timestamp column stored as whole numbers; `None` for other columns.
pub(super) fn timestamp_per_ms(of: &Type) -> Option<i64> {
    match (of.get_basic_info().logical_type_ref(), of.get_basic_info().converted_type()) {
        (Some(LogicalType::Timestamp(time)), _) => Some(match &time.unit {
            TimeUnit::MILLIS => 1,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1_000_000,
        }),
        (_, ConvertedType::TIMESTAMP_MILLIS) => Some(1),
        (_, ConvertedType::TIMESTAMP_MICROS) => Some(1_000),
        _ => None,
    }
}

/// Whether the Parquet reader supports each leaf of a column. It panics on other types.
pub(super) fn is_readable(of: &Type) -> bool {
    if of.is_primitive() {
        return of.get_basic_info().converted_type() != ConvertedType::INTERVAL;
    }
    of.get_fields().iter().all(|field| is_readable(field))
}

/// Whether a column holds times of day.
pub(super) fn is_time_of_day(of: &Type) -> bool {
    matches!(of.get_basic_info().logical_type_ref(), Some(LogicalType::Time(_)))
}
