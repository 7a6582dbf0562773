//! Hostile bytes for every decoder. No decoder panics, loops, or allocates what a header merely declares. A decoded
//! value survives encoding and decoding.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "how long a decoder takes and what it allocates is measured"
)]

#[expect(dead_code, reason = "each file takes its part")]
mod common;
#[path = "common/frame.rs"]
mod frame;
#[path = "common/hostile.rs"]
mod hostile;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use bolero::check;
use causeway_shared::base::ids::OrderHash;
use causeway_shared::base::ids::{AltHash, FactId, InsertionId, Micros, SessionId, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdEntity, AdLevel, ViewType};
use causeway_shared::facts::attributes::{AttributeMap, AttributeValue, NameDictionary, NameToken, ValueKind};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind, PURCHASE};
use causeway_shared::facts::segments::{SegmentId, SegmentState, WriteStamp};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::ad_token::AdToken;
use causeway_shared::keys::cookie::{self, IDENTITY};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey};
use causeway_shared::keys::sync_auth;
use causeway_shared::profiles::ledger::{Ledger, PlacedInsertion, RunningSession};
use causeway_shared::profiles::profile::{LaterPage, Profile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::config::EdgeConfig;
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::targeting::filter::{self, CountAnswerer, FilterWords};
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::kv_keys::{attributes_key, lookup_key, snapshot_key};
use causeway_shared::wire::sync::{self, KvWrite, ReadResult, RejectedFact, SyncRequest, SyncResponse, VerifyRequest};
use causeway_shared::wire::{self, WireError, cookies, kv, profile};
use common::{MEMBER, NOW, alternate, hash, membership, version, visitor};
use frame::{framed, inside};
use hostile::Hostile;
use serde_json::Value as Json;

const ITERATIONS: usize = 60_000;
/// Most time per decoder.
const TIME: Duration = Duration::from_secs(4);

/// Checks that a decoded value survives encoding and decoding.
fn steady<T: Debug + PartialEq, E: Debug + PartialEq>(read: Result<T, E>, again: impl Fn(&T) -> Result<T, E>) {
    if let Ok(value) = read {
        assert_eq!(again(&value), Ok(value));
    }
}

fn all_facts() -> Vec<Fact> {
    let track = |value, properties: &str| FactKind::Track {
        name: PURCHASE.to_owned(),
        value,
        properties: Some(properties.to_owned()),
        order: value.map(|_| OrderHash(7)),
    };
    let whats = [
        FactKind::Page { session: SessionId::mint(NOW, [1; 4]) },
        FactKind::Alias { id: alternate(MEMBER, 1), also: vec![hash(2, 1)], proven: true },
        track(Some(Micros::new(5_000_000)), r#"{"sku":"x"}"#),
        track(None, "{}"),
        FactKind::Withdrawal,
        FactKind::Action {
            insertion: InsertionId([7; 16]),
            action_type: ActionType::CLICK,
            view_type: ViewType(3),
            entity: AdEntity { ad: 4, ad_group: 3, campaign: 2, advertiser: 1 },
        },
        FactKind::Segments {
            writes: vec![
                (SegmentId(9), SegmentState::held(HourStamp(80_000), [(1, -5)])),
                (SegmentId(8), SegmentState::Removed),
            ],
        },
        FactKind::Attributes { writes: attributes() },
        FactKind::Exposure { experiment: 7, arm: 2 },
        FactKind::OfferCode { campaign: 7, number: 40_000 },
        FactKind::Evidence {
            id: alternate(MEMBER, 1),
            also: Vec::new(),
            weight: EvidenceWeight(999),
            source: EvidenceSource::Match,
        },
        FactKind::Cancellation { id: alternate(MEMBER, 1) },
        FactKind::Erasure { scope: ErasureScope::Person, id: Some(alternate(MEMBER, 1)), also: vec![hash(2, 1)] },
        FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() },
    ];
    let fact = |(n, what)| Fact {
        position: 0,
        id: FactId::from_bytes([n; 16]),
        visitor: visitor(1),
        received: NOW + u64::from(n),
        at: NOW,
        what,
    };
    (0u8..).zip(whats).map(fact).collect()
}

fn attributes() -> Vec<(String, Option<AttributeValue>)> {
    let strings = AttributeValue::Strings(["run", "trail"].map(str::to_owned).into());
    let values = [None, Some(AttributeValue::Bool(true)), Some(AttributeValue::Date(20_742)), Some(strings)];
    ["x", "vip", "since", "shoes"].map(str::to_owned).into_iter().zip(values).collect()
}

fn tenant() -> TenantId {
    "pub".parse().unwrap()
}

fn batch() -> Vec<u8> {
    facts::encode_batch(&FactBatch { tenant: tenant(), facts: all_facts() })
}

fn snapshot_value() -> (String, String) {
    let key = snapshot_key(&tenant(), visitor(1));
    let mut profile = Profile::of(&all_facts());
    let said = Fact { id: FactId::from_bytes([99; 16]), ..all_facts()[7].clone() };
    profile.assign(&said, attributes().into_iter().map(|(name, value)| (NameToken(name.len() as u16), value)));
    let sub = |v| profile.sub_profile(version(3), v == visitor(1));
    let visitors = [visitor(1), visitor(2)];
    let snapshot = Snapshot {
        version: version(3),
        visitor: visitor(1),
        unique: vec![hash(1, 1)],
        membership: membership(2, visitors, [visitor(3)]),
        profiles: visitors.into_iter().map(|v| (v, sub(v))).collect(),
        best: None,
    };
    let value = kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot))).unwrap();
    (key, value)
}

fn names_value() -> (String, String) {
    let key = attributes_key(&tenant(), 0);
    let page = [("vip".to_owned(), ValueKind::Bool), ("since".to_owned(), ValueKind::Date)];
    let value = kv::encode_names(&key, &page).unwrap();
    (key, value)
}

fn lookup_value() -> (String, String) {
    let key = lookup_key(&tenant(), alternate(MEMBER, 1));
    let value = kv::encode_lookup(&key, &[visitor(2), visitor(1)]).unwrap();
    (key, value)
}

fn request() -> Vec<u8> {
    let (batch, facts) = ([1; 16], vec![batch(), batch()]);
    sync::encode_request(&SyncRequest {
        edge: "e".to_owned(),
        batch,
        facts,
        applied: vec![1],
        drain: 9,
        lost: 1,
        dead: 2,
        filtered: [3, 4, 5],
        read: vec![ReadResult { entry: 3, sha256: Some([7; 32]) }, ReadResult { entry: 4, sha256: None }],
    })
}

fn response() -> Vec<u8> {
    let rejected = RejectedFact { batch: 1, index: Some(2), code: "c".to_owned(), message: "m".to_owned() };
    let (key, value) = lookup_value();
    let publish = KvWrite { entry: 1, key, version: version(1), value: Some(value), due: NOW };
    sync::encode_response(&SyncResponse {
        accepted: 1,
        duplicate: 2,
        rejected: vec![rejected],
        publish: vec![publish],
        pending: 1,
        catalogue: Some("c-1".to_owned()),
        verify: vec![VerifyRequest { entry: 3, key: "k".to_owned() }],
    })
}

fn identity_payload() -> Vec<u8> {
    cookies::encode_identity(&IdentityCookie {
        visitor: visitor(1),
        written: NOW,
        tag: Some(hash(1, 1)),
        covered: vec![1, 2],
        earlier: vec![(hash(1, 2), visitor(2))],
        pending: vec![visitor(3)],
        login: Some((NOW, 7)),
    })
}

fn ledger_payload() -> Vec<u8> {
    let mut ledger = Ledger::new(visitor(1));
    for n in 0..4 {
        let session = SessionId::mint(NOW + n / 2 * 3_600_000, [1; 4]);
        ledger.remember(LaterPage { received: NOW + n, short: n, session });
        let entity = AdEntity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: u32::from(n > 1) };
        let token = AdToken {
            visitor: visitor(1),
            insertion: InsertionId([6; 16]),
            entity,
            view_type: ViewType(4),
            placed: NOW + n * 60_000,
            strict: false,
        };
        ledger.reserve([PlacedInsertion::from(&token)]);
    }
    cookies::encode_ledger(&ledger)
}

#[test]
fn facts_and_batches() {
    let seeds = [&all_facts()[1], &all_facts()[2], &all_facts()[7]].map(facts::encode_one);
    let seeds = [vec![batch()], seeds.to_vec()].concat();
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        steady(facts::decode_batch(&bytes), |b| facts::decode_batch(&facts::encode_batch(b)));
        steady(facts::decode_one(&bytes), |f| facts::decode_one(&facts::encode_one(f)));
        if let Ok(fact) = facts::decode_one(&bytes) {
            let _ = fact.check(NOW);
            let mut profile = Profile::default();
            profile.fold(&fact);
            if let FactKind::Attributes { writes } = &fact.what {
                let writes = writes.iter().map(|(name, value)| (NameToken(name.len() as u16), value.clone()));
                profile.assign(&fact, writes);
                let stored = profile::decode_attributes(&profile.attributes().pack());
                assert_eq!(stored.as_ref(), Ok(profile.attributes()));
            }
        }
    });
}

#[test]
fn stored_profiles() {
    let seeds = [profile::encode_profile(visitor(1), &Profile::of(&all_facts()))];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let read = profile::decode_profile(visitor(1), &hostile.bytes(&seeds));
        steady(read, |p| {
            let mut more = p.clone();
            all_facts().iter().for_each(|f| more.fold(f));
            profile::decode_profile(visitor(1), &profile::encode_profile(visitor(1), p))
        });
    });
}

#[test]
fn stored_attributes() {
    let mut map = AttributeMap::default();
    for (n, (_, value)) in (0..).zip(attributes()) {
        map.write(NameToken(n * 300), WriteStamp { at: NOW + u64::from(n / 2), order: 7 }, value);
    }
    let seeds = [map.pack()];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        steady(profile::decode_attributes(&hostile.bytes(&seeds)), |map| profile::decode_attributes(&map.pack()));
    });
}

#[test]
fn stored_events() {
    let mut busy = Profile::of(&all_facts()).events().clone();
    (0..200).for_each(|n| busy.add("page", Minute(4_000_000 + n * 1_000)));
    let seeds = [Profile::of(&all_facts()).events().pack(), busy.pack()];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        steady(profile::decode_events(&hostile.bytes(&seeds)), |events| profile::decode_events(&events.pack()));
    });
}

#[test]
fn sync_requests_and_answers() {
    let seeds = [request(), response()];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        steady(sync::decode_request(&bytes), |r| sync::decode_request(&sync::encode_request(r)));
        steady(sync::decode_response(&bytes), |r| sync::decode_response(&sync::encode_response(r)));
    });
}

#[test]
fn kv_values_whose_checksum_fits() {
    let (key, value) = snapshot_value();
    let (lookup_key, lookup) = lookup_value();
    let (names_key, names) = names_value();
    let seeds = [inside(&value), inside(&value), inside(&lookup), inside(&names)];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        let stored = |text: &str| kv::decode_stored(&key, visitor(1), text.as_bytes());
        steady(stored(&framed("s1", &key, &bytes)), |s| stored(&kv::encode_stored(&key, s).unwrap()));
        steady(stored(&framed("t1", &key, &bytes)), |s| stored(&kv::encode_stored(&key, s).unwrap()));
        let lookup = |text: &str| kv::decode_lookup(&lookup_key, text.as_bytes());
        let read = lookup(&framed("l1", &lookup_key, &bytes));
        steady(read, |visitors| lookup(&kv::encode_lookup(&lookup_key, visitors).unwrap()));
        let names = |text: &str| kv::decode_names(&names_key, text.as_bytes());
        let read = names(&framed("n1", &names_key, &bytes));
        steady(read, |page| names(&kv::encode_names(&names_key, page).unwrap()));
    });
}

#[test]
fn kv_values_as_they_are() {
    let (key, value) = snapshot_value();
    let (lookup_key, lookup) = lookup_value();
    let (names_key, names) = names_value();
    let seeds = [&value, &lookup, &names].map(|text| text.clone().into_bytes());
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        // A CRC is no signature: one damage in 2³² passes, but none of these few.
        assert_eq!(kv::decode_stored(&key, visitor(1), &bytes).is_ok(), bytes == value.as_bytes());
        assert_eq!(kv::decode_lookup(&lookup_key, &bytes).is_ok(), bytes == lookup.as_bytes());
        assert_eq!(kv::decode_names(&names_key, &bytes).is_ok(), bytes == names.as_bytes());
    });
}

#[test]
fn cookie_payloads() {
    let running = RunningSession { visitor: visitor(1), session: SessionId::mint(NOW, [1, 2, 3, 4]), last: NOW };
    let seeds = [identity_payload(), ledger_payload(), cookies::encode_session(&running)];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        steady(cookies::decode_identity(&bytes), |c| cookies::decode_identity(&cookies::encode_identity(c)));
        steady(cookies::decode_ledger(&bytes), |l| cookies::decode_ledger(&cookies::encode_ledger(l)));
        steady(cookies::decode_session(&bytes), |s| cookies::decode_session(&cookies::encode_session(s)));
    });
}

#[test]
fn sealed_cookies_and_sync_headers() {
    let key = RingKey { id: 7, stage: KeyStage::Active, secret: [9; 32].into() };
    let ring = KeyRing(vec![key.clone()]);
    let sealed = cookie::seal_cookie(&ring, IDENTITY, &tenant(), &identity_payload()).unwrap();
    let mac = sync_auth::sign_sync(&key, NOW, b"body");
    let seeds = [sealed.clone().into_bytes(), mac.clone().into_bytes(), NOW.to_string().into_bytes(), b"7".to_vec()];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(cookie::open(&ring, IDENTITY, &tenant(), &text).is_ok(), text == sealed, "{text}");
        let time = NOW.to_string();
        assert_eq!(sync_auth::verify_sync(&ring, NOW, b"body", "7", &time, &text).is_ok(), text == mac);
        assert_eq!(sync_auth::verify_sync(&ring, NOW, b"body", &text, &time, &mac).is_ok(), text == "7");
        let _ = sync_auth::verify_sync(&ring, NOW, b"body", "7", &text, &mac);
    });
}

#[test]
fn ids_in_text() {
    let seeds = [visitor(1).to_string().into_bytes(), hash(1, 2).to_string().into_bytes(), b"a-tenant-9".to_vec()];
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(visitor) = text.parse::<VisitorId>() {
            assert!(visitor.to_string().eq_ignore_ascii_case(&text));
            assert_eq!(VisitorId::from_bytes(*visitor.as_bytes()), Ok(visitor));
        }
        if let Ok(hash) = text.parse::<AltHash>() {
            assert!(hash.to_string().eq_ignore_ascii_case(&text));
        }
        if let Ok(tenant) = text.parse::<TenantId>() {
            assert_eq!(tenant.as_str(), text);
            // A tenant's name contains no separator of keys.
            assert!(!text.contains([':', '/', '\0']) && text.len() <= 32);
        }
    });
}

const FILTERS: [&str; 3] = [
    r#"{"attributes.vip":true,"attributes.since":{"$gte":"2026-01-01"},"page.keywords":"run","devices":{"$in":[1,2]}}"#,
    r#"{"$or":[{"events.page":{"$count":{"$gte":3},"within":{"interval":7,"unit":"days"}}},
        {"$not":{"actions.click":{"$count":{"$lt":2},"campaign":["c-1"]}}}]}"#,
    r#"{"$and":[{"segments":{"$in":[9,8]}},{"first_seen":{"$exists":false}},{"last_seen":{"$gt":"2026-11-01T00:00:00Z"}}]}"#,
];

#[test]
fn filters_in_json_and_on_the_wire() {
    let names = [("vip".to_owned(), ValueKind::Bool), ("since".to_owned(), ValueKind::Date)];
    let attributes = NameDictionary::from_entries(names).unwrap();
    let vocabulary = Vocabulary::default();
    let entities = AdLevel::ALL.map(|_| BTreeMap::from([("c-1", 1)]));
    let words =
        |answers| FilterWords { attributes: &attributes, vocabulary: &vocabulary, entities: &entities, answers };
    let read = |document: &Json, answers| filter::parse(document, "filter", &words(answers));
    let mut seeds = FILTERS.map(|text| text.as_bytes().to_vec()).to_vec();
    seeds.extend(FILTERS.map(|text| {
        let document = serde_json::from_str(text).unwrap();
        wire::filter::encode_filter(&read(&document, CountAnswerer::Origin).unwrap())
    }));
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        steady(wire::filter::decode_filter(&bytes), |filter| {
            wire::filter::decode_filter(&wire::filter::encode_filter(filter))
        });
        let Ok(document) = serde_json::from_slice::<Json>(&bytes) else { return };
        for answers in [CountAnswerer::Snapshot, CountAnswerer::Origin, CountAnswerer::Audience] {
            match read(&document, answers) {
                Ok(filter) => {
                    assert_eq!(wire::filter::decode_filter(&wire::filter::encode_filter(&filter)), Ok(filter));
                }
                Err(found) => {
                    assert!(
                        found.iter().all(|problem| problem.path.starts_with("filter") && problem.message.len() < 400)
                    );
                    assert!(!found.is_empty() && found.len() <= bytes.len());
                }
            }
        }
    });
}

const CONFIG: &str = r#"{"tenant":[{"name":"pub","hosts":["ads.localhost"],"origins":["https://pub.example"],
    "dev":true,"no_signal":"allow","tcf_purposes":[1,3],"tcf_vendor":9,"kinds":[{"name":"member","code":1,"unique":true}],
    "member_proof":"required","proof_header":"x-proof","proof_cookie":"s","publish_delay_s":2,"house_ad":{"a":[1,null]}}]}"#;

const KEYS: &str = r#"{"sync":[{"id":1,"stage":"active","secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}],
    "explain":"0123456789abcdef0123456789abcdef","tenants":{"pub":{"cookie":[],"alternate":[],
    "proof":[{"kid":"dev-1","alg":"HS256","key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]}}}"#;

#[test]
fn configuration_and_keys_in_json() {
    let seeds = [CONFIG.as_bytes().to_vec(), KEYS.as_bytes().to_vec()];
    assert_eq!(serde_json::from_str::<EdgeConfig>(CONFIG).unwrap().problems(), vec![]);
    assert_eq!(serde_json::from_str::<KeySet>(KEYS).unwrap().problems([]), vec![]);
    check!().with_iterations(ITERATIONS).with_test_time(TIME).with_type::<Hostile>().for_each(|hostile| {
        let bytes = hostile.bytes(&seeds);
        let read = serde_json::from_slice::<EdgeConfig>(&bytes).map_err(drop);
        steady(read, |config| {
            let _ = (config.problems(), config.by_name("x"), config.tenants.first().and_then(|t| t.id()));
            serde_json::from_slice(&serde_json::to_vec(config).unwrap()).map_err(drop)
        });
        let read = serde_json::from_slice::<KeySet>(&bytes).map_err(drop);
        steady(read, |keys| {
            let shown = format!("{:?} {keys:?}", keys.problems(["pub"]));
            assert!(!shown.contains("AAECAwQF"), "a secret in {shown}");
            serde_json::from_slice(&serde_json::to_vec(keys).unwrap()).map_err(drop)
        });
    });
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let house_ad = CONFIG.replace(r#"{"a":[1,null]}"#, &deep);
    assert!(serde_json::from_str::<EdgeConfig>(&house_ad).is_err(), "serde_json stops at a depth of 128");
}

/// Whether a form with a list of this length is accepted.
type ReadsList = fn(usize) -> bool;

#[test]
fn lists_over_their_bounds_are_refused_although_whole() {
    let identity = |change: fn(&mut IdentityCookie, usize), n| {
        let mut cookie = cookies::decode_identity(&identity_payload()).unwrap();
        change(&mut cookie, n);
        cookies::decode_identity(&cookies::encode_identity(&cookie)).is_ok()
    };
    assert!(identity(|c, n| c.covered = vec![1; n], limits::COVERED));
    assert!(!identity(|c, n| c.covered = vec![1; n], limits::COVERED + 1));
    assert!(identity(|c, n| c.earlier = vec![(hash(1, 1), visitor(1)); n], limits::EARLIER_VISITORS));
    assert!(!identity(|c, n| c.earlier = vec![(hash(1, 1), visitor(1)); n], limits::EARLIER_VISITORS + 1));
    assert!(identity(|c, n| c.pending = vec![visitor(1); n], limits::PENDING_SIBLINGS));
    assert!(!identity(|c, n| c.pending = vec![visitor(1); n], limits::PENDING_SIBLINGS + 1));
    let bounded: [(usize, ReadsList); 9] = [
        (limits::ATTRIBUTE_WRITES, |n| {
            let what = FactKind::Attributes { writes: vec![("a".to_owned(), None); n] };
            facts::decode_one(&facts::encode_one(&Fact { what, ..all_facts()[0].clone() })).is_ok()
        }),
        (limits::LEDGER_ENTRIES, |n| {
            let mut ledger = Ledger::new(visitor(1));
            ledger.pages = vec![LaterPage { received: NOW, short: 1, session: SessionId(1) }; n];
            cookies::decode_ledger(&cookies::encode_ledger(&ledger)).is_ok()
        }),
        (52, |n| {
            let mut ledger = cookies::decode_ledger(&ledger_payload()).unwrap();
            ledger.reserved = vec![ledger.reserved[0]; n];
            cookies::decode_ledger(&cookies::encode_ledger(&ledger)).is_ok()
        }),
        (limits::SYNC_FACTS, |n| {
            let facts = vec![all_facts()[4].clone(); n];
            facts::decode_batch(&facts::encode_batch(&FactBatch { tenant: tenant(), facts })).is_ok()
        }),
        (limits::SYNC_FACTS, |n| {
            let request = SyncRequest { facts: vec![Vec::new(); n], ..SyncRequest::default() };
            sync::decode_request(&sync::encode_request(&request)).is_ok()
        }),
        (limits::SYNC_PUBLISH, |n| {
            let request = SyncRequest { applied: vec![1; n], ..SyncRequest::default() };
            sync::decode_request(&sync::encode_request(&request)).is_ok()
        }),
        (limits::KV_KEYS, |n| {
            let request =
                SyncRequest { read: vec![ReadResult { entry: 1, sha256: None }; n], ..SyncRequest::default() };
            sync::decode_request(&sync::encode_request(&request)).is_ok()
        }),
        (limits::KV_KEYS, |n| {
            let verify = vec![VerifyRequest { entry: 1, key: String::new() }; n];
            sync::decode_response(&sync::encode_response(&SyncResponse { verify, ..SyncResponse::default() })).is_ok()
        }),
        (limits::KEYS_A_PURPOSE, |n| {
            let what = FactKind::Alias { id: alternate(MEMBER, 1), also: vec![hash(2, 1); n], proven: true };
            facts::decode_one(&facts::encode_one(&Fact { what, ..all_facts()[0].clone() })).is_ok()
        }),
    ];
    for (place, (most, reads)) in bounded.into_iter().enumerate() {
        assert_eq!((reads(most), reads(most + 1)), (true, false), "bound {place}");
    }
}

#[test]
fn texts_over_their_bounds_are_refused() {
    let track = |name: usize, properties: usize| {
        let what = FactKind::Track {
            name: "n".repeat(name),
            value: None,
            properties: Some("p".repeat(properties)),
            order: None,
        };
        facts::decode_one(&facts::encode_one(&Fact { what, ..all_facts()[0].clone() })).err()
    };
    assert_eq!(track(limits::NAME_BYTES, limits::PROPERTIES_BYTES), None);
    assert_eq!(track(limits::NAME_BYTES + 1, 0), Some(WireError::TooLong));
    assert_eq!(track(1, limits::PROPERTIES_BYTES + 1), Some(WireError::TooLong));
    let attribute = |name: usize, value: usize| {
        let value = AttributeValue::String("v".repeat(value));
        let what = FactKind::Attributes { writes: vec![("n".repeat(name), Some(value))] };
        facts::decode_one(&facts::encode_one(&Fact { what, ..all_facts()[0].clone() })).err()
    };
    assert_eq!(attribute(limits::ATTRIBUTE_NAME_BYTES, limits::ATTRIBUTE_BYTES), None);
    assert_eq!(attribute(limits::ATTRIBUTE_NAME_BYTES + 1, 0), Some(WireError::TooLong));
    assert_eq!(attribute(1, limits::ATTRIBUTE_BYTES + 1), Some(WireError::Range));
    let huge = vec![0u8; limits::SYNC_BYTES + 1];
    assert_eq!(facts::decode_batch(&huge).unwrap_err(), WireError::TooLong);
    assert_eq!(sync::decode_request(&huge).unwrap_err(), WireError::TooLong);
    assert_eq!(kv::decode_lookup("k", &vec![b'l'; limits::KV_VALUE_CHARS + 1]), Err(WireError::TooLong));
}

/// A decoder of a form; returns the error, if any.
type Decoder = fn(&[u8]) -> Option<WireError>;

/// The form of a stored profile with its CRC-32.
fn summed(form: &[u8]) -> Vec<u8> {
    let sum = crc32fast::hash(&[visitor(1).as_bytes(), form].concat());
    [form, &sum.to_be_bytes()].concat()
}

/// The form of a stored profile, without its CRC-32.
fn unsummed(mut stored: Vec<u8>) -> Vec<u8> {
    stored.truncate(stored.len() - 4);
    stored
}

fn decoders() -> Vec<(Decoder, Vec<u8>)> {
    vec![
        (|b| facts::decode_batch(b).err(), batch()),
        (|b| facts::decode_one(b).err(), facts::encode_one(&all_facts()[0])),
        (
            |b| profile::decode_profile(visitor(1), &summed(b)).err(),
            unsummed(profile::encode_profile(visitor(1), &Profile::default())),
        ),
        (|b| sync::decode_request(b).err(), request()),
        (|b| sync::decode_response(b).err(), response()),
        (|b| cookies::decode_identity(b).err(), identity_payload()),
        (|b| cookies::decode_ledger(b).err(), ledger_payload()),
        (
            |b| {
                let (key, _) = snapshot_value();
                kv::decode_stored(&key, visitor(1), framed("s1", &key, b).as_bytes()).err()
            },
            inside(&snapshot_value().1),
        ),
    ]
}

/// Values that declare themselves huge, endless or deep.
fn bombs() -> Vec<Vec<u8>> {
    let huge = [0x9b, 0xbb, 0x5b, 0x7b].map(|head| [&[head], [0x7f; 8].as_slice()].concat());
    let large = [0x9a, 0xba, 0x5a, 0x7a].map(|head| vec![head, 0x0f, 0xff, 0xff, 0xff]);
    let most = [0x9b, 0xbb, 0x5b, 0x7b].map(|head| vec![head, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]);
    let deep = [0x81, 0x9f, 0xbf, 0x5f, 0x7f, 0xc1, 0xd8].map(|byte| vec![byte; 60_000]);
    let mixed = [[0x82, 0x9f], [0xa1, 0x00], [0x9f, 0xff]].map(|pair| pair.repeat(30_000));
    let all = huge.into_iter().chain(large).chain(most).chain(deep).chain(mixed);
    all.chain([[vec![0x81; 60_000], vec![0xf6]].concat()]).collect()
}

#[test]
fn cbor_bombs_end_in_milliseconds_and_allocate_little() {
    let before = peak_kib();
    for (decode, valid) in decoders() {
        assert_eq!(decode(&valid), None);
        for bomb in bombs() {
            let longer = extended(&valid, &bomb);
            // At every index of the first bytes, in place of the original byte, and as a field of a later release.
            let inserted = (0..valid.len().min(48)).map(|at| [&valid[..at], &bomb].concat());
            for bytes in inserted.chain([longer]) {
                let begun = Instant::now();
                let _ = decode(&bytes);
                let quick = begun.elapsed() < Duration::from_millis(250);
                assert!(quick, "{:?} for {} bytes {:x?}", begun.elapsed(), bytes.len(), &bytes[..64]);
            }
        }
    }
    let grown = peak_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB more");
}

/// A form's map with one more key, as a later release may write it.
fn extended(form: &[u8], value: &[u8]) -> Vec<u8> {
    assert!((0xa1..0xb7).contains(&form[0]), "a map of few keys");
    [&[form[0] + 1], &form[1..], b"\x65later", value].concat()
}

#[test]
fn what_is_nested_in_an_unknown_field_is_passed_over_up_to_the_bound() {
    let nested = |levels| [vec![0x81; levels], vec![0xf6]].concat();
    for (decode, valid) in decoders() {
        let reads = |levels| decode(&extended(&valid, &nested(levels)));
        assert_eq!([reads(0), reads(7)], [None; 2]);
        assert_eq!([reads(8), reads(1_000)], [Some(WireError::Range); 2]);
        let mut cut = extended(&valid, &nested(3));
        cut.pop();
        assert_eq!(decode(&cut), Some(WireError::Malformed));
    }
}

#[test]
fn tags_and_indefinite_lengths_are_refused() {
    for (decode, valid) in decoders() {
        for bad in [
            [0xc1, 1].as_slice(),
            &[0xc2, 0x41, 1],
            &[0x9f, 0xff],
            &[0xbf, 0xff],
            &[0x5f, 0xff],
            &[0x7f, 0xff],
            &[0xf7],
            &[0xf8, 99],
        ] {
            assert_eq!(decode(&extended(&valid, bad)), Some(WireError::Malformed), "{bad:x?}");
        }
    }
}

/// Peak memory of this process, in KiB; 0 if the system does not report it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
