//! Limited offers: an offer code goes to one visitor and no other, there are at most as many codes as recipients, and
//! only the person of that visitor sees the code. After the world has converged, the store has the codes and the people
//! of the model.

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

/// The visitors that hold offer codes, by tenant and number.
#[derive(Debug, Default)]
pub struct OfferCodes {
    holders: BTreeMap<(usize, u32), VisitorId>,
}

impl OfferCodes {
    /// Checks an answer and records the offer codes that it gives out.
    pub fn emitted(&mut self, call: &Call, answer: &HttpAnswer) -> Vec<String> {
        let (campaign, recipients) = OFFER;
        let mut found = Vec::new();
        for fact in facts_of_answer(answer) {
            let FactKind::OfferCode { campaign: of, number } = fact.what else { continue };
            let holder = *self.holders.entry((call.tenant, number)).or_insert(fact.visitor);
            if of != campaign || number >= recipients {
                found.push(format!(
                    "{} got the offer code {number} of campaign {of}, which does not exist",
                    fact.visitor
                ));
            }
            if holder != fact.visitor {
                found.push(format!("the offer code {number} of {holder} was also given to {}", fact.visitor));
            }
        }
        if call.asked.kind != Kind::Decide {
            return found;
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let members = super::people::counted(&body);
        let offers = body["decisions"].as_array().into_iter().flatten().filter(|one| one["ad"]["id"] == "offer");
        for decision in offers {
            let number = decision["ad"]["offer_code"].as_u64().and_then(|number| u32::try_from(number).ok());
            let holder = number.and_then(|number| self.holders.get(&(call.tenant, number)));
            // A holder is unknown as long as the call that got the code has not sent its fact, for example because its
            // isolate ended.
            if number.is_none() || holder.is_some_and(|holder| !members.contains(holder)) {
                found.push(format!("{} sees the offer code {number:?} of {holder:?}", body["visitor"]));
            }
        }
        found
    }
}

/// Compares offer codes and people with the model, after the model holds what the store holds.
pub fn converged(world: &mut World) -> Vec<String> {
    let World { origin, model, .. } = world;
    let Some((conn, rules)) = origin.store() else { return vec!["the origin is down".to_owned()] };
    let mut found = Vec::new();
    for tenant in (0..setup::TENANTS.len()).map(setup::tenant) {
        let Some(known) = rules.tenants.by_name(tenant.as_str()) else { continue };
        let report = offers::report_offers(conn, known.no).unwrap_or_default();
        // The publisher had no visitors, or its catalogue was never applied.
        let Some(of) = report.first() else { continue };
        let given = u64::from(of.given);
        let [people, several] = [of.people, of.with_several].map(i64::unsigned_abs);
        let numbers = people_of(model, &tenant);
        let several_numbers = numbers.iter().filter(|numbers| numbers.len() > 1).count() as u64;
        let held: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
        if given < held.len() as u64 || given > u64::from(OFFER.1) {
            found.push(format!("{tenant} gave {given} offer codes; the people of the model have {held:?}"));
        }
        // If a visitor got two codes, the store has the first one and the model has both.
        if people != numbers.len() as u64 || several > several_numbers {
            found.push(format!(
                "{people} people of {tenant} have offer codes, {several} have several; the model has {numbers:?}"
            ));
        }
    }
    found
}

/// The offer codes of each person that has any.
fn people_of(model: &Model, tenant: &TenantId) -> Vec<BTreeSet<u32>> {
    let people = model.people(tenant, &model.same_ids(tenant)).into_iter();
    let numbers = people.map(|person| {
        let numbers = model.of_person(tenant, &person).into_iter().filter_map(|fact| match fact.what {
            FactKind::OfferCode { number, .. } => Some(number),
            _ => None,
        });
        numbers.collect::<BTreeSet<u32>>()
    });
    numbers.filter(|numbers| !numbers.is_empty()).collect()
}
