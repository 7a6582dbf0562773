//! The KV, as hostile as the platform's contract lets it be: each location sees a write when it likes, caches what it saw
//! and what it did not see, and goes back to an older value when another machine of it answers. Values may come cut or
//! flipped. A key takes one write a second.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;

use crate::dice::Dice;

/// Machines of one location, each with a cache of its own.
const MACHINES: u64 = 2;
/// How stale a cache is at most while nothing is wrong, and as long again what fills it.
const CALM_MS: Millis = 30_000;
/// And now and then while there are faults: ten minutes together.
const STALE_MS: Millis = 300_000;

/// What goes wrong with the KV.
#[derive(Debug, Clone, Copy, Default)]
pub struct KvFaults {
    /// Reads that fail, of a thousand.
    pub read_fails: u64,
    /// Values that come damaged, of a thousand.
    pub damaged: u64,
    /// Writes that fail, of a thousand; of these half are done all the same.
    pub write_fails: u64,
    /// Writes and caches that are stale for so long, of a thousand.
    pub stale: u64,
}

/// One write of a key.
#[derive(Debug, Clone)]
struct Write {
    at: Millis,
    value: Option<String>,
    /// Told apart from all other writes: each location sees it at its own time.
    salt: u64,
    stale: bool,
}

#[derive(Debug, Clone)]
struct Cached {
    value: Option<String>,
    until: Millis,
}

/// Why a write was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// More than one write a second (429).
    TooMany,
    /// Anything else (5xx).
    Failed,
}

/// The KV and what each location sees of it.
#[derive(Debug)]
pub struct Kv {
    keys: BTreeMap<String, Vec<Write>>,
    caches: BTreeMap<(usize, u64, String), Cached>,
    dice: Dice,
    /// What goes wrong now.
    pub faults: KvFaults,
}

impl Kv {
    /// An empty one.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        Self { keys: BTreeMap::new(), caches: BTreeMap::new(), dice, faults: KvFaults::default() }
    }

    /// The value at the centre, where writes arrive.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.keys.get(key)?.last()?.value.as_deref()
    }

    /// All keys that have a value, with it.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().filter_map(|(key, writes)| Some((key.as_str(), writes.last()?.value.as_deref()?)))
    }

    /// Writes a key, or deletes it.
    ///
    /// # Errors
    /// [`Refused`]; the value may be there all the same.
    pub fn put(&mut self, now: Millis, key: &str, value: Option<String>) -> Result<(), Refused> {
        let writes = self.keys.entry(key.to_owned()).or_default();
        if writes.last().is_some_and(|last| now < last.at + 1_000) {
            return Err(Refused::TooMany);
        }
        let fails = self.dice.chance(self.faults.write_fails);
        if fails && self.dice.chance(500) {
            return Err(Refused::Failed);
        }
        writes.push(Write { at: now, value, salt: self.dice.throw(), stale: self.dice.chance(self.faults.stale) });
        if fails { Err(Refused::Failed) } else { Ok(()) }
    }

    /// Reads keys at a location, in one bulk read. `None`: the read failed.
    pub fn read(&mut self, now: Millis, location: usize, keys: &[String]) -> Option<Vec<Option<String>>> {
        if self.dice.chance(self.faults.read_fails) {
            return None;
        }
        let machine = self.dice.below(MACHINES);
        Some(keys.iter().map(|key| self.one(now, location, machine, key)).collect())
    }

    fn one(&mut self, now: Millis, location: usize, machine: u64, key: &str) -> Option<String> {
        let place = (location, machine, key.to_owned());
        let value = match self.caches.get(&place).filter(|cached| cached.until > now) {
            Some(cached) => cached.value.clone(),
            None => {
                let value = self.seen(now, location, machine, key);
                let most = if self.dice.chance(self.faults.stale) { STALE_MS } else { CALM_MS };
                let until = now + self.dice.below(most);
                self.caches.insert(place, Cached { value: value.clone(), until });
                value
            }
        };
        if self.dice.chance(self.faults.damaged) { value.map(|text| self.damage(text)) } else { value }
    }

    /// The newest write that has reached a machine.
    fn seen(&self, now: Millis, location: usize, machine: u64, key: &str) -> Option<String> {
        let arrived = |write: &&Write| {
            let way = write.salt ^ (location as u64 + 1).wrapping_mul(0x9e37_79b9) ^ machine << 40;
            let most = if write.stale { STALE_MS } else { CALM_MS };
            write.at + Dice::new(way).below(most) <= now
        };
        self.keys.get(key)?.iter().rev().find(arrived)?.value.clone()
    }

    /// A value with one character changed, or cut.
    fn damage(&mut self, text: String) -> String {
        let mut bytes = text.into_bytes();
        let place = self.dice.place(bytes.len());
        if self.dice.chance(300) {
            bytes.truncate(place);
        } else if let Some(byte) = bytes.get_mut(place) {
            *byte = if *byte == b'A' { b'B' } else { b'A' };
        }
        String::from_utf8(bytes).unwrap_or_default()
    }
}
