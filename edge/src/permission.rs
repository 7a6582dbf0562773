//! Consent on one request: the signals in it, what they permit, and the withdrawal when they no longer do.

use std::borrow::Cow;

use causeway_shared::consent::{self, Permission, Signals};
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

/// What a call with a body may do: the body's strings stand before IAB's cookies.
pub(crate) fn of_call(request: Request<'_>, body: &ConsentBody<'_>, site: &Site) -> Permission {
    // Sections that apply are believed only from where the string is from: the body's, else the cookies'.
    let in_body = body.gpp.is_some() || body.gpp_sid.is_some();
    let cookie_sid = request.cookies("__gpp_sid").next().map(consent::section_ids);
    let signals = Signals {
        gpc: request.gpc(),
        tcf: body.tcf.as_deref().or_else(|| request.cookies("euconsent-v2").next()),
        gpp: if in_body { body.gpp.as_deref() } else { request.cookies("__gpp").next() },
        gpp_sid: if in_body { body.gpp_sid.as_deref() } else { cookie_sid.as_deref() },
        us_privacy: request.cookies("usprivacy").next(),
    };
    consent::permission(&signals, &site.tenant)
}

/// What a call without a place for consent may do: any signal decides; without one, our cookie is there
/// because permission was given when it was written.
pub(crate) fn standing(request: Request<'_>, jar: &Jar, site: &Site) -> Permission {
    let said =
        ["__gpp_sid", "euconsent-v2", "__gpp", "usprivacy"].iter().any(|name| request.cookies(name).next().is_some());
    if !request.gpc() && !said && jar.identity.is_some() {
        return Permission::Full;
    }
    of_call(request, &ConsentBody::default(), site)
}

/// Makes an answer one to a visitor who gives no permission: cookies of ours are read this once, to expire them
/// and to tell the origin.
pub(crate) fn withdraw(answer: Outcome, jar: &Jar, site: &Site, now: Millis) -> Outcome {
    let mut answer = answer;
    if jar.any {
        answer.head.headers.extend(cookies::expire(jar.secure));
    }
    if let Some(cookie) = &jar.identity {
        let visitor = cookie.visitor;
        let id = FactId::of_withdrawal(visitor);
        pack(&mut answer, site, vec![Fact { id, visitor, received: now, at: now, what: What::Withdrawal }]);
    }
    answer
}
