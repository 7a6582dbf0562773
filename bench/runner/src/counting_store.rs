//! `counting-store`: the counts of `counting`, with the read from SQLite: from the origin's buckets, and from one blob
//! for each visitor. The peer, if it is built, is RocksDB with the layout that Pinterest describes.

#[cfg(feature = "rocksdb")]
mod rocks;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::counting::{candidates, question, visitor};
use causeway_bench_wasm::scramble;
use causeway_origin::profiles::buckets;
use causeway_origin::store::{self, VisitorRow};
use causeway_shared::facts::actions::{ActionQuestion, Counts, PackedActions};
use clap::Args;
use rusqlite::Connection;

use crate::asked::Asked;
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "counting-store";
const ACTIONS: u64 = 1_000;
const BLOB: &str = "SELECT body FROM blobs WHERE visitor = ?1";
/// Number of visitors whose counts are compared with the reference.
const CHECKED: u64 = 200;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of stored visitors.
    #[arg(long, default_value_t = 2_000)]
    visitors: u64,
    /// Number of rounds. The cases take turns in a round; the median over the rounds is reported.
    #[arg(long, default_value_t = 7)]
    rounds: u64,
    /// Number of queries of each case in a round, each of a random visitor.
    #[arg(long, default_value_t = 3_000)]
    queries: u64,
}

/// One way to answer, or a part of one. `run` handles a visitor and appends its counts, if it counts.
struct Case<'a> {
    name: &'static str,
    bar: Option<f64>,
    run: Box<Run<'a>>,
}

type Run<'a> = dyn FnMut(i64, &mut Vec<Counts>) -> Result<()> + 'a;

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    eprintln!("storing {} visitors with {ACTIONS} actions each", options.visitors);
    fill(folder.path(), options.visitors, stop)?;
    let asked = Asked { candidates: candidates(100), question: question(7) };
    // The connection is opened like those of the origin's readers.
    let conn = store::open_readonly(folder.path())?;
    #[cfg(feature = "rocksdb")]
    let rocks = rocks::Rocks::fill(folder.path(), 1..=options.visitors, ACTIONS)?;
    let mut cases = from_buckets(&conn, &asked);
    cases.extend(from_blobs(&conn, &asked));
    cases.push(Case {
        name: "candidates alone",
        bar: None,
        run: Box::new(|_, _| {
            black_box(asked.counter());
            Ok(())
        }),
    });
    #[cfg(feature = "rocksdb")]
    cases.extend([
        Case { name: ROCKS, bar: None, run: Box::new(|visitor, to| rocks.count(visitor, &asked, to)) },
        Case { name: "rocksdb: read", bar: None, run: Box::new(|visitor, _| rocks.skim(visitor, &asked)) },
    ]);
    check(&mut cases, &asked, options.visitors.min(CHECKED))?;
    let mut medians: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..=options.rounds {
        for case in &mut cases {
            stop.check()?;
            let took = time(case, options, round)?;
            // The first round warms the caches.
            if round > 0 {
                medians.entry(case.name).or_default().push(took);
            }
        }
    }
    let medians = medians.into_iter().map(|(name, rounds)| (name, median(rounds))).collect();
    tell(&cases, &medians, json);
    Ok(())
}

/// The peer's name.
const ROCKS: &str = "rocksdb, by day";

fn tell(cases: &[Case<'_>], medians: &BTreeMap<&str, f64>, json: bool) {
    let line = |case: &Case<'_>, peer, bar| Line {
        bench: BENCH,
        case: format!("{ACTIONS} actions, {}", case.name),
        value: medians.get(case.name).copied().unwrap_or_default(),
        unit: "us",
        peer,
        bar,
    };
    let rocks = medians.get(ROCKS);
    for case in cases {
        report::print(&line(case, None, case.bar.map(Bar::AtMost)), json);
        if let (Some(_), Some(rocks)) = (case.bar, rocks) {
            report::print(&line(case, Some((ROCKS.to_owned(), *rocks)), Some(Bar::AtMost(1.0))), json);
        }
    }
    if rocks.is_none() {
        eprintln!("without RocksDB: `cargo xtask bench counting-store --rocksdb` builds it, in minutes");
    }
}

/// Fills a store of the origin with the actions of each visitor, in buckets and additionally in one blob.
fn fill(folder: &Path, visitors: u64, stop: &Stop) -> Result<()> {
    let conn = store::open(folder)?;
    conn.execute_batch("CREATE TABLE blobs (visitor INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")?;
    conn.execute_batch("BEGIN")?;
    for seed in 1..=visitors {
        stop.check()?;
        let (row, actions) = (i64::try_from(seed)?, visitor(ACTIONS, seed));
        conn.prepare_cached("INSERT INTO blobs VALUES (?1, ?2)")?.execute((row, actions.pack_actions()))?;
        buckets::add(&conn, VisitorRow::from_number(row), 0, actions)?;
    }
    conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn from_buckets<'a>(conn: &'a Connection, asked: &'a Asked) -> Vec<Case<'a>> {
    let ActionQuestion { from, to, .. } = asked.question;
    let count = |bodies: &[Vec<u8>], counts: &mut Vec<Counts>| {
        let read: Vec<PackedActions<'_>> = bodies.iter().filter_map(|body| PackedActions::read(body)).collect();
        counts.extend(asked.counter().count_disjoint(&read, &asked.question));
    };
    let mut bodies: BTreeMap<i64, Vec<Vec<u8>>> = BTreeMap::new();
    vec![
        Case {
            name: "buckets",
            bar: Some(23.0),
            run: Box::new(move |visitor, counts| {
                count(&buckets::actions_within(conn, VisitorRow::from_number(visitor), from, to)?, counts);
                Ok(())
            }),
        },
        Case {
            name: "buckets: read",
            bar: None,
            run: Box::new(move |visitor, _| {
                black_box(buckets::actions_within(conn, VisitorRow::from_number(visitor), from, to)?);
                Ok(())
            }),
        },
        Case {
            name: "buckets: count",
            bar: None,
            run: Box::new(move |visitor, counts| {
                if let Some(bodies) = bodies.get(&visitor) {
                    count(bodies, counts);
                } else {
                    count(
                        bodies.entry(visitor).or_insert(buckets::actions_within(
                            conn,
                            VisitorRow::from_number(visitor),
                            from,
                            to,
                        )?),
                        counts,
                    );
                }
                Ok(())
            }),
        },
    ]
}

fn from_blobs<'a>(conn: &'a Connection, asked: &'a Asked) -> Vec<Case<'a>> {
    let count = |body: &[u8], counts: &mut Vec<Counts>| {
        let read = PackedActions::read(body).into_iter().collect::<Vec<_>>();
        counts.extend(asked.counter().count(&read, &asked.question));
    };
    vec![
        Case {
            name: "blob",
            bar: Some(15.0),
            run: Box::new(move |visitor, counts| {
                // The blob is counted in SQLite's memory, without a copy.
                conn.prepare_cached(BLOB)?.query_row([visitor], |row| {
                    count(row.get_ref(0)?.as_blob()?, counts);
                    Ok(())
                })?;
                Ok(())
            }),
        },
        Case {
            name: "blob: read",
            bar: None,
            run: Box::new(move |visitor, _| {
                let read = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_blob()?.len());
                black_box(conn.prepare_cached(BLOB)?.query_row([visitor], read)?);
                Ok(())
            }),
        },
    ]
}

/// Compares the counts of all cases that count with the reference.
fn check(cases: &mut [Case<'_>], asked: &Asked, visitors: u64) -> Result<()> {
    let mut counts = Vec::new();
    for seed in 1..=visitors {
        let expected = asked.naive(&visitor(ACTIONS, seed));
        ensure!(expected.iter().flatten().any(|count| *count > 1), "nothing to count");
        for case in &mut *cases {
            counts.clear();
            (case.run)(i64::try_from(seed)?, &mut counts)?;
            let answers = case.bar.is_some() || case.name == ROCKS;
            ensure!(counts == expected || (counts.is_empty() && !answers), "{} differs from the reference", case.name);
        }
    }
    Ok(())
}

/// Median microseconds of a query. All cases of a round query the same visitors in the same order.
fn time(case: &mut Case<'_>, options: &Options, round: u64) -> Result<f64> {
    let mut counts = Vec::with_capacity(128);
    let mut took = Vec::new();
    for query in 0..options.queries {
        let visitor = 1 + scramble(round << 32 | query) % options.visitors;
        let visitor = i64::try_from(visitor)?;
        counts.clear();
        let start = Instant::now();
        (case.run)(visitor, &mut counts)?;
        black_box(&counts);
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(took))
}
