//! A store in a temporary folder, driven without a network, for unit tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use causeway_shared::base::ids::{
    AlternateId, FactId, InsertionId, KindCode, Micros, Millis, OrderHash, SessionId, VisitorId,
};
use causeway_shared::base::limits;
use causeway_shared::base::random::Random;
use causeway_shared::base::time::Day;
use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::keys::key_ring::{KeySet, RingKey};
use causeway_shared::profiles::profile::{Profile, ProfileTotals};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::settings::config::EdgeConfig;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::kv;
use causeway_shared::wire::sync::{KvWrite, SyncRequest, SyncResponse};
use rusqlite::Connection;

use crate::audience::Audience;
use crate::base::key_file;
use crate::base::metrics::Metrics;
use crate::campaigns::train;
use crate::ingest::backlog::Backlog;
use crate::ingest::intake::{self, CheckedFact, IncomingSync, LogRecord, OutboxRequest};
use crate::jobs::context::JobContext;
use crate::kv::bulk::lease::{self, BulkAnswer, BulkLease, BulkRequest};
use crate::kv::bulk::values::{self, BulkBatch};
use crate::outbox::unconfigured_tenants;
use crate::pipeline::commit;
use crate::store::journal::ErasureJournal;
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::write_txn::{self, TxnInputs, TxnRules, WriteTxn};
use crate::store::{self, StoreError};
use crate::views::read::{self, StoreView};

/// The time at which tests begin.
pub(crate) const NOW: Millis = 1_800_000_000_000;

/// Pseudo-random numbers (Marsaglia's xorshift), the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, most: u32) -> u32 {
        u32::try_from(self.next() % u64::from(most)).unwrap()
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Experiments of `demo`: one of purchases, one of clicks.
const EXPERIMENTS: &str = r#"[{"id":"e-1","code":1,"starts":0,"arm":[
        {"id":"none","code":1,"share":5000,"control":true},{"id":"b","code":2,"share":5000}]},
    {"id":"e-2","code":2,"starts":0,"conversion":"click","arm":[
        {"id":"none","code":1,"share":1000,"control":true},{"id":"b","code":2,"share":1000}]}]"#;

const MEMBER: KindCode = KindCode(1);

/// Stores a catalogue with the experiments, as if it had been applied long before the test.
fn tests(conn: &Connection, tenants: &Tenants) {
    const KEEP: &str = "INSERT INTO catalogues (tenant, version, document, sha256, experiments, applied, by)
        VALUES (?1, 1, '{}', zeroblob(32), ?2, 0, 'tests')";
    const CURRENT: &str = "INSERT INTO catalogue_current (tenant, version, since) VALUES (?1, 1, 0)";
    let demo = tenants.named(Some("demo")).unwrap().no.0;
    conn.execute(KEEP, (demo, EXPERIMENTS)).unwrap();
    conn.execute(CURRENT, [demo]).unwrap();
}

/// A store with the tenants `demo` and `other`, both with the kinds member (unique) and partner.
pub(crate) struct Origin {
    pub(crate) conn: Connection,
    pub(crate) rules: TxnRules,
    pub(crate) metrics: Metrics,
    pub(crate) now: Millis,
    pub(crate) edge: EdgeConfig,
    pub(crate) keys: KeySet,
    random: Random,
    folder: tempfile::TempDir,
}

impl Origin {
    pub(crate) fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// A store with experiments in the current catalogue of `demo`.
    pub(crate) fn tested() -> Self {
        let origin = Self::new();
        tests(&origin.conn, &origin.rules.tenants);
        origin
    }

    /// A store in which ids become oversized groups, or large, from `group_limit` visitors on.
    pub(crate) fn of_group_limit(group_limit: u32) -> Self {
        Self::with(tempfile::tempdir().unwrap(), group_limit, 1.0)
    }

    /// A store in which evidence links from the weight `threshold` on, below that of a login.
    pub(crate) fn of_threshold(group_limit: u32, threshold: f64) -> Self {
        Self::with(tempfile::tempdir().unwrap(), group_limit, threshold)
    }

    /// The store in a folder, created if necessary.
    pub(crate) fn within(folder: tempfile::TempDir) -> Self {
        Self::with(folder, limits::GROUP_LIMIT, 1.0)
    }

    fn with(folder: tempfile::TempDir, group_limit: u32, threshold: f64) -> Self {
        let kinds = format!(
            r#"[{{"name":"member","code":1,"unique":true,"group_limit":{group_limit}}},{{"name":"partner","code":2,"group_limit":{group_limit}}}]"#
        );
        let json = format!(
            r#"{{"tenant":[{{"name":"demo","hosts":["a"],"kinds":{kinds},"link_threshold":{threshold}}},
                {{"name":"other","hosts":["b"],"kinds":{kinds},"link_threshold":{threshold}}}]}}"#
        );
        let edge: EdgeConfig = serde_json::from_str(&json).unwrap();
        let mut keys = KeySet::default();
        key_file::complete_keys(&mut keys, &edge).unwrap();
        let conn = store::open(folder.path()).unwrap();
        // Stores are compared byte for byte.
        conn.execute("UPDATE meta SET identity = zeroblob(16)", []).unwrap();
        let tenants = Tenants::open(&conn, &edge, &keys).unwrap();
        let journal = ErasureJournal::open(folder.path()).unwrap();
        let rules = TxnRules { tenants, sibling_publish_ms: 60_000, kv_settled_ms: 120_000, journal };
        let (metrics, random) = (Metrics::default(), Random::new([7; 32]));
        Self { conn, rules, metrics, now: NOW, edge, keys, random, folder }
    }

    /// Number of erasures in the journal.
    pub(crate) fn erasures(&self) -> usize {
        let mut count = 0;
        self.rules
            .journal
            .each(|_, _| {
                count += 1;
                Ok(())
            })
            .unwrap();
        count
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Sets `forget_after_days` of a tenant.
    pub(crate) fn forget_after(&mut self, tenant: &str, days: u32) {
        for of in self.edge.tenants.iter_mut().filter(|of| of.name == tenant) {
            of.forget_after_days = days;
        }
        self.rules.tenants = Tenants::open(&self.conn, &self.edge, &self.keys).unwrap();
    }

    /// Adds `tenants` further tenants, `t0` and so on.
    pub(crate) fn beside(&mut self, tenants: u32) {
        for n in 0..tenants {
            let mut one = self.edge.tenants[0].clone();
            (one.name, one.hosts) = (format!("t{n}"), vec![format!("t{n}.example")]);
            self.edge.tenants.push(one);
        }
        key_file::complete_keys(&mut self.keys, &self.edge).unwrap();
        self.rules.tenants = Tenants::open(&self.conn, &self.edge, &self.keys).unwrap();
    }

    /// Sets the time zone of a tenant.
    pub(crate) fn live_in(&mut self, tenant: &str, time_zone: &str) {
        for of in self.edge.tenants.iter_mut().filter(|of| of.name == tenant) {
            of.time_zone = time_zone.to_owned();
        }
        self.rules.tenants = Tenants::open(&self.conn, &self.edge, &self.keys).unwrap();
    }

    /// Starts with only some of the tenants configured, up to the point where the outbox is drained.
    pub(crate) fn start_with(&mut self, names: &[&str]) {
        let mut edge = self.edge.clone();
        edge.tenants.retain(|tenant| names.contains(&tenant.name.as_str()));
        self.rules.tenants = Tenants::open(&self.conn, &edge, &self.keys).unwrap();
        let given = self.given();
        assert_eq!(self.replay(given).unwrap(), 0);
        unconfigured_tenants::move_waiting_keys(&self.conn, &self.rules.tenants, self.now).unwrap();
    }

    /// Changes a tenant's keys for alternate ids.
    pub(crate) fn change_keys(&mut self, tenant: &str, change: impl FnOnce(&mut Vec<RingKey>)) {
        change(&mut self.keys.tenants.get_mut(tenant).unwrap().alternate.0);
        self.rules.tenants = Tenants::open(&self.conn, &self.edge, &self.keys).unwrap();
    }

    /// Inputs of the next transaction.
    pub(crate) fn given(&mut self) -> TxnInputs {
        TxnInputs { now: self.now, random: self.random.draw() }
    }

    pub(crate) fn batch(&self, tenant: &str, facts: &[Fact]) -> Vec<u8> {
        facts::encode_batch(&FactBatch { tenant: tenant.parse().unwrap(), facts: facts.to_vec() })
    }

    pub(crate) fn sync(&mut self, request: SyncRequest) -> SyncResponse {
        self.sync_all(vec![request]).remove(0)
    }

    /// Several calls, folded in one transaction.
    pub(crate) fn sync_all(&mut self, requests: Vec<SyncRequest>) -> Vec<SyncResponse> {
        let read = |request| intake::read(request, &self.rules.tenants, self.now);
        let calls: Vec<_> = requests.into_iter().map(read).collect();
        let record =
            |call: &IncomingSync| Arc::new(LogRecord { admin: call.admin, ..LogRecord::of(call.facts.clone()) });
        let records: Vec<Arc<LogRecord>> = calls.iter().map(record).collect();
        let outbox: Vec<OutboxRequest> = calls.iter().map(|call| call.outbox.clone()).collect();
        let given = self.given();
        let done = commit::commit_group(&mut self.conn, &self.rules, &self.metrics, given, &records, &outbox).unwrap();
        let answers = calls.into_iter().zip(done.new).zip(done.handed);
        let answer = |((call, new), handed): ((IncomingSync, u64), commit::OutboxBatch)| SyncResponse {
            accepted: new,
            duplicate: call.facts.len() as u64 - new,
            rejected: call.rejected,
            publish: handed.publish,
            verify: handed.verify,
            pending: done.pending,
            catalogue: done.catalogue.clone(),
        };
        answers.map(answer).collect()
    }

    pub(crate) fn send(&mut self, tenant: &str, facts: &[Fact]) -> SyncResponse {
        let facts = vec![self.batch(tenant, facts)];
        self.sync(SyncRequest { facts, ..SyncRequest::default() })
    }

    /// Folds facts of the admin API.
    pub(crate) fn admin(&mut self, tenant: &str, facts: &[Fact]) {
        let no = self.tenant(tenant).no;
        let record = LogRecord::of(facts.iter().map(|fact| CheckedFact { tenant: no, fact: fact.clone() }).collect());
        let given = self.given();
        commit::commit_group(&mut self.conn, &self.rules, &self.metrics, given, &[Arc::new(record)], &[]).unwrap();
    }

    /// Keys that the publish consumer is handed now.
    pub(crate) fn drain(&mut self, wanted: u16) -> Vec<KvWrite> {
        self.sync(SyncRequest { drain: wanted, ..SyncRequest::default() }).publish
    }

    pub(crate) fn acknowledge(&mut self, writes: &[KvWrite]) {
        let applied = writes.iter().map(|w| w.entry).collect();
        self.sync(SyncRequest { applied, ..SyncRequest::default() });
    }

    /// Advances the time and writes all due keys to a KV, until none is due.
    pub(crate) fn settle(&mut self, kv: &mut BTreeMap<String, String>) {
        for _ in 0..1_000 {
            self.now += 60_000;
            let writes = self.drain(100);
            if writes.is_empty() {
                return;
            }
            for write in &writes {
                match &write.value {
                    Some(value) => kv.insert(write.key.clone(), value.clone()),
                    None => kv.remove(&write.key),
                };
            }
            self.acknowledge(&writes);
        }
        unreachable!("the outbox never empties");
    }

    /// Serves a call of the bulk publisher.
    pub(crate) fn bulk(&mut self, request: &BulkRequest) -> BulkAnswer {
        let given = self.given();
        let serve = |group: &mut WriteTxn<'_>| lease::serve_request(group, request);
        write_txn::within_txn(&mut self.conn, &self.rules, &self.metrics, given, serve).unwrap()
    }

    /// Leases up to `wanted` keys in bulk, and builds their values; `None` if no key is due.
    pub(crate) fn bulk_batch(&mut self, wanted: usize) -> Option<(BulkLease, BulkBatch)> {
        let lease = self.bulk(&BulkRequest { wanted, ..BulkRequest::default() }).lease?;
        let Self { conn, rules, metrics, now, .. } = self;
        let batch = values::build_batch(conn, &rules.tenants, metrics, &lease, *now).unwrap();
        Some((lease, batch))
    }

    pub(crate) fn tenant(&self, name: &str) -> &TenantContext {
        self.rules.tenants.by_name(name).unwrap()
    }

    pub(crate) fn row(&self, tenant: &str, visitor: VisitorId) -> read::VisitorView {
        read::load_visitor(&StoreView::folded(&self.conn), self.tenant(tenant).no, visitor).unwrap().unwrap()
    }

    pub(crate) fn profile(&self, tenant: &str, visitor: VisitorId) -> Profile {
        let view = StoreView::folded(&self.conn);
        read::whole(&view, &self.row(tenant, visitor), Day(0)).unwrap()
    }

    pub(crate) fn person(&self, tenant: &str, visitor: VisitorId) -> read::PersonSums {
        let row = self.row(tenant, visitor);
        read::load_person(&StoreView::folded(&self.conn), &row, 1_000).unwrap()
    }

    pub(crate) fn view(&self, tenant: &str, visitor: VisitorId) -> ProfileTotals {
        self.person(tenant, visitor).view
    }

    /// The visitors that the lookup of a member names.
    pub(crate) fn lookup(&self, tenant: &str, member: &str) -> Vec<VisitorId> {
        let id = self.member(tenant, member);
        let found = read::load_lookup(&self.conn, self.tenant(tenant).no, id).unwrap();
        found.map(|l| l.visitors).unwrap_or_default()
    }

    pub(crate) fn member(&self, tenant: &str, value: &str) -> AlternateId {
        self.id(tenant, MEMBER, value)
    }

    pub(crate) fn id(&self, tenant: &str, kind: KindCode, value: &str) -> AlternateId {
        let hash = self.tenant(tenant).keys.alternate.hash_alternate(kind, value)[0];
        AlternateId { kind, hash }
    }

    /// Applies the journal, as a start does.
    pub(crate) fn replay(&mut self, given: TxnInputs) -> Result<usize, StoreError> {
        let in_log = crate::ingest::log::newest_record(self.data(), &self.conn)?;
        crate::pipeline::replay::replay_journal(&mut self.conn, &self.rules, given, in_log)
    }

    /// Copies the store into a folder, as a backup does.
    pub(crate) fn copy_to(&self, folder: &std::path::Path) {
        let file = folder.join(crate::store::data_fault::STORE);
        self.conn.execute("VACUUM INTO ?1", [file.to_string_lossy()]).unwrap();
    }

    /// A proven login of a visitor as a member of `demo`.
    pub(crate) fn login(&self, visitor: VisitorId, n: u32, received: Millis, member: &str) -> Fact {
        alias(visitor, n, received, self.member("demo", member))
    }
}

/// The context of a job run, with defaults.
pub(crate) fn place<'a>(
    data: &'a Path,
    conn: &'a mut Connection,
    rules: &'a TxnRules,
    metrics: &'a Metrics,
    given: &'a dyn Fn() -> Result<TxnInputs, StoreError>,
    pause: &'a dyn Fn(),
) -> JobContext<'a> {
    static TRAINING: LazyLock<train::Options> = LazyLock::new(train::Options::default);
    static TO_THE_END: AtomicBool = AtomicBool::new(true);
    JobContext {
        data,
        hands_out: true,
        conn,
        rules,
        metrics,
        backlog: &|| Ok(Backlog::default()),
        audience: &|| Ok(Audience::default()),
        training: &TRAINING,
        draw_inputs: given,
        pause,
        wait: &|_| {},
        elapsed: &|| Duration::ZERO,
        report_progress: &|_, _| Ok(()),
        non_preemptible: &TO_THE_END,
    }
}

/// An answer as callers read it.
pub(crate) fn as_json(answer: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(answer).unwrap()
}

pub(crate) fn visitor(n: u32) -> VisitorId {
    let [a, b, c, d] = n.to_be_bytes();
    VisitorId::mint(NOW - 1_000_000 + u64::from(n), [0, 0, 0, 0, 0, 0, a, b, c, d])
}

pub(crate) fn fact(visitor: VisitorId, n: u32, received: Millis, what: FactKind) -> Fact {
    let id = FactId::of_message(visitor, &n.to_string());
    Fact { position: 0, id, visitor, received, at: received, what }
}

pub(crate) fn page(visitor: VisitorId, n: u32, received: Millis) -> Fact {
    let session = SessionId::mint(received, [1; 4]);
    fact(visitor, n, received, FactKind::Page { session })
}

pub(crate) fn exposure(visitor: VisitorId, n: u32, received: Millis, experiment: u32, arm: u8) -> Fact {
    fact(visitor, n, received, FactKind::Exposure { experiment, arm })
}

/// An impression of the `n`th insertion, of an ad of campaign 2.
pub(crate) fn impression(visitor: VisitorId, n: u32, received: Millis) -> Fact {
    let insertion = InsertionId((u128::from(n) << 64).to_be_bytes());
    let entity = AdEntity { ad: 4, ad_group: 3, campaign: 2, advertiser: 1 };
    fact(
        visitor,
        n,
        received,
        FactKind::Action { insertion, action_type: ActionType::IMPRESSION, view_type: ViewType(1), entity },
    )
}

/// An event with a name.
pub(crate) fn tracked(of: VisitorId, n: u32, at: Millis, name: &str) -> Fact {
    fact(of, n, at, FactKind::Track { name: name.to_owned(), value: None, properties: None, order: None })
}

pub(crate) fn purchase(visitor: VisitorId, n: u32, received: Millis, micros: i64) -> Fact {
    let value = Some(Micros::new(micros));
    let what = FactKind::Track { name: PURCHASE.to_owned(), value, properties: None, order: None };
    fact(visitor, n, received, what)
}

/// A purchase with an order.
pub(crate) fn ordered(visitor: VisitorId, order: &str, received: Millis, micros: i64) -> Fact {
    let order = OrderHash::of(order);
    let value = Some(Micros::new(micros));
    let what = FactKind::Track { name: PURCHASE.to_owned(), value, properties: None, order: Some(order) };
    Fact { id: FactId::of_order(visitor, order), ..fact(visitor, 0, received, what) }
}

pub(crate) fn alias(visitor: VisitorId, n: u32, received: Millis, id: AlternateId) -> Fact {
    fact(visitor, n, received, FactKind::Alias { id, also: Vec::new(), proven: true })
}

pub(crate) fn withdrawal(visitor: VisitorId, received: Millis) -> Fact {
    let id = FactId::of_withdrawal(visitor);
    Fact { id, ..fact(visitor, 0, received, FactKind::Withdrawal) }
}

/// The snapshot of a visitor in a KV.
pub(crate) fn snapshot(kv: &BTreeMap<String, String>, visitor: VisitorId) -> Snapshot {
    match stored(kv, visitor) {
        StoredValue::Snapshot(snapshot) => *snapshot,
        StoredValue::Tombstone => unreachable!("a tombstone"),
    }
}

pub(crate) fn stored(kv: &BTreeMap<String, String>, visitor: VisitorId) -> StoredValue {
    let key = format!("v:demo:{visitor}");
    kv::decode_stored(&key, visitor, kv[&key].as_bytes()).unwrap()
}
