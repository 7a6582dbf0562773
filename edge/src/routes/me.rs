//! `GET /v1/me`: shows the stored data of the request's visitor. The call changes nothing.

use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{ActionDimension, ActionType, DimensionFilter, group_actions};
use causeway_shared::facts::exposures::FirstExposure;
use causeway_shared::facts::offer_codes::HeldOfferCode;
use causeway_shared::identity::{RecognisedVisitor, VisitorOrigin};
use causeway_shared::profiles::profile::{MissingParts, ProfileTotals};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::http::answer::HttpAnswer;
use crate::http::claims::{self, UserBody};
use crate::http::incoming::TenantRequest;
use crate::http::{cookies, permission};
use crate::objects::offers::SoldOutOffers;
use crate::routes::{CatalogueNeed, NamesNeed, Route, RouteOutcome, RouteProgress, VisitorRoute};
use crate::state::request_state::RequestState;

/// A call that shows the stored data of its visitor.
#[derive(Debug)]
pub(crate) struct MeRoute {
    /// Whether the proof in the request names the member of the cookie's visitor; `None` without a proof or without a
    /// member.
    is_own_member: Option<bool>,
}

/// Sums over a visitor or over a person.
#[derive(Serialize)]
struct SumsAnswer {
    pages: u64,
    sessions: u64,
    purchases: u64,
    revenue_micros: i64,
}

impl From<ProfileTotals> for SumsAnswer {
    fn from(t: ProfileTotals) -> Self {
        Self { pages: t.pages, sessions: t.sessions, purchases: t.purchases, revenue_micros: t.revenue.get() }
    }
}

/// The answer's body.
#[derive(Serialize)]
struct MeAnswer<'a> {
    visitor: Option<String>,
    person: Option<DevicesAnswer>,
    own: SumsAnswer,
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<SumsAnswer>,
    segments: Vec<SegmentAnswer>,
    attributes: Map<String, Value>,
    experiments: Vec<ExposureAnswer>,
    offer_codes: Vec<OfferCodeAnswer>,
    actions: Vec<ActionCount<'a>>,
    /// Whether data is missing from this answer.
    truncated: bool,
    /// The parts with missing data, which is stored but was not read or not published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    truncated_parts: Vec<&'static str>,
    kv_reads: u8,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [&'static str],
}

/// The number of stored actions of one type.
#[derive(Serialize)]
struct ActionCount<'a> {
    action: &'a str,
    count: u64,
}

/// A segment of the visitor with its expiry.
#[derive(Serialize)]
struct SegmentAnswer {
    segment: u32,
    expires_ms: u64,
}

/// The arm of an experiment that the visitor saw first.
#[derive(Serialize)]
struct ExposureAnswer {
    experiment: String,
    arm: String,
    since_ms: u64,
    mixed: bool,
}

/// The code of a limited offer.
#[derive(Serialize)]
struct OfferCodeAnswer {
    campaign: String,
    code: u32,
    since_ms: u64,
}

/// The answer's part about the person.
#[derive(Serialize)]
struct DevicesAnswer {
    devices: u32,
}

/// Reads the cookies and the proof, if the request has one.
pub(crate) fn begin_me(incoming: TenantRequest<'_>) -> RouteOutcome {
    let jar = cookies::read(incoming.request, &incoming.site, incoming.now);
    let permission = permission::standing_permission(incoming.request, jar.identity.is_some(), &incoming.site);
    // Ids and proofs of a GET are only in headers and cookies, so the bounds of a body do not apply to them.
    let claims = claims::take_claims(&incoming, &UserBody::default());
    // A request that proves another member than the cookie's shows that member's visitor of this browser, if there is
    // one.
    let member = claims.proven_member().cloned();
    let tag = jar.identity.as_ref().and_then(|cookie| cookie.tag);
    let is_own_member = member.as_ref().zip(tag).and_then(|(claim, tag)| claim.is(tag));
    let notes = jar.refused.into_iter().chain(claims.fault).collect();
    let state = RequestState::begin(&incoming, &jar, notes);
    if !permission.is_full() {
        let answer = answer_nothing(&state);
        return RouteOutcome::Answer(permission::withdraw_permission(
            answer,
            permission,
            Vec::new(),
            &jar,
            &incoming.site,
            incoming.now,
        ));
    }
    if jar.identity.is_none() {
        return RouteOutcome::Answer(answer_nothing(&state));
    }
    let arrival = jar.arrival(&incoming.site, incoming.now, member.into_iter().collect());
    RouteOutcome::Recognise(state, Box::new(MeRoute { is_own_member }), Box::new(arrival))
}

impl Route for MeRoute {
    /// The catalogue names experiments and offers, which only a snapshot contains.
    fn catalogue_need(&self) -> CatalogueNeed {
        CatalogueNeed::WithHistory
    }

    fn names_need(&self) -> NamesNeed {
        NamesNeed::Current
    }
}

impl VisitorRoute for MeRoute {
    fn mints_visitors(&self) -> bool {
        false
    }

    fn answer_visitor(
        self: Box<Self>,
        state: RequestState,
        recognised: RecognisedVisitor,
        _: &SoldOutOffers,
    ) -> RouteProgress {
        let is_member = match self.is_own_member {
            Some(true) => true,
            Some(false) => recognised.origin == VisitorOrigin::Switched,
            None => false,
        };
        let proven = is_member && claims::requires_proof(&state.site);
        let view = proven.then(|| recognised.proven_view().totals().into());
        let person = DevicesAnswer { devices: if proven { recognised.proven_view().devices() } else { 1 } };
        let stored = StoredData {
            actions: count_actions(&state, &recognised),
            segments: list_segments(&state, &recognised),
            attributes: name_attributes(&state, &recognised, proven),
            experiments: name_exposures(&state, &recognised, proven),
            offer_codes: name_offer_codes(&state, &recognised, proven),
            missing: if proven {
                recognised.proven_view().missing()
            } else {
                recognised.view.missing_of(recognised.visitor)
            },
        };
        let visitor = Some(recognised.visitor.to_string());
        RouteProgress::Answer(answer_me(
            &state,
            visitor,
            Some(person),
            recognised.view.own(recognised.visitor),
            view,
            stored,
        ))
    }

    fn answer_unidentified(self: Box<Self>, state: RequestState, _: &'static str) -> HttpAnswer {
        answer_nothing(&state)
    }
}

/// The answer if nothing is stored.
fn answer_nothing(state: &RequestState) -> HttpAnswer {
    answer_me(state, None, None, ProfileTotals::default(), None, StoredData::default())
}

/// The stored data in addition to the sums. Attributes, exposures and offer codes are the person's if they may be
/// shown, otherwise the visitor's. The rest is the visitor's.
#[derive(Default)]
struct StoredData<'a> {
    actions: Vec<ActionCount<'a>>,
    segments: Vec<SegmentAnswer>,
    attributes: Map<String, Value>,
    experiments: Vec<ExposureAnswer>,
    offer_codes: Vec<OfferCodeAnswer>,
    /// Parts of the above that may be missing.
    missing: MissingParts,
}

/// The attributes whose names are known, by name.
fn name_attributes(state: &RequestState, recognised: &RecognisedVisitor, proven: bool) -> Map<String, Value> {
    let own =
        || recognised.view.attributes_of(recognised.visitor).and_then(|packed| packed.to_map()).unwrap_or_default();
    let held = if proven { recognised.proven_view().attributes() } else { own() };
    let name = |token| state.names.get(token).map(|(name, _)| name.to_owned());
    held.iter().filter_map(|(token, value)| Some((name(token)?, value.to_json()))).collect()
}

/// The arms that were seen, with the catalogue's ids if it has them.
fn name_exposures(state: &RequestState, recognised: &RecognisedVisitor, proven: bool) -> Vec<ExposureAnswer> {
    let seen =
        if proven { recognised.proven_view().exposures() } else { recognised.view.exposures_of(recognised.visitor) };
    let named = |(code, FirstExposure { arm, at, mixed }): (u32, FirstExposure)| {
        let experiment = state.catalogue.compiled.experiments.iter().find(|experiment| experiment.code == code);
        let of_arm = experiment.and_then(|experiment| experiment.arm_of(arm));
        ExposureAnswer {
            experiment: experiment.map_or_else(|| code.to_string(), |experiment| experiment.id.clone()),
            arm: of_arm.map_or_else(|| arm.to_string(), |arm| arm.id.clone()),
            since_ms: at,
            mixed,
        }
    };
    seen.iter().map(named).collect()
}

/// The codes of limited offers, with the catalogue's ids if it has them.
fn name_offer_codes(state: &RequestState, recognised: &RecognisedVisitor, proven: bool) -> Vec<OfferCodeAnswer> {
    let held = if proven {
        recognised.proven_view().offer_codes()
    } else {
        recognised.view.offer_codes_of(recognised.visitor)
    };
    let named = |(code, HeldOfferCode { number, at }): (u32, HeldOfferCode)| {
        let campaign = state.catalogue.compiled.limited.iter().find(|limited| limited.campaign == code);
        let campaign = campaign.map_or_else(|| code.to_string(), |limited| limited.id.clone());
        OfferCodeAnswer { campaign, code: number, since_ms: at }
    };
    held.iter().map(named).collect()
}

/// The visitor's segments that have not expired.
fn list_segments(state: &RequestState, recognised: &RecognisedVisitor) -> Vec<SegmentAnswer> {
    let held = recognised.view.segments_of(recognised.visitor).into_iter().flat_map(|packed| packed.iter());
    let fresh = held.filter(|(_, expiry)| expiry.start_ms() > state.now);
    fresh.map(|(id, expiry)| SegmentAnswer { segment: id.0, expires_ms: expiry.start_ms() }).collect()
}

/// The visitor's actions by type, as in its snapshot.
fn count_actions<'a>(state: &'a RequestState, recognised: &RecognisedVisitor) -> Vec<ActionCount<'a>> {
    let own: Vec<_> = recognised.view.actions_of(recognised.visitor).into_iter().collect();
    let groups =
        group_actions(&own, &DimensionFilter::default(), &[ActionDimension::ActionType], Minute(0), Minute(u32::MAX))
            .unwrap_or_default();
    let name = |code: &u32| state.site.tenant.vocabulary.name_of(ActionType(u8::try_from(*code).unwrap_or_default()));
    let shown = |(codes, count): (Vec<u32>, u64)| ActionCount {
        action: codes.first().and_then(name).unwrap_or("other"),
        count,
    };
    groups.into_iter().map(shown).collect()
}

fn answer_me(
    state: &RequestState,
    visitor: Option<String>,
    person: Option<DevicesAnswer>,
    own: ProfileTotals,
    view: Option<SumsAnswer>,
    stored: StoredData<'_>,
) -> HttpAnswer {
    let body = MeAnswer {
        visitor,
        person,
        own: own.into(),
        view,
        segments: stored.segments,
        attributes: stored.attributes,
        experiments: stored.experiments,
        offer_codes: stored.offer_codes,
        actions: stored.actions,
        truncated: !stored.missing.is_empty(),
        truncated_parts: stored.missing.names().collect(),
        kv_reads: state.kv_reads,
        degraded: &state.notes,
    };
    state.complete(HttpAnswer::json(200, &body))
}
