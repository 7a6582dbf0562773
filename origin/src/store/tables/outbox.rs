//! Statements of the table `outbox`: the KV keys that must be written.

/// Condition for a row of an old version of a catalogue; kind `?4` is the kind of catalogues.
macro_rules! is_old_catalogue {
    () => {
        "kind = ?4 AND NOT EXISTS (SELECT 1 FROM catalogue_current c
        WHERE c.tenant = outbox.tenant AND printf('%032X', c.version) = hex(subject))"
    };
}

/// Caps due times between `?2` and `?3` at `?1`. For a row of an old version of a catalogue, the first two are `?5` ms
/// later. `?3` is the due time of rows that are never due.
pub(crate) const OUTBOX_CAP_DUE: &str = concat!(
    "UPDATE outbox SET due = ?1 + iif(",
    is_old_catalogue!(),
    ", ?5, 0) WHERE due > ?2 + iif(",
    is_old_catalogue!(),
    ", ?5, 0) AND due < ?3"
);

/// Reads the key that was handed out under entry `?1`, if no late writer may overwrite it after `?2` (now).
pub(crate) const OUTBOX_KEY_OF_LEASE: &str = "SELECT tenant, kind, subject FROM outbox WHERE lease = ?1 AND late <= ?2";

/// Inserts the keys of all visitors and of all lookups under each of their hashes. `?1` is the version counter, `?2`
/// the due time, and `?3` the time until which a late writer may write.
pub(crate) const OUTBOX_INSERT_ALL_KEYS: &str = "INSERT INTO outbox
        (tenant, kind, subject, changed, due, lease_change, leased_until, handed, late, priority)
    SELECT tenant, 0, visitor, ?1, ?2, 0, 0, 0, ?3, 3 FROM visitors
    UNION ALL SELECT l.tenant, l.kind, h.hash, ?1, ?2, 0, 0, 0, ?3, 3 FROM lookups l
        JOIN (SELECT tenant, kind, hash, hash AS canonical FROM lookups
            UNION SELECT tenant, kind, hash, canonical FROM alternates) h
        ON h.tenant = l.tenant AND h.kind = l.kind AND h.canonical = l.hash";

/// Deletes all rows.
pub(crate) const OUTBOX_DELETE_ALL: &str = "DELETE FROM outbox";

/// Reads the keys of visitors and ids (kinds up to 255) that wait for a write.
pub(crate) const OUTBOX_WAITING_KEYS: &str =
    "SELECT tenant, kind, subject, priority FROM outbox WHERE due IS NOT NULL AND kind <= 255";

/// Inserts a key that is due at `?5`; a row that is already there keeps the more urgent priority. `?6` is the time
/// until which a late writer may write.
pub(crate) const OUTBOX_INSERT_OR_RAISE: &str = "INSERT INTO outbox
        (tenant, kind, subject, changed, due, lease_change, leased_until, handed, late, priority)
    VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, ?6, ?7) ON CONFLICT DO UPDATE SET priority = min(priority, excluded.priority)";

/// Reads the keys of all rows.
pub(crate) const OUTBOX_KEYS: &str = "SELECT tenant, kind, subject FROM outbox";

/// Settles the row that was handed out under entry `?1`. It stays due if it changed since, or until the last late
/// writer ended.
pub(crate) const OUTBOX_SETTLE_LEASE: &str = "UPDATE outbox SET lease = NULL, leased_until = 0, handed = ?2,
    due = iif(changed = lease_change, iif(late > ?2, late, NULL), max(due, handed)) WHERE lease = ?1";

/// Settles the row that was handed out under entry `?1`, even if it changed since: a planted bug.
pub(crate) const OUTBOX_SETTLE_LEASE_DESPITE_CHANGE: &str =
    "UPDATE outbox SET lease = NULL, leased_until = 0, handed = ?2,
    due = iif(late > ?2, late, NULL) WHERE lease = ?1";

/// Settles row `?1` if it is leased under entry `?2`, as [`OUTBOX_SETTLE_LEASE`] does. `?3` is now.
pub(crate) const OUTBOX_SETTLE_ROW: &str = "UPDATE outbox SET lease = NULL, leased_until = 0, handed = ?3,
    due = iif(changed = lease_change, iif(late > ?3, late, NULL), max(due, handed)) WHERE row = ?1 AND lease = ?2";

/// Ends the lease of row `?1` under entry `?2` whose value was not sent. The row is due again at `?3` at the earliest.
pub(crate) const OUTBOX_RELEASE_ROW: &str =
    "UPDATE outbox SET lease = NULL, leased_until = 0, due = max(due, ?3) WHERE row = ?1 AND lease = ?2";

/// Lets the lease of row `?1` under entry `?2` expire at `?3`: its value may have been written.
pub(crate) const OUTBOX_EXPIRE_ROW: &str = "UPDATE outbox SET leased_until = ?3 WHERE row = ?1 AND lease = ?2";

/// Reads the key of row `?1` if it is leased under entry `?2` and no late writer may overwrite it after `?3` (now).
pub(crate) const OUTBOX_KEY_OF_ROW: &str =
    "SELECT tenant, kind, subject FROM outbox WHERE row = ?1 AND lease = ?2 AND late <= ?3";

/// Leases row `?1` under entry `?2` until `?3`. A row with an earlier lease may still be written by its holder until
/// `?5`.
pub(crate) const OUTBOX_LEASE: &str = "UPDATE outbox SET lease = ?2, lease_change = changed, leased_until = ?3,
    handed = ?4, late = iif(lease IS NULL, late, ?5) WHERE row = ?1";

/// Reads whether a key has a row, settled or not.
pub(crate) const OUTBOX_EXISTS: &str =
    "SELECT EXISTS (SELECT 1 FROM outbox WHERE tenant = ?1 AND kind = ?2 AND subject = ?3)";

/// Reads whether a key of tenant `?1` is due at `?2`.
pub(crate) const OUTBOX_ANY_DUE_OF_TENANT: &str =
    "SELECT EXISTS (SELECT 1 FROM outbox WHERE tenant = ?1 AND due <= ?2)";

/// Counts the snapshots of tenant `?1` that are due at `?2`, or that a late writer may still write after `?3` (now).
pub(crate) const OUTBOX_COUNT_PENDING_SNAPSHOTS: &str =
    "SELECT count(*) FROM outbox WHERE tenant = ?1 AND kind = 0 AND (due <= ?2 OR late > ?3)";

/// Caps times that a clock that was ahead wrote: `handed` at `?1`, `leased_until` at `?3` and `late` at `?2`, if they
/// are more than `?4` later.
pub(crate) const OUTBOX_CAP_TIMES: &str = "UPDATE outbox SET handed = iif(handed > ?1 + ?4, ?1, handed),
        leased_until = iif(leased_until > ?3 + ?4, ?3, leased_until), late = iif(late > ?2 + ?4, ?2, late)
    WHERE handed > ?1 + ?4 OR leased_until > ?3 + ?4 OR late > ?2 + ?4";

/// Reads the first tenant after `?2` with a waiting row of priority `?1`: one index step per tenant, at any number of
/// rows.
pub(crate) const OUTBOX_NEXT_WAITING_TENANT: &str =
    "SELECT tenant FROM outbox WHERE due IS NOT NULL AND priority = ?1 AND tenant > ?2 ORDER BY tenant LIMIT 1";

/// Reads `?5` due rows of a priority and tenant after the first `?6`, the longest due first, that are not leased at
/// `?3` (now) and were handed out at or before `?4`.
pub(crate) const OUTBOX_DUE_BY_TENANT: &str =
    "SELECT row, kind, subject, due FROM outbox WHERE priority = ?1 AND tenant = ?2 AND due <= ?3
    AND leased_until <= ?3 AND handed <= ?4 ORDER BY due, kind, row LIMIT ?5 OFFSET ?6";

/// Reads the rows of [`OUTBOX_DUE_BY_TENANT`] and also leased ones: a planted bug.
pub(crate) const OUTBOX_DUE_BY_TENANT_DESPITE_LEASE: &str =
    "SELECT row, kind, subject, due FROM outbox WHERE priority = ?1 AND tenant = ?2 AND due <= ?3
    AND handed <= ?4 ORDER BY due, kind, row LIMIT ?5 OFFSET ?6";

/// Counts the due rows of a priority and tenant that are not leased, at most `?4`.
pub(crate) const OUTBOX_COUNT_DUE_BY_TENANT: &str = "SELECT count(*) FROM (SELECT 1 FROM outbox
    WHERE priority = ?1 AND tenant = ?2 AND due <= ?3 AND leased_until <= ?3 LIMIT ?4)";

/// Counts the rows of a priority and tenant that are due before `?3`, at most `?4`, and reads the earliest due time.
pub(crate) const OUTBOX_DEPTH_BY_TENANT: &str = "SELECT count(*), min(due) FROM (SELECT due FROM outbox
    WHERE priority = ?1 AND tenant = ?2 AND due < ?3 ORDER BY due LIMIT ?4)";

/// Reads whether a row of a priority and tenant is due between `?3` and `?4`. A row of kind `?5` (a catalogue) counts
/// only if its version is current.
pub(crate) const OUTBOX_ANY_DUE_BETWEEN: &str = "SELECT EXISTS (SELECT 1 FROM outbox
    WHERE priority = ?1 AND tenant = ?2 AND due > ?3 AND due < ?4
        AND (kind <> ?5 OR EXISTS (SELECT 1 FROM catalogue_current c
        WHERE c.tenant = outbox.tenant AND printf('%032X', c.version) = hex(subject))))";

/// Sets the due time of row `?1`.
pub(crate) const OUTBOX_SET_DUE: &str = "UPDATE outbox SET due = ?2 WHERE row = ?1";

/// Makes a key due at `?5` with priority `?6`. A waiting row keeps an earlier due time and a more urgent priority; a
/// settled row takes both.
pub(crate) const OUTBOX_UPSERT: &str =
    "INSERT INTO outbox (tenant, kind, subject, changed, due, lease_change, leased_until, handed, priority)
    VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, ?6)
    ON CONFLICT (tenant, kind, subject) DO UPDATE SET changed = excluded.changed,
        priority = iif(due IS NULL, excluded.priority, min(priority, excluded.priority)),
        due = min(ifnull(due, excluded.due), excluded.due)";

/// Reads whether a key is due at `?4` with at least priority `?5`, and not leased. It will be written with the state at
/// that time, so nothing changes.
pub(crate) const OUTBOX_IS_DUE_UNLEASED: &str = "SELECT 1 FROM outbox
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?4 AND priority <= ?5 AND lease IS NULL";

/// Stores the version counter `?4` of the change of a key that is already due at `?5` with at least priority `?6`. The
/// row keeps its due time, so that no index changes.
pub(crate) const OUTBOX_SET_CHANGED_IF_DUE: &str = "UPDATE outbox SET changed = ?4
    WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due <= ?5 AND priority <= ?6";

/// Reads whether a key waits for a write, now or later.
pub(crate) const OUTBOX_IS_WAITING: &str =
    "SELECT 1 FROM outbox WHERE tenant = ?1 AND kind = ?2 AND subject = ?3 AND due IS NOT NULL";

/// Deletes the settled rows that were handed out at or before `?1`.
pub(crate) const OUTBOX_DELETE_SETTLED: &str = "DELETE FROM outbox WHERE due IS NULL AND handed <= ?1";

/// Sets the waiting rows of tenants outside the JSON list `?3` to `?1` (never due), and back to `?2` (now) if their
/// tenant is in the list again. A row of kind `?4` (an old version of a catalogue) is deleted at its own time, not
/// before.
pub(crate) const OUTBOX_SET_NEVER_DUE_BY_TENANT: &str = "UPDATE outbox SET due = iif(due = ?1, ?2, ?1)
    WHERE due IS NOT NULL AND (due = ?1 OR kind <> ?4) AND (due = ?1) = (tenant IN (SELECT value FROM json_each(?3)))";

/// Counts the rows of priority `?1` that wait for a write.
pub(crate) const OUTBOX_COUNT_WAITING_OF_PRIORITY: &str =
    "SELECT count(*) FROM outbox WHERE priority = ?1 AND due IS NOT NULL";

/// Counts the rows that are due exactly at `?1`.
pub(crate) const OUTBOX_COUNT_DUE_AT: &str = "SELECT count(*) FROM outbox WHERE due = ?1";

/// Inserts the keys that erasures of tenant `?1` wait for, unless they have a row. The index is forced, because SQLite
/// without statistics assumes ten rows per tenant.
pub(crate) const OUTBOX_INSERT_UNWRITTEN_OF_ERASURES: &str = "INSERT OR IGNORE INTO outbox
        (tenant, kind, subject, changed, due, lease_change, leased_until, handed, late, priority)
    SELECT DISTINCT tenant, kind, subject, ?2, ?3, 0, 0, 0, ?4, ?5
    FROM erasure_keys INDEXED BY erasure_keys_open WHERE tenant = ?1 AND written IS NULL";
