//! Pages that the worker serves itself: health, the page tag, the demonstration.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use wasm_bindgen::JsValue;
use web_sys::{Headers, Request, RequestInit, Response, Url};
use worker::Env;

use super::bindings::{bytes_of, read_demo_page, read_page_tag};
use super::isolate::{Isolate, now, read_variable};
use super::log::{DEAD_LETTERS, FACTS_LOST, LAST_SYNC, RESTARTS, count, list_notes, log_event};
use super::origin;
use super::respond::{make_response, respond, respond_unserved};
use super::scope::{EventScope, WaitError};
use crate::http::answer::HttpAnswer;
use crate::http::unserved::UnservedReason;
use crate::routes::WorkerPage;

/// Most visitors that the demonstration shows.
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

/// The health check: the data by which this isolate decides, and its counters.
fn answer_health(isolate: &Isolate, catalogue: Option<Value>) -> HttpAnswer {
    let mut catalogue = match catalogue {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    catalogue.insert("origin".to_owned(), json!(*isolate.origin_catalogue.borrow()));
    let last_sync = Some(count(LAST_SYNC)).filter(|at| *at > 0);
    HttpAnswer::json(
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

/// The page tag, or status 304 if the browser has the current one.
fn answer_tag(request: &Request, cors: &[(&'static str, String)]) -> Result<Response, JsValue> {
    let script = read_page_tag();
    let etag = name_content(&script);
    let shared = [
        ("content-type", "text/javascript; charset=utf-8"),
        ("cache-control", "public, max-age=3600"),
        ("etag", &etag),
        // A browser stores one copy for pages that send an origin and for those that do not.
        ("vary", "Origin"),
    ];
    let cors = cors.iter().filter(|(name, _)| *name != "vary").map(|(name, value)| (*name, value.as_str()));
    let headers: Vec<(&str, &str)> = shared.into_iter().chain(cors).collect();
    // A cache in between may have weakened the entity tag, or ask for several.
    let is_same = request.headers().get("if-none-match")?.is_some_and(|known| known.contains(&etag));
    let (status, body) = if is_same { (304, None) } else { (200, Some(script.as_bytes())) };
    Ok(make_response(status, headers.into_iter(), body))
}

/// The entity tag of a content: the first 16 bytes of its SHA-256, in quotes.
fn name_content(content: &str) -> String {
    let digest = Sha256::digest(content);
    let hex = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    format!("\"{}\"", hex.collect::<String>())
}

/// The demonstration, for tenants marked `dev`. The engine routes requests of no other tenant here.
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
        "/demo" => {
            let headers = [("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store")];
            Ok(make_response(200, headers.into_iter(), Some(read_demo_page().as_bytes())))
        }
        "/demo/proof" => {
            let member = member.unwrap_or_default();
            let proof = isolate.engine.borrow().sign_demo_proof(&url.hostname(), &member, now());
            Ok(respond(HttpAnswer::json(200, &json!({ "proof": proof.unwrap_or_default() }))))
        }
        "/demo/state" => {
            let visitors = query.get("visitors").unwrap_or_default();
            let state = read_state(env, scope, tenant, member.as_deref(), &visitors).await;
            Ok(respond(match state {
                Ok(state) => HttpAnswer::json(200, &state),
                Err(error) => {
                    let message = format!(
                        "the origin did not answer: {error}; check that it runs and that ORIGIN_URL is its address"
                    );
                    HttpAnswer::error(503, "origin_unreachable", &message, None)
                }
            }))
        }
        _ => {
            let message = "the demonstration has /demo, /demo/proof and /demo/state";
            Ok(respond(HttpAnswer::error(404, "not_found", message, None)))
        }
    }
}

/// The origin's data of a member and of visitors; `named` is a comma-separated list of visitors.
async fn read_state(
    env: &Env,
    scope: &EventScope,
    tenant: &str,
    member: Option<&str>,
    named: &str,
) -> Result<Value, WaitError> {
    let lookup = match member {
        Some(member) => read_stored(env, scope, tenant, "lookups/member", member).await?,
        None => Value::Null,
    };
    let mut visitors = Map::new();
    for visitor in named.split(',').filter(|visitor| !visitor.is_empty()).take(DEMO_VISITORS) {
        visitors.insert(visitor.to_owned(), read_stored(env, scope, tenant, "visitors", visitor).await?);
    }
    Ok(json!({ "lookup": lookup, "visitors": visitors }))
}

/// The origin's data under a name; null if it has none or refuses the name.
async fn read_stored(env: &Env, scope: &EventScope, tenant: &str, path: &str, name: &str) -> Result<Value, WaitError> {
    let encode = |text: &str| String::from(js_sys::encode_uri_component(text));
    let headers = Headers::new()?;
    headers.append("authorization", &format!("Bearer {}", read_variable(env, "CAUSEWAY_ADMIN_TOKEN")))?;
    let init = RequestInit::new();
    init.set_headers(&headers);
    let path = format!("/admin/v1/{path}/{}?tenant={}", encode(name), encode(tenant));
    let response = origin::send_request(env, scope, &path, init).await?;
    match response.status() {
        200 => {
            let body = scope.within(&response.array_buffer()?, super::delivery::SEND_MS).await?;
            serde_json::from_slice(&bytes_of(&body)).map_err(|error| WaitError::Failed(error.to_string()))
        }
        status @ 500.. => Err(WaitError::Failed(format!("status {status}"))),
        _ => Ok(Value::Null),
    }
}
