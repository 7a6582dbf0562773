//! Catalogues at the origin. A document is checked as a whole ([`document`]) and stored as a version for ever; one
//! version of a tenant is current. The outbox writes the version's value to the KV first, and the pointer once that
//! write is acknowledged. Values that no edge reads any more leave the KV after a delay. A code that was assigned to an
//! id is never reassigned.

mod carried_rows;
mod current;
pub mod document;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod versions;

use std::collections::BTreeMap;

use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{Millis, SnapshotVersion};
use causeway_shared::base::limits;
use causeway_shared::targeting::experiment::Experiment;
use causeway_shared::wire::catalogue::{CataloguePointer, Digest};
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::outbox::kv_key::KvKey;
use crate::store::names::{self, events};
use crate::store::tables::{catalogue_codes, catalogue_current, catalogues};
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::write_txn::{TxnInputs, TxnRules, WriteTxn};
use crate::store::{StoreError, TenantNo};

pub use carried_rows::{OF_TENANTS, ReplacedRows, TenantNumbers, renew_pointers, standing_pointers};
pub use current::{
    CountedConversions, CurrentBudgets, CurrentExperiments, TenantConversions, budgets_of_tenant,
    experiments_of_tenant, limited_of_tenant, load_budgets, load_conversions, load_experiments, load_queried,
};
pub use document::{CheckError, CheckedDocument};

use document::CataloguePlan;

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document is invalid.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The document has no rows, while the current version has the given rows.
    #[error("the document is empty and would remove {0}: confirm the removal")]
    Empties(String),
    /// No version of the tenant has this number.
    #[error("there is no version {0}")]
    NoVersion(u32),
}

impl From<rusqlite::Error> for ApplyError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// A stored version of a catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersion {
    /// Number of the version, from 1.
    pub version: u32,
    /// The document as JSON.
    pub document: String,
    /// SHA-256 of the document.
    pub sha256: [u8; 32],
}

impl StoredVersion {
    /// Prefix of the SHA-256 that the pointer and the value carry.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        digest.iter_mut().zip(self.sha256).for_each(|(to, byte)| *to = byte);
        digest
    }
}

/// Number of the current version; `None` without a catalogue.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn current(conn: &Connection, tenant: TenantNo) -> Result<Option<u32>, StoreError> {
    Ok(conn
        .prepare_cached(catalogue_current::CATALOGUE_CURRENT_VERSION_OF_TENANT)?
        .query_row([tenant.0], |row| row.get(0))
        .optional()?)
}

/// Loads a version, or the current one if `version` is `None`.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Corrupt`] if the stored digest does not match the document.
pub fn stored_version(
    conn: &Connection,
    tenant: TenantNo,
    version: Option<u32>,
) -> Result<Option<StoredVersion>, StoreError> {
    let version = match version {
        Some(version) => Some(version),
        None => current(conn, tenant)?,
    };
    let Some(version) = version else { return Ok(None) };
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_DOCUMENT)?;
    let found = statement
        .query_row((tenant.0, version), |row| Ok(StoredVersion { version, document: row.get(0)?, sha256: row.get(1)? }))
        .optional()?;
    let is_whole = found.as_ref().is_none_or(|stored| stored.sha256 == *Sha256::digest(&stored.document));
    if is_whole { Ok(found) } else { Err(StoreError::Corrupt { what: "document of a catalogue" }) }
}

/// The catalogue that was made current last, for the answer of a sync: `c-4`, or `name/c-4` with several tenants.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn in_force(conn: &Connection, tenants: &Tenants) -> Result<Option<String>, StoreError> {
    let found = conn
        .prepare_cached(catalogue_current::CATALOGUE_CURRENT_NEWEST)?
        .query_row([], |row| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?)));
    let Some((no, version)) = found.optional()? else { return Ok(None) };
    let name = |known: &TenantContext| match tenants.named(None) {
        Some(_) => format!("c-{version}"),
        None => format!("{}/c-{version}", known.id),
    };
    // A tenant that is no longer configured is left out.
    Ok(tenants.by_no(no).ok().map(name))
}

/// All assigned codes, by sort and id.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn codes(conn: &Connection, tenant: TenantNo) -> Result<BTreeMap<(String, String), u32>, StoreError> {
    let mut statement = conn.prepare_cached(catalogue_codes::CATALOGUE_CODES_OF_TENANT)?;
    let rows = statement.query_map([tenant.0], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The code of an entity.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn code(conn: &Connection, tenant: TenantNo, sort: &str, id: &str) -> Result<Option<u32>, StoreError> {
    Ok(conn
        .prepare_cached(catalogue_codes::CATALOGUE_CODES_BY_ID)?
        .query_row((tenant.0, sort, id), |row| row.get(0))
        .optional()?)
}

/// Parses the experiments of a version from their stored text.
///
/// # Errors
/// [`StoreError::Corrupt`].
pub(crate) fn experiments_of(text: &str) -> Result<Vec<Experiment>, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Corrupt { what: "catalogue's experiments" })
}

/// The experiments of all versions with an unreadable text of experiments, read from their documents instead. The same
/// file can then be applied again, which repairs the text.
fn experiments_of_documents(conn: &Connection, tenant: TenantNo, text: &str) -> Result<Vec<Experiment>, StoreError> {
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_DOCUMENTS_BY_EXPERIMENTS)?;
    let mut all = Vec::new();
    for document in statement.query_map((tenant.0, text), |row| row.get::<_, String>(0))? {
        let read: Result<Catalogue, _> = serde_json::from_str(&document?);
        all.extend(read.map_err(|_| StoreError::Corrupt { what: "document of a catalogue" })?.experiments);
    }
    Ok(all)
}

/// The arms of all versions.
fn arms(conn: &Connection, tenant: TenantNo) -> Result<document::Arms, StoreError> {
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_DISTINCT_EXPERIMENTS)?;
    let mut arms = document::Arms::new();
    for text in statement.query_map([tenant.0], |row| row.get::<_, String>(0))? {
        let text = text?;
        let all = experiments_of(&text).or_else(|_| experiments_of_documents(conn, tenant, &text))?;
        let all = all.into_iter().flat_map(|of| of.arms.into_iter().map(move |arm| (of.code, arm.code, arm.id)));
        arms.extend(all);
    }
    Ok(arms)
}

/// Checks a document against the stored data without changing anything.
///
/// # Errors
/// [`ApplyError`].
pub fn check(conn: &Connection, tenant: &TenantContext, document: Value) -> Result<CheckedDocument, ApplyError> {
    let before = stored_version(conn, tenant.no, None)?;
    let known = document::LastingRows {
        words: &tenant.config.vocabulary,
        names: &names::load_dictionary(conn, tenant.no)?,
        codes: &codes(conn, tenant.no)?,
        arms: &arms(conn, tenant.no)?,
    };
    Ok(document::check_document(&known, before.as_ref(), document)?)
}

/// Refuses a document without rows if the current version has some: it is probably a mistake.
///
/// # Errors
/// [`ApplyError::Empties`], and errors of the store.
pub fn refuse_empty(conn: &Connection, tenant: TenantNo, document: &Value) -> Result<(), ApplyError> {
    let rows = |document: &Value| -> Vec<(String, usize)> {
        let tables = document.as_object().into_iter().flatten();
        let sizes = tables.map(|(table, rows)| (table.clone(), rows.as_array().map_or(0, Vec::len)));
        sizes.filter(|(_, size)| *size > 0).collect()
    };
    let Some(current) = stored_version(conn, tenant, None)?.filter(|_| rows(document).is_empty()) else {
        return Ok(());
    };
    let removed = rows(&serde_json::from_str(&current.document).unwrap_or_default());
    let removed: Vec<String> = removed.into_iter().map(|(table, size)| format!("{size} of `{table}`")).collect();
    if removed.is_empty() { Ok(()) } else { Err(ApplyError::Empties(removed.join(", "))) }
}

/// The result of an applied document, or of a rollback.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AppliedCatalogue {
    /// Version that is current now.
    pub version: u32,
    /// Whether another version was current before.
    pub changed: bool,
    /// The changes.
    pub plan: CataloguePlan,
}

/// Checks a document, stores it as a new version, makes it current and queues it for the KV, in one transaction. If the
/// document is already current, no version is added; the data derived from it is written again, which repairs it.
///
/// # Errors
/// [`ApplyError`]; nothing was changed.
pub fn apply(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    tenant: &TenantContext,
    document: Value,
    by: &str,
) -> Result<AppliedCatalogue, ApplyError> {
    crate::store::write_txn::within_txn(conn, rules, &Metrics::default(), given, |group| {
        let CheckedDocument { document, sha256, experiments, budgets, limited, queried, codes, plan } =
            check(group.tx, tenant, document)?;
        if let Some(before) = stored_version(group.tx, tenant.no, None)?.filter(|before| before.sha256 == sha256) {
            group.tx.execute(
                catalogues::CATALOGUES_SET_DERIVED,
                (tenant.no.0, before.version, experiments, budgets, limited, queried),
            )?;
            return Ok(AppliedCatalogue { version: before.version, changed: false, plan });
        }
        for (sort, id, code) in &codes {
            group.tx.prepare_cached(catalogue_codes::CATALOGUE_CODES_INSERT)?.execute((tenant.no.0, sort, id, code))?;
        }
        let values = (tenant.no.0, &document, sha256, experiments, budgets, limited, signed(group.now), by, queried);
        let version =
            group.tx.prepare_cached(catalogues::CATALOGUES_INSERT_NEXT)?.query_row(values, |row| row.get(0))?;
        make_current(group, tenant, version)?;
        Ok(AppliedCatalogue { version, changed: true, plan })
    })
}

/// Makes a stored version current again and queues it for the KV.
///
/// # Errors
/// [`ApplyError`]; nothing was changed.
pub fn rollback(
    conn: &mut Connection,
    rules: &TxnRules,
    given: TxnInputs,
    tenant: &TenantContext,
    version: u32,
) -> Result<AppliedCatalogue, ApplyError> {
    crate::store::write_txn::within_txn(conn, rules, &Metrics::default(), given, |group| {
        let wanted = stored_version(group.tx, tenant.no, Some(version))?.ok_or(ApplyError::NoVersion(version))?;
        let before = stored_version(group.tx, tenant.no, None)?;
        let plan = document::plan_changes(before.as_ref(), &wanted.document, &[]);
        if before.is_some_and(|before| before.version == version) {
            return Ok(AppliedCatalogue { version, changed: false, plan });
        }
        make_current(group, tenant, version)?;
        Ok(AppliedCatalogue { version, changed: true, plan })
    })
}

/// Stores the current version's document as a new version and queues it for the KV, because its meaning changed. Edges
/// do not read a version a second time.
///
/// # Errors
/// [`StoreError`]; the caller must roll the transaction back.
pub(crate) fn reissue(group: &mut WriteTxn<'_>, tenant: &TenantContext, version: u32) -> Result<(), StoreError> {
    let new = group
        .tx
        .prepare_cached(catalogues::CATALOGUES_COPY_AS_NEXT)?
        .query_row((tenant.no.0, version, signed(group.now)), |row| row.get(0))?;
    make_current(group, tenant, new)
}

fn make_current(group: &mut WriteTxn<'_>, known: &TenantContext, version: u32) -> Result<(), StoreError> {
    let tenant = known.no;
    let asked_before = load_queried(group.tx, known)?;
    // Later hand-outs must have a higher version than earlier ones.
    group.next_version();
    let now = signed(group.now);
    group.tx.execute(catalogues::CATALOGUES_MARK_CURRENT_REPLACED, (tenant.0, now))?;
    group.tx.execute(catalogue_current::CATALOGUE_CURRENT_UPSERT, (tenant.0, version, now))?;
    group.tx.execute(catalogues::CATALOGUES_CLEAR_REPLACED, (tenant.0, version))?;
    group.tx.execute(catalogue_codes::CATALOGUE_CODES_END_CONVERSIONS, (tenant.0, now))?;
    group.tx.execute(catalogue_codes::CATALOGUE_CODES_SET_CONVERSIONS, (tenant.0, version))?;
    let experiments: String =
        group.tx.query_row(catalogues::CATALOGUES_EXPERIMENTS, (tenant.0, version), |row| row.get(0))?;
    events::declare_conversions(group.tx, known, &experiments_of(&experiments)?, group.now)?;
    announce(group, tenant, version)?;
    for old in outdated(group.tx, tenant)?.into_iter().filter(|old| old.there) {
        let due = old.replaced.saturating_add(limits::CATALOGUE_KEEP_MS).max(group.now);
        crate::outbox::queue::put_key(group, tenant, KvKey::Catalogue(old.version), due)?;
    }
    if load_queried(group.tx, known)?.exceeds(&asked_before) {
        crate::outbox::queue::put_truncated(group, tenant)?;
    }
    Ok(())
}

/// Queues the pointer if the KV has the version's value, otherwise the value. A value that was about to be deleted is
/// queued at once too: a later due time of a current version would look like the work of a clock that was ahead.
fn announce(group: &WriteTxn<'_>, tenant: TenantNo, version: u32) -> Result<(), StoreError> {
    let value = KvKey::Catalogue(version);
    let is_there = is_there(group.tx, tenant, version)?;
    if !is_there || crate::outbox::queue::is_waiting(group, tenant, value)? {
        crate::outbox::queue::put_key(group, tenant, value, group.now)?;
    }
    if is_there { crate::outbox::queue::put_key(group, tenant, KvKey::Pointer, group.now) } else { Ok(()) }
}

/// A version that is neither current nor among the newest.
struct OutdatedVersion {
    version: u32,
    replaced: Millis,
    /// Whether the KV may have the version's value.
    there: bool,
}

fn outdated(conn: &Connection, tenant: TenantNo) -> Result<Vec<OutdatedVersion>, StoreError> {
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_OUTDATED)?;
    let rows = statement.query_map((tenant.0, limits::CATALOGUE_VERSIONS), |row| {
        Ok(OutdatedVersion { version: row.get(0)?, replaced: unsigned(row.get(1)?), there: row.get(2)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Time since which a version has been outdated, so that its value leaves the KV; `None` for a version that stays.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn outdated_since(conn: &Connection, tenant: TenantNo, version: u32) -> Result<Option<Millis>, StoreError> {
    let key = (tenant.0, version, limits::CATALOGUE_VERSIONS);
    Ok(conn
        .prepare_cached(catalogues::CATALOGUES_OUTDATED_SINCE)?
        .query_row(key, |row| row.get(0).map(unsigned))
        .optional()?)
}

/// The version whose value belongs in the KV; `None` for a version that leaves it.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn to_publish(
    conn: &Connection,
    tenant: TenantNo,
    version: u32,
    now: Millis,
) -> Result<Option<StoredVersion>, StoreError> {
    let leaves = |since: Millis| since.saturating_add(limits::CATALOGUE_KEEP_MS) <= now;
    if outdated_since(conn, tenant, version)?.is_some_and(leaves) {
        Ok(None)
    } else {
        stored_version(conn, tenant, Some(version))
    }
}

/// The pointer as it should be in the KV; `None` without a catalogue.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn pointer_to_be(
    conn: &Connection,
    tenant: TenantNo,
    published: SnapshotVersion,
) -> Result<Option<CataloguePointer>, StoreError> {
    let current = stored_version(conn, tenant, None)?;
    Ok(current.map(|current| CataloguePointer { published, version: current.version, digest: current.digest() }))
}

/// The pointer, if it may be written: only after the KV acknowledged the value that it names.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn pointer(
    conn: &Connection,
    tenant: TenantNo,
    published: SnapshotVersion,
) -> Result<Option<CataloguePointer>, StoreError> {
    let Some(pointer) = pointer_to_be(conn, tenant, published)? else { return Ok(None) };
    Ok(is_there(conn, tenant, pointer.version)?.then_some(pointer))
}

/// Whether the KV acknowledged a version's value.
fn is_there(conn: &Connection, tenant: TenantNo, version: u32) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(catalogues::CATALOGUES_IS_PUBLISHED)?.query_row((tenant.0, version), |row| row.get(0))?)
}

/// Records that a version's value was handed out under an outbox entry. `None` records its deletion, or a loss in the
/// KV.
pub(crate) fn handed(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    version: u32,
    entry: Option<u64>,
) -> Result<(), StoreError> {
    match entry {
        Some(entry) => {
            group.tx.prepare_cached(catalogues::CATALOGUES_SET_HANDED)?.execute((tenant.0, version, signed(entry)))?
        }
        None => group.tx.prepare_cached(catalogues::CATALOGUES_CLEAR_HANDED)?.execute((tenant.0, version))?,
    };
    Ok(())
}

/// Records the acknowledged values and queues the pointers that may follow.
///
/// # Errors
/// [`StoreError`]; the caller must roll the transaction back.
pub(crate) fn written(group: &WriteTxn<'_>, applied: &[u64]) -> Result<(), StoreError> {
    if applied.is_empty()
        || !group
            .tx
            .prepare_cached(catalogues::CATALOGUES_ANY_UNACKNOWLEDGED)?
            .query_row([], |row| row.get::<_, bool>(0))?
    {
        return Ok(());
    }
    for entry in applied {
        let done = group
            .tx
            .prepare_cached(catalogues::CATALOGUES_MARK_PUBLISHED)?
            .query_row((signed(*entry), signed(group.now)), |row| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?)));
        let Some((tenant, version)) = done.optional()? else { continue };
        if current(group.tx, tenant)? == Some(version) {
            crate::outbox::queue::put_key(group, tenant, KvKey::Pointer, group.now)?;
        }
    }
    Ok(())
}
