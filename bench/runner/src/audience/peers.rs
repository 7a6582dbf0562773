//! The peers of `audience`: SQLite and DuckDB with the same people.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_shared::base::time::DAY_MINUTES;
use causeway_shared::facts::segments::SegmentId;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{NOW, SEGMENT, Someone, python};
use crate::report::median;
use crate::stop::Stop;

/// Converts the file to Parquet, counts, and prints each count with its milliseconds.
const DUCKDB: &str = include_str!("duckdb.py");
const CONDITIONS: &str = "city < 10 AND age >= 30 AND vip = 0 AND held = 1 AND coalesce(bought, 0) <";

/// The data of both peers.
pub(super) struct Peers {
    folder: TempDir,
    conn: Connection,
}

impl Peers {
    pub(super) fn build(people: u32, stop: &Stop) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let conn = Connection::open(folder.path().join("people.db"))?;
        conn.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -2000000;
             CREATE TABLE people (bucket INTEGER, city INTEGER, age INTEGER, vip INTEGER, held INTEGER, bought INTEGER,
                person INTEGER, PRIMARY KEY (bucket, person)) WITHOUT ROWID; BEGIN",
        )?;
        let mut csv = BufWriter::with_capacity(1 << 20, File::create(folder.path().join("people.csv"))?);
        // The rows are in the order of the buckets, because the questions select by bucket.
        let mut order: Vec<(u16, u32)> = (0..people).map(|n| (Someone::of(n).bucket, n)).collect();
        order.sort_unstable();
        {
            let mut insert = conn.prepare("INSERT INTO people VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            for (at, (bucket, n)) in order.into_iter().enumerate() {
                if at % 100_000 == 0 {
                    stop.check()?;
                }
                let one = Someone::of(n);
                let held = one.segments.binary_search(&SegmentId(SEGMENT)).is_ok();
                let bought = one.bought.map(|minute| minute.0);
                insert.execute((bucket, one.city, one.age, one.vip, held, bought, n))?;
                let text = bought.map(|minute| minute.to_string()).unwrap_or_default();
                let (vip, held) = (u8::from(one.vip), u8::from(held));
                writeln!(csv, "{bucket},{},{},{vip},{held},{text},{n}", one.city, one.age)?;
            }
        }
        csv.flush()?;
        // The index of the question over all people: all its columns, equalities first.
        conn.execute_batch("COMMIT; CREATE INDEX best ON people (held, vip, city, age, bought); ANALYZE")?;
        Ok(Self { folder, conn })
    }

    /// Milliseconds for the sample and for all people, by SQLite and by DuckDB; infinite for a missing peer.
    pub(super) fn ask(&self, sample: &Range<u16>, of_sample: u64, of_all: u64, rounds: u32) -> Result<[[f64; 2]; 2]> {
        let week = NOW.0 - 6 * DAY_MINUTES;
        let in_sample = format!("bucket >= {} AND bucket < {}", sample.start, sample.end);
        let questions = [
            (format!("SELECT count(*) FROM people NOT INDEXED WHERE {in_sample} AND {CONDITIONS} {week}"), of_sample),
            (format!("SELECT count(*) FROM people INDEXED BY best WHERE {CONDITIONS} {week}"), of_all),
        ];
        let mut sqlite = [0.0; 2];
        for ((question, expected), value) in questions.iter().zip(&mut sqlite) {
            let mut statement = self.conn.prepare(question)?;
            let mut times = Vec::new();
            for _ in 0..rounds {
                let start = Instant::now();
                let found: i64 = statement.query_row([], |row| row.get(0))?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
                ensure!(u64::try_from(found) == Ok(*expected), "SQLite finds {found}, we {expected}");
            }
            *value = median(times);
        }
        let Some(python) = python() else {
            eprintln!("DuckDB is left out: there is no Python for which it can be installed");
            return Ok([sqlite, [f64::INFINITY; 2]]);
        };
        let files = [self.folder.path().join("people.csv"), self.folder.path().join("people.parquet")];
        let mut command = Command::new(python);
        command.args(["-c", DUCKDB]).args(files).args([&in_sample, CONDITIONS]);
        let output = command.args([week.to_string(), rounds.to_string()]).output()?;
        ensure!(output.status.success(), "DuckDB failed: {}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8_lossy(&output.stdout);
        let mut duckdb = [0.0; 2];
        for ((line, (_, expected)), value) in told.lines().zip(&questions).zip(&mut duckdb) {
            let (found, milliseconds) = line.split_once(' ').context("DuckDB printed no result")?;
            ensure!(found.parse() == Ok(*expected), "DuckDB counts {found} people instead of {expected}");
            *value = milliseconds.parse()?;
        }
        Ok([sqlite, duckdb])
    }
}
