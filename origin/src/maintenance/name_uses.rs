//! What uses a name, so that it cannot be taken back.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use crate::audience::materialized;
use crate::store::{StoreError, TenantNo};

/// Places named in one refusal.
const PLACES: usize = 10;

/// What uses each of some names.
pub(crate) struct NameUses<'n> {
    names: &'n BTreeSet<String>,
    used: BTreeMap<&'n String, Vec<String>>,
}

impl<'n> NameUses<'n> {
    pub(crate) fn new(names: &'n BTreeSet<String>) -> Self {
        Self { names, used: BTreeMap::new() }
    }

    /// Notes a place that uses each of the names for which `is_used` says so.
    pub(crate) fn note(&mut self, place: &str, is_used: impl Fn(&str) -> bool) {
        for name in self.names.iter().filter(|name| is_used(name)) {
            let places = self.used.entry(name).or_default();
            if places.len() < PLACES {
                places.push(place.to_owned());
            }
        }
    }

    /// Notes the audiences and the running sends of a tenant whose filter names a name.
    pub(crate) fn note_filters(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        is_named: impl Fn(&str, &str) -> bool,
    ) -> Result<(), StoreError> {
        const SENDS: &str = "SELECT name, filter FROM sends WHERE tenant = ?1 AND due IS NOT NULL ORDER BY name";
        for audience in materialized::list_audiences(conn, Some(tenant))? {
            let filter = audience.filter.unwrap_or_default();
            self.note(&format!("the audience of segment {}", audience.segment.0), |name| is_named(&filter, name));
        }
        let mut sends = conn.prepare_cached(SENDS)?;
        let mut rows = sends.query([tenant.0])?;
        while let Some(row) = rows.next()? {
            let (send, filter): (String, String) = (row.get(0)?, row.get(1)?);
            self.note(&format!("the send `{send}`"), |name| is_named(&filter, name));
        }
        Ok(())
    }

    /// The first name in use, with the places that use it.
    pub(crate) fn first(self) -> Option<(String, String)> {
        self.used.into_iter().next().map(|(name, places)| (name.clone(), places.join(", ")))
    }
}
