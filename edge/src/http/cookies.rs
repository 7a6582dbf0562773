//! The identity cookie and the ledger cookie: reading them from a request, and the headers that write and expire them.

use causeway_shared::cookie::{self, IDENTITY, LEDGER};
use causeway_shared::identity::{Arrival, Claim, IdentityCookie};
use causeway_shared::ids::Millis;
use causeway_shared::ledger::Ledger;
use causeway_shared::limits;
use causeway_shared::wire::cookies as wire;

use crate::http::request::Request;
use crate::site::Site;

const SET_COOKIE: &str = "set-cookie";

/// The edge's cookies of a request.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    pub(crate) identity: Option<IdentityCookie>,
    pub(crate) ledger: Option<Ledger>,
    /// Whether the identity cookie is signed with a key that is no longer the active one, so that it is signed again.
    pub(crate) stale_key: bool,
    /// Whether the request has a cookie of one of the two names, valid or not.
    pub(crate) any: bool,
    /// Why an identity cookie was refused, for the counters.
    pub(crate) refused: Option<&'static str>,
    /// Whether cookies are written with `Secure`.
    pub(crate) secure: bool,
}

impl Jar {
    /// The input that a permitted request gives to visitor recognition.
    pub(crate) fn arrival(self, site: &Site, now: Millis, claims: Vec<Claim>) -> Arrival {
        let publish_delay_ms = u64::from(site.tenant.publish_delay_s) * 1000;
        Arrival { now, cookie: self.identity, ledger: self.ledger, claims, publish_delay_ms }
    }
}

/// Reads the cookies. Of several with one name, the first valid one counts.
pub(crate) fn read(request: Request<'_>, site: &Site, now: Millis) -> Jar {
    let mut jar = Jar { secure: request.secure || !site.tenant.dev, ..Jar::default() };
    for (name, value) in request.all_cookies() {
        jar.any |= name == IDENTITY || name == LEDGER;
        if name == IDENTITY && jar.identity.is_none() {
            let opened = cookie::open(&site.keys.cookie, IDENTITY, &site.id, value);
            match opened.map(|o| (wire::decode_identity(&o.payload), o.stale_key)) {
                Ok((Ok(identity), stale_key)) if !identity.expired(now) => {
                    (jar.identity, jar.stale_key) = (Some(identity), stale_key);
                }
                Ok((Ok(_), _)) => jar.refused = Some("cookie_expired"),
                Ok((Err(_), _)) => jar.refused = Some("cookie_malformed"),
                Err(error) => jar.refused = Some(error.code()),
            }
        } else if name == LEDGER && jar.ledger.is_none() {
            let opened = cookie::open(&site.keys.cookie, LEDGER, &site.id, value).ok();
            jar.ledger = opened.and_then(|opened| wire::decode_ledger(&opened.payload).ok());
        }
    }
    jar
}

/// The header that writes the identity cookie; `None` only for a tenant without keys.
pub(crate) fn write_identity(site: &Site, secure: bool, cookie: &IdentityCookie) -> Option<(&'static str, String)> {
    let value = cookie::seal(&site.keys.cookie, IDENTITY, &site.id, &wire::encode_identity(cookie))?;
    Some(set(IDENTITY, &value, limits::IDENTITY_LIFE_MS / 1000, secure))
}

/// The header that writes the ledger cookie; `None` only for a tenant without keys.
pub(crate) fn write_ledger(site: &Site, secure: bool, ledger: &Ledger) -> Option<(&'static str, String)> {
    let value = cookie::seal(&site.keys.cookie, LEDGER, &site.id, &wire::encode_ledger(ledger))?;
    Some(set(LEDGER, &value, limits::LEDGER_LIFE_MS / 1000, secure))
}

/// The headers that expire both cookies.
pub(crate) fn expire(secure: bool) -> [(&'static str, String); 2] {
    [set(IDENTITY, "", 0, secure), set(LEDGER, "", 0, secure)]
}

fn set(name: &str, value: &str, seconds: u64, secure: bool) -> (&'static str, String) {
    let secure = if secure { "; Secure" } else { "" };
    let parts = [name, "=", value, "; Max-Age=", &seconds.to_string(), "; Path=/", secure, "; HttpOnly; SameSite=Lax"];
    (SET_COOKIE, parts.concat())
}
