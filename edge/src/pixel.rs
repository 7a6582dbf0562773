//! `GET /v1/i/{token}` and `GET /v1/c/{token}`: an ad was seen, an ad was clicked. The token says whose it is and what;
//! no cookie is set, so that parallel slots do not race. Losses here are counted, not acknowledged (invariant 6).

use causeway_shared::actions::{InsertionHash, Verb};
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::FactId;
use causeway_shared::limits;
use causeway_shared::token::{self, AdToken, TokenError};

use crate::answer::Outcome;
use crate::cookies::{self, Jar};
use crate::engine::{Call, Incoming, Routed, Site, pack};
use crate::permission;
use crate::placing;
use crate::strict;
use crate::visit::Visit;

/// A transparent picture of one pixel (GIF89a, section 20 ff.).
const PIXEL: [u8; 43] =
    *b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const NO_STORE: &str = "no-store";

/// Counts an impression, and answers with the picture whatever the token is: a page never shows a broken one. That of an
/// ad under strict caps counts when its visitor's object says so.
pub(crate) fn impression(incoming: &Incoming<'_>, text: &str) -> Routed {
    let mut outcome = picture().with_headers(incoming.cors.iter().cloned());
    match opened(incoming, text) {
        Ok(token) if !is_strict(&incoming.site, &token) => count(incoming, &mut outcome, &token, Verb::IMPRESSION),
        Ok(token) if token.placed.saturating_add(limits::SERVE_WINDOW_MS + 60_000) < incoming.now => {
            outcome.head.notes.push("strict_late");
        }
        Ok(token) if counts(incoming) => {
            let hop = strict::confirm(&incoming.site, token.visitor, token.insertion);
            let visit = incoming.visit(&Jar::default(), Vec::new(), Call::Pixel(token));
            return Routed::Confirm(Box::new(visit), hop);
        }
        Ok(_) => {}
        Err(error) => outcome.head.notes.push(error.code()),
    }
    Routed::Answer(outcome)
}

/// The picture, and the impression if the object confirmed it; `answer` is empty where none answered.
pub(crate) fn finish(visit: Visit, answer: &[u8]) -> Outcome {
    let Call::Pixel(token) = visit.call else { return Outcome::empty(500) };
    let mut outcome = picture().with_headers(visit.cors);
    match strict::granted(answer) {
        Some(granted) if granted.contains_key(&InsertionHash::of(token.insertion)) => {
            pack(&mut outcome, &visit.site, vec![action(&token, Verb::IMPRESSION, visit.now)]);
        }
        Some(_) => outcome.head.notes.push("strict_refused"),
        None => outcome.head.notes.push("strict_unanswered"),
    }
    outcome
}

/// Whether the impressions of a token's ad count only with an object's word.
pub(crate) fn is_strict(site: &Site, token: &AdToken) -> bool {
    site.catalogue.ad(token.entity.ad).is_some_and(|offer| offer.strict)
}

fn picture() -> Outcome {
    let headers = [("content-type", "image/gif".to_owned()), ("cache-control", NO_STORE.to_owned())];
    Outcome { body: PIXEL.to_vec(), ..Outcome::empty(200) }.with_headers(headers)
}

/// Counts a click and leads to the ad's own landing address: never to one that a request names.
pub(crate) fn click(incoming: &Incoming<'_>, text: &str) -> Outcome {
    let opened = opened(incoming, text);
    let landing = match &opened {
        Ok(token) | Err(TokenError::Late(token)) => placing::landing(&incoming.site, token.entity),
        Err(TokenError::Forged) => None,
    };
    let Some(landing) = landing else {
        return Outcome::error(404, "unknown_token", "this address names no ad of this publisher", None);
    };
    let headers = [("location", landing.clone()), ("cache-control", NO_STORE.to_owned())];
    let mut outcome = Outcome::empty(302).with_headers(headers);
    match opened {
        Ok(token) => count(incoming, &mut outcome, &token, Verb::CLICK),
        // One who clicks late still arrives; what is late is not counted.
        Err(error) => outcome.head.notes.push(error.code()),
    }
    outcome
}

fn opened(incoming: &Incoming<'_>, text: &str) -> Result<AdToken, TokenError> {
    token::open(&incoming.site.keys.cookie, &incoming.site.id, text, incoming.now)
}

fn count(incoming: &Incoming<'_>, outcome: &mut Outcome, token: &AdToken, verb: Verb) {
    if counts(incoming) {
        pack(outcome, &incoming.site, vec![action(token, verb, incoming.now)]);
    }
}

fn counts(incoming: &Incoming<'_>) -> bool {
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    // A browser that sends no cookie with pictures gave its permission when the ad was placed.
    let permitted = (jar.identity.is_none() && !incoming.request.gpc())
        || permission::standing(incoming.request, &jar, site).is_full();
    permitted && incoming.request.uncounted().is_none()
}

/// The action of a token, as a fact of its own visitor.
pub(crate) fn action(token: &AdToken, verb: Verb, now: u64) -> Fact {
    let AdToken { visitor, insertion, entity, view_type, .. } = *token;
    let day = u32::try_from(now / 86_400_000).unwrap_or(u32::MAX);
    let id = FactId::of_action(visitor, insertion, verb.0, view_type.0, day);
    Fact { id, visitor, received: now, at: now, what: What::Action { insertion, verb, view_type, entity } }
}
