//! The Durable Objects: strict caps with one object per visitor, and limited offers with one per campaign and range. An
//! object stores its state durably before it answers. The network to objects is slow and loses messages.

use std::collections::BTreeMap;

use causeway_edge::{InvalidObjectCall, ObjectCall, ObjectClass, ObjectNext, ObjectStep, PendingCall, RowWrite};
use causeway_shared::base::ids::Millis;

use crate::edge::{self, Call};
use crate::world::{Event, World};

/// Time for which a request waits for its object, in milliseconds.
const DEADLINE_MS: u64 = 100;

/// A call to an object, or an object's answer, in transit.
#[derive(Debug)]
pub struct ObjectMessage {
    /// The request that the answer is for; it may have continued without an answer.
    request: u64,
    /// Objects that forwarded the call: the name of each, and the call that it sent.
    forwarded: Vec<(String, ObjectCall)>,
    content: MessageContent,
}

#[derive(Debug)]
enum MessageContent {
    /// A call.
    Call(ObjectCall),
    /// The answer to the last forwarded call, or to the request.
    Answer(Vec<u8>),
}

/// The stored state of all objects, and the requests that wait for an answer.
#[derive(Debug, Default)]
pub struct Objects {
    strict_caps: BTreeMap<String, Vec<u8>>,
    /// Rows by their keys.
    offers: BTreeMap<String, BTreeMap<String, String>>,
    pending: BTreeMap<u64, (Box<Call>, PendingCall)>,
    next: u64,
}

/// Sends a request's call to an object and schedules its deadline.
pub fn ask(world: &mut World, call: Call, pending: PendingCall, object_call: ObjectCall) {
    let objects = &mut world.objects;
    objects.next += 1;
    let request = objects.next;
    objects.pending.insert(request, (Box::new(call), pending));
    world.later(DEADLINE_MS, Event::ObjectLate(request));
    let content = MessageContent::Call(object_call);
    send(world, ObjectMessage { request, forwarded: Vec::new(), content });
}

/// Sends a message, which may be lost.
fn send(world: &mut World, message: ObjectMessage) {
    if world.dice.chance(world.plan.lost_objects) {
        return;
    }
    let slow = world.dice.chance(world.plan.lost_objects);
    let after = if slow { world.dice.between(50, 2_000) } else { world.dice.between(1, 15) };
    world.later(after, Event::Object(Box::new(message)));
}

/// Delivers a message to its object, or an answer to the object or request that waits for it.
pub fn arrive(world: &mut World, message: ObjectMessage) {
    let now = world.now;
    let ObjectMessage { request, mut forwarded, content } = message;
    let content = match content {
        MessageContent::Call(call) => match world.objects.call(&call, now) {
            Ok(ObjectNext::Answer(answer)) => MessageContent::Answer(answer),
            Ok(ObjectNext::Forward(next)) => {
                forwarded.push((call.object, next.clone()));
                MessageContent::Call(next)
            }
            Err(error) => return world.check.fail("caps", format!("object {}: {error}", call.object)),
        },
        MessageContent::Answer(answer) => match forwarded.pop() {
            Some((name, call)) => match world.objects.receive(&name, &call, &answer, now) {
                Ok(()) => MessageContent::Answer(answer),
                Err(error) => return world.check.fail("caps", format!("object {name}: {error}")),
            },
            None => return resume_request(world, request, Some(&answer)),
        },
    };
    send(world, ObjectMessage { request, forwarded, content });
}

impl Objects {
    /// Calls an object and stores its new state.
    fn call(&mut self, call: &ObjectCall, now: Millis) -> Result<ObjectNext, InvalidObjectCall> {
        let ObjectCall { class, object, body } = call;
        match class {
            ObjectClass::StrictCaps => {
                let stored = self.strict_caps.entry(object.clone()).or_default();
                let ObjectStep { store, next } = causeway_edge::call_strict_caps(stored, body, now)?;
                *stored = store;
                Ok(next)
            }
            ObjectClass::Offers => {
                let rows = self.rows(object, body)?;
                let ObjectStep { store, next } = causeway_edge::call_offers(&rows, body)?;
                self.write_rows(object, store);
                Ok(next)
            }
        }
    }

    /// Gives an object the answer to the call that it forwarded, and stores its new state.
    fn receive(
        &mut self,
        object: &str,
        forwarded: &ObjectCall,
        answer: &[u8],
        now: Millis,
    ) -> Result<(), InvalidObjectCall> {
        let ObjectCall { class, body, .. } = forwarded;
        match class {
            ObjectClass::StrictCaps => {
                let stored = self.strict_caps.entry(object.to_owned()).or_default();
                *stored = causeway_edge::receive_strict_caps(stored, body, answer, now)?;
            }
            ObjectClass::Offers => {
                let rows = self.rows(object, body)?;
                let writes = causeway_edge::receive_offers(&rows, body, answer)?;
                self.write_rows(object, writes);
            }
        }
        Ok(())
    }

    /// The rows that an offer object reads for a call.
    fn rows(&self, object: &str, call: &[u8]) -> Result<Vec<Option<String>>, InvalidObjectCall> {
        let keys = causeway_edge::offer_row_keys(call)?;
        let stored = self.offers.get(object);
        Ok(keys.iter().map(|key| stored?.get(key).cloned()).collect())
    }

    fn write_rows(&mut self, object: &str, writes: Vec<RowWrite>) {
        let stored = self.offers.entry(object.to_owned()).or_default();
        for RowWrite { key, value } in writes {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
    }
}

/// Continues a request with the object's answer, or without one at its deadline; only the first of both has an effect.
pub fn resume_request(world: &mut World, request: u64, answer: Option<&[u8]>) {
    if let Some((call, pending)) = world.objects.pending.remove(&request) {
        edge::resume_call(world, *call, pending, answer);
    }
}
