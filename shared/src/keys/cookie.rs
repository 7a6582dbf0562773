//! Signed form of our cookies: `v1.<kid>.<base64url payload>.<base64url mac>`. The MAC covers the cookie's name and the
//! tenant, so that no cookie is accepted as another cookie or for another tenant.

use base64_simd::{Out, URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;

use crate::base::ids::TenantId;
use crate::base::limits;
use crate::keys::key_ring::{self, KeyRing, KeyStage, RingKey};
use crate::settings::config::TenantConfig;

/// Name of the identity cookie, as its signature covers it.
pub const IDENTITY: &str = "cw_id";
/// Name of the ledger cookie, as its signature covers it.
pub const LEDGER: &str = "cw_recent";
/// Name of the session cookie, as its signature covers it.
pub const SESSION: &str = "cw_session";

/// Names of the cookies in the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieNames {
    /// Identity cookie.
    pub identity: &'static str,
    /// Ledger cookie.
    pub ledger: &'static str,
    /// Session cookie.
    pub session: &'static str,
}

impl CookieNames {
    /// In production the names have the prefix `__Host-`, which browsers refuse from another host, another path or over
    /// plain HTTP (RFC 6265bis, section 4.1.3.2), so that no sibling host can override our cookies. Development serves
    /// plain HTTP and uses names without the prefix.
    #[must_use]
    pub fn of(tenant: &TenantConfig) -> Self {
        if tenant.dev {
            Self { identity: IDENTITY, ledger: LEDGER, session: SESSION }
        } else {
            Self { identity: "__Host-cw_id", ledger: "__Host-cw_recent", session: "__Host-cw_session" }
        }
    }
}

/// Bytes of the HMAC-SHA-256 that are stored: 128 bits (RFC 2104 §5 requires at least half of the output).
const MAC_BYTES: usize = 16;
/// Characters of the encoded MAC.
const MAC_CHARS: usize = 22;

/// Reason why a cookie's value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// The value is longer than any that we set.
    #[error("cookie is longer than {} bytes", limits::COOKIE_BYTES)]
    TooLong,
    /// The value does not have the required form.
    #[error("cookie does not have the form v1.kid.payload.mac")]
    Malformed,
    /// The signing key is not among the readable keys.
    #[error("cookie is signed with an unknown or retired key")]
    UnknownKey,
    /// The signature is wrong.
    #[error("cookie has a wrong signature")]
    Signature,
}

impl CookieError {
    /// Stable machine-readable code for metrics.
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

/// A cookie whose signature is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedCookie {
    /// The payload.
    pub payload: Vec<u8>,
    /// Id of the key that signed it.
    pub kid: u8,
    /// Whether the cookie should be written again, because its key is no longer the active one.
    pub stale_key: bool,
}

/// Signs a payload; `None` only if the ring has no active key.
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

/// Verifies a cookie's value and returns its payload. The MAC is compared in constant time.
///
/// # Errors
/// The reason why the value is refused.
pub fn open(ring: &KeyRing, name: &str, tenant: &TenantId, value: &str) -> Result<OpenedCookie, CookieError> {
    if value.len() > limits::COOKIE_BYTES {
        return Err(CookieError::TooLong);
    }
    let mut parts = value.split('.');
    let (Some("v1"), Some(kid), Some(payload), Some(mac), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(CookieError::Malformed);
    };
    let kid = key_ring::parse_id(kid).ok_or(CookieError::Malformed)?;
    let payload = URL_SAFE_NO_PAD.decode_to_vec(payload).map_err(|_| CookieError::Malformed)?;
    let key = ring.by_id(kid).ok_or(CookieError::UnknownKey)?;
    // The encoded forms are compared, because each MAC has exactly one.
    let mut expected = [0; MAC_CHARS];
    let expected = URL_SAFE_NO_PAD.encode(&cookie_mac(key, name, tenant, &payload), Out::from_slice(&mut expected));
    if !bool::from(expected.ct_eq(mac.as_bytes())) {
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
