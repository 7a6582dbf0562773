//! Facts: one immutable observation each. A fact is never changed and never counted twice; everything the
//! system knows is a join of facts.

use crate::base::ids::{
    AltHash, AlternateId, FactId, InsertionId, KindCode, Micros, Millis, OrderHash, SessionId, VisitorId,
};
use crate::base::limits;
use crate::base::time::HourStamp;
use crate::facts::actions::{ActionType, AdEntity, ViewType};
use crate::facts::attributes::{self, AttributeValue, DictionaryError, ValueError};
use crate::facts::evidence::{EvidenceSource, EvidenceWeight};
use crate::facts::segments::{SegmentId, SegmentState, WriteStamp};

/// One observation under one visitor.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its name for ever.
    pub id: FactId,
    /// Whose it is.
    pub visitor: VisitorId,
    /// When the edge received it; facts are ordered by this.
    pub received: Millis,
    /// When it happened, as the client says within bounds; never ahead of `received`.
    pub at: Millis,
    /// Its place among the events of its call, or its line in a file: of two writes of one time and one receipt the later
    /// place stands.
    pub position: u32,
    /// What was observed.
    pub what: FactKind,
}

/// What was observed.
#[derive(Debug, Clone, PartialEq)]
pub enum FactKind {
    /// A page was viewed, in a session.
    Page {
        /// The session, minted at the edge.
        session: SessionId,
    },
    /// The visitor was seen with an alternate id.
    Alias {
        /// The id, hashed under the key that is written.
        id: AlternateId,
        /// The same id under the other keys of a rotation.
        also: Vec<AltHash>,
        /// Whether the publisher's signature was checked (or the tenant trusts its pages).
        proven: bool,
    },
    /// Something named happened; `purchase` is counted and its value added up.
    Track {
        /// The event's name.
        name: String,
        /// Its value, 0 or more.
        value: Option<Micros>,
        /// Its other properties, as a JSON object's text.
        properties: Option<String>,
        /// The shop's order that a purchase is of: it counts once per person.
        order: Option<OrderHash>,
    },
    /// The visitor took the permission back: it is cut from every view.
    Withdrawal,
    /// An ad event on one insertion.
    Action {
        /// The insertion.
        insertion: InsertionId,
        /// What was done.
        verb: ActionType,
        /// On which kind of placement.
        view_type: ViewType,
        /// The ad, and what it belongs to.
        entity: AdEntity,
    },
    /// The visitor is in these segments, or no longer.
    Segments {
        /// What each is to be from now on; the last write of a segment stands.
        writes: Vec<(SegmentId, SegmentState)>,
    },
    /// The publisher says this of the visitor.
    Attributes {
        /// Names and values, `None` where one is removed; 1 to [`limits::ATTRIBUTE_WRITES`]. The origin gives the names
        /// their tokens, and leaves out a value that is not of its name's kind.
        writes: Vec<(String, Option<AttributeValue>)>,
    },
    /// The visitor was exposed to an arm of an experiment: a page was decided under it, or, for the control, without.
    Exposure {
        /// The experiment's code.
        experiment: u32,
        /// The arm's code.
        arm: u8,
    },
    /// The visitor got a unit of a campaign that has only so many recipients: nobody else has the number.
    Unit {
        /// The campaign's code.
        campaign: u32,
        /// The unit's number, from 0 on.
        number: u32,
    },
    /// The visitor and this alternate id do not belong together: what was received of them until now ends; newer evidence
    /// counts again. The admin side alone says it.
    Cancellation {
        /// The id, under any of its hashes.
        id: AlternateId,
    },
    /// Other evidence than a login that ties the visitor to an alternate id: an imported match, a signal. The admin side alone
    /// says it. Two visitors are tied by one id of [`KindCode::PAIR`] each.
    Evidence {
        /// The id, under any of its hashes.
        id: AlternateId,
        /// Its other hashes, during a rotation.
        also: Vec<AltHash>,
        /// How sure it is: under 1.
        weight: EvidenceWeight,
        /// Where it comes from.
        source: EvidenceSource,
    },
    /// What is held goes for ever: of the visitor, unless it is [`VisitorId::NOBODY`], and of everybody who was seen with
    /// `id` before the erasure was received. The fact's id is the receipt.
    Erasure {
        /// How far it reaches.
        scope: ErasureScope,
        /// An alternate id whose history ends with the erasure; who is seen with it later is somebody new.
        id: Option<AlternateId>,
        /// The same id under the other keys of a rotation.
        also: Vec<AltHash>,
    },
}

/// How far an erasure reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErasureScope {
    /// The visitors that it names.
    Visitor,
    /// All visitors of their people, as the origin knows them when it folds the erasure; unique ids of theirs end too.
    Person,
}

impl ErasureScope {
    /// A stable name for answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Visitor => "visitor",
            Self::Person => "person",
        }
    }
}

/// What page views are called among events. Another event of this name is not kept.
pub const PAGE: &str = "page";
/// Name of the event that counts as a purchase.
pub const PURCHASE: &str = "purchase";

/// Why a fact is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// Received longer ago than FactIds are remembered: whether it was counted is no longer known.
    #[error("received more than {} days ago", limits::FACT_AGE_MS / 86_400_000)]
    TooOld,
    /// Received in the future, as this clock sees it.
    #[error("received more than {} minutes ahead of this clock", limits::FACT_AHEAD_MS / 60_000)]
    Ahead,
    /// It claims to have happened after it was received, or out of bounds.
    #[error("happened after it was received, or more than {} days before", limits::EVENT_AGE_MS / 86_400_000)]
    At,
    /// A name or text over its bound, or empty.
    #[error(
        "an event's name has 1 to {} bytes, its properties {} at most",
        limits::NAME_BYTES,
        limits::PROPERTIES_BYTES
    )]
    Length,
    /// What two visitors have in common, said of one as if it were its id.
    #[error("kind {} is of pairs of visitors: nobody is seen with it", KindCode::PAIR.0)]
    Kind,
    /// Segments without any, or too many at once.
    #[error("1 to {} segments are written at once", limits::SEGMENT_WRITES)]
    Segments,
    /// A segment that has expired already, or expires after 2100.
    #[error(
        "a segment expires after it was received, by the end of 2100, and has {} attributes at most",
        limits::SEGMENT_ATTRIBUTES
    )]
    Expiry,
    /// A track event with the name of page views: it would never count as a page view.
    #[error("a page view is an event of the type page, not an event by the name of `{PAGE}`")]
    ReservedName,
    /// A value that is negative or over its bound.
    #[error("a value is 0 to {} micros", limits::VALUE_MICROS)]
    Value,
    /// Attributes without any, or too many at once.
    #[error("1 to {} attributes are written at once", limits::ATTRIBUTE_WRITES)]
    Attributes,
    /// A name that is none of an attribute.
    #[error("{}", DictionaryError::BadName)]
    Name,
    /// An attribute's value over a bound.
    #[error(transparent)]
    Attribute(#[from] ValueError),
}

impl FactError {
    /// A stable name for the answer and the metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooOld => "too_old",
            Self::Ahead => "ahead",
            Self::At => "at_out_of_range",
            Self::Length => "too_long",
            Self::Kind => "bad_kind",
            Self::Value => "value_out_of_range",
            Self::ReservedName => "reserved_name",
            Self::Segments | Self::Attributes => "out_of_bounds",
            Self::Expiry => "expiry_out_of_range",
            Self::Name => "bad_name",
            Self::Attribute(error) => error.code(),
        }
    }
}

impl Fact {
    /// The stamp of its writes.
    #[must_use]
    pub fn stamp(&self) -> WriteStamp {
        WriteStamp::new(self.at, self.received, self.position)
    }

    /// Whether the person did something: looked at a page, bought, clicked. An ad that was shown to it is no such thing.
    #[must_use]
    pub fn is_activity(&self) -> bool {
        match &self.what {
            FactKind::Page { .. } | FactKind::Track { .. } => true,
            FactKind::Action { verb, .. } => *verb != ActionType::IMPRESSION,
            FactKind::Alias { .. } | FactKind::Withdrawal | FactKind::Segments { .. } | FactKind::Attributes { .. } => {
                false
            }
            FactKind::Exposure { .. }
            | FactKind::Unit { .. }
            | FactKind::Cancellation { .. }
            | FactKind::Erasure { .. } => false,
            FactKind::Evidence { .. } => false,
        }
    }

    /// Whether only the admin side may say it: an edge speaks for the visitor of a request, and for nobody else.
    #[must_use]
    pub fn is_admins(&self) -> bool {
        match &self.what {
            FactKind::Cancellation { .. } | FactKind::Evidence { .. } => true,
            FactKind::Erasure { .. } => self.visitor == VisitorId::NOBODY,
            _ => false,
        }
    }

    /// Checks the bounds of a fact from outside against this clock.
    ///
    /// # Errors
    /// The first bound that it breaks.
    pub fn check(&self, now: Millis) -> Result<(), FactError> {
        if self.received > now.saturating_add(limits::FACT_AHEAD_MS) {
            return Err(FactError::Ahead);
        }
        if self.received.saturating_add(limits::FACT_AGE_MS) < now {
            return Err(FactError::TooOld);
        }
        if self.at > self.received || self.at.saturating_add(limits::EVENT_AGE_MS) < self.received {
            return Err(FactError::At);
        }
        match &self.what {
            FactKind::Track { name, value, properties, .. } => check_track(name, *value, properties.as_deref()),
            FactKind::Segments { writes } => check_segments(writes, self.received),
            FactKind::Attributes { writes } => check_attributes(writes),
            FactKind::Alias { also, .. } | FactKind::Erasure { also, .. } if also.len() >= limits::KEYS_A_PURPOSE => {
                Err(FactError::Length)
            }
            FactKind::Alias { id, .. } | FactKind::Erasure { id: Some(id), .. } if id.kind == KindCode::PAIR => {
                Err(FactError::Kind)
            }
            _ => Ok(()),
        }
    }
}

fn check_segments(writes: &[(SegmentId, SegmentState)], received: Millis) -> Result<(), FactError> {
    if writes.is_empty() || writes.len() > limits::SEGMENT_WRITES {
        return Err(FactError::Segments);
    }
    let fits = |expiry: HourStamp| expiry > HourStamp::at(received) && expiry.0 <= limits::EXPIRY_HOURS;
    let good = |state: &SegmentState| match state {
        SegmentState::Removed => true,
        SegmentState::Held { expiry, attributes } => fits(*expiry) && attributes.len() <= limits::SEGMENT_ATTRIBUTES,
    };
    if writes.iter().all(|(_, state)| good(state)) { Ok(()) } else { Err(FactError::Expiry) }
}

fn check_attributes(writes: &[(String, Option<AttributeValue>)]) -> Result<(), FactError> {
    if writes.is_empty() || writes.len() > limits::ATTRIBUTE_WRITES {
        return Err(FactError::Attributes);
    }
    writes.iter().try_for_each(|(name, value)| {
        if !attributes::name_is_good(name) {
            return Err(FactError::Name);
        }
        Ok(value.as_ref().map_or(Ok(()), AttributeValue::check)?)
    })
}

fn check_track(name: &str, value: Option<Micros>, properties: Option<&str>) -> Result<(), FactError> {
    if name.is_empty() || name.len() > limits::NAME_BYTES {
        return Err(FactError::Length);
    }
    if name == PAGE {
        return Err(FactError::ReservedName);
    }
    if properties.is_some_and(|p| p.len() > limits::PROPERTIES_BYTES) {
        return Err(FactError::Length);
    }
    match value {
        Some(v) if !(0..=limits::VALUE_MICROS).contains(&v) => Err(FactError::Value),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn fact(received: Millis, at: Millis, what: FactKind) -> Fact {
        let visitor = VisitorId::mint(NOW, [1; 10]);
        Fact { position: 0, id: FactId::from_bytes([1; 16]), visitor, received, at, what }
    }

    #[test]
    fn times_out_of_bounds_are_named() {
        let page = || FactKind::Page { session: SessionId(1) };
        let code = |received, at| fact(received, at, page()).check(NOW).map_err(FactError::code);
        assert_eq!(code(NOW, NOW), Ok(()));
        assert_eq!(code(0, 0), Err("too_old"));
        assert_eq!(code(NOW + limits::FACT_AHEAD_MS + 1, NOW), Err("ahead"));
        assert_eq!(code(NOW, NOW + 1), Err("at_out_of_range"));
        assert_eq!(code(NOW, 0), Err("at_out_of_range"));
        assert_eq!(code(u64::MAX, u64::MAX), Err("ahead"));
    }

    #[test]
    fn s2_01_segments_expire_after_their_receipt_and_by_the_end_of_2100() {
        let hour = HourStamp::at(NOW).0;
        let check = |writes| fact(NOW, NOW, FactKind::Segments { writes }).check(NOW).map_err(FactError::code);
        let held = |expiry| vec![(SegmentId(1), SegmentState::Held { expiry: HourStamp(expiry), attributes: vec![] })];
        assert_eq!([hour + 1, limits::EXPIRY_HOURS].map(|expiry| check(held(expiry))), [Ok(()), Ok(())]);
        assert_eq!([hour, limits::EXPIRY_HOURS + 1].map(|expiry| check(held(expiry))), [Err("expiry_out_of_range"); 2]);
        assert_eq!(check(vec![(SegmentId(1), SegmentState::Removed)]), Ok(()));
        assert_eq!(check(vec![]), Err("out_of_bounds"));
        assert_eq!(
            check(vec![(SegmentId(1), SegmentState::Removed); limits::SEGMENT_WRITES + 1]),
            Err("out_of_bounds")
        );
    }

    #[test]
    fn s4_08_a_fact_has_1_to_64_attributes_of_good_names_and_values() {
        let check = |writes| fact(NOW, NOW, FactKind::Attributes { writes }).check(NOW).map_err(FactError::code);
        let one = |name: &str, value| check(vec![(name.to_owned(), value)]);
        let many = |count| check(vec![("a".to_owned(), None); count]);
        assert_eq!([1, limits::ATTRIBUTE_WRITES].map(many), [Ok(()), Ok(())]);
        assert_eq!([0, limits::ATTRIBUTE_WRITES + 1].map(many), [Err("out_of_bounds"); 2]);
        assert_eq!(one("shoe_size", Some(AttributeValue::Integer(42))), Ok(()));
        assert_eq!(["", "9 shoes"].map(|name| one(name, None)), [Err("bad_name"); 2]);
        assert_eq!(one("a", Some(AttributeValue::String("x".repeat(limits::ATTRIBUTE_BYTES + 1)))), Err("too_long"));
        assert_eq!(one("a", Some(AttributeValue::Date(i32::MAX))), Err("out_of_bounds"));
    }

    #[test]
    fn a_negative_value_is_refused() {
        let track = |value, name: &str| {
            let what = FactKind::Track { name: name.to_owned(), value, properties: None, order: None };
            fact(NOW, NOW, what).check(NOW).map_err(FactError::code)
        };
        assert_eq!(track(Some(5), PURCHASE), Ok(()));
        assert_eq!(track(Some(-5), PURCHASE), Err("value_out_of_range"));
        assert_eq!(track(None, ""), Err("too_long"));
        assert_eq!(track(None, &"x".repeat(limits::NAME_BYTES + 1)), Err("too_long"));
    }
}
