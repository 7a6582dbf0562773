//! `DELETE /v1/me`: what the queue gets, and what the browser keeps.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use causeway_edge::{Engine, Outcome};
use causeway_shared::fact::{Fact, Scope, What};
use causeway_shared::ids::{AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::keys::{Key, KeyRing, Keys, Stage, TenantKeys};
use causeway_shared::wire;
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;
const MEMBER: KindCode = KindCode(1);

/// A browser at an edge with an empty KV.
struct Browser {
    engine: Engine,
    ring: KeyRing,
    now: Millis,
    cookies: Vec<String>,
    gpc: &'static str,
    proof: String,
}

impl Browser {
    fn new() -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![Key { id: 1, stage: Stage::Active, secret: secret(seed).into() }]);
        let proof = json!([{ "kid": "p", "alg": "HS256", "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" }]);
        let proof = serde_json::from_value(proof).unwrap();
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof, ..TenantKeys::default() };
        let keys = Keys { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": "allow", "proof_header": "x-proof",
            "kinds": [{ "name": "member", "code": 1, "unique": true }],
        }] });
        Self {
            engine: Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap(),
            ring: ring(2),
            now: NOW,
            cookies: Vec::new(),
            gpc: "",
            proof: String::new(),
        }
    }

    fn prove(&mut self, member: &str) {
        self.proof = self.engine.dev_proof("localhost", member, self.now);
    }

    fn send(&mut self, method: &str, path: &str) -> Outcome {
        self.now += 1_000;
        let Self { cookies, gpc, proof, .. } = self;
        let agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
        let head = format!("{method}\nhttp://localhost{path}\n{}\n\n{gpc}\n\n{agent}\n\n{proof}", cookies.join("; "));
        let mut outcome = self.engine.begin(&head, b"{}", self.now, &[7; 32]);
        while let Some(turn) = outcome.head.turn {
            outcome = self.engine.resume(turn, b"", "");
        }
        outcome
    }

    /// A page view; gives the visitor.
    fn visit(&mut self) -> VisitorId {
        let outcome = self.send("POST", "/v1/decide");
        self.keep(&outcome);
        serde_json::from_slice::<Value>(&outcome.body).unwrap()["visitor"].as_str().unwrap().parse().unwrap()
    }

    fn keep(&mut self, outcome: &Outcome) {
        for (_, set) in outcome.head.headers.iter().filter(|(name, _)| *name == "set-cookie") {
            let pair = set.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|c| !c.starts_with(&format!("{name}=")));
            self.cookies.extend((!value.is_empty()).then(|| pair.to_owned()));
        }
    }
}

fn facts(outcome: &Outcome) -> Vec<Fact> {
    if outcome.facts.is_empty() { Vec::new() } else { wire::facts::decode(&outcome.facts).unwrap().facts }
}

#[test]
fn an_erasure_is_acknowledged_once_the_queue_has_it_and_takes_the_cookies_along() {
    let mut browser = Browser::new();
    let visitor = browser.visit();
    assert_eq!(browser.cookies.len(), 2);
    let first = browser.send("DELETE", "/v1/me");
    let again = browser.send("DELETE", "/v1/me");
    assert_eq!((first.head.status, first.head.ack, first.head.facts), (202, true, 1));
    let receipt = FactId::of_erasure(visitor);
    assert_eq!(
        serde_json::from_slice::<Value>(&first.body).unwrap(),
        json!({ "receipt": receipt.receipt(), "scope": "visitor" })
    );
    assert_eq!(first.body, again.body, "a request sent again has the same receipt");
    let fact = &facts(&first)[0];
    assert_eq!((fact.id, fact.visitor, fact.check(browser.now)), (receipt, visitor, Ok(())));
    assert_eq!(fact.what, What::Erasure { scope: Scope::Visitor, id: None, also: Vec::new() });
    browser.keep(&first);
    assert_eq!(browser.cookies, [""; 0]);
    let nobody = browser.send("DELETE", "/v1/me");
    assert_eq!((nobody.head.status, facts(&nobody).len()), (404, 0));
    assert_ne!(browser.visit(), visitor);
}

#[test]
fn only_the_visitor_s_own_member_erases_the_person() {
    let mut browser = Browser::new();
    browser.prove("ann");
    browser.visit();
    browser.prove("bert");
    let other = browser.send("DELETE", "/v1/me");
    assert_eq!((other.head.status, facts(&other).len()), (404, 0), "nobody erases somebody else by sharing a browser");
    browser.prove("ann");
    let own = browser.send("DELETE", "/v1/me");
    assert_eq!(serde_json::from_slice::<Value>(&own.body).unwrap()["scope"], "person");
    let id = AlternateId { kind: MEMBER, hash: browser.ring.hash_alternate(MEMBER, "ann")[0] };
    assert_eq!(facts(&own)[0].what, What::Erasure { scope: Scope::Person, id: Some(id), also: Vec::new() });
}

#[test]
fn who_gives_no_permission_is_erased_too_and_a_page_may_ask_for_it() {
    let mut browser = Browser::new();
    let visitor = browser.visit();
    browser.gpc = "1";
    let outcome = browser.send("DELETE", "/v1/me");
    assert_eq!((outcome.head.status, facts(&outcome)[0].visitor), (202, visitor));
    browser.cookies = vec!["cw_id=v1.1.x.y".to_owned()];
    let refused = browser.send("DELETE", "/v1/me");
    assert_eq!(refused.head.status, 404);
    assert!(refused.head.headers.iter().any(|(name, value)| *name == "set-cookie" && value.contains("Max-Age=0")));
    let preflight = browser.send("OPTIONS", "/v1/me");
    assert!(preflight.head.headers.contains(&("access-control-allow-methods", "GET, POST, DELETE".to_owned())));
}
