//! Actions: a visitor's impressions, clicks and other events on the ads placed in front of it. An insertion counts once
//! per action type, view type and UTC day. The list is a set: the order and the repetition of facts do not change it.

mod buckets;
mod count;
mod packed;
mod query;
mod window;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sha2::{Digest as _, Sha256};

use crate::base::ids::InsertionId;
use crate::base::limits;
use crate::base::time::{Day, Minute};

pub use buckets::{ActionBucket, BucketSpan};
pub(crate) use count::tally;
pub use count::{ActionCounter, ActionQuestion, Counts, ViewTypes};
pub use packed::PackedActions;
pub use query::{ActionDimension, DimensionFilter, Group, GroupError, group_actions};
pub use window::{FrequencyCap, TimeWindow, WindowUnit};

/// Action type, by its code in the catalogue's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ActionType(pub u8);

impl ActionType {
    /// The ad was seen.
    pub const IMPRESSION: Self = Self(1);
    /// The ad was clicked.
    pub const CLICK: Self = Self(2);
}

/// View type: the kind of placement, by its code in the catalogue's vocabulary; 0 if the request named none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ViewType(pub u8);

/// An ad and its parents, by their codes in the catalogue. The house ad has code 0 at every level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AdEntity {
    /// The ad.
    pub ad: u32,
    /// Its ad group.
    pub ad_group: u32,
    /// Its campaign.
    pub campaign: u32,
    /// Its advertiser.
    pub advertiser: u32,
}

/// The four levels of the catalogue at which one action counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdLevel {
    /// The ad itself.
    Ad,
    /// All ads of its group.
    AdGroup,
    /// All ads of its campaign.
    Campaign,
    /// All ads of its advertiser.
    Advertiser,
}

impl AdLevel {
    /// All levels, from the ad up to the advertiser.
    pub const ALL: [Self; 4] = [Self::Ad, Self::AdGroup, Self::Campaign, Self::Advertiser];

    /// The level's name in configuration and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ad => "ad",
            Self::AdGroup => "ad_group",
            Self::Campaign => "campaign",
            Self::Advertiser => "advertiser",
        }
    }
}

impl AdEntity {
    /// The code at a level.
    #[must_use]
    pub fn at(&self, level: AdLevel) -> u32 {
        match level {
            AdLevel::Ad => self.ad,
            AdLevel::AdGroup => self.ad_group,
            AdLevel::Campaign => self.campaign,
            AdLevel::Advertiser => self.advertiser,
        }
    }
}

/// First six bytes of an insertion's hash. Together with the ad's code they are enough to distinguish the insertions of
/// one person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InsertionHash(pub [u8; 6]);

impl InsertionHash {
    /// First bytes of the SHA-256 of the insertion's id.
    #[must_use]
    pub fn of(insertion: InsertionId) -> Self {
        let mut hash = [0; 6];
        hash.iter_mut().zip(Sha256::digest(insertion.0)).for_each(|(to, from)| *to = from);
        Self(hash)
    }
}

/// One event on one insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdAction {
    /// The insertion that was acted on.
    pub insertion: InsertionHash,
    /// The action type.
    pub action_type: ActionType,
    /// The view type of the placement.
    pub view_type: ViewType,
    /// The ad, with its parents.
    pub entity: AdEntity,
    /// The time of the action.
    pub minute: Minute,
}

/// Identity of an action: two actions with equal keys are one action, repeated on the same UTC day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ActionKey {
    day: Day,
    insertion: InsertionHash,
    ad: u32,
    action_type: ActionType,
    view_type: ViewType,
}

impl AdAction {
    fn key(&self) -> ActionKey {
        let Self { insertion, action_type, view_type, entity, minute } = *self;
        ActionKey { day: minute.day(), insertion, ad: entity.ad, action_type, view_type }
    }

    /// Whether `other` is a repeat of this action.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// The actions of one visitor, each once. The list holds at most the newest [`limits::ACTIONS`] of the last
/// [`limits::ACTION_DAYS`] days, counted back from the newest action.
///
/// The newest actions are those of the latest UTC days; within a day, order is by insertion. A repeat may change an
/// action's minute but never its day, so that dropping the oldest action commutes with the join.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionList(BTreeMap<ActionKey, (Minute, AdEntity)>);

impl ActionList {
    /// Adds an action. Repeats keep the earliest minute.
    pub fn insert(&mut self, action: AdAction) {
        let value = (action.minute, action.entity);
        match self.0.entry(action.key()) {
            Entry::Vacant(place) => drop(place.insert(value)),
            Entry::Occupied(mut there) => {
                let least = value.min(*there.get());
                *there.get_mut() = least;
            }
        }
        if self.0.len() > limits::ACTIONS {
            self.0.pop_first();
        }
        let newest = self.0.last_key_value().map_or(0, |(key, _)| key.day.0);
        let oldest = Day(newest.saturating_sub(limits::ACTION_DAYS - 1));
        if self.0.first_key_value().is_some_and(|(key, _)| key.day < oldest) {
            self.retain_from(oldest);
        }
    }

    /// The union of both lists: commutative, associative and idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.iter().for_each(|action| self.insert(action));
        self
    }

    /// Removes the actions before a day.
    pub fn retain_from(&mut self, day: Day) {
        let first = ActionKey {
            day,
            insertion: InsertionHash::default(),
            ad: 0,
            action_type: ActionType(0),
            view_type: ViewType(0),
        };
        self.0 = self.0.split_off(&first);
    }

    /// Removes the actions that `held` contains on the same UTC day or on the day after: an ad placed before midnight
    /// may be seen after it. Only rows of `held` from this list's first minute on are compared.
    pub fn leave_out(&mut self, held: &PackedActions<'_>) {
        let Some(first) = self.0.values().map(|(minute, _)| *minute).min() else { return };
        for action in held.rows(held.within(first, Minute(u32::MAX))) {
            let key = action.key();
            self.0.remove(&key);
            if let Some(before) = key.day.0.checked_sub(1) {
                self.0.remove(&ActionKey { day: Day(before), ..key });
            }
        }
    }

    /// Actions in order of day, then insertion.
    pub fn iter(&self) -> impl Iterator<Item = AdAction> + '_ {
        self.0.iter().map(|(key, (minute, entity))| {
            let ActionKey { insertion, action_type, view_type, .. } = *key;
            AdAction { insertion, action_type, view_type, entity: *entity, minute: *minute }
        })
    }

    /// Number of actions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<AdAction> for ActionList {
    fn from_iter<T: IntoIterator<Item = AdAction>>(all: T) -> Self {
        let mut actions = Self::default();
        all.into_iter().for_each(|action| actions.insert(action));
        actions
    }
}
