//! The value of one KV key, built from the newest state and checked before anybody gets it (invariant 8).

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::attributes::Kind;
use causeway_shared::catalogue::Catalogue;
use causeway_shared::ids::{AltHash, AlternateId, Epoch, Millis, Version, VisitorId};
use causeway_shared::membership::Membership;
use causeway_shared::person::Weight;
use causeway_shared::profile::{Content, SubProfile};
use causeway_shared::rhythm::BestTime;
use causeway_shared::steering::Steering;
use causeway_shared::time::{Day, Minute};
use causeway_shared::view::{Snapshot, Stored};
use causeway_shared::wire::{WireError, catalogue as forms, flat, kv as form};
use causeway_shared::{kv, limits};
use rusqlite::{Connection, OptionalExtension as _};

use super::Subject;
use crate::catalogue::{self, Kept};
use crate::link::{canonical, family, has_withdrawn, held_unique};
use crate::names;
use crate::read::{self, View};
use crate::steering;
use crate::store::{StoreError, TenantNo, visitor_at};
use crate::tenants::Known;
use crate::train;

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The value could not be read back as what it was built from, or has no place in its form.
    #[error("the value failed its check: {0}")]
    Check(&'static str),
    /// What it points to is not known to be in the KV.
    #[error("the KV has not acknowledged what it points to")]
    NotYet,
}

impl From<rusqlite::Error> for ValueError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// The key of a subject.
#[must_use]
pub fn key(tenant: &Known, subject: Subject) -> String {
    let id = &tenant.id;
    match subject {
        Subject::Snapshot(visitor) => kv::snapshot_key(id, visitor),
        Subject::Lookup(kind, hash) => kv::lookup_key(id, AlternateId { kind, hash }),
        Subject::Names(page) => kv::attributes_key(id, page.into()),
        Subject::Catalogue(number) => kv::catalogue_key(id, number),
        Subject::Pointer => kv::pointer_key(id),
        Subject::Model => kv::model_key(id),
        Subject::Steering => kv::steering_key(id),
    }
}

/// The key and the value of a subject; no value: the key is deleted.
///
/// # Errors
/// [`ValueError`].
pub fn build(
    conn: &Connection,
    tenant: &Known,
    subject: Subject,
    version: Version,
    now: Millis,
) -> Result<(String, Option<String>), ValueError> {
    let key = key(tenant, subject);
    let value = match subject {
        Subject::Snapshot(visitor) => stored(conn, tenant, visitor, version, &key)?,
        Subject::Names(page) => {
            let names = names::load(conn, tenant.no)?;
            Some(names_page(&key, names.page(page.into()))?)
        }
        Subject::Catalogue(number) => {
            let kept = catalogue::to_publish(conn, tenant.no, number, now)?;
            kept.map(|kept| document(conn, tenant, &key, &kept)).transpose()?
        }
        Subject::Pointer => {
            let pointer = catalogue::pointer(conn, tenant.no, version)?.ok_or(ValueError::NotYet)?;
            let value = forms::encode_pointer(&key, &pointer);
            match forms::decode_pointer(&key, value.as_bytes()) {
                Ok(back) if back == pointer => Some(value),
                _ => return Err(ValueError::Check("differs")),
            }
        }
        Subject::Model => train::newest(conn, tenant.no)?.map(|(bytes, _)| model(&key, version, &bytes)).transpose()?,
        Subject::Steering => {
            let made = steering::newest(conn, tenant.no)?;
            made.map(|made| steered(&key, version, &made.steering())).transpose()?
        }
        Subject::Lookup(kind, hash) => lookup(conn, tenant, AlternateId { kind, hash }, &key)?,
    };
    Ok((key, value))
}

/// A model is published only if an edge can score with it.
fn model(key: &str, version: Version, bytes: &[u8]) -> Result<String, ValueError> {
    let value = forms::encode_model(key, version, bytes);
    let (published, back) = forms::decode_model(key, value.as_bytes()).map_err(|e| ValueError::Check(e.code()))?;
    let same = published == version && causeway_shared::wire::model::encode(&back) == bytes;
    if same { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn steered(key: &str, version: Version, steering: &Steering) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let value = forms::encode_steering(key, version, steering).map_err(bad)?;
    let back = forms::decode_steering(key, value.as_bytes()).map_err(bad)?;
    if back == (version, steering.clone()) { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn names_page(key: &str, page: &[(String, Kind)]) -> Result<String, ValueError> {
    let value = form::encode_names(key, page).map_err(|e| ValueError::Check(e.code()))?;
    match form::decode_names(key, value.as_bytes()) {
        Ok(back) if back == page => Ok(value),
        Ok(_) => Err(ValueError::Check("differs")),
        Err(e) => Err(ValueError::Check(e.code())),
    }
}

/// A catalogue is published only if an edge can read it back.
fn document(conn: &Connection, tenant: &Known, key: &str, kept: &Kept) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let read: Result<Catalogue, _> = serde_json::from_str(&kept.document);
    let catalogue = read.map_err(|_| StoreError::Corrupt { what: "document of a catalogue" })?;
    let names = names::load(conn, tenant.no)?;
    // Names and words are for ever: what was checked with them still holds.
    let flat = catalogue.flat(&names, &tenant.config.vocabulary).map_err(|_| ValueError::Check("targeting"))?;
    let value = forms::encode_document(key, &kept.digest(), &flat::encode(&flat)).map_err(bad)?;
    let bytes = forms::decode_document(key, &kept.digest(), value.as_bytes()).map_err(bad)?;
    if flat::decode(&bytes).map_err(bad)? == flat { Ok(value) } else { Err(ValueError::Check("differs")) }
}

fn lookup(conn: &Connection, tenant: &Known, id: AlternateId, key: &str) -> Result<Option<String>, ValueError> {
    let visitors = seen_with(conn, tenant.no, id)?;
    // What nobody reads any more goes.
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

/// The visitors last seen with an id, under whichever hash of it.
///
/// # Errors
/// [`StoreError`].
pub fn seen_with(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
    let Some(canonical) = canonical(conn, tenant, id)? else { return Ok(Vec::new()) };
    Ok(read::lookup(conn, tenant, canonical)?.map(|found| found.visitors).unwrap_or_default())
}

/// A visitor's snapshot, its tombstone if it withdrew, nothing if it is not there.
fn stored(
    conn: &Connection,
    tenant: &Known,
    visitor: VisitorId,
    version: Version,
    key: &str,
) -> Result<Option<String>, ValueError> {
    // Before anything of it is read: who left goes, whatever its row holds.
    if has_withdrawn(conn, tenant.no, visitor)? {
        return checked(key, visitor, &Stored::Tombstone).map(Some);
    }
    let Some(own) = read::visitor(&View::folded(conn), tenant.no, visitor)? else {
        return Ok(None);
    };
    let mut siblings = siblings(conn, &own)?;
    // Also where the sibling that holds it finds no room.
    let unique = unique(conn, tenant, [&own].into_iter().chain(&siblings))?;
    let mut segments = limits::SEGMENTS;
    loop {
        // Of what is left as many days of actions as find room, before when events were: without any no cap would bind.
        let [whole, ..] = limits::SNAPSHOT_WINDOWS;
        let windows = limits::SNAPSHOT_WINDOWS.map(|days| (days, false));
        for (days, events) in [(whole, true)].into_iter().chain(windows) {
            let snapshot = snapshot(conn, &own, &siblings, &unique, version, Held { days, events, segments })?;
            match checked(key, visitor, &Stored::Snapshot(Box::new(snapshot))) {
                Err(ValueError::Check(code)) if code == WireError::TooLong.code() => {}
                done => return done.map(Some),
            }
        }
        // Then the least lately active half goes, then the segments written first; the origin still has them all.
        if !siblings.is_empty() {
            siblings.truncate(siblings.len() / 2);
        } else if segments > 0 {
            segments /= 2;
        } else {
            break;
        }
    }
    let bare = snapshot(conn, &own, &siblings, &unique, version, Held { days: 0, events: false, segments })?;
    checked(key, visitor, &Stored::Snapshot(Box::new(bare))).map(Some)
}

/// What of its visitors a snapshot holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Actions of so many days.
    days: u16,
    /// Whether it says when the events of those days were.
    events: bool,
    /// The segments of each that were written last.
    segments: usize,
}

/// The day that a window of so many days ends with the visitor's last one begins on; no day where there is none.
fn since(visitor: &read::Visitor, days: u16) -> Day {
    let last = visitor.profile.seen().map_or(0, |(_, last)| last);
    if days == 0 { Day(u16::MAX) } else { Day(Minute::at(last).day().0.saturating_sub(days - 1)) }
}

fn checked(key: &str, visitor: VisitorId, stored: &Stored) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let value = form::encode_stored(key, stored).map_err(bad)?;
    let back = form::decode_stored(key, visitor, value.as_bytes()).map_err(bad)?;
    if back == *stored { Ok(value) } else { Err(ValueError::Check("differs")) }
}

/// The person's other visitors, the last active first, as many as a snapshot holds beside its own.
fn siblings(conn: &Connection, own: &read::Visitor) -> Result<Vec<read::Visitor>, ValueError> {
    let mut members = read::members(&View::folded(conn), own, limits::SNAPSHOT_VISITORS)?;
    members.retain(|m| m.visitor != own.visitor);
    members.truncate(limits::SNAPSHOT_VISITORS - 1);
    Ok(members)
}

fn snapshot(
    conn: &Connection,
    own: &read::Visitor,
    siblings: &[read::Visitor],
    unique: &[AltHash],
    version: Version,
    Held { days, events, segments }: Held,
) -> Result<Snapshot, ValueError> {
    const PERSON: &str =
        "SELECT p.epoch, p.devices, v.best, p.master FROM people p JOIN visitors v USING (person) WHERE v.row = ?1";
    let (epoch, devices, best, master): (i64, u32, Option<u16>, VisitorId) = conn
        .prepare_cached(PERSON)?
        .query_row([own.row], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, visitor_at(row, 3)?)))
        .optional()?
        .ok_or(StoreError::Corrupt { what: "visitor without a person" })?;
    let is_held = siblings.iter().chain([own]).any(|held| held.visitor == master);
    let siblings = siblings.get(..limits::SNAPSHOT_VISITORS - 2).filter(|_| !is_held).unwrap_or(siblings);
    // One window for all, so that a count over the person misses nothing that one of its parts would hold.
    let since = siblings.iter().chain([own]).map(|visitor| since(visitor, days)).max().unwrap_or_default();
    let mut cut = !is_held;
    let mut sub = |of: &read::Visitor, named| -> Result<_, StoreError> {
        let mut whole = read::whole(&View::folded(conn), of, since)?;
        cut |= whole.keep_segments(segments);
        Ok((of.visitor, whole.sub_profile_since(of.version, named, since, if events { since } else { Day(u16::MAX) })))
    };
    let all = siblings.iter().map(|sibling| (sibling, false)).chain([(own, true)]);
    let mut profiles: BTreeMap<VisitorId, SubProfile> =
        all.map(|(of, named)| sub(of, named)).collect::<Result<_, _>>()?;
    if !is_held {
        // The smallest, by which all browsers of a person find the same objects and arms, is there by its name at least: of no
        // version, as whatever else is known of it is newer.
        profiles.insert(master, SubProfile::pack(Version::default(), &Content::default()));
    }
    let admits: BTreeSet<VisitorId> = profiles.keys().copied().collect();
    let is_unsure = |visitor: &VisitorId| match siblings.iter().chain([own]).find(|held| held.visitor == *visitor) {
        Some(held) => held.weight < Weight::LOGIN,
        // The master, which is there by its name alone, shows nothing.
        None => false,
    };
    let [whole, ..] = limits::SNAPSHOT_WINDOWS;
    let truncated = cut || days < whole || !events || usize::try_from(devices).is_ok_and(|d| d > admits.len());
    Ok(Snapshot {
        version,
        visitor: own.visitor,
        unique: unique.to_vec(),
        membership: Membership {
            epoch: Epoch(crate::store::unsigned(epoch)),
            devices,
            unsure: admits.iter().copied().filter(is_unsure).collect(),
            admits,
            cuts: own
                .person
                .map(|person| read::cuts(conn, person))
                .transpose()?
                .unwrap_or_default()
                .into_iter()
                .collect(),
        },
        profiles,
        best: best.and_then(BestTime::read),
        truncated,
    })
}

/// The unique id that the person of these visitors holds, the first of them that has any: one that is tied to a member by
/// other ids alone shows the member's history, and so is the member's. Under every key that is still readable, first under
/// the one that is written, which is read the longest from now on: that one a browser keeps.
fn unique<'a>(
    conn: &Connection,
    tenant: &Known,
    visitors: impl IntoIterator<Item = &'a read::Visitor>,
) -> Result<Vec<AltHash>, ValueError> {
    let held =
        |of: &read::Visitor| held_unique(conn, tenant.no, of.visitor, |kind| tenant.config.is_unique(kind)).transpose();
    let Some(id) = visitors.into_iter().find_map(held).transpose()? else {
        return Ok(Vec::new());
    };
    let mut hashes = family(conn, tenant.no, id)?;
    let written = tenant.keys.alternate.active().map(|key| key.id);
    hashes.retain(|hash| tenant.is_readable(*hash));
    hashes.sort_by_key(|AltHash([key, ..])| Some(*key) != written);
    hashes.truncate(limits::KEYS_A_PURPOSE);
    Ok(hashes)
}
