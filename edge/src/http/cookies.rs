//! The identity cookie, the ledger cookie and the session cookie: reading them from a request, and the headers that
//! write and expire them.

use std::collections::BTreeSet;

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::identity::{IdClaim, IdentityCookie, IdentityRequest};
use causeway_shared::keys::cookie::{self, CookieNames, IDENTITY, LEDGER, SESSION};
use causeway_shared::profiles::ledger::{Ledger, RunningSession};
use causeway_shared::wire::cookies as wire;

use crate::http::request::HttpRequest;
use crate::site::Site;

const SET_COOKIE: &str = "set-cookie";

/// Most valid identity cookies of a request that are considered.
const IDENTITIES: usize = 3;

/// The edge's cookies of a request.
#[derive(Debug, Default)]
pub(crate) struct CookieJar {
    pub(crate) identity: Option<IdentityCookie>,
    /// Valid identity cookies of other visitors, which count if the visitor of `identity` was erased.
    pub(crate) others: Vec<IdentityCookie>,
    pub(crate) ledger: Option<Ledger>,
    /// Whether the identity cookie is signed with a key that is no longer active, so that it must be signed again.
    pub(crate) stale_key: bool,
    /// Whether the request has a cookie of one of the names, valid or not.
    pub(crate) any: bool,
    /// The reason why an identity cookie was refused, for the counters.
    pub(crate) refused: Option<&'static str>,
    /// Whether cookies are written with `Secure`.
    pub(crate) secure: bool,
}

impl CookieJar {
    /// The input that a permitted request gives to visitor recognition.
    pub(crate) fn arrival(self, site: &Site, now: Millis, claims: Vec<IdClaim>) -> IdentityRequest {
        let publish_delay_ms = publish_delay_ms(site);
        IdentityRequest {
            now,
            cookie: self.identity,
            others: self.others,
            ledger: self.ledger,
            claims,
            publish_delay_ms,
        }
    }

    /// The identity cookies in order of precedence: the cookie of an erased visitor is replaced by the next.
    pub(crate) fn identities(&self) -> impl Iterator<Item = &IdentityCookie> {
        self.identity.iter().chain(&self.others)
    }

    /// The identity cookie that counts if these visitors were erased, as visitor recognition chooses it. If all were
    /// erased, it is the first.
    pub(crate) fn living_identity(&self, erased: &BTreeSet<VisitorId>) -> Option<&IdentityCookie> {
        self.identities().find(|cookie| !erased.contains(&cookie.visitor)).or(self.identity.as_ref())
    }

    /// Visitors of the identity cookies whose snapshots are read for erasures. Empty if the first one is too young to
    /// have been published; visitor recognition does not read it either.
    pub(crate) fn published_visitors(&self, site: &Site, now: Millis) -> Vec<VisitorId> {
        let is_published =
            |first: &IdentityCookie| now.saturating_sub(first.visitor.minted_ms()) >= publish_delay_ms(site);
        let visitors = self.identities().map(|cookie| cookie.visitor);
        if self.identity.as_ref().is_some_and(is_published) { visitors.collect() } else { Vec::new() }
    }
}

fn publish_delay_ms(site: &Site) -> u64 {
    u64::from(site.tenant.publish_delay_s) * 1000
}

/// Reads the cookies. Of several valid identity cookies the last one counts: browsers send cookies of a longer path
/// first, and the edge sets the path `/`. Of several valid ledgers, the one of that visitor counts, and of several
/// sessions its newest.
pub(crate) fn read(request: HttpRequest<'_>, site: &Site, now: Millis) -> CookieJar {
    let names = CookieNames::of(&site.tenant);
    let mut jar = CookieJar { secure: request.secure || !site.tenant.dev, ..CookieJar::default() };
    let (mut identities, mut ledgers, mut sessions) = (Vec::<(IdentityCookie, bool)>::new(), Vec::new(), Vec::new());
    for (name, value) in request.all_cookies() {
        jar.any |= [names.identity, names.ledger, names.session].contains(&name);
        if name == names.identity {
            match open_identity(site, value, now) {
                Ok(found) => identities.push(found),
                Err(why) => jar.refused = Some(why),
            }
        } else if name == names.ledger {
            let opened = cookie::open(&site.keys.cookie, LEDGER, &site.id, value).ok();
            ledgers.extend(opened.and_then(|opened| wire::decode_ledger(&opened.payload).ok()));
        } else if name == names.session {
            let opened = cookie::open(&site.keys.cookie, SESSION, &site.id, value).ok();
            sessions.extend(opened.and_then(|opened| wire::decode_session(&opened.payload).ok()));
        }
    }
    if let Some((identity, stale_key)) = identities.pop() {
        let mut others: Vec<_> = identities.into_iter().rev().map(|(other, _)| other).collect();
        others.retain(|other| other.visitor != identity.visitor);
        others.truncate(IDENTITIES - 1);
        if !others.is_empty() {
            jar.refused = Some("cookie_shadow");
        }
        let own = ledgers.iter().position(|ledger: &Ledger| ledger.visitor == identity.visitor);
        ledgers.drain(..own.unwrap_or_default());
        (jar.identity, jar.others, jar.stale_key) = (Some(identity), others, stale_key);
    }
    jar.ledger = ledgers.into_iter().next();
    let visitor = jar.identity.as_ref().map(|identity| identity.visitor);
    for running in sessions.into_iter().filter(|running| Some(running.visitor) == visitor) {
        jar.ledger.get_or_insert_with(|| Ledger::new(running.visitor)).resume(running);
    }
    jar
}

/// An identity cookie, and whether it is signed with a key that is no longer active. The error is a reason for the
/// counters.
fn open_identity(site: &Site, value: &str, now: Millis) -> Result<(IdentityCookie, bool), &'static str> {
    let opened = cookie::open(&site.keys.cookie, IDENTITY, &site.id, value).map_err(|error| error.code())?;
    let identity = wire::decode_identity(&opened.payload).map_err(|_| "cookie_malformed")?;
    if identity.expired(now) { Err("cookie_expired") } else { Ok((identity, opened.stale_key)) }
}

/// The header that writes the identity cookie; `None` only for a tenant without keys.
pub(crate) fn write_identity(site: &Site, secure: bool, cookie: &IdentityCookie) -> Option<(&'static str, String)> {
    let value = cookie::seal_cookie(&site.keys.cookie, IDENTITY, &site.id, &wire::encode_identity(cookie))?;
    Some(set_cookie(CookieNames::of(&site.tenant).identity, &value, limits::IDENTITY_LIFE_MS / 1000, secure))
}

/// The header that writes the ledger cookie; `None` only for a tenant without keys.
pub(crate) fn write_ledger(site: &Site, secure: bool, ledger: &Ledger) -> Option<(&'static str, String)> {
    let value = cookie::seal_cookie(&site.keys.cookie, LEDGER, &site.id, &wire::encode_ledger(ledger))?;
    Some(set_cookie(CookieNames::of(&site.tenant).ledger, &value, limits::LEDGER_LIFE_MS / 1000, secure))
}

/// The header that writes the session cookie; `None` only for a tenant without keys.
pub(crate) fn write_session(site: &Site, secure: bool, running: &RunningSession) -> Option<(&'static str, String)> {
    let value = cookie::seal_cookie(&site.keys.cookie, SESSION, &site.id, &wire::encode_session(running))?;
    Some(set_cookie(CookieNames::of(&site.tenant).session, &value, limits::SESSION_IDLE_MS / 1000, secure))
}

/// The headers that expire all cookies.
pub(crate) fn expire_cookies(site: &Site, secure: bool) -> [(&'static str, String); 3] {
    let CookieNames { identity, ledger, session } = CookieNames::of(&site.tenant);
    [identity, ledger, session].map(|name| set_cookie(name, "", 0, secure))
}

fn set_cookie(name: &str, value: &str, seconds: u64, secure: bool) -> (&'static str, String) {
    let secure = if secure { "; Secure" } else { "" };
    let parts = [name, "=", value, "; Max-Age=", &seconds.to_string(), "; Path=/", secure, "; HttpOnly; SameSite=Lax"];
    (SET_COOKIE, parts.concat())
}
