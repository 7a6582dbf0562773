//! Conversions between unsigned counts or times and SQLite's signed integers of 64 bits.

/// A count or time for SQLite; a value above `i64::MAX` becomes `i64::MAX`.
#[must_use]
pub fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A count or time from SQLite; a negative value becomes 0.
#[must_use]
pub fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
