//! The visitor of all calls: a returning visitor of a person with many more browsers.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use causeway_shared::base::ids::{
    AltHash, Epoch, FactId, Micros, Millis, SessionId, SnapshotVersion, TenantId, VisitorId,
};
use causeway_shared::base::{limits, random};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::ad_token;
use causeway_shared::keys::cookie::{self, IDENTITY, LEDGER};
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, RingKey, TenantKeys};
use causeway_shared::profiles::ledger::Ledger;
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{LaterPage, NewestFacts, NewestNames, ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::facts::FactBatch;
use causeway_shared::wire::{self, kv_keys};
use serde_json::{Value, json};

use super::market::Market;

/// The visitor's id. The source of the Rust peer repeats it, because a read of its configuration would have a cost.
pub(crate) const VISITOR: &str = "01930000-0000-7000-8000-000000000001";
const TENANT: &str = "bench";
/// Number of siblings with which the snapshot has 10 KB of JSON.
const SIBLINGS: u64 = 41;
/// One in this number of actions and segments is stored, so that the stored value has 10 KB with the siblings.
const HISTORY: usize = 6;
/// Ads of the catalogue that the actions of the person refer to; no call uses this catalogue.
const PAST_ADS: u64 = 1_000;
/// Number of recent cuts in the snapshot.
const CUTS: u64 = 8;
const LEDGER_PAGES: u64 = 4;

/// The input of all peers.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The same snapshot in JSON, as a worker in JavaScript would store it.
    json_value: String,
    tenant: TenantId,
    ring: KeyRing,
    identity: String,
    ledger: String,
    /// The secret of the cookies' key, in base64.
    pub(crate) secret: String,
    pub(crate) config: String,
    pub(crate) keys: String,
    pub(crate) devices: u64,
    /// Bytes of the message of facts that the edge sends for one page view.
    pub(crate) message_bytes: usize,
    /// The KV values of the catalogue.
    catalogue: HashMap<String, String>,
    placements: Value,
    /// The expected ads of the call, by id.
    pub(crate) expected: Vec<String>,
}

impl Fixture {
    /// A fixture for this time, with fresh cookies and recent facts, and a catalogue of `ads` ads; 0 means a house ad
    /// only.
    pub(crate) fn new(now: Millis, ads: u64) -> Result<Self> {
        let (market, one_in) = if ads > 0 { (Market::new(ads, now), 1) } else { (Market::new(PAST_ADS, now), HISTORY) };
        let tenant: TenantId = TENANT.parse()?;
        let own: VisitorId = VISITOR.parse()?;
        let unique = AltHash([1; 16]);
        let snapshot = snapshot(own, unique, now, |content| market.content(content, one_in))?;
        let devices = u64::from(snapshot.membership.devices);
        let mut json_value = as_json(&snapshot)?;
        let bytes = json_value.to_string().len();
        ensure!((9_000..=11_000).contains(&bytes), "the JSON has {bytes} bytes, not 10 KB");
        let house = vec!["house".to_owned()];
        let (mut catalogue, mut placements, mut expected) = (HashMap::new(), one_placement(), house);
        if ads > 0 {
            if let (Some(fields), Value::Object(more)) = (json_value.as_object_mut(), market.as_json()) {
                fields.extend(more);
            }
            catalogue = market.values(&tenant)?;
            placements = Market::placements();
            expected = market.expected(&snapshot, &page(), now)?;
        }
        let version = snapshot.version;
        let key = kv_keys::snapshot_key(&tenant, own);
        let value = wire::kv::encode_stored(&key, &StoredValue::Snapshot(Box::new(snapshot)))?;
        ensure!(ads > 0 || (9_500..=10_500).contains(&value.len()), "the value has {} bytes, not 10 KB", value.len());
        let keys = keys();
        let ring = &keys.tenants.get(TENANT).context("the tenant's keys")?.cookie;
        let identity = wire::cookies::encode_identity(&identity(own, unique, now));
        let ledger = wire::cookies::encode_ledger(&ledger(own, version, now));
        let seal = |name, payload: &[u8]| cookie::seal_cookie(ring, name, &tenant, payload).context("no active key");
        let json = serde_json::to_value(&keys)?;
        let secret = json.pointer("/tenants/bench/cookie/0/secret").and_then(Value::as_str).context("no secret")?;
        let message_bytes = message(tenant.clone(), own, now).len();
        Ok(Self {
            key,
            value,
            json_value: json_value.to_string(),
            identity: seal(IDENTITY, &identity)?,
            ledger: seal(LEDGER, &ledger)?,
            secret: secret.to_owned(),
            config: config().to_string(),
            keys: json.to_string(),
            devices,
            message_bytes,
            ring: ring.clone(),
            tenant,
            catalogue,
            placements,
            expected,
        })
    }

    /// The KV's content.
    pub(crate) fn values(&self) -> HashMap<String, String> {
        let json_key = format!("json:{VISITOR}");
        let mut values = self.catalogue.clone();
        values.extend([(self.key.clone(), self.value.clone()), (json_key, self.json_value.clone())]);
        values
    }

    /// A call with about 300 bytes of JSON, equal for all peers; `page_view` states whether it counts a page view.
    pub(crate) fn request(&self, page_view: bool) -> Vec<u8> {
        self.call(&self.identity, page_view)
    }

    /// The same call with a forged signature.
    pub(crate) fn forged(&self) -> Vec<u8> {
        let (payload, mac) = self.identity.rsplit_once('.').unwrap_or_default();
        let changed = if mac.starts_with('A') { 'B' } else { 'A' };
        let rest = mac.get(1..).unwrap_or_default();
        self.call(&format!("{payload}.{changed}{rest}"), false)
    }

    /// Whether an ad's address counts for the visitor of all calls.
    pub(crate) fn names_visitor(&self, address: &str) -> bool {
        let token = address.strip_prefix("/v1/i/").map(|text| ad_token::open(&self.ring, &self.tenant, text, 0));
        matches!(token, Some(Ok(token)) if token.visitor.to_string() == VISITOR)
    }

    /// Whether the value of a Set-Cookie header sets a cookie of this name with a valid signature.
    pub(crate) fn signed(&self, name: &str, set_cookie: &str) -> bool {
        let value = set_cookie.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        let value = value.and_then(|rest| rest.split(';').next()).unwrap_or_default();
        cookie::open(&self.ring, name, &self.tenant, value).is_ok()
    }

    /// The cookies of the call that counts a page view, and its body.
    pub(crate) fn parts(&self) -> (String, String) {
        (self.cookies(&self.identity), self.body(true))
    }

    fn cookies(&self, identity: &str) -> String {
        format!("theme=dark; {IDENTITY}={identity}; {LEDGER}={}", self.ledger)
    }

    fn body(&self, page_view: bool) -> String {
        json!({ "placements": self.placements, "page": page(), "consent": {}, "page_view": page_view }).to_string()
    }

    fn call(&self, identity: &str, page_view: bool) -> Vec<u8> {
        let (cookies, body) = (self.cookies(identity), self.body(page_view));
        let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
        format!(
            "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nuser-agent: {agent}\r\naccept: */*\r\n\
             accept-language: en-GB,en;q=0.5\r\naccept-encoding: identity\r\ncontent-type: application/json\r\n\
             cookie: {cookies}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

fn one_placement() -> Value {
    json!([{ "id": "top", "sizes": [[728, 90], [970, 250]], "view_type": "home", "floor_micros": 100_000 }])
}

fn page() -> Value {
    json!({
        "url": "https://pub.example/hotels/lisbon?from=2026-12-01&nights=4", "referrer": "https://pub.example/hotels",
        "keywords": ["hotel", "lisbon", "december"],
    })
}

fn config() -> Value {
    json!({ "tenant": [{
        "vocabulary": causeway_bench_wasm::filters::words(), "name": TENANT, "hosts": ["localhost"], "no_signal": "allow",
        "house_ad": { "id": "house", "creative": { "title": "Your own advertisement", "url": "https://example.com/" } },
    }] })
}

fn keys() -> KeySet {
    // The keys are public, because they sign only the cookies of this bench.
    let ring = |first: u8| {
        let mut secret = [0; 32];
        secret.iter_mut().zip(0_u8..).for_each(|(byte, i)| *byte = first.wrapping_add(i.wrapping_mul(37)));
        KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: secret.into() }])
    };
    let tenant = TenantKeys { cookie: ring(2), alternate: ring(3), proof: Vec::new(), ..TenantKeys::default() };
    KeySet { sync: ring(1), explain: None, tenants: [(TENANT.to_owned(), tenant)].into() }
}

fn snapshot(own: VisitorId, unique: AltHash, now: Millis, more: impl Fn(SubContent) -> SubContent) -> Result<Snapshot> {
    let newest =
        NewestFacts::from_parts((0..limits::NEWEST_FACTS as u64).map(|i| (now - 700_000 - i * 60_000, short(i))), 0);
    let mut profiles = (1..=SIBLINGS).map(|n| (other(n), sub(n, now, None, |content| content))).collect::<Vec<_>>();
    profiles.push((own, sub(0, now, Some(newest), more)));
    let membership = Membership {
        epoch: Epoch(812_345),
        devices: u32::try_from(profiles.len())?,
        admits: profiles.iter().map(|(visitor, _)| *visitor).collect(),
        cuts: (1..=CUTS).map(|n| (other(1_000 + n), VisitorCut { at: now - n * 86_400_000, gone: false })).collect(),
        ..Membership::default()
    };
    let version = SnapshotVersion { restore: 0, counter: 4_812_345 };
    let profiles = profiles.into_iter().collect();
    Ok(Snapshot { version, visitor: own, unique: vec![unique], membership, profiles, best: None })
}

/// The snapshot in JSON, without the data of the market.
fn as_json(snapshot: &Snapshot) -> Result<Value> {
    let Snapshot { version, visitor, unique, membership, profiles, .. } = snapshot;
    let cut = |(visitor, cut): (&VisitorId, &VisitorCut)| json!({ "visitor": visitor.to_string(), "at": cut.at });
    let profile = |(visitor, sub): (&VisitorId, &SubProfile)| {
        let SubContent { totals, seen, names, .. } = sub.content().context("the sub-profile cannot be read")?;
        let mut profile = json!({
            "visitor": visitor.to_string(), "version": sub.version().counter, "pages": totals.pages, "sessions": totals.sessions,
            "purchases": totals.purchases, "revenue": totals.revenue, "seen": seen,
        });
        if let (Some(names), Some(profile)) = (names, profile.as_object_mut()) {
            let newest: Vec<_> = names.newest.iter().map(|(at, short)| json!([at, format!("{short:016x}")])).collect();
            profile.insert("newest".to_owned(), newest.into());
        }
        Ok(profile)
    };
    Ok(json!({
        "version": version.counter, "visitor": visitor.to_string(), "unique": unique.first().map(AltHash::to_string),
        "epoch": membership.epoch.0, "devices": membership.devices,
        "cuts": membership.cuts.iter().map(cut).collect::<Vec<_>>(),
        "profiles": profiles.iter().map(profile).collect::<Result<Vec<_>>>()?,
    }))
}

fn sub(n: u64, now: Millis, newest: Option<NewestFacts>, more: impl Fn(SubContent) -> SubContent) -> SubProfile {
    let session = |i: u64| SessionId((now / 60_000 - i * 600) << 32 | (short(i) & 0xffff_ffff));
    let sessions = (0..limits::NEWEST_SESSIONS as u64).rev().map(session).collect();
    let content = SubContent {
        totals: ProfileTotals { pages: 340 + n, sessions: 60 + n, purchases: 3, revenue: Micros::new(129_990_000) },
        seen: Some((now - 90 * 86_400_000, now - n * 3_600_000)),
        names: newest.map(|newest| NewestNames { sessions, newest }),
        ..SubContent::default()
    };
    SubProfile::pack(SnapshotVersion { restore: 0, counter: 4_800_000 + n }, &more(content))
}

/// Another visitor, younger than the visitor of the calls.
fn other(n: u64) -> VisitorId {
    let [a, b, c, d, e, f, g, h] = short(n).to_be_bytes();
    VisitorId::mint(1_731_000_000_000 + n * 3_600_000, [a, b, c, d, e, f, g, h, a ^ e, b ^ f])
}

/// A pseudo-random number.
fn short(n: u64) -> u64 {
    random::finish(n.wrapping_add(1).wrapping_mul(random::GAMMA))
}

fn identity(own: VisitorId, unique: AltHash, now: Millis) -> IdentityCookie {
    IdentityCookie {
        visitor: own,
        written: now,
        tag: Some(unique),
        covered: vec![0x1234_5678],
        earlier: Vec::new(),
        pending: Vec::new(),
        login: None,
    }
}

fn ledger(own: VisitorId, version: SnapshotVersion, now: Millis) -> Ledger {
    let mut ledger = Ledger { highest: version, ..Ledger::new(own) };
    let session = SessionId::mint(now, [7; 4]);
    for i in (0..LEDGER_PAGES).rev() {
        ledger.remember(LaterPage { received: now - i * 20_000, short: short(900 + i), session });
    }
    ledger
}

/// The batch of facts of one page view.
fn message(tenant: TenantId, visitor: VisitorId, now: Millis) -> Vec<u8> {
    let what = FactKind::Page { session: SessionId::mint(now, [7; 4]) };
    let fact = Fact { position: 0, id: FactId::from_bytes([1; 16]), visitor, received: now, at: now, what };
    wire::facts::encode_batch(&FactBatch { tenant, facts: vec![fact] })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_value_has_10_kb_at_every_hour() {
        let hours = (0..24).map(|hour| causeway_bench_wasm::decide::now() + hour * 3_600_000);
        for now in hours {
            Fixture::new(now, 0).unwrap();
        }
    }

    #[test]
    fn the_snapshot_is_read_again_and_the_cookies_open() {
        let fixture = Fixture::new(causeway_bench_wasm::decide::now(), 0).unwrap();
        let own: VisitorId = VISITOR.parse().unwrap();
        let stored = wire::kv::decode_stored(&fixture.key, own, fixture.value.as_bytes()).unwrap();
        let StoredValue::Snapshot(snapshot) = stored else { panic!("a tombstone") };
        assert_eq!(snapshot.profiles.len() as u64, SIBLINGS + 1);
        let ring = &keys().tenants[TENANT].cookie;
        let opens = |name, value: &str| cookie::open(ring, name, &TENANT.parse().unwrap(), value).is_ok();
        assert!(opens(IDENTITY, &fixture.identity) && opens(LEDGER, &fixture.ledger));
        let forged = String::from_utf8(fixture.forged()).unwrap();
        let value = forged.split_once("cw_id=").unwrap().1.split(';').next().unwrap();
        assert_eq!(value.len(), fixture.identity.len());
        assert!(!opens(IDENTITY, value));
    }
}
