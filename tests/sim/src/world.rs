//! The world: one queue of events, ordered by simulated time, and the effect of each event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use causeway_edge::{KvValues, PendingRead};
use causeway_origin::kv::verify::VerifyReport;
use causeway_shared::base::ids::Millis;

use crate::browser::Browser;
use crate::bulk::BulkStep;
use crate::check::{Check, Failure};
use crate::dice::Dice;
use crate::edge::{Call, Location};
use crate::kv::Kv;
use crate::model::Model;
use crate::objects::{ObjectMessage, Objects};
use crate::origin::Origin;
use crate::queue::Queue;
use crate::setup::{self, Plan};
use crate::sync::{Drain, Exchange};
use crate::{bulk, edge, objects, operators, sync};

/// Time after the end of all faults within which the world must converge; messages wait for at most three hours.
pub const CONVERGE_MS: u64 = 5 * 3_600_000;

/// An event of the world.
#[derive(Debug)]
pub enum Event {
    /// The browser with this index makes a call.
    Act(usize),
    /// A call reaches a location.
    Arrive(Box<Call>),
    /// A bulk read of the KV ends; the event owns the request that waits for it.
    Read(Box<Call>, Box<PendingRead>, KvValues),
    /// An answer reaches its browser, unless it is lost.
    Answer(Box<Call>, u16, Vec<(&'static str, String)>, Vec<u8>),
    /// A facts consumer looks into the queue.
    Consume,
    /// A sync reaches the origin.
    AtOrigin(Box<Exchange>),
    /// The origin's answer to a sync reaches the edge; `None` if it was lost.
    Back(Box<Exchange>, Option<Box<causeway_shared::wire::sync::SyncResponse>>),
    /// The origin's folding thread is triggered.
    Fold,
    /// The publish consumer is triggered.
    Wake,
    /// One write of a drain.
    Put(Box<Drain>),
    /// A step of the bulk publisher.
    Bulk(Box<BulkStep>),
    /// A message reaches an object, or an object's answer returns.
    Object(Box<ObjectMessage>),
    /// The deadline of a request's object call.
    ObjectLate(u64),
    /// The job `verify` continues or begins.
    Verify,
    /// The cron trigger of every minute.
    Cron,
    /// An action of an operator, or a fault.
    Do(operators::Deed),
}

/// The phase of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Faults and operators are active.
    Faults,
    /// No faults and no new calls; the world must converge.
    Calm,
}

/// A world.
#[derive(Debug)]
pub struct World {
    /// The simulated time.
    pub now: Millis,
    /// The world's random numbers.
    pub dice: Dice,
    /// The faults that it plays.
    pub plan: Plan,
    /// The current phase.
    pub phase: Phase,
    /// The KV.
    pub kv: Kv,
    /// The facts queue.
    pub queue: Queue,
    /// The origin.
    pub origin: Origin,
    /// The Durable Objects of strict caps and limited offers.
    pub objects: Objects,
    /// The edge's locations.
    pub locations: Vec<Location>,
    /// All browsers.
    pub browsers: Vec<Browser>,
    /// The reference model of all facts.
    pub model: Model,
    /// The checkers of the invariants.
    pub check: Check,
    /// Number of running publish consumers, and whether another one was triggered meanwhile.
    pub drains: (u32, bool),
    /// The latest stage of the key rotation.
    pub stage: usize,
    /// The report of the last verification after the end of all faults.
    pub verified: Option<VerifyReport>,
    /// Number of events so far.
    pub count: u64,
    events: BinaryHeap<Reverse<(Millis, u64)>>,
    by_id: BTreeMap<u64, Event>,
    next: u64,
    trace: Option<Vec<String>>,
}

impl World {
    /// A world before its first event.
    #[must_use]
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        Self::begin(dice, plan, trace)
    }

    /// A world with a given plan, before its first event.
    #[must_use]
    pub fn with(seed: u64, plan: Plan) -> Self {
        Self::begin(Dice::new(seed), plan, false)
    }

    fn begin(mut dice: Dice, plan: Plan, trace: bool) -> Self {
        let mut kv = Kv::new(dice.apart());
        kv.faults = plan.kv;
        let mut queue = Queue::new(dice.apart());
        queue.faults = plan.queue;
        let origin = Origin::new(dice.apart());
        let locations = (0..plan.locations).map(|_| Location::new(0, &mut dice)).collect();
        let browsers = (0..plan.browsers).map(|_| Browser::new(&plan, &mut dice)).collect();
        let mut world = Self {
            now: setup::BEGIN,
            dice,
            plan,
            phase: Phase::Faults,
            kv,
            queue,
            origin,
            objects: Objects::default(),
            locations,
            browsers,
            model: Model::default(),
            check: Check::default(),
            drains: (0, false),
            stage: 0,
            verified: None,
            count: 0,
            events: BinaryHeap::new(),
            by_id: BTreeMap::new(),
            next: 0,
            trace: trace.then(Vec::new),
        };
        for browser in 0..world.browsers.len() {
            let after = world.dice.below(60_000);
            world.later(after, Event::Act(browser));
        }
        world.later(60_000, Event::Cron);
        if world.plan.bulk {
            world.later(30_000, Event::Bulk(Box::new(BulkStep::Lease)));
        }
        operators::begin(&mut world);
        let Plan { withdrawals, erasures, cancellations, restore, .. } = world.plan;
        world.check.caps.only_grows = !(withdrawals || erasures || cancellations || restore);
        world
    }

    /// Schedules an event after a delay.
    pub fn later(&mut self, after: Millis, event: Event) {
        self.next += 1;
        self.events.push(Reverse((self.now + after, self.next)));
        self.by_id.insert(self.next, event);
    }

    /// Adds a line to the trace, if the world is traced.
    pub fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            let since = self.now - setup::BEGIN;
            lines.push(format!("{:>6} {:>9}.{:03} s  {}", self.count, since / 1_000, since % 1_000, what()));
        }
    }

    /// The lines of the trace.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Plays the world: faults until `faults` events have occurred, then until it has converged.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn run(&mut self, faults: u64) -> Result<(), Failure> {
        while self.count < faults && self.step()? {}
        self.calm_down();
        let end = self.now + CONVERGE_MS;
        while !self.is_still() && self.now < end && self.step()? {}
        // A cache may still hold replaced values, and some writes wait for a minute.
        let end = self.now + 1_300_000;
        while self.now < end && self.step()? {}
        self.check_converged()?;
        let repaired = self.verify()?;
        if repaired > 0 {
            // A second verification must find nothing to repair.
            let end = self.now + 1_300_000;
            while self.now < end && self.step()? {}
            if self.verify()? > 0 {
                return Err(Failure { checker: "verified", what: "a repair of the KV did not last".to_owned() });
            }
        }
        Ok(())
    }

    /// Verifies the KV through the locations; returns the number of repaired keys.
    fn verify(&mut self) -> Result<u64, Failure> {
        self.verified = None;
        self.later(0, Event::Verify);
        let end = self.now + CONVERGE_MS;
        while self.verified.is_none() && self.now < end && self.step()? {}
        self.check_verified()?;
        Ok(self.verified.as_ref().map_or(0, |verified| verified.put))
    }

    fn step(&mut self) -> Result<bool, Failure> {
        let Some(Reverse((at, id))) = self.events.pop() else { return Ok(false) };
        let Some(event) = self.by_id.remove(&id) else { return Ok(true) };
        self.now = self.now.max(at);
        self.count += 1;
        self.happen(event);
        self.check.take_failure().map_or(Ok(true), Err)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(browser) => edge::act(self, browser),
            Event::Arrive(call) => edge::arrive(self, *call),
            Event::Read(call, pending, values) => edge::resume_read(self, *call, *pending, &values),
            Event::Answer(call, status, headers, body) => edge::answered(self, *call, status, &headers, &body),
            Event::Consume => sync::consume(self),
            Event::AtOrigin(exchange) => sync::at_origin(self, *exchange),
            Event::Back(exchange, answer) => sync::back(self, *exchange, answer.map(|answer| *answer)),
            Event::Fold => sync::fold(self),
            Event::Wake => sync::wake(self),
            Event::Put(drain) => sync::put(self, *drain),
            Event::Bulk(step) => bulk::happen(self, *step),
            Event::Object(message) => objects::arrive(self, *message),
            Event::ObjectLate(request) => objects::resume_request(self, request, None),
            Event::Verify => operators::verify(self),
            Event::Cron => self.cron(),
            Event::Do(deed) => operators::happen(self, deed),
        }
    }

    fn cron(&mut self) {
        self.later(60_000, Event::Cron);
        self.later(0, Event::Wake);
        if self.queue.look(self.now) {
            self.later(0, Event::Consume);
        }
        // The origin's threads also look for work without a trigger.
        if self.origin.is_behind() {
            self.later(0, Event::Fold);
        }
    }

    /// Ends all faults, and starts what is down.
    fn calm_down(&mut self) {
        self.say(|| "── all faults end".to_owned());
        self.phase = Phase::Calm;
        self.kv.faults = crate::kv::KvFaults::default();
        self.queue.faults = crate::queue::QueueFaults::default();
        self.plan.lost_answers = 0;
        self.plan.lost_syncs = 0;
        self.plan.lost_pages = 0;
        self.plan.late_writes = 0;
        self.plan.busy_calls = 0;
        self.plan.dying_consumers = 0;
        self.plan.slow_reads = 0;
        self.plan.lost_objects = 0;
        self.plan.two_drains = false;
        self.by_id.retain(|_, event| !matches!(event, Event::Verify));
        self.origin.verified();
        operators::calm_down(self);
    }

    /// Whether nothing is in transit or waiting.
    fn is_still(&mut self) -> bool {
        let is_routine = |event: &Event| match event {
            Event::Cron | Event::Wake | Event::Act(_) => true,
            Event::Bulk(step) => matches!(**step, BulkStep::Lease),
            _ => false,
        };
        let on_its_way = self.by_id.values().any(|event| !is_routine(event));
        !on_its_way && self.queue.is_empty() && !self.origin.is_behind() && self.outbox_is_empty()
    }

    fn outbox_is_empty(&mut self) -> bool {
        const WAITING: &str = "SELECT (SELECT count(*) FROM outbox WHERE due IS NOT NULL)
            + (SELECT count(*) FROM people WHERE siblings_due IS NOT NULL)";
        let Some((store, _)) = self.origin.store() else { return false };
        let waiting = store.prepare_cached(WAITING).and_then(|mut read| read.query_row([], |row| row.get::<_, i64>(0)));
        waiting.is_ok_and(|waiting| waiting == 0)
    }
}
