//! `counting`: counts of a request's candidates at four levels from packed actions in memory, compared with Redis,
//! which needs one ZCOUNT for each count; and counts over the joined visitors of a person.

mod redis;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_bench_wasm::counting::{candidates, question, visitor};
use causeway_shared::base::time::Day;
use causeway_shared::facts::actions::{
    ActionCounter, ActionList, ActionQuestion, AdAction, AdEntity, AdLevel, Counts, InsertionHash, PackedActions,
    ViewType,
};
use clap::Args;

use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "counting";
/// Target: the greatest accepted ratio to the time of Redis.
const BELOW_REDIS: f64 = 1.0 / 50.0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds; medians over the rounds are reported.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Number of repetitions in a round.
    #[arg(long, default_value_t = 500)]
    times: u32,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let redis = redis::Redis::start()?;
    for (actions, micros) in [(1_000, 10.0), (10_000, 30.0)] {
        let visitor = visitor(actions, 1);
        let mut connection = redis.connect()?;
        connection.fill(&visitor.iter().collect::<Vec<_>>())?;
        let case = Case { visitors: vec![visitor], candidates: candidates(100), question: question(7) };
        let wanted = case.check()?;
        ensure!(connection.count(&case.candidates, &case.question)? == wanted, "Redis counts otherwise");
        let mut theirs = Vec::new();
        let mut ours = Vec::new();
        for _ in 0..options.rounds {
            stop.check()?;
            ours.push(case.time(options.times));
            let start = Instant::now();
            black_box(connection.count(&case.candidates, &case.question)?);
            theirs.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let [ours, theirs] = [ours, theirs].map(median);
        let name = format!("{actions} actions, 100 candidates x 4 levels, 7 days");
        tell(&name, ours, None, Some(Bar::AtMost(micros)), json);
        tell(&name, ours, Some(("redis ZCOUNT pipelined", theirs)), Some(Bar::AtMost(BELOW_REDIS)), json);
    }
    join(options, json, stop)
}

/// Three visitors of a person. The others share a fifth of each visitor's insertions, as imported ones may be shared.
fn join(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let shared: Vec<AdAction> = visitor(300, 9).iter().take(200).collect();
    let with_shared = |seed| visitor(900, seed).iter().take(800).chain(shared.iter().copied()).collect::<ActionList>();
    let visitors: Vec<ActionList> = [1, 2, 3].map(with_shared).into();
    for days in [7, 30] {
        let case = Case { visitors: visitors.clone(), candidates: candidates(1_000), question: question(days) };
        case.check()?;
        let mut ours = Vec::new();
        for _ in 0..options.rounds {
            stop.check()?;
            ours.push(case.time(options.times));
        }
        let ours = median(ours);
        let name = format!("join: 3 visitors x 1000 actions, 1000 candidates, {days} days");
        tell(&name, ours, None, Some(Bar::AtMost(100.0)), json);
        tell(
            &name,
            ours,
            Some(("AdCP's reference with its prefilter, as published", 287.0)),
            Some(Bar::AtMost(0.1)),
            json,
        );
    }
    Ok(())
}

fn tell(case: &str, value: f64, peer: Option<(&str, f64)>, bar: Option<Bar>, json: bool) {
    let peer = peer.map(|(name, value)| (name.to_owned(), value));
    report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit: "us", peer, bar }, json);
}

struct Case {
    visitors: Vec<ActionList>,
    candidates: Vec<AdEntity>,
    question: ActionQuestion<'static>,
}

impl Case {
    /// The counts, which must equal those of the naive reference.
    fn check(&self) -> Result<Vec<Counts>> {
        let packed = self.packed();
        let read = packed
            .iter()
            .map(|bytes| PackedActions::read(bytes).context("packed actions"))
            .collect::<Result<Vec<_>>>()?;
        let counted: Vec<Counts> =
            ActionCounter::new(self.candidates.iter().copied()).count(&read, &self.question).collect();
        let held: BTreeSet<_> =
            self.visitors.iter().flat_map(ActionList::iter).filter(|a| self.holds(a)).map(name).collect();
        let naive = |entity: &AdEntity| {
            AdLevel::ALL
                .map(|level| held.iter().filter(|(_, _, of, _)| of.at(level) == entity.at(level)).count() as u32)
        };
        let expected: Vec<Counts> = self.candidates.iter().map(naive).collect();
        ensure!(counted == expected, "the counts are not those of the reference");
        ensure!(counted.iter().flatten().any(|count| *count > 1), "nothing to count");
        Ok(counted)
    }

    fn holds(&self, action: &AdAction) -> bool {
        let ActionQuestion { action_types, from, to, .. } = self.question;
        action_types.contains(&action.action_type) && (from..to).contains(&action.minute)
    }

    fn packed(&self) -> Vec<Vec<u8>> {
        self.visitors.iter().map(ActionList::pack_actions).collect()
    }

    /// Microseconds of one request, including the decoding of the packed bytes.
    fn time(&self, times: u32) -> f64 {
        let packed = self.packed();
        let mut counts = Vec::with_capacity(self.candidates.len());
        let start = Instant::now();
        for _ in 0..times {
            let read: Vec<PackedActions<'_>> = packed.iter().filter_map(|bytes| PackedActions::read(bytes)).collect();
            counts.clear();
            counts.extend(ActionCounter::new(self.candidates.iter().copied()).count(&read, &self.question));
            black_box(&counts);
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(times)
    }
}

/// The identity of an action, as an element of a set.
fn name(action: AdAction) -> (InsertionHash, ViewType, AdEntity, Day) {
    (action.insertion, action.view_type, action.entity, action.minute.day())
}
