//! The edge's locations. Each has the engine of one isolate and does the worker's part around it: at most two reads,
//! one answer, and facts to the queue.

use std::collections::BTreeMap;

use causeway_edge::{
    Engine, EngineStep, HttpAnswer, KvRead, KvValues, PendingCall, PendingRead, ReadFault, RequestTarget,
    UnservedReason, answer_unserved,
};
use causeway_shared::base::ids::{Millis, SnapshotVersion, VisitorId};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::kv as form;
use causeway_shared::wire::outbox_drain::KV_DEADLINE_MS;

use crate::browser::{Browser, BrowserCall, Jar, Kind};
use crate::check::facts::subject;
use crate::dice::Dice;
use crate::kv::Kv;
use crate::setup;
use crate::world::{Event, Phase, World};
use crate::{objects, sync};

/// One location of the edge, with one isolate.
#[derive(Debug)]
pub struct Location {
    /// The engine of the isolate.
    pub engine: Engine,
    /// The stage of the key rotation it is deployed with.
    pub stage: usize,
    /// Random number that identifies the isolate.
    pub life: u64,
    skew_ms: i64,
}

impl Location {
    /// A location with the keys of a stage.
    #[must_use]
    pub fn new(stage: usize, dice: &mut Dice) -> Self {
        let skew_ms = dice.below(3_000).cast_signed() - 1_500;
        Self { engine: engine(stage), stage, life: dice.throw(), skew_ms }
    }

    /// Starts a new isolate: the requests that waited in the previous one end, and its caches are empty.
    pub fn restart(&mut self, stage: usize, dice: &mut Dice) {
        self.engine = engine(stage);
        (self.stage, self.life) = (stage, dice.throw());
    }
}

/// A new engine with the keys of a stage.
#[must_use]
pub fn engine(stage: usize) -> Engine {
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let (config, keys) =
        (text(serde_json::to_string(&setup::config())), text(serde_json::to_string(setup::keys(stage))));
    Engine::configure(&config, &keys).unwrap_or_else(|error| unreachable!("the configuration can be used: {error}"))
}

/// A call in transit.
#[derive(Debug, Clone)]
pub struct Call {
    /// Index of the browser that waits; `None` for a call of a checker.
    pub browser: Option<usize>,
    /// Index of the tenant in [`setup::TENANTS`].
    pub tenant: usize,
    /// Index of the location that serves the call.
    pub location: usize,
    /// The call itself.
    pub asked: BrowserCall,
    /// The cookies that it carries.
    pub jar: Jar,
    /// Whether it sends `Sec-GPC: 1`.
    pub gpc: bool,
    /// Time of its arrival, by the location's clock.
    pub received: Millis,
    /// The latest end of its reads, by the world's clock.
    deadline: Millis,
    /// The isolate that serves it.
    life: u64,
    /// The stage of the key rotation at its location.
    pub stage: usize,
    /// Number of sequential reads so far.
    pub reads: u8,
    /// The snapshots that it was given from the KV, in the order of the read.
    pub given: Vec<Snapshot>,
    /// The keys of the current read.
    pub wanted: Vec<String>,
    /// The snapshots that the current read will return.
    pub coming: Vec<Snapshot>,
    /// By visitor: the newest version that the location had read before this call.
    pub floor: BTreeMap<VisitorId, SnapshotVersion>,
    /// The number of the call.
    pub asked_as: u64,
    /// The publication of the catalogue that the location had used last when this call first called an object. The
    /// call's catalogue was fixed at that time.
    pub settled: Option<SnapshotVersion>,
}

impl Call {
    /// Indexes of the ads that the browser's answers placed before this call; empty if the ledger's key is retired.
    #[must_use]
    pub fn placed(&self) -> &[usize] {
        let is_readable = self.jar.ledger.as_ref().is_some_and(|ledger| setup::reads(self.stage, ledger));
        if is_readable { &self.jar.placed } else { &[] }
    }
}

/// The query that marks the second call of a click.
const AGAIN: &str = "?again";

/// An answer that waits until the origin has its facts.
#[derive(Debug)]
pub struct HeldAnswer {
    call: Box<Call>,
    answer: HttpAnswer,
}

impl Call {
    /// The HTTP method.
    fn method(&self) -> &'static str {
        match self.asked.kind {
            Kind::Decide | Kind::Events => "POST",
            Kind::Pixel | Kind::Me => "GET",
            Kind::Erase => "DELETE",
        }
    }
}

impl World {
    /// A location's clock.
    #[must_use]
    pub fn edge_clock(&self, location: usize) -> Millis {
        self.now.saturating_add_signed(self.locations.get(location).map_or(0, |at| at.skew_ms))
    }
}

/// Lets a browser make its next call, and schedules the one after it.
pub fn act(world: &mut World, browser: usize) {
    if world.phase == Phase::Calm {
        return;
    }
    let settling = world.now < setup::BEGIN + world.plan.settled_ms;
    let again = match world.plan.settled_ms {
        0 if world.dice.chance(150) => world.dice.below(300),
        0 => world.dice.below(2 * world.plan.pace_ms),
        _ if settling => 600_000,
        _ => world.dice.between(2_000, 2 * world.plan.pace_ms),
    };
    world.later(again, Event::Act(browser));
    if world.plan.swaps && world.dice.chance(10) {
        swap(world, browser);
    }
    let (now, plan) = (world.now, &world.plan);
    let Some(at) = world.browsers.get_mut(browser) else { return };
    at.change(plan, &mut world.dice);
    let asked = at.ask(now, plan, &mut world.dice);
    // Two tabs, or two slots of one page, carry the same cookies.
    let (often, tabs) = world.plan.tabs;
    let parallel = if asked.kind == Kind::Decide && !settling && world.dice.chance(often) { tabs } else { 1 };
    let at = at.clone();
    for _ in 0..parallel {
        depart(world, Some(browser), &at, asked.clone());
    }
}

/// Two browsers of the same publisher exchange their users.
fn swap(world: &mut World, browser: usize) {
    let other = world.dice.place(world.browsers.len());
    if let Ok([one, another]) = world.browsers.get_disjoint_mut([browser, other])
        && one.tenant == another.tenant
    {
        one.swap(another);
    }
}

/// A call leaves its browser.
pub fn depart(world: &mut World, browser: Option<usize>, of: &Browser, asked: BrowserCall) {
    let location = world.dice.place(world.locations.len());
    let call = Call {
        browser,
        tenant: of.tenant,
        location,
        asked,
        jar: of.jar.clone(),
        gpc: of.gpc,
        received: 0,
        deadline: 0,
        life: 0,
        stage: 0,
        reads: 0,
        given: Vec::new(),
        wanted: Vec::new(),
        coming: Vec::new(),
        floor: BTreeMap::new(),
        asked_as: world.check.caps.next_call(),
        settled: None,
    };
    let after = world.dice.between(5, 300);
    world.later(after, Event::Arrive(Box::new(call)));
}

/// A call reaches its location.
pub fn arrive(world: &mut World, mut call: Call) {
    let now = world.edge_clock(call.location);
    (call.received, call.deadline) = (now, world.now + KV_DEADLINE_MS);
    let seed = world.dice.bytes::<32>();
    let method = call.method();
    let host = setup::TENANTS.get(call.tenant).copied().unwrap_or_default();
    let (path, cookie, gpc) = (&call.asked.path, call.jar.header(), if call.gpc { "1" } else { "" });
    let in_body = call.asked.kind == Kind::Decide;
    let member = call.asked.member.filter(|_| !in_body);
    let proof = member.map(|m| crate::browser::proof_of(m, call.tenant, world.now)).unwrap_or_default();
    let explain = setup::EXPLAIN;
    let head = format!("{method}\nhttps://{host}.example{path}\n{cookie}\n\n{gpc}\n\nMozilla/5.0\n{explain}\n{proof}");
    let Some(at) = world.locations.get_mut(call.location) else { return };
    (call.life, call.stage) = (at.life, at.stage);
    let next = at.engine.begin(&head, &call.asked.body, now, seed);
    world.say(|| format!("{:?} {method} {path} at {} as {:?}", call.browser, call.location, call.asked.member));
    step(world, call, next);
}

/// Performs the step that the engine asks for.
fn step(world: &mut World, mut call: Call, next: EngineStep) {
    match next {
        EngineStep::Read(read) => begin_read(world, call, *read),
        EngineStep::Call(pending, object_call) => {
            // The catalogue was fixed before the first of two objects is called.
            call.settled.get_or_insert(world.check.versions.published_to(&call));
            objects::ask(world, call, pending, object_call);
        }
        EngineStep::Answer(answer) => deliver(world, call, answer),
        EngineStep::Unserved(reason) => unserved(world, call, reason),
        EngineStep::Page(page) => world.check.fail("pages", format!("{:?} is answered with {page:?}", call.asked.kind)),
    }
}

/// Begins a bulk read of the KV, which ends at the call's deadline at the latest.
fn begin_read(world: &mut World, mut call: Call, read: KvRead) {
    let KvRead { keys, pending, .. } = read;
    let pending = Box::new(pending);
    world.check.reads(&call, &keys);
    if keys.is_empty() {
        return world.later(0, Event::Read(Box::new(call), pending, Ok(Vec::new())));
    }
    call.reads += 1;
    let slow = world.dice.chance(world.plan.slow_reads);
    let takes = if slow { world.dice.between(90, 400) } else { world.dice.between(1, 40) };
    let values = world.kv.read(world.now, call.location, &keys);
    let (after, values) = if world.now + takes > call.deadline {
        (call.deadline.saturating_sub(world.now), Err(ReadFault::Late))
    } else {
        (takes, values.ok_or(ReadFault::Failed))
    };
    let found = values.iter().flat_map(|values| keys.iter().zip(values));
    call.coming = found.filter_map(|(key, value)| snapshot(key, value.as_deref()?)).collect();
    call.wanted = keys;
    let bytes = |values: Vec<Option<String>>| values.into_iter().map(|value| value.map(String::into_bytes)).collect();
    world.later(after, Event::Read(Box::new(call), pending, values.map(bytes)));
}

/// The snapshot in a KV value, if the value is an intact snapshot.
fn snapshot(key: &str, value: &str) -> Option<Snapshot> {
    match form::decode_stored(key, subject(key)?.1, value.as_bytes()) {
        Ok(StoredValue::Snapshot(snapshot)) => Some(*snapshot),
        _ => None,
    }
}

/// A bulk read has ended.
pub fn resume_read(world: &mut World, mut call: Call, pending: PendingRead, values: &KvValues) {
    // If the isolate has ended, the read has no effect on the location.
    if world.locations.get(call.location).is_some_and(|at| at.life == call.life) {
        world.check.versions.read(&mut call);
    }
    let coming = std::mem::take(&mut call.coming);
    call.given.extend(coming);
    resume(world, call, |engine| engine.resume_read(pending, values));
}

/// An object has answered; `None` if it did not answer in time.
pub fn resume_call(world: &mut World, call: Call, pending: PendingCall, answer: Option<&[u8]>) {
    resume(world, call, |engine| engine.resume_call(pending, answer));
}

/// Continues a call in its isolate. Requests end with their isolate: their browsers get no answer.
fn resume(world: &mut World, call: Call, resume: impl FnOnce(&mut Engine) -> EngineStep) {
    let Some(at) = world.locations.get_mut(call.location) else { return };
    if at.life != call.life {
        return world.say(|| "a call ends with its isolate".to_owned());
    }
    let next = resume(&mut at.engine);
    step(world, call, next);
}

/// Sends the facts of an answer to the queue. The answer leaves after the queue accepted them, or at once if it does
/// not wait.
fn deliver(world: &mut World, call: Call, answer: HttpAnswer) {
    world.check.emitted(&call, &answer);
    let Some(message) = &answer.facts else { return leave(world, call, answer) };
    let Some((tenant, facts)) = sync::facts_of(&message.bytes) else { return };
    let taken = world.queue.send(world.now, message.bytes.clone());
    for fact in &facts {
        world.model.tell(&tenant, fact, taken);
    }
    if taken {
        let after = world.dice.between(500, 2_000);
        world.later(after, Event::Consume);
        return leave(world, call, answer);
    }
    let (location, batch) = (call.location, message.bytes.clone());
    if message.is_awaited {
        let held = Box::new(HeldAnswer { call: Box::new(call), answer });
        sync::deliver_directly(world, location, batch, Some(held));
    } else {
        sync::deliver_directly(world, location, batch, None);
        leave(world, call, answer);
    }
}

/// A click that was not served is called a second time; no other call may go unserved.
fn unserved(world: &mut World, call: Call, reason: UnservedReason) {
    if call.asked.kind == Kind::Pixel && !call.asked.path.ends_with(AGAIN) {
        return come_again(world, call);
    }
    world.check.fail("pages", format!("{:?} is not served: {}", call.asked.kind, reason.name()));
}

/// The browser follows the redirect of a click that was not served.
fn come_again(world: &mut World, mut call: Call) {
    call.asked.path.push_str(AGAIN);
    (call.reads, call.settled) = (0, None);
    [&mut call.given, &mut call.coming].into_iter().for_each(Vec::clear);
    call.wanted.clear();
    let after = world.dice.between(5, 300);
    world.later(after, Event::Arrive(Box::new(call)));
}

/// The origin accepted the facts of an answer, or did not; the answer that waited for it leaves.
pub fn delivered_directly(world: &mut World, held: Option<Box<HeldAnswer>>, taken: bool) {
    let Some(held) = held else { return };
    let HeldAnswer { call, answer } = *held;
    let path = &call.asked.path;
    let target = RequestTarget { method: call.method(), path, query: "", origin: None, requested_headers: None };
    let answer = if taken { answer } else { answer_unserved(&target, UnservedReason::Retry) };
    leave(world, *call, answer);
}

/// The answer leaves for its browser.
fn leave(world: &mut World, call: Call, answer: HttpAnswer) {
    let after = if world.dice.chance(200) { world.dice.between(5, 3_000) } else { world.dice.between(5, 200) };
    world.later(after, Event::Answer(Box::new(call), answer.status, answer.headers, answer.body));
}

/// The answer of an engine with the newest written KV values and without answers of objects. `None` if the request is
/// not served.
pub fn answer_at_centre(engine: &mut Engine, kv: &Kv, head: &str, body: &[u8], now: Millis) -> Option<HttpAnswer> {
    let mut next = engine.begin(head, body, now, [7; 32]);
    loop {
        next = match next {
            EngineStep::Read(read) => {
                let values = read.keys.iter().map(|key| Some(kv.value(key)?.as_bytes().to_vec())).collect();
                engine.resume_read(read.pending, &Ok(values))
            }
            EngineStep::Call(pending, _) => engine.resume_call(pending, None),
            EngineStep::Answer(answer) => return Some(answer),
            EngineStep::Page(_) | EngineStep::Unserved(_) => return None,
        };
    }
}

/// An answer reaches its browser, unless it is lost.
pub fn answered(world: &mut World, call: Call, status: u16, headers: &[(&'static str, String)], body: &[u8]) {
    world.say(|| format!("answer to {:?}: {status} {}", call.browser, String::from_utf8_lossy(body)));
    world.check.answered(&call, status, body);
    let lost = world.dice.chance(world.plan.lost_pages);
    let placed = world.check.caps.placed_on(call.asked_as);
    let Some(browser) = call.browser.and_then(|browser| world.browsers.get_mut(browser)) else { return };
    let come_again = call.asked.kind == Kind::Events && (status == 503 || lost);
    if come_again {
        browser.again = Some(call.asked.clone());
    }
    if lost {
        return;
    }
    for (_, header) in headers.iter().filter(|(name, _)| *name == "set-cookie") {
        browser.jar.set(header);
    }
    if call.asked.kind == Kind::Decide {
        let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let of = answer["visitor"].as_str().map(str::to_owned);
        let token = answer["visitor_token"].as_str().map(str::to_owned);
        browser.named = of.as_ref().and_then(|of| of.parse().ok()).zip(token);
        let before = call.placed().iter().filter(|_| call.jar.of == of);
        let ((sees, at_once), mut loaded) = (world.plan.sees, Vec::new());
        (browser.jar.placed, browser.jar.of) = (before.copied().chain(placed).collect(), of);
        for decision in answer["decisions"].as_array().into_iter().flatten() {
            for address in ["impression_url", "click_url"] {
                let Some(path) = decision[address].as_str().filter(|_| world.dice.chance(sees)) else { continue };
                if address == "impression_url" && world.dice.chance(at_once) {
                    loaded.push(path.to_owned());
                } else {
                    browser.shown.push(path.to_owned());
                }
            }
        }
        let over = browser.shown.len().saturating_sub(12);
        browser.shown.drain(..over);
        let of = browser.clone();
        for path in loaded {
            let asked = BrowserCall { kind: Kind::Pixel, path, body: Vec::new(), member: None, owner: None };
            depart(world, call.browser, &of, asked);
        }
    }
}
