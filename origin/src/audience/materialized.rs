//! Materialised audiences: a job stores the people who match a filter as a segment, and removes people who no longer
//! match. The table `audience_members` has one row for each written member; a refresh writes and publishes only the
//! differences.
//!
//! A member is written under the oldest visitor of its person, with an expiry: if refreshes stop, the segment ends by
//! itself. A member is rewritten when less than half of its time is left. The same holds for members that were written
//! before their visitors were joined into one person.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::{HOUR_MS, HourStamp};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::targeting::filter::Filter;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior};
use serde_json::Value;

use crate::audience::query;
use crate::base::integers::{signed, unsigned};
use crate::store::names::events::{self, EventNameError};
use crate::store::tables::{audience_members, audiences, visitors};
use crate::store::tenants::TenantContext;
use crate::store::{StoreError, TenantNo, visitor_at};
use crate::views::read::{self, StoreView};
use crate::views::segments;

/// Rows and members compared at once. Their differences are written in one transaction.
const PAGE: usize = 500;

/// A materialised audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaterializedAudience {
    /// Tenant that owns the audience.
    pub tenant: TenantNo,
    /// Segment that holds the members.
    pub segment: SegmentId,
    /// Filter as JSON; `None` once the audience is dropped and its members must leave.
    pub filter: Option<String>,
    /// Hours for which a member stays in the segment after each write.
    pub hours: u32,
    /// Hours between refreshes; `None` means only on request.
    pub every_hours: Option<NonZeroU32>,
    /// Time of the next refresh; `None` if none is planned.
    pub due: Option<Millis>,
    /// Time of the last refresh.
    pub refreshed: Option<Millis>,
    /// Number of members at the last refresh.
    pub members: u64,
}

/// Reason why an audience was not stored.
#[derive(Debug, thiserror::Error)]
pub enum MaterialiseError {
    /// The number of hours is out of range.
    #[error("invalid `hours`: a member stays in the segment for 1 to {} hours", limits::AUDIENCE_HOURS)]
    Hours,
    /// The interval between refreshes is out of range. The value is the longest interval.
    #[error(
        "invalid `every_hours`: a refresh runs every 1 to {0} hours, at most half of `hours`, or 0 to refresh only on request"
    )]
    Every(u32),
    /// The filter refers to the audience's own segment.
    #[error("the filter refers to segment {} itself, which the audience writes: a member would never leave it", .0.0)]
    Itself(SegmentId),
    /// The filter refers to the audience's own segment through the given segment of another audience.
    #[error("the filter refers to segments that lead to segment {}, which refers to this one: members would never leave", .0.0)]
    Circle(SegmentId),
    /// The tenant has the largest number of audiences.
    #[error("a tenant has {} audiences at most: drop one", limits::AUDIENCES)]
    TooMany,
    /// An event of the filter cannot be counted.
    #[error(transparent)]
    Events(EventNameError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EventNameError> for MaterialiseError {
    fn from(e: EventNameError) -> Self {
        match e {
            EventNameError::Store(e) => Self::Store(e),
            e => Self::Events(e),
        }
    }
}

impl From<rusqlite::Error> for MaterialiseError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

impl MaterializedAudience {
    /// Describes an audience whose first refresh is due now. A user writes `every_hours` as 0 for refreshes on request.
    ///
    /// # Errors
    /// [`MaterialiseError`], except [`MaterialiseError::Store`].
    pub fn new(
        (tenant, segment): (TenantNo, SegmentId),
        (filter, document): (&Filter, &Value),
        (hours, every_hours): (u32, u32),
        now: Millis,
    ) -> Result<Self, MaterialiseError> {
        if !(1..=limits::AUDIENCE_HOURS).contains(&hours) {
            return Err(MaterialiseError::Hours);
        }
        if every_hours > hours / 2 {
            return Err(MaterialiseError::Every(hours / 2));
        }
        if filter.asks_segment(segment) {
            return Err(MaterialiseError::Itself(segment));
        }
        let (filter, every_hours) = (Some(document.to_string()), NonZeroU32::new(every_hours));
        Ok(Self { tenant, segment, filter, hours, every_hours, due: Some(now), refreshed: None, members: 0 })
    }

    /// Whether a refresh is due. A due time further off than the longest interval was set by a clock that was ahead,
    /// and counts as due.
    #[must_use]
    pub fn is_due(&self, now: Millis) -> bool {
        let longest = self.every_ms().unwrap_or(0) + HOUR_MS;
        self.due.is_some_and(|due| due <= now || due > now.saturating_add(longest))
    }

    /// Time between refreshes in milliseconds; `None` means only on request.
    fn every_ms(&self) -> Option<Millis> {
        self.every_hours.map(|hours| Millis::from(hours.get()) * HOUR_MS)
    }

    /// Stores the audience, and replaces the tenant's audience of the same segment.
    ///
    /// # Errors
    /// [`MaterialiseError::TooMany`], [`MaterialiseError::Circle`], and errors of the store.
    pub fn keep(&self, conn: &Connection, tenant: &TenantContext) -> Result<(), MaterialiseError> {
        // An immediate transaction serialises callers: two audiences could be valid alone but form a circle together.
        let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
        let key = (self.tenant.0, self.segment.0);
        let others: i64 = tx.prepare_cached(audiences::AUDIENCES_COUNT_OTHERS)?.query_row(key, |row| row.get(0))?;
        if unsigned(others) >= limits::AUDIENCES as u64 {
            return Err(MaterialiseError::TooMany);
        }
        self.refuse_circle(&tx, tenant)?;
        let filter = self.filter.as_ref().map(|text| query::parse_stored(&tx, tenant, text)).transpose()?;
        if let (Some(Ok(filter)), Some(now)) = (filter, self.due) {
            events::declare_of(&tx, self.tenant, &filter, now)?;
        }
        let due = self.due.map(signed);
        let every_hours = self.every_hours.map_or(0, NonZeroU32::get);
        let values = (self.tenant.0, self.segment.0, &self.filter, self.hours, every_hours, due);
        tx.prepare_cached(audiences::AUDIENCES_UPSERT)?.execute(values)?;
        Ok(tx.commit()?)
    }

    fn refuse_circle(&self, conn: &Connection, tenant: &TenantContext) -> Result<(), MaterialiseError> {
        let others = list_audiences(conn, Some(self.tenant))?;
        let (mut reached, mut next) = (BTreeSet::new(), vec![self]);
        while let Some(audience) = next.pop() {
            let Some(Ok(filter)) =
                audience.filter.as_ref().map(|text| query::parse_stored(conn, tenant, text)).transpose()?
            else {
                continue;
            };
            if audience.segment != self.segment && filter.asks_segment(self.segment) {
                return Err(MaterialiseError::Circle(audience.segment));
            }
            let referenced =
                others.iter().filter(|other| other.segment != self.segment && filter.asks_segment(other.segment));
            next.extend(referenced.filter(|other| reached.insert(other.segment)));
        }
        Ok(())
    }

    /// Time stamp of a refresh's writes: later than the previous refresh, even if the clock was set back.
    fn moment(&self, now: Millis) -> Millis {
        now.max(self.refreshed.map_or(0, |before| before + 1))
    }

    /// Drops an audience: its last refresh is due now and removes all members. Returns whether the audience exists.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn drop(conn: &Connection, tenant: TenantNo, segment: SegmentId, now: Millis) -> Result<bool, StoreError> {
        Ok(conn.prepare_cached(audiences::AUDIENCES_CLEAR_FILTER)?.execute((tenant.0, segment.0, signed(now)))? > 0)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(unsigned));
        Ok(Self {
            tenant: TenantNo(row.get(0)?),
            segment: SegmentId(row.get(1)?),
            filter: row.get(2)?,
            hours: row.get(3)?,
            every_hours: NonZeroU32::new(row.get(4)?),
            due: time(5)?,
            refreshed: time(6)?,
            members: row.get(7).map(unsigned)?,
        })
    }
}

/// The audiences of one tenant, or of all tenants.
///
/// # Errors
/// [`StoreError`].
pub fn list_audiences(conn: &Connection, tenant: Option<TenantNo>) -> Result<Vec<MaterializedAudience>, StoreError> {
    let mut statement = conn.prepare_cached(audiences::AUDIENCES_ALL_OR_OF_TENANT)?;
    let all = statement.query_map([tenant.map(|no| no.0)], MaterializedAudience::read)?.collect::<Result<_, _>>()?;
    Ok(all)
}

/// The people of an audience, each by its oldest visitor, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AudiencePeople {
    members: Vec<VisitorId>,
    holders: Vec<VisitorId>,
    strangers: Vec<VisitorId>,
}

impl AudiencePeople {
    /// Combines the people who match the filter (`members`) with the people who are in the segment now (`holders`).
    #[must_use]
    pub fn new(mut members: Vec<VisitorId>, mut holders: Vec<VisitorId>) -> Self {
        members.sort_unstable();
        holders.sort_unstable();
        let strangers = holders.iter().filter(|held| members.binary_search(held).is_err()).copied().collect();
        Self { members, holders, strangers }
    }

    /// Number of people who match the filter.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members.len() as u64
    }
}

/// At most [`PAGE`] of the sorted visitors after one.
fn next_of(all: &[VisitorId], after: Option<VisitorId>) -> Vec<VisitorId> {
    let first = all.partition_point(|visitor| after.is_some_and(|after| *visitor <= after));
    all.iter().skip(first).take(PAGE).copied().collect()
}

/// Whether a visitor's person is in a segment according to the store. The audience index may lag behind it.
fn is_held(
    conn: &Connection,
    audience: &MaterializedAudience,
    visitor: VisitorId,
    now: Millis,
) -> Result<bool, StoreError> {
    let view = StoreView::folded(conn);
    let Some(own) = read::load_visitor(&view, audience.tenant, visitor)? else { return Ok(false) };
    let segments = segments::of_person(&view, &own, limits::PERSON_VISITORS)?;
    Ok(segments.get(audience.segment).is_some_and(|(expiry, _)| expiry > HourStamp::at(now)))
}

/// A member to write: in the segment until an hour, or removed (`None`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberChange {
    visitor: VisitorId,
    until: Option<HourStamp>,
}

/// Differences between the matching people and the written rows, for one page of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComparedPage {
    /// Changes to write.
    pub changes: Vec<MemberChange>,
    /// Number of people who were not in the segment.
    pub added: u64,
    /// Number of people who no longer match.
    pub removed: u64,
    /// Number of members with less than half of their time left.
    pub renewed: u64,
    /// Number of matching people compared.
    pub members: u64,
    /// The last visitor compared; `None` after the last page.
    pub last: Option<VisitorId>,
}

/// Compares the people who match with the written rows, for one page after a visitor. Writes by others are corrected
/// too: a member that is missing in the segment is added, and a person in it that does not match is removed.
///
/// # Errors
/// [`StoreError`].
pub fn compare_page(
    conn: &Connection,
    audience: &MaterializedAudience,
    people: &AudiencePeople,
    after: Option<VisitorId>,
    now: Millis,
) -> Result<ComparedPage, StoreError> {
    let from = after.as_ref().map_or(&[][..], |visitor| visitor.as_bytes());
    let mut statement = conn.prepare_cached(audience_members::AUDIENCE_MEMBERS_PAGE)?;
    let rows = statement.query_map((audience.tenant.0, audience.segment.0, from, PAGE as i64), |row| {
        Ok((visitor_at(row, 0)?, HourStamp(row.get(1)?)))
    })?;
    let rows: Vec<(VisitorId, HourStamp)> = rows.collect::<Result<_, _>>()?;
    let members = &people.members;
    let (next, strangers) = (next_of(members, after), next_of(&people.strangers, after));
    // The page ends where the first of the three lists ends.
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
        if !is_written && is_held(conn, audience, visitor, now)? {
            page.removed += 1;
            page.changes.push(MemberChange { visitor, until: None });
        }
    }
    let (mut rows, mut next) = (rows.into_iter().peekable(), next.into_iter().filter(is_within).peekable());
    let until = HourStamp::at(now.saturating_add(u64::from(audience.hours) * HOUR_MS + HOUR_MS - 1));
    // An expiry is rounded up by at most an hour. That hour must not delay the renewal.
    let half = HourStamp(HourStamp::at(now).0 + audience.hours.div_ceil(2) + 1);
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
                let person = if member.is_some() { member } else { member_of(conn, audience, visitor, members)? };
                let is_member = person.is_some();
                let is_missing = person.is_some_and(|person| people.holders.binary_search(&person).is_err());
                match is_member {
                    true if held > half && is_missing && !is_held(conn, audience, visitor, now)? => page.added += 1,
                    true if held > half => continue,
                    true => page.renewed += 1,
                    false => page.removed += 1,
                }
                MemberChange { visitor, until: is_member.then_some(until) }
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

/// The member that is the visitor's person now. A removal of the visitor would then remove the whole person.
fn member_of(
    conn: &Connection,
    audience: &MaterializedAudience,
    visitor: VisitorId,
    members: &[VisitorId],
) -> Result<Option<VisitorId>, StoreError> {
    let key = (audience.tenant.0, visitor.as_bytes());
    let master =
        conn.prepare_cached(visitors::VISITORS_MASTER_OF_ID)?.query_row(key, |row| visitor_at(row, 0)).optional()?;
    Ok(master.filter(|master| members.binary_search(master).is_ok()))
}

/// The facts of some changes. Their time is later than that of the previous refresh, even if the clock was set back.
#[must_use]
pub fn change_facts(audience: &MaterializedAudience, changes: &[MemberChange], now: Millis) -> Vec<Fact> {
    let at = audience.moment(now);
    let name = format!("audience {} {at}", audience.segment.0);
    let fact = |change: &MemberChange| {
        let state = change.until.map_or(SegmentState::Removed, |until| SegmentState::held(until, []));
        let id = FactId::of_job(change.visitor, &name);
        Fact {
            position: 0,
            id,
            visitor: change.visitor,
            received: at,
            at,
            what: FactKind::Segments { writes: vec![(audience.segment, state)] },
        }
    };
    changes.iter().map(fact).collect()
}

/// Records the written changes in the transaction of their facts, except for visitors that were erased meanwhile.
///
/// # Errors
/// [`StoreError`].
pub fn note_changes(
    tx: &Connection,
    audience: &MaterializedAudience,
    changes: &[MemberChange],
) -> Result<(), StoreError> {
    let (tenant, segment) = (audience.tenant.0, audience.segment.0);
    for MemberChange { visitor, until } in changes {
        let visitor = visitor.as_bytes();
        match until {
            Some(until) => tx
                .prepare_cached(audience_members::AUDIENCE_MEMBERS_REPLACE_UNLESS_ERASED)?
                .execute((tenant, segment, visitor, until.0))?,
            None => {
                tx.prepare_cached(audience_members::AUDIENCE_MEMBERS_DELETE)?.execute((tenant, segment, visitor))?
            }
        };
    }
    Ok(())
}

/// Ends a refresh that ran from `began` to `ended`: sets the next due time, or deletes a dropped audience. An audience
/// that was changed during the refresh stays due.
///
/// # Errors
/// [`StoreError`].
pub fn note_refreshed(
    conn: &Connection,
    audience: &MaterializedAudience,
    members: u64,
    (began, ended): (Millis, Millis),
) -> Result<(), StoreError> {
    let (tenant, segment) = (audience.tenant.0, audience.segment.0);
    if audience.filter.is_none() {
        conn.prepare_cached(audiences::AUDIENCES_DELETE_IF_CLEARED)?.execute((tenant, segment))?;
        return Ok(());
    }
    let due = audience.every_ms().map(|every| signed(began + every));
    conn.prepare_cached(audiences::AUDIENCES_SET_REFRESHED)?.execute((
        tenant,
        segment,
        signed(audience.moment(ended)),
        signed(members),
    ))?;
    conn.prepare_cached(audiences::AUDIENCES_SET_DUE_IF_UNCHANGED)?.execute((
        tenant,
        segment,
        due,
        &audience.filter,
        audience.due.map(signed),
    ))?;
    Ok(())
}

/// Postpones a failed refresh by an hour. An audience that was changed meanwhile stays due.
///
/// # Errors
/// [`StoreError`].
pub fn postpone_refresh(conn: &Connection, audience: &MaterializedAudience, now: Millis) -> Result<(), StoreError> {
    let at = Some(signed(now.saturating_add(HOUR_MS)));
    conn.prepare_cached(audiences::AUDIENCES_SET_DUE_IF_UNCHANGED)?.execute((
        audience.tenant.0,
        audience.segment.0,
        at,
        &audience.filter,
        audience.due.map(signed),
    ))?;
    Ok(())
}

/// Time of the earliest due refresh.
///
/// # Errors
/// [`StoreError`].
pub fn next_due(conn: &Connection, now: Millis) -> Result<Option<Millis>, StoreError> {
    // Of several due jobs, the one that has waited longest runs first.
    let due = |audience: MaterializedAudience| {
        if audience.is_due(now) { audience.due.map(|due| due.min(now)) } else { audience.due }
    };
    Ok(list_audiences(conn, None)?.into_iter().filter_map(due).min())
}

/// Deletes an erased visitor from all materialised audiences of a tenant.
///
/// # Errors
/// [`StoreError`].
pub fn forget_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<(), StoreError> {
    conn.prepare_cached(audience_members::AUDIENCE_MEMBERS_DELETE_VISITOR)?.execute((tenant.0, visitor.as_bytes()))?;
    Ok(())
}
