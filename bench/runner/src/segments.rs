//! `segments`: decoding and filtering by expiry of a thousand packed segments of 82,000, compared with a CBOR map.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::segments::{FRESH, SEGMENTS, fresh, held, pack};
use clap::Args;

use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "segments";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds; medians over the rounds are reported.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of reads in a round.
    #[arg(long, default_value_t = 2_000)]
    times: u32,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let held = held();
    let (packed, cbor) = (pack(held.clone()), cbor(&held)?);
    let line =
        |case: &str, value, unit, peer, bar| Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar };
    let each = |bytes: &[u8]| bytes.len() as f64 / SEGMENTS as f64;
    let map_peer = |value| Some(("CBOR map".to_owned(), value));
    report::print(&line("bytes a segment", each(&packed), "B", None, Some(Bar::AtMost(3.3))), json);
    report::print(&line("bytes a segment", each(&packed), "B", map_peer(each(&cbor)), None), json);
    let wanted: u64 = held.iter().filter(|(_, expiry)| FRESH.contains(expiry)).map(|(id, _)| u64::from(*id)).sum();
    let ours = || Some(fresh(&packed));
    let theirs = || {
        let read: BTreeMap<u32, u32> = ciborium::from_reader(cbor.as_slice()).ok()?;
        Some(read.iter().filter(|(_, expiry)| FRESH.contains(expiry)).map(|(id, _)| u64::from(*id)).sum())
    };
    ensure!(ours() == Some(wanted) && theirs() == Some(wanted), "the two forms have different fresh segments");
    let (mut packed_us, mut cbor_us) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        stop.check()?;
        packed_us.push(time(options.times, ours).context("packed")?);
        cbor_us.push(time(options.times / 10, theirs).context("CBOR")?);
    }
    let [packed_us, cbor_us] = [packed_us, cbor_us].map(median);
    report::print(&line("decode + freshness filter", packed_us, "us", None, Some(Bar::AtMost(5.0))), json);
    report::print(&line("decode + freshness filter", packed_us, "us", map_peer(cbor_us), None), json);
    Ok(())
}

/// Microseconds of one read.
fn time(times: u32, read: impl Fn() -> Option<u64>) -> Option<f64> {
    let start = Instant::now();
    for _ in 0..times {
        black_box(read()?);
    }
    Some(start.elapsed().as_secs_f64() * 1e6 / f64::from(times.max(1)))
}

fn cbor(held: &BTreeMap<u32, u32>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ciborium::into_writer(held, &mut bytes)?;
    Ok(bytes)
}
