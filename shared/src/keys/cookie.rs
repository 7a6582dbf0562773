//! The signed form of our cookies: `v1.<kid>.<base64url payload>.<base64url mac>`. The MAC binds the payload
//! to the cookie's name and the tenant, so that no cookie passes for another one or for another tenant's.

use base64_simd::{Out, URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;

use crate::base::ids::TenantId;
use crate::base::limits;
use crate::keys::key_ring::{self, KeyRing, KeyStage, RingKey};
use crate::settings::config::TenantConfig;

/// The identity cookie: the name that its signature covers.
pub const IDENTITY: &str = "cw_id";
/// The ledger cookie: the name that its signature covers.
pub const LEDGER: &str = "cw_recent";
/// The session cookie: the name that its signature covers.
pub const SESSION: &str = "cw_session";

/// The names of the cookies in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieNames {
    /// Of the identity cookie.
    pub identity: &'static str,
    /// Of the ledger cookie.
    pub ledger: &'static str,
    /// Of the session cookie.
    pub session: &'static str,
}

impl CookieNames {
    /// In production browsers refuse the prefix `__Host-` from another host, another path and plain HTTP (RFC 6265bis,
    /// section 4.1.3.2), so that no sibling host can put its own cookie before ours. Development serves plain HTTP.
    #[must_use]
    pub fn of(tenant: &TenantConfig) -> Self {
        if tenant.dev {
            Self { identity: IDENTITY, ledger: LEDGER, session: SESSION }
        } else {
            Self { identity: "__Host-cw_id", ledger: "__Host-cw_recent", session: "__Host-cw_session" }
        }
    }
}

/// Bytes of the HMAC-SHA-256 kept: 128 bits (RFC 2104 §5 asks for half of the output at least).
const MAC_BYTES: usize = 16;
/// Their characters.
const MAC_CHARS: usize = 22;

/// Why a cookie's value is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// Longer than any we set.
    #[error("longer than {} bytes", limits::COOKIE_BYTES)]
    TooLong,
    /// Not of the form.
    #[error("not of the form v1.kid.payload.mac")]
    Malformed,
    /// Signed with a key that is not readable.
    #[error("signed with a key that is not readable")]
    UnknownKey,
    /// The signature does not fit.
    #[error("the signature does not fit")]
    Signature,
}

impl CookieError {
    /// A stable name for metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
        }
    }
}

/// A payload whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedCookie {
    /// The payload.
    pub payload: Vec<u8>,
    /// The key that signed it.
    pub kid: u8,
    /// Whether it should be written anew: its key is no longer the one that is written.
    pub stale_key: bool,
}

/// Signs a payload. `None` only for a ring without an active key.
#[must_use]
pub fn seal_cookie(ring: &KeyRing, name: &str, tenant: &TenantId, payload: &[u8]) -> Option<String> {
    let key = ring.active()?;
    let id = key.id.to_string();
    let mut text = String::with_capacity(5 + id.len() + payload.len().div_ceil(3) * 4 + MAC_CHARS);
    text.extend(["v1.", &id, "."]);
    URL_SAFE_NO_PAD.encode_append(payload, &mut text);
    text.push('.');
    URL_SAFE_NO_PAD.encode_append(cookie_mac(key, name, tenant, payload), &mut text);
    Some(text)
}

/// Checks a cookie's value and gives its payload.
///
/// # Errors
/// Why it is not ours; the MAC is compared in constant time.
pub fn open(ring: &KeyRing, name: &str, tenant: &TenantId, value: &str) -> Result<OpenedCookie, CookieError> {
    if value.len() > limits::COOKIE_BYTES {
        return Err(CookieError::TooLong);
    }
    let mut parts = value.split('.');
    let (Some("v1"), Some(kid), Some(payload), Some(given), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(CookieError::Malformed);
    };
    let kid = key_ring::parse_id(kid).ok_or(CookieError::Malformed)?;
    let payload = URL_SAFE_NO_PAD.decode_to_vec(payload).map_err(|_| CookieError::Malformed)?;
    let key = ring.by_id(kid).ok_or(CookieError::UnknownKey)?;
    // A signature has one written form: it is compared as it came.
    let mut right = [0; MAC_CHARS];
    let right = URL_SAFE_NO_PAD.encode(&cookie_mac(key, name, tenant, &payload), Out::from_slice(&mut right));
    if !bool::from(right.ct_eq(given.as_bytes())) {
        return Err(CookieError::Signature);
    }
    Ok(OpenedCookie { payload, kid, stale_key: key.stage != KeyStage::Active })
}

fn cookie_mac(key: &RingKey, name: &str, tenant: &TenantId, payload: &[u8]) -> [u8; MAC_BYTES] {
    let full = key.mac(&[b"cookie", name.as_bytes(), tenant.as_str().as_bytes(), payload]);
    let mut short = [0; MAC_BYTES];
    for (to, from) in short.iter_mut().zip(full) {
        *to = from;
    }
    short
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn ring(stages: &[(u8, KeyStage)]) -> KeyRing {
        KeyRing(stages.iter().map(|(id, stage)| RingKey { id: *id, stage: *stage, secret: [*id; 32].into() }).collect())
    }

    #[test]
    fn a_sealed_payload_opens_again_and_only_there() {
        let ring = ring(&[(1, KeyStage::Active)]);
        let pub_a: TenantId = "a".parse().unwrap();
        let pub_b: TenantId = "b".parse().unwrap();
        let value = seal_cookie(&ring, IDENTITY, &pub_a, b"payload").unwrap();
        let opened = open(&ring, IDENTITY, &pub_a, &value).unwrap();
        assert_eq!(opened, OpenedCookie { payload: b"payload".to_vec(), kid: 1, stale_key: false });
        assert_eq!(open(&ring, IDENTITY, &pub_b, &value), Err(CookieError::Signature));
        assert_eq!(open(&ring, LEDGER, &pub_a, &value), Err(CookieError::Signature));
    }

    #[test]
    fn a_rotation_reads_old_and_next_and_writes_active() {
        let tenant: TenantId = "a".parse().unwrap();
        let value = seal_cookie(&ring(&[(1, KeyStage::Active)]), IDENTITY, &tenant, b"x").unwrap();
        let later = ring(&[(1, KeyStage::Old), (2, KeyStage::Active)]);
        assert!(open(&later, IDENTITY, &tenant, &value).unwrap().stale_key);
        let retired = ring(&[(2, KeyStage::Active)]);
        assert_eq!(open(&retired, IDENTITY, &tenant, &value), Err(CookieError::UnknownKey));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let ring = ring(&[(1, KeyStage::Active)]);
        let tenant: TenantId = "a".parse().unwrap();
        let value = seal_cookie(&ring, IDENTITY, &tenant, &[0xa5; 40]).unwrap();
        for i in 0..value.len() {
            assert!(open(&ring, IDENTITY, &tenant, &value[..i]).is_err(), "cut at {i}");
            for bit in 0..7 {
                let mut bytes = value.clone().into_bytes();
                bytes[i] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else {
                    continue;
                };
                let opened = open(&ring, IDENTITY, &tenant, &text);
                assert!(opened.is_err(), "bit {bit} of byte {i}");
            }
        }
    }
}
