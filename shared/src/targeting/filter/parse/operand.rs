//! Fields of a document by name, and the values that they accept.

use serde_json::Value as Json;

use super::{CountAnswerer, FieldValue, FilterWords, kind_of, shown};
use crate::base::calendar;
use crate::facts::attributes::{AttributeError, AttributeValue, ValueKind};
use crate::targeting::filter::field::FilterField;
use crate::targeting::filter::subject::number_of;

/// A field with its name and the sort of its values.
pub(super) struct FieldOperand<'a> {
    pub(super) field: FilterField,
    pub(super) name: &'a str,
    pub(super) sort: ValueSort,
}

/// Sorts of values that a field accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueSort {
    Attribute(ValueKind),
    Segment,
    Count,
    Time,
    ViewType,
    Country,
    /// A bool.
    Yes,
    Text,
}

impl<'a> FieldOperand<'a> {
    /// The field with a name, or the reason why there is none.
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
            return Err(
                "an audience filter cannot use a page, a location, a device or the time of a request".to_owned()
            );
        }
        let sort = match field {
            FilterField::Segments => ValueSort::Segment,
            FilterField::Devices => ValueSort::Count,
            FilterField::FirstSeen | FilterField::LastSeen => ValueSort::Time,
            FilterField::ViewType => ValueSort::ViewType,
            FilterField::Country => ValueSort::Country,
            FilterField::BestSendTime => ValueSort::Yes,
            _ => ValueSort::Text,
        };
        Ok(Self { field, name, sort })
    }

    /// Parses one value, or returns the reason why the field does not accept it.
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
                _ => Err(needed(json, "a country as two capital letters of ISO 3166-1")),
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

    /// Converts a value to the attribute's kind; for an attribute of strings, to a single string.
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
    let number = json.as_i64().or_else(|| json.as_str().and_then(calendar::parse_rfc3339))?;
    Some(FieldValue::Number(number))
}
