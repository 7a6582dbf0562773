#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::ingest::intake;
use crate::store;
use crate::testing::{NOW, Origin, fact, page, visitor};
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::wire::sync::SyncRequest;

fn threads(data: &Path, rules: TxnRules) -> (AppendThread, FoldThread) {
    let backlog = Backlog::of(0, Vec::new());
    let conn = store::open(data).unwrap();
    let taking = IntakeSteps::of(FactLog::open(data, 0).unwrap(), backlog.clone(), 10_000);
    let checkpointer = Checkpointer::start(&conn, data).unwrap();
    let shared = Arc::new(WriterState::new(Arc::default(), 0, None));
    let folding = FoldSteps::of(conn, backlog, Arc::new(rules), Arc::default());
    let appender = AppendThread { taking, shared: Arc::clone(&shared), wakes: sync_channel(1).0, wiped: None };
    let (calls, bulk, bulk_from) = (Vec::new(), VecDeque::new(), Instant::now());
    (appender, FoldThread { folding, shared, checkpointer, calls, bulk, bulk_from, in_vain: None })
}

fn read(origin: &Origin, facts: &[Fact]) -> IncomingSync {
    let request = SyncRequest { facts: vec![origin.batch("demo", facts)], ..SyncRequest::default() };
    intake::read(request, &origin.rules.tenants, NOW)
}

#[test]
fn the_admin_side_is_answered_when_all_before_it_is_folded_and_an_edge_at_once() {
    let (origin, data) = (Origin::new(), tempfile::tempdir().unwrap());
    let facts = |n: u32| (n * 600..(n + 1) * 600).map(|n| page(visitor(1), n, NOW)).collect::<Vec<_>>();
    let syncs = (0..3).map(|n| read(&origin, &facts(n))).collect();
    let (mut appender, mut folder) = threads(data.path(), origin.rules);
    appender.taking.append(syncs).unwrap();
    let call = |after| {
        let (reply, handed) = oneshot::channel();
        (
            FoldTrigger::Outbox(OutboxCall {
                outbox: OutboxRequest { applied: vec![0], ..OutboxRequest::default() },
                after,
                reply,
            }),
            handed,
        )
    };
    let ((admins, mut to_admin), (edges, mut to_edge)) = (call(3), call(0));
    folder.fold(vec![admins, edges]);
    assert!(to_edge.try_recv().unwrap().is_ok() && to_admin.try_recv().is_err());
    folder.fold(Vec::new());
    assert!(to_admin.try_recv().is_err() && folder.is_behind());
    folder.fold(Vec::new());
    assert!(to_admin.try_recv().unwrap().is_ok() && !folder.is_behind());
}

#[test]
fn an_erasure_has_left_the_log_once_no_byte_of_the_visitor_is_there() {
    let (origin, data) = (Origin::new(), tempfile::tempdir().unwrap());
    let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
    let erasure = Fact { id: FactId::of_erasure(visitor(1)), ..fact(visitor(1), 9, NOW, what) };
    let said = [vec![page(visitor(1), 1, NOW)], vec![erasure], vec![page(visitor(2), 1, NOW)]];
    let [page, erasure, other] = said.map(|facts| read(&origin, &facts));
    let (mut appender, mut folder) = threads(data.path(), origin.rules);
    let files = || ["log.db", "log.db-wal"].map(|name| std::fs::read(data.path().join(name)).unwrap()).concat();
    let holds = |n| files().windows(16).any(|bytes| bytes == visitor(n).as_bytes());
    let waits = |folder: &mut FoldThread| {
        folder.note_wiped();
        folder.folding.in_log().unwrap().is_some()
    };
    for sync in [page, erasure] {
        appender.taking.append(vec![sync]).unwrap();
        folder.fold(Vec::new());
    }
    appender.taking.append(vec![other]).unwrap();
    assert!(holds(1) && waits(&mut folder) && appender.taking.truncated() == 2);
    // The store's write-ahead log must be empty too; a reader of an older state keeps it.
    let mut conn = store::open(data.path()).unwrap();
    let reading = conn.transaction().unwrap();
    reading.query_row("SELECT count(*) FROM visitors", [], |_| Ok(())).unwrap();
    appender.look_around();
    assert_eq!((holds(1), holds(2), waits(&mut folder)), (false, true, true));
    assert!(folder.in_vain.is_some(), "it is not tried at the next fold");
    drop(reading);
    let ahead = || std::fs::metadata(data.path().join("causeway.db-wal")).unwrap().len();
    let before = ahead();
    assert!(!waits(&mut folder) && ahead() < before && folder.in_vain.is_none());
}
