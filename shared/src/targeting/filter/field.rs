//! The fields that conditions test, and the form of their values.

use super::count::{CountQuestion, CountSource};
use crate::base::limits;
use crate::facts::attributes::{NameDictionary, NameToken, ValueKind};

/// A field that conditions test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterField {
    /// An attribute, with its recorded kind. As a number, true is 1, a float is an integer in the same order, and a
    /// date is its day.
    Attribute(NameToken, ValueKind),
    /// Ids of the person's segments that have not expired.
    Segments,
    /// Answer to one of [`super::Filter::counts`], by index.
    Count(u32),
    /// Number of the person's browsers.
    Devices,
    /// Time of the person's first fact, in milliseconds since 1970.
    FirstSeen,
    /// Time of the person's last fact, in milliseconds since 1970.
    LastSeen,
    /// Whether the current hour is the person's best send time; true is 1. Unlike other fields of a person, it depends
    /// on the time of the request.
    BestSendTime,
    /// Address of the page.
    Url,
    /// Keywords of the page.
    Keywords,
    /// View type of the placement, by its code.
    ViewType,
    /// Country of the request: two capital letters of ISO 3166-1.
    Country,
    /// Region within the country, by its code.
    Region,
    /// Class of the device, such as `mobile`.
    Class,
    /// Operating system of the device.
    Os,
    /// Browser of the device.
    Browser,
}

impl FilterField {
    /// Fields that exist for every tenant, by their names in a document.
    pub(super) const NAMED: [(&'static str, Self); 13] = [
        ("segments", Self::Segments),
        ("devices", Self::Devices),
        ("first_seen", Self::FirstSeen),
        ("last_seen", Self::LastSeen),
        ("best_send_time.now", Self::BestSendTime),
        ("page.url", Self::Url),
        ("page.keywords", Self::Keywords),
        ("page.view_type", Self::ViewType),
        ("geo.country", Self::Country),
        ("geo.region", Self::Region),
        ("device.class", Self::Class),
        ("device.os", Self::Os),
        ("device.browser", Self::Browser),
    ];

    /// Name of the field in a document, for traces. `names` are the known attribute names of the tenant; `counts` are
    /// the questions to which [`Self::Count`] refers.
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

    /// Whether the field belongs to the person independently of the request; other fields belong to a page, a location,
    /// a device or a time.
    pub(crate) fn is_of_person(self) -> bool {
        match self {
            Self::Attribute(..) | Self::Segments | Self::Count(_) | Self::Devices => true,
            Self::FirstSeen | Self::LastSeen => true,
            Self::Url | Self::Keywords | Self::ViewType | Self::Country | Self::Region => false,
            Self::BestSendTime | Self::Class | Self::Os | Self::Browser => false,
        }
    }

    /// Whether the values are texts; otherwise they are numbers.
    pub(crate) fn is_text(self) -> bool {
        match self {
            Self::Attribute(_, kind) => matches!(kind, ValueKind::String | ValueKind::Strings),
            Self::Url | Self::Keywords | Self::Country | Self::Region => true,
            Self::Class | Self::Os | Self::Browser => true,
            Self::Segments | Self::Count(_) | Self::Devices | Self::FirstSeen | Self::LastSeen => false,
            Self::ViewType | Self::BestSendTime => false,
        }
    }

    /// Whether the values have an order for comparisons.
    pub(crate) fn is_ordered(self) -> bool {
        match self {
            Self::Attribute(_, kind) => kind != ValueKind::Bool,
            Self::Count(_) | Self::Devices | Self::FirstSeen | Self::LastSeen => true,
            _ => false,
        }
    }

    /// Largest length of a text value, in bytes.
    pub(crate) fn text_bytes(self) -> usize {
        match self {
            Self::Attribute(..) => limits::ATTRIBUTE_BYTES,
            Self::Url => limits::URL_BYTES,
            _ => limits::NAME_BYTES,
        }
    }
}
