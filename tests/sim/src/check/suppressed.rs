//! A visitor in a segment that a campaign excludes is never served that campaign, even if the edge cannot read the
//! visitor's segments. Checked after the world has converged, for every visitor in an excluded segment, at an edge
//! whose KV has lost all snapshots.

use causeway_edge::{Engine, EngineStep};
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::segments::SegmentState;
use serde_json::{Value, json};

use crate::edge;
use crate::kv::Kv;
use crate::setup;
use crate::world::World;

/// Requests a page for every visitor in an excluded segment.
pub fn converged(world: &mut World) -> Vec<String> {
    let mut seen = Vec::new();
    for browser in &world.browsers {
        let Some(cookie) = browser.jar.identity.as_deref() else { continue };
        let Some((visitor, _)) = super::people::tagged(browser.tenant, cookie) else { continue };
        let owner = (setup::tenant(browser.tenant), visitor);
        let now = world.now;
        let is_held =
            |state: &SegmentState| matches!(state, SegmentState::Held { expiry, .. } if *expiry > HourStamp::at(now));
        let held = world.model.held_segments(&owner, is_held);
        if !held.iter().any(|id| setup::EXCLUDED.contains(id)) {
            continue;
        }
        let body = page_without_snapshots(&world.kv, &mut edge::engine(world.stage), browser.tenant, cookie, now);
        let is_visitor = body["visitor"] == visitor.to_string();
        if is_visitor && body["decisions"][0]["ad"]["id"] == "exclusive" {
            seen.push(format!("a suppressed person was served: {visitor} is in {held:?}"));
        }
    }
    seen
}

/// The answer to a page if the edge finds neither snapshots nor lookups.
fn page_without_snapshots(kv: &Kv, engine: &mut Engine, tenant: usize, cookie: &str, now: u64) -> Value {
    let host = setup::TENANTS.get(tenant).copied().unwrap_or_default();
    let head = format!("POST\nhttps://{host}.example/v1/decide\n__Host-cw_id={cookie}\n\n\n\nMozilla/5.0\n\n");
    let call =
        json!({ "placements": [{ "id": "slot" }], "page": { "url": setup::EXCLUSIVE_PAGE }, "page_view": false });
    let mut next = engine.begin(&head, call.to_string().as_bytes(), now, [7; 32]);
    loop {
        next = match next {
            EngineStep::Read(read) => {
                let is_of_people = |key: &str| key.starts_with("v:") || key.starts_with("a:");
                let value =
                    |key: &String| kv.value(key).filter(|_| !is_of_people(key)).map(|value| value.as_bytes().to_vec());
                let values = read.keys.iter().map(value).collect();
                engine.resume_read(read.pending, &Ok(values))
            }
            EngineStep::Call(pending, _) => engine.resume_call(pending, None),
            EngineStep::Answer(answer) => return serde_json::from_slice(&answer.body).unwrap_or_default(),
            EngineStep::Page(_) | EngineStep::Unserved(_) => return Value::Null,
        };
    }
}
