//! The search for damage: reads every packed value of the store once, and looks up every visitor in each way that other
//! reads use. Damage of a visitor holds up only that visitor ([`crate::profiles::quarantine`]). A damaged lookup is
//! rebuilt from its evidence.

use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, Millis};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::campaigns::{catalogue, train};
use crate::pipeline::mend;
use crate::profiles::check::check_visitor;
use crate::profiles::quarantine;
use crate::store::tables::{catalogues, experiment_people, lookups, tenants, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{CheckedBytes, StoreError, TenantNo, VisitorRow};
use crate::views::read::load_lookup;

/// Largest number of damaged rows in a report.
const NAMED: usize = 20;

/// The number of values read and of damaged ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Visitors read.
    pub visitors: u64,
    /// Lookups read.
    pub lookups: u64,
    /// Rows of experiments read, one per person and experiment.
    pub experiment_people: u64,
    /// Damaged visitors, which are quarantined: their facts wait.
    pub damaged_visitors: u64,
    /// Damaged lookups, which are rebuilt from their evidence.
    pub damaged_lookups: u64,
    /// Damaged rows of experiments, which the job `rollup` counts again.
    pub damaged_experiment_people: u64,
    /// Damaged values of tenants: catalogues and models.
    pub damaged_tenant_values: u64,
    /// The first damaged rows.
    pub first: Vec<DamagedRow>,
}

/// One page of checked rows.
#[derive(Debug)]
pub struct CheckedPage<P, D> {
    /// Position of the last row; the next page begins after it.
    pub last: P,
    /// The damaged rows.
    pub damaged: Vec<D>,
}

/// A visitor whose stored values cannot be read.
#[derive(Debug)]
pub struct DamagedVisitor {
    /// Its row.
    pub row: VisitorRow,
    /// The cause.
    pub why: StoreError,
}

/// A damaged row. It contains no visitor id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedRow {
    /// The table.
    pub table: String,
    /// The visitor's row; for a row of an experiment, the person's; for a lookup or a tenant's value, the tenant's
    /// number.
    pub row: i64,
    /// The damage.
    pub why: String,
}

impl ScrubReport {
    /// The error text if damage remains that no job repairs; otherwise `None`.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let left = self.damaged_visitors + self.damaged_tenant_values;
        (left > 0).then(|| {
            format!(
                "{left} stored values are damaged: `first` lists their tables and rows. Check the disk, and restore a \
                 backup that is older than the damage (`causeway backup verify` checks it), but not while facts are set \
                 aside: no backup holds them"
            )
        })
    }

    fn name(&mut self, table: &str, row: i64, why: &StoreError) {
        if self.first.len() < NAMED {
            self.first.push(DamagedRow { table: table.to_owned(), row, why: crate::base::error_chain(why) });
        }
    }
}

/// The damage of a value; `None` if it can be read.
fn damage_of<T>(read: Result<T, StoreError>) -> Result<Option<StoreError>, StoreError> {
    match read {
        Ok(_) => Ok(None),
        Err(why) if why.is_of_a_value() => Ok(Some(why)),
        Err(other) => Err(other),
    }
}

/// Checks at most `most` visitors after a row. `None` after the last.
///
/// # Errors
/// [`StoreError`] that is not the damage of a value.
pub fn check_visitors(
    conn: &Connection,
    after: VisitorRow,
    most: u32,
    scrubbed: &mut ScrubReport,
) -> Result<Option<CheckedPage<VisitorRow, DamagedVisitor>>, StoreError> {
    let rows: Vec<VisitorRow> = {
        let mut read = conn.prepare_cached(visitors::VISITORS_PAGE_NOT_INDEXED)?;
        read.query_map((after, most), |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    let mut damaged = Vec::new();
    for row in &rows {
        scrubbed.visitors += 1;
        if let Some(why) = damage_of(check_visitor(conn, *row))? {
            scrubbed.damaged_visitors += 1;
            scrubbed.name("visitors", row.number(), &why);
            damaged.push(DamagedVisitor { row: *row, why });
        }
    }
    Ok(rows.last().map(|last| CheckedPage { last: *last, damaged }))
}

/// Quarantines damaged visitors: their facts wait from now on.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn quarantine_visitors(conn: &Connection, damaged: &[DamagedVisitor], now: Millis) -> Result<(), StoreError> {
    damaged.iter().try_for_each(|of| quarantine::quarantine_visitor(conn, of.row, &of.why, now))
}

/// A position in the lookups: tenant, kind, canonical hash.
pub type LookupPlace = (TenantNo, AlternateId);

/// Checks at most `most` lookups after a position. `None` after the last.
///
/// # Errors
/// [`StoreError`] that is not the damage of a value.
pub fn check_lookups(
    conn: &Connection,
    after: Option<LookupPlace>,
    most: u32,
    scrubbed: &mut ScrubReport,
) -> Result<Option<CheckedPage<LookupPlace, LookupPlace>>, StoreError> {
    let (tenant, kind, hash) =
        after.map_or((i64::MIN, 0, [0; 16]), |(tenant, AlternateId { kind, hash })| (tenant.0, kind.0, hash.0));
    let places: Vec<LookupPlace> = {
        let mut read = conn.prepare_cached(lookups::LOOKUPS_PAGE)?;
        let place = |row: &rusqlite::Row<'_>| {
            let id = AlternateId { kind: KindCode(row.get(1)?), hash: AltHash(row.get(2)?) };
            Ok((TenantNo(row.get(0)?), id))
        };
        read.query_map((tenant, kind, hash, most), place)?.collect::<Result<_, _>>()?
    };
    let mut damaged = Vec::new();
    for (tenant, id) in &places {
        scrubbed.lookups += 1;
        if let Some(why) = damage_of(load_lookup(conn, *tenant, *id))? {
            scrubbed.damaged_lookups += 1;
            scrubbed.name("lookups", tenant.0, &why);
            damaged.push((*tenant, *id));
        }
    }
    Ok(places.last().map(|last| CheckedPage { last: *last, damaged }))
}

/// Rebuilds lookups from their evidence. A lookup of a tenant that is not configured waits.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be committed.
pub fn mend_lookups(group: &mut WriteTxn<'_>, damaged: &[LookupPlace]) -> Result<(), StoreError> {
    let configured = damaged.iter().filter(|(tenant, _)| group.rules.tenants.by_no(*tenant).is_ok()).copied().collect();
    mend::write_lookups(group, configured)
}

/// Checks at most `most` rows of experiments after one, and returns the last. `None` after the last.
///
/// # Errors
/// [`StoreError`] that is not the damage of a value.
pub fn check_experiment_people(
    conn: &Connection,
    after: (i64, u32),
    most: u32,
    scrubbed: &mut ScrubReport,
) -> Result<Option<(i64, u32)>, StoreError> {
    let mut statement = conn.prepare_cached(experiment_people::EXPERIMENT_PEOPLE_PAGE)?;
    let mut rows = statement.query((after.0, after.1, most))?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        let place: (i64, u32) = (row.get(0)?, row.get(1)?);
        last = Some(place);
        scrubbed.experiment_people += 1;
        if let Some(why) = damage_of(CheckedBytes::open_column(row.get_ref(2)?))? {
            scrubbed.damaged_experiment_people += 1;
            scrubbed.name("experiment_people", place.0, &why);
        }
    }
    Ok(last)
}

/// Checks each tenant's catalogues and its model.
///
/// # Errors
/// [`StoreError`] that is not the damage of a value.
pub fn check_tenant_values(conn: &Connection, scrubbed: &mut ScrubReport) -> Result<(), StoreError> {
    let versions: Vec<(i64, u32)> = {
        let mut read = conn.prepare(catalogues::CATALOGUES_ALL_VERSIONS)?;
        read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?
    };
    let tenants: Vec<i64> = {
        let mut read = conn.prepare(tenants::TENANTS_NUMBERS)?;
        read.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    let mut note = |table: &str, tenant: i64, damage: Option<StoreError>| {
        if let Some(why) = damage {
            scrubbed.damaged_tenant_values += 1;
            scrubbed.name(table, tenant, &why);
        }
    };
    for (tenant, version) in versions {
        note("catalogues", tenant, damage_of(catalogue::stored_version(conn, TenantNo(tenant), Some(version)))?);
    }
    for tenant in tenants {
        note("models", tenant, damage_of(train::newest(conn, TenantNo(tenant)))?);
    }
    Ok(())
}
