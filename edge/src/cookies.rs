//! Our two cookies, as they come and as they go.

use causeway_shared::cookie::{self, IDENTITY, LEDGER};
use causeway_shared::identity::{Arrival, Claim, IdentityCookie};
use causeway_shared::ids::Millis;
use causeway_shared::ledger::Ledger;
use causeway_shared::limits;
use causeway_shared::wire::cookies as wire;

use crate::engine::Site;
use crate::request::Request;

const SET_COOKIE: &str = "set-cookie";

/// What a request's cookies of ours say.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    pub(crate) identity: Option<IdentityCookie>,
    pub(crate) ledger: Option<Ledger>,
    /// Whether the identity cookie should be signed anew, with the key that is written now.
    pub(crate) stale_key: bool,
    /// Whether there is any cookie of our names, also one that is not ours.
    pub(crate) any: bool,
    /// Why a cookie was not taken.
    pub(crate) refused: Option<&'static str>,
    /// Whether cookies are written with `Secure`.
    pub(crate) secure: bool,
}

impl Jar {
    /// What a permitted request brings to identity.
    pub(crate) fn arrival(self, site: &Site, now: Millis, claims: Vec<Claim>) -> Arrival {
        let publish_delay_ms = u64::from(site.tenant.publish_delay_s) * 1000;
        Arrival { now, cookie: self.identity, ledger: self.ledger, claims, publish_delay_ms }
    }
}

/// Reads the cookies: of several with one name, the first that is ours.
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

/// The header that writes the identity cookie; none only for a tenant without keys.
pub(crate) fn write_identity(site: &Site, secure: bool, cookie: &IdentityCookie) -> Option<(&'static str, String)> {
    let value = cookie::seal(&site.keys.cookie, IDENTITY, &site.id, &wire::encode_identity(cookie))?;
    Some(set(IDENTITY, &value, limits::IDENTITY_LIFE_MS / 1000, secure))
}

/// The header that writes the ledger cookie.
pub(crate) fn write_ledger(site: &Site, secure: bool, ledger: &Ledger) -> Option<(&'static str, String)> {
    let value = cookie::seal(&site.keys.cookie, LEDGER, &site.id, &wire::encode_ledger(ledger))?;
    Some(set(LEDGER, &value, limits::LEDGER_LIFE_MS / 1000, secure))
}

/// The headers that expire both.
pub(crate) fn expire(secure: bool) -> [(&'static str, String); 2] {
    [set(IDENTITY, "", 0, secure), set(LEDGER, "", 0, secure)]
}

fn set(name: &str, value: &str, seconds: u64, secure: bool) -> (&'static str, String) {
    let secure = if secure { "; Secure" } else { "" };
    let parts = [name, "=", value, "; Max-Age=", &seconds.to_string(), "; Path=/", secure, "; HttpOnly; SameSite=Lax"];
    (SET_COOKIE, parts.concat())
}
