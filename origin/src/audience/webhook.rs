//! A tenant's webhook: a POST of JSON, signed as Standard Webhooks says (version 1: standardwebhooks.com), so that a receiver
//! verifies it with a library. Whoever receives the same id again has it already.

use std::time::Duration;

use causeway_shared::ids::Millis;
use causeway_shared::keys::KeyRing;
use sha2::{Digest as _, Sha256};
use ureq::http::StatusCode;

use crate::tenants::Known;

/// How long a receiver may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait that a receiver may ask for.
const AFTER_MOST_S: u64 = 3_600;

/// What came of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The receiver has it.
    Taken,
    /// It will not take it, and why: no later try would change that.
    Refused(String),
    /// It cannot take it now, and why.
    Later {
        /// What was said.
        why: String,
        /// After how many milliseconds it wants to be asked again.
        after: Option<Millis>,
    },
}

/// A receiver, and the connection to it.
#[derive(Debug, Clone)]
pub(super) struct Webhook {
    agent: ureq::Agent,
    url: String,
    keys: KeyRing,
}

impl Webhook {
    /// A tenant's receiver, where there is one and a key for it. It is told with all keys of the ring: it knows one of
    /// them, whichever step a rotation is at.
    #[must_use]
    pub(super) fn of(tenant: &Known) -> Option<Self> {
        let (url, keys) = (tenant.config.webhook.as_ref()?, &tenant.keys.webhook);
        keys.active().map(|_| Self::new(url, keys))
    }

    fn new(url: &str, keys: &KeyRing) -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent("causeway")
            .build();
        Self { agent: agent.into(), url: url.to_owned(), keys: keys.clone() }
    }

    /// Posts a body; the same body has the same id.
    #[must_use]
    pub(super) fn post(&self, body: &[u8], now: Millis) -> Answer {
        let digest: String = Sha256::digest(body).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let (id, seconds) = (format!("msg_{digest}"), now / 1_000);
        let request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", self.keys.sign_webhook(&id, seconds, body));
        let answer = match request.send(body) {
            Ok(answer) => answer,
            Err(e @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => return Answer::Refused(e.to_string()),
            Err(e) => return Answer::Later { why: e.to_string(), after: None },
        };
        let status = answer.status();
        if status.is_success() {
            return Answer::Taken;
        }
        let why = format!("the webhook answered {status}");
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {}
            _ if status.is_server_error() => {}
            _ => return Answer::Refused(why),
        }
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok()?.parse::<u64>().ok());
        Answer::Later { why, after: after.map(|seconds| seconds.min(AFTER_MOST_S) * 1_000) }
    }
}
