//! The value of one KV key, built from the newest state and checked before it is handed out (invariant 8).

use crate::kv::value_error::ValueError;
use causeway_shared::ads::allocation::TrafficAllocation;
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::ids::{AlternateId, Millis, SnapshotVersion, VisitorId};
use causeway_shared::facts::attributes::ValueKind;
use causeway_shared::wire::kv_keys;
use causeway_shared::wire::{WireError, catalogue as forms, flat, kv as form};
use rusqlite::Connection;

use crate::campaigns::catalogue::{self, StoredVersion};
use crate::campaigns::{allocation, train};
use crate::identity::link::canonical_id;
use crate::kv::snapshot::{self, SnapshotBestSendTime};
use crate::outbox::kv_key::KvKey;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo, names};
use crate::views::read;

/// The text of a key.
#[must_use]
pub fn key_text(tenant: &TenantContext, subject: KvKey) -> String {
    let id = &tenant.id;
    match subject {
        KvKey::Snapshot(visitor) => kv_keys::snapshot_key(id, visitor),
        KvKey::Lookup(kind, hash) => kv_keys::lookup_key(id, AlternateId { kind, hash }),
        KvKey::Names(page) => kv_keys::attributes_key(id, page.into()),
        KvKey::Catalogue(number) => kv_keys::catalogue_key(id, number),
        KvKey::Pointer => kv_keys::pointer_key(id),
        KvKey::Model => kv_keys::model_key(id),
        KvKey::Allocation => kv_keys::allocation_key(id),
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvValue {
    /// The key.
    pub key: String,
    /// The value; `None` if the key is deleted.
    pub value: Option<String>,
    /// Whether it is a truncated snapshot.
    pub is_truncated: bool,
}

/// Builds the key and the value of a subject.
///
/// # Errors
/// [`ValueError`].
pub fn build(
    conn: &Connection,
    tenant: &TenantContext,
    subject: KvKey,
    version: SnapshotVersion,
    now: Millis,
) -> Result<KvValue, ValueError> {
    build_with_best_send_time(conn, tenant, subject, version, SnapshotBestSendTime::Published, now)
}

/// Builds the key and the value of a subject, with a best send time that is not stored yet.
///
/// # Errors
/// [`ValueError`].
pub fn build_with_best_send_time(
    conn: &Connection,
    tenant: &TenantContext,
    subject: KvKey,
    version: SnapshotVersion,
    best: SnapshotBestSendTime,
    now: Millis,
) -> Result<KvValue, ValueError> {
    let key = key_text(tenant, subject);
    let mut is_truncated = false;
    let value = match subject {
        KvKey::Snapshot(visitor) => {
            let stored = snapshot::build_stored(conn, tenant, visitor, version, best, &key)?;
            is_truncated = stored.as_ref().is_some_and(|(_, is_truncated)| *is_truncated);
            stored.map(|(value, _)| value)
        }
        KvKey::Names(page) => {
            let names = names::load_dictionary(conn, tenant.no)?;
            Some(names_page(&key, names.page(page.into()))?)
        }
        KvKey::Catalogue(number) => {
            let kept = catalogue::to_publish(conn, tenant.no, number, now)?;
            kept.map(|kept| catalogue_value(conn, tenant, &key, &kept)).transpose()?
        }
        KvKey::Pointer => {
            let pointer = catalogue::pointer(conn, tenant.no, version)?.ok_or(ValueError::NotYet)?;
            let value = forms::encode_pointer(&key, &pointer);
            match forms::decode_pointer(&key, value.as_bytes()) {
                Ok(back) if back == pointer => Some(value),
                _ => return Err(ValueError::Check("differs")),
            }
        }
        KvKey::Model => {
            train::newest(conn, tenant.no)?.map(|(bytes, _)| model_value(&key, version, &bytes)).transpose()?
        }
        KvKey::Allocation => {
            let made = allocation::load_newest(conn, tenant.no)?;
            made.map(|made| allocation_value(&key, version, &made.published())).transpose()?
        }
        KvKey::Lookup(kind, hash) => lookup_value(conn, tenant, AlternateId { kind, hash }, &key)?,
    };
    Ok(KvValue { key, value, is_truncated })
}

/// Encodes a model, which is published only if an edge can score with it.
fn model_value(key: &str, version: SnapshotVersion, bytes: &[u8]) -> Result<String, ValueError> {
    let value = forms::encode_model(key, version, bytes);
    let (published, back) = forms::decode_model(key, value.as_bytes()).map_err(|e| ValueError::Check(e.code()))?;
    let same = published == version && causeway_shared::wire::model::encode_model(&back) == bytes;
    if same { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn allocation_value(key: &str, version: SnapshotVersion, allocation: &TrafficAllocation) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let value = forms::encode_allocation(key, version, allocation).map_err(bad)?;
    let back = forms::decode_allocation(key, value.as_bytes()).map_err(bad)?;
    if back == (version, allocation.clone()) { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn names_page(key: &str, page: &[(String, ValueKind)]) -> Result<String, ValueError> {
    let value = form::encode_names(key, page).map_err(|e| ValueError::Check(e.code()))?;
    match form::decode_names(key, value.as_bytes()) {
        Ok(back) if back == page => Ok(value),
        Ok(_) => Err(ValueError::Check("differs")),
        Err(e) => Err(ValueError::Check(e.code())),
    }
}

/// Encodes a catalogue, which is published only if an edge can read it back.
fn catalogue_value(
    conn: &Connection,
    tenant: &TenantContext,
    key: &str,
    kept: &StoredVersion,
) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let read: Result<Catalogue, _> = serde_json::from_str(&kept.document);
    let catalogue = read.map_err(|_| StoreError::Corrupt { what: "document of a catalogue" })?;
    let names = names::load_dictionary(conn, tenant.no)?;
    // Names and words are permanent, so the document still passes the check that it passed with them.
    let flat = catalogue.flat(&names, &tenant.config.vocabulary).map_err(|_| ValueError::Check("targeting"))?;
    let value = forms::encode_document(key, &kept.digest(), &flat::encode_catalogue(&flat)).map_err(bad)?;
    let bytes = forms::decode_document(key, &kept.digest(), value.as_bytes()).map_err(bad)?;
    if flat::decode_catalogue(&bytes).map_err(bad)? == flat { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn lookup_value(
    conn: &Connection,
    tenant: &TenantContext,
    id: AlternateId,
    key: &str,
) -> Result<Option<String>, ValueError> {
    let visitors = seen_with(conn, tenant.no, id)?;
    // A lookup that no edge reads is deleted.
    if visitors.is_empty() || !tenant.is_readable(id.hash) {
        return Ok(None);
    }
    let value = form::encode_lookup(key, &visitors).map_err(|e| ValueError::Check(e.code()))?;
    match form::decode_lookup(key, value.as_bytes()) {
        Ok(back) if back == visitors => Ok(Some(value)),
        Ok(_) => Err(ValueError::Check("differs")),
        Err(e) => Err(ValueError::Check(e.code())),
    }
}

/// The visitors last seen with an id, under any of its hashes.
///
/// # Errors
/// [`StoreError`].
pub fn seen_with(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
    let Some(canonical) = canonical_id(conn, tenant, id)? else { return Ok(Vec::new()) };
    Ok(read::load_lookup(conn, tenant, canonical)?.map(|found| found.visitors).unwrap_or_default())
}
