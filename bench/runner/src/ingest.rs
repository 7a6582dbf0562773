//! `ingest`: the rate of syncs of 1,000 facts over loopback HTTP to a real origin, which acknowledges each when it is
//! durable; and the rate of the fold, which deduplicates facts, joins them with profiles, and fills the outbox.
//!
//! The load shares the machine's cores with the origin; all bodies are built and signed before the clock starts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use causeway_shared::base::ids::{FactId, InsertionId, Micros, Millis, SessionId, VisitorId};
use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::{SyncRequest, encode_request};
use clap::Args;

use crate::http1::Connection;
use crate::origin::Origin;
use crate::random::Random;
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "ingest";
const BATCH: usize = 1_000;
/// One fact in this number is repeated in a later batch.
const REPEATED: u64 = 20;
/// Number of visitors whose sums are compared with the sent facts.
const CHECKED: usize = 200;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of facts, repeats included.
    #[arg(long, default_value_t = 10_000_000)]
    facts: usize,
    /// Number of visitors of the facts, which are distributed by Zipf's law.
    #[arg(long, default_value_t = 1_000_000)]
    visitors: usize,
    /// Number of connections, each with one sync in flight.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

/// The facts to generate.
pub(crate) struct Shape {
    /// Number of facts, repeats included.
    pub(crate) facts: usize,
    /// Number of visitors of the facts.
    pub(crate) visitors: usize,
    /// Whether each visitor has one fact, in order and without repeats; otherwise Zipf's law distributes the facts.
    pub(crate) each_once: bool,
    /// Time of the newest visitor.
    pub(crate) until: Millis,
    /// One fact in this number is of a new visitor; 0 for no new visitors.
    pub(crate) first_in: u64,
    /// Number of the load: two loads of one number have the same facts.
    pub(crate) number: u64,
}

/// The requests and the expected sums.
pub(crate) struct Load {
    pub(crate) requests: Vec<Vec<u8>>,
    unique: u64,
    /// Pages and purchases of the checked visitors.
    expected: BTreeMap<VisitorId, (u64, u64)>,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let settings = format!("most_unfolded = {}\n", options.facts.clamp(10_000, 100_000_000));
    let origin = Origin::start(&settings, stop, |_| Ok(()))?;
    eprintln!("generating {} facts of {} visitors", options.facts, options.visitors);
    let Options { facts, visitors, .. } = *options;
    let shape = Shape { facts, visitors, each_once: false, until: origin.now(), first_in: 0, number: 1 };
    let load = Load::new(&shape, &origin);
    let start = Instant::now();
    send(&origin, &load.requests, options.connections, stop)?;
    let acknowledged = start.elapsed();
    let unfolded = origin.metric("causeway_unfolded_facts")?;
    let all = options.facts as f64;
    let done = || {
        Ok(origin.metric("causeway_facts_accepted_total")? + origin.metric("causeway_facts_duplicate_total")? >= all)
    };
    origin.until(stop, "all facts are folded", done)?;
    let folded = start.elapsed();
    let accepted = origin.metric("causeway_facts_accepted_total")?;
    ensure!(accepted == load.unique as f64, "{accepted} facts were counted, and {} were sent", load.unique);
    for (visitor, expected) in &load.expected {
        check(&origin, *visitor, *expected)?;
    }
    let rate = |facts: f64, time: Duration| facts / time.as_secs_f64();
    let print = |case: &str, value, unit, bar| {
        report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit, peer: None, bar }, json);
    };
    print("acknowledged", rate(all, acknowledged), "facts/s", Some(Bar::AtLeast(500_000.0)));
    print("folded", rate(all, folded), "facts/s", Some(Bar::AtLeast(80_000.0)));
    print("folded-meanwhile", rate(all - unfolded, acknowledged), "facts/s", None);
    print("lag", (folded - acknowledged).as_secs_f64(), "s", None);
    print("commit-mean", origin.mean_ms("causeway_commit_seconds")?, "ms", None);
    print("append-mean", origin.mean_ms("causeway_append_seconds")?, "ms", None);
    print("memory-peak", origin.memory_peak_mb()?, "MB", None);
    print("disk", origin.data_bytes()? / 1e6, "MB", None);
    Ok(())
}

/// Sends all requests over a number of connections; each must be acknowledged, at the first try or at a later one.
pub(crate) fn send(origin: &Origin, requests: &[Vec<u8>], connections: usize, stop: &Stop) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let stream = TcpStream::connect(origin.address()).context("cannot connect to the origin")?;
        stream.set_nodelay(true)?;
        let mut connection = Connection::new(stream);
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            loop {
                stop.check()?;
                match connection.exchange(request)?.status() {
                    Some(200) => break,
                    Some(503) => std::thread::sleep(Duration::from_millis(20)),
                    other => bail!("a sync was answered with {other:?}"),
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(sent) => sent,
            Err(_) => bail!("a thread of the load panicked"),
        })
    })
}

fn check(origin: &Origin, visitor: VisitorId, expected: (u64, u64)) -> Result<()> {
    let own = origin.admin(&format!("visitors/{visitor}?tenant=demo"))?;
    let sum = |name: &str| own.pointer(&format!("/own/{name}")).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let found = (sum("pages"), sum("purchases"));
    ensure!(found == expected, "a visitor has {found:?} pages and purchases instead of {expected:?}");
    Ok(())
}

impl Load {
    pub(crate) fn new(shape: &Shape, origin: &Origin) -> Self {
        let mut random = Random::of(shape.number);
        let now = origin.now();
        let zipf = Zipf::new(shape.visitors);
        let visitors: Vec<VisitorId> = (0..shape.visitors as u64).map(|rank| visitor(rank, shape.until)).collect();
        // The checked visitors are spread from the busiest to the least busy.
        let rank = |n: usize| (n as f64 / CHECKED as f64).powi(3) * shape.visitors as f64;
        let checked: BTreeSet<VisitorId> =
            (0..CHECKED).filter_map(|n| visitors.get(rank(n) as usize).copied()).collect();
        let mut load = Self { requests: Vec::new(), unique: 0, expected: BTreeMap::new() };
        let (mut repeats, mut turn): (Vec<Fact>, usize) = (Vec::new(), 0);
        for _ in 0..shape.facts.div_ceil(BATCH) {
            let mut facts = std::mem::take(&mut repeats);
            while facts.len() < BATCH
                && let Some(visitor) = visitors.get(if shape.each_once { turn } else { zipf.rank(&mut random) })
            {
                turn += 1;
                let comes = shape.first_in > 0 && random.below(shape.first_in) == 0;
                let newcomer =
                    comes.then(|| VisitorId::mint(now, random.sixteen().first_chunk().copied().unwrap_or_default()));
                let fact = fact(&mut random, newcomer.unwrap_or(*visitor), now);
                load.unique += 1;
                if newcomer.is_none() && checked.contains(visitor) {
                    let sums = load.expected.entry(*visitor).or_default();
                    match fact.what {
                        FactKind::Page { .. } => sums.0 += 1,
                        FactKind::Track { .. } => sums.1 += 1,
                        _ => {}
                    }
                }
                if !shape.each_once && random.below(REPEATED) == 0 {
                    repeats.push(fact.clone());
                }
                facts.push(fact);
            }
            let batch = facts::encode_batch(&FactBatch { tenant: origin.tenant(), facts });
            let body = encode_request(&SyncRequest { facts: vec![batch], ..SyncRequest::default() });
            load.requests.push(origin.signed_sync(&body));
        }
        load
    }
}

/// The visitor of a rank. Visitors are minted over thirty days, independent of their rank.
pub(crate) fn visitor(rank: u64, now: Millis) -> VisitorId {
    let at = now - rank.wrapping_mul(7_919_000_003) % (30 * 86_400_000) - 1_000;
    let mut tail = [0; 10];
    tail.iter_mut().rev().zip(rank.to_le_bytes()).for_each(|(to, from)| *to = from);
    VisitorId::mint(at, tail)
}

/// A fact of the last ten minutes: mostly pages, a quarter ad actions, some purchases.
fn fact(random: &mut Random, visitor: VisitorId, now: Millis) -> Fact {
    let received = now - random.below(600_000);
    let id = FactId::from_bytes(random.sixteen());
    let what = match random.below(100) {
        0..70 => FactKind::Page { session: SessionId(received / 1_800_000) },
        70..95 => {
            let ad = u32::try_from(random.below(1_000)).unwrap_or_default();
            let entity = AdEntity { ad, ad_group: ad / 4, campaign: ad / 16, advertiser: ad / 64 };
            let insertion = InsertionId(random.sixteen());
            FactKind::Action { insertion, action_type: ActionType::IMPRESSION, view_type: ViewType(1), entity }
        }
        _ => FactKind::Track {
            name: PURCHASE.to_owned(),
            value: Some(Micros::new(1_000_000)),
            properties: None,
            order: None,
        },
    };
    Fact { position: 0, id, visitor, received, at: received, what }
}

/// Draws ranks by Zipf's law: rank `n` has the weight 1 / n.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=ranks)
                .map(|n| {
                    sum += 1.0 / n as f64;
                    sum
                })
                .collect(),
        )
    }

    fn rank(&self, random: &mut Random) -> usize {
        let all = self.0.last().copied().unwrap_or_default();
        let at = random.unit() * all;
        self.0.partition_point(|sum| *sum < at).min(self.0.len().saturating_sub(1))
    }
}
