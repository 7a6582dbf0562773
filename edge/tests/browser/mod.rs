//! Helpers of the edge's tests: a browser at an edge with an empty KV, and functions that complete a request.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail, and no test file uses all helpers"
)]

use std::collections::BTreeMap;

use causeway_edge::{
    Engine, EngineStep, FactsMessage, HttpAnswer, KvRead, KvValues, ObjectCall, RateLimit, ReadFault, UnservedReason,
};
use causeway_shared::base::ids::{AltHash, Epoch, KindCode, Millis, SnapshotVersion, VisitorId};
use causeway_shared::facts::fact::Fact;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// A browser at an edge with an empty KV.
pub(crate) struct Browser {
    pub(crate) engine: Engine,
    /// Keys of alternate ids.
    pub(crate) ring: KeyRing,
    /// Keys of cookies and tokens.
    pub(crate) cookie_ring: KeyRing,
    pub(crate) now: Millis,
    pub(crate) scheme: &'static str,
    pub(crate) cookies: Vec<String>,
    pub(crate) gpc: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) proof: String,
}

impl Browser {
    pub(crate) fn new(no_signal: &str) -> Self {
        Self::of(no_signal, &json!({}))
    }

    /// A browser at a tenant with further settings.
    pub(crate) fn of(no_signal: &str, further: &Value) -> Self {
        Self::keyed(no_signal, further, KeyRing(vec![key(1, KeyStage::Active, 1)]))
    }

    /// A browser at a tenant whose cookies are signed with these keys.
    pub(crate) fn keyed(no_signal: &str, further: &Value, cookie: KeyRing) -> Self {
        let ring = |seed| KeyRing(vec![key(1, KeyStage::Active, seed)]);
        let proof = json!([{ "kid": "p", "alg": "HS256", "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" }]);
        let proof = serde_json::from_value(proof).unwrap();
        let demo = TenantKeys { cookie: cookie.clone(), alternate: ring(2), proof, ..TenantKeys::default() };
        let keys = KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let mut config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": no_signal, "proof_header": "x-proof", "house_ad": { "id": "house" },
            "kinds": [{ "name": "member", "code": 1, "unique": true }],
        }] });
        let tenant = config["tenant"][0].as_object_mut().unwrap();
        tenant.extend(further.as_object().unwrap().clone());
        Self {
            engine: Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap(),
            ring: ring(2),
            cookie_ring: cookie,
            now: NOW,
            scheme: "http",
            cookies: Vec::new(),
            gpc: "",
            purpose: "",
            proof: String::new(),
        }
    }

    pub(crate) fn prove(&mut self, member: &str) {
        self.proof = self.engine.sign_demo_proof("localhost", member, self.now).unwrap();
    }

    /// Completes a call with an empty KV.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> HttpAnswer {
        let step = self.begin(method, path, body);
        answer(complete(&mut self.engine, step, |keys| values(keys, |_| None)))
    }

    pub(crate) fn begin(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> EngineStep {
        self.now += 1_000;
        let Self { scheme, cookies, gpc, purpose, proof, .. } = self;
        let agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
        let head = format!(
            "{method}\n{scheme}://localhost{path}\n{}\n\n{gpc}\n{purpose}\n{agent}\n{proof}",
            cookies.join("; ")
        );
        self.engine.begin(&head, body.as_ref(), self.now, seed(7, self.now))
    }

    /// Continues a call after a read; `value` returns the value of a key, `None` for a key that the KV lacks.
    pub(crate) fn give<'v>(&mut self, read: KvRead, value: impl Fn(&str) -> Option<&'v str>) -> EngineStep {
        self.engine.resume_read(read.pending, &values(&read.keys, value))
    }

    /// A page view; returns its visitor.
    pub(crate) fn visit(&mut self) -> VisitorId {
        let page = self.send("POST", "/v1/decide", "{}");
        self.keep(&page);
        body(&page)["visitor"].as_str().unwrap().parse().unwrap()
    }

    /// The KV value of a visitor of this member, with this number of bytes of segments.
    pub(crate) fn stored(&self, visitor: VisitorId, member: &str, bytes: usize) -> String {
        let unique: AltHash = self.ring.hash_alternate(KindCode(1), member)[0];
        let version = SnapshotVersion { restore: 0, counter: 5 };
        let content = SubContent { segments: vec![0; bytes], ..SubContent::default() };
        let admits = [visitor].into();
        let snapshot = Snapshot {
            version,
            visitor,
            unique: vec![unique],
            membership: Membership { epoch: Epoch(3), devices: 1, admits, ..Membership::default() },
            profiles: [(visitor, SubProfile::pack(version, &content))].into_iter().collect(),
            best: None,
        };
        let key = kv_keys::snapshot_key(&"demo".parse().unwrap(), visitor);
        wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap()
    }

    pub(crate) fn keep(&mut self, answer: &HttpAnswer) {
        keep_cookies(&mut self.cookies, answer);
    }
}

/// A key of 32 bytes that differ by the seed.
pub(crate) fn key(id: u8, stage: KeyStage, seed: u8) -> RingKey {
    let secret: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
    RingKey { id, stage, secret: secret.into() }
}

/// A request's random seed, which differs by the time.
pub(crate) fn seed(fill: u8, now: Millis) -> [u8; 32] {
    let mut seed = [fill; 32];
    seed[..8].copy_from_slice(&now.to_be_bytes());
    seed
}

/// Completes the reads of a request; stops at an object call or at the answer.
pub(crate) fn complete(
    engine: &mut Engine,
    mut step: EngineStep,
    mut kv: impl FnMut(&[String]) -> KvValues,
) -> EngineStep {
    while let EngineStep::Read(read) = step {
        let found = kv(&read.keys);
        step = engine.resume_read(read.pending, &found);
    }
    step
}

/// The value of each key, `None` for a key that the KV lacks.
pub(crate) fn values<'v>(keys: &[String], value: impl Fn(&str) -> Option<&'v str>) -> KvValues {
    Ok(keys.iter().map(|key| value(key).map(|value| value.as_bytes().to_vec())).collect())
}

/// The values of these keys in a KV, or the fault of its reads.
pub(crate) fn read_kv(kv: &BTreeMap<String, String>, fault: Option<ReadFault>, keys: &[String]) -> KvValues {
    fault.map_or_else(|| values(keys, |key| kv.get(key).map(String::as_str)), Err)
}

/// The read that a request waits for.
pub(crate) fn read(step: EngineStep) -> KvRead {
    match step {
        EngineStep::Read(read) => *read,
        other => panic!("not a read: {other:?}"),
    }
}

/// The answer of a request.
pub(crate) fn answer(step: EngineStep) -> HttpAnswer {
    match step {
        EngineStep::Answer(answer) => answer,
        other => panic!("not an answer: {other:?}"),
    }
}

/// The object call that a request waits for.
pub(crate) fn object_call(step: &EngineStep) -> Option<&ObjectCall> {
    if let EngineStep::Call(_, call) = step { Some(call) } else { None }
}

pub(crate) fn is_overloaded(step: &EngineStep) -> bool {
    matches!(step, EngineStep::Unserved(UnservedReason::Overloaded))
}

/// An answer's body as JSON.
pub(crate) fn body(answer: &HttpAnswer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// The first header of this name.
pub(crate) fn header<'a>(answer: &'a HttpAnswer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_str())
}

/// The `Set-Cookie` headers of an answer.
pub(crate) fn set_cookies(answer: &HttpAnswer) -> impl Iterator<Item = &str> {
    answer.headers.iter().filter(|(name, _)| *name == "set-cookie").map(|(_, value)| value.as_str())
}

/// Stores an answer's cookies as a browser does.
pub(crate) fn keep_cookies(cookies: &mut Vec<String>, answer: &HttpAnswer) {
    for set in set_cookies(answer) {
        let pair = set.split(';').next().unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        cookies.retain(|cookie| !cookie.starts_with(&format!("{name}=")));
        cookies.extend((!value.is_empty()).then(|| pair.to_owned()));
    }
}

/// The facts of an answer. Panics if their number differs from the count of the message.
pub(crate) fn facts(answer: &HttpAnswer) -> Vec<Fact> {
    let Some(message) = &answer.facts else { return Vec::new() };
    let facts = wire::facts::decode_batch(&message.bytes).unwrap().facts;
    assert_eq!(facts.len(), usize::from(message.count));
    facts
}

/// The number of facts of an answer, as its message states it.
pub(crate) fn fact_count(answer: &HttpAnswer) -> u16 {
    answer.facts.as_ref().map_or(0, |message| message.count)
}

/// Whether the answer waits until its facts are accepted.
pub(crate) fn awaits_facts(answer: &HttpAnswer) -> bool {
    answer.facts.as_ref().is_some_and(|message| message.is_awaited)
}

/// The rate limit that admits the answer's facts.
pub(crate) fn facts_limit(answer: &HttpAnswer) -> Option<&RateLimit> {
    let message: &FactsMessage = answer.facts.as_ref()?;
    message.limit.as_ref()
}
