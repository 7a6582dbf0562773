//! Reads of visitors, people and lookups, for KV values, the admin API and `causeway inspect`.

use causeway_shared::base::bucket::PersonRandom;
use causeway_shared::base::ids::{AlternateId, KindCode, Millis, SnapshotVersion, VisitorId};
use causeway_shared::base::time::{Day, Minute};
use causeway_shared::facts::actions::ActionList;
use causeway_shared::facts::attributes::{AttributeMap, NameDictionary};
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::exposures::Exposures;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::offer_codes::HeldOfferCodes;
use causeway_shared::facts::orders::find_repeats;
use causeway_shared::facts::segments::SegmentMap;
use causeway_shared::profiles::profile::{Profile, ProfileParts, ProfileTotals};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::base::integers::unsigned;
use crate::campaigns::{experiment, offers};
use crate::ingest::backlog::BacklogReader;
use crate::profiles::dedup::FactIdRows;
use crate::profiles::{buckets, parts};
use crate::store::tables::{evidence, lookups, people, visitors};
use crate::store::{
    CheckedBytes, PersonNo, StoreCounters, StoreError, TenantNo, VisitorRow, hash_at, names, visitor_at,
};

/// Source of reads: one snapshot of the store, and the facts that are not folded into it.
#[derive(Debug, Clone, Copy)]
pub struct StoreView<'a> {
    /// Connection to the store, within a transaction.
    pub conn: &'a Connection,
    unfolded: Option<(&'a BacklogReader, u64)>,
}

impl<'a> StoreView<'a> {
    /// The store without the backlog, as the folding thread sees it.
    #[must_use]
    pub fn folded(conn: &'a Connection) -> Self {
        Self { conn, unfolded: None }
    }

    /// The store's snapshot in this transaction, joined with the facts that `reader` holds beyond it.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn with_backlog(conn: &'a Connection, reader: &'a BacklogReader) -> Result<Self, StoreError> {
        let folded = StoreCounters::load(conn)?.folded();
        Ok(Self { conn, unfolded: Some((reader, folded)) })
    }

    /// A visitor's facts that are not in the store, each once.
    fn facts(&self, tenant: TenantNo, visitor: VisitorId, row: Option<VisitorRow>) -> Result<Vec<Fact>, StoreError> {
        let Some((reader, folded)) = self.unfolded else { return Ok(Vec::new()) };
        let mut facts = reader.facts(tenant, visitor, folded);
        if facts.is_empty() {
            return Ok(facts);
        }
        // An erased visitor has no facts. If an erasure is not folded, only the erasure counts.
        if crate::erasures::registry::is_erased(self.conn, tenant, visitor)? {
            return Ok(Vec::new());
        }
        if facts.iter().any(|fact| matches!(fact.what, FactKind::Erasure { .. })) {
            facts.retain(|fact| matches!(fact.what, FactKind::Erasure { .. }));
            facts.truncate(1);
        } else {
            let seen = row.map(|row| FactIdRows::load(self.conn, row)).transpose()?.unwrap_or_default();
            seen.retain_new(self.conn, &mut facts, |fact| fact)?;
        }
        Ok(facts)
    }
}

/// A visitor, joined with its facts in the backlog.
#[derive(Debug, Clone, PartialEq)]
pub struct VisitorView {
    /// Tenant of the visitor.
    pub tenant: TenantNo,
    /// Id of the visitor.
    pub visitor: VisitorId,
    /// Row in the store; `None` until a fact of the visitor is folded.
    pub row: Option<VisitorRow>,
    /// The visitor's person; `None` without a row.
    pub person: Option<PersonNo>,
    /// Weight of the link with its person.
    pub weight: EvidenceWeight,
    /// Sum of the visitor's facts. Its parts contain only unfolded facts: see [`load_actions`], [`load_segments`],
    /// [`load_events`].
    pub profile: Profile,
    /// Version of the folded facts.
    pub version: SnapshotVersion,
    /// Counter of the version under which the snapshot was last handed out; `None` before the first time.
    pub published: Option<u64>,
    /// Time at which the visitor withdrew its permission.
    pub withdrawn: Option<Millis>,
}

fn read_raw(row: &Row<'_>) -> rusqlite::Result<(VisitorView, Vec<u8>)> {
    let withdrawn: Option<i64> = row.get(8)?;
    let visitor = VisitorView {
        row: row.get(0)?,
        visitor: visitor_at(row, 1)?,
        tenant: TenantNo(row.get(2)?),
        person: Some(PersonNo(row.get(3)?)),
        weight: EvidenceWeight(row.get(9)?),
        profile: Profile::default(),
        version: SnapshotVersion { restore: row.get(5)?, counter: unsigned(row.get(6)?) },
        // The column holds 0 before the first snapshot.
        published: Some(unsigned(row.get(7)?)).filter(|counter| *counter > 0),
        withdrawn: withdrawn.map(unsigned),
    };
    Ok((visitor, row.get(4)?))
}

/// Decodes a visitor's profile and joins the visitor's unfolded facts.
fn join_backlog(view: &StoreView<'_>, (mut visitor, bytes): (VisitorView, Vec<u8>)) -> Result<VisitorView, StoreError> {
    visitor.profile = profile::decode_profile(visitor.visitor, &bytes)?;
    visitor.fold(&view.facts(visitor.tenant, visitor.visitor, visitor.row)?);
    Ok(visitor)
}

impl VisitorView {
    fn fold(&mut self, facts: &[Fact]) {
        for fact in facts {
            self.profile.fold(fact);
            if fact.what == FactKind::Withdrawal {
                self.withdrawn.get_or_insert(fact.received);
            }
            if matches!(fact.what, FactKind::Erasure { .. }) {
                // An erased visitor counts as one without a row, so that its stored parts are not read.
                (self.row, self.person, self.profile) = (None, None, Profile::default());
                self.withdrawn = Some(fact.received);
            }
        }
    }
}

/// Loads a visitor; `None` if no fact of it was received.
///
/// # Errors
/// [`StoreError`].
pub fn load_visitor(
    view: &StoreView<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Option<VisitorView>, StoreError> {
    let found = view
        .conn
        .prepare_cached(visitors::VISITORS_VIEW_OF_ID)?
        .query_row((tenant.0, visitor.as_bytes()), read_raw)
        .optional()?;
    if let Some(found) = found {
        return join_backlog(view, found).map(Some);
    }
    let facts = view.facts(tenant, visitor, None)?;
    let mut unfolded = VisitorView {
        tenant,
        visitor,
        row: None,
        person: None,
        weight: EvidenceWeight::LOGIN,
        profile: Profile::default(),
        version: SnapshotVersion::default(),
        published: None,
        withdrawn: None,
    };
    unfolded.fold(&facts);
    Ok((!facts.is_empty()).then_some(unfolded))
}

/// Loads the visitors of a visitor's person, the most recently active first, at most `most`.
///
/// # Errors
/// [`StoreError`].
pub fn load_members(view: &StoreView<'_>, of: &VisitorView, most: usize) -> Result<Vec<VisitorView>, StoreError> {
    let Some(person) = of.person else { return Ok(vec![of.clone()]) };
    let read = visitors::visitors_views_of_person(most);
    let mut statement = view.conn.prepare_cached(&read)?;
    let rows: Vec<(VisitorView, Vec<u8>)> = statement.query_map([person.0], read_raw)?.collect::<Result<_, _>>()?;
    rows.into_iter().map(|row| join_backlog(view, row)).collect()
}

/// Loads a visitor's segments.
///
/// # Errors
/// [`StoreError`].
pub fn load_segments(view: &StoreView<'_>, of: &VisitorView) -> Result<SegmentMap, StoreError> {
    Ok(stored_segments(view, of)?.join(of.profile.segments().clone()))
}

fn stored_segments(view: &StoreView<'_>, of: &VisitorView) -> Result<SegmentMap, StoreError> {
    let Some(row) = of.row else { return Ok(SegmentMap::default()) };
    let CheckedBytes(bytes) =
        view.conn.prepare_cached(visitors::VISITORS_SEGMENTS_OF_ROW)?.query_row([row], |row| row.get(0))?;
    Ok(profile::decode_segments(&bytes)?)
}

fn stored_attributes(view: &StoreView<'_>, of: &VisitorView) -> Result<AttributeMap, StoreError> {
    let Some(row) = of.row else { return Ok(AttributeMap::default()) };
    let CheckedBytes(bytes) =
        view.conn.prepare_cached(visitors::VISITORS_ATTRIBUTES_OF_ROW)?.query_row([row], |row| row.get(0))?;
    Ok(profile::decode_attributes(&bytes)?)
}

/// Loads a visitor's attributes. Unfolded facts may use names that are not recorded; these get their future tokens in
/// `names`, which is the caller's copy of the dictionary.
///
/// # Errors
/// [`StoreError`].
pub fn attribute_map(
    view: &StoreView<'_>,
    of: &VisitorView,
    names: &mut NameDictionary,
) -> Result<AttributeMap, StoreError> {
    let mut map = stored_attributes(view, of)?;
    for fact in view.facts(of.tenant, of.visitor, of.row)? {
        let (writes, _) = names::resolve_names(names, &fact, |_| true);
        writes.into_iter().for_each(|(token, value)| map.write(token, fact.stamp(), value));
    }
    Ok(map)
}

/// Loads a visitor's events by name.
///
/// # Errors
/// [`StoreError`].
pub fn load_events(view: &StoreView<'_>, of: &VisitorView) -> Result<VisitorEvents, StoreError> {
    Ok(stored_events(view, of)?.plus(of.profile.events().clone()))
}

fn stored_events(view: &StoreView<'_>, of: &VisitorView) -> Result<VisitorEvents, StoreError> {
    let Some(row) = of.row else { return Ok(VisitorEvents::default()) };
    let read = |row: &Row<'_>| Ok((row.get(0)?, unsigned(row.get(1)?)));
    let (CheckedBytes(bytes), last_seen): (CheckedBytes, Millis) =
        view.conn.prepare_cached(visitors::VISITORS_EVENTS_OF_ROW)?.query_row([row], read)?;
    parts::stored_events(&bytes, last_seen)
}

/// Packed actions of a visitor within a time range. Whole buckets are returned, so that some actions may be outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionParts {
    /// Packed lists of actions.
    pub parts: Vec<Vec<u8>>,
    /// Whether no action can be in two parts.
    pub disjoint: bool,
}

/// Loads a visitor's packed actions from one minute until before another.
///
/// # Errors
/// [`StoreError`].
pub fn load_actions(
    view: &StoreView<'_>,
    of: &VisitorView,
    from: Minute,
    to: Minute,
) -> Result<ActionParts, StoreError> {
    let mut parts = match of.row {
        Some(row) => buckets::actions_within(view.conn, row, from, to)?,
        None => Vec::new(),
    };
    let disjoint = of.profile.actions().is_empty();
    if !disjoint {
        parts.push(of.profile.actions().pack_actions());
    }
    Ok(ActionParts { parts, disjoint })
}

/// Loads a visitor's whole profile, with the actions since a day.
///
/// # Errors
/// [`StoreError`].
pub fn whole(view: &StoreView<'_>, of: &VisitorView, since: Day) -> Result<Profile, StoreError> {
    let parts = load_actions(view, of, since.start(), Minute(u32::MAX))?.parts;
    let mut stored = ActionList::default();
    for part in &parts {
        buckets::packed_actions(part)?.iter().for_each(|action| stored.insert(action));
    }
    Ok(of.profile.clone().with_parts(ProfileParts {
        actions: stored,
        segments: stored_segments(view, of)?,
        attributes: stored_attributes(view, of)?,
        exposures: of
            .row
            .map(|row| crate::profiles::exposures::load_exposures(view.conn, row))
            .transpose()?
            .unwrap_or_default(),
        offer_codes: of
            .row
            .map(|row| crate::profiles::offer_codes::of_visitor(view.conn, row))
            .transpose()?
            .unwrap_or_default(),
        events: stored_events(view, of)?,
    }))
}

/// A person with the sums over its visitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonSums {
    /// The oldest visitor.
    pub master: VisitorId,
    /// Number of visitors.
    pub devices: u32,
    /// Visitors that were read, the oldest first.
    pub members: Vec<VisitorId>,
    /// Whether the person has more visitors than were read.
    pub truncated: bool,
    /// Sums over the visitors that were read. An order counts once.
    pub view: ProfileTotals,
    /// First exposure of the person in each experiment.
    pub exposures: Exposures,
    /// First offer code of the person in each campaign.
    pub offer_codes: HeldOfferCodes,
    /// Random bits of the person's buckets; `None` until the person is folded.
    pub random: Option<PersonRandom>,
}

impl PersonSums {
    fn add(&mut self, member: &VisitorView) {
        self.view = self.view.plus(member.profile.totals());
        self.exposures = std::mem::take(&mut self.exposures).join(member.profile.exposures().clone());
        self.offer_codes = std::mem::take(&mut self.offer_codes).join(member.profile.offer_codes().clone());
        self.members.push(member.visitor);
    }
}

/// Loads a visitor's person. At most `most` of the most recently active visitors are read, and always the visitor
/// itself.
///
/// # Errors
/// [`StoreError`].
pub fn load_person(view: &StoreView<'_>, of: &VisitorView, most: usize) -> Result<PersonSums, StoreError> {
    let alone = PersonSums {
        master: of.visitor,
        devices: 1,
        members: vec![of.visitor],
        truncated: false,
        view: of.profile.totals(),
        exposures: of.profile.exposures().clone(),
        offer_codes: of.profile.offer_codes().clone(),
        random: None,
    };
    let Some(person) = of.person else { return Ok(alone) };
    let mut statement = view.conn.prepare_cached(people::PEOPLE_MASTER_DEVICES_AND_RANDOM)?;
    let row = statement.query_row([person.0], |row| Ok((visitor_at(row, 0)?, row.get(1)?, row.get(2)?))).optional()?;
    let (master, devices, random): (_, u32, _) = row.ok_or(StoreError::Corrupt { what: "visitor without a person" })?;
    let (exposures, offer_codes) = (experiment::of_person(view.conn, person)?, offers::of_person(view.conn, person)?);
    let (members, view_of, random) = (Vec::new(), ProfileTotals::default(), Some(PersonRandom(random)));
    let truncated = devices as usize > most;
    let mut found = PersonSums { master, devices, members, truncated, view: view_of, exposures, offer_codes, random };
    let read = visitors::visitors_views_of_person(most);
    let mut statement = view.conn.prepare_cached(&read)?;
    let mut rows = statement.query([person.0])?;
    let mut orders = Vec::new();
    while let Some(row) = rows.next()? {
        let member = join_backlog(view, read_raw(row)?)?;
        orders.push(member.profile.orders().clone());
        found.add(&member);
    }
    // The visitor may be less active than the `most` others.
    if !found.members.contains(&of.visitor) {
        orders.push(of.profile.orders().clone());
        found.add(of);
    }
    found.view = found.view.without(find_repeats(&orders).iter().map(|(_, repeat)| repeat));
    found.members.sort_unstable();
    Ok(found)
}

/// A lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupView {
    /// The canonical id.
    pub id: AlternateId,
    /// The visitors last seen with the id, the newest first.
    pub visitors: Vec<VisitorId>,
    /// Receipt of the fact that made the first visitor the newest, in milliseconds since 1970.
    pub since: Millis,
}

/// Loads the lookup of a canonical id; `None` if the id was never seen.
///
/// # Errors
/// [`StoreError`].
pub fn load_lookup(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Option<LookupView>, StoreError> {
    let KindCode(kind) = id.kind;
    let found: Option<(Vec<u8>, i64)> = conn
        .prepare_cached(lookups::LOOKUPS_OF_ID)?
        .query_row((tenant.0, kind, &id.hash.0), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((bytes, since)) = found else {
        return Ok(None);
    };
    let (chunks, []) = bytes.as_chunks::<16>() else { return Err(StoreError::Corrupt { what: "lookup" }) };
    let visitors: Result<Vec<VisitorId>, _> = chunks.iter().map(|c| VisitorId::from_bytes(*c)).collect();
    let visitors = visitors.map_err(|_| StoreError::Corrupt { what: "lookup" })?;
    // A flipped bit in an id names a visitor that the store does not have.
    for visitor in &visitors {
        if !conn.prepare_cached(visitors::VISITORS_HAS)?.exists((tenant.0, visitor.as_bytes()))? {
            return Err(StoreError::Corrupt { what: "lookup: it names a visitor that the store does not have" });
        }
    }
    Ok(Some(LookupView { id, visitors, since: unsigned(since) }))
}

/// The ids whose lookup names this visitor first.
///
/// # Errors
/// [`StoreError`].
pub fn lookups_of(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Vec<AlternateId>, StoreError> {
    let mut statement = conn.prepare_cached(evidence::EVIDENCE_LOOKUPS_LED_BY_VISITOR)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| {
        Ok(AlternateId { kind: KindCode(row.get(0)?), hash: hash_at(row, 1)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use rusqlite::trace::{TraceEvent, TraceEventCodes};

    use causeway_shared::facts::fact::ErasureScope;

    use super::*;
    use crate::testing::{NOW, Origin, fact, impression, page, visitor};

    thread_local! {
        static RUN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    fn note(event: TraceEvent<'_>) {
        if let TraceEvent::Stmt(_, sql) = event {
            RUN.with_borrow_mut(|run| run.insert(sql.to_owned()));
        }
    }

    /// Query plan steps of all statements that ran, except inserts.
    fn plans(conn: &Connection) -> Vec<(String, String)> {
        conn.trace_v2(TraceEventCodes::empty(), None);
        let run = RUN.with_borrow_mut(std::mem::take);
        let reads =
            |sql: &&String| ["SELECT", "UPDATE", "DELETE"].iter().any(|word| sql.trim_start().starts_with(word));
        let mut plans = Vec::new();
        for sql in run.iter().filter(reads) {
            let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            // Parameters stay null, because the plan does not depend on them.
            let mut steps = explain.raw_query();
            while let Some(step) = steps.next().unwrap() {
                plans.push((step.get(3).unwrap(), sql.clone()));
            }
        }
        plans
    }

    #[test]
    fn no_read_or_write_of_a_visitor_scans_a_table() {
        let mut origin = Origin::new();
        let writes = vec![("vip".to_owned(), Some(causeway_shared::facts::attributes::AttributeValue::Bool(true)))];
        let facts = |v: u32| {
            let of = visitor(v);
            [
                page(of, 1, NOW),
                impression(of, 2, NOW),
                fact(of, 3, NOW, FactKind::Attributes { writes: writes.clone() }),
            ]
        };
        origin.send("demo", &facts(1));
        origin.conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
        let login = |origin: &Origin, v: u32| origin.login(visitor(v), 9, NOW, "ann");
        let second: Vec<Fact> = facts(2).into_iter().chain([login(&origin, 1), login(&origin, 2)]).collect();
        origin.send("demo", &second);
        let writes = origin.drain(100);
        origin.acknowledge(&writes);
        let view = StoreView::folded(&origin.conn);
        let own = super::load_visitor(&view, origin.tenant("demo").no, visitor(1)).unwrap().unwrap();
        assert_eq!(load_members(&view, &own, 10).unwrap().len(), 2);
        whole(&view, &own, Day(0)).unwrap();
        load_person(&view, &own, 10).unwrap();
        crate::testing::as_json(
            crate::views::describe::describe_visitor(&view, origin.tenant("demo"), visitor(1)).unwrap().unwrap(),
        );
        let gone = FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() };
        origin.admin("demo", &[fact(visitor(2), 10, NOW, gone)]);
        let writes = origin.drain(100);
        origin.acknowledge(&writes);
        let plans = plans(&origin.conn);
        assert!(plans.len() > 40, "{}", plans.len());
        // Without statistics SQLite assumes ten rows for a tenant. For tables that grow with people, a search by tenant
        // alone is a scan.
        let large =
            ["evidence", "cancellations", "erasure_keys", "visitors", "lookups", "people", "outbox", "fact_ids"];
        for (step, sql) in &plans {
            let all = large.iter().any(|table| step.starts_with(&format!("SEARCH {table} ")));
            assert!(!(all && step.ends_with("(tenant=?)")), "{step}: {sql}");
        }
        // Tables with one row or one for each tenant; tables that are empty in a healthy store; due rows, by index and
        // with a limit; rows of a subquery.
        let small = [
            "SCAN meta",
            "SCAN sqlite_sequence",
            "SCAN catalogue_current",
            "SCAN unreadable",
            "SCAN audiences",
            "SCAN CONSTANT ROW",
            "SCAN v",
            "SCAN (subquery",
        ];
        for (step, sql) in plans.iter().filter(|(step, _)| step.starts_with("SCAN")) {
            let by_due = step.contains("USING INDEX") || step.contains("USING COVERING INDEX");
            assert!(by_due || small.iter().any(|one| step.starts_with(one)), "{step}: {sql}");
        }
    }
}
