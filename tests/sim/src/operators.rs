//! Operators and accidents: faults of the origin's process, disk and clock, and the commands that operators run
//! meanwhile.

use causeway_origin::kv::verify::VerifyStep;
use causeway_shared::base::ids::{AlternateId, FactId, Millis, TenantId, VisitorId};
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};

use crate::model::{MEMBER, Owner};
use crate::origin::NoAnswer;
use crate::setup;
use crate::world::{Event, Phase, World};

/// An action of an operator, or a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The origin's process will end at one of its next writes.
    Kill,
    /// The origin's process ends now, if it has not ended yet.
    End,
    /// The origin's process starts.
    Start,
    /// The disk is full.
    FullDisk,
    /// The disk has room again.
    RoomAgain,
    /// The origin's clock steps back.
    StepBack,
    /// The origin's clock is right again.
    RightClock,
    /// An isolate is replaced.
    FreshIsolate,
    /// The key rotation enters its next stage.
    Rotate,
    /// The location with this index is deployed with the current keys.
    Deploy(usize),
    /// The job `trim`.
    Trim,
    /// Evidence of one visitor and id is cancelled.
    Cancel,
    /// Two visitors are matched with less than the weight of a login.
    Match,
    /// A member is erased by its id.
    EraseMember,
    /// A catalogue is applied, or rolled back to the previous version.
    Catalogue,
    /// A backup is made.
    BackUp,
    /// The backup is restored.
    Restore,
}

/// Schedules the first deed of each kind in the plan.
pub fn begin(world: &mut World) {
    let plan = world.plan.clone();
    if plan.kills_ms > 0 {
        soon(world, plan.kills_ms, Deed::Kill);
    }
    if plan.full_ms > 0 {
        soon(world, plan.full_ms, Deed::FullDisk);
    }
    if plan.steps_back_ms > 0 {
        soon(world, 1_200_000, Deed::StepBack);
    }
    if plan.fresh_isolates_ms > 0 {
        soon(world, plan.fresh_isolates_ms, Deed::FreshIsolate);
    }
    if plan.rotation {
        soon(world, 1_200_000, Deed::Rotate);
    }
    if plan.restore {
        soon(world, 600_000, Deed::BackUp);
    }
    if plan.cancellations {
        soon(world, 900_000, Deed::Cancel);
    }
    if plan.erasures {
        soon(world, 1_800_000, Deed::EraseMember);
    }
    if plan.matches {
        soon(world, 300_000, Deed::Match);
    }
    soon(world, 1_800_000, Deed::Trim);
    soon(world, 900_000, Deed::Catalogue);
    let after = world.dice.between(1, 3_600_000);
    world.later(after, Event::Verify);
}

/// Schedules a deed at a random time with this mean.
fn soon(world: &mut World, mean: Millis, deed: Deed) {
    let after = world.dice.between(1, 2 * mean);
    world.later(after, Event::Do(deed));
}

/// Performs a deed, and schedules the next one of its kind.
pub fn happen(world: &mut World, deed: Deed) {
    if world.phase == Phase::Calm && deed != Deed::Start && !matches!(deed, Deed::Deploy(_)) {
        return;
    }
    world.say(|| format!("── {deed:?}"));
    let plan = world.plan.clone();
    match deed {
        Deed::Kill => {
            if world.origin.is_up() {
                world.origin.kill_soon();
                world.later(5_000, Event::Do(Deed::End));
            }
            soon(world, plan.kills_ms, Deed::Kill);
        }
        Deed::End if world.origin.dying => died(world, "it is killed"),
        Deed::End => {}
        Deed::Start => start(world),
        Deed::FullDisk => {
            let more = world.dice.below(200_000);
            world.origin.fill_disk(Some(more));
            soon(world, 60_000, Deed::RoomAgain);
            soon(world, plan.full_ms, Deed::FullDisk);
        }
        Deed::RoomAgain => world.origin.fill_disk(None),
        Deed::StepBack => {
            world.origin.behind_ms = world.dice.below(plan.steps_back_ms);
            soon(world, 300_000, Deed::RightClock);
            soon(world, 1_200_000, Deed::StepBack);
        }
        Deed::RightClock => world.origin.behind_ms = 0,
        Deed::FreshIsolate => {
            let location = world.dice.place(world.locations.len());
            let stage = world.locations.get(location).map_or(0, |at| at.stage);
            deploy(world, location, stage);
            soon(world, plan.fresh_isolates_ms, Deed::FreshIsolate);
        }
        Deed::Rotate
        | Deed::Deploy(_)
        | Deed::Trim
        | Deed::Cancel
        | Deed::Match
        | Deed::EraseMember
        | Deed::Catalogue
        | Deed::BackUp
        | Deed::Restore => operate(world, deed),
    }
}

/// Performs the deed of an operator.
fn operate(world: &mut World, deed: Deed) {
    match deed {
        Deed::Rotate => rotate(world),
        Deed::Deploy(location) => deploy(world, location, world.stage),
        Deed::Trim => {
            if let Err(NoAnswer::Died(why)) = world.origin.trim(world.now) {
                died(world, &why);
            }
            soon(world, 1_800_000, Deed::Trim);
        }
        Deed::Cancel => {
            cancel(world);
            soon(world, 900_000, Deed::Cancel);
        }
        Deed::Match => {
            tie(world);
            soon(world, 300_000, Deed::Match);
        }
        Deed::EraseMember => {
            erase_member(world);
            soon(world, 1_800_000, Deed::EraseMember);
        }
        Deed::Catalogue => {
            publish(world);
            soon(world, 900_000, Deed::Catalogue);
        }
        Deed::BackUp => {
            // An operator copies the files of a running process; a half-finished write is not acknowledged yet.
            if world.origin.is_up() && !world.origin.dying {
                world.origin.back_up();
                world.model.back_up();
            }
            soon(world, 900_000, Deed::Restore);
        }
        Deed::Restore => restore(world),
        _ => {}
    }
}

/// One step of the job `verify`. It starts again half an hour after its end, but not after the end of all faults.
pub fn verify(world: &mut World) {
    let after = match world.origin.verify(world.now) {
        Ok(VerifyStep::Over) => {
            let came_to = world.origin.verified();
            world.say(|| format!("verified: {came_to:?}"));
            if world.phase == Phase::Calm {
                world.verified = Some(came_to);
                return;
            }
            1_800_000
        }
        Ok(VerifyStep::Waits(_)) => 20_000,
        Ok(VerifyStep::Looked | VerifyStep::Asked) => 100,
        Err(NoAnswer::Died(why)) => {
            died(world, &why);
            60_000
        }
        Err(_) => 60_000,
    };
    world.later(after, Event::Verify);
}

/// An operator cancels a random tie of a visitor and an id.
fn cancel(world: &mut World) {
    let ties: Vec<(TenantId, VisitorId, AlternateId)> = world
        .model
        .facts()
        .filter_map(|(tenant, record)| match &record.fact.what {
            FactKind::Alias { id, .. } | FactKind::Evidence { id, .. } => {
                Some((tenant.clone(), record.fact.visitor, *id))
            }
            _ => None,
        })
        .collect();
    let Some((tenant, visitor, id)) = world.dice.pick(&ties).cloned() else { return };
    say(world, &tenant, visitor, FactKind::Cancellation { id });
}

/// Two visitors are matched with a random weight, by one fact for each; the second fact may be lost.
fn tie(world: &mut World) {
    let there: Vec<Owner> = world.model.owners().into_iter().filter(|owner| !world.model.is_gone(owner)).collect();
    let Some((tenant, one)) = world.dice.pick(&there).cloned() else { return };
    let others: Vec<VisitorId> = there.into_iter().filter(|(t, v)| *t == tenant && *v != one).map(|(_, v)| v).collect();
    let Some(other) = world.dice.pick(&others).copied() else { return };
    let weight = u16::try_from(world.dice.between(300, 999)).map_or(EvidenceWeight::UNSURE, EvidenceWeight);
    let what = FactKind::Evidence {
        id: AlternateId::pair(one, other),
        also: Vec::new(),
        weight,
        source: EvidenceSource::Match,
    };
    [one, other].into_iter().for_each(|visitor| say(world, &tenant, visitor, what.clone()));
}

/// An operator erases the visitors of a member by the member's id.
fn erase_member(world: &mut World) {
    let place = world.dice.place(setup::TENANTS.len());
    let member = crate::browser::name_of(world.dice.below(world.plan.members));
    let name = setup::TENANTS.get(place).copied().unwrap_or_default();
    let Some(keys) = setup::keys(world.origin.stage).tenants.get(name) else { return };
    let mut hashes = keys.alternate.hash_alternate(MEMBER, &member).into_iter();
    let Some(hash) = hashes.next() else { return };
    let id = Some(AlternateId { kind: MEMBER, hash });
    let scope = if world.dice.chance(500) { ErasureScope::Person } else { ErasureScope::Visitor };
    say(world, &setup::tenant(place), VisitorId::ANONYMOUS, FactKind::Erasure { scope, id, also: hashes.collect() });
}

/// An operator applies a catalogue, or rolls back to the previous version.
fn publish(world: &mut World) {
    let place = world.dice.place(setup::TENANTS.len());
    let Some(tenant) = setup::TENANTS.get(place) else { return };
    let edition = world.dice.below(3);
    let done = if world.dice.chance(400) {
        world.origin.roll_back(world.now, tenant)
    } else {
        world.origin.apply(world.now, tenant, setup::ads(edition))
    };
    match done {
        Ok(()) => world.later(10, Event::Wake),
        Err(NoAnswer::Died(why)) => died(world, &why),
        Err(_) => {}
    }
}

/// Sends a fact by the admin API.
fn say(world: &mut World, tenant: &TenantId, visitor: VisitorId, what: FactKind) {
    let received = world.now.saturating_sub(world.origin.behind_ms);
    let fact = Fact { position: 0, id: FactId::from_bytes(world.dice.bytes()), visitor, received, at: received, what };
    match world.origin.admin(world.now, tenant, &fact) {
        Ok(()) => {
            world.model.taken(tenant, &fact);
            world.later(10, Event::Fold);
        }
        // The origin has not acknowledged the fact. It may have stored it; the operator would repeat the request.
        Err(NoAnswer::Died(why)) => {
            world.model.tell(tenant, &fact, false);
            died(world, &why);
        }
        Err(_) => {}
    }
}

/// The origin's process has ended; its next start is scheduled.
pub fn died(world: &mut World, why: &str) {
    let power = world.plan.power && world.dice.chance(500);
    world.say(|| format!("the origin dies ({why}), the power fails too: {power}"));
    world.origin.die(power);
    world.check.nothing_leased();
    soon(world, 30_000, Deed::Start);
}

fn start(world: &mut World) {
    if world.origin.is_up() {
        return;
    }
    match world.origin.start(world.now) {
        Ok(()) => {
            world.check_store();
            world.later(10, Event::Fold);
        }
        Err(error) => {
            let text = causeway_origin::base::error_chain(&error);
            if world.origin.dying {
                died(world, &text);
            } else {
                // The origin cannot start on a full disk.
                world.say(|| format!("the origin does not start: {text}"));
                world.origin.die(false);
                soon(world, 30_000, Deed::Start);
            }
        }
    }
}

/// Starts the next stage of the rotation: the origin reads the new keys first, and each location follows when it is
/// deployed.
fn rotate(world: &mut World) {
    if world.stage + 1 >= setup::STAGES || !world.origin.is_up() || world.origin.dying {
        return soon(world, 600_000, Deed::Rotate);
    }
    // A stage begins after all locations have the previous one.
    if world.locations.iter().any(|at| at.stage != world.stage) {
        return soon(world, 600_000, Deed::Rotate);
    }
    world.stage += 1;
    world.origin.stage = world.stage;
    world.origin.stop();
    start(world);
    for place in 0..world.locations.len() {
        soon(world, 200_000, Deed::Deploy(place));
    }
    soon(world, 1_200_000, Deed::Rotate);
}

fn deploy(world: &mut World, place: usize, stage: usize) {
    if let Some(at) = world.locations.get_mut(place) {
        at.restart(stage, &mut world.dice);
        world.check.fresh_isolate(place);
    }
}

fn restore(world: &mut World) {
    // A restore begins with an orderly stop of the process.
    if !world.origin.is_up() || world.origin.dying {
        return soon(world, 60_000, Deed::Restore);
    }
    // All records are folded first, so that the journal has every erasure that only the log held.
    while world.origin.is_behind() {
        if world.origin.fold(world.now).is_err() {
            return soon(world, 60_000, Deed::Restore);
        }
    }
    match world.origin.restore(world.now) {
        Ok(true) => {
            world.model.restore();
            world.check.nothing_leased();
            world.later(10, Event::Fold);
        }
        Ok(false) => {}
        Err(why) => world.check.fail("facts", format!("a backup cannot be restored: {why}")),
    }
}

/// Ends all faults at the origin and deploys the current keys everywhere.
pub fn calm_down(world: &mut World) {
    world.origin.fill_disk(None);
    world.origin.behind_ms = 0;
    if world.origin.dying || !world.origin.is_up() {
        world.origin.die(false);
        start(world);
    }
    for place in 0..world.locations.len() {
        if world.locations.get(place).is_some_and(|at| at.stage != world.stage) {
            deploy(world, place, world.stage);
        }
    }
    world.later(0, Event::Fold);
}
