//! Statements of the table `people_changed`: changes of people in order, for the audience index.

/// A page of changes in their order. `?1` number before the page, `?2` maximum rows.
pub(crate) const PEOPLE_CHANGED_AFTER: &str =
    "SELECT seq, person FROM people_changed WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// Number of the oldest retained change; 0 without changes.
pub(crate) const PEOPLE_CHANGED_OLDEST: &str = "SELECT ifnull(min(seq), 0) FROM people_changed";

/// Records a change of a person. `?1` person row.
pub(crate) const PEOPLE_CHANGED_INSERT: &str = "INSERT INTO people_changed (person) VALUES (?1)";

/// Deletes all but the newest changes. `?1` number of retained changes.
pub(crate) const PEOPLE_CHANGED_TRIM: &str =
    "DELETE FROM people_changed WHERE seq <= (SELECT max(seq) FROM people_changed) - ?1";
