//! What a market calls of the edge's module, written down: the traffic by which the build tells which branches are rare.

use causeway_edge::{Engine, Outcome};
use causeway_shared::ids::Millis;
use serde_json::{Value, json};

use crate::browser::Edge;
use crate::compare::{Market, Size, TICKS, Way};
use crate::world::{Failed, config, engine, keys};

/// People who look at pages, and days of which the model learns: fewer teach it nothing.
const PEOPLE: usize = 8_000;
const DAYS: u64 = 4;
/// Requests that are written down; a tick has more.
const REQUESTS: usize = 150;

/// An engine, and what was called of it since it began.
struct Recorded {
    engine: Engine,
    requests: usize,
    lines: String,
}

impl Recorded {
    fn new() -> Result<Self, Failed> {
        let mut new = Self { engine: engine()?, requests: 0, lines: String::new() };
        new.write(&json!({ "config": config(), "keys": keys() }));
        Ok(new)
    }

    fn write(&mut self, call: &Value) {
        if self.requests <= REQUESTS {
            self.lines += &format!("{call}\n");
        }
    }
}

impl Edge for Recorded {
    fn begin(&mut self, head: &str, body: &str, now: Millis, seed: &[u8; 32]) -> Outcome {
        self.requests += 1;
        self.write(&json!({ "head": head, "body": body, "now": now, "seed": seed }));
        Edge::begin(&mut self.engine, head, body, now, seed)
    }

    fn resume(&mut self, turn: u32, values: &str) -> Outcome {
        self.write(&json!({ "values": values }));
        Edge::resume(&mut self.engine, turn, values)
    }
}

/// Plays a market for some days, and gives the calls of the next day's beginning to an edge that has just begun: one JSON
/// object a line, first what it is configured by, then requests, each with the reads that follow it.
///
/// # Errors
/// [`Failed`].
pub fn record() -> Result<String, Failed> {
    let size = Size { people: PEOPLE, before: DAYS, days: 1, seed: 1 };
    let mut market = Market::new(Way::Causeway, size, Recorded::new()?)?;
    for day in 0..DAYS {
        (0..TICKS).try_for_each(|tick| market.tick(day, tick, false))?;
    }
    market.world.train()?;
    market.world.publish()?;
    market.tick(DAYS, 0, true)?;
    Ok(market.own.lines)
}
