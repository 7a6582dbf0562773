//! Consent on one request: the signals in it, what they permit, and the withdrawal when they no longer do.

use std::borrow::Cow;

use causeway_shared::consent::{self, Permission, Refusal, Signals};
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{FactId, Millis};
use serde::Deserialize;

use crate::answer::Outcome;
use crate::cookies::{self, Jar};
use crate::engine::{Site, pack};
use crate::request::Request;

/// The `consent` object of a body.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConsentBody<'a> {
    #[serde(borrow, default)]
    tcf: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    gpp: Option<Cow<'a, str>>,
    #[serde(default)]
    gpp_sid: Option<Vec<i32>>,
}

/// IAB's cookies. A browser may send one several times, a path and domain each: which was written last it does not say.
const COOKIES: [&str; 4] = ["euconsent-v2", "__gpp", "__gpp_sid", "usprivacy"];
/// So many of each are looked at.
const TIMES: usize = 4;

/// What a call with a body may do: the body's strings and IAB's cookies must permit, each of those that are there. A page that
/// says yes where a cookie says no would be believed by this call alone, and withdrawn by the next one that has no body. Of a
/// cookie that came several times each must permit, and where cookies cannot be read nobody knows what they refuse.
pub(crate) fn of_call(request: Request<'_>, body: &ConsentBody<'_>, site: &Site) -> Permission {
    let gpc = request.gpc();
    // Sections that apply are believed only from where the string is from. Without any string they are a word nobody can read.
    let times = consent_cookies(request);
    let cookies_speak = times.iter().any(|[_, gpp, sid, _]| gpp.is_some() || sid.is_some());
    let gpp_sid = body.gpp_sid.as_deref().filter(|_| body.gpp.is_some() || !cookies_speak);
    let of_body = Signals { gpc, tcf: body.tcf.as_deref(), gpp: body.gpp.as_deref(), gpp_sid, us_privacy: None };
    let mut permission = consent::permission(&of_body, &site.tenant);
    for (time, [tcf, gpp, sid, us_privacy]) in times.into_iter().enumerate() {
        if time > 0 && [tcf, gpp, sid, us_privacy].iter().all(Option::is_none) {
            break;
        }
        if time == TIMES || request.cookies_are_too_long() {
            return permission.with(Permission::None(Refusal::Undecodable));
        }
        let sid = sid.map(consent::section_ids);
        let signals = Signals { gpc, tcf, gpp, gpp_sid: sid.as_deref(), us_privacy };
        permission = permission.with(consent::permission(&signals, &site.tenant));
    }
    permission
}

/// The first value of each of [`COOKIES`], the second, and so on to one more than are looked at.
fn consent_cookies(request: Request<'_>) -> [[Option<&str>; COOKIES.len()]; TIMES + 1] {
    let mut times = [[None; COOKIES.len()]; TIMES + 1];
    for (name, value) in request.all_cookies() {
        let Some(place) = COOKIES.iter().position(|known| *known == name) else { continue };
        let mut slots = times.iter_mut().filter_map(|time| time.get_mut(place));
        if let Some(slot) = slots.find(|slot| slot.is_none()) {
            *slot = Some(value);
        }
    }
    times
}

/// What a call without a place for consent may do: any signal that says yes or no decides; without one, what was `given`
/// before stands.
pub(crate) fn standing(request: Request<'_>, given: bool, site: &Site) -> Permission {
    match of_call(request, &ConsentBody::default(), site) {
        Permission::None(Refusal::Policy) if given => Permission::Full,
        said => said,
    }
}

/// Makes an answer one to a visitor who gives no permission: cookies of ours are read this once, to expire them
/// and to tell the origin, beside the facts of nobody that it has.
pub(crate) fn withdraw(mut answer: Outcome, mut facts: Vec<Fact>, jar: &Jar, site: &Site, now: Millis) -> Outcome {
    if jar.any {
        answer.head.headers.extend(cookies::expire(jar.secure));
    }
    if let Some(cookie) = &jar.identity {
        let visitor = cookie.visitor;
        let id = FactId::of_withdrawal(visitor);
        // The cookie goes with the answer, and nobody would say it again.
        facts.push(Fact { id, visitor, received: now, at: now, what: What::Withdrawal });
    }
    answer.head.ack = !facts.is_empty();
    pack(&mut answer, site, facts);
    answer
}
