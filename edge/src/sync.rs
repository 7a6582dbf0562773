//! The edge's side of `/v1/sync`: queue messages become a signed request, its answer becomes work.

use causeway_shared::ids::Millis;
use causeway_shared::sync_auth;
use causeway_shared::wire::WireError;
use causeway_shared::wire::sync::{self, Read, Rejected, SyncRequest};
use serde::Deserialize;
use serde_json::json;

use crate::engine::Engine;

/// What the shell says of a sync, as JSON.
#[derive(Debug, Deserialize)]
struct Call {
    edge: String,
    /// A UUID's text.
    batch: String,
    #[serde(default)]
    applied: Vec<u64>,
    #[serde(default)]
    drain: u16,
    #[serde(default)]
    lost: u64,
    #[serde(default)]
    dead: u64,
    /// Keys read back: their numbers, and the bytes of the values' SHA-256, none where there is no value.
    #[serde(default)]
    read: Vec<(u64, Option<[u8; 32]>)>,
}

impl Engine {
    /// A sync's request: JSON of the signing headers, a zero byte, the body. Empty when the call is not of its
    /// form or there is no key.
    #[must_use]
    pub fn sync_request(&self, call: &str, messages: &[u8], now: Millis) -> Vec<u8> {
        let (Ok(call), Some(key)) = (serde_json::from_str::<Call>(call), self.keys.sync.active()) else {
            return Vec::new();
        };
        let body = sync::encode_request(&SyncRequest {
            edge: call.edge,
            batch: uuid_bytes(&call.batch),
            facts: split(messages),
            applied: call.applied,
            drain: call.drain,
            lost: call.lost,
            dead: call.dead,
            read: call.read.into_iter().map(|(entry, sha256)| Read { entry, sha256 }).collect(),
        });
        let headers = json!({
            sync_auth::KEY_HEADER: key.id.to_string(),
            sync_auth::TIME_HEADER: now.to_string(),
            sync_auth::MAC_HEADER: sync_auth::sign(key, now, &body),
        });
        let mut request = headers.to_string().into_bytes();
        request.push(0);
        request.extend_from_slice(&body);
        request
    }
}

/// A sync's answer as JSON.
#[must_use]
pub fn sync_response(body: &[u8]) -> String {
    match sync::decode_response(body) {
        Err(error) => json!({ "error": error.to_string() }).to_string(),
        Ok(answer) => {
            let publish: Vec<_> = answer
                .publish
                .into_iter()
                .map(|p| json!({ "entry": p.entry, "key": p.key, "value": p.value }))
                .collect();
            let verify: Vec<_> = answer.verify.into_iter().map(|v| json!([v.entry, v.key])).collect();
            // What it refuses as a whole only because it lacks the tenant, or in a form of a later release, is not taken: the
            // queue keeps it until an origin comes that takes it.
            let later = WireError::UnknownForm.code();
            let is_kept = |r: &&Rejected| r.code == later || (r.index.is_none() && r.code == sync::UNKNOWN_TENANT);
            let mut kept: Vec<_> = answer.rejected.iter().filter(is_kept).map(|r| json!(r.batch)).collect();
            kept.dedup();
            let rejected: Vec<_> = answer.rejected.into_iter().map(|r| json!(r.code)).collect();
            json!({
                "rejected": rejected,
                "kept": kept,
                "publish": publish,
                "verify": verify,
                "pending": answer.pending,
                "catalogue": answer.catalogue,
            })
            .to_string()
        }
    }
}

/// The messages, each behind its length; a length that runs over the end takes what is left.
fn split(mut messages: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = messages.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX).min(rest.len());
        let (message, rest) = rest.split_at(length);
        all.push(message.to_vec());
        messages = rest;
    }
    all
}

fn uuid_bytes(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).filter_map(|d| u8::try_from(d).ok()).collect();
    for (to, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *to = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_shared::wire::sync::{SyncResponse, encode_response};

    #[test]
    fn field_15_what_the_origin_lacks_the_tenant_or_the_form_of_is_kept_and_nothing_else() {
        let refused = |batch, index, code: &str| Rejected { batch, index, code: code.into(), message: String::new() };
        let rejected = vec![
            refused(0, None, "malformed"),
            refused(2, None, "unknown_tenant"),
            refused(3, Some(0), "unknown_tenant"),
            refused(4, Some(1), "too_old"),
            refused(5, Some(0), "unknown_form"),
            refused(5, Some(2), "unknown_form"),
            refused(6, None, "unknown_form"),
        ];
        let told = sync_response(&encode_response(&SyncResponse { rejected, ..SyncResponse::default() }));
        assert!(told.contains(r#""kept":[2,5,6],"#), "{told}");
        assert!(told.contains(r#""rejected":["malformed","unknown_tenant","unknown_tenant","too_old","unknown_form","unknown_form","unknown_form"]"#), "{told}");
    }
}
