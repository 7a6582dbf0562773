//! Statements of the table `catalogue_current`: the current version of each tenant's catalogue.

/// Reads the current version of tenant `?1`.
pub(crate) const CATALOGUE_CURRENT_VERSION_OF_TENANT: &str = "SELECT version FROM catalogue_current WHERE tenant = ?1";

/// Reads the catalogue that became current last, over all tenants.
pub(crate) const CATALOGUE_CURRENT_NEWEST: &str =
    "SELECT tenant, version FROM catalogue_current WHERE since > 0 ORDER BY since DESC LIMIT 1";

/// Makes version `?2` the current one from `?3` on.
pub(crate) const CATALOGUE_CURRENT_UPSERT: &str =
    "INSERT INTO catalogue_current (tenant, version, since) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET version = excluded.version, since = excluded.since";

/// Reads the current version of each tenant.
pub(crate) const CATALOGUE_CURRENT_ALL: &str = "SELECT tenant, version FROM catalogue_current";

/// Reads what the current catalogue of tenant `?1` asks of people. `CROSS JOIN` fixes the order of the tables.
pub(crate) const CATALOGUE_CURRENT_QUERIED: &str =
    "SELECT queried FROM catalogue_current CROSS JOIN catalogues USING (tenant, version) WHERE tenant = ?1";

/// Caps `since` at `?1` if it is more than `?2` later.
pub(crate) const CATALOGUE_CURRENT_CAP_SINCE: &str = "UPDATE catalogue_current SET since = ?1 WHERE since > ?1 + ?2";

/// Builds the statement that reads a column of `catalogues` from the current version of each tenant. `CROSS JOIN` fixes
/// the order of the tables.
pub(crate) fn catalogue_current_column(column: &str) -> String {
    format!("SELECT tenant, {column} FROM catalogue_current CROSS JOIN catalogues USING (tenant, version)")
}

/// Builds the statement that reads a column of `catalogues` from the current version of tenant `?1`. `CROSS JOIN` fixes
/// the order of the tables.
pub(crate) fn catalogue_current_column_of_tenant(column: &str) -> String {
    format!("SELECT {column} FROM catalogue_current CROSS JOIN catalogues USING (tenant, version) WHERE tenant = ?1")
}
