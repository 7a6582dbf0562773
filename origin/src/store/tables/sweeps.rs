//! Statements of the table `sweeps`: large people that are published again step by step.

/// Inserts a sweep over a person that continues after `(?3, ?4)`. A running sweep makes another round instead. `?2` is
/// the version counter before which a snapshot is outdated.
pub(crate) const SWEEPS_START_OR_REPEAT: &str =
    "INSERT INTO sweeps (person, before, last_seen, visitor, put) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET before = excluded.before, again = 1";

/// Reads whether a sweep over person `?1` is running.
pub(crate) const SWEEPS_EXISTS: &str = "SELECT 1 FROM sweeps WHERE person = ?1";

/// Reads whether the next sweep made its last step outside the times from `?1` (excluded) to `?2` (now). A later time
/// than now comes from a clock that was ahead. NULL without a sweep.
pub(crate) const SWEEPS_IS_OVERDUE: &str =
    "SELECT (SELECT put FROM sweeps ORDER BY turn LIMIT 1) NOT BETWEEN ?1 + 1 AND ?2";

/// Reads the sweep with the lowest turn.
pub(crate) const SWEEPS_NEXT: &str =
    "SELECT person, before, last_seen, visitor, again FROM sweeps ORDER BY turn LIMIT 1";

/// Stores the position of a sweep and its time `?5`, and gives it the last turn.
pub(crate) const SWEEPS_SET_POSITION: &str = "UPDATE sweeps SET last_seen = ?2, visitor = ?3, again = ?4,
    turn = (SELECT max(turn) + 1 FROM sweeps), put = ?5 WHERE person = ?1";

/// Deletes the sweep over person `?1`.
pub(crate) const SWEEPS_DELETE: &str = "DELETE FROM sweeps WHERE person = ?1";
