//! A visitor's snapshot: the data of its person, and the order in which data is left out until it is short enough.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{AltHash, Epoch, SnapshotVersion, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::time::{Day, Minute};
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::profiles::activity::BestSendTime;
use causeway_shared::profiles::membership::Membership;
use causeway_shared::profiles::profile::{MissingParts, QueriedNames, SnapshotRoom, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::{WireError, kv as form};
use rusqlite::{Connection, OptionalExtension as _};

use crate::campaigns::catalogue;
use crate::identity::changes::has_withdrawn;
use crate::identity::link::{held_unique, id_family};
use crate::kv::value_error::ValueError;
use crate::store::tables::people;
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, visitor_at};
use crate::views::read::{self, StoreView};

/// The best send time that a snapshot contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotBestSendTime {
    /// The one of the visitor's last snapshot, so that a version's value never changes.
    Published,
    /// A newly computed one, packed; `None` for no best send time.
    New(Option<u16>),
}

/// A visitor's snapshot with whether it is truncated; the tombstone of a withdrawn visitor; `None` for an unknown
/// visitor.
pub(super) fn build_stored(
    conn: &Connection,
    tenant: &TenantContext,
    visitor: VisitorId,
    version: SnapshotVersion,
    best: SnapshotBestSendTime,
    key: &str,
) -> Result<Option<(String, bool)>, ValueError> {
    // Checked before any other read, so that a withdrawn visitor leaves the KV whatever its row holds.
    if has_withdrawn(conn, tenant.no, visitor)? && !planted::is_active(PlantedBug::SkipTheTombstone) {
        return encode_checked(key, visitor, &StoredValue::Tombstone).map(|value| Some((value, false)));
    }
    let Some(own) = read::load_visitor(&StoreView::folded(conn), tenant.no, visitor)? else {
        return Ok(None);
    };
    let siblings = load_siblings(conn, &own)?;
    // From all siblings, even if the one that holds the id does not fit.
    let unique = unique_ids(conn, tenant, [&own].into_iter().chain(&siblings))?;
    let mut building = SnapshotBuilder { conn, own, siblings, unique, version, best, queried: QueriedNames::default() };
    let [whole, ..] = limits::SNAPSHOT_WINDOWS;
    let room = RoomLimits { uncapped: whole, capped: whole, events: true, segments: limits::SEGMENTS };
    let snapshot = building.snapshot(room)?;
    if snapshot.missing().is_empty()
        && let Some(value) = building.fit(key, snapshot)?
    {
        return Ok(Some((value, false)));
    }
    // The names that the catalogue queries matter only if something is left out.
    building.queried = catalogue::load_queried(conn, tenant)?;
    building.truncated(key, room).map(|value| Some((value, true)))
}

/// Bounds on the data of each visitor in a snapshot.
#[derive(Debug, Clone, Copy)]
struct RoomLimits {
    /// Days of actions that no cap counts; 0 for none.
    uncapped: u16,
    /// Days of actions that caps count; 0 for none.
    capped: u16,
    /// Whether the times of events are included.
    events: bool,
    /// Number of most recently written segments of each visitor; segments that filters name stay in addition.
    segments: usize,
}

/// A snapshot while it is built.
struct SnapshotBuilder<'a> {
    conn: &'a Connection,
    own: read::VisitorView,
    siblings: Vec<read::VisitorView>,
    unique: Vec<AltHash>,
    version: SnapshotVersion,
    best: SnapshotBestSendTime,
    /// Names that the catalogue queries, which are left out last.
    queried: QueriedNames,
}

impl SnapshotBuilder<'_> {
    /// The value of a truncated snapshot. It leaves out, in this order: the times of events and early days of actions,
    /// the less active half of the siblings repeatedly, the earliest written segments that no filter names, and the
    /// actions that caps count. As many days of actions as possible stay, because no cap binds without them. The origin
    /// still has all data.
    fn truncated(&mut self, key: &str, mut room: RoomLimits) -> Result<String, ValueError> {
        loop {
            let steps = [room].into_iter().chain(limits::SNAPSHOT_WINDOWS.map(|days| RoomLimits {
                uncapped: days,
                events: false,
                ..room
            }));
            if let Some(value) = self.first_that_fits(key, steps)? {
                return Ok(value);
            }
            if !self.siblings.is_empty() {
                self.siblings.truncate(self.siblings.len() / 2);
            } else if room.segments > 0 {
                room.segments /= 2;
            } else {
                break;
            }
        }
        let capped = limits::SNAPSHOT_WINDOWS.into_iter().chain([0]);
        let steps = capped.map(|days| RoomLimits { uncapped: 0, capped: days, events: false, segments: 0 });
        self.first_that_fits(key, steps)?.ok_or(ValueError::Check(WireError::TooLong.code()))
    }

    fn first_that_fits(
        &self,
        key: &str,
        rooms: impl Iterator<Item = RoomLimits>,
    ) -> Result<Option<String>, ValueError> {
        for room in rooms {
            let value = self.fit(key, self.snapshot(room)?)?;
            if value.is_some() {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// The value of a snapshot; `None` if it is too long.
    fn fit(&self, key: &str, snapshot: Snapshot) -> Result<Option<String>, ValueError> {
        match encode_checked(key, self.own.visitor, &StoredValue::Snapshot(Box::new(snapshot))) {
            Err(ValueError::Check(code)) if code == WireError::TooLong.code() => Ok(None),
            done => done.map(Some),
        }
    }

    fn snapshot(&self, room: RoomLimits) -> Result<Snapshot, ValueError> {
        let Self { conn, own, siblings, unique, version, .. } = self;
        let (epoch, devices, published, master): (i64, u32, Option<u16>, VisitorId) = conn
            .prepare_cached(people::PEOPLE_MEMBERSHIP_OF_VISITOR)?
            .query_row([own.row], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, visitor_at(row, 3)?)))
            .optional()?
            .ok_or(StoreError::Corrupt { what: "visitor without a person" })?;
        let best = match self.best {
            SnapshotBestSendTime::Published => published,
            SnapshotBestSendTime::New(best) => best,
        };
        let is_held = siblings.iter().chain([own]).any(|held| held.visitor == master);
        let siblings = siblings.get(..limits::SNAPSHOT_VISITORS - 2).filter(|_| !is_held).unwrap_or(siblings);
        let mut profiles = self.profiles(siblings, room)?;
        if !is_held {
            // The master is included at least by its id, because all browsers of a person choose the same objects and
            // arms by it. It has no version, so that all other knowledge of it is newer.
            let by_name = SubContent { missing: MissingParts::ALL, ..SubContent::default() };
            profiles.insert(master, SubProfile::pack(SnapshotVersion::default(), &by_name));
        }
        let admits: BTreeSet<VisitorId> = profiles.keys().copied().collect();
        let is_unsure = |visitor: &VisitorId| match siblings.iter().chain([own]).find(|held| held.visitor == *visitor) {
            Some(held) => held.weight < EvidenceWeight::LOGIN,
            // A master that is included by its id only shows no data.
            None => false,
        };
        let cuts =
            own.person.map(|person| crate::identity::cuts::load_cuts(conn, person)).transpose()?.unwrap_or_default();
        let unsure = admits.iter().copied().filter(is_unsure).collect();
        let (epoch, cuts) = (Epoch(crate::base::integers::unsigned(epoch)), cuts.into_iter().collect());
        Ok(Snapshot {
            version: *version,
            visitor: own.visitor,
            unique: unique.clone(),
            membership: Membership { epoch, devices, unsure, admits, cuts },
            profiles,
            best: best.and_then(BestSendTime::read),
        })
    }

    /// The sub-profiles of the visitor and of these siblings.
    fn profiles(
        &self,
        siblings: &[read::VisitorView],
        room: RoomLimits,
    ) -> Result<BTreeMap<VisitorId, SubProfile>, StoreError> {
        let all = || siblings.iter().map(|sibling| (sibling, false)).chain([(&self.own, true)]);
        // One window for all, so that a count over the person misses nothing that one of its parts would hold.
        let first = |days: u16| all().map(|(of, _)| first_day(of, days)).max().unwrap_or_default();
        let [whole, ..] = limits::SNAPSHOT_WINDOWS;
        let of_days = |days: u16| (days > 0).then(|| first(days));
        let room = SnapshotRoom {
            actions: of_days(room.uncapped),
            capped: of_days(room.capped),
            events: room.events,
            segments: room.segments,
            ..SnapshotRoom::whole(first(whole), &self.queried)
        };
        let sub = |(of, is_named): (&read::VisitorView, bool)| {
            let profile = read::whole(&StoreView::folded(self.conn), of, room.since)?;
            Ok((of.visitor, profile.sub_profile_within(of.version, is_named, &room)))
        };
        all().map(sub).collect()
    }
}

/// First day of a window of this many days that ends with the visitor's last day.
fn first_day(visitor: &read::VisitorView, days: u16) -> Day {
    let last = visitor.profile.seen().map_or(0, |(_, last)| last);
    Day(Minute::at(last).day().0.saturating_sub(days.saturating_sub(1)))
}

fn encode_checked(key: &str, visitor: VisitorId, stored: &StoredValue) -> Result<String, ValueError> {
    let bad = |e: WireError| ValueError::Check(e.code());
    let value = form::encode_stored(key, stored).map_err(bad)?;
    let back = form::decode_stored(key, visitor, value.as_bytes()).map_err(bad)?;
    if back == *stored { Ok(value) } else { Err(ValueError::Check("differs")) }
}

/// The person's other visitors, the most recently active first, as many as fit next to its own profile.
fn load_siblings(conn: &Connection, own: &read::VisitorView) -> Result<Vec<read::VisitorView>, ValueError> {
    let mut members = read::load_members(&StoreView::folded(conn), own, limits::SNAPSHOT_VISITORS)?;
    members.retain(|m| m.visitor != own.visitor);
    members.truncate(limits::SNAPSHOT_VISITORS - 1);
    Ok(members)
}

/// Hashes of the unique id that the person of these visitors holds: of the first visitor that has one. A visitor that
/// other ids tie to a member shows the member's history, so the id applies to it too. All readable keys are included;
/// the active key comes first, because it stays readable the longest and browsers store the first hash.
fn unique_ids<'a>(
    conn: &Connection,
    tenant: &TenantContext,
    visitors: impl IntoIterator<Item = &'a read::VisitorView>,
) -> Result<Vec<AltHash>, ValueError> {
    let held = |of: &read::VisitorView| {
        held_unique(conn, tenant.no, of.visitor, |kind| tenant.config.is_unique(kind)).transpose()
    };
    let Some(id) = visitors.into_iter().find_map(held).transpose()? else {
        return Ok(Vec::new());
    };
    let mut hashes = id_family(conn, tenant.no, id)?;
    let written = tenant.keys.alternate.active().map(|key| key.id);
    hashes.retain(|hash| tenant.is_readable(*hash));
    hashes.sort_by_key(|AltHash([key, ..])| Some(*key) != written);
    hashes.truncate(limits::KEYS_A_PURPOSE);
    Ok(hashes)
}
