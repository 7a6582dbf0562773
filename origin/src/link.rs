//! Link: alias facts become evidence, evidence becomes people and lookups.
//!
//! Evidence is kept whatever it says; which of it links is decided by `causeway_shared::person` from the
//! evidence as a set. Work is done only where evidence changed: a page view costs nothing here.

mod alternates;
mod evidence;
mod lookups;
mod people;

use std::collections::BTreeSet;

use causeway_shared::fact::What;
use causeway_shared::ids::{AlternateId, VisitorId};
use rusqlite::OptionalExtension as _;

pub use alternates::{canonical, family};
pub use evidence::{Row, held_unique, of_visitor};

use crate::fold::Linking;
use crate::group::Group;
use crate::store::{PersonNo, StoreError, TenantNo, signed};

/// What this group changed about who belongs together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Linked {
    /// People whose membership is another now.
    pub people: Vec<PersonChange>,
    /// Alternate ids (canonical) whose lookup is another now.
    pub lookups: BTreeSet<(TenantNo, AlternateId)>,
    /// Visitors that withdrew in this group.
    pub withdrawn: BTreeSet<(TenantNo, VisitorId)>,
}

/// A person whose membership is another now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonChange {
    /// The person.
    pub person: PersonNo,
    /// Whether visitors left: then no snapshot may wait.
    pub cut: bool,
}

/// Where evidence changed in this group.
#[derive(Debug, Default)]
struct Touched {
    visitors: BTreeSet<(TenantNo, VisitorId)>,
    ids: BTreeSet<(TenantNo, AlternateId)>,
}

/// Links what the new facts say.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn link(group: &mut Group<'_>, fresh: &[Linking<'_>]) -> Result<Linked, StoreError> {
    let mut linked = Linked::default();
    let mut touched = Touched::default();
    // Withdrawals first: evidence that comes in the same group must not outlive them.
    withdraw(group, fresh, &mut linked, &mut touched)?;
    for Linking { tenant, visitor, facts } in fresh {
        for fact in facts {
            if let What::Alias { id, also, proven } = &fact.what {
                let id = alternates::resolve(group, *tenant, *id, also, &mut touched)?;
                let seen = evidence::Seen { tenant: *tenant, visitor: *visitor, id, proven: *proven };
                evidence::note(group, seen, fact.received, &mut touched)?;
            }
        }
    }
    people::recompute(group, &mut touched, &mut linked)?;
    lookups::recompute(group, &touched.ids, &mut linked)?;
    Ok(linked)
}

/// Marks visitors that withdrew and ends their evidence for ever (invariant 10).
fn withdraw(
    group: &Group<'_>,
    fresh: &[Linking<'_>],
    linked: &mut Linked,
    touched: &mut Touched,
) -> Result<(), StoreError> {
    const MARK: &str = "UPDATE visitors SET withdrawn = ?3 WHERE tenant = ?1 AND visitor = ?2 AND withdrawn IS NULL";
    for Linking { tenant, visitor, facts } in fresh {
        let Some(fact) = facts.iter().find(|f| f.what == What::Withdrawal) else {
            continue;
        };
        let place = (tenant.0, visitor.as_bytes(), signed(fact.received));
        if group.tx.prepare_cached(MARK)?.execute(place)? == 1 {
            evidence::end(group, *tenant, *visitor, touched)?;
            linked.withdrawn.insert((*tenant, *visitor));
        }
    }
    Ok(())
}

fn has_withdrawn(group: &Group<'_>, tenant: TenantNo, visitor: VisitorId) -> Result<bool, StoreError> {
    const READ: &str = "SELECT withdrawn IS NOT NULL FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    let mut statement = group.tx.prepare_cached(READ)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

#[cfg(test)]
#[path = "link/tests.rs"]
mod tests;
