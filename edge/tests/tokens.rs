//! Tokens of placed ads: late, changed and foreign tokens count nothing in any call.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use crate::browser::{answer, complete, fact_count, facts, values};
use causeway_edge::Engine;
use causeway_shared::base::ids::{InsertionId, Millis, TenantId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::actions::{AdEntity, ViewType};
use causeway_shared::keys::ad_token::{self, AdToken};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use serde_json::json;

const NOW: Millis = 1_800_000_000_000;
const HUMAN: &str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";

fn ring(seed: u8) -> KeyRing {
    let secret: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7).unwrap() ^ seed);
    KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret.into() }])
}

/// An edge of two tenants at which a missing signal permits.
fn edge(rings: &[(&str, KeyRing); 2]) -> Engine {
    let tenant = |name: &str| json!({ "name": name, "hosts": [format!("{name}.localhost")], "dev": true, "no_signal": "allow", "house_ad": { "id": "house" } });
    let keys = |ring: &KeyRing| TenantKeys { cookie: ring.clone(), alternate: ring.clone(), ..TenantKeys::default() };
    let config = json!({ "tenant": rings.each_ref().map(|(name, _)| tenant(name)) });
    let tenants = rings.iter().map(|(name, ring)| ((*name).to_owned(), keys(ring))).collect();
    let keys = KeySet { sync: ring(9), explain: None, tenants };
    Engine::configure(&config.to_string(), &serde_json::to_string(&keys).unwrap()).unwrap()
}

/// A token of an ad that was placed `ago` milliseconds ago.
fn placed(ring: &KeyRing, tenant: &str, ad: u32, ago: Millis) -> String {
    let token = AdToken {
        visitor: VisitorId::mint(NOW - limits::TOKEN_LIFE_MS, [1; 10]),
        insertion: InsertionId([2; 16]),
        entity: AdEntity { ad, ad_group: ad, campaign: ad, advertiser: ad },
        view_type: ViewType(4),
        placed: NOW - ago,
        strict: false,
    };
    let tenant: TenantId = tenant.parse().unwrap();
    ad_token::seal_token(ring, &tenant, &token).unwrap()
}

/// The numbers of facts that a token makes at a tenant: impression pixel, click address, and an event of each.
fn count_facts(engine: &mut Engine, tenant: &str, token: &str) -> [u16; 4] {
    let event = |action| json!([{ "type": "action", "action": action, "insertion": token }]).to_string();
    let [events, none] = ["/v1/events".to_owned(), String::new()];
    let calls = [
        ("GET", format!("/v1/i/{token}"), none.clone()),
        // The second try, because no catalogue is in the KV.
        ("GET", format!("/v1/c/{token}?again"), none),
        ("POST", events.clone(), event("impression")),
        ("POST", events, event("click")),
    ];
    calls.map(|(method, path, body)| {
        let head = format!("{method}\nhttp://{tenant}.localhost{path}\n\n\n\n\n{HUMAN}\n\n");
        let step = engine.begin(&head, body.as_bytes(), NOW, [7; 32]);
        let answer = answer(complete(engine, step, |keys| values(keys, |_| None)));
        assert_eq!(facts(&answer).is_empty(), answer.facts.is_none());
        fact_count(&answer)
    })
}

#[test]
fn a_late_a_changed_and_a_foreign_token_count_nothing() {
    // The other tenant has its own keys or, by mistake, the same keys.
    for seed in [5, 1] {
        let rings = [("demo", ring(1)), ("other", ring(seed))];
        let mut edge = edge(&rings);
        for ad in [0, 70_000] {
            let [demo, other] = rings.each_ref().map(|(name, ring)| placed(ring, name, ad, 0));
            assert_eq!(count_facts(&mut edge, "demo", &demo), [1; 4]);
            assert_eq!(count_facts(&mut edge, "other", &other), [1; 4]);
            assert_eq!(count_facts(&mut edge, "other", &demo), [0; 4]);
            assert_eq!(count_facts(&mut edge, "demo", &other), [0; 4]);
            let aged = |ago| placed(&rings[0].1, "demo", ad, ago);
            assert_eq!(
                count_facts(&mut edge, "demo", &aged(limits::TOKEN_LIFE_MS)),
                [1; 4],
                "the greatest age that counts"
            );
            assert_eq!(count_facts(&mut edge, "demo", &aged(limits::TOKEN_LIFE_MS + 1)), [0; 4]);
            for place in 0..demo.len() {
                let flipped = |(at, c)| if at != place { c } else { if c == 'A' { 'B' } else { 'A' } };
                let changed: String = demo.chars().enumerate().map(flipped).collect();
                assert_eq!(count_facts(&mut edge, "demo", &changed), [0; 4], "{changed}");
            }
        }
    }
}
