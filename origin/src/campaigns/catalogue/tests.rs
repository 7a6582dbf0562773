#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use causeway_shared::base::ids::Micros;
use std::collections::BTreeMap;

use causeway_shared::ads::catalogue::{Catalogue, CompiledCatalogue};
use causeway_shared::ads::model::Model;
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::facts::fact::FactKind;
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::wire::{catalogue as wire, flat};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::campaigns::train::{self, Report};
use crate::outbox::queue::{KEY_PAUSE_MS, LEASE_MS};
use crate::testing::{NOW, Origin, fact, visitor};

fn document(ads: &[(&str, u32)]) -> Value {
    let ads: Vec<Value> = ads
        .iter()
        .map(|(id, weight)| {
            json!({ "id": id, "ad_group": "g", "creative": {}, "landing": "https://x.example/", "weight": weight })
        })
        .collect();
    json!({
        "advertiser": [{ "id": "v" }], "campaign": [{ "id": "c", "advertiser": "v" }],
        "ad_group": [{ "id": "g", "campaign": "c" }], "ad": ads,
    })
}

impl Origin {
    fn apply(&mut self, document: Value) -> Result<AppliedCatalogue, ApplyError> {
        let (given, tenant) = (self.given(), self.tenant("demo").clone());
        apply(&mut self.conn, &self.rules, given, &tenant, document, "test")
    }

    fn roll(&mut self, version: u32) -> Result<AppliedCatalogue, ApplyError> {
        let (given, tenant) = (self.given(), self.tenant("demo").clone());
        rollback(&mut self.conn, &self.rules, given, &tenant, version)
    }

    fn keys(&mut self) -> Vec<String> {
        self.drain(100).into_iter().map(|write| write.key).collect()
    }
}

fn problems(refused: Result<AppliedCatalogue, ApplyError>) -> Vec<String> {
    let Err(ApplyError::Check(CheckError::Problems(problems))) = refused else { unreachable!("it was taken") };
    problems.into_iter().map(|problem| problem.path).collect()
}

fn pointed(kv: &BTreeMap<String, String>) -> wire::CataloguePointer {
    wire::decode_pointer("c:demo:current", kv["c:demo:current"].as_bytes()).unwrap()
}

#[test]
fn the_pointer_is_handed_out_once_the_kv_has_what_it_points_to() {
    let mut origin = Origin::new();
    assert_eq!(origin.apply(document(&[("a", 1)])).unwrap().version, 1);
    let first = origin.drain(100);
    assert_eq!(first.iter().map(|w| w.key.as_str()).collect::<Vec<_>>(), ["c:demo:1"]);
    origin.now += 10 * KEY_PAUSE_MS;
    assert!(origin.keys().is_empty(), "the value is leased but not acknowledged");
    origin.acknowledge(&first);
    let second = origin.drain(100);
    assert_eq!(second.iter().map(|w| w.key.as_str()).collect::<Vec<_>>(), ["c:demo:current"]);
    let pointer = wire::decode_pointer("c:demo:current", second[0].value.as_ref().unwrap().as_bytes()).unwrap();
    let value = first[0].value.as_ref().unwrap();
    assert_eq!((pointer.version, pointer.published), (1, second[0].version));
    let read = wire::decode_document("c:demo:1", &pointer.digest, value.as_bytes()).unwrap();
    assert_eq!(flat::decode_catalogue(&read).unwrap().ads[0].head.code, 1);
}

#[test]
fn a_version_that_is_replaced_before_it_was_written_is_never_pointed_to() {
    let mut origin = Origin::new();
    origin.apply(document(&[("a", 1)])).unwrap();
    let first = origin.drain(100);
    origin.apply(document(&[("b", 1)])).unwrap();
    origin.acknowledge(&first);
    let second = origin.drain(100);
    assert_eq!(second.iter().map(|w| w.key.as_str()).collect::<Vec<_>>(), ["c:demo:2"]);
    let mut kv = BTreeMap::new();
    origin.acknowledge(&second);
    origin.settle(&mut kv);
    assert_eq!(pointed(&kv).version, 2);
}

#[test]
fn codes_are_for_ever_also_after_a_rollback() {
    let mut origin = Origin::new();
    let applied = origin.apply(document(&[("a", 1), ("b", 1)])).unwrap();
    assert_eq!(applied.plan.changes["ad"].added, ["a", "b"]);
    origin.apply(document(&[("b", 1), ("c", 2)])).unwrap();
    origin.roll(1).unwrap();
    let applied = origin.apply(document(&[("d", 1), ("c", 2), ("a", 1)])).unwrap();
    assert_eq!(json!(applied.plan.codes), json!([{ "sort": "ad", "id": "d", "code": 4 }]));
    let tenant = origin.tenant("demo").no;
    let all: Vec<(String, u32)> = codes(&origin.conn, tenant)
        .unwrap()
        .into_iter()
        .filter(|((sort, _), _)| sort == "ad")
        .map(|((_, id), code)| (id, code))
        .collect();
    assert_eq!(all, [("a".into(), 1), ("b".into(), 2), ("c".into(), 3), ("d".into(), 4)]);
    let mut stolen = document(&[("a", 1), ("e", 1), ("f", 1)]);
    stolen["ad"][0]["code"] = 9.into();
    stolen["ad"][1]["code"] = 2.into();
    stolen["ad"][2]["code"] = 77.into();
    assert_eq!(problems(origin.apply(stolen)), ["ad[0].code", "ad[1].code"]);
}

#[test]
fn everything_wrong_is_said_at_once_with_its_path() {
    let mut origin = Origin::new();
    let mut bad = document(&[("a", 1), ("b", 1)]);
    bad["ad"][0]["weight"] = json!("heavy");
    bad["ad"][1]["landing_url"] = json!("https://x.example/");
    bad["advertiser"][0]["caps"] = json!([{ "action": "impression" }]);
    bad["action_type"] = json!([{ "name": "hide", "code": 3 }]);
    bad["adverts"] = json!([]);
    assert_eq!(problems(origin.apply(bad)), ["action_type[0]", "ad[0]", "ad[1]", "advertiser[0]", "adverts"]);
    let mut lost = document(&[("a", 1), ("a", 1)]);
    lost["campaign"][0]["advertiser"] = json!("nobody");
    lost["ad"][1]["landing"] = json!("javascript:alert(1)");
    let found = problems(origin.apply(lost));
    assert!(["campaign[0].advertiser", "ad[1].id", "ad[1].landing"].iter().all(|at| found.iter().any(|p| p == at)));
    let many = json!({ "ad": vec![json!({}); limits::CATALOGUE_ROWS + 1] });
    assert!(problems(origin.apply(many)).contains(&"ad".to_owned()));
    assert!(matches!(origin.apply(json!([])), Err(ApplyError::Check(CheckError::Form(_)))));
    assert_eq!(versions::list_versions(&origin.conn, origin.tenant("demo").no).unwrap().len(), 0);
    assert!(origin.keys().is_empty());
}

#[test]
fn a_hostile_document_is_neither_stored_nor_slow() {
    let mut origin = Origin::new();
    let good = || document(&[("a", 1), ("b", 1)]);
    let mut refused = |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let mut bad = good();
        change(&mut bad);
        assert_eq!(problems(origin.apply(bad)), expected);
    };
    // Rows that refer to each other as parents refer to the wrong sorts.
    refused(&|all| all["ad_group"][0]["campaign"] = json!("g"), &["ad_group[0].campaign"]);
    refused(&|all| all["campaign"][0]["advertiser"] = json!("c"), &["campaign[0].advertiser"]);
    refused(&|all| all["ad"][1]["id"] = json!("a"), &["ad[1].id"]);
    refused(&|all| all["campaign"][0]["bid"] = json!({ "cpm_micros": -1 }), &["campaign[0].bid"]);
    refused(&|all| all["campaign"][0]["bid"] = json!({ "cpm_micros": i64::MAX }), &["campaign[0].bid"]);
    refused(&|all| all["campaign"][0]["bid"] = json!({ "cpm_micros": 1e300 }), &["campaign[0]"]);
    refused(&|all| all["ad"][0]["weight"] = json!(-1), &["ad[0]"]);
    refused(&|all| all["ad"][0]["landing"] = json!("JavaScript:alert(1)"), &["ad[0].landing"]);
    refused(&|all| all["ad"][0]["landing"] = json!(" https://a.example/"), &["ad[0].landing"]);
    refused(&|all| all["ad"][0]["creative"] = json!("x".repeat(limits::CREATIVE_BYTES)), &["ad[0].creative"]);
    refused(&|all| all["ad"][0]["id"] = json!("a\u{0}"), &["ad[0].id"]);
    let arm = |share: u32| json!({ "id": "x", "code": 1, "share": share });
    refused(
        &|all| all["experiment"] = json!([{ "id": "e", "starts": 0, "arm": [arm(10_000), arm(1)] }]),
        &["experiment[0].arm[1].id", "experiment[0].arm[1].code", "experiment[0].arm"],
    );
    let million = problems(origin.apply(json!({ "ad": vec![json!({}); 1_000_000] })));
    assert_eq!((million[0].as_str(), million.len()), ("ad", 1_000), "the first thousand");
    assert_eq!(versions::list_versions(&origin.conn, origin.tenant("demo").no).unwrap().len(), 0);
    // The API returns text that looks like markup unchanged; the dashboard escapes it.
    let mut odd = good();
    odd["ad"][0]["creative"] = json!({ "html": "</script><!--<script>\u{2028}" });
    assert!(origin.apply(odd).unwrap().changed);
    let document: String = origin.conn.query_row("SELECT document FROM catalogues", [], |row| row.get(0)).unwrap();
    assert!(document.len() > document.chars().count());
    assert_eq!(
        versions::list_versions(&origin.conn, origin.tenant("demo").no).unwrap()[0].bytes,
        i64::try_from(document.len()).unwrap()
    );
}

#[test]
fn the_same_document_is_kept_once_and_a_rollback_publishes_what_was() {
    let mut origin = Origin::new();
    origin.apply(document(&[("a", 1)])).unwrap();
    let again = origin.apply(document(&[("a", 1)])).unwrap();
    assert_eq!((again.version, again.changed), (1, false));
    origin.apply(document(&[("a", 2)])).unwrap();
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    let before = pointed(&kv);
    assert_eq!(before.version, 2);
    assert!(matches!(origin.roll(7), Err(ApplyError::NoVersion(7))));
    assert_eq!(origin.roll(1).unwrap().plan.changes["ad"].changed, ["a"]);
    assert_eq!(in_force(&origin.conn, &origin.rules.tenants).unwrap().as_deref(), Some("demo/c-1"));
    origin.settle(&mut kv);
    let after = pointed(&kv);
    assert!(after.version == 1 && after.published > before.published);
    assert_eq!(origin.sync(Default::default()).catalogue.as_deref(), Some("demo/c-1"));
}

#[test]
fn old_versions_leave_the_kv_a_day_later_and_come_back_for_a_rollback() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    for weight in 1..=5 {
        origin.apply(document(&[("a", weight)])).unwrap();
        origin.settle(&mut kv);
    }
    let there = |kv: &BTreeMap<String, String>| -> Vec<u32> {
        (1..=5).filter(|version| kv.contains_key(&format!("c:demo:{version}"))).collect()
    };
    assert_eq!(there(&kv), [1, 2, 3, 4, 5]);
    origin.now += limits::CATALOGUE_KEEP_MS;
    origin.settle(&mut kv);
    assert_eq!(there(&kv), [3, 4, 5]);
    origin.roll(1).unwrap();
    let first = origin.keys();
    assert_eq!(first, ["c:demo:1"], "its value comes back before the pointer");
    origin.now += LEASE_MS;
    origin.settle(&mut kv);
    assert_eq!((there(&kv), pointed(&kv).version), (vec![1, 3, 4, 5], 1));
    origin.now += 2 * limits::CATALOGUE_KEEP_MS;
    origin.settle(&mut kv);
    assert_eq!(there(&kv), [1, 3, 4, 5], "the current one stays");
}

#[test]
fn an_old_version_leaves_the_kv_though_the_origin_starts_anew_meanwhile() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    for weight in 1..=4 {
        origin.apply(document(&[("a", weight)])).unwrap();
        origin.settle(&mut kv);
    }
    crate::kv::publish::set_back(&origin.conn, origin.now, 60_000, 120_000).unwrap();
    origin.settle(&mut kv);
    assert!(kv.contains_key("c:demo:1"), "not before a day");
    origin.now += limits::CATALOGUE_KEEP_MS;
    origin.settle(&mut kv);
    assert!(!kv.contains_key("c:demo:1"));
}

#[test]
fn what_is_applied_by_a_clock_that_runs_ahead_is_published_once_that_is_set_back() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    for weight in 1..=3 {
        origin.apply(document(&[("a", weight)])).unwrap();
        origin.settle(&mut kv);
    }
    // Fewer hours than an old version stays in the KV, and more.
    for (weight, hours) in [(4, 2), (5, 60 * 24)] {
        let now = origin.now;
        origin.now += hours * 3_600_000;
        origin.apply(document(&[("a", weight)])).unwrap();
        origin.now = now;
        assert!(crate::kv::publish::is_ahead(&origin.conn, now, 60_000, 120_000).unwrap(), "{hours}");
        crate::kv::publish::set_back(&origin.conn, now, 60_000, 120_000).unwrap();
        assert!(!crate::kv::publish::is_ahead(&origin.conn, now, 60_000, 120_000).unwrap(), "{hours}");
        origin.settle(&mut kv);
        assert_eq!(pointed(&kv).version, weight, "{hours}");
    }
    assert!(kv.contains_key("c:demo:2"), "not before a day");
    // A version that was due for deletion and is current again must not look like a clock that was ahead.
    origin.roll(2).unwrap();
    assert!(!crate::kv::publish::is_ahead(&origin.conn, origin.now, 60_000, 120_000).unwrap());
    origin.settle(&mut kv);
    assert_eq!(pointed(&kv).version, 2);
    origin.roll(5).unwrap();
    origin.now += limits::CATALOGUE_KEEP_MS;
    origin.settle(&mut kv);
    let there = [1, 2, 3, 4, 5].map(|version| kv.contains_key(&format!("c:demo:{version}")));
    assert_eq!(there, [false, false, true, true, true], "nor later");
}

#[test]
fn a_rollback_to_a_version_that_was_about_to_leave_keeps_it() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    for weight in 1..=4 {
        origin.apply(document(&[("a", weight)])).unwrap();
        origin.settle(&mut kv);
    }
    origin.now += limits::CATALOGUE_KEEP_MS;
    // The deletion is handed out but not acknowledged.
    let deletion = origin.drain(100);
    assert_eq!(deletion.iter().map(|w| (w.key.as_str(), w.value.is_none())).collect::<Vec<_>>(), [("c:demo:1", true)]);
    origin.roll(1).unwrap();
    assert!(origin.keys().is_empty(), "no pointer to what is being deleted");
    kv.remove("c:demo:1");
    origin.acknowledge(&deletion);
    origin.settle(&mut kv);
    assert!(kv.contains_key("c:demo:1"));
    assert_eq!(pointed(&kv).version, 1);
}

#[test]
fn a_restored_store_points_above_all_that_was_published_and_forgets_no_number() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    origin.apply(document(&[("a", 1)])).unwrap();
    origin.settle(&mut kv);
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("copy.db");
    origin.conn.execute("VACUUM INTO ?1", [path.to_string_lossy()]).unwrap();
    origin.apply(document(&[("b", 1)])).unwrap();
    origin.settle(&mut kv);
    let newest = pointed(&kv);
    let before = crate::maintenance::backup::ReplacedStore::of_conn(&origin.conn).unwrap();
    origin.conn = rusqlite::Connection::open(&path).unwrap();
    crate::maintenance::backup::renew_store(&mut origin.conn, &before, origin.now).unwrap();
    assert_eq!(origin.keys(), ["c:demo:1"], "it is unknown whether the KV still has it");
    origin.now += LEASE_MS;
    origin.settle(&mut kv);
    let after = pointed(&kv);
    assert!(after.version == 1 && after.published > newest.published);
    let applied = origin.apply(document(&[("c", 1)])).unwrap();
    assert_eq!(applied.version, 3);
    assert_eq!(json!(applied.plan.codes), json!([{ "sort": "ad", "id": "c", "code": 3 }]));
    // The version that was current before the restore leaves the KV like any other version.
    assert!(kv.contains_key("c:demo:2"));
    for id in ["d", "e"] {
        origin.apply(document(&[(id, 1)])).unwrap();
        origin.settle(&mut kv);
    }
    origin.now += limits::CATALOGUE_KEEP_MS;
    origin.settle(&mut kv);
    assert!(!kv.contains_key("c:demo:2") && kv.contains_key("c:demo:5"), "{:?}", kv.keys());
}

#[test]
fn the_documented_catalogue_is_taken() {
    let blocks = include_str!("../../../../docs/CATALOGUE.md").split("```toml\n").skip(1);
    let text = &blocks.map(|block| block.split("```").next().unwrap()).collect::<Vec<_>>().join("\n");
    let read = |text: &str| document::read("ads.toml", text).unwrap();
    let words: Vocabulary = serde_json::from_value(json!({
        "action_type": read(text)["action_type"], "view_type": read(text)["view_type"],
    }))
    .unwrap();
    let (names, codes) = (NameDictionary::default(), BTreeMap::new());
    let arms = document::Arms::new();
    let known = document::LastingRows { words: &words, names: &names, codes: &codes, arms: &arms };
    let checked = document::check_document(&known, None, read(text)).unwrap();
    let catalogue: Catalogue = serde_json::from_str(&checked.document).unwrap();
    let compiled = CompiledCatalogue::of(catalogue.flat(&names, &words).unwrap());
    assert_eq!((compiled.offers.len(), compiled.targets.len(), compiled.experiments.len()), (3, 2, 1));
    assert_eq!(compiled.limited.iter().map(|of| of.recipients.limit).collect::<Vec<_>>(), [50_000]);
    assert_eq!(compiled.groups.iter().map(|group| group.arms.len()).collect::<Vec<_>>(), [0, 1, 0]);
    let wrong = text.replace("{ devices", "{ device");
    let Err(CheckError::Problems(problems)) = document::check_document(&known, None, read(&wrong)) else {
        unreachable!("it was taken")
    };
    let paths: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(paths, ["campaign[0].targeting.$or[0].device"]);
}

impl Origin {
    /// Stores a model with this training time.
    fn keep(&mut self, trained_ms: u64) {
        let (given, no) = (self.given(), self.tenant("demo").no);
        let model = Model { bits: 11, trained_ms, expires_ms: trained_ms + 1_000, ..Model::default() };
        let report = Report {
            trained_ms,
            expires_ms: model.expires_ms,
            people: 0,
            impressions: 0,
            segments: 0,
            bytes: 0,
            parts: Vec::new(),
        };
        let bytes = causeway_shared::wire::model::encode_model(&model);
        train::keep(&mut self.conn, &self.rules, given, no, &bytes, &report).unwrap();
    }
}

#[test]
fn a_model_is_published_and_a_restore_publishes_the_backups_model() {
    let trained = |kv: &BTreeMap<String, String>| {
        let (version, model) = wire::decode_model("c:demo:model", kv["c:demo:model"].as_bytes()).unwrap();
        (model.trained_ms, version)
    };
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    origin.keep(100);
    origin.settle(&mut kv);
    let first = trained(&kv);
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("copy.db");
    origin.conn.execute("VACUUM INTO ?1", [path.to_string_lossy()]).unwrap();
    origin.keep(200);
    origin.settle(&mut kv);
    let second = trained(&kv);
    assert!((first.0, second.0) == (100, 200) && second.1 > first.1);
    let before = crate::maintenance::backup::ReplacedStore::of_conn(&origin.conn).unwrap();
    origin.conn = rusqlite::Connection::open(&path).unwrap();
    crate::maintenance::backup::renew_store(&mut origin.conn, &before, origin.now).unwrap();
    origin.now += LEASE_MS;
    origin.settle(&mut kv);
    let third = trained(&kv);
    assert!(third.0 == 100 && third.1 > second.1, "{third:?}");
}

#[test]
fn an_ad_may_use_an_attribute_after_a_visitor_has_it() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    let mut wanted = document(&[("a", 1)]);
    wanted["campaign"][0]["targeting"] = json!({ "attributes.vip": true });
    assert_eq!(problems(origin.apply(wanted.clone())), ["campaign[0].targeting.attributes.vip"]);
    let writes = vec![("vip".to_owned(), Some(causeway_shared::facts::attributes::AttributeValue::Bool(true)))];
    origin.send("demo", &[fact(visitor(1), 1, NOW, FactKind::Attributes { writes })]);
    origin.apply(wanted).unwrap();
    origin.settle(&mut kv);
    let bytes = wire::decode_document("c:demo:1", &pointed(&kv).digest, kv["c:demo:1"].as_bytes()).unwrap();
    let flat = flat::decode_catalogue(&bytes).unwrap();
    assert_eq!((flat.filters.len(), flat.campaigns[0].target), (1, Some(0)));
}

#[test]
fn budgets_and_time_zones_that_are_none_are_said() {
    let mut origin = Origin::new();
    let mut ads = document(&[("a", 1)]);
    for (field, value, good) in [
        ("budget_micros", json!(0), false),
        ("daily_budget_micros", json!(-5), false),
        ("daily_budget_micros", json!(limits::BUDGET_MICROS.get() + 1), false),
        ("time_zone", json!("Mars/Olympus"), false),
        ("pace", json!("slow"), false),
        ("budget_micros", json!(1), true),
        ("time_zone", json!("America/Argentina/Buenos_Aires"), true),
        ("pace", json!("asap"), true),
    ] {
        let before = ads["campaign"][0].clone();
        ads["campaign"][0][field] = value.clone();
        let applied = origin.apply(ads.clone());
        if good {
            assert!(applied.is_ok(), "{field} {value}");
            continue;
        }
        let found = problems(applied);
        assert!(found.iter().all(|path| path.starts_with("campaign[0]")) && found.len() == 1, "{field} {found:?}");
        ads["campaign"][0] = before;
    }
    let budgets = load_budgets(&origin.conn).unwrap();
    let budget = budgets.of(origin.tenant("demo").no).values().next().unwrap();
    assert_eq!(
        (budget.total.map(Micros::get), budget.even, budget.time_zone.as_str()),
        (Some(1), false, "America/Argentina/Buenos_Aires")
    );
}

/// Ads whose creatives do not compress, like embedded pictures.
fn pictures(ads: u32) -> Value {
    use base64::Engine as _;
    let picture = |n: u32| {
        let bytes: Vec<u8> =
            (0..180u32).flat_map(|part| Sha256::digest([n.to_be_bytes(), part.to_be_bytes()].concat())).collect();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    let mut all = document(&[("a", 1)]);
    let ad = all["ad"][0].clone();
    let with = |n: u32| {
        let mut ad = ad.clone();
        (ad["id"], ad["code"]) = (json!(format!("p{n}")), json!(n));
        ad["creative"] = json!({ "image": picture(n) });
        ad
    };
    all["ad"] = (1..=ads).map(with).collect();
    all
}

#[test]
fn what_the_kv_would_not_take_is_refused_by_the_check() {
    let mut origin = Origin::new();
    assert_eq!(problems(origin.apply(pictures(420))), [""]);
    assert_eq!(origin.apply(pictures(250)).unwrap().version, 1);
}

#[test]
fn what_is_handed_out_with_one_answer_is_bounded_in_bytes() {
    let mut origin = Origin::new();
    for name in ["demo", "other"] {
        let (tenant, given) = (origin.tenant(name).clone(), origin.given());
        apply(&mut origin.conn, &origin.rules, given, &tenant, pictures(250), "tests").unwrap();
    }
    let handed = [origin.keys(), origin.keys()];
    let catalogues = handed.each_ref().map(|keys| keys.iter().filter(|key| key.starts_with("c:")).count());
    assert_eq!(catalogues, [1, 1], "{handed:?}");
}

#[test]
fn the_code_of_an_arm_is_permanent() {
    let mut origin = Origin::new();
    let tested = |low: u8, high: u8, third: &str| {
        let mut all = document(&[("a", 1)]);
        let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 2_000 });
        all["experiment"] =
            json!([{ "id": "e", "code": 1, "starts": 0, "arm": [arm("low", low), arm("high", high), arm(third, 4)] }]);
        all
    };
    origin.apply(tested(2, 3, "third")).unwrap();
    origin.apply(document(&[("a", 1)])).unwrap();
    // An arm that was not in the previous version is checked too.
    assert_eq!(
        problems(origin.apply(tested(3, 2, "third"))),
        ["experiment[0].arm[0].code", "experiment[0].arm[1].code"]
    );
    assert_eq!(problems(origin.apply(tested(2, 3, "other"))), ["experiment[0].arm[2].code"]);
    assert_eq!(origin.apply(tested(2, 3, "third")).unwrap().version, 3);
}

#[test]
fn a_key_that_a_catalogue_file_has_twice_is_named_with_its_path() {
    let read = |name: &str, text: &str| document::read(name, text).unwrap_err().to_string();
    let said = read("ads.json", r#"{"campaign":[{"id":"c","caps":[{"count":1}],"caps":[]}]}"#);
    assert!(said.contains("`campaign[0].caps` is repeated"), "{said}");
    let said = read("ads.json", r#"{"ad":[],"campaign":[],"ad":[]}"#);
    assert!(said.contains("`ad` is repeated"), "{said}");
    let said = read("ads.toml", "[[campaign]]\nid = 'c'\nid = 'd'\n");
    assert!(said.contains("duplicate key"), "{said}");
}

#[test]
fn a_document_without_rows_is_refused_where_it_would_remove_some_and_says_which() {
    let mut origin = Origin::new();
    let no = origin.tenant("demo").no;
    let empty = |origin: &Origin, document: Value| refuse_empty(&origin.conn, no, &document);
    assert!(empty(&origin, json!({})).is_ok(), "there is nothing to remove");
    let document =
        json!({ "advertiser": [{ "id": "a" }, { "id": "b" }], "campaign": [{ "id": "c", "advertiser": "a" }] });
    origin.apply(document).unwrap();
    for document in [json!({}), json!({ "campaign": [] })] {
        let said = empty(&origin, document).unwrap_err().to_string();
        assert!(said.contains("2 of `advertiser`, 1 of `campaign`"), "{said}");
    }
    assert!(empty(&origin, json!({ "advertiser": [{ "id": "a" }] })).is_ok());
}

#[test]
fn starts_and_ends_are_texts_milliseconds_or_dates_of_toml_of_campaigns_and_of_experiments() {
    let runs = |moment: &str| {
        let text = format!(
            "[[advertiser]]\nid = 'a'\n[[campaign]]\nid = 'c'\ncode = 1\nadvertiser = 'a'\nstarts = {moment}\n
            [[experiment]]\nid = 'e'\ncode = 1\nstarts = {moment}\narm = [{{ id = 'x', code = 1, share = 1 }}]"
        );
        let mut document = document::read("ads.toml", &text).unwrap();
        document["advertiser"][0]["code"] = json!(1);
        serde_json::from_value::<Catalogue>(document)
            .map(|catalogue| (catalogue.campaigns[0].runs().start, catalogue.experiments[0].starts))
    };
    let moment = 1_772_319_600_000;
    for form in ["'2026-03-01T00:00:00+01:00'", "2026-03-01T00:00:00+01:00", "2026-02-28 23:00:00Z", "1772319600000"] {
        assert_eq!(runs(form).unwrap(), (moment, moment), "{form}");
    }
    assert!(runs("'soon'").unwrap_err().to_string().contains("with its offset"));
}
