//! The uses of a name, which prevent its removal.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use crate::audience::materialized;
use crate::store::tables::sends;
use crate::store::{StoreError, TenantNo};

/// Most uses listed in one refusal.
const LISTED_USES: usize = 10;

/// The uses of each of some names.
pub(crate) struct NameUses<'n> {
    names: &'n BTreeSet<String>,
    used: BTreeMap<&'n String, Vec<String>>,
}

impl<'n> NameUses<'n> {
    pub(crate) fn new(names: &'n BTreeSet<String>) -> Self {
        Self { names, used: BTreeMap::new() }
    }

    /// Notes a use for each name that `is_used` accepts.
    pub(crate) fn note(&mut self, user: &str, is_used: impl Fn(&str) -> bool) {
        for name in self.names.iter().filter(|name| is_used(name)) {
            let users = self.used.entry(name).or_default();
            if users.len() < LISTED_USES {
                users.push(user.to_owned());
            }
        }
    }

    /// Notes the tenant's audiences and running sends whose filter contains a name.
    pub(crate) fn note_filters(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<(), StoreError> {
        for audience in materialized::list_audiences(conn, Some(tenant))? {
            let filter = audience.filter.unwrap_or_default();
            self.note(&format!("the audience of segment {}", audience.segment.0), |name| is_named(&filter, name));
        }
        let mut sends = conn.prepare_cached(sends::SENDS_OPEN_FILTERS)?;
        let mut rows = sends.query([tenant.0])?;
        while let Some(row) = rows.next()? {
            let (send, filter): (String, String) = (row.get(0)?, row.get(1)?);
            self.note(&format!("the send `{send}`"), |name| is_named(&filter, name));
        }
        Ok(())
    }

    /// The first name in use, with its uses.
    pub(crate) fn first(self) -> Option<(String, String)> {
        self.used.into_iter().next().map(|(name, users)| (name.clone(), users.join(", ")))
    }
}
