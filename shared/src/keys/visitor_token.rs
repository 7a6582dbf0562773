//! Visitor tokens: the signed id of a visitor, which a page sends with each event.
//!
//! An event may be sent long after it happened, when another member uses the browser or the cookie is gone. The token
//! names the visitor that the event happened to, and the event counts for this visitor only.

use crate::base::ids::{Millis, TenantId, VisitorId};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::keys::cookie;
use crate::keys::key_ring::KeyRing;

/// The name that the signature covers, so that neither a cookie nor an ad token passes for a visitor token.
const NAME: &str = "visitor";
const FORM: u64 = 1;

/// The reason why a visitor token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VisitorTokenError {
    /// The token is malformed or not signed by this tenant's keys.
    #[error("visitor_token was not issued by this publisher's edge: send it unchanged, as /v1/decide returned it")]
    Forged,
    /// The token is older than [`limits::VISITOR_TOKEN_LIFE_MS`]. A repeat of such an old event could not be
    /// recognised.
    #[error("visitor_token is older than {} days", limits::VISITOR_TOKEN_LIFE_MS / 86_400_000)]
    Late,
}

impl VisitorTokenError {
    /// A permanent name for answers and metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Forged => "visitor_token_forged",
            Self::Late => "visitor_token_late",
        }
    }
}

/// Signs a visitor id with a time of issue. `None` only for a ring without an active key.
#[must_use]
pub fn seal_visitor(ring: &KeyRing, tenant: &TenantId, visitor: VisitorId, now: Millis) -> Option<String> {
    let mut bytes = Vec::with_capacity(24);
    packed::put(&mut bytes, FORM);
    bytes.extend_from_slice(visitor.as_bytes());
    packed::put(&mut bytes, now);
    cookie::seal_cookie(ring, NAME, tenant, &bytes)
}

/// Verifies a visitor token and returns its visitor.
///
/// # Errors
/// [`VisitorTokenError::Forged`] for an invalid token, [`VisitorTokenError::Late`] for an old one.
pub fn open_visitor(
    ring: &KeyRing,
    tenant: &TenantId,
    text: &str,
    now: Millis,
) -> Result<VisitorId, VisitorTokenError> {
    let opened = cookie::open(ring, NAME, tenant, text).map_err(|_| VisitorTokenError::Forged)?;
    let (visitor, issued) = read(&mut PackedReader(&opened.payload)).ok_or(VisitorTokenError::Forged)?;
    let is_late = issued.saturating_add(limits::VISITOR_TOKEN_LIFE_MS) < now;
    if is_late { Err(VisitorTokenError::Late) } else { Ok(visitor) }
}

fn read(packed: &mut PackedReader<'_>) -> Option<(VisitorId, Millis)> {
    packed.number().filter(|form| *form == FORM)?;
    let visitor = VisitorId::from_bytes(packed.take(16)?.try_into().ok()?).ok()?;
    Some((visitor, packed.number()?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::keys::key_ring::{KeyStage, RingKey};

    const NOW: Millis = 1_800_000_000_000;

    fn ring(secret: u8) -> KeyRing {
        KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: [secret; 32].into() }])
    }

    #[test]
    fn a_token_names_its_visitor_for_its_tenant_within_its_life() {
        let [own, other]: [TenantId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let visitor = VisitorId::mint(NOW, [1; 10]);
        let text = seal_visitor(&ring(1), &own, visitor, NOW).unwrap();
        assert!(text.len() < 80, "{text}");
        let last = NOW + limits::VISITOR_TOKEN_LIFE_MS;
        assert_eq!(open_visitor(&ring(1), &own, &text, last), Ok(visitor));
        assert_eq!(open_visitor(&ring(1), &own, &text, last + 1), Err(VisitorTokenError::Late));
        assert_eq!(open_visitor(&ring(1), &other, &text, NOW), Err(VisitorTokenError::Forged));
        assert_eq!(open_visitor(&ring(2), &own, &text, NOW), Err(VisitorTokenError::Forged));
    }

    #[test]
    fn nothing_else_that_is_signed_names_a_visitor() {
        let tenant: TenantId = "a".parse().unwrap();
        let visitor = VisitorId::mint(NOW, [1; 10]);
        let text = seal_visitor(&ring(1), &tenant, visitor, NOW).unwrap();
        let payload = cookie::open(&ring(1), NAME, &tenant, &text).unwrap().payload;
        for name in [cookie::IDENTITY, cookie::LEDGER, "ad"] {
            let other = cookie::seal_cookie(&ring(1), name, &tenant, &payload).unwrap();
            assert_eq!(open_visitor(&ring(1), &tenant, &other, NOW), Err(VisitorTokenError::Forged), "{name}");
        }
        for short in 0..payload.len() {
            let cut = cookie::seal_cookie(&ring(1), NAME, &tenant, payload.get(..short).unwrap()).unwrap();
            assert_eq!(open_visitor(&ring(1), &tenant, &cut, NOW), Err(VisitorTokenError::Forged), "{short} bytes");
        }
    }
}
