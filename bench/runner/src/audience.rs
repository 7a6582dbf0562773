//! `audience`: counts in an audience index of ten million people, of a sample and of all, compared with SQLite and
//! DuckDB on the same data. Both peers have only the columns of the question, the segment as a column, and rows in the
//! order of the buckets. The bench also writes members as lines, and measures a serving origin whose index follows
//! 50,000 facts a second.

mod live;
mod peers;

use std::io::{BufRead as _, BufReader, Seek as _, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_origin::audience::query::MemberFormat;
use causeway_shared::audience::index::{AudienceIndex, IndexQuery, IndexRow, MatchedRows, UsedTexts};
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::time::{DAY_MINUTES, HourStamp, Minute};
use causeway_shared::facts::attributes::{AttributeValue, FiniteNumber, NameDictionary, NameToken, ValueKind};
use causeway_shared::facts::segments::SegmentId;
use causeway_shared::profiles::profile::{MissingParts, ProfileTotals};
use causeway_shared::settings::vocabulary::Vocabulary;
use causeway_shared::targeting::filter::{CountAnswerer, Entities, Filter, FilterWords, parse};
use clap::Args;
use serde_json::json;

use crate::random::Random;
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "audience";
const BUCKETS: u16 = 10_000;
/// The time of all questions.
const NOW: Minute = Minute(2_800 * DAY_MINUTES);
/// The segment of the question; one person of ten is in it.
const SEGMENT: u32 = 7;
const KINDS: [ValueKind; 20] = {
    use ValueKind::{Bool, Date, Float, Integer, String, Strings};
    [
        String, Integer, Bool, Integer, Integer, String, String, Bool, Float, Date, Integer, String, Bool, Integer,
        Date, String, Strings, Float, Bool, Integer,
    ]
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of people, each with 20 attributes and 50 segments.
    #[arg(long, default_value_t = 10_000_000)]
    people: u32,
    /// Number of rounds. The engines take turns in a round; the median over the rounds is reported.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Leave out SQLite and DuckDB.
    #[arg(long)]
    alone: bool,
    /// Number of visitors of the serving origin; 0 leaves it out.
    #[arg(long, default_value_t = 200_000)]
    visitors: usize,
}

/// One person; all engines get the same people.
struct Someone {
    bucket: u16,
    city: u32,
    age: i64,
    vip: bool,
    /// Time of the last purchase; `None` without a purchase.
    bought: Option<Minute>,
    segments: Vec<SegmentId>,
    random: Random,
}

impl Someone {
    fn of(n: u32) -> Self {
        let mut random = Random::of(n.into());
        let mut segments: Vec<SegmentId> = (0..49)
            .map(|_| {
                // Few segments are large, and most are small.
                let place = random.unit();
                SegmentId(100 + (place * place * place * 5_000.0) as u32)
            })
            .collect();
        if random.below(10) == 0 {
            segments.push(SegmentId(SEGMENT));
        }
        segments.sort_unstable();
        segments.dedup();
        Self {
            bucket: random.below(BUCKETS.into()) as u16,
            city: random.below(50) as u32,
            age: random.below(80) as i64 + 10,
            vip: random.below(3) == 0,
            bought: (random.below(2) == 0).then(|| Minute(NOW.0 - random.below(u64::from(90 * DAY_MINUTES)) as u32)),
            segments,
            random,
        }
    }

    fn matches_filter(&self) -> bool {
        let week = NOW.0 - 6 * DAY_MINUTES;
        self.city < 10
            && self.age >= 30
            && !self.vip
            && self.segments.binary_search(&SegmentId(SEGMENT)).is_ok()
            && self.bought.is_none_or(|last| last.0 < week)
    }

    fn attributes(&mut self) -> Vec<(NameToken, AttributeValue)> {
        let (city, age, vip, random) = (self.city, self.age, self.vip, &mut self.random);
        let text = |number: u64| AttributeValue::String(format!("text {number}"));
        let value = |(place, kind): (usize, ValueKind)| match (place, kind) {
            (0, _) => AttributeValue::String(format!("city {city}")),
            (1, _) => AttributeValue::Integer(age),
            (2, _) => AttributeValue::Bool(vip),
            (_, ValueKind::Bool) => AttributeValue::Bool(random.below(2) == 0),
            (_, ValueKind::Integer) => AttributeValue::Integer(random.below(1 << (place % 5 * 8).max(4)) as i64),
            (_, ValueKind::Float) => {
                AttributeValue::Float(FiniteNumber::new(random.unit()).unwrap_or_else(|| unreachable!()))
            }
            (_, ValueKind::Date) => AttributeValue::Date(random.below(20_000) as i32),
            (_, ValueKind::String) => text(random.below(10 << place)),
            (_, ValueKind::Strings) => AttributeValue::Strings([format!("tag {}", random.below(40))].into()),
        };
        (0..).map(NameToken).zip(KINDS.into_iter().enumerate().map(value)).collect()
    }

    fn put(mut self, person: u32, people: &mut AudienceIndex) -> Result<()> {
        let attributes = self.attributes();
        let events: Vec<(&str, u64, Minute)> = self.bought.map(|last| ("purchase", 1, last)).into_iter().collect();
        let row = IndexRow {
            person: person.into(),
            master: VisitorId::mint(person.into(), [7; 10]),
            bucket: self.bucket,
            devices: 1 + self.random.below(3) as u32,
            seen: Some((1_700_000_000_000 + u64::from(person), 1_780_000_000_000 + u64::from(person))),
            totals: ProfileTotals {
                pages: self.random.below(500),
                purchases: events.len() as u64,
                ..ProfileTotals::default()
            },
            attributes: &attributes,
            segments: &self.segments,
            expires: Some(HourStamp(NOW.0 / 60 + 1 + self.random.below(700) as u32)),
            events: &events,
            more_events: false,
            missing: MissingParts::NONE,
            actions: &[],
        };
        people.put(&row).context("the audience index is full")
    }
}

fn filter() -> Result<Filter> {
    let cities: Vec<String> = (0..10).map(|n| format!("city {n}")).collect();
    parsed(&json!({
        "attributes.a0": {"$in": cities}, "attributes.a1": {"$gte": 30}, "attributes.a2": false, "segments": SEGMENT,
        "events.purchase": {"$count": 0, "within": {"interval": 7, "unit": "days"}},
    }))
}

fn parsed(document: &serde_json::Value) -> Result<Filter> {
    let names = KINDS.iter().enumerate().map(|(n, kind)| (format!("a{n}"), *kind));
    let attributes = NameDictionary::from_entries(names.collect::<Vec<_>>()).context("no dictionary")?;
    let words = FilterWords {
        attributes: &attributes,
        vocabulary: &Vocabulary::default(),
        entities: &Entities::default(),
        answers: CountAnswerer::Audience,
    };
    parse(document, "filter", &words).map_err(|found| anyhow::anyhow!("{found:?}"))
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    if options.people > 0 {
        columns(options, json, stop)?;
    }
    if options.visitors > 0 {
        let live::Followed { rate, seen } = live::run(options.visitors, stop)?;
        let say = |case: &str, value, unit, bar| {
            report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit, peer: None, bar }, json);
        };
        say("facts taken in meanwhile", rate, "facts/s", Some(Bar::AtLeast(49_000.0)));
        let at = |share: f64| seen.get((seen.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
        say("a change is in the next count, median", at(0.5), "s", None);
        say(
            "a change is in the next count, the slowest",
            at(1.0 - 1.0 / seen.len() as f64),
            "s",
            Some(Bar::AtMost(1.0)),
        );
    }
    Ok(())
}

fn columns(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let before = memory()?;
    let (mut people, mut expected) = (AudienceIndex::laid_out_for(options.people.into()), 0);
    let mut expected_of_sample = 0;
    let sample = 2_500..2_600_u16;
    let start = Instant::now();
    for n in 0..options.people {
        if n % 100_000 == 0 {
            stop.check()?;
        }
        let someone = Someone::of(n);
        if someone.matches_filter() {
            expected += 1;
            expected_of_sample += u64::from(sample.contains(&someone.bucket));
        }
        someone.put(n, &mut people)?;
    }
    let built = f64::from(options.people) / start.elapsed().as_secs_f64();
    let (whole, all) = (options.people >= 10_000_000, 0..BUCKETS);
    let say = |case: &str, value: f64, unit: &'static str, peer: Option<(String, f64)>, bar: Option<Bar>| {
        report::print(
            &Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar: bar.filter(|_| whole) },
            json,
        );
    };
    say("people put into columns", built, "/s", None, None);
    say("memory resident", (memory()? - before) as f64 / 1e6, "MB", None, Some(Bar::AtMost(3_000.0)));
    let filter = filter()?;
    let peers = if options.alone { None } else { Some(peers::Peers::build(options.people, stop)?) };
    let (mut samples, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        stop.check()?;
        samples.push(timed(|| ask(&people, &filter, &sample, 1), expected_of_sample)?);
        counts.push(timed(|| ask(&people, &filter, &all, 2), expected)?);
    }
    let (sampled, counted) = (median(samples) * 1e3, median(counts) * 1e3);
    let cases = [("1 % sample, five conditions", sampled, 0.3), ("exact count, the same filter", counted, 15.0)];
    for (case, value, bar) in cases {
        say(case, value, "ms", None, Some(Bar::AtMost(bar)));
    }
    let streamed = stream(&people)?;
    say("members as NDJSON in a file", streamed, "/s", None, Some(Bar::AtLeast(1e6)));
    say("bytes of the columns' file", file_bytes(&people) as f64 / 1e6, "MB", None, None);
    if let Some(peers) = peers {
        let [sqlite, duckdb] = peers.ask(&sample, expected_of_sample, expected, options.rounds)?;
        for (name, [of_sample, of_all]) in [("SQLite", sqlite), ("DuckDB", duckdb)] {
            // SQLite has an index of exactly these conditions in the best order; the audience index counts any
            // condition.
            let bars =
                if name == "SQLite" { [Some(0.1), None] } else { [Some(1.0); 2] }.map(|bar| bar.map(Bar::AtMost));
            say(cases[0].0, sampled, "ms", Some((name.to_owned(), of_sample)), bars[0]);
            say(cases[1].0, counted, "ms", Some((name.to_owned(), of_all)), bars[1]);
        }
    }
    Ok(())
}

/// Counts the people who match the filter, on a number of threads.
fn ask(people: &AudienceIndex, filter: &Filter, buckets: &Range<u16>, threads: usize) -> Result<MatchedRows> {
    let asked = people.ask(filter, NOW);
    let partitions = people.partitions_of(buckets);
    let share = partitions.len().div_ceil(threads).max(1);
    let parts = partitions.clone().step_by(share).map(|from| from..(from + share).min(partitions.end));
    let count = |asked: &IndexQuery<'_>, part| asked.count(part, buckets, None);
    if threads == 1 {
        return Ok(count(&asked, partitions));
    }
    let asked = &asked;
    let found: Vec<MatchedRows> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || count(asked, part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let sum = |of: fn(&MatchedRows) -> u64| found.iter().map(of).sum();
    Ok(MatchedRows { people: sum(|one| one.people), sure: sum(|one| one.sure), ..MatchedRows::default() })
}

/// Members that are found and written as lines, per second; half of the people match.
fn stream(people: &AudienceIndex) -> Result<f64> {
    let filter = parsed(&json!({"attributes.a12": true}))?;
    let mut file = tempfile::tempfile()?;
    let start = Instant::now();
    let mut members = Vec::new();
    people.ask(&filter, NOW).each(0..people.partitions(), &(0..BUCKETS), |_, master, _| members.push(master));
    for some in members.chunks(2_000) {
        let text = some.iter().fold(String::new(), |text, member| MemberFormat::Ndjson.one(text, *member));
        file.write_all(text.as_bytes())?;
    }
    let seconds = start.elapsed().as_secs_f64();
    file.rewind()?;
    let lines = BufReader::new(file).split(b'\n').count();
    ensure!(lines == members.len() && lines as u64 > people.len() / 3, "{lines} lines of {} members", members.len());
    Ok(lines as f64 / seconds)
}

fn file_bytes(people: &AudienceIndex) -> usize {
    let mut used = UsedTexts::default();
    let partitions: usize = (0..people.partitions()).map(|at| people.pack_partition(at, &mut used).len()).sum();
    partitions + people.pack_names(&used).len()
}

fn timed(ask: impl Fn() -> Result<MatchedRows>, expected: u64) -> Result<f64> {
    let start = Instant::now();
    let found = ask()?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(found.sure == expected && found.unsure.is_empty(), "found {} people instead of {expected}", found.sure);
    Ok(seconds)
}

/// Resident memory of this process in bytes.
fn memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024)
}

/// A Python with DuckDB; `None` if it could not be installed.
fn python() -> Option<PathBuf> {
    std::env::var_os("CAUSEWAY_DUCKDB").map(PathBuf::from)
}
