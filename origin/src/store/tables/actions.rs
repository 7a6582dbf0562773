//! Statements of the table `actions`: packed actions of a visitor in buckets. `place` is the visitor row and the first
//! minute.

/// Number of actions in the buckets of a range of places; 0 without buckets. `?1` first place, `?2` end of the range.
pub(crate) const ACTIONS_COUNT_IN_RANGE: &str =
    "SELECT ifnull(sum(count), 0) FROM actions WHERE place >= ?1 AND place < ?2";

/// Place of the first bucket of a range. `?1` first place, `?2` end of the range.
pub(crate) const ACTIONS_FIRST_IN_RANGE: &str =
    "SELECT place FROM actions WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT 1";

/// Place of the last bucket of a range. `?1` first place, `?2` end of the range.
pub(crate) const ACTIONS_LAST_IN_RANGE: &str =
    "SELECT place FROM actions WHERE place >= ?1 AND place < ?2 ORDER BY place DESC LIMIT 1";

/// Buckets of a range of places, in the order of the key. `?1` first place, `?2` end of the range. The longest bucket
/// that reaches into the requested minutes begins with its day, so the range begins with the day; the caller skips
/// earlier short buckets.
pub(crate) const ACTIONS_IN_RANGE: &str = "SELECT place, minutes, body FROM actions WHERE place >= ?1 AND place < ?2";

/// Writes one bucket, and replaces the bucket at the same place.
pub(crate) const ACTIONS_REPLACE_BUCKET: &str =
    "INSERT OR REPLACE INTO actions (place, minutes, count, body) VALUES (?1, ?2, ?3, ?4)";

/// Deletes one bucket. `?1` place.
pub(crate) const ACTIONS_DELETE_BUCKET: &str = "DELETE FROM actions WHERE place = ?1";

/// Deletes the buckets of a range of places. `?1` first place, `?2` end of the range.
pub(crate) const ACTIONS_DELETE_IN_RANGE: &str = "DELETE FROM actions WHERE place >= ?1 AND place < ?2";
