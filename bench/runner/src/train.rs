//! `train`: training of a model from ten million stored actions in one process: seconds, memory, and quality on actions
//! that were left out of the training, compared with the base rate.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use causeway_origin::campaigns::train::Outcome;
use causeway_origin::campaigns::train::{self, ModelKind};
use causeway_origin::profiles::buckets;
use causeway_origin::store::TenantNo;
use causeway_origin::store::{self, CheckedBytes, VisitorRow};
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::time::{Day, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState, WriteStamp};
use clap::Args;
use rusqlite::Connection;

use crate::cpu::Cpu;
use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "train";
/// Time of the training.
const NOW: Millis = 1_800_000_000_000;
const DAYS: u64 = 60;
/// Number of days on which a person visits.
const VISITS: u64 = 10;
const ADS: u64 = 1_000;
/// Number of segments in total, and of each person.
const SEGMENTS: (u64, usize) = (100, 10);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of stored actions.
    #[arg(long, default_value_t = 10_000_000)]
    actions: u64,
    /// Number of people, each with one browser.
    #[arg(long, default_value_t = 100_000)]
    people: u64,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    eprintln!("storing {} actions of {} people", options.actions, options.people);
    let tenant = fill(folder.path(), options, stop)?;
    let before = memory(true)?;
    let (start, cpu) = (Instant::now(), Cpu::own().micros()?);
    let outcome = train::run(folder.path(), tenant, NOW, &train::Options::default(), &|_, _| Ok(()))?;
    let (took, peak) = (start.elapsed().as_secs_f64(), memory(false)?);
    let cpu = (Cpu::own().micros()? - cpu) as f64 / 1e6;
    let Outcome::Trained(bytes, report) = outcome else { bail!("no part is better than the base rate: {outcome:?}") };
    let scale = options.actions as f64 / 10e6;
    let line =
        |case: &str, value, unit, peer, bar| Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar };
    report::print(&line("training", took, "s", None, (scale >= 1.0).then_some(Bar::AtMost(60.0))), json);
    report::print(&line("processor time of it", cpu, "s", None, None), json);
    report::print(&line("memory, at most", peak, "MB", None, Some(Bar::AtMost(1_000.0))), json);
    report::print(&line("memory before", before, "MB", None, None), json);
    report::print(&line("impressions", report.impressions as f64, "", None, None), json);
    report::print(&line("model", bytes.len() as f64 / 1e3, "KB", None, None), json);
    for part in &report.parts {
        let name = match part.part {
            ModelKind::Click => "click",
            ModelKind::Conversion => "conversion",
            ModelKind::Price => "price",
        };
        let base = Some(("base rate".to_owned(), part.base_loss));
        report::print(&line(&format!("{name}: loss"), part.loss, "", base, Some(Bar::AtMost(1.0))), json);
        report::print(&line(&format!("{name}: calibration"), part.calibration_error, "", None, None), json);
    }
    Ok(())
}

/// Peak memory of the process in MB; with the flag set, the peak is reset first, so that the current use is returned.
fn memory(anew: bool) -> Result<f64> {
    if anew {
        // A write of 5 resets the peak (proc(5), clear_refs).
        std::fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak of the memory")?;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1_024.0 / 1e6)
}

fn fill(folder: &Path, options: &Options, stop: &Stop) -> Result<TenantNo> {
    let conn = store::open(folder)?;
    let tenant = store::tenant_no(&conn, "bench")?;
    let each = options.actions / options.people.max(1);
    for first in (1..=options.people).step_by(1_000) {
        stop.check()?;
        conn.execute_batch("BEGIN")?;
        for row in first..=options.people.min(first + 999) {
            put_person(&conn, tenant, row, each)?;
        }
        conn.execute_batch("COMMIT")?;
    }
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(tenant)
}

fn put_person(conn: &Connection, tenant: TenantNo, number: u64, count: u64) -> Result<()> {
    const PERSON: &str = "INSERT INTO people VALUES (?1, ?2, ?3, 1, 1, 1, NULL, zeroblob(16), 1000)";
    const VISITOR: &str = "INSERT INTO visitors
        (row, tenant, visitor, last_seen, version, restore, published, person, profile, segments)
        VALUES (?1, ?2, ?3, 0, 1, 0, 0, ?1, zeroblob(900), ?4)";
    const BOUGHT: &str = "INSERT OR REPLACE INTO purchases VALUES (?1, 1, ?2)";
    let (mut random, row) = (Random::of(number), VisitorRow::from_number(i64::try_from(number)?));
    let mut tail = [0; 10];
    tail.iter_mut().rev().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
    let visitor = VisitorId::mint(NOW - DAYS * 86_400_000, tail);
    let (segments, loyal) = segments(&mut random);
    conn.prepare_cached(PERSON)?.execute((row, tenant.0, visitor.as_bytes()))?;
    conn.prepare_cached(VISITOR)?.execute((row, tenant.0, visitor.as_bytes(), CheckedBytes(segments.pack())))?;
    let (actions, bought) = actions(&mut random, count, loyal);
    let stored = buckets::add(conn, row, 0, actions)?;
    conn.prepare_cached("UPDATE visitors SET actions = ?2 WHERE row = ?1")?.execute((row, stored))?;
    for (minute, value) in bought {
        conn.prepare_cached(BOUGHT)?.execute([row.minute_key(minute), value])?;
    }
    Ok(())
}

/// Random segments of a person, and whether it has the first segment, whose people click more.
fn segments(random: &mut Random) -> (SegmentMap, bool) {
    let ids: Vec<u64> = (0..SEGMENTS.1).map(|_| random.below(SEGMENTS.0)).collect();
    let loyal = ids.contains(&0);
    let mut map = SegmentMap::default();
    let held = |id: u64| {
        let state = SegmentState::held(HourStamp::at(NOW + 90 * 86_400_000), []);
        (SegmentId(u32::try_from(id).unwrap_or_default()), state)
    };
    map.write_all(WriteStamp { at: NOW - DAYS * 86_400_000, order: 1 }, ids.into_iter().map(held));
    (map, loyal)
}

/// Impressions on a few days. Clicks and purchases depend on campaign and segment, and fall with the number of earlier
/// impressions of the ad.
fn actions(random: &mut Random, count: u64, loyal: bool) -> (ActionList, Vec<(Minute, i64)>) {
    let first = u64::from(Minute::at(NOW).day().0) - DAYS;
    let days: Vec<u64> = (0..VISITS).map(|_| first + random.below(DAYS)).collect();
    let (mut made, mut actions, mut bought) = (0, ActionList::default(), Vec::new());
    let mut seen: BTreeMap<u32, i32> = BTreeMap::new();
    while made < count {
        let place = usize::try_from(random.below(VISITS)).unwrap_or_default();
        let day = days.get(place).copied().unwrap_or(first);
        let minute = Minute(Day(u16::try_from(day).unwrap_or_default()).start().0 + small(random.below(1_440)));
        // A few ads have many impressions, most have few.
        let ad = small((random.unit() * random.unit() * ADS as f64) as u64);
        let entity = AdEntity { ad: 1 + ad, ad_group: ad / 3, campaign: ad / 10, advertiser: ad / 40 };
        let view_type = ViewType(u8::try_from(ad % 4).unwrap_or_default());
        let [a, b, c, d, e, f, ..] = random.next().to_le_bytes();
        let insertion = InsertionHash([a, b, c, d, e, f]);
        actions.insert(AdAction { insertion, action_type: ActionType::IMPRESSION, view_type, entity, minute });
        let times = seen.entry(entity.campaign).or_default();
        let taste = 0.01 + 0.06 * f64::from(entity.campaign % 7) / 7.0 * if loyal { 2.0 } else { 1.0 };
        let clicked = random.unit() < taste * 0.8f64.powi(*times);
        (made, *times) = (made + 1, *times + 1);
        if clicked {
            actions.insert(AdAction { insertion, action_type: ActionType::CLICK, view_type, entity, minute });
            made += 1;
            if random.unit() < 0.05 + 0.02 * f64::from(entity.campaign % 5) {
                bought.push((minute, 10_000_000 * i64::from(1 + entity.campaign % 3)));
            }
        }
    }
    (actions, bought)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
