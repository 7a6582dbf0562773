//! Spend of campaigns with budgets. Each event is billed once, when its fact is folded, on a day in the campaign's time
//! zone. Merges, unlinks and erasures refund nothing. A purchase without a paying click waits for a day, because the
//! click may arrive later.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ads::budget::{BillingEvent, CampaignBudget, CampaignSpend, Nanos};
use causeway_shared::ads::catalogue::Bid;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::planted::{self, PlantedBug};
use causeway_shared::base::time::{DAY_MINUTES, Day, Minute};
use causeway_shared::facts::actions::{ActionType, AdAction, AdEntity};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use rusqlite::Connection;

use crate::base::integers::{signed, unsigned};
use crate::base::time_zones;
use crate::campaigns::catalogue::CurrentBudgets;
use crate::identity::changes::LinkChanges;
use crate::profiles::buckets::{self, packed_actions};
use crate::profiles::dedup;
use crate::profiles::purchases::{self, Purchase};
use crate::store::tables::{anonymous_facts, spend, visitors};
use crate::store::write_txn::WriteTxn;
use crate::store::{StoreError, TenantNo, VisitorRow};

/// Day number of the row with the sum over all days.
const EVER: i64 = -1;

/// Time of a click and the campaign of its ad.
type Click = (Minute, u32);

/// Bills of the facts of one transaction.
#[derive(Debug, Default)]
pub struct GroupBills {
    spent: BTreeMap<(TenantNo, u32, i64), Nanos>,
    /// Purchases of the transaction, each with its last click as found before linking.
    bought: Vec<(TenantNo, Purchase, Option<Click>)>,
    /// Waiting purchases that a click of the transaction may pay for, by visitor and id, in the same form.
    waiting: BTreeMap<(VisitorRow, i64), (TenantNo, Purchase, Option<Click>)>,
    /// Clicks of campaigns that pay for purchases: tenant, visitor, minute.
    clicked: BTreeSet<(TenantNo, VisitorRow, Minute)>,
    /// Campaign of the last click in each minute, over a visitor's person, on a day and the previous one.
    clicks: BTreeMap<(VisitorRow, Day), BTreeMap<Minute, u32>>,
}

impl GroupBills {
    /// Bills new facts of a visitor, each with the time at which it happened. `visitor` is the visitor's row.
    pub fn add<'f>(
        &mut self,
        budgets: &CurrentBudgets,
        tenant: TenantNo,
        visitor: VisitorRow,
        facts: impl IntoIterator<Item = (Millis, &'f Fact)>,
    ) {
        let budgets = budgets.of(tenant);
        if budgets.is_empty() {
            return;
        }
        let by_purchase = |budget: &CampaignBudget| matches!(budget.bid, Bid::CpaMicros(_) | Bid::SharePpm(_));
        for (happened, fact) in facts {
            let at = Minute::at(happened);
            match &fact.what {
                FactKind::Action { action_type, entity, .. } => {
                    self.action(budgets, tenant, *action_type, *entity, fact.received);
                    if *action_type == ActionType::CLICK && budgets.get(&entity.campaign).is_some_and(by_purchase) {
                        self.clicked.insert((tenant, visitor, at));
                    }
                }
                FactKind::Track { name, value, order, .. } if name == PURCHASE => {
                    let (id, received, value) =
                        (fact.id.short().cast_signed(), fact.received, value.unwrap_or_default());
                    if budgets.values().any(|budget| budget.price(BillingEvent::Purchase(value)) > 0) {
                        self.bought.push((tenant, Purchase { visitor, id, at, received, value, order: *order }, None));
                    }
                }
                _ => {}
            }
        }
    }

    fn action(
        &mut self,
        budgets: &BTreeMap<u32, CampaignBudget>,
        tenant: TenantNo,
        action_type: ActionType,
        of: AdEntity,
        received: Millis,
    ) {
        let billed = match action_type {
            ActionType::IMPRESSION => BillingEvent::Impression,
            ActionType::CLICK => BillingEvent::Click,
            _ => return,
        };
        if let Some(budget) = budgets.get(&of.campaign) {
            self.bill(tenant, budget, billed, received);
        }
    }

    fn bill(&mut self, tenant: TenantNo, budget: &CampaignBudget, billed: BillingEvent, received: Millis) {
        let price = budget.price(billed);
        if price > 0 {
            for day in [billing_day(&budget.time_zone, received).0, EVER] {
                let sum = self.spent.entry((tenant, budget.campaign, day)).or_default();
                *sum = sum.saturating_add(price);
            }
        }
    }

    /// Bills an anonymous action (invariant 10). Returns whether the action is new.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn add_anonymous(
        &mut self,
        group: &WriteTxn<'_>,
        budgets: &CurrentBudgets,
        tenant: TenantNo,
        fact: &Fact,
    ) -> Result<bool, StoreError> {
        let FactKind::Action { action_type, entity, .. } = fact.what else { return Ok(false) };
        let budgets = budgets.of(tenant);
        if !budgets.contains_key(&entity.campaign) {
            // The campaign has no budget, so that there is nothing to bill.
            return Ok(true);
        }
        let row = (tenant.0, dedup::receipt_day(fact.received), fact.id.short().cast_signed());
        let again = planted::is_active(PlantedBug::AnonymousImpressionsCountAgain);
        let new = group.tx.prepare_cached(anonymous_facts::ANONYMOUS_FACTS_INSERT_NEW)?.execute(row)? > 0 || again;
        if new {
            self.action(budgets, tenant, action_type, entity, fact.received);
        }
        Ok(new)
    }

    /// Finds the clicks before purchases as people are before linking, because an erasure or an unlink in this
    /// transaction removes clicks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn before_linking(&mut self, group: &WriteTxn<'_>) -> Result<(), StoreError> {
        let mut bought = std::mem::take(&mut self.bought);
        for (_, purchase, click) in &mut bought {
            *click = self.last_click(group, purchase)?;
        }
        self.bought = bought;
        // A click of this transaction may pay for waiting purchases. Purchases of the transaction see the click anyway.
        for (tenant, visitor, at) in std::mem::take(&mut self.clicked) {
            for row in person_of(group.tx, visitor)? {
                for waiting in purchases::unpaid_purchases(group.tx, row, at, group.now)? {
                    let click = self.last_click(group, &waiting)?;
                    self.waiting.insert((waiting.visitor, waiting.id), (tenant, waiting, click));
                }
            }
        }
        Ok(())
    }

    /// Writes the bills after linking. A purchase is paid for by the campaign of the last click of the whole person
    /// within a day before it, whether the purchase, the click or the login arrives last.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn keep(
        mut self,
        group: &WriteTxn<'_>,
        budgets: &CurrentBudgets,
        linked: &LinkChanges,
    ) -> Result<(), StoreError> {
        if !linked.people.is_empty() {
            self.clicks.clear();
        }
        for (tenant, waiting, before) in std::mem::take(&mut self.waiting).into_values() {
            self.settle(group, budgets, tenant, &waiting, before)?;
        }
        if purchases::any_waits(group.tx)? {
            for change in &linked.people {
                for (tenant, waiting) in purchases::unpaid_of(group.tx, change.person, group.now)? {
                    self.settle(group, budgets, tenant, &waiting, None)?;
                }
            }
        }
        for (tenant, bought, before) in std::mem::take(&mut self.bought) {
            if !self.pay(group, budgets, tenant, &bought, before)? {
                purchases::await_payment(group.tx, &bought, group.now)?;
            }
        }
        let mut put = group.tx.prepare_cached(spend::SPEND_ADD_NANOS)?;
        for ((tenant, campaign, day), nanos) in self.spent {
            put.execute((tenant.0, campaign, day, signed(nanos)))?;
        }
        Ok(())
    }

    /// Bills a waiting purchase if a campaign pays for it, and ends its wait.
    fn settle(
        &mut self,
        group: &WriteTxn<'_>,
        budgets: &CurrentBudgets,
        tenant: TenantNo,
        waiting: &Purchase,
        before: Option<Click>,
    ) -> Result<(), StoreError> {
        if self.pay(group, budgets, tenant, waiting, before)? {
            purchases::mark_paid(group.tx, waiting)
        } else {
            Ok(())
        }
    }

    /// Bills a purchase to the campaign of the last click, with people as they are now or as they were `before`.
    /// Returns whether the purchase is settled: a campaign pays, or it repeats an order of its person that was paid
    /// for.
    fn pay(
        &mut self,
        group: &WriteTxn<'_>,
        budgets: &CurrentBudgets,
        tenant: TenantNo,
        bought: &Purchase,
        before: Option<Click>,
    ) -> Result<bool, StoreError> {
        if let Some(order) = bought.order
            && purchases::is_paid(group.tx, person_of(group.tx, bought.visitor)?, order)?
        {
            return Ok(true);
        }
        let now = self.last_click(group, bought)?;
        let last = [before, now].into_iter().flatten().max_by_key(|(minute, _)| *minute);
        let budget = last.and_then(|(_, campaign)| budgets.of(tenant).get(&campaign));
        let billed = BillingEvent::Purchase(bought.value);
        let Some(budget) = budget.filter(|budget| budget.price(billed) > 0) else { return Ok(false) };
        self.bill(tenant, budget, billed, bought.received);
        purchases::note_paid(group.tx, bought)?;
        Ok(true)
    }

    /// The last click of a purchase's person within a day before it.
    fn last_click(&mut self, group: &WriteTxn<'_>, bought: &Purchase) -> Result<Option<Click>, StoreError> {
        let day = bought.at.day();
        let clicks = match self.clicks.entry((bought.visitor, day)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(load_clicks(group.tx, bought.visitor, day)?),
        };
        let within = Minute(bought.at.0.saturating_sub(DAY_MINUTES))..=bought.at;
        Ok(clicks.range(within).next_back().map(|(minute, campaign)| (*minute, *campaign)))
    }
}

/// Rows of a visitor and of the most recently seen visitors of its person.
fn person_of(conn: &Connection, visitor: VisitorRow) -> Result<BTreeSet<VisitorRow>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_ROWS_OF_SAME_PERSON)?;
    let rows = statement.query_map((visitor, limits::SNAPSHOT_VISITORS as i64), |row| row.get(0))?;
    Ok(rows.chain([Ok(visitor)]).collect::<Result<_, _>>()?)
}

fn load_clicks(conn: &Connection, visitor: VisitorRow, day: Day) -> Result<BTreeMap<Minute, u32>, StoreError> {
    let from = Minute(day.start().0.saturating_sub(DAY_MINUTES));
    let to = Minute(day.start().0.saturating_add(DAY_MINUTES));
    let mut last: BTreeMap<Minute, AdAction> = BTreeMap::new();
    for row in person_of(conn, visitor)? {
        // The row may belong to another visitor of the person. Unreadable actions must not block the purchase.
        let found = match clicks_of(conn, row, from, to) {
            Err(e) if e.is_of_a_value() => {
                tracing::error!(row = row.number(), error = %crate::base::error_chain(&e), "actions of a visitor cannot be read and are left out of the billing of purchases");
                continue;
            }
            found => found?,
        };
        for click in found {
            let known = last.entry(click.minute).or_insert(click);
            *known = std::cmp::max_by_key(*known, click, |click| (click.insertion, click.entity.ad));
        }
    }
    Ok(last.into_iter().map(|(minute, click)| (minute, click.entity.campaign)).collect())
}

fn clicks_of(conn: &Connection, row: VisitorRow, from: Minute, to: Minute) -> Result<Vec<AdAction>, StoreError> {
    let mut clicks = Vec::new();
    for body in buckets::actions_within(conn, row, from, to)? {
        clicks.extend(packed_actions(&body)?.iter().filter(|action| action.action_type == ActionType::CLICK));
    }
    Ok(clicks)
}

/// Day of a time in a time zone, in days since 1970, and the end of that day.
#[must_use]
pub fn billing_day(time_zone: &str, now: Millis) -> (i64, Millis) {
    let zone = time_zones::find_zone(time_zone).unwrap_or(TimeZone::UTC);
    let now = Timestamp::from_millisecond(signed(now)).unwrap_or(Timestamp::MAX).to_zoned(zone);
    let since = civil::date(1970, 1, 1).until(now.date()).map_or(0, |span| i64::from(span.get_days()));
    let ends = now.tomorrow().and_then(|next| next.start_of_day());
    (since, ends.map_or(Millis::MAX, |ends| unsigned(ends.timestamp().as_millisecond())))
}

/// Spend of a campaign on a day and in total.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn load_spend(conn: &Connection, tenant: TenantNo, campaign: u32, day: i64) -> Result<CampaignSpend, StoreError> {
    let mut spent = CampaignSpend::default();
    let mut statement = conn.prepare_cached(spend::SPEND_OF_DAY_AND_TOTAL)?;
    let mut rows = statement.query((tenant.0, campaign, day))?;
    while let Some(row) = rows.next()? {
        let nanos = unsigned(row.get(1)?);
        if row.get::<_, i64>(0)? == EVER { spent.ever = nanos } else { spent.today = nanos }
    }
    Ok(spent)
}

/// Deletes some of the anonymous actions that no accepted fact can repeat any more. Returns their number.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn forget_orphan_actions(conn: &Connection, tenant: TenantNo, now: Millis) -> Result<usize, StoreError> {
    Ok(conn
        .prepare_cached(anonymous_facts::ANONYMOUS_FACTS_DELETE_SOME_BEFORE)?
        .execute((tenant.0, dedup::oldest_day(now)))?)
}

#[cfg(test)]
mod tests;
