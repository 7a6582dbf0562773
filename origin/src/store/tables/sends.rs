//! Statements of the table `sends`: the requested sends and their progress.

/// Columns of a send that a caller reads as one value.
macro_rules! columns {
    () => {
        "send, tenant, name, filter, count, experiment, webhook, per_second, random, requested, chosen, next,
    delivered, control, gone, merged, \"left\", due, error"
    };
}

/// All columns of a send except its row number.
macro_rules! all_columns {
    () => {
        "tenant, name, filter, count, experiment, webhook, per_second, random, requested, chosen, next, delivered,
    control, gone, merged, \"left\", due, tries, error"
    };
}

/// Reads the send with name `?2` of tenant `?1`.
pub(crate) const SENDS_BY_NAME: &str = concat!("SELECT ", columns!(), " FROM sends WHERE tenant = ?1 AND name = ?2");

/// Reads all sends, or the sends of tenant `?1` if it is not NULL, the oldest first.
pub(crate) const SENDS_ALL_OR_OF_TENANT: &str =
    concat!("SELECT ", columns!(), " FROM sends WHERE ?1 IS NULL OR tenant = ?1 ORDER BY send");

/// Reads the sends that are due at `?1` (now), the longest due first. A due time over `?2` ms later comes from a clock
/// that was ahead, and counts as due.
pub(crate) const SENDS_DUE: &str =
    concat!("SELECT ", columns!(), " FROM sends WHERE due <= ?1 OR due > ?1 + ?2 ORDER BY due, send");

/// Reads all columns of all sends, the row number last.
pub(crate) const SENDS_ALL_COLUMNS: &str = concat!("SELECT ", all_columns!(), ", send FROM sends");

/// Inserts a send under a new row number; the 19 parameters are the columns of [`SENDS_ALL_COLUMNS`] without the last.
pub(crate) const SENDS_INSERT_ALL_COLUMNS: &str = concat!(
    "INSERT INTO sends (",
    all_columns!(),
    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
);

/// Stops all open sends.
pub(crate) const SENDS_STOP_ALL: &str = "UPDATE sends SET due = NULL, error = 'stopped' WHERE due IS NOT NULL";

/// Deletes the send with name `?2` of tenant `?1`.
pub(crate) const SENDS_DELETE_BY_NAME: &str = "DELETE FROM sends WHERE tenant = ?1 AND name = ?2";

/// Counts the sends of tenant `?1`.
pub(crate) const SENDS_COUNT_OF_TENANT: &str = "SELECT count(*) FROM sends WHERE tenant = ?1";

/// Inserts a send that is due when it is requested (`?9`).
pub(crate) const SENDS_INSERT: &str =
    "INSERT INTO sends (tenant, name, filter, count, experiment, webhook, per_second, random, requested, due)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)";

/// Makes send `?1` due at `?2` and clears its error, if it has an error or is due later.
pub(crate) const SENDS_RESUME: &str = "UPDATE sends SET due = ?2, tries = 0, error = NULL
    WHERE send = ?1 AND (error IS NOT NULL OR due > ?2)";

/// Reads the earliest due time. A due time over `?2` ms after `?1` (now) comes from a clock that was ahead, and counts
/// as now.
pub(crate) const SENDS_NEXT_DUE: &str = "SELECT min(iif(due > ?1 + ?2, ?1, due)) FROM sends WHERE due IS NOT NULL";

/// Stops the send with name `?2` of tenant `?1` if it is open.
pub(crate) const SENDS_STOP_BY_NAME: &str =
    "UPDATE sends SET due = NULL, error = 'stopped' WHERE tenant = ?1 AND name = ?2 AND due IS NOT NULL";

/// Reads the newest outcome time of the sends of experiment `?2` that were requested before `?3`, or 0. Only the last
/// 1000 positions of each send are read, in which erased people leave gaps.
pub(crate) const SENDS_LAST_DELIVERY_OF_EXPERIMENT: &str =
    "SELECT ifnull(max(at), 0) FROM sends s CROSS JOIN send_people p ON p.send = s.send
    AND p.place BETWEEN s.next - 1000 AND s.next - 1 WHERE s.tenant = ?1 AND s.experiment = ?2 AND s.requested < ?3";

/// Postpones send `?1` after `?2` (now) without an error: by `?3` ms, or by 1, 2, 4, … seconds for each attempt since
/// its last progress, at most `?4` ms.
pub(crate) const SENDS_HOLD: &str =
    "UPDATE sends SET error = NULL, due = ?2 + ifnull(?3, min(?4, 1000 << min(tries, 12))),
    tries = tries + 1 WHERE send = ?1 AND due IS NOT NULL";

/// Marks send `?1` as over.
pub(crate) const SENDS_COMPLETE: &str = "UPDATE sends SET due = NULL WHERE send = ?1";

/// Stores the position and the sums of a send. The new due time is now (`?8`): among due sends and jobs, the one that
/// has waited longest comes first. A stopped send stays stopped.
pub(crate) const SENDS_SET_PROGRESS: &str =
    "UPDATE sends SET next = ?2, delivered = ?3, control = ?4, gone = ?5, merged = ?6, \"left\" = ?7,
    tries = 0, error = iif(due IS NULL, error, NULL), due = iif(due IS NULL, NULL, ?8) WHERE send = ?1";

/// Stores the number `?2` of drawn people. A send without people is over, with error `?3` unless it is NULL.
pub(crate) const SENDS_SET_CHOSEN: &str =
    "UPDATE sends SET chosen = ?2, error = ifnull(?3, error), due = iif(?2 = 0, NULL, due)
    WHERE send = ?1";

/// Reads whether send `?1` was not stopped.
pub(crate) const SENDS_IS_OPEN: &str = "SELECT 1 FROM sends WHERE send = ?1 AND due IS NOT NULL";

/// Stores error `?2` of send `?1` and its next due time: `?3` (now; NULL ends the send) plus `?4` ms, or plus 1, 2, 4,
/// … seconds for each attempt since its last progress, at most `?5` ms.
pub(crate) const SENDS_SET_ERROR: &str =
    "UPDATE sends SET error = ?2, due = ?3 + ifnull(?4, min(?5, 1000 << min(tries, 12))),
    tries = tries + 1 WHERE send = ?1 AND due IS NOT NULL";

/// Reads the filters of the open sends of tenant `?1`, by their names.
pub(crate) const SENDS_OPEN_FILTERS: &str =
    "SELECT name, filter FROM sends WHERE tenant = ?1 AND due IS NOT NULL ORDER BY name";

/// Reads the sends of tenant `?1` for an export.
pub(crate) const SENDS_OF_TENANT: &str =
    "SELECT name, filter, count, experiment, webhook, per_second, random, requested, chosen, next, delivered, control,
    gone, merged, \"left\", due IS NULL AND error IS NULL FROM sends WHERE tenant = ?1 ORDER BY name";

/// Inserts a send of an export. A send that is still open is delivered by the exporting installation, so it is loaded
/// as stopped.
pub(crate) const SENDS_INSERT_CLOSED: &str =
    "INSERT INTO sends (tenant, name, filter, count, experiment, webhook, per_second, random, requested, chosen, next,
        delivered, control, gone, merged, \"left\", error)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, iif(?17, NULL, 'stopped'))";

/// Reads the drawn people of all sends of tenant `?1` for an export.
pub(crate) const SENDS_PEOPLE_OF_TENANT: &str =
    "SELECT s.name, p.place, p.visitor, p.arm, p.outcome, p.at FROM sends s CROSS JOIN send_people p USING (send)
    WHERE s.tenant = ?1 ORDER BY s.name, p.place";
