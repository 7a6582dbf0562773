//! A partition of the audience index: the rows of some buckets.

use std::collections::HashMap;
use std::ops::Range;

use super::numbers::{self, NumberColumn, room};
use super::rows::RowSet;
use crate::base::ids::VisitorId;
use crate::base::random;
use crate::facts::segments::SegmentId;

/// Marks a dead row in `buckets`.
const DEAD: u16 = u16::MAX;

/// A partition; at most 65,536 rows.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexPartition {
    pub(super) people: Vec<u64>,
    pub(super) masters: Vec<VisitorId>,
    pub(super) buckets: Vec<u16>,
    /// Fingerprint of each row's segments.
    pub(super) prints: Vec<u64>,
    pub(super) columns: Vec<NumberColumn>,
    /// The rows of each segment.
    pub(super) segments: HashMap<SegmentId, RowSet>,
    pub(super) dead: usize,
    /// The buckets whose people belong here.
    pub(super) of: Range<u16>,
}

/// Fingerprint of a set of segments.
fn fingerprint(segments: &[SegmentId]) -> u64 {
    let length = segments.len() as u64;
    segments.iter().fold(length, |sum, id| random::finish(sum.wrapping_add(random::GAMMA) ^ u64::from(id.0)))
}

impl IndexPartition {
    pub(super) fn of(buckets: Range<u16>) -> Self {
        Self { of: buckets, ..Self::default() }
    }

    /// Number of rows, dead ones included.
    pub(super) fn rows(&self) -> usize {
        self.people.len()
    }

    pub(super) fn live(&self) -> usize {
        self.people.len() - self.dead
    }

    /// Slots of the live rows, each with its person.
    pub(super) fn living(&self) -> Vec<(usize, u64)> {
        let rows = self.people.iter().zip(&self.buckets).enumerate();
        rows.filter(|(_, (_, bucket))| **bucket != DEAD).map(|(slot, (person, _))| (slot, *person)).collect()
    }

    pub(super) fn people(&self) -> impl Iterator<Item = u64> + '_ {
        self.people.iter().copied()
    }

    /// Person of a row, and the person's oldest visitor.
    pub(super) fn person_at(&self, slot: usize) -> Option<(u64, VisitorId)> {
        Some((*self.people.get(slot)?, *self.masters.get(slot)?))
    }

    pub(super) fn buckets(&self) -> &[u16] {
        &self.buckets
    }

    pub(super) fn column(&self, place: usize) -> Option<&NumberColumn> {
        self.columns.get(place)
    }

    /// Rows of a segment; `None` if there are none.
    pub(super) fn segment(&self, id: SegmentId) -> Option<&RowSet> {
        self.segments.get(&id)
    }

    pub(super) fn has_dead(&self) -> bool {
        self.dead > 0
    }

    /// Whether all buckets of the partition are among these.
    pub(super) fn lies_in(&self, buckets: &Range<u16>) -> bool {
        self.of.start >= buckets.start && self.of.end <= buckets.end
    }

    /// Whether a row has this bucket and these segments.
    pub(super) fn is(&self, slot: usize, bucket: u16, segments: &[SegmentId]) -> bool {
        self.buckets.get(slot) == Some(&bucket) && self.prints.get(slot) == Some(&fingerprint(segments))
    }

    /// Appends a row without numbers.
    pub(super) fn append(&mut self, person: u64, bucket: u16, segments: &[SegmentId]) -> usize {
        let slot = self.people.len();
        room(&mut self.people);
        self.people.push(person);
        room(&mut self.masters);
        self.masters.push(VisitorId::ANONYMOUS);
        room(&mut self.buckets);
        self.buckets.push(bucket);
        room(&mut self.prints);
        self.prints.push(fingerprint(segments));
        for id in segments {
            self.segments.entry(*id).or_insert(RowSet::NONE).push(slot as u16);
        }
        slot
    }

    /// Writes a row's numbers, given by column index; all other columns of the row are emptied.
    pub(super) fn write(&mut self, slot: usize, master: VisitorId, says: &[(usize, i64)]) {
        self.masters.iter_mut().skip(slot).take(1).for_each(|at| *at = master);
        if let Some((last, _)) = says.last()
            && self.columns.len() <= *last
        {
            self.columns.resize(*last + 1, NumberColumn::default());
        }
        let mut says = says.iter().peekable();
        for (place, column) in self.columns.iter_mut().enumerate() {
            let number = says.next_if(|(at, _)| *at == place).map(|(_, number)| *number);
            column.put(slot, number);
        }
    }

    /// Marks a row as dead and clears it, because its person may be erased.
    pub(super) fn kill(&mut self, slot: usize) {
        for bucket in self.buckets.iter_mut().skip(slot).take(1) {
            if *bucket != DEAD {
                self.dead += 1;
            }
            *bucket = DEAD;
        }
        self.write(slot, VisitorId::ANONYMOUS, &[]);
    }

    /// Numbers of the live rows in a column; dead rows have none.
    pub(super) fn numbers_of(&self, column: usize) -> impl Iterator<Item = i64> + '_ {
        let column = self.columns.get(column);
        (0..self.rows()).filter_map(move |slot| column?.get(slot))
    }

    /// Empties the two columns of an event's counts, and marks the rows that had a count in a third column.
    pub(super) fn stop_counting(&mut self, count: usize, last: usize, uncounted: usize) {
        let had = |slot: &usize| self.columns.get(count).is_some_and(|column| column.get(*slot).is_some());
        let slots: Vec<usize> = (0..self.rows()).filter(had).collect();
        if slots.is_empty() {
            return;
        }
        if self.columns.len() <= uncounted {
            self.columns.resize(uncounted + 1, NumberColumn::default());
        }
        for (place, column) in self.columns.iter_mut().enumerate() {
            if place == count || place == last {
                *column = NumberColumn::default();
            } else if place == uncounted {
                slots.iter().for_each(|slot| column.put(*slot, Some(1)));
            }
        }
    }

    /// Removes dead rows; the other rows move up.
    pub(super) fn pack(&mut self) {
        let stays: Vec<bool> = self.buckets.iter().map(|bucket| *bucket != DEAD).collect();
        numbers::retain(&mut self.people, &stays);
        numbers::retain(&mut self.masters, &stays);
        numbers::retain(&mut self.buckets, &stays);
        numbers::retain(&mut self.prints, &stays);
        self.columns.iter_mut().for_each(|column| column.retain(&stays));
        self.dead = 0;
        let mut slots = 0..=u16::MAX;
        let moved: Vec<Option<u16>> = stays.into_iter().map(|stays| stays.then(|| slots.next()).flatten()).collect();
        self.segments.retain(|_, rows| {
            let mut packed = RowSet::NONE;
            rows.iter().filter_map(|row| *moved.get(usize::from(row))?).for_each(|row| packed.push(row));
            *rows = packed;
            *rows != RowSet::NONE
        });
    }

    /// Live people whose number in a column is at most `most`.
    pub(super) fn at_most(&self, column: usize, most: i64) -> Vec<u64> {
        let mut found = vec![0; self.rows()];
        if let Some(column) = self.columns.get(column) {
            column.within(&(i64::MIN..=most), false, &mut found);
        }
        let rows = found.iter().zip(&self.buckets).zip(&self.people);
        rows.filter(|((found, bucket), _)| **found == 1 && **bucket != DEAD).map(|(_, person)| *person).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        let a_row = size_of::<u64>() * 2 + size_of::<VisitorId>() + size_of::<u16>();
        let segments = self.segments.capacity() * size_of::<(SegmentId, RowSet)>()
            + self.segments.values().map(RowSet::bytes).sum::<usize>();
        self.people.capacity() * a_row + self.columns.iter().map(NumberColumn::bytes).sum::<usize>() + segments
    }
}
