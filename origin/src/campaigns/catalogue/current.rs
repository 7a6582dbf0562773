//! Parts of all tenants' current catalogues that a transaction needs: running experiments, conversions and budgets.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ads::budget::CampaignBudget;
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::profiles::profile::QueriedNames;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::{Connection, OptionalExtension as _};
use serde::de::DeserializeOwned;

use crate::base::integers::signed;
use crate::campaigns::offers::LimitedOffer;
use crate::store::tables::{catalogue_codes, catalogue_current};
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo, names};

/// Experiments of each tenant's current version.
#[derive(Debug, Clone, Default)]
pub struct CurrentExperiments {
    of: BTreeMap<TenantNo, Vec<Experiment>>,
    unreadable: BTreeSet<TenantNo>,
}

impl CurrentExperiments {
    /// A tenant's experiments; empty if they cannot be read.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &[Experiment] {
        self.of.get(&tenant).map_or(&[], Vec::as_slice)
    }

    /// Tenants whose stored experiments cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &BTreeSet<TenantNo> {
        &self.unreadable
    }
}

/// Event names that experiments count as conversions. A dropped experiment still counts for as long as conversions are
/// stored, because its people may convert later.
#[derive(Debug, Clone, Default)]
pub struct CountedConversions {
    of: BTreeMap<TenantNo, TenantConversions>,
    unreadable: BTreeSet<TenantNo>,
}

/// Conversions of one tenant.
#[derive(Debug, Clone, Default)]
pub struct TenantConversions {
    /// Event name by the experiment's code.
    pub of: BTreeMap<u32, String>,
    /// All event names.
    pub names: BTreeSet<String>,
}

impl CountedConversions {
    /// A tenant's conversions.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &TenantConversions {
        static NONE: TenantConversions = TenantConversions { of: BTreeMap::new(), names: BTreeSet::new() };
        self.of.get(&tenant).unwrap_or(&NONE)
    }

    /// Whether a tenant's conversions are unknown because its stored experiments cannot be read.
    #[must_use]
    pub fn is_unreadable(&self, tenant: TenantNo) -> bool {
        self.unreadable.contains(&tenant)
    }

    fn add(&mut self, tenant: TenantNo, experiment: u32, name: String) {
        let conversions = self.of.entry(tenant).or_default();
        conversions.names.insert(name.clone());
        conversions.of.insert(experiment, name);
    }
}

/// Budgets of each tenant's current version, by the campaign's code.
#[derive(Debug, Clone, Default)]
pub struct CurrentBudgets {
    of: BTreeMap<TenantNo, BTreeMap<u32, CampaignBudget>>,
    unreadable: BTreeSet<TenantNo>,
}

impl CurrentBudgets {
    /// A tenant's budgets.
    #[must_use]
    pub fn of(&self, tenant: TenantNo) -> &BTreeMap<u32, CampaignBudget> {
        static NONE: BTreeMap<u32, CampaignBudget> = BTreeMap::new();
        self.of.get(&tenant).unwrap_or(&NONE)
    }

    /// Tenants whose stored budgets cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &BTreeSet<TenantNo> {
        &self.unreadable
    }
}

/// Loads the experiments of all current versions. A tenant with unreadable experiments is listed in
/// [`CurrentExperiments::unreadable`] and does not affect other tenants.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_experiments(conn: &Connection) -> Result<CurrentExperiments, StoreError> {
    let (of, unreadable) = of_current(conn, "experiments")?;
    Ok(CurrentExperiments { of, unreadable })
}

/// Loads the experiments of one tenant's current version.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Corrupt`] if they cannot be read.
pub fn experiments_of_tenant(conn: &Connection, tenant: TenantNo) -> Result<Vec<Experiment>, StoreError> {
    of_tenant(conn, tenant, "experiments")
}

/// Loads the conversions at a time: those of the current versions and of recently dropped experiments.
///
/// # Errors
/// [`StoreError`].
pub fn load_conversions(
    conn: &Connection,
    current: &CurrentExperiments,
    now: Millis,
) -> Result<CountedConversions, StoreError> {
    let mut counted = CountedConversions { unreadable: current.unreadable.clone(), ..CountedConversions::default() };
    let mut statement = conn.prepare_cached(catalogue_codes::CATALOGUE_CODES_COUNTED_CONVERSIONS)?;
    let mut rows = statement.query([signed(now.saturating_sub(limits::CONVERSION_DAYS * DAY_MS))])?;
    while let Some(row) = rows.next()? {
        counted.add(TenantNo(row.get(0)?), row.get(1)?, row.get(2)?);
    }
    for (tenant, experiments) in &current.of {
        experiments.iter().for_each(|of| counted.add(*tenant, of.code, of.conversion.clone()));
    }
    Ok(counted)
}

/// Loads the budgets of all current versions. A tenant with unreadable budgets is listed in
/// [`CurrentBudgets::unreadable`] and does not affect other tenants.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_budgets(conn: &Connection) -> Result<CurrentBudgets, StoreError> {
    let (all, unreadable): (BTreeMap<TenantNo, Vec<CampaignBudget>>, _) = of_current(conn, "budgets")?;
    let of = all.into_iter().map(|(tenant, budgets)| (tenant, by_campaign(budgets))).collect();
    Ok(CurrentBudgets { of, unreadable })
}

/// Loads the budgets of one tenant's current version, by the campaign's code.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Corrupt`] if they cannot be read.
pub fn budgets_of_tenant(conn: &Connection, tenant: TenantNo) -> Result<BTreeMap<u32, CampaignBudget>, StoreError> {
    Ok(by_campaign(of_tenant(conn, tenant, "budgets")?))
}

/// Loads the names that a tenant's current version queries about people. A version from a restore or an import has them
/// only in its document. An unreadable version queries nothing: the names only decide which data a full snapshot
/// retains first, and a snapshot marks everything that it left out.
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_queried(conn: &Connection, tenant: &TenantContext) -> Result<QueriedNames, StoreError> {
    let found = conn
        .prepare_cached(catalogue_current::CATALOGUE_CURRENT_QUERIED)?
        .query_row([tenant.no.0], |row| row.get::<_, Option<String>>(0))
        .optional()?;
    match found {
        None => Ok(QueriedNames::default()),
        Some(Some(text)) => Ok(serde_json::from_str(&text).unwrap_or_default()),
        Some(None) => {
            let Some(kept) = super::stored_version(conn, tenant.no, None)? else { return Ok(QueriedNames::default()) };
            let Ok(catalogue) = serde_json::from_str::<Catalogue>(&kept.document) else {
                return Ok(QueriedNames::default());
            };
            let flat = catalogue.flat(&names::load_dictionary(conn, tenant.no)?, &tenant.config.vocabulary);
            Ok(flat.map(|flat| flat.queried()).unwrap_or_default())
        }
    }
}

fn by_campaign(budgets: Vec<CampaignBudget>) -> BTreeMap<u32, CampaignBudget> {
    budgets.into_iter().map(|budget| (budget.campaign, budget)).collect()
}

/// Loads the limited offers of one tenant's current version: campaigns with at most N recipients.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Corrupt`] if they cannot be read.
pub fn limited_of_tenant(conn: &Connection, tenant: TenantNo) -> Result<Vec<LimitedOffer>, StoreError> {
    of_tenant(conn, tenant, "limited")
}

/// One column of all current versions, and the tenants whose value cannot be read.
fn of_current<T: DeserializeOwned>(
    conn: &Connection,
    part: &str,
) -> Result<(BTreeMap<TenantNo, T>, BTreeSet<TenantNo>), StoreError> {
    let read = catalogue_current::catalogue_current_column(part);
    let (mut of, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
    let mut statement = conn.prepare_cached(&read)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let tenant = TenantNo(row.get(0)?);
        match parse(row.get_ref(1)?.as_str().unwrap_or_default()) {
            Ok(part) => drop(of.insert(tenant, part)),
            Err(_) => drop(unreadable.insert(tenant)),
        }
    }
    Ok((of, unreadable))
}

/// One column of one tenant's current version.
fn of_tenant<T: DeserializeOwned + Default>(conn: &Connection, tenant: TenantNo, part: &str) -> Result<T, StoreError> {
    let read = catalogue_current::catalogue_current_column_of_tenant(part);
    let mut statement = conn.prepare_cached(&read)?;
    let mut rows = statement.query([tenant.0])?;
    rows.next()?.map_or_else(|| Ok(T::default()), |row| parse(row.get_ref(0)?.as_str().unwrap_or_default()))
}

fn parse<T: DeserializeOwned>(part: &str) -> Result<T, StoreError> {
    serde_json::from_str(part).map_err(|_| StoreError::Corrupt { what: "part of a catalogue" })
}
