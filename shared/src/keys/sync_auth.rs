//! Authentication of the edge's calls to the origin's `/v1/sync`: an HMAC over the sender's time and the digest of the
//! body.
//!
//! A header carries the digest, so that the MAC is checked before any byte of the body is read. Only a holder of the
//! key can therefore make the origin wait for a body. The complete body is then checked against the digest.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use base64_simd::URL_SAFE_NO_PAD;

use crate::base::ids::Millis;
use crate::base::limits;
use crate::keys::key_ring::{self, KeyRing, RingKey};

/// Name of the header with the key's id, in decimal.
pub const KEY_HEADER: &str = "x-causeway-key";
/// Name of the header with the sender's time, in milliseconds since the Unix epoch, in decimal.
pub const TIME_HEADER: &str = "x-causeway-time";
/// Name of the header with the body's SHA-256, a dot, and the MAC over time and digest, both in base64url without
/// padding.
pub const MAC_HEADER: &str = "x-causeway-mac";

/// The reason why a sync is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyncAuthError {
    /// A header is missing or malformed.
    #[error("the headers x-causeway-key, x-causeway-time and x-causeway-mac are needed")]
    Malformed,
    /// There is no readable key with this id.
    #[error("no sync key has the id of the header x-causeway-key")]
    UnknownKey,
    /// The two clocks differ by more than [`limits::SYNC_SKEW_MS`].
    #[error("the sender's time is more than {} minutes off: check both clocks", limits::SYNC_SKEW_MS / 60_000)]
    Time,
    /// The MAC or the body's digest does not match.
    #[error("the signature in the header x-causeway-mac does not match")]
    Signature,
}

/// The digest that the body must have, from headers with a valid MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedHead {
    digest: [u8; 32],
}

impl SignedHead {
    /// Checks the body against the signed digest.
    ///
    /// # Errors
    /// [`SyncAuthError::Signature`] if the body has another digest.
    pub fn verify_body(&self, body: &[u8]) -> Result<(), SyncAuthError> {
        let is_signed = Sha256::digest(body).as_slice().ct_eq(&self.digest);
        if is_signed.into() { Ok(()) } else { Err(SyncAuthError::Signature) }
    }
}

/// The MAC header's value for a body sent at `time`.
#[must_use]
pub fn sign_sync(key: &RingKey, time: Millis, body: &[u8]) -> String {
    let digest = Sha256::digest(body).into();
    let [digest, mac] = [digest, head_mac(key, time, &digest)].map(|bytes| URL_SAFE_NO_PAD.encode_to_string(bytes));
    format!("{digest}.{mac}")
}

/// Checks the values of the three headers, before the body is read.
///
/// # Errors
/// The first check that fails. The MAC is compared in constant time.
pub fn verify_head(
    ring: &KeyRing,
    now: Millis,
    key: &str,
    time: &str,
    mac_text: &str,
) -> Result<SignedHead, SyncAuthError> {
    let id = key_ring::parse_id(key).ok_or(SyncAuthError::Malformed)?;
    let time: Millis = time.parse().map_err(|_| SyncAuthError::Malformed)?;
    let (digest, mac) = mac_text.split_once('.').ok_or(SyncAuthError::Malformed)?;
    let (digest, mac) = (decode(digest)?, decode(mac)?);
    let key = ring.by_id(id).ok_or(SyncAuthError::UnknownKey)?;
    if now.abs_diff(time) > limits::SYNC_SKEW_MS {
        return Err(SyncAuthError::Time);
    }
    let is_signed = head_mac(key, time, &digest).ct_eq(&mac);
    if is_signed.into() { Ok(SignedHead { digest }) } else { Err(SyncAuthError::Signature) }
}

/// Checks the values of the three headers, and the body.
///
/// # Errors
/// See [`verify_head`] and [`SignedHead::verify_body`].
pub fn verify_sync(
    ring: &KeyRing,
    now: Millis,
    body: &[u8],
    key: &str,
    time: &str,
    mac_text: &str,
) -> Result<(), SyncAuthError> {
    verify_head(ring, now, key, time, mac_text)?.verify_body(body)
}

fn decode(text: &str) -> Result<[u8; 32], SyncAuthError> {
    let bytes = URL_SAFE_NO_PAD.decode_to_vec(text).map_err(|_| SyncAuthError::Malformed)?;
    bytes.try_into().map_err(|_| SyncAuthError::Malformed)
}

fn head_mac(key: &RingKey, time: Millis, digest: &[u8; 32]) -> [u8; 32] {
    key.mac(&[b"sync", &time.to_be_bytes(), digest])
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::keys::key_ring::KeyStage;

    #[test]
    fn only_the_right_key_time_and_body_pass() {
        let key = RingKey { id: 4, stage: KeyStage::Active, secret: [9; 32].into() };
        let ring = KeyRing(vec![key.clone()]);
        let now = 1_800_000_000_000;
        let mac = sign_sync(&key, now, b"body");
        let check = |body: &[u8], key: &str, time: &str, mac: &str| verify_sync(&ring, now, body, key, time, mac);
        assert_eq!(check(b"body", "4", "1800000000000", &mac), Ok(()));
        assert_eq!(check(b"bodY", "4", "1800000000000", &mac), Err(SyncAuthError::Signature));
        assert_eq!(check(b"body", "4", "1800000000001", &mac), Err(SyncAuthError::Signature));
        assert_eq!(check(b"body", "5", "1800000000000", &mac), Err(SyncAuthError::UnknownKey));
        assert_eq!(check(b"body", "4", "1799999000000", &mac), Err(SyncAuthError::Time));
        for malformed in ["AAAA", "AAAA.AAAA", ".", "", mac.trim_end_matches(|c| c != '.')] {
            assert_eq!(check(b"body", "4", "1800000000000", malformed), Err(SyncAuthError::Malformed));
        }
        assert_eq!(check(b"body", "4", "now", &mac), Err(SyncAuthError::Malformed));
        assert_eq!(check(b"body", "", "", ""), Err(SyncAuthError::Malformed));
    }

    #[test]
    fn a_head_is_refused_before_there_is_a_body() {
        let key = RingKey { id: 4, stage: KeyStage::Active, secret: [9; 32].into() };
        let ring = KeyRing(vec![key.clone()]);
        let (now, time) = (1_800_000_000_000, "1800000000000");
        let value = sign_sync(&key, now, b"body");
        let head = verify_head(&ring, now, "4", time, &value).expect("it is signed");
        assert_eq!(head.verify_body(b"body"), Ok(()));
        assert_eq!(head.verify_body(b"bodY"), Err(SyncAuthError::Signature));
        // The digest of another body with this MAC, and the MAC of another key with this digest.
        let other = RingKey { secret: [8; 32].into(), ..key.clone() };
        let parts = [sign_sync(&key, now, b"bodY"), sign_sync(&other, now, b"body")];
        let [(digest, _), (_, mac)] = parts.each_ref().map(|text| text.split_once('.').expect("two parts"));
        let (own_digest, own_mac) = value.split_once('.').expect("two parts");
        for forged in [format!("{digest}.{own_mac}"), format!("{own_digest}.{mac}")] {
            assert_eq!(verify_head(&ring, now, "4", time, &forged), Err(SyncAuthError::Signature));
        }
    }
}
