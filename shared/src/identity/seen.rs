//! The newest versions that a reader met: an older snapshot that comes later takes nothing back.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{TenantId, Version, VisitorId};
use crate::limits;
use crate::view::Stored;

type Key = (TenantId, VisitorId);

/// What one reader (an isolate of the edge) met of the visitors it read last, [`limits::SEEN_VISITORS`] of them. In a
/// tree: its keys come from outside, and no choice of them makes it slow.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    newest: BTreeMap<Key, Newest>,
    /// The same keys as they came; the oldest makes room.
    came: VecDeque<Key>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Newest {
    At(Version),
    /// A tombstone is for ever.
    Gone,
}

/// What a value just read is to this reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met {
    /// As new as any met before, or newer; or there is none.
    AsRead(Option<Stored>),
    /// A snapshot older than the version given, which was met before.
    Older(Stored, Version),
    /// The visitor's tombstone was met before, whatever was read now.
    Gone,
}

impl Seen {
    /// Judges what was read of a visitor by what was met before, and remembers it. `None`: nothing was there, or
    /// nothing of use.
    pub fn meet(&mut self, tenant: &TenantId, visitor: VisitorId, stored: Option<Stored>) -> Met {
        let key = (tenant.clone(), visitor);
        let before = self.newest.get(&key).copied();
        if before == Some(Newest::Gone) {
            return Met::Gone;
        }
        let read = match &stored {
            None => return Met::AsRead(None),
            Some(Stored::Tombstone) => Newest::Gone,
            Some(Stored::Snapshot(snapshot)) => Newest::At(snapshot.version),
        };
        match (before, stored) {
            (Some(Newest::At(newest)), Some(stored)) if read < Newest::At(newest) => Met::Older(stored, newest),
            (_, stored) => {
                self.remember(key, read);
                Met::AsRead(stored)
            }
        }
    }

    fn remember(&mut self, key: Key, read: Newest) {
        if self.newest.insert(key.clone(), read).is_none() {
            self.came.push_back(key);
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
    use litemap::LiteMap;

    use super::*;
    use crate::membership::Membership;
    use crate::view::Snapshot;

    fn visitor(n: usize) -> VisitorId {
        VisitorId::mint(1_800_000_000_000 + n as u64, [0; 10])
    }

    fn at(visitor: VisitorId, counter: u64) -> Option<Stored> {
        let (unique, membership, profiles) = (Vec::new(), Membership::default(), LiteMap::new());
        let version = Version { restore: 0, counter };
        let snapshot = Snapshot { version, visitor, unique, membership, profiles, truncated: false };
        Some(Stored::Snapshot(Box::new(snapshot)))
    }

    #[test]
    fn field_20_an_older_snapshot_is_known_by_the_newest_one_met() {
        let (demo, other): (TenantId, TenantId) = ("demo".parse().unwrap(), "other".parse().unwrap());
        let (mut seen, a) = (Seen::default(), visitor(1));
        assert_eq!(seen.meet(&demo, a, at(a, 5)), Met::AsRead(at(a, 5)));
        assert_eq!(seen.meet(&demo, a, at(a, 9)), Met::AsRead(at(a, 9)));
        assert_eq!(seen.meet(&demo, a, at(a, 5)), Met::Older(at(a, 5).unwrap(), Version { restore: 0, counter: 9 }));
        assert_eq!(seen.meet(&demo, a, None), Met::AsRead(None));
        assert_eq!(seen.meet(&demo, a, at(a, 9)), Met::AsRead(at(a, 9)), "the older one was not remembered");
        assert_eq!(seen.meet(&other, a, at(a, 5)), Met::AsRead(at(a, 5)), "another tenant's");
    }

    #[test]
    fn field_20_a_tombstone_met_is_for_ever() {
        let (demo, mut seen, a) = ("demo".parse().unwrap(), Seen::default(), visitor(1));
        assert_eq!(seen.meet(&demo, a, Some(Stored::Tombstone)), Met::AsRead(Some(Stored::Tombstone)));
        for read in [at(a, u64::MAX), None, Some(Stored::Tombstone)] {
            assert_eq!(seen.meet(&demo, a, read), Met::Gone);
        }
    }

    #[test]
    fn the_visitors_remembered_are_bounded_and_the_first_met_makes_room() {
        let (demo, mut seen) = ("demo".parse().unwrap(), Seen::default());
        for n in 0..=limits::SEEN_VISITORS {
            seen.meet(&demo, visitor(n), at(visitor(n), 9));
        }
        assert_eq!((seen.newest.len(), seen.came.len()), (limits::SEEN_VISITORS, limits::SEEN_VISITORS));
        assert!(matches!(seen.meet(&demo, visitor(1), at(visitor(1), 5)), Met::Older(..)));
        assert_eq!(seen.meet(&demo, visitor(0), at(visitor(0), 5)), Met::AsRead(at(visitor(0), 5)));
    }
}
