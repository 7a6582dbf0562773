//! `DELETE /v1/me`: one erasure for the queue, acknowledged once the queue or the origin has accepted it.

use causeway_shared::fact::{Fact, Scope, What};
use causeway_shared::identity::{Claim, IdentityCookie};
use causeway_shared::ids::{FactId, VisitorId};
use serde::Serialize;

use crate::http::answer::Answer;
use crate::http::claims::{self, Claims, UserBody};
use crate::http::cookies::{self, Jar};
use crate::http::incoming::Incoming;
use crate::http::permission;

/// The answer's body.
#[derive(Serialize)]
struct ErasureAnswer {
    receipt: String,
    scope: &'static str,
}

/// The visitor that a request erases, with the proven member. Where the request proves another member than the
/// cookie's, this is that member's visitor of this browser, if there is one: sharing a browser does not let a member
/// erase another.
fn erased_visitor<'c>(cookie: &IdentityCookie, claims: &'c Claims) -> Option<(VisitorId, Option<&'c Claim>)> {
    let Some((member, tag)) = claims.proven_member().zip(cookie.tag) else { return Some((cookie.visitor, None)) };
    match member.is(tag) {
        Some(true) => Some((cookie.visitor, Some(member))),
        None => Some((cookie.visitor, None)),
        Some(false) => {
            let own = cookie.earlier.iter().find(|(tag, _)| member.is(*tag) == Some(true));
            own.map(|(_, visitor)| (*visitor, Some(member)))
        }
    }
}

/// Answers a request for erasure; the visitor's cookies expire.
///
/// Erasure needs no permission, because it takes back everything. With the proof of the visitor's own member it covers
/// the whole person and names the member, so that browsers whose logins are not known yet are erased too (invariants 12
/// and 14).
pub(crate) fn answer_erasure(incoming: &Incoming<'_>) -> Answer {
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    let claims = claims::take(incoming, &UserBody::default());
    let Some((visitor, member)) = jar.identity.as_ref().and_then(|cookie| erased_visitor(cookie, &claims)) else {
        let message = "there is no visitor of yours to erase: its cookie is needed";
        let expired = cookies::expire(site, jar.secure).into_iter().filter(|_| jar.any && jar.identity.is_none());
        return Answer::error(404, "no_visitor", message, None).with_headers(expired);
    };
    // Where the tenant trusts a page's word without a proof, any page could claim any member.
    let (scope, id, also) = match member.filter(|_| claims::requires_proof(site)) {
        Some(claim) => (Scope::Person, Some(claim.id), claim.also.clone()),
        None => (Scope::Visitor, None, Vec::new()),
    };
    let receipt = FactId::of_erasure(visitor);
    let body = ErasureAnswer { receipt: receipt.receipt(), scope: scope.name() };
    let what = What::Erasure { scope, id, also };
    let fact = Fact { position: 0, id: receipt, visitor, received: now, at: now, what };
    // Every erasure is stored permanently: the visitor's rate limit applies.
    let limit = Some(site.events_limit(visitor));
    let answer = Answer::json(202, &body).with_headers(surviving_cookies(incoming, &jar, visitor)).with_awaited_facts(
        site,
        vec![fact],
        limit,
    );
    Answer { notes: claims.fault.into_iter().collect(), ..answer }
}

/// The cookie headers after an erasure. The erased visitor's cookies expire. If it was an earlier visitor of this
/// browser, the present one's cookie stays and forgets it; without permission nothing is set, and the next call sends
/// that one's withdrawal.
fn surviving_cookies(incoming: &Incoming<'_>, jar: &Jar, erased: VisitorId) -> Vec<(&'static str, String)> {
    let (request, site) = (incoming.request, &incoming.site);
    let Some(cookie) = jar.identity.clone().and_then(|cookie| cookie.without(erased)) else {
        return cookies::expire(site, jar.secure).into();
    };
    if !permission::standing(request, true, site).is_full() {
        return Vec::new();
    }
    cookies::write_identity(site, jar.secure, &cookie).into_iter().collect()
}
