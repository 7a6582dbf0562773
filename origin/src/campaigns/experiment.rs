//! Experiments at the origin: exposures and conversions of visitors, and their results.
//!
//! Exposures and conversions are stored by visitor, as all facts are. [`people`] joins them into one row for each
//! person and sums over people whenever a fact is folded or a membership changes.

pub mod bandit;
pub mod person_results;
pub mod results;
pub mod rollup;
pub mod statistics;

use crate::profiles::exposures::read_exposure;
use std::collections::BTreeSet;

use causeway_shared::base::ids::{Micros, Millis};
use causeway_shared::base::limits;
use causeway_shared::facts::exposures::Exposures;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::settings::vocabulary::Vocabulary;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::store::{PersonNo, StoreError};

/// The exposures of a person: for each experiment the first exposure of its visitors, without withdrawn ones.
///
/// # Errors
/// [`StoreError`].
pub fn of_person(conn: &Connection, person: PersonNo) -> Result<Exposures, StoreError> {
    const READ: &str = "SELECT e.experiment, e.arm, e.at, e.mixed FROM visitors v
        JOIN exposures e ON e.visitor = v.row WHERE v.person = ?1 AND v.withdrawn IS NULL";
    let mut statement = conn.prepare_cached(READ)?;
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
    visitor: i64,
    facts: impl Iterator<Item = (Millis, &'f Fact)>,
) -> Result<bool, StoreError> {
    const PUT: &str =
        "INSERT OR REPLACE INTO conversions (visitor, received, id, name, value) VALUES (?1, ?2, ?3, ?4, ?5)";
    // The newest conversions of each name are retained, so that one experiment's events do not displace another's.
    const BOUND: &str =
        "DELETE FROM conversions WHERE visitor = ?1 AND name = ?3 AND (received, id) <= (SELECT received, id
        FROM conversions WHERE visitor = ?1 AND name = ?3 ORDER BY received DESC, id DESC LIMIT 1 OFFSET ?2)";
    if names.is_empty() {
        return Ok(false);
    }
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for (at, fact) in facts {
        let Some((id, name, value)) = find_conversion(words, fact).filter(|(_, name, _)| names.contains(*name)) else {
            continue;
        };
        conn.prepare_cached(PUT)?.execute((visitor, signed(at), id.cast_signed(), name, value))?;
        found.insert(name);
    }
    for name in &found {
        conn.prepare_cached(BOUND)?.execute((visitor, signed(limits::CONVERSIONS as u64), name))?;
    }
    Ok(!found.is_empty())
}

/// Number, name and value of a fact as a possible conversion. The number is equal for the same action on one placed ad,
/// or the same order, under two visitors of a person.
fn find_conversion<'f>(words: &'f Vocabulary, fact: &'f Fact) -> Option<(u64, &'f str, Micros)> {
    match &fact.what {
        FactKind::Track { name, value, order, .. } => {
            let number = order.map_or_else(|| fact.id.short(), |order| order.0);
            Some((number, name, value.unwrap_or(0)))
        }
        FactKind::Action { insertion, verb, .. } => {
            Some((insertion.short().wrapping_add(verb.0.into()), words.name_of(*verb)?, 0))
        }
        _ => None,
    }
}

/// Deletes a visitor's conversions received before a time. The sums still contain them until the person changes.
///
/// # Errors
/// [`StoreError`].
pub fn trim_visitor(conn: &Connection, visitor: i64, before: Millis) -> Result<(), StoreError> {
    const DROP: &str = "DELETE FROM conversions WHERE visitor = ?1 AND received < ?2";
    conn.prepare_cached(DROP)?.execute((visitor, signed(before)))?;
    Ok(())
}

/// Deletes all exposures and conversions of a visitor.
///
/// # Errors
/// [`StoreError`].
pub fn drop_all(conn: &Connection, visitor: i64) -> Result<(), StoreError> {
    conn.prepare_cached("DELETE FROM exposures WHERE visitor = ?1")?.execute([visitor])?;
    conn.prepare_cached("DELETE FROM conversions WHERE visitor = ?1")?.execute([visitor])?;
    Ok(())
}

#[cfg(test)]
mod tests;
