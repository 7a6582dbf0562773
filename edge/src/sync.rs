//! The edge's side of `/v1/sync`: a signed request to the origin, and the effect of its answer on the queue's messages.

use causeway_shared::base::ids::Millis;
use causeway_shared::keys::sync_auth;
use causeway_shared::wire::WireError;
use causeway_shared::wire::sync::{self, RejectedFact, SyncRequest, SyncResponse};

use crate::engine::Engine;

/// A request to the origin's `/v1/sync`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedSync {
    /// The headers that authenticate the body.
    pub headers: [(&'static str, String); 3],
    /// The body, CBOR.
    pub body: Vec<u8>,
}

/// The origin's answer to a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncOutcome {
    /// The answer.
    pub response: SyncResponse,
    /// Indices of the messages that the queue must deliver again, ascending. The origin cannot accept them yet: their
    /// tenant is not configured there, or their form belongs to a later release.
    pub redeliver: Vec<u32>,
}

impl Engine {
    /// Signs a sync; `None` if no sync key is active.
    #[must_use]
    pub fn sign_sync(&self, request: &SyncRequest, now: Millis) -> Option<SignedSync> {
        let key = self.keys.sync.active()?;
        let body = sync::encode_request(request);
        let headers = [
            (sync_auth::KEY_HEADER, key.id.to_string()),
            (sync_auth::TIME_HEADER, now.to_string()),
            (sync_auth::MAC_HEADER, sync_auth::sign_sync(key, now, &body)),
        ];
        Some(SignedSync { headers, body })
    }
}

/// Reads the origin's answer.
///
/// # Errors
/// [`WireError`], if the body cannot be decoded.
pub fn read_sync_response(body: &[u8]) -> Result<SyncOutcome, WireError> {
    let response = sync::decode_response(body)?;
    let later_form = WireError::UnknownForm.code();
    let is_postponed = |rejected: &&RejectedFact| {
        rejected.code == later_form || (rejected.index.is_none() && rejected.code == sync::UNKNOWN_TENANT)
    };
    let mut redeliver: Vec<u32> =
        response.rejected.iter().filter(is_postponed).map(|rejected| rejected.batch).collect();
    redeliver.sort_unstable();
    redeliver.dedup();
    Ok(SyncOutcome { response, redeliver })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use causeway_shared::wire::sync::encode_response;

    #[test]
    fn only_messages_of_an_unknown_tenant_or_a_later_form_are_delivered_again() {
        let refused =
            |batch, index, code: &str| RejectedFact { batch, index, code: code.into(), message: String::new() };
        let rejected = vec![
            refused(0, None, "malformed"),
            refused(2, None, "unknown_tenant"),
            refused(3, Some(0), "unknown_tenant"),
            refused(4, Some(1), "too_old"),
            refused(5, Some(0), "unknown_form"),
            refused(5, Some(2), "unknown_form"),
            refused(6, None, "unknown_form"),
        ];
        let response = SyncResponse { rejected, ..SyncResponse::default() };
        let outcome = read_sync_response(&encode_response(&response)).unwrap();
        assert_eq!((outcome.redeliver, outcome.response), (vec![2, 5, 6], response));
    }
}
