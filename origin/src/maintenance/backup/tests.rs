#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use causeway_shared::facts::attributes::AttributeValue;
use causeway_shared::facts::fact::FactKind;

use super::*;
use crate::store::names;
use crate::testing::{NOW, Origin, fact, page, visitor, withdrawal};

/// Each visitor brings an attribute name of its own.
fn bring(origin: &mut Origin, all: &[(u32, &str)]) {
    for (v, name) in all {
        let writes = vec![((*name).to_owned(), Some(AttributeValue::Bool(true)))];
        origin.send("demo", &[fact(visitor(*v), 1, NOW, FactKind::Attributes { writes })]);
    }
}

/// Copies the current store to a file of that name.
fn copy(origin: &Origin, folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    origin.conn.execute("VACUUM INTO ?1", [path.to_string_lossy()]).unwrap();
    path
}

#[test]
fn names_of_another_history_are_not_brought_and_leave_none_out() {
    let (mut origin, folder) = (Origin::new(), tempfile::tempdir().unwrap());
    bring(&mut origin, &[(1, "a")]);
    let first = copy(&origin, &folder, "first");
    bring(&mut origin, &[(2, "x")]);
    let second = copy(&origin, &folder, "second");
    // The lost names are then those of the first copy; the history is another one.
    origin.conn = Connection::open(&first).unwrap();
    bring(&mut origin, &[(3, "y"), (4, "x"), (5, "z")]);
    let before = ReplacedStore::of_conn(&origin.conn).unwrap();
    origin.conn = Connection::open(&second).unwrap();
    renew_store(&mut origin.conn, &before, NOW).unwrap();
    let tenant = origin.tenant("demo").no;
    let names = |origin: &Origin| names::load_dictionary(&origin.conn, tenant).unwrap().len();
    assert_eq!(names(&origin), 2);
    bring(&mut origin, &[(6, "new")]);
    assert_eq!(names(&origin), 3);
    // A name that continues the copy's names is copied.
    let before = ReplacedStore::of_conn(&origin.conn).unwrap();
    origin.conn.execute("DELETE FROM attribute_names WHERE name = 'new'", []).unwrap();
    renew_store(&mut origin.conn, &before, NOW).unwrap();
    assert_eq!(names(&origin), 3);
    // An unreadable name in the replaced store ends the copy, and no later name takes its token.
    bring(&mut origin, &[(7, "newer")]);
    let mut before = ReplacedStore::of_conn(&origin.conn).unwrap();
    before.names.retain(|(_, _, name, _)| name != "new");
    origin.conn.execute("DELETE FROM attribute_names WHERE name IN ('new', 'newer')", []).unwrap();
    renew_store(&mut origin.conn, &before, NOW).unwrap();
    assert_eq!(names(&origin), 2);
    origin.conn.execute("DELETE FROM attribute_names WHERE name = 'a'", []).unwrap();
    assert!(names::load_dictionary(&origin.conn, tenant).is_err(), "a token is its place");
}

#[test]
fn what_waited_when_a_backup_was_taken_is_as_urgent_after_its_restore() {
    let (mut origin, mut kv, folder) = (Origin::new(), BTreeMap::new(), tempfile::tempdir().unwrap());
    let pages: Vec<_> = (1..9).map(|v| page(visitor(v), 1, NOW)).collect();
    origin.send("demo", &pages);
    origin.settle(&mut kv);
    let restored = |origin: &mut Origin, name| {
        let of = copy(origin, &folder, name);
        origin.conn = Connection::open(&of).unwrap();
        renew_store(&mut origin.conn, &ReplacedStore::default(), NOW).unwrap();
        let priorities =
            "SELECT group_concat(priority, '') FROM (SELECT priority FROM outbox WHERE kind = 0 ORDER BY subject)";
        origin.conn.query_row(priorities, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(restored(&mut origin, "first"), "33333333");
    origin.send("demo", &[page(visitor(2), 2, NOW), withdrawal(visitor(3), NOW)]);
    assert_eq!(restored(&mut origin, "second"), "32133333");
}

#[test]
fn kv_deletions_that_a_backup_had_pending_are_made_after_its_restore_too() {
    let (mut origin, mut kv, folder) = (Origin::new(), BTreeMap::new(), tempfile::tempdir().unwrap());
    let first = copy(&origin, &folder, "first");
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    origin.settle(&mut kv);
    let key = format!("v:demo:{}", visitor(1));
    assert!(kv.contains_key(&key));
    let before = ReplacedStore::of_conn(&origin.conn).unwrap();
    origin.conn = Connection::open(&first).unwrap();
    renew_store(&mut origin.conn, &before, NOW).unwrap();
    // Another backup is taken before any key is written, and is all that is left.
    let second = copy(&origin, &folder, "second");
    origin.conn = Connection::open(&second).unwrap();
    renew_store(&mut origin.conn, &ReplacedStore::default(), NOW).unwrap();
    origin.settle(&mut kv);
    assert!(!kv.contains_key(&key));
}
