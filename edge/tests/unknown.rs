//! The situations in which data of a person is known or may be missing for a decision
//! (docs/adr/0004-unknown-is-not-absent.md). A campaign whose conditions are unknown does not serve.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use crate::browser::{self, answer, body, complete, keep_cookies, read_kv, seed};
use causeway_edge::{Engine, ReadFault};
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{AltHash, AlternateId, Epoch, KindCode, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{self, ActionList, ActionType, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::attributes::{
    AttributeMap, AttributeValue as Attribute, NameDictionary, NameToken, ValueKind,
};
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState, WriteStamp};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{MissingParts, ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::catalogue::{CataloguePointer, encode_document, encode_pointer};
use causeway_shared::wire::kv_keys;
use causeway_shared::wire::{self, flat};
use serde_json::{Map, Value, json};

const NOW: Millis = 1_800_000_000_000;
const EXPLAIN: &str = "an explain key of these tests";
/// Each placement of a page asks for the ad of one campaign, by its size.
const CAMPAIGNS: [&str; 6] = ["open", "suppressed", "in_segment", "without_x", "with_x", "few_pages"];

fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

/// One browser, one edge and the KV.
struct World {
    engine: Engine,
    ring: KeyRing,
    now: Millis,
    kv: BTreeMap<String, String>,
    fault: Option<ReadFault>,
    cookies: Vec<String>,
    proof: String,
}

impl World {
    fn new() -> Self {
        Self::with(&json!({}), &json!([]))
    }

    /// A tenant with further settings, whose campaign `open` has caps.
    fn with(further: &Value, caps: &Value) -> Self {
        let ring = |seed| KeyRing(vec![browser::key(1, KeyStage::Active, seed)]);
        let proof = json!([{ "kid": "p", "alg": "HS256", "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" }]);
        let proof = serde_json::from_value(proof).unwrap();
        let explain = Some(EXPLAIN.to_owned());
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof, explain, ..TenantKeys::default() };
        let keys = KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let mut config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": "allow", "proof_header": "x-proof",
            "kinds": [{ "name": "member", "code": 1, "unique": true }],
        }] });
        config["tenant"][0].as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        let engine = Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap();
        let (kv, cookies) = (BTreeMap::new(), Vec::new());
        let mut world = Self { engine, ring: ring(2), now: NOW, kv, fault: None, cookies, proof: String::new() };
        world.publish(caps);
        world
    }

    fn publish(&mut self, caps: &Value) {
        let targets = [
            json!({}),
            json!({ "segments": { "$nin": [4_242] } }),
            json!({ "segments": 7 }),
            json!({ "attributes.X": { "$exists": false } }),
            json!({ "attributes.X": 5 }),
            json!({ "events.page": { "$count": { "$lt": 100 } } }),
        ];
        let rows = |sort: &str, row: &dyn Fn(usize, &str) -> Value| {
            let all = CAMPAIGNS.iter().enumerate().map(|(n, id)| {
                let mut own = json!({ "id": id, "code": n + 1 });
                own.as_object_mut().unwrap().extend(row(n, id).as_object().unwrap().clone());
                own
            });
            (sort.to_owned(), all.collect::<Value>())
        };
        let mut document: Map<String, Value> = [
            rows("advertiser", &|_, _| json!({})),
            rows("campaign", &|n, id| json!({ "advertiser": id, "targeting": targets[n] })),
            rows("ad_group", &|_, id| json!({ "campaign": id })),
            rows("ad", &|n, id| {
                json!({ "ad_group": id, "creative": {}, "landing": "https://a.example/", "sizes": [[n + 1, 1]] })
            }),
        ]
        .into_iter()
        .collect();
        document["campaign"][0]["caps"] = caps.clone();
        let catalogue: Catalogue = serde_json::from_value(document.into()).unwrap();
        let names = [("X".to_owned(), ValueKind::Integer), ("Y".to_owned(), ValueKind::Integer)];
        let names = NameDictionary::from_entries(names).unwrap();
        let flat = catalogue.flat(&names, &Vocabulary::default()).unwrap();
        let (key, digest) = (kv_keys::catalogue_key(&tenant(), 1), [1; 16]);
        self.kv.insert(key.clone(), encode_document(&key, &digest, &flat::encode_catalogue(&flat)).unwrap());
        let key = kv_keys::pointer_key(&tenant());
        let pointer = CataloguePointer { published: SnapshotVersion { restore: 0, counter: 1 }, version: 1, digest };
        self.kv.insert(key.clone(), encode_pointer(&key, &pointer));
        let key = kv_keys::attributes_key(&tenant(), 0);
        let page = [("X".to_owned(), ValueKind::Integer), ("Y".to_owned(), ValueKind::Integer)];
        self.kv.insert(key.clone(), wire::kv::encode_names(&key, &page).unwrap());
    }

    fn send(&mut self, method: &str, path: &str, body_text: &str) -> Value {
        self.now += 1_000;
        let cookies = self.cookies.join("; ");
        let proof = &self.proof;
        let names = self.engine.header_names();
        let place = |name: &str| names.iter().position(|known| known == name).unwrap();
        let mut values = vec![String::new(); names.len()];
        values[place("cookie")] = cookies;
        values[place("user-agent")] = "Firefox/140.0".to_owned();
        values[place("x-proof")].clone_from(proof);
        values[place("x-causeway-explain")] = EXPLAIN.to_owned();
        let head = format!("{method}\nhttp://localhost{path}\n{}", values.join("\n"));
        let step = self.engine.begin(&head, body_text.as_bytes(), self.now, seed(7, self.now));
        let (kv, fault) = (&self.kv, self.fault);
        let answer = answer(complete(&mut self.engine, step, |keys| read_kv(kv, fault, keys)));
        keep_cookies(&mut self.cookies, &answer);
        body(&answer)
    }

    fn page(&mut self) -> Value {
        let placement = |n: usize| json!({ "id": CAMPAIGNS[n], "sizes": [[n + 1, 1]] });
        let placements: Value = (0..CAMPAIGNS.len()).map(placement).collect();
        self.send("POST", "/v1/decide", &json!({ "placements": placements, "explain": true }).to_string())
    }

    /// The campaigns that serve.
    fn served(&mut self) -> Vec<String> {
        served(&self.page())
    }

    /// A visitor whose first page view is long enough ago for a snapshot.
    fn returning(&mut self) -> VisitorId {
        let visitor = self.page()["visitor"].as_str().unwrap().parse().unwrap();
        self.now += 600_000;
        visitor
    }

    fn put(&mut self, snapshot: Snapshot) {
        let key = kv_keys::snapshot_key(&tenant(), snapshot.visitor);
        let value = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap();
        self.kv.insert(key, value);
    }

    fn prove(&mut self, member: &str) {
        self.proof = self.engine.sign_demo_proof("localhost", member, self.now).unwrap();
    }

    fn put_lookup(&mut self, member: &str, visitor: VisitorId) {
        let hash: AltHash = self.ring.hash_alternate(KindCode(1), member)[0];
        let key = kv_keys::lookup_key(&tenant(), AlternateId { kind: KindCode(1), hash });
        let value = wire::kv::encode_lookup(&key, &[visitor]).unwrap();
        self.kv.insert(key, value);
    }
}

fn served(page: &Value) -> Vec<String> {
    let all = page["decisions"].as_array().unwrap().iter();
    all.filter_map(|one| Some(one["ad"]["campaign"].as_str()?.to_owned())).collect()
}

fn candidate<'a>(page: &'a Value, ad: &str) -> &'a Value {
    let placements = page["trace"]["placements"].as_array().unwrap();
    let placement = placements.iter().find(|placement| placement["placement"] == ad).unwrap();
    placement["candidates"].as_array().unwrap().iter().find(|one| one["ad"] == ad).unwrap()
}

/// A visitor in segments 7 and 4242 with X = 5, as far as these parts are not missing.
fn content(missing: MissingParts) -> SubContent {
    let (mut segments, mut attributes) = (SegmentMap::default(), AttributeMap::default());
    let stamp = WriteStamp { at: NOW - 1_000_000, order: 0 };
    for id in [7, 4_242] {
        segments.write(SegmentId(id), stamp, SegmentState::held(HourStamp::at(NOW + 86_400_000), []));
    }
    attributes.write(NameToken(0), stamp, Some(Attribute::Integer(5)));
    let pack = |part: MissingParts, packed: Vec<u8>| if missing.overlaps(part) { Vec::new() } else { packed };
    SubContent {
        totals: ProfileTotals { pages: 3, ..ProfileTotals::default() },
        segments: pack(MissingParts::SEGMENTS, segments.pack()),
        attributes: pack(MissingParts::ATTRIBUTES, attributes.pack()),
        missing,
        ..SubContent::default()
    }
}

fn snapshot(visitor: VisitorId, devices: u32, contents: &[(VisitorId, SubContent)]) -> Snapshot {
    let version = SnapshotVersion { restore: 0, counter: 5 };
    let profiles: BTreeMap<_, _> =
        contents.iter().map(|(of, content)| (*of, SubProfile::pack(version, content))).collect();
    let admits = profiles.keys().copied().collect();
    let membership = Membership { epoch: Epoch(3), devices, admits, ..Membership::default() };
    Snapshot { version, visitor, unique: Vec::new(), membership, profiles, best: None }
}

#[test]
fn a_visitor_minted_in_this_request_is_known_and_empty() {
    assert_eq!(World::new().served(), ["open", "suppressed", "without_x", "few_pages"]);
}

#[test]
fn of_a_visitor_younger_than_the_publish_delay_what_the_ledger_holds_is_known() {
    let mut world = World::new();
    world.page();
    let page = world.page();
    assert_eq!((served(&page), &page["kv_reads"]), (vec!["open".to_owned()], &json!(0)));
    assert_eq!(page["trace"]["person"]["unknown"], json!(["attributes", "segments", "actions", "events", "members"]));
    let reason = |ad: &str| candidate(&page, ad)["reason"].clone();
    assert_eq!(reason("suppressed"), "unknown: segments");
    assert_eq!(reason("few_pages"), "unknown: events.page");
}

#[test]
fn a_snapshot_that_is_not_in_the_kv_is_unknown() {
    let mut world = World::new();
    world.returning();
    let page = world.page();
    assert_eq!(served(&page), ["open"]);
    assert_eq!(candidate(&page, "suppressed")["outcome"], "unknown");
}

#[test]
fn a_snapshot_that_comes_late_or_fails_or_is_invalid_is_unknown() {
    for fault in [Some(ReadFault::Late), Some(ReadFault::Failed), None] {
        let mut world = World::new();
        let own = world.returning();
        world.put(snapshot(own, 1, &[(own, content(MissingParts::NONE))]));
        assert_eq!(world.served(), ["open", "in_segment", "with_x", "few_pages"], "a valid snapshot is known");
        let mut world = World::new();
        let own = world.returning();
        world.kv.insert(kv_keys::snapshot_key(&tenant(), own), "s1garbage".to_owned());
        world.fault = fault;
        assert_eq!(world.served(), ["open"], "{fault:?}");
    }
}

#[test]
fn a_snapshot_that_is_not_truncated_is_known() {
    let mut world = World::new();
    let own = world.returning();
    world.put(snapshot(own, 1, &[(own, SubContent::default())]));
    assert_eq!(world.served(), ["open", "suppressed", "without_x", "few_pages"]);
    let me = world.send("GET", "/v1/me", "");
    assert_eq!((&me["truncated"], &me["truncated_parts"]), (&json!(false), &Value::Null));
}

/// The suppression segment, or the attribute, did not fit into the 64 KB of the snapshot.
#[test]
fn the_parts_that_a_truncated_snapshot_left_out_are_unknown_and_the_others_known() {
    for (missing, expected, unknown) in [
        (MissingParts::SEGMENTS, ["open", "with_x", "few_pages"].as_slice(), "segments"),
        (MissingParts::ATTRIBUTES, &["open", "in_segment", "few_pages"], "attributes"),
        (MissingParts::ACTIONS, &["open", "in_segment", "with_x", "few_pages"], "actions"),
    ] {
        let mut world = World::new();
        let own = world.returning();
        world.put(snapshot(own, 1, &[(own, content(missing))]));
        let page = world.page();
        assert_eq!(served(&page), expected, "{unknown}");
        assert_eq!(page["trace"]["person"]["unknown"], json!([unknown]));
        let me = world.send("GET", "/v1/me", "");
        assert_eq!((&me["truncated"], &me["truncated_parts"]), (&json!(true), &json!([unknown])));
    }
    let mut world = World::new();
    let own = world.returning();
    world.put(snapshot(own, 1, &[(own, content(MissingParts::ATTRIBUTES))]));
    // The names of attributes are read when a call asks for a trace, or are cached.
    let me = world.send("GET", "/v1/me", "");
    assert_eq!(me["attributes"], json!({}));
    assert_eq!(candidate(&world.page(), "without_x")["reason"], "unknown: attributes.X");
}

#[test]
fn of_a_person_with_a_sibling_that_is_missing_what_holds_is_true_and_all_else_unknown() {
    let other = VisitorId::mint(NOW - 86_400_000, [9; 10]);
    let empty = |of| (of, SubContent::default());
    // The visitor's own snapshot contains one of the person's two browsers.
    let mut world = World::new();
    let own = world.returning();
    world.put(snapshot(own, 2, &[(own, content(MissingParts::NONE))]));
    assert_eq!(world.served(), ["open", "in_segment", "with_x"]);
    world.put(snapshot(own, 2, &[empty(own)]));
    // A sibling named by a lookup: without a snapshot, with a truncated one, with a complete one.
    for (stored, expected) in [
        (None, ["open"].as_slice()),
        (Some(content(MissingParts::SEGMENTS)), &["open", "with_x", "few_pages"]),
        (Some(content(MissingParts::NONE)), &["open", "in_segment", "with_x", "few_pages"]),
    ] {
        let mut world = World::new();
        world.put_lookup("ann", other);
        if let Some(stored) = stored {
            world.put(snapshot(other, 1, &[(other, stored)]));
        }
        world.prove("ann");
        assert_eq!(world.served(), expected);
        world.fault = Some(ReadFault::Late);
        world.cookies.clear();
        world.now += 60_000;
        assert_eq!(world.served(), ["open"], "a lookup that is late may name any visitor");
    }
}

#[test]
fn caps_count_what_is_known_unless_the_tenant_holds_such_ads_back() {
    let caps = json!([{ "action": "impression", "limit": 2, "window": { "interval": 1, "unit": "days" } }]);
    let acted = |count: u8| {
        let entity = AdEntity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 };
        let (action_type, view_type, minute) = (ActionType::IMPRESSION, ViewType(0), Minute::at(NOW));
        let action =
            |n: u8| actions::AdAction { insertion: InsertionHash([n; 6]), action_type, view_type, entity, minute };
        (0..count).map(action).collect::<ActionList>().pack_actions()
    };
    for (mode, missing, count, serves) in [
        ("count", MissingParts::ACTIONS, 1, true),
        ("count", MissingParts::ACTIONS, 2, false),
        ("hold", MissingParts::ACTIONS, 1, false),
        ("hold", MissingParts::SEGMENTS, 1, true),
        ("hold", MissingParts::NONE, 1, true),
    ] {
        let mut world = World::with(&json!({ "caps_when_unknown": mode }), &caps);
        world.cookies.clear();
        let own = world.returning();
        world.cookies.retain(|cookie| !cookie.contains("cw_recent"));
        let content = SubContent { actions: acted(count), missing, ..SubContent::default() };
        world.put(snapshot(own, 1, &[(own, content)]));
        let page = world.page();
        assert_eq!(served(&page).contains(&"open".to_owned()), serves, "{mode} {missing:?} {count}");
        if mode == "hold" && !serves {
            let open = candidate(&page, "open");
            assert_eq!((&open["outcome"], &open["reason"]), (&json!("unknown"), &json!("unknown: actions")));
        }
    }
}

#[test]
fn a_call_that_names_its_person_and_recognises_nobody_knows_nothing_of_it() {
    let mut world = World::new();
    world.prove("ann");
    world.page();
    let placements = json!([{ "id": "suppressed", "sizes": [[2, 1]] }, { "id": "open", "sizes": [[1, 1]] }]);
    let call = json!({ "placements": placements }).to_string();
    assert_eq!(served(&world.send("POST", "/v1/decide", &call)), ["open"], "younger than the publish delay");
    world.cookies.clear();
    world.proof.clear();
    assert_eq!(served(&world.send("POST", "/v1/decide", &call)).len(), 2, "a new visitor");
}
