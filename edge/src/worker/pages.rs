//! Pages that the worker serves itself: health, the page tag, the demonstration.

use serde_json::{Map, Value, json};
use wasm_bindgen::JsValue;
use web_sys::{Headers, Request, RequestInit, Response, Url};
use worker::Env;

use super::bindings::{bytes_of, read_demo_page, read_page_tag};
use super::fetch::{respond, respond_text, respond_unserved};
use super::isolate::{Isolate, now, variable};
use super::log::{DEAD_LETTERS, FACTS_LOST, LAST_SYNC, RESTARTS, count, list_notes, log_event};
use super::origin;
use super::scope::{EventScope, WaitError};
use crate::http::answer::Answer;
use crate::http::unserved::UnservedReason;
use crate::routes::WorkerPage;

/// Visitors that the demonstration shows at once.
const DEMO_VISITORS: usize = 8;

/// Answers with a page.
pub(super) async fn answer_page(
    request: &Request,
    env: &Env,
    scope: &EventScope,
    isolate: &'static Isolate,
    page: WorkerPage,
) -> Response {
    let response = match page {
        WorkerPage::Health(catalogue) => Ok(respond(answer_health(isolate, catalogue))),
        WorkerPage::PageTag(cors) => answer_tag(request, &cors),
        WorkerPage::Demo(tenant) => answer_demo(request, env, scope, isolate, &tenant).await,
    };
    response.unwrap_or_else(|error| {
        log_event("request_failed", json!({ "message": super::bindings::message_of(&error) }));
        respond_unserved(request, UnservedReason::Internal)
    })
}

/// The health check: what this isolate decides by, and its counters.
fn answer_health(isolate: &Isolate, catalogue: Option<Value>) -> Answer {
    let mut catalogue = match catalogue {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    catalogue.insert("origin".to_owned(), json!(*isolate.origin_catalogue.borrow()));
    let last_sync = Some(count(LAST_SYNC)).filter(|at| *at > 0);
    Answer::json(
        200,
        &json!({
            "build": env!("CARGO_PKG_VERSION"),
            "catalogue": catalogue,
            "last_sync_age_ms": last_sync.map(|at| now().saturating_sub(at)),
            "facts_lost": count(FACTS_LOST),
            "dead_letters": count(DEAD_LETTERS),
            "module_restarts": count(RESTARTS),
            "notes": list_notes(),
        }),
    )
}

/// The page tag, or 304 if the browser has this very one.
fn answer_tag(request: &Request, cors: &[(&'static str, String)]) -> Result<Response, JsValue> {
    let script = read_page_tag();
    let etag = format!("\"{:08x}-{:x}\"", crc32fast::hash(script.as_bytes()), script.len());
    let shared = [
        ("content-type", "text/javascript; charset=utf-8"),
        ("cache-control", "public, max-age=3600"),
        ("etag", &etag),
        // A browser stores one copy for pages that send an origin and for those that do not.
        ("vary", "Origin"),
    ];
    let cors = cors.iter().filter(|(name, _)| *name != "vary").map(|(name, value)| (*name, value.as_str()));
    let headers: Vec<(&str, &str)> = shared.into_iter().chain(cors).collect();
    // A cache on the way may have weakened the tag, or ask for several.
    let is_same = request.headers().get("if-none-match")?.is_some_and(|known| known.contains(&etag));
    if !is_same {
        return respond_text(&script, &headers);
    }
    let init = web_sys::ResponseInit::new();
    let all = Headers::new()?;
    headers.iter().try_for_each(|(name, value)| all.append(name, value))?;
    init.set_status(304);
    init.set_headers(&all);
    Response::new_with_opt_str_and_init(None, &init)
}

/// The demonstration, for tenants marked `dev`: the engine routes requests of no other tenant here.
async fn answer_demo(
    request: &Request,
    env: &Env,
    scope: &EventScope,
    isolate: &'static Isolate,
    tenant: &str,
) -> Result<Response, JsValue> {
    let url = Url::new(&request.url())?;
    let query = url.search_params();
    let member = query.get("member").filter(|member| !member.is_empty());
    match url.pathname().as_str() {
        "/demo" => respond_text(
            &read_demo_page(),
            &[("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store")],
        ),
        "/demo/proof" => {
            let member = member.unwrap_or_default();
            let proof = isolate.engine.borrow().sign_demo_proof(&url.hostname(), &member, now());
            Ok(respond(Answer::json(200, &json!({ "proof": proof.unwrap_or_default() }))))
        }
        "/demo/state" => {
            let lookup = match member {
                Some(member) => read_stored(env, scope, tenant, "lookups/member", &member).await,
                None => Value::Null,
            };
            let named = query.get("visitors").unwrap_or_default();
            let mut visitors = Map::new();
            for visitor in named.split(',').filter(|visitor| !visitor.is_empty()).take(DEMO_VISITORS) {
                let stored = read_stored(env, scope, tenant, "visitors", visitor).await;
                visitors.insert(visitor.to_owned(), stored);
            }
            Ok(respond(Answer::json(200, &json!({ "lookup": lookup, "visitors": visitors }))))
        }
        _ => {
            let message = "the demonstration has /demo, /demo/proof and /demo/state";
            Ok(respond(Answer::error(404, "not_found", message, None)))
        }
    }
}

/// What the origin has stored under a name; null for nothing.
async fn read_stored(env: &Env, scope: &EventScope, tenant: &str, path: &str, name: &str) -> Value {
    let stored = try_read_stored(env, scope, tenant, path, name).await;
    stored.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

async fn try_read_stored(
    env: &Env,
    scope: &EventScope,
    tenant: &str,
    path: &str,
    name: &str,
) -> Result<Vec<u8>, WaitError> {
    let encode = |text: &str| String::from(js_sys::encode_uri_component(text));
    let headers = Headers::new()?;
    headers.append("authorization", &format!("Bearer {}", variable(env, "CAUSEWAY_ADMIN_TOKEN")))?;
    let init = RequestInit::new();
    init.set_headers(&headers);
    let path = format!("/admin/v1/{path}/{}?tenant={}", encode(name), encode(tenant));
    let response = origin::send(env, scope, &path, init).await?;
    Ok(if response.status() == 200 {
        bytes_of(&scope.within(&response.array_buffer()?, super::delivery::SEND_MS).await?)
    } else {
        Vec::new()
    })
}
