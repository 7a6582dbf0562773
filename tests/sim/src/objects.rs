//! The objects of strict caps, one a visitor, and of limited offers, one a range: each with what it stores, which is durable
//! before it answers. The network to them is slow, and fails; the shell's part is what `edge/shell/person.mjs` and
//! `edge/shell/units.mjs` do.

use std::collections::BTreeMap;

use causeway_shared::ids::Millis;

use causeway_edge::{Class, Outcome};

use crate::edge::{self, Call};
use crate::world::{Event, World};

/// How long a request waits for its object.
const DEADLINE_MS: u64 = 100;

/// A call of an object on its way, and the objects that wait for its answer.
#[derive(Debug)]
pub struct Hop {
    /// Which request waits; it may have gone on.
    request: u64,
    class: Class,
    /// Objects that passed the call on, with what they passed.
    passed: Vec<(String, Vec<u8>)>,
    going: Going,
}

#[derive(Debug)]
enum Going {
    /// To an object, with a call.
    There(String, Vec<u8>),
    /// Back, with an answer.
    Back(Vec<u8>),
}

/// What all objects store, and the requests that wait for one.
#[derive(Debug, Default)]
pub struct Objects {
    persons: BTreeMap<String, Vec<u8>>,
    /// Rows by their keys.
    units: BTreeMap<String, BTreeMap<String, String>>,
    waiting: BTreeMap<u64, (Box<Call>, u32)>,
    next: u64,
}

/// A request asks an object.
pub fn ask(world: &mut World, call: Call, turn: u32, class: Class, object: String, body: Vec<u8>) {
    let objects = &mut world.objects;
    objects.next += 1;
    let request = objects.next;
    objects.waiting.insert(request, (Box::new(call), turn));
    world.later(DEADLINE_MS, Event::ObjectLate(request));
    travel(world, Hop { request, class, passed: Vec::new(), going: Going::There(object, body) });
}

/// A message to or from an object travels, unless it gets lost.
fn travel(world: &mut World, hop: Hop) {
    if world.dice.chance(world.plan.lost_objects) {
        return;
    }
    let slow = world.dice.chance(world.plan.lost_objects);
    let after = if slow { world.dice.between(50, 2_000) } else { world.dice.between(1, 15) };
    world.later(after, Event::Object(Box::new(hop)));
}

/// It arrives.
pub fn arrive(world: &mut World, mut hop: Hop) {
    let now = world.now;
    match hop.going {
        Going::There(name, call) => {
            let outcome = world.objects.call(hop.class, &name, &call, now);
            if outcome.head.status == 400 {
                world.check.fail("caps", format!("object {name} does not understand a call"));
                return;
            }
            hop.going = match outcome.head.hop {
                Some(next) => {
                    hop.passed.push((name, outcome.body.clone()));
                    Going::There(next, outcome.body)
                }
                None => Going::Back(outcome.body),
            };
            travel(world, hop);
        }
        Going::Back(answer) => match hop.passed.pop() {
            Some((name, call)) => {
                let outcome = world.objects.passed(hop.class, &name, &call, &answer, now);
                hop.going = Going::Back(outcome.body);
                travel(world, hop);
            }
            None => go_on(world, hop.request, &answer),
        },
    }
}

impl Objects {
    fn call(&mut self, class: Class, name: &str, call: &[u8], now: Millis) -> Outcome {
        match class {
            Class::Persons => self.person(name, |stored| causeway_edge::object(stored, call, now)),
            Class::Units => self.unit(name, call, |rows| causeway_edge::unit(rows, call)),
        }
    }

    fn passed(&mut self, class: Class, name: &str, call: &[u8], answer: &[u8], now: Millis) -> Outcome {
        match class {
            Class::Persons => self.person(name, |stored| causeway_edge::passed(stored, call, answer, now)),
            Class::Units => self.unit(name, call, |rows| causeway_edge::unit_passed(rows, call, answer)),
        }
    }

    fn person(&mut self, name: &str, step: impl Fn(&[u8]) -> Outcome) -> Outcome {
        let stored = self.persons.entry(name.to_owned()).or_default();
        let outcome = step(stored);
        if outcome.head.status != 400 {
            stored.clone_from(&outcome.facts);
        }
        outcome
    }

    fn unit(&mut self, name: &str, call: &[u8], step: impl Fn(&[u8]) -> Outcome) -> Outcome {
        let stored = self.units.entry(name.to_owned()).or_default();
        let keys = causeway_edge::unit_rows(call).head.read;
        let rows: Vec<&str> = keys.iter().map(|key| stored.get(key).map_or("", String::as_str)).collect();
        let outcome = step(rows.join("\n").as_bytes());
        for line in String::from_utf8_lossy(&outcome.facts).lines() {
            match line.split_once(' ') {
                Some((key, "")) => drop(stored.remove(key)),
                Some((key, value)) => drop(stored.insert(key.to_owned(), value.to_owned())),
                None => {}
            }
        }
        outcome
    }
}

/// The request goes on, with the answer or without: whichever comes first.
pub fn go_on(world: &mut World, request: u64, answer: &[u8]) {
    if let Some((call, turn)) = world.objects.waiting.remove(&request) {
        edge::resume_with(world, *call, turn, answer, "");
    }
}
