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
    let mut counters = StoreCounters::load(&conn).unwrap();
    assert_eq!(counters.next_version(), SnapshotVersion { restore: 0, counter: 1 });
    assert_eq!(counters.next_epoch(), Epoch(1));
    counters.save(&conn).unwrap();
    assert_eq!(StoreCounters::load(&conn).unwrap(), counters);
}

#[test]
fn the_document_is_the_last_column_of_a_catalogue() {
    let conn = open(tempfile::tempdir().unwrap().path()).unwrap();
    let last = "SELECT name FROM pragma_table_info('catalogues') ORDER BY cid DESC LIMIT 1";
    assert_eq!(conn.query_row(last, [], |row| row.get::<_, String>(0)).unwrap(), "document");
}

#[test]
fn a_store_of_a_later_schema_or_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |sql: &str| Connection::open(store_file(folder.path())).unwrap().execute_batch(sql).unwrap();
    write("CREATE TABLE notes (note TEXT)");
    let refused = open(folder.path()).unwrap_err();
    assert!(matches!(&refused, OpenError::File { source, .. } if matches!(**source, OpenError::Foreign)), "{refused}");
    write("DROP TABLE notes");
    drop(open(folder.path()).unwrap());
    write("PRAGMA user_version = 2");
    assert!(matches!(open(folder.path()), Err(OpenError::Later(_))));
    assert!(matches!(open_readonly(folder.path()), Err(OpenError::Later(_))));
    write("PRAGMA user_version = 1");
    drop(open(folder.path()).unwrap());
}

#[test]
fn one_process_serves_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let held = lock_folder(folder.path()).unwrap();
    assert!(matches!(lock_folder(folder.path()), Err(LockError::InUse(_))));
    assert!(is_served(folder.path()));
    drop(held);
    assert!(!is_served(folder.path()));
    lock_folder(folder.path()).unwrap();
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
