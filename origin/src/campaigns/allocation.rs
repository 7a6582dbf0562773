//! Traffic allocation: once a minute, the shares of experiments with selection, the paces of campaigns with budgets,
//! and the sold-out limited offers are computed and published.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ads::allocation::TrafficAllocation;
use causeway_shared::ads::budget::{BudgetPacer, CampaignBudget};
use causeway_shared::base::ids::{Micros, Millis};
use causeway_shared::base::limits;
use causeway_shared::targeting::experiment::Shares;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::integers::{signed, unsigned};
use crate::campaigns::experiment::results;
use crate::campaigns::rules::CampaignRules;
use crate::campaigns::{catalogue, offers, spend};
use crate::outbox::kv_key::KvKey;
use crate::store::tables::traffic_allocation;
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo};

/// A tenant's traffic allocation, with the state for computing the next one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BuiltAllocation {
    /// Time of the computation.
    pub at: Millis,
    /// Shares by the experiment's code.
    pub shares: Shares,
    /// Pacer states by the campaign's code.
    pub paces: BTreeMap<u32, BudgetPacer>,
    /// Codes of sold-out limited offers.
    pub given_out: BTreeSet<u32>,
    /// Segments that materialised audiences fill.
    pub materialised: BTreeSet<u32>,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct StoredAllocation {
    shares: Shares,
    #[serde(default)]
    paces: BTreeMap<u32, BudgetPacer>,
    #[serde(default)]
    given_out: BTreeSet<u32>,
    #[serde(default)]
    materialised: BTreeSet<u32>,
}

impl BuiltAllocation {
    /// The published form.
    #[must_use]
    pub fn published(&self) -> TrafficAllocation {
        let paces = self.paces.iter().map(|(campaign, pacer)| (*campaign, pacer.pace)).collect();
        let Self { at, shares, given_out, materialised, .. } = self.clone();
        TrafficAllocation { at, shares, paces, given_out, materialised }
    }
}

/// Age from which an allocation is renewed. It is less than a minute, because a run each minute may come slightly
/// early.
const DUE_MS: u64 = limits::ALLOCATION_MS * 9 / 10;

/// Renews the allocations that are a minute old, of tenants that have or had one. A tenant with unreadable data retains
/// its last published allocation and does not affect other tenants.
///
/// # Errors
/// [`StoreError`]; the caller must roll the transaction back.
pub fn refresh_allocation(group: &mut WriteTxn<'_>, campaigns: &CampaignRules) -> Result<(), StoreError> {
    for known in group.rules.tenants.iter() {
        if campaigns.held.contains(&known.no) {
            continue;
        }
        match refresh_tenant(group, campaigns, known.no) {
            Err(e) if e.is_of_a_value() => {
                let (tenant, error) = (&known.config.name, crate::base::error_chain(&e));
                tracing::error!(
                    tenant,
                    error,
                    "shares and paces of a tenant cannot be renewed: the previous ones remain in use"
                );
            }
            done => done?,
        }
    }
    Ok(())
}

/// Renews one tenant's allocation if it is due. All data that may be unreadable is read before the first write.
fn refresh_tenant(group: &mut WriteTxn<'_>, campaigns: &CampaignRules, tenant: TenantNo) -> Result<(), StoreError> {
    let before = match load_newest(group.tx, tenant) {
        Err(e) if e.is_of_a_value() => {
            tracing::error!(
                error = crate::base::error_chain(&e),
                "stored paces cannot be read: pacing starts again from its initial state"
            );
            None
        }
        before => before?,
    };
    // An allocation from the future was made before the clock was set back, and is renewed.
    let fresh = |made: Millis| made <= group.now && group.now - made < DUE_MS;
    if before.as_ref().is_some_and(|before| fresh(before.at)) {
        return Ok(());
    }
    let shares = compute_shares(group, campaigns, tenant)?;
    let paces = compute_paces(group, campaigns, tenant, before.as_ref())?;
    let limited = catalogue::limited_of_tenant(group.tx, tenant)?;
    let given_out = offers::given_out(group.tx, tenant, &limited, group.now)?;
    let materialised = group.materialised_of(tenant).iter().map(|segment| segment.0).collect();
    let made = BuiltAllocation { at: group.now, shares, paces, given_out, materialised };
    if before.is_none() && made == (BuiltAllocation { at: group.now, ..BuiltAllocation::default() }) {
        return Ok(());
    }
    spend::forget_orphan_actions(group.tx, tenant, group.now)?;
    // Edges ignore old paces, so that paces are published even if they did not change.
    let same = before.is_some_and(|before| BuiltAllocation { at: made.at, ..before } == made);
    let news = !same || !made.paces.is_empty();
    store_allocation(group.tx, tenant, made)?;
    if news {
        // Later hand-outs must have a higher version than earlier ones.
        group.next_version();
        crate::outbox::queue::put_key(group, tenant, KvKey::Allocation, group.now)?;
    }
    Ok(())
}

fn compute_paces(
    group: &WriteTxn<'_>,
    campaigns: &CampaignRules,
    tenant: TenantNo,
    before: Option<&BuiltAllocation>,
) -> Result<BTreeMap<u32, BudgetPacer>, StoreError> {
    let made = |(campaign, budget): (&u32, &CampaignBudget)| {
        let (day, day_ends) = spend::billing_day(&budget.time_zone, group.now);
        let spent = spend::load_spend(group.tx, tenant, *campaign, day)?;
        let pacer = before.and_then(|before| before.paces.get(campaign)).copied().unwrap_or_default();
        Ok((*campaign, pacer.next(budget, spent, group.now, day_ends)))
    };
    campaigns.budgets.of(tenant).iter().map(made).collect()
}

/// A campaign with a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BudgetAnswer {
    /// Id of the campaign; null for a code without an id.
    pub campaign: Option<String>,
    /// Whole budget; null without one.
    pub budget_micros: Option<i64>,
    /// Budget per day; null without one.
    pub daily_budget_micros: Option<i64>,
    /// Spend until now.
    pub spent_micros: u64,
    /// Spend on the current day of the campaign's time zone.
    pub spent_today_micros: u64,
    /// Budget that is left now.
    pub left_micros: u64,
    /// End of the current day.
    pub day_ends_ms: u64,
    /// Pacing: calls of a million in which the campaign takes part now; null before the first computation.
    pub pace_ppm: Option<u32>,
}

/// Report of the budgets in a tenant's current catalogue: spent and remaining amounts in micros, and the pace in parts
/// of a million requests.
///
/// # Errors
/// [`StoreError`].
pub fn report_budgets(conn: &Connection, tenant: TenantNo, now: Millis) -> Result<Vec<BudgetAnswer>, StoreError> {
    let made = load_newest(conn, tenant)?;
    let budgets = catalogue::budgets_of_tenant(conn, tenant)?;
    let ids: BTreeMap<u32, String> = catalogue::codes(conn, tenant)?
        .into_iter()
        .filter_map(|((sort, id), code)| (sort == "campaign").then_some((code, id)))
        .collect();
    let row = |(campaign, budget): (&u32, &CampaignBudget)| {
        let (day, day_ends) = spend::billing_day(&budget.time_zone, now);
        let spent = spend::load_spend(conn, tenant, *campaign, day)?;
        let pace = made.as_ref().and_then(|made| Some(made.paces.get(campaign)?.pace.at(made.at, now)));
        Ok(BudgetAnswer {
            campaign: ids.get(campaign).cloned(),
            budget_micros: budget.total.map(Micros::get),
            daily_budget_micros: budget.daily.map(Micros::get),
            spent_micros: spent.ever / 1_000,
            spent_today_micros: spent.today / 1_000,
            left_micros: budget.left(spent) / 1_000,
            day_ends_ms: day_ends,
            pace_ppm: pace,
        })
    };
    budgets.iter().map(row).collect()
}

fn compute_shares(group: &WriteTxn<'_>, campaigns: &CampaignRules, tenant: TenantNo) -> Result<Shares, StoreError> {
    let selecting = |experiment: &&_| {
        let experiment: &causeway_shared::targeting::experiment::Experiment = experiment;
        experiment.selection && experiment.runs(group.now)
    };
    let tested = campaigns.experiments.of(tenant).iter().filter(selecting);
    // Edges know the arms in the order of their codes.
    let shares =
        |of| Ok::<_, StoreError>(results::shares_report(group.tx, tenant, of, group.now)?.into_values().collect());
    tested.map(|of| Ok((of.code, shares(of)?))).collect()
}

fn store_allocation(conn: &Connection, tenant: TenantNo, made: BuiltAllocation) -> Result<(), StoreError> {
    let BuiltAllocation { at, shares, paces, given_out, materialised } = made;
    let value = serde_json::to_string(&StoredAllocation { shares, paces, given_out, materialised }).unwrap_or_default();
    conn.prepare_cached(traffic_allocation::TRAFFIC_ALLOCATION_REPLACE)?.execute((tenant.0, signed(at), value))?;
    Ok(())
}

/// A tenant's newest allocation.
///
/// # Errors
/// [`StoreError`].
pub fn load_newest(conn: &Connection, tenant: TenantNo) -> Result<Option<BuiltAllocation>, StoreError> {
    let mut statement = conn.prepare_cached(traffic_allocation::TRAFFIC_ALLOCATION_OF_TENANT)?;
    let found =
        statement.query_row([tenant.0], |row| Ok((unsigned(row.get(0)?), row.get::<_, String>(1)?))).optional()?;
    let Some((at, value)) = found else { return Ok(None) };
    let StoredAllocation { shares, paces, given_out, materialised } =
        serde_json::from_str(&value).map_err(|_| StoreError::Corrupt { what: "traffic allocation" })?;
    Ok(Some(BuiltAllocation { at, shares, paces, given_out, materialised }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use causeway_shared::base::time::HourStamp;
    use causeway_shared::facts::fact::Fact;
    use causeway_shared::wire::catalogue::decode_allocation;
    use causeway_shared::wire::kv_keys;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{NOW, Origin, exposure, purchase, visitor};

    fn apply(origin: &mut Origin, selection: bool) {
        let arm =
            |id: &str, code: u8, share: u32| json!({ "id": id, "code": code, "share": share, "control": code == 1 });
        let arms = [arm("none", 1, 2_000), arm("a", 2, 3_000), arm("b", 3, 3_000)];
        let document: Value =
            json!({ "experiment": [{ "id": "e", "code": 4, "starts": 0, "selection": selection, "arm": arms }] });
        let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
    }

    /// The shares in the KV after all due keys are written.
    fn shares(origin: &mut Origin, kv: &mut BTreeMap<String, String>) -> Option<Vec<u32>> {
        origin.settle(kv);
        let key = kv_keys::allocation_key(&origin.tenant("demo").id);
        let (_, allocation) = decode_allocation(&key, kv.get(&key)?.as_bytes()).unwrap();
        allocation.shares.get(&4).cloned()
    }

    /// 200 people of an arm, of which `buy` buy.
    fn people(from: u32, arm: u8, buy: u32) -> Vec<Fact> {
        let exposed = (from..from + 200).map(|n| exposure(visitor(n), n, NOW, 4, arm));
        exposed.chain((from..from + buy).map(|n| purchase(visitor(n), n + 1_000, NOW + 1, 5))).collect()
    }

    #[test]
    fn each_minute_the_shares_follow_the_conversions_and_the_controls_share_stays() {
        let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
        apply(&mut origin, false);
        assert_eq!(shares(&mut origin, &mut kv), None, "nothing to allocate");
        apply(&mut origin, true);
        assert_eq!(shares(&mut origin, &mut kv).unwrap(), [2_000, 3_000, 3_000]);
        origin.send("demo", &[people(1, 2, 40), people(201, 3, 4), people(401, 1, 20)].concat());
        let moved = shares(&mut origin, &mut kv).unwrap();
        let [2_000, best, worst] = moved[..] else { unreachable!("{moved:?}") };
        assert!(best > 5_900 && worst >= 30 && best + worst == 6_000, "{moved:?}");
        apply(&mut origin, false);
        assert_eq!(shares(&mut origin, &mut kv), None, "every arm has the share of its file again");
    }

    #[test]
    fn conversion_delays_come_from_the_last_ninety_days() {
        let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
        apply(&mut origin, true);
        origin.send("demo", &[people(1, 2, 40), people(201, 3, 4), people(401, 1, 20)].concat());
        let moved = shares(&mut origin, &mut kv);
        let add = |origin: &Origin, days_ago: u64| {
            let hour = HourStamp::at(origin.now - days_ago * 86_400_000).0;
            let add = "INSERT INTO experiment_delays VALUES (?1, 4, ?2, 719, 1000000)";
            origin.conn.execute(add, (origin.tenant("demo").no.0, hour)).unwrap();
        };
        add(&origin, 91);
        origin.now += DUE_MS;
        assert_eq!(shares(&mut origin, &mut kv), moved, "older exposures do not count");
        add(&origin, 89);
        origin.now += DUE_MS;
        assert_ne!(shares(&mut origin, &mut kv), moved);
    }

    #[test]
    fn shares_are_computed_once_a_minute_and_published_only_if_they_changed() {
        let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
        apply(&mut origin, true);
        shares(&mut origin, &mut kv);
        let made = |origin: &Origin| load_newest(&origin.conn, origin.tenant("demo").no).unwrap().unwrap().at;
        let first = made(&origin);
        origin.now = first + DUE_MS - 1;
        assert_eq!((origin.drain(10).len(), made(&origin)), (0, first));
        origin.now = first + DUE_MS;
        assert_eq!((origin.drain(10).len(), made(&origin)), (0, origin.now));
        origin.now = first - 1;
        origin.drain(10);
        assert_eq!(made(&origin), origin.now, "the clock went back");
    }
}
