//! Comparison of ways to choose ads, with the same ads and the same people: first some days of random choices, then
//! some days of the way's own choices.

use causeway_edge::{Engine, FactsMessage};
use serde_json::json;

use crate::ads::{self, Ad, Paid};
use crate::browser::{Browser, KvSource, decisions};
use crate::dice::Dice;
use crate::people::Person;
use crate::world::{BEGIN, Failed, World, engine};

const DAY_MS: u64 = 86_400_000;
/// Interval of folds and publications.
const TICK_MS: u64 = 10 * 60_000;
const TICKS: u64 = DAY_MS / TICK_MS;
/// Number of random orders of ads, for random choices.
const ORDERS: usize = 32;
/// Mean visits of a person per day.
const VISITS: f64 = 0.6;
/// Pages of one visit.
const PAGES: usize = 3;
/// Probability that a member is logged in on a visit.
const LOGGED_IN: f64 = 0.7;

/// A way to choose ads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The product: by a model, over all browsers of a person.
    Causeway,
    /// By a model over each browser alone, because no login is reported.
    Unbridged,
    /// By the bid, with equal expected click and purchase rates for all people.
    HighestBid,
    /// At random among the eligible ads.
    Random,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Causeway, Self::Unbridged, Self::HighestBid, Self::Random];

    /// The name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Causeway => "causeway",
            Self::Unbridged => "without bridging",
            Self::HighestBid => "highest bid",
            Self::Random => "random eligible",
        }
    }
}

/// The parameters of a market.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Number of people.
    pub people: usize,
    /// Number of days with random choices, from which the model learns.
    pub before: u64,
    /// Number of days with the way's own choices.
    pub days: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The result of the days with the way's own choices.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Came {
    /// Number of seen ads.
    pub impressions: u64,
    /// Number of clicks.
    pub clicks: u64,
    /// Number of purchases after a click.
    pub purchases: u64,
    /// Payments of the advertisers, in units of the currency.
    pub revenue: f64,
}

impl Came {
    /// Clicks per impression.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from 2^53")]
    pub fn ctr(&self) -> f64 {
        self.clicks as f64 / self.impressions.max(1) as f64
    }

    /// Revenue per thousand impressions.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far from 2^53")]
    pub fn rpm(&self) -> f64 {
        1_000.0 * self.revenue / self.impressions.max(1) as f64
    }
}

struct Market {
    world: World,
    way: Way,
    ads: Vec<Ad>,
    people: Vec<Person>,
    browsers: Vec<Vec<Browser>>,
    /// The engine of the way's own choices.
    own: Engine,
    /// The engine and the KV values of each random order.
    orders: Vec<(Engine, [(String, String); 2])>,
    dice: Dice,
    came: Came,
}

/// Simulates a market; `progress` is called with the number of finished days.
///
/// # Errors
/// The engine, the store or the KV failed.
pub fn play(way: Way, size: Size, progress: &dyn Fn(u64)) -> Result<Came, Failed> {
    let mut market = Market::new(way, size)?;
    for day in 0..size.before + size.days {
        let own = day >= size.before;
        if own && matches!(way, Way::Causeway | Way::Unbridged) {
            market.world.train()?;
        }
        if day == size.before {
            market.came = Came::default();
        }
        for tick in 0..TICKS {
            market.tick(day, tick, own && way != Way::Random)?;
        }
        progress(day + 1);
    }
    Ok(market.came)
}

impl Market {
    fn new(way: Way, size: Size) -> Result<Self, Failed> {
        // The people are equal for all ways.
        let mut dice = Dice::new(size.seed);
        let ads = ads::draw(&mut dice);
        let people: Vec<Person> = (0..size.people).map(|number| Person::draw(number, &mut dice)).collect();
        let browsers = people.iter().map(|one| vec![Browser::new(one.permits); one.browsers]).collect();
        let mut world = World::new(size.seed)?;
        world.apply(ads::catalogue(&ads, None))?;
        world.publish()?;
        let order = |_| {
            let document = ads::catalogue(&ads, Some(&mut dice));
            Ok((engine()?, ads::in_force(world.tenant(), document)?))
        };
        let orders = (0..ORDERS).map(order).collect::<Result<_, Failed>>()?;
        let own = engine()?;
        Ok(Self { way, people, browsers, own, orders, dice, came: Came::default(), world, ads })
    }

    /// Simulates ten minutes: visits, then the fold of their facts and the publication.
    fn tick(&mut self, day: u64, tick: u64, own: bool) -> Result<(), Failed> {
        let start = BEGIN + day * DAY_MS + tick * TICK_MS;
        #[expect(clippy::cast_precision_loss, reason = "far from 2^53")]
        let share = VISITS / TICKS as f64;
        for number in 0..self.people.len() {
            if self.dice.chance(share) {
                self.world.now = start + self.dice.bits() % TICK_MS;
                self.visit(number, u32::try_from(day)?, own)?;
            }
        }
        self.world.now = start + TICK_MS;
        self.world.sync()?;
        self.world.publish()
    }

    fn visit(&mut self, number: usize, day: u32, own: bool) -> Result<(), Failed> {
        let (Some(person), Some(browsers)) = (self.people.get_mut(number), self.browsers.get_mut(number)) else {
            return Ok(());
        };
        let at = self.dice.below(browsers.len());
        let Some(browser) = browsers.get_mut(at) else { return Ok(()) };
        let logged_in = person.member.filter(|_| self.dice.chance(LOGGED_IN) && self.way != Way::Unbridged);
        let ids = logged_in.map(|member| json!({ "member": format!("m-{member}") })).unwrap_or_else(|| json!({}));
        let body = json!({ "placements": [{ "id": "top" }, { "id": "side" }], "user": { "ids": ids } }).to_string();
        for _ in 0..PAGES {
            let World { now, kv, .. } = &mut self.world;
            *now += 15_000;
            let now = *now;
            let mut source = OrderKv { kv, own: &[] };
            let engine = if own {
                &mut self.own
            } else {
                let order = self.dice.below(ORDERS);
                let Some((engine, values)) = self.orders.get_mut(order) else { continue };
                source.own = values;
                engine
            };
            let mut facts: Vec<FactsMessage> = Vec::new();
            let mut ask = |what: (&str, &str, &str), dice: &mut Dice| {
                let mut answer = browser.send(engine, &mut source, what, now, dice)?;
                facts.extend(answer.facts.take());
                Ok::<_, Failed>(answer)
            };
            for decision in decisions(&ask(("POST", "/v1/decide", &body), &mut self.dice)?) {
                let Some(code) = code(&decision) else { continue };
                let Some(ad) = self.ads.get(code - 1) else { continue };
                let address = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
                ask(("GET", &address("impression_url"), ""), &mut self.dice)?;
                let clicked = person.look(code, ad, day, &mut self.dice);
                self.came.impressions += 1;
                if let Paid::Impression(amount) = ad.paid {
                    self.came.revenue += amount;
                }
                if !clicked {
                    continue;
                }
                ask(("GET", &address("click_url"), ""), &mut self.dice)?;
                self.came.clicks += 1;
                if let Paid::Click(amount) = ad.paid {
                    self.came.revenue += amount;
                }
                if !person.buys(code, ad, &mut self.dice) {
                    continue;
                }
                self.came.purchases += 1;
                if let Paid::Purchase(amount) = ad.paid {
                    self.came.revenue += amount;
                }
                if person.permits {
                    let value = 40_000_000.0 * self.dice.lognormal(0.5);
                    let event = json!([{ "type": "track", "name": "purchase", "properties": { "value_micros": value.round() as i64 } }]);
                    ask(("POST", "/v1/events", &event.to_string()), &mut self.dice)?;
                }
            }
            facts.into_iter().for_each(|message| self.world.queue_facts(message));
        }
        Ok(())
    }
}

/// The code of a decision's ad; `None` without an ad of the market.
fn code(decision: &serde_json::Value) -> Option<usize> {
    decision["ad"]["id"].as_str()?.strip_prefix('a')?.parse().ok()
}

/// The KV with values that are replaced for one engine.
struct OrderKv<'a> {
    kv: &'a std::collections::HashMap<String, String>,
    own: &'a [(String, String)],
}

impl KvSource for OrderKv<'_> {
    fn read(&mut self, key: &str) -> Option<String> {
        let own = self.own.iter().find(|(of, _)| of == key).map(|(_, value)| value);
        own.or_else(|| self.kv.get(key)).cloned()
    }
}
