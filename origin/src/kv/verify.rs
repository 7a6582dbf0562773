//! Verify: reads the KV's values back through the edge and compares them with the store.
//!
//! A run requests keys, as rows of a table. The publish consumer gets them with a sync, reads them in one bulk read,
//! and reports the digests with its next sync. A difference is read again once all earlier writes are visible
//! everywhere ([`TxnRules::kv_settled_ms`]); only then it counts, and the key goes into the outbox. Nothing here waits:
//! a run advances by [`verify_step`] and may be stopped between any two steps.

mod handed_out;

use crate::base::metrics::FOUND;
use crate::store::tables::{lookups, outbox, standing, verifications, visitors};
use causeway_shared::base::ids::{AltHash, AlternateId, KindCode, Millis, SnapshotVersion};
use causeway_shared::base::limits;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use handed_out::{hand_out, note_reads, pending_reads};

use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::kv::value_error::ValueError;
use crate::kv::{publish, value};
use crate::outbox::kv_key::KvKey;
use crate::store::tenants::TenantContext;
use crate::store::write_txn::{TxnInputs, TxnRules, WriteTxn};
use crate::store::{StoreCounters, StoreError, TenantNo, VisitorRow};

/// Most visitors, or ids, requested in one transaction.
const SOME: u32 = 2_000;
/// Fewest requested keys that wait for a consumer, which reads faster than a run requests.
const AHEAD: i64 = 1_000;
/// Most keys in progress, including keys that are read again.
const MOST: i64 = 20_000;
/// Most keys compared in one step.
const LOOKED: u32 = 500;
/// Most reads of a key that changes each time; then it is skipped.
const LOOKS: u32 = 4;

/// The result for a key. The last three cause a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyFinding {
    /// The KV has the store's value.
    Right,
    /// A write of the key is on its way, or the value changed each time.
    Waiting,
    /// The KV's value is older than the store by design: the visitor's next change brings the new one. No erasure waits
    /// for it.
    Older,
    /// The KV lacks a value.
    Missing,
    /// The KV has another value: an older one from a late writer, or a damaged one.
    Differs,
    /// A tombstone is missing, or a lookup without visitors exists.
    NotErased,
}

/// Counts of a run so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Keys compared.
    pub keys: u64,
    /// Keys with the store's value.
    pub right: u64,
    /// Keys with a write on its way, or with a value that changed each time.
    pub waiting: u64,
    /// Keys with a value that is older than the store by design: trimmed since, or of a sibling that does not fit into
    /// the snapshot.
    pub older: u64,
    /// Keys without a value.
    pub missing: u64,
    /// Keys with another value.
    pub differs: u64,
    /// Keys with a tombstone or a deletion that did not last.
    pub not_erased: u64,
    /// Keys put in the outbox, to be written again.
    pub put: u64,
}

/// An alternate id under one hash: tenant, kind and hash as columns store them.
type Id = (i64, u8, [u8; 16]);
/// Value of [`VerifyPosition::cursor`] once every key is requested.
const ALL_ASKED: i64 = i64::MIN;

/// Position of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyPosition {
    /// From 0: the row of the last requested visitor. Below 0: -1 minus the number of requested ids, because the row of
    /// a run must not name an id.
    pub cursor: i64,
    /// Counts so far.
    pub verified: VerifyReport,
    /// The last requested id; `None` after an interruption.
    id: Option<Id>,
}

impl VerifyPosition {
    /// Continues at the position of an earlier run.
    #[must_use]
    pub fn from(cursor: i64, verified: VerifyReport) -> Self {
        Self { cursor, verified, id: None }
    }
}

/// The result of a step, which decides what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyStep {
    /// The step compared values that edges reported.
    Looked,
    /// The step requested keys.
    Asked,
    /// The run waits for an edge to read keys that are due since this time.
    Waits(Millis),
    /// Every key was compared.
    Over,
}

/// Deletes all requests for keys.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn forget_reads(conn: &Connection) -> Result<(), StoreError> {
    conn.execute(verifications::VERIFICATIONS_DELETE_ALL, [])?;
    Ok(())
}

/// Number of keys, without the keys of whole tenants.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn count_keys(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row(visitors::VISITORS_COUNT_KV_KEYS, [], |row| row.get(0).map(unsigned))?)
}

/// Compares the values that edges reported, or requests further keys. `keep` stores the position in the same
/// transaction. A dry run repairs nothing and proves no erasure.
///
/// # Errors
/// [`StoreError`]; then nothing of the step was stored.
pub fn verify_step(
    conn: &mut Connection,
    rules: &TxnRules,
    metrics: &Metrics,
    given: TxnInputs,
    walk: &mut VerifyPosition,
    dry_run: bool,
    keep: &dyn Fn(&Connection, &VerifyPosition) -> Result<(), StoreError>,
) -> Result<VerifyStep, StoreError> {
    let looked = {
        // One read transaction: all values are of one moment, and no writer waits.
        let tx = conn.transaction()?;
        answered_reads(&tx)?
            .into_iter()
            .map(|asked| compare_key(&tx, rules, &asked, given.now).map(|looked| (asked, looked)))
            .collect::<Result<Vec<_>, _>>()?
    };
    let mut next = walk.clone();
    if !looked.is_empty() {
        crate::store::write_txn::within_txn(conn, rules, metrics, given, |group| {
            settle_reads(group, &looked, dry_run, &mut next.verified)?;
            keep(group.tx, &next)
        })?;
        *walk = next;
        return Ok(VerifyStep::Looked);
    }
    let (all, fresh, due): (i64, i64, Option<i64>) = conn
        .prepare_cached(verifications::VERIFICATIONS_COUNT_OPEN)?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    if walk.cursor != ALL_ASKED && fresh < AHEAD && all < MOST {
        crate::store::write_txn::within_txn(conn, rules, metrics, given, |group| {
            ask_more(group, &mut next)?;
            keep(group.tx, &next)
        })?;
        *walk = next;
        return Ok(VerifyStep::Asked);
    }
    Ok(if all == 0 { VerifyStep::Over } else { VerifyStep::Waits(due.map_or(given.now, unsigned)) })
}

/// A key that an edge has read.
#[derive(Debug)]
struct ReadKey {
    entry: i64,
    tenant: TenantNo,
    subject: KvKey,
    asked: Millis,
    sha256: Option<[u8; 32]>,
    looks: u32,
    expected: Option<Vec<u8>>,
}

fn answered_reads(conn: &Connection) -> Result<Vec<ReadKey>, StoreError> {
    let mut statement = conn.prepare_cached(verifications::VERIFICATIONS_ANSWERED)?;
    let rows = statement.query_map([LOOKED], |row| {
        Ok(ReadKey {
            entry: row.get(0)?,
            tenant: TenantNo(row.get(1)?),
            subject: KvKey::of_columns(row.get(2)?, row, 3)?,
            asked: unsigned(row.get(4)?),
            sha256: row.get(5)?,
            looks: row.get(6)?,
            expected: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The result of comparing a key.
#[derive(Debug, PartialEq)]
enum KeyComparison {
    Found(KeyFinding),
    /// The key must be read again, with the digest expected now; `None` if the value could not be built.
    Again(Option<Vec<u8>>),
}

fn compare_key(conn: &Connection, rules: &TxnRules, asked: &ReadKey, now: Millis) -> Result<KeyComparison, StoreError> {
    let again = |expected| match asked.looks + 1 {
        LOOKS.. => KeyComparison::Found(KeyFinding::Waiting),
        _ => KeyComparison::Again(expected),
    };
    let Ok(tenant) = rules.tenants.by_no(asked.tenant) else { return Ok(KeyComparison::Found(KeyFinding::Waiting)) };
    let state = StoredState::of(conn, asked)?;
    let value = match value::build(conn, tenant, asked.subject, state.version, now) {
        Ok(built) => built.value,
        Err(ValueError::Store(e)) if !e.is_of_a_value() => return Err(e),
        // The key is not written before its value can be built.
        Err(_) => return Ok(again(None)),
    };
    let digest = value.as_ref().map(|value| <[u8; 32]>::from(Sha256::digest(value)));
    if digest == asked.sha256 {
        return Ok(KeyComparison::Found(KeyFinding::Right));
    }
    if state.waits {
        return Ok(again(None));
    }
    let expected = digest.map_or_else(Vec::new, |digest| digest.to_vec());
    if asked.expected.as_ref() != Some(&expected) {
        return Ok(again(Some(expected)));
    }
    let gone = state.gone || is_empty_lookup(conn, tenant, asked.subject)?;
    Ok(KeyComparison::Found(match asked.sha256 {
        _ if gone => KeyFinding::NotErased,
        None => KeyFinding::Missing,
        Some(_)
            if state.is_behind(conn)?
                && !crate::erasures::registry::is_unverified(conn, asked.tenant, asked.subject)? =>
        {
            KeyFinding::Older
        }
        Some(_) => KeyFinding::Differs,
    }))
}

/// Whether a key is a lookup of an id without visitors. A lookup under a retired key has no value either, although its
/// id may belong to a visitor that came back after an erasure.
fn is_empty_lookup(conn: &Connection, tenant: &TenantContext, subject: KvKey) -> Result<bool, StoreError> {
    let KvKey::Lookup(kind, hash) = subject else { return Ok(false) };
    Ok(value::seen_with(conn, tenant.no, AlternateId { kind, hash })?.is_empty())
}

/// The store's state of a key, apart from its value.
#[derive(Debug, Default)]
struct StoredState {
    /// The version of the last hand-out.
    version: SnapshotVersion,
    /// Whether a write of the key is on its way or due.
    waits: bool,
    /// Whether the value is a tombstone.
    gone: bool,
    /// For a visitor: its person, and the counter of the person's newest change.
    person: Option<(i64, u64)>,
}

impl StoredState {
    fn of(conn: &Connection, asked: &ReadKey) -> Result<Self, StoreError> {
        let (kind, subject) = asked.subject.columns();
        let waits =
            conn.prepare_cached(outbox::OUTBOX_EXISTS)?.query_row((asked.tenant.0, kind, subject), |row| row.get(0))?;
        let mut state = Self { waits, ..Self::default() };
        state.version.restore = StoreCounters::load(conn)?.version().restore;
        let counter = match asked.subject {
            KvKey::Snapshot(_) => {
                let found = conn.prepare_cached(visitors::VISITORS_PUBLISHED_STATE)?.query_row(
                    (asked.tenant.0, subject),
                    |row| {
                        state.gone = row.get(1)?;
                        state.person = Some((row.get(2)?, unsigned(row.get(3)?)));
                        state.waits |= row.get::<_, bool>(4)? && !state.gone;
                        row.get(0)
                    },
                );
                found.optional()?
            }
            _ => conn
                .prepare_cached(standing::STANDING_PUBLISHED)?
                .query_row((asked.tenant.0, kind), |row| row.get(0))
                .optional()?,
        };
        state.version.counter = counter.map_or(0, unsigned);
        Ok(state)
    }

    /// Whether the store has changes that the snapshot was not written for: deletions by `trim` are published with the
    /// next change, and in a large person only the most recently active visitors get each other's changes.
    fn is_behind(&self, conn: &Connection) -> Result<bool, StoreError> {
        let Some((person, changed)) = self.person else { return Ok(false) };
        let most = signed(limits::SNAPSHOT_VISITORS as u64);
        let newest: i64 = conn
            .prepare_cached(visitors::VISITORS_NEWEST_VERSION_OF_PERSON)?
            .query_row([person, most], |row| row.get(0))?;
        Ok(changed.max(unsigned(newest)) > self.version.counter)
    }
}

/// Stores the results: keys to read again, proofs of erasures, and keys to write again.
fn settle_reads(
    group: &mut WriteTxn<'_>,
    looked: &[(ReadKey, KeyComparison)],
    dry_run: bool,
    verified: &mut VerifyReport,
) -> Result<(), StoreError> {
    // A version above the one that is being written now.
    group.next_version();
    for (asked, looked) in looked {
        group.tx.prepare_cached(verifications::VERIFICATIONS_DELETE)?.execute([asked.entry])?;
        let found = match looked {
            KeyComparison::Found(found) => *found,
            KeyComparison::Again(expected) => {
                let due = group.now.saturating_add(group.rules.kv_settled_ms);
                ask_reads(group, asked.tenant, asked.subject, due, asked.looks + 1, expected.as_deref())?;
                continue;
            }
        };
        verified.keys += 1;
        *verified.of(found) += 1;
        match found {
            _ if dry_run => {}
            KeyFinding::Right => {
                crate::erasures::registry::note_verified(group, asked.tenant, asked.subject, asked.asked)?
            }
            KeyFinding::Missing | KeyFinding::Differs | KeyFinding::NotErased => {
                crate::outbox::queue::put_key(group, asked.tenant, asked.subject, group.now)?;
                crate::erasures::registry::note_unwritten(group, asked.tenant, asked.subject)?;
                verified.put += 1;
            }
            KeyFinding::Waiting | KeyFinding::Older => {}
        }
    }
    Ok(())
}

impl VerifyReport {
    fn of(&mut self, found: KeyFinding) -> &mut u64 {
        match found {
            KeyFinding::Right => &mut self.right,
            KeyFinding::Waiting => &mut self.waiting,
            KeyFinding::Older => &mut self.older,
            KeyFinding::Missing => &mut self.missing,
            KeyFinding::Differs => &mut self.differs,
            KeyFinding::NotErased => &mut self.not_erased,
        }
    }

    /// The counts, in the order of [`FOUND`].
    #[must_use]
    pub fn found(&self) -> [u64; FOUND.len()] {
        [self.right, self.waiting, self.older, self.missing, self.differs, self.not_erased]
    }
}

fn ask_reads(
    group: &mut WriteTxn<'_>,
    tenant: TenantNo,
    subject: KvKey,
    due: Millis,
    looks: u32,
    expected: Option<&[u8]>,
) -> Result<(), StoreError> {
    let entry = signed(group.next_version().counter);
    let (kind, columns) = subject.columns();
    group.tx.prepare_cached(verifications::VERIFICATIONS_INSERT)?.execute((
        entry,
        tenant.0,
        kind,
        columns,
        signed(due),
        looks,
        expected,
    ))?;
    Ok(())
}

/// Requests the next keys: of visitors, then of ids, then of whole tenants.
fn ask_more(group: &mut WriteTxn<'_>, walk: &mut VerifyPosition) -> Result<(), StoreError> {
    let mut subjects = Vec::new();
    if walk.cursor >= 0 {
        let visitors = publish::visitor_page(group.tx, VisitorRow::from_number(walk.cursor), SOME)?;
        walk.cursor = visitors.last().map_or(-1, |(row, ..)| row.number());
        subjects.extend(visitors.into_iter().map(|(_, tenant, visitor)| (tenant, KvKey::Snapshot(visitor))));
    } else {
        let ids = page_ids(group.tx, walk)?;
        walk.id = ids.last().copied();
        walk.cursor -= signed(ids.len() as u64);
        if ids.is_empty() {
            walk.cursor = ALL_ASKED;
            subjects.extend(publish::of_tenants(group.tx, &group.rules.tenants)?);
        }
        let lookup = |(tenant, kind, hash)| (TenantNo(tenant), KvKey::Lookup(KindCode(kind), AltHash(hash)));
        subjects.extend(ids.into_iter().map(lookup));
    }
    for (tenant, subject) in subjects {
        let Ok(known) = group.rules.tenants.by_no(tenant) else { continue };
        // A lookup under a retired key is used only by an erasure.
        let is_used = match subject {
            KvKey::Lookup(KindCode::PAIR, _) => false,
            KvKey::Lookup(_, hash) => {
                known.is_readable(hash) || crate::erasures::registry::is_unverified(group.tx, tenant, subject)?
            }
            _ => true,
        };
        if is_used {
            ask_reads(group, tenant, subject, group.now, 0, None)?;
        }
    }
    Ok(())
}

/// The next ids with a possible lookup in the KV, under each hash, including erased ids. Such rows are never deleted.
fn page_ids(conn: &Connection, walk: &VerifyPosition) -> Result<Vec<Id>, StoreError> {
    let passed = if walk.id.is_some() { 0 } else { -1 - walk.cursor };
    let (tenant, kind, hash) = walk.id.unwrap_or_default();
    let mut statement = conn.prepare_cached(lookups::LOOKUPS_PAGE_WITH_ALTERNATES_AND_ERASED)?;
    let rows =
        statement.query_map((tenant, kind, hash, SOME, passed), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[path = "verify/tests.rs"]
mod tests;
