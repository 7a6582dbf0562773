//! The general counting query (S3.9): filter on any dimensions, group by any, over one time range.

use std::collections::{BTreeMap, BTreeSet};

use super::{AdAction, AdLevel, PackedActions};
use crate::base::limits;
use crate::base::time::Minute;

/// What actions are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionDimension {
    /// What was done.
    Verb,
    /// On which kind of placement.
    ViewType,
    /// With an ad, or one of a larger thing.
    Entity(AdLevel),
}

impl ActionDimension {
    fn of(self, action: &AdAction) -> u32 {
        match self {
            Self::Verb => action.verb.0.into(),
            Self::ViewType => action.view_type.0.into(),
            Self::Entity(level) => action.entity.at(level),
        }
    }
}

/// Which actions count: of each dimension named, one of these codes. All that are named must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DimensionFilter(pub Vec<(ActionDimension, BTreeSet<u32>)>);

impl DimensionFilter {
    fn holds(&self, action: &AdAction) -> bool {
        self.0.iter().all(|(dimension, codes)| codes.contains(&dimension.of(action)))
    }
}

/// The codes of one group, in the order of the dimensions asked for, and how many actions it has.
pub type Group = (Vec<u32>, u64);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// More groups than [`limits::GROUPS`].
    #[error("more than {} groups: filter more, or group by less", limits::GROUPS)]
    TooMany,
}

/// Counts a person's actions by groups, in the order of their codes; an insertion under several visitors counts once.
///
/// # Errors
/// [`GroupError::TooMany`].
pub fn group_actions(
    visitors: &[PackedActions<'_>],
    filter: &DimensionFilter,
    by: &[ActionDimension],
    from: Minute,
    to: Minute,
) -> Result<Vec<Group>, GroupError> {
    let mut groups: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for actions in visitors {
        for action in actions.rows(actions.within(from, to)).filter(|action| filter.holds(action)) {
            if visitors.len() > 1 && !seen.insert(action.key()) {
                continue;
            }
            *groups.entry(by.iter().map(|dimension| dimension.of(&action)).collect()).or_default() += 1;
            if groups.len() > limits::GROUPS {
                return Err(GroupError::TooMany);
            }
        }
    }
    Ok(groups.into_iter().collect())
}
