//! Actions: what a visitor did with the ads placed in front of it, each action on an insertion once a UTC day (seed 3,
//! S3.4), as a set that the order and the repeats of facts do not change.

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

/// What was done, by its code in the catalogue's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ActionType(pub u8);

impl ActionType {
    /// An ad was seen.
    pub const IMPRESSION: Self = Self(1);
    /// An ad was clicked.
    pub const CLICK: Self = Self(2);
}

/// The kind of placement, by its code in the catalogue's vocabulary; 0 where none was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ViewType(pub u8);

/// An ad and what it belongs to, by their codes in the catalogue. The house ad is all 0.
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

/// The four levels that one action counts at (S3.3).
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
    /// All, from the ad up.
    pub const ALL: [Self; 4] = [Self::Ad, Self::AdGroup, Self::Campaign, Self::Advertiser];

    /// Its name in configuration and answers.
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

/// Six bytes of an insertion's hash: with the ad beside it enough to tell insertions apart inside one visitor's and one
/// person's actions (DESIGN, "Details that bite").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InsertionHash(pub [u8; 6]);

impl InsertionHash {
    /// The hash of an insertion: the first bytes of its SHA-256.
    #[must_use]
    pub fn of(insertion: InsertionId) -> Self {
        let mut hash = [0; 6];
        hash.iter_mut().zip(Sha256::digest(insertion.0)).for_each(|(to, from)| *to = from);
        Self(hash)
    }
}

/// One action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdAction {
    /// On which insertion.
    pub insertion: InsertionHash,
    /// What was done.
    pub verb: ActionType,
    /// On which kind of placement.
    pub view_type: ViewType,
    /// With which ad.
    pub entity: AdEntity,
    /// When.
    pub minute: Minute,
}

/// What makes two actions one: a repeat on the same UTC day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ActionKey {
    day: Day,
    insertion: InsertionHash,
    ad: u32,
    verb: ActionType,
    view_type: ViewType,
}

impl AdAction {
    fn key(&self) -> ActionKey {
        let Self { insertion, verb, view_type, entity, minute } = *self;
        ActionKey { day: minute.day(), insertion, ad: entity.ad, verb, view_type }
    }

    /// Whether it is the same action seen twice.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// One visitor's actions: each once, the newest [`limits::ACTIONS`] of the last [`limits::ACTION_DAYS`] days before the
/// newest of all.
///
/// The newest are those of the latest UTC days, and of one day the greatest by insertion: a repeat may move an action's
/// minute, never its day, so that leaving out the oldest commutes with the join.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionList(BTreeMap<ActionKey, (Minute, AdEntity)>);

impl ActionList {
    /// Adds an action. Of repeats the earliest minute counts.
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

    /// All actions of both: commutative, associative, idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        other.iter().for_each(|action| self.insert(action));
        self
    }

    /// Leaves out what happened before a day.
    pub fn retain_from(&mut self, day: Day) {
        let first =
            ActionKey { day, insertion: InsertionHash::default(), ad: 0, verb: ActionType(0), view_type: ViewType(0) };
        self.0 = self.0.split_off(&first);
    }

    /// Leaves out what others hold since the first of these, on its own UTC day or the day after: what is placed before
    /// midnight may be seen after it.
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

    /// The actions by day, then insertion.
    pub fn iter(&self) -> impl Iterator<Item = AdAction> + '_ {
        self.0.iter().map(|(key, (minute, entity))| {
            let ActionKey { insertion, verb, view_type, .. } = *key;
            AdAction { insertion, verb, view_type, entity: *entity, minute: *minute }
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
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
