//! `segments-load`: an import of half a million users with a thousand segments each by `causeway import`, then reads of
//! single users from the store with a filter by expiry.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_origin::store::{self, CheckedBytes};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::segments::PackedSegments;
use clap::Args;
use rusqlite::Connection;
use serde_json::Value;

use crate::environment::path;
use crate::origin::{TENANT, prepare};
use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "segments-load";
/// Number of segment ids.
const IDS: u64 = 82_000;
/// Range of the expiries in hours: 90 days.
const HOURS: u64 = 2_160;
/// Number of users whose segments are compared with the import and compressed with zstd.
const CHECKED: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of users.
    #[arg(long, default_value_t = 500_000)]
    users: u64,
    /// Number of segments of each user.
    #[arg(long, default_value_t = 1_000)]
    segments: usize,
    /// Number of threads that parse lines.
    #[arg(long, default_value_t = 2)]
    workers: u16,
    /// Number of reads.
    #[arg(long, default_value_t = 200_000)]
    reads: usize,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let config = prepare(folder.path(), "")?;
    let file = folder.path().join("segments.csv");
    let first_hour = HourStamp::at(causeway_origin::base::clock::now()).0 + 24;
    eprintln!("writing {} users x {} segments", options.users, options.segments);
    let size = generate(options, first_hour, &file, stop)?;
    let start = Instant::now();
    let told = import(&config, &file, options.workers)?;
    let took = start.elapsed().as_secs_f64();
    ensure!(told.get("facts") == Some(&options.users.into()), "the import reports {told}");
    std::fs::remove_file(&file)?;
    let data = folder.path().join("data");
    let print = |case: &str, value, unit, bar| {
        report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit, peer: None, bar }, json);
    };
    let scale = 500_000.0 / options.users as f64;
    print("load", took, "s", (scale <= 1.0).then_some(Bar::AtMost(120.0)));
    print("rate", options.users as f64 / took, "users/s", None);
    print("file", size as f64 / 1e6, "MB", None);
    // Pending writes of the import must not delay the reads, and the store must be in the page cache: a read from the
    // disk costs about 80 us on any machine, and is not the subject of this bench.
    let mut stored = File::open(store::store_file(&data))?;
    stored.sync_all()?;
    std::io::copy(&mut stored, &mut std::io::sink())?;
    let conn = store::open_readonly(&data)?;
    let (packed, squeezed) = check(&conn, options, first_hour)?;
    print("segment", packed / options.segments as f64, "B", None);
    print("segment with zstd", squeezed / options.segments as f64, "B", None);
    print("disk", std::fs::metadata(store::store_file(&data))?.len() as f64 / 1e6, "MB", None);
    let (p50, p99) = read(&conn, options, first_hour, stop)?;
    print("read and filter, p50", p50, "us", Some(Bar::AtMost(12.0)));
    print("read and filter, p99", p99, "us", Some(Bar::AtMost(30.0)));
    Ok(())
}

fn user(n: u64) -> VisitorId {
    let mut tail = [0; 10];
    tail.iter_mut().rev().zip(n.to_le_bytes()).for_each(|(to, from)| *to = from);
    VisitorId::mint(1_790_000_000_000 + n, tail)
}

/// The segments of a user with their expiries, equal in every call.
fn segments(n: u64, count: usize, first_hour: u32) -> Vec<(u32, u32)> {
    let mut random = Random::of(n);
    let mut ids = BTreeSet::new();
    while ids.len() < count {
        ids.insert(u32::try_from(random.below(IDS)).unwrap_or_default());
    }
    let hours = ids.into_iter().map(|id| (id, first_hour + u32::try_from(random.below(HOURS)).unwrap_or_default()));
    hours.collect()
}

fn generate(options: &Options, first_hour: u32, file: &Path, stop: &Stop) -> Result<u64> {
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file)?);
    to.write_all(b"visitor,segments\n")?;
    for n in 0..options.users {
        if n % 1_000 == 0 {
            stop.check()?;
        }
        write!(to, "{},", user(n))?;
        for (id, hour) in segments(n, options.segments, first_hour) {
            write!(to, "{id}:{hour} ")?;
        }
        to.write_all(b"\n")?;
    }
    to.flush()?;
    Ok(std::fs::metadata(file)?.len())
}

fn import(config: &Path, file: &Path, workers: u16) -> Result<Value> {
    let mut command = Command::new(path("CAUSEWAY_ORIGIN_BIN")?);
    command.arg("--config").arg(config).args(["import", "segments"]).arg(file);
    let output =
        command.args(["--output", "json", "--workers", &workers.to_string()]).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the import failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn packed(conn: &Connection, tenant: i64, user: VisitorId) -> Result<Vec<u8>> {
    const READ: &str = "SELECT segments FROM visitors WHERE tenant = ?1 AND visitor = ?2";
    let CheckedBytes(bytes) = conn.prepare_cached(READ)?.query_row((tenant, user.as_bytes()), |row| row.get(0))?;
    Ok(bytes)
}

fn tenant(conn: &Connection) -> Result<i64> {
    Ok(store::find_tenant(conn, TENANT)?.context("no tenant")?.0)
}

/// Compares the stored segments with the import; returns the mean bytes of a user, packed and after zstd.
fn check(conn: &Connection, options: &Options, first_hour: u32) -> Result<(f64, f64)> {
    let (tenant, step) = (tenant(conn)?, (options.users / CHECKED as u64).max(1));
    let (mut bytes, mut squeezed, mut users) = (0, 0, 0);
    for n in (0..options.users).step_by(usize::try_from(step)?) {
        let body = packed(conn, tenant, user(n))?;
        let read = PackedSegments::read(&body).context("the stored segments cannot be read")?;
        let found: Vec<(u32, u32)> = read.iter().map(|(id, expiry)| (id.0, expiry.0)).collect();
        ensure!(found == segments(n, options.segments, first_hour), "user {n} has other segments");
        (bytes, squeezed, users) = (bytes + body.len(), squeezed + zstd::bulk::compress(&body, 3)?.len(), users + 1);
    }
    Ok((bytes as f64 / f64::from(users), squeezed as f64 / f64::from(users)))
}

/// Reads random users and counts the segments that expire in a third of all hours; returns microseconds of one read.
fn read(conn: &Connection, options: &Options, first_hour: u32, stop: &Stop) -> Result<(f64, f64)> {
    let tenant = tenant(conn)?;
    let fresh = HourStamp(first_hour + 720)..HourStamp(first_hour + 1_440);
    let mut random = Random::new();
    let mut times = Vec::with_capacity(options.reads);
    let mut found = 0;
    // As in a running server, the inner pages of the tree are in SQLite's cache, and the users' pages in the page
    // cache.
    for round in 0..options.reads + options.reads / 4 {
        if round % 10_000 == 0 {
            stop.check()?;
        }
        let user = user(random.below(options.users));
        let start = Instant::now();
        let body = packed(conn, tenant, user)?;
        let read = PackedSegments::read(&body).context("the stored segments cannot be read")?;
        found += read.iter().filter(|(_, expiry)| fresh.contains(expiry)).count();
        if round >= options.reads / 4 {
            times.push(start.elapsed().as_nanos() as f64 / 1_000.0);
        }
    }
    ensure!(found > 0, "no segment was fresh");
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    Ok((at(0.5), at(0.99)))
}
