//! Errors as API.md shapes them.

use std::borrow::Cow;
use std::error::Error;

use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::UNFOLDED;
use crate::views::readers::ReadError;

/// A field that is told is no longer: it repeats what the caller sent.
const FIELD_BYTES: usize = 128;

/// What a caller is told. The message never repeats what the caller sent.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<Cow<'static, str>>,
}

impl ApiError {
    /// An error of that status.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None }
    }

    /// A 400 about one field.
    pub fn field(field: impl Into<Cow<'static, str>>, code: &'static str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(StatusCode::BAD_REQUEST, code, message) }
    }

    /// A 400: JSON with a key that stands twice, at this path.
    pub fn repeated(path: String) -> Self {
        let field = Some(path).filter(|path| path.len() <= FIELD_BYTES).map(Cow::Owned);
        let message = "a key is repeated: an object has each key once, keep one of them";
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, "repeated_key", message) }
    }

    /// A 400: JSON that is not of the form wanted, and where in it.
    pub fn json(e: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let message = e.inner().to_string();
        // The path of a field that is missing or unknown may end before it; its name is in the message.
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

    /// A 413: `what` is longer than so many bytes.
    pub fn too_large(what: &str, most: usize) -> Self {
        let message = format!("{what} has {most} bytes at most");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// A 503: nothing was done, and the caller may come back in a second.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    /// A 503: the store did not take what was to be written. Why is logged, and not told.
    pub fn unwritten(why: &dyn Error) -> Self {
        tracing::error!(error = %crate::base::error_chain(why), "a write failed");
        Self::unavailable("store", "the store cannot be written now: try again")
    }

    /// The same of what was to be read.
    pub fn unread(why: &dyn Error) -> Self {
        tracing::error!(error = %crate::base::error_chain(why), "a read failed");
        Self::unavailable("store", "the store cannot be read now: try again")
    }

    /// Whether it is this one.
    #[must_use]
    pub fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// The status.
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
        let mut error = json!({"code": self.code, "message": self.message});
        if let (Some(field), Some(error)) = (self.field, error.as_object_mut()) {
            error.insert("field".to_owned(), field.into());
        }
        let body = axum::Json(json!({ "error": error }));
        match self.status {
            // What was taken is not to be sent again.
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
    fn what_was_taken_is_not_asked_for_again() {
        let again = |code| ApiError::unavailable(code, "").into_response().headers().contains_key(RETRY_AFTER);
        assert_eq!(["store", "busy", UNFOLDED].map(again), [true, true, false]);
    }
}
