//! The facts queue: delivers at least once, in any order, after any delay.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;

use crate::dice::Dice;

/// Faults of the queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueFaults {
    /// Sends that are refused, per mille.
    pub refuses: u64,
    /// Acknowledgements that are lost, so that the message is delivered again, per mille.
    pub again: u64,
    /// Messages that wait for up to three hours, per mille.
    pub waits: u64,
}

/// A message.
#[derive(Debug, Clone)]
pub struct Message {
    /// A batch of facts as the edge packed it.
    pub body: Vec<u8>,
    /// Number of deliveries, this one included.
    pub attempts: u32,
    due: Millis,
}

/// The queue. A dead letter is queued again at once, as the edge's consumer of dead letters does.
#[derive(Debug)]
pub struct Queue {
    waiting: BTreeMap<u64, Message>,
    /// Messages that were handed out; each is delivered again at its `due` unless it is acknowledged.
    out: BTreeMap<u64, Message>,
    next: u64,
    dice: Dice,
    /// Faults in force now.
    pub faults: QueueFaults,
}

impl Queue {
    /// An empty queue without faults.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        let faults = QueueFaults::default();
        Self { waiting: BTreeMap::new(), out: BTreeMap::new(), next: 0, dice, faults }
    }

    /// Stores a message durably and returns `true`, or refuses it.
    pub fn send(&mut self, now: Millis, body: Vec<u8>) -> bool {
        if self.dice.chance(self.faults.refuses) {
            return false;
        }
        let waits = if self.dice.chance(self.faults.waits) { self.dice.below(3 * 3_600_000) } else { 0 };
        let due = now + self.dice.below(3_000) + waits;
        self.put(Message { body, attempts: 0, due });
        true
    }

    fn put(&mut self, message: Message) {
        self.next += 1;
        self.waiting.insert(self.next, message);
    }

    /// Hands out 1 to 100 due messages, in any order.
    pub fn take(&mut self, now: Millis) -> Vec<(u64, Message)> {
        let due: Vec<u64> = self.waiting.iter().filter(|(_, m)| m.due <= now).map(|(id, _)| *id).collect();
        let mut rest = due;
        let wanted = self.dice.between(1, 100).min(rest.len() as u64);
        let mut taken = Vec::new();
        for _ in 0..wanted {
            let id = rest.swap_remove(self.dice.place(rest.len()));
            if let Some(mut message) = self.waiting.remove(&id) {
                message.attempts += 1;
                // The consumer may die without an answer; the message is then delivered again.
                self.out.insert(id, Message { due: now + 300_000, ..message.clone() });
                taken.push((id, message));
            }
        }
        taken
    }

    /// A consumer has finished with a message; the acknowledgement may be lost.
    pub fn acknowledge(&mut self, id: u64) {
        let again = self.dice.chance(self.faults.again);
        if let Some(message) = self.out.remove(&id).filter(|_| again) {
            self.put(message);
        }
    }

    /// A consumer asks for another delivery after a delay. `dead`: that was the last attempt.
    pub fn retry(&mut self, now: Millis, id: u64, delay_s: u32, dead: bool) {
        if let Some(message) = self.out.remove(&id) {
            let due = now + u64::from(delay_s) * 1_000;
            self.put(if dead { Message { attempts: 0, due: now, ..message } } else { Message { due, ..message } });
        }
    }

    /// Queues messages again whose consumer never answered. Returns whether a message is due.
    pub fn look(&mut self, now: Millis) -> bool {
        let lost: Vec<u64> = self.out.iter().filter(|(_, m)| m.due <= now).map(|(id, _)| *id).collect();
        for id in lost {
            if let Some(message) = self.out.remove(&id) {
                self.put(message);
            }
        }
        self.waiting.values().any(|m| m.due <= now)
    }

    /// Whether no message waits and none is handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.out.is_empty()
    }

    /// Messages that wait or are handed out.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.waiting.len() + self.out.len()
    }
}
