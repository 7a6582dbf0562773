//! Lists by key, in flat memory.

use std::cmp::Ordering;

/// A place as it is kept: there are no lists of four thousand million entries.
pub(super) fn short(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// From keys, which are in order, to lists.
#[derive(Debug, Clone)]
pub(super) struct PostingLists<K> {
    keys: Vec<K>,
    ends: Vec<u32>,
    all: Vec<u32>,
}

impl<K> PostingLists<K> {
    /// From pairs of a key and an entry of its list.
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

    /// The list of a key, which is told how it stands to others.
    pub(super) fn find(&self, order: impl Fn(&K) -> Ordering) -> &[u32] {
        self.keys.binary_search_by(order).map_or(&[], |place| self.get(place))
    }

    fn get(&self, place: usize) -> &[u32] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(place).copied().unwrap_or(start);
        self.all.get(start as usize..end as usize).unwrap_or_default()
    }
}

/// From segments to lists. A request looks up a thousand, so that the upper bits of an id say where to look for it.
#[derive(Debug, Clone)]
pub(super) struct SegmentPostings {
    postings: PostingLists<u32>,
    shift: u32,
    /// Of each value of the upper bits the first key; and behind the last.
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

/// Entries in the order of their bounds.
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

    /// Those whose bound is this number or less.
    pub(super) fn up_to(&self, number: i64) -> &[u32] {
        let end = self.bounds.partition_point(|bound| *bound <= number);
        self.entries.get(..end).unwrap_or_default()
    }

    /// Those whose bound is this number or more.
    pub(super) fn from(&self, number: i64) -> &[u32] {
        let start = self.bounds.partition_point(|bound| *bound < number);
        self.entries.get(start..).unwrap_or_default()
    }
}
