//! The edge's locations: the module that is deployed, behind a shell that does what `edge/shell/worker.mjs` does: two reads
//! at most, one answer, facts to the queue.

use std::collections::BTreeMap;

use causeway_edge::{Engine, Outcome};
use causeway_shared::delivery::KV_DEADLINE_MS;
use causeway_shared::ids::{Millis, Version, VisitorId};
use causeway_shared::view::{Snapshot, Stored};
use causeway_shared::wire::kv as form;

use crate::browser::{Asked, Browser, Jar, Kind};
use crate::check::facts::subject;
use crate::dice::Dice;
use crate::setup;
use crate::world::{Event, Phase, World};
use crate::{objects, sync};

/// One location of the edge, with one isolate.
#[derive(Debug)]
pub struct Location {
    /// What the isolate runs.
    pub engine: Engine,
    /// The stage of the key rotation it is deployed with.
    pub stage: usize,
    /// Told apart from isolates before it.
    pub life: u64,
    skew_ms: i64,
}

impl Location {
    /// A location with keys of a stage.
    #[must_use]
    pub fn new(stage: usize, dice: &mut Dice) -> Self {
        let skew_ms = dice.below(3_000).cast_signed() - 1_500;
        Self { engine: engine(stage), stage, life: dice.throw(), skew_ms }
    }

    /// Begins anew: what waited is gone, and what was remembered too.
    pub fn begin_anew(&mut self, stage: usize, dice: &mut Dice) {
        self.engine = engine(stage);
        (self.stage, self.life) = (stage, dice.throw());
    }
}

fn engine(stage: usize) -> Engine {
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let (config, keys) =
        (text(serde_json::to_string(&setup::config())), text(serde_json::to_string(setup::keys(stage))));
    Engine::configure(&config, &keys).unwrap_or_else(|error| unreachable!("the configuration can be used: {error}"))
}

/// A call on its way.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which browser waits; none: a check does.
    pub browser: Option<usize>,
    /// The tenant's place in [`setup::TENANTS`].
    pub tenant: usize,
    /// Where it goes.
    pub location: usize,
    /// What is asked.
    pub asked: Asked,
    /// The cookies it carries.
    pub jar: Jar,
    /// Whether it says `Sec-GPC: 1`.
    pub gpc: bool,
    /// When it came to the edge, by the location's clock.
    pub received: Millis,
    /// When its reads end at the latest.
    deadline: Millis,
    /// The isolate that took it.
    life: u64,
    /// The stage of the key rotation that it is at.
    pub stage: usize,
    /// Sequential reads so far.
    pub reads: u8,
    /// The snapshots it was given from the KV, in the order they were asked for.
    pub given: Vec<Snapshot>,
    /// The keys of the read under way.
    pub wanted: Vec<String>,
    /// The snapshots on their way from the KV.
    pub coming: Vec<Snapshot>,
    /// The newest versions that the location had read before this call did, by visitor.
    pub floor: BTreeMap<VisitorId, Version>,
    /// Its number among all calls.
    pub asked_as: u64,
    /// The publication of the catalogue that its location used last when this call asked an object first: what it goes by was
    /// settled then.
    pub settled: Option<Version>,
}

impl Call {
    /// What its browser's answers placed before: nothing, where the ledger's key is not read any more.
    #[must_use]
    pub fn placed(&self) -> &[usize] {
        let kept = self.jar.ledger.as_ref().is_some_and(|ledger| setup::reads(self.stage, ledger));
        if kept { &self.jar.placed } else { &[] }
    }
}

/// What the shell puts behind the address of a click that is to come again.
const AGAIN: &str = "?again";

/// An answer that waits until its facts are with the origin.
#[derive(Debug)]
pub struct Waiting {
    call: Box<Call>,
    outcome: Outcome,
}

impl World {
    /// A location's clock.
    #[must_use]
    pub fn edge_clock(&self, location: usize) -> Millis {
        self.now.saturating_add_signed(self.locations.get(location).map_or(0, |at| at.skew_ms))
    }
}

/// A browser does something, and will do more.
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
    // Two tabs, or two slots of one page: both carry the cookies of now.
    let (often, tabs) = world.plan.tabs;
    let parallel = if asked.kind == Kind::Decide && !settling && world.dice.chance(often) { tabs } else { 1 };
    let at = at.clone();
    for _ in 0..parallel {
        depart(world, Some(browser), &at, asked.clone());
    }
}

/// The one who sits at a browser changes devices with somebody else's of the same publisher.
fn swap(world: &mut World, browser: usize) {
    let other = world.dice.place(world.browsers.len());
    if let Ok([one, another]) = world.browsers.get_disjoint_mut([browser, other])
        && one.tenant == another.tenant
    {
        one.swap(another);
    }
}

/// A call leaves a browser.
pub fn depart(world: &mut World, browser: Option<usize>, of: &Browser, asked: Asked) {
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
    let method = match call.asked.kind {
        Kind::Decide | Kind::Events => "POST",
        Kind::Pixel | Kind::Me => "GET",
        Kind::Erase => "DELETE",
    };
    let host = setup::TENANTS.get(call.tenant).copied().unwrap_or_default();
    let (path, cookie, gpc) = (&call.asked.path, call.jar.header(), if call.gpc { "1" } else { "" });
    let in_body = call.asked.kind == Kind::Decide;
    let member = call.asked.member.filter(|_| !in_body);
    let proof = member.map(|m| crate::browser::proof_of(m, call.tenant, world.now)).unwrap_or_default();
    let explain = setup::EXPLAIN;
    let head = format!("{method}\nhttps://{host}.example{path}\n{cookie}\n\n{gpc}\n\nMozilla/5.0\n{explain}\n{proof}");
    let Some(at) = world.locations.get_mut(call.location) else { return };
    (call.life, call.stage) = (at.life, at.stage);
    let outcome = at.engine.begin(&head, &call.asked.body, now, &seed);
    world.say(|| format!("{:?} {method} {path} at {} as {:?}", call.browser, call.location, call.asked.member));
    step(world, call, outcome);
}

/// What the module said: read, or answer.
fn step(world: &mut World, mut call: Call, outcome: Outcome) {
    let Some(turn) = outcome.head.turn else { return answer(world, call, outcome) };
    if let Some(object) = outcome.head.hop {
        // The first object of two: what is asked of the second goes by the same.
        call.settled.get_or_insert(world.check.versions.published_to(&call));
        return objects::ask(world, call, turn, outcome.head.class, object, outcome.body);
    }
    let keys = &outcome.head.read;
    world.check.reads(&call, keys);
    if keys.is_empty() {
        return world.later(0, Event::Read(Box::new(call), turn, Vec::new(), ""));
    }
    call.reads += 1;
    let slow = world.dice.chance(world.plan.slow_reads);
    let takes = if slow { world.dice.between(90, 400) } else { world.dice.between(1, 40) };
    let values = world.kv.read(world.now, call.location, keys);
    let (after, values, fault) = if world.now + takes > call.deadline {
        (call.deadline.saturating_sub(world.now), Vec::new(), "kv_late")
    } else {
        let fault = if values.is_none() { "kv_failed" } else { "" };
        (takes, values.unwrap_or_default(), fault)
    };
    call.coming = keys.iter().zip(&values).filter_map(|(key, value)| snapshot(key, value.as_deref()?)).collect();
    call.wanted.clone_from(keys);
    world.later(after, Event::Read(Box::new(call), turn, values, fault));
}

/// The snapshot in a value of the KV, if it is one and whole.
fn snapshot(key: &str, value: &str) -> Option<Snapshot> {
    match form::decode_stored(key, subject(key)?.1, value.as_bytes()) {
        Ok(Stored::Snapshot(snapshot)) => Some(*snapshot),
        _ => None,
    }
}

/// What was read has come.
pub fn resume(world: &mut World, mut call: Call, turn: u32, values: &[Option<String>], fault: &'static str) {
    // What comes for an isolate that ended nobody has read.
    if world.locations.get(call.location).is_some_and(|at| at.life == call.life) {
        world.check.versions.read(&mut call);
    }
    let coming = std::mem::take(&mut call.coming);
    call.given.extend(coming);
    let lines: Vec<&str> = values.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
    resume_with(world, call, turn, lines.join("\n").as_bytes(), fault);
}

/// What a call waited for has come: values, or an object's answer.
pub fn resume_with(world: &mut World, call: Call, turn: u32, values: &[u8], fault: &'static str) {
    let Some(at) = world.locations.get_mut(call.location) else { return };
    // An isolate that ended took its requests with it: their browsers get no answer, and that is the platform's.
    if at.life != call.life {
        return world.say(|| "a call ends with its isolate".to_owned());
    }
    let outcome = at.engine.resume(turn, values, fault);
    step(world, call, outcome);
}

/// The answer is made; facts go to the queue, before it or after it.
fn answer(world: &mut World, call: Call, outcome: Outcome) {
    if outcome.head.gone && call.asked.kind == Kind::Pixel && !call.asked.path.ends_with(AGAIN) {
        return come_again(world, call);
    }
    let Outcome { head, facts, .. } = &outcome;
    world.check.emitted(&call, &outcome);
    if head.facts == 0 {
        return leave(world, call, outcome);
    }
    let Some((tenant, told)) = sync::facts_of(facts) else { return };
    let taken = world.queue.send(world.now, facts.clone());
    for fact in &told {
        world.model.tell(&tenant, fact, taken);
    }
    if taken {
        let after = world.dice.between(500, 2_000);
        world.later(after, Event::Consume);
        return leave(world, call, outcome);
    }
    let (location, batch) = (call.location, facts.clone());
    if head.ack {
        let waiting = Box::new(Waiting { call: Box::new(call), outcome });
        sync::deliver_directly(world, location, batch, Some(waiting));
    } else {
        sync::deliver_directly(world, location, batch, None);
        leave(world, call, outcome);
    }
}

/// A click that was not served comes again, once, as the shell tells its browser.
fn come_again(world: &mut World, mut call: Call) {
    call.asked.path.push_str(AGAIN);
    (call.reads, call.settled) = (0, None);
    [&mut call.given, &mut call.coming].into_iter().for_each(Vec::clear);
    call.wanted.clear();
    let after = world.dice.between(5, 300);
    world.later(after, Event::Arrive(Box::new(call)));
}

/// The origin took the facts of a call that waited, or did not.
pub fn delivered_directly(world: &mut World, waiting: Option<Box<Waiting>>, taken: bool) {
    let Some(waiting) = waiting else { return };
    let Waiting { call, mut outcome } = *waiting;
    if !taken {
        outcome.head.headers.clear();
        if call.asked.kind == Kind::Decide {
            // As the shell answers what was not served.
            outcome.body =
                br#"{"visitor":null,"decisions":[],"kv_reads":0,"consent":"none","reason":"retry"}"#.to_vec();
        } else {
            outcome.head.status = 503;
        }
    }
    leave(world, *call, outcome);
}

/// The answer leaves for its browser.
fn leave(world: &mut World, call: Call, outcome: Outcome) {
    let after = if world.dice.chance(200) { world.dice.between(5, 3_000) } else { world.dice.between(5, 200) };
    let event = Event::Answer(Box::new(call), outcome.head.status, outcome.head.headers, outcome.body);
    world.later(after, event);
}

/// An answer reaches its browser, unless it gets lost.
pub fn answered(world: &mut World, call: Call, status: u16, headers: &[(&'static str, String)], body: &[u8]) {
    world.say(|| format!("answer to {:?}: {status} {}", call.browser, String::from_utf8_lossy(body)));
    world.check.answered(&call, status, body);
    let lost = world.dice.chance(world.plan.lost_pages);
    let placed = world.check.caps.placed_on(call.asked_as);
    let Some(browser) = call.browser.and_then(|browser| world.browsers.get_mut(browser)) else { return };
    let come_again = call.asked.kind == Kind::Events && (status == 503 || lost);
    if come_again {
        browser.again = Some(call.asked.body.clone());
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
            let asked = Asked { kind: Kind::Pixel, path, body: Vec::new(), member: None };
            depart(world, call.browser, &of, asked);
        }
    }
}
