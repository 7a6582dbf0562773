//! `POST /v1/decide`: one call for all placements of a page.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_shared::config;
use causeway_shared::decision::Holding;
use causeway_shared::fact::{Fact, What};
use causeway_shared::identity::{Claim, IdentityCookie, Origin, Recognised};
use causeway_shared::ids::{FactId, InsertionId, VisitorId};
use causeway_shared::limits;
use causeway_shared::units::Unit;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer::{Outcome, too_large};
use crate::attributes::Given;
use crate::claims::{self, TooLong, UserBody};
use crate::cookies;
use crate::engine::{Call, Incoming, Routed, pack};
use crate::hop::Hop;
use crate::malformed;
use crate::permission::{self, ConsentBody};
use crate::placing::{self, Asked, Decision};
use crate::request::EXPLAIN;
use crate::strict;
use crate::units;
use crate::visit::Visit;

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    placements: Vec<Placement<'a>>,
    #[serde(borrow, default)]
    page: Page<'a>,
    #[serde(borrow, default)]
    user: UserBody<'a>,
    #[serde(borrow, default)]
    consent: ConsentBody<'a>,
    #[serde(default)]
    explain: bool,
    #[serde(default = "yes")]
    page_view: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct Placement<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default)]
    sizes: Vec<[u32; 2]>,
    #[serde(borrow, default)]
    view_type: Cow<'a, str>,
    #[serde(default)]
    floor_micros: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Page<'a> {
    #[serde(borrow, default)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    referrer: Cow<'a, str>,
    #[serde(default)]
    keywords: Vec<String>,
}

/// What is kept of a call until its visitor is recognised.
#[derive(Debug)]
pub(crate) struct DecideCall {
    /// Why nobody is to be recognised, and what a visitor is told who leaves.
    nobody: Option<Box<(&'static str, Outcome)>>,
    placements: Vec<Asked>,
    page: placing::Page,
    /// Whether there is permission.
    permitted: bool,
    pub(crate) counted: bool,
    pub(crate) page_view: bool,
    trace: bool,
    refused: Vec<(String, &'static str)>,
    /// None where nothing is counted.
    pub(crate) attributes: Given,
}

#[derive(Serialize)]
struct Answer<'a> {
    visitor: Option<String>,
    person: Option<Person>,
    decisions: Vec<Decision<'a>>,
    catalogue: Option<String>,
    kv_reads: u8,
    consent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Value>,
    /// Those that were not taken, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'static str>,
    #[serde(flatten)]
    refused: Map<String, Value>,
}

#[derive(Serialize)]
struct Person {
    devices: u32,
    new_visitor: bool,
    bridged: bool,
}

/// Reads the call, its consent and its ids.
pub(crate) fn begin(incoming: Incoming<'_>) -> Routed {
    match read(incoming.body).and_then(|body| recognise(&incoming, body)) {
        Ok(routed) => routed,
        Err(refused) => Routed::Answer(refused.with_headers(incoming.cors)),
    }
}

fn recognise(incoming: &Incoming<'_>, body: Body<'_>) -> Result<Routed, Box<Outcome>> {
    let Incoming { request, site, now, .. } = incoming;
    let permission = permission::of_call(*request, &body.consent, site);
    let jar = cookies::read(*request, site, *now);
    let uncounted = request.uncounted();
    let taken =
        claims::take(incoming, &body.user).map_err(|TooLong(field)| length(&field, limits::ALTERNATE_ID_BYTES))?;
    let vocabulary = &site.tenant.vocabulary;
    let counted = permission.is_full() && uncounted.is_none();
    let nobody = if !permission.is_full() {
        Some(Box::new((permission.code(), permission::withdraw(Outcome::default(), Vec::new(), &jar, site, *now))))
    } else if uncounted.is_some() && jar.identity.as_ref().is_none_or(|own| is_anothers(own, &taken.taken)) {
        Some(Box::new(("not_counted", Outcome::default())))
    } else {
        None
    };
    let alone = nobody.is_some();
    let mut random = incoming.random.clone();
    let call = DecideCall {
        nobody,
        placements: body
            .placements
            .into_iter()
            .map(|p| Asked {
                id: p.id.into_owned(),
                sizes: p.sizes,
                view_type: vocabulary.view_type(&p.view_type).unwrap_or_default(),
                floor_micros: p.floor_micros,
                insertion: InsertionId(random.draw()),
            })
            .collect(),
        page: placing::Page {
            url: body.page.url.into_owned(),
            keywords: body.page.keywords,
            client: (request.place.to_owned(), request.agent().to_owned()),
        },
        permitted: permission.is_full(),
        counted: uncounted.is_none(),
        page_view: body.page_view && uncounted.is_none(),
        trace: body.explain && request.extra(incoming.further_headers, EXPLAIN).is_some_and(|key| site.explains(key)),
        refused: taken.refused,
        attributes: if counted { Given::read(body.user.attributes, None) } else { Given::default() },
    };
    let notes = jar.refused.into_iter().chain(taken.fault).chain(uncounted).collect();
    let draw = u64::from_be_bytes(random.draw());
    let visit = Visit { random, draw, ..incoming.visit(&jar, notes, Call::Decide(call)) };
    if alone {
        return Ok(Routed::Alone(Box::new(visit)));
    }
    let claims = if uncounted.is_some() { Vec::new() } else { taken.taken };
    Ok(Routed::Recognise(Box::new(visit), Box::new(jar.arrival(site, *now, claims))))
}

/// Whether somebody is proven here who is not known to be the cookie's: a call that counts nothing switches nobody.
fn is_anothers(own: &IdentityCookie, claims: &[Claim]) -> bool {
    let is_own = |claim: &Claim| own.tag.is_some_and(|tag| claim.is(tag) == Some(true));
    claims.iter().any(|claim| claim.unique && !is_own(claim))
}

/// What the person's object is to be asked first, if ads under strict caps may be placed.
pub(crate) fn asks(visit: &Visit, who: &Recognised, empty: &units::Empty) -> Option<Hop> {
    let Call::Decide(call) = &visit.call else { return None };
    if !call.counted || !visit.catalogue.compiled.has_strict() {
        return None;
    }
    let question = placing::question(visit, &call.placements, &call.page, Some(&who.counted()));
    let choices = question.strict(|campaign| empty.holds(visit, campaign));
    let insertions: Vec<InsertionId> = call.placements.iter().map(|asked| asked.insertion).collect();
    let asked = choices.iter().any(|choices| !choices.is_empty());
    asked.then(|| strict::claim(visit, who, &choices, &insertions))
}

/// The limited offer of which a unit is to be asked for, and the call. `granted` is what the person's object answered. One that
/// is in `empty` is asked for only where no other is: who was given one without hearing of it gets that one.
pub(crate) fn wants_unit(
    visit: &mut Visit,
    who: &Recognised,
    granted: &[u8],
    empty: &units::Empty,
) -> Option<(u32, Hop)> {
    let first = first_wanted(visit, who, granted)?;
    let other = empty.holds(visit, first).then(|| {
        let given_out: Vec<u32> =
            visit.units.keys().copied().filter(|campaign| empty.holds(visit, *campaign)).collect();
        visit.units.retain(|campaign, holding| *holding != Holding::May || !given_out.contains(campaign));
        first_wanted(visit, who, granted)
    });
    let campaign = other.flatten().unwrap_or(first);
    Some((campaign, units::ask(visit, who, campaign)?))
}

fn first_wanted(visit: &Visit, who: &Recognised, granted: &[u8]) -> Option<u32> {
    let Call::Decide(call) = &visit.call else { return None };
    if visit.units.values().all(|holding| *holding != Holding::May) {
        return None;
    }
    let granted = strict::granted(granted).map(|granted| placing::granted(visit, &call.placements, &granted));
    placing::question(visit, &call.placements, &call.page, Some(&who.counted())).wants_unit(granted.as_deref())
}

/// Takes an object's answer: the person's unit, none any more, or no answer. Gives whether none is left.
pub(crate) fn take_unit(visit: &mut Visit, who: &mut Recognised, campaign: u32, answer: &[u8]) -> bool {
    let given = units::given(answer);
    match given {
        Some(Some(given)) => {
            visit.units.insert(campaign, Holding::Has(given.number));
            // Of another browser of the person it is that one's fact, which may not have heard of it: it counts once, whoever
            // tells it.
            let (visitor, number, now) = (given.holder, given.number, visit.now);
            if visitor == who.visitor {
                who.ledger.keep_unit(campaign, Unit { number, at: now });
            }
            let (id, what) = (FactId::of_unit(visitor, campaign, number), What::Unit { campaign, number });
            visit.facts.push(Fact { id, visitor, received: now, at: now, what });
        }
        Some(None) => drop(visit.units.remove(&campaign)),
        None => visit.notes.push("unit_unanswered"),
    }
    given == Some(None)
}

/// The answer with an identity; `object` is what the person's object answered, empty for nothing.
pub(crate) fn finish(mut visit: Box<Visit>, mut who: Recognised, object: &[u8]) -> Outcome {
    let said = attributes(&mut visit, who.visitor);
    let mut facts = std::mem::take(&mut visit.facts);
    facts.extend(said);
    let Call::Decide(call) = &visit.call else { return Outcome::empty(500) };
    let counted = who.view.of(who.visitor);
    let new_visitor = who.origin == Origin::Minted;
    let person = Person { devices: counted.devices(), new_visitor, bridged: counted.is_bridged() };
    let granted = strict::granted(object).map(|granted| placing::granted(&visit, &call.placements, &granted));
    let question = placing::question(&visit, &call.placements, &call.page, Some(&counted));
    let decided = question.decide(granted.as_deref());
    let fates = call.trace.then(|| question.fates(granted.as_deref()));
    let decisions = placing::name(&visit, &call.placements, &question, &decided, Some(who.visitor));
    if call.counted {
        who.ledger.reserve(decisions.iter().filter_map(|decision| decision.placed.as_ref()?.reserved));
    }
    let trace = fates.map(|fates| placing::trace(&visit, &call.placements, &question, &fates, Some(&counted)));
    let exposures = placing::exposures(&visit, &who, &question);
    let mut outcome = answer(&visit, call, Some((who.visitor, person)), None, decisions, trace);
    for (experiment, exposure) in exposures {
        who.ledger.expose(experiment, exposure);
        let what = What::Exposure { experiment, arm: exposure.arm };
        facts.push(fact(&mut visit, who.visitor, what));
    }
    if who.cookie_changed || visit.stale_key {
        outcome.head.headers.extend(cookies::write_identity(&visit.site, visit.secure, &who.cookie));
    }
    outcome.head.headers.extend(cookies::write_ledger(&visit.site, visit.secure, &who.ledger));
    pack(&mut outcome, &visit.site, facts);
    outcome
}

/// The attributes taken, as a fact; `None` without any.
fn attributes(visit: &mut Visit, visitor: VisitorId) -> Option<Fact> {
    let Call::Decide(DecideCall { attributes, .. }) = &mut visit.call else { return None };
    let policy = visit.site.tenant.attribute_names;
    attributes.settle(&visit.names, policy, &mut { limits::ATTRIBUTE_NAMES_A_CALL });
    let writes = std::mem::take(&mut attributes.writes);
    if writes.is_empty() {
        return None;
    }
    Some(fact(visit, visitor, What::Attributes { writes }))
}

/// A fact of now.
fn fact(visit: &mut Visit, visitor: VisitorId, what: What) -> Fact {
    Fact { id: FactId::from_bytes(visit.random.draw()), visitor, received: visit.now, at: visit.now, what }
}

/// The answer to a call that is to recognise nobody.
pub(crate) fn alone(mut visit: Box<Visit>) -> Outcome {
    let Call::Decide(call) = &mut visit.call else { return Outcome::empty(500) };
    let (reason, parting) = call.nobody.take().map(|nobody| *nobody).unwrap_or_default();
    let mut outcome = contextual(&visit, reason).with_headers(parting.head.headers);
    (outcome.head.facts, outcome.head.ack, outcome.facts) = (parting.head.facts, parting.head.ack, parting.facts);
    outcome
}

/// The answer without an identity, and why.
pub(crate) fn contextual(visit: &Visit, reason: &'static str) -> Outcome {
    let Call::Decide(call) = &visit.call else { return Outcome::empty(500) };
    let question = placing::question(visit, &call.placements, &call.page, None);
    let decisions = placing::name(visit, &call.placements, &question, &question.decide(None), None);
    let trace = call.trace.then(|| placing::trace(visit, &call.placements, &question, &question.fates(None), None));
    answer(visit, call, None, Some(reason), decisions, trace)
}

fn answer(
    visit: &Visit,
    call: &DecideCall,
    who: Option<(VisitorId, Person)>,
    reason: Option<&'static str>,
    decisions: Vec<Decision<'_>>,
    trace: Option<Value>,
) -> Outcome {
    let (visitor, person) = who.unzip();
    let consent = if call.permitted { "full" } else { "none" };
    // A page may name kinds as it likes: no name stands in the place of what the answer says.
    let refused = call.refused.iter().filter(|(kind, _)| !config::ANSWER_FIELDS.contains(&kind.as_str()));
    let answer = Answer {
        visitor: visitor.map(|visitor| visitor.to_string()),
        person,
        decisions,
        catalogue: visit.catalogue.name(),
        kv_reads: visit.kv_reads,
        consent,
        reason,
        degraded: &visit.notes,
        trace,
        attributes: call.attributes.refused.iter().map(|one| (one.name.as_str(), one.code)).collect(),
        refused: refused.map(|(kind, why)| (kind.clone(), Value::from(*why))).collect(),
    };
    visit.answer(Outcome::json(200, &answer))
}

fn read(body: &[u8]) -> Result<Body<'_>, Box<Outcome>> {
    if body.len() > limits::BODY_BYTES {
        return Err(Box::new(too_large()));
    }
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Box::new(Outcome::error(400, "malformed", "the body is not a JSON object", None)));
    }
    let refuse = |message: &str, field: Option<&str>| Box::new(Outcome::error(400, "malformed", message, field));
    let text = std::str::from_utf8(body).map_err(|_| refuse("the body is not UTF-8", None))?;
    let body: Body<'_> = serde_json::from_str(text).map_err(|error| {
        let message = format!("the body is not the JSON it should be: {error}");
        refuse(&message, malformed::field(text, &error).as_deref())
    })?;
    body.check()?;
    Ok(body)
}

impl Body<'_> {
    fn check(&self) -> Result<(), Box<Outcome>> {
        if self.placements.len() > limits::PLACEMENTS {
            return Err(length("placements", limits::PLACEMENTS));
        }
        for (i, placement) in self.placements.iter().enumerate() {
            let at = |field: &str| format!("placements[{i}].{field}");
            if placement.id.is_empty() || placement.id.len() > limits::NAME_BYTES {
                return Err(length(&at("id"), limits::NAME_BYTES));
            }
            if placement.sizes.len() > limits::SIZES {
                return Err(length(&at("sizes"), limits::SIZES));
            }
            if placement.view_type.len() > limits::NAME_BYTES {
                return Err(length(&at("view_type"), limits::NAME_BYTES));
            }
        }
        let page = &self.page;
        if page.url.len() > limits::URL_BYTES {
            return Err(length("page.url", limits::URL_BYTES));
        }
        if page.referrer.len() > limits::URL_BYTES {
            return Err(length("page.referrer", limits::URL_BYTES));
        }
        if page.keywords.len() > limits::KEYWORDS || page.keywords.iter().any(|k| k.len() > limits::NAME_BYTES) {
            return Err(length("page.keywords", limits::KEYWORDS));
        }
        if self.user.ids.len() > limits::KINDS || self.user.proofs.len() > limits::KINDS {
            return Err(length("user.ids", limits::KINDS));
        }
        if self.user.ids.keys().any(|kind| kind.is_empty() || kind.len() > limits::NAME_BYTES) {
            return Err(length("user.ids", limits::NAME_BYTES));
        }
        Ok(())
    }
}

fn length(field: &str, most: usize) -> Box<Outcome> {
    let message = format!("{field} is empty or over its bound of {most}");
    Box::new(Outcome::error(400, "out_of_bounds", &message, Some(field)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn no_kind_may_have_the_name_of_a_field() {
        let said = Some("x");
        let whole = Answer {
            visitor: said.map(str::to_owned),
            person: None,
            decisions: Vec::new(),
            catalogue: None,
            kv_reads: 0,
            consent: "full",
            reason: said,
            degraded: &["x"],
            trace: said.map(Value::from),
            attributes: [("x", "x")].into(),
            refused: Map::new(),
        };
        let fields = serde_json::to_value(whole).unwrap();
        let mut named: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let mut known = config::ANSWER_FIELDS.to_vec();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
