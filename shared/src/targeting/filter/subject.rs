//! The subject of a filter: a person on a page.

use std::collections::BTreeSet;

use super::field::FilterField;
use crate::base::ids::Millis;
use crate::facts::actions::ViewType;
use crate::facts::attributes::{AttributeValue, NameToken};
use crate::facts::events::EventCount;
use crate::facts::segments::SegmentId;

/// The subject of a filter: a person, the page, and the origin of the request. Unknown values are `None` or empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct FilterSubject<'a> {
    /// The person; `None` for a contextual request, in which all fields of a person are absent.
    pub person: Option<SubjectPerson<'a>>,
    /// Address of the page.
    pub url: Option<&'a str>,
    /// Keywords of the page.
    pub keywords: &'a [&'a str],
    /// View type of the placement; 0 if none was named, which counts as absent.
    pub view_type: ViewType,
    /// Country: two capital letters of ISO 3166-1.
    pub country: Option<&'a str>,
    /// Code of the region.
    pub region: Option<&'a str>,
    /// Class of the device.
    pub class: Option<&'a str>,
    /// Operating system of the device.
    pub os: Option<&'a str>,
    /// Browser of the device.
    pub browser: Option<&'a str>,
    /// Parts of the page that are uncertain.
    pub page_gaps: PageGaps,
    /// Answers to [`super::Filter::counts`], or to [`super::FilterIndex::counts`] for an index; `None` or missing for
    /// unknown counts. Ignored without a person.
    pub counts: &'a [Option<EventCount>],
}

/// Data of a page that was left out because of the bounds of a call. It is unknown, not absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageGaps {
    /// Whether the page's address was left out.
    pub url: bool,
    /// Whether keywords of the page are missing in [`FilterSubject::keywords`].
    pub keywords: bool,
}

/// The known properties of a person.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubjectPerson<'a> {
    /// Attributes by token, each once.
    pub attributes: &'a [(NameToken, AttributeValue)],
    /// Current segments, in order, each once.
    pub segments: &'a [SegmentId],
    /// Number of browsers.
    pub devices: u32,
    /// Times of the first and the last fact; `None` if there are no facts.
    pub seen: Option<(Millis, Millis)>,
    /// Whether this hour is the best send time of the week; `None` if unknown.
    pub best_now: Option<bool>,
    /// The certain part of the data; `None` if all of it is certain.
    pub gaps: Option<PersonGaps<'a>>,
}

/// The data of a person that is certain although some is missing. All other data is unknown: a value at hand may have
/// been replaced, and a missing value may exist.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonGaps<'a> {
    /// Attributes whose value or absence is certain, in order; `None` for all.
    pub attributes: Option<&'a [NameToken]>,
    /// Segments that the person is certainly not in, in order; `None` for all that [`SubjectPerson::segments`] lacks.
    pub segments: Option<&'a [SegmentId]>,
    /// Whether visitors of the person may be missing. The number of browsers and the times of the first and last fact
    /// are then bounds, and nothing else of the person is certain.
    pub members: bool,
}

/// Value of a subject's field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldReading<'a> {
    /// The value is unknown.
    Unknown,
    /// The field has no value.
    Absent,
    Number(i64),
    /// A number of at least this.
    AtLeast(i64),
    /// A number of at most this.
    AtMost(i64),
    Text(&'a str),
    /// At least one text.
    Strings(&'a BTreeSet<String>),
    /// At least one text.
    Keywords(&'a [&'a str]),
    /// At least one segment, in order.
    Segments(&'a [SegmentId]),
}

impl FieldReading<'_> {
    /// Whether `holds` is true for any of the texts.
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
    /// Value of a field.
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

    /// Whether values of a page's field may have been left out.
    pub(super) fn has_page_gap(&self, field: FilterField) -> bool {
        match field {
            FilterField::Url => self.page_gaps.url,
            FilterField::Keywords => self.page_gaps.keywords,
            _ => false,
        }
    }

    /// The certain part of the person's data; `None` if all of it is certain.
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

    /// Calls `report` with each field that has a value, except counts; attributes come first.
    pub(super) fn each(&self, mut report: impl FnMut(FilterField, FieldReading<'a>)) {
        let mut report_present = |field, read| match read {
            FieldReading::Absent | FieldReading::Unknown => {}
            read => report(field, read),
        };
        for (token, value) in self.person.map(|person| person.attributes).unwrap_or_default() {
            report_present(FilterField::Attribute(*token, value.kind()), read_value(value));
        }
        for (_, field) in FilterField::NAMED {
            report_present(field, self.read(field));
        }
    }
}

impl PersonGaps<'_> {
    /// Whether the value, or absence, of a single-valued field is certain.
    pub(super) fn is_certain(&self, field: FilterField) -> bool {
        match field {
            FilterField::Attribute(token, _) => self.attributes.is_none_or(|known| known.binary_search(&token).is_ok()),
            FilterField::Segments => self.segments.is_none(),
            FilterField::Devices | FilterField::FirstSeen | FilterField::LastSeen | FilterField::BestSendTime => {
                !self.members
            }
            _ => true,
        }
    }
}

impl<'a> SubjectPerson<'a> {
    /// A person without any data at hand.
    pub const UNREAD: SubjectPerson<'static> = SubjectPerson {
        attributes: &[],
        segments: &[],
        devices: 1,
        seen: None,
        best_now: None,
        gaps: Some(PersonGaps { attributes: Some(&[]), segments: Some(&[]), members: true }),
    };

    /// Value of a field, with missing data taken into account.
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

    /// Value of a field in the data at hand.
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
            FilterField::BestSendTime => {
                self.best_now.map_or(FieldReading::Absent, |now| FieldReading::Number(now.into()))
            }
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

/// A value as a number in the order of its kind; `None` for texts.
pub(crate) fn number_of(value: &AttributeValue) -> Option<i64> {
    match value {
        AttributeValue::Bool(yes) => Some((*yes).into()),
        AttributeValue::Integer(whole) => Some(*whole),
        AttributeValue::Float(finite) => Some(finite.key()),
        AttributeValue::Date(days) => Some((*days).into()),
        AttributeValue::String(_) | AttributeValue::Strings(_) => None,
    }
}
