//! Attribute values: six kinds, each bounded.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::base::calendar::{date_of, date_text};
use crate::base::limits;

/// 2⁵³; above it a float cannot represent every integer.
const EXACT: u64 = 1 << 53;

/// Kind of an attribute's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// True or false.
    Bool,
    /// A whole number of 64 bits.
    Integer,
    /// A finite number.
    Float,
    /// A short text.
    String,
    /// A day of the calendar.
    Date,
    /// A set of short texts.
    Strings,
}

impl ValueKind {
    const ALL: [Self; 6] = [Self::Bool, Self::Integer, Self::Float, Self::String, Self::Date, Self::Strings];

    /// The kind's name in answers and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::String => "string",
            Self::Date => "date",
            Self::Strings => "strings",
        }
    }

    /// The kind's code in stores and on the wire: 1 to 6, never changed.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::Integer => 2,
            Self::Float => 3,
            Self::String => 4,
            Self::Date => 5,
            Self::Strings => 6,
        }
    }

    /// The kind with this name; `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind with this code; `None` for any other number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// One value of the kind, as words in a sentence.
    pub(super) fn one(self) -> &'static str {
        match self {
            Self::Bool => "a bool",
            Self::Integer => "an integer",
            Self::Float => "a float",
            Self::String => "a string",
            Self::Date => "a date",
            Self::Strings => "an array of strings",
        }
    }
}

/// A finite number with a single zero. Equality and order are those of numbers.
#[derive(Debug, Clone, Copy)]
pub struct FiniteNumber(f64);

impl FiniteNumber {
    /// Takes a number; `None` for an infinity or NaN.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // Turns −0 into 0.
        number.is_finite().then_some(Self(number + 0.0))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// The number as an integer; `None` for a fraction, and for a number above 2⁵³, where a float cannot represent
    /// every integer.
    #[must_use]
    pub(crate) fn whole(self) -> Option<i64> {
        // The cast is exact: within the bound, every whole float is an integer of 64 bits.
        (self.0.fract() == 0.0 && self.0.abs() <= EXACT as f64).then_some(self.0 as i64)
    }

    /// An integer with the same order as these numbers.
    #[must_use]
    pub(crate) fn key(self) -> i64 {
        let bits = self.0.to_bits().cast_signed();
        // As in `f64::total_cmp`: the order of negative numbers is reversed.
        bits ^ ((bits >> 63) & i64::MAX)
    }
}

impl PartialEq for FiniteNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for FiniteNumber {}

impl PartialOrd for FiniteNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FiniteNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Reason why something is no valid attribute value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value has no kind; the text names what it is.
    #[error("{0} was given: a bool, a number, a string or an array of strings is needed")]
    Malformed(&'static str),
    /// The string is this many bytes long.
    #[error("a string of {0} bytes was given: at most {max} are allowed", max = limits::ATTRIBUTE_BYTES)]
    TooLong(usize),
    /// The array has this many strings.
    #[error("{0} strings were given: at most {max} are allowed", max = limits::ATTRIBUTE_STRINGS)]
    TooMany(usize),
    /// The whole number does not fit 64 bits; no kind stores it exactly.
    #[error("a whole number outside of 64 bits was given: it is not stored exactly, send it as a string")]
    Inexact,
    /// The day is outside [`limits::DATE_DAYS`].
    #[error("day {0} since 1970-01-01 was given: a date from 0001-01-01 to 9999-12-31 is needed")]
    Date(i32),
}

impl ValueError {
    /// Stable machine-readable code for answers and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::TooLong(_) => "too_long",
            Self::TooMany(_) | Self::Inexact | Self::Date(_) => "out_of_bounds",
        }
    }
}

/// An attribute's value. The order decides between two writes with equal stamps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Float(FiniteNumber),
    /// A text of at most [`limits::ATTRIBUTE_BYTES`] bytes.
    String(String),
    /// Days since 1970-01-01, in [`limits::DATE_DAYS`].
    Date(i32),
    /// At most [`limits::ATTRIBUTE_STRINGS`] texts, each of at most [`limits::ATTRIBUTE_BYTES`] bytes.
    Strings(BTreeSet<String>),
}

impl AttributeValue {
    /// The value's kind.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Bool(_) => ValueKind::Bool,
            Self::Integer(_) => ValueKind::Integer,
            Self::Float(_) => ValueKind::Float,
            Self::String(_) => ValueKind::String,
            Self::Date(_) => ValueKind::Date,
            Self::Strings(_) => ValueKind::Strings,
        }
    }

    /// Checks the bounds; every value made by this module satisfies them.
    ///
    /// # Errors
    /// [`ValueError::TooLong`], [`ValueError::TooMany`] or [`ValueError::Date`].
    pub fn check(&self) -> Result<(), ValueError> {
        match self {
            Self::Bool(_) | Self::Integer(_) | Self::Float(_) => Ok(()),
            Self::String(text) => check_text(text),
            Self::Date(days) if !limits::DATE_DAYS.contains(days) => Err(ValueError::Date(*days)),
            Self::Date(_) => Ok(()),
            Self::Strings(all) => {
                check_count(all.len()).and_then(|()| all.iter().try_for_each(|text| check_text(text)))
            }
        }
    }

    /// Reads the value from JSON text, as [`AttributeValue::from_json`] does. Only the text shows that a number outside
    /// 64 bits was written as a whole number: the JSON parser reads it as a rounded float.
    ///
    /// # Errors
    /// The outer error if the text is not JSON; the inner errors are those of [`AttributeValue::from_json`].
    pub fn from_text(text: &str) -> serde_json::Result<Result<Self, ValueError>> {
        let json: Json = serde_json::from_str(text)?;
        let is_whole = text.trim().bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
        // The JSON parser also reads `-0` as a float.
        let is_rounded = is_whole && json.is_f64() && json.as_f64() != Some(0.0);
        Ok(if is_rounded { Err(ValueError::Inexact) } else { Self::from_json(&json) })
    }

    /// Reads the value from JSON. A number is an integer if it is written as one and fits 64 bits. A string is always a
    /// string; only an attribute of kind date reads it as a date ([`AttributeValue::fit`]). An array may repeat a
    /// string, and each repetition counts towards the bound.
    ///
    /// # Errors
    /// If the value has no kind or is over a bound; the text says what is allowed.
    pub fn from_json(json: &Json) -> Result<Self, ValueError> {
        match json {
            Json::Bool(yes) => Ok(Self::Bool(*yes)),
            Json::Number(number) => match (number.as_i64(), number.as_f64().and_then(FiniteNumber::new)) {
                (Some(whole), _) => Ok(Self::Integer(whole)),
                _ if number.is_u64() => Err(ValueError::Inexact),
                (None, Some(finite)) => Ok(Self::Float(finite)),
                (None, None) => Err(ValueError::Malformed("a number that is not finite")),
            },
            Json::String(text) => check_text(text).map(|()| Self::String(text.clone())),
            Json::Array(entries) => strings_of(entries),
            Json::Null => Err(ValueError::Malformed("null")),
            Json::Object(_) => Err(ValueError::Malformed("an object")),
        }
    }

    /// The value as JSON; [`AttributeValue::from_json`] and [`AttributeValue::fit`] restore it. A float without a
    /// fraction is written as a whole number.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Bool(yes) => (*yes).into(),
            Self::Integer(whole) => (*whole).into(),
            Self::Float(finite) => finite.whole().map_or_else(|| finite.get().into(), Into::into),
            Self::String(text) => text.as_str().into(),
            Self::Date(days) => date_text(*days).into(),
            Self::Strings(all) => all.iter().map(String::as_str).collect(),
        }
    }

    /// The kind that a new name gets if this is its first value. All numbers get one kind, so that a first value of 20
    /// does not make 19.99 invalid later.
    #[must_use]
    pub fn first_kind(&self) -> ValueKind {
        if matches!(self, Self::Integer(_)) { ValueKind::Float } else { self.kind() }
    }

    /// Converts the value to a kind without loss: an integer to a float that represents it exactly, a whole float to an
    /// integer, a string YYYY-MM-DD of an existing day to a date, and a date to a string.
    ///
    /// # Errors
    /// The unchanged value if it does not fit the kind.
    pub fn fit(self, kind: ValueKind) -> Result<Self, Self> {
        match (self, kind) {
            (value, kind) if value.kind() == kind => Ok(value),
            (Self::Integer(whole), ValueKind::Float) if whole.unsigned_abs() <= EXACT => {
                Ok(Self::Float(FiniteNumber(whole as f64)))
            }
            (Self::Float(finite), ValueKind::Integer) => finite.whole().map(Self::Integer).ok_or(Self::Float(finite)),
            (Self::String(text), ValueKind::Date) => date_of(&text).map(Self::Date).ok_or(Self::String(text)),
            (Self::Date(days), ValueKind::String) => Ok(Self::String(date_text(days))),
            (value, _) => Err(value),
        }
    }

    /// Converts the value to a new kind of its attribute, with rounding if necessary: the text of a number becomes the
    /// number, a number becomes its text, a string becomes a set of one string. `None` if no conversion exists.
    #[must_use]
    pub fn convert(self, kind: ValueKind) -> Option<Self> {
        let value = match (self.fit(kind), kind) {
            (Ok(value), _) => value,
            (Err(Self::Integer(whole)), ValueKind::Float) => Self::Float(FiniteNumber::new(whole as f64)?),
            (Err(Self::Bool(yes)), ValueKind::Integer | ValueKind::Float) => {
                Self::Integer(yes.into()).fit(kind).ok()?
            }
            (Err(Self::String(text)), ValueKind::Integer | ValueKind::Float) => {
                let number: serde_json::Number = serde_json::from_str(text.trim()).ok()?;
                let nearest = || number.as_f64().and_then(FiniteNumber::new).map(Self::Float);
                number.as_i64().map(Self::Integer).or_else(nearest)?.fit(kind).ok()?
            }
            (Err(Self::String(text)), ValueKind::Bool) => Self::Bool(text.trim().parse().ok()?),
            (Err(Self::String(text)), ValueKind::Strings) => Self::Strings(BTreeSet::from([text])),
            (Err(Self::Strings(all)), ValueKind::String) if all.len() == 1 => Self::String(all.into_iter().next()?),
            (Err(value @ (Self::Bool(_) | Self::Integer(_) | Self::Float(_))), ValueKind::String) => {
                Self::String(value.to_json().to_string())
            }
            _ => return None,
        };
        value.check().is_ok().then_some(value)
    }
}

fn check_text(text: &str) -> Result<(), ValueError> {
    if text.len() > limits::ATTRIBUTE_BYTES { Err(ValueError::TooLong(text.len())) } else { Ok(()) }
}

fn check_count(count: usize) -> Result<(), ValueError> {
    if count > limits::ATTRIBUTE_STRINGS { Err(ValueError::TooMany(count)) } else { Ok(()) }
}

fn strings_of(entries: &[Json]) -> Result<AttributeValue, ValueError> {
    check_count(entries.len())?;
    let mut all = BTreeSet::new();
    for entry in entries {
        let text = entry.as_str().ok_or(ValueError::Malformed("an array of more than strings"))?;
        check_text(text)?;
        all.insert(text.to_owned());
    }
    Ok(AttributeValue::Strings(all))
}
