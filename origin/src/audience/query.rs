//! Queries over all people of a tenant: the people who match a filter, exactly, and their estimated number from a
//! sample.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;

use causeway_shared::audience::estimate::{Moments, Next, Plan, SampleResult};
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
use serde_json::Value;

use crate::audience::{Audience, person_row};
use crate::base::integers::signed;
use crate::campaigns::catalogue;
use crate::store::tenants::TenantContext;
use crate::store::{PersonNo, StoreError, TenantNo, names};

/// Most people that one query reads from the store because the index cannot decide whether they match.
pub const UNSURE: usize = 200_000;
/// Default precision of an estimate: half the width of the interval, as a share of all people.
pub const PRECISION: f64 = 0.002;
/// Names of the measures that can be summed, for messages to users.
pub const MEASURES: &str =
    "revenue_micros, purchases, pages, sessions, devices, or attributes.NAME of a bool or an integer";
/// Most threads that scan the index for one query.
const THREADS: usize = 4;

/// Reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The index is not ready.
    #[error("the audience index is being built: {done} of {all} people are in it; try again later")]
    Building {
        /// People read so far.
        done: u64,
        /// All people of the store.
        all: u64,
    },
    /// Too many people would be read from the store because the index does not count an event.
    #[error(
        "the audience index does not count the event `{0}`, and {1} people would have to be read from the store, {UNSURE} at most: declare \
         it (`causeway events declare`), and try again later"
    )]
    Uncounted(String, usize),
    /// The precision is out of range.
    #[error("invalid precision: expected half of the interval's width as a share of all people, {} to {}", limits::PRECISION.start(), limits::PRECISION.end())]
    Precision,
    /// Too many people would be read from the store.
    #[error(
        "{0} people would have to be read from the store, {UNSURE} at most: count events without a time window, ask for at least one event, \
         or narrow the filter"
    )]
    TooMany(usize),
    /// A bug ended a thread of the answer.
    #[error("a thread of the answer ended because of a bug: report the log of the origin")]
    Panicked,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Parses a tenant's filter from its JSON document.
///
/// # Errors
/// All problems of the document (inner error), or [`StoreError`].
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

/// Parses a filter that was stored as text. The inner error lists its problems under the current names.
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

/// The problems of a filter in one line.
#[must_use]
pub fn all_wrong(found: &[ConfigProblem]) -> String {
    let all: Vec<String> = found.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
    all.join("; ")
}

/// People that certainly match, by oldest visitors, and people that must be checked in the store.
#[derive(Debug, Default)]
pub struct MatchedPeople {
    /// Oldest visitors of the people that certainly match.
    pub sure: Vec<VisitorId>,
    /// People for whom the index cannot decide.
    pub unsure: Vec<PersonNo>,
    /// Time up to which committed changes are included.
    pub as_of: Millis,
}

/// Counts of the people that match.
#[derive(Debug, Default)]
pub struct AudienceCount {
    /// Number of the tenant's people.
    pub population: u64,
    /// Number of people in the scanned buckets.
    pub people: u64,
    /// Number of people that certainly match.
    pub sure: u64,
    /// People for whom the index cannot decide.
    pub unsure: Vec<PersonNo>,
    /// Moments of the measure over the people that certainly match.
    pub moments: Moments,
    /// Time up to which committed changes are included.
    pub as_of: Millis,
}

/// Counts the people of some buckets that match, and sums a measure over them.
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
    let ask = |query: &IndexQuery<'_>, parts| query.count(parts, buckets, measure);
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

/// Finds the people of some buckets that match.
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
    let (_, as_of, uncounted, parts) = in_parts(audience, tenant, filter, buckets, now, |query, parts| {
        let mut some = MatchedPeople::default();
        query.each(parts, buckets, |person, master, sure| match sure {
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

/// Refuses a query with too many undecided people. `uncounted` is an event of the filter that the index does not count.
fn within_bounds(unsure: usize, uncounted: Option<String>) -> Result<(), AnswerError> {
    match uncounted {
        _ if unsure <= UNSURE => Ok(()),
        Some(name) => Err(AnswerError::Uncounted(name, unsure)),
        None => Err(AnswerError::TooMany(unsure)),
    }
}

/// The tenant's number of people, the time of the index, an event of the filter that is not counted, and each thread's
/// answer.
type Parts<T> = (u64, Millis, Option<String>, Vec<T>);

/// Scans all partitions of some buckets, with one thread for each share of them.
fn in_parts<T: Send>(
    audience: &Audience,
    tenant: TenantNo,
    filter: &Filter,
    buckets: &Range<u16>,
    now: Millis,
    ask: impl Fn(&IndexQuery<'_>, Range<usize>) -> T + Sync,
) -> Result<Parts<T>, AnswerError> {
    let indexes = audience.read();
    let (done, all) = indexes.building;
    let as_of = indexes.as_of.ok_or(AnswerError::Building { done, all })?;
    let Some(people) = indexes.of_tenant.get(&tenant) else { return Ok((0, as_of, None, Vec::new())) };
    let query = people.ask(filter, Minute::at(now));
    let uncounted = people.uncounted_of(filter).map(str::to_owned);
    let partitions = people.partitions_of(buckets);
    let threads =
        std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS).min(partitions.len() / 8 + 1);
    let share = partitions.len().div_ceil(threads).max(1);
    let parts = partitions.clone().step_by(share).map(|from| from..(from + share).min(partitions.end));
    if threads == 1 {
        return Ok((people.len(), as_of, uncounted, parts.map(|part| ask(&query, part)).collect()));
    }
    let (query, ask) = (&query, &ask);
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || ask(query, part))).collect();
        // A missing share would silently make the audience smaller.
        threads.into_iter().map(|thread| thread.join().map_err(|_| AnswerError::Panicked)).collect::<Result<_, _>>()
    })?;
    Ok((people.len(), as_of, uncounted, answers))
}

/// The store's verdict on people for whom the index cannot decide.
#[derive(Debug, Default)]
pub struct StoreVerdicts {
    /// Oldest visitors of the people that match.
    pub members: Vec<VisitorId>,
    /// Number of people whose stored values cannot be read. They count as not matching.
    pub unreadable: u64,
}

/// Checks some people against the store. People whose stored values cannot be read are left out.
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
            && someone.matches_filter(filter, now)
        {
            decided.members.push(someone.master);
        }
    }
    Ok(decided)
}

/// Parameters of an estimate.
#[derive(Debug, Clone, Copy)]
pub struct SampleRequest {
    /// Precision at which sampling ends: half the width of the share's interval, as a share of all people.
    pub precision: f64,
    /// Measure to sum and average.
    pub measure: Option<PeopleMeasure>,
    /// Random number that places the sampled range of buckets.
    pub random: u64,
}

/// Result of one look at a sample.
#[derive(Debug, Clone, Copy)]
pub struct SampleReport {
    /// Counts of the sampled people.
    pub look: SampleResult,
    /// Range of the sampled buckets.
    pub buckets: (u16, u16),
    /// Moments of the measure over the people that match.
    pub moments: Moments,
    /// Whether this is the last look.
    pub is_last: bool,
    /// Number of the tenant's people whose stored values cannot be read. They are not sampled, or count as not
    /// matching.
    pub unreadable: u64,
    /// Time up to which committed changes are included.
    pub as_of: Millis,
}

/// Estimates how many people match a filter from a random sample that grows until the interval is narrow enough. Each
/// look is passed to `report`.
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
    mut report: impl FnMut(SampleReport),
) -> Result<(), AnswerError> {
    let population = audience.read().of_tenant.get(&tenant).map_or(0, AudienceIndex::len);
    let plan = Plan::new(population, sampling.precision).ok_or(AnswerError::Precision)?;
    let mut wanted = plan.first();
    // A larger sample contains the previous one: its range starts at the same bucket or earlier.
    let mut from = u16::try_from(sampling.random % (u64::from(BUCKETS - wanted) + 1)).unwrap_or_default();
    loop {
        from = from.min(BUCKETS - wanted);
        let buckets = from..from + wanted;
        let AudienceCount { population, people, sure, unsure, mut moments, as_of } =
            count_people(audience, tenant, filter, &buckets, sampling.measure, now)?;
        let (mut found, mut unreadable) = (sure, audience.read().unreadable_of(tenant));
        for person in &unsure {
            let someone = person_row::read_if_whole(conn, *person, &mut unreadable)?;
            if let Some(someone) = someone.filter(|someone| someone.matches_filter(filter, now)) {
                found += 1;
                sampling.measure.and_then(|of| someone.measure(of)).into_iter().for_each(|value| moments.add(value));
            }
        }
        let look = SampleResult::new(population, people, found).ok_or(AnswerError::Precision)?;
        let next = plan.next(wanted, &look);
        let is_last = next == Next::Stop;
        report(SampleReport { look, buckets: (from, from + wanted), moments, is_last, unreadable, as_of });
        match next {
            Next::Stop => return Ok(()),
            Next::Grow { buckets } => wanted = buckets,
        }
    }
}

/// Exact number of people that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactCount {
    /// Number of people that match.
    pub count: u64,
    /// Number of the tenant's people.
    pub population: u64,
    /// Number of the tenant's people that are left out because their stored values cannot be read.
    pub unreadable: u64,
    /// Time up to which committed changes are included.
    pub as_of: Millis,
}

/// Counts the people that match, exactly.
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

/// All people that match.
#[derive(Debug, Default)]
pub struct AllMembers {
    /// Oldest visitors of the members.
    pub members: Vec<VisitorId>,
    /// Number of the tenant's people that are left out because their stored values cannot be read.
    pub unreadable: u64,
    /// Time up to which committed changes are included.
    pub as_of: Millis,
}

/// Finds all people that match.
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

/// Finds a measure by its name; `None` if there is no measure of that name.
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

/// Format of a list of members, one line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberFormat {
    /// `{"person": …}` on each line.
    Ndjson,
    /// One column with a header line.
    Csv,
}

impl MemberFormat {
    /// Media type of the format.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv",
        }
    }

    /// Header before the first line.
    #[must_use]
    pub fn head(self) -> &'static str {
        if self == Self::Csv { "person\n" } else { "" }
    }

    /// Appends a member's line to a text.
    #[must_use]
    pub fn one(self, mut text: String, member: VisitorId) -> String {
        let [before, after] = if self == Self::Csv { ["", "\n"] } else { ["{\"person\":\"", "\"}\n"] };
        text.push_str(before);
        text.push_str(&member.to_string());
        text.push_str(after);
        text
    }
}
