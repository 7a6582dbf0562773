//! Whom a filter is asked of.

use std::collections::BTreeSet;

use super::field::FilterField;
use crate::base::ids::Millis;
use crate::facts::actions::ViewType;
use crate::facts::attributes::{AttributeValue, NameToken};
use crate::facts::events::EventCount;
use crate::facts::segments::SegmentId;

/// Whom a filter is asked of: a person, the page it looks at, and from where. What is not known is `None` or empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct FilterSubject<'a> {
    /// The person; `None` for an answer that is contextual alone: then nothing of a person is there.
    pub person: Option<SubjectPerson<'a>>,
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
    pub counts: &'a [Option<EventCount>],
}

/// Which data of a page was left out, because a call has bounds. It is unknown, not absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageGaps {
    /// Whether the page has an address that was left out.
    pub url: bool,
    /// Whether the page has keywords that are not in [`FilterSubject::keywords`].
    pub keywords: bool,
}

/// What is known of a person.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubjectPerson<'a> {
    /// Its attributes, by token, each once.
    pub attributes: &'a [(NameToken, AttributeValue)],
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
    pub attributes: Option<&'a [NameToken]>,
    /// The segments that the person is certainly not in, in order; `None` for all that [`SubjectPerson::segments`] lacks.
    pub segments: Option<&'a [SegmentId]>,
    /// Whether visitors of the person may be missing. The number of browsers, and when it was first and last seen, are
    /// bounds then, and nothing else of it is certain.
    pub members: bool,
}

/// What a field of a subject says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldReading<'a> {
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

impl FieldReading<'_> {
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

impl<'a> FilterSubject<'a> {
    /// What a field says.
    pub(super) fn read(&self, field: FilterField) -> FieldReading<'a> {
        let text = |text: Option<&'a str>| text.map_or(FieldReading::Absent, FieldReading::Text);
        match field {
            FilterField::Url if self.page_gaps.url => FieldReading::Unknown,
            FilterField::Url => text(self.url),
            FilterField::Country => text(self.country),
            FilterField::Region => text(self.region),
            FilterField::Class => text(self.class),
            FilterField::Os => text(self.os),
            FilterField::Browser => text(self.browser),
            FilterField::Keywords if self.keywords.is_empty() => {
                if self.page_gaps.keywords {
                    FieldReading::Unknown
                } else {
                    FieldReading::Absent
                }
            }
            FilterField::Keywords => FieldReading::Keywords(self.keywords),
            FilterField::ViewType if self.view_type == ViewType(0) => FieldReading::Absent,
            FilterField::ViewType => FieldReading::Number(self.view_type.0.into()),
            FilterField::Count(at) => self.count(at),
            _ => self.person.map_or(FieldReading::Absent, |person| person.read(field)),
        }
    }

    /// Whether further values of a field of the page may have been left out.
    pub(super) fn has_page_gap(&self, field: FilterField) -> bool {
        match field {
            FilterField::Url => self.page_gaps.url,
            FilterField::Keywords => self.page_gaps.keywords,
            _ => false,
        }
    }

    /// What is uncertain of the person; `None` where nothing is.
    pub(super) fn gaps(&self) -> Option<PersonGaps<'a>> {
        self.person?.gaps
    }

    fn count(&self, at: u32) -> FieldReading<'a> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match self.person.and_then(|_| *self.counts.get(usize::try_from(at).ok()?)?) {
            None => FieldReading::Unknown,
            Some(EventCount::Exactly(count)) => FieldReading::Number(number(count)),
            Some(EventCount::AtLeast(count)) => FieldReading::AtLeast(number(count)),
        }
    }

    /// Tells all that it has but counts, attributes first.
    pub(super) fn each(&self, mut tell: impl FnMut(FilterField, FieldReading<'a>)) {
        let mut tell_there = |field, read| match read {
            FieldReading::Absent | FieldReading::Unknown => {}
            read => tell(field, read),
        };
        for (token, value) in self.person.map(|person| person.attributes).unwrap_or_default() {
            tell_there(FilterField::Attribute(*token, value.kind()), read_value(value));
        }
        for (_, field) in FilterField::NAMED {
            tell_there(field, self.read(field));
        }
    }
}

impl PersonGaps<'_> {
    /// Whether it is certain what a field of single values says, whether it was read or not.
    pub(super) fn is_certain(&self, field: FilterField) -> bool {
        match field {
            FilterField::Attribute(token, _) => self.attributes.is_none_or(|known| known.binary_search(&token).is_ok()),
            FilterField::Segments => self.segments.is_none(),
            FilterField::Devices | FilterField::FirstSeen | FilterField::LastSeen | FilterField::BestTime => {
                !self.members
            }
            _ => true,
        }
    }
}

impl<'a> SubjectPerson<'a> {
    /// A person of whom nothing was read.
    pub const UNREAD: SubjectPerson<'static> = SubjectPerson {
        attributes: &[],
        segments: &[],
        devices: 1,
        seen: None,
        best_now: None,
        gaps: Some(PersonGaps { attributes: Some(&[]), segments: Some(&[]), members: true }),
    };

    /// What a field says.
    fn read(&self, field: FilterField) -> FieldReading<'a> {
        match (self.known(field), self.gaps) {
            (read, None) => read,
            (read, Some(gaps)) if gaps.is_certain(field) => read,
            (FieldReading::Absent, Some(_)) => FieldReading::Unknown,
            (FieldReading::Number(least), Some(_)) if matches!(field, FilterField::Devices | FilterField::LastSeen) => {
                FieldReading::AtLeast(least)
            }
            (FieldReading::Number(most), Some(_)) if field == FilterField::FirstSeen => FieldReading::AtMost(most),
            (read, Some(_)) => read,
        }
    }

    /// What was read of a field.
    fn known(&self, field: FilterField) -> FieldReading<'a> {
        let time = |time: Option<Millis>| match time.map(i64::try_from) {
            Some(Ok(time)) => FieldReading::Number(time),
            _ => FieldReading::Absent,
        };
        match field {
            FilterField::Attribute(token, kind) => {
                match self.attributes.binary_search_by_key(&token, |(token, _)| *token) {
                    Ok(at) => self.attributes.get(at).map_or(FieldReading::Absent, |(_, value)| {
                        if value.kind() == kind { read_value(value) } else { FieldReading::Absent }
                    }),
                    Err(_) => FieldReading::Absent,
                }
            }
            FilterField::Segments if self.segments.is_empty() => FieldReading::Absent,
            FilterField::Segments => FieldReading::Segments(self.segments),
            FilterField::Devices => FieldReading::Number(self.devices.into()),
            FilterField::FirstSeen => time(self.seen.map(|(first, _)| first)),
            FilterField::BestTime => self.best_now.map_or(FieldReading::Absent, |now| FieldReading::Number(now.into())),
            FilterField::LastSeen => time(self.seen.map(|(_, last)| last)),
            _ => FieldReading::Absent,
        }
    }
}

pub(crate) fn read_value(value: &AttributeValue) -> FieldReading<'_> {
    match value {
        AttributeValue::String(text) => FieldReading::Text(text),
        AttributeValue::Strings(all) if all.is_empty() => FieldReading::Absent,
        AttributeValue::Strings(all) => FieldReading::Strings(all),
        value => number_of(value).map_or(FieldReading::Absent, FieldReading::Number),
    }
}

/// A value as a number that is in the order of its kind; `None` for texts.
pub(crate) fn number_of(value: &AttributeValue) -> Option<i64> {
    match value {
        AttributeValue::Bool(yes) => Some((*yes).into()),
        AttributeValue::Integer(whole) => Some(*whole),
        AttributeValue::Float(finite) => Some(finite.key()),
        AttributeValue::Date(days) => Some((*days).into()),
        AttributeValue::String(_) | AttributeValue::Strings(_) => None,
    }
}
