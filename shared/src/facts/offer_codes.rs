//! Limited offers: a campaign with at most N recipients gives each of them one offer code, a unique number from 0 on. A
//! code given to a visitor is a fact of this visitor ([`HeldOfferCode`]).
//!
//! The codes of a campaign are divided among [`RANGES`] objects ([`OfferCodeStock`]), each of which exists exactly once
//! in the world: code `n` belongs to object `n` modulo [`RANGES`]. A person's call goes to the object of its bucket
//! range; an object without codes forwards it to the next one. Codes are therefore given in parallel, none twice, and
//! never more than the limit, even if answers are lost. While one code is left, the next person gets one.
//!
//! A person gets no second code because of three records: the snapshot with its code, the browser's ledger until then,
//! and the object's record of visitors with a code ([`VisitorOfferCodes`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::bucket::{BUCKETS, BucketPurpose, PersonRandom};
use crate::base::first_records::{FirstRecord, FirstRecords};
use crate::base::ids::{Millis, TenantId, VisitorId};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::planted::{self, PlantedBug};

/// The number of people that may get a campaign's ads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RecipientLimit {
    /// The most recipients.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = limits::RECIPIENTS)))]
    pub limit: u32,
    /// The share of people that take part, of 10,000, drawn at random; other people get no code. Default: all.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    #[serde(default = "all_people", skip_serializing_if = "is_all_people")]
    pub share: u16,
}

fn all_people() -> u16 {
    BUCKETS
}

fn is_all_people(share: &u16) -> bool {
    *share == BUCKETS
}

impl RecipientLimit {
    /// The range of a person's bucket for the campaign of this id; `None` if the person is not drawn.
    #[must_use]
    pub fn range_of(&self, random: &PersonRandom, campaign: &str) -> Option<u8> {
        let bucket = random.bucket(BucketPurpose::Send(campaign));
        u8::try_from(bucket % u16::from(RANGES)).ok().filter(|_| bucket < self.share)
    }

    /// Whether both values are within their bounds.
    #[must_use]
    pub fn is_within(&self) -> bool {
        (1..=limits::RECIPIENTS).contains(&self.limit) && (1..=BUCKETS).contains(&self.share)
    }
}

/// The first offer code that a visitor got from a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeldOfferCode {
    /// The code.
    pub number: u32,
    /// The edge's receive time of the fact.
    pub at: Millis,
}

impl FirstRecord for HeldOfferCode {
    const MOST: usize = limits::OFFER_CODES;

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

/// Offer codes by the campaign's code.
pub type HeldOfferCodes = FirstRecords<HeldOfferCode>;

/// Objects among which a campaign's offer codes are divided.
pub const RANGES: u8 = 16;

/// The stock of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OfferCodeStock {
    /// Number of its own codes that are given.
    pub given: u32,
    /// The greatest limit up to which no object has any codes left.
    pub empty: u32,
}

/// A given offer code and its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenOfferCode {
    /// The code.
    pub number: u32,
    /// The visitor that called for it; the fact belongs to this visitor.
    pub holder: VisitorId,
}

/// An object's record of a visitor. It is stored for far longer than a snapshot may lack the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitorOfferCodes {
    /// The visitor's person got this code.
    Given(GivenOfferCode),
    /// The call was forwarded and no answer has arrived; the other object may have given a code.
    Asked,
}

/// Records by visitor.
pub type OfferCodeRows = BTreeMap<VisitorId, VisitorOfferCodes>;

/// Records to store by visitor; `None` deletes a record.
pub type OfferCodeWrites = BTreeMap<VisitorId, Option<VisitorOfferCodes>>;

/// A call of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferCall {
    /// The tenant of the campaign.
    pub tenant: TenantId,
    /// The campaign's code.
    pub campaign: u32,
    /// The campaign's limit in the caller's catalogue.
    pub limit: u32,
    /// The object that is called: 0 to less than [`RANGES`].
    pub range: u8,
    /// The number of objects called before.
    pub asked: u8,
    /// Whether one of them may have given a code in an answer that was lost.
    pub again: bool,
    /// The calling visitor.
    pub own: VisitorId,
    /// All visitors of its person according to its snapshots, itself included; at most [`limits::STRICT_MEMBERS`].
    pub members: Vec<VisitorId>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferStep {
    /// The person's code; `None` if there is none left.
    Answer(Option<GivenOfferCode>),
    /// The next object to call; the caller must pass its answer to [`OfferCodeStock::passed`].
    Forward(OfferCall),
}

impl OfferCodeStock {
    /// Takes a call. `rows` has the records of the call's members.
    pub fn call(&mut self, rows: &OfferCodeRows, call: &OfferCall) -> (OfferStep, OfferCodeWrites) {
        let held = call.members.iter().filter_map(|member| match rows.get(member)? {
            // The code of a visitor that was cut from the person no longer belongs to the person.
            VisitorOfferCodes::Given(given) => Some(*given).filter(|given| {
                planted::is_active(PlantedBug::CutVisitorKeepsOfferCode) || call.members.contains(&given.holder)
            }),
            VisitorOfferCodes::Asked => None,
        });
        if let Some(given) = { held }.next() {
            return (OfferStep::Answer(Some(given)), OfferCodeWrites::new());
        }
        let number = u64::from(call.range) + u64::from(RANGES) * u64::from(self.given);
        if let Some(number) = u32::try_from(number).ok().filter(|number| *number < call.limit) {
            self.given += 1;
            let given = GivenOfferCode { number, holder: call.own };
            return (OfferStep::Answer(Some(given)), call.remember(Some(VisitorOfferCodes::Given(given))));
        }
        let again = call.again || call.members.iter().any(|member| rows.get(member) == Some(&VisitorOfferCodes::Asked));
        if call.asked + 1 >= RANGES || (self.empty >= call.limit && !again) {
            return (OfferStep::Answer(None), OfferCodeWrites::new());
        }
        let next = OfferCall { range: (call.range + 1) % RANGES, asked: call.asked + 1, again, ..call.clone() };
        (OfferStep::Forward(next), call.remember(Some(VisitorOfferCodes::Asked)))
    }

    /// Takes the answer to a forwarded call. `None` means that no object has a code left: the last object in the chain
    /// has called, or knows of, all others.
    pub fn passed(&mut self, forwarded: &OfferCall, answer: Option<GivenOfferCode>) -> OfferCodeWrites {
        if answer.is_none() {
            self.empty = self.empty.max(forwarded.limit);
        }
        forwarded.remember(answer.map(VisitorOfferCodes::Given))
    }
}

impl OfferCall {
    /// Writes a record for the calling visitor and for the smallest one, whose range another browser of the person
    /// uses.
    fn remember(&self, row: Option<VisitorOfferCodes>) -> OfferCodeWrites {
        let smallest = self.members.iter().min().copied().unwrap_or(self.own);
        OfferCodeWrites::from([(self.own, row), (smallest, row)])
    }
}
