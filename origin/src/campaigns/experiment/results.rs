//! Results of an experiment, read from the sums, as JSON for the admin API and the command line.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HourStamp;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::Connection;
use serde::Serialize;
use utoipa::ToSchema;

use super::bandit::{self, ArmState, ConversionDelays};
use super::person_results::{self, HourSums};
use super::statistics::{self, ObservedRate};
use crate::base::integers::{signed, unsigned};
use crate::campaigns::catalogue;
use crate::store::tables::{catalogues, experiment_delays, sends};
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo};

/// Newest hours shown one by one; days are shown without a limit.
const HOURS: u32 = 168;

/// Age in hours of the oldest exposures that conversion delays are estimated from: three times the longest delay. The
/// bound holds the cost of the job that runs each minute constant.
const ASKED_HOURS: u64 = 3 * person_results::DELAY_HOURS;

/// Data of one experiment: the sums of each arm by hour, and the conversion delays.
struct ArmHours {
    arms: BTreeMap<i64, BTreeMap<HourStamp, HourSums>>,
    due: ConversionDelays,
    now: HourStamp,
}

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ExperimentAnswer {
    /// Id of the experiment.
    pub experiment: String,
    /// Code of the experiment.
    pub code: u32,
    /// Tenant of the experiment.
    pub tenant: String,
    /// What counts as a conversion: the name of an event, or an action type.
    pub conversion: String,
    /// Whether the origin moves traffic to the arms that convert best.
    pub selection: bool,
    /// Start of the experiment.
    pub starts_ms: u64,
    /// End of the experiment; null without one.
    pub ends_ms: Option<u64>,
    /// Whether the experiment runs now.
    pub runs: bool,
    /// Time at which the catalogue dropped the experiment; null while it is in the catalogue.
    pub dropped_ms: Option<u64>,
    /// The arms, in the order of the catalogue.
    pub arms: Vec<ArmAnswer>,
    /// People who saw several arms. The figures of the arms leave them out.
    pub mixed: i64,
    /// Test whether the people were split as configured, by the arm that each saw first. After a mismatch no figure is
    /// reliable. Null where there is too little to compare, and after the experiment got more traffic than before.
    pub sample_ratio: Option<statistics::SampleRatio>,
    /// Sums of the last 168 hours, by hour and arm.
    pub hours: Vec<ArmPeriod>,
    /// Sums by day and arm.
    pub days: Vec<ArmPeriod>,
}

/// The results of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ArmAnswer {
    /// Id of the arm.
    pub arm: String,
    /// Code of the arm.
    pub code: u8,
    /// Whether the arm is the control.
    pub control: bool,
    /// Share of the arm in the catalogue, of 10,000 people.
    pub share: u32,
    /// Share of the arm now, of 10,000 people, as traffic allocation sets it; 0 after the experiment was dropped.
    pub share_now: u32,
    /// People who saw this arm first and another arm later. They count in `sample_ratio` only.
    pub mixed: i64,
    /// People who saw this arm only.
    pub recipients: i64,
    /// Recipients with a conversion.
    pub converted: i64,
    /// Conversions of the recipients.
    pub conversions: i64,
    /// Revenue of these conversions.
    pub revenue_micros: i64,
    /// Conversion rate.
    pub rate: Option<statistics::IntervalEstimate>,
    /// Conversion rate as traffic allocation estimates it, with the conversions that are still expected.
    pub posterior: Option<statistics::IntervalEstimate>,
    /// Probability that the arm is the best of the arms other than the control; null for the control and for an arm
    /// without traffic.
    pub best: Option<f64>,
    /// Difference of the rate to the rate of the control.
    pub difference: Option<statistics::IntervalEstimate>,
    /// Relative difference of the rate to the rate of the control.
    pub uplift: Option<statistics::IntervalEstimate>,
}

/// All results of an experiment of the tenant's current catalogue, or of a dropped experiment as in the last version
/// that had it; `None` if no version has the id.
///
/// # Errors
/// [`StoreError`].
pub fn describe_experiment(
    conn: &Connection,
    tenant: &TenantContext,
    id: &str,
    now: Millis,
) -> Result<Option<ExperimentAnswer>, StoreError> {
    let Some((experiment, dropped)) = find_experiment(conn, tenant.no, id)? else { return Ok(None) };
    let experiment = &experiment;
    let read = ArmHours::of(conn, tenant.no, experiment, now)?;
    let control = experiment.arms.iter().find(|arm| arm.control).map(|arm| read.rate(arm.code));
    let states = read.states(experiment);
    let playing: Vec<ObservedRate> = states.iter().filter(|s| !s.control && s.share > 0).map(|s| s.rate).collect();
    let mut best = bandit::best_chances(&playing).into_iter();
    let shares = read.shares(experiment);
    let arms = experiment.arms.iter().zip(&states).zip(&shares).map(|((arm, state), share)| {
        let sums = read.total(arm.code);
        let against = control.filter(|_| !arm.control);
        ArmAnswer {
            arm: arm.id.clone(),
            code: arm.code,
            control: arm.control,
            share: arm.share,
            share_now: if dropped.is_some() { 0 } else { *share },
            mixed: read.of_arm(person_results::mixed_arm(arm.code)).exposed,
            recipients: sums.exposed,
            converted: sums.cohort_converted,
            conversions: sums.cohort_conversions,
            revenue_micros: sums.cohort_revenue.get(),
            rate: statistics::wilson_interval(read.rate(arm.code)),
            posterior: statistics::posterior_interval(state.rate),
            best: if state.control || state.share == 0 { None } else { best.next() },
            difference: against.and_then(|control| statistics::rate_difference(read.rate(arm.code), control)),
            uplift: against.and_then(|control| statistics::relative_difference(read.rate(arm.code), control)),
        }
    });
    let arms = arms.collect();
    let since = shares_since(conn, tenant.no, experiment)?;
    Ok(Some(ExperimentAnswer {
        experiment: experiment.id.clone(),
        code: experiment.code,
        tenant: tenant.id.as_str().to_owned(),
        conversion: experiment.conversion.clone(),
        selection: experiment.selection,
        starts_ms: experiment.starts,
        ends_ms: experiment.ends,
        runs: dropped.is_none() && experiment.runs(now),
        dropped_ms: dropped,
        arms,
        mixed: read.mixed(),
        sample_ratio: since.and_then(|since| read.sample_ratio(experiment, since)),
        hours: read.periods(experiment, 1, HOURS),
        days: read.periods(experiment, 24, u32::MAX),
    }))
}

/// Finds an experiment in a tenant's current catalogue, or a dropped one in the last version that had it, with the time
/// at which that version was replaced.
///
/// # Errors
/// [`StoreError`].
pub fn find_experiment(
    conn: &Connection,
    tenant: TenantNo,
    id: &str,
) -> Result<Option<(Experiment, Option<Millis>)>, StoreError> {
    let has_id = |experiment: &&Experiment| experiment.id == id;
    if let Some(current) = catalogue::experiments_of_tenant(conn, tenant)?.iter().find(has_id) {
        return Ok(Some((current.clone(), None)));
    }
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_REPLACED_EXPERIMENTS_NEWEST_FIRST)?;
    let mut rows = statement.query([tenant.0])?;
    while let Some(row) = rows.next()? {
        let all = catalogue::experiments_of(&row.get::<_, String>(0)?)?;
        if let Some(dropped) = all.iter().find(has_id) {
            return Ok(Some((dropped.clone(), Some(unsigned(row.get(1)?)))));
        }
    }
    Ok(None)
}

/// Current shares of a running experiment's arms, by code: the configured shares, or those that the selection chose.
///
/// # Errors
/// [`StoreError`].
pub fn shares_report(
    conn: &Connection,
    tenant: TenantNo,
    of: &Experiment,
    now: Millis,
) -> Result<BTreeMap<u8, u32>, StoreError> {
    let shares = ArmHours::of(conn, tenant, of, now)?.shares(of);
    Ok(of.arms.iter().map(|arm| arm.code).zip(shares).collect())
}

/// The first whole hour in which all people were assigned by the current shares. At the edge, that is the second hour
/// after the last change. A send assigns people when it draws them, and delivers by that assignment later. Returns
/// `None` if the arms together gained traffic: people outside the experiment before are then assigned by the gains of
/// the arms, not by their shares.
fn shares_since(conn: &Connection, tenant: TenantNo, of: &Experiment) -> Result<Option<HourStamp>, StoreError> {
    let dealt = |of: &Experiment| {
        (of.selection, of.arms.iter().map(|arm| (arm.code, (arm.share, arm.control))).collect::<BTreeMap<_, _>>())
    };
    let room = |of: &Experiment| of.arms.iter().map(|arm| arm.share).sum::<u32>();
    let mut statement = conn.prepare_cached(catalogues::CATALOGUES_REPLACED_EXPERIMENTS)?;
    let mut rows = statement.query([tenant.0])?;
    let mut changed = None;
    while let Some(row) = rows.next()? {
        let replaced = row.get::<_, i64>(1)?;
        let before = catalogue::experiments_of(&row.get::<_, String>(0)?)?;
        for before in before.iter().filter(|before| before.code == of.code && dealt(before) != dealt(of)) {
            if room(before) < room(of) && before.starts < unsigned(replaced) {
                return Ok(None);
            }
            changed = changed.max(Some(replaced));
        }
    }
    let Some(changed) = changed else { return Ok(Some(HourStamp(0))) };
    let delivered: i64 = conn
        .prepare_cached(sends::SENDS_LAST_DELIVERY_OF_EXPERIMENT)?
        .query_row((tenant.0, &of.id, changed), |row| row.get(0))?;
    Ok(Some(HourStamp(HourStamp::at(unsigned(delivered.max(changed))).0 + 2)))
}

/// The sums of one arm in one hour or day.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ArmPeriod {
    /// Start of the hour or day.
    pub start_ms: u64,
    /// Id of the arm.
    pub arm: String,
    /// People who saw the arm for the first time in the period: its cohort.
    pub exposed: i64,
    /// People of the cohort with a conversion, at any time.
    pub cohort_converted: i64,
    /// Conversions of the cohort, at any time.
    pub cohort_conversions: i64,
    /// Revenue of the cohort's conversions.
    pub cohort_revenue_micros: i64,
    /// People whose first conversion was in the period.
    pub converted: i64,
    /// Conversions in the period.
    pub conversions: i64,
    /// Revenue of the conversions in the period.
    pub revenue_micros: i64,
}

impl ArmHours {
    fn of(conn: &Connection, tenant: TenantNo, experiment: &Experiment, now: Millis) -> Result<Self, StoreError> {
        let arms = person_results::load_sums(conn, tenant, experiment.code)?;
        let now = HourStamp::at(now);
        let mut statement = conn.prepare_cached(experiment_delays::EXPERIMENT_DELAYS_OF_EXPERIMENT)?;
        let from = signed(u64::from(now.0).saturating_sub(ASKED_HOURS));
        let delays = statement.query_map((tenant.0, experiment.code, from), |row| {
            let hour: u32 = row.get(0)?;
            Ok((u64::from(now.0.saturating_sub(hour)), unsigned(row.get(1)?), unsigned(row.get(2)?)))
        })?;
        Ok(Self { arms, due: ConversionDelays::new(&delays.collect::<Result<Vec<_>, _>>()?), now })
    }

    fn of_arm(&self, arm: i64) -> HourSums {
        self.arms.get(&arm).into_iter().flatten().fold(HourSums::default(), |sum, (_, sums)| sum.plus(1, *sums))
    }

    fn total(&self, arm: u8) -> HourSums {
        self.of_arm(arm.into())
    }

    /// People who saw several arms.
    fn mixed(&self) -> i64 {
        let arms = self.arms.keys().filter(|arm| person_results::is_mixed(**arm));
        arms.map(|arm| self.of_arm(*arm).exposed).sum()
    }

    fn rate(&self, arm: u8) -> ObservedRate {
        let sums = self.total(arm);
        ObservedRate::new(unsigned(sums.cohort_converted), unsigned(sums.exposed))
    }

    fn states(&self, experiment: &Experiment) -> Vec<ArmState> {
        let state = |arm: &causeway_shared::targeting::experiment::Arm| {
            let hours = self.arms.get(&i64::from(arm.code)).into_iter().flatten();
            let cohort = |(hour, sums): (&HourStamp, &HourSums)| {
                let age = u64::from(self.now.0.saturating_sub(hour.0));
                (age, unsigned(sums.exposed), unsigned(sums.cohort_converted))
            };
            ArmState { share: arm.share, control: arm.control, rate: self.due.effective(hours.map(cohort)) }
        };
        experiment.arms.iter().map(state).collect()
    }

    fn shares(&self, experiment: &Experiment) -> Vec<u32> {
        if experiment.selection {
            return bandit::choose_shares(&self.states(experiment), &bandit::BanditOptions::default());
        }
        experiment.arms.iter().map(|arm| arm.share).collect()
    }

    /// Sample ratio of the people exposed since an hour, by the arm that they saw first, including people who saw
    /// several arms. Earlier traffic was assigned by other shares. If selection moves traffic between the arms, the
    /// control is compared with all other arms together.
    fn sample_ratio(&self, experiment: &Experiment, since: HourStamp) -> Option<statistics::SampleRatio> {
        let exposed = |arm: u8| {
            let arms =
                [i64::from(arm), person_results::mixed_arm(arm)].into_iter().filter_map(|arm| self.arms.get(&arm));
            let hours = arms.flatten().filter(|(hour, _)| **hour >= since);
            hours.map(|(_, sums)| unsigned(sums.exposed)).sum::<u64>()
        };
        // After a change of shares, an exposure in an arm without a share stems from an earlier assignment.
        let arms = experiment.arms.iter().filter(|arm| arm.share > 0 || since == HourStamp(0));
        let group = |arm: &causeway_shared::targeting::experiment::Arm| (exposed(arm.code), arm.share);
        if !experiment.selection {
            return statistics::sample_ratio(&arms.map(group).collect::<Vec<_>>());
        }
        let together = |control: bool| {
            let arms = arms.clone().filter(|arm| arm.control == control).map(group);
            arms.fold((0, 0), |sum, (people, share)| (sum.0 + people, sum.1 + share))
        };
        statistics::sample_ratio(&[together(true), together(false)])
    }

    /// Sums of each arm by periods of `hours` hours, ascending: the newest `most` periods.
    fn periods(&self, experiment: &Experiment, hours: u32, most: u32) -> Vec<ArmPeriod> {
        let from = self.now.0.saturating_add(1).saturating_sub(most);
        let mut found: BTreeMap<(u32, u8), (&str, HourSums)> = BTreeMap::new();
        for arm in &experiment.arms {
            for (hour, sums) in self.arms.get(&i64::from(arm.code)).into_iter().flatten().filter(|(h, _)| h.0 >= from) {
                let there = found.entry((hour.0 - hour.0 % hours, arm.code)).or_insert((&arm.id, HourSums::default()));
                there.1 = there.1.plus(1, *sums);
            }
        }
        let period = |((start, _), (arm, of)): ((u32, u8), (&str, HourSums))| ArmPeriod {
            start_ms: HourStamp(start).start_ms(),
            arm: arm.to_owned(),
            exposed: of.exposed,
            cohort_converted: of.cohort_converted,
            cohort_conversions: of.cohort_conversions,
            cohort_revenue_micros: of.cohort_revenue.get(),
            converted: of.converted,
            conversions: of.conversions,
            revenue_micros: of.revenue.get(),
        };
        found.into_iter().map(period).collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod simulation;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{NOW, Origin, exposure, purchase, visitor, withdrawal};

    const HOUR: u64 = 3_600_000;

    fn apply(origin: &mut Origin, shares: [u32; 2]) {
        let arm = |(id, code, share): (&str, u8, u32)| json!({ "id": id, "code": code, "share": share });
        let [a, b] = shares;
        let document = json!({ "experiment": [{ "id": "e", "code": 4, "starts": 0, "arm": [arm(("a", 1, a)), arm(("b", 2, b))] }] });
        apply_document(origin, document);
    }

    fn apply_document(origin: &mut Origin, document: Value) {
        let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
    }

    /// Exposes more people to an arm.
    fn expose(origin: &mut Origin, people: std::ops::Range<u32>, arm: u8) {
        let facts: Vec<_> = people.map(|n| exposure(visitor(n), n, origin.now, 4, arm)).collect();
        origin.send("demo", &facts);
    }

    fn mismatch(origin: &Origin) -> Value {
        crate::testing::as_json(
            describe_experiment(&origin.conn, origin.tenant("demo"), "e", origin.now).unwrap().unwrap(),
        )["sample_ratio"]["mismatch"]
            .clone()
    }

    #[test]
    fn traffic_is_compared_with_the_shares_at_its_time() {
        let mut origin = Origin::new();
        apply(&mut origin, [5_000, 5_000]);
        expose(&mut origin, 0..100, 1);
        expose(&mut origin, 100..200, 2);
        assert_eq!(mismatch(&origin), json!(false));
        origin.now = NOW + HOUR;
        apply(&mut origin, [1_000, 9_000]);
        assert_eq!(mismatch(&origin), Value::Null, "no person was assigned by these shares");
        origin.now = NOW + 4 * HOUR;
        expose(&mut origin, 200..210, 1);
        expose(&mut origin, 210..300, 2);
        assert_eq!(mismatch(&origin), json!(false));
        expose(&mut origin, 300..340, 1);
        assert_eq!(mismatch(&origin), json!(true));
        // An arm that is out of the test gets no traffic.
        origin.now = NOW + 8 * HOUR;
        apply(&mut origin, [0, 10_000]);
        origin.now = NOW + 12 * HOUR;
        expose(&mut origin, 340..400, 2);
        assert_eq!(mismatch(&origin), Value::Null);
        // Earlier assignments do not count either: after the first browser's withdrawal, the person's first exposure is
        // that of another browser.
        let logins = [0, 500].map(|n| origin.login(visitor(n), 9, origin.now, "ann"));
        origin.send("demo", &logins);
        expose(&mut origin, 500..501, 1);
        let withdrawn = withdrawal(visitor(0), origin.now);
        origin.send("demo", &[withdrawn]);
        assert_eq!(mismatch(&origin), Value::Null);
    }

    #[test]
    fn results_of_an_experiment_that_was_dropped_from_the_catalogue_stay_readable() {
        let mut origin = Origin::new();
        apply(&mut origin, [5_000, 5_000]);
        expose(&mut origin, 0..30, 1);
        expose(&mut origin, 30..60, 2);
        let show = |origin: &Origin, id: &str| {
            describe_experiment(&origin.conn, origin.tenant("demo"), id, origin.now)
                .unwrap()
                .map(crate::testing::as_json)
        };
        let before = show(&origin, "e").unwrap();
        let dropped = NOW + HOUR;
        origin.now = dropped;
        apply_document(&mut origin, json!({}));
        origin.now = NOW + 2 * HOUR;
        let bought = purchase(visitor(7), 900, origin.now, 5_000_000);
        origin.send("demo", &[bought]);
        let after = show(&origin, "e").unwrap();
        assert_eq!([&before["runs"], &after["runs"]], [&json!(true), &json!(false)]);
        assert_eq!([&before["dropped_ms"], &after["dropped_ms"]], [&Value::Null, &json!(dropped)]);
        let of = |shown: &Value, key: &str| [0, 1].map(|arm| shown["arms"][arm][key].clone());
        assert_eq!(of(&after, "recipients"), of(&before, "recipients"));
        assert_eq!(of(&after, "arm"), [json!("a"), json!("b")]);
        assert_eq!(of(&after, "share_now"), [json!(0), json!(0)]);
        assert_eq!(of(&after, "converted"), [json!(1), json!(0)], "conversions still count");
        assert_eq!(show(&origin, "f"), None);
    }

    #[test]
    fn who_is_mixed_counts_in_the_split_by_the_arm_seen_first() {
        let mut origin = Origin::new();
        apply(&mut origin, [9_000, 1_000]);
        expose(&mut origin, 0..890, 1);
        expose(&mut origin, 900..990, 2);
        // Twenty people on two browsers: nine of ten saw the first arm first, and none of them is a recipient.
        let logins = |n: u32, who: &str| [n, n + 1_000].map(|n| (n, who.to_owned()));
        for n in 2_000..2_020_u32 {
            let (first, second) = if n % 10 == 0 { (2, 1) } else { (1, 2) };
            expose(&mut origin, n..n + 1, first);
            origin.now += 1;
            expose(&mut origin, n + 1_000..n + 1_001, second);
            let both = logins(n, &format!("who-{n}")).map(|(n, who)| origin.login(visitor(n), 9, origin.now, &who));
            origin.send("demo", &both);
        }
        let shown = crate::testing::as_json(
            describe_experiment(&origin.conn, origin.tenant("demo"), "e", origin.now).unwrap().unwrap(),
        );
        assert_eq!(shown["mixed"], json!(20));
        assert_eq!([0, 1].map(|arm| shown["arms"][arm]["recipients"].clone()), [json!(890), json!(90)]);
        assert_eq!([0, 1].map(|arm| shown["arms"][arm]["mixed"].clone()), [json!(18), json!(2)]);
        // 908 and 92 of 1,000 people.
        let found = shown["sample_ratio"]["chi_square"].as_f64().unwrap();
        assert!((found - 64.0 / 900.0 - 64.0 / 100.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn traffic_is_not_compared_with_shares_after_more_people_were_admitted() {
        let mut origin = Origin::new();
        apply(&mut origin, [500, 500]);
        origin.now = NOW + HOUR;
        apply(&mut origin, [5_000, 5_000]);
        origin.now = NOW + 4 * HOUR;
        // Of the newly included buckets, the first arm gained 4,000 and the second 5,000.
        expose(&mut origin, 0..444, 1);
        expose(&mut origin, 444..1_000, 2);
        assert_eq!(mismatch(&origin), Value::Null);
        apply(&mut origin, [2_500, 2_500]);
        origin.now = NOW + 8 * HOUR;
        expose(&mut origin, 1_000..1_100, 1);
        assert_eq!(mismatch(&origin), Value::Null, "it had less");
    }

    #[test]
    fn people_of_a_send_are_not_compared_with_shares_other_than_those_of_its_draw() {
        const SEND: &str =
            "INSERT INTO sends (send, tenant, name, filter, count, experiment, webhook, per_second, random, requested,
            due, chosen, next) VALUES (1, ?1, 'may', '{}', 200, 'e', 0, 1, 7, ?2, ?2, 200, 200)";
        const TOLD: &str =
            "INSERT INTO send_people (send, place, visitor, arm, outcome, at) VALUES (1, 199, ?1, 1, 1, ?2)";
        let mut origin = Origin::new();
        let no = origin.tenant("demo").no;
        apply(&mut origin, [5_000, 5_000]);
        origin.conn.execute(SEND, (no.0, signed(NOW))).unwrap();
        origin.now = NOW + HOUR;
        apply(&mut origin, [1_000, 9_000]);
        origin.now = NOW + 4 * HOUR;
        expose(&mut origin, 0..100, 1);
        expose(&mut origin, 100..200, 2);
        assert_eq!(mismatch(&origin), json!(true), "no send is recorded that would explain it");
        origin.conn.execute(TOLD, (visitor(199).as_bytes(), signed(origin.now))).unwrap();
        assert_eq!(mismatch(&origin), Value::Null);
        origin.now = NOW + 8 * HOUR;
        expose(&mut origin, 200..210, 1);
        expose(&mut origin, 210..300, 2);
        assert_eq!(mismatch(&origin), json!(false));
    }
}
