//! Facts that wait for the next call of the queue.

use std::cell::{Cell, RefCell};

use causeway_shared::base::ids::Millis;

use crate::http::answer::FactsMessage;

/// Time after which another request sends what was gathered, in milliseconds: the platform has ended the one that was to.
const OVERDUE_MS: Millis = 1_000;

const CALL_BYTES: usize = 200_000;

/// Bounds on one call of the queue. The platform's are 100 messages and 256 KB.
const CALL_MESSAGES: usize = 100;

/// Facts that wait for the next call of the queue.
#[derive(Default)]
pub(super) struct GatheredFacts {
    messages: RefCell<Vec<FactsMessage>>,
    /// When a request last undertook to send them.
    since: Cell<Millis>,
}

impl GatheredFacts {
    /// Adds facts. True if their request is to send all that are gathered meanwhile.
    pub(super) fn add(&self, facts: FactsMessage, now: Millis) -> bool {
        let mut messages = self.messages.borrow_mut();
        messages.push(facts);
        let is_sender = messages.len() == 1 || now >= self.since.get() + OVERDUE_MS;
        if is_sender {
            self.since.set(now);
        }
        is_sender
    }

    /// Takes the facts of one call of the queue.
    pub(super) fn take_call(&self) -> Vec<FactsMessage> {
        let mut messages = self.messages.borrow_mut();
        let mut bytes = 0;
        let fits = |facts: &&FactsMessage| {
            bytes += facts.bytes.len();
            bytes <= CALL_BYTES
        };
        // One message is always within the bound of bytes.
        let count = messages.iter().take(CALL_MESSAGES).take_while(fits).count();
        messages.drain(..count).collect()
    }
}
