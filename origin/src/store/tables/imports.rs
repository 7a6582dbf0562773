//! Statements of the table `imports`: the imported files.

/// Reads how far file `?1` is imported.
pub(crate) const IMPORTS_BY_FILE: &str = "SELECT lines, ended, changed FROM imports WHERE file = ?1";

/// Stores how far a file is imported. The time of the first call stays.
pub(crate) const IMPORTS_UPSERT: &str = "INSERT INTO imports (file, lines, changed, ended) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (file) DO UPDATE SET lines = excluded.lines, ended = excluded.ended";
