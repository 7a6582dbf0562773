//! Traffic allocation at the edge: the arms of experiments and their exposures, the pace of budgets, and limited
//! offers; and targeting by location and device.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use crate::browser::{answer, awaits_facts, body, complete, facts, read_kv, seed, set_cookies};
use causeway_edge::{
    Engine, EngineStep, HttpAnswer, ObjectCall, ObjectClass, ObjectNext, ObjectStep, ReadFault, RowWrite, call_offers,
    offer_row_keys, receive_offers,
};
use causeway_shared::ads::allocation::{ALL_CALLS, CampaignPace, TrafficAllocation};
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::fact::FactKind;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{NewestNames, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;
const EXPLAIN: &str = "a key of sixteen characters";
const EXPERIMENT: u32 = 5;

/// An edge, its KV, and one browser's cookies.
struct Page {
    engine: Engine,
    tenant: TenantId,
    now: Millis,
    cookies: BTreeMap<String, String>,
    kv: BTreeMap<String, String>,
    /// `Sec-GPC` of the requests.
    gpc: &'static str,
    /// User agent of the requests.
    agent: &'static str,
    /// The exposures of the last page: visitor, experiment and arm.
    exposures: Vec<(VisitorId, u32, u8)>,
    /// The rows of the objects of limited offers, by object.
    objects: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether object calls fail before they reach the object.
    silent: bool,
    /// Whether object calls take effect but their answers arrive too late.
    lost: bool,
    /// The fault of all KV reads, if any.
    fault: Option<ReadFault>,
}

/// An ad for each of two arms, an ad of lower value without targeting, and a control arm that gets neither of the two.
fn tested() -> Value {
    let ad = |id: &str, code: u32| json!({ "id": id, "code": code, "ad_group": id, "creative": {}, "landing": "https://a.example/" });
    let group = |id: &str, code: u32, campaign: &str| json!({ "id": id, "code": code, "campaign": campaign });
    let mut all = json!({
        "advertiser": [{ "id": "shoes", "code": 1 }],
        "campaign": [{ "id": "test", "code": 1, "advertiser": "shoes", "bid": { "cpm_micros": 5 } },
            { "id": "all", "code": 2, "advertiser": "shoes" }],
        "ad_group": [group("low", 1, "test"), group("high", 2, "test"), group("plain", 3, "all")],
        "ad": [ad("low", 1), ad("high", 2), ad("plain", 3)],
        "experiment": [{ "id": "prices", "code": EXPERIMENT, "starts": 0, "selection": true, "arm": [
            { "id": "none", "code": 1, "share": 3_000, "control": true },
            { "id": "low", "code": 2, "share": 3_000 }, { "id": "high", "code": 3, "share": 3_000 },
        ] }],
    });
    all["ad_group"][0]["arm"] = json!("prices/low");
    all["ad_group"][1]["arm"] = json!("prices/high");
    all
}

impl Page {
    fn new() -> Self {
        Self::with(tested())
    }

    fn with(catalogue: Value) -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret(seed).into() }]);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), ..TenantKeys::default() };
        let explain = Some(EXPLAIN.to_owned());
        let keys = KeySet { sync: ring(3), explain, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{ "name": "demo", "hosts": ["localhost"], "no_signal": "allow" }] });
        let engine = Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap();
        let tenant: TenantId = "demo".parse().unwrap();
        let catalogue: Catalogue = serde_json::from_value(catalogue).unwrap();
        assert_eq!(catalogue.problems("c", &Vocabulary::default()), []);
        let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).unwrap();
        let (document, current) = (kv_keys::catalogue_key(&tenant, 1), kv_keys::pointer_key(&tenant));
        let pointer = wire::catalogue::CataloguePointer { published: version(1), version: 1, digest: [7; 16] };
        let value =
            wire::catalogue::encode_document(&document, &[7; 16], &wire::flat::encode_catalogue(&flat)).unwrap();
        let pointed = wire::catalogue::encode_pointer(&current, &pointer);
        let kv = [(document, value), (current, pointed)].into();
        let (cookies, objects) = (BTreeMap::new(), BTreeMap::new());
        let (gpc, agent, exposures) = ("", "Firefox/140.0", vec![]);
        Self {
            engine,
            tenant,
            now: NOW,
            cookies,
            kv,
            gpc,
            agent,
            exposures,
            objects,
            silent: false,
            lost: false,
            fault: None,
        }
    }

    fn share(&mut self, counter: u64, shares: &[u32]) {
        let shares = [(EXPERIMENT, shares.to_vec())].into();
        self.allocate(counter, TrafficAllocation { at: self.now, shares, ..TrafficAllocation::default() });
    }

    fn allocate(&mut self, counter: u64, allocation: TrafficAllocation) {
        let key = kv_keys::allocation_key(&self.tenant);
        let value = wire::catalogue::encode_allocation(&key, version(counter), &allocation).unwrap();
        self.kv.insert(key, value);
        self.now += 60_000;
    }

    fn begin(&mut self, method: &str, path: &str, body: &[u8]) -> EngineStep {
        self.now += 1_000;
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (gpc, agent) = (self.gpc, self.agent);
        let head = format!("{method}\nhttp://localhost{path}\n{}\n\n{gpc}\n\n{agent}\n{EXPLAIN}\n", cookies.join("; "));
        self.engine.begin(&head, body, self.now, seed(0, self.now))
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> HttpAnswer {
        let mut step = self.begin(method, path, body);
        let answer = loop {
            match complete(&mut self.engine, step, |keys| read_kv(&self.kv, self.fault, keys)) {
                EngineStep::Call(pending, call) => {
                    let answered = (!self.silent).then(|| self.call_object(call)).filter(|_| !self.lost);
                    step = self.engine.resume_call(pending, answered.as_deref());
                }
                done => break answer(done),
            }
        };
        for cookie in set_cookies(&answer) {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    /// Puts a snapshot of the first visitor into the KV; both visitors are one person.
    fn bridge(&mut self, profiles: [(VisitorId, SubProfile); 2]) {
        self.bridge_at(2, profiles);
    }

    fn bridge_at(&mut self, counter: u64, profiles: [(VisitorId, SubProfile); 2]) {
        let [(visitor, _), (sibling, _)] = profiles;
        let admits = [visitor, sibling].into();
        let membership = Membership { epoch: Epoch(1), devices: 2, admits, ..Membership::default() };
        let (unique, profiles) = (Vec::new(), profiles.into_iter().collect());
        let snapshot = Snapshot { version: version(counter), visitor, unique, membership, profiles, best: None };
        let key = kv_keys::snapshot_key(&self.tenant, visitor);
        self.kv.insert(key.clone(), wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap());
    }

    /// Calls an object as the worker does.
    fn call_object(&mut self, ObjectCall { class, object, body }: ObjectCall) -> Vec<u8> {
        assert_eq!(class, ObjectClass::Offers);
        let ObjectStep { store, next } = call_offers(&self.rows(&object, &body), &body).unwrap();
        self.store(&object, store);
        match next {
            ObjectNext::Answer(answer) => answer,
            ObjectNext::Forward(call) => {
                let forwarded = call.body.clone();
                let answer = self.call_object(call);
                let store = receive_offers(&self.rows(&object, &forwarded), &forwarded, &answer).unwrap();
                self.store(&object, store);
                answer
            }
        }
    }

    /// The rows that an object reads for a call.
    fn rows(&self, object: &str, call: &[u8]) -> Vec<Option<String>> {
        let stored = self.objects.get(object);
        offer_row_keys(call).unwrap().iter().map(|key| stored?.get(key).cloned()).collect()
    }

    fn store(&mut self, object: &str, writes: Vec<RowWrite>) {
        let stored = self.objects.entry(object.to_owned()).or_default();
        for RowWrite { key, value } in writes {
            match value {
                Some(value) => stored.insert(key, value),
                None => stored.remove(&key),
            };
        }
    }

    /// A page with one placement: the answer and the outcome of each ad.
    fn view(&mut self) -> (Value, BTreeMap<String, String>) {
        self.view_from("POST")
    }

    /// Like `view`, with country and region after the method, as the worker passes them.
    fn view_from(&mut self, method: &str) -> (Value, BTreeMap<String, String>) {
        self.view_page(method, &Value::Null)
    }

    /// Like `view_from`, with the address and keywords of a page.
    fn view_page(&mut self, method: &str, page: &Value) -> (Value, BTreeMap<String, String>) {
        let call = json!({ "placements": [{ "id": "top" }], "explain": true, "page": page });
        let answer = self.send(method, "/v1/decide", call.to_string().as_bytes());
        self.exposures = facts(&answer)
            .into_iter()
            .filter_map(|fact| match fact.what {
                FactKind::Exposure { experiment, arm } => Some((fact.visitor, experiment, arm)),
                _ => None,
            })
            .collect();
        let answer = body(&answer);
        let candidates = answer["trace"]["placements"][0]["candidates"].as_array().unwrap().iter();
        let named = |one: &Value| (one["ad"].as_str().unwrap().to_owned(), one["outcome"].as_str().unwrap().to_owned());
        (answer.clone(), candidates.map(named).collect())
    }

    /// The page of a visitor that was just exposed to the arm `low`.
    fn in_low() -> Self {
        let mut page = Self::new();
        page.share(5, &[3_000, 6_000, 0]);
        while page.arm() != "low" {
            page.cookies.clear();
        }
        page
    }

    /// The arm of a page's ad.
    fn arm(&mut self) -> Value {
        self.view().0["decisions"][0]["ad"]["experiment"]["arm"].clone()
    }
}

fn version(counter: u64) -> SnapshotVersion {
    SnapshotVersion { restore: 0, counter }
}

#[test]
fn new_people_fall_into_all_arms_and_each_exposure_is_one_fact() {
    let mut met = BTreeSet::new();
    let mut page = Page::new();
    for _ in 0..200 {
        page.cookies.clear();
        let (answer, outcomes) = page.view();
        let outcomes: Vec<&str> = ["low", "high", "plain"].map(|ad| outcomes[ad].as_str()).to_vec();
        let arms: Vec<u8> = page.exposures.iter().map(|(_, _, arm)| *arm).collect();
        let ad = &answer["decisions"][0]["ad"];
        match arms[..] {
            [1] => assert_eq!((outcomes, &ad["experiment"]), (vec!["holdout", "holdout", "won"], &Value::Null)),
            [2] => {
                assert_eq!(outcomes, ["won", "arm", "outbid"]);
                assert_eq!(ad["experiment"], json!({ "id": "prices", "arm": "low" }));
                let candidates = &answer["trace"]["placements"][0]["candidates"];
                let worths = [0, 1, 2].map(|n| candidates[n]["worth_micros"].as_u64());
                assert_eq!(worths, [Some(5), None, Some(0)], "for ads that could be placed");
            }
            [3] => assert_eq!(outcomes, ["arm", "won", "outbid"]),
            [] => assert_eq!(outcomes, ["arm", "arm", "won"]),
            _ => unreachable!("{arms:?}"),
        }
        page.view();
        assert_eq!(page.exposures, [], "the cookie contains the exposure");
        met.insert(arms);
    }
    assert_eq!(met, [vec![], vec![1], vec![2], vec![3]].into());
}

#[test]
fn new_shares_apply_to_new_people_and_keep_exposed_people_in_their_arm() {
    let mut page = Page::in_low();
    page.share(6, &[3_000, 0, 6_000]);
    assert_eq!((page.arm(), page.exposures.len()), (json!("low"), 0));
    page.share(4, &[3_000, 6_000, 0]);
    for _ in 0..50 {
        page.cookies.clear();
        assert_ne!(page.arm(), "low", "an older allocation is not adopted");
    }
    page.kv.insert(kv_keys::allocation_key(&page.tenant), "s1AAAA".to_owned());
    page.now += 60_000;
    let (answer, _) = page.view();
    assert_eq!(answer["degraded"], json!(["allocation_bad"]));
}

#[test]
fn shares_belong_to_the_arms_in_any_order_of_the_document() {
    let mut ads = tested();
    ads["experiment"][0]["arm"].as_array_mut().unwrap().reverse();
    let mut page = Page::with(ads);
    page.share(5, &[3_000, 6_000, 0]);
    let arms: BTreeSet<String> = (0..50)
        .filter_map(|_| {
            page.cookies.clear();
            page.arm().as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(arms, ["low".to_owned()].into());
}

#[test]
fn a_persons_earliest_exposure_decides_and_each_browser_reports_its_own_once() {
    let mut page = Page::new();
    page.view();
    let own: VisitorId = page.view().0["visitor"].as_str().unwrap().parse().unwrap();
    page.cookies.remove("cw_recent");
    // A new visitor has nothing in the KV.
    page.now += 600_000;
    let sibling = VisitorId::mint(NOW - 1_000_000, [3; 10]);
    let seen = |arm, at| [(EXPERIMENT, FirstExposure { arm, at, mixed: false })].into_iter().collect::<Exposures>();
    let sub = |exposures: &Exposures, named| {
        let exposures = exposures.pack();
        SubProfile::pack(version(2), &SubContent { exposures, names: named, ..SubContent::default() })
    };
    let names = NewestNames::default;
    page.bridge([(own, sub(&Exposures::default(), Some(names()))), (sibling, sub(&seen(3, NOW - 9), None))]);
    assert_eq!(page.arm(), "high", "as its sibling saw it");
    assert_eq!(page.exposures, [(own, EXPERIMENT, 3)]);
    assert_eq!((page.arm(), page.exposures.len()), (json!("high"), 0));
}

#[test]
fn an_exposed_person_is_in_no_other_arm_while_the_kv_is_late() {
    let mut page = Page::in_low();
    let own: VisitorId = page.view().0["visitor"].as_str().unwrap().parse().unwrap();
    let seen: Exposures = [(EXPERIMENT, FirstExposure { arm: 2, at: NOW, mixed: false })].into_iter().collect();
    let content = SubContent { exposures: seen.pack(), names: Some(NewestNames::default()), ..SubContent::default() };
    page.bridge([
        (own, SubProfile::pack(version(2), &content)),
        (VisitorId::mint(NOW + 1, [3; 10]), SubProfile::pack(version(2), &SubContent::default())),
    ]);
    // The snapshot contains the exposure, and the cookie no longer does.
    page.now += 11 * 60_000;
    page.view();
    page.share(6, &[3_000, 0, 6_000]);
    assert_eq!((page.arm(), page.exposures.len()), (json!("low"), 0));
    // An isolate that has not read the snapshot; another page loads its catalogue.
    let (cookies, mut cold) = (std::mem::take(&mut page.cookies), Page::new());
    (cold.kv, cold.now) = (page.kv.clone(), page.now);
    cold.view();
    (cold.cookies, cold.fault) = (cookies, Some(ReadFault::Late));
    let (answer, outcomes) = cold.view();
    assert_eq!(
        (answer["degraded"].clone(), outcomes["high"].as_str(), &cold.exposures[..]),
        (json!(["kv_late"]), "arm", &[][..])
    );
    cold.fault = None;
    assert_eq!((cold.arm(), cold.exposures.len()), (json!("low"), 0));
}

#[test]
fn no_older_snapshot_puts_a_person_that_may_be_exposed_into_an_arm() {
    let mut page = Page::new();
    page.share(5, &[0, 0, 0]);
    let own: VisitorId = page.view().0["visitor"].as_str().unwrap().parse().unwrap();
    page.now += 600_000;
    let sub = |counter, exposures: &Exposures, names| {
        let content = SubContent { exposures: exposures.pack(), names, ..SubContent::default() };
        SubProfile::pack(version(counter), &content)
    };
    let (sibling, nothing) = (VisitorId::mint(NOW - 1_000_000, [3; 10]), Exposures::default());
    let high: Exposures = [(EXPERIMENT, FirstExposure { arm: 3, at: NOW - 9, mixed: false })].into_iter().collect();
    let whole = |counter, seen| {
        [(own, sub(counter, &nothing, Some(NewestNames::default()))), (sibling, sub(counter, seen, None))]
    };
    page.bridge_at(2, whole(2, &high));
    // A page without a placement of the experiment reads the snapshot.
    page.send("POST", "/v1/decide", br#"{"placements":[]}"#);
    page.share(6, &[3_000, 6_000, 0]);
    let (cookies, key) = (page.cookies.clone(), kv_keys::snapshot_key(&page.tenant, own));
    for older in [Some(whole(1, &nothing)), None] {
        let mut cold = Page::new();
        (cold.kv, cold.now) = (page.kv.clone(), page.now);
        cold.kv.remove(&key);
        cold.view();
        older.into_iter().for_each(|older| cold.bridge_at(1, older));
        cold.cookies = cookies.clone();
        assert_eq!((cold.arm(), cold.exposures.len()), (Value::Null, 0), "another location has an older value");
        cold.kv.insert(key.clone(), page.kv[&key].clone());
        assert_eq!((cold.arm(), &cold.exposures[..]), (json!("high"), &[(own, EXPERIMENT, 3)][..]));
    }
}

#[test]
fn a_request_without_a_visitor_or_that_does_not_count_is_in_no_arm() {
    let mut page = Page::new();
    page.view();
    for (gpc, agent) in [("1", "Firefox/140.0"), ("", "Googlebot/2.1"), ("", "curl/8.0 HeadlessChrome/1")] {
        (page.gpc, page.agent) = (gpc, agent);
        let (_, outcomes) = page.view();
        assert_eq!(
            (outcomes["low"].as_str(), outcomes["high"].as_str(), page.exposures.len()),
            ("anonymous", "anonymous", 0),
            "{agent}"
        );
    }
}

/// The ad of a campaign with a budget, and an ad of lower value without targeting.
fn budgeted() -> Value {
    let mut all = tested();
    all["campaign"][0]["daily_budget_micros"] = json!(1_000_000);
    all.as_object_mut().unwrap().remove("experiment");
    for group in all["ad_group"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("arm");
    }
    all["ad"].as_array_mut().unwrap().remove(1);
    all
}

/// An allocation with a pace of this number of a million calls.
fn paced(now: Millis, calls: u32) -> TrafficAllocation {
    TrafficAllocation {
        at: now,
        paces: [(1, CampaignPace { from: calls, to: calls })].into(),
        ..TrafficAllocation::default()
    }
}

#[test]
fn a_campaign_with_a_budget_takes_part_at_its_pace_and_not_without_one() {
    let mut page = Page::with(budgeted());
    let outcome = |page: &mut Page| page.view().1["low"].clone();
    assert_eq!(outcome(&mut page), "pace", "without a pace the campaign spends nothing");
    page.allocate(1, paced(page.now, ALL_CALLS));
    let shown = (0..60).filter(|_| outcome(&mut page) == "won").count();
    assert_eq!(shown, 60);
    page.allocate(2, paced(page.now, ALL_CALLS / 4));
    let shown = (0..400).filter(|_| outcome(&mut page) == "won").count();
    // Four standard deviations of 400 draws: 35.
    assert!(shown.abs_diff(100) < 35, "{shown}");
    page.allocate(3, paced(page.now, ALL_CALLS));
    page.now += limits::ALLOCATION_STALE_MS;
    assert_eq!(outcome(&mut page), "pace", "the spend since then is unknown");
}

#[test]
fn actions_without_a_visitor_count_for_their_campaign() {
    let mut page = Page::with(budgeted());
    page.allocate(1, paced(page.now, ALL_CALLS));
    page.gpc = "1";
    let (answer, outcomes) = page.view();
    assert_eq!(
        (&outcomes["low"], &answer["visitor"], &answer["consent"]),
        (&"won".to_owned(), &Value::Null, &json!("none"))
    );
    assert!(page.cookies.is_empty());
    let decision = &answer["decisions"][0];
    for (url, status) in [("impression_url", 200), ("click_url", 302)] {
        let sent = page.send("GET", decision[url].as_str().unwrap(), b"");
        let [fact] = &facts(&sent)[..] else { unreachable!("{sent:?}") };
        assert_eq!((sent.status, fact.visitor), (status, VisitorId::ANONYMOUS));
        assert!(matches!(fact.what, FactKind::Action { entity, .. } if entity.campaign == 1));
        page.agent = "a-crawler (bot)";
        assert_eq!(facts(&page.send("GET", decision[url].as_str().unwrap(), b"")), [], "a bot");
        page.agent = "Firefox/140.0";
    }
    // Events of the page count the click too; every other event is refused without permission.
    let clicked = json!({ "type": "action", "action": "click", "insertion": decision["insertion"] });
    let events = json!([clicked, { "type": "page" }, clicked]).to_string();
    let sent = page.send("POST", "/v1/events", events.as_bytes());
    let [fact] = &facts(&sent)[..] else { unreachable!("{sent:?}") };
    assert_eq!((fact.visitor, awaits_facts(&sent)), (VisitorId::ANONYMOUS, true));
    let reply = body(&sent);
    assert_eq!(
        (&reply["accepted"], &reply["consent"], &reply["rejected"][0]["index"]),
        (&json!(2), &json!("gpc"), &json!(1))
    );
    assert_eq!((reply["rejected"].as_array().unwrap().len(), &reply["rejected"][0]["code"]), (1, &json!("no_consent")));
    page.agent = "a-crawler (bot)";
    assert_eq!(facts(&page.send("POST", "/v1/events", events.as_bytes())), []);
    page.agent = "Firefox/140.0";
    // Without a catalogue the isolate does not know the ad's caps: for an ad without a visitor it calls no object.
    let impression = decision["impression_url"].as_str().unwrap();
    page.kv.retain(|key, _| !key.starts_with("c:"));
    page.engine = Page::with(budgeted()).engine;
    assert_eq!(facts(&page.send("GET", impression, b"")).len(), 1);
}

#[test]
fn location_and_device_targeting_needs_no_visitor() {
    const PHONE: &str =
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Version/18.5 Mobile/15E148 Safari/604.1";
    let mut all = budgeted();
    all["campaign"][0].as_object_mut().unwrap().remove("daily_budget_micros");
    all["campaign"][0]["targeting"] = json!({
        "geo.country": "DE", "geo.region": { "$in": ["BE", "BB"] }, "device.class": "mobile", "device.os": "ios", "device.browser": "safari",
    });
    let mut page = Page::with(all);
    for gpc in ["", "1"] {
        for (method, agent, outcome) in [
            ("POST DE BE", PHONE, "won"),
            ("POST DE BY", PHONE, "targeting"),
            ("POST", PHONE, "targeting"),
            ("POST DE BE", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "targeting"),
        ] {
            (page.gpc, page.agent) = (gpc, agent);
            assert_eq!(page.view_from(method).1["low"], outcome, "{method} {agent} {gpc}");
        }
    }
}

#[test]
fn what_a_call_left_out_of_the_page_is_unknown_and_named_in_the_answer() {
    let targeted = |targeting| {
        let mut all = budgeted();
        all["campaign"][0].as_object_mut().unwrap().remove("daily_budget_micros");
        all["campaign"][0]["targeting"] = targeting;
        Page::with(all)
    };
    let mut suppressed = targeted(json!({ "page.keywords": { "$nin": ["gambling"] } }));
    let mut elsewhere = targeted(json!({ "page.url": { "$ne": "https://pub.example/" } }));
    let words = |count: usize| (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>();
    let long = "k".repeat(limits::NAME_BYTES + 1);
    for (page, keywords, url) in [
        (json!({ "keywords": words(limits::KEYWORDS), "url": "https://other.example/" }), "won", "won"),
        (json!({ "keywords": words(limits::KEYWORDS + 1) }), "unknown", "won"),
        (json!({ "keywords": ["w", long] }), "unknown", "won"),
        (json!({ "keywords": "gambling" }), "unknown", "won"),
        (json!({ "url": format!("https://pub.example/{}", "x".repeat(limits::URL_BYTES)) }), "won", "unknown"),
        (json!("https://pub.example/"), "unknown", "unknown"),
    ] {
        for (tenant, expected) in [(&mut suppressed, keywords), (&mut elsewhere, url)] {
            let (answer, outcomes) = tenant.view_page("POST", &page);
            assert_eq!(outcomes["low"], expected, "{page}");
            assert_eq!(answer["warnings"].is_array(), (keywords, url) != ("won", "won"), "{answer}");
        }
    }
}

/// The ad of a limited offer, and an ad of lower value without targeting.
fn limited(recipients: &Value) -> Value {
    let mut all = budgeted();
    all["campaign"][0].as_object_mut().unwrap().remove("daily_budget_micros");
    all["campaign"][0]["recipients"] = recipients.clone();
    all["ad"][0]["creative"] =
        json!({ "text": "no. {offer_code}", "html": "<a href=\"{click_url}\">{offer_code}</a>" });
    all
}

/// The offer code of a page's ad, and the offer facts of the answer.
fn offer_code(page: &mut Page) -> (Option<u64>, Vec<(VisitorId, FactKind)>) {
    let answer = page.send("POST", "/v1/decide", br#"{"placements":[{"id":"top"}]}"#);
    let recorded = facts(&answer).into_iter().filter(|fact| matches!(fact.what, FactKind::OfferCode { .. }));
    (
        body(&answer)["decisions"][0]["ad"]["offer_code"].as_u64(),
        recorded.map(|fact| (fact.visitor, fact.what)).collect(),
    )
}

#[test]
fn an_offer_code_is_asked_for_by_a_page_that_shows_it() {
    let mut ads = limited(&json!({ "limit": 3 }));
    // The KV has no snapshot: the ledger's pages are a lower bound.
    ads["campaign"][0]["targeting"] = json!({ "events.page": { "$count": { "$gte": 2 } } });
    let mut page = Page::with(ads);
    for number in 0..5 {
        page.cookies.clear();
        let seen: Vec<_> = (0..3).map(|_| offer_code(&mut page)).collect();
        let shown: Vec<_> = seen.iter().map(|(offer_code, _)| *offer_code).collect();
        let code = Some(number).filter(|number| *number < 3);
        assert_eq!(shown, [None, code, code], "from the second page on");
        assert_eq!(seen.iter().flat_map(|(_, recorded)| recorded).count(), usize::from(number < 3));
    }
}

#[test]
fn at_most_the_limit_of_people_get_a_code_each_keeps_its_own_and_reports_it_once() {
    let mut page = Page::with(limited(&json!({ "limit": 3 })));
    let mut had = Vec::new();
    for n in 0..12 {
        page.cookies.clear();
        let (number, recorded) = offer_code(&mut page);
        let visitor: VisitorId = body(&page.send("GET", "/v1/me", b""))["visitor"].as_str().unwrap().parse().unwrap();
        let Some(number) = number else {
            assert_eq!((recorded, had.len()), (vec![], 3), "{n}");
            continue;
        };
        let what = FactKind::OfferCode { campaign: 1, number: u32::try_from(number).unwrap() };
        assert_eq!(recorded, [(visitor, what)]);
        // The cookie contains the code: no object is called, and no fact repeats it.
        let before = page.objects.clone();
        page.silent = true;
        assert_eq!(offer_code(&mut page), (Some(number), vec![]));
        let me = body(&page.send("GET", "/v1/me", b""));
        assert_eq!(
            (&me["offer_codes"][0]["campaign"], me["offer_codes"][0]["code"].as_u64()),
            (&json!("test"), Some(number))
        );
        page.silent = false;
        assert_eq!(page.objects, before);
        // Without the cookie the object still has the code.
        page.cookies.remove("cw_recent");
        assert_eq!(offer_code(&mut page).0, Some(number));
        had.push(number);
    }
    had.sort_unstable();
    assert_eq!(had, [0, 1, 2]);
}

#[test]
fn an_offer_whose_last_code_was_lost_blocks_no_other_offer() {
    let mut ads = limited(&json!({ "limit": 1 }));
    ads["campaign"][1]["recipients"] = json!({ "limit": 1_000 });
    let mut page = Page::with(ads);
    page.lost = true;
    offer_code(&mut page);
    let first = std::mem::take(&mut page.cookies);
    page.lost = false;
    assert_eq!(offer_code(&mut page).0, None, "the offer of the highest value is sold out");
    for _ in 0..3 {
        page.cookies.clear();
        let (number, recorded) = offer_code(&mut page);
        assert!(
            number.is_some() && matches!(recorded[..], [(_, FactKind::OfferCode { campaign: 2, .. })]),
            "{recorded:?}"
        );
        // The next page asks the sold-out offer again, and gets no new code.
        assert!(offer_code(&mut page).1.is_empty());
    }
    // The owner of the code gets it after it has a code of the other offer.
    page.cookies = first;
    offer_code(&mut page);
    assert!(matches!(offer_code(&mut page).1[..], [(_, FactKind::OfferCode { campaign: 1, number: 0 })]));
}

#[test]
fn a_person_without_a_code_sees_another_ad_and_the_trace_says_why() {
    let mut page = Page::with(limited(&json!({ "limit": 3 })));
    page.silent = true;
    let (answer, outcomes) = page.view();
    assert_eq!((outcomes["low"].as_str(), &answer["degraded"]), ("unconfirmed", &json!(["offer_code_unanswered"])));
    page.silent = false;
    let (answer, outcomes) = page.view();
    let ad = &answer["decisions"][0];
    let (offer_code, creative) = (ad["ad"]["offer_code"].as_u64().unwrap(), &ad["ad"]["creative"]);
    let html = format!("<a href=\"{{click_url}}\">{offer_code}</a>");
    assert_eq!(
        (outcomes["low"].as_str(), creative),
        ("won", &json!({ "text": format!("no. {offer_code}"), "html": html }))
    );
    // After all codes were assigned no object is called.
    page.allocate(1, TrafficAllocation { at: page.now, given_out: [1].into(), ..TrafficAllocation::default() });
    assert_eq!(page.view().1["low"], "won", "the person has a code");
    page.cookies.clear();
    let before = page.objects.clone();
    assert_eq!((page.view().1["low"].as_str(), page.objects == before), ("recipients", true));
    // Neither a page without a visitor nor a bot is a recipient.
    for (gpc, agent) in [("1", "Firefox/140.0"), ("", "Googlebot/2.1")] {
        (page.gpc, page.agent) = (gpc, agent);
        assert_eq!(page.view().1["low"], "anonymous", "{agent}");
    }
}

#[test]
fn a_share_of_all_people_is_drawn_for_an_offer() {
    let mut page = Page::with(limited(&json!({ "limit": 1_000, "share": 2_500 })));
    let got = (0..400).filter(|_| {
        page.cookies.clear();
        offer_code(&mut page).0.is_some()
    });
    // Four standard deviations of 400 draws: 35.
    assert!(got.count().abs_diff(100) < 35);
}

#[test]
fn a_code_assigned_to_another_browser_of_the_person_is_reported_by_the_one_that_shows_it() {
    let mut page = Page::with(limited(&json!({ "limit": 1_000 })));
    let visitor = |page: &mut Page| -> VisitorId {
        body(&page.send("GET", "/v1/me", b""))["visitor"].as_str().unwrap().parse().unwrap()
    };
    // The object assigns a code, its answer arrives too late, and the browser never returns.
    page.lost = true;
    assert_eq!(offer_code(&mut page).0, None);
    let first = visitor(&mut page);
    page.cookies.clear();
    (page.lost, page.silent) = (false, true);
    offer_code(&mut page);
    let second = visitor(&mut page);
    page.now += 600_000;
    page.cookies.remove("cw_recent");
    let own = SubContent { names: Some(NewestNames::default()), ..SubContent::default() };
    let sub = |content| SubProfile::pack(version(2), &content);
    page.bridge([(second, sub(own)), (first, sub(SubContent::default()))]);
    page.silent = false;
    let (number, recorded) = offer_code(&mut page);
    let what = FactKind::OfferCode { campaign: 1, number: u32::try_from(number.unwrap()).unwrap() };
    assert_eq!(recorded, [(first, what)]);
    // While KV reads are late the code is unknown, and the person gets no other.
    let (cookies, mut cold) = (page.cookies.clone(), Page::with(limited(&json!({ "limit": 1_000 }))));
    (cold.kv, cold.now, cold.objects) = (page.kv.clone(), page.now, page.objects.clone());
    cold.view();
    (cold.cookies, cold.fault) = (cookies, Some(ReadFault::Late));
    cold.cookies.remove("cw_recent");
    assert_eq!(offer_code(&mut cold), (None, Vec::new()));
}

#[test]
fn a_placement_without_an_ad_says_why() {
    let only = |change: fn(&mut Value)| {
        let mut all = json!({
            "advertiser": [{ "id": "shoes", "code": 1 }],
            "campaign": [{ "id": "all", "code": 2, "advertiser": "shoes" }],
            "ad_group": [{ "id": "plain", "code": 3, "campaign": "all" }],
            "ad": [{ "id": "plain", "code": 3, "ad_group": "plain", "creative": {}, "landing": "https://a.example/" }],
        });
        change(&mut all);
        Page::with(all)
    };
    let mut pages = [
        ("no_catalogue", only(|_| ())),
        ("no_size", only(|all| all["ad"][0]["sizes"] = json!([[728, 90]]))),
        ("none_matches", only(|all| all["campaign"][0]["targeting"] = json!({ "events.page": { "$count": 9 } }))),
        (
            "all_capped",
            only(|all| {
                let day = json!({ "interval": 1, "unit": "days" });
                all["campaign"][0]["caps"] = json!([{ "action": "impression", "limit": 1, "window": day }]);
            }),
        ),
    ];
    pages[0].1.kv.clear();
    for (reason, page) in &mut pages {
        let mut answer = || -> Value {
            let call = br#"{"placements":[{"id":"top","sizes":[[300,250]]}]}"#;
            body(&page.send("POST", "/v1/decide", call))["decisions"].take()
        };
        let shown = [answer(), answer()];
        assert_eq!(shown[1], json!([{ "placement": "top", "ad": null, "reason": reason }]));
        assert_eq!(shown[0] == shown[1], *reason != "all_capped", "{shown:?}");
    }
}

#[test]
fn a_page_cannot_write_a_segment_that_an_audience_fills_and_the_answer_names_it() {
    let mut page = Page::new();
    page.allocate(1, TrafficAllocation { at: page.now, materialised: [9].into(), ..TrafficAllocation::default() });
    page.view();
    let expires = page.now + 90_000_000;
    let events = json!([
        { "type": "segments", "set": [{ "segment": 7, "expires_ms": expires }, { "segment": 9, "expires_ms": expires }] },
        { "type": "segments", "remove": [9] },
    ]);
    let answer = page.send("POST", "/v1/events", events.to_string().as_bytes());
    let written: Vec<FactKind> = facts(&answer).into_iter().map(|fact| fact.what).collect();
    let [FactKind::Segments { writes }] = &written[..] else { unreachable!("{written:?}") };
    assert_eq!(writes.iter().map(|(segment, _)| segment.0).collect::<Vec<_>>(), [7]);
    let answer = body(&answer);
    let refused: Vec<(u64, &str)> = answer["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["index"].as_u64().unwrap(), one["code"].as_str().unwrap()))
        .collect();
    let expected = [(0, "materialised_segment"), (1, "materialised_segment")];
    assert_eq!((&answer["accepted"], &refused[..]), (&json!(1), &expected[..]));
    assert!(answer["rejected"][1]["message"].as_str().unwrap().contains("segment 9"), "{answer}");
}
