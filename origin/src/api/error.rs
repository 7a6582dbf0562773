//! Errors of the HTTP side, and their form.

use std::borrow::Cow;
use std::error::Error;

use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::UNFOLDED;
use crate::views::readers::ReadError;

/// Most bytes of a reported field name, which repeats a part of the request.
const FIELD_BYTES: usize = 128;

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorAnswer {
    pub(super) error: ErrorDetail,
}

/// An error, for programs by its code and for people by its message.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorDetail {
    /// Stable name of the reason.
    #[schema(value_type = String, example = "bad_json")]
    pub(super) code: &'static str,
    /// What was wrong and what to do, in English.
    pub(super) message: String,
    /// Parameter, or path of the field in the body, that is invalid. Absent where no single field is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub(super) field: Option<Cow<'static, str>>,
}

/// A refused request. The message never repeats the input of the caller.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<Cow<'static, str>>,
}

impl ApiError {
    /// An error with a status.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None }
    }

    /// A 400 about one field.
    pub fn field(field: impl Into<Cow<'static, str>>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// A 400: the JSON has a repeated key at this path.
    pub fn repeated(path: String) -> Self {
        let field = Some(path).filter(|path| path.len() <= FIELD_BYTES).map(Cow::Owned);
        let message = "a key is repeated: an object has each key once, keep one of them";
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, "repeated_key", message) }
    }

    /// A 400: the JSON does not have the form of the route; `field` is the path of the fault.
    pub fn json(e: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let message = e.inner().to_string();
        // serde's path of a missing or unknown field may end at its parent; the name is in the message.
        let named = ["missing field `", "unknown field `"].iter().find_map(|what| message.strip_prefix(what));
        let named = named.and_then(|rest| rest.split('`').next()).map(str::to_owned);
        let path = e.path().to_string();
        let ends_in = |name: &str| path == name || path.ends_with(&format!(".{name}"));
        let field = match (named.filter(|name| !ends_in(name)), path.as_str()) {
            (Some(name), ".") => Some(name),
            (Some(name), path) => Some(format!("{path}.{name}")),
            (None, ".") => None,
            (None, path) => Some(path.to_owned()),
        };
        let field = field.filter(|field| field.len() <= FIELD_BYTES).map(Cow::Owned);
        Self {
            field,
            ..Self::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not understood: {message}"))
        }
    }

    /// A 413: `what` has more than `most` bytes.
    pub fn too_large(what: &str, most: usize) -> Self {
        let message = format!("{what} has {most} bytes at most");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// A 503: nothing was changed, and the caller may repeat the request after a second.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    /// A 503: the store refused a write. The cause is logged and is not in the answer.
    pub fn unwritten(why: &dyn Error) -> Self {
        tracing::error!(error = %crate::base::error_chain(why), "a write failed");
        Self::unavailable("store", "the store cannot be written now: try again")
    }

    /// A 503: the store could not be read. The cause is logged and is not in the answer.
    pub fn unread(why: &dyn Error) -> Self {
        tracing::error!(error = %crate::base::error_chain(why), "a read failed");
        Self::unavailable("store", "the store cannot be read now: try again")
    }

    /// Whether the error has this code.
    #[must_use]
    pub fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// Status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<ReadError> for ApiError {
    fn from(e: ReadError) -> Self {
        if matches!(e, ReadError::Busy) {
            tracing::warn!("a read found no connection free in time");
            return Self::unavailable("busy", e.to_string());
        }
        if matches!(e, ReadError::TooLong) {
            tracing::warn!("a read took too long and was ended");
            return Self::unavailable("too_long", e.to_string());
        }
        Self::unread(&e)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDetail { code: self.code, message: self.message, field: self.field };
        let body = axum::Json(ErrorAnswer { error });
        match self.status {
            // The facts are durable: a repeated request would only add them again.
            StatusCode::SERVICE_UNAVAILABLE if self.code != UNFOLDED => {
                (self.status, [(RETRY_AFTER, "1")], body).into_response()
            }
            StatusCode::UNAUTHORIZED => (self.status, [(WWW_AUTHENTICATE, "Bearer")], body).into_response(),
            _ => (self.status, body).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_after_a_durable_write_asks_for_no_repeat() {
        let again = |code| ApiError::unavailable(code, "").into_response().headers().contains_key(RETRY_AFTER);
        assert_eq!(["store", "busy", UNFOLDED].map(again), [true, true, false]);
    }
}
