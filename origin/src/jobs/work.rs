//! What each job does in a run. A report has lists of a bounded length and names nobody but masters.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_shared::ids::Millis;
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Job;
use super::runs::{self, Run};
use crate::audience::Audience;
use crate::audience::rhythm::Sums;
use crate::base::chain;
use crate::base::metrics::Metrics;
use crate::campaigns::catalogue;
use crate::campaigns::experiment::rollup::{self, Rolled};
use crate::campaigns::spend;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::jobs::tasks::deliver;
use crate::jobs::tasks::refresh;
use crate::jobs::tasks::retention::{self, Forgotten};
use crate::jobs::tasks::scrub;
use crate::kv::publish;
use crate::kv::publish::Put;
use crate::kv::publish::Rank;
use crate::kv::verify::{self, Next, Walk};
use crate::maintenance::forget_names;
use crate::maintenance::reconcile::{self, Difference, Plan};
use crate::maintenance::trim::{self, Trimmed, lookups};
use crate::outbox::kv_key::Subject;
use crate::store;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::tenants::Tenants;
use crate::store::write_txn::Given;
use crate::store::write_txn::Rules;

/// No edge said anything for so long: a cron wakes one each minute.
const SILENT_MS: Millis = 10 * 60_000;
/// A clock that is right is corrected by less, in milliseconds: a run that began later than that from now began by a wrong one.
const AHEAD_MS: Millis = 10 * 60_000;
/// Visitors trimmed in one transaction: who waits to write waits some twenty milliseconds.
const SOME: u32 = 500;
/// People whose siblings are put in the outbox in one transaction, or whose rhythms are read in one.
const PEOPLE: u32 = 1_000;
/// Differences named in a report.
const NAMED: usize = 20;
/// Between two transactions beside a serving origin: longer than it sleeps between two tries to write (SQLite's busy handler:
/// 100 ms at most). With [`SOME`] it is the jobs' rate limit.
pub const PAUSE: Duration = Duration::from_millis(120);

/// What a run works on and with.
#[expect(missing_debug_implementations, reason = "it holds functions")]
pub struct Place<'a> {
    /// The data directory.
    pub data: &'a Path,
    /// Whether what goes into the outbox is handed out by these rules: an origin that serves beside a command has those of its start.
    pub hands_out: bool,
    /// A connection that writes, the run's own.
    pub conn: &'a mut Connection,
    /// What all transactions have in common.
    pub rules: &'a Rules,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// What the log holds beyond the store now.
    pub backlog: &'a dyn Fn() -> Result<Backlog, StoreError>,
    /// The columns of audiences, up to date.
    pub audience: &'a dyn Fn() -> Result<Audience, StoreError>,
    /// How models are trained.
    pub training: &'a train::Options,
    /// What each transaction is given.
    pub given: &'a dyn Fn() -> Result<Given, StoreError>,
    /// Called between two transactions.
    pub pause: &'a dyn Fn(),
    /// Called where nothing may be done for a time.
    pub wait: &'a dyn Fn(Duration),
    /// A clock that only goes on, whatever the date does.
    pub elapsed: &'a dyn Fn() -> Duration,
    /// Told what is done, of how much; says [`StoreError::Stopped`] where the run is to end.
    pub told: &'a (dyn Fn(u64, u64) -> Result<(), StoreError> + Sync),
    /// Set by a run that would do from the beginning what it does now: it gives way to no other any more.
    pub to_the_end: &'a AtomicBool,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Its report.
    pub report: Value,
    /// What somebody must look at.
    pub failed: Option<String>,
}

impl From<Value> for Ended {
    fn from(report: Value) -> Self {
        Self { report, failed: None }
    }
}

/// What the store cannot give of one of several that a job goes through holds that one up, and no other: why, unless the run is
/// to end.
///
/// # Errors
/// [`StoreError::Stopped`].
pub fn apart<T>(done: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match done {
        Err(e) if !matches!(e, StoreError::Stopped) => Ok(Err(chain(&e))),
        done => done.map(Ok),
    }
}

/// Does what a run asks for, from where it was.
///
/// # Errors
/// [`StoreError`]; what was committed before is kept, and [`StoreError::Stopped`] says no more than that.
pub fn run(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    match run.asked.job {
        Job::Trim => trim(place, run),
        Job::Retention => retention(place, run),
        Job::Reconcile => reconcile(place, run),
        Job::Train => train::learn(place, run),
        Job::Publish => publish(place, run),
        Job::Compact => compact(place, run),
        Job::Rollup => rollup(place, run),
        Job::Verify => verify(place, run),
        Job::Columns => columns(place, run),
        Job::Materialise => refresh::refresh(place, run),
        Job::Rhythm => rhythm(place, run),
        Job::Send => deliver::deliver(place, run),
        Job::Scrub => scrub::scrub(place, run),
    }
}

/// Whoever keeps people in columns finds that they are to be built anew.
fn columns(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    const ANEW: &str = "UPDATE meta SET columns_epoch = columns_epoch + 1";
    let people: u64 = place.conn.query_row("SELECT count(*) FROM people", [], |row| row.get(0).map(store::unsigned))?;
    if !run.asked.dry_run {
        place.conn.execute(ANEW, [])?;
    }
    Ok(json!({ "people": people }).into())
}

/// Nobody waits for what only reads; a run that was cut begins anew. A dry run keeps nothing.
fn rhythm(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let all: u64 = place.conn.query_row("SELECT count(*) FROM people", [], |row| row.get(0).map(store::unsigned))?;
    let (mut sums, mut cursor) = (Sums::default(), 0);
    loop {
        let snapshot = place.conn.transaction()?;
        let Some(last) = sums.add(&snapshot, &place.rules.tenants, cursor, PEOPLE)? else { break };
        cursor = last;
        drop(snapshot);
        (place.told)(sums.people, all)?;
    }
    if !run.asked.dry_run {
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        sums.keep(&tx, run.since())?;
        tx.commit()?;
    }
    Ok(sums.told().into())
}

fn visitors(conn: &Connection) -> Result<u64, StoreError> {
    Ok(conn.query_row("SELECT count(*) FROM visitors", [], |row| row.get(0).map(store::unsigned))?)
}

/// What the run kept when it was cut.
fn so_far<T: serde::de::DeserializeOwned + Default>(run: &Run) -> T {
    T::deserialize(&run.report).unwrap_or_default()
}

/// The outbox takes them all; snapshots and lookups it gives out behind what is due already.
fn publish(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let all = visitors(place.conn)?;
    let (mut put, mut cursor): (Put, i64) = (so_far(run), run.cursor);
    loop {
        let next = publish::some(place.conn, cursor, SOME)?;
        let Some((last, ..)) = next.last() else { break };
        cursor = *last;
        let mut subjects = Vec::new();
        for (_, tenant, visitor) in &next {
            let of = publish::subjects(place.conn, &place.rules.tenants, *tenant, *visitor)?;
            put.count(&of);
            subjects.extend(of.into_iter().map(|subject| (*tenant, subject)));
        }
        if !run.asked.dry_run {
            let given = (place.given)()?;
            crate::store::write_txn::within(place.conn, place.rules, place.metrics, given, |group| {
                // Above what is being written now.
                group.next_version();
                group.rank = Rank::Bulk;
                subjects
                    .into_iter()
                    .try_for_each(|(tenant, subject)| crate::outbox::queue::put(group, tenant, subject, group.now))?;
                runs::keep(group.tx, run.no, cursor, &json!(put))
            })?;
        }
        (place.told)(put.snapshots, all)?;
        (place.pause)();
    }
    put.of_tenants = if run.asked.dry_run {
        of_tenants(place.conn, &place.rules.tenants)?.len() as u64
    } else {
        crate::store::write_txn::within(place.conn, place.rules, place.metrics, (place.given)()?, |group| {
            group.next_version();
            let all = of_tenants(group.tx, &group.rules.tenants)?;
            for (tenant, subject) in &all {
                // The pointer waits for the value that it names.
                if let Subject::Catalogue(version) = subject {
                    catalogue::handed(group, *tenant, *version, None)?;
                }
                crate::outbox::queue::put(group, *tenant, *subject, group.now)?;
            }
            Ok::<_, StoreError>(all.len() as u64)
        })?
    };
    Ok(json!(put).into())
}

/// The keys of whole tenants but of catalogues that leave: when they do is in the outbox.
fn of_tenants(conn: &Connection, tenants: &Tenants) -> Result<Vec<(TenantNo, Subject)>, StoreError> {
    let mut all = Vec::new();
    for (tenant, subject) in publish::of_tenants(conn, tenants)? {
        let leaves = matches!(subject, Subject::Catalogue(version) if catalogue::outdated_since(conn, tenant, version)?.is_some());
        all.extend((!leaves).then_some((tenant, subject)));
    }
    Ok(all)
}

/// The people that wait are those of whom something is new, and no others are looked at: whatever waited when it began is put in
/// the outbox, before the pause of each is over.
fn compact(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let mut compacted: Compacted = so_far(run);
    let all = compacted.people + crate::outbox::queue::waiting(place.conn)?;
    if run.asked.dry_run {
        return Ok(json!({"people": all}).into());
    }
    loop {
        let given = (place.given)()?;
        let fired = crate::store::write_txn::within(place.conn, place.rules, place.metrics, given, |group| {
            let (people, snapshots) = crate::outbox::queue::fire_timers(group, Millis::MAX, PEOPLE)?;
            compacted.people += people;
            compacted.snapshots += snapshots;
            runs::keep(group.tx, run.no, run.cursor, &json!(compacted))?;
            Ok::<_, StoreError>(people)
        })?;
        (place.told)(compacted.people, all)?;
        if fired < PEOPLE.into() || compacted.people >= all {
            break;
        }
        (place.pause)();
    }
    Ok(json!(compacted).into())
}

/// What `compact` put in the outbox.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Compacted {
    people: u64,
    snapshots: u64,
}

/// A dry run does the same in transactions that are taken back.
fn rollup(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    // Where nobody ever saw an experiment, nobody is looked at.
    const ALL: &str = "SELECT ifnull(max(person), 0)
        FROM (SELECT max(person) AS person FROM people UNION ALL SELECT max(person) FROM experiment_people)
        WHERE EXISTS (SELECT 1 FROM exposures) OR EXISTS (SELECT 1 FROM experiment_people)";
    let all: i64 = place.conn.query_row(ALL, [], |row| row.get(0))?;
    let (mut rolled, mut cursor): (Rolled, i64) = (so_far(run), run.cursor);
    while cursor < all {
        // By the time that it is: what `trim` took since the run began is not looked for.
        let now = (place.given)()?.now;
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        cursor = rollup::people(&tx, cursor, SOME, now, &mut rolled)?.unwrap_or(all);
        if run.asked.dry_run {
            tx.rollback()?;
        } else {
            runs::keep(&tx, run.no, cursor, &json!(rolled))?;
            tx.commit()?;
        }
        (place.told)(store::unsigned(cursor), store::unsigned(all))?;
        (place.pause)();
    }
    place.to_the_end.store(true, Ordering::Relaxed);
    let told = || (place.told)(store::unsigned(all), store::unsigned(all));
    let snapshot = place.conn.transaction()?;
    let mut wrong = rollup::wrong(&snapshot, &told)?;
    drop(snapshot);
    rolled.sums += if run.asked.dry_run { wrong.len() as u64 } else { 0 };
    while !run.asked.dry_run && !wrong.is_empty() {
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rolled.sums += wrong.mend(&tx, SOME as usize)?;
        runs::keep(&tx, run.no, cursor, &json!(rolled))?;
        tx.commit()?;
        told()?;
        (place.pause)();
    }
    Ok(json!(rolled).into())
}

/// What was asked for and not answered is still there for a run that goes on.
fn verify(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    const SILENT: &str = "for ten minutes no edge said what the KV has: does the publish consumer run? \
        `causeway_last_sync_age_seconds`, and `sync_failed` and `kv_read_failed` in the worker's log, say more; an edge of \
        a release before this one reads nothing back";
    let all = verify::all(place.conn)?;
    let mut walk = Walk::from(run.cursor, so_far(run));
    // Another run, if only a dry one, forgot what this one had asked for.
    if runs::is_behind(place.conn, run)? {
        walk = Walk::default();
    }
    if walk == Walk::default() {
        verify::forget(place.conn)?;
    }
    let keep = |tx: &Connection, walk: &Walk| runs::keep(tx, run.no, walk.cursor, &json!(walk.verified));
    let mut heard = (place.given)()?.now;
    loop {
        let given = (place.given)()?;
        heard = heard.min(given.now);
        let next = verify::step(place.conn, place.rules, place.metrics, given, &mut walk, run.asked.dry_run, &keep)?;
        match next {
            Next::Looked => heard = given.now,
            Next::Asked => {}
            Next::Waits(due) if given.now <= heard.max(due).saturating_add(SILENT_MS) => {}
            Next::Waits(_) => {
                verify::forget(place.conn)?;
                return Ok(Ended { report: json!(walk.verified), failed: Some(SILENT.to_owned()) });
            }
            Next::Over => return Ok(json!(walk.verified).into()),
        }
        (place.told)(walk.verified.keys, all)?;
        (place.pause)();
    }
}

/// Why a run that goes by the age that things had when it began does not go on: that time is still to come.
fn ahead(run: &Run, now: Millis) -> Option<String> {
    const WHY: &str = "the clock was set back since the run began, and what is old was told by its time of then: nothing more \
        is dropped by it; look at the clock, and at what the run came to until now";
    (run.since() > now.saturating_add(AHEAD_MS)).then(|| WHY.to_owned())
}

/// A dry run does the same in transactions that are taken back. What a sibling would have lost in one before, it still has.
fn trim(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let (all, now) = (visitors(place.conn)?, run.since());
    let (mut trimmed, mut cursor): (Trimmed, i64) = (so_far(run), run.cursor);
    let step = |trimmed: &Trimmed| (place.told)(trimmed.visitors, all).map(|()| (place.pause)());
    loop {
        if let failed @ Some(_) = ahead(run, (place.given)()?.now) {
            return Ok(Ended { report: json!(trimmed), failed });
        }
        let tx = place.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some((last, unforgotten)) = trim::some(&tx, cursor, SOME, now, &mut trimmed)? else { break };
        cursor = last;
        if run.asked.dry_run {
            tx.rollback()?;
        } else {
            runs::keep(&tx, run.no, cursor, &json!(trimmed))?;
            tx.commit()?;
            trim::forget(place.conn, &unforgotten, now, &|| step(&trimmed))?;
        }
        step(&trimmed)?;
    }
    if !run.asked.dry_run {
        // What `steering` forgets some of each minute: of very many impressions without a visitor it leaves most.
        for tenant in place.rules.tenants.iter() {
            while spend::forget(place.conn, tenant.no, now)? > 0 {
                step(&trimmed)?;
            }
        }
        trimmed.names += forget_names::sweep(place.conn, place.rules, place.metrics, place.given, &|| step(&trimmed))?;
        forget_names::release(place.conn, place.rules, place.metrics, (place.given)()?)?;
    }
    place.to_the_end.store(true, Ordering::Relaxed);
    // By another's keys they would be written, and be noted as gone.
    if place.hands_out {
        old_lookups(place, run, cursor, &mut trimmed)?;
    }
    Ok(json!(trimmed).into())
}

/// Those of a key are counted when all of them are in the outbox: what a run that was cut put there is put there again.
fn old_lookups(place: &mut Place<'_>, run: &Run, cursor: i64, trimmed: &mut Trimmed) -> Result<(), StoreError> {
    let restored = lookups::restored(place.conn, &place.rules.tenants)?;
    for retired in restored.into_iter().chain(lookups::retired(place.conn, &place.rules.tenants)?) {
        let (mut after, mut count) = (None, 0);
        loop {
            let hashes = retired.some(place.conn, after, SOME)?;
            count += hashes.len() as u64;
            after = hashes.last().copied();
            let is_over = hashes.len() < SOME as usize;
            trimmed.lookups += if is_over && !retired.again { count } else { 0 };
            if !run.asked.dry_run {
                crate::store::write_txn::within(place.conn, place.rules, place.metrics, (place.given)()?, |group| {
                    group.rank = Rank::Bulk;
                    retired.write(group, &hashes)?;
                    if is_over {
                        retired.done(group)?;
                    }
                    runs::keep(group.tx, run.no, cursor, &json!(trimmed))
                })?;
            }
            (place.told)(trimmed.visitors, trimmed.visitors)?;
            (place.pause)();
            if is_over {
                break;
            }
        }
    }
    Ok(())
}

fn retention(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let policy = retention::policy(&place.rules.tenants, run.since());
    let all = visitors(place.conn)?;
    let (mut forgotten, mut cursor): (Forgotten, i64) = (so_far(run), run.cursor);
    while !policy.is_empty() {
        let log = (place.backlog)()?.reader();
        let Some(unseen) = retention::unseen(place.conn, &log, &policy, cursor)? else { break };
        cursor = unseen.last;
        forgotten.visitors += unseen.looked_at;
        if run.asked.dry_run {
            forgotten.forgotten += unseen.visitors.len() as u64;
        } else if !unseen.visitors.is_empty() {
            let receipt = retention::receipt(run.no, run.since(), cursor);
            let (given, backlog) = ((place.given)()?, place.backlog);
            if let failed @ Some(_) = ahead(run, given.now) {
                return Ok(Ended { report: json!(forgotten), failed });
            }
            let still = |tx: &Connection| retention::still(tx, &backlog()?.reader(), &policy, &unseen.visitors);
            let keep = |tx: &Connection, erased| {
                forgotten.forgotten += erased;
                runs::keep(tx, run.no, cursor, &json!(forgotten))
            };
            retention::forget(place.conn, place.rules, place.metrics, given, receipt, still, keep)?;
            (place.pause)();
        } else {
            runs::keep(place.conn, run.no, cursor, &json!(forgotten))?;
        }
        (place.told)(forgotten.visitors, all)?;
    }
    Ok(json!(forgotten).into())
}

/// One that goes on plans anew: what was mended before does not differ any more. What is left although it should be mended
/// is a failure: somebody has to look.
fn reconcile(place: &mut Place<'_>, run: &Run) -> Result<Ended, StoreError> {
    let plan = planned(place)?;
    let tenants = &place.rules.tenants;
    let mut report = told(&plan, tenants);
    if run.asked.dry_run {
        return Ok(report.into());
    }
    let step = |done, all| {
        (place.pause)();
        (place.told)(done, all)
    };
    let mended = reconcile::mend(place.conn, place.rules, place.metrics, || (place.given)(), &plan, &step)?;
    let left = if plan.differences.is_empty() { plan } else { planned(place)? };
    let (large, small): (Vec<&Difference>, Vec<_>) = left.differences.iter().partition(|one| one.is_too_large);
    if let Some(report) = report.as_object_mut() {
        report.insert("mended".to_owned(), mended.into());
        report.insert("left".to_owned(), json!(left.causes()));
        report.insert("too_large".to_owned(), large.len().into());
    }
    let failed = (!small.is_empty()).then(|| {
        let left = small.len();
        format!("{left} differences are left that should not be: run it again, and look at what `first` names")
    });
    Ok(Ended { report, failed })
}

fn planned(place: &mut Place<'_>) -> Result<Plan, StoreError> {
    // It reads everything once: pages that were mapped would stay in this process's memory.
    place.conn.pragma_update(None, "mmap_size", 0)?;
    place.conn.pragma_update(None, "cache_size", -64 * 1_024)?; // KiB
    let snapshot = place.conn.transaction()?;
    reconcile::plan(&snapshot, &place.rules.tenants, place.told)
}

fn told(plan: &Plan, tenants: &Tenants) -> Value {
    let name = |of: &Difference| tenants.by_no(of.tenant).map(|known| known.config.name.clone()).unwrap_or_default();
    let named = |of: &Difference| json!({"tenant": name(of), "cause": of.cause.code(), "master": of.master.to_string(), "visitors": of.visitors});
    json!({
        "visitors": plan.visitors, "links": plan.links, "people": plan.people, "differences": plan.causes(),
        "first": plan.differences.iter().take(NAMED).map(named).collect::<Vec<_>>(),
    })
}
