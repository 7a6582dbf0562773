//! Facts: immutable observations. A fact never changes and is never counted twice; all other data is a join of facts.

use crate::base::ids::{
    AltHash, AlternateId, FactId, InsertionId, KindCode, Micros, Millis, OrderHash, SessionId, VisitorId,
};
use crate::base::limits;
use crate::base::time::HourStamp;
use crate::facts::actions::{ActionType, AdEntity, ViewType};
use crate::facts::attributes::{self, AttributeValue, DictionaryError, ValueError};
use crate::facts::evidence::{EvidenceSource, EvidenceWeight};
use crate::facts::segments::{SegmentId, SegmentState, WriteStamp};

/// One observation about one visitor.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Permanent id of the fact.
    pub id: FactId,
    /// The visitor that the fact belongs to.
    pub visitor: VisitorId,
    /// Time at which the edge received the fact; facts are ordered by it.
    pub received: Millis,
    /// Time of the observation, as the client reports it within bounds; never after `received`.
    pub at: Millis,
    /// Index among the events of its call, or line in a file. Of two writes with equal times, the later position wins.
    pub position: u32,
    /// The observation itself.
    pub what: FactKind,
}

/// Kinds of observations.
#[derive(Debug, Clone, PartialEq)]
pub enum FactKind {
    /// A page view in a session.
    Page {
        /// The session, whose id the edge minted.
        session: SessionId,
    },
    /// The visitor was seen with an alternate id.
    Alias {
        /// The id, hashed under the active key.
        id: AlternateId,
        /// The same id under the other keys of a rotation.
        also: Vec<AltHash>,
        /// Whether the publisher's signature was verified, or the tenant trusts its pages.
        proven: bool,
    },
    /// A named event; `purchase` events are counted and their values summed.
    Track {
        /// Name of the event.
        name: String,
        /// Value in micros, at least 0.
        value: Option<Micros>,
        /// Further properties, as the text of a JSON object.
        properties: Option<String>,
        /// Order that a purchase belongs to; an order counts once per person.
        order: Option<OrderHash>,
    },
    /// The visitor withdrew its permission: it is removed from every view.
    Withdrawal,
    /// An ad event on one insertion.
    Action {
        /// The insertion.
        insertion: InsertionId,
        /// The action type.
        action_type: ActionType,
        /// The view type of the placement.
        view_type: ViewType,
        /// The ad, with its parents.
        entity: AdEntity,
    },
    /// Writes of segments: the visitor enters or leaves them.
    Segments {
        /// New state of each segment; the last write of a segment wins.
        writes: Vec<(SegmentId, SegmentState)>,
    },
    /// Writes of attributes by the publisher.
    Attributes {
        /// Names and values, 1 to [`limits::ATTRIBUTE_WRITES`]; `None` removes the attribute. The origin maps names to
        /// tokens, and drops a value whose kind does not fit its name.
        writes: Vec<(String, Option<AttributeValue>)>,
    },
    /// The visitor was exposed to an arm of an experiment: a page was decided under the arm or, for the control,
    /// without ads of the experiment.
    Exposure {
        /// Code of the experiment.
        experiment: u32,
        /// Code of the arm.
        arm: u8,
    },
    /// The visitor received an offer code of a limited offer; no other visitor has the same number.
    OfferCode {
        /// Code of the campaign.
        campaign: u32,
        /// Number of the offer code, from 0.
        number: u32,
    },
    /// The visitor and this alternate id do not belong together: evidence received until now ends, newer evidence
    /// counts again. Only the admin API may send it.
    Cancellation {
        /// The id, under any of its hashes.
        id: AlternateId,
    },
    /// Evidence other than a login that ties the visitor to an alternate id, such as an imported match or a signal.
    /// Only the admin API may send it. To tie two visitors, each gets the same id of kind [`KindCode::PAIR`].
    Evidence {
        /// The id, under any of its hashes.
        id: AlternateId,
        /// Further hashes of the id during a key rotation.
        also: Vec<AltHash>,
        /// Weight of the evidence, below 1.
        weight: EvidenceWeight,
        /// Source of the evidence.
        source: EvidenceSource,
    },
    /// Permanent removal of all data of the visitor, unless it is [`VisitorId::ANONYMOUS`], and of all visitors that
    /// were seen with `id` before the erasure was received. The fact's id is the receipt.
    Erasure {
        /// Extent of the erasure.
        scope: ErasureScope,
        /// Alternate id whose history ends with the erasure; a visitor seen with it later is a new person.
        id: Option<AlternateId>,
        /// The same id under the other keys of a rotation.
        also: Vec<AltHash>,
    },
}

/// Extent of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErasureScope {
    /// Only the visitors that it names.
    Visitor,
    /// All visitors of their people, as known to the origin when it folds the erasure; their unique ids are erased too.
    Person,
}

impl ErasureScope {
    /// Stable name for answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Visitor => "visitor",
            Self::Person => "person",
        }
    }
}

/// Event name of page views. A track event with this name is refused.
pub const PAGE: &str = "page";
/// Name of the event that counts as a purchase.
pub const PURCHASE: &str = "purchase";

/// Reason why a fact is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// The fact was received before the oldest stored FactIds, so that a repetition could not be recognised.
    #[error("received more than {} days ago", limits::FACT_AGE_MS / 86_400_000)]
    TooOld,
    /// The fact was received in the future of this clock.
    #[error("received more than {} minutes ahead of this clock", limits::FACT_AHEAD_MS / 60_000)]
    Ahead,
    /// The reported time is after the receipt, or too long before it.
    #[error("the event time is after the receipt, or more than {} days before it", limits::EVENT_AGE_MS / 86_400_000)]
    At,
    /// A name or text is empty or over its bound.
    #[error(
        "an event's name must have 1 to {} bytes, and its properties at most {}",
        limits::NAME_BYTES,
        limits::PROPERTIES_BYTES
    )]
    Length,
    /// The id has the kind that only ties pairs of visitors; no visitor is seen with such an id.
    #[error("kind {} is reserved for pairs of visitors: a visitor cannot be seen with it", KindCode::PAIR.0)]
    Kind,
    /// The list of segments is empty or too long.
    #[error("a fact must write 1 to {} segments", limits::SEGMENT_WRITES)]
    Segments,
    /// A segment is already expired or expires after 2100, or has too many attributes.
    #[error(
        "a segment must expire after its receipt and by the end of 2100, and have at most {} attributes",
        limits::SEGMENT_ATTRIBUTES
    )]
    Expiry,
    /// A track event has the name of page views, under which it would never count as a page view.
    #[error("the event name `{PAGE}` is reserved: send a page view as an event of the type page")]
    ReservedName,
    /// The value is negative or over its bound.
    #[error("a value must be 0 to {} micros", limits::VALUE_MICROS)]
    Value,
    /// The list of attributes is empty or too long.
    #[error("a fact must write 1 to {} attributes", limits::ATTRIBUTE_WRITES)]
    Attributes,
    /// The name is no valid attribute name.
    #[error("{}", DictionaryError::BadName)]
    Name,
    /// The attribute's value is over a bound.
    #[error(transparent)]
    Attribute(#[from] ValueError),
}

impl FactError {
    /// Stable machine-readable code for answers and metrics.
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
    /// Stamp of the fact's writes.
    #[must_use]
    pub fn stamp(&self) -> WriteStamp {
        WriteStamp::new(self.at, self.received, self.position)
    }

    /// Whether the fact is an activity of the person, such as a page view, a purchase or a click. An impression is
    /// none.
    #[must_use]
    pub fn is_activity(&self) -> bool {
        match &self.what {
            FactKind::Page { .. } | FactKind::Track { .. } => true,
            FactKind::Action { action_type, .. } => *action_type != ActionType::IMPRESSION,
            FactKind::Alias { .. } | FactKind::Withdrawal | FactKind::Segments { .. } | FactKind::Attributes { .. } => {
                false
            }
            FactKind::Exposure { .. }
            | FactKind::OfferCode { .. }
            | FactKind::Cancellation { .. }
            | FactKind::Erasure { .. } => false,
            FactKind::Evidence { .. } => false,
        }
    }

    /// Whether only the admin API may send the fact; an edge may only send facts about the visitor of a request.
    #[must_use]
    pub fn is_admins(&self) -> bool {
        match &self.what {
            FactKind::Cancellation { .. } | FactKind::Evidence { .. } => true,
            FactKind::Erasure { .. } => self.visitor == VisitorId::ANONYMOUS,
            _ => false,
        }
    }

    /// Checks a fact from outside against its bounds and this clock.
    ///
    /// # Errors
    /// The first violated bound.
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
        Some(v) if !(Micros::ZERO..=limits::VALUE_MICROS).contains(&v) => Err(FactError::Value),
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
    fn a_segment_expires_after_its_receipt_and_by_the_end_of_2100() {
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
    fn a_fact_has_1_to_64_attributes_with_valid_names_and_values() {
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
        assert_eq!(track(Some(Micros::new(5)), PURCHASE), Ok(()));
        assert_eq!(track(Some(Micros::new(-5)), PURCHASE), Err("value_out_of_range"));
        assert_eq!(track(None, ""), Err("too_long"));
        assert_eq!(track(None, &"x".repeat(limits::NAME_BYTES + 1)), Err("too_long"));
    }
}
