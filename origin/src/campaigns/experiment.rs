//! Experiments at the origin (S4.6, S4.12): what visitors were exposed to and did, and what that comes to.
//!
//! Exposures and conversions are kept by visitor, as all facts are. [`people`] makes of them one row a person and sums over
//! people, as soon as a fact is folded or a membership changes.

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

/// The exposures of a person: of each experiment the first of any of its visitors that did not withdraw.
///
/// # Errors
/// [`StoreError`].
pub fn of_person(conn: &Connection, person: PersonNo) -> Result<Exposures, StoreError> {
    const READ: &str = "SELECT e.experiment, e.arm, e.at, e.mixed FROM visitors v
        JOIN exposures e ON e.visitor = v.row WHERE v.person = ?1 AND v.withdrawn IS NULL";
    let mut statement = conn.prepare_cached(READ)?;
    Ok(statement.query_map([person.0], read_exposure)?.collect::<Result<_, _>>()?)
}

/// Keeps those of a visitor's new facts that are one of the names which its tenant's experiments count; gives whether there
/// were any. Each comes with its time: its receipt, or when it happened where the admin side tells of it later.
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
    // Of each name the newest are kept, whichever came first: what one experiment counts pushes no other's out.
    const BOUND: &str =
        "DELETE FROM conversions WHERE visitor = ?1 AND name = ?3 AND (received, id) <= (SELECT received, id
        FROM conversions WHERE visitor = ?1 AND name = ?3 ORDER BY received DESC, id DESC LIMIT 1 OFFSET ?2)";
    if names.is_empty() {
        return Ok(false);
    }
    let mut came: BTreeSet<&str> = BTreeSet::new();
    for (at, fact) in facts {
        let Some((id, name, value)) = find_conversion(words, fact).filter(|(_, name, _)| names.contains(*name)) else {
            continue;
        };
        conn.prepare_cached(PUT)?.execute((visitor, signed(at), id.cast_signed(), name, value))?;
        came.insert(name);
    }
    for name in &came {
        conn.prepare_cached(BOUND)?.execute((visitor, signed(limits::CONVERSIONS as u64), name))?;
    }
    Ok(!came.is_empty())
}

/// By which number and name a fact could be a conversion, and what it is worth. The same done with one placed ad, or one order
/// bought, under two of a person's visitors has one number.
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

/// A visitor's conversions received before a time go. The sums keep what they came to until its person changes again.
///
/// # Errors
/// [`StoreError`].
pub fn trim_visitor(conn: &Connection, visitor: i64, before: Millis) -> Result<(), StoreError> {
    const DROP: &str = "DELETE FROM conversions WHERE visitor = ?1 AND received < ?2";
    conn.prepare_cached(DROP)?.execute((visitor, signed(before)))?;
    Ok(())
}

/// Drops all of a visitor's.
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
