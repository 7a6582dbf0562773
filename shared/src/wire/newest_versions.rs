//! The newest versions that a reader met: an older snapshot that comes later takes nothing back. While the newest one is
//! kept it stands in for an older one and for a miss, so that a KV that goes back and forth forgets nobody's siblings.

use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::{Millis, SnapshotVersion, TenantId, VisitorId};
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::profiles::view::StoredValue;
use crate::wire::kv::OpenedValue;

type VisitorKey = (TenantId, VisitorId);

/// What one reader (an isolate of the edge) met of the visitors it read last, [`limits::SEEN_VISITORS`] of them. In a
/// tree: its keys come from outside, and no choice of them makes it slow.
#[derive(Debug, Clone, Default)]
pub struct NewestVersions {
    newest: BTreeMap<VisitorKey, NewestVersion>,
    /// The same keys as they came; the oldest makes room.
    came: VecDeque<VisitorKey>,
    /// The last of which the values are kept, as they were met.
    kept: VecDeque<VisitorKey>,
}

#[derive(Debug, Clone)]
enum NewestVersion {
    /// The newest version, and the value itself while it is kept.
    At(SnapshotVersion, Option<KeptValue>),
    /// A tombstone is for ever.
    Gone,
}

#[derive(Debug, Clone)]
struct KeptValue {
    value: OpenedValue,
    /// When it was met last.
    met: Millis,
}

/// What a value just read is to this reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotVerdict {
    /// As new as any met before, or newer; or there is none.
    AsRead(Option<StoredValue>),
    /// The one to use instead of what was read, which is older or missing: it was met within [`limits::SEEN_KEEP_MS`].
    Instead(StoredValue),
    /// A snapshot older than the version given, which was met before.
    Older(StoredValue, SnapshotVersion),
    /// The visitor's tombstone was met before, whatever was read now.
    Gone,
}

impl NewestVersions {
    /// Judges what was read of a visitor, and from what, by what was met before, and remembers it. `None`: nothing was
    /// there, or nothing of use.
    pub fn meet(
        &mut self,
        tenant: &TenantId,
        visitor: VisitorId,
        read: Option<(StoredValue, OpenedValue)>,
        now: Millis,
    ) -> SnapshotVerdict {
        let key = (tenant.clone(), visitor);
        let (newest, kept) = match self.newest.get(&key) {
            Some(NewestVersion::Gone) => return SnapshotVerdict::Gone,
            Some(NewestVersion::At(version, kept)) => (*version, kept.as_ref()),
            None => (SnapshotVersion::default(), None),
        };
        let as_new = match &read {
            Some((StoredValue::Tombstone, _)) => Some(NewestVersion::Gone),
            Some((StoredValue::Snapshot(snapshot), value))
                if snapshot.version >= newest || planted::is_active(PlantedBug::AcceptAnOlderVersion) =>
            {
                Some(NewestVersion::At(snapshot.version, Some(KeptValue { value: value.clone(), met: now })))
            }
            _ => None,
        };
        if let Some(as_new) = as_new {
            self.remember(key, as_new);
            return SnapshotVerdict::AsRead(read.map(|(stored, _)| stored));
        }
        let fresh = kept.filter(|kept| now.saturating_sub(kept.met) <= limits::SEEN_KEEP_MS);
        match (fresh.and_then(|kept| kept.value.read(visitor).ok()), read) {
            (Some(kept), _) => SnapshotVerdict::Instead(kept),
            (None, Some((stored, _))) => SnapshotVerdict::Older(stored, newest),
            (None, None) => SnapshotVerdict::AsRead(None),
        }
    }

    fn remember(&mut self, key: VisitorKey, newest: NewestVersion) {
        if self.newest.insert(key.clone(), newest).is_none() {
            self.came.push_back(key.clone());
        }
        self.kept.push_back(key);
        if self.kept.len() > limits::SEEN_SNAPSHOTS
            && let Some(oldest) = self.kept.pop_front()
            && !self.kept.contains(&oldest)
            && let Some(NewestVersion::At(_, kept)) = self.newest.get_mut(&oldest)
        {
            *kept = None;
        }
        if self.came.len() > limits::SEEN_VISITORS
            && let Some(oldest) = self.came.pop_front()
        {
            self.newest.remove(&oldest);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::profiles::membership::Membership;
    use crate::profiles::profile::{SubContent, SubProfile};
    use crate::profiles::view::Snapshot;
    use crate::wire::{self, kv_keys};

    const NOW: Millis = 1_800_000_000_000;

    impl NewestVersions {
        fn meet_now(&mut self, tenant: &TenantId, visitor: VisitorId, stored: Option<StoredValue>) -> SnapshotVerdict {
            self.meet_at(tenant, visitor, stored, NOW)
        }

        fn meet_at(
            &mut self,
            tenant: &TenantId,
            visitor: VisitorId,
            stored: Option<StoredValue>,
            now: Millis,
        ) -> SnapshotVerdict {
            let key = kv_keys::snapshot_key(tenant, visitor);
            let read = stored.map(|stored| {
                let value = wire::kv::encode_stored(&key, &stored).unwrap();
                (stored, wire::kv::open_stored(&key, value.as_bytes()).unwrap())
            });
            self.meet(tenant, visitor, read, now)
        }
    }

    fn visitor(n: usize) -> VisitorId {
        VisitorId::mint(1_800_000_000_000 + n as u64, [0; 10])
    }

    fn at(visitor: VisitorId, counter: u64) -> Option<StoredValue> {
        let version = SnapshotVersion { restore: 0, counter };
        let membership = Membership { admits: [visitor].into(), ..Membership::default() };
        let profiles = [(visitor, SubProfile::pack(version, &SubContent::default()))].into_iter().collect();
        let unique = Vec::new();
        let snapshot = Snapshot { version, visitor, unique, membership, profiles, best: None };
        Some(StoredValue::Snapshot(Box::new(snapshot)))
    }

    #[test]
    fn field_20_an_older_snapshot_is_known_by_the_newest_one_met() {
        let (demo, other): (TenantId, TenantId) = ("demo".parse().unwrap(), "other".parse().unwrap());
        let (mut seen, a) = (NewestVersions::default(), visitor(1));
        assert_eq!(seen.meet_now(&demo, a, at(a, 5)), SnapshotVerdict::AsRead(at(a, 5)));
        assert_eq!(seen.meet_now(&demo, a, at(a, 9)), SnapshotVerdict::AsRead(at(a, 9)));
        let newest = at(a, 9).unwrap();
        assert_eq!(seen.meet_now(&demo, a, at(a, 5)), SnapshotVerdict::Instead(newest.clone()));
        assert_eq!(seen.meet_now(&demo, a, None), SnapshotVerdict::Instead(newest));
        let late = NOW + limits::SEEN_KEEP_MS + 1;
        let version = SnapshotVersion { restore: 0, counter: 9 };
        assert_eq!(seen.clone().meet_at(&demo, a, at(a, 5), late), SnapshotVerdict::Older(at(a, 5).unwrap(), version));
        assert_eq!(seen.clone().meet_at(&demo, a, None, late), SnapshotVerdict::AsRead(None));
        assert_eq!(
            seen.meet_now(&demo, a, at(a, 9)),
            SnapshotVerdict::AsRead(at(a, 9)),
            "the older one was not remembered"
        );
        assert_eq!(seen.meet_now(&other, a, at(a, 5)), SnapshotVerdict::AsRead(at(a, 5)), "another tenant's");
    }

    #[test]
    fn field_20_a_tombstone_met_is_for_ever() {
        let (demo, mut seen, a) = ("demo".parse().unwrap(), NewestVersions::default(), visitor(1));
        assert_eq!(
            seen.meet_now(&demo, a, Some(StoredValue::Tombstone)),
            SnapshotVerdict::AsRead(Some(StoredValue::Tombstone))
        );
        for read in [at(a, u64::MAX), None, Some(StoredValue::Tombstone)] {
            assert_eq!(seen.meet_now(&demo, a, read), SnapshotVerdict::Gone);
        }
    }

    #[test]
    fn the_visitors_remembered_are_bounded_and_the_first_met_makes_room() {
        let (demo, mut seen) = ("demo".parse().unwrap(), NewestVersions::default());
        for n in 0..=limits::SEEN_VISITORS {
            seen.meet_now(&demo, visitor(n), at(visitor(n), 9));
        }
        assert_eq!((seen.newest.len(), seen.came.len()), (limits::SEEN_VISITORS, limits::SEEN_VISITORS));
        assert!(matches!(seen.meet_now(&demo, visitor(1), at(visitor(1), 5)), SnapshotVerdict::Older(..)));
        assert_eq!(seen.meet_now(&demo, visitor(0), at(visitor(0), 5)), SnapshotVerdict::AsRead(at(visitor(0), 5)));
    }
}
