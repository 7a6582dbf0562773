//! A KV with every fault: reads lag behind writes by a random time, a written key is missing, values are cut or have a
//! wrong byte, reads and writes fail, and a write that reports a failure may have been stored.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use causeway_shared::base::random::Random;

/// The platform takes one write of a key in this time.
const KEY_PAUSE: Duration = Duration::from_secs(1);

/// The KV's history and its faults.
#[derive(Debug)]
pub struct Hostile {
    /// Whether reads and writes fail. The limit on writes of one key always holds.
    pub faults: bool,
    /// Number of times that each fault was played.
    pub played: BTreeMap<&'static str, u64>,
    random: Random,
    lag: Duration,
    written: BTreeMap<String, Vec<(Instant, Option<String>)>>,
}

/// A number below `bound`.
pub fn below(random: &mut Random, bound: u64) -> u64 {
    u64::from_be_bytes(random.draw()) % bound
}

impl Hostile {
    /// An empty KV whose reads lag behind its writes by up to `lag`.
    #[must_use]
    pub fn new(seed: [u8; 32], lag: Duration) -> Self {
        let random = Random::new(seed);
        Self { faults: true, played: BTreeMap::new(), random, lag, written: BTreeMap::new() }
    }

    /// The newest value of every key that has one.
    pub fn newest(&self) -> impl Iterator<Item = (&str, &str)> {
        self.written.iter().filter_map(|(key, writes)| Some((key.as_str(), writes.last()?.1.as_deref()?)))
    }

    /// Writes a value, or deletes the key if there is none; returns the HTTP status.
    pub(crate) fn write(&mut self, key: String, value: Option<String>) -> u16 {
        let now = Instant::now();
        let writes = self.written.entry(key).or_default();
        if writes.last().is_some_and(|(at, _)| now.duration_since(*at) < KEY_PAUSE) {
            return self.play("write_429", 429);
        }
        match below(&mut self.random, 12) {
            0 if self.faults => self.play("write_failed", 503),
            1 if self.faults => {
                writes.push((now, value));
                self.play("write_done_and_failed", 503)
            }
            _ => {
                writes.push((now, value));
                200
            }
        }
    }

    pub(crate) fn read(&mut self, keys: Vec<String>) -> Result<BTreeMap<String, Option<String>>, u16> {
        if self.faults && below(&mut self.random, 20) == 0 {
            return Err(self.play("read_failed", 503));
        }
        Ok(keys.into_iter().map(|key| (key.clone(), self.value(&key))).collect())
    }

    fn value(&mut self, key: &str) -> Option<String> {
        let writes = self.written.get(key)?;
        let newest = writes.last()?.1.clone();
        if !self.faults {
            return newest;
        }
        match below(&mut self.random, 20) {
            0 => self.play("cut", newest.map(|v| v.chars().take(v.len() / 2).collect())),
            1 => self.play("flipped", newest.map(|v| v.replacen(['A', 'B', 'C', 'D'], "x", 1))),
            2..8 => {
                let age = Duration::from_millis(below(&mut self.random, 1 + self.lag.as_millis() as u64));
                let then = Instant::now().checked_sub(age)?;
                let was = writes.iter().rev().find(|(at, _)| *at <= then).and_then(|(_, value)| value.clone());
                match (&was, newest) {
                    (None, Some(_)) => self.play("missed", was),
                    (was_then, newest) if *was_then != newest => self.play("stale", was),
                    _ => was,
                }
            }
            _ => newest,
        }
    }

    fn play<T>(&mut self, name: &'static str, outcome: T) -> T {
        *self.played.entry(name).or_default() += 1;
        outcome
    }
}
