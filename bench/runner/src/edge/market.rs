//! A catalogue for all peers, and a person with a thousand segments and a thousand actions.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::{decide, filters, segments};
use causeway_shared::ads::catalogue::{Catalogue, CompiledCatalogue};
use causeway_shared::ads::decision::{DecidedPerson, DecisionInputs, DescribedPerson, PageDecision, Placement};
use causeway_shared::base::ids::{Millis, SnapshotVersion, TenantId, VisitorId};
use causeway_shared::base::time::{EPOCH_MS, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionList, ViewType};
use causeway_shared::facts::attributes::AttributeMap;
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::profiles::profile::SubContent;
use causeway_shared::profiles::view::{JoinedView, Snapshot};
use causeway_shared::targeting::filter::FilterSubject;
use causeway_shared::wire::catalogue::{CataloguePointer, encode_document, encode_pointer};
use causeway_shared::wire::flat;
use causeway_shared::wire::kv_keys;
use serde_json::{Value, json};

/// The catalogue and the history of the person.
#[derive(Debug)]
pub(crate) struct Market {
    document: Value,
    compiled: CompiledCatalogue,
    actions: ActionList,
}

impl Market {
    /// A market of this number of ads; the person's last action is a few minutes ago.
    pub(crate) fn new(ads: u64, now: Millis) -> Self {
        let document = decide::document(ads);
        let compiled = decide::compiled(&document);
        let later = Minute::at(now).0 - Minute::at(decide::now()).0;
        let shift = |mut action: causeway_shared::facts::actions::AdAction| {
            action.minute = Minute(action.minute.0 + later);
            action
        };
        let actions = decide::actions(&compiled).iter().map(shift).collect();
        Self { document, compiled, actions }
    }

    /// The content of the person's own profile: one in `one_in` of its actions and segments, and all its attributes.
    pub(crate) fn content(&self, content: SubContent, one_in: usize) -> SubContent {
        let mut attributes = AttributeMap::default();
        for (token, value) in filters::attributes() {
            attributes.write(token, WriteStamp { at: 1, order: 1 }, Some(value));
        }
        let actions: ActionList = self.actions.iter().step_by(one_in).collect();
        let segments = segments::pack(segments::held().into_iter().step_by(one_in));
        SubContent { actions: actions.pack_actions(), segments, attributes: attributes.pack(), ..content }
    }

    /// The history in JSON, as a worker in JavaScript would store it.
    pub(crate) fn as_json(&self) -> Value {
        let action = |action: causeway_shared::facts::actions::AdAction| {
            let insertion: String = action.insertion.0.iter().map(|byte| format!("{byte:02x}")).collect();
            json!([insertion, action.action_type.0, action.entity.ad, EPOCH_MS + u64::from(action.minute.0) * 60_000])
        };
        let segment = |(id, expiry): (u32, u32)| json!([id, HourStamp(expiry).start_ms()]);
        let attributes: serde_json::Map<_, _> =
            filters::attributes().map(|(token, value)| (format!("a{}", token.0), value.to_json())).collect();
        json!({
            "actions": self.actions.iter().map(action).collect::<Vec<_>>(),
            "segments": segments::held().into_iter().map(segment).collect::<Vec<_>>(),
            "attributes": attributes,
        })
    }

    /// The KV values of the catalogue, for all peers.
    pub(crate) fn values(&self, tenant: &TenantId) -> Result<HashMap<String, String>> {
        let (key, digest) = (kv_keys::catalogue_key(tenant, 1), [7; 16]);
        let catalogue: Catalogue = serde_json::from_value(self.document.clone())?;
        let flat = catalogue.flat(&filters::names(), &filters::words());
        let flat = flat.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let pointer = CataloguePointer { published: SnapshotVersion::default(), version: 1, digest };
        let current = kv_keys::pointer_key(tenant);
        Ok(HashMap::from([
            (key.clone(), encode_document(&key, &digest, &flat::encode_catalogue(&flat))?),
            (current.clone(), encode_pointer(&current, &pointer)),
            ("json:catalogue".to_owned(), self.document.to_string()),
        ]))
    }

    /// The placements of the page in the form of a call.
    pub(crate) fn placements() -> Value {
        let each = decide::Deciding::placements().into_iter().zip(["top", "middle", "side"]).map(|(placement, id)| {
            let Placement { sizes, view_type: ViewType(code), floor_micros } = placement;
            let word = filters::words().view_types.into_iter().find(|word| word.code == code).map(|word| word.name);
            json!({ "id": id, "sizes": sizes, "view_type": word, "floor_micros": floor_micros })
        });
        each.collect()
    }

    /// The ads that each peer must place, by id.
    pub(crate) fn expected(&self, snapshot: &Snapshot, page: &Value, now: Millis) -> Result<Vec<String>> {
        let own: VisitorId = snapshot.visitor;
        let mut view = JoinedView::default();
        view.add_snapshot(snapshot.clone());
        let counted = view.of(own);
        let described = DescribedPerson::of(&counted, now);
        let person = DecidedPerson { actions: counted.actions(), totals: counted.totals(), ..DecidedPerson::default() };
        let keywords: Vec<&str> = page["keywords"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let subject = FilterSubject {
            person: Some(described.person()),
            url: page["url"].as_str(),
            keywords: &keywords,
            ..FilterSubject::default()
        };
        let placements = decide::Deciding::placements().to_vec();
        let given = DecisionInputs { now, ..DecisionInputs::default() };
        let question = PageDecision::new(&self.compiled, Some(&person), &subject, placements, given);
        let ids = question.decide(None).into_iter().map(|decided| {
            let offer = self.compiled.offers.get(decided.ok()?)?;
            Some(offer.ids.first()?.to_string())
        });
        let ids: Option<Vec<String>> = ids.collect();
        let ids = ids.context("a placement gets no ad")?;
        ensure!(ids.len() == 3, "three placements");
        Ok(ids)
    }
}
