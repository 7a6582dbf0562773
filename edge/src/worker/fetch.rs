//! One request: gather the input, let the engine decide, apply the result.

use causeway_shared::base::limits;
use causeway_shared::wire::outbox_drain;
use js_sys::Uint8Array;
use serde_json::json;
use wasm_bindgen::JsCast as _;
use web_sys::{ReadableStreamDefaultReader, Request, Response};
use worker::Env;

use super::bindings::{bytes_of, property, read_head};
use super::isolate::{Isolate, isolate, now};
use super::log::{count_notes, log_event};
use super::reads::{self, ReadDeadline, left_until};
use super::respond::{respond, respond_unserved, with_target};
use super::scope::{EventScope, WaitError};
use super::{delivery as facts_delivery, objects, origin, pages};
use crate::engine::{Engine, EngineStep, KvRead};
use crate::http::answer::{FactsMessage, HttpAnswer};
use crate::http::request::RequestTarget;
use crate::http::unserved::{UnservedReason, answer_rate_limited, answer_unserved};

/// Deadline of a whole body, in milliseconds. A client that sends more slowly is not a page.
const BODY_MS: u64 = 30_000;
/// Deadline of all waits before a decision, in milliseconds, so that an answer leaves within 200 ms.
const DECISION_MS: u64 = 180;
/// Deadline of one object's call, in milliseconds.
const OBJECT_MS: f64 = 100.0;
/// Deadline of the object call of an impression, in milliseconds. The page does not wait for the picture, and a distant
/// object still counts the impression.
const IMPRESSION_OBJECT_MS: f64 = 2_000.0;

/// A request that is being answered.
struct RequestContext<'a> {
    request: &'a Request,
    env: &'a Env,
    scope: &'a EventScope,
    isolate: &'static Isolate,
    head: RequestHead,
}

/// A request's head, read in one call of JavaScript.
struct RequestHead {
    /// The text that [`Engine::begin`] parses.
    text: String,
    /// The `Content-Length` header; empty if there is none.
    content_length: String,
}

impl RequestHead {
    fn read(request: &Request) -> Self {
        let mut text = read_head(request);
        let last_line = text.rfind('\n').map_or(text.len(), |end| end + 1);
        let content_length = text.split_off(last_line);
        text.pop();
        Self { text, content_length }
    }

    fn method(&self) -> &str {
        let first = self.text.lines().next().unwrap_or_default();
        first.split(' ').next().unwrap_or_default()
    }

    fn url(&self) -> &str {
        self.text.lines().nth(1).unwrap_or_default()
    }
}

/// Answers a request. Every failure has an answer (invariant 9).
pub(super) async fn answer_request(request: Request, env: Env, scope: EventScope) -> Response {
    let isolate = match isolate(&env) {
        Ok(isolate) => isolate,
        Err(message) => {
            log_event("request_failed", json!({ "message": message }));
            return respond_unserved(&request, UnservedReason::Internal);
        }
    };
    let head = RequestHead::read(&request);
    let context = RequestContext { request: &request, env: &env, scope: &scope, isolate, head };
    let response = match context.answer().await {
        Ok(response) => response,
        Err(error) => {
            log_event("request_failed", json!({ "message": error.to_string() }));
            respond_unserved(&request, UnservedReason::Internal)
        }
    };
    // An isolate that only answers pages sends no sync of its own that would report its counters.
    origin::report_counters(&env, &scope, isolate);
    response
}

impl RequestContext<'_> {
    async fn answer(&self) -> Result<Response, WaitError> {
        let body = if self.head.method() == "POST" { self.read_body().await } else { Ok(Vec::new()) };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                // The client stopped sending or left.
                log_event("body_failed", json!({ "message": error.to_string() }));
                return Ok(respond_unserved(self.request, UnservedReason::Internal));
            }
        };
        let (began, isolate) = (now(), self.isolate);
        let seed = isolate.draw().map_err(|error| WaitError::Failed(error.to_string()))?;
        let mut step = isolate.engine.borrow_mut().begin(&self.head.text, &body, began, seed);
        drop(body);
        let deadline = ReadDeadline { reads: began + outbox_drain::KV_DEADLINE_MS, all: began + DECISION_MS };
        loop {
            step = match step {
                EngineStep::Answer(answer) => return Ok(self.finish(answer).await),
                EngineStep::Page(page) => {
                    return Ok(pages::answer_page(self.request, self.env, self.scope, isolate, page).await);
                }
                EngineStep::Unserved(reason) => {
                    // The page gets an answer and the request's facts are lost, so only the counter records it.
                    count_notes(&[reason.name()]);
                    return Ok(respond_unserved(self.request, reason));
                }
                EngineStep::Read(read) => self.read(*read, &deadline).await,
                EngineStep::Call(pending, call) => {
                    let is_impression = self.head.method() != "POST";
                    let ms = if is_impression { IMPRESSION_OBJECT_MS } else { OBJECT_MS.min(deadline.left_of_all()) };
                    let answer = objects::ask_object(self.env, self.scope, &call, ms).await;
                    self.engine(|engine| engine.resume_call(pending, answer.as_deref()))
                }
            };
        }
    }

    fn engine<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        work(&mut self.isolate.engine.borrow_mut())
    }

    /// Reads the body. A body over its bound is not read to its end: a body of one byte over the bound replaces it, and
    /// the routes refuse that.
    async fn read_body(&self) -> Result<Vec<u8>, WaitError> {
        let too_long = || vec![0; limits::BODY_BYTES + 1];
        if !self.head.content_length.is_empty() {
            return match self.head.content_length.parse::<usize>() {
                Ok(length) if length <= limits::BODY_BYTES => {
                    let buffer = self.request.array_buffer()?;
                    Ok(bytes_of(&self.scope.within(&buffer, left_until(now() + BODY_MS)).await?))
                }
                _ => Ok(too_long()),
            };
        }
        let Some(stream) = self.request.body() else { return Ok(Vec::new()) };
        let reader: ReadableStreamDefaultReader = stream.get_reader().unchecked_into();
        let mut body = Vec::new();
        let until = now() + BODY_MS;
        loop {
            let chunk = self.scope.within(&reader.read(), left_until(until)).await?;
            if property(&chunk, "done").is_truthy() {
                return Ok(body);
            }
            let chunk: Uint8Array = property(&chunk, "value").unchecked_into();
            if body.len() + chunk.length() as usize > limits::BODY_BYTES {
                self.scope.wait_until_settled(reader.cancel());
                return Ok(too_long());
            }
            body.extend(chunk.to_vec());
        }
    }

    /// Makes a bulk read, and checks the rate limit of minted visitors in parallel.
    async fn read(&self, read: KvRead, deadline: &ReadDeadline) -> EngineStep {
        let KvRead { keys, mint_limit, pending } = read;
        let ms = deadline.left_of_reads();
        let reading = reads::read_values(self.env, self.scope, self.isolate, &keys, ms);
        let (values, is_admitted) = match &mint_limit {
            None => (reading.await, true),
            Some(limit) => {
                let key = format!("{} {}", limit.key, reads::client_network(self.request));
                let admission = reads::admits_read(self.env, self.scope, &limit.binding, &key, ms);
                futures_util::future::join(reading, admission).await
            }
        };
        self.engine(
            |engine| if is_admitted { engine.resume_read(pending, &values) } else { engine.refuse_mint(pending) },
        )
    }

    /// Sends the answer's facts, and responds.
    async fn finish(&self, mut answer: HttpAnswer) -> Response {
        count_notes(&answer.notes);
        let Some(facts) = answer.facts.take() else { return respond(answer) };
        if !facts.is_awaited {
            facts_delivery::send_after_answer(self.env, self.scope, self.isolate, facts);
            return respond(answer);
        }
        self.send_before_answer(answer, facts).await
    }

    /// Responds once the queue or the origin has accepted the facts; otherwise the call must be sent again.
    async fn send_before_answer(&self, answer: HttpAnswer, facts: FactsMessage) -> Response {
        if let Some(limit) = &facts.limit {
            #[expect(clippy::cast_precision_loss, reason = "a deadline of milliseconds")]
            let ms = outbox_drain::KV_DEADLINE_MS as f64;
            if !reads::admits_read(self.env, self.scope, &limit.binding, &limit.key, ms).await {
                return self.with_target(|target| respond(answer_rate_limited(target)));
            }
        }
        let refused = facts_delivery::send_facts(self.env, self.scope, self.isolate, &[facts]).await;
        if refused == 0 {
            return respond(answer);
        }
        log_event("facts_refused", json!({ "facts": refused }));
        self.with_target(|target| respond(answer_unserved(target, UnservedReason::Retry)))
    }

    fn with_target(&self, answer: impl FnOnce(&RequestTarget<'_>) -> Response) -> Response {
        with_target(self.request, self.head.method(), self.head.url(), answer)
    }
}
