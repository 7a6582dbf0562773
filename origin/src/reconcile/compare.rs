//! The people that evidence makes, against those that the store has.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ids::VisitorId;
use causeway_shared::person::Reason;
use rusqlite::Connection;

use super::gather::At;
use super::{Cause, Difference};
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};
use crate::tenants::Tenants;

/// Both sides, by the visitors' numbers.
pub(super) struct Sides<'a> {
    pub(super) visitors: &'a [At],
    /// The master of each.
    pub(super) masters: Vec<u32>,
    /// Evidence that does not link: the visitor, the id, and why.
    pub(super) decided: Vec<(u32, u32, Reason)>,
    /// What the store says of that.
    pub(super) stored: Vec<(u32, u32, Reason)>,
}

/// A row of `people`.
struct Stored {
    person: i64,
    tenant: TenantNo,
    master: VisitorId,
    devices: i64,
}

/// What is wrong with people, by their masters' numbers; and how many visitors the rows have where they are.
type Found = BTreeMap<(u32, Cause), usize>;

/// How many people there should be, and what differs.
pub(super) fn compare(
    conn: &Connection,
    tenants: &Tenants,
    mut sides: Sides<'_>,
) -> Result<(u64, Vec<Difference>), StoreError> {
    let mut found = Found::new();
    flags(&mut sides, &mut found);
    let mut sizes = vec![0_u32; sides.masters.len()];
    for master in &sides.masters {
        sizes.iter_mut().skip(*master as usize).take(1).for_each(|size| *size += 1);
    }
    let size = |master: u32| sizes.get(master as usize).copied().unwrap_or(0);
    let mut empty = Vec::new();
    let mut of_row: Vec<(u32, u32)> = sides.visitors.iter().map(|at| at.person).zip(0..).collect();
    of_row.sort_unstable();
    let mut groups = of_row.chunk_by(|one, next| one.0 == next.0).peekable();
    each_row(conn, |row| {
        while let Some(lost) = groups.next_if(|group| person(group) < row.person) {
            sides.all(lost, Cause::NoRow, &mut found);
        }
        match groups.next_if(|group| person(group) == row.person) {
            Some(group) => sides.row(group, &row, size, &mut found),
            None if tenants.by_no(row.tenant).is_ok() => {
                let Stored { person, tenant, master, .. } = row;
                let row = Some(PersonNo(person));
                empty.push(Difference { cause: Cause::Empty, tenant, master, visitors: 0, row });
            }
            None => {}
        }
    })?;
    groups.for_each(|lost| sides.all(lost, Cause::NoRow, &mut found));
    let people = sizes.iter().filter(|size| **size > 0).count() as u64;
    let difference = |((master, cause), there): ((u32, Cause), usize)| {
        let at = sides.visitors.get(master as usize)?;
        let visitors = size(master).max(u32::try_from(there).unwrap_or(u32::MAX));
        Some(Difference { cause, tenant: at.tenant(), master: at.visitor, visitors, row: None })
    };
    Ok((people, found.into_iter().filter_map(difference).chain(empty).collect()))
}

impl Sides<'_> {
    fn master(&self, visitor: u32) -> u32 {
        self.masters.get(visitor as usize).copied().unwrap_or(visitor)
    }

    /// The same is wrong with all people of whom visitors are in a row.
    fn all(&self, group: &[(u32, u32)], cause: Cause, found: &mut Found) {
        for (_, visitor) in group {
            let there = found.entry((self.master(*visitor), cause)).or_default();
            *there = group.len().max(*there);
        }
    }

    /// What is wrong with a row that has these visitors.
    fn row(&self, group: &[(u32, u32)], row: &Stored, size: impl Fn(u32) -> u32, found: &mut Found) {
        // Visitors lie in order: the first is the master, if these are one person.
        let Some((_, first)) = group.first() else { return };
        let master = self.master(*first);
        if group.iter().any(|(_, visitor)| self.tenant(*visitor) != Some(row.tenant)) {
            return self.all(group, Cause::NoRow, found);
        }
        if group.iter().any(|(_, visitor)| self.master(*visitor) != master) {
            // Its master and number can be nobody's.
            return self.all(group, Cause::Together, found);
        }
        let mut wrong = |is: bool, cause| is.then(|| found.insert((master, cause), group.len()));
        wrong(size(master) as usize != group.len(), Cause::Apart);
        wrong(self.id(*first) != Some(row.master), Cause::Master);
        wrong(usize::try_from(row.devices) != Ok(group.len()), Cause::Devices);
    }

    fn tenant(&self, visitor: u32) -> Option<TenantNo> {
        self.visitors.get(visitor as usize).map(At::tenant)
    }

    fn id(&self, visitor: u32) -> Option<VisitorId> {
        self.visitors.get(visitor as usize).map(|at| at.visitor)
    }
}

fn person(group: &[(u32, u32)]) -> i64 {
    group.first().map_or(i64::MAX, |(person, _)| i64::from(*person))
}

/// Flags that only one side has.
fn flags(sides: &mut Sides<'_>, found: &mut Found) {
    let decided: BTreeSet<_> = std::mem::take(&mut sides.decided).into_iter().collect();
    let stored: BTreeSet<_> = std::mem::take(&mut sides.stored).into_iter().collect();
    let differ = decided.symmetric_difference(&stored);
    found.extend(differ.map(|(visitor, ..)| ((sides.master(*visitor), Cause::Flag), 0)));
}

fn each_row(conn: &Connection, mut each: impl FnMut(Stored)) -> Result<(), StoreError> {
    let mut statement = conn.prepare("SELECT person, tenant, master, devices FROM people ORDER BY person")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(Stored {
            person: row.get(0)?,
            tenant: TenantNo(row.get(1)?),
            master: visitor_at(row, 2)?,
            devices: row.get(3)?,
        });
    }
    Ok(())
}
