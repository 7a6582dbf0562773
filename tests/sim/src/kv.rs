//! The KV, as hostile as the platform's contract allows. Each location sees a write at a time of its own, caches values
//! and absent keys, and returns an older value when another of its machines answers. Values may arrive cut or with a
//! wrong byte. A key takes one write a second.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;

use crate::dice::Dice;

/// Machines of one location, each with its own cache.
const MACHINES: u64 = 2;
/// Without faults, the longest time until a machine sees a write, and the longest life of a cached value.
const CALM_MS: u64 = 30_000;
/// The same limit for a write or cached value that is stale by a fault; both together are ten minutes.
const STALE_MS: u64 = 300_000;

/// Faults of the KV.
#[derive(Debug, Clone, Copy, Default)]
pub struct KvFaults {
    /// Reads that fail, per mille.
    pub read_fails: u64,
    /// Values that arrive damaged, per mille.
    pub damaged: u64,
    /// Writes that report a failure, per mille; half of them are stored nevertheless.
    pub write_fails: u64,
    /// Writes and cached values that are stale for up to [`STALE_MS`], per mille.
    pub stale: u64,
}

/// One write of a key.
#[derive(Debug, Clone)]
struct Write {
    at: Millis,
    value: Option<String>,
    /// Random bits from which each machine derives the time at which it sees this write.
    salt: u64,
    stale: bool,
}

#[derive(Debug, Clone)]
struct Cached {
    value: Option<String>,
    until: Millis,
}

/// The reason for which a write was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// More than one write a second (429).
    TooMany,
    /// Any other error (5xx).
    Failed,
}

/// The KV, and the view of each location.
#[derive(Debug)]
pub struct Kv {
    keys: BTreeMap<String, Vec<Write>>,
    caches: BTreeMap<(usize, u64, String), Cached>,
    dice: Dice,
    /// Faults in force now.
    pub faults: KvFaults,
}

impl Kv {
    /// An empty KV without faults.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        Self { keys: BTreeMap::new(), caches: BTreeMap::new(), dice, faults: KvFaults::default() }
    }

    /// The newest written value, as the central store has it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.keys.get(key)?.last()?.value.as_deref()
    }

    /// All keys that have a value, with their newest values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().filter_map(|(key, writes)| Some((key.as_str(), writes.last()?.value.as_deref()?)))
    }

    /// Writes a key, or deletes it.
    ///
    /// # Errors
    /// [`Refused`]; the value may be stored nevertheless.
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

    /// Reads keys at a location in one bulk read. `None`: the read failed.
    pub fn read(&mut self, now: Millis, location: usize, keys: &[String]) -> Option<Vec<Option<String>>> {
        if self.dice.chance(self.faults.read_fails) {
            return None;
        }
        let machine = self.dice.below(MACHINES);
        Some(keys.iter().map(|key| self.one(now, location, machine, key)).collect())
    }

    fn one(&mut self, now: Millis, location: usize, machine: u64, key: &str) -> Option<String> {
        let cache_key = (location, machine, key.to_owned());
        let value = match self.caches.get(&cache_key).filter(|cached| cached.until > now) {
            Some(cached) => cached.value.clone(),
            None => {
                let value = self.seen(now, location, machine, key);
                let limit = if self.dice.chance(self.faults.stale) { STALE_MS } else { CALM_MS };
                let until = now + self.dice.below(limit);
                self.caches.insert(cache_key, Cached { value: value.clone(), until });
                value
            }
        };
        if self.dice.chance(self.faults.damaged) { value.map(|text| self.damage(text)) } else { value }
    }

    /// The value of the newest write that has reached a machine.
    fn seen(&self, now: Millis, location: usize, machine: u64, key: &str) -> Option<String> {
        let arrived = |write: &&Write| {
            let seed = write.salt ^ (location as u64 + 1).wrapping_mul(0x9e37_79b9) ^ machine << 40;
            let limit = if write.stale { STALE_MS } else { CALM_MS };
            write.at + Dice::new(seed).below(limit) <= now
        };
        self.keys.get(key)?.iter().rev().find(arrived)?.value.clone()
    }

    /// Cuts a value, or changes one byte of it.
    fn damage(&mut self, text: String) -> String {
        let mut bytes = text.into_bytes();
        let index = self.dice.place(bytes.len());
        if self.dice.chance(300) {
            bytes.truncate(index);
        } else if let Some(byte) = bytes.get_mut(index) {
            *byte = if *byte == b'A' { b'B' } else { b'A' };
        }
        String::from_utf8(bytes).unwrap_or_default()
    }
}
