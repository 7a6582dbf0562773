//! The tenants as the running origin knows them: number in the store, configuration, keys.

use crate::store::id_error::IdError;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AltHash, KindCode, TenantId};
use causeway_shared::base::limits;
use causeway_shared::base::placeholder::is_placeholder;
use causeway_shared::keys::key_ring::{KeySet, TenantKeys};
use causeway_shared::settings::config::{EdgeConfig, TenantConfig};

use crate::store::{StoreError, TenantNo, find_tenant, tenant_no};

/// One tenant.
#[derive(Debug, Clone)]
pub struct TenantContext {
    /// Its number in the store.
    pub no: TenantNo,
    /// Its name.
    pub id: TenantId,
    /// Its configuration.
    pub config: TenantConfig,
    /// Its keys.
    pub keys: TenantKeys,
}

impl TenantContext {
    /// The kind of an alternate id that comes raw, and its hashes: under the key that is written, then under all others that
    /// are read.
    ///
    /// # Errors
    /// [`IdError`].
    pub fn alternate(&self, kind: &str, value: &str) -> Result<(KindCode, Vec<AltHash>), IdError> {
        let kind = self.config.kind(kind).ok_or(IdError::Kind)?.code();
        if value.is_empty() || value.len() > limits::ALTERNATE_ID_BYTES {
            return Err(IdError::Length);
        }
        if is_placeholder(value) {
            return Err(IdError::Placeholder);
        }
        Ok((kind, self.keys.alternate.hash_alternate(kind, value)))
    }

    /// Whether a hash was made with a key that is still readable.
    #[must_use]
    pub fn is_readable(&self, hash: AltHash) -> bool {
        hash.0.first().is_some_and(|id| self.keys.alternate.by_id(*id).is_some())
    }
}

/// What is said of a word that a tenant does not have; `table` is the one of its file that would name it.
#[must_use]
pub fn no_word(table: &str) -> String {
    let what = table.replace('_', " ");
    format!("the tenant's words have no such {what} (`[[{table}]]` in the file that its `catalogue` names)")
}

/// All tenants of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Tenants {
    by_name: BTreeMap<String, TenantContext>,
    names: BTreeMap<TenantNo, String>,
    /// All that the store ever had, configured now or not.
    ever: BTreeSet<String>,
}

impl Tenants {
    /// The configured tenants that `number` has a number for.
    fn build(
        edge: &EdgeConfig,
        keys: &KeySet,
        number: impl Fn(&str) -> Result<Option<TenantNo>, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut tenants = Self::default();
        for config in &edge.tenants {
            let (Some(id), Some(no)) = (config.id(), number(&config.name)?) else {
                continue;
            };
            let keys = keys.tenants.get(&config.name).cloned().unwrap_or_default();
            tenants.names.insert(no, config.name.clone());
            let known = TenantContext { no, id, config: config.clone(), keys };
            tenants.by_name.insert(config.name.clone(), known);
        }
        Ok(tenants)
    }

    /// The configured tenants; new ones get a number.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn open(conn: &rusqlite::Connection, edge: &EdgeConfig, keys: &KeySet) -> Result<Self, StoreError> {
        let mut tenants = Self::build(edge, keys, |name| tenant_no(conn, name).map(Some))?;
        let mut all = conn.prepare("SELECT name FROM tenants")?;
        tenants.ever = all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(tenants)
    }

    /// The configured tenants that the store knows already; writes nothing.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn find(conn: &rusqlite::Connection, edge: &EdgeConfig, keys: &KeySet) -> Result<Self, StoreError> {
        Self::build(edge, keys, |name| find_tenant(conn, name))
    }

    /// The tenant of that name, or the only one there is when none is named.
    #[must_use]
    pub fn named(&self, name: Option<&str>) -> Option<&TenantContext> {
        match name {
            Some(name) => self.by_name(name),
            None if self.by_name.len() == 1 => self.by_name.values().next(),
            None => None,
        }
    }

    /// The tenant of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&TenantContext> {
        self.by_name.get(name)
    }

    /// Whether there ever was a tenant of that name.
    #[must_use]
    pub fn had(&self, name: &str) -> bool {
        self.ever.contains(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &TenantContext> {
        self.by_name.values()
    }

    /// The tenant of that number.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: it is no longer configured.
    pub fn by_no(&self, no: TenantNo) -> Result<&TenantContext, StoreError> {
        let known = self.names.get(&no).and_then(|name| self.by_name.get(name));
        known.ok_or(StoreError::Corrupt { what: "tenant's number" })
    }
}
