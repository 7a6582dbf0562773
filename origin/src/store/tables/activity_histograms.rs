//! Statements of the table `activity_histograms`: the activity of all people of a tenant by hour of the week.

/// Reads the 168 sums of tenant `?1`.
pub(crate) const ACTIVITY_HISTOGRAMS_HOURS_OF_TENANT: &str = "SELECT hours FROM activity_histograms WHERE tenant = ?1";

/// Inserts the sums of a tenant.
pub(crate) const ACTIVITY_HISTOGRAMS_INSERT: &str =
    "INSERT INTO activity_histograms (tenant, people, summed, hours) VALUES (?1, ?2, ?3, ?4)";

/// Deletes the sums of all tenants. The caller inserts the new sums in the same transaction.
pub(crate) const ACTIVITY_HISTOGRAMS_DELETE_ALL: &str = "DELETE FROM activity_histograms";
