//! Statements of the table `state` in the fact log's file with one row: its store and its highest numbers.

/// Reads the highest number that a record ever had; `state` may be older than the newest record.
pub(crate) const STATE_HIGHEST: &str = "SELECT max(highest, ifnull((SELECT max(seq) FROM log), 0)) FROM state";

/// Binds the log to store `?1`, with `?2` as its highest record. Records above `?3` count as not deleted.
pub(crate) const STATE_BIND: &str = "UPDATE state SET identity = ?1, highest = ?2, let_go = min(let_go, ?3)";

/// Sets the highest number to `?1`.
pub(crate) const STATE_SET_HIGHEST: &str = "UPDATE state SET highest = ?1";

/// Raises the highest number to `?1`, and the highest deleted number to `?2`.
pub(crate) const STATE_RAISE: &str = "UPDATE state SET highest = max(highest, ?1), let_go = max(let_go, ?2)";

/// Reads the store that the log belongs to, the highest number that a record ever had, and the highest deleted number.
pub(crate) const STATE_ALL: &str =
    "SELECT identity, max(highest, ifnull((SELECT max(seq) FROM log), 0)), let_go FROM state";
