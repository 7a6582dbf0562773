//! Consent of one request: its signals, the permission that they give, and the withdrawal if they no longer permit
//! identity.

use std::borrow::Cow;

use causeway_shared::base::ids::{FactId, Millis};
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::consent::{self, Permission, Refusal, Signals};
use causeway_shared::facts::fact::{Fact, FactKind};
use serde::Deserialize;

use crate::http::answer::HttpAnswer;
use crate::http::cookies::{self, CookieJar};
use crate::http::request::HttpRequest;
use crate::site::Site;

/// The `consent` object of a body. A field of a wrong type is a signal that cannot be decoded, and therefore a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsentBody<'a> {
    #[serde(borrow, default)]
    tcf: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    gpp: Option<Cow<'a, str>>,
    #[serde(default)]
    gpp_sid: Option<Vec<i32>>,
}

/// The IAB's cookies. A browser may send several values of one cookie, one for each path and domain, in no known order.
const COOKIES: [&str; 4] = ["euconsent-v2", "__gpp", "__gpp_sid", "usprivacy"];
/// Most values of each cookie that are read.
const TIMES: usize = 4;

/// The permission of a call with a body: every signal in the body and in the IAB's cookies must permit. If the body
/// alone decided, a page could permit what a cookie refuses, and the next request without a body would withdraw the
/// permission. Section ids and strings are paired within one source: a section id of the body needs a string of the
/// body, and one of a cookie a string of a cookie. Each value of a repeated cookie must permit. Cookies over their
/// bound are a refusal.
pub(crate) fn of_call(request: HttpRequest<'_>, body: &ConsentBody<'_>, site: &Site) -> Permission {
    let gpc = request.gpc() && !planted::is_active(PlantedBug::ConsentIgnored);
    let times = consent_cookies(request);
    let times = times.each_ref().map(|time| time.each_ref().map(Option::as_deref));
    let ConsentBody { tcf, gpp, gpp_sid } = body;
    let of_body =
        Signals { gpc, tcf: tcf.as_deref(), gpp: gpp.as_deref(), gpp_sid: gpp_sid.as_deref(), us_privacy: None };
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

/// The values of each of [`COOKIES`] in their order, up to one more than are read.
fn consent_cookies(request: HttpRequest<'_>) -> [[Option<Cow<'_, str>>; COOKIES.len()]; TIMES + 1] {
    let mut times = [const { [const { None }; COOKIES.len()] }; TIMES + 1];
    for (name, value) in request.all_cookies() {
        let Some(index) = COOKIES.iter().position(|known| *known == name) else { continue };
        let mut slots = times.iter_mut().filter_map(|time| time.get_mut(index));
        if let Some(slot) = slots.find(|slot| slot.is_none()) {
            *slot = Some(consent::cookie_text(value));
        }
    }
    times
}

/// The permission of a call without consent in its body. Any signal decides; without one, an earlier permission
/// (`given`) still applies.
pub(crate) fn standing_permission(request: HttpRequest<'_>, given: bool, site: &Site) -> Permission {
    match of_call(request, &ConsentBody::default(), site) {
        Permission::None(Refusal::Policy) if given => Permission::Full,
        decided => decided,
    }
}

/// Completes the answer to a visitor without permission. The cookies are read once more, only to expire them and to
/// send one withdrawal to the origin. `facts` are facts without a visitor, which leave in the same message. If the
/// permission is unknown, the cookies stay and nothing is withdrawn.
pub(crate) fn withdraw_permission(
    answer: HttpAnswer,
    permission: Permission,
    mut facts: Vec<Fact>,
    jar: &CookieJar,
    site: &Site,
    now: Millis,
) -> HttpAnswer {
    let is_withdrawal = permission.is_withdrawal();
    let expired = if jar.any && is_withdrawal { cookies::expire_cookies(site, jar.secure).into() } else { Vec::new() };
    for cookie in jar.identity.iter().chain(&jar.others).filter(|_| is_withdrawal) {
        let visitor = cookie.visitor;
        let id = FactId::of_withdrawal(visitor);
        facts.push(Fact { position: 0, id, visitor, received: now, at: now, what: FactKind::Withdrawal });
    }
    // The cookie expires with this answer, so no later request repeats the withdrawal: the queue must accept it first.
    answer.with_headers(expired).with_awaited_facts(site, facts, None)
}
