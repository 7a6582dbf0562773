//! The bulk publisher of the origin, and the platform's bulk call with its faults. The steps are the product's
//! (`causeway_origin::kv::bulk`); this module adds the time between them, and what the platform does to a call.

use std::time::Duration;

use causeway_origin::kv::bulk::client::BulkOutcome;
use causeway_origin::kv::bulk::lease::{BulkLease, BulkRequest, BulkSettlement, SettledRow};
use causeway_origin::kv::bulk::values::{BulkBatch, BulkBody};
use causeway_shared::base::ids::Millis;
use causeway_shared::wire::sync::KvWrite;
use serde_json::Value;

use crate::operators;
use crate::origin::NoAnswer;
use crate::world::{Event, World};

/// Time limit of a bulk call in the publisher.
const PATIENCE_MS: Millis = 30_000;
/// Pause of the publisher where no key is due.
const IDLE_MS: Millis = 20_000;
/// Most keys of a batch in a world, which has few.
const MOST_KEYS: u64 = 40;

/// A step of the bulk publisher, or of its call. `start` names the process that the publisher belongs to.
#[derive(Debug)]
pub enum BulkStep {
    /// Leases the next batch.
    Lease,
    /// Builds the values of a lease and sends them.
    Build { lease: BulkLease, start: u64 },
    /// The call reaches the platform, as late as this.
    Arrive { lease: BulkLease, batch: Box<BulkBatch>, start: u64, fate: CallFate },
    /// The publisher records the results.
    Settle { settlement: BulkSettlement, written: Vec<String>, start: u64 },
}

/// What the platform does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// It writes the keys and answers.
    Answered,
    /// It writes the keys, and the answer is lost or comes too late.
    Unanswered,
    /// It writes nothing: too many calls.
    Busy,
}

/// Performs a step.
pub fn happen(world: &mut World, step: BulkStep) {
    match step {
        BulkStep::Lease => lease_batch(world),
        BulkStep::Build { lease, start } => send_batch(world, lease, start),
        BulkStep::Arrive { lease, batch, start, fate } => arrive(world, &lease, *batch, start, fate),
        BulkStep::Settle { settlement, written, start } => settle(world, settlement, &written, start),
    }
}

fn next(world: &mut World, after: Millis) {
    world.later(after, Event::Bulk(Box::new(BulkStep::Lease)));
}

/// Serves a request of the publisher; `None` if the origin gave no answer.
fn ask<T>(world: &mut World, answer: Result<T, NoAnswer>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(NoAnswer::Died(why)) => {
            operators::died(world, &why);
            None
        }
        Err(why) => {
            world.say(|| format!("the bulk publisher gets no answer: {why:?}"));
            None
        }
    }
}

fn lease_batch(world: &mut World) {
    let wanted = usize::try_from(world.dice.between(1, MOST_KEYS)).unwrap_or(1);
    let answer = world.origin.publish_in_bulk(world.now, &BulkRequest { wanted, ..BulkRequest::default() });
    let Some(lease) = ask(world, answer).and_then(|answer| answer.lease) else { return next(world, IDLE_MS) };
    let (start, after) = (world.origin.starts, world.dice.below(5_000));
    world.later(after, Event::Bulk(Box::new(BulkStep::Build { lease, start })));
}

/// Builds a batch, unless its process has ended, and draws the fate of its call.
fn send_batch(world: &mut World, lease: BulkLease, start: u64) {
    if start != world.origin.starts || !lease.is_sendable(world.origin.clock(world.now)) {
        return next(world, IDLE_MS);
    }
    let built = world.origin.build_bulk(world.now, &lease);
    let Some(batch) = ask(world, built) else { return next(world, IDLE_MS) };
    let writes = writes_of(&lease, &batch);
    world.check.handed_out(lease.since, &[], &writes);
    writes.iter().for_each(|write| world.check.issued(write));
    let (fate, after) = if world.dice.chance(world.plan.busy_calls) {
        (CallFate::Busy, world.dice.between(5, 500))
    } else if world.dice.chance(world.plan.late_writes) {
        (CallFate::Unanswered, world.dice.between(PATIENCE_MS, 300_000))
    } else if world.dice.chance(world.plan.lost_answers) {
        (CallFate::Unanswered, world.dice.between(5, 2_000))
    } else {
        (CallFate::Answered, world.dice.between(5, 2_000))
    };
    if fate == CallFate::Unanswered {
        // The publisher goes on after its time limit, whenever the call arrives.
        next(world, PATIENCE_MS);
    }
    if fate == CallFate::Unanswered && world.dice.chance(300) {
        world.say(|| "a bulk call is lost".to_owned());
        return;
    }
    world.later(after, Event::Bulk(Box::new(BulkStep::Arrive { lease, batch: Box::new(batch), start, fate })));
}

/// The writes of a batch, as a publish consumer would get them.
fn writes_of(lease: &BulkLease, batch: &BulkBatch) -> Vec<KvWrite> {
    let version = lease.version;
    let write = |key: &str, value| KvWrite { entry: version.counter, key: key.to_owned(), version, value, due: 0 };
    let values = values_of(&batch.puts);
    let puts = batch.puts.rows.iter().zip(values).map(|(sent, value)| write(&sent.key, value));
    puts.chain(batch.deletes.rows.iter().map(|sent| write(&sent.key, None))).collect()
}

/// The values of a call, in the order of its rows.
fn values_of(body: &BulkBody) -> Vec<Option<String>> {
    let pairs: Vec<Value> = serde_json::from_slice(&body.json).unwrap_or_default();
    pairs.iter().map(|pair| pair["value"].as_str().map(str::to_owned)).collect()
}

/// A call reaches the platform, which writes its keys one by one.
fn arrive(world: &mut World, lease: &BulkLease, batch: BulkBatch, start: u64, fate: CallFate) {
    let mut unsuccessful = Vec::new();
    if fate != CallFate::Busy {
        for write in writes_of(lease, &batch) {
            let done = world.kv.put(world.now, &write.key, write.value.clone());
            world.say(|| format!("bulk put {} version {:?}: {done:?}", write.key, write.version));
            if done.is_err() {
                unsuccessful.push(write.key);
            }
        }
    }
    let outcome = match fate {
        CallFate::Unanswered => return,
        CallFate::Busy => BulkOutcome::Busy { after: Duration::from_secs(1) },
        CallFate::Answered => BulkOutcome::Written { unsuccessful: unsuccessful.clone() },
    };
    let BulkBatch { puts, deletes, unsent } = batch;
    let results = [&puts, &deletes].map(|body| body.settled_rows(&outcome));
    let rows: Vec<SettledRow> = results.concat().into_iter().chain(unsent).collect();
    let sent = puts.rows.iter().chain(&deletes.rows).map(|sent| sent.key.clone());
    // A row that was not sent is free at once; an unsuccessful one after its pause.
    let written = sent.filter(|key| !unsuccessful.contains(key)).collect();
    let settlement = BulkSettlement { version: lease.version, rows };
    let after = world.dice.between(5, 500);
    world.later(after, Event::Bulk(Box::new(BulkStep::Settle { settlement, written, start })));
}

fn settle(world: &mut World, settlement: BulkSettlement, written: &[String], start: u64) {
    if start == world.origin.starts {
        let version = settlement.version.counter;
        let request = BulkRequest { settlement: Some(settlement), ..BulkRequest::default() };
        let answer = world.origin.publish_in_bulk(world.now, &request);
        if ask(world, answer).is_some() {
            world.check.settled(version, written);
        }
    }
    let after = world.dice.below(3_000);
    next(world, after);
}
