//! Attributes at the edge: the attributes of a call, and the attributes that `/v1/me` shows.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use crate::browser::{self, answer, body, complete, fact_count, facts, keep_cookies, read_kv, seed};
use causeway_edge::{Engine, HttpAnswer, ReadFault};
use causeway_shared::base::ids::{AltHash, Epoch, FactId, KindCode, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::{AttributeValue, NameToken, ValueKind};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::Profile;
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire;
use causeway_shared::wire::kv_keys::{self, attributes_key, snapshot_key};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// A browser, an edge and a KV.
struct World {
    engine: Engine,
    tenant: TenantId,
    /// The hashes of member ann.
    ann: Vec<AltHash>,
    now: Millis,
    cookies: Vec<String>,
    agent: &'static str,
    gpc: &'static str,
    proof: String,
    kv: BTreeMap<String, String>,
    /// The fault of all KV reads, if any.
    fault: Option<ReadFault>,
    /// The keys of each read of the last call.
    reads: Vec<Vec<String>>,
}

impl World {
    fn new() -> Self {
        Self::with("pages")
    }

    /// A world whose tenant has this policy for attribute names.
    fn with(policy: &str) -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret(seed).into() }]);
        let proof = json!([{ "kid": "p", "alg": "HS256", "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" }]);
        let proof = serde_json::from_value(proof).unwrap();
        let ann = ring(2).hash_alternate(KindCode(1), "ann");
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof, ..TenantKeys::default() };
        let keys = KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": "allow", "proof_header": "x-proof", "proof_cookie": "session",
            "kinds": [{ "name": "member", "code": 1, "unique": true }], "attribute_names": policy,
        }] });
        Self {
            engine: Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap(),
            tenant: "demo".parse().unwrap(),
            ann,
            now: NOW,
            cookies: Vec::new(),
            agent: "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
            gpc: "",
            proof: String::new(),
            kv: BTreeMap::new(),
            fault: None,
            reads: Vec::new(),
        }
    }

    /// A world whose browser has a visitor and whose isolate has read the pointer to the catalogue.
    fn visited() -> (Self, VisitorId) {
        Self::new().visit()
    }

    fn visit(self) -> (Self, VisitorId) {
        let mut world = self;
        let (answer, _) = world.decide(&json!({}));
        world.now += 60_000;
        (world, answer["visitor"].as_str().unwrap().parse().unwrap())
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        self.send_text(method, path, &body.to_string())
    }

    fn send_text(&mut self, method: &str, path: &str, body: &str) -> HttpAnswer {
        self.now += 1_000;
        let Self { agent, gpc, proof, .. } = self;
        let cookies = self.cookies.join("; ");
        let head = format!("{method}\nhttp://localhost{path}\n{cookies}\n\n{gpc}\n\n{agent}\n{proof}");
        let step = self.engine.begin(&head, body.as_bytes(), self.now, seed(0, self.now));
        self.reads.clear();
        // The pointer to the catalogue and the model are read periodically, in the same bulk read.
        let standing = kv_keys::standing_keys(&self.tenant);
        let step = complete(&mut self.engine, step, |keys| {
            let own: Vec<String> = keys.iter().filter(|key| !standing.contains(key)).cloned().collect();
            self.reads.extend((!own.is_empty()).then_some(own));
            read_kv(&self.kv, self.fault, keys)
        });
        let answer = answer(step);
        keep_cookies(&mut self.cookies, &answer);
        answer
    }

    /// The answer's body, and the attributes of each fact that has some.
    fn call(&mut self, method: &str, path: &str, body: &Value) -> (Value, Vec<Value>) {
        let answer = self.send(method, path, body);
        let facts = facts(&answer);
        assert!(facts.iter().all(|fact| fact.check(self.now) == Ok(())));
        let written = facts.into_iter().filter_map(|fact| match fact.what {
            FactKind::Attributes { writes } => Some(writes),
            _ => None,
        });
        let as_json = |writes: Vec<(String, Option<AttributeValue>)>| {
            writes.into_iter().map(|(name, value)| (name, value.map_or(Value::Null, |v| v.to_json()))).collect()
        };
        (browser::body(&answer), written.map(as_json).map(Value::Object).collect())
    }

    fn decide(&mut self, user: &Value) -> (Value, Vec<Value>) {
        self.call("POST", "/v1/decide", &json!({ "user": user }))
    }

    fn events(&mut self, events: &Value) -> (Value, Vec<Value>) {
        self.call("POST", "/v1/events", events)
    }

    /// Puts the pages of attribute names into the KV as the origin publishes them.
    fn publish(&mut self, names: &[(&str, ValueKind)]) {
        let all: Vec<(String, ValueKind)> = names.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        for (n, page) in all.chunks(limits::ATTRIBUTE_PAGE).enumerate() {
            let key = attributes_key(&self.tenant, n);
            let value = wire::kv::encode_names(&key, page).unwrap();
            self.kv.insert(key, value);
        }
    }

    /// A snapshot of the visitor as member ann's, with a sibling of one page and these attributes.
    fn snapshot(&mut self, own: VisitorId, own_values: &[(u16, AttributeValue)], of_sibling: &[(u16, AttributeValue)]) {
        let sibling = VisitorId::mint(NOW - 1_000, [9; 10]);
        let of = |visitor, n: u8, values: &[(u16, AttributeValue)]| {
            let what = FactKind::Attributes { writes: Vec::new() };
            let fact = Fact {
                position: 0,
                id: FactId::from_bytes([n; 16]),
                visitor,
                received: NOW,
                at: NOW - u64::from(n),
                what,
            };
            let mut profile = Profile::default();
            profile.assign(&fact, values.iter().map(|(token, value)| (NameToken(*token), Some(value.clone()))));
            (visitor, profile.sub_profile(SnapshotVersion { restore: 0, counter: 1 }, visitor == own))
        };
        let profiles = [of(own, 2, own_values), of(sibling, 1, of_sibling)].into_iter().collect();
        let admits = [own, sibling].into();
        let membership = Membership { epoch: Epoch(1), devices: 2, admits, ..Membership::default() };
        let version = SnapshotVersion { restore: 0, counter: 1 };
        let unique = self.ann.clone();
        let snapshot = Snapshot { version, visitor: own, unique, membership, profiles, best: None };
        let key = snapshot_key(&self.tenant, own);
        let value = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap();
        self.kv.insert(key, value);
    }
}

fn codes(answer: &Value) -> Vec<(u64, &str)> {
    let rejected = answer["rejected"].as_array().unwrap();
    rejected.iter().map(|r| (r["index"].as_u64().unwrap(), r["code"].as_str().unwrap())).collect()
}

#[test]
fn attributes_of_an_event_become_one_fact() {
    let (mut world, _) = World::visited();
    let set = json!({ "shoe_size": 42, "vip": true, "since": "2026-10-16", "tags": ["b", "a"], "score": 0.5 });
    let (answer, facts) = world.events(&json!([{ "type": "attributes", "set": set, "remove": ["x", "vip"] }]));
    assert_eq!(answer, json!({ "accepted": 1, "rejected": [] }));
    let expected = json!({
        "shoe_size": 42, "vip": true, "since": "2026-10-16", "tags": ["a", "b"], "score": 0.5, "x": null,
    });
    assert_eq!(facts, [expected], "an attribute that is set and removed is set");
    // A repeat under the client's own id makes one fact.
    let event = json!({ "type": "attributes", "id": "m-1", "set": { "vip": true } });
    let (answer, facts) = world.events(&json!([event, event]));
    assert_eq!((&answer["accepted"], facts.len()), (&json!(2), 1));
}

#[test]
fn an_invalid_attribute_is_refused_and_the_others_are_accepted() {
    let (mut world, _) = World::visited();
    world.publish(&[("shoe_size", ValueKind::Integer), ("score", ValueKind::Float)]);
    let mixed = json!({ "type": "attributes", "remove": ["-"], "set": {
        "shoe_size": "large", "score": 3, "9 bad": 1, "deep": {}, "long": "x".repeat(257), "new": true,
    } });
    let none = json!({ "type": "attributes", "set": { "shoe_size": true } });
    let page = json!({ "type": "page" });
    let (answer, facts) = world.events(&json!([mixed, none, page]));
    assert_eq!(answer["accepted"], json!(2));
    let all = ["bad_name", "malformed", "too_long", "bad_name", "type_mismatch"].map(|code| (0, code));
    assert_eq!(codes(&answer), [&all[..], &[(1, "type_mismatch")]].concat());
    let messages: Vec<&str> =
        answer["rejected"].as_array().unwrap().iter().map(|r| r["message"].as_str().unwrap()).collect();
    assert_eq!(messages[5], "attribute `shoe_size` is an integer, a bool was given");
    assert!(messages[0].starts_with("attribute `9 bad`: an attribute's name has 1 to 64"), "{}", messages[0]);
    assert_eq!(facts, [json!({ "score": 3, "new": true })]);
    // Over the bound of a fact, empty, and in the form of another type.
    let many: Vec<String> = (0..=limits::ATTRIBUTE_WRITES).map(|n| format!("n{n}")).collect();
    let odd = json!([
        { "type": "attributes", "remove": many }, { "type": "attributes" }, { "type": "attributes", "set": [] },
        { "type": "segments", "set": {} }, { "type": "attributes", "remove": ["x"], "at_ms": 1 },
    ]);
    let (answer, facts) = world.events(&odd);
    let expected = ["out_of_bounds", "out_of_bounds", "malformed", "malformed"];
    assert_eq!(codes(&answer), (0..).zip(expected).collect::<Vec<_>>());
    assert_eq!((&answer["adjusted"][0]["index"], facts), (&json!(4), vec![json!({ "x": null })]));
}

#[test]
fn a_whole_number_that_is_not_kept_exactly_is_refused_however_long_it_is() {
    let (mut world, _) = World::visited();
    for digits in ["9007199254740993", "18446744073709551615", "123456789012345678901234567890"] {
        let event = format!(r#"[{{"type":"attributes","set":{{"score":{digits},"vip":true}}}}]"#);
        let answer = world.send_text("POST", "/v1/events", &event);
        let reply: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((codes(&reply), &reply["accepted"]), (vec![(0, "out_of_bounds")], &json!(1)), "{digits}");
    }
}

#[test]
fn events_read_the_attribute_names_once_a_minute_and_only_for_values() {
    let (mut world, visitor) = World::visited();
    let known = [("vip", ValueKind::Bool)];
    world.publish(&known);
    // Whether the visitor was erased is read each time, in the same read.
    let own = snapshot_key(&world.tenant, visitor);
    let pages = (0..limits::ATTRIBUTE_PAGES).map(|n| attributes_key(&world.tenant, n));
    let both: Vec<String> = [own.clone()].into_iter().chain(pages).collect();
    for without in [json!({ "type": "page" }), json!({ "type": "attributes", "remove": ["vip"] })] {
        world.events(&json!([without]));
        assert_eq!(world.reads, [[own.clone()]]);
    }
    let event = json!([{ "type": "attributes", "set": { "vip": 1, "size": true } }]);
    let (answer, _) = world.events(&event);
    assert_eq!((codes(&answer), world.reads.clone()), (vec![(0, "type_mismatch")], vec![both]));
    world.publish(&[known[0], ("size", ValueKind::Integer)]);
    let (answer, _) = world.events(&event);
    assert_eq!((codes(&answer).len(), world.reads.concat()), (1, vec![own]), "names are cached for a minute");
    world.now += 60_000;
    let (answer, facts) = world.events(&event);
    assert_eq!((codes(&answer).len(), world.reads.concat().len(), facts.len()), (2, 1 + limits::ATTRIBUTE_PAGES, 0));
}

#[test]
fn late_or_invalid_attribute_names_count_as_absent() {
    let (mut world, _) = World::visited();
    world.publish(&[("vip", ValueKind::Bool)]);
    let event = json!([{ "type": "attributes", "set": { "vip": 1 } }]);
    world.fault = Some(ReadFault::Late);
    assert_eq!(world.events(&event).0, json!({ "accepted": 1, "rejected": [] }));
    world.fault = None;
    let good = world.kv[&attributes_key(&world.tenant, 0)].clone();
    world.kv.insert(attributes_key(&world.tenant, 0), "n1bad".to_owned());
    assert_eq!(world.events(&event).0["accepted"], json!(1));
    assert_eq!(world.reads.len(), 1, "names that were late are read again");
    world.kv.insert(attributes_key(&world.tenant, 0), good);
    assert_eq!(world.events(&event).0["accepted"], json!(0));
}

#[test]
fn attribute_names_are_read_up_to_the_first_missing_page() {
    let (mut world, _) = World::visited();
    let names: Vec<String> = (0..2_500).map(|n| format!("name_{n}")).collect();
    world.publish(&names.iter().map(|name| (name.as_str(), ValueKind::Bool)).collect::<Vec<_>>());
    let event = json!([{ "type": "attributes", "set": { "name_999": 1, "name_1000": 1, "name_2499": 1 } }]);
    assert_eq!(codes(&world.events(&event).0).len(), 3);
    world.now += 60_000;
    world.kv.remove(&attributes_key(&world.tenant, 1));
    assert_eq!(codes(&world.events(&event).0).len(), 1);
}

#[test]
fn decide_accepts_attributes_in_addition_to_the_page_view() {
    let (mut world, visitor) = World::visited();
    world.publish(&[("shoe_size", ValueKind::Integer)]);
    let user = json!({ "attributes": { "shoe_size": "large", "loyalty": true, "9 no": 1, "gone": null } });
    let (answer, facts) = world.decide(&user);
    let refused = json!({ "shoe_size": "type_mismatch", "9 no": "bad_name", "gone": "malformed" });
    assert_eq!((&answer["attributes"], &answer["kv_reads"]), (&refused, &json!(1)));
    assert_eq!(facts, [json!({ "loyalty": true })]);
    let mut keys = vec![snapshot_key(&world.tenant, visitor)];
    keys.extend((0..limits::ATTRIBUTE_PAGES).map(|n| attributes_key(&world.tenant, n)));
    assert_eq!(world.reads, [keys.clone()], "in one bulk read");
    let answer = world.send("POST", "/v1/decide", &json!({ "user": user }));
    let expected = (2, &[keys[..1].to_vec()][..]);
    assert_eq!((fact_count(&answer), &world.reads[..]), expected, "the page view and the attributes");
    // Without attributes the call reads its snapshot alone.
    let mut world = World::visited().0;
    let (answer, facts) = world.decide(&json!({}));
    assert_eq!((world.reads[0].len(), answer.get("attributes"), facts.len()), (1, None, 0));
    // A new visitor reads nothing; its attributes are checked at the origin.
    let mut world = World::new();
    world.gpc = "1";
    assert_eq!(world.decide(&user).0["kv_reads"], json!(1), "the pointer to the catalogue");
    world.gpc = "";
    let (answer, facts) = world.decide(&user);
    assert_eq!((world.reads.len(), &answer["kv_reads"], facts.len()), (0, &json!(0), 1));
}

#[test]
fn attributes_count_only_with_permission_and_never_for_bots() {
    let (mut world, _) = World::visited();
    let user = json!({ "attributes": { "loyalty": true, "9 no": 1 } });
    world.agent = "Mozilla/5.0 (compatible; Googlebot/2.1)";
    let (answer, facts) = world.decide(&user);
    assert_eq!((answer.get("attributes"), facts.len(), world.reads[0].len()), (None, 0, 1));
    world.agent = "Firefox";
    world.gpc = "1";
    let (answer, facts) = world.decide(&user);
    assert_eq!((answer.get("attributes"), facts.len(), world.reads.len()), (None, 0, 0));
    world.gpc = "";
    let many: BTreeMap<String, bool> = (0..=limits::ATTRIBUTE_WRITES).map(|n| (format!("n{n}"), true)).collect();
    let (answer, facts) = world.decide(&json!({ "attributes": many }));
    assert_eq!((answer["attributes"].clone(), facts.len()), (json!({ "attributes": "out_of_bounds" }), 0));
}

#[test]
fn an_attribute_that_is_no_valid_json_value_is_refused_alone_and_the_page_gets_its_ads() {
    let (mut world, _) = World::visited();
    let mut decide = |attributes: &str| {
        let answer = world.send_text("POST", "/v1/decide", &format!(r#"{{"user":{{"attributes":{attributes}}}}}"#));
        (answer.status, body(&answer)["attributes"].clone())
    };
    // Half of an emoji, as `JSON.stringify` writes a truncated text; a number out of the range of JSON readers.
    let odd = r#"{"half":"\ud83d","vast":1e999,"b":true}"#;
    assert_eq!(decide(odd), (200, json!({ "vast": "malformed" })));
    for whole in ["[]", "7"] {
        assert_eq!(decide(whole), (200, json!({ "attributes": "malformed" })), "{whole}");
    }
    assert_eq!(decide(r#"{"\ud83d":1}"#), (200, json!({ "\u{FFFD}": "bad_name" })));
    assert_eq!(decide("null"), (200, Value::Null));
    let event = format!(r#"[{{"type":"attributes","set":{odd}}}]"#);
    let answer = body(&world.send_text("POST", "/v1/events", &event));
    assert_eq!((&answer["accepted"], codes(&answer)), (&json!(1), vec![(0, "malformed")]));
}

#[test]
fn a_call_adds_a_bounded_number_of_attribute_names_and_none_where_only_admins_may() {
    let (mut world, _) = World::visited();
    world.publish(&[("vip", ValueKind::Bool)]);
    let event = |n: usize| {
        let set: BTreeMap<String, bool> = (0..40).map(|i| (format!("n{}", n * 40 + i), true)).collect();
        json!({ "type": "attributes", "set": set })
    };
    let (answer, facts) = world.events(&json!([event(0), event(1), event(2)]));
    assert_eq!(answer["accepted"], 2);
    let names: usize = facts.iter().map(|fact| fact.as_object().unwrap().len()).sum();
    assert_eq!(names, limits::ATTRIBUTE_NAMES_A_CALL);
    assert!(codes(&answer).iter().all(|(_, code)| *code == "too_many_names"));
    let (mut world, _) = World::with("admin").visit();
    world.publish(&[("vip", ValueKind::Bool)]);
    let (answer, facts) = world.events(&json!([{ "type": "attributes", "set": { "vip": true, "new": 1 } }]));
    assert_eq!((codes(&answer), facts), (vec![(0, "unknown_name")], vec![json!({ "vip": true })]));
}

#[test]
fn no_attribute_name_counts_as_new_while_the_names_cannot_be_read() {
    let (mut world, _) = World::visited();
    let named: Vec<String> = (0..80).map(|n| format!("n{n}")).collect();
    let kinds: Vec<_> = named.iter().map(|name| (name.as_str(), ValueKind::Bool)).collect();
    world.publish(&kinds);
    world.fault = Some(ReadFault::Late);
    let event = |names: &[String]| {
        let set: BTreeMap<&String, bool> = names.iter().map(|name| (name, true)).collect();
        json!({ "type": "attributes", "set": set })
    };
    let (answer, facts) = world.events(&json!([event(&named[..40]), event(&named[40..])]));
    assert_eq!(answer, json!({ "accepted": 2, "rejected": [] }));
    assert_eq!(facts.iter().map(|fact| fact.as_object().unwrap().len()).sum::<usize>(), 80);
}

#[test]
fn an_invalid_page_of_attribute_names_refuses_no_known_name() {
    let (mut world, _) = World::with("admin").visit();
    let named: Vec<String> = (0..=limits::ATTRIBUTE_PAGE).map(|n| format!("n{n}")).collect();
    let kinds: Vec<_> = named.iter().map(|name| (name.as_str(), ValueKind::Bool)).collect();
    world.publish(&kinds);
    let second = attributes_key(&world.tenant, 1);
    let whole = world.kv.insert(second.clone(), "garbage".to_owned()).unwrap();
    let of_it = json!([{ "type": "attributes", "set": { "n1000": true } }]);
    assert_eq!(world.events(&of_it).0, json!({ "accepted": 1, "rejected": [] }));
    world.kv.insert(second, whole);
    world.now += 60_000;
    let (answer, _) = world.events(&json!([{ "type": "attributes", "set": { "n1000": true, "new": true } }]));
    assert_eq!(codes(&answer), [(0, "unknown_name")]);
}

#[test]
fn of_several_session_cookies_the_valid_one_is_the_proof() {
    let (mut world, _) = World::visited();
    let good = world.engine.sign_demo_proof("localhost", "ann", NOW).unwrap();
    let (before, _) = world.call("GET", "/v1/me", &Value::Null);
    assert!(before.get("view").is_none(), "{before}");
    world.cookies.extend(["session=of.another.time".to_owned(), format!("session={good}")]);
    let (answer, _) = world.decide(&json!({}));
    assert_eq!(answer["member"], Value::Null, "{answer}");
    world.now += 1_000;
    let (me, _) = world.call("GET", "/v1/me", &Value::Null);
    assert!(me.get("view").is_some(), "{me}");
}

#[test]
fn valid_session_cookies_of_different_members_prove_neither() {
    let sign = |world: &World, member: &str, ago: u64| {
        format!("session={}", world.engine.sign_demo_proof("localhost", member, NOW - ago).unwrap())
    };
    let is_proven = |sessions: &dyn Fn(&World) -> Vec<String>| {
        let (mut world, _) = World::visited();
        let (ann, sessions) = (sign(&world, "ann", 0), sessions(&world));
        world.cookies.push(ann.clone());
        world.decide(&json!({}));
        world.now += 1_000;
        world.cookies.retain(|cookie| *cookie != ann);
        world.cookies.extend(sessions);
        let (me, _) = world.call("GET", "/v1/me", &Value::Null);
        me.get("view").is_some()
    };
    assert!(is_proven(&|world| vec![sign(world, "ann", 0), sign(world, "ann", 1_000)]), "two proofs of one member");
    assert!(!is_proven(&|world| vec![sign(world, "mallory", 0), sign(world, "ann", 0)]));
    assert!(!is_proven(&|world| vec![sign(world, "ann", 0), sign(world, "mallory", 0)]));
    // The fifth value may be the member's own: cookies of a longer path come first.
    let own_last = |world: &World| {
        let others = (1..5).map(|n| sign(world, "mallory", n * 1_000));
        others.chain([sign(world, "ann", 0)]).collect()
    };
    assert!(!is_proven(&own_last));
    let repeated = |world: &World| vec![sign(world, "ann", 0); 9];
    assert!(is_proven(&repeated), "one value, sent again");
}

#[test]
fn me_shows_the_persons_attributes_by_name_to_a_proven_member() {
    let mut world = World::new();
    world.proof = world.engine.sign_demo_proof("localhost", "ann", NOW).unwrap();
    let (answer, _) = world.decide(&json!({}));
    world.now += 60_000;
    let own: VisitorId = answer["visitor"].as_str().unwrap().parse().unwrap();
    world.publish(&[("shoe_size", ValueKind::Integer), ("vip", ValueKind::Bool), ("since", ValueKind::Date)]);
    let sibling = [(1, AttributeValue::Bool(true)), (0, AttributeValue::Integer(43)), (9, AttributeValue::Bool(true))];
    world.snapshot(own, &[(0, AttributeValue::Integer(42)), (2, AttributeValue::Date(20_742))], &sibling);
    let (me, _) = world.call("GET", "/v1/me", &Value::Null);
    assert_eq!(me["attributes"], json!({ "shoe_size": 43, "vip": true, "since": "2026-10-16" }));
    assert_eq!((&me["kv_reads"], world.reads.len()), (&json!(1), 1));
    world.proof.clear();
    let (me, _) = world.call("GET", "/v1/me", &Value::Null);
    assert_eq!(me["attributes"], json!({ "shoe_size": 42, "since": "2026-10-16" }), "the visitor's own alone");
    // A new name is shown at once.
    let more = [("shoe_size", ValueKind::Integer), ("vip", ValueKind::Bool), ("day_one", ValueKind::Date)];
    world.publish(&more);
    let (me, _) = world.call("GET", "/v1/me", &Value::Null);
    assert_eq!(me["attributes"], json!({ "shoe_size": 42, "day_one": "2026-10-16" }));
}
