//! Statements of the table `event_names`: names of events that audiences count.

/// Source of a name. `?1` tenant, `?2` name.
pub(crate) const EVENT_NAMES_SOURCE_OF_NAME: &str = "SELECT source FROM event_names WHERE tenant = ?1 AND name = ?2";

/// Number of names of a tenant. `?1` tenant.
pub(crate) const EVENT_NAMES_COUNT_OF_TENANT: &str = "SELECT count(*) FROM event_names WHERE tenant = ?1";

/// All names of all tenants.
pub(crate) const EVENT_NAMES_ALL: &str = "SELECT tenant, name FROM event_names";

/// Names of a tenant with source and time, in the order of names. `?1` tenant.
pub(crate) const EVENT_NAMES_OF_TENANT: &str =
    "SELECT name, source, since FROM event_names WHERE tenant = ?1 ORDER BY name";

/// Inserts a name; an existing name takes the higher of both sources.
pub(crate) const EVENT_NAMES_UPSERT: &str =
    "INSERT INTO event_names (tenant, name, source, since) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET source = max(source, excluded.source)";

/// Deletes one name. `?1` tenant, `?2` name.
pub(crate) const EVENT_NAMES_DELETE: &str = "DELETE FROM event_names WHERE tenant = ?1 AND name = ?2";

/// Deletes the tenant's name of the lowest source, the newest first. `?1` tenant, `?2` source that the name must be
/// below.
pub(crate) const EVENT_NAMES_DELETE_LEAST: &str =
    "DELETE FROM event_names WHERE tenant = ?1 AND name = (SELECT name FROM event_names
    WHERE tenant = ?1 AND source < ?2 ORDER BY source, since DESC, name DESC LIMIT 1)";
