//! The catalogue's way to a decision: read beside what is read anyway, kept by the isolate, never older than what it had.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, VecDeque};

use causeway_edge::{Engine, Outcome};
use causeway_shared::actions::Level;
use causeway_shared::attributes::Dictionary;
use causeway_shared::catalogue::{Catalogue, Flat};
use causeway_shared::cookie::{self, IDENTITY};
use causeway_shared::events::Events;
use causeway_shared::fact::{PURCHASE, What};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::ids::{Epoch, Millis, TenantId, Version, VisitorId};
use causeway_shared::keys::{Key, KeyRing, Keys, Stage, TenantKeys};
use causeway_shared::membership::Membership;
use causeway_shared::model::features::Feature;
use causeway_shared::model::{FRACTION, Model, Part};
use causeway_shared::profile::{Content, SubProfile, Totals};
use causeway_shared::time::Minute;
use causeway_shared::view::{Snapshot, Stored};
use causeway_shared::vocabulary::Vocabulary;
use causeway_shared::wire::catalogue::{Pointer, encode_document, encode_model, encode_pointer};
use causeway_shared::wire::flat;
use causeway_shared::{delivery, kv, limits, wire};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// One isolate, and the KV that it reads.
struct Isolate {
    engine: Engine,
    ring: KeyRing,
    now: Millis,
    kv: BTreeMap<String, String>,
    fault: &'static str,
    /// Keys of each read of the last request.
    reads: Vec<Vec<String>>,
}

fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

fn ads(landing: &str, strict: bool) -> Value {
    let cap = json!([{ "action": "impression", "limit": 5, "window": { "interval": 1, "unit": "days" } }]);
    let (caps, mode) = if strict { (cap, "strict") } else { (json!([]), "ledger") };
    json!({
        "advertiser": [{ "id": "v", "code": 1 }],
        "campaign": [{ "id": "c", "code": 1, "advertiser": "v", "cap_mode": mode, "caps": caps }],
        "ad_group": [{ "id": "g", "code": 1, "campaign": "c" }],
        "ad": [{ "id": "red", "code": 4, "ad_group": "g", "creative": {}, "landing": landing }],
    })
}

impl Isolate {
    fn new() -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![Key { id: 1, stage: Stage::Active, secret: secret(seed).into() }]);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), ..TenantKeys::default() };
        let keys = Keys { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "no_signal": "allow", "house_ad": { "id": "house" },
            "house_landing": "https://pub.example/",
        }] });
        let engine = Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap();
        Self { engine, ring: ring(1), now: NOW, kv: BTreeMap::new(), fault: "", reads: Vec::new() }
    }

    /// Puts a version in the KV, and has the pointer name it.
    fn publish(&mut self, counter: u64, version: u32, ads: &Value) {
        let catalogue: Catalogue = serde_json::from_value(ads.clone()).unwrap();
        let flat = catalogue.flat(&Dictionary::default(), &Vocabulary::default()).unwrap();
        self.publish_bytes(counter, version, &flat::encode(&flat));
    }

    fn publish_bytes(&mut self, counter: u64, version: u32, bytes: &[u8]) {
        let (key, digest) = (kv::catalogue_key(&tenant(), version), [u8::try_from(version).unwrap(); 16]);
        self.kv.insert(key.clone(), encode_document(&key, &digest, bytes).unwrap());
        self.point(counter, version);
    }

    fn point(&mut self, counter: u64, version: u32) {
        let published = Version { restore: 0, counter };
        let pointer = Pointer { published, version, digest: [u8::try_from(version).unwrap(); 16] };
        let key = kv::pointer_key(&tenant());
        self.kv.insert(key.clone(), encode_pointer(&key, &pointer));
    }

    fn begin(&mut self, method: &str, path: &str, body: &str, cookie: &str, gpc: &str) -> Outcome {
        let head = format!("{method}\nhttp://localhost{path}\n{cookie}\n\n{gpc}\n\nFirefox/140.0\n\n");
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.now.to_be_bytes());
        self.engine.begin(&head, body.as_bytes(), self.now, &seed)
    }

    fn resume(&mut self, outcome: Outcome) -> Outcome {
        let read = outcome.head.read;
        let values = read.iter().map(|key| self.kv.get(key).map_or("", String::as_str));
        let values = if self.fault.is_empty() { values.collect::<Vec<_>>().join("\n") } else { String::new() };
        if !read.is_empty() {
            self.reads.push(read);
        }
        self.engine.resume(outcome.head.turn.unwrap(), values.as_bytes(), self.fault)
    }

    fn send(&mut self, method: &str, path: &str, body: &str, cookie: &str) -> Outcome {
        self.reads.clear();
        let mut outcome = self.begin(method, path, body, cookie, "");
        while outcome.head.turn.is_some() && outcome.head.hop.is_none() {
            outcome = self.resume(outcome);
        }
        assert!(self.reads.len() <= 2, "{:?}", self.reads);
        outcome
    }

    /// A page of a returning browser, whose snapshot is asked for.
    fn page(&mut self) -> Value {
        let cookie = self.cookie();
        let body = json!({ "placements": [{ "id": "top" }] }).to_string();
        let outcome = self.send("POST", "/v1/decide", &body, &cookie);
        serde_json::from_slice(&outcome.body).unwrap()
    }

    fn cookie(&self) -> String {
        let visitor = VisitorId::mint(NOW - 86_400_000, [0; 10]);
        let (covered, earlier, pending) = (Vec::new(), Vec::new(), Vec::new());
        let cookie = IdentityCookie { visitor, written: NOW, tag: None, covered, earlier, pending, login: None };
        let payload = wire::cookies::encode_identity(&cookie);
        format!("{IDENTITY}={}", cookie::seal(&self.ring, IDENTITY, &tenant(), &payload).unwrap())
    }

    fn health(&mut self) -> Value {
        let outcome = self.begin("GET", "/healthz", "", "", "");
        assert!(outcome.head.health);
        serde_json::from_slice(&outcome.body).unwrap()
    }
}

fn used(page: &Value) -> (&Value, &Value) {
    (&page["catalogue"], &page["decisions"][0]["ad"]["id"])
}

const X: &str = "https://x.example/";

#[test]
fn few_requests_at_once_read_a_catalogue_and_the_others_go_by_what_is_at_hand() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let cookie = isolate.cookie();
    let begin = |isolate: &mut Isolate| isolate.begin("POST", "/v1/decide", "{}", &cookie, "");
    let reads = |outcome: &Outcome| outcome.head.read.iter().any(|key| key == "c:demo:current");
    let cold: Vec<Outcome> = (0..20).map(|_| begin(&mut isolate)).collect();
    assert_eq!(cold.iter().filter(|outcome| reads(outcome)).count(), 6);
    // Of none of them anything comes back.
    isolate.now += delivery::KV_DEADLINE_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-1"));
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let warm: Vec<Outcome> = (0..20).map(|_| begin(&mut isolate)).collect();
    assert_eq!(warm.iter().filter(|outcome| reads(outcome)).count(), 1);
    isolate.now += delivery::KV_DEADLINE_MS;
    assert!(reads(&begin(&mut isolate)));
}

#[test]
fn the_pointer_rides_with_the_first_read_and_the_version_with_the_second() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let page = isolate.page();
    assert_eq!((used(&page), &page["kv_reads"]), ((&json!("c-1"), &json!("red")), &json!(2)));
    assert_eq!(isolate.reads[0][1..], ["c:demo:current", "c:demo:model", "c:demo:steering"]);
    assert_eq!((isolate.reads[0].len(), &isolate.reads[1]), (4, &vec!["c:demo:1".to_owned()]));
    let page = isolate.page();
    assert_eq!((used(&page).0, &page["kv_reads"], isolate.reads[0].len()), (&json!("c-1"), &json!(1), 1));
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page).0, isolate.reads.len(), isolate.reads[0].len()), (&json!("c-1"), 1, 4));
    isolate.publish(9, 2, &ads(X, false));
    assert_eq!(used(&isolate.page()).0, &json!("c-1"), "within half a minute it goes by what it has");
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-2"));
    assert_eq!(isolate.health(), json!({ "version": "c-2", "age_ms": 0, "model": null }));
    isolate.now += 10;
    assert_eq!(isolate.health()["age_ms"], 10);
}

#[test]
fn without_a_catalogue_there_is_the_house_ad_and_a_fault_is_named() {
    let mut isolate = Isolate::new();
    assert_eq!(isolate.health(), json!({ "version": null, "age_ms": null, "model": null }));
    let page = isolate.page();
    assert_eq!((used(&page), page.get("degraded")), ((&Value::Null, &json!("house")), None));
    isolate.fault = "kv_late";
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page), &page["degraded"]), ((&Value::Null, &json!("house")), &json!(["kv_late"])));
    isolate.fault = "";
    isolate.publish(5, 1, &ads(X, false));
    assert_eq!(used(&isolate.page()).0, &json!("c-1"), "who has none asks again at once after a fault");
}

#[test]
fn of_whom_no_history_could_be_read_no_filter_knows_what_is_not_there() {
    let mut isolate = Isolate::new();
    let mut document = ads(X, false);
    document["ad_group"][0]["targeting"] = json!({ "segments": { "$nin": [7] } });
    isolate.publish(5, 1, &document);
    assert_eq!(used(&isolate.page()), (&json!("c-1"), &json!("red")), "who is new is in no segment");
    isolate.fault = "kv_late";
    assert_eq!(used(&isolate.page()), (&json!("c-1"), &json!("house")));
    isolate.fault = "";
    assert_eq!(used(&isolate.page()), (&json!("c-1"), &json!("red")));
}

#[test]
fn s4_05_a_purchase_of_the_last_week_is_targeted_as_long_as_it_is_one() {
    let mut isolate = Isolate::new();
    let mut document = ads(X, false);
    let week = json!({ "interval": 7, "unit": "days" });
    document["ad_group"][0]["targeting"] = json!({ "events.purchase": { "$count": { "$gte": 1 }, "within": week } });
    isolate.publish(5, 1, &document);
    let visitor = VisitorId::mint(NOW - 86_400_000, [0; 10]);
    let mut counter = 5;
    let mut shown = |isolate: &mut Isolate, events: Option<&Events>| {
        let recent = events.map(|events| events.pack_recent(Minute::at(NOW - 20 * 86_400_000))).unwrap_or_default();
        let content = Content { totals: Totals { purchases: 1, ..Totals::default() }, recent, ..Content::default() };
        counter += 1;
        let version = Version { restore: 0, counter };
        let admits = [visitor].into();
        let snapshot = Snapshot {
            version,
            visitor,
            unique: Vec::new(),
            membership: Membership { epoch: Epoch(1), devices: 1, admits, ..Membership::default() },
            profiles: [(visitor, SubProfile::pack(version, &content))].into_iter().collect(),
            best: None,
            truncated: false,
        };
        let key = kv::snapshot_key(&tenant(), visitor);
        let value = wire::kv::encode_stored(&key, &Stored::Snapshot(Box::new(snapshot))).unwrap();
        isolate.kv.insert(key, value);
        let page = isolate.page();
        assert_eq!(page["kv_reads"].as_u64().unwrap(), isolate.reads.len() as u64);
        used(&page).1.clone()
    };
    let mut events = Events::default();
    assert_eq!(shown(&mut isolate, Some(&events)), json!("house"));
    events.add(PURCHASE, Minute::at(NOW - 6 * 86_400_000));
    assert_eq!(shown(&mut isolate, Some(&events)), json!("red"));
    assert_eq!(
        shown(&mut isolate, None),
        json!("house"),
        "the snapshot of the release before does not say when it was"
    );
    // A window of days begins at midnight, UTC.
    isolate.now += 86_400_000 - NOW % 86_400_000 - 1;
    assert_eq!(shown(&mut isolate, Some(&events)), json!("red"));
    isolate.now += 1;
    assert_eq!(shown(&mut isolate, Some(&events)), json!("house"), "the seventh day is over");
}

#[test]
fn an_older_pointer_is_not_adopted_and_a_rollback_is() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    isolate.publish(9, 2, &ads(X, false));
    assert_eq!(used(&isolate.page()).0, &json!("c-2"));
    isolate.point(5, 1);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page).0, &page["degraded"]), (&json!("c-2"), &json!(["catalogue_older"])));
    isolate.point(10, 1);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-1"));
    // The same version again, published later: what was published in between is older news too.
    isolate.point(20, 1);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    isolate.page();
    isolate.point(15, 2);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-1"));
}

#[test]
fn a_bad_value_is_not_there_and_the_one_at_hand_is_used_on() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    isolate.page();
    for (value, note) in [("k1garbage", "catalogue_bad"), ("", "catalogue_missing")] {
        isolate.publish(9, 2, &ads(X, false));
        isolate.kv.insert("c:demo:2".to_owned(), value.to_owned());
        isolate.now += limits::CATALOGUE_FRESH_MS;
        let page = isolate.page();
        assert_eq!((used(&page), &page["degraded"]), ((&json!("c-1"), &json!("red")), &json!([note])));
    }
    // What this release does not know may be what keeps an ad from somebody.
    let mut newer = flat::encode(&Flat::default());
    newer[0] += 1;
    isolate.publish_bytes(9, 2, &newer);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page).0, &page["degraded"]), (&json!("c-1"), &json!(["catalogue_bad"])));
    isolate.kv.insert("c:demo:current".to_owned(), "p1x".to_owned());
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(isolate.page()["degraded"], json!(["catalogue_bad"]));
    isolate.publish(9, 2, &ads(X, false));
    isolate.now += limits::CATALOGUE_RETRY_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-2"));
}

#[test]
fn a_wave_in_a_cold_isolate_is_served_from_one_catalogue() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let body = json!({ "placements": [{ "id": "top" }] }).to_string();
    let cookie = isolate.cookie();
    let mut waiting: VecDeque<Outcome> =
        (0..5).map(|_| isolate.begin("POST", "/v1/decide", &body, &cookie, "")).collect();
    let mut answered = 0;
    while let Some(outcome) = waiting.pop_front() {
        let next = isolate.resume(outcome);
        if next.head.turn.is_some() {
            waiting.push_back(next);
            continue;
        }
        let page: Value = serde_json::from_slice(&next.body).unwrap();
        assert_eq!(used(&page), (&json!("c-1"), &json!("red")));
        // Whatever comes for the others is not looked at any more.
        isolate.kv.insert("c:demo:1".to_owned(), "k1garbage".to_owned());
        answered += 1;
    }
    assert_eq!(answered, 5);
}

#[test]
fn who_is_not_recognised_sees_it_too() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let body = json!({ "placements": [{ "id": "top" }] }).to_string();
    let mut outcome = isolate.begin("POST", "/v1/decide", &body, "", "1");
    while outcome.head.turn.is_some() {
        outcome = isolate.resume(outcome);
    }
    let page: Value = serde_json::from_slice(&outcome.body).unwrap();
    assert_eq!((used(&page), &page["visitor"]), ((&json!("c-1"), &json!("red")), &Value::Null));
    assert!(isolate.reads.iter().flatten().all(|key| key.starts_with("c:demo:")), "{:?}", isolate.reads);
}

#[test]
fn addresses_of_ads_find_their_catalogue_in_a_cold_isolate() {
    // Under strict caps, and placed before they were: no object knows of it, and it counts as it was placed.
    for strict in [false, true] {
        let mut isolate = Isolate::new();
        isolate.publish(5, 1, &ads("https://red.example/", false));
        let page = isolate.page();
        let address = |name: &str| page["decisions"][0][name].as_str().unwrap().to_owned();
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let click = cold.send("GET", &address("click_url"), "", "");
        let location = click.head.headers.iter().find(|(name, _)| *name == "location").unwrap();
        assert_eq!((location.1.as_str(), cold.reads.len(), click.head.facts), ("https://red.example/", 2, 1));
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let seen = cold.send("GET", &address("impression_url"), "", "");
        assert_eq!((seen.head.facts, seen.head.hop, cold.reads.len()), (1, None, 0));
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let cookie = cold.cookie();
        let event = json!([{ "type": "action", "insertion": address("insertion"), "action": "impression" }]);
        let events = cold.send("POST", "/v1/events", &event.to_string(), &cookie);
        assert_eq!((events.head.facts, cold.reads.len()), (u16::from(!strict), 2));
    }
}

#[test]
fn what_was_placed_counts_where_the_catalogue_is_late() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let page = isolate.page();
    let of = |name: &str| page["decisions"][0][name].as_str().unwrap().to_owned();
    let cold = || Isolate { fault: "kv_late", ..Isolate::new() };
    // Not under strict caps, as its token says: no object knows of it.
    let seen = cold().send("GET", &of("impression_url"), "", "");
    assert_eq!((seen.head.hop, seen.head.facts), (None, 1));
    // A click comes again, for its ad's own landing address; and once more there is none, it is told what there is.
    let clicked = cold().send("GET", &of("click_url"), "", "");
    assert_eq!((clicked.head.gone, clicked.head.facts), (true, 0));
    let again = cold().send("GET", &format!("{}?again", of("click_url")), "", "");
    assert!(!again.head.gone);
    let well = isolate.send("GET", &format!("{}?again", of("click_url")), "", "");
    assert_eq!((well.head.status, well.head.facts), (302, 1));
    // The house ad is in no catalogue.
    let mut none = Isolate::new();
    let page = none.page();
    let address = page["decisions"][0]["impression_url"].as_str().unwrap();
    let mut cold = Isolate::new();
    cold.fault = "kv_late";
    let seen = cold.send("GET", address, "", "");
    let facts = wire::facts::decode(&seen.facts).unwrap().facts;
    assert!(cold.reads.is_empty() && matches!(facts[0].what, What::Action { .. }));
}

/// A model in which one ad is clicked more than others.
fn model(favourite: u32) -> Model {
    let mut click = Part { intercept: -7 << FRACTION, scale: 8, weights: vec![0; 1 << 12], quality: None };
    click.weights[usize::from(Feature::Entity(Level::Ad, favourite).place(12))] = 4 << 8;
    Model { bits: 12, trained_ms: NOW, expires_ms: NOW + 86_400_000, click, ..Model::default() }
}

#[test]
fn s1_09_the_model_rides_with_the_pointer_and_an_older_one_is_not_adopted() {
    let mut isolate = Isolate::new();
    let put = |isolate: &mut Isolate, counter: u64, favourite: u32| {
        let key = kv::model_key(&tenant());
        let published = Version { restore: 0, counter };
        isolate.kv.insert(key.clone(), encode_model(&key, published, &wire::model::encode(&model(favourite))));
        isolate.now += limits::CATALOGUE_FRESH_MS;
    };
    let mut two = ads(X, false);
    two["campaign"][0]["bid"] = json!({ "cpc_micros": 1_000_000 });
    let blue = json!({ "id": "blue", "code": 5, "ad_group": "g", "creative": {}, "landing": X });
    two["ad"].as_array_mut().unwrap().push(blue);
    isolate.publish(5, 1, &two);
    let page = isolate.page();
    assert_eq!((used(&page).1, &page["decisions"][0]["price_micros"]), (&json!("red"), &json!(1_000_000)));
    put(&mut isolate, 9, 5);
    let page = isolate.page();
    assert_eq!((used(&page).1, &page["kv_reads"]), (&json!("blue"), &json!(1)), "with the catalogue at hand already");
    assert!(page["decisions"][0]["price_micros"].as_u64() > Some(40_000_000), "{page}");
    assert_eq!(isolate.health()["model"], "0.9");
    put(&mut isolate, 8, 4);
    assert_eq!(used(&isolate.page()).1, "blue", "an older one");
    isolate.kv.insert(kv::model_key(&tenant()), "w1something".to_owned());
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(used(&isolate.page()).1, "blue", "a bad one");
    put(&mut isolate, 10, 4);
    assert_eq!(used(&isolate.page()).1, "red");
    // A new catalogue goes by the model that is at hand.
    isolate.publish(11, 2, &two);
    put(&mut isolate, 12, 5);
    isolate.kv.remove(&kv::model_key(&tenant()));
    assert_eq!((used(&isolate.page()).1, used(&isolate.page()).0), (&json!("red"), &json!("c-2")));
    isolate.now += 86_400_000;
    assert_eq!(isolate.page()["decisions"][0]["price_micros"], 1_000_000, "expired");
}

/// What the shell's tests find in the KV: a catalogue whose one ad is under a strict cap.
#[test]
fn the_shells_catalogue_is_what_the_origin_would_publish() {
    let mut isolate = Isolate::new();
    let mut once = ads(X, true);
    once["campaign"][0]["caps"][0]["limit"] = json!(1);
    isolate.publish(1, 1, &once);
    let told: BTreeMap<String, String> = serde_json::from_str(include_str!("strict.json")).unwrap();
    assert_eq!(told, isolate.kv);
}
