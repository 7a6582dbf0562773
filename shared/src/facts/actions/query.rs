//! General count of actions: filter by any dimensions and group by any, over one time range.

use std::collections::{BTreeMap, BTreeSet};

use super::{AdAction, AdLevel, PackedActions};
use crate::base::limits;
use crate::base::time::Minute;

/// Dimension of an action for filters and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionDimension {
    /// Action type.
    ActionType,
    /// View type of the placement.
    ViewType,
    /// Ad, ad group, campaign or advertiser.
    Entity(AdLevel),
}

impl ActionDimension {
    fn of(self, action: &AdAction) -> u32 {
        match self {
            Self::ActionType => action.action_type.0.into(),
            Self::ViewType => action.view_type.0.into(),
            Self::Entity(level) => action.entity.at(level),
        }
    }
}

/// Conditions on actions: an action counts if, for each dimension listed, its code is one of those given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DimensionFilter(pub Vec<(ActionDimension, BTreeSet<u32>)>);

impl DimensionFilter {
    fn holds(&self, action: &AdAction) -> bool {
        self.0.iter().all(|(dimension, codes)| codes.contains(&dimension.of(action)))
    }
}

/// One group: its codes, in the order of the requested dimensions, and its number of actions.
pub type Group = (Vec<u32>, u64);

/// Error of [`group_actions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The answer would have more than [`limits::GROUPS`] groups.
    #[error("more than {} groups: filter more, or group by less", limits::GROUPS)]
    TooMany,
}

/// Counts a person's actions from minute `from` up to `to` (exclusive) by group, in order of the groups' codes. An
/// insertion that several visitors hold counts once.
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
