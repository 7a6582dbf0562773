//! Keys of tenants that are not configured. Their values cannot be built, and nothing of them is lost: their rows wait
//! in the outbox, outside every hand-out, count and age, until the tenant is configured at a start.

use causeway_shared::base::ids::Millis;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::outbox::kv_key::CATALOGUE;
use crate::store::StoreError;
use crate::store::tables::outbox;
use crate::store::tenants::Tenants;

/// Due time of a key that waits for its tenant: never.
pub(super) const NEVER: i64 = i64::MAX;

/// Makes the waiting keys of configured tenants due, and lets the keys of other tenants wait. Called once, before
/// anything is handed out; reads every row.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn move_waiting_keys(conn: &Connection, tenants: &Tenants, now: Millis) -> Result<(), StoreError> {
    let known: Vec<i64> = tenants.iter().map(|known| known.no.0).collect();
    conn.execute(
        outbox::OUTBOX_SET_NEVER_DUE_BY_TENANT,
        (NEVER, signed(now), serde_json::json!(known).to_string(), CATALOGUE),
    )?;
    let waiting: i64 = conn.query_row(outbox::OUTBOX_COUNT_DUE_AT, [NEVER], |row| row.get(0))?;
    if waiting > 0 {
        tracing::warn!(waiting, "KV keys of tenants that are not configured wait until they are");
    }
    Ok(())
}
