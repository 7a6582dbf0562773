//! The answer to a request: status, headers, body, and the facts that leave with it.

use causeway_shared::base::limits;
use causeway_shared::facts::fact::Fact;
use causeway_shared::settings::facts_queues;
use causeway_shared::wire::facts::{self, FactBatch};
use serde::Serialize;

use crate::site::{RateLimit, Site};

/// Initial capacity of a JSON body, in bytes: most answers fit without growing.
const BODY_CAPACITY: usize = 1_024;

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HttpAnswer {
    /// HTTP status.
    pub status: u16,
    /// Whether the body is JSON. The worker adds the content type and `no-store`, which all JSON answers share.
    pub is_json: bool,
    /// Further headers. A name may occur more than once.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// Facts for the queue.
    pub facts: Option<FactsMessage>,
    /// Stable names of the causes that degraded the answer, for the counters. No note contains an id.
    pub notes: Vec<&'static str>,
}

/// Facts of one request: one message of a facts queue.
#[derive(Debug, Clone, PartialEq)]
pub struct FactsMessage {
    /// A batch as [`facts::encode_batch`] writes it.
    pub bytes: Vec<u8>,
    /// The number by which the queue is chosen, as [`facts_queues::hash_message`] computes it.
    pub hash: u64,
    /// Number of facts in the batch.
    pub count: u16,
    /// Whether the answer waits until the queue or the origin has accepted the batch.
    pub is_awaited: bool,
    /// The rate limit that admits the batch.
    pub limit: Option<RateLimit>,
}

impl HttpAnswer {
    /// A JSON answer that no cache stores.
    pub(crate) fn json(status: u16, value: &impl Serialize) -> Self {
        let mut body = Vec::with_capacity(BODY_CAPACITY);
        // Serialising a struct of texts, numbers and maps with text keys into memory cannot fail.
        if serde_json::to_writer(&mut body, value).is_err() {
            body.clear();
        }
        Self { status, is_json: true, body, ..Self::default() }
    }

    /// An error, in the form that all errors of the edge have: `{"error": {"code", "message", "field"?}}`.
    pub(crate) fn error(status: u16, code: &str, message: &str, field: Option<&str>) -> Self {
        #[derive(Serialize)]
        struct ErrorDetail<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct ErrorBody<'a> {
            error: ErrorDetail<'a>,
        }
        Self::json(status, &ErrorBody { error: ErrorDetail { code, message, field } })
    }

    /// The error for a body over [`limits::BODY_BYTES`].
    pub(crate) fn too_large() -> Self {
        let message = format!("the body is too large: at most {} bytes are allowed", limits::BODY_BYTES);
        Self::error(413, "too_large", &message, None)
    }

    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn with_headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Attaches facts that leave after the answer. Page views and pixels are not acknowledged.
    pub(crate) fn with_facts(mut self, site: &Site, facts: Vec<Fact>) -> Self {
        self.facts = FactsMessage::new(site, facts);
        self
    }

    /// Attaches facts that the queue or the origin must accept before the answer leaves.
    pub(crate) fn with_awaited_facts(mut self, site: &Site, facts: Vec<Fact>, limit: Option<RateLimit>) -> Self {
        self.facts = FactsMessage::new(site, facts).map(|message| FactsMessage { is_awaited: true, limit, ..message });
        self
    }
}

impl FactsMessage {
    fn new(site: &Site, facts: Vec<Fact>) -> Option<Self> {
        if facts.is_empty() {
            return None;
        }
        let count = u16::try_from(facts.len()).unwrap_or(u16::MAX);
        let hash = facts_queues::hash_message(&facts);
        let bytes = facts::encode_batch(&FactBatch { tenant: site.id.clone(), facts });
        Some(Self { bytes, hash, count, is_awaited: false, limit: None })
    }
}
