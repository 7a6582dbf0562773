//! The writes that make the stored people equal to the decided ones.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::identity::people::{LinkedPeople, LinkedPerson};

use crate::identity::neighbourhood::{EvidenceNeighbourhood, newest_visitors, oldest_visitors, stored_visitor};
use crate::identity::stored_person::{StoredPerson, load_person};
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo};

/// A person that differs from the store.
#[derive(Debug)]
pub(super) struct PlannedPerson {
    pub(super) person: LinkedPerson,
    /// Weights of its visitors that are linked by less than a login.
    pub(super) weights: BTreeMap<VisitorId, EvidenceWeight>,
    /// Number of further visitors that point to its row and stay there.
    pub(super) unseen: u64,
    /// Rows that its visitors point to now.
    pub(super) from: BTreeSet<PersonNo>,
    /// The row that it takes over; `None` if it needs a new one.
    pub(super) row: Option<PersonNo>,
    /// The row whose random bytes it retains.
    pub(super) heir_of: Option<PersonNo>,
    /// Visitors that shared a person with one of its visitors and no longer do, the most recently active first.
    pub(super) left: Vec<VisitorId>,
}

/// A row that some visitors leave while others, which are not examined, stay.
#[derive(Debug)]
pub(super) struct LeftRow {
    pub(super) master: VisitorId,
    pub(super) devices: u64,
    /// The visitors that left, the most recently active first.
    pub(super) gone: Vec<VisitorId>,
}

/// The planned people, and the rows that no planned person takes over.
pub(super) type Plan = (Vec<PlannedPerson>, BTreeMap<PersonNo, LeftRow>);

/// The people that differ from the store, each with the row that it takes over: the row with its master first,
/// otherwise any free row that its visitors point to.
pub(super) fn plan_people(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    around: &EvidenceNeighbourhood,
    found: &LinkedPeople,
    of_rows: bool,
) -> Result<Plan, StoreError> {
    let mut planning = PeoplePlanner { group, tenant, around, of_rows, old: BTreeMap::new(), taken: BTreeSet::new() };
    for (visitor, stored) in &around.stored {
        planning.old.entry(stored.person).or_default().push(*visitor);
    }
    let activity = |v: &VisitorId| (std::cmp::Reverse(around.stored.get(v).map(|s| s.last_seen)), *v);
    planning.old.values_mut().for_each(|members| members.sort_by_key(activity));
    let mut planned = Vec::new();
    for person in &found.people {
        let weights = person.members.iter().filter_map(|v| Some((*v, *found.weights.get(v)?))).collect();
        planned.extend(planning.differing(person, weights)?);
    }
    let left = planning.left()?;
    planning.give_rows(&mut planned)?;
    Ok((planned, left))
}

struct PeoplePlanner<'a, 'g> {
    group: &'a WriteTxn<'g>,
    tenant: TenantNo,
    around: &'a EvidenceNeighbourhood,
    of_rows: bool,
    /// The visitors of each row, the most recently active first.
    old: BTreeMap<PersonNo, Vec<VisitorId>>,
    /// Rows that a person continues.
    taken: BTreeSet<PersonNo>,
}

impl PeoplePlanner<'_, '_> {
    fn unseen(&self, row: PersonNo) -> u64 {
        self.around.unseen.get(&row).copied().unwrap_or(0)
    }

    fn weight(&self, visitor: &VisitorId) -> EvidenceWeight {
        self.around.stored.get(visitor).map_or(EvidenceWeight::NOTHING, |stored| stored.weight)
    }

    fn seen(&self, row: PersonNo) -> impl Iterator<Item = &VisitorId> {
        self.old.get(&row).into_iter().flatten()
    }

    /// The plan for a person; `None` if it equals the store.
    fn differing(
        &mut self,
        person: &LinkedPerson,
        weights: BTreeMap<VisitorId, EvidenceWeight>,
    ) -> Result<Option<PlannedPerson>, StoreError> {
        let row_of = |visitor: &VisitorId| self.around.stored.get(visitor).map(|stored| stored.person);
        let from: BTreeSet<PersonNo> = person.members.iter().filter_map(row_of).collect();
        let speaks = |visitor: &&VisitorId| self.around.representatives.contains(visitor);
        let stays = person.members.iter().filter(speaks).filter_map(row_of).find(|row| self.unseen(*row) > 0);
        let mut person = person.clone();
        let unseen = stays.map_or(0, |row| self.unseen(row));
        if let Some(row) = stays {
            self.taken.insert(row);
            let oldest = self.oldest_unseen(row, &person.members)?;
            person.master = oldest.map_or(person.master, |oldest| oldest.min(person.master));
        }
        let weight = match stored_visitor(self.group, self.tenant, person.master)? {
            Some(stored) if !person.members.contains(&person.master) => stored.weight,
            _ => weights.get(&person.master).copied().unwrap_or(EvidenceWeight::LOGIN),
        };
        let right = StoredPerson { master: person.master, devices: person.members.len() as u64 + unseen, weight };
        if let Some(row) = from.first().filter(|_| from.len() == 1)
            && (stays.is_some() || self.unseen(*row) == 0)
            && self.seen(*row).all(|visitor| person.members.contains(visitor))
            && person.members.iter().all(|v| self.weight(v) == weights.get(v).copied().unwrap_or(EvidenceWeight::LOGIN))
            && load_person(self.group, self.tenant, *row)? == Some(right)
        {
            return Ok(None);
        }
        // The most recently active visitors of each row suffice, because no more cuts are stored.
        let mut left = Vec::new();
        for row in &from {
            let others: Vec<VisitorId> = if stays == Some(*row) || self.unseen(*row) == 0 {
                self.seen(*row).copied().collect()
            } else {
                newest_visitors(self.group, *row, limits::CUTS + person.members.len())?
            };
            left.extend(others.into_iter().filter(|v| !person.members.contains(v)).take(limits::CUTS));
        }
        let activity = |v: &VisitorId| (std::cmp::Reverse(self.around.stored.get(v).map(|s| s.last_seen)), *v);
        left.sort_by_key(activity);
        Ok(Some(PlannedPerson { person, weights, unseen, from, row: stays, heir_of: None, left }))
    }

    /// The oldest visitor of a row outside the neighbourhood; `None` if a visitor in `stay` is older.
    fn oldest_unseen(&self, row: PersonNo, stay: &BTreeSet<VisitorId>) -> Result<Option<VisitorId>, StoreError> {
        let is_seen = |visitor: &VisitorId| self.around.stored.contains_key(visitor);
        let known = if self.of_rows { None } else { load_person(self.group, self.tenant, row)? };
        match known {
            Some(StoredPerson { master, .. }) if !is_seen(&master) => Ok(Some(master)),
            Some(StoredPerson { master, .. }) if stay.contains(&master) => Ok(None),
            known => {
                let seen = self.seen(row).count() as u64;
                let master = known.map(|known| known.master);
                oldest_visitors(self.group, self.tenant, row, master, self.unseen(row) + seen, is_seen)
            }
        }
    }

    /// Rows in which only unseen visitors stay.
    fn left(&mut self) -> Result<BTreeMap<PersonNo, LeftRow>, StoreError> {
        let mut left = BTreeMap::new();
        for (row, unseen) in &self.around.unseen {
            // A row of another tenant, or a missing row, cannot keep them.
            if self.taken.insert(*row)
                && load_person(self.group, self.tenant, *row)?.is_some()
                && let Some(master) = self.oldest_unseen(*row, &BTreeSet::new())?
            {
                let gone = self.seen(*row).copied().collect();
                left.insert(*row, LeftRow { master, devices: *unseen, gone });
            }
        }
        Ok(left)
    }

    fn give_rows(&mut self, planned: &mut [PlannedPerson]) -> Result<(), StoreError> {
        let (group, tenant) = (self.group, self.tenant);
        for with_master in [true, false] {
            for p in planned.iter_mut().filter(|p| p.row.is_none()) {
                for row in &p.from {
                    let fits = load_person(group, tenant, *row)?
                        .is_some_and(|known| !with_master || known.master == p.person.master);
                    if fits && self.taken.insert(*row) {
                        p.row = Some(*row);
                        break;
                    }
                }
            }
        }
        // When people become one, the earliest row's random bytes stay, even if an older visitor joins; but never those
        // of a row that continues as another person.
        for p in planned {
            for row in &p.from {
                let is_there = load_person(group, tenant, *row)?.is_some();
                if is_there && (p.row == Some(*row) || self.taken.insert(*row)) {
                    p.heir_of = Some(*row);
                    break;
                }
            }
        }
        Ok(())
    }
}
