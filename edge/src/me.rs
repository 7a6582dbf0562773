//! `GET /v1/me`: what is held on this visitor; it reads, and changes nothing. `DELETE /v1/me`: the request to erase it.

use causeway_shared::actions::{Dimension, Filter, Verb, group};
use causeway_shared::config::ProofPolicy;
use causeway_shared::experiment::Exposure;
use causeway_shared::fact::{Fact, Scope, What};
use causeway_shared::identity::{Claim, IdentityCookie, Origin, Recognised};
use causeway_shared::ids::{FactId, VisitorId};
use causeway_shared::profile::Totals;
use causeway_shared::time::Minute;
use causeway_shared::units::Unit;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::Outcome;
use crate::claims::{self, Claims, UserBody};
use crate::cookies::{self, Jar};
use crate::engine::{Call, Incoming, Routed, Site, pack};
use crate::permission;
use crate::visit::Visit;

/// What is kept of a call until its visitor is recognised.
#[derive(Debug)]
pub(crate) struct MeCall {
    /// Whether the proof in the request is of the member whose visitor the cookie names; nothing is known without either.
    own: Option<bool>,
}

#[derive(Serialize)]
struct Sums {
    pages: u64,
    sessions: u64,
    purchases: u64,
    revenue_micros: i64,
}

impl From<Totals> for Sums {
    fn from(t: Totals) -> Self {
        Self { pages: t.pages, sessions: t.sessions, purchases: t.purchases, revenue_micros: t.revenue }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    visitor: Option<String>,
    person: Option<Person>,
    own: Sums,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<Sums>,
    segments: Vec<InSegment>,
    attributes: Map<String, Value>,
    experiments: Vec<Exposed>,
    units: Vec<Got>,
    actions: Vec<Acted<'a>>,
    kv_reads: u8,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [&'static str],
}

/// The answer to a request to erase.
#[derive(Serialize)]
struct Erasing {
    receipt: String,
    scope: &'static str,
}

/// How often an action is held.
#[derive(Serialize)]
struct Acted<'a> {
    action: &'a str,
    count: u64,
}

/// A segment that holds, and until when.
#[derive(Serialize)]
struct InSegment {
    segment: u32,
    expires_ms: u64,
}

/// The arm of an experiment that was seen first.
#[derive(Serialize)]
struct Exposed {
    experiment: String,
    arm: String,
    since_ms: u64,
    mixed: bool,
}

/// The unit of a limited offer.
#[derive(Serialize)]
struct Got {
    campaign: String,
    unit: u32,
    since_ms: u64,
}

#[derive(Serialize)]
struct Person {
    devices: u32,
}

/// Reads the cookies and the proof, if the request carries one.
pub(crate) fn begin(incoming: Incoming<'_>) -> Routed {
    let jar = cookies::read(incoming.request, &incoming.site, incoming.now);
    let permission = permission::standing(incoming.request, jar.identity.is_some(), &incoming.site);
    // Ids and proofs of a GET come in headers and cookies alone, which no bound of the body applies to.
    let taken = claims::take(&incoming, &UserBody::default()).unwrap_or_default();
    // Who proves to be another member than the cookie's sees that one's visitor of this browser, or nobody's: only a
    // decision mints.
    let member = proven(&taken).cloned();
    let tag = jar.identity.as_ref().and_then(|cookie| cookie.tag);
    let own = member.as_ref().zip(tag).and_then(|(claim, tag)| claim.is(tag));
    let notes = jar.refused.into_iter().chain(taken.fault).collect();
    let visit = incoming.visit(&jar, notes, Call::Me(MeCall { own }));
    if !permission.is_full() {
        let answer = nobody(&visit);
        return Routed::Answer(permission::withdraw(answer, Vec::new(), &jar, &incoming.site, incoming.now));
    }
    if jar.identity.is_none() {
        return Routed::Answer(nobody(&visit));
    }
    let arrival = jar.arrival(&incoming.site, incoming.now, member.into_iter().collect());
    Routed::Recognise(Box::new(visit), Box::new(arrival))
}

/// The member whose proof is in the request.
fn proven(claims: &Claims) -> Option<&Claim> {
    claims.taken.iter().find(|claim| claim.unique).filter(|_| claims.proven)
}

/// Whether persons are of those alone who proved to belong to them.
fn proofs_alone(site: &Site) -> bool {
    site.tenant.member_proof == ProofPolicy::Required
}

/// Whom a request erases: the cookie's visitor, with its member where that one proved to be here. Where another member did,
/// that member's visitor of this browser, if it has one: nobody erases somebody else by sharing a browser.
fn whom<'c>(cookie: &IdentityCookie, claims: &'c Claims) -> Option<(VisitorId, Option<&'c Claim>)> {
    let Some((member, tag)) = proven(claims).zip(cookie.tag) else { return Some((cookie.visitor, None)) };
    match member.is(tag) {
        Some(true) => Some((cookie.visitor, Some(member))),
        None => Some((cookie.visitor, None)),
        Some(false) => {
            let own = cookie.earlier.iter().find(|(tag, _)| member.is(*tag) == Some(true));
            own.map(|(_, visitor)| (*visitor, Some(member)))
        }
    }
}

/// `DELETE /v1/me`: one erasure for the queue, acknowledged once it has it; its visitor's cookies go. It needs no permission, as it
/// takes back all there was. With the proof of the visitor's own member it is the whole person's, and names the member:
/// browsers whose logins are not known yet go too (invariants 12 and 14).
pub(crate) fn erase(incoming: &Incoming<'_>) -> Outcome {
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    let taken = claims::take(incoming, &UserBody::default()).unwrap_or_default();
    let Some((visitor, member)) = jar.identity.as_ref().and_then(|cookie| whom(cookie, &taken)) else {
        let message = "there is no visitor of yours to erase: its cookie is needed";
        let expired = cookies::expire(jar.secure).into_iter().filter(|_| jar.any && jar.identity.is_none());
        return Outcome::error(404, "no_visitor", message, None).with_headers(expired);
    };
    // Where a page's word is taken, whoever says so belongs to a person.
    let (scope, id, also) = match member.filter(|_| proofs_alone(site)) {
        Some(claim) => (Scope::Person, Some(claim.id), claim.also.clone()),
        None => (Scope::Visitor, None, Vec::new()),
    };
    let receipt = FactId::of_erasure(visitor);
    let body = Erasing { receipt: receipt.receipt(), scope: scope.name() };
    let mut outcome = Outcome::json(202, &body).with_headers(parting(incoming, &jar, visitor));
    outcome.head.ack = true;
    outcome.head.notes.extend(taken.fault);
    // Each erasure is kept for ever.
    outcome.head.limit = Some(site.events_limit(visitor));
    let what = What::Erasure { scope, id, also };
    pack(&mut outcome, site, vec![Fact { id: receipt, visitor, received: now, at: now, what }]);
    outcome
}

/// The cookies of who was here go. Where it was an earlier visitor of this browser, who is here now stays, and forgets that one;
/// without permission nothing is set, and the next call tells of that one's withdrawal.
fn parting(incoming: &Incoming<'_>, jar: &Jar, erased: VisitorId) -> Vec<(&'static str, String)> {
    let (request, site) = (incoming.request, &incoming.site);
    let Some(cookie) = jar.identity.clone().and_then(|cookie| cookie.without(erased)) else {
        return cookies::expire(jar.secure).into();
    };
    if !permission::standing(request, true, site).is_full() {
        return Vec::new();
    }
    cookies::write_identity(site, jar.secure, &cookie).into_iter().collect()
}

/// The answer for a visitor of ours.
pub(crate) fn finish(visit: Box<Visit>, who: &Recognised) -> Outcome {
    let is_member = match &visit.call {
        Call::Me(MeCall { own: Some(true) }) => true,
        Call::Me(MeCall { own: Some(false) }) => who.origin == Origin::Switched,
        _ => false,
    };
    let proven = is_member && proofs_alone(&visit.site);
    let view = proven.then(|| who.counted().totals().into());
    let person = Person { devices: if proven { who.counted().devices() } else { 1 } };
    let attributes = attributes(&visit, who, proven);
    let (actions, segments) = (acted(&visit, who), segments(&visit, who));
    let (experiments, units) = (exposed(&visit, who, proven), got(&visit, who, proven));
    let held = Held { actions, segments, attributes, experiments, units };
    answer(&visit, Some(who.visitor.to_string()), Some(person), who.view.own(who.visitor), view, held)
}

/// The answer for anybody else: nothing is held.
pub(crate) fn nobody(visit: &Visit) -> Outcome {
    answer(visit, None, None, Totals::default(), None, Held::default())
}

/// What is held beside the sums: of the visitor alone, and of the person attributes, exposures and units,
/// where they may be shown.
#[derive(Default)]
struct Held<'a> {
    actions: Vec<Acted<'a>>,
    segments: Vec<InSegment>,
    attributes: Map<String, Value>,
    experiments: Vec<Exposed>,
    units: Vec<Got>,
}

/// The attributes whose names are known, by name.
fn attributes(visit: &Visit, who: &Recognised, proven: bool) -> Map<String, Value> {
    let own = || who.view.attributes_of(who.visitor).and_then(|packed| packed.to_map()).unwrap_or_default();
    let held = if proven { who.counted().attributes() } else { own() };
    let name = |token| visit.names.get(token).map(|(name, _)| name.to_owned());
    held.iter().filter_map(|(token, value)| Some((name(token)?, value.to_json()))).collect()
}

/// The arms that were seen, by name where the catalogue has one.
fn exposed(visit: &Visit, who: &Recognised, proven: bool) -> Vec<Exposed> {
    let seen = if proven { who.counted().exposures() } else { who.view.exposures_of(who.visitor) };
    let named = |(code, Exposure { arm, at, mixed }): (u32, Exposure)| {
        let experiment = visit.catalogue.compiled.experiments.iter().find(|experiment| experiment.code == code);
        let of_arm = experiment.and_then(|experiment| experiment.arm_of(arm));
        Exposed {
            experiment: experiment.map_or_else(|| code.to_string(), |experiment| experiment.id.clone()),
            arm: of_arm.map_or_else(|| arm.to_string(), |arm| arm.id.clone()),
            since_ms: at,
            mixed,
        }
    };
    seen.iter().map(named).collect()
}

/// The units of limited offers, by campaign's id where the catalogue has it.
fn got(visit: &Visit, who: &Recognised, proven: bool) -> Vec<Got> {
    let held = if proven { who.counted().units() } else { who.view.units_of(who.visitor) };
    let named = |(code, Unit { number, at }): (u32, Unit)| {
        let campaign = visit.catalogue.compiled.limited.iter().find(|limited| limited.campaign == code);
        let campaign = campaign.map_or_else(|| code.to_string(), |limited| limited.id.clone());
        Got { campaign, unit: number, since_ms: at }
    };
    held.iter().map(named).collect()
}

/// The visitor's own segments that have not expired.
fn segments(visit: &Visit, who: &Recognised) -> Vec<InSegment> {
    let held = who.view.segments_of(who.visitor).into_iter().flat_map(|packed| packed.iter());
    let fresh = held.filter(|(_, expiry)| expiry.start_ms() > visit.now);
    fresh.map(|(id, expiry)| InSegment { segment: id.0, expires_ms: expiry.start_ms() }).collect()
}

/// The visitor's own actions by verb, as its snapshot holds them.
fn acted<'a>(visit: &'a Visit, who: &Recognised) -> Vec<Acted<'a>> {
    let own: Vec<_> = who.view.actions_of(who.visitor).into_iter().collect();
    let groups = group(&own, &Filter::default(), &[Dimension::Verb], Minute(0), Minute(u32::MAX)).unwrap_or_default();
    let name = |code: &u32| visit.site.tenant.vocabulary.name_of(Verb(u8::try_from(*code).unwrap_or_default()));
    let shown =
        |(codes, count): (Vec<u32>, u64)| Acted { action: codes.first().and_then(name).unwrap_or("other"), count };
    groups.into_iter().map(shown).collect()
}

fn answer(
    visit: &Visit,
    visitor: Option<String>,
    person: Option<Person>,
    own: Totals,
    view: Option<Sums>,
    held: Held<'_>,
) -> Outcome {
    let body = Answer {
        visitor,
        person,
        own: own.into(),
        view,
        segments: held.segments,
        attributes: held.attributes,
        experiments: held.experiments,
        units: held.units,
        actions: held.actions,
        kv_reads: visit.kv_reads,
        degraded: &visit.notes,
    };
    visit.answer(Outcome::json(200, &body))
}
