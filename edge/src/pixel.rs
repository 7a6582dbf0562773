//! `GET /v1/i/{token}` and `GET /v1/c/{token}`: an ad was seen, an ad was clicked. The token says whose it is and what;
//! no cookie is set, so that parallel slots do not race. Losses here are counted, not acknowledged (invariant 6).

use causeway_shared::actions::Verb;
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::FactId;
use causeway_shared::token::{self, AdToken, TokenError};

use crate::answer::Outcome;
use crate::cookies;
use crate::engine::{Incoming, pack};
use crate::permission;

/// A transparent picture of one pixel (GIF89a, section 20 ff.).
const PIXEL: [u8; 43] =
    *b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
const NO_STORE: &str = "no-store";

/// Counts an impression, and answers with the picture whatever the token is: a page never shows a broken one.
pub(crate) fn impression(incoming: &Incoming<'_>, text: &str) -> Outcome {
    let headers = [("content-type", "image/gif".to_owned()), ("cache-control", NO_STORE.to_owned())];
    let mut outcome = Outcome { body: PIXEL.to_vec(), ..Outcome::empty(200) }.with_headers(headers);
    match opened(incoming, text) {
        Ok(token) => count(incoming, &mut outcome, &token, Verb::IMPRESSION),
        Err(error) => outcome.head.notes.push(error.code()),
    }
    outcome
}

/// Counts a click and leads to the ad's own landing address: never to one that a request names.
pub(crate) fn click(incoming: &Incoming<'_>, text: &str) -> Outcome {
    let opened = opened(incoming, text);
    let landing = incoming.site.tenant.house_landing.as_ref().filter(|_| opened != Err(TokenError::Forged));
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
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    // A browser that sends no cookie with pictures gave its permission when the ad was placed.
    let permitted = (jar.identity.is_none() && !incoming.request.gpc())
        || permission::standing(incoming.request, &jar, site).is_full();
    if !permitted || incoming.request.uncounted().is_some() {
        return;
    }
    pack(outcome, site, vec![action(token, verb, now)]);
}

/// The action of a token, as a fact of its own visitor.
pub(crate) fn action(token: &AdToken, verb: Verb, now: u64) -> Fact {
    let AdToken { visitor, insertion, entity, view_type, .. } = *token;
    let day = u32::try_from(now / 86_400_000).unwrap_or(u32::MAX);
    let id = FactId::of_action(visitor, insertion, verb.0, view_type.0, day);
    Fact { id, visitor, received: now, at: now, what: What::Action { insertion, verb, view_type, entity } }
}
