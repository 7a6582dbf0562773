//! What `/v1/decide` places is in the ledger cookie of the same answer: the next page sees it before any snapshot does.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use causeway_edge::{Engine, Outcome};
use causeway_shared::actions::InsertionHash;
use causeway_shared::cookie::{self, LEDGER};
use causeway_shared::ids::{Millis, TenantId};
use causeway_shared::keys::{Key, KeyRing, Keys, Stage, TenantKeys};
use causeway_shared::ledger::Ledger;
use causeway_shared::{limits, token, wire};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;
const HUMAN: &str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";

/// A browser at an edge with an empty KV.
struct Page {
    engine: Engine,
    ring: KeyRing,
    tenant: TenantId,
    now: Millis,
    cookies: Vec<String>,
    agent: &'static str,
    purpose: &'static str,
    gpc: &'static str,
}

impl Page {
    fn new() -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![Key { id: 1, stage: Stage::Active, secret: secret(seed) }]);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof: Vec::new() };
        let keys = Keys { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": "allow",
            "kinds": [{ "name": "member", "code": 1, "unique": true }], "house_ad": { "id": "house" },
        }] });
        Self {
            engine: Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap(),
            ring: ring(1),
            tenant: "demo".parse().unwrap(),
            now: NOW,
            cookies: Vec::new(),
            agent: HUMAN,
            purpose: "",
            gpc: "",
        }
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Outcome {
        self.now += 20_000;
        let Self { cookies, agent, purpose, gpc, .. } = self;
        let head = format!("{method}\nhttp://localhost{path}\n{}\n\n{gpc}\n{purpose}\n{agent}\n\n", cookies.join("; "));
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.now.to_be_bytes());
        let mut outcome = self.engine.begin(&head, body.to_string().as_bytes(), self.now, &seed);
        while let Some(turn) = outcome.head.turn {
            outcome = self.engine.resume(turn, b"", "");
        }
        for (_, set) in outcome.head.headers.iter().filter(|(name, _)| *name == "set-cookie") {
            let pair = set.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|c| !c.starts_with(&format!("{name}=")));
            self.cookies.extend((!value.is_empty()).then(|| pair.to_owned()));
        }
        outcome
    }

    /// Decides on so many slots; gives the decisions.
    fn decide(&mut self, slots: usize, page_view: bool) -> Vec<Value> {
        let placements: Vec<Value> = (0..slots).map(|n| json!({ "id": format!("slot-{n}") })).collect();
        let outcome = self.send("POST", "/v1/decide", &json!({ "placements": placements, "page_view": page_view }));
        assert_eq!(outcome.head.status, 200);
        let body: Value = serde_json::from_slice(&outcome.body).unwrap();
        body["decisions"].as_array().unwrap().clone()
    }

    fn ledger(&self) -> Ledger {
        let value = self.cookies.iter().find_map(|c| c.strip_prefix(LEDGER)?.strip_prefix('=')).unwrap();
        let opened = cookie::open(&self.ring, LEDGER, &self.tenant, value).unwrap();
        wire::cookies::decode_ledger(&opened.payload).unwrap()
    }

    fn reserved(&self) -> Vec<InsertionHash> {
        self.ledger().reserved.iter().map(|r| r.insertion).collect()
    }

    fn placed(&self, decisions: &[Value]) -> Vec<InsertionHash> {
        let open =
            |d: &Value| token::open(&self.ring, &self.tenant, d["insertion"].as_str().unwrap(), self.now).unwrap();
        decisions.iter().map(|d| InsertionHash::of(open(d).insertion)).collect()
    }
}

#[test]
fn field_13_the_second_page_s_ledger_holds_the_first_one_s_insertions() {
    let mut page = Page::new();
    let first = page.decide(3, true);
    let first = page.placed(&first);
    assert_eq!(page.reserved(), first);
    let second = page.decide(2, true);
    let second = page.placed(&second);
    assert_eq!(page.reserved(), [first, second.clone()].concat());
    assert_eq!(page.ledger().pages.len(), 2);
    // Ten minutes after the second page only its own are left, then none.
    page.now += limits::SERVE_WINDOW_MS - 20_000;
    page.decide(0, true);
    assert_eq!(page.reserved()[page.reserved().len() - 2..], second);
    page.now += 120_000;
    page.decide(0, true);
    assert_eq!(page.reserved(), []);
}

#[test]
fn field_13_pixels_write_no_cookie_and_reservations_are_no_facts() {
    let mut page = Page::new();
    let decisions = page.decide(2, true);
    for decision in &decisions {
        let pixel = page.send("GET", decision["impression_url"].as_str().unwrap(), &Value::Null);
        assert_eq!((pixel.head.facts, pixel.head.headers.iter().any(|(name, _)| *name == "set-cookie")), (1, false));
    }
    assert_eq!(page.reserved(), page.placed(&decisions));
    let me: Value = serde_json::from_slice(&page.send("GET", "/v1/me", &Value::Null).body).unwrap();
    assert_eq!((&me["actions"], &me["own"]["pages"]), (&json!([]), &json!(1)));
}

#[test]
fn field_13_bots_and_prefetches_reserve_nothing_and_slots_loaded_late_do() {
    let mut page = Page::new();
    page.decide(1, true);
    let before = page.reserved();
    page.agent = "Mozilla/5.0 (compatible; Googlebot/2.1)";
    page.decide(2, true);
    page.agent = HUMAN;
    page.purpose = "prefetch";
    page.decide(2, true);
    page.purpose = "";
    assert_eq!(page.reserved(), before);
    let late = page.decide(2, false);
    assert_eq!(page.reserved(), [before, page.placed(&late)].concat(), "their pixels count too");
}

#[test]
fn field_21_without_permission_nothing_is_reserved() {
    let mut page = Page::new();
    page.decide(1, true);
    page.gpc = "1";
    let decisions = page.decide(1, true);
    assert!(decisions[0].get("insertion").is_none());
    assert_eq!(page.cookies, [""; 0]);
}
