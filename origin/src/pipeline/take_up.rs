//! Folds quarantined facts once the data that they wait for can be read.

use rusqlite::Connection;

use crate::base::metrics::Metrics;
use crate::campaigns::rules::held_tenants;
use crate::pipeline::commit::commit_with;
use crate::profiles::check::check_visitor;
use crate::profiles::quarantine;
use crate::store::StoreError;
use crate::store::write_txn::{TxnInputs, TxnRules};

/// Folds the quarantined facts of all rows that can be read again, each row in a transaction of its own.
///
/// # Errors
/// [`StoreError`], except for a row that still cannot be read.
pub fn take_up(
    conn: &mut Connection,
    rules: &TxnRules,
    given: impl Fn() -> Result<TxnInputs, StoreError>,
) -> Result<(), StoreError> {
    let held = held_tenants(conn)?;
    for row in quarantine::quarantined_rows(conn)? {
        match check_visitor(conn, row) {
            Err(e) if e.is_of_a_value() => {
                tracing::error!(row = row.number(), error = %crate::base::error_chain(&e), "a visitor's row is damaged: its facts stay quarantined");
                continue;
            }
            whole => whole?,
        }
        let done = commit_with(
            conn,
            rules,
            &Metrics::default(),
            given()?,
            |tx| {
                let records = quarantine::records_of(tx, rules, &held, row)?;
                if !records.is_empty() || !quarantine::has_any(tx, row)? {
                    quarantine::forget_visitor(tx, row)?;
                }
                Ok(records)
            },
            &[],
            |_| Ok(()),
        );
        match done {
            Ok(done) if done.new.is_empty() => {}
            Ok(done) => {
                tracing::info!(row = row.number(), facts = done.new.iter().sum::<u64>(), "quarantined facts are folded")
            }
            Err(e) if e.is_of_a_value() => {
                tracing::error!(row = row.number(), error = %crate::base::error_chain(&e), "a visitor's row cannot be read: its facts stay quarantined");
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
