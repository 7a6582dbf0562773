//! Newest snapshot versions that a reader has read, so that a later, older snapshot has no effect. While the newest
//! value is stored, it replaces an older one or a miss; a KV location that alternates between versions therefore hides
//! no siblings.

use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::{Millis, SnapshotVersion, TenantId, VisitorId};
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::profiles::view::StoredValue;
use crate::wire::kv::OpenedValue;

type VisitorKey = (TenantId, VisitorId);

/// Newest versions that one reader (an isolate of the edge) has read, for the last [`limits::SEEN_VISITORS`] visitors.
/// A tree, not a hash map: the keys come from outside, and no choice of keys makes a tree slow.
#[derive(Debug, Clone, Default)]
pub struct NewestVersions {
    newest: BTreeMap<VisitorKey, NewestVersion>,
    /// The same keys in order of arrival; the oldest is evicted first.
    arrival_order: VecDeque<VisitorKey>,
    /// The keys whose values are stored, in order of reads.
    value_order: VecDeque<VisitorKey>,
}

#[derive(Debug, Clone)]
enum NewestVersion {
    /// The newest version, and its value while it is stored.
    At(SnapshotVersion, Option<KeptValue>),
    /// The visitor has a tombstone, which is permanent.
    Gone,
}

#[derive(Debug, Clone)]
struct KeptValue {
    value: OpenedValue,
    /// Time of the last read.
    met: Millis,
}

/// How a value just read compares with the values read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotVerdict {
    /// Use what was read: no newer version is known, or nothing was read and nothing is stored.
    AsRead(Option<StoredValue>),
    /// Use this value instead of an older or missing one; it was read within the last [`limits::SEEN_KEEP_MS`].
    Instead(StoredValue),
    /// The snapshot is older than this version, which was read before.
    Older(StoredValue, SnapshotVersion),
    /// The visitor's tombstone was read before, so any value is ignored.
    Gone,
}

impl NewestVersions {
    /// Compares a value just read, given with its encoded form, with the values read before, and remembers it. `None`
    /// stands for a missing or invalid value.
    pub fn meet(
        &mut self,
        tenant: &TenantId,
        visitor: VisitorId,
        read: Option<(StoredValue, OpenedValue)>,
        now: Millis,
    ) -> SnapshotVerdict {
        let key = (tenant.clone(), visitor);
        let (newest, newest_value) = match self.newest.get(&key) {
            Some(NewestVersion::Gone) => return SnapshotVerdict::Gone,
            Some(NewestVersion::At(version, newest_value)) => (*version, newest_value.as_ref()),
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
        let fresh = newest_value.filter(|newest_value| now.saturating_sub(newest_value.met) <= limits::SEEN_KEEP_MS);
        match (fresh.and_then(|newest_value| newest_value.value.read(visitor).ok()), read) {
            (Some(newest_value), _) => SnapshotVerdict::Instead(newest_value),
            (None, Some((stored, _))) => SnapshotVerdict::Older(stored, newest),
            (None, None) => SnapshotVerdict::AsRead(None),
        }
    }

    fn remember(&mut self, key: VisitorKey, newest: NewestVersion) {
        if self.newest.insert(key.clone(), newest).is_none() {
            self.arrival_order.push_back(key.clone());
        }
        self.value_order.push_back(key);
        if self.value_order.len() > limits::SEEN_SNAPSHOTS
            && let Some(oldest) = self.value_order.pop_front()
            && !self.value_order.contains(&oldest)
            && let Some(NewestVersion::At(_, newest_value)) = self.newest.get_mut(&oldest)
        {
            *newest_value = None;
        }
        if self.arrival_order.len() > limits::SEEN_VISITORS
            && let Some(oldest) = self.arrival_order.pop_front()
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
    fn an_older_snapshot_is_recognised_by_the_newest_version_read_before() {
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
    fn a_tombstone_that_was_read_is_permanent() {
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
        assert_eq!((seen.newest.len(), seen.arrival_order.len()), (limits::SEEN_VISITORS, limits::SEEN_VISITORS));
        assert!(matches!(seen.meet_now(&demo, visitor(1), at(visitor(1), 5)), SnapshotVerdict::Older(..)));
        assert_eq!(seen.meet_now(&demo, visitor(0), at(visitor(0), 5)), SnapshotVerdict::AsRead(at(visitor(0), 5)));
    }
}
