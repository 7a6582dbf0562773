//! The publisher's page never breaks: every call is answered after at most two KV reads, and no answer is an error.

use causeway_edge::HttpAnswer;
use serde_json::Value;

use crate::browser::Kind;
use crate::edge::Call;
use crate::setup;
use crate::world::World;

/// Reports a third read, and a read of too many keys.
pub fn reads(call: &Call, keys: &[String]) -> Vec<String> {
    let mut seen = Vec::new();
    if call.reads >= 2 {
        seen.push(format!("{:?} reads a third time: {keys:?}", call.asked.kind));
    }
    if keys.len() > 100 {
        seen.push(format!("{} keys in one read", keys.len()));
    }
    seen
}

/// Reports an answer with a status that no page should get.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let status = answer.status;
    let fits = match call.asked.kind {
        Kind::Decide | Kind::Me => status == 200,
        // A token signed with a retired key names no known visitor.
        Kind::Events if call.asked.owner.as_ref().is_some_and(|(_, token)| !setup::reads(call.stage, token)) => {
            matches!(status, 202 | 400)
        }
        Kind::Events => status == 202,
        Kind::Pixel => matches!(status, 200 | 302 | 404),
        Kind::Erase => matches!(status, 202 | 404),
    };
    if fits { Vec::new() } else { vec![format!("{:?} is answered with {status}", call.asked.kind)] }
}

/// Reports an answer whose status or number of reads is wrong.
pub fn answered(call: &Call, status: u16, body: &[u8]) -> Vec<String> {
    if call.asked.kind != Kind::Decide {
        return Vec::new();
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let reads = answer["kv_reads"].as_u64();
    let placed = answer["decisions"].as_array().is_some();
    let read = if answer["reason"] == "retry" { 0 } else { call.reads };
    let fits = status == 200 && placed && reads == Some(u64::from(read));
    if fits { Vec::new() } else { vec![format!("after {} reads: {status} {answer}", call.reads)] }
}

/// No message waits in the queue, and no record waits to be folded.
pub fn converged(world: &mut World) -> Vec<String> {
    let depth = world.queue.depth();
    if depth == 0 && !world.origin.is_behind() {
        Vec::new()
    } else {
        vec![format!("{depth} messages still wait, the origin is behind: {}", world.origin.is_behind())]
    }
}
