//! `GET /v1/me`: what is held on this visitor. It reads, and changes nothing.

use causeway_shared::actions::{Dimension, Filter, Verb, group};
use causeway_shared::identity::Recognised;
use causeway_shared::profile::Totals;
use causeway_shared::time::Minute;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::Outcome;
use crate::claims::{self, UserBody};
use crate::cookies;
use crate::engine::{Call, Incoming, Routed};
use crate::permission;
use crate::visit::Visit;

/// What is kept of a call until its visitor is recognised.
#[derive(Debug)]
pub(crate) struct MeCall {
    /// Whether the visitor's own member proved to be here: the person's view may be shown.
    proven: bool,
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
    actions: Vec<Acted<'a>>,
    kv_reads: u8,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [&'static str],
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

#[derive(Serialize)]
struct Person {
    devices: u32,
}

/// Reads the cookies and the proof, if the request carries one.
pub(crate) fn begin(incoming: Incoming<'_>) -> Routed {
    let jar = cookies::read(incoming.request, &incoming.site, incoming.now);
    let permission = permission::standing(incoming.request, &jar, &incoming.site);
    // Ids and proofs of a GET come in headers and cookies alone, which no bound of the body applies to.
    let taken = claims::take(&incoming, &UserBody::default()).unwrap_or_default();
    let tag = jar.identity.as_ref().and_then(|cookie| cookie.tag);
    let holds = tag.is_some_and(|tag| taken.taken.iter().any(|claim| claim.unique && claim.is(tag) == Some(true)));
    let notes = jar.refused.into_iter().chain(taken.fault).collect();
    let visit = incoming.visit(&jar, notes, Call::Me(MeCall { proven: taken.proven && holds }));
    if !permission.is_full() {
        let answer = nobody(&visit);
        return Routed::Answer(permission::withdraw(answer, &jar, &incoming.site, incoming.now));
    }
    if jar.identity.is_none() {
        return Routed::Answer(nobody(&visit));
    }
    let arrival = jar.arrival(&incoming.site, incoming.now, Vec::new());
    Routed::Recognise(Box::new(visit), Box::new(arrival))
}

/// The answer for a visitor of ours.
pub(crate) fn finish(visit: Visit, who: &Recognised) -> Outcome {
    let proven = matches!(&visit.call, Call::Me(MeCall { proven: true }));
    let view = proven.then(|| who.view.totals(who.visitor).into());
    let person = Person { devices: if proven { who.view.devices(who.visitor) } else { 1 } };
    let attributes = attributes(&visit, who, proven);
    let held = Held { actions: acted(&visit, who), segments: segments(&visit, who), attributes };
    answer(&visit, Some(who.visitor.to_string()), Some(person), who.view.own(who.visitor), view, held)
}

/// The answer for anybody else: nothing is held.
pub(crate) fn nobody(visit: &Visit) -> Outcome {
    answer(visit, None, None, Totals::default(), None, Held::default())
}

/// What is held beside the sums: of the visitor alone, and of the person the attributes, where they may be shown.
#[derive(Default)]
struct Held<'a> {
    actions: Vec<Acted<'a>>,
    segments: Vec<InSegment>,
    attributes: Map<String, Value>,
}

/// The attributes whose names are known, by name.
fn attributes(visit: &Visit, who: &Recognised, proven: bool) -> Map<String, Value> {
    let own = || who.view.attributes_of(who.visitor).and_then(|packed| packed.to_map()).unwrap_or_default();
    let held = if proven { who.view.attributes(who.visitor) } else { own() };
    let name = |token| visit.names.get(token).map(|(name, _)| name.to_owned());
    held.iter().filter_map(|(token, value)| Some((name(token)?, value.to_json()))).collect()
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
        actions: held.actions,
        kv_reads: visit.kv_reads,
        degraded: &visit.notes,
    };
    let mut outcome = Outcome::json(200, &body).with_headers(visit.cors.iter().cloned());
    outcome.head.notes.clone_from(&visit.notes);
    outcome
}
