//! A browser for the tests of calls, as an edge with an empty KV sees it.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail, and not each uses all")]

use causeway_edge::{Engine, Outcome};
use causeway_shared::fact::Fact;
use causeway_shared::ids::{AltHash, Epoch, KindCode, Millis, Version, VisitorId};
use causeway_shared::keys::{Key, KeyRing, Keys, Stage, TenantKeys};
use causeway_shared::membership::Membership;
use causeway_shared::profile::{Content, SubProfile};
use causeway_shared::view::{Snapshot, Stored};
use causeway_shared::{kv, wire};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// A browser at an edge with an empty KV.
pub(crate) struct Browser {
    pub(crate) engine: Engine,
    /// Of alternate ids.
    pub(crate) ring: KeyRing,
    /// Of cookies and tokens.
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

    /// Of a tenant that says further things.
    pub(crate) fn of(no_signal: &str, further: &Value) -> Self {
        Self::keyed(no_signal, further, KeyRing(vec![key(1, Stage::Active, 1)]))
    }

    /// Whose cookies are signed with these keys.
    pub(crate) fn keyed(no_signal: &str, further: &Value, cookie: KeyRing) -> Self {
        let ring = |seed| KeyRing(vec![key(1, Stage::Active, seed)]);
        let proof = json!([{ "kid": "p", "alg": "HS256", "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" }]);
        let proof = serde_json::from_value(proof).unwrap();
        let demo = TenantKeys { cookie: cookie.clone(), alternate: ring(2), proof, ..TenantKeys::default() };
        let keys = Keys { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
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
        self.proof = self.engine.dev_proof("localhost", member, self.now);
    }

    /// Takes a call to its end, with nothing in the KV.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Outcome {
        let mut outcome = self.begin(method, path, body);
        while let Some(turn) = outcome.head.turn {
            outcome = self.engine.resume(turn, b"", "");
        }
        outcome
    }

    pub(crate) fn begin(&mut self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Outcome {
        self.now += 1_000;
        let Self { scheme, cookies, gpc, purpose, proof, .. } = self;
        let agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
        let head = format!(
            "{method}\n{scheme}://localhost{path}\n{}\n\n{gpc}\n{purpose}\n{agent}\n{proof}",
            cookies.join("; ")
        );
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.now.to_be_bytes());
        self.engine.begin(&head, body.as_ref(), self.now, &seed)
    }

    /// Goes on with a call that reads: each key's value, empty where there is none.
    pub(crate) fn give<'v>(&mut self, asked: Outcome, value: impl Fn(&str) -> &'v str) -> Outcome {
        let values: Vec<&str> = asked.head.read.iter().map(|key| value(key)).collect();
        self.engine.resume(asked.head.turn.unwrap(), values.join("\n").as_bytes(), "")
    }

    /// A page view; gives the visitor.
    pub(crate) fn visit(&mut self) -> VisitorId {
        let outcome = self.send("POST", "/v1/decide", "{}");
        self.keep(&outcome);
        serde_json::from_slice::<Value>(&outcome.body).unwrap()["visitor"].as_str().unwrap().parse().unwrap()
    }

    /// The KV's value of a visitor of this member, with so many bytes of segments.
    pub(crate) fn stored(&self, visitor: VisitorId, member: &str, bytes: usize) -> String {
        let unique: AltHash = self.ring.hash_alternate(KindCode(1), member)[0];
        let version = Version { restore: 0, counter: 5 };
        let content = Content { segments: vec![0; bytes], ..Content::default() };
        let admits = [visitor].into();
        let snapshot = Snapshot {
            version,
            visitor,
            unique: vec![unique],
            membership: Membership { epoch: Epoch(3), devices: 1, admits, ..Membership::default() },
            profiles: [(visitor, SubProfile::pack(version, &content))].into_iter().collect(),
            best: None,
            truncated: false,
        };
        let key = kv::snapshot_key(&"demo".parse().unwrap(), visitor);
        wire::kv::encode_stored(&key, &Stored::Snapshot(Box::new(snapshot))).unwrap()
    }

    pub(crate) fn keep(&mut self, outcome: &Outcome) {
        for (_, set) in outcome.head.headers.iter().filter(|(name, _)| *name == "set-cookie") {
            let pair = set.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|c| !c.starts_with(&format!("{name}=")));
            self.cookies.extend((!value.is_empty()).then(|| pair.to_owned()));
        }
    }
}

/// A key of 32 bytes that the seed tells from others.
pub(crate) fn key(id: u8, stage: Stage, seed: u8) -> Key {
    let secret: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
    Key { id, stage, secret: secret.into() }
}

pub(crate) fn facts(outcome: &Outcome) -> Vec<Fact> {
    if outcome.facts.is_empty() { Vec::new() } else { wire::facts::decode(&outcome.facts).unwrap().facts }
}
