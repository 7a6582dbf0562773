//! Times in a catalogue as a person writes them: a date and time with offset (RFC 3339), or milliseconds since 1970.

use serde::{Deserialize, Deserializer, de};

use crate::base::calendar;
use crate::base::ids::Millis;

/// Message for a value of any other form.
pub(crate) const NEEDED: &str =
    "a date and time with its offset, such as 2026-11-01T00:00:00+01:00, or milliseconds since 1970 are needed";

/// A date and time with its offset (RFC 3339), or milliseconds since 1970.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum WrittenMoment {
    Text(#[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))] String),
    Whole(u64),
}

/// Reads a time in milliseconds; a time before 1970 counts as the start of 1970.
pub(crate) fn parse(text: &str) -> Option<Millis> {
    let millis = || text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    calendar::parse_rfc3339(text).map(|moment| u64::try_from(moment).unwrap_or(0)).or_else(millis)
}

/// Reads a time as text, whatever its form; [`parse`] checks it.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let written: Option<WrittenMoment> = Option::deserialize(from)?;
    Ok(written.map(|written| match written {
        WrittenMoment::Text(text) => text,
        WrittenMoment::Whole(millis) => millis.to_string(),
    }))
}

/// Reads a time in milliseconds.
pub(crate) fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
    optional_millis(from)?.ok_or_else(|| de::Error::custom(NEEDED))
}

/// Reads an optional time in milliseconds.
pub(crate) fn optional_millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Millis>, D::Error> {
    text(from)?.map(|text| parse(&text).ok_or_else(|| de::Error::custom(NEEDED))).transpose()
}
