//! Removes attribute names. A name that the catalogue, an audience or a send uses is refused. The name disappears at
//! once, and its values leave the profiles in short transactions ([`sweep_names`]). The token rests until no snapshot
//! can contain a value of it; then a new name may get it ([`release_names`]).

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::{ForgottenName, NameDictionary, NameToken, ValueKind};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use utoipa::ToSchema;

use crate::audience::{self, best_send_times};
use crate::base::attribution::Attribution;
use crate::base::integers::signed;
use crate::base::metrics::Metrics;
use crate::identity::changes::LinkChanges;
use crate::kv::publish::{self, Priority};
use crate::maintenance::name_uses::NameUses;
use crate::maintenance::retype_attribute::{names_it, stored_attributes, visitor_page};
use crate::outbox::kv_key::KvKey;
use crate::privacy::audit;
use crate::profiles::fold::ChangedVisitor;
use crate::store::job_error::JobError;
use crate::store::names::{load_dictionary, page_of, pending_name};
use crate::store::tables::{attribute_names, catalogues, outbox, visitors};
use crate::store::tenants::TenantContext;
use crate::store::write_txn::{TxnInputs, TxnRules, WriteTxn};
use crate::store::{CheckedBytes, PersonNo, StoreError, TenantNo, VisitorRow};

/// The plan of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForgetPlan {
    /// The names, with the kind of each and the number of visitors with a value.
    pub names: BTreeMap<String, (ValueKind, u64)>,
    /// Visitors whose stored attributes cannot be read. Until they can be read, the tokens stay in use.
    pub unreadable: u64,
}

impl ForgetPlan {
    /// The plan as the command line and the admin side report it.
    #[must_use]
    pub fn to_answer(&self, done: bool) -> ForgetPlanAnswer {
        let name = |(name, (kind, visitors)): (&String, &(ValueKind, u64))| ForgottenAttribute {
            attribute: name.clone(),
            r#type: kind.name(),
            visitors: *visitors,
        };
        ForgetPlanAnswer { names: self.names.iter().map(name).collect(), unreadable: self.unreadable, done }
    }
}

/// Attribute names that are to be forgotten, and how many visitors have a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ForgetPlanAnswer {
    /// The names.
    pub names: Vec<ForgottenAttribute>,
    /// Visitors whose stored attributes cannot be read. The tokens of the names stay in use until they can be read.
    pub unreadable: u64,
    /// Whether the change was made.
    pub done: bool,
}

/// An attribute name that is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ForgottenAttribute {
    /// The name.
    pub attribute: String,
    /// Type of the values.
    pub r#type: &'static str,
    /// Visitors with a value.
    pub visitors: u64,
}

/// The reason why no name was removed.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No name, or more than the limit.
    #[error("1 to {} names can be removed at once", limits::ATTRIBUTE_NAMES_FORGOTTEN)]
    Number,
    /// The tenant has no such attribute.
    #[error("attribute `{0}` not found")]
    Unknown(String),
    /// Something uses the name.
    #[error("attribute `{name}` is in use: {places}; nothing was changed")]
    Used {
        /// The first name in use.
        name: String,
        /// The uses of the name.
        places: String,
    },
}

impl From<rusqlite::Error> for ForgetError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// Plans the removal of names; changes nothing.
///
/// # Errors
/// [`ForgetError`].
pub fn plan_forgetting(
    conn: &Connection,
    tenant: &TenantContext,
    names: &BTreeSet<String>,
) -> Result<ForgetPlan, ForgetError> {
    let tokens = unused_names(conn, tenant, names, &load_dictionary(conn, tenant.no)?)?;
    let mut holders: BTreeMap<NameToken, u64> = BTreeMap::new();
    let (mut plan, mut after) = (ForgetPlan::default(), VisitorRow::default());
    while let Some((last, rows)) = visitor_page(conn, tenant.no, after)? {
        after = last;
        for (_, attributes) in rows {
            let Some(map) = stored_attributes(&attributes) else {
                plan.unreadable += 1;
                continue;
            };
            map.iter().for_each(|(token, _)| *holders.entry(token).or_default() += 1);
        }
    }
    let of = |(name, (token, kind)): (String, (NameToken, ValueKind))| {
        (name, (kind, holders.get(&token).copied().unwrap_or(0)))
    };
    plan.names = tokens.into_iter().map(of).collect();
    Ok(plan)
}

/// Removes names, and adds a row to the audit trail for each. Their values remain until [`sweep_names`], but are no
/// longer shown.
///
/// # Errors
/// [`ForgetError`]; then nothing was changed.
pub fn mark_names(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    tenant: &TenantContext,
    names: &BTreeSet<String>,
    said: &Attribution,
) -> Result<(), ForgetError> {
    crate::store::write_txn::within_txn(conn, rules, &Metrics::default(), given, |group| {
        let tokens = unused_names(group.tx, tenant, names, &load_dictionary(group.tx, tenant.no)?)?;
        for (name, (token, _)) in &tokens {
            rename_token(group, tenant.no, *token, ForgottenName::Leaving)?;
            audit::keep_name(group, tenant.no, "forget_attribute", name, said)?;
        }
        Ok(())
    })
}

/// The names' tokens and kinds, if nothing uses one of them.
fn unused_names(
    conn: &Connection,
    tenant: &TenantContext,
    names: &BTreeSet<String>,
    dictionary: &NameDictionary,
) -> Result<BTreeMap<String, (NameToken, ValueKind)>, ForgetError> {
    if !(1..=limits::ATTRIBUTE_NAMES_FORGOTTEN).contains(&names.len()) {
        return Err(ForgetError::Number);
    }
    let found = names.iter().map(|name| {
        let found = dictionary.find(name).ok_or_else(|| ForgetError::Unknown(name.clone()))?;
        Ok::<_, ForgetError>((name.clone(), found))
    });
    let found: BTreeMap<_, _> = found.collect::<Result<_, _>>()?;
    match name_uses(conn, tenant.no, names, dictionary)?.first() {
        None => Ok(found),
        Some((name, places)) => Err(ForgetError::Used { name, places }),
    }
}

/// The uses of each name. Every catalogue version counts, because a rollback can make it the current one again.
fn name_uses<'n>(
    conn: &Connection,
    tenant: TenantNo,
    names: &'n BTreeSet<String>,
    dictionary: &NameDictionary,
) -> Result<NameUses<'n>, StoreError> {
    let mut uses = NameUses::new(names);
    let mut catalogues = conn.prepare_cached(catalogues::CATALOGUES_DOCUMENTS_NEWEST_FIRST)?;
    let mut rows = catalogues.query([tenant.0])?;
    while let Some(row) = rows.next()? {
        let (version, document): (u32, String) = (row.get(0)?, row.get(1)?);
        uses.note(&format!("version {version} of the catalogue"), |name| names_it(&document, name));
    }
    uses.note_filters(conn, tenant, names_it)?;
    uses.note("the best send times of visitors", |name| name == best_send_times::ZONE);
    uses.note("a type change in progress", |name| {
        dictionary.find(name).is_some_and(|(token, _)| dictionary.find(&pending_name(token, name)).is_some())
    });
    Ok(uses)
}

fn rename_token(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    token: NameToken,
    state: ForgottenName,
) -> Result<(), StoreError> {
    group.tx.prepare_cached(attribute_names::ATTRIBUTE_NAMES_RENAME)?.execute((
        tenant.0,
        token.0,
        state.name(token),
    ))?;
    crate::outbox::queue::put_key(group, tenant, KvKey::Names(page_of(token)), group.now)
}

/// The tokens whose name was removed, with the state of each.
fn forgotten_names(conn: &Connection) -> Result<BTreeMap<TenantNo, Vec<(NameToken, ForgottenName)>>, StoreError> {
    let mut statement = conn.prepare_cached(attribute_names::ATTRIBUTE_NAMES_FORGOTTEN)?;
    let mut rows = statement.query([])?;
    let mut all: BTreeMap<TenantNo, Vec<_>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (tenant, token) = (TenantNo(row.get(0)?), NameToken(row.get(1)?));
        let state = ForgottenName::parse(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?);
        all.entry(tenant).or_default().extend(state.map(|state| (token, state)));
    }
    Ok(all)
}

/// Removes the values of all removed names and lets their tokens rest. Returns the number of tokens that began to rest.
/// A tenant with an unreadable visitor waits. `step` is called between two transactions.
///
/// # Errors
/// [`JobError`], also from `step`; then the next run does the rest.
pub fn sweep_names(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: &dyn Fn() -> Result<TxnInputs, StoreError>,
    step: &dyn Fn() -> Result<(), JobError>,
) -> Result<u64, JobError> {
    let mut rested = 0;
    for (tenant, tokens) in forgotten_names(conn)? {
        let leaving = tokens.into_iter().filter(|(_, state)| *state == ForgottenName::Leaving);
        let leaving: BTreeSet<NameToken> = leaving.map(|(token, _)| token).collect();
        let (mut after, mut unreadable) = (VisitorRow::default(), 0_u64);
        while !leaving.is_empty()
            && let Some((last, rows)) = visitor_page(conn, tenant, after)?
        {
            after = last;
            let mut holders = Vec::new();
            for (visitor, attributes) in rows {
                match stored_attributes(&attributes) {
                    Some(map) => holders.extend(map.without(&leaving).map(|_| visitor)),
                    None => unreadable += 1,
                }
            }
            if !holders.is_empty() {
                crate::store::write_txn::within_txn(conn, rules, metrics, given()?, |group| {
                    remove(group, tenant, &leaving, &holders)
                })?;
            }
            step()?;
        }
        if unreadable > 0 {
            tracing::error!(
                tenant = tenant.0,
                unreadable,
                "removed attribute names keep their tokens: visitors cannot be read"
            );
        } else if !leaving.is_empty() {
            rested += leaving.len() as u64;
            crate::store::write_txn::within_txn(conn, rules, metrics, given()?, |group| {
                let state = ForgottenName::Resting(group.now);
                leaving.iter().try_for_each(|token| rename_token(group, tenant, *token, state))
            })?;
        }
    }
    Ok(rested)
}

/// Removes the values of some tokens from some visitors, and makes their snapshots and index rows due.
fn remove(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    tokens: &BTreeSet<NameToken>,
    holders: &[VisitorId],
) -> Result<(), StoreError> {
    group.priority = Priority::Bulk;
    let mut changed = Vec::new();
    for visitor in holders.iter().copied() {
        let of = |row: &rusqlite::Row<'_>| {
            let (person, devices, withdrawn) = (PersonNo(row.get(2)?), row.get(3)?, row.get(4)?);
            Ok((row.get(0)?, row.get(1)?, ChangedVisitor { tenant, visitor, person, devices, withdrawn }))
        };
        let found = group
            .tx
            .prepare_cached(visitors::VISITORS_ATTRIBUTES_WITH_PERSON)?
            .query_row((tenant.0, visitor.as_bytes()), of)
            .optional()?;
        let Some((row, CheckedBytes(attributes), change)): Option<(VisitorRow, CheckedBytes, ChangedVisitor)> = found
        else {
            continue;
        };
        let Some(left) = profile::decode_attributes(&attributes)?.without(tokens) else { continue };
        let packed = if left.is_empty() { Vec::new() } else { left.pack() };
        let version = group.next_version();
        group.tx.prepare_cached(visitors::VISITORS_SET_ATTRIBUTES_AND_VERSION)?.execute((
            row,
            CheckedBytes(packed),
            signed(version.counter),
            version.restore,
        ))?;
        changed.push(change);
    }
    publish::note_changes(group, &changed, &LinkChanges::default())?;
    audience::note(group, &changed, &LinkChanges::default())
}

/// Frees the tokens that rested long enough, once the outbox has written every key that was due when the last value was
/// removed. Returns the number of freed tokens.
///
/// # Errors
/// [`StoreError`].
pub fn release_names(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
) -> Result<u64, StoreError> {
    let all = forgotten_names(conn)?;
    let rested = |state: ForgottenName| match state {
        ForgottenName::Resting(since) if since.saturating_add(limits::ATTRIBUTE_REST_MS) <= given.now => Some(since),
        _ => None,
    };
    if !all.values().flatten().any(|(_, state)| rested(*state).is_some()) {
        return Ok(0);
    }
    crate::store::write_txn::within_txn(conn, rules, metrics, given, |group| {
        let mut freed = 0;
        for (tenant, tokens) in all {
            for (token, since) in tokens.into_iter().filter_map(|(token, state)| Some((token, rested(state)?))) {
                // Snapshots of siblings are due later than the last removal, but long before the rest ends.
                let due = signed(since.saturating_add(limits::ATTRIBUTE_REST_MS / 2).min(Millis::MAX / 2));
                if !group
                    .tx
                    .prepare_cached(outbox::OUTBOX_ANY_DUE_OF_TENANT)?
                    .query_row((tenant.0, due), |row| row.get::<_, bool>(0))?
                {
                    rename_token(group, tenant, token, ForgottenName::Free)?;
                    freed += 1;
                }
            }
        }
        Ok(freed)
    })
}

#[cfg(test)]
#[path = "forget_names/tests.rs"]
mod tests;
