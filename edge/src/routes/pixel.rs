//! `GET /v1/i/{token}` and `GET /v1/c/{token}`: an impression or a click of a placed ad.
//!
//! The signed token names the visitor and the ad. These routes set no cookie, so that parallel requests of a page do
//! not overwrite each other's. Their facts are not acknowledged; losses are counted (invariant 6).

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::actions::{ActionType, InsertionHash};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::keys::ad_token::{self, AdToken, TokenError};
use causeway_shared::wire::sync::FilterReason;

use crate::http::answer::HttpAnswer;
use crate::http::cookies::CookieJar;
use crate::http::incoming::TenantRequest;
use crate::http::permission;
use crate::http::unserved::{NO_STORE, PIXEL, UnservedReason};
use crate::objects::offers::SoldOutOffers;
use crate::objects::strict_caps;
use crate::routes::{AnonymousRoute, CatalogueNeed, ObjectWait, Route, RouteOutcome, RouteProgress, placing};
use crate::state::request_state::RequestState;

/// Time after the serve window in which an object still confirms an impression, in milliseconds.
const CONFIRM_GRACE_MS: u64 = 60_000;

/// An impression of a placed ad.
#[derive(Debug)]
struct ImpressionRoute {
    token: AdToken,
    /// Whether the impression counts, as far as the request itself tells.
    is_counted: bool,
}

/// A click on a placed ad.
#[derive(Debug)]
struct ClickRoute {
    token: AdToken,
    /// Whether the click counts.
    is_counted: bool,
    /// The reason if the token is too late to count.
    late: Option<&'static str>,
    /// Whether this is the retry of a click that could not be served.
    is_again: bool,
}

/// Begins an impression. The answer is the picture, even for an invalid token, so that a page never shows a broken
/// image.
pub(crate) fn begin_impression(incoming: &TenantRequest<'_>, text: &str) -> RouteOutcome {
    match open_token(incoming, text) {
        Ok(token) => {
            let is_counted = counts_token(incoming, &token);
            RouteOutcome::Anonymous(begin_state(incoming), Box::new(ImpressionRoute { token, is_counted }))
        }
        Err(error) => {
            let answer = picture_answer().with_headers(incoming.cors.iter().cloned());
            RouteOutcome::Answer(HttpAnswer { notes: vec![error.code()], ..answer })
        }
    }
}

/// Begins a click. It leads to the ad's own landing address, never to one from the request. A late click still leads
/// there but is not counted. The same holds for a request that loads the address as a picture, by a script or in a
/// frame.
///
/// A prefetch is refused: the browser would follow the stored redirect at the real click, which would then not count.
pub(crate) fn begin_click(incoming: &TenantRequest<'_>, text: &str) -> RouteOutcome {
    if incoming.uncounted() == Some(FilterReason::Prefetch) {
        let answer = HttpAnswer::error(503, "prefetch", "a click address cannot be prefetched", None);
        let answer = answer.with_headers([(NO_STORE.0, NO_STORE.1.to_owned())]);
        return RouteOutcome::Answer(answer.with_headers(incoming.cors.iter().cloned()));
    }
    let (token, late) = match open_token(incoming, text) {
        Ok(token) => (token, None),
        Err(error @ TokenError::Late(token)) => (token, Some(error.code())),
        Err(TokenError::Forged) => {
            return RouteOutcome::Answer(unknown_token().with_headers(incoming.cors.iter().cloned()));
        }
    };
    let is_counted = late.is_none() && incoming.is_navigation() && counts_token(incoming, &token);
    let route = ClickRoute { token, is_counted, late, is_again: incoming.request.is_again };
    RouteOutcome::Anonymous(begin_state(incoming), Box::new(route))
}

fn begin_state(incoming: &TenantRequest<'_>) -> RequestState {
    RequestState::begin(incoming, &CookieJar::default(), Vec::new())
}

impl Route for ImpressionRoute {
    /// The token itself says whether the ad is under strict caps.
    fn catalogue_need(&self) -> CatalogueNeed {
        CatalogueNeed::None
    }
}

impl AnonymousRoute for ImpressionRoute {
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress {
        let AdToken { visitor, insertion, placed, strict, .. } = self.token;
        // An ad without a visitor has no caps.
        if !strict || visitor == VisitorId::ANONYMOUS {
            return RouteProgress::Answer(self.answer_counted(&state));
        }
        if placed.saturating_add(limits::SERVE_WINDOW_MS + CONFIRM_GRACE_MS) < state.now {
            return RouteProgress::Answer(with_note(state.complete(picture_answer()), "strict_late"));
        }
        if !self.is_counted {
            return RouteProgress::Answer(state.complete(picture_answer()));
        }
        let call = strict_caps::ask_confirmation(&state.site, visitor, insertion);
        RouteProgress::Call(call, Box::new(ConfirmationWait { route: *self, state }))
    }
}

impl ImpressionRoute {
    /// The picture, with the impression if it counts.
    fn answer_counted(&self, state: &RequestState) -> HttpAnswer {
        let facts = self.is_counted.then(|| action_fact(&self.token, ActionType::IMPRESSION, state.now));
        state.complete(picture_answer()).with_facts(&state.site, facts.into_iter().collect())
    }
}

/// The route waits for the person's object, which confirms the impression.
#[derive(Debug)]
struct ConfirmationWait {
    route: ImpressionRoute,
    state: RequestState,
}

impl ObjectWait for ConfirmationWait {
    fn bytes(&self) -> usize {
        self.state.bytes
    }

    fn resume(self: Box<Self>, answer: Option<&[u8]>, _: &mut SoldOutOffers) -> RouteProgress {
        let Self { route, state } = *self;
        let insertion = InsertionHash::of(route.token.insertion);
        RouteProgress::Answer(match strict_caps::read_grants(answer) {
            Some(granted) if granted.contains_key(&insertion) => route.answer_counted(&state),
            Some(_) => with_note(state.complete(picture_answer()), "strict_refused"),
            None => with_note(state.complete(picture_answer()), "strict_unanswered"),
        })
    }
}

impl Route for ClickRoute {
    /// The landing address comes from the catalogue. The house ad is in no catalogue.
    fn catalogue_need(&self) -> CatalogueNeed {
        if self.token.entity.ad == 0 { CatalogueNeed::None } else { CatalogueNeed::Always }
    }
}

impl AnonymousRoute for ClickRoute {
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress {
        let needs_catalogue = self.catalogue_need() != CatalogueNeed::None;
        if needs_catalogue && !state.catalogue.is_loaded() && !self.is_again {
            return RouteProgress::Unserved(UnservedReason::Overloaded);
        }
        // A click on an ad that the catalogue no longer has leads to the publisher and counts.
        let tenant = &state.site.tenant;
        let publisher =
            || tenant.origins.first().cloned().or_else(|| Some(format!("https://{}/", tenant.hosts.first()?)));
        let landing = placing::find_landing(&state, self.token.entity).map(str::to_owned);
        let Some(landing) = landing.or_else(publisher) else { return RouteProgress::Answer(unknown_token()) };
        let headers = [("location", landing), (NO_STORE.0, NO_STORE.1.to_owned())];
        let facts = self.is_counted.then(|| action_fact(&self.token, ActionType::CLICK, state.now));
        let mut answer = state
            .complete(HttpAnswer::empty(302).with_headers(headers))
            .with_facts(&state.site, facts.into_iter().collect());
        answer.notes.extend(self.late);
        RouteProgress::Answer(answer)
    }
}

fn unknown_token() -> HttpAnswer {
    HttpAnswer::error(404, "unknown_token", "the token is invalid: use an address of a decide answer", None)
}

fn picture_answer() -> HttpAnswer {
    let headers = [("content-type", "image/gif".to_owned()), (NO_STORE.0, NO_STORE.1.to_owned())];
    HttpAnswer { body: PIXEL.to_vec(), ..HttpAnswer::empty(200) }.with_headers(headers)
}

fn with_note(mut answer: HttpAnswer, note: &'static str) -> HttpAnswer {
    answer.notes.push(note);
    answer
}

fn open_token(incoming: &TenantRequest<'_>, text: &str) -> Result<AdToken, TokenError> {
    ad_token::open(&incoming.site.keys.cookie, &incoming.site.id, text, incoming.now)
}

fn counts_token(incoming: &TenantRequest<'_>, token: &AdToken) -> bool {
    let is_counted = incoming.uncounted().is_none();
    // Without a visitor, the action counts only for its campaign (invariant 10). With one, permission was given when
    // the ad was placed, whichever cookies the browser sends with pictures.
    let is_permitted = || permission::standing_permission(incoming.request, true, &incoming.site).is_full();
    is_counted && (token.visitor == VisitorId::ANONYMOUS || is_permitted())
}

/// The action of a token, as a fact of the token's visitor.
pub(crate) fn action_fact(token: &AdToken, action_type: ActionType, now: u64) -> Fact {
    let AdToken { visitor, insertion, entity, view_type, .. } = *token;
    let id = FactId::of_action(visitor, insertion, action_type.0, view_type.0, now);
    Fact {
        position: 0,
        id,
        visitor,
        received: now,
        at: now,
        what: FactKind::Action { insertion, action_type, view_type, entity },
    }
}
