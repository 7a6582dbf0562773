//! A thousand segments of 82,000, and a filter by expiry.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;

use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::segments::{PackedSegments, SegmentId, SegmentMap, SegmentState, WriteStamp};
use wasm_bindgen::prelude::wasm_bindgen;

/// Number of segments of a browser.
pub const SEGMENTS: usize = 1_000;
/// Number of segment ids.
const OF: u64 = 82_000;
/// The hour of the first expiry.
const FIRST: u32 = 69_000;
/// Range of the expiries in hours: 90 days.
const SPREAD: u64 = 90 * 24;
/// The range of expiries that count as fresh.
pub const FRESH: Range<u32> = FIRST + 24 * 7..FIRST + 24 * 30;

/// The segments, each with its expiry.
#[must_use]
pub fn held() -> BTreeMap<u32, u32> {
    let mut held = BTreeMap::new();
    let mut bits = 7u64;
    while held.len() < SEGMENTS {
        // Knuth's 64-bit linear congruential generator (MMIX).
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        held.insert((bits >> 33).wrapping_rem(OF) as u32, FIRST + ((bits >> 12).wrapping_rem(SPREAD) as u32));
    }
    held
}

/// The segments of two browsers, each with every other segment.
#[must_use]
pub fn halves() -> [Vec<u8>; 2] {
    let half = |half| held().into_iter().enumerate().filter(move |(n, _)| n % 2 == half).map(|(_, one)| one);
    [0, 1].map(|of| pack(half(of)))
}

/// The packed segments.
#[must_use]
pub fn pack(held: impl IntoIterator<Item = (u32, u32)>) -> Vec<u8> {
    let mut map = SegmentMap::default();
    for (id, expiry) in held {
        map.write(
            SegmentId(id),
            WriteStamp { at: 1_795_000_000_000, order: 1 },
            SegmentState::held(HourStamp(expiry), []),
        );
    }
    map.pack()
}

/// The sum of the ids of the fresh segments; 0 if the bytes cannot be read.
#[must_use]
pub fn fresh(packed: &[u8]) -> u64 {
    let Some(read) = PackedSegments::read(packed) else { return 0 };
    read.iter().filter(|(_, expiry)| FRESH.contains(&expiry.0)).map(|(id, _)| u64::from(id.0)).sum()
}

/// Decoding and filtering by freshness.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Segments {
    packed: Vec<u8>,
}

#[wasm_bindgen]
impl Segments {
    /// With the segments of [`held`].
    #[must_use]
    #[expect(clippy::new_without_default, reason = "JavaScript's `new`, which takes a count elsewhere")]
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self { packed: pack(held()) }
    }

    /// Filters `times` times; returns the sum of the ids of the fresh segments.
    #[must_use]
    pub fn run(&self, times: u32) -> u32 {
        (0..times).fold(0, |_, _| fresh(black_box(&self.packed)) as u32)
    }
}
