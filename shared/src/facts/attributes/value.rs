//! Values of attributes: six kinds, each bounded.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::base::calendar::{date_of, date_text};
use crate::base::limits;

/// Above it not every integer is a float.
const EXACT: u64 = 1 << 53;

/// What an attribute's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// Yes or no.
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

    /// Its name in answers and reports.
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

    /// Its code in stores and on the wire, 1 to 6, for ever.
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

    /// The kind of a name; `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of a code; `None` for any other number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// One value of it, in a sentence.
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

/// A finite number; there is one zero. Equal and in order as numbers are.
#[derive(Debug, Clone, Copy)]
pub struct FiniteNumber(f64);

impl FiniteNumber {
    /// Takes a number; `None` for an infinite one and for what is none.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // Minus zero and zero make zero.
        number.is_finite().then_some(Self(number + 0.0))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// The whole number that it is; `None` for a fraction, and for a number above 2⁵³, where not every integer is a
    /// float.
    #[must_use]
    pub(crate) fn whole(self) -> Option<i64> {
        // It is exact: within the bound every whole float is an integer of 64 bits.
        (self.0.fract() == 0.0 && self.0.abs() <= EXACT as f64).then_some(self.0 as i64)
    }

    /// A whole number that is in the order of these.
    #[must_use]
    pub(crate) fn key(self) -> i64 {
        let bits = self.0.to_bits().cast_signed();
        // As `f64::total_cmp` does: the order of negative ones is turned.
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

/// Why something is no value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Of no kind: what it is instead.
    #[error("{0} was given: a bool, a number, a string or an array of strings is needed")]
    Malformed(&'static str),
    /// A string of so many bytes.
    #[error("a string of {0} bytes was given: at most {max} are allowed", max = limits::ATTRIBUTE_BYTES)]
    TooLong(usize),
    /// So many strings.
    #[error("{0} strings were given: at most {max} are allowed", max = limits::ATTRIBUTE_STRINGS)]
    TooMany(usize),
    /// A whole number outside of 64 bits: no kind keeps it exactly.
    #[error("a whole number outside of 64 bits was given: it is not kept exactly, write it as a string")]
    Inexact,
    /// Not in [`limits::DATE_DAYS`].
    #[error("day {0} since 1970-01-01 was given: a date from 0001-01-01 to 9999-12-31 is needed")]
    Date(i32),
}

impl ValueError {
    /// A stable name for the answer and the metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::TooLong(_) => "too_long",
            Self::TooMany(_) | Self::Inexact | Self::Date(_) => "out_of_bounds",
        }
    }
}

/// A value of an attribute. Ordered, so that two writes under one stamp have one outcome.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeValue {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Float(FiniteNumber),
    /// Up to [`limits::ATTRIBUTE_BYTES`].
    String(String),
    /// Days since 1970-01-01, in [`limits::DATE_DAYS`].
    Date(i32),
    /// Up to [`limits::ATTRIBUTE_STRINGS`], each up to [`limits::ATTRIBUTE_BYTES`].
    Strings(BTreeSet<String>),
}

impl AttributeValue {
    /// Its kind.
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

    /// Whether it keeps to the bounds; what this module gives always does.
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

    /// The value of a JSON text, as [`AttributeValue::from_json`] reads it. Of a whole number outside of 64 bits only the text says
    /// that it is one: read as JSON it is a float, rounded.
    ///
    /// # Errors
    /// The outer one where the text is no JSON, the inner ones of [`AttributeValue::from_json`].
    pub fn from_text(text: &str) -> serde_json::Result<Result<Self, ValueError>> {
        let json: Json = serde_json::from_str(text)?;
        let is_whole = text.trim().bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
        // Minus zero is read as a float too.
        let is_rounded = is_whole && json.is_f64() && json.as_f64() != Some(0.0);
        Ok(if is_rounded { Err(ValueError::Inexact) } else { Self::from_json(&json) })
    }

    /// The value that JSON says. A number is an integer when it is written as one and fits 64 bits. A string is a
    /// string, whatever its form: only an attribute of dates takes it for one ([`AttributeValue::fit`]). A string may be
    /// repeated in an array, and counts each time.
    ///
    /// # Errors
    /// When it is of no kind or over a bound; the text says what would be right.
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

    /// As JSON. [`AttributeValue::from_json`] and [`AttributeValue::fit`] give it again. A float that is a whole number is written as
    /// one.
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

    /// The kind that a name gets which this value uses first. Numbers are one kind, so that 20 does not refuse 19.99
    /// later.
    #[must_use]
    pub fn first_kind(&self) -> ValueKind {
        if matches!(self, Self::Integer(_)) { ValueKind::Float } else { self.kind() }
    }

    /// The value as an attribute of this kind takes it: an integer that a float says exactly is one, a float that is a
    /// whole number is an integer, and a string YYYY-MM-DD of a day that exists is a date.
    ///
    /// # Errors
    /// The value itself, when it does not match.
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

    /// The value that a change of its attribute's kind makes of it, as near as the new kind comes: a text that says a
    /// number is one, a number becomes its text, a string a set of one. `None` where the new kind has nothing for it.
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
