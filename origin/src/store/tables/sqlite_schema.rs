//! Statements of the table `sqlite_schema`: the schema, as SQLite stores it.

/// Whether a file without a version of the schema has tables, which another program created.
pub(crate) const SQLITE_SCHEMA_IS_FOREIGN: &str =
    "SELECT user_version = 0 AND EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_user_version";
