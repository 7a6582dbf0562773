//! Explains a decision offline: the edge's own engine answers a page view of a visitor, and reads the values that would
//! be published now instead of the KV. Nothing is counted or written.

use std::collections::BTreeMap;

use causeway_edge::{Engine, EngineStep, HttpAnswer};
use causeway_shared::base::ids::{AltHash, KindCode, Millis, VisitorId};
use causeway_shared::identity::IdentityCookie;
use causeway_shared::keys::cookie::{self, CookieNames, IDENTITY};
use causeway_shared::keys::key_ring::KeySet;
use causeway_shared::settings::config::{EdgeConfig, NoSignal};
use causeway_shared::wire::catalogue as forms;
use causeway_shared::wire::{self, kv_keys};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::campaigns::catalogue;
use crate::kv::value;
use crate::kv::value_error::ValueError;
use crate::outbox::kv_key::KvKey;
use crate::store::StoreCounters;
use crate::store::tenants::TenantContext;

/// Explain token with which this process requests its own trace.
const EXPLAIN: &str = "explained offline";

/// The decision to explain.
#[derive(Debug, Clone)]
pub struct ExplainRequest {
    /// The visitor of the page view.
    pub visitor: VisitorId,
    /// Body of the call, as a page sends it; `explain` and `page_view` are set here.
    pub body: Value,
    /// Location as the platform reports it: country and region, separated by a space; empty if unknown.
    pub place: String,
    /// The browser's `User-Agent`.
    pub agent: String,
    /// Time of the page view.
    pub now: Millis,
}

/// The reason why a decision cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// A value cannot be built.
    #[error("the value of `{0}` cannot be built")]
    Value(String, #[source] ValueError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// The edge's part of the configuration cannot be used.
    #[error("the edge cannot use the configuration: {0}")]
    Configuration(String),
    /// The edge refused the call.
    #[error("the edge refuses the call: {0}")]
    Refused(String),
}

/// The answer, with its trace, of an edge that knows everything in the store.
///
/// # Errors
/// [`ExplainError`].
pub fn explain_decision(
    conn: &Connection,
    edge: &EdgeConfig,
    keys: &KeySet,
    tenant: &TenantContext,
    ask: &ExplainRequest,
) -> Result<Value, ExplainError> {
    let (mut edge, mut keys) = (edge.clone(), keys.clone());
    keys.explain = Some(EXPLAIN.to_owned());
    keys.tenants.values_mut().for_each(|own| own.explain = None);
    // The page decides about permission; the explanation assumes that it is given.
    edge.tenants.iter_mut().for_each(|tenant| tenant.no_signal = NoSignal::Allow);
    let host = tenant.config.hosts.first().cloned().unwrap_or_default();
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let mut engine = Engine::configure(&text(serde_json::to_string(&edge)), &text(serde_json::to_string(&keys)))
        .map_err(|e| ExplainError::Configuration(e.to_string()))?;
    let mut body = ask.body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.extend([("explain".to_owned(), Value::from(true)), ("page_view".to_owned(), Value::from(false))]);
    }
    // The head has one line for each of these values.
    let [place, agent] = [&ask.place, &ask.agent].map(|text| text.replace(char::is_control, " "));
    let head =
        format!("POST {place}\nhttps://{host}/v1/decide\n{}\n\n\n\n{agent}\n{EXPLAIN}\n", visitor_cookie(tenant, ask));
    let step = engine.begin(&head, body.to_string().as_bytes(), ask.now, [0; 32]);
    let answer = answer_from_store(conn, tenant, ask, &mut engine, step)?;
    match serde_json::from_slice(&answer.body) {
        Ok(explained) if answer.status == 200 => Ok(explained),
        _ => Err(ExplainError::Refused(String::from_utf8_lossy(&answer.body).into_owned())),
    }
}

/// Continues a request to its answer. Each read gets the values that would be published now. No object is called, so
/// ads under strict caps stay unconfirmed.
fn answer_from_store(
    conn: &Connection,
    tenant: &TenantContext,
    ask: &ExplainRequest,
    engine: &mut Engine,
    mut step: EngineStep,
) -> Result<HttpAnswer, ExplainError> {
    loop {
        step = match step {
            EngineStep::Read(read) => {
                let values = read.keys.iter().map(|key| build_value(conn, tenant, key, ask));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                engine.resume_read(read.pending, &Ok(values))
            }
            EngineStep::Call(pending, _) => engine.resume_call(pending, None),
            EngineStep::Answer(answer) => return Ok(answer),
            EngineStep::Unserved(reason) => return Err(ExplainError::Refused(reason.name().to_owned())),
            EngineStep::Page(page) => return Err(ExplainError::Refused(format!("{page:?} is no decision"))),
        };
    }
}

/// Identity cookie of a browser, written an hour ago.
fn visitor_cookie(tenant: &TenantContext, ExplainRequest { visitor, now, .. }: &ExplainRequest) -> String {
    let cookie = IdentityCookie {
        visitor: *visitor,
        written: now.saturating_sub(3_600_000),
        tag: None,
        covered: Vec::new(),
        earlier: Vec::new(),
        pending: Vec::new(),
        login: None,
    };
    let payload = wire::cookies::encode_identity(&cookie);
    let sealed = cookie::seal_cookie(&tenant.keys.cookie, IDENTITY, &tenant.id, &payload).unwrap_or_default();
    format!("{}={sealed}", CookieNames::of(&tenant.config).identity)
}

/// The value that would be published under a key now; `None` if the key would have no value.
fn build_value(
    conn: &Connection,
    tenant: &TenantContext,
    key: &str,
    ask: &ExplainRequest,
) -> Result<Option<Vec<u8>>, ExplainError> {
    let Some(subject) = parse_key(tenant, key) else { return Ok(None) };
    let version = StoreCounters::load(conn)?.version();
    let value = if subject == KvKey::Pointer {
        // The KV may not have the catalogue version of the pointer yet.
        let pointer = catalogue::pointer_to_be(conn, tenant.no, version)?;
        pointer.map(|pointer| forms::encode_pointer(key, &pointer))
    } else {
        let built = value::build(conn, tenant, subject, version, ask.now);
        built.map_err(|error| ExplainError::Value(key.to_owned(), error))?.value
    };
    Ok(value.map(String::into_bytes))
}

/// The subject of a key; `None` if the key is not of this tenant's forms.
fn parse_key(tenant: &TenantContext, key: &str) -> Option<KvKey> {
    let id = &tenant.id;
    let [current, model, allocation] = kv_keys::standing_keys(id);
    let fixed = [(current, KvKey::Pointer), (model, KvKey::Model), (allocation, KvKey::Allocation)];
    if let Some((_, subject)) = fixed.into_iter().find(|(known, _)| known == key) {
        return Some(subject);
    }
    let mut parts = key.split(':').skip(2);
    match (key.split(':').next()?, parts.next()?, parts.next()) {
        ("v", visitor, None) => Some(KvKey::Snapshot(visitor.parse().ok()?)),
        ("c", "attributes", Some(page)) => Some(KvKey::Names(page.parse().ok()?)),
        ("c", number, None) => Some(KvKey::Catalogue(number.parse().ok()?)),
        ("a", kind, Some(hash)) => {
            let bytes = u128::from_str_radix(hash, 16).ok()?.to_be_bytes();
            Some(KvKey::Lookup(KindCode(kind.parse().ok()?), AltHash(bytes)))
        }
        _ => None,
    }
}

/// Differences between a live and an offline answer: placement, ad (`-` for the answer as a whole), and both outcomes.
#[must_use]
pub fn answer_differences(live: &Value, offline: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    let mut say = |placement: &str, ad: &str, live: &Value, offline: &Value| {
        if live != offline {
            found.push(json!({ "placement": placement, "ad": ad, "live": live, "offline": offline }));
        }
    };
    say("-", "catalogue", &live["catalogue"], &offline["catalogue"]);
    say("-", "visitors", &live["trace"]["person"]["visitors"], &offline["trace"]["person"]["visitors"]);
    let (here, there) = (answer_outcomes(live), answer_outcomes(offline));
    let places: std::collections::BTreeSet<_> = here.keys().chain(there.keys()).collect();
    for place @ (placement, ad) in places {
        let outcome = |of: &BTreeMap<_, Value>| of.get(place).cloned().unwrap_or_default();
        say(placement, ad, &outcome(&here), &outcome(&there));
    }
    found
}

/// The outcome of each ad of each placement in a trace.
fn answer_outcomes(answer: &Value) -> BTreeMap<(String, String), Value> {
    let placements = answer["trace"]["placements"].as_array().into_iter().flatten();
    let each = placements.flat_map(|placement| {
        let name = placement["placement"].as_str().unwrap_or_default().to_owned();
        let candidates = placement["candidates"].as_array().into_iter().flatten();
        candidates.map(move |one| {
            let ad = one["ad"].as_str().unwrap_or_default().to_owned();
            ((name.clone(), ad), one["outcome"].clone())
        })
    });
    each.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, exposure, fact, visitor};
    use causeway_shared::base::ids::InsertionId;
    use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
    use causeway_shared::facts::fact::FactKind;

    fn explained(origin: &Origin, visitor: VisitorId, body: Value) -> Result<Value, ExplainError> {
        explained_from(origin, visitor, body, "")
    }

    fn explained_from(origin: &Origin, visitor: VisitorId, body: Value, place: &str) -> Result<Value, ExplainError> {
        let (place, agent) = (place.to_owned(), "Mozilla/5.0".to_owned());
        let ask = ExplainRequest { visitor, body, place, agent, now: NOW + 3_600_000 };
        explain_decision(&origin.conn, &origin.edge, &origin.keys, origin.tenant("demo"), &ask)
    }

    /// A sibling's impression counts for a cap, its exposure fixes an arm, and no object is called for a strict ad.
    #[test]
    fn an_offline_decision_uses_all_that_the_store_knows_of_the_person() {
        let mut origin = Origin::new();
        let cap = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
        let ad = |id: &str, code: u32| json!({ "id": id, "code": code, "ad_group": id, "creative": {}, "landing": "https://a.example/" });
        let campaign = |id: &str, code: u32| json!({ "id": id, "code": code, "advertiser": "shop" });
        let group = |id: &str, code: u32| json!({ "id": id, "code": code, "campaign": id });
        let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 5_000 });
        let mut document = json!({
            "advertiser": [{ "id": "shop", "code": 1 }],
            "campaign": [campaign("once", 1), campaign("sure", 2), campaign("tested", 3)],
            "ad_group": [group("once", 1), group("sure", 2), group("tested", 3)],
            "ad": [ad("once", 1), ad("sure", 2), ad("tested", 3)],
            "experiment": [{ "id": "e", "code": 1, "starts": 0, "arm": [arm("a", 1), arm("b", 2)] }],
        });
        document["campaign"][0]["caps"] = cap.clone();
        (document["campaign"][1]["caps"], document["campaign"][1]["cap_mode"]) = (cap, json!("strict"));
        document["ad"][2]["arm"] = json!("e/b");
        let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
        let entity = AdEntity { ad: 1, ad_group: 1, campaign: 1, advertiser: 1 };
        let seen = FactKind::Action {
            insertion: InsertionId([7; 16]),
            action_type: ActionType::IMPRESSION,
            view_type: ViewType(0),
            entity,
        };
        let logins = [origin.login(visitor(1), 1, NOW, "ann"), origin.login(visitor(2), 2, NOW, "ann")];
        let facts = [fact(visitor(2), 3, NOW, seen), exposure(visitor(2), 4, NOW, 1, 2)];
        origin.send("demo", &[logins.as_slice(), &facts].concat());
        origin.settle(&mut BTreeMap::new());
        let answer = explained(&origin, visitor(1), json!({ "placements": [{ "id": "top" }] })).unwrap();
        let outcome = |ad: &str| answer_outcomes(&answer)[&("top".to_owned(), ad.to_owned())].clone();
        assert_eq!(["once", "sure", "tested"].map(outcome), ["capped", "unconfirmed", "won"]);
        assert_eq!(answer["decisions"][0]["ad"]["experiment"]["arm"], "b");
        assert_eq!((&answer["person"]["devices"], &answer["catalogue"]), (&json!(2), &json!("c-1")));
        assert_eq!(answer_differences(&answer, &answer), [] as [Value; 0]);
        let mut live = answer.clone();
        live["trace"]["placements"][0]["candidates"][0]["outcome"] = json!("won");
        live["catalogue"] = json!("c-9");
        let found = answer_differences(&live, &answer);
        assert_eq!(found[0], json!({ "placement": "-", "ad": "catalogue", "live": "c-9", "offline": "c-1" }));
        assert_eq!(found[1], json!({ "placement": "top", "ad": "once", "live": "won", "offline": "capped" }));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn an_offline_decision_takes_geo_and_floor_price_like_a_page() {
        let mut origin = Origin::new();
        let mut document = json!({
            "advertiser": [{ "id": "shop", "code": 1 }],
            "campaign": [{ "id": "here", "code": 1, "advertiser": "shop", "bid": { "cpm_micros": 5_000_000 } }],
            "ad_group": [{ "id": "here", "code": 1, "campaign": "here" }],
            "ad": [{ "id": "here", "code": 1, "ad_group": "here", "creative": {}, "landing": "https://a.example/" }],
        });
        document["ad_group"][0]["targeting"] = json!({ "geo.country": "DE", "geo.region": "BE" });
        let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
        // The KV has no value of it yet.
        let outcome = |floor: u64, place: &str| {
            let body = json!({ "placements": [{ "id": "top", "floor_micros": floor }] });
            let answer = explained_from(&origin, visitor(1), body, place).unwrap();
            answer_outcomes(&answer)[&("top".to_owned(), "here".to_owned())].clone()
        };
        let asked = [(0, ""), (0, "DE BY"), (5_000_000, "DE BE"), (5_000_001, "DE BE")];
        assert_eq!(asked.map(|(floor, place)| outcome(floor, place)), ["targeting", "targeting", "won", "floor"]);
    }

    #[test]
    fn a_call_that_the_edge_refuses_is_not_explained_and_a_visitor_of_whom_nothing_is_known_is() {
        let origin = Origin::new();
        let refused = explained(&origin, visitor(1), json!(7)).unwrap_err().to_string();
        assert!(refused.contains("malformed"), "{refused}");
        let answer = explained(&origin, visitor(1), json!({ "placements": [{ "id": "top" }] })).unwrap();
        assert_eq!((&answer["catalogue"], &answer["decisions"][0]["reason"]), (&Value::Null, &json!("no_catalogue")));
    }
}
