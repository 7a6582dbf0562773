//! Parts of a replaced store that a restore could not read.

use crate::store::{OpenError, StoreError};
use rusqlite::{Connection, Params, Row};

/// Parts of a replaced store that could not be read completely; each part occurs once, with its first error.
#[derive(Debug, Default)]
pub struct UnreadParts(Vec<(&'static str, OpenError)>);

impl UnreadParts {
    /// The error of the first part that could not be read.
    #[must_use]
    pub fn into_first(self) -> Option<OpenError> {
        self.0.into_iter().next().map(|(_, why)| why)
    }

    /// Records a part that could not be read.
    pub fn add(&mut self, part: &'static str, why: impl Into<OpenError>) {
        if !self.has(part) {
            self.0.push((part, why.into()));
        }
    }

    /// Whether a part is recorded.
    #[must_use]
    pub fn has(&self, part: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == part)
    }

    /// The recorded parts, each with its error.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &OpenError)> {
        self.0.iter().map(|(part, why)| (*part, why))
    }

    /// The value read, or the default with the part recorded.
    pub(crate) fn or_none<T: Default>(&mut self, part: &'static str, read: Result<T, StoreError>) -> T {
        read.unwrap_or_else(|why| {
            self.add(part, why);
            T::default()
        })
    }

    /// The rows before the first one that cannot be read.
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
