//! Fold: new facts are added to the profile of the visitor that owns them, and to no other.
//!
//! A profile is read and written once a visitor and group, however many facts came.

use causeway_shared::fact::Fact;
use causeway_shared::ids::{Millis, VisitorId};
use causeway_shared::profile::Profile;
use causeway_shared::wire::profile;
use rusqlite::OptionalExtension as _;

use crate::group::Group;
use crate::intake::Fresh;
use crate::store::{PersonNo, StoreError, TenantNo, signed, unsigned};

/// A visitor whose profile changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Whose identity space it belongs to.
    pub tenant: TenantNo,
    /// The visitor.
    pub visitor: VisitorId,
    /// Its person before this group links anything.
    pub person: PersonNo,
    /// How many visitors that person had.
    pub devices: u32,
    /// Whether it had withdrawn before: what comes late is kept and shown to nobody.
    pub withdrawn: bool,
}

/// A visitor's row as far as folding needs it.
struct Stored {
    row: i64,
    profile: Profile,
    last_seen: Millis,
    changed: Changed,
}

/// Folds the new facts; visitors seen for the first time become a person of one.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn fold(group: &mut Group<'_>, fresh: &Fresh) -> Result<Vec<Changed>, StoreError> {
    let mut changed = Vec::with_capacity(fresh.len());
    for ((tenant, visitor), facts) in fresh {
        let folded = match load(group, *tenant, *visitor)? {
            Some(stored) => update(group, stored, facts)?,
            None => insert(group, *tenant, *visitor, facts)?,
        };
        changed.push(folded);
    }
    Ok(changed)
}

fn load(group: &Group<'_>, tenant: TenantNo, visitor: VisitorId) -> Result<Option<Stored>, StoreError> {
    const READ: &str = "SELECT v.row, v.profile, v.last_seen, v.withdrawn IS NOT NULL, v.person, p.devices
        FROM visitors v JOIN people p ON p.person = v.person WHERE v.tenant = ?1 AND v.visitor = ?2";
    let mut statement = group.tx.prepare_cached(READ)?;
    let found = statement
        .query_row((tenant.0, visitor.as_bytes()), |row| {
            let bytes: Vec<u8> = row.get(1)?;
            let (withdrawn, person, devices) = (row.get(3)?, PersonNo(row.get(4)?), row.get(5)?);
            let changed = Changed { tenant, visitor, person, devices, withdrawn };
            Ok((row.get(0)?, bytes, row.get(2)?, changed))
        })
        .optional()?;
    let Some((row, bytes, last_seen, changed)) = found else {
        return Ok(None);
    };
    let profile = profile::decode(&bytes)?;
    Ok(Some(Stored { row, profile, last_seen: unsigned(last_seen), changed }))
}

fn update(group: &mut Group<'_>, mut stored: Stored, facts: &[Fact]) -> Result<Changed, StoreError> {
    const WRITE: &str = "UPDATE visitors SET profile = ?2, last_seen = ?3, version = ?4, restore = ?5 WHERE row = ?1";
    let last_seen = add(&mut stored.profile, facts).max(stored.last_seen);
    let version = group.next_version();
    group.tx.prepare_cached(WRITE)?.execute((
        stored.row,
        profile::encode(&stored.profile),
        signed(last_seen),
        signed(version.counter),
        version.restore,
    ))?;
    Ok(stored.changed)
}

fn insert(group: &mut Group<'_>, tenant: TenantNo, visitor: VisitorId, facts: &[Fact]) -> Result<Changed, StoreError> {
    const PERSON: &str = "INSERT INTO people (tenant, master, devices, epoch, changed, random)
        VALUES (?1, ?2, 1, ?3, ?4, randomblob(16))";
    const WRITE: &str = "INSERT INTO visitors
        (tenant, visitor, last_seen, version, restore, published, person, profile)
        VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7)";
    let mut profile = Profile::default();
    let last_seen = add(&mut profile, facts);
    let (version, epoch) = (group.next_version(), group.next_epoch());
    group.tx.prepare_cached(PERSON)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(epoch.0),
        signed(version.counter),
    ))?;
    let person = PersonNo(group.tx.last_insert_rowid());
    group.tx.prepare_cached(WRITE)?.execute((
        tenant.0,
        visitor.as_bytes(),
        signed(last_seen),
        signed(version.counter),
        version.restore,
        person.0,
        profile::encode(&profile),
    ))?;
    Ok(Changed { tenant, visitor, person, devices: 1, withdrawn: false })
}

/// Adds the facts and gives the newest receipt among them.
fn add(profile: &mut Profile, facts: &[Fact]) -> Millis {
    facts.iter().for_each(|fact| profile.fold(fact));
    facts.iter().map(|fact| fact.received).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::testing::{NOW, Origin, page, purchase, visitor};
    use causeway_shared::profile::Totals;

    #[test]
    fn field_04_repeats_and_order_change_nothing() {
        let facts: Vec<_> = (0..40)
            .map(|i| match i % 5 {
                0 => purchase(visitor(i % 3), i, NOW - 1_000 * u64::from(i), 2_500_000),
                _ => page(visitor(i % 3), i, NOW - 1_000 * u64::from(i)),
            })
            .collect();
        let mut forward = Origin::new();
        forward.send("demo", &facts);
        let mut backward = Origin::new();
        for fact in facts.iter().rev().chain(&facts) {
            backward.send("demo", std::slice::from_ref(fact));
        }
        for v in 0..3 {
            let profile = forward.profile("demo", visitor(v));
            assert_eq!(profile, backward.profile("demo", visitor(v)));
            assert!(profile.totals().pages > 0);
        }
    }

    #[test]
    fn field_22_a_purchase_sent_twice_counts_once_everywhere() {
        let mut origin = Origin::new();
        let buy = purchase(visitor(1), 1, NOW, 19_990_000);
        origin.send("demo", std::slice::from_ref(&buy));
        origin.send("demo", &[buy.clone(), buy]);
        let expected = Totals { purchases: 1, revenue: 19_990_000, ..Totals::default() };
        assert_eq!(origin.profile("demo", visitor(1)).totals(), expected);
        assert_eq!(origin.view("demo", visitor(1)), expected);
    }
}
