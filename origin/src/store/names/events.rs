//! Names of events that audiences count. Each name has columns in the audience index, so their number is bounded. Pages
//! add names within a quota; files and the admin API add names while there is room. A name that an audience, a send or
//! an experiment uses is declared, and a declared name replaces one that a page added. Filters read events under other
//! names from the store; a metric counts each such event.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::facts::fact::{Fact, FactKind, PAGE, PURCHASE};
use causeway_shared::targeting::experiment::Experiment;
use causeway_shared::targeting::filter::Filter;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use utoipa::ToSchema;

use super::{NameQuota, name_quota, note_brought};
use crate::base::integers::{signed, unsigned};
use crate::store::tables::{event_names, meta};
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo};

/// Source of a name. If the list is full, a name from a greater source replaces one from a lesser source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameSource {
    /// A page, within the quota.
    Page,
    /// An event from the admin API or a file.
    Admin,
    /// A declaration, or use by an audience, a send or an experiment.
    Declared,
}

impl NameSource {
    const ALL: [Self; 3] = [Self::Page, Self::Admin, Self::Declared];

    /// Name of the source in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Admin => "admin",
            Self::Declared => "declared",
        }
    }

    fn of_code(code: u8) -> Result<Self, StoreError> {
        let found = Self::ALL.get(usize::from(code)).copied();
        found.ok_or(StoreError::Corrupt { what: "name of an event" })
    }
}

/// Event names that a transaction's facts use.
#[derive(Debug, Default)]
pub struct EventNames {
    /// Counted names that the transaction has met.
    counted: BTreeMap<TenantNo, BTreeSet<String>>,
    /// Number of events with names that are not counted.
    pub uncounted: u64,
}

impl EventNames {
    /// Adds the name of a fact's event to the counted names, if there is room; for a fact from a page, only within its
    /// quota.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn bring(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        fact: &Fact,
        admin: bool,
        now: Millis,
    ) -> Result<(), StoreError> {
        let FactKind::Track { name, .. } = &fact.what else { return Ok(()) };
        let counted = self.counted.entry(tenant).or_default();
        if is_no_name(name) || counted.contains(name.as_str()) {
            return Ok(());
        }
        let is_counted = if name_source(conn, tenant, name)?.is_some() {
            true
        } else if admin {
            add(conn, tenant, name, NameSource::Admin, now)?
        } else if name_quota(conn, tenant, fact.visitor, NameQuota::EVENTS, now)? > 0
            && add(conn, tenant, name, NameSource::Page, now)?
        {
            note_brought(conn, tenant, fact.visitor, NameQuota::EVENTS, 1, now)?;
            true
        } else {
            false
        };
        if is_counted {
            counted.insert(name.to_string());
        } else {
            self.uncounted += 1;
        }
        Ok(())
    }
}

/// Whether a name needs no entry: `page` and `purchase` are always counted.
fn is_no_name(name: &str) -> bool {
    name == PAGE || name == PURCHASE
}

pub(crate) fn name_source(conn: &Connection, tenant: TenantNo, name: &str) -> Result<Option<NameSource>, StoreError> {
    let code = conn
        .prepare_cached(event_names::EVENT_NAMES_SOURCE_OF_NAME)?
        .query_row((tenant.0, name), |row| row.get::<_, u8>(0))
        .optional()?;
    code.map(NameSource::of_code).transpose()
}

/// Adds a name to the counted names. If the list is full, it replaces the newest name from a lesser source. Returns
/// whether the name is counted.
fn add(conn: &Connection, tenant: TenantNo, name: &str, from: NameSource, now: Millis) -> Result<bool, StoreError> {
    match name_source(conn, tenant, name)? {
        Some(there) if there >= from => return Ok(true),
        Some(_) => {}
        None => {
            let count: u32 = conn
                .prepare_cached(event_names::EVENT_NAMES_COUNT_OF_TENANT)?
                .query_row([tenant.0], |row| row.get(0))?;
            let is_full = count as usize >= limits::AUDIENCE_EVENTS;
            if is_full
                && conn.prepare_cached(event_names::EVENT_NAMES_DELETE_LEAST)?.execute((tenant.0, from as u8))? == 0
            {
                return Ok(false);
            }
        }
    }
    conn.prepare_cached(event_names::EVENT_NAMES_UPSERT)?.execute((tenant.0, name, from as u8, signed(now)))?;
    note_change(conn).map(|()| true)
}

/// Records that the names changed.
pub(crate) fn note_change(conn: &Connection) -> Result<(), StoreError> {
    conn.prepare_cached(meta::META_NEXT_EVENT_NAMES)?.execute([])?;
    Ok(())
}

/// Revision of the names; each change of the names changes it.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn names_revision(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached(meta::META_EVENT_NAMES)?.query_row([], |row| row.get(0))?)
}

/// All counted names by tenant.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_names(conn: &Connection) -> Result<BTreeMap<TenantNo, BTreeSet<String>>, StoreError> {
    let mut statement = conn.prepare_cached(event_names::EVENT_NAMES_ALL)?;
    let mut rows = statement.query([])?;
    let mut all: BTreeMap<TenantNo, BTreeSet<String>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        all.entry(TenantNo(row.get(0)?)).or_default().insert(row.get(1)?);
    }
    Ok(all)
}

/// A name of events that audiences count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct EventNameRow {
    /// The name.
    pub name: String,
    /// Source of the name: a page within its quota (`page`), the admin side or a file (`admin`), or a declaration, also
    /// by an audience, a send or an experiment that uses the name (`declared`).
    pub source: &'static str,
    /// Time at which the name came.
    pub since_ms: u64,
}

/// A tenant's counted names in order, each with its source and time.
///
/// # Errors
/// [`StoreError`].
pub fn list_names(conn: &Connection, tenant: TenantNo) -> Result<Vec<EventNameRow>, StoreError> {
    let mut statement = conn.prepare_cached(event_names::EVENT_NAMES_OF_TENANT)?;
    let mut rows = statement.query([tenant.0])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, since): (String, i64) = (row.get(0)?, row.get(2)?);
        all.push(EventNameRow { name, source: NameSource::of_code(row.get(1)?)?.name(), since_ms: unsigned(since) });
    }
    Ok(all)
}

/// The reason why names were not changed.
#[derive(Debug, thiserror::Error)]
pub enum EventNameError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No name, or too many names in one call.
    #[error("expected 1 to {} names in one call", limits::AUDIENCE_EVENTS_CHANGED)]
    Number,
    /// The name is not valid for an event.
    #[error("the name of an event has 1 to {} bytes; `page` and `purchase` are always counted", limits::NAME_BYTES)]
    BadName,
    /// Declared names fill the list.
    #[error(
        "no room for the event `{0}`: {most} names are declared or in use; remove one first \
         (`causeway events forget`)",
        most = limits::AUDIENCE_EVENTS
    )]
    Full(String),
    /// The name is not counted.
    #[error("the event `{0}` is not counted")]
    Unknown(String),
    /// The name is in use.
    #[error("the event `{name}` is in use: {places}; nothing was changed")]
    Used {
        /// The first name in use.
        name: String,
        /// The objects that use it.
        places: String,
    },
}

impl From<rusqlite::Error> for EventNameError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// Declares the events that a filter counts.
///
/// # Errors
/// [`EventNameError::Full`], and errors of the store; the caller must then roll back the transaction.
pub fn declare_of(conn: &Connection, tenant: TenantNo, filter: &Filter, now: Millis) -> Result<(), EventNameError> {
    filter.events().try_for_each(|name| declare_one(conn, tenant, name, now))
}

fn declare_one(conn: &Connection, tenant: TenantNo, name: &str, now: Millis) -> Result<(), EventNameError> {
    let is_counted = add(conn, tenant, name, NameSource::Declared, now)?;
    if is_counted { Ok(()) } else { Err(EventNameError::Full(name.to_owned())) }
}

/// Declares the conversion events of experiments, while there is room; an experiment also works without.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn declare_conversions(
    conn: &Connection,
    tenant: &TenantContext,
    experiments: &[Experiment],
    now: Millis,
) -> Result<(), StoreError> {
    let names = experiments.iter().map(|one| one.conversion.as_str());
    for name in names.filter(|name| !is_no_name(name) && tenant.config.vocabulary.action_type(name).is_none()) {
        if !add(conn, tenant.no, name, NameSource::Declared, now)? {
            tracing::warn!(
                tenant = tenant.no.0,
                "audiences do not count the conversions of an experiment: the list of event names is full"
            );
        }
    }
    Ok(())
}

/// Declares names in one transaction.
///
/// # Errors
/// [`EventNameError`]; then nothing was changed.
pub fn declare_names(
    conn: &mut Connection,
    tenant: TenantNo,
    names: &BTreeSet<String>,
    now: Millis,
) -> Result<(), EventNameError> {
    check_bounds(names)?;
    if names.iter().any(|name| name.is_empty() || name.len() > limits::NAME_BYTES || is_no_name(name)) {
        return Err(EventNameError::BadName);
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    names.iter().try_for_each(|name| declare_one(&tx, tenant, name, now))?;
    Ok(tx.commit()?)
}

pub(crate) fn check_bounds(names: &BTreeSet<String>) -> Result<(), EventNameError> {
    if (1..=limits::AUDIENCE_EVENTS_CHANGED).contains(&names.len()) { Ok(()) } else { Err(EventNameError::Number) }
}

#[cfg(test)]
#[path = "events/tests.rs"]
mod tests;
