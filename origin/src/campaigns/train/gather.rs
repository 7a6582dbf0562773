//! Reads a tenant's examples from its store, person by person, with one thread for each shard.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_shared::ads::model::features::ModelFeature;
use causeway_shared::base::limits;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::ActionType;
use causeway_shared::facts::segments::{PackedSegments, SegmentId, SegmentMap};
use causeway_shared::wire::profile;
use rusqlite::Connection;

use super::examples::{ExampleShard, Examples};
use super::person_history::{HistoryReplay, PersonHistory, SegmentStay};
use crate::profiles::buckets::{self, packed_actions};
use crate::profiles::purchases;
use crate::store;
use crate::store::CheckedBytes;
use crate::store::OpenError;
use crate::store::PersonNo;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::VisitorRow;
use crate::store::job_error::JobError;
use crate::store::tables::{people, visitors};
use crate::store::visitor_at;

/// Number of shards. It is fixed so that the same store gives the same model on every machine.
const SHARDS: u64 = 4;
/// Number of visitors sampled to find common segments.
const SAMPLED: i64 = 4_096;
/// A segment is a feature if at least one in this number of sampled visitors is in it.
const COMMON: usize = 200;

/// Parameters of a run.
#[derive(Debug)]
pub(super) struct GatherRequest<'a> {
    pub(super) data: &'a Path,
    pub(super) tenant: TenantNo,
    pub(super) bits: u8,
    /// Most actions read. Beyond it, a share of the people is drawn.
    pub(super) most: u64,
    pub(super) conversions: &'a [ActionType],
}

/// Examples of a tenant.
#[derive(Debug)]
pub(super) struct GatheredExamples {
    pub(super) people: u64,
    pub(super) segments: Vec<SegmentId>,
    pub(super) examples: Examples,
}

/// Reads all examples. `progress` receives the number of people read and of all people, from several threads.
pub(super) fn gather_examples(
    request: &GatherRequest<'_>,
    progress: super::Progress<'_>,
) -> Result<GatheredExamples, JobError> {
    let conn = open(request.data)?;
    let people = conn.query_row(people::PEOPLE_COUNT_OF_TENANT, [request.tenant.0], |row| {
        row.get(0).map(crate::base::integers::unsigned)
    })?;
    let VisitorSample { actions, segments } = sample_visitors(&conn, request.tenant)?;
    // Share of the people, in parts of 2^32.
    let share = if actions > request.most { (request.most << 32) / actions } else { 1 << 32 };
    let room = usize::try_from(actions.min(request.most) / SHARDS).unwrap_or_default() * 5 / 4;
    let done = AtomicU64::new(0);
    let read = |number: u64| {
        let mut shard = ExampleShard::new(request.bits, room);
        let step = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, people);
        read_shard(request, &segments, number, share, &mut shard, &step)?;
        Ok(shard)
    };
    let shards: Result<Vec<ExampleShard>, JobError> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..SHARDS).map(|number| scope.spawn(move || read(number))).collect();
        started.into_iter().map(|thread| thread.join().unwrap_or(Err(JobError::Panicked))).collect()
    });
    Ok(GatheredExamples { people, segments, examples: Examples::new(shards?) })
}

/// Range of person numbers that one query reads.
const PAGE: usize = 5_000;

/// Opens the store without memory-mapped pages: each page is read once and would only stay in memory.
fn open(data: &Path) -> Result<Connection, OpenError> {
    let conn = store::open_readonly(data)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "cache_size", -8 * 1_024)?;
    Ok(conn)
}

fn read_shard(
    request: &GatherRequest<'_>,
    segments: &[SegmentId],
    number: u64,
    share: u64,
    shard: &mut ExampleShard,
    step: &dyn Fn() -> Result<(), JobError>,
) -> Result<(), JobError> {
    let conn = open(request.data)?;
    let last: i64 = conn.query_row(people::PEOPLE_LAST_ROW, [], |row| row.get(0))?;
    let mut walk = HistoryReplay::default();
    let mut statement = conn.prepare(people::PEOPLE_SHARD_WITH_VISITORS)?;
    // Each query is short, because an open read transaction stops SQLite from truncating its write-ahead log.
    for from in (1..=last).step_by(PAGE) {
        let of = (
            request.tenant.0,
            crate::base::integers::signed(SHARDS),
            crate::base::integers::signed(number),
            from,
            from + PAGE as i64 - 1,
        );
        let page = statement.query_map(of, |row| Ok((PersonNo(row.get(0)?), row.get(1)?)))?;
        let page: Vec<(PersonNo, VisitorRow)> = page.collect::<Result<_, _>>()?;
        for visitors in page.chunk_by(|a, b| a.0 == b.0) {
            step()?;
            let drawn = visitors.iter().filter(|(person, _)| is_drawn(*person, share));
            let rows: Vec<VisitorRow> = drawn.take(limits::SNAPSHOT_VISITORS).map(|(_, row)| *row).collect();
            if let Some(person) = gather_person(&conn, request, segments, &rows)? {
                walk.walk(person, request.conversions, shard);
            }
        }
    }
    Ok(())
}

/// Whether a person is in the drawn share, in parts of 2^32: multiplicative hashing of its number.
fn is_drawn(person: PersonNo, share: u64) -> bool {
    person.0.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 < share
}

/// The history of a person that saw ads; `None` for one that did not.
fn gather_person(
    conn: &Connection,
    request: &GatherRequest<'_>,
    segments: &[SegmentId],
    rows: &[VisitorRow],
) -> Result<Option<PersonHistory>, StoreError> {
    let mut person = PersonHistory::default();
    for row in rows {
        for body in buckets::actions_within(conn, *row, Minute(0), Minute(u32::MAX))? {
            person.actions.extend(packed_actions(&body)?.iter());
        }
    }
    if person.actions.is_empty() {
        return Ok(None);
    }
    let mut joined = SegmentMap::default();
    for row in rows {
        let mut statement = conn.prepare_cached(visitors::VISITORS_ID_AND_SEGMENTS)?;
        let mut found = statement.query([row])?;
        let Some(visitor) = found.next()? else { continue };
        person.minted.push(Minute::at(visitor_at(visitor, 0)?.minted_ms()));
        if !segments.is_empty() {
            joined = joined.join(modelled_segments(CheckedBytes::open_column(visitor.get_ref(1)?)?, segments)?);
        }
        person.purchases.extend(purchases::load_purchases(conn, *row)?);
    }
    person.purchases.sort_unstable_by_key(|bought| bought.minute);
    person.segments = segments.iter().filter_map(|id| segment_stay(&joined, *id, request.bits)).collect();
    Ok(Some(person))
}

/// A visitor's segments if it is in one of the given ones; otherwise an empty map.
fn modelled_segments(packed: &[u8], segments: &[SegmentId]) -> Result<SegmentMap, StoreError> {
    let some = PackedSegments::read(packed).is_some_and(|all| all.iter().any(|(id, _)| segments.contains(&id)));
    if some { Ok(profile::decode_segments(packed)?) } else { Ok(SegmentMap::default()) }
}

fn segment_stay(map: &SegmentMap, id: SegmentId, bits: u8) -> Option<SegmentStay> {
    let (until, _) = map.get(id)?;
    Some(SegmentStay { place: ModelFeature::Segment(id).index(bits), from: Minute::at(map.written(id)?), until })
}

/// Statistics from a sample of visitors that is spread over the store.
struct VisitorSample {
    /// Approximate number of actions.
    actions: u64,
    /// The most common segments.
    segments: Vec<SegmentId>,
}

fn sample_visitors(conn: &Connection, tenant: TenantNo) -> Result<VisitorSample, StoreError> {
    let last: i64 = conn.query_row(visitors::VISITORS_LAST_ROW, [], |row| row.get(0))?;
    let (mut counts, mut sampled, mut actions) = (HashMap::<SegmentId, usize>::new(), 0, 0);
    let step = usize::try_from(last / SAMPLED).unwrap_or_default().max(1);
    for from in (1..=last).step_by(step) {
        let mut statement = conn.prepare_cached(visitors::VISITORS_SAMPLE_FROM_ROW)?;
        let mut found = statement.query([from])?;
        let Some(row) = found.next()?.filter(|row| row.get(0).is_ok_and(|no: i64| no == tenant.0)) else { continue };
        sampled += 1;
        actions += u64::from(row.get::<_, u32>(2)?);
        let packed = PackedSegments::read(CheckedBytes::open_column(row.get_ref(1)?).unwrap_or_default());
        packed.into_iter().flat_map(PackedSegments::iter).for_each(|(id, _)| *counts.entry(id).or_default() += 1);
    }
    let mut common: Vec<(usize, SegmentId)> =
        counts.into_iter().filter(|(_, count)| count * COMMON >= sampled).map(|(id, count)| (count, id)).collect();
    common.sort_unstable_by_key(|(count, id)| (Reverse(*count), *id));
    let mut segments: Vec<SegmentId> = common.into_iter().take(limits::MODEL_SEGMENTS).map(|(_, id)| id).collect();
    segments.sort_unstable();
    Ok(VisitorSample { actions: actions * step as u64, segments })
}
