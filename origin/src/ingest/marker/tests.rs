#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::ingest::intake;
use crate::store;
use crate::store::data_fault::LOG_TAIL;
use crate::testing::{NOW, Origin, page, visitor};
use causeway_shared::wire::sync::SyncRequest;

fn append(origin: &Origin, log: &mut log::FactLog, n: u32, folded: u64) {
    let facts = vec![origin.batch("demo", &[page(visitor(1), n, NOW)])];
    let sync = intake::read(SyncRequest { facts, ..SyncRequest::default() }, &origin.rules.tenants, NOW);
    log.append([&sync], folded).unwrap();
}

#[test]
fn a_directory_is_tied_once_and_found_whole_again() {
    let origin = Origin::new();
    tie_files(origin.data(), &origin.conn).unwrap();
    let marker = fs::read(origin.data().join(MARKER)).unwrap();
    assert_eq!(inspect_folder(origin.data()).unwrap(), []);
    tie_files(origin.data(), &origin.conn).unwrap();
    assert_eq!(fs::read(origin.data().join(MARKER)).unwrap(), marker);
    // Without the marker, the files still show that they belong together; the marker is written again.
    fs::remove_file(origin.data().join(MARKER)).unwrap();
    tie_files(origin.data(), &origin.conn).unwrap();
    assert_eq!(fs::read(origin.data().join(MARKER)).unwrap(), marker);
}

#[test]
fn each_fault_is_found_and_those_that_the_right_file_alone_mends_are_not_accepted() {
    let origin = Origin::new();
    tie_files(origin.data(), &origin.conn).unwrap();
    let mut log = log::FactLog::open(origin.data(), 0).unwrap();
    append(&origin, &mut log, 1, 0);
    append(&origin, &mut log, 2, 1);
    drop(log);
    let faults = || find_faults(origin.data(), &origin.conn).unwrap();
    assert_eq!(faults(), [DataFault::StoreOlder { folded: 0, let_go: 1 }]);
    origin.conn.execute("UPDATE meta SET folded = 3", []).unwrap();
    assert_eq!(faults(), [DataFault::LogCut { highest: 3, found: 2 }]);
    origin.conn.execute("UPDATE meta SET folded = 1", []).unwrap();
    assert_eq!(faults(), []);
    fs::remove_file(origin.data().join(LOG)).unwrap();
    assert_eq!(faults(), [DataFault::LogMissing { highest: Some(2), folded: 1 }]);
    assert_eq!(accept_loss(origin.data()).unwrap().len(), 1);
    assert_eq!(faults(), []);
    // A missing journal is completed from the store.
    fs::remove_file(origin.data().join(JOURNAL)).unwrap();
    assert_eq!(faults(), []);
    let other = Origin::new();
    renew_identity(&other.conn).unwrap();
    tie_files(other.data(), &other.conn).unwrap();
    for name in [MARKER, LOG, JOURNAL] {
        let own = fs::read(origin.data().join(name)).ok();
        fs::copy(other.data().join(name), origin.data().join(name)).unwrap();
        assert_eq!(faults(), [DataFault::ForeignFile(name)]);
        assert!(accept_loss(origin.data()).is_err(), "{name}");
        own.map_or_else(|| fs::remove_file(origin.data().join(name)), |own| fs::write(origin.data().join(name), own))
            .unwrap();
    }
    fs::write(origin.data().join(MARKER), "{").unwrap();
    assert!(matches!(faults()[..], [DataFault::UnreadableMarker(_)]));
    fs::remove_file(origin.data().join(STORE)).unwrap();
    assert_eq!(inspect_folder(origin.data()).unwrap(), [DataFault::StoreMissing]);
    assert!(matches!(store::open(origin.data()), Err(OpenError::Data { fault: DataFault::StoreMissing, .. })));
}

#[test]
fn an_empty_store_file_is_a_missing_store_whichever_file_is_left_of_the_others() {
    for left in [MARKER, LOG, LOG_TAIL, JOURNAL] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(STORE), "").unwrap();
        fs::write(folder.path().join(left), "left over").unwrap();
        let opened = store::open(folder.path());
        assert!(matches!(opened, Err(OpenError::Data { fault: DataFault::StoreMissing, .. })), "{left}: {opened:?}");
        assert_eq!(inspect_folder(folder.path()).unwrap(), [DataFault::StoreMissing], "{left}");
        assert!(fs::read(folder.path().join(STORE)).unwrap().is_empty(), "{left}: nothing was written");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(STORE), "").unwrap();
    store::open(folder.path()).unwrap();
}

#[test]
fn the_tail_says_the_highest_acknowledged_record_and_nothing_once_it_is_damaged() {
    let origin = Origin::new();
    assert_eq!(LogTail::read(origin.data()), None);
    let mut log = log::FactLog::open(origin.data(), 0).unwrap();
    for n in 1..=3 {
        append(&origin, &mut log, n, 0);
    }
    assert_eq!(LogTail::read(origin.data()), Some(3));
    let path = origin.data().join("log.db-tail");
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() - 1 {
        let mut damaged = whole.clone();
        damaged[index] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(LogTail::read(origin.data()), None, "{index}");
    }
}
