//! A serving origin that accepts facts at a steady rate: the time from the acknowledgement of a person's change until
//! the audience counts contain it.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use causeway_shared::base::ids::FactId;
use causeway_shared::facts::attributes::AttributeValue;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::wire::facts::{self, FactBatch};
use causeway_shared::wire::sync::{SyncRequest, encode_request};
use serde_json::json;

use crate::http1::Connection;
use crate::ingest::{Load, Shape};
use crate::origin::Origin;
use crate::stop::Stop;

/// Syncs per second, of 1,000 facts each.
const RATE: u32 = 50;
const CONNECTIONS: usize = 4;
/// One fact in this number is of a new visitor.
const NEWCOMERS: u64 = 20;
/// Duration of the load.
const LASTS: Duration = Duration::from_secs(20);
/// Interval between two measured changes.
const PROBED: Duration = Duration::from_millis(300);
/// Interval between two counts that wait for a change.
const LOOK: Duration = Duration::from_millis(10);

/// The results of the load.
pub(super) struct Followed {
    /// Acknowledged facts per second.
    pub(super) rate: f64,
    /// Seconds from the acknowledgement of a change until a count contains it, sorted.
    pub(super) seen: Vec<f64>,
}

pub(super) fn run(visitors: usize, stop: &Stop) -> Result<Followed> {
    let origin = Origin::start("most_unfolded = 1000000\n", stop, |_| Ok(()))?;
    // All visitors are stored before the clock starts.
    let until = origin.now();
    let known = Shape { facts: visitors, visitors, each_once: true, until, first_in: 0, number: 1 };
    let known = Load::new(&known, &origin);
    crate::ingest::send(&origin, &known.requests, CONNECTIONS, stop)?;
    let is_there = || Ok(count(&origin, &json!({}))? == Some(visitors as u64));
    origin.until(stop, "all people are in columns", is_there)?;
    let wanted = LASTS.as_secs() as usize * RATE as usize;
    let of_known = Shape { facts: wanted * 1_000, visitors, each_once: false, until, first_in: NEWCOMERS, number: 2 };
    let load = Load::new(&of_known, &origin);
    let (next, over, begun) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
    let feed = || -> Result<()> {
        let mut connection = connect(&origin)?;
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = load.requests.get(at) else { return Ok(()) };
            sleep((Duration::from_secs(1) * at as u32 / RATE).saturating_sub(begun.elapsed()));
            stop.check()?;
            while connection.exchange(request)?.status() != Some(200) {
                sleep(LOOK);
            }
        }
    };
    let (seen, took) = std::thread::scope(|scope| {
        let feeding: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(feed)).collect();
        let probing = scope.spawn(|| probe(&origin, &over));
        let fed =
            feeding.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
        let took = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        let seen = probing.join().unwrap_or_else(|_| bail!("a thread panicked"));
        fed.and(seen).map(|seen| (seen, took))
    })?;
    Ok(Followed { rate: (load.requests.len() * 1_000) as f64 / took.as_secs_f64(), seen })
}

fn probe(origin: &Origin, over: &AtomicBool) -> Result<Vec<f64>> {
    let (mut seen, mut connection) = (Vec::new(), connect(origin)?);
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let now = origin.now();
        let what = FactKind::Attributes { writes: vec![("probe".to_owned(), Some(AttributeValue::Integer(number)))] };
        let id = FactId::from_bytes((u128::from(now) << 64 | 1).to_be_bytes());
        let fact = Fact {
            position: 0,
            id,
            visitor: crate::ingest::visitor(0, 1_700_000_000_000),
            received: now,
            at: now,
            what,
        };
        let batch = facts::encode_batch(&FactBatch { tenant: origin.tenant(), facts: vec![fact] });
        let body = encode_request(&SyncRequest { facts: vec![batch], ..SyncRequest::default() });
        let status = connection.exchange(&origin.signed_sync(&body))?.status();
        ensure!(status == Some(200), "a sync was answered with {status:?}");
        let told = Instant::now();
        while count(origin, &json!({ "attributes.probe": number }))? != Some(1) {
            ensure!(told.elapsed() < Duration::from_secs(60), "a change is not seen");
            sleep(LOOK);
        }
        seen.push(told.elapsed().as_secs_f64());
        sleep(PROBED);
    }
    seen.sort_by(f64::total_cmp);
    Ok(seen)
}

/// Counts a filter; `None` while its names or the audience index are unknown.
fn count(origin: &Origin, filter: &serde_json::Value) -> Result<Option<u64>> {
    Ok(origin
        .ask("audience/members?tenant=demo", &json!({ "filter": filter }))?
        .get("count")
        .and_then(serde_json::Value::as_u64))
}

fn connect(origin: &Origin) -> Result<Connection<TcpStream>> {
    let stream = TcpStream::connect(origin.address()).context("cannot connect to the origin")?;
    stream.set_nodelay(true)?;
    Ok(Connection::new(stream))
}
