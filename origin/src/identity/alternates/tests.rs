#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::keys::key_ring::RingKey;
use causeway_shared::wire::{self, kv_keys};

use crate::testing::{NOW, Origin, fact, visitor};

const FIRST: u32 = 1;

fn id(hash: u8) -> AlternateId {
    AlternateId { kind: KindCode(1), hash: AltHash([hash; 16]) }
}

fn seen(v: u32, n: u32, id: AlternateId, also: &[AltHash]) -> Fact {
    fact(visitor(v), n, NOW + u64::from(n), FactKind::Alias { id, also: also.to_vec(), proven: true })
}

#[test]
fn a_hash_under_a_new_key_is_looked_up_as_the_one_before_also_where_the_visitors_stay() {
    let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
    let first = origin.tenant("demo").keys.alternate.0[0].clone();
    origin.change_keys("demo", |keys| keys.push(RingKey { id: first.id + 1, ..first.clone() }));
    let (old, new) = (id(first.id), id(first.id + 1));
    let held = |kv: &BTreeMap<String, String>, id: AlternateId| {
        let key = kv_keys::lookup_key(&"demo".parse().unwrap(), id);
        kv.get(&key).map(|value| wire::kv::decode_lookup(&key, value.as_bytes()).unwrap())
    };
    origin.send("demo", &[seen(FIRST, 1, old, &[])]);
    origin.settle(&mut kv);
    assert_eq!((held(&kv, old), held(&kv, new)), (Some(vec![visitor(FIRST)]), None));
    origin.send("demo", &[seen(FIRST, 2, new, &[old.hash])]);
    origin.settle(&mut kv);
    assert_eq!((held(&kv, old), held(&kv, new)), (Some(vec![visitor(FIRST)]), Some(vec![visitor(FIRST)])));
    // The new lookup is written once.
    origin.send("demo", &[seen(FIRST, 3, new, &[old.hash])]);
    assert!(origin.drain(100).iter().all(|write| !write.key.starts_with("a:")));
}

#[test]
fn a_hash_that_stood_for_an_id_stands_for_the_one_it_is_united_with() {
    let mut origin = Origin::new();
    // Two ids, the second with two hashes; the other hash of the second shows that both are one id.
    let facts = [
        seen(1, 1, id(1), &[]),
        seen(2, 2, id(2), &[]),
        seen(3, 3, id(3), &[id(2).hash]),
        seen(4, 4, id(3), &[id(1).hash]),
        seen(5, 5, id(2), &[]),
    ];
    facts.iter().for_each(|fact| drop(origin.send("demo", std::slice::from_ref(fact))));
    let members = origin.person("demo", visitor(5)).members;
    assert_eq!(members, [1, 2, 3, 4, 5].map(visitor));
}
