#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use rusqlite::ErrorCode;

/// Rows of each transaction.
const ROWS: i64 = 3;
const TRANSACTIONS: i64 = 30;

/// A random number generator for [`Disk::crash`], from a seed.
fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| causeway_shared::base::random::next(&mut seed) % below
}

fn open(disk: &Disk, synchronous: &str) -> rusqlite::Result<Connection> {
    let conn = disk.open("a.db")?;
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    assert_eq!(mode, "wal");
    conn.pragma_update(None, "synchronous", synchronous)?;
    // In pages: the write-ahead log is moved into the file after every few transactions, and starts again.
    conn.pragma_update(None, "wal_autocheckpoint", 8)?;
    conn.execute_batch("CREATE TABLE IF NOT EXISTS t (n INTEGER, row INTEGER, body BLOB)")?;
    Ok(conn)
}

/// A disk with an empty table.
fn template() -> Disk {
    let disk = Disk::new();
    drop(open(&disk, "FULL").unwrap());
    disk
}

fn write(conn: &mut Connection, n: i64) -> rusqlite::Result<()> {
    let tx = conn.transaction()?;
    for row in 0..ROWS {
        tx.execute("INSERT INTO t VALUES (?1, ?2, zeroblob(1500))", (n, row))?;
    }
    tx.commit()
}

/// Writes until the disk fails; returns the number of committed transactions.
fn work(disk: &Disk, synchronous: &str) -> i64 {
    let Ok(mut conn) = open(disk, synchronous) else { return 0 };
    (1..=TRANSACTIONS).take_while(|n| write(&mut conn, *n).is_ok()).count() as i64
}

/// The number of transactions in the table, if all are whole and none before the last is missing.
fn found(disk: &Disk) -> Option<i64> {
    let conn = open(disk, "FULL").ok()?;
    let sound: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).ok()?;
    let of = "SELECT count(*), count(DISTINCT n), ifnull(max(n), 0) FROM t";
    let (rows, transactions, last): (i64, i64, i64) =
        conn.query_row(of, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).ok()?;
    (sound == "ok" && rows == transactions * ROWS && transactions == last).then_some(last)
}

/// Ends a run at a random write; returns the committed transactions and those found afterwards.
fn killed(template: &Disk, writes: u64, seed: u64, synchronous: &str) -> (i64, Option<i64>) {
    let mut random = random(seed);
    let disk = template.copy();
    disk.fail_after(Some(1 + random(writes)));
    let committed = work(&disk, synchronous);
    if random(4) == 0 {
        disk.crash(&mut random);
    } else {
        disk.power_loss(&mut random);
    }
    (committed, found(&disk))
}

fn writes(template: &Disk, synchronous: &str) -> u64 {
    let disk = template.copy();
    assert_eq!(work(&disk, synchronous), TRANSACTIONS);
    disk.writes()
}

#[test]
fn committed_transactions_survive_a_kill_at_any_write_and_no_half_is_left() {
    let template = template();
    let writes = writes(&template, "FULL");
    assert!(writes > 300, "{writes}");
    let mut more = 0;
    for seed in 0..1_000 {
        let (committed, there) = killed(&template, writes, seed, "FULL");
        let there = there.unwrap_or(-1);
        // The interrupted transaction may be in the table too, whole but not acknowledged.
        assert!(there == committed || there == committed + 1, "seed {seed}: {there} of {committed}");
        more += there - committed;
    }
    assert!((1..1_000).contains(&more), "{more}");
}

#[test]
fn without_syncs_committed_transactions_are_lost() {
    let template = template();
    let writes = writes(&template, "OFF");
    let is_lost = |seed: &u64| {
        let (committed, there) = killed(&template, writes, *seed, "OFF");
        there.is_none_or(|there| there < committed)
    };
    let lost = (0..200).filter(is_lost).count();
    assert!(lost > 50, "{lost}");
}

#[test]
fn a_process_that_dies_loses_nothing_even_unsynced() {
    let disk = template();
    assert_eq!(work(&disk, "OFF"), TRANSACTIONS);
    disk.crash(&mut random(1));
    assert_eq!(found(&disk), Some(TRANSACTIONS));
}

#[test]
fn the_same_seed_ends_the_same_way() {
    let template = template();
    let writes = writes(&template, "OFF");
    let run = || (0..50).map(|seed| killed(&template, writes, seed, "OFF")).collect::<Vec<_>>();
    assert_eq!(run(), run());
}

#[test]
fn a_full_disk_refuses_whole_transactions_and_accepts_more_when_it_has_room() {
    let disk = template();
    let mut conn = open(&disk, "FULL").unwrap();
    write(&mut conn, 1).unwrap();
    disk.limit(Some(disk.bytes() + 5_000));
    let failed = (2..100).find_map(|n| Some((n, write(&mut conn, n).err()?)));
    let (n, e) = failed.unwrap();
    assert_eq!(e.sqlite_error_code(), Some(ErrorCode::DiskFull), "{e:?}");
    disk.limit(None);
    write(&mut conn, n).unwrap();
    drop(conn);
    assert_eq!(found(&disk), Some(n));
}

#[test]
fn copies_and_disks_of_other_threads_are_independent() {
    let template = template();
    let copies: Vec<Disk> = (0..4).map(|_| template.copy()).collect();
    std::thread::scope(|scope| {
        for disk in &copies {
            scope.spawn(|| assert_eq!(work(disk, "FULL"), TRANSACTIONS));
        }
    });
    assert!(copies.iter().all(|disk| found(disk) == Some(TRANSACTIONS)));
    assert_eq!(found(&template), Some(0));
}
