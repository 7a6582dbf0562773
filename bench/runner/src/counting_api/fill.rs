//! Fills the store before the measurement.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use causeway_origin::base::config::Config;
use causeway_origin::base::key_file;
use causeway_origin::base::metrics::Metrics;
use causeway_origin::ingest::intake::{CheckedFact, LogRecord};
use causeway_origin::pipeline::commit;
use causeway_origin::store;
use causeway_origin::store::tenants::Tenants;
use causeway_origin::store::write_txn::TxnInputs;
use causeway_origin::store::write_txn::TxnRules;

use super::people::People;
use crate::origin::TENANT;
use crate::stop::Stop;

/// Number of visitors in one transaction.
const GROUP: usize = 5_000;

/// Folds the facts of all people as the origin does, without the log.
pub(super) fn fill(config: &Path, people: People, stop: &Stop) -> Result<()> {
    let config = Config::load(config, |_| None)?;
    let keys = key_file::load_checked(&config.keys, &config.edge)?;
    let mut conn = store::open(&config.data)?;
    let tenants = Tenants::open(&conn, &config.edge, &keys)?;
    let tenant = tenants.by_name(TENANT).context("no tenant")?.no;
    let journal = causeway_origin::store::journal::ErasureJournal::open(&config.data)?;
    let rules = TxnRules::of(&config, tenants, journal);
    let metrics = Metrics::default();
    eprintln!("storing {} visitors", people.count);
    for first in (0..people.count).step_by(GROUP) {
        stop.check()?;
        let visitors = (first..people.count).take(GROUP);
        let facts = visitors.flat_map(|n| people.facts(n)).map(|fact| CheckedFact { tenant, fact }).collect();
        let records = [Arc::new(LogRecord::of(facts))];
        commit::commit_group(
            &mut conn,
            &rules,
            &metrics,
            TxnInputs { now: people.now, ..causeway_origin::store::write_txn::draw_inputs()? },
            &records,
            &[],
        )?;
    }
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}
