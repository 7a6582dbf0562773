//! Counts and times as SQLite keeps them: signed integers of 64 bits.

use causeway_shared::base::ids::Millis;

/// A count or time as SQLite keeps it; one beyond its range is its largest.
#[must_use]
pub fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A count or time as SQLite kept it.
#[must_use]
pub fn unsigned(n: i64) -> Millis {
    u64::try_from(n).unwrap_or(0)
}
