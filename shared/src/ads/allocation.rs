//! How the origin steers traffic between two versions of a catalogue: the shares of the arms of experiments with selection
//! (S4.11), the pace of campaigns with a budget, which limited offers are over, and which segments pages cannot write.
//! Made again each minute, read by every isolate each half.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::ids::Millis;
use crate::base::{limits, random};
use crate::targeting::experiment::Shares;

/// All of it, for one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrafficAllocation {
    /// When it was made.
    pub at: Millis,
    /// Shares, by the experiment's code.
    pub shares: Shares,
    /// Paces, by the campaign's code; one with a budget that is not here takes part in no call.
    pub paces: BTreeMap<u32, CampaignPace>,
    /// Codes of campaigns of which every unit is known to be somebody's: nobody need ask for one.
    pub given_out: BTreeSet<u32>,
    /// Segments that the origin fills from filters: pages cannot write them.
    pub materialised: BTreeSet<u32>,
}

/// In how many of a million calls a campaign takes part: a straight line between two values, so that no minute begins with
/// a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CampaignPace {
    /// When it was made.
    pub from: u32,
    /// [`limits::STEERING_MS`] later, and from then on.
    pub to: u32,
}

impl TrafficAllocation {
    /// Whether a campaign with a budget takes part in a call that drew these bits. What is older than
    /// [`limits::STEERING_STALE_MS`] lets none: of what was spent since then it knows nothing.
    #[must_use]
    pub fn lets(&self, campaign: u32, draw: u64, now: Millis) -> bool {
        let stale = now.saturating_sub(self.at) > limits::STEERING_STALE_MS;
        let pace = self.paces.get(&campaign).filter(|_| !stale);
        pace.is_some_and(|pace| takes_part(draw, campaign, pace.at(self.at, now)))
    }
}

/// Calls of which a [`CampaignPace`] is a part.
pub const ALL_CALLS: u32 = 1_000_000;

impl CampaignPace {
    /// At a time, of one made at `made`.
    #[must_use]
    pub fn at(self, made: Millis, now: Millis) -> u32 {
        let gone = now.saturating_sub(made).min(limits::STEERING_MS);
        let part = |value: u32, times: u64| u64::from(value.min(ALL_CALLS)) * times;
        let sum = part(self.from, limits::STEERING_MS - gone) + part(self.to, gone);
        u32::try_from(sum / limits::STEERING_MS).unwrap_or(ALL_CALLS)
    }
}

/// Whether a campaign takes part in a call that drew these bits, at a pace: for one call each campaign falls elsewhere.
fn takes_part(draw: u64, campaign: u32, pace: u32) -> bool {
    let bits = random::finish(draw ^ u64::from(campaign).wrapping_mul(random::GAMMA));
    bits % u64::from(ALL_CALLS) < u64::from(pace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_goes_in_a_straight_line_for_a_minute_and_stays() {
        let pace = CampaignPace { from: 1_000_000, to: 400_000 };
        let at = |after: Millis| pace.at(5_000, 5_000 + after);
        assert_eq!([at(0), at(30_000), at(60_000), at(600_000)], [1_000_000, 700_000, 400_000, 400_000]);
        assert_eq!(pace.at(5_000, 0), 1_000_000, "a clock that is behind");
        assert_eq!(CampaignPace { from: u32::MAX, to: u32::MAX }.at(0, 0), ALL_CALLS);
    }

    #[test]
    fn a_campaign_takes_part_in_its_share_of_calls_whatever_another_does() {
        let calls = 0..100_000_u64;
        let (mut one, mut both) = (0_u32, 0_u32);
        for call in calls {
            let first = takes_part(call, 7, 300_000);
            one += u32::from(first);
            both += u32::from(first && takes_part(call, 8, 300_000));
        }
        // Six standard deviations: 145 × 6, and 91 × 6.
        assert!(one.abs_diff(30_000) < 870 && both.abs_diff(9_000) < 546, "{one} {both}");
        assert!((0..1_000).all(|call| takes_part(call, 7, ALL_CALLS) && !takes_part(call, 7, 0)));
    }
}
