//! All faults at once: a KV that lags, loses, damages and fails, a queue that delivers twice, late and out of order, an
//! origin that is killed, and browsers that lose cookies and change users. After the faults stop, all data must be
//! right.
//!
//! `CAUSEWAY_SEED=N` repeats a run, as far as real processes allow it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_shared::base::ids::{AltHash, FactId, Millis, VisitorId};
use causeway_shared::base::random::Random;
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::bare::{self, Bare, tenant};
use causeway_tests::browser::{Answer, Browser};
use causeway_tests::hostile::{Hostile, below};
use causeway_tests::origin::Origin;
use causeway_tests::run;
use serde_json::{Value, json};

const HANDS: u64 = 4;
const BROWSERS: usize = 12;
const ROUNDS: u64 = 20;
const MEMBERS: u64 = 4;
/// The longest time by which reads lag behind writes. On the platform it is a minute.
const LAG: Duration = Duration::from_secs(2);

fn main() {
    run(World::start, &[("after_a_worst_day_everything_acknowledged_is_counted_once_and_published", worst_day)])
}

struct World {
    bare: Bare,
    origin: Origin,
    seed: u64,
    /// Number of answered requests.
    answered: AtomicU64,
    /// Number of acknowledged purchases, each id once.
    bought: AtomicU64,
    over: AtomicBool,
}

/// Ends the threads that carry messages, even if a check fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl World {
    fn start() -> Self {
        let seed = std::env::var("CAUSEWAY_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(bare::now);
        eprintln!("hostile: CAUSEWAY_SEED={seed}");
        let origin = Origin::start(&bare::keys());
        let bare = Bare::start_with(Some(&origin.url));
        let (answered, bought, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let world = Self { bare, origin, seed, answered, bought, over };
        world.bare.standin.held().hostile = Some(Hostile::new(world.seed_of(99), LAG));
        world
    }

    fn seed_of(&self, part: u64) -> [u8; 32] {
        let mut seed = [0; 32];
        let (number, rest) = seed.split_at_mut(8);
        number.copy_from_slice(&self.seed.to_be_bytes());
        rest.iter_mut().zip(part.to_be_bytes()).for_each(|(to, from)| *to = from);
        seed
    }

    fn faults(&self) -> bool {
        self.bare.standin.held().hostile.as_ref().is_some_and(|kv| kv.faults)
    }
}

fn worst_day(world: &World) {
    std::thread::scope(|scope| {
        let _over = Over(&world.over);
        scope.spawn(|| carry_facts(world));
        scope.spawn(|| carry_wakes(world));
        let hands: Vec<_> = (0..HANDS).map(|hand| scope.spawn(move || browse(world, hand))).collect();
        let total = HANDS * ROUNDS * (BROWSERS as u64 / HANDS);
        until("a third of the requests", || world.answered.load(Ordering::Relaxed) > total / 3);
        world.origin.kill();
        until("half of the requests", || world.answered.load(Ordering::Relaxed) > total / 2);
        world.origin.again();
        hands.into_iter().for_each(|hand| hand.join().unwrap());
        settle(world);
    });
}

/// Waits until all data matches the model, at most 30 seconds after the faults stopped.
fn settle(world: &World) {
    let played = {
        let mut held = world.bare.standin.held();
        let kv = held.hostile.as_mut().unwrap();
        kv.faults = false;
        kv.played.clone()
    };
    eprintln!("hostile: {} answers, {played:?}", world.answered.load(Ordering::Relaxed));
    for fault in ["stale", "missed", "cut", "flipped", "read_failed", "write_failed", "write_done_and_failed"] {
        assert!(played.contains_key(fault), "{fault} was never played: {played:?}");
    }
    assert!(!played.contains_key("write_429"), "a key was written twice within a second: {played:?}");
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let model = Model::of(world.bare.standin.held().queued.iter().flat_map(|batch| &batch.facts));
        let wrong = differences(world, &model);
        if wrong.is_empty() {
            assert_eq!(model.purchases(), world.bought.load(Ordering::Relaxed), "acknowledged purchases");
            eprintln!("hostile: {} visitors, {} persons", model.own.len(), model.persons().len());
            return;
        }
        assert!(Instant::now() < end, "CAUSEWAY_SEED={}, still wrong:\n{}", world.seed, wrong.join("\n"));
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    causeway_tests::eventually(what, || condition().then_some(()));
}

// Browsers.

fn browse(world: &World, hand: u64) {
    let mut random = Random::new(world.seed_of(hand));
    let browsers: Vec<Browser> = (0..BROWSERS as u64 / HANDS).map(|_| world.bare.browser()).collect();
    let proofs: Vec<String> = (0..MEMBERS).map(|m| world.bare.proof(&format!("m{m}"))).collect();
    for round in 0..ROUNDS {
        for (n, browser) in browsers.iter().enumerate() {
            // One of the browsers withdraws its permission once.
            if (hand, n, round) == (0, 0, ROUNDS / 2) {
                browser.send_header("sec-gpc", "1");
                check(world, &browser.decide(&json!({})));
                browser.headers.borrow_mut().pop();
                continue;
            }
            let member = below(&mut random, MEMBERS + 2);
            let proof = usize::try_from(member).ok().and_then(|m| proofs.get(m));
            step(world, browser, &mut random, proof.map(|proof| (member, proof.as_str())), (hand, n, round));
        }
    }
}

fn step(world: &World, browser: &Browser, random: &mut Random, member: Option<(u64, &str)>, id: (u64, usize, u64)) {
    let user = member.map(|(m, proof)| json!({ "ids": { "member": format!("m{m}") }, "proofs": { "member": proof } }));
    let page = user.map_or(json!({}), |user| json!({ "user": user }));
    match below(random, 20) {
        0 => browser.put_back(BTreeMap::new()),
        1..4 => {
            // Of two parallel answers, the one that began first sets its cookies last.
            let before = browser.cookies();
            check(world, &browser.decide(&page));
            browser.put_back(before);
        }
        4..6 => check(world, &browser.send("GET", "/v1/me", &[], b"")),
        6..11 if browser.cookie("cw_id").is_some() => buy(world, browser, &format!("{id:?}")),
        _ => {}
    }
    check(world, &browser.decide(&page));
}

/// Sends a purchase twice.
fn buy(world: &World, browser: &Browser, id: &str) {
    let event = json!([{ "type": "track", "id": id, "name": PURCHASE, "properties": { "value_micros": 1_000_000 } }]);
    let mut acknowledged = false;
    for _ in 0..2 {
        let answer = browser.events(&event);
        assert!([202, 503].contains(&answer.status), "CAUSEWAY_SEED={}: {answer:?}", world.seed);
        acknowledged |= answer.status == 202 && answer.json()["accepted"] == 1;
    }
    world.bought.fetch_add(acknowledged.into(), Ordering::Relaxed);
}

fn check(world: &World, answer: &Answer) {
    let reply = answer.json();
    let reads = reply["kv_reads"].as_u64();
    assert!(
        answer.status == 200 && reads.is_some_and(|n| n <= 2),
        "CAUSEWAY_SEED={}: {} {reply}",
        world.seed,
        answer.status
    );
    world.answered.fetch_add(1, Ordering::Relaxed);
}

// The platform's queues.

/// The facts queue. During the faults, half of the waiting messages come late; all come in any order, and some twice.
fn carry_facts(world: &World) {
    let mut random = Random::new(world.seed_of(97));
    let mut waiting: Vec<(u32, Vec<u8>)> = Vec::new();
    while !world.over.load(Ordering::Relaxed) {
        let came = std::mem::take(&mut world.bare.standin.held().messages);
        waiting.extend(came.into_iter().map(|message| (1, message)));
        let faults = world.faults();
        let mut batch = Vec::new();
        for _ in 0..waiting.len().min(100) {
            let at = usize::try_from(below(&mut random, waiting.len() as u64)).unwrap();
            if !faults || below(&mut random, 2) == 0 {
                batch.push(waiting.swap_remove(at));
            }
        }
        if batch.is_empty() {
            std::thread::park_timeout(Duration::from_millis(20));
            continue;
        }
        let again: BTreeSet<usize> = world.bare.deliver("causeway-facts", &batch).into_iter().collect();
        for (n, (attempts, message)) in batch.into_iter().enumerate() {
            if again.contains(&n) {
                waiting.push((attempts + 1, message));
            } else if faults && below(&mut random, 5) == 0 {
                waiting.push((1, message));
            }
        }
    }
}

/// The publish queue and the cron trigger: one consumer with one message at a time.
fn carry_wakes(world: &World) {
    let mut cron = Instant::now();
    while !world.over.load(Ordering::Relaxed) {
        let woken = std::mem::take(&mut world.bare.standin.held().woken);
        if !woken && cron.elapsed() < Duration::from_millis(500) {
            std::thread::park_timeout(Duration::from_millis(20));
            continue;
        }
        cron = Instant::now();
        if !world.faults() {
            world.origin.leases_end();
        }
        world.bare.deliver("causeway-publish", &[(1, b"wake".to_vec())]);
    }
}

// The model: a plain list of facts.

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sums {
    pages: u64,
    purchases: u64,
    revenue: i64,
}

#[derive(Default)]
struct Model {
    own: BTreeMap<VisitorId, Sums>,
    logins: BTreeMap<VisitorId, BTreeMap<AltHash, Millis>>,
    gone: BTreeSet<VisitorId>,
}

impl Model {
    fn of<'a>(facts: impl Iterator<Item = &'a Fact>) -> Self {
        let (mut model, mut counted) = (Self::default(), BTreeSet::<FactId>::new());
        for fact in facts.filter(|fact| counted.insert(fact.id)) {
            let own = model.own.entry(fact.visitor).or_default();
            match &fact.what {
                FactKind::Page { .. } => own.pages += 1,
                FactKind::Track { name, value, .. } if name == PURCHASE => {
                    own.purchases += 1;
                    own.revenue += value.unwrap_or_default().get();
                }
                FactKind::Alias { id, .. } => {
                    let first = model.logins.entry(fact.visitor).or_default().entry(id.hash).or_insert(fact.received);
                    *first = fact.received.min(*first);
                }
                FactKind::Withdrawal => drop(model.gone.insert(fact.visitor)),
                other => panic!("no such fact is sent here: {other:?}"),
            }
        }
        model
    }

    fn purchases(&self) -> u64 {
        self.own.values().map(|own| own.purchases).sum()
    }

    /// Visitors by member; a visitor with several members belongs to the one seen first.
    fn persons(&self) -> BTreeMap<AltHash, BTreeSet<VisitorId>> {
        let mut persons: BTreeMap<AltHash, BTreeSet<VisitorId>> = BTreeMap::new();
        for (visitor, logins) in self.logins.iter().filter(|(visitor, _)| !self.gone.contains(visitor)) {
            let (_, holder) = logins.iter().map(|(hash, first)| (*first, *hash)).min().unwrap();
            persons.entry(holder).or_default().insert(*visitor);
        }
        persons
    }
}

/// Differences from the model, at the origin and in the KV.
fn differences(world: &World, model: &Model) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut require = |is_right: bool, what: String| wrong.extend((!is_right).then_some(what));
    let persons = model.persons();
    let values: BTreeMap<String, String> = {
        let held = world.bare.standin.held();
        held.hostile.as_ref().unwrap().newest().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    for (visitor, own) in &model.own {
        let held = world.origin.visitor(&visitor.to_string());
        let key = kv_keys::snapshot_key(&tenant(), *visitor);
        let stored = values.get(&key).map(|value| wire::kv::decode_stored(&key, *visitor, value.as_bytes()));
        if model.gone.contains(visitor) {
            require(held["tombstone"] == true, format!("{visitor} withdrew: {held}"));
            require(
                matches!(stored, Some(Ok(StoredValue::Tombstone))),
                format!("{visitor} withdrew, the KV holds {stored:?}"),
            );
            continue;
        }
        let alone = BTreeSet::from([*visitor]);
        let members = persons.values().find(|members| members.contains(visitor)).unwrap_or(&alone);
        let view = members.iter().filter_map(|v| model.own.get(v)).fold(Sums::default(), |sum, own| Sums {
            pages: sum.pages + own.pages,
            purchases: sum.purchases + own.purchases,
            revenue: sum.revenue + own.revenue,
        });
        require(sums(&held["own"]) == Some(*own), format!("{visitor} has {own:?}, the origin says {}", held["own"]));
        require(sums(&held["view"]) == Some(view), format!("{visitor} has the view {view:?}: {}", held["view"]));
        let named = held["person"]["members"].as_array().cloned().unwrap_or_default();
        let named: BTreeSet<VisitorId> = named.iter().filter_map(|v| v.as_str()?.parse().ok()).collect();
        require(named == *members, format!("{visitor} is one of {members:?}, the origin says {named:?}"));
        let version = match &stored {
            Some(Ok(StoredValue::Snapshot(snapshot))) => json!(snapshot.version.to_string()),
            other => json!(format!("{other:?}")),
        };
        require(
            version == held["snapshot_version"],
            format!("{visitor}: {version}, issued {}", held["snapshot_version"]),
        );
    }
    for (key, value) in values.iter().filter(|(key, _)| key.starts_with("v:")) {
        let visitor = key.rsplit(':').next().and_then(|v| v.parse().ok());
        let known = visitor.is_some_and(|v| model.own.contains_key(&v));
        require(known, format!("{key} belongs to no known visitor: {value:.40}"));
    }
    require(world.origin.unpublished() == 0, "keys still wait to be written".to_owned());
    wrong
}

fn sums(reply: &Value) -> Option<Sums> {
    let number = |name: &str| reply[name].as_u64();
    let revenue = reply["revenue_micros"].as_i64()?;
    Some(Sums { pages: number("pages")?, purchases: number("purchases")?, revenue })
}
