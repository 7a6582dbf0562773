//! One event of the platform (a request, a batch of messages, a cron) and its waits.

use js_sys::Promise;
use js_sys::futures::{JsFuture, future_to_promise};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::Context;

use super::bindings::{JsScope, message_of};

/// One event. Every wait of the worker goes through its scope. A wait therefore ends within its own deadline and, after
/// a restart of the instance, never resumes in another instance.
#[derive(Clone)]
pub(super) struct EventScope(JsScope);

/// The reason why a wait returned no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WaitError {
    /// The deadline passed.
    #[error("no answer within the deadline")]
    Late,
    /// The platform refused or failed.
    #[error("{0}")]
    Failed(String),
}

impl From<JsValue> for WaitError {
    fn from(error: JsValue) -> Self {
        Self::Failed(message_of(&error))
    }
}

impl EventScope {
    /// The scope of a handler's context, which is the object that `platform.mjs` passes.
    pub(super) fn of(context: &Context) -> Self {
        let context: &JsValue = context.as_ref().unchecked_ref();
        Self(context.unchecked_ref::<JsScope>().clone())
    }

    /// Like [`Self::of`], for a handler whose context type has no accessor in the crate.
    pub(super) fn of_raw(context: &JsValue) -> Self {
        Self(context.unchecked_ref::<JsScope>().clone())
    }

    /// Waits for a promise, at most `ms` milliseconds.
    pub(super) async fn within(&self, promise: &Promise, ms: f64) -> Result<JsValue, WaitError> {
        JsFuture::from(self.0.within(promise, ms.max(0.0)))
            .await
            .map_err(|error| if error.as_string().as_deref() == Some("late") { WaitError::Late } else { error.into() })
    }

    /// Waits for `ms` milliseconds.
    pub(super) async fn pause(&self, ms: f64) {
        let _ = self.within(&Promise::new(&mut |_, _| {}), ms).await;
    }

    /// Lets a promise run to its end after the answer, and ignores its outcome.
    pub(super) fn wait_until_settled(&self, promise: Promise) {
        self.wait_until(async move {
            let _ = JsFuture::from(promise).await;
        });
    }

    /// Runs a future to its end after the answer.
    pub(super) fn wait_until(&self, future: impl Future<Output = ()> + 'static) {
        self.0.wait_until(&future_to_promise(async move {
            future.await;
            Ok(JsValue::UNDEFINED)
        }));
    }
}
