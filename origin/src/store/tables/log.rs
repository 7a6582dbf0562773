//! Statements of the table `log` in the fact log's file: the records that are not yet deleted.

/// Deletes the records up to number `?1`, which are in the store.
pub(crate) const LOG_DELETE_UP_TO: &str = "DELETE FROM log WHERE seq <= ?1";

/// Inserts a record. `?4` is the author and reason, NULL for a sync of the edge.
pub(crate) const LOG_INSERT: &str = "INSERT INTO log (seq, taken, body, said) VALUES (?1, ?2, ?3, ?4)";

/// Reads the records after number `?1` without their numbers, in their order.
pub(crate) const LOG_CONTENTS_AFTER: &str = "SELECT taken, body, said FROM log WHERE seq > ?1 ORDER BY seq";

/// Reads whether a record has a number above `?1`.
pub(crate) const LOG_ANY_AFTER: &str = "SELECT EXISTS (SELECT 1 FROM log WHERE seq > ?1)";

/// Reads the highest number of a record, or 0.
pub(crate) const LOG_NEWEST: &str = "SELECT ifnull(max(seq), 0) FROM log";

/// Reads the records after number `?1` in their order.
pub(crate) const LOG_AFTER: &str = "SELECT seq, taken, body, said FROM log WHERE seq > ?1 ORDER BY seq";

/// Counts the records after number `?1`.
pub(crate) const LOG_COUNT_AFTER: &str = "SELECT count(*) FROM log WHERE seq > ?1";

/// Reads the bodies and authors of the records after number `?1`, in their order.
pub(crate) const LOG_BODIES_AFTER: &str = "SELECT body, said FROM log WHERE seq > ?1 ORDER BY seq";
