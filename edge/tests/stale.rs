//! An isolate never adopts a snapshot older than one it has served: another location's KV may still hold it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeMap;

use crate::browser::{answer, body, complete, read_kv};
use causeway_edge::{Engine, HttpAnswer, ReadFault};
use causeway_shared::base::ids::{Epoch, Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::cookie::{self, IDENTITY};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{NewestNames, ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

const NOW: Millis = 1_800_000_000_000;

/// One isolate, and the KV that it reads.
struct Isolate {
    engine: Engine,
    ring: KeyRing,
    kv: BTreeMap<String, String>,
    fault: Option<ReadFault>,
}

impl Isolate {
    fn new() -> Self {
        let secret = |seed: u8| std::array::from_fn(|i| u8::try_from(i * 7).unwrap() ^ seed);
        let ring = |seed| KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret(seed).into() }]);
        let demo = TenantKeys { cookie: ring(1), alternate: ring(2), ..TenantKeys::default() };
        let keys = KeySet { sync: ring(3), explain: None, tenants: [("demo".to_owned(), demo)].into() };
        let config = json!({ "tenant": [{
            "name": "demo", "hosts": ["localhost"], "no_signal": "allow", "house_ad": { "id": "house" },
        }] });
        let engine = Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap();
        Self { engine, ring: ring(1), kv: BTreeMap::new(), fault: None }
    }

    fn put(&mut self, visitor: VisitorId, stored: &StoredValue) {
        let key = kv_keys::snapshot_key(&tenant(), visitor);
        self.kv.insert(key.clone(), wire::kv::encode_stored(&key, stored).unwrap());
    }

    /// A page of a browser whose cookie names this visitor and these pending siblings, and no version of a snapshot.
    fn page(&mut self, visitor: VisitorId, pending: &[VisitorId]) -> HttpAnswer {
        let pending = pending.to_vec();
        let (covered, earlier) = (Vec::new(), Vec::new());
        let cookie = IdentityCookie { visitor, written: NOW, tag: None, covered, earlier, pending, login: None };
        let payload = wire::cookies::encode_identity(&cookie);
        let sealed = cookie::seal_cookie(&self.ring, IDENTITY, &tenant(), &payload).unwrap();
        let head = format!("POST\nhttp://localhost/v1/decide\n__Host-{IDENTITY}={sealed}\n\n\n\nFirefox/140.0\n\n");
        let step = self.engine.begin(&head, b"{}", NOW, [7; 32]);
        let answer = answer(complete(&mut self.engine, step, |keys| read_kv(&self.kv, self.fault, keys)));
        assert_eq!(answer.status, 200);
        answer
    }
}

fn visitor(n: u64) -> VisitorId {
    VisitorId::mint(NOW - 86_400_000 + n, [0; 10])
}

fn tenant() -> TenantId {
    "demo".parse().unwrap()
}

/// A snapshot that admits some visitors and cuts others, with one page view of each admitted visitor.
fn snapshot(visitor: VisitorId, counter: u64, admits: &[VisitorId], cuts: &[VisitorId]) -> StoredValue {
    let version = SnapshotVersion { restore: 0, counter };
    let totals = ProfileTotals { pages: 1, ..ProfileTotals::default() };
    let content = |v| SubContent {
        totals,
        seen: None,
        names: (v == visitor).then(NewestNames::default),
        ..SubContent::default()
    };
    let membership = Membership {
        epoch: Epoch(counter),
        devices: u32::try_from(admits.len()).unwrap(),
        admits: admits.iter().copied().collect(),
        cuts: cuts.iter().map(|v| (*v, VisitorCut { at: NOW, gone: false })).collect(),
        ..Membership::default()
    };
    let profiles = admits.iter().map(|v| (*v, SubProfile::pack(version, &content(*v)))).collect();
    StoredValue::Snapshot(Box::new(Snapshot { version, visitor, unique: Vec::new(), membership, profiles, best: None }))
}

#[test]
fn a_siblings_stale_snapshot_does_not_admit_an_unlinked_visitor_again() {
    let [own, sibling, third] = [1, 2, 3].map(visitor);
    let mut isolate = Isolate::new();
    isolate.put(own, &snapshot(own, 5, &[own], &[]));
    let old = snapshot(sibling, 10, &[sibling, third], &[]);
    isolate.put(sibling, &old);
    let joined = body(&isolate.page(own, &[sibling]));
    assert_eq!(joined["person"]["devices"], 3, "the newer snapshot was not read yet");

    isolate.put(sibling, &snapshot(sibling, 20, &[sibling], &[third]));
    let newer = body(&isolate.page(own, &[sibling]));
    assert_eq!((newer["person"]["devices"].clone(), newer["degraded"].clone()), (json!(2), Value::Null));

    isolate.put(sibling, &old);
    let answer = isolate.page(own, &[sibling]);
    assert_eq!(body(&answer)["person"]["devices"], 2, "the sibling alone, without the visitor that it admitted");
    assert_eq!(answer.notes, ["snapshot_older"]);
}

#[test]
fn a_browsers_own_stale_snapshot_takes_nothing_back() {
    let [own, sibling] = [1, 2].map(visitor);
    let mut isolate = Isolate::new();
    isolate.put(own, &snapshot(own, 20, &[own], &[sibling]));
    assert_eq!(body(&isolate.page(own, &[]))["person"]["devices"], 1);
    let old = snapshot(own, 10, &[own, sibling], &[]);
    isolate.put(own, &old);
    // A copy of the cookie in another browser, which has not seen the newer snapshot.
    let answer = isolate.page(own, &[]);
    let reply = body(&answer);
    assert_eq!((&reply["person"]["devices"], &reply["visitor"]), (&json!(1), &json!(own.to_string())));
    assert_eq!(answer.notes, ["snapshot_older"]);
    let mut elsewhere = Isolate::new();
    elsewhere.put(own, &old);
    assert_eq!(
        body(&elsewhere.page(own, &[]))["person"]["devices"],
        2,
        "another isolate has not read the newer snapshot"
    );
}

#[test]
fn a_visitor_whose_tombstone_was_read_stays_forgotten_whatever_is_read_later() {
    let [own, sibling] = [1, 2].map(visitor);
    let mut isolate = Isolate::new();
    isolate.put(own, &StoredValue::Tombstone);
    let forgotten = |answer: &HttpAnswer| assert_eq!(body(answer)["reason"], "forgotten");
    forgotten(&isolate.page(own, &[]));
    isolate.put(own, &snapshot(own, 10, &[own, sibling], &[]));
    forgotten(&isolate.page(own, &[]));
    isolate.kv.clear();
    forgotten(&isolate.page(own, &[]));
    isolate.fault = Some(ReadFault::Late);
    forgotten(&isolate.page(own, &[]));
}
