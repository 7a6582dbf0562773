//! The properties of a person that filters and models can ask for, read from the view once per call.

use crate::base::ids::Millis;
use crate::facts::attributes::{AttributeValue, NameToken};
use crate::facts::segments::SegmentId;
use crate::profiles::profile::MissingParts;
use crate::profiles::view::PersonView;
use crate::targeting::filter::{self, PersonGaps};

/// The properties of a person that filters can ask for.
#[derive(Debug, Clone, Default)]
pub struct DescribedPerson {
    attributes: Vec<(NameToken, AttributeValue)>,
    segments: Vec<SegmentId>,
    devices: u32,
    seen: Option<(Millis, Millis)>,
    best_now: Option<bool>,
    gaps: Option<KnownDespiteGaps>,
}

/// Facts that are certain although some of the person's data is missing; see [`filter::PersonGaps`].
#[derive(Debug, Clone, Default)]
struct KnownDespiteGaps {
    attributes: Option<Vec<NameToken>>,
    segments: Option<Vec<SegmentId>>,
    members: bool,
}

impl DescribedPerson {
    /// Properties of a person at a time.
    #[must_use]
    pub fn of(counted: &PersonView<'_>, now: Millis) -> Self {
        let (attributes, missing) = (counted.attributes(), counted.missing());
        let gaps = (!missing.is_empty()).then(|| KnownDespiteGaps {
            attributes: counted.certain_attributes(missing),
            segments: counted.certainly_not_in(missing, now),
            members: missing.overlaps(MissingParts::MEMBERS),
        });
        Self {
            gaps,
            attributes: attributes.iter().map(|(token, value)| (token, value.clone())).collect(),
            segments: counted.segments(now),
            devices: counted.devices(),
            seen: counted.seen(),
            best_now: counted.best().map(|best| best.is_now(now)),
        }
    }

    /// The same properties in the form that filters read.
    #[must_use]
    pub fn person(&self) -> filter::SubjectPerson<'_> {
        let Self { attributes, segments, devices, seen, best_now, gaps } = self;
        let gaps = gaps.as_ref().map(|KnownDespiteGaps { attributes, segments, members }| PersonGaps {
            attributes: attributes.as_deref(),
            segments: segments.as_deref(),
            members: *members,
        });
        filter::SubjectPerson { attributes, segments, devices: *devices, seen: *seen, best_now: *best_now, gaps }
    }
}
