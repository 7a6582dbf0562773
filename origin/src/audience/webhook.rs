//! A tenant's webhook: a POST of JSON, signed as in Standard Webhooks (version 1, standardwebhooks.com) so that
//! receivers can verify it with a library. A repeated `webhook-id` marks a repeated message.

use std::time::Duration;

use causeway_shared::base::ids::Millis;
use causeway_shared::keys::key_ring::KeyRing;
use sha2::{Digest as _, Sha256};
use ureq::http::StatusCode;

use crate::base::http_agent::http_agent;
use crate::store::tenants::TenantContext;

/// Time limit of one POST.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Longest delay in seconds that a receiver may request.
const AFTER_MOST_S: u64 = 3_600;

/// Outcome of a POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebhookAnswer {
    /// The receiver accepted the message.
    Taken,
    /// The receiver rejects the message for good, with the reason: a retry would not help.
    Refused(String),
    /// The receiver accepts no more messages for now: status 429, or status 503 with a delay.
    Busy {
        /// Requested delay in milliseconds.
        after: Option<u64>,
    },
    /// The POST failed and may be retried.
    Later {
        /// The reason.
        why: String,
        /// Requested delay in milliseconds.
        after: Option<u64>,
    },
}

/// A receiver's address, keys and connection pool.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    agent: ureq::Agent,
    url: String,
    keys: KeyRing,
}

impl Webhook {
    /// The tenant's receiver; `None` if it has no address or no key. Messages are signed with all keys of the ring, so
    /// that the receiver can verify them at each step of a key rotation.
    #[must_use]
    pub(crate) fn of(tenant: &TenantContext) -> Option<Self> {
        let (url, keys) = (tenant.config.webhook.as_ref()?, &tenant.keys.webhook);
        keys.active().map(|_| Self::new(url, keys))
    }

    fn new(url: &str, keys: &KeyRing) -> Self {
        Self { agent: http_agent(PATIENCE), url: url.to_owned(), keys: keys.clone() }
    }

    /// Posts a body. The same body has the same message id.
    #[must_use]
    pub(crate) fn post(&self, body: &[u8], now: Millis) -> WebhookAnswer {
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
            Err(e @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => return WebhookAnswer::Refused(e.to_string()),
            Err(e) => return WebhookAnswer::Later { why: e.to_string(), after: None },
        };
        let status = answer.status();
        if status.is_success() {
            return WebhookAnswer::Taken;
        }
        let why = format!("the webhook answered {status}");
        let after = answer.headers().get("retry-after").and_then(|after| retry_after(after.to_str().ok()?, now));
        match status {
            StatusCode::TOO_MANY_REQUESTS => WebhookAnswer::Busy { after },
            StatusCode::SERVICE_UNAVAILABLE if after.is_some() => WebhookAnswer::Busy { after },
            StatusCode::REQUEST_TIMEOUT => WebhookAnswer::Later { why, after },
            _ if status.is_server_error() => WebhookAnswer::Later { why, after },
            _ => WebhookAnswer::Refused(why),
        }
    }
}

/// The delay in milliseconds of a `retry-after` header: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(text: &str, now: Millis) -> Option<u64> {
    let wait = match text.trim().parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1_000),
        Err(_) => {
            let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
            u64::try_from(at.as_millisecond()).unwrap_or_default().saturating_sub(now)
        }
    };
    Some(wait.min(AFTER_MOST_S * 1_000))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::testing::NOW;

    /// Posts to a server that answers with a status line and a header.
    fn posted(status: &str, header: &str) -> WebhookAnswer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 {status}\r\n{header}content-length: 0\r\nconnection: close\r\n\r\n");
        let receiver = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = bytes.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        });
        let answer = Webhook::new(&url, &KeyRing(Vec::new())).post(b"{}", NOW);
        receiver.join().unwrap();
        answer
    }

    #[test]
    fn a_receiver_that_asks_to_wait_is_busy_and_one_that_fails_is_not() {
        let busy = |after| WebhookAnswer::Busy { after };
        assert_eq!(posted("429 Too Many Requests", ""), busy(None));
        assert_eq!(posted("429 Too Many Requests", "retry-after: 7\r\n"), busy(Some(7_000)));
        assert_eq!(posted("503 Service Unavailable", "retry-after: 2\r\n"), busy(Some(2_000)));
        assert!(matches!(posted("503 Service Unavailable", ""), WebhookAnswer::Later { after: None, .. }));
        assert!(matches!(
            posted("500 Internal", "retry-after: 7\r\n"),
            WebhookAnswer::Later { after: Some(7_000), .. }
        ));
        assert!(matches!(posted("410 Gone", ""), WebhookAnswer::Refused(_)));
        assert_eq!(posted("204 No Content", ""), WebhookAnswer::Taken);
    }

    #[test]
    fn the_time_to_wait_is_seconds_or_a_date_and_an_hour_at_most() {
        // 2015-10-21T07:28:00Z.
        let at = 1_445_412_480_000;
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        assert_eq!(retry_after(" 120", at), Some(120_000));
        assert_eq!(retry_after("99999999999999999999", at), None);
        assert_eq!(retry_after("18446744073709551615", at), Some(3_600_000));
        assert_eq!(retry_after(date, at - 90_000), Some(90_000));
        assert_eq!(retry_after(date, at - 90_000_000), Some(3_600_000));
        assert_eq!([retry_after(date, at + 5), retry_after("0", at)], [Some(0); 2]);
        assert_eq!(["soon", "-1", ""].map(|text| retry_after(text, at)), [None; 3]);
    }
}
