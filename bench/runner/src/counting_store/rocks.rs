//! RocksDB with the layout of Pinterest's user action counting: `[user][bucket type][bucket id]` → the events of that
//! time in the order of arrival. Repeats are removed when they are counted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;
use causeway_bench_wasm::counting::events;
use causeway_shared::base::time::Day;
use causeway_shared::facts::actions::{ActionQuestion, AdAction, AdLevel, Counts};
use rocksdb::{BlockBasedOptions, Cache, DB, Options, ReadOptions};

use crate::asked::Asked;

/// Bytes of a key: user, bucket type, bucket.
const KEY: usize = 8 + 1 + 4;
/// Bytes of an event: insertion, action type, view type, and the four levels.
const EVENT: usize = 6 + 1 + 1 + 4 * 4;
/// Bytes of the block cache, in which all read data fits.
const CACHE: usize = 1 << 30;
const BY_DAY: u8 = b'D';

/// The database. Of the three bucket types it has days only, which a question about days reads.
pub(super) struct Rocks(DB);

impl Rocks {
    /// Stores the actions of visitors, repeats included, and compacts the database.
    pub(super) fn fill(folder: &Path, visitors: RangeInclusive<u64>, actions: u64) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(CACHE));
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        let db = DB::open(&options, folder.join("rocks"))?;
        for seed in visitors {
            let mut made = events(actions, seed);
            made.sort_by_key(|action| action.minute);
            for of_day in made.chunk_by(|a, b| a.minute.day() == b.minute.day()) {
                let Some(first) = of_day.first() else { continue };
                let bytes: Vec<u8> = of_day.iter().flat_map(event).collect();
                db.put(key(i64::try_from(seed)?, first.minute.day()), bytes)?;
            }
        }
        db.flush()?;
        db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(Self(db))
    }

    /// Reads the question's range, which must be whole days, leaves out repeats, and counts.
    pub(super) fn count(&self, visitor: i64, asked: &Asked, to: &mut Vec<Counts>) -> Result<()> {
        let action_types = asked.question.action_types;
        let mut counts: HashMap<u64, u32, BuildHasherDefault<Scatter>> =
            HashMap::with_capacity_and_hasher(asked.candidates.len() * 8, BuildHasherDefault::default());
        for entity in &asked.candidates {
            for level in AdLevel::ALL {
                counts.insert(place(level, entity.at(level)), 0);
            }
        }
        let mut events: Vec<[u8; EVENT]> = Vec::new();
        self.each(visitor, asked, |bucket| {
            events.clear();
            events.extend_from_slice(bucket.as_chunks().0);
            events.sort_unstable();
            events.dedup();
            for event in &events {
                let (what, levels) = event.split_at(8);
                if what.get(6).is_some_and(|action_type| action_types.iter().any(|of| of.0 == *action_type)) {
                    for (level, code) in AdLevel::ALL.into_iter().zip(levels.as_chunks().0) {
                        counts.entry(place(level, u32::from_le_bytes(*code))).and_modify(|count| *count += 1);
                    }
                }
            }
        })?;
        let at = |level, code| counts.get(&place(level, code)).copied().unwrap_or_default();
        to.extend(asked.candidates.iter().map(|entity| AdLevel::ALL.map(|level| at(level, entity.at(level)))));
        Ok(())
    }

    /// Reads the question's range without counting.
    pub(super) fn skim(&self, visitor: i64, asked: &Asked) -> Result<()> {
        self.each(visitor, asked, |bucket| {
            black_box(bucket.len());
        })
    }

    /// Calls `found` with each bucket of the question's range, in RocksDB's memory.
    fn each(&self, visitor: i64, asked: &Asked, mut found: impl FnMut(&[u8])) -> Result<()> {
        let ActionQuestion { from, to, .. } = asked.question;
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(key(visitor, to.day()));
        let mut buckets = self.0.raw_iterator_opt(read);
        buckets.seek(key(visitor, from.day()));
        while let Some(bucket) = buckets.value() {
            found(bucket);
            buckets.next();
        }
        Ok(buckets.status()?)
    }
}

fn key(visitor: i64, day: Day) -> [u8; KEY] {
    let mut key = [0; KEY];
    let bytes = visitor.to_be_bytes().into_iter().chain([BY_DAY]).chain(u32::from(day.0).to_be_bytes());
    key.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    key
}

fn event(action: &AdAction) -> impl Iterator<Item = u8> {
    let levels = AdLevel::ALL.map(|level| action.entity.at(level).to_le_bytes());
    let what = [action.action_type.0, action.view_type.0];
    action.insertion.0.into_iter().chain(what).chain(levels.into_iter().flatten())
}

fn place(level: AdLevel, code: u32) -> u64 {
    (level as u64 + 1) << 32 | u64::from(code)
}

/// The hash function of the origin for such keys, so that hashing does not slow down the peer.
#[derive(Debug, Default)]
struct Scatter(u64);

impl Hasher for Scatter {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, n: u64) {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The hash table takes its index from the low bits and a tag from the high bits.
        self.0 = mixed ^ (mixed >> 32);
    }
}
