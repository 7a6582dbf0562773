//! The spend of a campaign beyond its budget: a day of traffic over several locations, each with its own KV cache and
//! isolate. Half of the traffic is of people without permission. Impressions are billed seconds later, paces are
//! computed each minute, and a location reads them when its cache expires.

use std::collections::HashMap;

use causeway_edge::{Engine, FactsMessage};
use causeway_origin::campaigns::spend;
use causeway_shared::base::ids::Millis;
use serde_json::{Value, json};

use crate::browser::{Browser, KvSource, decisions};
use crate::dice::Dice;
use crate::world::{BEGIN, Failed, World, engine};

/// Time for which a location caches a KV value.
const CACHE_MS: u64 = 60_000;
/// Interval at which facts arrive and due KV keys are written.
const SYNC_MS: u64 = 10_000;
const MINUTES: u64 = 1_440;
const CAMPAIGN: u32 = 1;
/// Price of an impression in billionths of the currency: a CPM of 1.
const PRICE: u64 = 1_000_000;

/// The parameters of a day.
#[derive(Debug, Clone, Copy)]
pub struct Day {
    /// Number of locations.
    pub locations: usize,
    /// Number of calls on the day. Their rate is a sine over the day, and five times as high for ten minutes in the
    /// evening.
    pub calls: u64,
    /// Impressions that the budget pays for.
    pub budget: u64,
    /// Whether the budget is spread over the day.
    pub even: bool,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The result of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Came {
    /// Paid impressions by hour.
    pub hours: Vec<u64>,
    /// Paid impressions of the day.
    pub spent: u64,
}

impl Came {
    /// Spend beyond a budget in percent of it; negative if a part of the budget is left.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from 2^53")]
    pub fn over(&self, budget: u64) -> f64 {
        (self.spent as f64 / budget.max(1) as f64 - 1.0) * 100.0
    }
}

struct Location {
    engine: Engine,
    cache: KvCache,
}

/// Cached KV values with the time of their read; `None` for a key without a value.
type KvCache = HashMap<String, (Millis, Option<String>)>;

/// A location's cache in front of the KV.
struct CachedKv<'a> {
    now: Millis,
    cache: &'a mut KvCache,
    kv: &'a HashMap<String, String>,
}

impl KvSource for CachedKv<'_> {
    fn read(&mut self, key: &str) -> Option<String> {
        let known = self.cache.get(key).filter(|(at, _)| self.now < at + CACHE_MS);
        if let Some((_, value)) = known {
            return value.clone();
        }
        let value = self.kv.get(key).cloned();
        self.cache.insert(key.to_owned(), (self.now, value.clone()));
        value
    }
}

fn catalogue(day: &Day) -> Value {
    let pace = if day.even { "even" } else { "asap" };
    json!({
        "advertiser": [{ "id": "v" }],
        "campaign": [{ "id": "c", "code": CAMPAIGN, "advertiser": "v", "bid": { "cpm_micros": PRICE },
            "daily_budget_micros": day.budget * PRICE / 1_000, "pace": pace }],
        "ad_group": [{ "id": "g", "campaign": "c" }],
        "ad": [{ "id": "a", "ad_group": "g", "creative": {}, "landing": "https://shop.example/" }],
    })
}

/// Simulates a day.
///
/// # Errors
/// The engine, the store or the KV failed.
pub fn play(day: &Day) -> Result<Came, Failed> {
    let mut dice = Dice::new(day.seed);
    let mut world = World::new(day.seed)?;
    world.apply(catalogue(day))?;
    let location = |_| Ok(Location { engine: engine()?, cache: HashMap::new() });
    let mut locations = (0..day.locations).map(location).collect::<Result<Vec<_>, Failed>>()?;
    let mut browsers: Vec<Browser> = (0..500).map(|n| Browser::new(n % 2 == 0)).collect();
    let mut came = Came { hours: vec![0; 24], spent: 0 };
    let mut owed = 0.0;
    for minute in 0..MINUTES {
        owed += rate(day, minute);
        let mut calls: Vec<Millis> = Vec::new();
        while owed >= 1.0 {
            calls.push(dice.bits() % 60_000);
            owed -= 1.0;
        }
        calls.sort_unstable();
        let mut calls = calls.into_iter().peekable();
        for part in 0..60_000 / SYNC_MS {
            let start = BEGIN + minute * 60_000;
            while let Some(at) = calls.next_if(|at| *at < (part + 1) * SYNC_MS) {
                world.now = start + at;
                let (place, who) = (dice.below(locations.len()), dice.below(browsers.len()));
                let (Some(location), Some(browser)) = (locations.get_mut(place), browsers.get_mut(who)) else {
                    continue;
                };
                page(&mut world, location, browser, &mut dice)?;
            }
            world.now = start + (part + 1) * SYNC_MS;
            world.sync()?;
            world.publish()?;
        }
        let spent = spent(&world)?;
        came.hours.iter_mut().skip(usize::try_from(minute / 60)?).take(1).for_each(|hour| *hour += spent - came.spent);
        came.spent = spent;
    }
    Ok(came)
}

/// Number of calls in a minute of the day.
#[expect(clippy::cast_precision_loss, reason = "far from 2^53")]
fn rate(day: &Day, minute: u64) -> f64 {
    let mean = day.calls as f64 / MINUTES as f64;
    let wave = 1.0 - 0.7 * (minute as f64 / MINUTES as f64 * std::f64::consts::TAU).cos();
    let burst = if (1_200..1_210).contains(&minute) { 5.0 } else { 1.0 };
    mean * wave * burst
}

/// Simulates a page with one placement; a placed ad is seen.
fn page(world: &mut World, location: &mut Location, browser: &mut Browser, dice: &mut Dice) -> Result<(), Failed> {
    let Location { engine, cache } = location;
    let World { now, kv, .. } = &*world;
    let mut cached = CachedKv { now: *now, cache, kv };
    let call = ("POST", "/v1/decide", r#"{"placements":[{"id":"top"}]}"#);
    let decided = browser.send(engine, &mut cached, call, *now, dice)?;
    let shown = decisions(&decided);
    let mut facts: Vec<FactsMessage> = decided.facts.into_iter().collect();
    for decision in shown {
        if let Some(url) = decision["impression_url"].as_str() {
            facts.extend(browser.send(engine, &mut cached, ("GET", url, ""), *now, dice)?.facts);
        }
    }
    facts.into_iter().for_each(|message| world.queue_facts(message));
    Ok(())
}

/// Number of paid impressions until now.
fn spent(world: &World) -> Result<u64, Failed> {
    let (conn, tenant) = world.store();
    Ok(spend::load_spend(conn, tenant.no, CAMPAIGN, 0)?.ever / PRICE)
}
