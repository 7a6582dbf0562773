//! Limited offers: a number goes to one visitor and no other, and there are no more of them than recipients; only the
//! person of that visitor sees it. And once the world has converged, the store has the units and the people of the model.

use std::collections::{BTreeMap, BTreeSet};

use causeway_edge::HttpAnswer;
use causeway_origin::campaigns::offers;
use causeway_shared::base::ids::{TenantId, VisitorId};
use causeway_shared::facts::fact::FactKind;
use serde_json::Value;

use crate::browser::Kind;
use crate::edge::Call;
use crate::model::Model;
use crate::setup::{self, OFFER};
use crate::sync::facts_of_answer;
use crate::world::World;

/// The visitors that got units, by tenant and number.
#[derive(Debug, Default)]
pub struct Units {
    holders: BTreeMap<(usize, u32), VisitorId>,
}

impl Units {
    /// Looks at an answer, and remembers it.
    pub fn emitted(&mut self, call: &Call, answer: &HttpAnswer) -> Vec<String> {
        let (campaign, recipients) = OFFER;
        let mut found = Vec::new();
        for fact in facts_of_answer(answer) {
            let FactKind::Unit { campaign: of, number } = fact.what else { continue };
            let holder = *self.holders.entry((call.tenant, number)).or_insert(fact.visitor);
            if of != campaign || number >= recipients {
                found.push(format!("{} got the number {number} of campaign {of}: there is none", fact.visitor));
            }
            if holder != fact.visitor {
                found.push(format!("the number {number} was {holder}'s, and is {}'s too", fact.visitor));
            }
        }
        if call.asked.kind != Kind::Decide {
            return found;
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let members = super::people::counted(&body);
        let offers = body["decisions"].as_array().into_iter().flatten().filter(|one| one["ad"]["id"] == "offer");
        for decision in offers {
            let number = decision["ad"]["unit"].as_u64().and_then(|number| u32::try_from(number).ok());
            let holder = number.and_then(|number| self.holders.get(&(call.tenant, number)));
            // One whose call ended with its isolate has not told yet.
            if number.is_none() || holder.is_some_and(|holder| !members.contains(holder)) {
                found.push(format!("{} sees the number {number:?} of {holder:?}", body["visitor"]));
            }
        }
        found
    }
}

/// Compares units and people with the model, once that holds what the store holds.
pub fn converged(world: &mut World) -> Vec<String> {
    let World { origin, model, .. } = world;
    let Some((conn, rules)) = origin.store() else { return vec!["the origin is down".to_owned()] };
    let mut found = Vec::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let Some(known) = rules.tenants.by_name(tenant.as_str()) else { continue };
        let report = offers::report_offers(conn, known.no).unwrap_or_default();
        // Nobody came to this publisher, or its catalogue was never applied.
        let Some(of) = report.first() else { continue };
        let [given, people, several] = ["given", "people", "with_several"].map(|name| of[name].as_u64().unwrap_or(0));
        let numbers = people_of(model, &tenant);
        let several_numbers = numbers.iter().filter(|numbers| numbers.len() > 1).count() as u64;
        let held: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
        if given < held.len() as u64 || given > u64::from(OFFER.1) {
            found.push(format!("{given} units of {tenant}'s are given; people of the model have {held:?}"));
        }
        // Of a visitor that got two the store keeps the first, and the model both.
        if people != numbers.len() as u64 || several > several_numbers {
            found.push(format!("{people} people of {tenant} have units, {several} several; the model has {numbers:?}"));
        }
    }
    found
}

/// The numbers that each person has which has any.
fn people_of(model: &Model, tenant: &TenantId) -> Vec<BTreeSet<u32>> {
    let people = model.people(tenant, &model.same_ids(tenant)).into_iter();
    let numbers = people.map(|person| {
        let numbers = model.of_person(tenant, &person).into_iter().filter_map(|fact| match fact.what {
            FactKind::Unit { number, .. } => Some(number),
            _ => None,
        });
        numbers.collect::<BTreeSet<u32>>()
    });
    numbers.filter(|numbers| !numbers.is_empty()).collect()
}
