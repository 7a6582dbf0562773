//! Statements of the table `tenants`: numbers of tenants.

/// Number and name of all tenants. SQLite may read them from the index of the names.
pub(crate) const TENANTS_ALL: &str = "SELECT tenant, name FROM tenants";

/// Number and name of all tenants, read from the table itself, for a store with a damaged index.
pub(crate) const TENANTS_ALL_NOT_INDEXED: &str = "SELECT tenant, name FROM tenants NOT INDEXED";

/// Tenants in the order of names. `?1` the only name to read; NULL reads all.
pub(crate) const TENANTS_BY_NAME: &str = "SELECT name, tenant FROM tenants WHERE ?1 IS NULL OR name = ?1 ORDER BY name";

/// Numbers of all tenants.
pub(crate) const TENANTS_NUMBERS: &str = "SELECT tenant FROM tenants";

/// Number of a tenant. `?1` name.
pub(crate) const TENANTS_NUMBER_OF_NAME: &str = "SELECT tenant FROM tenants WHERE name = ?1";

/// Names of all tenants.
pub(crate) const TENANTS_NAMES: &str = "SELECT name FROM tenants";

/// Inserts a tenant with a number, unless its name or number is stored. `?1` number, `?2` name.
pub(crate) const TENANTS_INSERT_WITH_NUMBER: &str = "INSERT OR IGNORE INTO tenants (tenant, name) VALUES (?1, ?2)";

/// Inserts a tenant, unless its name is stored. `?1` name.
pub(crate) const TENANTS_INSERT_NAME: &str = "INSERT OR IGNORE INTO tenants (name) VALUES (?1)";
