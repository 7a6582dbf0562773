//! Whom a filter is asked of.

use std::collections::BTreeSet;

use super::field::Field;
use crate::actions::ViewType;
use crate::attributes::{Token, Value};
use crate::events::Often;
use crate::ids::Millis;
use crate::segments::SegmentId;

/// Whom a filter is asked of: a person, the page it looks at, and from where. What is not known is `None` or empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The person; `None` for an answer that is contextual alone: then nothing of a person is there.
    pub person: Option<Person<'a>>,
    /// The page's address.
    pub url: Option<&'a str>,
    /// The page's keywords.
    pub keywords: &'a [&'a str],
    /// The kind of the placement; 0 where none was named, which is none.
    pub view_type: ViewType,
    /// Two capitals of ISO 3166-1.
    pub country: Option<&'a str>,
    /// The region's code.
    pub region: Option<&'a str>,
    /// The class of the device.
    pub class: Option<&'a str>,
    /// Its operating system.
    pub os: Option<&'a str>,
    /// Its browser.
    pub browser: Option<&'a str>,
    /// What of the page is uncertain.
    pub page_gaps: PageGaps,
    /// The answers to [`super::Filter::counts`], or to [`super::Index::counts`] where an index is asked: `None`, or not
    /// there, for what cannot be said. Without a person none is looked at.
    pub counts: &'a [Option<Often>],
}

/// Which data of a page was left out, because a call has bounds. It is unknown, not absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageGaps {
    /// Whether the page has an address that was left out.
    pub url: bool,
    /// Whether the page has keywords that are not in [`Subject::keywords`].
    pub keywords: bool,
}

/// What is known of a person.
#[derive(Debug, Clone, Copy, Default)]
pub struct Person<'a> {
    /// Its attributes, by token, each once.
    pub attributes: &'a [(Token, Value)],
    /// The segments it is in now, in order, each once.
    pub segments: &'a [SegmentId],
    /// How many browsers it has.
    pub devices: u32,
    /// When its first and last fact happened; `None` without any.
    pub seen: Option<(Millis, Millis)>,
    /// Whether this is its best hour of the week; `None` where that is not known.
    pub best_now: Option<bool>,
    /// What of the above is uncertain; `None` where all of it is certain.
    pub gaps: Option<PersonGaps<'a>>,
}

/// Which data of a person is certain although some is missing. All other data of it is unknown: a value that was read
/// may have been replaced, and one that was not read may be there.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonGaps<'a> {
    /// The attributes whose value, or whose absence, is certain, in order; `None` for all.
    pub attributes: Option<&'a [Token]>,
    /// The segments that the person is certainly not in, in order; `None` for all that [`Person::segments`] lacks.
    pub segments: Option<&'a [SegmentId]>,
    /// Whether visitors of the person may be missing. The number of browsers, and when it was first and last seen, are
    /// bounds then, and nothing else of it is certain.
    pub members: bool,
}

/// What a field of a subject says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read<'a> {
    /// It cannot be said.
    Unknown,
    /// It is not there.
    Absent,
    Number(i64),
    /// This or more.
    AtLeast(i64),
    /// This or less.
    AtMost(i64),
    Text(&'a str),
    /// One or more.
    Strings(&'a BTreeSet<String>),
    /// One or more.
    Keywords(&'a [&'a str]),
    /// One or more, in order.
    Segments(&'a [SegmentId]),
}

impl Read<'_> {
    /// Whether any of its texts is one that is looked for.
    pub(super) fn any_text(self, mut holds: impl FnMut(&str) -> bool) -> bool {
        match self {
            Self::Text(text) => holds(text),
            Self::Strings(all) => all.iter().any(|text| holds(text)),
            Self::Keywords(all) => all.iter().any(|text| holds(text)),
            _ => false,
        }
    }
}

impl<'a> Subject<'a> {
    /// What a field says.
    pub(super) fn read(&self, field: Field) -> Read<'a> {
        let text = |text: Option<&'a str>| text.map_or(Read::Absent, Read::Text);
        match field {
            Field::Url if self.page_gaps.url => Read::Unknown,
            Field::Url => text(self.url),
            Field::Country => text(self.country),
            Field::Region => text(self.region),
            Field::Class => text(self.class),
            Field::Os => text(self.os),
            Field::Browser => text(self.browser),
            Field::Keywords if self.keywords.is_empty() => {
                if self.page_gaps.keywords {
                    Read::Unknown
                } else {
                    Read::Absent
                }
            }
            Field::Keywords => Read::Keywords(self.keywords),
            Field::ViewType if self.view_type == ViewType(0) => Read::Absent,
            Field::ViewType => Read::Number(self.view_type.0.into()),
            Field::Count(at) => self.count(at),
            _ => self.person.map_or(Read::Absent, |person| person.read(field)),
        }
    }

    /// Whether further values of a field of the page may have been left out.
    pub(super) fn has_page_gap(&self, field: Field) -> bool {
        match field {
            Field::Url => self.page_gaps.url,
            Field::Keywords => self.page_gaps.keywords,
            _ => false,
        }
    }

    /// What is uncertain of the person; `None` where nothing is.
    pub(super) fn gaps(&self) -> Option<PersonGaps<'a>> {
        self.person?.gaps
    }

    fn count(&self, at: u32) -> Read<'a> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match self.person.and_then(|_| *self.counts.get(usize::try_from(at).ok()?)?) {
            None => Read::Unknown,
            Some(Often::Exactly(count)) => Read::Number(number(count)),
            Some(Often::AtLeast(count)) => Read::AtLeast(number(count)),
        }
    }

    /// Tells all that it has but counts, attributes first.
    pub(super) fn each(&self, mut tell: impl FnMut(Field, Read<'a>)) {
        let mut tell_there = |field, read| match read {
            Read::Absent | Read::Unknown => {}
            read => tell(field, read),
        };
        for (token, value) in self.person.map(|person| person.attributes).unwrap_or_default() {
            tell_there(Field::Attribute(*token, value.kind()), read_value(value));
        }
        for (_, field) in Field::NAMED {
            tell_there(field, self.read(field));
        }
    }
}

impl PersonGaps<'_> {
    /// Whether it is certain what a field of single values says, whether it was read or not.
    pub(super) fn is_certain(&self, field: Field) -> bool {
        match field {
            Field::Attribute(token, _) => self.attributes.is_none_or(|known| known.binary_search(&token).is_ok()),
            Field::Segments => self.segments.is_none(),
            Field::Devices | Field::FirstSeen | Field::LastSeen | Field::BestTime => !self.members,
            _ => true,
        }
    }
}

impl<'a> Person<'a> {
    /// A person of whom nothing was read.
    pub const UNREAD: Person<'static> = Person {
        attributes: &[],
        segments: &[],
        devices: 1,
        seen: None,
        best_now: None,
        gaps: Some(PersonGaps { attributes: Some(&[]), segments: Some(&[]), members: true }),
    };

    /// What a field says.
    fn read(&self, field: Field) -> Read<'a> {
        match (self.known(field), self.gaps) {
            (read, None) => read,
            (read, Some(gaps)) if gaps.is_certain(field) => read,
            (Read::Absent, Some(_)) => Read::Unknown,
            (Read::Number(least), Some(_)) if matches!(field, Field::Devices | Field::LastSeen) => Read::AtLeast(least),
            (Read::Number(most), Some(_)) if field == Field::FirstSeen => Read::AtMost(most),
            (read, Some(_)) => read,
        }
    }

    /// What was read of a field.
    fn known(&self, field: Field) -> Read<'a> {
        let time = |time: Option<Millis>| match time.map(i64::try_from) {
            Some(Ok(time)) => Read::Number(time),
            _ => Read::Absent,
        };
        match field {
            Field::Attribute(token, kind) => match self.attributes.binary_search_by_key(&token, |(token, _)| *token) {
                Ok(at) => self.attributes.get(at).map_or(Read::Absent, |(_, value)| {
                    if value.kind() == kind { read_value(value) } else { Read::Absent }
                }),
                Err(_) => Read::Absent,
            },
            Field::Segments if self.segments.is_empty() => Read::Absent,
            Field::Segments => Read::Segments(self.segments),
            Field::Devices => Read::Number(self.devices.into()),
            Field::FirstSeen => time(self.seen.map(|(first, _)| first)),
            Field::BestTime => self.best_now.map_or(Read::Absent, |now| Read::Number(now.into())),
            Field::LastSeen => time(self.seen.map(|(_, last)| last)),
            _ => Read::Absent,
        }
    }
}

pub(crate) fn read_value(value: &Value) -> Read<'_> {
    match value {
        Value::String(text) => Read::Text(text),
        Value::Strings(all) if all.is_empty() => Read::Absent,
        Value::Strings(all) => Read::Strings(all),
        value => number_of(value).map_or(Read::Absent, Read::Number),
    }
}

/// A value as a number that is in the order of its kind; `None` for texts.
pub(crate) fn number_of(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(yes) => Some((*yes).into()),
        Value::Integer(whole) => Some(*whole),
        Value::Float(finite) => Some(finite.key()),
        Value::Date(days) => Some((*days).into()),
        Value::String(_) | Value::Strings(_) => None,
    }
}
