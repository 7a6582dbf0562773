//! What a transaction goes by of all tenants' current catalogues: what is tested and counts, and what may be spent.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::budget::Budget;
use causeway_shared::experiment::Experiment;
use causeway_shared::ids::Millis;
use causeway_shared::limits;
use causeway_shared::time::DAY_MS;
use rusqlite::Connection;
use serde::de::DeserializeOwned;

use crate::store::{StoreError, TenantNo, signed};
use crate::units::Limited;

/// The experiments of each tenant's current version.
#[derive(Debug, Clone, Default)]
pub struct Experiments(BTreeMap<TenantNo, Vec<Experiment>>);

impl Experiments {
    /// A tenant's.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &[Experiment] {
        self.0.get(&tenant).map_or(&[], Vec::as_slice)
    }
}

/// What experiments count as conversions. One that is out of the catalogue goes on for as long as conversions are kept: its
/// people convert later.
#[derive(Debug, Clone, Default)]
pub struct Counted(BTreeMap<TenantNo, Conversions>);

/// A tenant's.
#[derive(Debug, Clone, Default)]
pub struct Conversions {
    /// By the experiment's code.
    pub of: BTreeMap<u32, String>,
    /// All of them.
    pub names: BTreeSet<String>,
}

impl Counted {
    /// A tenant's.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &Conversions {
        static NONE: Conversions = Conversions { of: BTreeMap::new(), names: BTreeSet::new() };
        self.0.get(&tenant).unwrap_or(&NONE)
    }

    fn add(&mut self, tenant: TenantNo, experiment: u32, name: String) {
        let conversions = self.0.entry(tenant).or_default();
        conversions.names.insert(name.clone());
        conversions.of.insert(experiment, name);
    }
}

/// The budgets of each tenant's current version, by the campaign's code.
#[derive(Debug, Clone, Default)]
pub struct Budgets(BTreeMap<TenantNo, BTreeMap<u32, Budget>>);

impl Budgets {
    /// A tenant's.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &BTreeMap<u32, Budget> {
        static NONE: BTreeMap<u32, Budget> = BTreeMap::new();
        self.0.get(&tenant).unwrap_or(&NONE)
    }
}

/// Reads the experiments of all current versions.
///
/// # Errors
/// [`StoreError`].
pub fn experiments(conn: &Connection) -> Result<Experiments, StoreError> {
    of_current(conn, "experiments").map(Experiments)
}

/// Reads what experiments count at a time, beside those of the current versions.
///
/// # Errors
/// [`StoreError`].
pub fn counted(conn: &Connection, current: &Experiments, now: Millis) -> Result<Counted, StoreError> {
    const READ: &str = "SELECT tenant, code, conversion FROM catalogue_codes
        WHERE conversion IS NOT NULL AND ifnull(conversion_until, ?1) >= ?1";
    let mut counted = Counted::default();
    let mut statement = conn.prepare_cached(READ)?;
    let mut rows = statement.query([signed(now.saturating_sub(limits::CONVERSION_DAYS * DAY_MS))])?;
    while let Some(row) = rows.next()? {
        counted.add(TenantNo(row.get(0)?), row.get(1)?, row.get(2)?);
    }
    for (tenant, experiments) in &current.0 {
        experiments.iter().for_each(|of| counted.add(*tenant, of.code, of.conversion.clone()));
    }
    Ok(counted)
}

/// Reads the budgets of all current versions.
///
/// # Errors
/// [`StoreError`].
pub fn budgets(conn: &Connection) -> Result<Budgets, StoreError> {
    let all: BTreeMap<TenantNo, Vec<Budget>> = of_current(conn, "budgets")?;
    let by_campaign = |budgets: Vec<Budget>| budgets.into_iter().map(|budget| (budget.campaign, budget)).collect();
    Ok(Budgets(all.into_iter().map(|(tenant, budgets)| (tenant, by_campaign(budgets))).collect()))
}

/// Reads the campaigns with only so many recipients of all current versions.
///
/// # Errors
/// [`StoreError`].
pub fn limited(conn: &Connection) -> Result<BTreeMap<TenantNo, Vec<Limited>>, StoreError> {
    of_current(conn, "limited")
}

/// A part of all current versions, by its column.
fn of_current<T: DeserializeOwned>(conn: &Connection, part: &str) -> Result<BTreeMap<TenantNo, T>, StoreError> {
    let read = format!("SELECT tenant, {part} FROM catalogue_current CROSS JOIN catalogues USING (tenant, version)");
    let mut statement = conn.prepare_cached(&read)?;
    let rows = statement.query_map([], |row| Ok((TenantNo(row.get(0)?), row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (tenant, text) = row?;
        let read = serde_json::from_str(&text).map_err(|_| StoreError::Corrupt { what: "part of a catalogue" })?;
        Ok((tenant, read))
    })
    .collect()
}
