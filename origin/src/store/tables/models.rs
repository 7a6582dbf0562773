//! Statements of the table `models`: the trained models.

/// Reads the next version of tenant `?1`.
pub(crate) const MODELS_NEXT_VERSION: &str = "SELECT ifnull(max(version), 0) + 1 FROM models WHERE tenant = ?1";

/// Inserts a model.
pub(crate) const MODELS_INSERT: &str =
    "INSERT INTO models (tenant, version, at, bytes, report) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Deletes the models of tenant `?1` up to version `?2`.
pub(crate) const MODELS_DELETE_UP_TO_VERSION: &str = "DELETE FROM models WHERE tenant = ?1 AND version <= ?2";

/// Reads the newest model of tenant `?1`.
pub(crate) const MODELS_NEWEST: &str =
    "SELECT bytes, report FROM models WHERE tenant = ?1 ORDER BY version DESC LIMIT 1";

/// Reads the tenants that have a model.
pub(crate) const MODELS_TENANTS: &str = "SELECT DISTINCT tenant FROM models";
