//! What a condition looks at, and what its values are.

use super::count::{CountQuestion, CountSource};
use crate::base::limits;
use crate::facts::attributes::{NameDictionary, NameToken, ValueKind};

/// What a condition looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterField {
    /// An attribute, and its kind as recorded: a yes is 1, a float its place in the order of floats, a date its days.
    Attribute(NameToken, ValueKind),
    /// The person's segments that have not expired, by their ids.
    Segments,
    /// The answer to one of [`super::Filter::counts`].
    Count(u32),
    /// How many browsers the person has.
    Devices,
    /// When its first fact happened, in milliseconds since 1970.
    FirstSeen,
    /// When its last fact happened, in milliseconds since 1970.
    LastSeen,
    /// Whether the hour is the best of the week to reach the person: a yes is 1. Unlike what it is drawn from, it is a moment's.
    BestTime,
    /// The page's address.
    Url,
    /// The page's keywords.
    Keywords,
    /// The kind of the placement, by its code.
    ViewType,
    /// The country of the request: two capitals of ISO 3166-1.
    Country,
    /// The region in it, by its code.
    Region,
    /// The class of the device, such as `mobile`.
    Class,
    /// Its operating system.
    Os,
    /// Its browser.
    Browser,
}

impl FilterField {
    /// All that every tenant has, by their names in a document.
    pub(super) const NAMED: [(&'static str, Self); 13] = [
        ("segments", Self::Segments),
        ("devices", Self::Devices),
        ("first_seen", Self::FirstSeen),
        ("last_seen", Self::LastSeen),
        ("best_time.now", Self::BestTime),
        ("page.url", Self::Url),
        ("page.keywords", Self::Keywords),
        ("page.view_type", Self::ViewType),
        ("geo.country", Self::Country),
        ("geo.region", Self::Region),
        ("device.class", Self::Class),
        ("device.os", Self::Os),
        ("device.browser", Self::Browser),
    ];

    /// Its name in a document, for traces. `names` are the tenant's attributes as far as they are known, `counts` the
    /// questions that [`Self::Count`] refers to.
    #[must_use]
    pub fn label(self, names: &NameDictionary, counts: &[CountQuestion]) -> String {
        match self {
            Self::Attribute(token, _) => match names.get(token) {
                Some((name, _)) => format!("attributes.{name}"),
                None => format!("attributes.#{}", token.0),
            },
            Self::Count(at) => match counts.get(at as usize).map(|question| &question.what) {
                Some(CountSource::Pages) => "events.page".to_owned(),
                Some(CountSource::Purchases) => "events.purchase".to_owned(),
                Some(CountSource::Event(name)) => format!("events.{name}"),
                Some(CountSource::Action { .. }) | None => "actions".to_owned(),
            },
            named => Self::NAMED
                .iter()
                .find(|(_, field)| *field == named)
                .map_or_else(String::new, |(name, _)| (*name).to_owned()),
        }
    }

    /// Whether a person has it wherever it is; else it is a page's, a place's or a device's.
    pub(crate) fn is_of_person(self) -> bool {
        match self {
            Self::Attribute(..) | Self::Segments | Self::Count(_) | Self::Devices => true,
            Self::FirstSeen | Self::LastSeen => true,
            Self::Url | Self::Keywords | Self::ViewType | Self::Country | Self::Region => false,
            Self::BestTime | Self::Class | Self::Os | Self::Browser => false,
        }
    }

    /// Whether its values are texts; else they are numbers.
    pub(crate) fn is_text(self) -> bool {
        match self {
            Self::Attribute(_, kind) => matches!(kind, ValueKind::String | ValueKind::Strings),
            Self::Url | Self::Keywords | Self::Country | Self::Region => true,
            Self::Class | Self::Os | Self::Browser => true,
            Self::Segments | Self::Count(_) | Self::Devices | Self::FirstSeen | Self::LastSeen => false,
            Self::ViewType | Self::BestTime => false,
        }
    }

    /// Whether one value comes before another.
    pub(crate) fn is_ordered(self) -> bool {
        match self {
            Self::Attribute(_, kind) => kind != ValueKind::Bool,
            Self::Count(_) | Self::Devices | Self::FirstSeen | Self::LastSeen => true,
            _ => false,
        }
    }

    /// Longest text of it, in bytes.
    pub(crate) fn text_bytes(self) -> usize {
        match self {
            Self::Attribute(..) => limits::ATTRIBUTE_BYTES,
            Self::Url => limits::URL_BYTES,
            _ => limits::NAME_BYTES,
        }
    }
}
