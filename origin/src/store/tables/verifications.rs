//! Statements of the table `verifications`: the KV keys that the job `verify` reads back.

/// Deletes the row of a finished key.
pub(crate) const VERIFICATIONS_DELETE: &str = "DELETE FROM verifications WHERE entry = ?1";

/// Deletes all rows.
pub(crate) const VERIFICATIONS_DELETE_ALL: &str = "DELETE FROM verifications";

/// Counts all rows and the unanswered rows without an earlier look, and reads the earliest due time of an unanswered
/// row.
pub(crate) const VERIFICATIONS_COUNT_OPEN: &str =
    "SELECT count(*), count(*) FILTER (WHERE looks = 0 AND answered IS NULL),
    min(due) FILTER (WHERE answered IS NULL) FROM verifications";

/// Reads at most `?1` answered rows, the oldest entry first.
pub(crate) const VERIFICATIONS_ANSWERED: &str =
    "SELECT entry, tenant, kind, subject, requested, sha256, looks, expected FROM verifications
    WHERE answered IS NOT NULL ORDER BY entry LIMIT ?1";

/// Inserts a key to be read back after `?5`.
pub(crate) const VERIFICATIONS_INSERT: &str =
    "INSERT INTO verifications (entry, tenant, kind, subject, due, looks, expected)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Reads at most `?2` due rows that are not leased and have a large value (a kind above 255), the longest due first.
pub(crate) const VERIFICATIONS_DUE_LARGE: &str =
    "SELECT entry, tenant, kind, subject FROM verifications WHERE answered IS NULL
    AND due <= ?1 AND leased_until <= ?1 AND kind > 255 ORDER BY due, entry LIMIT ?2";

/// Reads at most `?2` due rows of visitors and ids (kinds up to 255) that are not leased, the longest due first.
pub(crate) const VERIFICATIONS_DUE_SMALL: &str =
    "SELECT entry, tenant, kind, subject FROM verifications WHERE answered IS NULL
    AND due <= ?1 AND leased_until <= ?1 AND kind <= 255 ORDER BY due, entry LIMIT ?2";

/// Leases a row until `?2`. It keeps the time at which an edge was first asked.
pub(crate) const VERIFICATIONS_LEASE: &str =
    "UPDATE verifications SET leased_until = ?2, requested = ifnull(requested, ?3) WHERE entry = ?1";

/// Stores the answer of a row that was handed out and has no answer.
pub(crate) const VERIFICATIONS_SET_ANSWER: &str = "UPDATE verifications SET answered = ?2, sha256 = ?3
    WHERE entry = ?1 AND requested IS NOT NULL AND answered IS NULL";

/// Counts the due rows that are not leased.
pub(crate) const VERIFICATIONS_COUNT_DUE: &str = "SELECT count(*) FROM verifications
    WHERE answered IS NULL AND due <= ?1 AND leased_until <= ?1";

/// Caps the due time and the lease at `?1` if one of them is after `?2`.
pub(crate) const VERIFICATIONS_CAP_TIMES: &str =
    "UPDATE verifications SET due = min(due, ?1), leased_until = min(leased_until, ?1)
    WHERE due > ?2 OR leased_until > ?2";
