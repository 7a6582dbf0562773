//! A store of millions of visitors, written row by row; the result and the speed of `reconcile` on it.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use causeway_origin::identity::connections;
use causeway_origin::store::TenantNo;
use causeway_origin::store::{self, CheckedBytes};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState, WriteStamp};
use causeway_shared::profiles::profile::Profile;
use causeway_shared::wire::profile::encode_profile;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{BENCH, Options};
use crate::environment::path;
use crate::origin::TENANT;
use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

/// Number of people of several visitors with a wrong count of visitors, which the plan must find.
const WRONG: u32 = 1_000;
/// The member to which a fifth of all visitors belong.
pub(super) const SUPER: u32 = 0;
/// Indexes that are created after the rows.
const LATER: [&str; 4] = ["visitors_by_person", "people_by_master", "evidence_of_id", "claims_of_id"];

/// The member of a visitor; `None` for a visitor without a link.
pub(super) fn member(visitor: u32, visitors: u32) -> Option<u32> {
    match visitor % 5 {
        0 => Some(SUPER),
        // On average, a member has two and a half visitors.
        1 | 2 => Some(1 + u32::try_from(Random::of(visitor.into()).below(u64::from(visitors) * 4 / 25)).unwrap_or(0)),
        _ => None,
    }
}

/// The hash of a member's id.
pub(super) fn hash(member: u32) -> [u8; 16] {
    Random::of(u64::from(member) << 32).sixteen()
}

pub(super) fn id(number: u32) -> VisitorId {
    let [a, b, c, d] = number.to_be_bytes();
    VisitorId::mint(1_790_000_000_000 + u64::from(number), [0, 0, 0, 0, 0, 0, a, b, c, d])
}

/// Fills the store of a configuration, and runs the measurements without a serving origin.
pub(super) fn run(config: &Path, options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let data = config.with_file_name("data");
    eprintln!("storing {} visitors", options.visitors);
    let (tenant, people) = fill(&data, options.visitors, stop)?;
    let (told, took, peak) = reconcile(config, stop)?;
    let links = options.visitors / 5 * 3;
    let expected = json!([options.visitors, links, people, { "devices": WRONG }]);
    let found =
        ["visitors", "links", "people", "differences"].map(|field| told.get(field).cloned().unwrap_or_default());
    ensure!(Value::from(found.to_vec()) == expected, "the plan has {found:?} instead of {expected}");
    let whole = options.visitors >= 5_000_000;
    let print = |case: String, value, unit, bar: f64| {
        let bar = whole.then_some(Bar::AtMost(bar));
        report::print(&Line { bench: BENCH, case, value, unit, peer: None, bar }, json);
    };
    let of = format!("{:.1} M visitors, {:.1} M links", f64::from(options.visitors) / 1e6, f64::from(links) / 1e6);
    print(format!("plan of reconcile, {of}"), took, "s", 15.0);
    print(format!("memory of it, {of}"), peak, "MB", 500.0);
    // As with a serving origin, the file is in the page cache, and earlier checks have run.
    std::io::copy(&mut std::fs::File::open(store::store_file(&data))?, &mut std::io::sink())?;
    let conn = store::open_readonly(&data)?;
    checks(&conn, tenant, options, false, stop)?;
    let (small, large) = (checks(&conn, tenant, options, false, stop)?, checks(&conn, tenant, options, true, stop)?);
    print("check connection, p99".to_owned(), small, "us", 20.0);
    print(format!("the same, of a member with {} visitors, p99", options.visitors / 5), large, "us", 20.0);
    Ok(())
}

/// Writes rows like those of the origin; returns the tenant and the number of people.
fn fill(data: &Path, visitors: u32, stop: &Stop) -> Result<(TenantNo, u32)> {
    const PERSON: &str = "INSERT INTO people VALUES (?1, ?2, ?3, ?4, 1, 1, NULL, zeroblob(16), 1000)";
    const VISITOR: &str = "INSERT INTO visitors
        (row, tenant, visitor, last_seen, version, restore, published, person, profile, segments)
        VALUES (?1, ?2, ?3, ?1, 1, 0, 1, ?4, ?5, ?6)";
    const EVIDENCE: &str = "INSERT INTO evidence (tenant, visitor, kind, hash, source, weight, first, last)
        VALUES (?1, ?2, 1, ?3, 1, 1000, ?4, ?4)";
    let conn = store::open(data)?;
    let tenant = store::tenant_no(&conn, TENANT)?;
    conn.execute_batch("PRAGMA synchronous = OFF")?;
    let mut indices = Vec::new();
    for name in LATER {
        let made: String = conn.query_row("SELECT sql FROM sqlite_master WHERE name = ?1", [name], |row| row.get(0))?;
        conn.execute_batch(&format!("DROP INDEX {name}"))?;
        indices.push(made);
    }
    let segments = CheckedBytes(segments());
    // The first visitor of each member, whose row is the person's, and the number of its visitors.
    let mut firsts: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    conn.execute_batch("BEGIN")?;
    for visitor in 0..visitors {
        if visitor % 10_000 == 0 {
            stop.check()?;
        }
        let of = member(visitor, visitors);
        let master = of.map_or(visitor, |member| {
            let (first, count) = firsts.entry(member).or_insert((visitor, 0));
            *count += 1;
            *first
        });
        conn.prepare_cached(VISITOR)?.execute((
            visitor + 1,
            tenant.0,
            id(visitor).as_bytes(),
            master + 1,
            encode_profile(id(visitor), &Profile::default()),
            &segments,
        ))?;
        if let Some(member) = of {
            conn.prepare_cached(EVIDENCE)?.execute((tenant.0, id(visitor).as_bytes(), hash(member), visitor))?;
        }
    }
    let alone = (0..visitors).filter(|visitor| member(*visitor, visitors).is_none()).map(|visitor| (visitor, 1));
    let mut people: Vec<(u32, u32)> = firsts.into_values().chain(alone).collect();
    people.sort_unstable();
    let mut wrong = WRONG;
    for (master, devices) in &people {
        let is_wrong = *devices > 1 && wrong > 0;
        wrong -= u32::from(is_wrong);
        let devices = devices + u32::from(is_wrong);
        conn.prepare_cached(PERSON)?.execute((master + 1, tenant.0, id(*master).as_bytes(), devices))?;
    }
    conn.execute_batch("COMMIT")?;
    indices.iter().try_for_each(|made| conn.execute_batch(made))?;
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok((tenant, u32::try_from(people.len())?))
}

/// The segments of each visitor.
fn segments() -> Vec<u8> {
    let mut segments = SegmentMap::default();
    let stamp = WriteStamp { at: 1, order: 1 };
    (0..20).for_each(|n| segments.write(SegmentId(n), stamp, SegmentState::held(HourStamp(200_000), [])));
    segments.pack()
}

/// The plan of the command, its seconds, and its peak memory in MB.
fn reconcile(config: &Path, stop: &Stop) -> Result<(Value, f64, f64)> {
    let mut command = Command::new(path("CAUSEWAY_ORIGIN_BIN")?);
    command.arg("--config").arg(config).args(["--output", "json", "job", "run", "reconcile", "--dry-run"]);
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        stop.check().inspect_err(|_| drop(child.kill()))?;
        // The peak only grows, so the last reading before the end is accurate.
        peak = memory(&child).unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = start.elapsed().as_secs_f64();
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "reconcile failed");
    Ok((serde_json::from_slice(&output.stdout)?, took, peak))
}

/// Peak memory of a process in MB; `None` after its end.
fn memory(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1_024.0 / 1e6)
}

/// P99 of a check in microseconds; half of the pairs belong to one person.
fn checks(conn: &Connection, tenant: TenantNo, options: &Options, large: bool, stop: &Stop) -> Result<f64> {
    let mut random = Random::of(u64::from(large));
    let mut any = || u32::try_from(random.below(options.visitors.into())).unwrap_or_default();
    let mut took = Vec::with_capacity(options.checks as usize);
    for n in 0..options.checks {
        if n % 1_000 == 0 {
            stop.check()?;
        }
        let (a, mut b) = (any() / 5 * 5 + u32::from(!large), any());
        if n % 2 == 0 && large {
            b = b / 5 * 5;
        } else if n % 2 == 0 {
            b = a;
        }
        let (whose, others) = (member(a, options.visitors), member(b, options.visitors));
        let start = Instant::now();
        let found = black_box(connections::check_pair(conn, tenant, id(a), id(b))?);
        took.push(start.elapsed().as_secs_f64() * 1e6);
        let connected = found.is_some_and(|found| found.connected);
        ensure!(connected == (a == b || whose.is_some() && whose == others), "{a} and {b}: {found:?}");
    }
    took.sort_by(f64::total_cmp);
    took.get(took.len() * 99 / 100).copied().context("no connection was checked")
}
