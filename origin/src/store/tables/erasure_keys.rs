//! Statements of the table `erasure_keys`: the KV keys that may name an erased visitor.

/// Reads whether a key of any erasure is not written yet. The index is forced, because SQLite without statistics
/// assumes ten rows per tenant.
pub(crate) const ERASURE_KEYS_ANY_UNWRITTEN: &str =
    "SELECT EXISTS (SELECT 1 FROM erasure_keys INDEXED BY erasure_keys_open WHERE written IS NULL)";

/// Marks a key as written at `?5` in all erasures that need a version older than `?4`. The index is forced, because
/// SQLite without statistics assumes ten rows per tenant.
pub(crate) const ERASURE_KEYS_MARK_WRITTEN: &str = "UPDATE erasure_keys INDEXED BY erasure_keys_open SET written = ?5
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND written IS NULL AND after < ?4";

/// Adds a key to an erasure. A key that is already there must be written and verified again, with a version above `?5`.
pub(crate) const ERASURE_KEYS_UPSERT: &str =
    "INSERT INTO erasure_keys (tenant, receipt, kind, subject, after) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET after = excluded.after, written = NULL, verified = NULL";

/// Copies the unverified keys of erasure `?3` to erasure `?2`, unless they were written at or before `?5`. `?4` is the
/// value for a key that is not written.
pub(crate) const ERASURE_KEYS_COPY_UNSETTLED: &str =
    "INSERT OR IGNORE INTO erasure_keys (tenant, receipt, kind, subject, after, written)
    SELECT tenant, ?2, kind, subject, after, written FROM erasure_keys
    WHERE tenant = ?1 AND receipt = ?3 AND verified IS NULL AND ifnull(written, ?4) > ?5";

/// Marks a key as verified at `?4` in all erasures, if it was written at or before `?5`. The index is forced, because
/// SQLite without statistics assumes ten rows per tenant.
pub(crate) const ERASURE_KEYS_MARK_VERIFIED: &str =
    "UPDATE erasure_keys INDEXED BY erasure_keys_unverified SET verified = ?4
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL AND written <= ?5";

/// Marks an unverified key as unwritten: a version above `?4` must be written. The index is forced, because SQLite
/// without statistics assumes ten rows per tenant.
pub(crate) const ERASURE_KEYS_MARK_UNWRITTEN: &str =
    "UPDATE erasure_keys INDEXED BY erasure_keys_unverified SET written = NULL, after = ?4
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL";

/// Reads whether an erasure waits for the verification of a key. The index is forced, because SQLite without statistics
/// assumes ten rows per tenant.
pub(crate) const ERASURE_KEYS_IS_UNVERIFIED: &str =
    "SELECT EXISTS (SELECT 1 FROM erasure_keys INDEXED BY erasure_keys_unverified
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND verified IS NULL)";

/// Counts the keys of an erasure, its written and its verified keys, with the newest time of both.
pub(crate) const ERASURE_KEYS_PROGRESS_OF_ERASURE: &str =
    "SELECT count(*), count(written), ifnull(max(written), 0), count(verified),
        ifnull(max(verified), 0) FROM erasure_keys
    WHERE tenant = ?1 AND receipt = ?2";

/// Reads the keys that any erasure still waits for.
pub(crate) const ERASURE_KEYS_DISTINCT_UNWRITTEN: &str =
    "SELECT DISTINCT tenant, kind, subject FROM erasure_keys WHERE written IS NULL";

/// Reads the keys of the erasures of tenant `?1` for an export, including the keys that a sweep has not noted yet. The
/// sweep is not exported: every key is published again.
pub(crate) const ERASURE_KEYS_WITH_SWEPT_OF_TENANT: &str =
    "SELECT receipt, kind, subject, written FROM erasure_keys k WHERE tenant = ?1 AND NOT EXISTS
        (SELECT 1 FROM visitors v CROSS JOIN erasure_sweeps s ON s.person = v.person
        WHERE k.kind = 0 AND v.tenant = ?1 AND v.visitor = k.subject AND s.tenant = ?1 AND s.receipt = k.receipt)
    UNION ALL SELECT s.receipt, 0, v.visitor, NULL FROM erasure_sweeps s CROSS JOIN visitors v
        ON v.person = s.person WHERE s.tenant = ?1 AND v.tenant = ?1 ORDER BY receipt, kind, subject";

/// Inserts a key of an export.
pub(crate) const ERASURE_KEYS_INSERT_WITH_WRITTEN: &str =
    "INSERT INTO erasure_keys (tenant, receipt, kind, subject, after, written) VALUES (?1, ?2, ?3, ?4, 0, ?5)";
