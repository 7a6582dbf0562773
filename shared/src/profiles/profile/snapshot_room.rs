//! The room of a snapshot: the parts of a profile that fit, and the parts with precedence.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{MissingParts, Profile};
use crate::base::limits;
use crate::base::time::Day;
use crate::facts::actions::{ActionList, ActionType, AdAction, AdLevel};
use crate::facts::attributes::NameToken;
use crate::facts::segments::SegmentId;

/// Names in a catalogue's filters and caps. Their data has precedence if a snapshot is too long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueriedNames {
    /// The attributes that filters name.
    pub attributes: BTreeSet<u16>,
    /// The segments that filters name.
    pub segments: BTreeSet<u32>,
    /// The actions that caps count.
    pub caps: Vec<QueriedActions>,
}

/// Actions that caps count: one action type, at one level, on entities with these codes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueriedActions {
    /// The action type's code.
    pub action_type: u8,
    /// The index of the level in [`AdLevel::ALL`].
    pub level: usize,
    /// The codes at that level.
    pub codes: BTreeSet<u32>,
}

impl QueriedNames {
    /// Whether this contains a name that `others` does not.
    #[must_use]
    pub fn exceeds(&self, others: &Self) -> bool {
        !self.attributes.is_subset(&others.attributes)
            || !self.segments.is_subset(&others.segments)
            || !self.caps.iter().all(|cap| others.names_actions(cap))
    }

    fn names_actions(&self, needed: &QueriedActions) -> bool {
        let same = self.caps.iter().filter(|cap| (cap.action_type, cap.level) == (needed.action_type, needed.level));
        same.map(|cap| &cap.codes).any(|codes| needed.codes.is_subset(codes))
    }

    /// Adds a cap.
    pub fn add_cap(&mut self, action_type: ActionType, level: AdLevel, code: u32) {
        let level = AdLevel::ALL.iter().position(|one| *one == level).unwrap_or_default();
        match self.caps.iter_mut().find(|cap| (cap.action_type, cap.level) == (action_type.0, level)) {
            Some(cap) => _ = cap.codes.insert(code),
            None => self.caps.push(QueriedActions { action_type: action_type.0, level, codes: [code].into() }),
        }
    }

    /// The codes of caps, by action type and level.
    fn counted(&self) -> BTreeMap<(u8, usize), &BTreeSet<u32>> {
        self.caps.iter().map(|cap| ((cap.action_type, cap.level), &cap.codes)).collect()
    }
}

/// The parts of a profile that a snapshot holds.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotRoom<'a> {
    /// First day whose actions and event times a reader can ask for.
    pub since: Day,
    /// First day for actions that no cap counts; `None` to hold none of them.
    pub actions: Option<Day>,
    /// First day for actions that caps count; `None` to hold none of them.
    pub capped: Option<Day>,
    /// Whether the times of events are held.
    pub events: bool,
    /// Most segments that no filter names; the last written are held.
    pub segments: usize,
    /// Most bytes of packed attributes.
    pub attributes: usize,
    /// Names whose data has precedence.
    pub queried: &'a QueriedNames,
}

impl<'a> SnapshotRoom<'a> {
    /// Room for everything from this day on.
    #[must_use]
    pub fn whole(since: Day, queried: &'a QueriedNames) -> Self {
        let (actions, capped) = (Some(since), Some(since));
        let (segments, attributes) = (limits::SEGMENTS, limits::SNAPSHOT_ATTRIBUTES);
        Self { since, actions, capped, events: true, segments, attributes, queried }
    }
}

/// The packed parts of a profile for a snapshot, and the parts that it lacks.
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
            profile.segments.trim_to_count(room.segments, room.queried.segments.iter().map(|id| SegmentId(*id)));
        let first: BTreeSet<NameToken> = room.queried.attributes.iter().map(|token| NameToken(*token)).collect();
        let attributes = profile.attributes.trim_to_bytes(room.attributes, &first);
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

/// The packed actions that fit, and whether actions within the reader's days were left out.
fn held_actions(actions: &ActionList, room: &SnapshotRoom<'_>) -> (Vec<u8>, bool) {
    if [room.actions, room.capped] == [Some(room.since); 2] {
        return (actions.pack_from(room.since), false);
    }
    let counted = room.queried.counted();
    let is_counted = |action: &AdAction| {
        let at = |(index, level): (usize, AdLevel)| {
            counted.get(&(action.action_type.0, index)).is_some_and(|codes| codes.contains(&action.entity.at(level)))
        };
        AdLevel::ALL.into_iter().enumerate().any(at)
    };
    let needed = || actions.iter().filter(|action| action.minute.day() >= room.since);
    let fits = |action: &AdAction| {
        let from = if is_counted(action) { room.capped } else { room.actions };
        from.is_some_and(|from| action.minute.day() >= from)
    };
    let held: ActionList = needed().filter(fits).collect();
    (if held.is_empty() { Vec::new() } else { held.pack_actions() }, held.len() < needed().count())
}
