//! The ads of one decide call: what was decided, named for the page and for the addresses that count it, and told in the
//! trace. Where the catalogue has none for a placement, the house ad.

use std::borrow::Cow;

use causeway_shared::actions::{Entity, InsertionHash, PackedActions, ViewType};
use causeway_shared::bucket::PersonRandom;
use causeway_shared::catalogue::{Bound, Offer};
use causeway_shared::decision::{Decided, Described, Fate, Given, Person, Placement, Question};
use causeway_shared::experiment::{self, Experiment, Exposure};
use causeway_shared::filter::Subject;
use causeway_shared::identity::Recognised;
use causeway_shared::ids::{InsertionId, VisitorId};
use causeway_shared::ledger::Reservation;
use causeway_shared::profile::Totals;
use causeway_shared::time::Minute;
use causeway_shared::token::{self, AdToken};
use causeway_shared::view::Counted;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::catalogue::Loaded;
use crate::client::Client;
use crate::engine::Site;
use crate::strict::Granted;
use crate::visit::Visit;

/// A placement that asks for an ad.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) sizes: Vec<[u32; 2]>,
    pub(crate) view_type: ViewType,
    pub(crate) floor_micros: u64,
    /// What its placing will be called.
    pub(crate) insertion: InsertionId,
}

/// The page that asks, and from where, as far as filters look at it.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) url: String,
    pub(crate) keywords: Vec<String>,
    /// Country and region, and the user agent.
    pub(crate) client: (String, String),
}

/// One placement's part of the answer.
#[derive(Serialize)]
pub(crate) struct Decision<'a> {
    placement: &'a str,
    ad: Option<Shown<'a>>,
    /// What a thousand impressions are worth.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) placed: Option<Placed>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    House(&'a RawValue),
    Ad {
        id: &'a str,
        ad_group: &'a str,
        campaign: &'a str,
        advertiser: &'a str,
        creative: Cow<'a, RawValue>,
        /// The number that nobody else has, of a campaign with only so many recipients.
        #[serde(skip_serializing_if = "Option::is_none")]
        unit: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        experiment: Option<Tested<'a>>,
    },
}

/// The arm of an experiment that an ad belongs to.
#[derive(Serialize)]
struct Tested<'a> {
    id: &'a str,
    arm: &'a str,
}

/// The placing of an ad: its name for actions, and the addresses that count them.
#[derive(Serialize)]
pub(crate) struct Placed {
    insertion: String,
    impression_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    click_url: Option<String>,
    #[serde(skip)]
    /// Of an ad with caps: the browser remembers it as its impression until a snapshot has that. What no cap counts would
    /// only take its room.
    pub(crate) reserved: Option<Reservation>,
}

/// A person's random bytes: the same for all browsers of it that know of one another.
pub(crate) fn random_of(counted: &Counted<'_>) -> PersonRandom {
    PersonRandom::of_visitor(counted.smallest())
}

/// The arms that a person is in; none where nothing of it is counted. Who may have been exposed unread is in those alone that
/// its browser knows of: another would make it `mixed`.
fn arms(visit: &Visit, counted: &Counted<'_>) -> Vec<Option<u8>> {
    let Loaded { compiled, steering, .. } = &*visit.catalogue;
    if compiled.experiments.is_empty() || !visit.is_counted() {
        return Vec::new();
    }
    let (seen, random) = (counted.exposures(), random_of(counted));
    let mut arms = experiment::arms(&compiled.experiments, &seen, &random, &steering.shares, visit.now);
    if visit.missed {
        let unknown = |of: &Experiment| seen.get(of.code).is_none();
        arms.iter_mut().zip(&compiled.experiments).filter(|(_, of)| unknown(of)).for_each(|(arm, _)| *arm = None);
    }
    arms
}

/// The exposures that a decision makes: of each experiment that the page is part of, unless it is of the visitor already.
/// Who is outside of it is not exposed; who is in its control is.
pub(crate) fn exposures(visit: &Visit, who: &Recognised, question: &Question<'_>) -> Vec<(u32, Exposure)> {
    let own = who.view.exposures_of(who.visitor);
    let exposed = |place: usize| {
        let (arm, of) = ((*question.arms().get(place)?)?, visit.catalogue.compiled.experiments.get(place)?);
        let known = own.get(of.code).is_some_and(|exposure| exposure.arm == arm || exposure.mixed);
        (!known).then_some((of.code, Exposure { arm, at: visit.now, mixed: false }))
    };
    if question.arms().is_empty() { Vec::new() } else { question.met().into_iter().filter_map(exposed).collect() }
}

/// The question of these placements on a page, in front of a person or of nobody.
pub(crate) fn question<'a>(
    visit: &'a Visit,
    placements: &'a [Asked],
    page: &Page,
    counted: Option<&Counted<'_>>,
) -> Question<'a> {
    let catalogue = &visit.catalogue.compiled;
    let scores = visit.catalogue.scores.as_deref();
    // Actions are counted for ads alone.
    let has_ads = !catalogue.offers.is_empty();
    let reserved = counted.filter(|_| has_ads).and_then(|of| of.reserved(Minute::at(visit.now))).unwrap_or_default();
    let person = counted.map(|counted| {
        let mut actions = if has_ads { counted.actions() } else { Vec::new() };
        actions.extend(PackedActions::read(&reserved).filter(|reserved| !reserved.is_empty()));
        // Filters alone ask for them.
        let totals = if catalogue.targets.is_empty() { Totals::default() } else { counted.totals() };
        Person { actions, totals, counted: Some(counted), arms: arms(visit, counted), units: visit.units.clone() }
    });
    // Nobody is described whom no filter and no model asks for, or of whom a part is missing: another browser's word may be newer.
    let asked = counted.filter(|_| !visit.missed && (!catalogue.targets.is_empty() || scores.is_some()));
    let described = asked.map(|counted| Described::of(counted, visit.now));
    let (place, agent) = &page.client;
    let client = if catalogue.targets.is_empty() { Client::default() } else { Client::of(place, agent) };
    let keywords: Vec<&str> = page.keywords.iter().map(String::as_str).collect();
    let subject = Subject {
        person: described.as_ref().map(Described::person),
        is_unread: visit.missed && counted.is_some(),
        url: Some(page.url.as_str()).filter(|url| !url.is_empty()),
        keywords: &keywords,
        country: client.country,
        region: client.region,
        class: client.class,
        os: client.os,
        browser: client.browser,
        ..Subject::default()
    };
    let placement = |asked: &'a Asked| Placement {
        sizes: &asked.sizes,
        view_type: asked.view_type,
        floor_micros: asked.floor_micros,
    };
    let placements = placements.iter().map(placement).collect();
    let given = Given { now: visit.now, scores, steering: Some(&visit.catalogue.steering), draw: visit.draw };
    Question::new(catalogue, person.as_ref(), &subject, placements, given)
}

/// Which of the catalogue's ads the person's object granted each placement.
pub(crate) fn granted(visit: &Visit, placements: &[Asked], granted: &Granted) -> Vec<Option<usize>> {
    let ad = |asked: &Asked| granted.get(&InsertionHash::of(asked.insertion));
    placements.iter().map(|asked| visit.catalogue.compiled.place_of(*ad(asked)?)).collect()
}

/// Names what was decided, with the addresses that count it: for the visitor, or without one for its campaign alone.
pub(crate) fn name<'a>(
    visit: &'a Visit,
    placements: &'a [Asked],
    question: &Question<'_>,
    decided: &[Decided],
    visitor: Option<VisitorId>,
) -> Vec<Decision<'a>> {
    let each = placements.iter().zip(decided).enumerate();
    each.map(|(number, (asked, decided))| match *decided {
        Ok(place) => match visit.catalogue.compiled.offers.get(place) {
            Some(offer) => {
                let (worth, unit) = (question.worth(number, place), question.unit(offer));
                shown(visit, asked, offer, worth, unit, visitor)
            }
            None => house(visit, asked, "no_catalogue", visitor),
        },
        Err(why) => house(visit, asked, why.code(), visitor),
    })
    .collect()
}

fn shown<'a>(
    visit: &'a Visit,
    asked: &'a Asked,
    offer: &'a Offer,
    worth: u64,
    unit: Option<u32>,
    visitor: Option<VisitorId>,
) -> Decision<'a> {
    let [id, ad_group, campaign, advertiser] = offer.ids.each_ref().map(|id| &**id);
    let ad = Some(Shown::Ad {
        id,
        ad_group,
        campaign,
        advertiser,
        creative: creative(offer, unit),
        unit,
        experiment: tested(visit, offer),
    });
    let placed = place(visit, asked, offer.entity, visitor.unwrap_or(VisitorId::NOBODY));
    Decision { placement: &asked.id, ad, price_micros: Some(worth), reason: None, placed }
}

/// What the page shows; `{unit}` in it stands for the number.
fn creative(offer: &Offer, unit: Option<u32>) -> Cow<'_, RawValue> {
    const UNIT: &str = "{unit}";
    let text = &offer.creative;
    let json = match unit.filter(|_| text.contains(UNIT)) {
        // Digits need no escape within JSON.
        Some(unit) => RawValue::from_string(text.replace(UNIT, &unit.to_string())).map(Cow::Owned),
        None => serde_json::from_str(text).map(Cow::Borrowed),
    };
    json.unwrap_or(Cow::Borrowed(RawValue::NULL))
}

/// The first experiment that an ad is of.
fn tested<'a>(visit: &'a Visit, offer: &Offer) -> Option<Tested<'a>> {
    let compiled = &visit.catalogue.compiled;
    let (place, arm) = compiled.groups.get(offer.group)?.arms.first()?;
    let experiment = compiled.experiments.get(*place as usize)?;
    Some(Tested { id: &experiment.id, arm: &experiment.arm_of(*arm)?.id })
}

/// The house ad, or none and why.
fn house<'a>(visit: &'a Visit, asked: &'a Asked, why: &'static str, visitor: Option<VisitorId>) -> Decision<'a> {
    let ad = visit.site.house_ad.as_deref();
    // It belongs to nobody: its codes are 0.
    let placed = ad.and(visitor).and_then(|visitor| place(visit, asked, Entity::default(), visitor));
    Decision {
        placement: &asked.id,
        ad: ad.map(Shown::House),
        price_micros: None,
        reason: ad.is_none().then_some(why),
        placed,
    }
}

/// Places an ad. `None` only for a tenant without keys.
fn place(visit: &Visit, asked: &Asked, entity: Entity, visitor: VisitorId) -> Option<Placed> {
    let strict = visit.catalogue.is_strict(entity.ad);
    let (insertion, view_type, placed) = (asked.insertion, asked.view_type, visit.now);
    let token = AdToken { visitor, insertion, entity, view_type, placed, strict };
    let sealed = token::seal(&visit.site.keys.cookie, &visit.site.id, &token)?;
    let address = |route: &str| ["/v1/", route, "/", &sealed].concat();
    let reserved = is_capped(visit, entity).then(|| Reservation::from(&token));
    let click_url = landing(visit, entity).map(|_| address("c"));
    Some(Placed { impression_url: address("i"), click_url, insertion: sealed, reserved })
}

fn is_capped(visit: &Visit, entity: Entity) -> bool {
    visit.catalogue.compiled.ad(entity.ad).is_some_and(Offer::is_capped)
}

/// Where a click on an ad leads: the ad's own landing address; the house ad's, and that of an ad which the catalogue
/// does not have any more, is the tenant's, if it names one.
pub(crate) fn landing(visit: &Visit, entity: Entity) -> Option<&str> {
    let house = visit.site.tenant.house_landing.as_deref();
    visit.catalogue.compiled.ad(entity.ad).map(|offer| &*offer.landing).or(house)
}

/// What became of every ad for every placement, what it was worth there if it was meant for who looks at it, and whose facts
/// counted.
pub(crate) fn trace(
    visit: &Visit,
    placements: &[Asked],
    question: &Question<'_>,
    fates: &[Vec<Fate>],
    counted: Option<&Counted<'_>>,
) -> Value {
    let house = visit.site.house_ad.is_some();
    let each = placements.iter().zip(fates).enumerate().map(|(number, (asked, fates))| {
        let of_ads = visit.catalogue.compiled.offers.iter().zip(fates).zip(question.worths(number));
        let one = |((offer, fate), worth): ((&Offer, &Fate), Option<u64>)| {
            let mut told = fate_of(&visit.site, offer, *fate);
            if let (Some(worth), Some(told)) = (worth, told.as_object_mut()) {
                told.insert("worth_micros".to_owned(), Value::from(worth));
            }
            told
        };
        let mut candidates: Vec<Value> = of_ads.map(one).collect();
        let outcome = if fates.contains(&Fate::Won) { "outbid" } else { "won" };
        candidates.extend(house.then(|| json!({ "ad": "house", "outcome": outcome })));
        json!({ "placement": asked.id, "candidates": candidates })
    });
    json!({ "placements": each.collect::<Value>(), "person": counted.map(|counted| whose(visit, counted)) })
}

fn fate_of(site: &Site, offer: &Offer, fate: Fate) -> Value {
    let [id, ..] = &offer.ids;
    if fate == Fate::Refused {
        return json!({ "ad": **id, "outcome": fate.code(), "by": "object" });
    }
    let Fate::Capped(Bound { level, cap, .. }, counted) = fate else {
        return json!({ "ad": **id, "outcome": fate.code() });
    };
    let action = site.tenant.vocabulary.name_of(cap.verb);
    json!({ "ad": **id, "outcome": fate.code(), "cap": {
        "level": level.name(), "action": action, "limit": cap.limit, "window": cap.window, "counted": counted,
    } })
}

/// The visitors that counted, and the versions of their snapshots as they were read.
fn whose(visit: &Visit, counted: &Counted<'_>) -> Value {
    let visitors = counted.members();
    let read = visit.snapshots.iter().filter(|(visitor, _)| visitors.contains(visitor));
    let snapshots: Map<String, Value> =
        read.map(|(visitor, version)| (visitor.to_string(), Value::from(version.to_string()))).collect();
    let visitors: Vec<String> = visitors.iter().map(ToString::to_string).collect();
    json!({ "visitors": visitors, "snapshots": snapshots })
}
