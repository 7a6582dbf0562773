//! What of a profile a snapshot has room for, and what it keeps before anything else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MissingParts, Profile};
use crate::base::limits;
use crate::base::time::Day;
use crate::facts::actions::{ActionList, ActionType, AdAction, AdLevel};
use crate::facts::attributes::NameToken;
use crate::facts::segments::SegmentId;

/// What a catalogue asks of people: it stays in a snapshot that is too long before anything else does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueriedNames {
    /// The attributes that filters name.
    pub attributes: BTreeSet<u16>,
    /// The segments that filters name.
    pub segments: BTreeSet<u32>,
    /// What caps count.
    pub caps: Vec<QueriedActions>,
}

/// Actions that caps count: of one type, on ads of these codes at one level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueriedActions {
    /// The action type's code.
    pub verb: u8,
    /// The place of the level in [`AdLevel::ALL`].
    pub level: usize,
    /// The codes at that level.
    pub codes: BTreeSet<u32>,
}

impl QueriedNames {
    /// Whether these name something that others do not.
    #[must_use]
    pub fn exceeds(&self, others: &Self) -> bool {
        !self.attributes.is_subset(&others.attributes)
            || !self.segments.is_subset(&others.segments)
            || !self.caps.iter().all(|cap| others.names_actions(cap))
    }

    fn names_actions(&self, asked: &QueriedActions) -> bool {
        let same = self.caps.iter().filter(|cap| (cap.verb, cap.level) == (asked.verb, asked.level));
        same.map(|cap| &cap.codes).any(|codes| asked.codes.is_subset(codes))
    }

    /// Adds a cap.
    pub fn add_cap(&mut self, verb: ActionType, level: AdLevel, code: u32) {
        let level = AdLevel::ALL.iter().position(|one| *one == level).unwrap_or_default();
        match self.caps.iter_mut().find(|cap| (cap.verb, cap.level) == (verb.0, level)) {
            Some(cap) => _ = cap.codes.insert(code),
            None => self.caps.push(QueriedActions { verb: verb.0, level, codes: [code].into() }),
        }
    }

    /// The actions that caps count, by action type and level, for looking up many.
    fn counted(&self) -> BTreeMap<(u8, usize), &BTreeSet<u32>> {
        self.caps.iter().map(|cap| ((cap.verb, cap.level), &cap.codes)).collect()
    }
}

/// What of a profile a snapshot is to hold.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotRoom<'a> {
    /// Actions, and times of events, of this day and later are all that a reader asks for.
    pub since: Day,
    /// Actions that no cap counts are held from this day on; `None` for none of them.
    pub actions: Option<Day>,
    /// Actions that caps count are held from this day on; `None` for none of them.
    pub capped: Option<Day>,
    /// Whether the times of events are held.
    pub events: bool,
    /// Segments that no filter names: at most so many, those written last.
    pub segments: usize,
    /// Bytes that attributes have, packed.
    pub attributes: usize,
    /// What stays before anything else.
    pub queried: &'a QueriedNames,
}

impl<'a> SnapshotRoom<'a> {
    /// Room for everything of a day and later.
    #[must_use]
    pub fn whole(since: Day, queried: &'a QueriedNames) -> Self {
        let (actions, capped) = (Some(since), Some(since));
        let (segments, attributes) = (limits::SEGMENTS, limits::SNAPSHOT_ATTRIBUTES);
        Self { since, actions, capped, events: true, segments, attributes, queried }
    }
}

/// The parts of a profile that a snapshot holds, packed, and which others it lacks.
#[derive(Debug, Default)]
pub(super) struct HeldParts {
    pub(super) actions: Vec<u8>,
    pub(super) segments: Vec<u8>,
    pub(super) attributes: Vec<u8>,
    pub(super) recent: Vec<u8>,
    pub(super) missing: MissingParts,
}

impl HeldParts {
    pub(super) fn of(profile: &Profile, room: &SnapshotRoom<'_>) -> Self {
        let (actions, lacks_actions) = held_actions(&profile.actions, room);
        let segments =
            profile.segments.kept_within(room.segments, room.queried.segments.iter().map(|id| SegmentId(*id)));
        let first: BTreeSet<NameToken> = room.queried.attributes.iter().map(|token| NameToken(*token)).collect();
        let attributes = profile.attributes.kept_within(room.attributes, &first);
        let missing = MissingParts::ACTIONS
            .when(lacks_actions)
            .union(MissingParts::SEGMENTS.when(segments.is_some() || profile.segments.is_full()))
            .union(MissingParts::ATTRIBUTES.when(attributes.is_some() || profile.attributes.is_full()))
            .union(MissingParts::EVENTS.when(!room.events));
        let segments = segments.as_ref().unwrap_or(&profile.segments);
        Self {
            actions,
            segments: if segments.is_empty() { Vec::new() } else { segments.pack() },
            attributes: attributes.as_ref().unwrap_or(&profile.attributes).pack(),
            recent: profile.events.pack_recent(if room.events { room.since } else { Day(u16::MAX) }.start()),
            missing,
        }
    }
}

/// The actions that there is room for, packed, and whether there are more that a reader asks for.
fn held_actions(actions: &ActionList, room: &SnapshotRoom<'_>) -> (Vec<u8>, bool) {
    if [room.actions, room.capped] == [Some(room.since); 2] {
        return (actions.pack_from(room.since), false);
    }
    let counted = room.queried.counted();
    let is_counted = |action: &AdAction| {
        let at = |(place, level): (usize, AdLevel)| {
            counted.get(&(action.verb.0, place)).is_some_and(|codes| codes.contains(&action.entity.at(level)))
        };
        AdLevel::ALL.into_iter().enumerate().any(at)
    };
    let asked = || actions.iter().filter(|action| action.minute.day() >= room.since);
    let fits = |action: &AdAction| {
        let from = if is_counted(action) { room.capped } else { room.actions };
        from.is_some_and(|from| action.minute.day() >= from)
    };
    let held: ActionList = asked().filter(fits).collect();
    (if held.is_empty() { Vec::new() } else { held.pack_actions() }, held.len() < asked().count())
}
