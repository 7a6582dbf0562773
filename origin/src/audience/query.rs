//! What is asked of everybody: who a filter means, exactly, and how many they are by a sample.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::time::Duration;

use causeway_shared::audience::estimate::{Figure, Look, Moments, Next, Plan};
use causeway_shared::audience::index::{AudienceIndex, IndexQuery, MatchedRows, PeopleMeasure};
use causeway_shared::base::bucket::BUCKETS;
use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::AdLevel;
use causeway_shared::facts::attributes::ValueKind;
use causeway_shared::targeting::filter::{CountAnswerer, Filter, FilterWords, parse};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::audience::{Audience, person_row};
use crate::base::integers::signed;
use crate::campaigns::catalogue;
use crate::store::tenants::TenantContext;
use crate::store::{PersonNo, StoreError, TenantNo, names};

/// People of whom columns leave it to the store: more are not read for one question.
pub const UNSURE: usize = 200_000;
/// Half an interval's width, as a share of all people, where none is asked for: seed 4's.
pub const PRECISION: f64 = 0.002;
/// What can be summed up.
pub const MEASURES: &str =
    "revenue_micros, purchases, pages, sessions, devices, or attributes.NAME of a bool or an integer";
/// Threads that go through columns for one question.
const THREADS: usize = 4;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The columns are not there yet.
    #[error("the columns are being built: {done} of {all} people are in them; ask again in a while")]
    Building {
        /// People read so far.
        done: u64,
        /// People there are.
        all: u64,
    },
    /// Too many people would have to be read from the store for an event that is not counted.
    #[error(
        "audiences do not count the event `{0}`, and the store would have to be asked of {1} people, {UNSURE} at most: declare \
         it (`causeway events declare`), and ask again in a while"
    )]
    Uncounted(String, usize),
    /// No precision that can be asked for.
    #[error("the precision is half an interval's width as a share of all people, {} to {}", limits::PRECISION.start(), limits::PRECISION.end())]
    Precision,
    /// Too many people would have to be read from the store.
    #[error(
        "the store itself would have to be asked of {0} people, {UNSURE} at most: ask for events in all or at least once, \
         or narrow the filter"
    )]
    TooMany(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A filter of a tenant, from its document.
///
/// # Errors
/// Everything that is wrong with it, or the store.
pub fn parse_filter(
    conn: &Connection,
    tenant: &TenantContext,
    document: &Value,
) -> Result<Result<Filter, Vec<ConfigProblem>>, StoreError> {
    let (attributes, codes) = (names::load_dictionary(conn, tenant.no)?, catalogue::codes(conn, tenant.no)?);
    let entities = AdLevel::ALL.map(|level| {
        let of_level = codes.iter().filter(|((sort, _), _)| sort == level.name());
        of_level.map(|((_, id), code)| (id.as_str(), *code)).collect::<BTreeMap<&str, u32>>()
    });
    let vocabulary = &tenant.config.vocabulary;
    let words =
        FilterWords { attributes: &attributes, vocabulary, entities: &entities, answers: CountAnswerer::Audience };
    Ok(parse(document, "filter", &words))
}

/// A filter that was stored as text, or what is wrong with it now.
///
/// # Errors
/// [`StoreError`].
pub fn parse_stored(
    conn: &Connection,
    tenant: &TenantContext,
    text: &str,
) -> Result<Result<Filter, String>, StoreError> {
    let document = serde_json::from_str(text).unwrap_or_default();
    Ok(parse_filter(conn, tenant, &document)?.map_err(|found| all_wrong(&found)))
}

/// What is wrong with a filter, in one line.
#[must_use]
pub fn all_wrong(found: &[ConfigProblem]) -> String {
    let all: Vec<String> = found.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
    all.join("; ")
}

/// Who is meant for sure, by oldest visitors, and who the store is to be asked of.
#[derive(Debug, Default)]
pub struct MatchedPeople {
    /// Members.
    pub sure: Vec<VisitorId>,
    /// Perhaps members.
    pub unsure: Vec<PersonNo>,
    /// Up to when what was committed is in this.
    pub as_of: Millis,
}

/// How many are meant.
#[derive(Debug, Default)]
pub struct AudienceCount {
    /// How many people the tenant has.
    pub population: u64,
    /// How many of them were looked at.
    pub people: u64,
    /// How many of these are meant for sure.
    pub sure: u64,
    /// Perhaps members.
    pub unsure: Vec<PersonNo>,
    /// The measure's, over who is meant for sure.
    pub moments: Moments,
    /// Up to when what was committed is in this.
    pub as_of: Millis,
}

/// Counts who is meant, of some buckets, and sums up a measure over them.
///
/// # Errors
/// [`AnswerError`].
pub fn count_people(
    audience: &Audience,
    tenant: TenantNo,
    filter: &Filter,
    buckets: &Range<u16>,
    measure: Option<PeopleMeasure>,
    now: Millis,
) -> Result<AudienceCount, AnswerError> {
    let ask = |asked: &IndexQuery<'_>, parts| asked.count(parts, buckets, measure);
    let (population, as_of, uncounted, parts) = in_parts(audience, tenant, filter, buckets, now, ask)?;
    let mut all = AudienceCount { population, as_of, ..AudienceCount::default() };
    for MatchedRows { people, sure, unsure, moments } in parts {
        all.people += people;
        all.sure += sure;
        all.unsure.extend(unsure.into_iter().map(|person| PersonNo(signed(person))));
        all.moments = all.moments.plus(moments);
    }
    within_bounds(all.unsure.len(), uncounted).map(|()| all)
}

/// Finds who is meant, of some buckets.
///
/// # Errors
/// [`AnswerError`].
pub fn match_people(
    audience: &Audience,
    tenant: TenantNo,
    filter: &Filter,
    buckets: &Range<u16>,
    now: Millis,
) -> Result<MatchedPeople, AnswerError> {
    let (_, as_of, uncounted, parts) = in_parts(audience, tenant, filter, buckets, now, |asked, parts| {
        let mut some = MatchedPeople::default();
        asked.each(parts, buckets, |person, master, sure| match sure {
            true => some.sure.push(master),
            false => some.unsure.push(PersonNo(signed(person))),
        });
        some
    })?;
    let mut all = MatchedPeople { as_of, ..MatchedPeople::default() };
    for some in parts {
        all.sure.extend(some.sure);
        all.unsure.extend(some.unsure);
    }
    within_bounds(all.unsure.len(), uncounted).map(|()| all)
}

/// `uncounted` is an event of the filter that is not counted.
fn within_bounds(unsure: usize, uncounted: Option<String>) -> Result<(), AnswerError> {
    match uncounted {
        _ if unsure <= UNSURE => Ok(()),
        Some(name) => Err(AnswerError::Uncounted(name, unsure)),
        None => Err(AnswerError::TooMany(unsure)),
    }
}

/// How many people a tenant has, up to when what was committed is in that, an event of the filter that is not counted, and
/// the answer of each part.
type Parts<T> = (u64, Millis, Option<String>, Vec<T>);

/// Asks all partitions of some buckets, a thread for each share of them.
fn in_parts<T: Send>(
    audience: &Audience,
    tenant: TenantNo,
    filter: &Filter,
    buckets: &Range<u16>,
    now: Millis,
    ask: impl Fn(&IndexQuery<'_>, Range<usize>) -> T + Sync,
) -> Result<Parts<T>, AnswerError> {
    let columns = audience.read();
    let (done, all) = columns.building;
    let as_of = columns.as_of.ok_or(AnswerError::Building { done, all })?;
    let Some(people) = columns.of_tenant.get(&tenant) else { return Ok((0, as_of, None, Vec::new())) };
    let asked = people.ask(filter, Minute::at(now));
    let uncounted = people.uncounted_of(filter).map(str::to_owned);
    let partitions = people.partitions_of(buckets);
    let threads =
        std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS).min(partitions.len() / 8 + 1);
    let share = partitions.len().div_ceil(threads).max(1);
    let parts = partitions.clone().step_by(share).map(|from| from..(from + share).min(partitions.end));
    if threads == 1 {
        return Ok((people.len(), as_of, uncounted, parts.map(|part| ask(&asked, part)).collect()));
    }
    let (asked, ask) = (&asked, &ask);
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || ask(asked, part))).collect();
        // Without a share of them it would be another, smaller audience.
        let failed = |_| StoreError::Corrupt { what: "columns" };
        threads.into_iter().map(|thread| thread.join().map_err(failed)).collect::<Result<_, _>>()
    })?;
    Ok((people.len(), as_of, uncounted, answers))
}

/// People of whom columns were unsure, as the store decided.
#[derive(Debug, Default)]
pub struct StoreVerdicts {
    /// The members among them, by oldest visitors.
    pub members: Vec<VisitorId>,
    /// How many cannot be read, and so are no members.
    pub unreadable: u64,
}

/// Of some people those that the store says are meant. One that cannot be read is left out.
///
/// # Errors
/// [`StoreError`].
pub fn decide_unsure(
    conn: &Connection,
    filter: &Filter,
    people: &[PersonNo],
    now: Millis,
) -> Result<StoreVerdicts, StoreError> {
    let mut decided = StoreVerdicts::default();
    for person in people {
        if let Some(someone) = person_row::read_if_whole(conn, *person, &mut decided.unreadable)?
            && someone.is_meant(filter, now)
        {
            decided.members.push(someone.master);
        }
    }
    Ok(decided)
}

/// What is asked of a sample.
#[derive(Debug, Clone, Copy)]
pub struct SampleRequest {
    /// Half the width of the share's interval, as a share of all people, at which it ends.
    pub precision: f64,
    /// What is summed up and averaged.
    pub measure: Option<PeopleMeasure>,
    /// Which range of buckets is looked at: any number, drawn by chance.
    pub random: u64,
}

/// What a look at a sample says.
#[derive(Debug, Clone, Copy)]
pub struct SampleReport {
    /// The people looked at.
    pub look: Look,
    /// Their buckets.
    pub buckets: (u16, u16),
    /// The measure's, over those found.
    pub moments: Moments,
    /// Whether it is the last.
    pub is_last: bool,
    /// How many people of the tenant cannot be read: they are not among those looked at, or count as not found.
    pub unreadable: u64,
    /// Up to when what was committed is in this.
    pub as_of: Millis,
}

/// Looks at more and more people until it is known precisely enough how many are meant, and tells of each look.
///
/// # Errors
/// [`AnswerError`].
pub fn estimate_count(
    audience: &Audience,
    conn: &Connection,
    tenant: TenantNo,
    filter: &Filter,
    sampling: &SampleRequest,
    now: Millis,
    mut tell: impl FnMut(SampleReport),
) -> Result<(), AnswerError> {
    let population = audience.read().of_tenant.get(&tenant).map_or(0, AudienceIndex::len);
    let plan = Plan::new(population, sampling.precision).ok_or(AnswerError::Precision)?;
    let mut wanted = plan.first();
    // A sample that grows keeps whom it has: it begins where it began, or before.
    let mut from = u16::try_from(sampling.random % (u64::from(BUCKETS - wanted) + 1)).unwrap_or_default();
    loop {
        from = from.min(BUCKETS - wanted);
        let buckets = from..from + wanted;
        let AudienceCount { population, people, sure, unsure, mut moments, as_of } =
            count_people(audience, tenant, filter, &buckets, sampling.measure, now)?;
        let (mut found, mut unreadable) = (sure, audience.read().unreadable_of(tenant));
        for person in &unsure {
            let someone = person_row::read_if_whole(conn, *person, &mut unreadable)?;
            if let Some(someone) = someone.filter(|someone| someone.is_meant(filter, now)) {
                found += 1;
                sampling.measure.and_then(|of| someone.measure(of)).into_iter().for_each(|value| moments.add(value));
            }
        }
        let look = Look::new(population, people, found).ok_or(AnswerError::Precision)?;
        let next = plan.next(wanted, &look);
        let is_last = next == Next::Stop;
        tell(SampleReport { look, buckets: (from, from + wanted), moments, is_last, unreadable, as_of });
        match next {
            Next::Stop => return Ok(()),
            Next::Grow { buckets } => wanted = buckets,
        }
    }
}

/// How many are meant, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactCount {
    /// How many.
    pub count: u64,
    /// Of how many people of the tenant.
    pub population: u64,
    /// How many people of the tenant cannot be read: they are left out.
    pub unreadable: u64,
    /// Up to when what was committed is in this.
    pub as_of: Millis,
}

impl ExactCount {
    /// The JSON of an answer.
    #[must_use]
    pub fn to_json(self, took: Duration) -> Value {
        let Self { count, population, unreadable, as_of } = self;
        json!({ "count": count, "population": population, "unreadable": unreadable, "as_of_ms": as_of,
            "seconds": took.as_secs_f64() })
    }
}

/// Counts who is meant, exactly.
///
/// # Errors
/// [`AnswerError`].
pub fn count_exactly(
    audience: &Audience,
    conn: &Connection,
    tenant: TenantNo,
    filter: &Filter,
    now: Millis,
) -> Result<ExactCount, AnswerError> {
    let AudienceCount { population, sure, unsure, as_of, .. } =
        count_people(audience, tenant, filter, &(0..BUCKETS), None, now)?;
    let StoreVerdicts { members, unreadable } = decide_unsure(conn, filter, &unsure, now)?;
    let unreadable = unreadable + audience.read().unreadable_of(tenant);
    Ok(ExactCount { count: sure + members.len() as u64, population, unreadable, as_of })
}

/// Who is meant, exactly.
#[derive(Debug, Default)]
pub struct AllMembers {
    /// The members, by oldest visitors.
    pub members: Vec<VisitorId>,
    /// How many people of the tenant cannot be read: they are left out.
    pub unreadable: u64,
    /// Up to when what was committed is in this.
    pub as_of: Millis,
}

/// Finds who is meant, exactly.
///
/// # Errors
/// [`AnswerError`].
pub fn list_members(
    audience: &Audience,
    conn: &Connection,
    tenant: TenantNo,
    filter: &Filter,
    now: Millis,
) -> Result<AllMembers, AnswerError> {
    let MatchedPeople { sure: mut members, unsure, as_of } =
        match_people(audience, tenant, filter, &(0..BUCKETS), now)?;
    let decided = decide_unsure(conn, filter, &unsure, now)?;
    members.extend(decided.members);
    let unreadable = decided.unreadable + audience.read().unreadable_of(tenant);
    Ok(AllMembers { members, unreadable, as_of })
}

impl SampleReport {
    /// As it is told; `measure` is the name of what was summed up.
    #[must_use]
    pub fn to_json(&self, measure: Option<&str>, took: Duration) -> Value {
        let size = self.look.size();
        let figure = |figure: Option<Figure>| figure.map(|f| json!({ "value": f.value, "interval": [f.low, f.high] }));
        let mut told = json!({
            "estimate": size.people, "interval": [size.least, size.most],
            "share": size.share.value, "share_interval": [size.share.low, size.share.high],
            "confidence": 0.95, "precision": size.share.half_width(), "final": self.is_last,
            "sample_size": self.look.sampled(), "found": self.look.found(), "population": self.look.population(),
            "buckets": [self.buckets.0, self.buckets.1], "unreadable": self.unreadable, "as_of_ms": self.as_of, "seconds": took.as_secs_f64(),
        });
        if let (Some(name), Some(fields)) = (measure, told.as_object_mut()) {
            let (total, mean) = (self.look.total(&self.moments), self.look.mean(&self.moments));
            let measured = json!({ "name": name, "total": figure(total), "mean": figure(mean) });
            fields.insert("measure".to_owned(), measured);
        }
        told
    }
}

/// A measure by its name; `None` for what is none.
///
/// # Errors
/// [`StoreError`].
pub fn find_measure(conn: &Connection, tenant: TenantNo, name: &str) -> Result<Option<PeopleMeasure>, StoreError> {
    Ok(match name {
        "revenue_micros" => Some(PeopleMeasure::Revenue),
        "purchases" => Some(PeopleMeasure::Purchases),
        "pages" => Some(PeopleMeasure::Pages),
        "sessions" => Some(PeopleMeasure::Sessions),
        "devices" => Some(PeopleMeasure::Devices),
        _ => {
            let names = names::load_dictionary(conn, tenant)?;
            match name.strip_prefix("attributes.").and_then(|name| names.find(name)) {
                Some((token, ValueKind::Bool | ValueKind::Integer | ValueKind::Float)) => {
                    Some(PeopleMeasure::Attribute(token))
                }
                _ => None,
            }
        }
    })
}

/// In which form members are written, a line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberFormat {
    /// `{"person": …}`.
    Ndjson,
    /// One column, under its name.
    Csv,
}

impl MemberFormat {
    /// Their media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv",
        }
    }

    /// What stands before the first.
    #[must_use]
    pub fn head(self) -> &'static str {
        if self == Self::Csv { "person\n" } else { "" }
    }

    /// One more behind a text.
    #[must_use]
    pub fn one(self, mut text: String, member: VisitorId) -> String {
        let [before, behind] = if self == Self::Csv { ["", "\n"] } else { ["{\"person\":\"", "\"}\n"] };
        text.push_str(before);
        text.push_str(&member.to_string());
        text.push_str(behind);
        text
    }
}
