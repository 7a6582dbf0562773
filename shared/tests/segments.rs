//! Segments: laws of the map, and the packed, filtered and counted values, compared with a naive model.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::common::{NOW, law, scramble};
use causeway_shared::base::limits;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::segments::{self, PackedSegments, SegmentId, SegmentMap, SegmentState, WriteStamp};
use proptest::collection::vec;
use proptest::prelude::*;

type Write = (SegmentId, WriteStamp, SegmentState);

fn write(hours: Range<u32>) -> impl Strategy<Value = Write> {
    let attribute = (0u16..6, -3i32..3);
    let held = (hours, vec(attribute, 0..6)).prop_map(|(hour, of)| SegmentState::held(HourStamp(hour), of));
    let state = prop_oneof![4 => held, 1 => Just(SegmentState::Removed)];
    // Few ids and stamps, so that writes collide, even under one stamp.
    (0u32..30, 0u64..8, 0u64..2, state)
        .prop_map(|(id, at, order, state)| (SegmentId(id * 301), WriteStamp { at: NOW + at, order }, state))
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    vec(write(60_000..60_040), 0..80)
}

/// One millisecond later the oldest of the writes is settled, and a few milliseconds later the others.
const SETTLED: u64 = NOW + limits::FACT_AGE_MS + limits::EVENT_AGE_MS;

/// Writes that expire partly before and partly after [`SETTLED`].
fn writes_around() -> impl Strategy<Value = Vec<Write>> {
    let hour = HourStamp::at(SETTLED).0;
    vec(write(hour - 20..hour + 20), 0..80)
}

fn map(writes: &[Write]) -> SegmentMap {
    let mut map = SegmentMap::default();
    writes.iter().cloned().for_each(|(id, stamp, state)| map.write(id, stamp, state));
    map
}

/// The greatest write of each segment.
fn naive(writes: &[Write]) -> BTreeMap<SegmentId, (WriteStamp, SegmentState)> {
    let mut all: BTreeMap<SegmentId, Vec<(WriteStamp, SegmentState)>> = BTreeMap::new();
    writes.iter().cloned().for_each(|(id, stamp, state)| all.entry(id).or_default().push((stamp, state)));
    all.into_iter().map(|(id, writes)| (id, writes.into_iter().max().unwrap())).collect()
}

fn held(writes: &[Write]) -> BTreeMap<SegmentId, HourStamp> {
    let expiry = |(id, (_, state))| match state {
        SegmentState::Held { expiry, .. } => Some((id, expiry)),
        SegmentState::Removed => None,
    };
    naive(writes).into_iter().filter_map(expiry).collect()
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn join_of_segments_is_commutative_associative_idempotent(a in writes(), b in writes(), c in writes()) {
        let [a, b, c] = [map(&a), map(&b), map(&c)];
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn the_live_segments_of_several_packed_visitors_equal_those_of_their_join(of in vec(writes(), 0..4), hour in 59_999u32..60_041) {
        let maps: Vec<SegmentMap> = of.iter().map(|writes| map(writes)).collect();
        let bytes: Vec<Vec<u8>> = maps.iter().map(SegmentMap::pack).collect();
        let packed: Vec<_> = bytes.iter().map(|bytes| PackedSegments::read(bytes).unwrap()).collect();
        let all = maps.into_iter().fold(SegmentMap::default(), SegmentMap::join);
        let live = all.ids().filter(|id| all.get(*id).is_some_and(|(expiry, _)| expiry > HourStamp(hour)));
        prop_assert_eq!(segments::live_segments(&packed, HourStamp(hour)), live.collect::<Vec<_>>());
    }

    #[test]
    fn writing_many_segments_at_once_equals_writing_each(before in writes(), many in writes(), stamp in 0u64..8) {
        let stamp = WriteStamp { at: NOW + stamp, order: 1 };
        for before in [&[][..], &before] {
            let (mut at_once, mut each) = (map(before), map(before));
            at_once.write_all(stamp, many.iter().map(|(id, _, state)| (*id, state.clone())));
            many.iter().rev().for_each(|(id, _, state)| each.write(*id, stamp, state.clone()));
            prop_assert_eq!(at_once, each);
        }
    }

    #[test]
    fn the_last_writer_wins_in_any_order_and_batch(all in writes(), seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let mut shuffled = all.clone();
        shuffled.sort_by_key(|(id, stamp, _)| scramble(seed ^ u64::from(id.0) ^ stamp.at));
        let (first, second) = shuffled.split_at(cut.index(shuffled.len() + 1));
        prop_assert_eq!(map(first).join(map(second)), map(&all));
        for (id, (_, state)) in naive(&all) {
            let found = map(&all).get(id).map(|(expiry, of)| (expiry, of.to_vec()));
            let expected = match state {
                SegmentState::Held { expiry, attributes } => Some((expiry, attributes)),
                SegmentState::Removed => None,
            };
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn segments_by_freshness_by_range_and_by_recency_equal_the_naive_model(all in writes(), from in 59_990u32..60_050, span in 0u32..40, ids in (0u32..9_000, 0u32..9_000), n in 0usize..12) {
        let (map, held) = (map(&all), held(&all));
        let hours = HourStamp(from)..HourStamp(from + span);
        let (inside, outside): (Vec<_>, Vec<_>) = held.iter().map(|(id, e)| (*id, *e)).partition(|(_, e)| hours.contains(e));
        prop_assert_eq!(map.expiring(hours.clone()).collect::<Vec<_>>(), inside);
        prop_assert_eq!(map.not_expiring(hours).collect::<Vec<_>>(), outside);
        let range = SegmentId(ids.0)..=SegmentId(ids.1);
        prop_assert_eq!(map.count(range.clone()), held.keys().filter(|id| range.contains(id)).count());
        let mut newest: Vec<_> = naive(&all).into_iter().filter(|(id, _)| held.contains_key(id)).map(|(id, (stamp, _))| (stamp, id)).collect();
        newest.sort_by(|a, b| b.cmp(a));
        prop_assert_eq!(map.newest(n), newest.into_iter().take(n).map(|(_, id)| id).collect::<Vec<_>>());
    }

    #[test]
    fn a_packed_map_reads_back_and_equal_maps_pack_to_equal_bytes(all in writes()) {
        let map = map(&all);
        let bytes = map.pack();
        let read = PackedSegments::read(&bytes).unwrap();
        prop_assert_eq!(read.to_map().unwrap(), map);
        prop_assert_eq!(read.iter().collect::<BTreeMap<_, _>>(), held(&all));
        prop_assert_eq!(read.to_map().unwrap().pack(), bytes);
    }

    #[test]
    fn trim_drops_only_segments_that_no_accepted_fact_could_restore(all in writes_around(), after in 0u64..12, siblings in vec(0u32..30, 0..6)) {
        let now = SETTLED + after;
        let of_siblings: BTreeSet<SegmentId> = siblings.into_iter().map(|id| SegmentId(id * 301)).collect();
        let mut trimmed = map(&all);
        trimmed.trim(now, &of_siblings);
        let stays = |id: &SegmentId, stamp: &WriteStamp, state: &SegmentState| {
            let expired = match state { SegmentState::Held { expiry, .. } => *expiry <= HourStamp::at(now), SegmentState::Removed => true };
            !expired || stamp.at + limits::FACT_AGE_MS + limits::EVENT_AGE_MS >= now || of_siblings.contains(id)
        };
        let left = naive(&all).into_iter().filter(|(id, (stamp, state))| stays(id, stamp, state));
        let found = trimmed.writes().map(|(id, stamp, state)| (id, (stamp, state.clone())));
        prop_assert_eq!(found.collect::<Vec<_>>(), left.collect::<Vec<_>>());
    }

    #[test]
    fn bytes_that_are_not_ours_are_refused_or_harmless(all in writes(), flip in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(), noise in vec(any::<u8>(), 0..120)) {
        let bytes = map(&all).pack();
        let mut flipped = bytes.clone();
        let at = flip.index(flipped.len());
        flipped[at] ^= 1 << bit;
        for bytes in [&flipped[..], &bytes[..cut.index(bytes.len())], &noise] {
            let Some(read) = PackedSegments::read(bytes) else { continue };
            prop_assert!(read.iter().count() <= read.len());
            drop(read.to_map());
        }
        let whole = PackedSegments::read(&bytes[..cut.index(bytes.len())]).and_then(|read| read.to_map());
        prop_assert!(whole.is_none());
    }
}

fn stamp(at: u64) -> WriteStamp {
    WriteStamp { at: NOW + at, order: 1 }
}

#[test]
fn extending_a_segment_adds_hours_to_its_expiry() {
    let mut map = map(&[(SegmentId(7), stamp(0), SegmentState::held(HourStamp(60_000), [(1, 5)]))]);
    assert!(map.extend(SegmentId(7), 48, stamp(1)));
    assert_eq!(map.get(SegmentId(7)).unwrap(), (HourStamp(60_048), &[(1, 5)][..]));
    assert!(!map.extend(SegmentId(8), 48, stamp(2)), "it is not in that one");
    map.write(SegmentId(7), stamp(3), SegmentState::Removed);
    assert!(!map.extend(SegmentId(7), 48, stamp(4)));
    assert!(map.get(SegmentId(7)).is_none());
}

#[test]
fn expiries_end_with_2100_and_attributes_are_four() {
    let state = SegmentState::held(HourStamp(u32::MAX), (0..9).map(|n| (n, 1)).chain([(2, -1), (2, 9)]));
    let SegmentState::Held { expiry, attributes } = &state else { unreachable!() };
    assert_eq!((expiry.0, attributes.as_slice()), (limits::EXPIRY_HOURS, &[(0, 1), (1, 1), (2, 9), (3, 1)][..]));
    let map =
        map(&[(SegmentId(u32::MAX), stamp(0), state), (SegmentId(0), stamp(0), SegmentState::held(HourStamp(0), []))]);
    assert_eq!(PackedSegments::read(&map.pack()).unwrap().to_map().unwrap(), map);
}

#[test]
fn only_those_written_last_are_kept_and_leaving_out_commutes_with_the_join() {
    let many = |ids: Range<u32>| -> Vec<Write> {
        ids.map(|id| (SegmentId(id), stamp(scramble(id.into()) % 5_000), SegmentState::held(HourStamp(60_000), [])))
            .collect()
    };
    let (a, b) = (many(0..6_000), many(5_000..12_000));
    let at_once = map(&a.iter().chain(&b).cloned().collect::<Vec<_>>());
    assert_eq!(at_once.newest(usize::MAX).len(), limits::SEGMENTS);
    assert_eq!(map(&a).join(map(&b)), at_once);
    assert_eq!(map(&b).join(map(&a)), at_once);
}

#[test]
fn a_thousand_of_82_000_segments_take_less_than_3_3_bytes_each() {
    let writes: Vec<Write> = (0..)
        .map(|n| {
            (
                SegmentId(u32::try_from(scramble(n) % 82_000).unwrap()),
                stamp(0),
                SegmentState::held(HourStamp(60_000 + u32::try_from(scramble(n ^ 0xff) % 2_160).unwrap()), []),
            )
        })
        .take(1_010)
        .collect();
    let map = map(&writes);
    let count = map.newest(usize::MAX).len();
    let bytes = map.pack().len();
    assert!(count >= 990 && bytes * 10 <= count * 33, "{bytes} bytes for {count}");
}

#[test]
fn of_two_full_visitors_all_segments_are_live() {
    let many = |from: u32, at| {
        let mut map = SegmentMap::default();
        let held = |id| (SegmentId(id), SegmentState::held(HourStamp(60_000), []));
        map.write_all(WriteStamp { at, order: 1 }, (from..from + limits::SEGMENTS as u32).map(held));
        map
    };
    let maps = [many(0, NOW), many(4_000, NOW + 1)];
    let bytes = maps.each_ref().map(SegmentMap::pack);
    let packed = bytes.each_ref().map(|bytes| PackedSegments::read(bytes).unwrap());
    let all: Vec<SegmentId> = (0..4_000 + limits::SEGMENTS as u32).map(SegmentId).collect();
    assert_eq!(segments::live_segments(&packed, HourStamp(59_999)), all);
}

/// A map with `count` segments from an id on, all written at one time and held until one hour.
fn many(from: u32, count: usize, at: u64, hour: u32) -> SegmentMap {
    let mut map = SegmentMap::default();
    let ids = from..from + u32::try_from(count).unwrap();
    let held = |id| (SegmentId(id), SegmentState::held(HourStamp(hour), []));
    map.write_all(WriteStamp { at: NOW + at, order: 1 }, ids.map(held));
    map
}

#[test]
fn that_segments_were_evicted_is_the_same_in_any_order() {
    // The second part has the latest expiry, until the fourth part replaces it.
    let parts = [
        many(0, 6_000, 2, 60_000),
        many(6_000, 3_000, 1, 70_000),
        many(20_000, 2_000, 3, 60_500),
        many(6_000, 3_000, 4, 60_100),
    ];
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]];
    let joined =
        orders.map(|order| order.iter().fold(SegmentMap::default(), |all, place| all.join(parts[*place].clone())));
    assert!(joined.iter().all(|map| *map == joined[0] && map.is_full() && map.len() == limits::SEGMENTS));
    let [a, b, c, d] = parts;
    assert_eq!(a.join(b).join(c.join(d)), joined[0]);
    assert_eq!(joined[0].clone().join(joined[0].clone()), joined[0]);
    let packed = joined[0].pack();
    assert_eq!(PackedSegments::read(&packed).unwrap().to_map().unwrap(), joined[0]);
    let cut = PackedSegments::read(&packed[..packed.len() - 3]).and_then(|read| read.to_map());
    assert_eq!(cut, None, "all of the last number");
}

#[test]
fn a_trimmed_map_says_that_segments_were_evicted_until_none_of_them_can_hold() {
    let hours = [1, 24].map(|days: u32| HourStamp::at(SETTLED).0 + days * 24);
    let mut map = many(0, 2, 0, hours[1]);
    map = map.join(many(2, limits::SEGMENTS, 1, hours[0]));
    assert_eq!((map.len(), map.get(SegmentId(0))), (limits::SEGMENTS, None));
    let day = |days: u64| SETTLED + days * 86_400_000 + 1_000;
    map.trim(day(2), &BTreeSet::new());
    let packed = map.pack();
    let mut map = PackedSegments::read(&packed).unwrap().to_map().unwrap();
    assert_eq!((map.len(), map.is_full(), map.is_empty()), (0, true, false), "the evicted ones hold for some weeks");
    map.trim(day(24), &BTreeSet::new());
    assert_eq!(map, SegmentMap::default());
}
