//! Experiments: a browser stays in the arm that it saw first and reports its exposure once. After the world has
//! converged, the sums of each arm match the model: each person counts once, with the purchases after its exposure.

use std::collections::{BTreeMap, BTreeSet};

use causeway_edge::HttpAnswer;
use causeway_origin::campaigns::experiment::person_results::{self, mixed_arm};
use causeway_shared::base::ids::{Millis, TenantId, VisitorId};
use causeway_shared::facts::exposures::Exposures;
use causeway_shared::facts::fact::{FactKind, PURCHASE};
use serde_json::Value;

use crate::browser::Kind;
use crate::edge::Call;
use crate::model::Model;
use crate::setup::{self, ARMS, EXPERIMENT};
use crate::sync::facts_of_answer;
use crate::world::World;

/// Checks that an answer keeps to the arm that the request's own ledger and snapshot name.
#[must_use]
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    if call.asked.kind != Kind::Decide {
        return Vec::new();
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let Some(visitor) = body["visitor"].as_str().and_then(|text| text.parse::<VisitorId>().ok()) else {
        return Vec::new();
    };
    // The edge may use a newer snapshot that it read earlier; after a restore, that one may know less.
    let instead = body["degraded"].as_array().into_iter().flatten().any(|note| note == "snapshot_older");
    let Some(known) = known(call, visitor).get(EXPERIMENT).filter(|_| !instead) else { return Vec::new() };
    let mut found = Vec::new();
    for fact in facts_of_answer(answer) {
        if fact.what == (FactKind::Exposure { experiment: EXPERIMENT, arm: known.arm }) && fact.visitor == visitor {
            found.push(format!("{visitor} reports its exposure to the arm {} again", known.arm));
        }
    }
    // The visitor's person, or a newer snapshot that the edge read earlier, may name another arm.
    let alone = super::people::counted(&body).len() == 1 && body["degraded"].is_null();
    for decision in body["decisions"].as_array().into_iter().flatten().filter(|_| alone) {
        let arm = decision["ad"]["experiment"]["arm"].as_str();
        if let Some((_, other)) = ARMS.iter().find(|(id, _)| Some(*id) == arm).filter(|(_, code)| *code != known.arm) {
            found.push(format!("{visitor} of the arm {} sees an ad of the arm {other}", known.arm));
        }
    }
    found
}

/// The exposures of the visitor itself that a request knows.
fn known(call: &Call, visitor: VisitorId) -> Exposures {
    let ledger = super::people::ledger(call).filter(|ledger| ledger.visitor == visitor);
    let of_ledger = ledger.map(|ledger| ledger.exposed).unwrap_or_default();
    let own = call.given.iter().filter(|snapshot| snapshot.visitor == visitor).max_by_key(|snapshot| snapshot.version);
    // A sibling's snapshot from after a restore replaces the visitor's own, and may know less.
    let naming = call.given.iter().filter(|snapshot| snapshot.profiles.contains_key(&visitor));
    let last_restore = naming.map(|snapshot| snapshot.version.restore).max();
    let newest = own
        .filter(|snapshot| Some(snapshot.version.restore) == last_restore)
        .and_then(|snapshot| snapshot.profiles.get(&visitor));
    newest.map(|sub| sub.exposures()).unwrap_or_default().join(of_ledger)
}

/// By arm: people exposed, people with a purchase, number of purchases, their value in micros.
type Sums = BTreeMap<i64, [i64; 4]>;

/// Compares the sums in the store with the model.
pub fn converged(world: &mut World) -> Vec<String> {
    let World { origin, model, .. } = world;
    let Some((conn, rules)) = origin.store() else { return vec!["the origin is down".to_owned()] };
    let mut found = Vec::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let Some(known) = rules.tenants.by_name(tenant.as_str()) else { continue };
        let read = person_results::load_sums(conn, known.no, EXPERIMENT).unwrap_or_default();
        let sum = |hours: &BTreeMap<_, person_results::HourSums>| {
            let all = hours.values().fold(person_results::HourSums::default(), |sum, hour| sum.plus(1, *hour));
            [all.exposed, all.cohort_converted, all.cohort_conversions, all.cohort_revenue.get()]
        };
        // For an event that was sent again, the order of purchase and exposure is not known.
        if !model.knows_purchases(&tenant) {
            continue;
        }
        let stored: Sums = read.iter().map(|(arm, hours)| (*arm, sum(hours))).collect();
        let expected = expected(model, &tenant);
        if stored != expected {
            found.push(format!("the store has {stored:?} for the arms of {tenant}; the model has {expected:?}"));
        }
    }
    found
}

fn expected(model: &Model, tenant: &TenantId) -> Sums {
    let mut sums = Sums::new();
    for person in model.people(tenant, &model.same_ids(tenant)) {
        let facts = model.of_person(tenant, &person);
        let exposures = facts.iter().filter_map(|fact| match fact.what {
            FactKind::Exposure { experiment: EXPERIMENT, arm } => Some((fact.received, arm)),
            _ => None,
        });
        let seen: BTreeSet<(Millis, u8)> = exposures.collect();
        let Some((at, arm)) = seen.first().copied() else { continue };
        if seen.iter().any(|(_, other)| *other != arm) {
            sums.entry(mixed_arm(arm)).or_default()[0] += 1;
            continue;
        }
        // Only a purchase after the exposure is a conversion.
        let bought = facts.iter().filter(|fact| fact.at.min(fact.received) >= at).filter_map(|fact| match &fact.what {
            FactKind::Track { name, value, .. } if name == PURCHASE => Some(value.unwrap_or_default().get()),
            _ => None,
        });
        let bought: Vec<i64> = bought.collect();
        let [exposed, converted, conversions, revenue] = sums.entry(arm.into()).or_default();
        *exposed += 1;
        *converted += i64::from(!bought.is_empty());
        *conversions += i64::try_from(bought.len()).unwrap_or(i64::MAX);
        *revenue += bought.iter().sum::<i64>();
    }
    sums
}
