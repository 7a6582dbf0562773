//! The worker in WebAssembly and the native engine give the same answer, cookies and facts for random pages, to the
//! last byte.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at its first failure"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use causeway_edge::{Engine, EngineStep};
use causeway_shared::ads::catalogue::{Catalogue, CompiledCatalogue, FlatCatalogue};
use causeway_shared::ads::model::{FRACTION, Model, Part};
use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState, WriteStamp};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::cookie::{self, IDENTITY};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::catalogue::{CataloguePointer, encode_document, encode_model, encode_pointer};
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::cases;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const NOW: Millis = 1_800_000_000_000;
/// Page views, short and long.
const REQUESTS: [u64; 2] = [2_000, 10_000];
const ADS: u64 = 120;
const VISITORS: u64 = 200;
const SIZES: [[u32; 2]; 4] = [[728, 90], [300, 250], [160, 600], [970, 250]];
const WORDS: [&str; 3] = ["home", "article", "search"];
const EXPLAIN: &str = "the explain key of the test";
const KEYWORDS: [&str; 4] = ["hotel", "beach", "shoes", "news"];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        causeway_shared::base::random::next(&mut self.0) % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn small(&mut self, bound: u64) -> u32 {
        u32::try_from(self.below(bound)).unwrap()
    }
}

fn words() -> Vocabulary {
    let view_types: Vec<Value> = (1..).zip(WORDS).map(|(code, name)| json!({ "name": name, "code": code })).collect();
    serde_json::from_value(json!({ "action_type": [{ "name": "hide", "code": 3 }], "view_type": view_types })).unwrap()
}

fn filter(dice: &mut Dice) -> Value {
    let days = 1 + dice.below(20);
    match dice.below(9) {
        0 => json!({ "segments": { "$in": [dice.below(30), dice.below(30)] } }),
        1 => json!({ "segments": { "$nin": [dice.below(30)] } }),
        2 => json!({ "page.keywords": dice.of(&KEYWORDS) }),
        3 => json!({ "page.view_type": dice.of(&WORDS) }),
        4 => json!({ "devices": { "$gte": 1 + dice.below(2) } }),
        5 => {
            json!({ "actions.impression": { "$count": { "$lt": 1 + dice.below(40) }, "within": { "interval": days, "unit": "days" } } })
        }
        6 => json!({ "$or": [filter(dice), filter(dice)] }),
        7 => {
            json!({ (dice.of(&["events.page", "events.purchase"])): { "$count": { (dice.of(&["$gte", "$lt"])): 1 + dice.below(4) }, "within": { "interval": days, "unit": "days" } } })
        }
        _ => json!({ "last_seen": { "$exists": true }, "$not": filter(dice) }),
    }
}

fn catalogue(dice: &mut Dice) -> FlatCatalogue {
    let caps = |dice: &mut Dice| {
        let unit = dice.of(&["minutes", "hours", "days"]);
        let window = json!({ "interval": dice.of(&[1, 7, 20]), "unit": unit });
        json!([{ "action": dice.of(&["impression", "click", "hide"]), "limit": 1 + dice.below(12), "window": window }])
    };
    let bid = |dice: &mut Dice| match dice.below(5) {
        0 => json!({ "cpc_micros": dice.below(900_000) }),
        1 => json!({ "cpa_micros": dice.below(90_000_000) }),
        2 => json!({ "share_ppm": dice.below(300_000) }),
        _ => json!({ "cpm_micros": dice.below(3_000_000) }),
    };
    let row = |sort: &str, n: u64, more: Value| {
        let mut row = json!({ "id": format!("{sort}{n}"), "code": n + 1 });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let advertisers: Vec<Value> =
        (0..ADS / 12).map(|n| row("v", n, json!({ "repeats": n.is_multiple_of(3) }))).collect();
    let campaign = |n| {
        let strict = dice.below(20) == 0;
        let mode = if strict { "strict" } else { "ledger" };
        row(
            "c",
            n,
            json!({ "advertiser": format!("v{}", n / 3), "bid": bid(dice), "caps": caps(dice), "cap_mode": mode,
            "categories": [format!("k{}", n % 5)], "roadblock": !strict && dice.below(15) == 0 }),
        )
    };
    let campaigns: Vec<Value> = (0..ADS / 4).map(campaign).collect();
    let group =
        |n| row("g", n, json!({ "campaign": format!("c{}", n / 2), "targeting": filter(dice), "caps": caps(dice) }));
    let groups: Vec<Value> = (0..ADS / 2).map(group).collect();
    let ad = |n| {
        row(
            "a",
            n,
            json!({ "ad_group": format!("g{}", n / 2), "sizes": [dice.of(&SIZES), dice.of(&SIZES)], "weight": dice.below(3),
            "creative": { "number": n }, "landing": "https://shop.example/", "caps": caps(dice) }),
        )
    };
    let ads: Vec<Value> = (0..ADS).map(ad).collect();
    let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 3_000, "control": code == 3 });
    let tests = json!([{ "id": "e", "code": 1, "starts": 0, "arm": [arm("a", 1), arm("b", 2), arm("none", 3)] }]);
    let mut all =
        json!({ "advertiser": advertisers, "campaign": campaigns, "ad_group": groups, "ad": ads, "experiment": tests });
    for ad in all["ad"].as_array_mut().unwrap().iter_mut().step_by(3) {
        ad["arm"] = json!(dice.of(&["e/a", "e/b"]));
    }
    let catalogue: Catalogue = serde_json::from_value(all).unwrap();
    assert_eq!(catalogue.problems("", &words()), []);
    catalogue.flat(&NameDictionary::default(), &words()).unwrap()
}

fn model(dice: &mut Dice) -> Model {
    let mut part = |intercept: i32| {
        let weights = (0..1 << 11).map(|_| i16::try_from(dice.below(1_024)).unwrap() - 512).collect();
        Part { intercept: intercept << FRACTION, scale: 9, weights, quality: None }
    };
    let [click, conversion, price] = [part(-6), part(-4), part(16)];
    Model {
        bits: 11,
        trained_ms: NOW,
        expires_ms: NOW + 86_400_000,
        click,
        conversion,
        price,
        spread: 9_000,
        ..Model::default()
    }
}

fn snapshot(dice: &mut Dice, visitor: VisitorId, entities: &[AdEntity]) -> Snapshot {
    let action = |dice: &mut Dice| AdAction {
        insertion: InsertionHash([dice.small(256) as u8, dice.small(256) as u8, dice.small(256) as u8, 1, 2, 3]),
        action_type: dice.of(&[ActionType::IMPRESSION, ActionType::IMPRESSION, ActionType::CLICK, ActionType(3)]),
        view_type: ViewType(dice.small(4) as u8),
        entity: dice.of(entities),
        minute: Minute(Minute::at(NOW).0 - dice.small(29 * 1_440)),
    };
    let actions: ActionList = (0..dice.below(150)).map(|_| action(dice)).collect();
    let mut segments = SegmentMap::default();
    for _ in 0..dice.below(12) {
        let until = SegmentState::held(HourStamp(HourStamp::at(NOW).0 + dice.small(48) - 4), []);
        segments.write(SegmentId(dice.small(30)), WriteStamp { at: 1, order: 1 }, until);
    }
    let totals = ProfileTotals { pages: dice.below(50), ..ProfileTotals::default() };
    let seen = (dice.below(5) > 0).then_some((NOW - 90_000_000, NOW - dice.below(80_000_000)));
    let mut events = VisitorEvents::default();
    for _ in 0..dice.below(60) {
        events.add(dice.of(&["page", "purchase"]), Minute(Minute::at(NOW).0 - dice.small(29 * 1_440)));
    }
    let recent = events.pack_recent(Minute::at(NOW - 25 * 86_400_000));
    let (actions, segments) = (actions.pack_actions(), segments.pack());
    let content = SubContent { totals, seen, actions, segments, recent, ..SubContent::default() };
    let version = SnapshotVersion { restore: 0, counter: 5 };
    let membership = Membership { epoch: Epoch(1), devices: 1, admits: [visitor].into(), ..Membership::default() };
    let profiles = [(visitor, SubProfile::pack(version, &content))].into_iter().collect();
    Snapshot { version, visitor, unique: Vec::new(), membership, profiles, best: None }
}

/// The world as both sides get it: configuration, keys, the KV, and the requests.
fn world(seed: u64, requests: u64) -> Value {
    let mut dice = Dice(seed);
    let tenant: TenantId = "demo".parse().unwrap();
    let ring = |seed: u8| {
        KeyRing(vec![RingKey {
            id: 1,
            stage: KeyStage::Active,
            secret: std::array::from_fn::<u8, 32, _>(|i| (i as u8).wrapping_mul(7) ^ seed).into(),
        }])
    };
    let demo = TenantKeys { cookie: ring(1), alternate: ring(2), proof: Vec::new(), ..TenantKeys::default() };
    let keys = KeySet { sync: ring(3), explain: Some(EXPLAIN.to_owned()), tenants: [("demo".to_owned(), demo)].into() };
    let config = json!({ "tenant": [{
        "name": "demo", "hosts": ["localhost"], "no_signal": "allow", "house_ad": { "id": "house" }, "vocabulary": words(),
    }] });
    let flat = catalogue(&mut dice);
    let entities: Vec<AdEntity> = CompiledCatalogue::of(flat.clone()).offers.iter().map(|offer| offer.entity).collect();
    let (published, digest) = (SnapshotVersion { restore: 0, counter: 1 }, [7; 16]);
    let [pointer, document, model_key] =
        [kv_keys::pointer_key(&tenant), kv_keys::catalogue_key(&tenant, 1), kv_keys::model_key(&tenant)];
    let mut kv = BTreeMap::from([
        (pointer.clone(), encode_pointer(&pointer, &CataloguePointer { published, version: 1, digest })),
        (document.clone(), encode_document(&document, &digest, &wire::flat::encode_catalogue(&flat)).unwrap()),
        (model_key.clone(), encode_model(&model_key, published, &wire::model::encode_model(&model(&mut dice)))),
    ]);
    let mut cookies = vec![String::new()];
    for number in 0..VISITORS {
        let [.., a, b] = number.to_be_bytes();
        let visitor = VisitorId::mint(NOW - 86_400_000, [a, b, 0, 0, 0, 0, 0, 0, 0, 0]);
        let key = kv_keys::snapshot_key(&tenant, visitor);
        let stored = StoredValue::Snapshot(Box::new(snapshot(&mut dice, visitor, &entities)));
        kv.insert(key.clone(), wire::kv::encode_stored(&key, &stored).unwrap());
        let (covered, earlier, pending) = (Vec::new(), Vec::new(), Vec::new());
        let cookie = IdentityCookie { visitor, written: NOW, tag: None, covered, earlier, pending, login: None };
        let sealed =
            cookie::seal_cookie(&ring(1), IDENTITY, &tenant, &wire::cookies::encode_identity(&cookie)).unwrap();
        cookies.push(format!("__Host-{IDENTITY}={sealed}"));
    }
    let request = |number: u64| {
        let placements: Vec<Value> = (0..1 + dice.below(4))
            .map(|n| {
                json!({ "id": format!("p{n}"), "sizes": [dice.of(&SIZES)], "view_type": dice.of(&WORDS),
                "floor_micros": dice.below(4) * 100_000 })
            })
            .collect();
        let page = json!({ "url": "https://pub.example/a", "keywords": [dice.of(&KEYWORDS), dice.of(&KEYWORDS)] });
        let body = json!({ "placements": placements, "page": page, "explain": true }).to_string();
        let cookie = &cookies[usize::try_from(dice.below(cookies.len() as u64)).unwrap()];
        let gpc = if dice.below(30) == 0 { "1" } else { "" };
        let seed: String = (0..32).map(|_| format!("{:02x}", dice.below(256))).collect();
        let headers = json!({
            "cookie": cookie, "sec-gpc": gpc, "user-agent": "Firefox/140.0", "x-causeway-explain": EXPLAIN,
            "content-length": body.len().to_string(),
        });
        json!({
            "method": "POST", "url": "https://localhost/v1/decide", "headers": headers, "body": body,
            "now": NOW + number * 500, "seed": seed,
        })
    };
    let requests: Vec<Value> = (0..requests).map(request).collect();
    json!({ "config": config.to_string(), "keys": serde_json::to_string(&keys).unwrap(), "kv": kv, "requests": requests })
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The head of a request in the worker's text format.
fn head(request: &Value) -> String {
    let header = |name: &str| request["headers"][name].as_str().unwrap_or_default().to_owned();
    let [method, url] = ["method", "url"].map(|field| request[field].as_str().unwrap());
    let values = ["cookie", "origin", "sec-gpc", "sec-purpose", "user-agent", "x-causeway-explain"].map(header);
    format!("{method}\n{url}\n{}", values.join("\n"))
}

/// The digest of an answer's status, headers, body and facts, and the body. No object answers.
fn play(engine: &mut Engine, kv: &Value, request: &Value) -> (String, Value) {
    let text = |name: &str| request[name].as_str().unwrap();
    let now = request["now"].as_u64().unwrap();
    let seed = bytes(text("seed")).try_into().unwrap();
    let mut step = engine.begin(&head(request), text("body").as_bytes(), now, seed);
    let answer = loop {
        step = match step {
            EngineStep::Read(read) => {
                let values = read.keys.iter().map(|key| Some(kv[key].as_str()?.as_bytes().to_vec())).collect();
                engine.resume_read(read.pending, &Ok(values))
            }
            EngineStep::Call(pending, _) => engine.resume_call(pending, None),
            EngineStep::Answer(answer) => break answer,
            EngineStep::Page(_) | EngineStep::Unserved(_) => panic!("{step:?}"),
        };
    };
    let json =
        [("content-type", "application/json; charset=utf-8".to_owned()), ("cache-control", "no-store".to_owned())];
    let mut headers: Vec<_> =
        answer.headers.iter().cloned().chain(json.into_iter().filter(|_| answer.is_json)).collect();
    headers.sort_by_key(|(name, _)| *name);
    let mut digest = Sha256::new();
    digest.update(format!("{}\n", answer.status));
    headers.iter().for_each(|(name, value)| digest.update(format!("{name}: {value}\n")));
    digest.update(&answer.body);
    answer.facts.iter().for_each(|facts| digest.update(&facts.bytes));
    let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (digest, serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn the_worker_answers_random_pages_as_native_code_does() {
    let variable = |name: &str| std::env::var_os(name).expect("run this test through `cargo xtask test e2e`");
    let world = world(1, cases(REQUESTS));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/platform/parity.mjs");
    let mut node = Command::new(variable("CAUSEWAY_NODE"))
        .args([script.as_ref(), variable("CAUSEWAY_EDGE_BUNDLE").as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, text) = (node.stdin.take().unwrap(), world.to_string());
    let writing = std::thread::spawn(move || to.write_all(text.as_bytes()));
    let mut engine = Engine::configure(world["config"].as_str().unwrap(), world["keys"].as_str().unwrap()).unwrap();
    let requests = world["requests"].as_array().unwrap();
    let native: Vec<(String, Value)> =
        requests.iter().map(|request| play(&mut engine, &world["kv"], request)).collect();
    writing.join().unwrap().unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    let in_wasm = String::from_utf8(output.stdout).unwrap();
    assert_eq!(in_wasm.lines().count(), requests.len());
    for (number, (line, (digest, answer))) in in_wasm.lines().zip(&native).enumerate() {
        assert_eq!(line, digest, "request {number}: natively {answer}");
    }
    let decisions = || native.iter().flat_map(|(_, answer)| answer["decisions"].as_array().unwrap());
    let ads: BTreeSet<&str> = decisions().filter_map(|decision| decision["ad"]["id"].as_str()).collect();
    let outcomes: BTreeSet<String> = native
        .iter()
        .take(500)
        .flat_map(|(_, answer)| answer["trace"]["placements"].as_array().cloned().unwrap_or_default())
        .flat_map(|placement| placement["candidates"].as_array().cloned().unwrap_or_default())
        .map(|candidate| candidate["outcome"].as_str().unwrap().to_owned())
        .collect();
    assert!(ads.len() > 40, "{ads:?}");
    assert!(outcomes.len() >= 9, "{outcomes:?}");
}
