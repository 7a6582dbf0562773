//! Statements of the table `purchases`: sums of purchases. `place` is the visitor row and the minute.

/// Sums of a range of places, in the order of the key. `?1` first place, `?2` end of the range.
pub(crate) const PURCHASES_IN_RANGE: &str =
    "SELECT place, count, value FROM purchases WHERE place >= ?1 AND place < ?2";

/// Adds a purchase to the sums of a visitor's minute. `?1` place, `?2` value in micros. Each term is at most half of
/// the largest number, so that the sum fits its column.
pub(crate) const PURCHASES_ADD: &str =
    "INSERT INTO purchases (place, count, value) VALUES (?1, 1, ?2) ON CONFLICT (place) DO UPDATE
    SET count = count + 1, value = min(value, 4611686018427387903) + min(excluded.value, 4611686018427387903)";

/// Deletes the sums of a range of places. `?1` first place, `?2` end of the range.
pub(crate) const PURCHASES_DELETE_IN_RANGE: &str = "DELETE FROM purchases WHERE place >= ?1 AND place < ?2";
