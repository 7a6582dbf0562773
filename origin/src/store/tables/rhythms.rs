//! Statements of the table `rhythms`: the activity of all people of a tenant by hour of the week.

/// Reads the 168 sums of tenant `?1`.
pub(crate) const RHYTHMS_HOURS_OF_TENANT: &str = "SELECT hours FROM rhythms WHERE tenant = ?1";

/// Inserts the sums of a tenant.
pub(crate) const RHYTHMS_INSERT: &str = "INSERT INTO rhythms (tenant, people, summed, hours) VALUES (?1, ?2, ?3, ?4)";

/// Deletes the sums of all tenants. The caller inserts the new sums in the same transaction.
pub(crate) const RHYTHMS_DELETE_ALL: &str = "DELETE FROM rhythms";
