//! Secret keys: their purposes, their life cycle, and their two uses, to sign our cookies and to hash alternate ids.
//!
//! A rotation has three steps, so that no reader meets a signature of an unknown key. A `next` key is readable
//! everywhere; then it becomes the `active` key that is written; an `old` key stays readable until it is retired. The
//! key file is the same JSON at the origin and, as the secret `CAUSEWAY_KEYS`, at the edge.

use base64_simd::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::base::ids::{AltHash, KindCode};
use crate::base::limits;
use crate::base::problems::ConfigProblem;

/// The stage of a key's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStage {
    /// Readable everywhere, not yet written.
    Next,
    /// Written and readable. Each purpose has exactly one.
    Active,
    /// Readable, no longer written.
    Old,
}

/// A key of ours: 32 random bytes with a small id.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingKey {
    /// 1 to 255; the first byte of everything that the key makes.
    pub id: u8,
    /// The stage of its life.
    pub stage: KeyStage,
    /// The secret, standard base64 of 32 bytes.
    pub secret: HmacSecret,
}

/// 32 secret bytes and the HMAC-SHA-256 state keyed with them. The state is computed once, because it is a third of the
/// cost of a cookie's MAC.
#[derive(Clone)]
pub struct HmacSecret {
    bytes: [u8; 32],
    keyed: Hmac<Sha256>,
}

impl From<[u8; 32]> for HmacSecret {
    fn from(bytes: [u8; 32]) -> Self {
        // The secret is shorter than a block, so it is padded with zeros (RFC 2104 §2).
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Self { bytes, keyed: Hmac::new(&block) }
    }
}

impl HmacSecret {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl std::fmt::Debug for HmacSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a secret")
    }
}

impl PartialEq for HmacSecret {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for HmacSecret {}

impl Serialize for HmacSecret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode_to_string(self.bytes))
    }
}

impl<'de> Deserialize<'de> for HmacSecret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD.decode_to_vec(text).map_err(|_| D::Error::custom("a key must be standard base64"))?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| D::Error::custom("a key must have 32 bytes"))?;
        Ok(bytes.into())
    }
}

impl std::fmt::Debug for RingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {} ({:?})", self.id, self.stage)
    }
}

/// The keys of one purpose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyRing(pub Vec<RingKey>);

/// A key that verifies the publisher's member proofs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofKey {
    /// The `kid` of the JWS header. A token without one is tried against every key of its algorithm.
    pub kid: String,
    /// The algorithm of this key. The token's own `alg` never chooses it.
    pub alg: ProofAlg,
    /// Standard base64: the shared secret (HS256, 32 bytes or more) or the public key (EdDSA, 32 bytes).
    pub key: String,
}

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "proof key {} ({:?})", self.kid, self.alg)
    }
}

/// Signature algorithms of member proofs (RFC 7518 §3.1, RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProofAlg {
    /// HMAC with SHA-256.
    HS256,
    /// Ed25519.
    EdDSA,
}

/// One tenant's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantKeys {
    /// Signs cookies and tokens.
    pub cookie: KeyRing,
    /// Hashes alternate ids.
    pub alternate: KeyRing,
    /// Verify member proofs; the publisher signs them.
    #[serde(default)]
    pub proof: Vec<ProofKey>,
    /// Permits `"explain": true`. An opaque text of at least 16 characters, sent in the header `x-causeway-explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
    /// Sign the messages to the tenant's webhook. Empty without a webhook; the edge does not use them.
    #[serde(default, skip_serializing_if = "KeyRing::is_empty")]
    pub webhook: KeyRing,
}

/// The whole key file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySet {
    /// Authenticates the edge to the origin.
    pub sync: KeyRing,
    /// Permits `"explain": true` for tenants without an `explain` key of their own.
    #[serde(default)]
    pub explain: Option<String>,
    /// Keys by tenant name.
    pub tenants: std::collections::BTreeMap<String, TenantKeys>,
}

impl KeySet {
    /// All problems of the key file, for these tenants. No text repeats a secret.
    #[must_use]
    pub fn problems<'a>(&self, tenants: impl IntoIterator<Item = &'a str>) -> Vec<ConfigProblem> {
        let mut found = Vec::new();
        self.sync.problems("sync", &mut found);
        for name in tenants {
            let Some(keys) = self.tenants.get(name) else {
                found.push(ConfigProblem {
                    path: format!("tenants.{name}"),
                    message: "this tenant has no keys: run `causeway keys rotate` for it".to_owned(),
                });
                continue;
            };
            keys.cookie.problems(&format!("tenants.{name}.cookie"), &mut found);
            keys.alternate.problems(&format!("tenants.{name}.alternate"), &mut found);
            if !keys.webhook.is_empty() {
                keys.webhook.problems(&format!("tenants.{name}.webhook"), &mut found);
            }
            for (i, proof) in keys.proof.iter().enumerate() {
                proof.problems(&format!("tenants.{name}.proof[{i}]"), &mut found);
            }
        }
        let own = self.tenants.iter().map(|(name, keys)| (format!("tenants.{name}.explain"), &keys.explain));
        for (path, key) in own.chain([("explain".to_owned(), &self.explain)]) {
            if key.as_ref().is_some_and(|key| key.len() < 16) {
                found.push(ConfigProblem { path, message: "must have at least 16 characters".to_owned() });
            }
        }
        found
    }
}

impl ProofKey {
    /// The key's bytes; empty if the text is not base64, which [`KeySet::problems`] refuses.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode_to_vec(&self.key).unwrap_or_default()
    }

    fn problems(&self, at: &str, found: &mut Vec<ConfigProblem>) {
        let bytes = self.bytes();
        let message = match self.alg {
            ProofAlg::HS256 if bytes.len() < 32 => "an HS256 secret must have at least 32 bytes, in base64",
            ProofAlg::EdDSA if bytes.len() != 32 => "an Ed25519 public key must have 32 bytes, in base64",
            _ if is_weak(&bytes) => "the key is weak, because its bytes repeat: generate one from a random source",
            _ => return,
        };
        found.push(ConfigProblem { path: format!("{at}.key"), message: message.to_owned() });
    }
}

impl KeyRing {
    /// The key that is written. `None` only for a ring that [`KeySet::problems`] refuses.
    #[must_use]
    pub fn active(&self) -> Option<&RingKey> {
        self.0.iter().find(|k| k.stage == KeyStage::Active)
    }

    /// Whether the ring has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `webhook-signature` for a message (Standard Webhooks 1.0.0, "Signature scheme"): one signature per
    /// key, so that a receiver with any of the keys can verify it. `seconds` is the value of `webhook-timestamp`, since
    /// 1970.
    #[must_use]
    pub fn sign_webhook(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let head = format!("{id}.{seconds}.");
        let sign = |key: &RingKey| {
            let hmac = key.secret.keyed.clone().chain_update(&head).chain_update(body);
            format!("v1,{}", STANDARD.encode_to_string(hmac.finalize().into_bytes()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }

    /// The key with this id, in any stage.
    #[must_use]
    pub fn by_id(&self, id: u8) -> Option<&RingKey> {
        self.0.iter().find(|k| k.id == id)
    }

    fn problems(&self, at: &str, found: &mut Vec<ConfigProblem>) {
        let mut say = |message: String| found.push(ConfigProblem { path: at.to_owned(), message });
        match self.0.iter().filter(|k| k.stage == KeyStage::Active).count() {
            0 => say("no key is active: run `causeway keys rotate`".to_owned()),
            1 => {}
            n => say(format!("{n} keys are active, but only one may be: run `causeway keys retire --id`")),
        }
        if self.0.len() > limits::KEYS_A_PURPOSE {
            say(format!("more than {} keys: run `causeway keys retire`", limits::KEYS_A_PURPOSE));
        }
        for (i, key) in self.0.iter().enumerate() {
            if key.id == 0 || self.0.iter().take(i).any(|other| other.id == key.id) {
                say(format!("key {}: the id must be from 1 to 255 and unique", key.id));
            }
            if is_weak(key.secret.bytes()) {
                say(format!("key {} is weak: its bytes repeat; replace it with `causeway keys rotate`", key.id));
            }
        }
    }

    /// The hashes of an alternate id: first under the active key, then under the other readable keys. Empty only
    /// without an active key.
    #[must_use]
    pub fn hash_alternate(&self, kind: KindCode, value: &str) -> Vec<AltHash> {
        let active = self.active().into_iter();
        let others = self.0.iter().filter(|k| k.stage != KeyStage::Active);
        active.chain(others).map(|key| key.hash_alternate(kind, value)).collect()
    }
}

impl RingKey {
    /// HMAC-SHA-256 (RFC 2104) over the parts. Each part is followed by its length as eight bytes, so that different
    /// lists of parts never have the same input.
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hmac = self.secret.keyed.clone();
        for part in parts {
            hmac.update(part);
            hmac.update(&(part.len() as u64).to_be_bytes());
        }
        hmac.finalize().into_bytes().into()
    }

    fn hash_alternate(&self, kind: KindCode, value: &str) -> AltHash {
        let full = self.mac(&[b"alternate", &[kind.0], value.as_bytes()]);
        let mut hash = [self.id; 16];
        for (to, from) in hash.iter_mut().skip(1).zip(full) {
            *to = from;
        }
        AltHash(hash)
    }
}

/// Parses a key id in its canonical decimal form: no sign, no leading zero.
#[must_use]
pub fn parse_id(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain)
}

/// Compares a text with a secret in a time that reveals only the secret's length.
#[must_use]
pub fn is_same(own: &str, text: &str) -> bool {
    own.as_bytes().ct_eq(text.as_bytes()).into()
}

/// Whether a secret has fewer than 16 different bytes. Of 32 random bytes this happens once in 10^13, so such a secret
/// is not random.
fn is_weak(secret: &[u8]) -> bool {
    let mut seen = [false; 256];
    for byte in secret {
        if let Some(mark) = seen.get_mut(usize::from(*byte)) {
            *mark = true;
        }
    }
    seen.iter().filter(|s| **s).count() < 16
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn key(id: u8, stage: KeyStage) -> RingKey {
        let mut secret = [0; 32];
        for (i, byte) in secret.iter_mut().enumerate() {
            *byte = u8::try_from(i).unwrap() ^ id;
        }
        RingKey { id, stage, secret: secret.into() }
    }

    #[test]
    fn a_webhook_has_a_standard_signature_for_each_key() {
        // The example of Standard Webhooks: HMAC takes its key of 24 bytes for one that ends in zeros.
        let mut secret = [0; 32];
        let known = STANDARD.decode_to_vec("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        secret.iter_mut().zip(known).for_each(|(to, byte)| *to = byte);
        let ring =
            KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret.into() }, key(2, KeyStage::Next)]);
        let signed = ring.sign_webhook("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        let (first, second) = signed.split_once(' ').unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(second.starts_with("v1,") && second != first);
        assert_eq!(KeyRing::default().sign_webhook("a", 1, b""), "");
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let key = key(1, KeyStage::Active);
        assert_ne!(key.mac(&[b"ab", b"c"]), key.mac(&[b"a", b"bc"]));
    }

    #[test]
    fn an_alternate_id_is_read_under_both_keys_of_a_rotation() {
        let ring = KeyRing(vec![key(1, KeyStage::Old), key(2, KeyStage::Active)]);
        let hashes = ring.hash_alternate(KindCode(1), "123");
        assert_eq!(hashes.iter().map(|h| h.0[0]).collect::<Vec<_>>(), [2, 1]);
        assert_ne!(hashes, ring.hash_alternate(KindCode(2), "123"));
    }

    #[test]
    fn weak_and_missing_keys_are_named() {
        let mut weak = key(1, KeyStage::Active);
        weak.secret = [7; 32].into();
        let keys = KeySet { sync: KeyRing(vec![weak]), ..KeySet::default() };
        let problems = keys.problems(["pub"]);
        let paths: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["sync", "tenants.pub"]);
        assert!(problems[0].message.contains("weak"));
    }

    #[test]
    fn a_debug_line_shows_no_secret() {
        let text = format!("{:?}", key(3, KeyStage::Next));
        assert_eq!(text, "key 3 (Next)");
    }
}
