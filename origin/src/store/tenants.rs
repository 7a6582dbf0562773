//! The tenants of the running origin: number in the store, configuration and keys.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AltHash, KindCode, TenantId};
use causeway_shared::base::limits;
use causeway_shared::base::placeholder::is_placeholder;
use causeway_shared::keys::key_ring::{KeySet, TenantKeys};
use causeway_shared::settings::config::{EdgeConfig, TenantConfig};

use crate::store::id_error::IdError;
use crate::store::tables::tenants;
use crate::store::{StoreError, TenantNo, find_tenant, tenant_no};

/// One configured tenant.
#[derive(Debug, Clone)]
pub struct TenantContext {
    /// Number of the tenant in the store.
    pub no: TenantNo,
    /// Name of the tenant.
    pub id: TenantId,
    /// Configuration of the tenant.
    pub config: TenantConfig,
    /// Keys of the tenant.
    pub keys: TenantKeys,
}

impl TenantContext {
    /// Kind and hashes of a raw alternate id. The first hash is made with the active key, the others with all other
    /// readable keys.
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

    /// Whether the key of a hash is still readable.
    #[must_use]
    pub fn is_readable(&self, hash: AltHash) -> bool {
        hash.0.first().is_some_and(|id| self.keys.alternate.by_id(*id).is_some())
    }
}

/// Message for a word that the tenant's vocabulary lacks; `table` is the table of its file that would define it.
#[must_use]
pub fn no_word(table: &str) -> String {
    let what = table.replace('_', " ");
    format!("the tenant's vocabulary has no such {what} (`[[{table}]]` in the file that its `catalogue` names)")
}

/// All tenants of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Tenants {
    by_name: BTreeMap<String, TenantContext>,
    names: BTreeMap<TenantNo, String>,
    /// Names of all tenants that the store ever had, configured now or not.
    ever: BTreeSet<String>,
}

impl Tenants {
    /// The configured tenants for which `number` returns a number.
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

    /// The configured tenants; a new tenant gets a number.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn open(conn: &rusqlite::Connection, edge: &EdgeConfig, keys: &KeySet) -> Result<Self, StoreError> {
        let mut tenants = Self::build(edge, keys, |name| tenant_no(conn, name).map(Some))?;
        let mut all = conn.prepare(tenants::TENANTS_NAMES)?;
        tenants.ever = all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(tenants)
    }

    /// The configured tenants that the store already contains; writes nothing.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn find(conn: &rusqlite::Connection, edge: &EdgeConfig, keys: &KeySet) -> Result<Self, StoreError> {
        Self::build(edge, keys, |name| find_tenant(conn, name))
    }

    /// The tenant with a name; without a name, the only configured tenant.
    #[must_use]
    pub fn named(&self, name: Option<&str>) -> Option<&TenantContext> {
        match name {
            Some(name) => self.by_name(name),
            None if self.by_name.len() == 1 => self.by_name.values().next(),
            None => None,
        }
    }

    /// The configured tenant with a name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&TenantContext> {
        self.by_name.get(name)
    }

    /// Whether the store ever had a tenant with a name.
    #[must_use]
    pub fn had(&self, name: &str) -> bool {
        self.ever.contains(name)
    }

    /// All configured tenants, by name.
    pub fn iter(&self) -> impl Iterator<Item = &TenantContext> {
        self.by_name.values()
    }

    /// The tenant with a number.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: the tenant is no longer configured.
    pub fn by_no(&self, no: TenantNo) -> Result<&TenantContext, StoreError> {
        let known = self.names.get(&no).and_then(|name| self.by_name.get(name));
        known.ok_or(StoreError::Corrupt { what: "tenant's number" })
    }
}
