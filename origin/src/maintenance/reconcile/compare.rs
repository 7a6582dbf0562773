//! Compares the people that the evidence gives with the stored people.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::identity::people::{DecidedClaims, FlagReason, NONE};
use rusqlite::Connection;

use super::gather::VisitorPosition;
use super::{DifferenceCause, PersonDifference, ReconcilePlan, RepresentativeRepair};
use crate::store::tables::people;
use crate::store::tenants::Tenants;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};

/// Both sides of the comparison, by visitor number.
struct ComparedSides<'a> {
    visitors: &'a [VisitorPosition],
    decided: DecidedClaims,
    /// Number of visitors by master.
    sizes: Vec<u32>,
    /// People with more visitors than one repair reads, by master.
    large: BTreeMap<u32, LargePerson>,
    /// The large person by its row.
    homes: BTreeMap<u32, u32>,
    found: Found,
}

/// A large person. A repair reads only its wrong visitors.
#[derive(Debug, Clone, Copy, Default)]
struct LargePerson {
    /// The row with most of its visitors, unless that row belongs to another large person.
    home: Option<u32>,
    /// A visitor in that row that holds its unique id; without such a row, any holder.
    representative: Option<u32>,
}

/// A row of `people`.
struct StoredRow {
    person: i64,
    tenant: TenantNo,
    master: VisitorId,
    devices: i64,
    weight: EvidenceWeight,
}

/// The differences by master, start visitor and cause, with the number of visitors in the row at fault.
type Found = BTreeMap<(u32, u32, DifferenceCause), usize>;

/// Counts the people and finds the differences. `stored` is the flagged evidence of the store.
pub(super) fn compare_people(
    conn: &Connection,
    tenants: &Tenants,
    visitors: &[VisitorPosition],
    mut decided: DecidedClaims,
    stored: Vec<(u32, u32, FlagReason)>,
) -> Result<ReconcilePlan, StoreError> {
    let flags = std::mem::take(&mut decided.flags);
    let mut sizes = vec![0_u32; decided.masters.len()];
    for master in &decided.masters {
        sizes.iter_mut().skip(*master as usize).take(1).for_each(|size| *size += 1);
    }
    let mut sides =
        ComparedSides { visitors, decided, sizes, large: BTreeMap::new(), homes: BTreeMap::new(), found: Found::new() };
    let mut of_row: Vec<(u32, u32)> = visitors.iter().map(|at| at.person).zip(0..).collect();
    of_row.sort_unstable();
    sides.find_large(tenants, &of_row);
    sides.flags(flags, stored);
    sides.weights();
    let mut empty = Vec::new();
    let mut groups = of_row.chunk_by(|one, next| one.0 == next.0).peekable();
    each_row(conn, |row| {
        while let Some(lost) = groups.next_if(|group| smallest_person(group) < row.person) {
            sides.lost(lost);
        }
        match groups.next_if(|group| smallest_person(group) == row.person) {
            Some(group) => sides.row(group, &row),
            None if tenants.by_no(row.tenant).is_ok() => {
                let StoredRow { person, tenant, master, .. } = row;
                let row = Some(PersonNo(person));
                let (cause, start) = (DifferenceCause::Empty, master);
                empty.push(PersonDifference {
                    cause,
                    tenant,
                    master,
                    visitors: 0,
                    start,
                    around: 0,
                    is_too_large: false,
                    row,
                });
            }
            None => {}
        }
    })?;
    groups.for_each(|lost| sides.lost(lost));
    let people = sides.sizes.iter().filter(|size| **size > 0).count() as u64;
    let differences = sides.found.iter().filter_map(|(what, there)| sides.difference(*what, *there)).chain(empty);
    let differences: Vec<PersonDifference> = differences.collect();
    let wrong: BTreeSet<u32> = sides.found.keys().map(|(master, ..)| *master).collect();
    let speakers = wrong.into_iter().filter_map(|master| sides.speaking(master)).collect();
    Ok(ReconcilePlan { people, differences, representatives: speakers, ..ReconcilePlan::default() })
}

impl ComparedSides<'_> {
    fn master(&self, visitor: u32) -> u32 {
        self.decided.masters.get(visitor as usize).copied().unwrap_or(visitor)
    }

    fn size(&self, master: u32) -> u32 {
        self.sizes.get(master as usize).copied().unwrap_or(0)
    }

    fn tenant(&self, visitor: u32) -> Option<TenantNo> {
        self.visitors.get(visitor as usize).map(VisitorPosition::tenant)
    }

    fn id(&self, visitor: u32) -> Option<VisitorId> {
        self.visitors.get(visitor as usize).map(|at| at.visitor)
    }

    /// Assigns each large person its row. Of two in one row, the person with more visitors there gets it.
    fn find_large(&mut self, tenants: &Tenants, of_row: &[(u32, u32)]) {
        let oversized = |master: u32| {
            let known = tenants.by_no(self.tenant(master).unwrap_or(TenantNo(0)));
            known.map_or(limits::GROUP_LIMIT, |known| known.config.largest_group_limit())
        };
        let large = (0..).zip(&self.sizes).filter(|(master, size)| **size > 1 && **size > oversized(*master));
        let mut large: BTreeMap<u32, LargePerson> = large.map(|(master, _)| (master, LargePerson::default())).collect();
        if large.is_empty() {
            return;
        }
        let mut votes = Vec::new();
        for group in of_row.chunk_by(|one, next| one.0 == next.0) {
            let mut there: BTreeMap<u32, u32> = BTreeMap::new();
            for master in group.iter().map(|(_, visitor)| self.master(*visitor)).filter(|m| large.contains_key(m)) {
                *there.entry(master).or_default() += 1;
            }
            votes.extend(group.first().into_iter().flat_map(|(row, _)| there.iter().map(|(m, n)| (*n, *m, *row))));
        }
        votes.sort_unstable_by(|one, next| next.cmp(one));
        for (_, master, row) in votes {
            if let Some(large) = large.get_mut(&master).filter(|large| large.home.is_none())
                && !self.homes.contains_key(&row)
            {
                self.homes.insert(row, master);
                large.home = Some(row);
            }
        }
        for (visitor, at) in (0..).zip(self.visitors) {
            let holds = self.decided.held.get(visitor as usize).is_some_and(|held| *held != NONE);
            let of = large.get_mut(&self.master(visitor)).filter(|large| large.representative.is_none());
            if let Some(large) = of.filter(|large| holds && large.home.is_none_or(|row| row == at.person)) {
                large.representative = Some(visitor);
            }
        }
        self.large = large;
    }

    /// Notes a difference of a visitor's person.
    fn wrong(&mut self, visitor: u32, cause: DifferenceCause, there: usize) {
        let master = self.master(visitor);
        let start = if self.large.contains_key(&master) { visitor } else { master };
        let known = self.found.entry((master, start, cause)).or_default();
        *known = there.max(*known);
    }

    /// Notes the visitors whose row is missing.
    fn lost(&mut self, group: &[(u32, u32)]) {
        self.all(group, DifferenceCause::NoRow);
    }

    /// Notes the same difference for all people with visitors in a row. A large person whose row it is gets at most one
    /// entry.
    fn all(&mut self, group: &[(u32, u32)], cause: DifferenceCause) {
        for (row, visitor) in group {
            let home = self.large.get(&self.master(*visitor)).filter(|large| large.home == Some(*row));
            match home.map(|large| large.representative) {
                Some(representative) if cause == DifferenceCause::NoRow => {
                    self.wrong(representative.unwrap_or(*visitor), cause, group.len())
                }
                Some(_) => {}
                None => self.wrong(*visitor, cause, group.len()),
            }
        }
    }

    /// Compares a row with the visitors that refer to it.
    fn row(&mut self, group: &[(u32, u32)], row: &StoredRow) {
        // Visitors are sorted, so the first one is the master if they are one person.
        let Some((number, first)) = group.first().copied() else { return };
        let master = self.master(first);
        if group.iter().any(|(_, visitor)| self.tenant(*visitor) != Some(row.tenant)) {
            return self.all(group, DifferenceCause::NoRow);
        }
        let home_of = self.homes.get(&number).copied();
        let large = home_of.and_then(|master| Some((master, *self.large.get(&master)?)));
        if group.iter().any(|(_, visitor)| self.master(*visitor) != master) {
            self.all(group, DifferenceCause::Together);
            if large.is_none() {
                // The stored master and size cannot be compared, because the row mixes people.
                return;
            }
        }
        let at = large.map_or(first, |(master, large)| large.representative.unwrap_or(master));
        let is_apart = self.size(master) as usize != group.len();
        if large.is_none() && is_apart && self.large.contains_key(&master) {
            self.all(group, DifferenceCause::Apart);
        } else if large.is_none() && is_apart {
            self.wrong(at, DifferenceCause::Apart, group.len());
        }
        if self.id(first) != Some(row.master) {
            self.wrong(at, DifferenceCause::Master, group.len());
        }
        if self.visitors.get(first as usize).is_some_and(|at| at.weight != row.weight) {
            self.wrong(at, DifferenceCause::Weight, group.len());
        }
        if usize::try_from(row.devices) != Ok(group.len()) {
            self.wrong(at, DifferenceCause::Devices, group.len());
        }
    }

    /// Notes visitors whose stored weight differs from the decided one.
    fn weights(&mut self) {
        let weights = std::mem::take(&mut self.decided.weights);
        let mut decided = weights.iter().peekable();
        for (visitor, at) in (0..).zip(self.visitors) {
            let unsure = decided.next_if(|(of, _)| *of == visitor);
            if at.weight != unsure.map_or(EvidenceWeight::LOGIN, |(_, weight)| *weight) {
                self.wrong(visitor, DifferenceCause::Weight, 0);
            }
        }
    }

    /// Notes flags that only one side has.
    fn flags(&mut self, decided: Vec<(u32, u32, FlagReason)>, stored: Vec<(u32, u32, FlagReason)>) {
        let decided: BTreeSet<_> = decided.into_iter().collect();
        let stored: BTreeSet<_> = stored.into_iter().collect();
        for (visitor, ..) in decided.symmetric_difference(&stored) {
            self.wrong(*visitor, DifferenceCause::Flag, 0);
        }
    }

    fn difference(
        &self,
        (master, start, cause): (u32, u32, DifferenceCause),
        there: usize,
    ) -> Option<PersonDifference> {
        let (at, visitors) = (self.visitors.get(master as usize)?, self.size(master));
        let large = self.large.get(&master);
        let is_too_large =
            large.is_some_and(|large| large.representative.is_none()) && visitors as usize > limits::AROUND_VISITORS;
        // Of an oversized row, the repair reads only the visitors that leave it.
        let there = u32::try_from(there).ok().filter(|there| *there <= limits::GROUP_LIMIT).unwrap_or(0);
        let around = if large.is_some() { 1 } else { visitors.max(there) };
        let (tenant, start) = (at.tenant(), self.id(start)?);
        Some(PersonDifference { cause, tenant, master: at.visitor, visitors, start, around, is_too_large, row: None })
    }

    fn speaking(&self, master: u32) -> Option<RepresentativeRepair> {
        let LargePerson { home, representative } = self.large.get(&master)?;
        let at = self.visitors.get(master as usize)?;
        let visitor = self.id((*representative)?)?;
        Some(RepresentativeRepair { tenant: at.tenant(), master: at.visitor, visitor, keeps_row: home.is_some() })
    }
}

fn smallest_person(group: &[(u32, u32)]) -> i64 {
    group.first().map_or(i64::MAX, |(person, _)| i64::from(*person))
}

fn each_row(conn: &Connection, mut each: impl FnMut(StoredRow)) -> Result<(), StoreError> {
    let mut statement = conn.prepare(people::PEOPLE_ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(StoredRow {
            person: row.get(0)?,
            tenant: TenantNo(row.get(1)?),
            master: visitor_at(row, 2)?,
            devices: row.get(3)?,
            weight: EvidenceWeight(row.get(4)?),
        });
    }
    Ok(())
}
