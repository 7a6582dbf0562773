//! Removes event names that nothing uses.

use crate::base::attribution::Attribution;
use crate::base::metrics::Metrics;
use crate::campaigns::catalogue;
use crate::maintenance::name_uses::NameUses;
use crate::privacy::audit;
use crate::store::names::events::{EventNameError, check_bounds, name_source, note_change};
use crate::store::tables::{catalogues, event_names};
use crate::store::tenants::TenantContext;
use crate::store::write_txn::{TxnInputs, TxnRules};
use crate::store::{StoreError, TenantNo};
use rusqlite::Connection;
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A name of events that is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ForgottenEventName {
    /// The name.
    pub name: String,
    /// Source of the name: a page within its quota (`page`), the admin side or a file (`admin`), or a declaration, also
    /// by an audience, a send or an experiment that used the name (`declared`).
    pub source: &'static str,
}

/// The source of each name, if nothing uses one of them: the plan of their removal.
///
/// # Errors
/// [`EventNameError`].
pub fn plan_forget(
    conn: &Connection,
    tenant: &TenantContext,
    names: &BTreeSet<String>,
) -> Result<Vec<ForgottenEventName>, EventNameError> {
    check_bounds(names)?;
    let mut all = Vec::new();
    for name in names {
        let from = name_source(conn, tenant.no, name)?.ok_or_else(|| EventNameError::Unknown(name.clone()))?;
        all.push(ForgottenEventName { name: name.clone(), source: from.name() });
    }
    match name_uses(conn, tenant.no, names)?.first() {
        None => Ok(all),
        Some((name, places)) => Err(EventNameError::Used { name, places }),
    }
}

/// Removes names, and adds a row to the audit trail for each. The visitors' events are unchanged, and audiences read
/// their counts from the store.
///
/// # Errors
/// [`EventNameError`]; then nothing was changed.
pub fn forget_names(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    tenant: &TenantContext,
    names: &BTreeSet<String>,
    said: &Attribution,
) -> Result<(), EventNameError> {
    crate::store::write_txn::within_txn(conn, rules, &Metrics::default(), given, |group| {
        plan_forget(group.tx, tenant, names)?;
        for name in names {
            group.tx.prepare_cached(event_names::EVENT_NAMES_DELETE)?.execute((tenant.no.0, name))?;
            audit::keep_name(group, tenant.no, "forget_event", name, said)?;
        }
        Ok(note_change(group.tx)?)
    })
}

/// The uses of each name. Experiments of every catalogue version count, because a rollback can make a version the
/// current one again.
pub(crate) fn name_uses<'n>(
    conn: &Connection,
    tenant: TenantNo,
    names: &'n BTreeSet<String>,
) -> Result<NameUses<'n>, StoreError> {
    let mut uses = NameUses::new(names);
    let mut catalogues = conn.prepare_cached(catalogues::CATALOGUES_EXPERIMENTS_NEWEST_FIRST)?;
    let mut rows = catalogues.query([tenant.0])?;
    while let Some(row) = rows.next()? {
        let version: u32 = row.get(0)?;
        for one in catalogue::experiments_of(&row.get::<_, String>(1)?)? {
            uses.note(&format!("the experiment `{}` of version {version}", one.id), |name| name == one.conversion);
        }
    }
    let counts = |filter: &str, name: &str| filter.contains(&Json::from(format!("events.{name}")).to_string());
    uses.note_filters(conn, tenant, counts)?;
    Ok(uses)
}
