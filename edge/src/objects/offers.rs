//! Limited offers at the edge: the offer codes that a request's person may get, the call to the object of its range,
//! and the handling of that call in the object.

use causeway_shared::ads::catalogue::OfferLimit;
use causeway_shared::ads::decision::Holding;
use causeway_shared::base::ids::TenantId;
use causeway_shared::base::limits;
use causeway_shared::facts::offer_codes::{
    GivenOfferCode, OfferCall, OfferCodeStock, OfferCodeWrites, OfferStep, RecipientLimit,
};
use causeway_shared::identity::RecognisedVisitor;
use causeway_shared::wire::offer_codes as wire;

use crate::objects::object_call::{self, InvalidObjectCall, ObjectCall, ObjectClass, ObjectNext, ObjectStep};
use crate::state::request_state::{RequestState, person_random};

/// Offer codes by campaign: the campaigns in which a person has a code or may get one.
pub(crate) type OfferHoldings = std::collections::BTreeMap<u32, Holding>;

/// The campaigns in which a person has a code or may get one. A person whose history was not read may have a code
/// already, and gets no new one.
pub(crate) fn find_holdings(state: &RequestState, recognised: &RecognisedVisitor) -> OfferHoldings {
    let limited = &state.catalogue.compiled.limited;
    if limited.is_empty() {
        return OfferHoldings::default();
    }
    let counted = recognised.counted();
    let (held, random) = (counted.offer_codes(), person_random(&counted));
    let holding = |of: &OfferLimit| {
        if let Some(offer_code) = held.get(of.campaign) {
            return Some((of.campaign, Holding::Has(offer_code.number)));
        }
        let is_open = !state.catalogue.allocation.given_out.contains(&of.campaign);
        let is_drawn = || of.recipients.range_of(&random, &of.id).is_some();
        (is_open && !state.is_history_unread && is_drawn()).then_some((of.campaign, Holding::May))
    };
    limited.iter().filter_map(holding).collect()
}

/// Limited offers that an object reported as sold out: tenant, campaign and the number of codes at that time.
#[derive(Debug, Default)]
pub(crate) struct SoldOutOffers(Vec<(TenantId, u32, u32)>);

impl SoldOutOffers {
    pub(crate) fn add(&mut self, state: &RequestState, campaign: u32) {
        if self.contains(state, campaign) {
            return;
        }
        if self.0.len() >= limits::EMPTY_OFFERS {
            self.0.clear();
        }
        self.0.extend(Self::entry(state, campaign));
    }

    pub(crate) fn contains(&self, state: &RequestState, campaign: u32) -> bool {
        Self::entry(state, campaign).is_some_and(|entry| self.0.contains(&entry))
    }

    fn entry(state: &RequestState, campaign: u32) -> Option<(TenantId, u32, u32)> {
        let of = state.catalogue.compiled.limited.iter().find(|of| of.campaign == campaign)?;
        Some((state.site.id.clone(), campaign, of.recipients.limit))
    }
}

/// The call for a code of a campaign; `None` if the campaign is not limited, or the person was not drawn.
pub(crate) fn ask_code(state: &RequestState, recognised: &RecognisedVisitor, campaign: u32) -> Option<ObjectCall> {
    let of = state.catalogue.compiled.limited.iter().find(|of| of.campaign == campaign)?;
    let RecipientLimit { limit, .. } = of.recipients;
    let range = of.recipients.range_of(&person_random(&recognised.counted()), &of.id)?;
    let (tenant, own, members) = (state.site.id.clone(), recognised.visitor, object_call::select_members(recognised));
    Some(object_call(&OfferCall { tenant, campaign, limit, range, asked: 0, again: false, own, members }))
}

/// An object's answer to [`ask_code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferAnswer {
    /// The person's code.
    Code(GivenOfferCode),
    /// No code is left.
    SoldOut,
    /// No answer came in time.
    Missing,
}

/// Reads an object's answer to [`ask_code`].
pub(crate) fn read_code(answer: Option<&[u8]>) -> OfferAnswer {
    match answer.and_then(wire::decode_answer) {
        Some(Some(given)) => OfferAnswer::Code(given),
        Some(None) => OfferAnswer::SoldOut,
        None => OfferAnswer::Missing,
    }
}

fn object_call(call: &OfferCall) -> ObjectCall {
    let OfferCall { tenant, campaign, range, .. } = call;
    let object = format!("{tenant}:{campaign}:{range}");
    ObjectCall { class: ObjectClass::Offers, object, body: wire::encode_call(call) }
}

/// One row that an offer object writes; `None` deletes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowWrite {
    /// The row's key.
    pub key: String,
    /// Its new value.
    pub value: Option<String>,
}

/// The keys of the rows that an offer object reads for a call.
///
/// # Errors
/// [`InvalidObjectCall`].
pub fn offer_row_keys(call: &[u8]) -> Result<Vec<String>, InvalidObjectCall> {
    wire::decode_call(call).map(|call| wire::stock_keys(&call)).ok_or(InvalidObjectCall)
}

/// Handles a call of an offer object. `rows` are the values of [`offer_row_keys`] in their order.
///
/// # Errors
/// [`InvalidObjectCall`].
pub fn call_offers(rows: &[Option<String>], call: &[u8]) -> Result<ObjectStep<Vec<RowWrite>>, InvalidObjectCall> {
    let call = wire::decode_call(call).ok_or(InvalidObjectCall)?;
    let (mut stock, rows) = wire::decode_rows(&call, join_rows(rows).as_bytes()).ok_or(InvalidObjectCall)?;
    let (step, writes) = stock.call(&rows, &call);
    let next = match step {
        OfferStep::Answer(given) => ObjectNext::Answer(wire::encode_answer(given)),
        OfferStep::Forward(call) => ObjectNext::Forward(object_call(&call)),
    };
    Ok(ObjectStep { store: row_writes(stock, &writes), next })
}

/// Handles the answer to a call that an offer object forwarded. Returns the rows that the object writes. The object
/// answers with the answer that it received.
///
/// # Errors
/// [`InvalidObjectCall`].
pub fn receive_offers(
    rows: &[Option<String>],
    forwarded: &[u8],
    answer: &[u8],
) -> Result<Vec<RowWrite>, InvalidObjectCall> {
    let call = wire::decode_call(forwarded).ok_or(InvalidObjectCall)?;
    let given = wire::decode_answer(answer).ok_or(InvalidObjectCall)?;
    let (mut stock, _) = wire::decode_rows(&call, join_rows(rows).as_bytes()).ok_or(InvalidObjectCall)?;
    let writes = stock.passed(&call, given);
    Ok(row_writes(stock, &writes))
}

fn join_rows(rows: &[Option<String>]) -> String {
    rows.iter().map(|row| row.as_deref().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn row_writes(stock: OfferCodeStock, writes: &OfferCodeWrites) -> Vec<RowWrite> {
    let text = wire::encode_rows(stock, writes);
    let write = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        Some(RowWrite { key: key.to_owned(), value: (!value.is_empty()).then(|| value.to_owned()) })
    };
    text.lines().filter_map(write).collect()
}
