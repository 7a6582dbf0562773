//! The amount that a campaign has spent matches the counted impressions, each once, anonymous impressions included.

use std::collections::BTreeMap;

use causeway_origin::campaigns::spend;
use causeway_shared::base::ids::TenantId;
use causeway_shared::facts::actions::ActionType;
use causeway_shared::facts::fact::FactKind;

use crate::setup::PAID;
use crate::world::World;

/// Compares spend with the model, after the model holds what the store holds.
pub fn converged(world: &mut World) -> Vec<String> {
    let World { origin, model, plan, .. } = world;
    let Some((conn, rules)) = origin.store() else { return vec!["the origin is down".to_owned()] };
    let (campaign, price) = PAID;
    let mut counted: BTreeMap<&TenantId, u64> = BTreeMap::new();
    for (tenant, record) in model.facts() {
        let counts = matches!(record.fact.what, FactKind::Action { action_type: ActionType::IMPRESSION, entity, .. } if entity.campaign == campaign);
        let erased = model.erased.contains(&(tenant.clone(), record.fact.visitor));
        *counted.entry(tenant).or_default() += u64::from(counts && !erased);
    }
    let mut found = Vec::new();
    for (tenant, counted) in counted {
        let Some(known) = rules.tenants.by_name(tenant.as_str()) else { continue };
        let spent = spend::load_spend(conn, known.no, campaign, 0).unwrap_or_default().ever / price;
        // Spend is not taken back when a visitor is erased, or when a restore loses the impression.
        let fits = if plan.erasures || plan.restore { spent >= counted } else { spent == counted };
        if !fits {
            found.push(format!("{tenant}'s campaign has paid for {spent} impressions; the model has {counted}"));
        }
    }
    found
}
