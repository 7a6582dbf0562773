//! Strict caps at the edge: the call to the object of a request's visitor, and the handling of that call in the object.

use std::collections::BTreeMap;

use causeway_shared::ads::catalogue::{CandidateAd, CompiledCatalogue};
use causeway_shared::ads::strict_caps::{
    Candidate, CapCall, CapClaim, CapRequest, CapStep, Entries, KnownLinks, SeenImpression, StrictCap, WantedPlacement,
};
use causeway_shared::base::ids::{InsertionId, Millis, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{ActionType, AdAction, InsertionHash};
use causeway_shared::identity::RecognisedVisitor;
use causeway_shared::wire::strict_caps as wire;

use crate::objects::object_call::{self, InvalidObjectCall, ObjectCall, ObjectClass, ObjectNext, ObjectStep};
use crate::site::Site;
use crate::state::request_state::RequestState;

fn object_call(tenant: &TenantId, call: &CapCall) -> ObjectCall {
    let (object, body) = (format!("{tenant}:{}", call.to), wire::encode_call(tenant, call));
    ObjectCall { class: ObjectClass::StrictCaps, object, body }
}

/// The call that asks whether an impression counts.
pub(crate) fn ask_confirmation(site: &Site, visitor: VisitorId, insertion: InsertionId) -> ObjectCall {
    let ask = CapRequest::Confirm(InsertionHash::of(insertion));
    object_call(&site.id, &CapCall { to: visitor, links: None, entries: Entries::new(), ask })
}

/// The call that asks which of these ads may be placed. `choices` has, for each placement, indices of the catalogue's
/// ads, best first.
pub(crate) fn ask_grants(
    state: &RequestState,
    recognised: &RecognisedVisitor,
    choices: &[Vec<usize>],
    insertions: &[InsertionId],
) -> ObjectCall {
    let catalogue = &state.catalogue.compiled;
    // The best ad of each placement comes first, then the second best, so that no placement uses up the whole bound.
    let longest = choices.iter().map(Vec::len).max().unwrap_or_default();
    let mut candidates: Vec<usize> = Vec::new();
    for index in (0..longest).flat_map(|order| choices.iter().filter_map(move |of| of.get(order))) {
        if candidates.len() < limits::STRICT_CANDIDATES && !candidates.contains(index) {
            candidates.push(*index);
        }
    }
    candidates.retain(|index| *index < catalogue.offers.len());
    let numbers: BTreeMap<usize, usize> = candidates.iter().copied().zip(0..).collect();
    let offers: Vec<&CandidateAd> = candidates.iter().filter_map(|index| catalogue.offers.get(*index)).collect();
    let wanted = insertions.iter().zip(choices).map(|(insertion, choices)| WantedPlacement {
        insertion: InsertionHash::of(*insertion),
        choices: choices.iter().filter_map(|index| numbers.get(index).copied()).collect(),
    });
    let claim = CapClaim {
        wanted: wanted.filter(|wanted| !wanted.choices.is_empty()).collect(),
        seen: seen_impressions(recognised, &offers),
        candidates: offers.into_iter().map(|offer| cap_candidate(catalogue, offer)).collect(),
    };
    let members = object_call::select_members(recognised);
    let links = Some(KnownLinks { epoch: recognised.view.epoch_of(recognised.visitor), members });
    object_call(
        &state.site.id,
        &CapCall { to: recognised.visitor, links, entries: Entries::new(), ask: CapRequest::Claim(claim) },
    )
}

fn cap_candidate(catalogue: &CompiledCatalogue, offer: &CandidateAd) -> Candidate {
    let caps = catalogue.bounds(offer).filter(|bound| bound.cap.action_type == ActionType::IMPRESSION);
    let caps = caps.map(|bound| StrictCap { level: bound.level, limit: bound.cap.limit, window: bound.cap.window });
    Candidate { entity: offer.entity, caps: caps.collect() }
}

/// The person's impressions that a cap of one of the ads may count, newest first, at most [`limits::STRICT_SEEN`].
fn seen_impressions(recognised: &RecognisedVisitor, offers: &[&CandidateAd]) -> Vec<SeenImpression> {
    let counts = |action: &AdAction| {
        action.action_type == ActionType::IMPRESSION
            && offers
                .iter()
                .any(|offer| offer.capped_at().any(|level| action.entity.at(level) == offer.entity.at(level)))
    };
    let actions = recognised.counted().actions();
    let mut seen: Vec<SeenImpression> = actions
        .iter()
        .flat_map(|packed| packed.iter())
        .filter(counts)
        .map(|action| SeenImpression { insertion: action.insertion, entity: action.entity, minute: action.minute })
        .collect();
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.minute));
    seen.truncate(limits::STRICT_SEEN);
    seen
}

/// The code of the ad that was granted, by insertion.
pub(crate) type GrantedAds = BTreeMap<InsertionHash, u32>;

/// Reads the answer to [`ask_grants`] or [`ask_confirmation`]; `None` if the object did not answer in time.
pub(crate) fn read_grants(answer: Option<&[u8]>) -> Option<GrantedAds> {
    let answer = wire::decode_answer(answer?)?;
    Some(answer.granted.iter().map(|(insertion, entry)| (*insertion, entry.entity.ad)).collect())
}

/// Handles a call of a strict-cap object. `stored` is the object's last stored state; empty for a new object.
///
/// # Errors
/// [`InvalidObjectCall`].
pub fn call_strict_caps(stored: &[u8], call: &[u8], now: Millis) -> Result<ObjectStep<Vec<u8>>, InvalidObjectCall> {
    let mut object = wire::decode_object(stored).ok_or(InvalidObjectCall)?;
    let (tenant, call) = wire::decode_call(call).ok_or(InvalidObjectCall)?;
    let next = match object.call(call, Minute::at(now)) {
        CapStep::Answer(answer) => ObjectNext::Answer(wire::encode_answer(&answer)),
        CapStep::Forward(call) => ObjectNext::Forward(object_call(&tenant, &call)),
    };
    Ok(ObjectStep { store: wire::encode_object(&object), next })
}

/// Handles the answer to a call that a strict-cap object forwarded. Returns the state to store. The object answers with
/// the answer that it received.
///
/// # Errors
/// [`InvalidObjectCall`].
pub fn receive_strict_caps(
    stored: &[u8],
    forwarded: &[u8],
    answer: &[u8],
    now: Millis,
) -> Result<Vec<u8>, InvalidObjectCall> {
    let mut object = wire::decode_object(stored).ok_or(InvalidObjectCall)?;
    let (_, forwarded) = wire::decode_call(forwarded).ok_or(InvalidObjectCall)?;
    let answered = wire::decode_answer(answer).ok_or(InvalidObjectCall)?;
    object.passed(&forwarded, &answered, Minute::at(now));
    Ok(wire::encode_object(&object))
}
