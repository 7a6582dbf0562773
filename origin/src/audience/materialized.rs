//! Audiences that are kept as segments: whoever a filter means is in the segment, and who is meant no more leaves it. What was
//! written is a row a member; a refresh writes the differences alone, and they alone are published.
//!
//! A member is written by its oldest visitor, with an expiry: should refreshes stop, the segment ends by itself. It is written
//! anew when less than half of its time is left, and so are others of a person who were written before they became one.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HOUR_MS, HourStamp};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::targeting::filter::Filter;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior};
use serde_json::{Value, json};

use crate::audience::query;
use crate::base::integers::{signed, unsigned};
use crate::store::names::events::{self, EventNameError};
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{StoreError, TenantNo, visitor_at};
use crate::views::read::{self, StoreView};
use crate::views::segments;

/// Rows and members compared at once: what differs of them is one transaction.
const PAGE: usize = 500;
/// Due at another time, where nobody changed it.
const DUE: &str = "UPDATE audiences SET due = ?3 WHERE tenant = ?1 AND segment = ?2 AND filter IS ?4 AND due IS ?5";

/// An audience that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaterializedAudience {
    /// Whose people.
    pub tenant: TenantNo,
    /// As which segment.
    pub segment: SegmentId,
    /// Whom it means, as JSON; `None` for nobody any more.
    pub filter: Option<String>,
    /// For how many hours a member is in the segment, from each write of it.
    pub hours: u32,
    /// How often it is refreshed; 0: when somebody asks.
    pub every_hours: u32,
    /// From when on it is to be refreshed.
    pub due: Option<Millis>,
    /// When it last was.
    pub refreshed: Option<Millis>,
    /// How many were in it then.
    pub members: u64,
}

/// Why an audience is not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// For how long.
    #[error("a member is in the segment for 1 to {} hours", limits::AUDIENCE_HOURS)]
    Hours,
    /// How often.
    #[error(
        "it is refreshed every 1 to {0} hours, at least twice while a member is in the segment, or 0 for when somebody asks"
    )]
    Every(u32),
    /// A segment of whom is in it.
    #[error("the filter asks for segment {} itself: whoever is in it would stay", .0.0)]
    Itself(SegmentId),
    /// A segment of whom asks for this one.
    #[error("the filter asks for segments that lead to segment {}, which asks for this one: whoever is in them would stay", .0.0)]
    Circle(SegmentId),
    /// Too many.
    #[error("a tenant keeps {} audiences at most: drop one", limits::AUDIENCES)]
    TooMany,
    /// Events of the filter cannot be counted.
    #[error(transparent)]
    Events(EventNameError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EventNameError> for KeepError {
    fn from(e: EventNameError) -> Self {
        match e {
            EventNameError::Store(e) => Self::Store(e),
            e => Self::Events(e),
        }
    }
}

impl From<rusqlite::Error> for KeepError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

impl MaterializedAudience {
    /// What is to be kept, from now on.
    ///
    /// # Errors
    /// [`KeepError`], but no failure of the store.
    pub fn new(
        (tenant, segment): (TenantNo, SegmentId),
        (filter, document): (&Filter, &Value),
        (hours, every_hours): (u32, u32),
        now: Millis,
    ) -> Result<Self, KeepError> {
        if !(1..=limits::AUDIENCE_HOURS).contains(&hours) {
            return Err(KeepError::Hours);
        }
        if every_hours > hours / 2 {
            return Err(KeepError::Every(hours / 2));
        }
        if filter.asks_segment(segment) {
            return Err(KeepError::Itself(segment));
        }
        let filter = Some(document.to_string());
        Ok(Self { tenant, segment, filter, hours, every_hours, due: Some(now), refreshed: None, members: 0 })
    }

    /// Whether it is to be refreshed. One that a clock put further off than it ever waits is, now that the clock is right.
    #[must_use]
    pub fn is_due(&self, now: Millis) -> bool {
        let longest = (u64::from(self.every_hours) + 1) * HOUR_MS;
        self.due.is_some_and(|due| due <= now || due > now.saturating_add(longest))
    }

    /// Keeps it from now on, in the place of what its tenant kept as this segment.
    ///
    /// # Errors
    /// [`KeepError::TooMany`], [`KeepError::Circle`], and the store's.
    pub fn keep(&self, conn: &Connection, tenant: &TenantContext) -> Result<(), KeepError> {
        const COUNT: &str = "SELECT count(*) FROM audiences WHERE tenant = ?1 AND segment <> ?2";
        const KEEP: &str =
            "INSERT INTO audiences (tenant, segment, filter, hours, every_hours, due, members) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
            ON CONFLICT DO UPDATE SET filter = ?3, hours = ?4, every_hours = ?5, due = ?6";
        // One caller at a time: two could each be sound alone.
        let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
        let place = (self.tenant.0, self.segment.0);
        let others: i64 = tx.prepare_cached(COUNT)?.query_row(place, |row| row.get(0))?;
        if unsigned(others) >= limits::AUDIENCES as u64 {
            return Err(KeepError::TooMany);
        }
        self.refuse_circle(&tx, tenant)?;
        let filter = self.filter.as_ref().map(|text| query::parse_stored(&tx, tenant, text)).transpose()?;
        if let (Some(Ok(filter)), Some(now)) = (filter, self.due) {
            events::declare_of(&tx, self.tenant, &filter, now)?;
        }
        let due = self.due.map(signed);
        let values = (self.tenant.0, self.segment.0, &self.filter, self.hours, self.every_hours, due);
        tx.prepare_cached(KEEP)?.execute(values)?;
        Ok(tx.commit()?)
    }

    fn refuse_circle(&self, conn: &Connection, tenant: &TenantContext) -> Result<(), KeepError> {
        let others = list_audiences(conn, Some(self.tenant))?;
        let (mut reached, mut next) = (BTreeSet::new(), vec![self]);
        while let Some(kept) = next.pop() {
            let Some(Ok(filter)) =
                kept.filter.as_ref().map(|text| query::parse_stored(conn, tenant, text)).transpose()?
            else {
                continue;
            };
            if kept.segment != self.segment && filter.asks_segment(self.segment) {
                return Err(KeepError::Circle(kept.segment));
            }
            let asked =
                others.iter().filter(|other| other.segment != self.segment && filter.asks_segment(other.segment));
            next.extend(asked.filter(|other| reached.insert(other.segment)));
        }
        Ok(())
    }

    /// When a refresh writes: later than the one before, whatever the clock says.
    fn moment(&self, now: Millis) -> Millis {
        now.max(self.refreshed.map_or(0, |before| before + 1))
    }

    /// Lets it go: with its next refresh, due now, all members leave. Whether there is one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn drop(conn: &Connection, tenant: TenantNo, segment: SegmentId, now: Millis) -> Result<bool, StoreError> {
        const DROP: &str = "UPDATE audiences SET filter = NULL, due = ?3 WHERE tenant = ?1 AND segment = ?2";
        Ok(conn.prepare_cached(DROP)?.execute((tenant.0, segment.0, signed(now)))? > 0)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(unsigned));
        Ok(Self {
            tenant: TenantNo(row.get(0)?),
            segment: SegmentId(row.get(1)?),
            filter: row.get(2)?,
            hours: row.get(3)?,
            every_hours: row.get(4)?,
            due: time(5)?,
            refreshed: time(6)?,
            members: row.get(7).map(unsigned)?,
        })
    }

    /// As callers and commands are told.
    #[must_use]
    pub fn told(&self, tenants: &Tenants) -> Value {
        let tenant = tenants.by_no(self.tenant).ok().map(|known| known.config.name.clone());
        let filter: Option<Value> = self.filter.as_ref().and_then(|text| serde_json::from_str(text).ok());
        json!({
            "tenant": tenant, "segment": self.segment.0, "filter": filter, "hours": self.hours,
            "every_hours": self.every_hours, "due_ms": self.due, "refreshed_ms": self.refreshed, "members": self.members,
        })
    }
}

/// The audiences of a tenant, or of all.
///
/// # Errors
/// [`StoreError`].
pub fn list_audiences(conn: &Connection, tenant: Option<TenantNo>) -> Result<Vec<MaterializedAudience>, StoreError> {
    const READ: &str = "SELECT tenant, segment, filter, hours, every_hours, due, refreshed, members FROM audiences
        WHERE ?1 IS NULL OR tenant = ?1 ORDER BY tenant, segment";
    let mut statement = conn.prepare_cached(READ)?;
    let all = statement.query_map([tenant.map(|no| no.0)], MaterializedAudience::read)?.collect::<Result<_, _>>()?;
    Ok(all)
}

/// The people of an audience, each by its oldest visitor, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AudiencePeople {
    members: Vec<VisitorId>,
    holders: Vec<VisitorId>,
    strangers: Vec<VisitorId>,
}

impl AudiencePeople {
    /// Of the people who match the filter, and the people who are in the segment now.
    #[must_use]
    pub fn new(mut members: Vec<VisitorId>, mut holders: Vec<VisitorId>) -> Self {
        members.sort_unstable();
        holders.sort_unstable();
        let strangers = holders.iter().filter(|held| members.binary_search(held).is_err()).copied().collect();
        Self { members, holders, strangers }
    }

    /// How many match the filter.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members.len() as u64
    }
}

/// Up to a page of sorted visitors after one.
fn next_of(all: &[VisitorId], after: Option<VisitorId>) -> Vec<VisitorId> {
    let first = all.partition_point(|visitor| after.is_some_and(|after| *visitor <= after));
    all.iter().skip(first).take(PAGE).copied().collect()
}

/// Whether a visitor's person is in a segment, as the store has it: what says who is in it may lag behind.
fn is_held(
    conn: &Connection,
    kept: &MaterializedAudience,
    visitor: VisitorId,
    now: Millis,
) -> Result<bool, StoreError> {
    let view = StoreView::folded(conn);
    let Some(own) = read::load_visitor(&view, kept.tenant, visitor)? else { return Ok(false) };
    let segments = segments::of_person(&view, &own, limits::PERSON_VISITORS)?;
    Ok(segments.get(kept.segment).is_some_and(|(expiry, _)| expiry > HourStamp::at(now)))
}

/// A member that is to be written: held up to an hour, or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberChange {
    visitor: VisitorId,
    until: Option<HourStamp>,
}

/// What differs among some members and rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComparedPage {
    /// What is to be written.
    pub changes: Vec<MemberChange>,
    /// Who was not in it.
    pub added: u64,
    /// Who is meant no more.
    pub removed: u64,
    /// Whose time was half over.
    pub renewed: u64,
    /// Members looked at.
    pub members: u64,
    /// The last visitor looked at; `None` behind all of them.
    pub last: Option<VisitorId>,
}

/// What differs between the people who match and what was written, after a visitor; and where others wrote the segment:
/// a member who is not in it comes back, and a stranger who is leaves.
///
/// # Errors
/// [`StoreError`].
pub fn compare_page(
    conn: &Connection,
    kept: &MaterializedAudience,
    people: &AudiencePeople,
    after: Option<VisitorId>,
    now: Millis,
) -> Result<ComparedPage, StoreError> {
    const READ: &str = "SELECT visitor, until FROM audience_members
        WHERE tenant = ?1 AND segment = ?2 AND visitor > ?3 ORDER BY visitor LIMIT ?4";
    let from = after.as_ref().map_or(&[][..], |visitor| visitor.as_bytes());
    let mut statement = conn.prepare_cached(READ)?;
    let rows = statement.query_map((kept.tenant.0, kept.segment.0, from, PAGE as i64), |row| {
        Ok((visitor_at(row, 0)?, HourStamp(row.get(1)?)))
    })?;
    let rows: Vec<(VisitorId, HourStamp)> = rows.collect::<Result<_, _>>()?;
    let members = &people.members;
    let (next, strangers) = (next_of(members, after), next_of(&people.strangers, after));
    // Up to where all are known.
    let ends = [
        (rows.len() == PAGE).then(|| rows.last().map(|(visitor, _)| *visitor)),
        (next.len() == PAGE).then(|| next.last().copied()),
        (strangers.len() == PAGE).then(|| strangers.last().copied()),
    ];
    let last = ends.into_iter().flatten().flatten().min();
    let is_within = |visitor: &VisitorId| last.is_none_or(|last| *visitor <= last);
    let mut page = ComparedPage { last, ..ComparedPage::default() };
    for visitor in strangers.into_iter().filter(is_within) {
        let is_written = rows.binary_search_by_key(&visitor, |(visitor, _)| *visitor).is_ok();
        if !is_written && is_held(conn, kept, visitor, now)? {
            page.removed += 1;
            page.changes.push(MemberChange { visitor, until: None });
        }
    }
    let (mut rows, mut next) = (rows.into_iter().peekable(), next.into_iter().filter(is_within).peekable());
    let until = HourStamp::at(now.saturating_add(u64::from(kept.hours) * HOUR_MS + HOUR_MS - 1));
    // An expiry is up to an hour later than it was asked for: that hour does not put off its renewal.
    let half = HourStamp(HourStamp::at(now).0 + kept.hours.div_ceil(2) + 1);
    loop {
        let order = match (rows.peek().filter(|(visitor, _)| is_within(visitor)), next.peek()) {
            (None, None) => return Ok(page),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((visitor, _)), Some(member)) => visitor.cmp(member),
        };
        let row = if order == Ordering::Greater { None } else { rows.next() };
        let member = if order == Ordering::Less { None } else { next.next() };
        page.members += u64::from(member.is_some());
        let change = match (row, member) {
            (Some((visitor, held)), member) => {
                let person = if member.is_some() { member } else { member_of(conn, kept, visitor, members)? };
                let is_meant = person.is_some();
                let is_missing = person.is_some_and(|person| people.holders.binary_search(&person).is_err());
                match is_meant {
                    true if held > half && is_missing && !is_held(conn, kept, visitor, now)? => page.added += 1,
                    true if held > half => continue,
                    true => page.renewed += 1,
                    false => page.removed += 1,
                }
                MemberChange { visitor, until: is_meant.then_some(until) }
            }
            (None, member) => {
                page.added += 1;
                let Some(visitor) = member else { continue };
                MemberChange { visitor, until: Some(until) }
            }
        };
        page.changes.push(change);
    }
}

/// The member that a visitor became one person with. A removal of the visitor would be the person's.
fn member_of(
    conn: &Connection,
    kept: &MaterializedAudience,
    visitor: VisitorId,
    members: &[VisitorId],
) -> Result<Option<VisitorId>, StoreError> {
    const MASTER: &str = "SELECT p.master FROM visitors v JOIN people p ON p.person = v.person
        WHERE v.tenant = ?1 AND v.visitor = ?2";
    let place = (kept.tenant.0, visitor.as_bytes());
    let master = conn.prepare_cached(MASTER)?.query_row(place, |row| visitor_at(row, 0)).optional()?;
    Ok(master.filter(|master| members.binary_search(master).is_ok()))
}

/// The facts that changes come to. They are later than any of the refresh before, whatever the clock says.
#[must_use]
pub fn change_facts(kept: &MaterializedAudience, changes: &[MemberChange], now: Millis) -> Vec<Fact> {
    let at = kept.moment(now);
    let name = format!("audience {} {at}", kept.segment.0);
    let fact = |change: &MemberChange| {
        let state = change.until.map_or(SegmentState::Removed, |until| SegmentState::held(until, []));
        let id = FactId::of_job(change.visitor, &name);
        Fact {
            position: 0,
            id,
            visitor: change.visitor,
            received: at,
            at,
            what: FactKind::Segments { writes: vec![(kept.segment, state)] },
        }
    };
    changes.iter().map(fact).collect()
}

/// Notes what was written, but of nobody who was erased meanwhile; in the transaction of the facts.
///
/// # Errors
/// [`StoreError`].
pub fn note_changes(tx: &Connection, kept: &MaterializedAudience, changes: &[MemberChange]) -> Result<(), StoreError> {
    const HOLD: &str = "INSERT OR REPLACE INTO audience_members (tenant, segment, visitor, until)
        SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM erased WHERE tenant = ?1 AND visitor = ?3)";
    const LEAVE: &str = "DELETE FROM audience_members WHERE tenant = ?1 AND segment = ?2 AND visitor = ?3";
    let (tenant, segment) = (kept.tenant.0, kept.segment.0);
    for MemberChange { visitor, until } in changes {
        let visitor = visitor.as_bytes();
        match until {
            Some(until) => tx.prepare_cached(HOLD)?.execute((tenant, segment, visitor, until.0))?,
            None => tx.prepare_cached(LEAVE)?.execute((tenant, segment, visitor))?,
        };
    }
    Ok(())
}

/// A refresh that began at `began` is over, and wrote until `ended`: it is due again, or gone where nobody is meant any more.
/// One that was changed meanwhile stays due.
///
/// # Errors
/// [`StoreError`].
pub fn note_refreshed(
    conn: &Connection,
    kept: &MaterializedAudience,
    members: u64,
    (began, ended): (Millis, Millis),
) -> Result<(), StoreError> {
    const GONE: &str = "DELETE FROM audiences WHERE tenant = ?1 AND segment = ?2 AND filter IS NULL";
    const DONE: &str = "UPDATE audiences SET refreshed = ?3, members = ?4 WHERE tenant = ?1 AND segment = ?2";
    let (tenant, segment) = (kept.tenant.0, kept.segment.0);
    if kept.filter.is_none() {
        conn.prepare_cached(GONE)?.execute((tenant, segment))?;
        return Ok(());
    }
    let due = (kept.every_hours > 0).then(|| signed(began + u64::from(kept.every_hours) * HOUR_MS));
    conn.prepare_cached(DONE)?.execute((tenant, segment, signed(kept.moment(ended)), signed(members)))?;
    conn.prepare_cached(DUE)?.execute((tenant, segment, due, &kept.filter, kept.due.map(signed)))?;
    Ok(())
}

/// A refresh that could not be is tried again an hour later. One that was changed meanwhile stays due.
///
/// # Errors
/// [`StoreError`].
pub fn postpone_refresh(conn: &Connection, kept: &MaterializedAudience, now: Millis) -> Result<(), StoreError> {
    let at = Some(signed(now.saturating_add(HOUR_MS)));
    conn.prepare_cached(DUE)?.execute((kept.tenant.0, kept.segment.0, at, &kept.filter, kept.due.map(signed)))?;
    Ok(())
}

/// When the first of all is to be refreshed.
///
/// # Errors
/// [`StoreError`].
pub fn next_due(conn: &Connection, now: Millis) -> Result<Option<Millis>, StoreError> {
    // One that is due has waited since then: of jobs that are due the one that waits longest goes first.
    let due = |kept: MaterializedAudience| if kept.is_due(now) { kept.due.map(|due| due.min(now)) } else { kept.due };
    Ok(list_audiences(conn, None)?.into_iter().filter_map(due).min())
}

/// Forgets who was in which audience of a tenant, of a visitor that is erased.
///
/// # Errors
/// [`StoreError`].
pub fn forget_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<(), StoreError> {
    const FORGET: &str = "DELETE FROM audience_members WHERE tenant = ?1
        AND segment IN (SELECT segment FROM audiences WHERE tenant = ?1) AND visitor = ?2";
    conn.prepare_cached(FORGET)?.execute((tenant.0, visitor.as_bytes()))?;
    Ok(())
}
