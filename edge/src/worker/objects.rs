//! The Durable Object classes, and the calls of their objects. The platform stores; pure functions decide.

use causeway_shared::base::ids::Millis;
use js_sys::{Date, Uint8Array};
use serde_json::json;
use wasm_bindgen::JsValue;
use web_sys::RequestInit;
use worker::durable::State;
use worker::{
    DurableObject, Env, Request, Response, Result, SqlCursor, SqlStorageValue, Storage, Stub, durable_object,
};

use super::bindings::bytes_of;
use super::isolate::now;
use super::log::log_event;
use super::scope::{EventScope, WaitError};
use crate::objects::object_call::{InvalidObjectCall, ObjectCall, ObjectNext};
use crate::objects::offers::{self, RowWrite};
use crate::objects::strict_caps;

const DAY_MS: u64 = 86_400_000;
/// Time after the last call for which a strict-cap object is stored. The longest window of a cap is 30 days.
const STRICT_CAP_LIFE_MS: u64 = 31 * DAY_MS;
/// Time for which an offer object stores a visitor's row. By then snapshots contain the code, and a given code stays
/// given.
const OFFER_ROW_LIFE_MS: u64 = 31 * DAY_MS;

/// Calls an object, within `ms` milliseconds. `None` if it fails, is late or is not bound.
pub(super) async fn ask_object(env: &Env, scope: &EventScope, call: &ObjectCall, ms: f64) -> Option<Vec<u8>> {
    match try_ask(env, scope, call, ms).await {
        Ok(answer) => Some(answer),
        Err(WaitError::Late) => None,
        Err(WaitError::Failed(message)) => {
            log_event("object_failed", json!({ "message": message }));
            None
        }
    }
}

async fn try_ask(env: &Env, scope: &EventScope, call: &ObjectCall, ms: f64) -> std::result::Result<Vec<u8>, WaitError> {
    let failed = |error: worker::Error| WaitError::Failed(error.to_string());
    let stub = stub_of(env, call).map_err(failed)?;
    let request = request_of(call).map_err(failed)?;
    let asking = js_sys::futures::future_to_promise(async move {
        let response = stub.fetch_with_request(request).await.map_err(JsValue::from)?;
        read_answer(response).await.map(|answer| Uint8Array::from(answer.as_slice()).into()).map_err(JsValue::from)
    });
    scope.within(&asking, ms).await.map(|answer| bytes_of(&answer))
}

fn stub_of(env: &Env, call: &ObjectCall) -> Result<Stub> {
    env.durable_object(call.class.binding())?.id_from_name(&call.object)?.get_stub()
}

fn request_of(call: &ObjectCall) -> Result<Request> {
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_body(&Uint8Array::from(call.body.as_slice()));
    Ok(web_sys::Request::new_with_str_and_init("http://object/", &init)?.into())
}

async fn read_answer(mut response: Response) -> Result<Vec<u8>> {
    match response.status_code() {
        200 => response.bytes().await,
        status => Err(format!("the object answered {status}").into()),
    }
}

/// Calls another object. The wait ends with the caller's.
async fn forward_call(env: &Env, call: &ObjectCall) -> Result<Vec<u8>> {
    read_answer(stub_of(env, call)?.fetch_with_request(request_of(call)?).await?).await
}

fn respond_bytes(bytes: Vec<u8>) -> Result<Response> {
    Response::from_bytes(bytes)
}

fn refuse_call(_: InvalidObjectCall) -> Result<Response> {
    Ok(Response::empty()?.with_status(400))
}

#[expect(clippy::cast_precision_loss, reason = "a time of this millennium")]
fn date_of(at: Millis) -> Date {
    Date::new(&JsValue::from_f64(at as f64))
}

/// The object of one visitor for strict caps. Its state is one row.
#[durable_object]
#[derive(Debug)]
pub struct StrictCapObject {
    state: State,
    env: Env,
}

impl DurableObject for StrictCapObject {
    fn new(state: State, env: Env) -> Self {
        Self { state, env }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let call = request.bytes().await?;
        let step = match strict_caps::call_strict_caps(&self.load()?, &call, now()) {
            Ok(step) => step,
            Err(invalid) => return refuse_call(invalid),
        };
        self.store(&step.store)?;
        let forwarded = match step.next {
            ObjectNext::Answer(answer) => return respond_bytes(answer),
            ObjectNext::Forward(call) => call,
        };
        let answer = forward_call(&self.env, &forwarded).await?;
        match strict_caps::receive_strict_caps(&self.load()?, &forwarded.body, &answer, now()) {
            Ok(stored) => self.store(&stored)?,
            Err(invalid) => return refuse_call(invalid),
        }
        respond_bytes(answer)
    }

    /// Deletes everything after a time without calls that is longer than any cap's window.
    async fn alarm(&self) -> Result<Response> {
        let storage = self.state.storage();
        storage.delete_alarm().await?;
        storage.delete_all().await?;
        Response::empty()
    }
}

// Loading, deciding and storing happen without an `await` in between, so that no other call sees an intermediate state.
impl StrictCapObject {
    fn load(&self) -> Result<Vec<u8>> {
        let sql = self.state.storage().sql();
        sql.exec(
            "CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL)",
            None,
        )?;
        let rows = sql.exec("SELECT bytes FROM state", None)?;
        match first_value(&rows)? {
            Some(SqlStorageValue::Blob(bytes)) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }

    fn store(&self, bytes: &[u8]) -> Result<()> {
        let storage = self.state.storage();
        let put = "INSERT INTO state VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes";
        storage.sql().exec_raw(put, vec![Uint8Array::from(bytes).into()])?;
        set_alarm(&storage, now() + STRICT_CAP_LIFE_MS)
    }
}

/// The first column of a cursor's first row.
fn first_value(rows: &SqlCursor) -> Result<Option<SqlStorageValue>> {
    Ok(rows.raw().next().transpose()?.and_then(|row| row.into_iter().next()))
}

fn set_alarm(storage: &Storage, at: Millis) -> Result<()> {
    // The platform holds back an object's answer until everything before it is stored, including the alarm.
    let _stored = storage.as_raw().set_alarm(date_of(at), JsValue::NULL.into())?;
    Ok(())
}

/// The object of one range of a limited offer. Its state is rows of keys and texts.
#[durable_object]
#[derive(Debug)]
pub struct OfferObject {
    state: State,
    env: Env,
}

impl DurableObject for OfferObject {
    fn new(state: State, env: Env) -> Self {
        Self { state, env }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let call = request.bytes().await?;
        let keys = match offers::offer_row_keys(&call) {
            Ok(keys) => keys,
            Err(invalid) => return refuse_call(invalid),
        };
        let step = match offers::call_offers(&self.load(&keys)?, &call) {
            Ok(step) => step,
            Err(invalid) => return refuse_call(invalid),
        };
        self.store(&step.store)?;
        let storage = self.state.storage();
        if storage.get_alarm().await?.is_none() {
            set_alarm(&storage, now() + DAY_MS)?;
        }
        let forwarded = match step.next {
            ObjectNext::Answer(answer) => return respond_bytes(answer),
            ObjectNext::Forward(call) => call,
        };
        let answer = forward_call(&self.env, &forwarded).await?;
        // The forwarded call concerns the same visitors as the call, so it needs the same rows.
        match offers::receive_offers(&self.load(&keys)?, &forwarded.body, &answer) {
            Ok(rows) => self.store(&rows)?,
            Err(invalid) => return refuse_call(invalid),
        }
        respond_bytes(answer)
    }

    /// Deletes expired rows of visitors, once a day while there are any.
    async fn alarm(&self) -> Result<Response> {
        let storage = self.state.storage();
        let sql = storage.sql();
        let limit = date_of(now().saturating_sub(OFFER_ROW_LIFE_MS)).value_of();
        sql.exec_raw("DELETE FROM rows WHERE key <> 'stock' AND at < ?", vec![limit.into()])?;
        let is_empty = sql.exec("SELECT 1 FROM rows WHERE key <> 'stock' LIMIT 1", None)?.raw().next().is_none();
        if !is_empty {
            set_alarm(&storage, now() + DAY_MS)?;
        }
        Response::empty()
    }
}

impl OfferObject {
    /// The values of rows, in the order of the keys.
    fn load(&self, keys: &[String]) -> Result<Vec<Option<String>>> {
        let sql = self.state.storage().sql();
        let create = "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID";
        sql.exec(create, None)?;
        let value = |key: &String| {
            let rows = sql.exec_raw("SELECT value FROM rows WHERE key = ?", vec![key.into()])?;
            match first_value(&rows)? {
                Some(SqlStorageValue::String(value)) => Ok(Some(value)),
                _ => Ok(None),
            }
        };
        keys.iter().map(value).collect()
    }

    fn store(&self, rows: &[RowWrite]) -> Result<()> {
        let sql = self.state.storage().sql();
        let at = date_of(now()).value_of();
        for RowWrite { key, value } in rows {
            match value {
                Some(value) => {
                    let values = vec![key.into(), value.into(), at.into()];
                    sql.exec_raw("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", values)?;
                }
                None => {
                    sql.exec_raw("DELETE FROM rows WHERE key = ?", vec![key.into()])?;
                }
            }
        }
        Ok(())
    }
}
