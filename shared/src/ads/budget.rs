//! Budgets of campaigns: the amount spent, the rate at which more may be spent, and the resulting pace.
//!
//! A campaign is slowed down by taking part in only a share of the calls, drawn for each call (Agarwal, Ghosh, Wei,
//! You: "Budget pacing for targeted online advertisements at LinkedIn", KDD 2014). The share is the amount that may be
//! spent in the next minute, divided by the amount that one minute would cost if the campaign took part in all calls.
//! The divisor is estimated from the spend under the paces of the previous minutes.

use serde::{Deserialize, Serialize};

use crate::ads::allocation::{ALL_CALLS, CampaignPace};
use crate::ads::catalogue::{Bid, Campaign, Pacing};
use crate::ads::decision::PRICE_MICROS;
use crate::base::ids::{Micros, Millis};
use crate::base::limits;
use crate::base::time::MINUTE_MS;

/// Billionths of the catalogue's currency, a thousandth of a micro: one impression of a CPM bid of n micros costs n
/// nanos.
pub type Nanos = u64;

const MICRO: Nanos = 1_000;

/// Shortest time over which the remaining budget is spread, because the amount spent is reported with a delay of more
/// than a minute.
const HORIZON_MS: u64 = 5 * MINUTE_MS;
/// Time over which a pace remembers spend and participation.
const MEMORY_MS: u64 = 4 * MINUTE_MS;
/// A pace looks further back than [`MEMORY_MS`] until it covers about this many billed events.
const EVENTS: u64 = 8;
/// First pace of a campaign without a history: one call in a thousand, in millionths.
const START: u32 = 1_000;

/// The amount that a campaign may spend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignBudget {
    /// The campaign's code.
    pub campaign: u32,
    /// Price of the billed event.
    pub bid: Bid,
    /// Total budget in micros; `None` if unlimited.
    pub total: Option<Micros>,
    /// Budget for each day of the campaign's time zone, in micros; `None` if unlimited.
    pub daily: Option<Micros>,
    /// Name of the time zone in the IANA time zone database.
    pub time_zone: String,
    /// Whether spending is spread evenly: a daily budget over the day, otherwise the total over the campaign's run
    /// time.
    pub even: bool,
    /// First time at which the campaign's ads are placed.
    pub starts: Millis,
    /// Time from which they are placed no longer.
    pub ends: Millis,
}

/// An event for which an advertiser may pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BillingEvent {
    /// A counted impression.
    Impression,
    /// A click.
    Click,
    /// A purchase after a click, with its value.
    Purchase(Micros),
}

/// The amount that a campaign has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CampaignSpend {
    /// Since the start of its current day.
    pub today: Nanos,
    /// Since the campaign has had a budget.
    pub ever: Nanos,
}

impl CampaignBudget {
    /// Budget of a campaign; `None` if the campaign has neither a total nor a daily budget.
    #[must_use]
    pub fn of(campaign: &Campaign) -> Option<Self> {
        let (total, daily) = (campaign.budget_micros, campaign.daily_budget_micros);
        let runs = campaign.runs();
        total.or(daily).map(|_| Self {
            campaign: campaign.code,
            bid: campaign.bid.unwrap_or(Bid::CpmMicros(Micros::ZERO)),
            total,
            daily,
            time_zone: campaign.time_zone.clone().unwrap_or_else(|| "UTC".to_owned()),
            even: campaign.pace == Pacing::Even,
            starts: runs.start,
            ends: runs.end,
        })
    }

    /// Price of one event; 0 if the campaign does not pay for it.
    #[must_use]
    pub fn price(&self, billed: BillingEvent) -> Nanos {
        match (self.bid, billed) {
            (Bid::CpmMicros(thousand), BillingEvent::Impression) => thousand.unsigned(),
            (Bid::CpcMicros(click), BillingEvent::Click) => click.unsigned() * MICRO,
            (Bid::CpaMicros(conversion), BillingEvent::Purchase(_)) => conversion.unsigned() * MICRO,
            (Bid::SharePpm(share), BillingEvent::Purchase(value)) => {
                let nanos =
                    u128::from(value.unsigned()) * u128::from(u64::try_from(share).unwrap_or(0)) / u128::from(MICRO);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    /// Approximate price of one billed event.
    fn unit(&self) -> Nanos {
        let all = [BillingEvent::Impression, BillingEvent::Click, BillingEvent::Purchase(PRICE_MICROS)];
        all.into_iter().map(|billed| self.price(billed)).sum()
    }

    /// The amount that may still be spent now.
    #[must_use]
    pub fn left(&self, spent: CampaignSpend) -> Nanos {
        let of = |budget: Option<Micros>, spent: Nanos| budget.map(|budget| left(budget, spent));
        [of(self.total, spent.ever), of(self.daily, spent.today)].into_iter().flatten().min().unwrap_or(Nanos::MAX)
    }

    /// The amount that may be spent in the next minute. `day_ends` is the end of the campaign's day.
    fn rate(&self, spent: CampaignSpend, now: Millis, day_ends: Millis) -> Nanos {
        if !(self.starts..self.ends).contains(&now) {
            return 0;
        }
        let until = |end: Millis| if self.even && end < Millis::MAX { end.saturating_sub(now) } else { 0 };
        let of = |budget: Option<Micros>, spent: Nanos, end: Millis| {
            let left = u128::from(left(budget?, spent));
            u64::try_from(left * u128::from(MINUTE_MS) / u128::from(until(end).max(HORIZON_MS))).ok()
        };
        // A daily budget sets the speed; the total budget is then only a bound and may be used up as fast as it goes.
        let last = if self.daily.is_some() { now } else { self.ends };
        let (total, daily) = (of(self.total, spent.ever, last), of(self.daily, spent.today, day_ends.min(self.ends)));
        total.into_iter().chain(daily).min().unwrap_or(0)
    }
}

fn left(budget: Micros, spent: Nanos) -> Nanos {
    budget.unsigned().saturating_mul(MICRO).saturating_sub(spent)
}

/// State from which a campaign's next pace is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BudgetPacer {
    /// Time at which the pace was computed.
    pub at: Millis,
    /// The current pace.
    pub pace: CampaignPace,
    /// The amount spent by time `at`.
    counted: Nanos,
    /// The amount spent recently; older spend counts less.
    spend: Nanos,
    /// Recent participation: calls per million, times milliseconds. Older participation fades like `spend`.
    part: u64,
}

impl BudgetPacer {
    /// Computes the next state at time `now`; `day_ends` is the end of the campaign's day.
    #[must_use]
    pub fn next(self, budget: &CampaignBudget, spent: CampaignSpend, now: Millis, day_ends: Millis) -> Self {
        // An edge uses a pace for at most this long; after that, the campaign takes part in no call.
        let elapsed = now.saturating_sub(self.at);
        let (new, part) = if self.at > 0 && elapsed <= limits::ALLOCATION_STALE_MS {
            let first = u64::from(self.pace.from) * elapsed.min(MINUTE_MS);
            let rest = u64::from(self.pace.to) * elapsed.saturating_sub(MINUTE_MS);
            (spent.ever.saturating_sub(self.counted), first + rest)
        } else {
            // Spend before the first pace belongs to no recent minute; neither does spend that a store finds after a
            // restore from a backup.
            (0, 0)
        };
        let (spend, part) = self.fade(elapsed, part, budget.unit(), new);
        let rate = budget.rate(spent, now, day_ends);
        let before = self.pace.to;
        let to = if rate == 0 {
            0
        } else if part == 0 || spend == 0 {
            if before == 0 { START } else { before.saturating_mul(2) }
        } else {
            let wanted = u128::from(rate) * u128::from(part) / (u128::from(spend) * u128::from(MINUTE_MS));
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).max(1);
            // A pace falls at once but at most doubles per step, except after a stop: the history then tells enough.
            if before == 0 { wanted } else { wanted.min(before.saturating_mul(2)) }
        };
        let to = to.min(ALL_CALLS);
        Self { at: now, pace: CampaignPace { from: before.min(to), to }, counted: spent.ever, spend, part }
    }

    /// Recent spend and participation, with the new amounts added. Without new participation nothing fades, so that a
    /// campaign that was stopped can resume from its history.
    fn fade(&self, elapsed: u64, part: u64, unit: Nanos, new: Nanos) -> (Nanos, u64) {
        if part == 0 {
            return (self.spend.saturating_add(new), self.part);
        }
        // The factor is in millionths.
        const ALL: u64 = 1_000_000;
        let by_time = MEMORY_MS.saturating_sub(elapsed) * ALL / MEMORY_MS;
        let of_events = u128::from(unit.saturating_mul(EVENTS)) * u128::from(ALL) / u128::from(self.spend.max(1));
        let factor = by_time.max(u64::try_from(of_events).unwrap_or(ALL).min(ALL));
        let fade = |old: u64| u64::try_from(u128::from(old) * u128::from(factor) / u128::from(ALL)).unwrap_or(old);
        (fade(self.spend).saturating_add(new), fade(self.part).saturating_add(part))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::time::DAY_MS;

    const NOW: Millis = 20_000 * DAY_MS;

    fn budget(bid: Bid, total: Option<i64>, daily: Option<i64>, even: bool) -> CampaignBudget {
        let time_zone = "UTC".to_owned();
        let (total, daily) = (total.map(Micros::new), daily.map(Micros::new));
        CampaignBudget { campaign: 1, bid, total, daily, time_zone, even, starts: 0, ends: Millis::MAX }
    }

    #[test]
    fn what_an_event_costs_is_what_was_bid() {
        let price = |bid, billed| budget(bid, None, Some(1), true).price(billed);
        let bought = BillingEvent::Purchase(Micros::new(20_000_000));
        for (bid, prices) in [
            (Bid::CpmMicros(Micros::new(2_500_000)), [2_500_000, 0, 0]),
            (Bid::CpcMicros(Micros::new(300_000)), [0, 300_000_000, 0]),
            (Bid::CpaMicros(Micros::new(5_000_000)), [0, 0, 5_000_000_000]),
            (Bid::SharePpm(100_000), [0, 0, 2_000_000_000]),
        ] {
            assert_eq!(
                [BillingEvent::Impression, BillingEvent::Click, bought].map(|billed| price(bid, billed)),
                prices,
                "{bid:?}"
            );
        }
        assert_eq!(price(Bid::SharePpm(1_000_000), BillingEvent::Purchase(Micros::new(i64::MAX))), u64::MAX);
        assert_eq!(price(Bid::CpmMicros(Micros::new(-1)), BillingEvent::Impression), 0);
    }

    #[test]
    fn what_may_be_spent_is_the_least_of_what_is_left_of_both() {
        let of = |total, daily, even, spent: CampaignSpend| {
            budget(Bid::CpmMicros(Micros::new(1)), total, daily, even).rate(spent, NOW, NOW + DAY_MS)
        };
        let spent = CampaignSpend { today: 400_000, ever: 900_000 };
        // 600 micros over the day's 1,440 minutes; without even spending, over five minutes.
        assert_eq!(of(None, Some(1_000), true, spent), 600_000 / 1_440);
        assert_eq!(of(None, Some(1_000), false, spent), 600_000 / 5);
        // 100 micros of the total remain, and there is no end to spread them to.
        assert_eq!(of(Some(1_000), Some(1_000), false, spent), 100_000 / 5);
        assert_eq!(of(Some(1_000), None, true, spent), 100_000 / 5);
        assert_eq!(of(Some(900), Some(1_000), true, spent), 0);
        let ends = CampaignBudget {
            ends: NOW + 10 * MINUTE_MS,
            ..budget(Bid::CpmMicros(Micros::new(1)), Some(1_000), None, true)
        };
        assert_eq!(ends.rate(spent, NOW, NOW + DAY_MS), 100_000 / 10);
        assert_eq!(ends.rate(spent, ends.ends, NOW + DAY_MS), 0, "it is over");
        assert_eq!(
            CampaignBudget { starts: NOW + 1, ..ends.clone() }.rate(spent, NOW, NOW + DAY_MS),
            0,
            "it has not begun"
        );
        assert_eq!(ends.left(spent), 100_000);
        // With a daily budget, the total budget does not slow spending down.
        let both = CampaignBudget {
            ends: NOW + 30 * DAY_MS,
            ..budget(Bid::CpmMicros(Micros::new(1)), Some(1_000), Some(100), true)
        };
        assert_eq!(both.rate(CampaignSpend::default(), NOW, NOW + DAY_MS), 100_000 / 1_440);
    }

    /// Runs one day of a campaign that would pay for `full(minute)` events a minute if it took part in all calls.
    /// Returns the spend of each hour.
    fn day(budget: &CampaignBudget, full: impl Fn(u64) -> f64) -> Vec<u64> {
        let (mut pacer, mut spent, mut owed) = (BudgetPacer::default(), CampaignSpend::default(), 0.0);
        let mut hours = vec![0; 24];
        for minute in 0..1_440_u64 {
            let now = NOW + minute * MINUTE_MS;
            // The pace computed a minute ago is in effect, on average halfway between its two ends.
            let pace = (f64::from(pacer.pace.from) + f64::from(pacer.pace.to)) / 2.0 / f64::from(ALL_CALLS);
            pacer = pacer.next(budget, spent, now, NOW + DAY_MS);
            owed += full(minute) * pace;
            let events = owed.floor();
            owed -= events;
            let cost = events as u64 * budget.unit();
            (spent.today, spent.ever) = (spent.today + cost, spent.ever + cost);
            if let Some(hour) = hours.get_mut(minute as usize / 60) {
                *hour += cost;
            }
        }
        hours
    }

    #[test]
    fn an_even_budget_is_spent_over_the_day_whatever_the_traffic_does() {
        // The budget pays for 50 thousand of about 290,000 impressions of the day.
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), true);
        let hours = day(&budget, |minute| 200.0 + 150.0 * (minute as f64 / 1_440.0 * 6.3).sin());
        let sum: u64 = hours.iter().sum();
        assert!((49_500_000_000..=50_050_000_000).contains(&sum), "{sum}");
        // An hour's share is 2.08 thousand million nanos.
        assert!(hours.iter().skip(1).all(|hour| (1_900_000_000..=2_300_000_000).contains(hour)), "{hours:?}");
    }

    #[test]
    fn a_budget_of_few_dear_events_is_spread_as_well() {
        // The budget pays for ten of the day's 100 clicks.
        let budget = budget(Bid::CpcMicros(Micros::new(1_000_000)), None, Some(10_000_000), true);
        let hours = day(&budget, |_| 100.0 / 1_440.0);
        let clicks: Vec<u64> = hours.iter().map(|hour| hour / 1_000_000_000).collect();
        let before_noon: u64 = clicks.iter().take(12).sum();
        assert!((9..=11).contains(&clicks.iter().sum::<u64>()) && (3..=7).contains(&before_noon), "{clicks:?}");
    }

    #[test]
    fn a_campaign_that_comes_back_with_a_history_begins_as_a_new_one_does() {
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), true);
        let paces = |ever: Nanos| {
            let (mut pacer, mut spent) = (BudgetPacer::default(), CampaignSpend { ever, today: 0 });
            let mut minute = |minute: u64| {
                pacer = pacer.next(&budget, spent, NOW + minute * MINUTE_MS, NOW + DAY_MS);
                let cost = u64::from(pacer.pace.to) / 10_000 * budget.unit();
                spent = CampaignSpend { ever: spent.ever + cost, today: spent.today + cost };
                pacer.pace.to
            };
            (0..30).map(&mut minute).collect::<Vec<_>>()
        };
        assert_eq!(paces(1_500_000_000_000), paces(0));
    }

    #[test]
    fn a_gap_between_two_is_weighed_by_all_that_took_part_in_it() {
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), true);
        let (mut pacer, mut spent, mut at) = (BudgetPacer::default(), CampaignSpend::default(), 0);
        let mut go = |minutes: u64| {
            // Of 350 calls a minute, the day's budget pays for a tenth.
            let cost = minutes * 350 * u64::from(pacer.pace.to) / 1_000_000 * budget.unit();
            spent = CampaignSpend { ever: spent.ever + cost, today: spent.today + cost };
            at += minutes;
            pacer = pacer.next(&budget, spent, NOW + at * MINUTE_MS, NOW + DAY_MS);
            pacer.pace.to
        };
        let steady = (0..120).map(|_| go(1)).last().unwrap_or_default();
        assert!((80_000..120_000).contains(&steady), "{steady}");
        for gap in [5, 10] {
            let paces = [go(gap), go(1), go(1)];
            assert!(paces.iter().all(|to| (80_000..125_000).contains(to)), "{gap} minutes: {paces:?}, {steady} before");
        }
    }

    #[test]
    fn what_was_spent_since_the_backup_that_a_store_comes_back_from_is_of_no_minute_of_late() {
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), true);
        let (mut pacer, mut spent) = (BudgetPacer::default(), CampaignSpend::default());
        let mut go = |minute: u64, also: Nanos| {
            let cost = 350 * u64::from(pacer.pace.to) / 1_000_000 * budget.unit();
            spent =
                CampaignSpend { ever: spent.ever + cost + also, today: (minute * MINUTE_MS % DAY_MS) / 50_000 * MICRO };
            pacer = pacer.next(&budget, spent, NOW + minute * MINUTE_MS, NOW + 2 * DAY_MS);
            pacer.pace.to
        };
        let steady = (0..120).map(|minute| go(minute, 0)).last().unwrap_or_default();
        let back = 120 + 20 * 60;
        let paces = [go(back, 1_200 * 35 * 1_000_000), go(back + 1, 0), go(back + 2, 0)];
        assert!(paces.iter().all(|to| (steady / 2..steady * 3).contains(to)), "{paces:?}, {steady} before");
    }

    #[test]
    fn asap_spends_all_of_it_in_the_first_hours_and_nothing_then() {
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), false);
        let hours = day(&budget, |_| 1_000.0);
        let (first, rest) = hours.split_at(3);
        let sum = first.iter().sum::<u64>();
        assert!((49_900_000_000..=50_500_000_000).contains(&sum), "{hours:?}");
        assert!(rest.iter().sum::<u64>() < 100_000_000, "{hours:?}");
    }

    #[test]
    fn a_pace_begins_low_doubles_while_nothing_comes_and_stops_at_once() {
        let budget = budget(Bid::CpmMicros(Micros::new(1_000_000)), None, Some(50_000_000), true);
        let at = |minute: u64| NOW + minute * MINUTE_MS;
        let mut pacer = BudgetPacer::default().next(&budget, CampaignSpend::default(), at(0), NOW + DAY_MS);
        assert_eq!(pacer.pace, CampaignPace { from: 0, to: START });
        for minute in 1..=12 {
            let before = pacer.pace.to;
            pacer = pacer.next(&budget, CampaignSpend::default(), at(minute), NOW + DAY_MS);
            assert_eq!(pacer.pace, CampaignPace { from: before, to: (2 * before).min(ALL_CALLS) }, "{minute}");
        }
        let over = CampaignSpend { today: 60_000_000_000, ever: 60_000_000_000 };
        let stopped = pacer.next(&budget, over, at(13), NOW + DAY_MS);
        assert_eq!(stopped.pace, CampaignPace::default());
        // The next day the pace resumes from the history: 35 impressions a minute, of 60,000 offered.
        let next = stopped.next(&budget, CampaignSpend { today: 0, ..over }, NOW + DAY_MS, NOW + 2 * DAY_MS);
        assert!((500..5_000).contains(&next.pace.to), "{next:?}");
        assert_eq!(
            pacer.next(&budget, CampaignSpend::default(), at(11), NOW + DAY_MS).pace.to,
            ALL_CALLS,
            "the clock went back"
        );
    }
}
