//! Member proofs: the publisher's signed statement that this browser belongs to a member (invariant 14).
//!
//! A proof is a compact JWS (RFC 7515 §3.1) over JWT claims (RFC 7519), signed with HS256 (RFC 7518 §3.2) or EdDSA over
//! Ed25519 (RFC 8037). The key decides the algorithm; the token's header is only compared with it. No claim is used
//! before the signature is verified. A proof is valid for one tenant, one id and at most one day.

use base64_simd::URL_SAFE_NO_PAD;
use ed25519_compact::{PublicKey, Signature};
use hmac::{Hmac, KeyInit, Mac};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};
use sha2::Sha256;

use crate::base::ids::{Millis, TenantId};
use crate::base::limits;
use crate::keys::key_ring::{ProofAlg, ProofKey};

/// The claims of a valid proof.
#[derive(Clone, PartialEq, Eq)]
pub struct ProofClaims {
    /// The proven id, as the publisher writes it: 1 to [`limits::ALTERNATE_ID_BYTES`] bytes.
    pub sub: String,
    /// Issue time, in seconds since the Unix epoch.
    pub iat: u64,
    /// Expiry, in seconds since the Unix epoch.
    pub exp: u64,
}

/// Omits the id, which must not appear in a log line (invariant 11).
impl std::fmt::Debug for ProofClaims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "claims from {} to {}", self.iat, self.exp)
    }
}

/// The reason why a token is no valid proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The token is longer than [`limits::PROOF_BYTES`].
    #[error("the proof is longer than {} bytes", limits::PROOF_BYTES)]
    TooLong,
    /// The token is not three parts of strict base64url, is not JSON, lacks a claim, has a claim of a wrong type, or
    /// has a `crit` header.
    #[error("the proof must be a compact JWS with the claims sub, aud, iat and exp")]
    Malformed,
    /// The algorithm differs from the key's. No key has the algorithm `none`.
    #[error("the proof's algorithm differs from its key's: use HS256 or EdDSA")]
    Algorithm,
    /// There is no key of this `kid`, or no key at all.
    #[error("the proof names a key that is not configured: check the `kid`")]
    UnknownKey,
    /// The signature is invalid.
    #[error("the proof's signature is invalid: sign it with the configured key")]
    Signature,
    /// `aud` does not name the tenant.
    #[error("the proof is for another audience: `aud` must be the tenant's name")]
    Audience,
    /// `exp` has passed.
    #[error("the proof has expired")]
    Expired,
    /// `iat` or `nbf` is more than [`limits::PROOF_SKEW_S`] ahead.
    #[error("the proof is from the future: check the publisher's clock")]
    NotYet,
    /// The time from `iat` to `exp` is longer than [`limits::PROOF_LIFE_S`].
    #[error("the proof is valid for more than {} seconds: set an earlier `exp`", limits::PROOF_LIFE_S)]
    TooLongLived,
    /// `sub` is missing, empty or longer than [`limits::ALTERNATE_ID_BYTES`].
    #[error("the proof's `sub` must have 1 to {} bytes", limits::ALTERNATE_ID_BYTES)]
    Subject,
}

impl ProofError {
    /// A stable code for answers, metrics and logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::TooLongLived => "too_long_lived",
            Self::Subject => "subject",
        }
    }
}

/// Verifies a token with the tenant's keys at `now` (milliseconds since the Unix epoch).
///
/// A `kid` in the header chooses the key. Without one, every key of the token's algorithm is tried.
///
/// # Errors
/// The first failed check, in this order: form, algorithm and key, signature, claims.
pub fn verify_proof(token: &str, keys: &[ProofKey], tenant: &TenantId, now: Millis) -> Result<ProofClaims, ProofError> {
    let payload = open(token, keys)?;
    let payload: ClaimPayload = json(&payload)?;
    if !payload.is_for(tenant) {
        return Err(ProofError::Audience);
    }
    let iat = seconds(&payload.iat).ok_or(ProofError::Malformed)?;
    let exp = seconds(&payload.exp).ok_or(ProofError::Malformed)?;
    let nbf = match &payload.nbf {
        Some(nbf) => seconds(nbf).ok_or(ProofError::Malformed)?,
        None => iat,
    };
    if exp.saturating_mul(1000) <= now {
        return Err(ProofError::Expired);
    }
    let latest = now.saturating_add(limits::PROOF_SKEW_S * 1000);
    if iat.max(nbf).saturating_mul(1000) > latest {
        return Err(ProofError::NotYet);
    }
    if exp.saturating_sub(iat) > limits::PROOF_LIFE_S {
        return Err(ProofError::TooLongLived);
    }
    match payload.sub {
        Some(sub) if (1..=limits::ALTERNATE_ID_BYTES).contains(&sub.len()) => Ok(ProofClaims { sub, iat, exp }),
        _ => Err(ProofError::Subject),
    }
}

/// Signs a proof with an HS256 key, for development tools and tests; in production the publisher signs. `None` for a
/// key of another algorithm or with fewer than 32 bytes.
#[must_use]
pub fn sign_hs256(key: &ProofKey, sub: &str, tenant: &TenantId, iat_s: u64, exp_s: u64) -> Option<String> {
    if key.alg != ProofAlg::HS256 {
        return None;
    }
    let header = serde_json::json!({"alg": "HS256", "typ": "JWT", "kid": key.kid});
    let claims = serde_json::json!({"sub": sub, "aud": tenant.as_str(), "iat": iat_s, "exp": exp_s});
    let mut token = URL_SAFE_NO_PAD.encode_to_string(header.to_string());
    token.push('.');
    URL_SAFE_NO_PAD.encode_append(claims.to_string(), &mut token);
    let mac = hs256(&key.bytes())?.chain_update(&token).finalize();
    token.push('.');
    URL_SAFE_NO_PAD.encode_append(mac.into_bytes(), &mut token);
    Some(token)
}

/// The supported parts of a JOSE header (RFC 7515 §4.1). Other parts may be ignored, but `crit` must not.
#[derive(Deserialize)]
struct JoseHeader {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

/// Claims as received. `aud` is a text or a list of texts (RFC 7519 §4.1.3).
#[derive(Deserialize)]
struct ClaimPayload {
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    aud: Value,
    iat: Number,
    exp: Number,
    #[serde(default)]
    nbf: Option<Number>,
}

impl ClaimPayload {
    fn is_for(&self, tenant: &TenantId) -> bool {
        let names = |value: &Value| value.as_str() == Some(tenant.as_str());
        names(&self.aud) || self.aud.as_array().is_some_and(|list| list.iter().any(names))
    }
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// Reads a NumericDate (RFC 7519 §2): seconds, with any fraction dropped.
fn seconds(date: &Number) -> Option<u64> {
    /// Integers are exact up to here.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(whole) = date.as_u64() {
        return Some(whole);
    }
    let date = date.as_f64().filter(|date| (0.0..EXACT).contains(date))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to 2^53, and the fraction must be dropped"
    )]
    Some(date as u64)
}

/// Parses JSON from UTF-8 bytes.
fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ProofError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ProofError::Malformed)?;
    serde_json::from_str(text).map_err(|_| ProofError::Malformed)
}

fn open(token: &str, keys: &[ProofKey]) -> Result<Vec<u8>, ProofError> {
    if token.len() > limits::PROOF_BYTES {
        return Err(ProofError::TooLong);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(ProofError::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(ProofError::Malformed)?;
    // An extra dot stays in the payload, where base64url refuses it.
    let header: JoseHeader = json(&decode(header)?)?;
    let payload = decode(payload)?;
    let signature = decode(signature)?;
    if header.crit {
        return Err(ProofError::Malformed);
    }
    let alg = match header.alg.as_str() {
        "HS256" => ProofAlg::HS256,
        "EdDSA" => ProofAlg::EdDSA,
        _ => return Err(ProofError::Algorithm),
    };
    let named = |key: &&ProofKey| header.kid.as_ref().is_none_or(|kid| *kid == key.kid);
    let mut candidates = keys.iter().filter(named).peekable();
    if candidates.peek().is_none() {
        return Err(ProofError::UnknownKey);
    }
    let mut candidates = candidates.filter(|key| key.alg == alg).peekable();
    if candidates.peek().is_none() {
        return Err(ProofError::Algorithm);
    }
    if candidates.any(|key| signature_holds(key, signed.as_bytes(), &signature)) {
        Ok(payload)
    } else {
        Err(ProofError::Signature)
    }
}

fn decode(part: &str) -> Result<Vec<u8>, ProofError> {
    URL_SAFE_NO_PAD.decode_to_vec(part).map_err(|_| ProofError::Malformed)
}

/// Whether `signature` is the key's signature of `signed`. The time of the check does not depend on which bytes of the
/// signature are wrong.
fn signature_holds(key: &ProofKey, signed: &[u8], signature: &[u8]) -> bool {
    let bytes = key.bytes();
    match key.alg {
        ProofAlg::HS256 => hs256(&bytes).is_some_and(|mac| mac.chain_update(signed).verify_slice(signature).is_ok()),
        ProofAlg::EdDSA => match (PublicKey::from_slice(&bytes), Signature::from_slice(signature)) {
            (Ok(public), Ok(signature)) => public.verify(signed, &signature).is_ok(),
            _ => false,
        },
    }
}

/// The HMAC of a secret; `None` for fewer than 32 bytes (RFC 7518 §3.2). A key whose text is not base64 has no bytes,
/// and anyone could sign with an empty secret.
fn hs256(secret: &[u8]) -> Option<Hmac<Sha256>> {
    (secret.len() >= 32).then(|| Hmac::new_from_slice(secret).ok()).flatten()
}

#[cfg(test)]
mod tests;
