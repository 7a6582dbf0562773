//! Limited offers (S4.7): a campaign that has only so many recipients gives each of them one unit, a number from 0 on that
//! nobody else has. Which person a unit went to is a fact of the visitor that got it ([`HeldSlot`]).
//!
//! A campaign's numbers are dealt to [`RANGES`] objects ([`SlotStock`]), of which there is exactly one each in the world: the
//! number `n` to the object `n` modulo [`RANGES`]. A person asks the object of its own bucket range; one that has given out
//! its numbers asks the next. So units are given in parallel, never one twice, and never more than there are, whatever is
//! lost on the way; and as long as one is left, the next person gets one.
//!
//! What keeps a person from getting two is the snapshot that holds its unit, the browser's ledger until then, and what the
//! object remembers of whom it gave one ([`VisitorSlots`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::bucket::{BUCKETS, BucketPurpose, PersonRandom};
use crate::base::first_records::{FirstRecord, FirstRecords};
use crate::base::ids::{Millis, TenantId, VisitorId};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::planted::{self, PlantedBug};

/// How many people may get a campaign's ads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipientLimit {
    /// At most so many: 1 to [`limits::RECIPIENTS`].
    pub limit: u32,
    /// Of how many of 10,000 people, drawn at random; the others get none. Default: all of them.
    #[serde(default = "everybody", skip_serializing_if = "is_everybody")]
    pub share: u16,
}

fn everybody() -> u16 {
    BUCKETS
}

fn is_everybody(share: &u16) -> bool {
    *share == BUCKETS
}

impl RecipientLimit {
    /// The range of buckets that a person falls in, of the campaign of this id; `None` for one that is not drawn.
    #[must_use]
    pub fn range_of(&self, random: &PersonRandom, campaign: &str) -> Option<u8> {
        let bucket = random.bucket(BucketPurpose::Send(campaign));
        u8::try_from(bucket % u16::from(RANGES)).ok().filter(|_| bucket < self.share)
    }

    /// Whether it is within its bounds.
    #[must_use]
    pub fn is_within(&self) -> bool {
        (1..=limits::RECIPIENTS).contains(&self.limit) && (1..=BUCKETS).contains(&self.share)
    }
}

/// The unit that a visitor got first of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeldSlot {
    /// Its number.
    pub number: u32,
    /// When the edge received the fact.
    pub at: Millis,
}

impl FirstRecord for HeldSlot {
    const MOST: usize = limits::UNITS;

    fn join(self, other: Self) -> Self {
        if (other.at, other.number) < (self.at, self.number) { other } else { self }
    }

    fn put(&self, to: &mut Vec<u8>) {
        packed::put(to, u64::from(self.number));
        packed::put(to, self.at);
    }

    fn read(from: &mut PackedReader<'_>) -> Option<Self> {
        Some(Self { number: u32::try_from(from.number()?).ok()?, at: from.number()? })
    }
}

/// Units by the campaign's code.
pub type HeldSlots = FirstRecords<HeldSlot>;

/// Objects that a campaign's units are dealt to.
pub const RANGES: u8 = 16;

/// What one object has given, and knows of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotStock {
    /// How many of its own numbers are given.
    pub given: u32,
    /// Up to this limit no object has any left.
    pub empty: u32,
}

/// A unit that was given, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenSlot {
    /// Its number.
    pub number: u32,
    /// The visitor that asked for it, whose fact it is.
    pub holder: VisitorId,
}

/// What an object remembers of a visitor, for far longer than a snapshot may not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitorSlots {
    /// Its person got this.
    Given(GivenSlot),
    /// Another object was asked for it, and its answer has not come: it may have given one.
    Asked,
}

/// Rows by visitor.
pub type SlotRows = BTreeMap<VisitorId, VisitorSlots>;

/// What is to be remembered of visitors from now on, `None` for nothing.
pub type SlotWrites = BTreeMap<VisitorId, Option<VisitorSlots>>;

/// A call of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferCall {
    /// Whose campaign it is.
    pub tenant: TenantId,
    /// Its code.
    pub campaign: u32,
    /// Its limit, as the caller's catalogue says.
    pub limit: u32,
    /// Which object is called: 0 to before [`RANGES`].
    pub range: u8,
    /// How many of the others were asked before.
    pub asked: u8,
    /// Whether one of them may have given a unit already, and the answer got lost.
    pub again: bool,
    /// The visitor that asks.
    pub own: VisitorId,
    /// All of its person that its snapshots name, itself among them; at most [`limits::STRICT_MEMBERS`].
    pub members: Vec<VisitorId>,
}

/// What comes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferStep {
    /// The person's unit, or none: there is none left.
    Answer(Option<GivenSlot>),
    /// Another object is to be asked, and its answer to be given to [`SlotStock::passed`].
    Forward(OfferCall),
}

impl SlotStock {
    /// Takes a call; `rows` is what is remembered of its members.
    pub fn call(&mut self, rows: &SlotRows, call: &OfferCall) -> (OfferStep, SlotWrites) {
        let held = call.members.iter().filter_map(|member| match rows.get(member)? {
            // Of somebody who was cut from the person since it is not the person's any more.
            VisitorSlots::Given(given) => Some(*given).filter(|given| {
                planted::is_active(PlantedBug::WhoWasCutKeepsTheUnit) || call.members.contains(&given.holder)
            }),
            VisitorSlots::Asked => None,
        });
        if let Some(given) = { held }.next() {
            return (OfferStep::Answer(Some(given)), SlotWrites::new());
        }
        let number = u64::from(call.range) + u64::from(RANGES) * u64::from(self.given);
        if let Some(number) = u32::try_from(number).ok().filter(|number| *number < call.limit) {
            self.given += 1;
            let given = GivenSlot { number, holder: call.own };
            return (OfferStep::Answer(Some(given)), call.remember(Some(VisitorSlots::Given(given))));
        }
        let again = call.again || call.members.iter().any(|member| rows.get(member) == Some(&VisitorSlots::Asked));
        if call.asked + 1 >= RANGES || (self.empty >= call.limit && !again) {
            return (OfferStep::Answer(None), SlotWrites::new());
        }
        let next = OfferCall { range: (call.range + 1) % RANGES, asked: call.asked + 1, again, ..call.clone() };
        (OfferStep::Forward(next), call.remember(Some(VisitorSlots::Asked)))
    }

    /// Takes the answer to a call that was forwarded. Without a unit there is none left anywhere: the object that was
    /// asked last has asked, or knows of, all others.
    pub fn passed(&mut self, forwarded: &OfferCall, answer: Option<GivenSlot>) -> SlotWrites {
        if answer.is_none() {
            self.empty = self.empty.max(forwarded.limit);
        }
        forwarded.remember(answer.map(VisitorSlots::Given))
    }
}

impl OfferCall {
    /// Of the visitor that asks, and of the smallest, by whose range another browser of the person asks.
    fn remember(&self, row: Option<VisitorSlots>) -> SlotWrites {
        let smallest = self.members.iter().min().copied().unwrap_or(self.own);
        SlotWrites::from([(self.own, row), (smallest, row)])
    }
}
