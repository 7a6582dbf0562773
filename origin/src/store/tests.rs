#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn the_schema_is_sound_and_the_commit_is_durable() {
    MIGRATIONS.validate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let conn = open(folder.path()).unwrap();
    let pragma = |name: &str| -> String {
        conn.pragma_query_value(None, name, |row| {
            let value: rusqlite::types::Value = row.get(0)?;
            Ok(format!("{value:?}"))
        })
        .unwrap()
    };
    assert_eq!(pragma("synchronous"), "Integer(2)");
    assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
}

#[test]
fn a_store_of_the_first_form_is_brought_up_to_date_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut conn = Connection::open(file(folder.path())).unwrap();
        MIGRATIONS.to_version(&mut conn, 1).unwrap();
        let person = "INSERT INTO people (tenant, master, devices, epoch, changed) VALUES (1, x'00', 1, 7, 7)";
        assert_eq!((0..3).map(|_| conn.execute(person, []).unwrap()).sum::<usize>(), 3);
    }
    let conn = open(folder.path()).unwrap();
    let drawn = "SELECT count(DISTINCT random), min(length(random)), sum(epoch) FROM people";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    assert_eq!(conn.query_row(drawn, [], row).unwrap(), (3, 16, 21));
}

#[test]
fn a_store_of_the_second_form_keeps_its_profiles_and_knows_its_facts() {
    use crate::testing::{NOW, Origin, impression, page, purchase, visitor};
    use causeway_shared::profile::Profile;
    use causeway_shared::wire::{facts, profile};

    let facts =
        [page(visitor(1), 1, NOW), impression(visitor(1), 2, NOW), purchase(visitor(1), 3, NOW - 90_000_000, 5)];
    let mut whole = Profile::of(&facts);
    let folder = tempfile::tempdir().unwrap();
    {
        let mut conn = Connection::open(file(folder.path())).unwrap();
        MIGRATIONS.to_version(&mut conn, 2).unwrap();
        let tenant = tenant_no(&conn, "demo").unwrap();
        for fact in &facts {
            let values = (tenant.0, fact.id.as_bytes(), signed(fact.received), facts::encode_one(fact));
            conn.execute("INSERT INTO facts VALUES (?1, ?2, ?3, ?4)", values).unwrap();
        }
        let person = "INSERT INTO people VALUES (1, ?1, ?2, 1, 1, 1, NULL, randomblob(16))";
        conn.execute(person, (tenant.0, visitor(1).as_bytes())).unwrap();
        let row = "INSERT INTO visitors VALUES (1, ?1, ?2, ?4, 1, 0, 0, NULL, 1, ?3)";
        conn.execute(row, (tenant.0, visitor(1).as_bytes(), profile::encode(&whole), signed(NOW))).unwrap();
    }
    let mut origin = Origin::within(folder);
    let mut stored = origin.profile("demo", visitor(1));
    let gone = [&mut stored, &mut whole].map(|profile| profile.take_parts().events.total("page").exact());
    assert_eq!((stored, gone), (whole, [None, Some(1)]), "all but events, which cannot be said");
    let again = origin.send("demo", &facts);
    assert_eq!((again.accepted, again.duplicate), (0, 3));
    assert_eq!(origin.send("demo", &[page(visitor(1), 4, NOW)]).accepted, 1);
}

#[test]
fn a_tenant_keeps_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let conn = open(folder.path()).unwrap();
    let a = tenant_no(&conn, "a").unwrap();
    let b = tenant_no(&conn, "b").unwrap();
    assert_ne!(a, b);
    assert_eq!(tenant_no(&conn, "a").unwrap(), a);
    assert_eq!(find_tenant(&conn, "c").unwrap(), None);
}

#[test]
fn counters_survive_and_only_grow() {
    let folder = tempfile::tempdir().unwrap();
    let conn = open(folder.path()).unwrap();
    let mut counters = Counters::load(&conn).unwrap();
    assert_eq!(counters.next_version(), Version { restore: 0, counter: 1 });
    assert_eq!(counters.next_epoch(), Epoch(1));
    counters.save(&conn).unwrap();
    assert_eq!(Counters::load(&conn).unwrap(), counters);
}

#[test]
fn of_a_catalogue_nothing_lies_behind_the_document_and_each_version_is_kept() {
    const READ: &str =
        "SELECT tenant, version, document, hex(sha256), experiments, budgets, limited, applied, by, replaced,
        handed, published FROM catalogues";
    let folder = tempfile::tempdir().unwrap();
    let rows = |conn: &Connection| -> Vec<Vec<rusqlite::types::Value>> {
        let mut statement = conn.prepare(READ).unwrap();
        let rows = statement.query_map([], |row| (0..12).map(|column| row.get(column)).collect()).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let before = {
        let mut conn = Connection::open(file(folder.path())).unwrap();
        MIGRATIONS.to_version(&mut conn, 32).unwrap();
        let put =
            "INSERT INTO catalogues (tenant, version, document, sha256, experiments, budgets, limited, applied, by,
            replaced, handed, published) VALUES (1, 1, '{\"a\":1}', x'01', '[1]', '[2]', '[3]', 4, 'cli', 5, 6, 7),
            (1, 2, '{}', x'02', '[]', '[]', '[]', 8, 'ann', NULL, NULL, NULL)";
        conn.execute(put, []).unwrap();
        rows(&conn)
    };
    let conn = open(folder.path()).unwrap();
    assert_eq!((before.len(), rows(&conn)), (2, before));
    let last = "SELECT name FROM pragma_table_info('catalogues') ORDER BY cid DESC LIMIT 1";
    assert_eq!(conn.query_row(last, [], |row| row.get::<_, String>(0)).unwrap(), "document");
}

#[test]
fn what_waits_in_an_outbox_of_before_keeps_its_place_and_who_was_erased_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut conn = Connection::open(file(folder.path())).unwrap();
        MIGRATIONS.to_version(&mut conn, 33).unwrap();
        for (kind, subject, bulk) in [(257, "1", 0), (0, "2", 0), (0, "3", 0), (5, "4", 1), (0, "5", 1)] {
            let put = "INSERT INTO outbox
                    (tenant, kind, subject, changed, since, due, lease_change, leased_until, handed, late, bulk)
                VALUES (1, ?1, CAST(?2 AS BLOB), 3, 4, 5, 0, 0, 0, 6, ?3)";
            conn.execute(put, (kind, subject, bulk)).unwrap();
        }
        let erased = "INSERT INTO erasure_keys (tenant, receipt, kind, subject, after)
            VALUES (1, x'07', 0, CAST('2' AS BLOB), 1), (1, x'07', 0, CAST('5' AS BLOB), 1)";
        conn.execute(erased, []).unwrap();
    }
    let conn = open(folder.path()).unwrap();
    let mut statement =
        conn.prepare("SELECT CAST(subject AS TEXT), rank, changed, due, late FROM outbox ORDER BY subject").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, [row.get(2)?, row.get(3)?, row.get(4)?]));
    let rows: Vec<(String, u8, [i64; 3])> = statement.query_map([], read).unwrap().collect::<Result<_, _>>().unwrap();
    let of = |subject: &str, rank| (subject.to_owned(), rank, [3, 5, 6]);
    assert_eq!(rows, [of("1", 0), of("2", 1), of("3", 2), of("4", 3), of("5", 1)]);
}

#[test]
fn one_process_serves_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let held = lock(folder.path()).unwrap();
    assert!(matches!(lock(folder.path()), Err(StoreError::InUse(_))));
    assert!(is_served(folder.path()));
    drop(held);
    assert!(!is_served(folder.path()));
    lock(folder.path()).unwrap();
}

#[test]
fn who_looks_whether_one_serves_is_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["causeway.lock", "causeway.ready"] {
        let looks = std::fs::File::create(folder.path().join(name)).unwrap();
        looks.lock_shared().unwrap();
        assert!(!is_served(folder.path()) && !is_ready(folder.path()), "{name}");
    }
}
