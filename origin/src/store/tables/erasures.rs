//! Statements of the table `erasures`: the requested erasures.

/// Reads whether an erasure waits for a log record up to number `?1`.
pub(crate) const ERASURES_ANY_IN_LOG_UP_TO: &str =
    "SELECT EXISTS (SELECT 1 FROM erasures WHERE log IS NULL AND log_seq <= ?1)";

/// Marks the erasures with a last log record up to `?1` as absent from the log since `?2`.
pub(crate) const ERASURES_MARK_OUT_OF_LOG: &str = "UPDATE erasures SET log = ?2 WHERE log IS NULL AND log_seq <= ?1";

/// Reads the highest log record that an erasure waits for, or 0.
pub(crate) const ERASURES_LAST_LOG_RECORD: &str = "SELECT ifnull(max(log_seq), 0) FROM erasures WHERE log IS NULL";

/// Reads the times of an erasure, and whether it waits for a sweep.
pub(crate) const ERASURES_PROGRESS: &str = "SELECT requested, stored, log, EXISTS
        (SELECT 1 FROM erasure_sweeps s WHERE s.tenant = e.tenant AND s.receipt = e.receipt)
    FROM erasures e WHERE tenant = ?1 AND receipt = ?2";

/// Reads whether an erasure with receipt `?2` is known.
pub(crate) const ERASURES_EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM erasures WHERE tenant = ?1 AND receipt = ?2)";

/// Inserts an erasure. Record 0 (`?5`) means that no log record holds it. A known erasure waits for a later record too.
pub(crate) const ERASURES_UPSERT: &str = "INSERT INTO erasures (tenant, receipt, requested, stored, log_seq, log)
    VALUES (?1, ?2, ?3, ?4, ?5, iif(?5 = 0, ?4, NULL))
    ON CONFLICT DO UPDATE SET log_seq = excluded.log_seq, log = NULL WHERE excluded.log_seq > log_seq";

/// Reads the erasures of tenant `?1` for an export.
pub(crate) const ERASURES_OF_TENANT: &str =
    "SELECT receipt, requested, stored, log FROM erasures WHERE tenant = ?1 ORDER BY receipt";

/// Inserts an erasure of an export. In the loaded store, no log record holds facts of the erased visitors, so `log_seq`
/// is 0.
pub(crate) const ERASURES_INSERT_WITHOUT_LOG: &str =
    "INSERT INTO erasures (tenant, receipt, requested, stored, log_seq, log) VALUES (?1, ?2, ?3, ?4, 0, ?5)";
