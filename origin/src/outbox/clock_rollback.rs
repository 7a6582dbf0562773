//! Repairs times in the store that lie too far ahead because a clock ran ahead and was set back.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::outbox::kv_key::CATALOGUE;
use crate::outbox::queue::{LATE_MS, LEASE_MS, STEP_MS};
use crate::outbox::{fair_queue, unconfigured_tenants};
use crate::store::StoreError;
use crate::store::tables::{catalogue_codes, catalogue_current, catalogues, outbox, people, verifications};

/// Whether any time in the store is later than the longest wait allows, whichever process wrote it. Reads only the
/// indices of due times.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn is_ahead(
    conn: &Connection,
    now: Millis,
    sibling_publish_ms: u64,
    kv_settled_ms: u64,
) -> Result<bool, StoreError> {
    let after = |wait: u64| signed(now.saturating_add(wait).saturating_add(STEP_MS));
    let [late, siblings, settled] = [LATE_MS, sibling_publish_ms, kv_settled_ms].map(after);
    let waits =
        conn.prepare_cached(people::PEOPLE_OR_VERIFICATIONS_AHEAD)?.query_row((siblings, settled), |row| row.get(0))?;
    Ok(waits || fair_queue::is_due_after(conn, late)?)
}

/// Makes everything due now whose time is later than the longest wait allows, because a clock that was set back since
/// wrote it. Writes that were handed out wait for their acknowledgement once more, because the time of their hand-out
/// is unknown. Old versions of a catalogue are due a day later; keys of unconfigured tenants keep waiting. Reads every
/// row.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn set_back(conn: &Connection, now: Millis, sibling_publish_ms: u64, kv_settled_ms: u64) -> Result<(), StoreError> {
    let after = |wait: u64| signed(now.saturating_add(wait));
    let (step, kept) = (signed(STEP_MS), signed(limits::CATALOGUE_KEEP_MS));
    conn.execute(
        outbox::OUTBOX_CAP_DUE,
        [signed(now), after(LATE_MS + STEP_MS), unconfigured_tenants::NEVER, CATALOGUE.into(), kept],
    )?;
    conn.execute(outbox::OUTBOX_CAP_TIMES, [signed(now), after(LATE_MS), after(LEASE_MS), step])?;
    for catalogues in [
        catalogues::CATALOGUES_CAP_REPLACED,
        catalogue_current::CATALOGUE_CURRENT_CAP_SINCE,
        catalogue_codes::CATALOGUE_CODES_CAP_CONVERSION_UNTIL,
    ] {
        conn.execute(catalogues, [signed(now), step])?;
    }
    conn.execute(people::PEOPLE_CAP_SIBLINGS_DUE, [signed(now), after(sibling_publish_ms + STEP_MS)])?;
    conn.execute(verifications::VERIFICATIONS_CAP_TIMES, [signed(now), after(kv_settled_ms + STEP_MS)])?;
    Ok(())
}
