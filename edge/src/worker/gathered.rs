//! Facts that wait for the next queue call.

use std::cell::{Cell, RefCell};

use causeway_shared::base::ids::Millis;

use crate::http::answer::FactsMessage;

/// Time after which another request sends the gathered facts, in milliseconds, because the platform has ended the
/// request that should have sent them.
const OVERDUE_MS: u64 = 1_000;

/// Most bytes of one queue call. The platform's own bound is 256 KB.
const CALL_BYTES: usize = 200_000;

/// Most messages of one queue call, the platform's own bound.
const CALL_MESSAGES: usize = 100;

/// Facts that wait for the next queue call.
#[derive(Default)]
pub(super) struct GatheredFacts {
    messages: RefCell<Vec<FactsMessage>>,
    /// Time at which a request last undertook to send them.
    since: Cell<Millis>,
}

impl GatheredFacts {
    /// Adds facts. Returns `true` if this request must send the facts that are gathered in the meantime.
    pub(super) fn add(&self, facts: FactsMessage, now: Millis) -> bool {
        let mut messages = self.messages.borrow_mut();
        messages.push(facts);
        let is_sender = messages.len() == 1 || now >= self.since.get() + OVERDUE_MS;
        if is_sender {
            self.since.set(now);
        }
        is_sender
    }

    /// Takes the facts of one queue call: messages of the queue that the oldest message belongs to. `queue_of` gives
    /// the queue of a hash.
    pub(super) fn take_call(&self, queue_of: impl Fn(u64) -> u32) -> Vec<FactsMessage> {
        let mut messages = self.messages.borrow_mut();
        let queue = messages.first().map(|oldest| queue_of(oldest.hash));
        let (mut count, mut bytes) = (0, 0);
        // One message never exceeds the bound of bytes.
        let is_taken = |facts: &mut FactsMessage| {
            if Some(queue_of(facts.hash)) != queue {
                return false;
            }
            (count, bytes) = (count + 1, bytes + facts.bytes.len());
            count <= CALL_MESSAGES && bytes <= CALL_BYTES
        };
        messages.extract_if(.., is_taken).collect()
    }
}
