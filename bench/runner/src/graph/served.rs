//! The same store with a serving origin: the cost of a login alone and in parallel with jobs, and the time until
//! changes of visitors are published to all visitors of their people.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, SessionId, VisitorId};
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::kv::decode_stored;
use causeway_shared::wire::kv_keys::snapshot_key;
use causeway_shared::wire::sync::{KvWrite, SyncRequest, SyncResponse, decode_response, encode_request};
use serde_json::Value;

use super::stored::{SUPER, hash, id, member};
use super::{BENCH, Options};
use crate::http1::Connection;
use crate::origin::Origin;
use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

/// No timer starts a job, and no sibling is published during a measurement.
pub(super) const SETTINGS: &str = "sibling_publish_s = 3600
jobs = { trim_hours = 0, retention_hours = 0, reconcile_hours = 0, rollup_hours = 0, activity_hours = 0, scrub_hours = 0 }
";
const BATCH: usize = 1_000;
/// KV writes that one sync leases.
const DRAIN: u16 = 50;
/// Number of measured logins of each kind, and of logins in parallel with `trim`.
const LOGINS: usize = 2_000;
/// The segment that the bench adds.
const NEW: SegmentId = SegmentId(4_711);

pub(super) fn run(origin: &Origin, options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let mut edge = Edge::of(origin)?;
    compact(&mut edge, options, json, stop)?;
    let mut person = People::new(options);
    let idle = edge.logins(&mut person, false, stop, |count| Ok(count < LOGINS))?;
    let large = edge.logins(&mut person, true, stop, |count| Ok(count < LOGINS))?;
    let reconcile = edge.job("reconcile")?;
    let reconciling = edge.logins(&mut person, false, stop, |_| Ok(edge_of(origin, &reconcile)?.is_null()))?;
    ensure!(reconciling.len() > 100, "reconcile ended after {} logins, too few to measure", reconciling.len());
    let trim = edge.job("trim")?;
    let trimming = edge.logins(&mut person, false, stop, |count| Ok(count < LOGINS))?;
    ensure!(edge_of(origin, &trim)?.is_null(), "trim ended before the measurement");
    let p99 = |took: &[Took], of: fn(&Took) -> f64| {
        let mut all: Vec<f64> = took.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() * 99 / 100).copied().unwrap_or_default()
    };
    let print = |case: &str, value, peer: &str, peer_value, bar: Option<f64>| {
        let bar = bar.filter(|_| options.visitors >= 5_000_000).map(Bar::AtMost);
        let peer = Some((peer.to_owned(), peer_value));
        report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit: "ms", peer, bar }, json);
    };
    let (taken, out) = (|took: &Took| took.taken, |took: &Took| took.published);
    for (job, busy) in [("reconcile", &reconciling), ("trim", &trimming)] {
        let case = format!("a login taken in beside {job}, p99");
        print(&case, p99(busy, taken), "alone", p99(&idle, taken), Some(2.0));
        print("the same, linked and handed out", p99(busy, out), "alone", p99(&idle, out), None);
    }
    let case = format!("a login of the member with {} visitors, linked and handed out, p99", options.visitors / 5);
    print(&case, p99(&large, out), "of one with a few", p99(&idle, out), Some(2.0));
    Ok(())
}

/// The outcome of a run; null while it runs.
fn edge_of(origin: &Origin, run: &str) -> Result<Value> {
    Ok(origin.admin(&format!("jobs/{run}"))?.get("outcome").cloned().unwrap_or_default())
}

/// Milliseconds of a login: until its acknowledgement, and until its snapshot was leased.
#[derive(Debug, Clone, Copy)]
struct Took {
    taken: f64,
    published: f64,
}

/// The next login: of a new browser, as a random member or as the largest member.
struct People {
    next: u32,
    visitors: u32,
    random: Random,
}

impl People {
    fn new(options: &Options) -> Self {
        Self { next: options.visitors, visitors: options.visitors, random: Random::of(7) }
    }

    fn next(&mut self, large: bool) -> (VisitorId, u32) {
        self.next += 1;
        let mut any = || u32::try_from(self.random.below(self.visitors.into())).unwrap_or_default();
        let member = if large { SUPER } else { member(any() / 5 * 5 + 1, self.visitors).unwrap_or(SUPER) };
        (id(self.next), member)
    }
}

/// An edge: sends facts and leases KV writes.
struct Edge<'o> {
    origin: &'o Origin,
    connection: Connection<TcpStream>,
    applied: Vec<u64>,
}

impl<'o> Edge<'o> {
    fn of(origin: &'o Origin) -> Result<Self> {
        let stream = TcpStream::connect(origin.address()).context("cannot connect to the origin")?;
        stream.set_nodelay(true)?;
        Ok(Self { origin, connection: Connection::new(stream), applied: Vec::new() })
    }

    fn sync(&mut self, facts: Vec<Fact>, drain: u16) -> Result<(SyncResponse, f64)> {
        let batch =
            (!facts.is_empty()).then(|| facts::encode_batch(&FactBatch { tenant: self.origin.tenant(), facts }));
        // Facts arrive by another consumer than the KV writes.
        let applied = if drain > 0 { std::mem::take(&mut self.applied) } else { Vec::new() };
        let facts = batch.into_iter().collect();
        let request = SyncRequest { facts, drain, applied, ..SyncRequest::default() };
        let request = self.origin.signed_sync(&encode_request(&request));
        let start = Instant::now();
        let answer = self.connection.exchange(&request)?;
        let took = start.elapsed().as_secs_f64() * 1e3;
        ensure!(answer.status() == Some(200), "a sync was answered with {:?}", answer.status());
        let answer = decode_response(answer.body).context("the answer to a sync")?;
        self.applied.extend(answer.publish.iter().map(|write| write.entry));
        Ok((answer, took))
    }

    /// Leases KV writes until none is due.
    fn drain(&mut self, stop: &Stop) -> Result<Vec<KvWrite>> {
        let mut all = Vec::new();
        loop {
            stop.check()?;
            let (answer, _) = self.sync(Vec::new(), DRAIN)?;
            let over = answer.publish.is_empty() && answer.pending == 0;
            all.extend(answer.publish);
            if over {
                return Ok(all);
            }
        }
    }

    /// Makes logins one after the other while `more` returns true.
    fn logins(
        &mut self,
        people: &mut People,
        large: bool,
        stop: &Stop,
        more: impl Fn(usize) -> Result<bool>,
    ) -> Result<Vec<Took>> {
        let mut all = Vec::new();
        while all.len() % 10 != 0 || more(all.len())? {
            stop.check()?;
            let (visitor, member) = people.next(large);
            let now = self.origin.now();
            let fact = |what| Fact {
                position: 0,
                id: FactId::from_bytes(people.random.sixteen()),
                visitor,
                received: now,
                at: now,
                what,
            };
            let id = AlternateId { kind: KindCode(1), hash: AltHash(hash(member)) };
            let whats =
                [FactKind::Page { session: SessionId(1) }, FactKind::Alias { id, also: Vec::new(), proven: true }];
            let facts = whats.map(fact);
            let key = snapshot_key(&self.origin.tenant(), visitor);
            let start = Instant::now();
            let (_, taken) = self.sync(facts.into(), 0)?;
            let value = loop {
                let (answer, _) = self.sync(Vec::new(), DRAIN)?;
                if let Some(write) = answer.publish.into_iter().find(|write| write.key == key) {
                    break write.value.context("a snapshot without a value")?;
                }
                ensure!(start.elapsed().as_secs() < 30, "{key} was not leased within 30 s");
            };
            all.push(Took { taken, published: start.elapsed().as_secs_f64() * 1e3 });
            let StoredValue::Snapshot(snapshot) = decode_stored(&key, visitor, value.as_bytes())? else {
                anyhow::bail!("{key} is a tombstone");
            };
            ensure!(snapshot.membership.devices > 1, "{key} has no sibling");
        }
        Ok(all)
    }

    fn job(&self, name: &str) -> Result<String> {
        let run = self.origin.post(&format!("jobs/{name}"))?;
        Ok(run.get("run").context("no run")?.to_string())
    }
}

/// Adds a segment to many visitors, and measures the publication to their people.
fn compact(edge: &mut Edge<'_>, options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let mut random = Random::of(3);
    let new = options.visitors / 50;
    let mut chosen = BTreeSet::new();
    while chosen.len() < new as usize {
        chosen.insert(u32::try_from(random.below(options.visitors.into()))?);
    }
    let now = edge.origin.now();
    let state = SegmentState::held(HourStamp::at(now + 86_400_000), []);
    let fact = |visitor: &u32| Fact {
        position: 0,
        id: FactId::from_bytes(random.sixteen()),
        visitor: id(*visitor),
        received: now,
        at: now,
        what: FactKind::Segments { writes: vec![(NEW, state.clone())] },
    };
    let facts: Vec<Fact> = chosen.iter().map(fact).collect();
    for some in facts.chunks(BATCH) {
        edge.sync(some.to_vec(), 0)?;
    }
    edge.origin.until(stop, "all is folded", || Ok(edge.origin.metric("causeway_unfolded_facts")? == 0.0))?;
    let own = edge.drain(stop)?;
    ensure!(own.len() == chosen.len(), "{} snapshots of {} visitors", own.len(), chosen.len());
    let mut people: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for visitor in 0..options.visitors {
        if let Some(member) = member(visitor, options.visitors) {
            people.entry(member).or_default().push(visitor);
        }
    }
    people.retain(|_, all| all.len() > 1 && all.iter().any(|visitor| chosen.contains(visitor)));

    let start = Instant::now();
    let run = edge.job("compact")?;
    edge.origin.until(stop, "compact is over", || Ok(!edge_of(edge.origin, &run)?.is_null()))?;
    let put = start.elapsed().as_secs_f64();
    let writes = edge.drain(stop)?;
    let all = start.elapsed().as_secs_f64();

    let report = edge.origin.admin(&format!("jobs/{run}"))?.get("report").cloned().unwrap_or_default();
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or_default();
    let found = (count("people"), count("snapshots"));
    ensure!(
        found == (people.len() as u64, writes.len() as u64),
        "{report}: {} people, {} snapshots",
        people.len(),
        writes.len()
    );
    for write in &writes {
        let visitor: VisitorId = write.key.rsplit(':').next().context("a key without a visitor")?.parse()?;
        let value = write.value.as_deref().context("a snapshot without a value")?;
        let StoredValue::Snapshot(snapshot) = decode_stored(&write.key, visitor, value.as_bytes())? else { continue };
        let holds =
            snapshot.profiles.values().filter_map(|of| of.segments()).any(|of| of.iter().any(|(id, _)| id == NEW));
        ensure!(holds || !snapshot.missing().is_empty(), "{} lacks the new segment of a sibling", write.key);
    }
    let whole = options.visitors >= 5_000_000;
    let print = |case: String, value, bar: Option<f64>| {
        let bar = bar.filter(|_| whole).map(Bar::AtMost);
        report::print(&Line { bench: BENCH, case, value, unit: "s", peer: None, bar }, json);
    };
    print(format!("compact after {new} new segments"), put, Some(10.0));
    print(format!("the same, and its {} snapshots handed out", writes.len()), all, None);
    Ok(())
}
