//! Lists by key, in contiguous memory.

use std::cmp::Ordering;

/// An index as it is stored; no list has 2^32 entries.
pub(super) fn short(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Map from sorted keys to lists.
#[derive(Debug, Clone)]
pub(super) struct PostingLists<K> {
    keys: Vec<K>,
    ends: Vec<u32>,
    all: Vec<u32>,
}

impl<K> PostingLists<K> {
    /// Builds the map from pairs of a key and an entry.
    pub(super) fn new<T: Ord + Copy>(mut pairs: Vec<(T, u32)>, own: impl Fn(T) -> K) -> Self {
        pairs.sort_unstable();
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        let mut place = 0;
        for same in pairs.chunk_by(|one, next| one.0 == next.0) {
            keys.extend(same.first().map(|(key, _)| own(*key)));
            place += same.len();
            ends.push(short(place));
        }
        Self { keys, ends, all: pairs.into_iter().map(|(_, entry)| entry).collect() }
    }

    /// The list of a key; `order` compares a stored key with the wanted one.
    pub(super) fn find(&self, order: impl Fn(&K) -> Ordering) -> &[u32] {
        self.keys.binary_search_by(order).map_or(&[], |place| self.get(place))
    }

    fn get(&self, place: usize) -> &[u32] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(place).copied().unwrap_or(start);
        self.all.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// Map from segments to lists. A request looks up about a thousand segments, so that the upper bits of an id select the
/// range to search.
#[derive(Debug, Clone)]
pub(super) struct SegmentPostings {
    postings: PostingLists<u32>,
    shift: u32,
    /// Index of the first key for each value of the upper bits, and of the end.
    starts: Vec<u32>,
}

impl SegmentPostings {
    pub(super) fn new(pairs: Vec<(u32, u32)>) -> Self {
        let postings = PostingLists::new(pairs, |id| id);
        let keys = &postings.keys;
        let last = keys.last().copied().unwrap_or(0);
        let wanted = (keys.len() * 2).next_power_of_two().trailing_zeros();
        let shift = (u32::BITS - last.leading_zeros()).saturating_sub(wanted);
        let mut place = 0;
        let starts = (0..=(last >> shift) + 1).map(|bucket| {
            place += keys.get(place..).unwrap_or_default().iter().take_while(|key| **key >> shift < bucket).count();
            short(place)
        });
        Self { shift, starts: starts.collect(), postings }
    }

    /// The list of a segment.
    pub(super) fn find(&self, id: u32) -> &[u32] {
        let bucket = (id >> self.shift) as usize;
        let Some([start, end]) = self.starts.get(bucket..).and_then(|starts| starts.first_chunk()) else { return &[] };
        let keys = self.postings.keys.get(*start as usize..*end as usize).unwrap_or_default();
        keys.binary_search(&id).map_or(&[], |place| self.postings.get(*start as usize + place))
    }
}

/// Entries in order of their bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct BoundList {
    bounds: Vec<i64>,
    entries: Vec<u32>,
}

impl BoundList {
    pub(super) fn new(mut pairs: Vec<(i64, u32)>) -> Self {
        pairs.sort_unstable();
        let (bounds, entries) = pairs.into_iter().unzip();
        Self { bounds, entries }
    }

    /// Entries with a bound of at most `number`.
    pub(super) fn up_to(&self, number: i64) -> &[u32] {
        let end = self.bounds.partition_point(|bound| *bound <= number);
        self.entries.get(..end).unwrap_or_default()
    }

    /// Entries with a bound of at least `number`.
    pub(super) fn from(&self, number: i64) -> &[u32] {
        let start = self.bounds.partition_point(|bound| *bound < number);
        self.entries.get(start..).unwrap_or_default()
    }
}
