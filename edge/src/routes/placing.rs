//! The ads of one decide call: the question to the catalogue, its answer in the form of the page with the addresses
//! that count it, and the trace. A placement without an ad of the catalogue gets the house ad.

use std::borrow::Cow;
use std::collections::BTreeSet;

use causeway_shared::ads::catalogue::{BoundCap, CandidateAd};
use causeway_shared::ads::decision::{
    AdOutcome, DecidedPerson, DecisionInputs, DescribedPerson, PageDecision, Placement, PlacementOutcome,
};
use causeway_shared::base::ids::{InsertionId, Millis, VisitorId};
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{AdEntity, InsertionHash, PackedActions, ViewType};
use causeway_shared::facts::exposures::FirstExposure;
use causeway_shared::facts::fact::Fact;
use causeway_shared::identity::RecognisedVisitor;
use causeway_shared::keys::ad_token::{self, AdToken, TokenError};
use causeway_shared::profiles::ledger::PlacedInsertion;
use causeway_shared::profiles::profile::ProfileTotals;
use causeway_shared::profiles::view::PersonView;
use causeway_shared::settings::config::UnknownCaps;
use causeway_shared::targeting::experiment::{self, Experiment};
use causeway_shared::targeting::filter::{self, FilterSubject, PageGaps};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cache::catalogue::LoadedCatalogue;
use crate::http::attributes::AttributeWrites;
use crate::http::client::ClientInfo;
use crate::objects::offers::OfferHoldings;
use crate::objects::strict_caps::GrantedAds;
use crate::routes::decide_repair::BodyNotes;
use crate::site::Site;
use crate::state::request_state::{RequestState, person_random};

/// A decide call.
#[derive(Debug)]
pub(crate) struct DecideRoute {
    pub(crate) placements: Vec<PlacementRequest>,
    pub(crate) page: PageContext,
    /// Codes of the ads that the page already shows.
    pub(crate) shown: Vec<u32>,
    /// Whether identity is permitted.
    pub(crate) is_permitted: bool,
    /// Whether the call counts: it is not a prefetch, and not from a declared bot.
    pub(crate) is_counted: bool,
    /// Whether the call is a page view of its visitor.
    pub(crate) is_page_view: bool,
    /// Whether the call names its person by an id.
    pub(crate) names_person: bool,
    pub(crate) wants_trace: bool,
    /// Names of the refused ids, each with the reason.
    pub(crate) refused: Vec<(String, &'static str)>,
    /// The notes about the body.
    pub(crate) body: BodyNotes,
    /// Attribute writes; empty if the call is not counted.
    pub(crate) attributes: AttributeWrites,
    /// Random bits of all decisions of the call.
    pub(crate) draw: u64,
    /// The person's offer codes, known when the reads are complete.
    pub(crate) holdings: OfferHoldings,
    /// Facts of the visitor so far.
    pub(crate) facts: Vec<Fact>,
}

/// A placement that requests an ad.
#[derive(Debug)]
pub(crate) struct PlacementRequest {
    pub(crate) id: String,
    pub(crate) sizes: Vec<[u32; 2]>,
    pub(crate) view_type: ViewType,
    pub(crate) floor_micros: u64,
    /// The id of the placed ad, if an ad is placed.
    pub(crate) insertion: InsertionId,
}

/// The page and the client, as filters need them.
#[derive(Debug, Default)]
pub(crate) struct PageContext {
    pub(crate) url: String,
    pub(crate) keywords: Vec<String>,
    /// Parts of the two fields above that were left out.
    pub(crate) gaps: PageGaps,
    /// The client's country and region, separated by a space.
    pub(crate) location: String,
    /// The user agent.
    pub(crate) agent: String,
}

/// One placement's part of the answer.
#[derive(Serialize)]
pub(crate) struct PlacementAnswer<'a> {
    placement: &'a str,
    ad: Option<ShownAd<'a>>,
    /// The value of a thousand impressions, in micros.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) placed: Option<PlacedAd>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownAd<'a> {
    House(&'a RawValue),
    Ad {
        id: &'a str,
        ad_group: &'a str,
        campaign: &'a str,
        advertiser: &'a str,
        creative: Cow<'a, RawValue>,
        /// The person's code, if the ad is a limited offer.
        #[serde(skip_serializing_if = "Option::is_none")]
        offer_code: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        experiment: Option<ShownArm<'a>>,
    },
}

/// The arm of an experiment that an ad belongs to.
#[derive(Serialize)]
struct ShownArm<'a> {
    id: &'a str,
    arm: &'a str,
}

/// A placed ad: its token for actions, and the addresses that count impression and click.
#[derive(Serialize)]
pub(crate) struct PlacedAd {
    insertion: String,
    impression_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    click_url: Option<String>,
    /// The reservation in the browser's ledger, if the ad has caps.
    #[serde(skip)]
    pub(crate) reserved: Option<PlacedInsertion>,
}

/// The arms of a person, one per experiment; empty if the call is not counted. If the history was not read, only the
/// exposures in the browser's own cookie are certain, and another arm would make the person `mixed`.
fn choose_arms(state: &RequestState, route: &DecideRoute, counted: &PersonView<'_>) -> Vec<Option<u8>> {
    let LoadedCatalogue { compiled, allocation, .. } = &*state.catalogue;
    if compiled.experiments.is_empty() || !route.is_counted {
        return Vec::new();
    }
    let (seen, random) = (counted.exposures(), person_random(counted));
    let mut arms = experiment::arms(&compiled.experiments, &seen, &random, &allocation.shares, state.now);
    if state.is_history_unread {
        let unknown = |of: &Experiment| seen.get(of.code).is_none();
        arms.iter_mut().zip(&compiled.experiments).filter(|(_, of)| unknown(of)).for_each(|(arm, _)| *arm = None);
    }
    arms
}

/// The new exposures of a decision: one for each experiment of the page, unless the visitor has it already. A person
/// outside the experiment is not exposed; a person in its control arm is.
pub(crate) fn new_exposures(
    state: &RequestState,
    recognised: &RecognisedVisitor,
    question: &PageDecision<'_>,
) -> Vec<(u32, FirstExposure)> {
    let own = recognised.view.exposures_of(recognised.visitor);
    let exposed = |index: usize| {
        let (arm, of) = ((*question.arms().get(index)?)?, state.catalogue.compiled.experiments.get(index)?);
        let known = own.get(of.code).is_some_and(|exposure| exposure.arm == arm || exposure.mixed);
        (!known).then_some((of.code, FirstExposure { arm, at: state.now, mixed: false }))
    };
    if question.arms().is_empty() {
        Vec::new()
    } else {
        question.exposing_experiments().into_iter().filter_map(exposed).collect()
    }
}

/// The codes of the ads that signed insertions name, for any visitor and of any age, because a page may show an ad for
/// days. A house ad has no rules.
pub(super) fn read_shown(site: &Site, insertions: &[Cow<'_, str>], now: Millis, notes: &mut BodyNotes) -> Vec<u32> {
    let mut shown = Vec::with_capacity(insertions.len());
    for (i, insertion) in insertions.iter().enumerate() {
        match ad_token::open(&site.keys.cookie, &site.id, insertion, now) {
            Ok(placed) | Err(TokenError::Late(placed)) => shown.push(placed.entity.ad),
            Err(error @ TokenError::Forged) => {
                let message = "invalid insertion: send the unchanged insertion of a decide answer";
                notes.warn(format!("shown[{i}]"), error.code(), message);
            }
        }
    }
    shown
}

/// The question for the placements of a call, for a person or without one.
pub(crate) fn build_question<'a>(
    state: &'a RequestState,
    route: &'a DecideRoute,
    counted: Option<&PersonView<'_>>,
) -> PageDecision<'a> {
    let DecideRoute { placements, page, .. } = route;
    let catalogue = &state.catalogue.compiled;
    let scores = state.catalogue.scores.as_deref();
    // Actions are counted only for ads.
    let has_ads = !catalogue.offers.is_empty();
    let reserved = counted.filter(|_| has_ads).and_then(|of| of.reserved(Minute::at(state.now))).unwrap_or_default();
    let person = counted.map(|counted| {
        let mut actions = if has_ads { counted.actions() } else { Vec::new() };
        actions.extend(PackedActions::read(&reserved).filter(|reserved| !reserved.is_empty()));
        // Only filters need the totals.
        let totals = if catalogue.targets.is_empty() { ProfileTotals::default() } else { counted.totals() };
        DecidedPerson {
            actions,
            totals,
            missing: counted.missing(),
            counted: Some(counted),
            arms: choose_arms(state, route, counted),
            offer_codes: route.holdings.clone(),
        }
    });
    // A person is described only if a filter or a model needs it.
    let asked = counted.filter(|_| !catalogue.targets.is_empty() || scores.is_some());
    let described = asked.map(|counted| DescribedPerson::of(counted, state.now));
    let unread = (counted.is_none() && route.is_person_unread()).then_some(filter::SubjectPerson::UNREAD);
    let client =
        if catalogue.targets.is_empty() { ClientInfo::default() } else { ClientInfo::of(&page.location, &page.agent) };
    let keywords: Vec<&str> = page.keywords.iter().map(String::as_str).collect();
    let subject = FilterSubject {
        person: described.as_ref().map(DescribedPerson::person).or(unread),
        url: Some(page.url.as_str()).filter(|url| !url.is_empty()),
        keywords: &keywords,
        country: client.country,
        region: client.region,
        class: client.class,
        os: client.os,
        browser: client.browser,
        page_gaps: page.gaps,
        ..FilterSubject::default()
    };
    let placement = |asked: &'a PlacementRequest| Placement {
        sizes: &asked.sizes,
        view_type: asked.view_type,
        floor_micros: asked.floor_micros,
    };
    let placements = placements.iter().map(placement).collect();
    let given = DecisionInputs {
        now: state.now,
        scores,
        allocation: Some(&state.catalogue.allocation),
        draw: route.draw,
        shown: &route.shown,
        holds_caps: state.site.tenant.caps_when_unknown == UnknownCaps::Hold,
        explains: route.wants_trace,
    };
    PageDecision::new(catalogue, person.as_ref(), &subject, placements, given)
}

/// The index of the catalogue's ad that the person's object granted, for each placement.
pub(crate) fn granted_indices(
    state: &RequestState,
    placements: &[PlacementRequest],
    granted: &GrantedAds,
) -> Vec<Option<usize>> {
    let ad = |asked: &PlacementRequest| granted.get(&InsertionHash::of(asked.insertion));
    placements.iter().map(|asked| state.catalogue.compiled.index_of(*ad(asked)?)).collect()
}

/// The answer for each placement, with the addresses that count it. Without a visitor, actions count only for the
/// campaign.
pub(crate) fn answer_placements<'a>(
    state: &'a RequestState,
    placements: &'a [PlacementRequest],
    question: &PageDecision<'_>,
    decided: &[PlacementOutcome],
    visitor: Option<VisitorId>,
) -> Vec<PlacementAnswer<'a>> {
    let each = placements.iter().zip(decided).enumerate();
    each.map(|(number, (asked, decided))| match *decided {
        Ok(index) => match state.catalogue.compiled.offers.get(index) {
            Some(offer) => {
                let (worth, offer_code) = (question.worth(number, index), question.offer_code(offer));
                show_ad(state, asked, offer, worth, offer_code, visitor)
            }
            None => house_ad(state, asked, "no_catalogue", visitor),
        },
        Err(why) => house_ad(state, asked, why.code(), visitor),
    })
    .collect()
}

fn show_ad<'a>(
    state: &'a RequestState,
    asked: &'a PlacementRequest,
    offer: &'a CandidateAd,
    worth: u64,
    offer_code: Option<u32>,
    visitor: Option<VisitorId>,
) -> PlacementAnswer<'a> {
    let [id, ad_group, campaign, advertiser] = offer.ids.each_ref().map(|id| &**id);
    let ad = Some(ShownAd::Ad {
        id,
        ad_group,
        campaign,
        advertiser,
        creative: fill_creative(offer, offer_code),
        offer_code,
        experiment: shown_arm(state, offer),
    });
    let placed = record_placement(state, asked, offer.entity, visitor.unwrap_or(VisitorId::ANONYMOUS));
    PlacementAnswer { placement: &asked.id, ad, price_micros: Some(worth), reason: None, placed }
}

/// The creative as the page shows it, with `{offer_code}` replaced by the offer code.
fn fill_creative(offer: &CandidateAd, offer_code: Option<u32>) -> Cow<'_, RawValue> {
    const OFFER_CODE: &str = "{offer_code}";
    let text = &offer.creative;
    let json = match offer_code.filter(|_| text.contains(OFFER_CODE)) {
        // Digits need no escape in JSON.
        Some(offer_code) => RawValue::from_string(text.replace(OFFER_CODE, &offer_code.to_string())).map(Cow::Owned),
        None => serde_json::from_str(text).map(Cow::Borrowed),
    };
    json.unwrap_or(Cow::Borrowed(RawValue::NULL))
}

/// The first experiment that an ad belongs to.
fn shown_arm<'a>(state: &'a RequestState, offer: &CandidateAd) -> Option<ShownArm<'a>> {
    let compiled = &state.catalogue.compiled;
    let (index, arm) = compiled.groups.get(offer.group)?.arms.first()?;
    let experiment = compiled.experiments.get(*index as usize)?;
    Some(ShownArm { id: &experiment.id, arm: &experiment.arm_of(*arm)?.id })
}

/// The house ad; without one, no ad and the reason.
fn house_ad<'a>(
    state: &'a RequestState,
    asked: &'a PlacementRequest,
    why: &'static str,
    visitor: Option<VisitorId>,
) -> PlacementAnswer<'a> {
    let ad = state.site.house_ad.as_deref();
    // The house ad belongs to no campaign, so its codes are 0.
    let placed = ad.and(visitor).and_then(|visitor| record_placement(state, asked, AdEntity::default(), visitor));
    PlacementAnswer {
        placement: &asked.id,
        ad: ad.map(ShownAd::House),
        price_micros: None,
        reason: ad.is_none().then_some(why),
        placed,
    }
}

/// Places an ad. `None` only for a tenant without keys.
fn record_placement(
    state: &RequestState,
    asked: &PlacementRequest,
    entity: AdEntity,
    visitor: VisitorId,
) -> Option<PlacedAd> {
    let strict = state.catalogue.is_strict(entity.ad);
    let (insertion, view_type, placed) = (asked.insertion, asked.view_type, state.now);
    let token = AdToken { visitor, insertion, entity, view_type, placed, strict };
    let sealed = ad_token::seal_token(&state.site.keys.cookie, &state.site.id, &token)?;
    let address = |route: &str| ["/v1/", route, "/", &sealed].concat();
    let reserved = has_cap(state, entity).then(|| PlacedInsertion::from(&token));
    let click_url = find_landing(state, entity).map(|_| address("c"));
    Some(PlacedAd { impression_url: address("i"), click_url, insertion: sealed, reserved })
}

fn has_cap(state: &RequestState, entity: AdEntity) -> bool {
    state.catalogue.compiled.ad(entity.ad).is_some_and(CandidateAd::has_cap)
}

/// The landing address of an ad. The house ad, and an ad that the catalogue no longer has, lead to the tenant's house
/// landing address, if there is one.
pub(crate) fn find_landing(state: &RequestState, entity: AdEntity) -> Option<&str> {
    let house = state.site.tenant.house_landing.as_deref();
    state.catalogue.compiled.ad(entity.ad).map(|offer| &*offer.landing).or(house)
}

/// The trace: the outcome of every ad for every placement, its value if its targeting matched, and the visitors whose
/// facts counted.
pub(crate) fn build_trace(
    state: &RequestState,
    placements: &[PlacementRequest],
    question: &PageDecision<'_>,
    outcomes: &[Vec<AdOutcome>],
    counted: Option<&PersonView<'_>>,
) -> Value {
    let house = state.site.house_ad.is_some();
    let each = placements.iter().zip(outcomes).enumerate().map(|(number, (asked, outcomes))| {
        let of_ads = state.catalogue.compiled.offers.iter().zip(outcomes).zip(question.worths(number));
        let one = |((offer, outcome), worth): ((&CandidateAd, &AdOutcome), Option<u64>)| {
            let mut outcome_of_ad = describe_outcome(&state.site, offer, *outcome);
            if let (Some(reason), Some(fields)) =
                (unknown_reason(state, question, number, offer, *outcome), outcome_of_ad.as_object_mut())
            {
                fields.insert("reason".to_owned(), Value::from(reason));
            }
            if let (Some(worth), Some(fields)) = (worth, outcome_of_ad.as_object_mut()) {
                fields.insert("worth_micros".to_owned(), Value::from(worth));
            }
            outcome_of_ad
        };
        let mut candidates: Vec<Value> = of_ads.map(one).collect();
        let outcome = if outcomes.contains(&AdOutcome::Won) { "outbid" } else { "won" };
        candidates.extend(house.then(|| json!({ "ad": "house", "outcome": outcome })));
        json!({ "placement": asked.id, "candidates": candidates })
    });
    json!({ "placements": each.collect::<Value>(), "person": counted.map(|counted| trace_person(state, counted)) })
}

fn describe_outcome(site: &Site, offer: &CandidateAd, outcome: AdOutcome) -> Value {
    let [id, ..] = &offer.ids;
    if outcome == AdOutcome::Refused {
        return json!({ "ad": **id, "outcome": outcome.code(), "by": "object" });
    }
    let AdOutcome::Capped(BoundCap { level, cap, .. }, counted) = outcome else {
        return json!({ "ad": **id, "outcome": outcome.code() });
    };
    let action = site.tenant.vocabulary.name_of(cap.action_type);
    json!({ "ad": **id, "outcome": outcome.code(), "cap": {
        "level": level.name(), "action": action, "limit": cap.limit, "window": cap.window, "counted": counted,
    } })
}

/// The reason why the outcome of an ad is unknown, such as `unknown: attributes.city`; `None` if it is known.
fn unknown_reason(
    state: &RequestState,
    question: &PageDecision<'_>,
    number: usize,
    offer: &CandidateAd,
    outcome: AdOutcome,
) -> Option<String> {
    let counts = state.catalogue.compiled.targets.counts();
    let names: BTreeSet<String> = match outcome {
        AdOutcome::Unknown => {
            let fields = question.unknown_fields(number, offer);
            fields.into_iter().map(|field| field.label(&state.names, counts)).collect()
        }
        AdOutcome::CountUnknown => ["actions".to_owned()].into(),
        _ => return None,
    };
    Some(format!("unknown: {}", names.into_iter().collect::<Vec<_>>().join(", ")))
}

/// The visitors that counted, the versions of their snapshots, and the parts of the person's data that are unknown.
fn trace_person(state: &RequestState, counted: &PersonView<'_>) -> Value {
    let visitors = counted.members();
    let read = state.snapshots.iter().filter(|(visitor, _)| visitors.contains(visitor));
    let snapshots: Map<String, Value> =
        read.map(|(visitor, version)| (visitor.to_string(), Value::from(version.to_string()))).collect();
    let visitors: Vec<String> = visitors.iter().map(ToString::to_string).collect();
    let mut person = json!({ "visitors": visitors, "snapshots": snapshots });
    let unknown: Value = counted.missing().names().collect();
    if let Some(person) = person.as_object_mut().filter(|_| unknown != json!([])) {
        person.insert("unknown".to_owned(), unknown);
    }
    person
}
