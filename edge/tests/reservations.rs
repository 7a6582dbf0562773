//! Reservations of placed ads in the ledger cookie, which the next page counts before a snapshot does; strict caps.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use crate::browser::{answer, body, complete, fact_count, header, keep_cookies, read_kv, seed, set_cookies};
use causeway_edge::{
    Engine, EngineStep, HttpAnswer, ObjectCall, ObjectClass, ObjectNext, ObjectStep, call_strict_caps,
    receive_strict_caps,
};
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::keys::ad_token;
use causeway_shared::keys::cookie::{self, LEDGER};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::ledger::Ledger;
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;
const HUMAN: &str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";

const EXPLAIN: &str = "a key of sixteen characters";

/// A browser at an edge whose KV has the values that a test puts there.
struct Page {
    engine: Engine,
    ring: KeyRing,
    tenant: TenantId,
    now: Millis,
    cookies: Vec<String>,
    agent: &'static str,
    purpose: &'static str,
    gpc: &'static str,
    kv: BTreeMap<String, String>,
    /// The stored state of each object by name; `None` if object calls fail.
    objects: Option<BTreeMap<String, Vec<u8>>>,
    /// The number of object calls.
    calls: u32,
}

/// A campaign whose ads are capped at one impression a day, and a campaign without a cap.
fn capped() -> Value {
    let cap = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
    let ad = |id: &str, code: u32, group: &str| json!({ "id": id, "code": code, "ad_group": group, "creative": { "text": id }, "landing": format!("https://{id}.example/"), "weight": 100 - code });
    json!({
        "advertiser": [{ "id": "shoes", "code": 1, "repeats": true }],
        "campaign": [{ "id": "once", "code": 1, "advertiser": "shoes", "caps": cap }, { "id": "often", "code": 2, "advertiser": "shoes" }],
        "ad_group": [{ "id": "one", "code": 1, "campaign": "once" }, { "id": "many", "code": 2, "campaign": "often" }],
        "ad": [ad("red", 1, "one"), ad("blue", 2, "one"), ad("plain", 3, "many")],
    })
}

/// The same catalogue with caps that no test reaches.
fn roomy() -> Value {
    let mut ads = capped();
    ads["campaign"][1]["caps"] =
        json!([{ "action": "impression", "limit": 100, "window": { "interval": 1, "unit": "days" } }]);
    ads["campaign"][0]["caps"] = ads["campaign"][1]["caps"].clone();
    ads
}

impl Page {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    fn with(ads: &Value) -> Self {
        Self::of(ads, None)
    }

    /// A page of a tenant with an explain key of its own, or without one.
    fn of(ads: &Value, own: Option<&str>) -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret(seed).into() }]);
        let explain = own.map(str::to_owned);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), explain, ..TenantKeys::default() };
        let keys =
            KeySet { sync: ring(3), explain: Some(EXPLAIN.to_owned()), tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "dev": true, "no_signal": "allow", "origins": ["https://www.pub.example"],
            "kinds": [{ "name": "member", "code": 1, "unique": true }], "house_ad": { "id": "house" },
        }] });
        let mut page = Self {
            engine: Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap(),
            ring: ring(1),
            tenant: "demo".parse().unwrap(),
            now: NOW,
            cookies: Vec::new(),
            agent: HUMAN,
            purpose: "",
            gpc: "",
            kv: BTreeMap::new(),
            objects: Some(BTreeMap::new()),
            calls: 0,
        };
        page.put_catalogue(1, ads);
        page
    }

    /// Puts a catalogue in the KV as the current one.
    fn put_catalogue(&mut self, version: u32, ads: &Value) {
        let (key, digest) = (kv_keys::catalogue_key(&self.tenant, version), [7; 16]);
        let catalogue: Catalogue = serde_json::from_value(ads.clone()).unwrap();
        let flat = catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).unwrap();
        let value = wire::catalogue::encode_document(&key, &digest, &wire::flat::encode_catalogue(&flat)).unwrap();
        self.kv.insert(key, value);
        let published = SnapshotVersion { restore: 0, counter: version.into() };
        let pointer = wire::catalogue::CataloguePointer { published, version, digest };
        let key = kv_keys::pointer_key(&self.tenant);
        let value = wire::catalogue::encode_pointer(&key, &pointer);
        self.kv.insert(key, value);
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        self.now += 20_000;
        let Self { cookies, agent, purpose, gpc, .. } = self;
        let head = format!(
            "{method}\nhttp://localhost{path}\n{}\n\n{gpc}\n{purpose}\n{agent}\n{EXPLAIN}\n",
            cookies.join("; ")
        );
        let mut step = self.engine.begin(&head, body.to_string().as_bytes(), self.now, seed(0, self.now));
        let answer = loop {
            match complete(&mut self.engine, step, |keys| read_kv(&self.kv, None, keys)) {
                EngineStep::Call(pending, call) => {
                    let answered = self.call_object(call);
                    step = self.engine.resume_call(pending, answered.as_deref());
                }
                done => break answer(done),
            }
        };
        keep_cookies(&mut self.cookies, &answer);
        answer
    }

    /// Calls an object as the worker does; `None` if object calls fail.
    fn call_object(&mut self, ObjectCall { class, object, body }: ObjectCall) -> Option<Vec<u8>> {
        assert_eq!(class, ObjectClass::StrictCaps);
        self.calls += 1;
        let objects = self.objects.as_mut()?;
        let stored = objects.get(&object).cloned().unwrap_or_default();
        let ObjectStep { store, next } = call_strict_caps(&stored, &body, self.now).unwrap();
        objects.insert(object.clone(), store);
        match next {
            ObjectNext::Answer(answer) => Some(answer),
            ObjectNext::Forward(call) => {
                let forwarded = call.body.clone();
                let answer = self.call_object(call)?;
                let objects = self.objects.as_mut()?;
                let store = receive_strict_caps(&objects[&object], &forwarded, &answer, self.now).unwrap();
                objects.insert(object, store);
                Some(answer)
            }
        }
    }

    /// The decisions on a number of slots.
    fn decide(&mut self, slots: usize, page_view: bool) -> Vec<Value> {
        let placements: Vec<Value> = (0..slots).map(|n| json!({ "id": format!("slot-{n}") })).collect();
        let answer = self.send("POST", "/v1/decide", &json!({ "placements": placements, "page_view": page_view }));
        assert_eq!(answer.status, 200);
        body(&answer)["decisions"].as_array().unwrap().clone()
    }

    /// The ids of the ads on a page with a number of slots.
    fn ads(&mut self, slots: usize) -> Vec<String> {
        self.decide(slots, true).iter().map(|d| d["ad"]["id"].as_str().unwrap().to_owned()).collect()
    }

    /// The whole answer on one slot, explained.
    fn explained(&mut self) -> Value {
        body(&self.send("POST", "/v1/decide", &json!({ "placements": [{ "id": "top" }], "explain": true })))
    }

    /// Puts a snapshot of this browser's visitor into the KV, with a sibling on which these ads were seen.
    fn publish(&mut self, own: VisitorId, sibling: VisitorId, seen: &[u32]) {
        let minute = Minute::at(self.now);
        let entity = |ad| AdEntity { ad, ad_group: 1, campaign: 1, advertiser: 1 };
        let seen: ActionList = seen
            .iter()
            .map(|ad| AdAction {
                insertion: InsertionHash([7; 6]),
                action_type: ActionType::IMPRESSION,
                view_type: ViewType(0),
                entity: entity(*ad),
                minute,
            })
            .collect();
        let version = SnapshotVersion { restore: 0, counter: 5 };
        let profile = |actions: Vec<u8>| SubProfile::pack(version, &SubContent { actions, ..SubContent::default() });
        let snapshot = Snapshot {
            version,
            visitor: own,
            unique: Vec::new(),
            membership: Membership {
                epoch: Epoch(3),
                devices: 2,
                admits: [own, sibling].into(),
                ..Membership::default()
            },
            profiles: [(own, profile(Vec::new())), (sibling, profile(seen.pack_actions()))].into_iter().collect(),
            best: None,
        };
        let key = kv_keys::snapshot_key(&self.tenant, own);
        let value = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap();
        self.kv.insert(key, value);
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
            |d: &Value| ad_token::open(&self.ring, &self.tenant, d["insertion"].as_str().unwrap(), self.now).unwrap();
        decisions.iter().map(|d| InsertionHash::of(open(d).insertion)).collect()
    }
}

#[test]
fn the_second_pages_ledger_holds_the_first_pages_insertions() {
    let mut page = Page::with(&roomy());
    let first = page.decide(3, true);
    let first = page.placed(&first);
    assert_eq!(page.reserved(), first);
    let second = page.decide(2, true);
    let second = page.placed(&second);
    assert_eq!(page.reserved(), [first, second.clone()].concat());
    assert_eq!(page.ledger().pages.len(), 2);
    // The second page's reservations last ten minutes; after that the ledger has none.
    page.now += limits::SERVE_WINDOW_MS - 20_000;
    page.decide(0, true);
    assert_eq!(page.reserved()[page.reserved().len() - 2..], second);
    page.now += 120_000;
    page.decide(0, true);
    assert_eq!(page.reserved(), []);
}

#[test]
fn an_ad_placed_before_midnight_counts_after_it() {
    let mut page = Page::with(&capped());
    // Ten seconds before the end of a UTC day, and ten seconds after it.
    page.now = 1_800_057_600_000 - 30_000;
    assert_eq!(page.ads(1), ["red"]);
    assert_eq!(page.ads(1), ["plain"], "the ad may be seen on the new day");
}

/// A number of strict ads of one size, and one of another size.
fn many_strict(of_one: u32) -> Value {
    let mut ads = capped();
    let each = (1..=of_one + 1).map(|code| {
        let size = if code <= of_one { json!([[728, 90]]) } else { json!([[300, 250]]) };
        json!({ "id": format!("a{code}"), "code": code, "ad_group": "one", "creative": {}, "landing": "https://a.example/", "sizes": size })
    });
    ads["ad"] = each.collect();
    let cap = json!([{ "action": "impression", "limit": 9, "window": { "interval": 1, "unit": "days" } }]);
    (ads["campaign"][0]["caps"], ads["campaign"][0]["cap_mode"]) = (cap, json!("strict"));
    ads
}

#[test]
fn no_placement_takes_all_candidates_that_an_object_may_be_asked_for() {
    let mut page = Page::with(&many_strict(80));
    let slots = json!([{ "id": "a", "sizes": [[728, 90]] }, { "id": "b", "sizes": [[300, 250]] }]);
    let body = body(&page.send("POST", "/v1/decide", &json!({ "placements": slots })));
    assert_eq!(body["decisions"][1]["ad"]["id"], "a81", "{body}");
    assert!(body["decisions"][0]["ad"]["id"].as_str().unwrap().starts_with('a'));
}

#[test]
fn pixels_set_no_cookie_and_reservations_are_no_facts() {
    let mut page = Page::with(&roomy());
    let decisions = page.decide(2, true);
    for decision in &decisions {
        let pixel = page.send("GET", decision["impression_url"].as_str().unwrap(), &Value::Null);
        assert_eq!((fact_count(&pixel), set_cookies(&pixel).count()), (1, 0));
    }
    assert_eq!(page.reserved(), page.placed(&decisions));
    let me = body(&page.send("GET", "/v1/me", &Value::Null));
    assert_eq!((&me["actions"], &me["own"]["pages"]), (&json!([]), &json!(1)));
}

#[test]
fn bots_and_prefetches_reserve_nothing_and_slots_loaded_late_do() {
    let mut page = Page::with(&roomy());
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
fn ads_without_caps_take_no_room_in_the_ledger() {
    let mut page = Page::with(&capped());
    page.decide(2, true);
    let capped = page.reserved();
    assert!(!capped.is_empty());
    for _ in 0..20 {
        page.now -= 20_000;
        page.decide(4, true);
    }
    assert_eq!(page.reserved(), capped, "neither the house ad nor an ad without caps is reserved");
}

#[test]
fn without_permission_nothing_is_reserved() {
    let mut page = Page::new();
    page.decide(1, true);
    page.gpc = "1";
    let decisions = page.decide(1, true);
    assert!(decisions[0].get("insertion").is_none());
    assert_eq!(page.cookies, [""; 0]);
}

#[test]
fn a_second_page_does_not_get_the_ad_that_is_at_its_cap() {
    let mut page = Page::with(&capped());
    assert_eq!(page.ads(1), ["red"]);
    assert_eq!(page.ads(1), ["plain"]);
}

#[test]
fn an_impression_that_never_arrives_frees_the_ad_after_the_serve_window() {
    let mut page = Page::with(&capped());
    assert_eq!(page.ads(1), ["red"]);
    page.now += limits::SERVE_WINDOW_MS - 20_000;
    assert_eq!(page.ads(1), ["plain"]);
    page.now += 60_000;
    assert_eq!(page.ads(1), ["red"]);
}

#[test]
fn two_placements_of_one_page_count_for_one_cap() {
    let mut page = Page::with(&capped());
    assert_eq!(page.ads(3), ["red", "plain", "house"]);
}

#[test]
fn impressions_on_another_browser_of_the_person_count() {
    let mut page = Page::with(&capped());
    let first = page.explained();
    let own: VisitorId = first["visitor"].as_str().unwrap().parse().unwrap();
    let sibling = VisitorId::mint(NOW - 1, [9; 10]);
    // The reservation of the first page has ended by then.
    page.now += 2 * limits::SERVE_WINDOW_MS;
    page.publish(own, sibling, &[]);
    assert_eq!(page.explained()["decisions"][0]["ad"]["id"], "red");
    page.now += 2 * limits::SERVE_WINDOW_MS;
    page.publish(own, sibling, &[2]);
    let answer = page.explained();
    assert_eq!(answer["decisions"][0]["ad"]["id"], "plain");
    let cap = json!({
        "level": "campaign", "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" }, "counted": 1,
    });
    assert_eq!(
        answer["trace"]["placements"][0]["candidates"],
        json!([
            { "ad": "red", "outcome": "capped", "cap": cap, "worth_micros": 0 },
            { "ad": "blue", "outcome": "capped", "cap": cap, "worth_micros": 0 },
            { "ad": "plain", "outcome": "won", "worth_micros": 0 }, { "ad": "house", "outcome": "outbid" },
        ])
    );
    let mut visitors = [own.to_string(), sibling.to_string()];
    visitors.sort();
    assert_eq!(answer["trace"]["person"], json!({ "visitors": visitors, "snapshots": { own.to_string(): "0.5" } }));
}

#[test]
fn a_new_visitor_gets_capped_ads_and_a_page_without_a_visitor_does_not() {
    let mut page = Page::with(&capped());
    page.gpc = "1";
    let refused = page.decide(2, true);
    assert_eq!((&refused[0]["ad"]["id"], &refused[1]["ad"]["id"]), (&json!("plain"), &json!("house")));
    let named = |at: usize| ad_token::open(&page.ring, &page.tenant, refused[at]["insertion"].as_str()?, page.now).ok();
    assert_eq!(named(0).map(|token| (token.visitor, token.entity.campaign)), Some((VisitorId::ANONYMOUS, 2)));
    assert_eq!(named(1), None, "a house ad without a visitor is not counted");
    page.gpc = "";
    assert_eq!(page.ads(1), ["red"]);
}

#[test]
fn a_click_leads_to_the_ads_own_landing_address_even_late() {
    let mut page = Page::with(&capped());
    let decisions = page.decide(3, true);
    assert!(decisions[2].get("click_url").is_none(), "the house ad leads nowhere here: {decisions:?}");
    assert_eq!(
        decisions[0]["ad"],
        json!({ "id": "red", "ad_group": "one", "campaign": "once", "advertiser": "shoes", "creative": { "text": "red" } })
    );
    // A HEAD request gets the address and counts nothing.
    for (method, late, facts) in [("HEAD", 0, 0), ("GET", 0, 1), ("GET", limits::TOKEN_LIFE_MS, 0)] {
        page.now += late;
        let click = page.send(method, decisions[0]["click_url"].as_str().unwrap(), &Value::Null);
        let location = header(&click, "location");
        assert_eq!((click.status, location, fact_count(&click)), (302, Some("https://red.example/"), facts));
    }
    let seen = page.send("HEAD", decisions[0]["impression_url"].as_str().unwrap(), &Value::Null);
    assert_eq!((seen.status, fact_count(&seen)), (200, 0));
    for (method, path, allow) in [("PUT", "/v1/me", "GET, DELETE, OPTIONS"), ("POST", "/v1/c/x", "GET, HEAD")] {
        let refused = page.send(method, path, &Value::Null);
        assert_eq!((refused.status, header(&refused, "allow")), (405, Some(allow)), "{path}");
    }
}

#[test]
fn a_click_on_an_ad_that_has_left_the_catalogue_counts_and_ends_with_the_publisher() {
    let mut page = Page::with(&capped());
    let decisions = page.decide(1, true);
    page.put_catalogue(2, &json!({}));
    page.now += limits::CATALOGUE_FRESH_MS;
    let click = page.send("GET", decisions[0]["click_url"].as_str().unwrap(), &Value::Null);
    let location = header(&click, "location");
    assert_eq!((click.status, location, fact_count(&click)), (302, Some("https://www.pub.example"), 1));
}

#[test]
fn an_explain_key_of_a_tenant_s_own_is_the_only_one_it_has() {
    let ask = json!({ "placements": [{ "id": "a" }], "explain": true });
    let traced = |mut page: Page| body(&page.send("POST", "/v1/decide", &ask)).get("trace").is_some();
    assert!(traced(Page::with(&capped())), "the key of all tenants");
    assert!(traced(Page::of(&capped(), Some(EXPLAIN))));
    assert!(!traced(Page::of(&capped(), Some("another one of sixteen"))), "not the key of all tenants");
}

/// The same catalogue with strict caps of the first campaign.
fn strict() -> Value {
    let mut ads = capped();
    ads["campaign"][0]["cap_mode"] = json!("strict");
    ads
}

#[test]
fn strict_caps_hold_without_any_cookie_or_snapshot_of_the_other_pages() {
    let mut page = Page::with(&strict());
    page.decide(0, true);
    assert_eq!(page.calls, 0, "no object is called if no ad may be placed");
    // The same cookies on two pages at once: neither page contains the other's reservation.
    let cookies = page.cookies.clone();
    assert_eq!(page.ads(2), ["red", "plain"]);
    page.cookies.clone_from(&cookies);
    let answer = page.explained();
    assert_eq!(answer["decisions"][0]["ad"]["id"], "plain");
    assert_eq!(
        answer["trace"]["placements"][0]["candidates"][0],
        json!({ "ad": "red", "outcome": "capped", "by": "object", "worth_micros": 0 })
    );
    // The ad was not seen within the serve window: it may be placed again.
    page.now += limits::SERVE_WINDOW_MS + 60_000;
    page.cookies = cookies;
    assert_eq!(page.ads(1), ["red"]);
}

#[test]
fn a_strict_ad_is_not_placed_and_not_counted_without_an_answer_of_its_object() {
    let mut page = Page::with(&strict());
    let placed = page.decide(1, true);
    let impression = placed[0]["impression_url"].as_str().unwrap().to_owned();
    let objects = page.objects.take();
    let pixel = page.send("GET", &impression, &Value::Null);
    assert_eq!((pixel.status, fact_count(&pixel), pixel.notes), (200, 0, vec!["strict_unanswered"]));
    page.cookies.clear();
    let answer = page.explained();
    assert_eq!(
        (&answer["decisions"][0]["ad"]["id"], &answer["degraded"]),
        (&json!("plain"), &json!(["strict_unanswered"]))
    );
    assert_eq!(answer["trace"]["placements"][0]["candidates"][0]["outcome"], "unconfirmed");
    page.objects = objects;
    let counted = [1, 2].map(|_| page.send("GET", &impression, &Value::Null));
    assert_eq!(counted.each_ref().map(fact_count), [1, 0], "once");
    assert_eq!(counted[1].notes, ["strict_refused"]);
}

#[test]
fn a_strict_impression_that_comes_late_or_as_an_event_counts_nothing() {
    let mut page = Page::with(&strict());
    let placed = page.decide(1, true);
    let event = json!([{ "type": "action", "insertion": placed[0]["insertion"], "action": "impression" }]);
    let answer = body(&page.send("POST", "/v1/events", &event));
    assert_eq!((&answer["accepted"], &answer["rejected"][0]["code"]), (&json!(0), &json!("strict")));
    page.now += limits::SERVE_WINDOW_MS + 60_000;
    let calls = page.calls;
    let pixel = page.send("GET", placed[0]["impression_url"].as_str().unwrap(), &Value::Null);
    assert_eq!((fact_count(&pixel), pixel.notes, page.calls), (0, vec!["strict_late"], calls));
}

#[test]
fn a_strict_impression_counts_by_its_object_after_its_ad_left_the_catalogue() {
    let (mut page, mut other) = (Page::with(&strict()), strict());
    let placed = page.decide(1, true);
    assert_eq!(placed[0]["ad"]["id"], "red");
    for (ad, code) in [(0, 91), (1, 92), (2, 93)] {
        other["ad"][ad]["code"] = code.into();
    }
    page.put_catalogue(2, &other);
    page.now += limits::CATALOGUE_FRESH_MS;
    page.decide(1, true);
    let event = json!([{ "type": "action", "action": "impression", "insertion": placed[0]["insertion"] }]);
    assert_eq!(fact_count(&page.send("POST", "/v1/events", &event)), 0);
    let calls = page.calls;
    let address = placed[0]["impression_url"].as_str().unwrap();
    let seen = [page.send("GET", address, &Value::Null), page.send("GET", address, &Value::Null)];
    assert_eq!((seen.each_ref().map(fact_count), page.calls), ([1, 0], calls + 2), "the object confirms it once");
    page.now += limits::SERVE_WINDOW_MS + 120_000;
    assert_eq!(fact_count(&page.send("GET", address, &Value::Null)), 0);
}

#[test]
fn two_browsers_of_a_person_ask_one_object() {
    let mut page = Page::with(&strict());
    let first = page.explained();
    let own: VisitorId = first["visitor"].as_str().unwrap().parse().unwrap();
    let older = VisitorId::mint(NOW - 1, [9; 10]);
    page.now += 2 * limits::SERVE_WINDOW_MS;
    page.publish(own, older, &[]);
    page.cookies.retain(|cookie| !cookie.starts_with(LEDGER));
    assert_eq!(page.ads(1), ["red"]);
    let names: Vec<&String> = page.objects.iter().flatten().map(|(name, _)| name).collect();
    assert_eq!(names, [&format!("demo:{older}"), &format!("demo:{own}")]);
    assert_eq!(page.calls, 3, "one call of the first page, and two that led to the older visitor's object");
    page.cookies.retain(|cookie| !cookie.starts_with(LEDGER));
    assert_eq!(page.ads(1), ["plain"]);
}

#[test]
fn an_ad_targeted_by_page_count_is_asked_for_on_the_page_that_places_it() {
    for mode in ["ledger", "strict"] {
        let mut ads = capped();
        ads["campaign"][0]["cap_mode"] = json!(mode);
        // The KV has no snapshot: the ledger's pages are a lower bound.
        ads["campaign"][0]["targeting"] = json!({ "events.page": { "$count": { "$gte": 2 } } });
        let mut page = Page::with(&ads);
        let shown: Vec<_> = (0..3).map(|_| page.ads(1)).collect();
        assert_eq!(shown.iter().map(|ads| ads[0].as_str()).collect::<Vec<_>>(), ["plain", "red", "plain"], "{mode}");
    }
}
