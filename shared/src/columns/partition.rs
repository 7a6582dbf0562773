//! The rows of some buckets.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::numbers::{self, Numbers};
use crate::ids::VisitorId;
use crate::segments::SegmentId;

/// The bucket of a dead row.
const DEAD: u16 = u16::MAX;

/// At most 65,536 rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Partition {
    people: Vec<u64>,
    masters: Vec<VisitorId>,
    buckets: Vec<u16>,
    /// Of each row's segments.
    prints: Vec<u64>,
    columns: Vec<Numbers>,
    dead: usize,
}

/// Tells sets of segments apart.
pub(super) fn print(segments: &[SegmentId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    segments.hash(&mut hasher);
    hasher.finish()
}

impl Partition {
    /// Rows, dead ones among them.
    pub(super) fn rows(&self) -> usize {
        self.people.len()
    }

    pub(super) fn live(&self) -> usize {
        self.people.len() - self.dead
    }

    pub(super) fn people(&self) -> impl Iterator<Item = u64> + '_ {
        self.people.iter().copied()
    }

    /// Who has a row, and its oldest visitor.
    pub(super) fn who(&self, slot: usize) -> Option<(u64, VisitorId)> {
        Some((*self.people.get(slot)?, *self.masters.get(slot)?))
    }

    pub(super) fn buckets(&self) -> &[u16] {
        &self.buckets
    }

    pub(super) fn column(&self, place: usize) -> Option<&Numbers> {
        self.columns.get(place)
    }

    /// Whether a row has this bucket and these segments.
    pub(super) fn is(&self, slot: usize, bucket: u16, print: u64) -> bool {
        self.buckets.get(slot) == Some(&bucket) && self.prints.get(slot) == Some(&print)
    }

    /// One more row, which says nothing yet.
    pub(super) fn append(&mut self, person: u64, bucket: u16, print: u64) -> usize {
        self.people.push(person);
        self.masters.push(VisitorId::NOBODY);
        self.buckets.push(bucket);
        self.prints.push(print);
        self.people.len() - 1
    }

    /// What a row says, by the places of columns; the other columns say nothing of it.
    pub(super) fn write(&mut self, slot: usize, master: VisitorId, says: &BTreeMap<usize, i64>) {
        self.masters.iter_mut().skip(slot).take(1).for_each(|at| *at = master);
        if let Some((last, _)) = says.last_key_value()
            && self.columns.len() <= *last
        {
            self.columns.resize(*last + 1, Numbers::default());
        }
        let mut says = says.iter().peekable();
        for (place, column) in self.columns.iter_mut().enumerate() {
            let number = says.next_if(|(at, _)| **at == place).map(|(_, number)| *number);
            column.put(slot, number);
        }
    }

    pub(super) fn kill(&mut self, slot: usize) {
        for bucket in self.buckets.iter_mut().skip(slot).take(1) {
            if *bucket != DEAD {
                self.dead += 1;
            }
            *bucket = DEAD;
        }
    }

    /// Leaves dead rows out; gives each old row's new slot.
    pub(super) fn pack(&mut self) -> Vec<Option<u16>> {
        let stays: Vec<bool> = self.buckets.iter().map(|bucket| *bucket != DEAD).collect();
        numbers::retain(&mut self.people, &stays);
        numbers::retain(&mut self.masters, &stays);
        numbers::retain(&mut self.buckets, &stays);
        numbers::retain(&mut self.prints, &stays);
        self.columns.iter_mut().for_each(|column| column.retain(&stays));
        self.dead = 0;
        let mut slots = 0..=u16::MAX;
        stays.into_iter().map(|stays| stays.then(|| slots.next()).flatten()).collect()
    }

    /// Living people whose number in a column is this or less.
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
        self.people.capacity() * a_row + self.columns.iter().map(Numbers::bytes).sum::<usize>()
    }
}
