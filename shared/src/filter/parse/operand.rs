//! The fields of a document by their names, and what values they take.

use serde_json::Value as Json;

use super::{CountAnswerer, FieldValue, FilterWords, kind_of, shown};
use crate::attributes::{AttributeError, AttributeValue, ValueKind, date_of};
use crate::filter::field::FilterField;
use crate::filter::subject::number_of;

/// A field, its name, and its sort of values.
pub(super) struct FieldOperand<'a> {
    pub(super) field: FilterField,
    pub(super) name: &'a str,
    pub(super) sort: ValueSort,
}

/// What values a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueSort {
    Attribute(ValueKind),
    Segment,
    Count,
    Time,
    ViewType,
    Country,
    /// True or false.
    Yes,
    Text,
}

impl<'a> FieldOperand<'a> {
    /// The field of a name, or why there is none.
    pub(super) fn of(name: &'a str, words: &FilterWords<'_>) -> Result<Self, String> {
        if let Some(attribute) = name.strip_prefix("attributes.") {
            let (token, kind) = words
                .attributes
                .find(attribute)
                .ok_or_else(|| format!("there is no attribute `{}`", shown(attribute)))?;
            return Ok(Self {
                field: FilterField::Attribute(token, kind),
                name: attribute,
                sort: ValueSort::Attribute(kind),
            });
        }
        let known = FilterField::NAMED.into_iter().find(|(known, _)| *known == name);
        let (_, field) = known.ok_or_else(|| format!("there is no field `{}`", shown(name)))?;
        if words.answers == CountAnswerer::Audience && !field.is_of_person() {
            return Err("an audience is of people: there is no page, place, device or time of asking".to_owned());
        }
        let sort = match field {
            FilterField::Segments => ValueSort::Segment,
            FilterField::Devices => ValueSort::Count,
            FilterField::FirstSeen | FilterField::LastSeen => ValueSort::Time,
            FilterField::ViewType => ValueSort::ViewType,
            FilterField::Country => ValueSort::Country,
            FilterField::BestTime => ValueSort::Yes,
            _ => ValueSort::Text,
        };
        Ok(Self { field, name, sort })
    }

    /// One value, or why it is none of this field.
    pub(super) fn one(&self, json: &Json, words: &FilterWords<'_>) -> Result<FieldValue, String> {
        match self.sort {
            ValueSort::Attribute(kind) => self.attribute(json, kind),
            ValueSort::Segment => whole(json, u32::MAX.into()).ok_or_else(|| needed(json, "a segment's id")),
            ValueSort::Count => whole(json, u64::MAX).ok_or_else(|| needed(json, "a whole number of 0 or more")),
            ValueSort::Time => {
                time(json).ok_or_else(|| needed(json, "an RFC 3339 time or whole milliseconds since 1970"))
            }
            ValueSort::ViewType => {
                let name = json.as_str().ok_or_else(|| needed(json, "a view type's name"))?;
                let code = words.vocabulary.view_type(name);
                let code = code.ok_or_else(|| format!("there is no view type `{}`", shown(name)))?;
                Ok(FieldValue::Number(code.0.into()))
            }
            ValueSort::Country => match json.as_str() {
                Some(text) if is_country(text) => Ok(FieldValue::Text(text.to_owned())),
                _ => Err(needed(json, "a country as two capitals of ISO 3166-1")),
            },
            ValueSort::Yes => match json.as_bool() {
                Some(yes) => Ok(FieldValue::Number(yes.into())),
                None => Err(needed(json, "true or false")),
            },
            ValueSort::Text => self.text(json),
        }
    }

    fn text(&self, json: &Json) -> Result<FieldValue, String> {
        let most = self.field.text_bytes();
        let text = json.as_str().ok_or_else(|| needed(json, "a string"))?;
        if text.is_empty() || text.len() > most {
            return Err(format!("a string of {} bytes was given: 1 to {most} are needed", text.len()));
        }
        Ok(FieldValue::Text(text.to_owned()))
    }

    /// A value as the attribute's recorded kind takes it; of an attribute of strings one of them.
    fn attribute(&self, json: &Json, kind: ValueKind) -> Result<FieldValue, String> {
        let of_list = kind == ValueKind::Strings;
        if json.is_array() {
            let all = if of_list { ", and matches when any of them is" } else { "" };
            return Err(format!("an array was given: `{}` takes one value{all}; use $in for several", self.name));
        }
        let expected = if of_list { ValueKind::String } else { kind };
        let value = AttributeValue::from_json(json).map_err(|error| error.to_string())?;
        let value = value.fit(expected).map_err(|value| {
            let (name, found) = (self.name.to_owned(), value.kind());
            AttributeError::Type { name, expected, found }.to_string()
        })?;
        match (number_of(&value), value) {
            (Some(number), _) => Ok(FieldValue::Number(number)),
            (None, AttributeValue::String(text)) => Ok(FieldValue::Text(text)),
            (None, _) => Err(needed(json, "one value")),
        }
    }
}

fn needed(json: &Json, what: &str) -> String {
    match json.as_str() {
        Some(text) => format!("`{}` was given: {what} is needed", shown(text)),
        None => format!("{} was given: {what} is needed", kind_of(json)),
    }
}

fn whole(json: &Json, most: u64) -> Option<FieldValue> {
    let number = json.as_u64().filter(|number| *number <= most)?;
    i64::try_from(number).ok().map(FieldValue::Number)
}

fn is_country(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|b| b.is_ascii_uppercase())
}

fn time(json: &Json) -> Option<FieldValue> {
    let number = json.as_i64().or_else(|| json.as_str().and_then(rfc3339))?;
    Some(FieldValue::Number(number))
}

/// Milliseconds since 1970 of a date and time with its offset (RFC 3339, 5.6); what is below a millisecond is left out,
/// and a leap second is the second after it.
pub(crate) fn rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let days = i64::from(date_of(date)?);
    let (clock, rest) = rest.split_at_checked(9)?;
    let &[b'T' | b't', h1, h2, b':', m1, m2, b':', s1, s2] = clock.as_bytes() else { return None };
    let hour = two(h1, h2, 23)?;
    let seconds = (hour * 60 + two(m1, m2, 59)?) * 60 + two(s1, s2, 60)?;
    let (millis, offset) = fraction(rest)?;
    let minutes = match offset.as_bytes() {
        b"Z" | b"z" => 0,
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let minutes = two(h1, h2, 23)? * 60 + two(m1, m2, 59)?;
            if sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    Some((days * 86_400 + seconds - minutes * 60) * 1_000 + millis)
}

/// The milliseconds of a fraction, if there is one, and what comes behind.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = digits.split_at_checked(end).filter(|_| end > 0)?;
    let millis = digits.bytes().chain(*b"00").take(3).fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((millis, rest))
}

fn two(high: u8, low: u8, most: i64) -> Option<i64> {
    let both = high.is_ascii_digit() && low.is_ascii_digit();
    let number = i64::from(high.wrapping_sub(b'0')) * 10 + i64::from(low.wrapping_sub(b'0'));
    (both && number <= most).then_some(number)
}
