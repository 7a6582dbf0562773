//! Keys of tenants that are not configured. Nobody can build their values, and nothing of them is lost: their rows wait in
//! the outbox, where no hand-out, count or age comes upon them, until a start finds their tenant configured again.

use causeway_shared::base::ids::Millis;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::outbox::kv_key::CATALOGUE;
use crate::store::StoreError;
use crate::store::tenants::Tenants;

/// When a key is due that waits for its tenant: never.
pub(super) const NEVER: i64 = i64::MAX;

/// Has what waits for its tenant written where that is configured now, and has wait what is of one that is not. To be called
/// once, before anything is handed out; every row is looked at.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn move_waiting_keys(conn: &Connection, tenants: &Tenants, now: Millis) -> Result<(), StoreError> {
    // An old version of a catalogue goes when it is time, and not before.
    const SORT: &str = "UPDATE outbox SET due = iif(due = ?1, ?2, ?1)
        WHERE due IS NOT NULL AND (due = ?1 OR kind <> ?4) AND (due = ?1) = (tenant IN (SELECT value FROM json_each(?3)))";
    const WAIT: &str = "SELECT count(*) FROM outbox WHERE due = ?1";
    let known: Vec<i64> = tenants.iter().map(|known| known.no.0).collect();
    conn.execute(SORT, (NEVER, signed(now), serde_json::json!(known).to_string(), CATALOGUE))?;
    let waiting: i64 = conn.query_row(WAIT, [NEVER], |row| row.get(0))?;
    if waiting > 0 {
        tracing::warn!(waiting, "KV keys of tenants that are not configured wait until they are");
    }
    Ok(())
}
