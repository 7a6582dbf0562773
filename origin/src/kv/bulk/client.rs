//! The platform's REST API for many KV keys: `PUT …/bulk` and `POST …/bulk/delete` (Cloudflare API, "Workers KV
//! Namespace", 2026).

use std::time::Duration;

use serde::Deserialize;
use ureq::http::StatusCode;

use crate::base::config::PublishSettings;
use crate::base::http_agent::http_agent;
use crate::base::key_file::PlatformToken;
use crate::base::metrics::BULK_OUTCOMES;

/// Time limit of one call. It is shorter than a lease, so that a settlement finds its rows leased.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest delay that the platform may request.
const DELAY_MOST: Duration = Duration::from_secs(300);
/// Largest answer in bytes: up to 10,000 keys of 512 bytes, and a margin.
const ANSWER_BYTES: u64 = 8 << 20;

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkOutcome {
    /// The platform wrote all keys except for these.
    Written {
        /// Keys that the platform reports as unsuccessful.
        unsuccessful: Vec<String>,
    },
    /// The platform accepts no more calls for now; it wrote nothing.
    Busy {
        /// Requested delay.
        after: Duration,
    },
    /// The platform rejects the call; it wrote nothing.
    Refused(RefusedCall),
    /// The answer is missing or an error of the platform. Keys may have been written, or may still be written.
    Unknown(String),
}

impl BulkOutcome {
    /// Name of the outcome in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let [written, busy, refused, unknown] = BULK_OUTCOMES;
        match self {
            Self::Written { .. } => written,
            Self::Busy { .. } => busy,
            Self::Refused(_) => refused,
            Self::Unknown(_) => unknown,
        }
    }
}

/// The reason why the platform rejects calls, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedCall {
    /// The token is unknown, expired, or lacks the permission.
    #[error(
        "the platform refuses the token (status {0}): create one with the permission \"Workers KV Storage: Edit\" and \
         store it with `causeway keys set-platform-token`"
    )]
    Token(u16),
    /// The account or the namespace is unknown.
    #[error(
        "the platform knows no such account or namespace: compare `publish.account` and `publish.namespace` with the ids \
         that `wrangler kv namespace list` prints"
    )]
    Namespace,
    /// Another reason.
    #[error("the platform refuses the call with status {status}: {message}")]
    Other {
        /// Status of the answer.
        status: u16,
        /// First message of the answer.
        message: String,
    },
}

/// The envelope of every answer of the API.
#[derive(Deserialize)]
struct ApiAnswer {
    #[serde(default)]
    success: bool,
    #[serde(default)]
    errors: Vec<ApiMessage>,
    #[serde(default)]
    result: Option<BulkResult>,
}

#[derive(Deserialize)]
struct ApiMessage {
    #[serde(default)]
    message: String,
}

/// The result of a bulk call. An answer without it is one of success for all keys.
#[derive(Deserialize, Default)]
#[serde(default)]
struct BulkResult {
    unsuccessful_keys: Vec<String>,
}

/// A connection pool to the API of one namespace.
#[derive(Debug, Clone)]
pub struct BulkClient {
    agent: ureq::Agent,
    settings: PublishSettings,
    token: PlatformToken,
}

impl BulkClient {
    /// A client of a namespace.
    #[must_use]
    pub fn new(settings: PublishSettings, token: PlatformToken) -> Self {
        Self { agent: http_agent(PATIENCE), settings, token }
    }

    /// Writes pairs of key and value, given as a JSON array.
    #[must_use]
    pub fn put_pairs(&self, json: &[u8]) -> BulkOutcome {
        let request = self.agent.put(self.address("/bulk"));
        read_outcome(self.signed(request).send(json))
    }

    /// Deletes keys, given as a JSON array.
    #[must_use]
    pub fn delete_keys(&self, json: &[u8]) -> BulkOutcome {
        let request = self.agent.post(self.address("/bulk/delete"));
        read_outcome(self.signed(request).send(json))
    }

    /// Reads the namespace's properties, which shows whether account, namespace and token are right.
    #[must_use]
    pub fn check_namespace(&self) -> BulkOutcome {
        let request = self.agent.get(self.address("")).header("authorization", self.authorization());
        read_outcome(request.call())
    }

    fn address(&self, path: &str) -> String {
        let PublishSettings { api, account, namespace, .. } = &self.settings;
        format!("{api}/accounts/{account}/storage/kv/namespaces/{namespace}{path}")
    }

    fn authorization(&self) -> String {
        format!("Bearer {}", self.token.reveal())
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        request.header("content-type", "application/json").header("authorization", self.authorization())
    }
}

fn read_outcome(answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> BulkOutcome {
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(e) => return BulkOutcome::Unknown(e.to_string()),
    };
    let status = answer.status();
    let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.trim().parse().ok());
    if status == StatusCode::TOO_MANY_REQUESTS {
        let after = Duration::from_secs(after.unwrap_or(1).max(1));
        return BulkOutcome::Busy { after: after.min(DELAY_MOST) };
    }
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
    let read = body.map_err(|e| e.to_string()).and_then(|body| {
        serde_json::from_slice::<ApiAnswer>(&body).map_err(|_| "the answer is not the API's JSON".to_owned())
    });
    match read {
        Ok(read) if status.is_success() && read.success => {
            BulkOutcome::Written { unsuccessful: read.result.unwrap_or_default().unsuccessful_keys }
        }
        read if status.is_client_error() => BulkOutcome::Refused(refusal(status, read.ok())),
        Ok(_) => BulkOutcome::Unknown(format!("the platform answered with status {status}")),
        Err(why) => BulkOutcome::Unknown(format!("the platform answered with status {status}: {why}")),
    }
}

fn refusal(status: StatusCode, answer: Option<ApiAnswer>) -> RefusedCall {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RefusedCall::Token(status.as_u16()),
        StatusCode::NOT_FOUND => RefusedCall::Namespace,
        _ => {
            let message = answer.and_then(|answer| answer.errors.into_iter().next()).map(|first| first.message);
            let message = message.filter(|message| !message.is_empty()).unwrap_or_else(|| "no message".to_owned());
            RefusedCall::Other { status: status.as_u16(), message: message.chars().take(200).collect() }
        }
    }
}
