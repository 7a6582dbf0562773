//! The catalogue of a decision: read in parallel with other reads, cached by the isolate, and never older than the
//! previous version.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, VecDeque};

use crate::browser::{answer, body, complete, fact_count, facts, header, is_overloaded, read, read_kv, seed};
use causeway_edge::{Engine, EngineStep, HttpAnswer, KvRead, ReadFault, WorkerPage};
use causeway_shared::ads::catalogue::{Catalogue, FlatCatalogue};
use causeway_shared::ads::model::features::ModelFeature;
use causeway_shared::ads::model::{FRACTION, Model, Part};
use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::AdLevel;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::fact::{FactKind, PURCHASE};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::cookie::{self, IDENTITY};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::catalogue::{CataloguePointer, encode_document, encode_model, encode_pointer};
use causeway_shared::wire::{self, flat};
use causeway_shared::wire::{kv_keys, outbox_drain};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// One isolate, and the KV that it reads.
struct Isolate {
    engine: Engine,
    ring: KeyRing,
    now: Millis,
    kv: BTreeMap<String, String>,
    fault: Option<ReadFault>,
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
        let ring = |seed| KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret(seed).into() }]);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), ..TenantKeys::default() };
        let keys = KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "no_signal": "allow", "house_ad": { "id": "house" },
            "house_landing": "https://pub.example/",
        }] });
        let engine = Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap();
        Self { engine, ring: ring(1), now: NOW, kv: BTreeMap::new(), fault: None, reads: Vec::new() }
    }

    /// Puts a version into the KV and points to it.
    fn publish(&mut self, counter: u64, version: u32, ads: &Value) {
        let catalogue: Catalogue = serde_json::from_value(ads.clone()).unwrap();
        let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).unwrap();
        self.publish_bytes(counter, version, &flat::encode_catalogue(&flat));
    }

    fn publish_bytes(&mut self, counter: u64, version: u32, bytes: &[u8]) {
        let (key, digest) = (kv_keys::catalogue_key(&tenant(), version), [u8::try_from(version).unwrap(); 16]);
        self.kv.insert(key.clone(), encode_document(&key, &digest, bytes).unwrap());
        self.point(counter, version);
    }

    fn point(&mut self, counter: u64, version: u32) {
        let published = SnapshotVersion { restore: 0, counter };
        let pointer = CataloguePointer { published, version, digest: [u8::try_from(version).unwrap(); 16] };
        let key = kv_keys::pointer_key(&tenant());
        self.kv.insert(key.clone(), encode_pointer(&key, &pointer));
    }

    fn begin(&mut self, method: &str, path: &str, body: &str, cookie: &str, gpc: &str) -> EngineStep {
        let head = format!("{method}\nhttp://localhost{path}\n{cookie}\n\n{gpc}\n\nFirefox/140.0\n\n");
        self.engine.begin(&head, body.as_bytes(), self.now, seed(7, self.now))
    }

    /// Continues a request after one read.
    fn resume(&mut self, read: KvRead) -> EngineStep {
        let values = read_kv(&self.kv, self.fault, &read.keys);
        self.reads.extend((!read.keys.is_empty()).then_some(read.keys));
        self.engine.resume_read(read.pending, &values)
    }

    /// Takes a request through its reads.
    fn complete(&mut self, step: EngineStep) -> EngineStep {
        self.reads.clear();
        let step = complete(&mut self.engine, step, |keys| {
            self.reads.extend((!keys.is_empty()).then(|| keys.to_vec()));
            read_kv(&self.kv, self.fault, keys)
        });
        assert!(self.reads.len() <= 2, "{:?}", self.reads);
        step
    }

    fn send(&mut self, method: &str, path: &str, body: &str, cookie: &str) -> HttpAnswer {
        let step = self.begin(method, path, body, cookie, "");
        answer(self.complete(step))
    }

    /// The answer to a page of a returning browser, whose snapshot is read.
    fn page(&mut self) -> Value {
        let cookie = self.cookie();
        body(&self.send("POST", "/v1/decide", TOP, &cookie))
    }

    fn cookie(&self) -> String {
        let visitor = VisitorId::mint(NOW - 86_400_000, [0; 10]);
        let (covered, earlier, pending) = (Vec::new(), Vec::new(), Vec::new());
        let cookie = IdentityCookie { visitor, written: NOW, tag: None, covered, earlier, pending, login: None };
        let payload = wire::cookies::encode_identity(&cookie);
        format!("__Host-{IDENTITY}={}", cookie::seal_cookie(&self.ring, IDENTITY, &tenant(), &payload).unwrap())
    }

    fn health(&mut self) -> Value {
        match self.begin("GET", "/healthz", "", "", "") {
            EngineStep::Page(WorkerPage::Health(Some(health))) => health,
            other => unreachable!("{other:?}"),
        }
    }
}

fn used(page: &Value) -> (&Value, &Value) {
    (&page["catalogue"], &page["decisions"][0]["ad"]["id"])
}

const X: &str = "https://x.example/";
/// A call for one placement.
const TOP: &str = r#"{"placements":[{"id":"top"}]}"#;

#[test]
fn few_concurrent_requests_read_a_catalogue_and_the_others_use_the_cached_one() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let cookie = isolate.cookie();
    let begin = |isolate: &mut Isolate| read(isolate.begin("POST", "/v1/decide", "{}", &cookie, ""));
    let reads = |begun: &KvRead| begun.keys.iter().any(|key| key == "c:demo:current");
    let cold: Vec<KvRead> = (0..20).map(|_| begin(&mut isolate)).collect();
    assert_eq!(cold.iter().filter(|begun| reads(begun)).count(), 6);
    // No read returns until the deadline.
    isolate.now += outbox_drain::KV_DEADLINE_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-1"));
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let warm: Vec<KvRead> = (0..20).map(|_| begin(&mut isolate)).collect();
    assert_eq!(warm.iter().filter(|begun| reads(begun)).count(), 1);
    isolate.now += outbox_drain::KV_DEADLINE_MS;
    assert!(reads(&begin(&mut isolate)));
}

#[test]
fn a_page_that_asks_again_is_not_given_the_ads_that_it_shows() {
    let mut isolate = Isolate::new();
    let mut all = ads(X, false);
    all["advertiser"][0]["repeats"] = json!(true);
    all["ad"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "id": "blue", "code": 5, "ad_group": "g", "creative": {}, "landing": X }));
    isolate.publish(5, 1, &all);
    let cookie = isolate.cookie();
    let mut ask = |shown: &Value| {
        let call = json!({ "placements": [{ "id": "top" }], "shown": shown, "page_view": false }).to_string();
        body(&isolate.send("POST", "/v1/decide", &call, &cookie))
    };
    let ad = |answer: &Value| answer["decisions"][0]["ad"]["id"].clone();
    let first = ask(&json!([]));
    let red = first["decisions"][0]["insertion"].clone();
    assert_eq!((ad(&first), ad(&ask(&Value::Null))), (json!("red"), json!("red")));
    let second = ask(&json!([red]));
    assert_eq!((ad(&second), &second["warnings"]), (json!("blue"), &Value::Null));
    let blue = second["decisions"][0]["insertion"].clone();
    assert_eq!(ad(&ask(&json!([red, blue]))), json!("house"));
    // A script cannot forge a token, and an unreadable token is ignored alone.
    let forged = ask(&json!([red, "v1.1.x.y", 7, null]));
    assert_eq!(ad(&forged), json!("blue"));
    let fields: Vec<&Value> = forged["warnings"].as_array().unwrap().iter().map(|note| &note["field"]).collect();
    assert_eq!(fields, ["shown[1]", "shown[2]", "shown[3]"]);
    assert_eq!(forged["warnings"][0]["code"], "token_forged");
    let many = vec![red; limits::SHOWN + 1];
    let cut = ask(&json!(many));
    assert_eq!((ad(&cut), &cut["warnings"][0]["code"]), (json!("blue"), &json!("out_of_bounds")));
    let no_array = ask(&json!("red"));
    assert_eq!((ad(&no_array), &no_array["warnings"][0]["field"]), (json!("red"), &json!("shown")));
    // A page that is open for days still shows its ads.
    isolate.now += 2 * limits::TOKEN_LIFE_MS;
    let cookie = isolate.cookie();
    let call = json!({ "placements": [{ "id": "top" }], "shown": many }).to_string();
    isolate.send("POST", "/v1/decide", &call, &cookie);
    assert_eq!(ad(&body(&isolate.send("POST", "/v1/decide", &call, &cookie))), json!("blue"));
}

#[test]
fn the_pointer_comes_with_the_first_read_and_the_version_with_the_second() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let page = isolate.page();
    assert_eq!((used(&page), &page["kv_reads"]), ((&json!("c-1"), &json!("red")), &json!(2)));
    assert_eq!(isolate.reads[0][1..], ["c:demo:current", "c:demo:model", "c:demo:allocation"]);
    assert_eq!((isolate.reads[0].len(), &isolate.reads[1]), (4, &vec!["c:demo:1".to_owned()]));
    let page = isolate.page();
    assert_eq!((used(&page).0, &page["kv_reads"], isolate.reads[0].len()), (&json!("c-1"), &json!(1), 1));
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page).0, isolate.reads.len(), isolate.reads[0].len()), (&json!("c-1"), 1, 4));
    isolate.publish(9, 2, &ads(X, false));
    assert_eq!(used(&isolate.page()).0, &json!("c-1"), "the pointer is read every half minute");
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
    isolate.fault = Some(ReadFault::Late);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page), &page["degraded"]), ((&Value::Null, &json!("house")), &json!(["kv_late"])));
    isolate.fault = None;
    isolate.publish(5, 1, &ads(X, false));
    assert_eq!(
        used(&isolate.page()).0,
        &json!("c-1"),
        "without a catalogue the next request reads again after a fault"
    );
}

#[test]
fn a_purchase_is_targeted_as_long_as_it_is_within_the_window() {
    let mut isolate = Isolate::new();
    let mut document = ads(X, false);
    let week = json!({ "interval": 7, "unit": "days" });
    document["ad_group"][0]["targeting"] = json!({ "events.purchase": { "$count": { "$gte": 1 }, "within": week } });
    isolate.publish(5, 1, &document);
    let visitor = VisitorId::mint(NOW - 86_400_000, [0; 10]);
    let mut counter = 5;
    let mut shown = |isolate: &mut Isolate, events: Option<&VisitorEvents>| {
        let recent = events.map(|events| events.pack_recent(Minute::at(NOW - 20 * 86_400_000))).unwrap_or_default();
        let content = SubContent {
            totals: ProfileTotals { purchases: 1, ..ProfileTotals::default() },
            recent,
            ..SubContent::default()
        };
        counter += 1;
        let version = SnapshotVersion { restore: 0, counter };
        let admits = [visitor].into();
        let snapshot = Snapshot {
            version,
            visitor,
            unique: Vec::new(),
            membership: Membership { epoch: Epoch(1), devices: 1, admits, ..Membership::default() },
            profiles: [(visitor, SubProfile::pack(version, &content))].into_iter().collect(),
            best: None,
        };
        let key = kv_keys::snapshot_key(&tenant(), visitor);
        let value = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap();
        isolate.kv.insert(key, value);
        let page = isolate.page();
        assert_eq!(page["kv_reads"].as_u64().unwrap(), isolate.reads.len() as u64);
        used(&page).1.clone()
    };
    let mut events = VisitorEvents::default();
    assert_eq!(shown(&mut isolate, Some(&events)), json!("house"));
    events.add(PURCHASE, Minute::at(NOW - 6 * 86_400_000));
    assert_eq!(shown(&mut isolate, Some(&events)), json!("red"));
    assert_eq!(
        shown(&mut isolate, None),
        json!("house"),
        "a snapshot of the previous release does not contain the time"
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
    // The same version, published again later: a publication in between is older too.
    isolate.point(20, 1);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    isolate.page();
    isolate.point(15, 2);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-1"));
}

#[test]
fn an_invalid_value_counts_as_absent_and_the_cached_catalogue_stays_in_use() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    isolate.page();
    // An empty value is invalid; only a key without a value is missing.
    for (value, note) in
        [(Some("k1garbage"), "catalogue_bad"), (Some(""), "catalogue_bad"), (None, "catalogue_missing")]
    {
        isolate.publish(9, 2, &ads(X, false));
        isolate.kv.remove("c:demo:2");
        isolate.kv.extend(value.map(|value| ("c:demo:2".to_owned(), value.to_owned())));
        isolate.now += limits::CATALOGUE_FRESH_MS;
        let page = isolate.page();
        assert_eq!((used(&page), &page["degraded"]), ((&json!("c-1"), &json!("red")), &json!([note])));
    }
    // A document of a later release may contain a bound on an ad that this release does not know.
    let mut newer = flat::encode_catalogue(&FlatCatalogue::default());
    newer[0] += 1;
    isolate.publish_bytes(9, 2, &newer);
    isolate.now += limits::CATALOGUE_FRESH_MS;
    let page = isolate.page();
    assert_eq!((used(&page).0, &page["degraded"]), (&json!("c-1"), &json!(["catalogue_bad"])));
    for value in ["p1x", ""] {
        isolate.kv.insert("c:demo:current".to_owned(), value.to_owned());
        isolate.now += limits::CATALOGUE_FRESH_MS;
        assert_eq!(isolate.page()["degraded"], json!(["catalogue_bad"]));
    }
    isolate.publish(9, 2, &ads(X, false));
    isolate.now += limits::CATALOGUE_RETRY_MS;
    assert_eq!(used(&isolate.page()).0, &json!("c-2"));
}

#[test]
fn concurrent_requests_in_a_cold_isolate_are_served_from_one_catalogue() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let cookie = isolate.cookie();
    let mut waiting: VecDeque<KvRead> =
        (0..5).map(|_| read(isolate.begin("POST", "/v1/decide", TOP, &cookie, ""))).collect();
    let mut answered = 0;
    while let Some(read) = waiting.pop_front() {
        let answer = match isolate.resume(read) {
            EngineStep::Read(next) => {
                waiting.push_back(*next);
                continue;
            }
            step => answer(step),
        };
        assert_eq!(used(&body(&answer)), (&json!("c-1"), &json!("red")));
        // The other requests read an invalid value, which is not decoded, because the catalogue is cached.
        isolate.kv.insert("c:demo:1".to_owned(), "k1garbage".to_owned());
        answered += 1;
    }
    assert_eq!(answered, 5);
}

#[test]
fn a_request_without_a_visitor_gets_the_catalogue_too() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let step = isolate.begin("POST", "/v1/decide", TOP, "", "1");
    let page = body(&answer(isolate.complete(step)));
    assert_eq!((used(&page), &page["visitor"]), ((&json!("c-1"), &json!("red")), &Value::Null));
    assert!(isolate.reads.iter().flatten().all(|key| key.starts_with("c:demo:")), "{:?}", isolate.reads);
}

#[test]
fn addresses_of_ads_find_their_catalogue_in_a_cold_isolate() {
    // The ad was placed before its caps were strict: no object knows it, and its impression counts as its token says.
    for strict in [false, true] {
        let mut isolate = Isolate::new();
        isolate.publish(5, 1, &ads("https://red.example/", false));
        let page = isolate.page();
        let address = |name: &str| page["decisions"][0][name].as_str().unwrap().to_owned();
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let click = cold.send("GET", &address("click_url"), "", "");
        let location = header(&click, "location").unwrap();
        assert_eq!((location, cold.reads.len(), fact_count(&click)), ("https://red.example/", 2, 1));
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let seen = cold.send("GET", &address("impression_url"), "", "");
        assert_eq!((fact_count(&seen), cold.reads.len()), (1, 0));
        let mut cold = Isolate::new();
        cold.publish(5, 1, &ads("https://red.example/", strict));
        let cookie = cold.cookie();
        let event = json!([{ "type": "action", "insertion": address("insertion"), "action": "impression" }]);
        let events = cold.send("POST", "/v1/events", &event.to_string(), &cookie);
        assert_eq!((fact_count(&events), cold.reads.len()), (u16::from(!strict), 2));
    }
}

#[test]
fn actions_on_placed_ads_count_while_the_catalogue_is_late() {
    let mut isolate = Isolate::new();
    isolate.publish(5, 1, &ads(X, false));
    let page = isolate.page();
    let of = |name: &str| page["decisions"][0][name].as_str().unwrap().to_owned();
    let cold = || Isolate { fault: Some(ReadFault::Late), ..Isolate::new() };
    // The token states that its ad is not under strict caps: no object is called.
    let seen = cold().send("GET", &of("impression_url"), "", "");
    assert_eq!(fact_count(&seen), 1);
    // A click is sent again for its ad's landing address. The second try gets the publisher's address.
    let mut isolated = cold();
    let clicked = isolated.begin("GET", &of("click_url"), "", "", "");
    assert!(is_overloaded(&isolated.complete(clicked)));
    let again = cold().send("GET", &format!("{}?again", of("click_url")), "", "");
    assert_eq!((again.status, header(&again, "location")), (302, Some("https://pub.example/")));
    let well = isolate.send("GET", &format!("{}?again", of("click_url")), "", "");
    assert_eq!((well.status, header(&well, "location"), fact_count(&well)), (302, Some(X), 1));
    // The house ad is in no catalogue.
    let mut none = Isolate::new();
    let page = none.page();
    let address = page["decisions"][0]["impression_url"].as_str().unwrap();
    let mut cold = Isolate::new();
    cold.fault = Some(ReadFault::Late);
    let seen = cold.send("GET", address, "", "");
    assert!(cold.reads.is_empty() && matches!(facts(&seen)[0].what, FactKind::Action { .. }));
}

/// A model in which one ad is clicked more often than the others.
fn model(favourite: u32) -> Model {
    let mut click = Part { intercept: -7 << FRACTION, scale: 8, weights: vec![0; 1 << 12], quality: None };
    click.weights[usize::from(ModelFeature::Entity(AdLevel::Ad, favourite).index(12))] = 4 << 8;
    Model { bits: 12, trained_ms: NOW, expires_ms: NOW + 86_400_000, click, ..Model::default() }
}

#[test]
fn the_model_comes_with_the_pointer_and_an_older_one_is_not_adopted() {
    let mut isolate = Isolate::new();
    let put = |isolate: &mut Isolate, counter: u64, favourite: u32| {
        let key = kv_keys::model_key(&tenant());
        let published = SnapshotVersion { restore: 0, counter };
        isolate.kv.insert(key.clone(), encode_model(&key, published, &wire::model::encode_model(&model(favourite))));
        isolate.now += limits::CATALOGUE_FRESH_MS;
    };
    let mut two = ads(X, false);
    two["campaign"][0]["bid"] = json!({ "cpc_micros": 1_000_000 });
    let blue = json!({ "id": "blue", "code": 5, "ad_group": "g", "creative": {}, "landing": X });
    two["ad"].as_array_mut().unwrap().push(blue);
    isolate.publish(5, 1, &two);
    isolate.kv.insert(kv_keys::model_key(&tenant()), String::new());
    let page = isolate.page();
    assert_eq!(page["degraded"], json!(["model_bad"]), "an empty value is invalid");
    assert_eq!((used(&page).1, &page["decisions"][0]["price_micros"]), (&json!("red"), &json!(1_000_000)));
    put(&mut isolate, 9, 5);
    let page = isolate.page();
    assert_eq!((used(&page).1, &page["kv_reads"]), (&json!("blue"), &json!(1)), "with the catalogue that is cached");
    assert!(page["decisions"][0]["price_micros"].as_u64() > Some(40_000_000), "{page}");
    assert_eq!(isolate.health()["model"], "0.9");
    put(&mut isolate, 8, 4);
    assert_eq!(used(&isolate.page()).1, "blue", "an older model");
    for value in ["w1something", ""] {
        isolate.kv.insert(kv_keys::model_key(&tenant()), value.to_owned());
        isolate.now += limits::CATALOGUE_FRESH_MS;
        let page = isolate.page();
        assert_eq!((used(&page).1, &page["degraded"]), (&json!("blue"), &json!(["model_bad"])), "an invalid model");
    }
    put(&mut isolate, 10, 4);
    assert_eq!(used(&isolate.page()).1, "red");
    // A new catalogue uses the cached model.
    isolate.publish(11, 2, &two);
    put(&mut isolate, 12, 5);
    isolate.kv.remove(&kv_keys::model_key(&tenant()));
    assert_eq!((used(&isolate.page()).1, used(&isolate.page()).0), (&json!("red"), &json!("c-2")));
    isolate.now += 86_400_000;
    assert_eq!(isolate.page()["decisions"][0]["price_micros"], 1_000_000, "expired");
}

/// `strict.json` is the KV of the worker's tests: a catalogue with one ad, which is under a strict cap.
#[test]
fn the_catalogue_of_the_workers_tests_is_what_the_origin_would_publish() {
    let mut isolate = Isolate::new();
    let mut once = ads(X, true);
    once["campaign"][0]["caps"][0]["limit"] = json!(1);
    isolate.publish(1, 1, &once);
    let stored: BTreeMap<String, String> = serde_json::from_str(include_str!("strict.json")).unwrap();
    assert_eq!(stored, isolate.kv);
}
