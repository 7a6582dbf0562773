//! `filters`: the filters that match a person, found by the index, compared with a check of each filter; and the cost
//! of the index.

use std::hint::black_box;

use anyhow::{Result, ensure};
use causeway_bench_wasm::filters::{Market, Somebody, filters};
use causeway_shared::targeting::filter::{Filter, FilterIndex, FilterSubject};
use causeway_shared::wire;
use clap::Args;

use crate::report::{self, Bar, Line, median, time};
use crate::stop::Stop;

const BENCH: &str = "filters";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds; medians over the rounds are reported.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of repetitions in a round.
    #[arg(long, default_value_t = 1_000)]
    times: u32,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let cases = [
        ("mixed", Market::Mixed, 1_000, None),
        ("mixed", Market::Mixed, 10_000, Some(Bar::AtMost(40.0))),
        ("one country", Market::OneCountry, 10_000, None),
    ];
    for (name, market, count, bar) in cases {
        let case = format!("{count} filters, {name}");
        matched(options, &case, &filters(market, count), bar, json, stop)?;
    }
    load(options, &filters(Market::Mixed, 10_000), json, stop)
}

fn matched(
    options: &Options,
    case: &str,
    filters: &[Option<Filter>],
    bar: Option<Bar>,
    json: bool,
    stop: &Stop,
) -> Result<()> {
    let (index, somebody) = (FilterIndex::new(filters), Somebody::default());
    let subject = somebody.subject();
    let expected = one_by_one(filters, &subject);
    ensure!(index.matching(&subject).iter().eq(expected.iter().copied()), "index and filters differ");
    ensure!(!expected.is_empty() && expected.len() < filters.len(), "{} of {} match", expected.len(), filters.len());
    let (mut indexed, mut each) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        stop.check()?;
        indexed.push(time(options.times, || drop(black_box(index.matching(black_box(&subject))))));
        each.push(time(options.times.div_ceil(20), || drop(black_box(one_by_one(filters, black_box(&subject))))));
    }
    let [indexed, each] = [indexed, each].map(median);
    let case = format!("{case}, {} match", expected.len());
    let line = |peer, bar| Line { bench: BENCH, case: case.clone(), value: indexed, unit: "us", peer, bar };
    report::print(&line(None, bar), json);
    report::print(&line(Some(("one by one".to_owned(), each)), None), json);
    Ok(())
}

fn one_by_one(filters: &[Option<Filter>], subject: &FilterSubject<'_>) -> Vec<usize> {
    let all = filters.iter().enumerate();
    all.filter(|(_, filter)| filter.as_ref().is_none_or(|filter| filter.matches(subject)))
        .map(|(place, _)| place)
        .collect()
}

/// Measures the load of a catalogue's filters in a new isolate.
fn load(options: &Options, filters: &[Option<Filter>], json: bool, stop: &Stop) -> Result<()> {
    let bytes: Vec<Vec<u8>> = filters.iter().flatten().map(wire::filter::encode_filter).collect();
    let (mut reads, mut builds) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        stop.check()?;
        let read = || bytes.iter().map(|bytes| wire::filter::decode_filter(bytes).ok()).collect::<Vec<_>>();
        ensure!(read() == filters, "the read filters differ from the written ones");
        reads.push(time(1, || drop(black_box(read()))) / 1e3);
        builds.push(time(1, || drop(black_box(FilterIndex::new(filters)))) / 1e3);
    }
    let count = filters.len();
    let line = |case: String, value, unit| Line { bench: BENCH, case, value, unit, peer: None, bar: None };
    let sum: usize = bytes.iter().map(Vec::len).sum();
    report::print(&line("bytes of a filter".to_owned(), sum as f64 / count as f64, "B"), json);
    report::print(&line(format!("reading {count} filters"), median(reads), "ms"), json);
    report::print(&line(format!("building the index of {count} filters"), median(builds), "ms"), json);
    Ok(())
}
