//! What an experiment came to, read from the sums, as JSON for the admin side and the command line.

use std::collections::BTreeMap;

use causeway_shared::experiment::Experiment;
use causeway_shared::ids::{Micros, Millis};
use causeway_shared::time::HourStamp;
use rusqlite::Connection;
use serde::Serialize;
use serde_json::{Value, json};

use super::bandit::{self, ArmState, Due};
use super::people::{self, Sums};
use super::statistics::{self, Rate};
use crate::catalogue;
use crate::store::{StoreError, TenantNo, signed, unsigned};
use crate::tenants::Known;

/// Hours shown one by one, the newest; days are all shown.
const HOURS: u32 = 168;

/// How long people take is asked of those first exposed within so many hours: three times the longest delay there is, and a
/// minute's steering does not take longer with each year.
const ASKED_HOURS: u64 = 3 * people::DELAY_HOURS;

/// What is read of one experiment: the sums of each arm by hour.
struct Read {
    arms: BTreeMap<i64, BTreeMap<HourStamp, Sums>>,
    due: Due,
    now: HourStamp,
}

/// Everything known of an experiment of the tenant's current catalogue; `None` where it has none of that id.
///
/// # Errors
/// [`StoreError`].
pub fn show(conn: &Connection, tenant: &Known, id: &str, now: Millis) -> Result<Option<Value>, StoreError> {
    let tested = catalogue::experiments(conn)?;
    let Some(experiment) = tested.of(tenant.no).iter().find(|experiment| experiment.id == id) else {
        return Ok(None);
    };
    let read = Read::of(conn, tenant.no, experiment, now)?;
    let control = experiment.arms.iter().find(|arm| arm.control).map(|arm| read.rate(arm.code));
    let states = read.states(experiment);
    let playing: Vec<Rate> = states.iter().filter(|s| !s.control && s.share > 0).map(|s| s.rate).collect();
    let mut best = bandit::best(&playing).into_iter();
    let shares = read.shares(experiment);
    let arms = experiment.arms.iter().zip(&states).zip(&shares).map(|((arm, state), share)| {
        let sums = read.total(arm.code);
        let against = control.filter(|_| !arm.control);
        json!({
            "arm": arm.id, "code": arm.code, "control": arm.control, "share": arm.share, "share_now": share,
            "recipients": sums.exposed, "converted": sums.cohort_converted, "conversions": sums.cohort_conversions,
            "revenue_micros": sums.cohort_revenue,
            "rate": statistics::wilson(read.rate(arm.code)),
            "posterior": statistics::posterior(state.rate),
            "best": if state.control || state.share == 0 { None } else { best.next() },
            "difference": against.and_then(|control| statistics::difference(read.rate(arm.code), control)),
            "uplift": against.and_then(|control| statistics::relative(read.rate(arm.code), control)),
        })
    });
    Ok(Some(json!({
        "experiment": experiment.id, "code": experiment.code, "tenant": tenant.id.as_str(),
        "conversion": experiment.conversion, "selection": experiment.selection,
        "starts_ms": experiment.starts, "ends_ms": experiment.ends, "runs": experiment.runs(now),
        "arms": arms.collect::<Vec<_>>(),
        "mixed": read.of_arm(people::MIXED).exposed,
        "sample_ratio": read.sample_ratio(experiment),
        "hours": read.periods(experiment, 1, HOURS),
        "days": read.periods(experiment, 24, u32::MAX),
    })))
}

/// The shares of a running experiment's arms from now on, in their order: those of its file, or as selection chooses them.
///
/// # Errors
/// [`StoreError`].
pub fn shares(conn: &Connection, tenant: TenantNo, of: &Experiment, now: Millis) -> Result<Vec<u32>, StoreError> {
    Ok(Read::of(conn, tenant, of, now)?.shares(of))
}

/// One arm in one hour or day.
#[derive(Serialize)]
struct Period<'a> {
    start_ms: Millis,
    arm: &'a str,
    /// People exposed first in it, and what they came to, whenever.
    exposed: i64,
    cohort_converted: i64,
    cohort_conversions: i64,
    cohort_revenue_micros: Micros,
    /// What happened in it.
    converted: i64,
    conversions: i64,
    revenue_micros: Micros,
}

impl Read {
    fn of(conn: &Connection, tenant: TenantNo, experiment: &Experiment, now: Millis) -> Result<Self, StoreError> {
        const DELAYS: &str = "SELECT hour, delay, people FROM experiment_delays
            WHERE tenant = ?1 AND experiment = ?2 AND hour > ?3";
        let arms = people::sums(conn, tenant, experiment.code)?;
        let now = HourStamp::at(now);
        let mut statement = conn.prepare_cached(DELAYS)?;
        let from = signed(u64::from(now.0).saturating_sub(ASKED_HOURS));
        let delays = statement.query_map((tenant.0, experiment.code, from), |row| {
            let hour: u32 = row.get(0)?;
            Ok((u64::from(now.0.saturating_sub(hour)), unsigned(row.get(1)?), unsigned(row.get(2)?)))
        })?;
        Ok(Self { arms, due: Due::new(&delays.collect::<Result<Vec<_>, _>>()?), now })
    }

    fn of_arm(&self, arm: i64) -> Sums {
        self.arms.get(&arm).into_iter().flatten().fold(Sums::default(), |sum, (_, sums)| sum.plus(1, *sums))
    }

    fn total(&self, arm: u8) -> Sums {
        self.of_arm(arm.into())
    }

    fn rate(&self, arm: u8) -> Rate {
        let sums = self.total(arm);
        Rate::new(unsigned(sums.cohort_converted), unsigned(sums.exposed))
    }

    fn states(&self, experiment: &Experiment) -> Vec<ArmState> {
        let state = |arm: &causeway_shared::experiment::Arm| {
            let hours = self.arms.get(&i64::from(arm.code)).into_iter().flatten();
            let cohort = |(hour, sums): (&HourStamp, &Sums)| {
                let age = u64::from(self.now.0.saturating_sub(hour.0));
                (age, unsigned(sums.exposed), unsigned(sums.cohort_converted))
            };
            ArmState { share: arm.share, control: arm.control, rate: self.due.effective(hours.map(cohort)) }
        };
        experiment.arms.iter().map(state).collect()
    }

    fn shares(&self, experiment: &Experiment) -> Vec<u32> {
        if experiment.selection {
            return bandit::shares(&self.states(experiment), &bandit::Options::default());
        }
        experiment.arms.iter().map(|arm| arm.share).collect()
    }

    /// Where selection moves traffic between the arms, what the control got is compared with what the others got together.
    fn sample_ratio(&self, experiment: &Experiment) -> Option<statistics::Ratio> {
        let group = |arm: &causeway_shared::experiment::Arm| (unsigned(self.total(arm.code).exposed), arm.share);
        if !experiment.selection {
            return statistics::sample_ratio(&experiment.arms.iter().map(group).collect::<Vec<_>>());
        }
        let together = |control: bool| {
            let arms = experiment.arms.iter().filter(|arm| arm.control == control).map(group);
            arms.fold((0, 0), |sum, (people, share)| (sum.0 + people, sum.1 + share))
        };
        statistics::sample_ratio(&[together(true), together(false)])
    }

    /// The arms' sums by so many hours, the newest `most` of those hours, in order.
    fn periods<'a>(&self, experiment: &'a Experiment, hours: u32, most: u32) -> Vec<Period<'a>> {
        let from = self.now.0.saturating_add(1).saturating_sub(most);
        let mut found: BTreeMap<(u32, u8), (&str, Sums)> = BTreeMap::new();
        for arm in &experiment.arms {
            for (hour, sums) in self.arms.get(&i64::from(arm.code)).into_iter().flatten().filter(|(h, _)| h.0 >= from) {
                let there = found.entry((hour.0 - hour.0 % hours, arm.code)).or_insert((&arm.id, Sums::default()));
                there.1 = there.1.plus(1, *sums);
            }
        }
        let period = |((start, _), (arm, of)): ((u32, u8), (&'a str, Sums))| Period {
            start_ms: HourStamp(start).start_ms(),
            arm,
            exposed: of.exposed,
            cohort_converted: of.cohort_converted,
            cohort_conversions: of.cohort_conversions,
            cohort_revenue_micros: of.cohort_revenue,
            converted: of.converted,
            conversions: of.conversions,
            revenue_micros: of.revenue,
        };
        found.into_iter().map(period).collect()
    }
}
