//! Statements of the table `steering`: the traffic allocation of each tenant.

/// Inserts or replaces the steering of a tenant.
pub(crate) const STEERING_REPLACE: &str = "INSERT OR REPLACE INTO steering (tenant, at, value) VALUES (?1, ?2, ?3)";

/// Reads the steering of tenant `?1` and the time at which it was built.
pub(crate) const STEERING_OF_TENANT: &str = "SELECT at, value FROM steering WHERE tenant = ?1";

/// Reads the tenants that have a traffic allocation.
pub(crate) const STEERING_TENANTS: &str = "SELECT DISTINCT tenant FROM steering";
