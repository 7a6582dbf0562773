//! The audit trail: author and reason of each link, unlink, erasure and removed name. The attribution is in the log
//! with the facts of the change; its row is written in the transaction that folds them, so neither exists without the
//! other.
//!
//! A row names visitors and alternate ids as the store knows them, never by a raw value, and never an erased one. Facts
//! of visitors themselves are not in the trail, except their erasures, because logins and withdrawals are evidence
//! already.

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AlternateId, FactId, KindCode, Millis, VisitorId};
use causeway_shared::facts::fact::{Fact, FactKind};
use rusqlite::{Connection, Row, named_params};
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::attribution::Attribution;
use crate::base::integers::{signed, unsigned};
use crate::identity::changes::LinkChanges;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::store::journal::RequestedErasure;
use crate::store::tables::audit;
use crate::store::tenants::TenantContext;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo, hash_at, visitor_at};
use crate::views::describe::{self, NamedId};

/// A change that gets a row.
#[derive(Debug)]
struct AuditEntry {
    what: &'static str,
    id: FactId,
    at: Millis,
    visitor: Option<VisitorId>,
    other: Option<VisitorId>,
    alternate: Option<AlternateId>,
}

impl AuditEntry {
    fn of(what: &'static str, fact: &Fact, said: &Attribution) -> Self {
        let mut change = Self { what, id: fact.id, at: fact.received, visitor: None, other: None, alternate: None };
        if let Some(run) = said.run.as_deref().and_then(|run| FactId::from_receipt(run).ok()) {
            change.id = run;
        } else if let FactKind::Evidence { id, .. } | FactKind::Cancellation { id } = &fact.what {
            change.visitor = Some(fact.visitor);
            change.other = said.other.as_deref().and_then(|other| other.parse().ok());
            // The id of a pair consists of its two visitors, which are named.
            change.alternate = Some(*id).filter(|id| id.kind != KindCode::PAIR);
        }
        change
    }

    /// Adds another fact of the same change: of the other visitor, or of another id.
    fn add(&mut self, fact: &Fact) {
        if self.visitor.is_some_and(|visitor| visitor != fact.visitor) {
            self.other = self.other.or(Some(fact.visitor));
        }
        if let FactKind::Evidence { id, .. } | FactKind::Cancellation { id } = &fact.what {
            self.alternate = self.alternate.filter(|alternate| alternate == id);
        }
    }
}

/// The changes of a record: one for all its links, one for all its unlinks, one for each erasure.
fn record_changes(
    record: &LogRecord,
    said: &Attribution,
) -> BTreeMap<(TenantNo, &'static str, Option<FactId>), AuditEntry> {
    let mut changes = BTreeMap::new();
    for CheckedFact { tenant, fact } in &record.facts {
        let what = match &fact.what {
            FactKind::Evidence { .. } => "link",
            FactKind::Cancellation { .. } => "unlink",
            FactKind::Erasure { .. } => "erase",
            _ => continue,
        };
        let receipt = (what == "erase").then_some(fact.id);
        let change = changes.entry((*tenant, what, receipt)).and_modify(|change: &mut AuditEntry| change.add(fact));
        change.or_insert_with(|| AuditEntry::of(what, fact, said));
    }
    changes
}

/// Writes a row for each change of the records (`new` facts each), and removes the visitors erased in this transaction
/// from the trail. Returns the erasures, for the journal.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub(crate) fn record_rows(
    group: &WriteTxn<'_>,
    records: &[impl AsRef<LogRecord>],
    new: &[u64],
    linked: &LinkChanges,
) -> Result<Vec<RequestedErasure>, StoreError> {
    let mut erased: BTreeMap<(&str, FactId), u64> = BTreeMap::new();
    for (tenant, fact) in linked.erased.iter().filter(|(_, fact)| fact.visitor != VisitorId::ANONYMOUS) {
        *erased.entry((tenant.as_str(), fact.id)).or_default() += 1;
    }
    let mut asked = Vec::new();
    for (record, new) in records.iter().map(AsRef::as_ref).zip(new) {
        let said = Attribution::of(record.attribution.as_ref(), record.admin);
        for ((tenant, ..), change) in record_changes(record, &said) {
            if change.what == "erase" {
                let name = group.rules.tenants.by_no(tenant)?.id.to_string();
                let count = erased.get(&(name.as_str(), change.id)).copied().unwrap_or(0);
                put_row(group.tx, tenant, &change, &said, count)?;
                asked.push(RequestedErasure {
                    tenant: name,
                    receipt: change.id,
                    at: change.at,
                    attribution: said.clone(),
                });
            } else if *new > 0 {
                put_row(group.tx, tenant, &without_erased(group.tx, tenant, change)?, &said, *new)?;
            }
        }
    }
    forget_visitors(group, linked)?;
    Ok(asked)
}

/// The change without visitors and ids that are erased by now.
fn without_erased(conn: &Connection, tenant: TenantNo, change: AuditEntry) -> Result<AuditEntry, StoreError> {
    let named = [change.visitor, change.other];
    let mut left = change;
    for erased in named.into_iter().flatten() {
        if crate::erasures::registry::is_erased(conn, tenant, erased)? {
            left.visitor = left.visitor.filter(|visitor| *visitor != erased);
            left.other = left.other.filter(|other| *other != erased);
            left.alternate = None;
        }
    }
    if let Some(id) = left.alternate {
        let until = crate::erasures::registry::id_erased(conn, tenant, id.kind, [id.hash])?;
        left.alternate = Some(id).filter(|_| until.is_none_or(|(until, _)| until < left.at));
    }
    Ok(left)
}

/// Adds a row. A repeated change adds nothing, except the next part of an import.
fn put_row(
    conn: &Connection,
    tenant: TenantNo,
    change: &AuditEntry,
    said: &Attribution,
    count: u64,
) -> Result<(), StoreError> {
    let bytes = |visitor: &Option<VisitorId>| visitor.map(|visitor| visitor.as_bytes().to_vec());
    conn.prepare_cached(audit::AUDIT_INSERT_OR_COUNT)?.execute(named_params! {
        ":tenant": tenant.0,
        ":id": change.id.as_bytes(),
        ":at": signed(change.at),
        ":what": change.what,
        ":by": said.by,
        ":name": said.name,
        ":role": said.role,
        ":reason": said.reason,
        ":visitor": bytes(&change.visitor),
        ":other": bytes(&change.other),
        ":kind": change.alternate.map(|id| id.kind.0),
        ":hash": change.alternate.map(|id| id.hash.0),
        ":count": signed(count),
    })?;
    Ok(())
}

/// Writes a row for a change of one name of the tenant, such as an attribute's.
///
/// # Errors
/// [`StoreError`]; the caller must then roll back the transaction.
pub(crate) fn keep_name(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    what: &str,
    name: &str,
    said: &Attribution,
) -> Result<(), StoreError> {
    let id: [u8; 16] = group.random.draw();
    group.tx.prepare_cached(audit::AUDIT_INSERT_NAME)?.execute(named_params! {
        ":tenant": tenant.0,
        ":id": id,
        ":at": signed(group.now),
        ":what": what,
        ":by": said.by,
        ":name": said.name,
        ":role": said.role,
        ":reason": said.reason,
        ":object": name,
    })?;
    Ok(())
}

/// Removes the erased visitors and ids from the rows; author, time, type and reason stay.
fn forget_visitors(group: &WriteTxn<'_>, linked: &LinkChanges) -> Result<(), StoreError> {
    if linked.erased.is_empty() {
        return Ok(());
    }
    for (name, fact) in &linked.erased {
        let Some(tenant) = group.rules.tenants.by_name(name) else { continue };
        if let FactKind::Erasure { id: Some(id), .. } = &fact.what {
            let values = (tenant.no.0, id.kind.0, id.hash.0, signed(fact.received));
            group.tx.prepare_cached(audit::AUDIT_CLEAR_ID)?.execute(values)?;
        } else {
            for forget in [audit::AUDIT_CLEAR_VISITOR, audit::AUDIT_CLEAR_OTHER] {
                group.tx.prepare_cached(forget)?.execute((tenant.no.0, fact.visitor.as_bytes()))?;
            }
            crate::store::job_reports::forget_visitor(group.tx, fact.visitor)?;
        }
    }
    Ok(())
}

/// Adds the row of an erasure from the journal. The replay adds the number of its visitors.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn carry_erasures(conn: &Connection, tenant: TenantNo, asked: &RequestedErasure) -> Result<(), StoreError> {
    let RequestedErasure { receipt, at, attribution: said, .. } = asked;
    let change = AuditEntry { what: "erase", id: *receipt, at: *at, visitor: None, other: None, alternate: None };
    put_row(conn, tenant, &change, said, 0)
}

/// All erasures of the trail.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn list_erasures(conn: &Connection) -> Result<Vec<RequestedErasure>, StoreError> {
    let mut statement = conn.prepare(audit::AUDIT_ERASURES)?;
    let rows = statement.query_map([], |row| {
        let (receipt, at) = (FactId::from_bytes(row.get(1)?), unsigned(row.get(2)?));
        let said = Attribution {
            by: row.get(3)?,
            name: row.get(4)?,
            role: row.get(5)?,
            reason: row.get(6)?,
            ..Attribution::default()
        };
        Ok(RequestedErasure { tenant: row.get(0)?, receipt, at, attribution: said })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A row of the audit trail. No row names an erased visitor or its ids.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditRow {
    /// Number of the row, in the order of storing.
    pub row: i64,
    /// Time of the request.
    pub at_ms: u64,
    /// The change: `link`, `unlink`, `erase`, `forget_attribute` or `forget_event`.
    pub what: String,
    /// Author: `token:NUMBER`, `cli`, `visitor` or `job:NAME`; `admin` or `journal` in a row of a release that stored
    /// no author.
    pub by: Option<String>,
    /// Name of the token, or of the operating system's user according to the environment.
    pub name: Option<String>,
    /// Role of the token.
    pub role: Option<String>,
    /// Reason that the author gave.
    pub reason: Option<String>,
    /// Receipt of an erasure.
    #[schema(format = "uuid")]
    pub receipt: Option<String>,
    /// The visitor that the change names; null in an erasure, in an import, and after the visitor was erased.
    #[schema(format = "uuid")]
    pub visitor: Option<String>,
    /// The second visitor that the change names; null in the same cases.
    #[schema(format = "uuid")]
    pub other: Option<String>,
    /// The alternate id that the change names; null after the id or its visitor was erased.
    pub id: Option<NamedId>,
    /// Name of the attribute or event that was forgotten.
    pub object: Option<String>,
    /// Number of evidence rows that came or ended, or of erased visitors.
    pub count: u64,
}

/// A page of a tenant's trail, the newest row first, with rows before `after`. For one visitor: the changes that name
/// it, and its erasure.
///
/// # Errors
/// [`StoreError`].
pub fn list_rows(
    conn: &Connection,
    tenant: &TenantContext,
    visitor: Option<VisitorId>,
    after: Option<i64>,
    most: usize,
) -> Result<Vec<AuditRow>, StoreError> {
    let read = if visitor.is_some() { audit::AUDIT_BEFORE_ROW_OF_VISITOR } else { audit::AUDIT_BEFORE_ROW };
    let mut statement = conn.prepare_cached(read)?;
    let visitor = visitor.map(|visitor| visitor.as_bytes().to_vec());
    let parameters = (tenant.no.0, after.unwrap_or(i64::MAX), signed(most as u64), visitor);
    let rows = statement.query_map(parameters, |row| describe_row(tenant, row))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn describe_row(tenant: &TenantContext, row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let what: String = row.get(2)?;
    let text = |column| row.get::<_, Option<String>>(column);
    let named = |column| match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => visitor_at(row, column).map(|visitor| Some(visitor.to_string())),
    };
    let id = match row.get::<_, Option<u8>>(11)? {
        Some(kind) => {
            Some(describe::describe_id(tenant, AlternateId { kind: KindCode(kind), hash: hash_at(row, 12)? }))
        }
        None => None,
    };
    let receipt = FactId::from_bytes(row.get(7)?).receipt();
    Ok(AuditRow {
        row: row.get(0)?,
        at_ms: unsigned(row.get(1)?),
        receipt: (what == "erase").then_some(receipt),
        what,
        by: text(3)?,
        name: text(4)?,
        role: text(5)?,
        reason: text(6)?,
        visitor: named(9)?,
        other: named(10)?,
        id,
        object: text(13)?,
        count: unsigned(row.get(8)?),
    })
}

#[cfg(test)]
#[path = "audit/tests.rs"]
mod tests;
