//! Strict caps at the edge: what the object of a request's visitor is asked, and what such an object does with a call.

use std::collections::BTreeMap;

use causeway_shared::actions::{Action, InsertionHash, Verb};
use causeway_shared::catalogue::{Compiled, Offer};
use causeway_shared::identity::Recognised;
use causeway_shared::ids::{InsertionId, Millis, TenantId, VisitorId};
use causeway_shared::limits;
use causeway_shared::strict::{Ask, Call, Candidate, Claim, Entries, Links, Object, Seen, Step, StrictCap, Wanted};
use causeway_shared::time::Minute;
use causeway_shared::wire::strict as wire;

use crate::answer::{Head, Outcome};
use crate::engine::Site;
use crate::hop::{self, Class, Hop};
use crate::visit::Visit;

fn hop(tenant: &TenantId, call: &Call) -> Hop {
    Hop { class: Class::Persons, object: format!("{tenant}:{}", call.to), call: wire::encode_call(tenant, call) }
}

/// Asks whether an impression counts.
pub(crate) fn confirm(site: &Site, visitor: VisitorId, insertion: InsertionId) -> Hop {
    let ask = Ask::Confirm(InsertionHash::of(insertion));
    hop(&site.id, &Call { to: visitor, links: None, entries: Entries::new(), ask })
}

/// Asks which of these ads may be placed: by placement the places of its choices among the catalogue's.
pub(crate) fn claim(visit: &Visit, who: &Recognised, choices: &[Vec<usize>], insertions: &[InsertionId]) -> Hop {
    let catalogue = &visit.catalogue.compiled;
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    // The best of each placement first: no placement takes all that may be asked for.
    let longest = choices.iter().map(Vec::len).max().unwrap_or_default();
    for place in (0..longest).flat_map(|rank| choices.iter().filter_map(move |of| of.get(rank))) {
        let next = places.len();
        places.entry(*place).or_insert(next);
    }
    places.retain(|_, number| *number < limits::STRICT_CANDIDATES);
    let mut offers: Vec<(usize, &Offer)> =
        places.iter().filter_map(|(place, number)| Some((*number, catalogue.offers.get(*place)?))).collect();
    offers.sort_unstable_by_key(|(number, _)| *number);
    let offers: Vec<&Offer> = offers.into_iter().map(|(_, offer)| offer).collect();
    let wanted = insertions.iter().zip(choices).map(|(insertion, choices)| Wanted {
        insertion: InsertionHash::of(*insertion),
        choices: choices.iter().filter_map(|place| places.get(place).copied()).collect(),
    });
    let claim = Claim {
        wanted: wanted.filter(|wanted| !wanted.choices.is_empty()).collect(),
        seen: seen(who, &offers),
        candidates: offers.into_iter().map(|offer| candidate(catalogue, offer)).collect(),
    };
    let links = Some(Links { epoch: who.view.epoch_of(who.visitor), members: hop::members(who) });
    hop(&visit.site.id, &Call { to: who.visitor, links, entries: Entries::new(), ask: Ask::Claim(claim) })
}

fn candidate(catalogue: &Compiled, offer: &Offer) -> Candidate {
    let caps = catalogue.bounds(offer).filter(|bound| bound.cap.verb == Verb::IMPRESSION);
    let caps = caps.map(|bound| StrictCap { level: bound.level, limit: bound.cap.limit, window: bound.cap.window });
    Candidate { entity: offer.entity, caps: caps.collect() }
}

/// The person's impressions that one of the ads' caps may count, the newest first.
fn seen(who: &Recognised, offers: &[&Offer]) -> Vec<Seen> {
    let counts = |action: &Action| {
        action.verb == Verb::IMPRESSION
            && offers
                .iter()
                .any(|offer| offer.capped_at().any(|level| action.entity.at(level) == offer.entity.at(level)))
    };
    let actions = who.counted().actions();
    let mut seen: Vec<Seen> = actions
        .iter()
        .flat_map(|packed| packed.iter())
        .filter(counts)
        .map(|action| Seen { insertion: action.insertion, entity: action.entity, minute: action.minute })
        .collect();
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.minute));
    seen.truncate(limits::STRICT_SEEN);
    seen
}

/// What was granted, by insertion: the ad's code.
pub(crate) type Granted = BTreeMap<InsertionHash, u32>;

/// Reads what was granted; `None` where no object answered.
pub(crate) fn granted(answer: &[u8]) -> Option<Granted> {
    let answer = wire::decode_answer(answer)?;
    Some(answer.granted.into_iter().map(|(insertion, entry)| (insertion, entry.entity.ad)).collect())
}

/// One call of an object with what it stores: gives what it is to store (in the place of facts) and the answer, or the
/// call to forward. Status 400 changes nothing: state or call are not of their form.
#[must_use]
pub fn object(state: &[u8], call: &[u8], now: Millis) -> Outcome {
    let Some((mut object, (tenant, call))) = wire::decode_object(state).zip(wire::decode_call(call)) else {
        return Outcome::empty(400);
    };
    let (head, body) = match object.call(call, Minute::at(now)) {
        Step::Answer(answer) => (Head { status: 200, ..Head::default() }, wire::encode_answer(&answer)),
        Step::Forward(call) => {
            let Hop { object, call, class } = hop(&tenant, &call);
            (Head { hop: Some(object), class, ..Head::default() }, call)
        }
    };
    Outcome { head, body, facts: wire::encode_object(&object) }
}

/// Gives an object the answer to the call that it forwarded.
#[must_use]
pub fn passed(state: &[u8], forwarded: &[u8], answer: &[u8], now: Millis) -> Outcome {
    let read = |state| {
        Some::<(Object, _, _)>((
            wire::decode_object(state)?,
            wire::decode_call(forwarded)?.1,
            wire::decode_answer(answer)?,
        ))
    };
    let Some((mut object, forwarded, answered)) = read(state) else { return Outcome::empty(400) };
    object.passed(&forwarded, &answered, Minute::at(now));
    let head = Head { status: 200, ..Head::default() };
    Outcome { head, body: answer.to_vec(), facts: wire::encode_object(&object) }
}
