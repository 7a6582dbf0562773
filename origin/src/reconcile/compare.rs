//! The people that evidence makes, against those that the store has.

use std::collections::BTreeSet;

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
    devices: u32,
}

/// How many people there should be, and what differs.
pub(super) fn compare(
    conn: &Connection,
    tenants: &Tenants,
    mut sides: Sides<'_>,
) -> Result<(u64, Vec<Difference>), StoreError> {
    let mut found: BTreeSet<(u32, Cause)> = BTreeSet::new();
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
            found.extend(lost.iter().map(|(_, visitor)| (sides.master(*visitor), Cause::NoRow)));
        }
        let Some(group) = groups.next_if(|group| person(group) == row.person) else {
            if tenants.by_no(row.tenant).is_ok() {
                let row_no = Some(PersonNo(row.person));
                let Stored { tenant, master, .. } = row;
                empty.push(Difference { cause: Cause::Empty, tenant, master, visitors: 0, row: row_no });
            }
            return;
        };
        // Visitors lie in order: the first is the master, if these are one person.
        let Some(master) = group.first().map(|(_, visitor)| sides.master(*visitor)) else { return };
        if group.iter().any(|(_, visitor)| sides.master(*visitor) != master) {
            // Its master and number can be nobody's.
            return found.extend(group.iter().map(|(_, visitor)| (sides.master(*visitor), Cause::Together)));
        }
        if size(master) as usize != group.len() {
            found.insert((master, Cause::Apart));
        }
        if group.first().is_some_and(|(_, first)| sides.id(*first) != Some(row.master)) {
            found.insert((master, Cause::Master));
        }
        if row.devices as usize != group.len() {
            found.insert((master, Cause::Devices));
        }
    })?;
    for lost in groups {
        found.extend(lost.iter().map(|(_, visitor)| (sides.master(*visitor), Cause::NoRow)));
    }
    let people = sizes.iter().filter(|size| **size > 0).count() as u64;
    let difference = |(master, cause): (u32, Cause)| {
        let at = sides.visitors.get(master as usize)?;
        Some(Difference { cause, tenant: at.tenant(), master: at.visitor, visitors: size(master), row: None })
    };
    Ok((people, found.into_iter().filter_map(difference).chain(empty).collect()))
}

impl Sides<'_> {
    fn master(&self, visitor: u32) -> u32 {
        self.masters.get(visitor as usize).copied().unwrap_or(visitor)
    }

    fn id(&self, visitor: u32) -> Option<VisitorId> {
        self.visitors.get(visitor as usize).map(|at| at.visitor)
    }
}

fn person(group: &[(u32, u32)]) -> i64 {
    group.first().map_or(i64::MAX, |(person, _)| i64::from(*person))
}

/// Flags that only one side has.
fn flags(sides: &mut Sides<'_>, found: &mut BTreeSet<(u32, Cause)>) {
    let decided: BTreeSet<_> = std::mem::take(&mut sides.decided).into_iter().collect();
    let stored: BTreeSet<_> = std::mem::take(&mut sides.stored).into_iter().collect();
    found.extend(decided.symmetric_difference(&stored).map(|(visitor, ..)| (sides.master(*visitor), Cause::Flag)));
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
