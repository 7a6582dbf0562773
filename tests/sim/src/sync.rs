//! The exchange between edge and origin: the facts consumers, the publish consumer, and every way in which a message is
//! lost. The rules are the product's (`causeway_shared::wire::outbox_drain`); this module adds the platform's faults.

use causeway_edge::{HttpAnswer, SignedSync};
use causeway_shared::base::ids::TenantId;
use causeway_shared::facts::fact::Fact;
use causeway_shared::wire::facts;
use causeway_shared::wire::outbox_drain::{self, DrainStep, ORIGIN_TIMEOUT_MS, SYNC_MESSAGES};
use causeway_shared::wire::sync::{KvWrite, ReadResult, SyncRequest, SyncResponse, VerifyRequest, decode_request};
use sha2::{Digest as _, Sha256};

use crate::origin::{NoAnswer, SyncCall};
use crate::world::{Event, Phase, World};
use crate::{edge, operators};

/// One call of `/v1/sync` in transit, with the caller that waits for it.
#[derive(Debug)]
pub struct Exchange {
    call: SyncCall,
    facts: Vec<Vec<u8>>,
    caller: SyncCaller,
}

/// The caller that waits for a sync's answer.
#[derive(Debug)]
enum SyncCaller {
    /// A facts consumer, with the id and number of attempts of each message.
    Consumer(Vec<(u64, u32)>),
    /// A call whose facts the queue refused, with the answer that waits for them.
    Direct(Option<Box<edge::HeldAnswer>>),
    /// The publish consumer.
    Drain(Drain),
}

/// One drain of the outbox, by one invocation of the publish consumer.
#[derive(Debug)]
pub struct Drain {
    rules: outbox_drain::OutboxDrain,
    /// Writes left before the next sync.
    rest: Vec<KvWrite>,
    /// Outbox entries written since the last sync.
    applied: Vec<u64>,
    /// Keys to read back before the next sync.
    verify: Vec<VerifyRequest>,
    /// Results of keys read back since the last sync.
    read: Vec<ReadResult>,
    location: usize,
    /// Whether the platform gave up this consumer.
    forgotten: bool,
}

/// The part of a sync that only a drain sends; empty for every other caller.
#[derive(Default)]
struct DrainContents<'a> {
    applied: &'a [u64],
    read: &'a [ReadResult],
    drain: u16,
}

/// Sends a sync from a location.
fn send(world: &mut World, location: usize, facts: Vec<Vec<u8>>, contents: &DrainContents<'_>, caller: SyncCaller) {
    let DrainContents { applied, read, drain } = contents;
    let request = SyncRequest {
        edge: "sim".to_owned(),
        batch: world.dice.bytes(),
        facts: facts.clone(),
        applied: applied.to_vec(),
        drain: *drain,
        lost: 0,
        dead: 0,
        filtered: [0; 3],
        read: read.to_vec(),
    };
    let now = world.edge_clock(location);
    let Some(at) = world.locations.get(location) else { return };
    let Some(SignedSync { headers, body }) = at.engine.sign_sync(&request, now) else { return };
    let call = SyncCall { headers: headers.map(|(_, value)| value), body };
    let exchange = Box::new(Exchange { call, facts, caller });
    let after = world.dice.between(5, 200);
    if world.dice.chance(world.plan.lost_syncs) {
        world.later(ORIGIN_TIMEOUT_MS, Event::Back(exchange, None));
    } else {
        world.later(after, Event::AtOrigin(exchange));
    }
}

/// Sends facts that the queue refused straight to the origin.
pub fn deliver_directly(world: &mut World, location: usize, batch: Vec<u8>, held: Option<Box<edge::HeldAnswer>>) {
    send(world, location, vec![batch], &DrainContents::default(), SyncCaller::Direct(held));
}

/// A facts consumer takes the due messages.
pub fn consume(world: &mut World) {
    let taken = world.queue.take(world.now);
    if world.queue.look(world.now) {
        let after = world.dice.below(2_000);
        world.later(after, Event::Consume);
    }
    if world.dice.chance(world.plan.dying_consumers) {
        return;
    }
    for some in taken.chunks(SYNC_MESSAGES) {
        let location = world.dice.place(world.locations.len());
        let (names, facts) = some.iter().map(|(id, m)| ((*id, m.attempts), m.body.clone())).unzip();
        send(world, location, facts, &DrainContents::default(), SyncCaller::Consumer(names));
    }
}

/// A sync reaches the origin.
pub fn at_origin(world: &mut World, exchange: Exchange) {
    let answer = world.origin.sync(world.now, &exchange.call);
    match &answer {
        Ok(answer) => {
            for (at, batch) in exchange.facts.iter().enumerate() {
                taken(world, at, batch, answer);
            }
            let now = world.origin.clock(world.now);
            let applied = decode_request(&exchange.call.body).map(|request| request.applied).unwrap_or_default();
            world.check.handed_out(now, &applied, &answer.publish);
            let after = world.dice.below(400);
            world.later(after, Event::Fold);
        }
        Err(NoAnswer::Died(why)) => operators::died(world, why),
        Err(why) => world.say(|| format!("the origin gave no answer: {why:?}")),
    }
    let lost = world.dice.chance(world.plan.lost_answers);
    let after = world.dice.between(5, 100);
    let answer = answer.ok().filter(|_| !lost).map(Box::new);
    world.later(if lost { ORIGIN_TIMEOUT_MS } else { after }, Event::Back(Box::new(exchange), answer));
}

/// Records the facts of a batch that the origin stored, and fails for each that it refused.
fn taken(world: &mut World, at: usize, batch: &[u8], answer: &SyncResponse) {
    let refused = |index: Option<usize>| {
        let of_batch = answer.rejected.iter().filter(|r| usize::try_from(r.batch) == Ok(at));
        of_batch.clone().any(|r| r.index.map(|i| usize::try_from(i).unwrap_or(usize::MAX)) == index)
    };
    let Ok((tenant, facts)) = facts::decode_each(batch) else { return };
    for (index, fact) in facts.iter().enumerate() {
        let Ok(fact) = fact else { continue };
        if refused(Some(index)) || refused(None) {
            let codes: Vec<&str> = answer.rejected.iter().map(|r| r.code.as_str()).collect();
            world.check.refused(&tenant, fact, &codes);
        } else {
            world.model.taken(&tenant, fact);
        }
    }
}

/// The origin's answer reaches the edge, or is lost.
pub fn back(world: &mut World, exchange: Exchange, answer: Option<SyncResponse>) {
    match exchange.caller {
        SyncCaller::Consumer(names) => {
            for (id, attempts) in names {
                match &answer {
                    Some(_) => world.queue.acknowledge(id),
                    None => {
                        let (delay_s, dead) = (outbox_drain::retry_delay_s(attempts), outbox_drain::is_dead(attempts));
                        world.queue.retry(world.now, id, delay_s, dead);
                    }
                }
            }
            if answer.is_some_and(|answer| outbox_drain::wakes(answer.pending)) {
                world.later(100, Event::Wake);
            }
        }
        SyncCaller::Direct(held) => edge::delivered_directly(world, held, answer.is_some()),
        SyncCaller::Drain(drain) => drained(world, drain, answer),
    }
}

/// One round of the origin's folding thread.
pub fn fold(world: &mut World) {
    match world.origin.fold(world.now) {
        Ok(()) => world.check_store(),
        Err(NoAnswer::Died(why)) => operators::died(world, &why),
        Err(_) => {}
    }
}

/// Triggers the publish consumer. At most one runs at a time, or two during a deploy.
pub fn wake(world: &mut World) {
    let most = if world.plan.two_drains { 2 } else { 1 };
    if world.drains.0 >= most {
        world.drains.1 = true;
        return;
    }
    world.drains.0 += 1;
    let location = world.dice.place(world.locations.len());
    let rules = outbox_drain::OutboxDrain::new(world.edge_clock(location));
    let (rest, applied, verify, read) = <_>::default();
    next_sync(world, Drain { rules, rest, applied, verify, read, location, forgotten: false });
}

/// Sends the next sync of a drain: acknowledges writes and asks for more.
fn next_sync(world: &mut World, mut drain: Drain) {
    let wanted = drain.rules.wanted(world.edge_clock(drain.location));
    let (applied, read) = (std::mem::take(&mut drain.applied), std::mem::take(&mut drain.read));
    let contents = DrainContents { applied: &applied, read: &read, drain: wanted };
    send(world, drain.location, Vec::new(), &contents, SyncCaller::Drain(drain));
}

/// A drain's sync was answered, or its answer was lost.
fn drained(world: &mut World, mut drain: Drain, answer: Option<SyncResponse>) {
    let Some(SyncResponse { publish, verify, pending, .. }) = answer else { return end_drain(world) };
    publish.iter().for_each(|write| world.check.issued(write));
    match outbox_drain::next(publish.len() + verify.len(), pending) {
        DrainStep::Write => {
            drain.rules.operations += publish.len() + usize::from(!verify.is_empty()) + 1;
            (drain.rest, drain.verify) = (publish, verify);
            return next_put(world, drain);
        }
        DrainStep::WakeAgain => world.drains.1 = true,
        DrainStep::Done => {}
    }
    end_drain(world);
}

/// A consumer ends; a trigger that came meanwhile starts the next one.
fn end_drain(world: &mut World) {
    world.drains.0 = world.drains.0.saturating_sub(1);
    if std::mem::take(&mut world.drains.1) {
        world.later(500, Event::Wake);
    }
}

fn next_put(world: &mut World, mut drain: Drain) {
    let late = world.dice.chance(world.plan.late_writes);
    let after = world.dice.between(5, 50);
    if late && !drain.forgotten {
        // The platform gives up this consumer, but its current write arrives much later.
        drain.forgotten = true;
        world.say(|| "a publish consumer is given up while it writes".to_owned());
        drain.rest.truncate(1);
        let after = world.dice.between(30_000, 300_000);
        world.later(after, Event::Put(Box::new(drain)));
        end_drain(world);
    } else {
        world.later(after, Event::Put(Box::new(drain)));
    }
}

/// Performs one write of a drain, then the next one or the next sync.
pub fn put(world: &mut World, mut drain: Drain) {
    if !drain.rest.is_empty() {
        let write = drain.rest.remove(0);
        let done = world.kv.put(world.now, &write.key, write.value.clone());
        world.say(|| format!("put {} version {:?}: {done:?}", write.key, write.version));
        if done.is_ok() {
            drain.applied.push(write.entry);
        }
    }
    if drain.forgotten {
        return;
    }
    if !drain.rest.is_empty() {
        return next_put(world, drain);
    }
    read_back(world, &mut drain);
    if !outbox_drain::goes_on(drain.applied.len() + drain.read.len()) {
        return end_drain(world);
    }
    // The time of a consumer may end early, even if it wrote little.
    if world.phase == Phase::Faults && world.dice.chance(50) {
        drain.rules.began = 0;
    }
    next_sync(world, drain);
}

/// Reads the keys that the origin asks for in one bulk read, as the drain's location sees them.
fn read_back(world: &mut World, drain: &mut Drain) {
    let verify = std::mem::take(&mut drain.verify);
    if verify.is_empty() {
        return;
    }
    let keys: Vec<String> = verify.iter().map(|one| one.key.clone()).collect();
    let found = world.kv.read(world.now, drain.location, &keys).unwrap_or_default();
    let digest = |value: String| Sha256::digest(value).into();
    let read = verify.iter().zip(found);
    drain.read = read.map(|(one, value)| ReadResult { entry: one.entry, sha256: value.map(digest) }).collect();
}

/// The tenant and the readable facts of a batch.
#[must_use]
pub fn facts_of(batch: &[u8]) -> Option<(TenantId, Vec<Fact>)> {
    let (tenant, facts) = facts::decode_each(batch).ok()?;
    Some((tenant, facts.into_iter().filter_map(Result::ok).collect()))
}

/// The facts that leave with an answer.
#[must_use]
pub fn facts_of_answer(answer: &HttpAnswer) -> Vec<Fact> {
    let batch = answer.facts.as_ref().and_then(|message| facts_of(&message.bytes));
    batch.map(|(_, facts)| facts).unwrap_or_default()
}
