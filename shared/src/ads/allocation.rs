//! Traffic allocation: control of traffic between two versions of a catalogue. It has the shares of arms of experiments
//! with selection, the paces of campaigns with a budget, the limited offers that are sold out, and the segments that
//! pages cannot write. The origin rebuilds it every minute; an isolate reads it every half minute.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::ids::Millis;
use crate::base::{limits, random};
use crate::targeting::experiment::Shares;

/// The traffic allocation of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrafficAllocation {
    /// Time of the computation.
    pub at: Millis,
    /// Shares of arms, by the experiment's code.
    pub shares: Shares,
    /// Paces, by the campaign's code. A campaign with a budget but without a pace takes part in no call.
    pub paces: BTreeMap<u32, CampaignPace>,
    /// Codes of sold-out limited offers: no object needs to be called for them.
    pub given_out: BTreeSet<u32>,
    /// Segments that the origin fills from filters; pages cannot write them.
    pub materialised: BTreeSet<u32>,
}

/// The share of calls in which a campaign takes part, per million. It is interpolated linearly between two values, so
/// that no minute begins with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CampaignPace {
    /// The share at the time of the computation.
    pub from: u32,
    /// The share from [`limits::ALLOCATION_MS`] later on.
    pub to: u32,
}

impl TrafficAllocation {
    /// Whether a campaign with a budget takes part in a call with these random bits. Never if the allocation is older
    /// than [`limits::ALLOCATION_STALE_MS`], because it does not include later spending.
    #[must_use]
    pub fn lets(&self, campaign: u32, draw: u64, now: Millis) -> bool {
        let stale = now.saturating_sub(self.at) > limits::ALLOCATION_STALE_MS;
        let pace = self.paces.get(&campaign).filter(|_| !stale);
        pace.is_some_and(|pace| takes_part(draw, campaign, pace.at(self.at, now)))
    }
}

/// The denominator of a [`CampaignPace`].
pub const ALL_CALLS: u32 = 1_000_000;

impl CampaignPace {
    /// The share at a time, for a pace computed at `made`.
    #[must_use]
    pub fn at(self, made: Millis, now: Millis) -> u32 {
        let gone = now.saturating_sub(made).min(limits::ALLOCATION_MS);
        let part = |value: u32, times: u64| u64::from(value.min(ALL_CALLS)) * times;
        let sum = part(self.from, limits::ALLOCATION_MS - gone) + part(self.to, gone);
        u32::try_from(sum / limits::ALLOCATION_MS).unwrap_or(ALL_CALLS)
    }
}

/// Whether a campaign at a pace takes part in a call with these random bits. The campaigns of one call are drawn
/// independently.
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
        let at = |after: u64| pace.at(5_000, 5_000 + after);
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
        // Six standard deviations: 6 × 145 and 6 × 91.
        assert!(one.abs_diff(30_000) < 870 && both.abs_diff(9_000) < 546, "{one} {both}");
        assert!((0..1_000).all(|call| takes_part(call, 7, ALL_CALLS) && !takes_part(call, 7, 0)));
    }
}
