//! `DELETE /v1/me`: one erasure for the queue, acknowledged once the queue or the origin has accepted it.

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::identity::{IdClaim, IdentityCookie};
use serde::Serialize;

use crate::http::answer::HttpAnswer;
use crate::http::claims::{self, RequestClaims, UserBody};
use crate::http::cookies::{self, CookieJar};
use crate::http::incoming::TenantRequest;
use crate::http::permission;
use crate::routes::{AnonymousRoute, CatalogueNeed, Route, RouteOutcome, RouteProgress};
use crate::site::Site;
use crate::state::request_state::RequestState;

/// The answer's body.
#[derive(Serialize)]
struct ErasureAnswer {
    receipt: String,
    scope: &'static str,
}

/// The visitor that a request erases, with the proven member. If the request proves another member than the cookie's,
/// it is that member's visitor of this browser, if there is one. A member can therefore not erase another member that
/// shares the browser.
fn erased_visitor<'c>(cookie: &IdentityCookie, claims: &'c RequestClaims) -> Option<(VisitorId, Option<&'c IdClaim>)> {
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

/// A request for erasure.
#[derive(Debug)]
struct ErasureRoute {
    jar: CookieJar,
    claims: RequestClaims,
    /// Whether the request's signals permit writing a cookie.
    is_permitted: bool,
    /// Visitors of several identity cookies. The first one that was not erased is the target.
    named: Vec<VisitorId>,
}

/// Begins an erasure. It needs no permission, because it only removes data.
pub(crate) fn begin_erasure(incoming: &TenantRequest<'_>) -> RouteOutcome {
    let (site, now) = (&incoming.site, incoming.now);
    let jar = cookies::read(incoming.request, site, now);
    let claims = claims::take_claims(incoming, &UserBody::default());
    let is_permitted = permission::standing_permission(incoming.request, true, site).is_full();
    let named = if jar.others.is_empty() { Vec::new() } else { jar.published_visitors(site, now) };
    let state = RequestState::begin(incoming, &jar, claims.fault.into_iter().collect());
    RouteOutcome::Anonymous(state, Box::new(ErasureRoute { jar, claims, is_permitted, named }))
}

impl Route for ErasureRoute {
    fn catalogue_need(&self) -> CatalogueNeed {
        CatalogueNeed::None
    }
}

impl AnonymousRoute for ErasureRoute {
    fn named_visitors(&self) -> Vec<VisitorId> {
        self.named.clone()
    }

    /// Answers with the receipt of one erasure; the visitor's cookies expire.
    ///
    /// With the proof of the visitor's own member, the erasure covers the whole person and names the member. Browsers
    /// whose logins are not known yet are then erased too (invariants 12 and 14).
    fn answer_anonymous(self: Box<Self>, state: RequestState) -> RouteProgress {
        let (site, now) = (&state.site, state.now);
        let cookie = self.jar.living_identity(&state.erased);
        let found = cookie.and_then(|cookie| Some((cookie, erased_visitor(cookie, &self.claims)?)));
        let Some((cookie, (visitor, member))) = found else {
            let message = "no visitor to erase: the request needs the visitor's cookie";
            let is_useless = self.jar.any && self.jar.identity.is_none();
            let expired = cookies::expire_cookies(site, self.jar.secure).into_iter().filter(|_| is_useless);
            let answer = HttpAnswer::error(404, "no_visitor", message, None).with_headers(expired);
            return RouteProgress::Answer(state.complete(answer));
        };
        // If the tenant trusts a member id without a proof, any page could claim any member.
        let (scope, id, also) = match member.filter(|_| claims::requires_proof(site)) {
            Some(claim) => (ErasureScope::Person, Some(claim.id), claim.also.clone()),
            None => (ErasureScope::Visitor, None, Vec::new()),
        };
        let receipt = FactId::of_erasure(visitor);
        let body = ErasureAnswer { receipt: receipt.receipt(), scope: scope.name() };
        let what = FactKind::Erasure { scope, id, also };
        let fact = Fact { position: 0, id: receipt, visitor, received: now, at: now, what };
        // Every erasure is stored permanently, so the visitor's rate limit applies.
        let limit = Some(site.events_limit(visitor));
        let answer = HttpAnswer::json(202, &body).with_headers(self.surviving_cookies(cookie, visitor, site));
        RouteProgress::Answer(state.complete(answer).with_awaited_facts(site, vec![fact], limit))
    }
}

impl ErasureRoute {
    /// The cookie headers after an erasure. The erased visitor's cookies expire. If it was an earlier visitor of this
    /// browser, the present visitor's `cookie` stays, without the erased one. Without permission no cookie is written,
    /// and the next call sends the present visitor's withdrawal.
    fn surviving_cookies(
        &self,
        cookie: &IdentityCookie,
        erased: VisitorId,
        site: &Site,
    ) -> Vec<(&'static str, String)> {
        let Some(cookie) = cookie.clone().without(erased) else {
            return cookies::expire_cookies(site, self.jar.secure).into();
        };
        let written = self.is_permitted.then(|| cookies::write_identity(site, self.jar.secure, &cookie));
        written.flatten().into_iter().collect()
    }
}
