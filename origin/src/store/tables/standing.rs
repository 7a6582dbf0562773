//! Statements of the table `standing`: the versions under which values of a tenant were handed out last.

/// Stores the version under which a value of a tenant was handed out last.
pub(crate) const STANDING_UPSERT: &str = "INSERT INTO standing (tenant, kind, published) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET published = excluded.published";

/// Reads the version under which a value of a tenant was handed out last.
pub(crate) const STANDING_PUBLISHED: &str = "SELECT published FROM standing WHERE tenant = ?1 AND kind = ?2";
