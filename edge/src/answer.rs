//! What comes out of the module: a KV read to do, or the answer.

use causeway_shared::limits;
use serde::Serialize;

use crate::hop::Class;

/// One step's outcome, told to the shell.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Head {
    /// The request to go on with after a read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// KV keys to read in one bulk read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// The object to call with the body, instead of a read; its answer goes on with the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// Of which class it is.
    #[serde(skip_serializing_if = "Class::is_default")]
    pub class: Class,
    /// Whether a visitor was minted: the shell asks the rate limit.
    #[serde(skip_serializing_if = "is_false")]
    pub mint: bool,
    /// The answer's status; 0 while the request goes on.
    #[serde(skip_serializing_if = "is_zero")]
    pub status: u16,
    /// Whether the body is JSON; the shell has the headers that all such answers share.
    #[serde(skip_serializing_if = "is_false")]
    pub json: bool,
    /// The answer's own headers; a name may come more than once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(&'static str, String)>,
    /// Whether the answer waits until the queue has the facts.
    #[serde(skip_serializing_if = "is_false")]
    pub ack: bool,
    /// How many facts the outcome carries.
    #[serde(skip_serializing_if = "is_zero")]
    pub facts: u16,
    /// What went less than well, for the metrics: stable names, never ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<&'static str>,
    /// A page of the demonstration, which the shell serves.
    #[serde(skip_serializing_if = "is_false")]
    pub demo: bool,
    /// The page tag, which the shell serves.
    #[serde(skip_serializing_if = "is_false")]
    pub tag: bool,
    /// Whether the request's place went to another: nothing that it brought was taken.
    #[serde(skip_serializing_if = "is_false")]
    pub gone: bool,
    /// A health check, which the shell answers: it knows of the last sync.
    #[serde(skip_serializing_if = "is_false")]
    pub health: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

/// One step's outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// What the shell is to do.
    pub head: Head,
    /// The answer's body.
    pub body: Vec<u8>,
    /// A batch of facts for the queue, encoded; empty for none.
    pub facts: Vec<u8>,
}

/// A body over its bound.
pub(crate) fn too_large() -> Outcome {
    let message = format!("a body has {} bytes at most", limits::BODY_BYTES);
    Outcome::error(413, "too_large", &message, None)
}

impl Outcome {
    /// The bytes that cross: the lengths of head and body (4 bytes each, little-endian), then head (JSON),
    /// body, facts.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        // A struct of texts and numbers always has a JSON form.
        let head = serde_json::to_vec(&self.head).unwrap_or_default();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut all = Vec::with_capacity(8 + head.len() + self.body.len() + self.facts.len());
        all.extend_from_slice(&length(&head));
        all.extend_from_slice(&length(&self.body));
        all.extend_from_slice(&head);
        all.extend_from_slice(&self.body);
        all.extend_from_slice(&self.facts);
        all
    }

    /// A JSON answer that no cache keeps.
    pub(crate) fn json(status: u16, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self { head: Head { status, json: true, ..Head::default() }, body, facts: Vec::new() }
    }

    /// An error in the one shape all errors have.
    pub(crate) fn error(status: u16, code: &str, message: &str, field: Option<&str>) -> Self {
        #[derive(Serialize)]
        struct Inner<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            error: Inner<'a>,
        }
        Self::json(status, &Body { error: Inner { code, message, field } })
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { head: Head { status, ..Head::default() }, ..Self::default() }
    }

    pub(crate) fn with_headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.head.headers.extend(headers);
        self
    }
}
