//! Who may call the origin's `/v1/sync`: an HMAC over the time and the body's digest.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use base64_simd::URL_SAFE_NO_PAD;

use crate::ids::Millis;
use crate::keys::{self, Key, KeyRing};
use crate::limits;

/// Header with the key's id, decimal.
pub const KEY_HEADER: &str = "x-causeway-key";
/// Header with the sender's time, milliseconds since the epoch, decimal.
pub const TIME_HEADER: &str = "x-causeway-time";
/// Header with the MAC, base64url without padding.
pub const MAC_HEADER: &str = "x-causeway-mac";

/// Why a sync is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyncAuthError {
    /// A header is missing or not of its form.
    #[error("the three x-causeway headers are needed")]
    Malformed,
    /// No readable key of that id.
    #[error("no key of that id")]
    UnknownKey,
    /// The sender's clock and this one are too far apart.
    #[error("the time is more than {} minutes off", limits::SYNC_SKEW_MS / 60_000)]
    Time,
    /// The MAC is another one.
    #[error("the signature does not fit")]
    Signature,
}

/// The MAC header's value for a body sent at `time`.
#[must_use]
pub fn sign(key: &Key, time: Millis, body: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode_to_string(mac(key, time, body))
}

/// Checks the three headers' values against a body.
///
/// # Errors
/// The first check that fails; the MAC is compared in constant time.
pub fn verify(
    ring: &KeyRing,
    now: Millis,
    body: &[u8],
    key: &str,
    time: &str,
    mac_text: &str,
) -> Result<(), SyncAuthError> {
    let id = keys::parse_id(key).ok_or(SyncAuthError::Malformed)?;
    let time: Millis = time.parse().map_err(|_| SyncAuthError::Malformed)?;
    let given = URL_SAFE_NO_PAD.decode_to_vec(mac_text).map_err(|_| SyncAuthError::Malformed)?;
    let key = ring.by_id(id).ok_or(SyncAuthError::UnknownKey)?;
    if now.abs_diff(time) > limits::SYNC_SKEW_MS {
        return Err(SyncAuthError::Time);
    }
    if mac(key, time, body).ct_eq(given.as_slice()).into() { Ok(()) } else { Err(SyncAuthError::Signature) }
}

fn mac(key: &Key, time: Millis, body: &[u8]) -> [u8; 32] {
    key.mac(&[b"sync", &time.to_be_bytes(), &Sha256::digest(body)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Stage;

    #[test]
    fn only_the_right_key_time_and_body_pass() {
        let key = Key { id: 4, stage: Stage::Active, secret: [9; 32].into() };
        let ring = KeyRing(vec![key.clone()]);
        let now = 1_800_000_000_000;
        let mac = sign(&key, now, b"body");
        let check = |body: &[u8], key: &str, time: &str, mac: &str| verify(&ring, now, body, key, time, mac);
        assert_eq!(check(b"body", "4", "1800000000000", &mac), Ok(()));
        assert_eq!(check(b"bodY", "4", "1800000000000", &mac), Err(SyncAuthError::Signature));
        assert_eq!(check(b"body", "4", "1800000000001", &mac), Err(SyncAuthError::Signature));
        assert_eq!(check(b"body", "5", "1800000000000", &mac), Err(SyncAuthError::UnknownKey));
        assert_eq!(check(b"body", "4", "1799999000000", &mac), Err(SyncAuthError::Time));
        assert_eq!(check(b"body", "4", "1800000000000", "AAAA"), Err(SyncAuthError::Signature));
        assert_eq!(check(b"body", "4", "now", &mac), Err(SyncAuthError::Malformed));
        assert_eq!(check(b"body", "", "", ""), Err(SyncAuthError::Malformed));
    }
}
