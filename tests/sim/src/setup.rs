//! The initial state of every world: two tenants, their keys at each stage of a rotation, and a plan of faults.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use causeway_shared::base::ids::{AltHash, Millis, TenantId};
use causeway_shared::facts::actions::InsertionHash;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::keys::key_ring::{KeyRing, KeySet, KeyStage, ProofAlg, ProofKey, RingKey, TenantKeys};
use causeway_shared::settings::config::EdgeConfig;
use serde_json::json;

use crate::dice::Dice;
use crate::kv::KvFaults;
use crate::queue::QueueFaults;

/// Time at which worlds begin.
pub const BEGIN: Millis = 1_800_000_000_000;
/// The tenants' names; each is served at `{name}.example`.
pub const TENANTS: [&str; 2] = ["demo", "other"];
/// Key with which a request gets its trace.
pub const EXPLAIN: &str = "explain-key-of-the-simulator";
/// Stages of a key rotation: only the first key; the second is also read; the second is used for writing; the first is
/// removed.
pub const STAGES: usize = 4;

/// A tenant's id.
#[must_use]
pub fn tenant(n: usize) -> TenantId {
    let name = TENANTS.get(n).copied().unwrap_or("demo");
    name.parse().unwrap_or_else(|_| unreachable!("the names are of their form"))
}

/// The configuration that edge and origin read.
#[must_use]
pub fn config() -> EdgeConfig {
    let of = |name: &&str| {
        json!({
            "name": name, "hosts": [format!("{name}.example")], "no_signal": "allow", "link_threshold": THRESHOLD.as_f64(),
            "kinds": [{ "name": "member", "code": 1, "unique": true, "group_limit": 3 },
                { "name": "partner", "code": 2 }],
            "proof_header": "x-member-proof", "house_ad": { "id": "house" }, "house_landing": "https://pub.example/",
        })
    };
    let tenants: Vec<_> = TENANTS.iter().map(of).collect();
    let config = serde_json::from_value(json!({ "tenant": tenants }));
    config.unwrap_or_else(|error| unreachable!("the configuration is of its form: {error}"))
}

/// The weight from which evidence joins visitors.
pub const THRESHOLD: EvidenceWeight = EvidenceWeight(600);

/// Name, code and limit per person of the ads with caps: `red` has a ledger cap, `green` a strict cap.
pub const LIMITS: [(&str, u32, usize); 2] = [("red", 1, 3), ("green", 2, 2)];

/// Code of the campaign with a budget, and its bid as CPM in micros.
pub const PAID: (u32, u64) = (3, 5);

/// The limited offer: code of the campaign, and number of recipients.
pub const OFFER: (u32, u32) = (4, 5);

/// Code of the experiment.
pub const EXPERIMENT: u32 = 1;
/// Arms of the experiment with their codes; the first one is the control.
pub const ARMS: [(&str, u8); 3] = [("none", 1), ("one", 2), ("two", 3)];

/// The segments that the campaign `exclusive` excludes.
pub const EXCLUDED: std::ops::Range<u32> = 0..10;
/// The page of that campaign, which the simulated browsers never visit.
pub const EXCLUSIVE_PAGE: &str = "https://pub.example/exclusive";

/// Five campaigns: one with a ledger cap; one with a strict cap; one without a cap, with a budget and the ads of an
/// experiment; a limited offer, which each holder sees once a day; and one that excludes segments. Editions differ only
/// in a weight that no cap depends on.
#[must_use]
pub fn ads(edition: u64) -> serde_json::Value {
    let cap = |limit: usize| json!([{ "action": "impression", "limit": limit, "window": { "interval": 30, "unit": "days" } }]);
    let ad = |id: &str, code: u32, weight: u32| json!({ "id": id, "code": code, "ad_group": id, "creative": {}, "landing": "https://shop.example/", "weight": weight });
    let group = |id: &str, code: u32| json!({ "id": id, "code": code, "campaign": id });
    let of_arm = |id: &str, code: u32| {
        let mut ad = ad(id, code, 2);
        (ad["ad_group"], ad["arm"]) = (json!("plain"), json!(format!("prices/{id}")));
        ad
    };
    let arm = |(id, code): (&str, u8)| json!({ "id": id, "code": code, "share": 3_000, "control": code == 1 });
    let [(_, _, ledger), (_, _, strict)] = LIMITS;
    let ((campaign, price), (offer, recipients)) = (PAID, OFFER);
    let daily = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
    let exclusive = json!({ "page.url": EXCLUSIVE_PAGE, "segments": { "$nin": EXCLUDED.collect::<Vec<_>>() } });
    json!({
        "experiment": [{
            "id": "prices", "code": EXPERIMENT, "starts": 0, "selection": true, "arm": ARMS.map(arm),
        }],
        "advertiser": [{ "id": "shop", "code": 1, "repeats": true }],
        "campaign": [
            { "id": "red", "code": 1, "advertiser": "shop", "caps": cap(ledger), "bid": { "cpm_micros": 7 } },
            { "id": "green", "code": 2, "advertiser": "shop", "caps": cap(strict), "cap_mode": "strict", "bid": { "cpm_micros": 6 } },
            { "id": "plain", "code": campaign, "advertiser": "shop", "bid": { "cpm_micros": price }, "budget_micros": 1_000_000 },
            { "id": "offer", "code": offer, "advertiser": "shop", "bid": { "cpm_micros": 8 }, "recipients": { "limit": recipients }, "caps": daily },
            { "id": "exclusive", "code": 5, "advertiser": "shop", "bid": { "cpm_micros": 9 }, "targeting": exclusive },
        ],
        "ad_group": [group("red", 1), group("green", 2), group("plain", 3), group("offer", 4), group("exclusive", 5)],
        "ad": [ad("red", 1, 100), ad("green", 2, 50), ad("plain", 3, 1 + u32::try_from(edition).unwrap_or(0)),
            of_arm("one", 4), of_arm("two", 5), ad("offer", 6, 1), ad("exclusive", 7, 1)],
    })
}

/// All keys at a stage of the rotation.
#[must_use]
pub fn keys(stage: usize) -> &'static KeySet {
    static ALL: LazyLock<[KeySet; STAGES]> = LazyLock::new(|| std::array::from_fn(keys_of));
    let [.., last] = &*ALL;
    ALL.get(stage).unwrap_or(last)
}

/// Whether the key of an id's hash exists at a stage; the hash begins with the number of its key.
#[must_use]
pub fn knows(stage: usize, hash: &AltHash) -> bool {
    let keys = keys(stage).tenants.values().flat_map(|tenant| &tenant.alternate.0);
    keys.into_iter().any(|key| hash.0.first() == Some(&key.id))
}

/// Whether a cookie or visitor token can be read at a stage.
#[must_use]
pub fn reads(stage: usize, cookie: &str) -> bool {
    stage + 1 < STAGES || !cookie.starts_with("v1.1.")
}

fn keys_of(stage: usize) -> KeySet {
    let key = |purpose: u8, id: u8, stage| {
        let secret = Dice::new(u64::from(purpose) << 8 | u64::from(id)).bytes();
        RingKey { id, stage, secret: secret.into() }
    };
    let ring = |purpose| {
        let keys = match stage {
            0 => vec![key(purpose, 1, KeyStage::Active)],
            1 => vec![key(purpose, 1, KeyStage::Active), key(purpose, 2, KeyStage::Next)],
            2 => vec![key(purpose, 1, KeyStage::Old), key(purpose, 2, KeyStage::Active)],
            _ => vec![key(purpose, 2, KeyStage::Active)],
        };
        KeyRing(keys)
    };
    let of = |n: u8| TenantKeys {
        cookie: ring(n),
        alternate: ring(n + 10),
        proof: vec![proof_key()],
        ..TenantKeys::default()
    };
    let tenants: BTreeMap<String, TenantKeys> = TENANTS.iter().map(ToString::to_string).zip((1..).map(of)).collect();
    KeySet { sync: ring(30), explain: Some(EXPLAIN.to_owned()), tenants }
}

/// The key with which publishers sign proofs.
#[must_use]
pub fn proof_key() -> ProofKey {
    // Base64 of the numbers from 1 to 32.
    ProofKey {
        kid: "pub".to_owned(),
        alg: ProofAlg::HS256,
        key: "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=".to_owned(),
    }
}

/// The insertion that a token names, under any key.
#[must_use]
pub fn insertion(of: usize, token: &str) -> Option<InsertionHash> {
    let opened = (0..STAGES).find_map(|stage| {
        let ring = &keys(stage).tenants.get(*TENANTS.get(of)?)?.cookie;
        causeway_shared::keys::ad_token::open(ring, &tenant(of), token, BEGIN).ok()
    });
    Some(InsertionHash::of(opened?.insertion))
}

/// The faults and operators of a world, and their intensity. Most occur in at most half of all worlds, so that none
/// hides another.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Faults of the KV.
    pub kv: KvFaults,
    /// Faults of the queue.
    pub queue: QueueFaults,
    /// KV reads that are slow and may exceed the deadline, per mille.
    pub slow_reads: u64,
    /// Messages to and from Durable Objects that are lost, and as many that are slow, per mille.
    pub lost_objects: u64,
    /// Syncs whose answer is lost, per mille.
    pub lost_answers: u64,
    /// Syncs that are lost, per mille.
    pub lost_syncs: u64,
    /// Answers that do not reach their browser, per mille.
    pub lost_pages: u64,
    /// KV writes that arrive after the end of their lease, per mille.
    pub late_writes: u64,
    /// Whether the origin publishes in bulk, next to the publish consumer.
    pub bulk: bool,
    /// Bulk calls that the platform refuses because there were too many, per mille.
    pub busy_calls: u64,
    /// Consumers that die, per mille.
    pub dying_consumers: u64,
    /// Whether two publish consumers may run at once.
    pub two_drains: bool,
    /// Mean time between two ends of the origin's process; 0 for never.
    pub kills_ms: Millis,
    /// Whether the power may fail when the process ends.
    pub power: bool,
    /// Mean time between two full disks; 0 for never.
    pub full_ms: Millis,
    /// The longest step by which the origin's clock goes back.
    pub steps_back_ms: Millis,
    /// Mean time between two replaced isolates; 0 for never.
    pub fresh_isolates_ms: Millis,
    /// Whether keys are rotated.
    pub rotation: bool,
    /// Whether a backup is restored.
    pub restore: bool,
    /// Whether browsers' clocks are wrong by days.
    pub skewed_browsers: bool,
    /// Whether members share browsers.
    pub shared_browsers: bool,
    /// Whether two readers of one publisher may exchange their browsers permanently.
    pub swaps: bool,
    /// Whether another member logs in before every call.
    pub kiosk: bool,
    /// Whether cookies are deleted, copied and brought back.
    pub odd_cookies: bool,
    /// Whether consent is withdrawn and given again.
    pub withdrawals: bool,
    /// Whether visitors are erased.
    pub erasures: bool,
    /// Whether evidence is cancelled.
    pub cancellations: bool,
    /// Whether visitors are matched with less than the weight of a login, also in chains between two members.
    pub matches: bool,
    /// If not 0: logins do not change, and pages have no slots for this time, so that all browsers of a person learn of
    /// each other before an ad is placed.
    pub settled_ms: Millis,
    /// Pages that are opened in several tabs, per mille, and the number of tabs.
    pub tabs: (u64, usize),
    /// Placed ads that are seen, per mille; and the part of them that is seen at once, per mille.
    pub sees: (u64, u64),
    /// Number of browsers.
    pub browsers: usize,
    /// Number of members.
    pub members: u64,
    /// Number of locations.
    pub locations: usize,
    /// Mean time between two calls of one browser.
    pub pace_ms: Millis,
}

impl Plan {
    /// The same plan without faults and operators.
    #[must_use]
    pub fn without_faults(self) -> Self {
        Self {
            kv: KvFaults::default(),
            queue: QueueFaults::default(),
            slow_reads: 0,
            lost_objects: 0,
            lost_answers: 0,
            lost_syncs: 0,
            lost_pages: 0,
            late_writes: 0,
            bulk: false,
            busy_calls: 0,
            dying_consumers: 0,
            two_drains: false,
            kills_ms: 0,
            full_ms: 0,
            steps_back_ms: 0,
            fresh_isolates_ms: 0,
            rotation: false,
            restore: false,
            skewed_browsers: false,
            shared_browsers: false,
            swaps: false,
            odd_cookies: false,
            withdrawals: false,
            erasures: false,
            cancellations: false,
            matches: false,
            ..self
        }
    }

    /// Draws the plan of a world.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        let mut often = |per_mille: u64| if dice.chance(500) { dice.between(1, per_mille) } else { 0 };
        let kv = KvFaults { read_fails: often(150), damaged: often(60), write_fails: often(200), stale: often(300) };
        let queue = QueueFaults { refuses: often(150), again: often(300), waits: often(100) };
        let [slow_reads, lost_answers, lost_syncs] = [often(200), often(200), often(200)];
        let [lost_pages, late_writes, dying_consumers] = [often(150), often(50), often(100)];
        let lost_objects = often(200);
        let kiosk = dice.chance(40);
        let plan = Self {
            kv,
            queue,
            slow_reads,
            lost_objects,
            lost_answers,
            lost_syncs,
            lost_pages,
            late_writes,
            dying_consumers,
            two_drains: dice.chance(300),
            kills_ms: if dice.chance(500) { dice.between(60_000, 1_800_000) } else { 0 },
            power: dice.chance(500),
            full_ms: if dice.chance(250) { 1_200_000 } else { 0 },
            steps_back_ms: if dice.chance(300) { 600_000 } else { 0 },
            fresh_isolates_ms: if dice.chance(400) { 900_000 } else { 0 },
            rotation: dice.chance(300),
            restore: dice.chance(200),
            skewed_browsers: dice.chance(300),
            shared_browsers: kiosk || dice.chance(500),
            swaps: dice.chance(250),
            kiosk,
            odd_cookies: dice.chance(500),
            withdrawals: dice.chance(400),
            erasures: dice.chance(400),
            cancellations: dice.chance(300),
            matches: false,
            settled_ms: 0,
            tabs: (120, 2),
            sees: (450, 500),
            bulk: dice.chance(400),
            busy_calls: if dice.chance(500) { dice.between(1, 200) } else { 0 },
            browsers: if kiosk { 2 } else { usize::try_from(dice.between(3, 14)).unwrap_or(3) },
            members: if kiosk { 5_000 } else { dice.between(1, 6) },
            locations: usize::try_from(dice.between(1, 4)).unwrap_or(1),
            pace_ms: dice.between(5_000, 120_000),
        };
        Self { matches: plan.pace_ms.is_multiple_of(4), ..plan }
    }
}
