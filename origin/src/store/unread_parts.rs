//! What a restore could not read of the store that it replaces.

use crate::store::StoreError;
use rusqlite::{Connection, Params, Row};

/// Parts of a replaced store that could not be read whole, each once, with the first reason.
#[derive(Debug, Default)]
pub struct UnreadParts(Vec<(&'static str, StoreError)>);

impl UnreadParts {
    /// The first part that could not be read.
    #[must_use]
    pub fn into_first(self) -> Option<StoreError> {
        self.0.into_iter().next().map(|(_, why)| why)
    }

    /// Notes one.
    pub fn add(&mut self, part: &'static str, why: StoreError) {
        if !self.has(part) {
            self.0.push((part, why));
        }
    }

    /// Whether it is among them.
    #[must_use]
    pub fn has(&self, part: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == part)
    }

    /// Each part's name, and why.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &StoreError)> {
        self.0.iter().map(|(part, why)| (*part, why))
    }

    /// What was read, or nothing in its place.
    pub(crate) fn or_none<T: Default>(&mut self, part: &'static str, read: Result<T, StoreError>) -> T {
        read.unwrap_or_else(|why| {
            self.add(part, why);
            T::default()
        })
    }

    /// The rows up to the first that cannot be read.
    pub(crate) fn rows<T, P: Params>(
        &mut self,
        part: &'static str,
        conn: &Connection,
        (read, with): (&str, P),
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        let all = || {
            for row in conn.prepare(read)?.query_map(with, row)? {
                found.push(row?);
            }
            Ok(())
        };
        let read = all();
        self.or_none(part, read.map_err(|e: rusqlite::Error| e.into()));
        found
    }
}
