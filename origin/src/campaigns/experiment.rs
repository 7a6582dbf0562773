//! Experiments at the origin: exposures and conversions of visitors, and their results.
//!
//! Exposures and conversions are stored by visitor, as all facts are. [`person_results`] joins them into one row for
//! each person and sums over people whenever a fact is folded or a membership changes.

pub mod bandit;
pub mod person_results;
pub mod results;
pub mod rollup;
pub mod statistics;

use std::collections::BTreeSet;

use causeway_shared::base::ids::{Micros, Millis};
use causeway_shared::base::limits;
use causeway_shared::facts::exposures::Exposures;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::settings::vocabulary::Vocabulary;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::profiles::exposures::read_exposure;
use crate::store::tables::{conversions, exposures, visitors};
use crate::store::{PersonNo, StoreError, VisitorRow};

/// The exposures of a person: for each experiment the first exposure of its visitors, without withdrawn ones.
///
/// # Errors
/// [`StoreError`].
pub fn of_person(conn: &Connection, person: PersonNo) -> Result<Exposures, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_EXPOSURES_OF_PERSON)?;
    Ok(statement.query_map([person.0], read_exposure)?.collect::<Result<_, _>>()?)
}

/// Stores a visitor's new facts that match one of the event names that experiments count. Returns whether there were
/// any. The time of a fact is its receipt, or its occurrence if the admin API reported it later.
///
/// # Errors
/// [`StoreError`].
pub fn keep_conversions<'f>(
    conn: &Connection,
    names: &BTreeSet<String>,
    words: &Vocabulary,
    visitor: VisitorRow,
    facts: impl Iterator<Item = (Millis, &'f Fact)>,
) -> Result<bool, StoreError> {
    if names.is_empty() {
        return Ok(false);
    }
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for (at, fact) in facts {
        let Some((id, name, value)) = find_conversion(words, fact).filter(|(_, name, _)| names.contains(*name)) else {
            continue;
        };
        conn.prepare_cached(conversions::CONVERSIONS_REPLACE)?.execute((
            visitor,
            signed(at),
            id.cast_signed(),
            name,
            value.get(),
        ))?;
        found.insert(name);
    }
    for name in &found {
        conn.prepare_cached(conversions::CONVERSIONS_TRIM_NAME)?.execute((
            visitor,
            signed(limits::CONVERSIONS as u64),
            name,
        ))?;
    }
    Ok(!found.is_empty())
}

/// Number, name and value of a fact as a possible conversion. The number is equal for the same action on one placed ad,
/// or the same order, under two visitors of a person.
fn find_conversion<'f>(words: &'f Vocabulary, fact: &'f Fact) -> Option<(u64, &'f str, Micros)> {
    match &fact.what {
        FactKind::Track { name, value, order, .. } => {
            let number = order.map_or_else(|| fact.id.short(), |order| order.0);
            Some((number, name, value.unwrap_or_default()))
        }
        FactKind::Action { insertion, action_type, .. } => {
            Some((insertion.short().wrapping_add(action_type.0.into()), words.name_of(*action_type)?, Micros::ZERO))
        }
        _ => None,
    }
}

/// Deletes a visitor's conversions received before a time. The sums still contain them until the person changes.
///
/// # Errors
/// [`StoreError`].
pub fn trim_visitor(conn: &Connection, visitor: VisitorRow, before: Millis) -> Result<(), StoreError> {
    conn.prepare_cached(conversions::CONVERSIONS_DELETE_BEFORE)?.execute((visitor, signed(before)))?;
    Ok(())
}

/// Deletes all exposures and conversions of a visitor.
///
/// # Errors
/// [`StoreError`].
pub fn drop_all(conn: &Connection, visitor: VisitorRow) -> Result<(), StoreError> {
    conn.prepare_cached(exposures::EXPOSURES_DELETE_OF_VISITOR)?.execute([visitor])?;
    conn.prepare_cached(conversions::CONVERSIONS_DELETE_OF_VISITOR)?.execute([visitor])?;
    Ok(())
}

#[cfg(test)]
mod tests;
