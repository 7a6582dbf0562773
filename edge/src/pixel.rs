//! `GET /v1/i/{token}` and `GET /v1/c/{token}`: an ad was seen, an ad was clicked. The token says whose it is and what;
//! no cookie is set, so that parallel slots do not race. Losses here are counted, not acknowledged (invariant 6).

use causeway_shared::actions::{InsertionHash, Verb};
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{FactId, VisitorId};
use causeway_shared::limits;
use causeway_shared::token::{self, AdToken, TokenError};

use crate::answer::Outcome;
use crate::cookies::Jar;
use crate::engine::{Call, Incoming, Routed, gone, pack};
use crate::permission;
use crate::placing;
use crate::strict;
use crate::visit::{Alone, Visit};

/// A transparent picture of one pixel (GIF89a, section 20 ff.).
const PIXEL: [u8; 43] =
    *b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const NO_STORE: &str = "no-store";

/// What is kept of a call until the catalogue is at hand.
#[derive(Debug)]
pub(crate) struct PixelCall {
    token: AdToken,
    verb: Verb,
    /// Whether it counts, as far as the request alone says.
    counts: bool,
    /// Why the token's time is over.
    late: Option<&'static str>,
    /// Whether the address was called before, and its ad's landing address was not at hand.
    again: bool,
}

impl PixelCall {
    /// Whether the catalogue is needed, for the landing address of its ad; the house ad is in none. An impression counts as its
    /// token says.
    pub(crate) fn wants_catalogue(&self) -> bool {
        self.verb == Verb::CLICK && self.token.entity.ad != 0
    }
}

/// Counts an impression, and answers with the picture whatever the token is: a page never shows a broken one.
pub(crate) fn impression(incoming: &Incoming<'_>, text: &str) -> Routed {
    match opened(incoming, text) {
        Ok(token) => call(incoming, token, Verb::IMPRESSION, None),
        Err(error) => {
            let mut outcome = picture().with_headers(incoming.cors.iter().cloned());
            outcome.head.notes.push(error.code());
            Routed::Answer(outcome)
        }
    }
}

/// Counts a click and leads to the ad's own landing address: never to one that a request names. One who clicks late still
/// arrives; what is late is not counted.
pub(crate) fn click(incoming: &Incoming<'_>, text: &str) -> Routed {
    match opened(incoming, text) {
        Ok(token) => call(incoming, token, Verb::CLICK, None),
        Err(error @ TokenError::Late(token)) => call(incoming, token, Verb::CLICK, Some(error.code())),
        Err(TokenError::Forged) => Routed::Answer(unknown().with_headers(incoming.cors.iter().cloned())),
    }
}

fn call(incoming: &Incoming<'_>, token: AdToken, verb: Verb, late: Option<&'static str>) -> Routed {
    let counts = late.is_none() && counts(incoming, &token);
    let call = PixelCall { token, verb, counts, late, again: incoming.request.is_again };
    Routed::Alone(Box::new(incoming.visit(&Jar::default(), Vec::new(), Call::Pixel(call))))
}

/// Answers once what it needs is at hand. The impression of an ad that was placed under strict caps counts when its visitor's
/// object says so, which is asked first.
pub(crate) fn settle(visit: Box<Visit>) -> Alone {
    let Call::Pixel(call) = &visit.call else { return Alone::Answer(Box::new(Outcome::empty(500))) };
    if call.verb == Verb::CLICK {
        return Alone::Answer(Box::new(led(&visit, call)));
    }
    // What nobody saw has no caps: it could not have been placed.
    let strict = call.token.strict && call.token.visitor != VisitorId::NOBODY;
    let is_late = call.token.placed.saturating_add(limits::SERVE_WINDOW_MS + 60_000) < visit.now;
    if strict && call.counts && !is_late {
        let hop = strict::confirm(&visit.site, call.token.visitor, call.token.insertion);
        return Alone::Confirm(visit, hop);
    }
    let mut outcome = visit.answer(picture());
    if strict && is_late {
        outcome.head.notes.push("strict_late");
    }
    if !strict {
        count(&visit, call, &mut outcome);
    }
    Alone::Answer(Box::new(outcome))
}

/// The picture, and the impression if the object confirmed it; `answer` is empty where none answered.
pub(crate) fn finish(visit: Box<Visit>, answer: &[u8]) -> Outcome {
    let Call::Pixel(call) = &visit.call else { return Outcome::empty(500) };
    let mut outcome = visit.answer(picture());
    match strict::granted(answer) {
        Some(granted) if granted.contains_key(&InsertionHash::of(call.token.insertion)) => {
            count(&visit, call, &mut outcome);
        }
        Some(_) => outcome.head.notes.push("strict_refused"),
        None => outcome.head.notes.push("strict_unanswered"),
    }
    outcome
}

fn led(visit: &Visit, call: &PixelCall) -> Outcome {
    if call.wants_catalogue() && !visit.catalogue.is_there() && !call.again {
        return gone();
    }
    // One on an ad that the catalogue does not have any more ends with the publisher, and counts.
    let tenant = &visit.site.tenant;
    let publisher =
        || tenant.origins.first().cloned().or_else(|| Some(["https://", tenant.hosts.first()?, "/"].concat()));
    let landing = placing::landing(visit, call.token.entity).map(str::to_owned);
    let Some(landing) = landing.or_else(publisher) else { return unknown() };
    let headers = [("location", landing), ("cache-control", NO_STORE.to_owned())];
    let mut outcome = visit.answer(Outcome::empty(302).with_headers(headers));
    outcome.head.notes.extend(call.late);
    count(visit, call, &mut outcome);
    outcome
}

fn unknown() -> Outcome {
    Outcome::error(404, "unknown_token", "this address names no ad of this publisher", None)
}

fn picture() -> Outcome {
    let headers = [("content-type", "image/gif".to_owned()), ("cache-control", NO_STORE.to_owned())];
    Outcome { body: PIXEL.to_vec(), ..Outcome::empty(200) }.with_headers(headers)
}

fn opened(incoming: &Incoming<'_>, text: &str) -> Result<AdToken, TokenError> {
    token::open(&incoming.site.keys.cookie, &incoming.site.id, text, incoming.now)
}

fn count(visit: &Visit, call: &PixelCall, outcome: &mut Outcome) {
    if call.counts {
        pack(outcome, &visit.site, vec![action(&call.token, call.verb, visit.now)]);
    }
}

fn counts(incoming: &Incoming<'_>, token: &AdToken) -> bool {
    let site = &incoming.site;
    if token.visitor == VisitorId::NOBODY {
        // Nothing is said of anybody: what its campaign pays counts without a visitor (invariant 10).
        return incoming.request.uncounted().is_none();
    }
    // Permission was given when the ad was placed, whatever cookies a browser sends with pictures.
    permission::standing(incoming.request, true, site).is_full() && incoming.request.uncounted().is_none()
}

/// The action of a token, as a fact of its own visitor.
pub(crate) fn action(token: &AdToken, verb: Verb, now: u64) -> Fact {
    let AdToken { visitor, insertion, entity, view_type, .. } = *token;
    let id = FactId::of_action(visitor, insertion, verb.0, view_type.0, now);
    Fact { id, visitor, received: now, at: now, what: What::Action { insertion, verb, view_type, entity } }
}
