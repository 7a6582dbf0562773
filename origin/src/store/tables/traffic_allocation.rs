//! Statements of the table `traffic_allocation`: the traffic allocation of each tenant.

/// Inserts or replaces the traffic allocation of a tenant.
pub(crate) const TRAFFIC_ALLOCATION_REPLACE: &str =
    "INSERT OR REPLACE INTO traffic_allocation (tenant, at, value) VALUES (?1, ?2, ?3)";

/// Reads the traffic allocation of tenant `?1` and the time at which it was built.
pub(crate) const TRAFFIC_ALLOCATION_OF_TENANT: &str = "SELECT at, value FROM traffic_allocation WHERE tenant = ?1";

/// Reads the tenants that have a traffic allocation.
pub(crate) const TRAFFIC_ALLOCATION_TENANTS: &str = "SELECT DISTINCT tenant FROM traffic_allocation";
