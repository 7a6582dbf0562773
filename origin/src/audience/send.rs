//! Sends: campaigns to an exact number of people, drawn at random from the people who match a filter. A send has one
//! row, and one row for each drawn person. The draw is final; [`crate::jobs::tasks::deliver`] delivers to the
//! people in their order.

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use std::num::NonZeroU32;
use utoipa::ToSchema;

use super::webhook::Webhook;
use crate::audience::query::{self, MemberFormat};
use crate::base::integers::{signed, unsigned};
use crate::campaigns::catalogue;
use crate::campaigns::experiment::results;
use crate::store::names::events::{self, EventNameError};
use crate::store::tables::{send_people, sends};
use crate::store::tenants::TenantContext;
use crate::store::{SendNo, StoreError, TenantNo, visitor_at};

/// Terms of a send, as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendTerms {
    /// Filter as JSON.
    pub filter: String,
    /// How many people: 1 to [`limits::SEND_PEOPLE`].
    pub count: u32,
    /// Experiment that assigns the people to arms.
    pub experiment: Option<String>,
    /// Whether the tenant's webhook is called for each person.
    pub webhook: bool,
    /// Most people a second; `None` means no limit.
    pub per_second: Option<NonZeroU32>,
}

/// Outcome of a drawn person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// The person was delivered.
    Delivered = 1,
    /// The person is in the control arm and is not delivered.
    Control = 2,
    /// The drawn visitor withdrew or was erased.
    Gone = 3,
    /// The person was joined with a person at an earlier position of the send.
    Merged = 4,
    /// The person no longer matches the filter.
    Left = 5,
}

/// Number of people with each outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendTotals {
    /// [`SendOutcome::Delivered`].
    pub delivered: u32,
    /// [`SendOutcome::Control`].
    pub control: u32,
    /// [`SendOutcome::Gone`].
    pub gone: u32,
    /// [`SendOutcome::Merged`].
    pub merged: u32,
    /// [`SendOutcome::Left`].
    pub left: u32,
}

impl SendTotals {
    /// Counts one outcome.
    pub fn add(&mut self, outcome: SendOutcome) {
        *match outcome {
            SendOutcome::Delivered => &mut self.delivered,
            SendOutcome::Control => &mut self.control,
            SendOutcome::Gone => &mut self.gone,
            SendOutcome::Merged => &mut self.merged,
            SendOutcome::Left => &mut self.left,
        } += 1;
    }
}

/// A send with its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// Row number of the send.
    pub no: SendNo,
    /// Tenant of the send.
    pub tenant: TenantNo,
    /// Name of the send, unique for the tenant for ever.
    pub name: String,
    /// Terms of the send.
    pub terms: SendTerms,
    /// Random seed of the draw.
    pub random: u64,
    /// Time of the request.
    pub asked: Millis,
    /// Number of drawn people; `None` until all of them are written.
    pub chosen: Option<u32>,
    /// Position of the first person without an outcome.
    pub next: u32,
    /// Outcomes of the people at earlier positions.
    pub sums: SendTotals,
    /// Time at which the send continues; `None` once it has ended.
    pub due: Option<Millis>,
    /// The last error. For a send that ended without a drawn person: the reason for that.
    pub error: Option<String>,
}

/// Reason why a send was refused.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The name is invalid.
    #[error("invalid send name: expected 1 to 64 of a-z, 0-9, - and _")]
    Name,
    /// The number of people is out of range.
    #[error("a send has 1 to {} people", limits::SEND_PEOPLE)]
    Count,
    /// The rate is out of range.
    #[error("invalid `per_second`: expected {} people a second at most, or 0 for no limit", limits::SEND_PER_SECOND)]
    PerSecond,
    /// The current catalogue has no running experiment of that id.
    #[error("the current catalogue has no experiment `{0}` that runs now")]
    Experiment(String),
    /// The tenant has no webhook or no key for it.
    #[error(
        "the tenant has no `webhook` in the configuration, or no key for it: `causeway keys rotate webhook` makes one, which the origin \
         reads when it starts"
    )]
    Webhook,
    /// A send of that name has other terms.
    #[error(
        "send `{0}` exists with other terms, which cannot change because it may have delivered to people: choose another name"
    )]
    Other(String),
    /// The tenant has the largest number of sends.
    #[error("a tenant has {} sends at most", limits::SENDS)]
    TooMany,
    /// An event of the filter cannot be counted.
    #[error(transparent)]
    Events(EventNameError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EventNameError> for SendError {
    fn from(e: EventNameError) -> Self {
        match e {
            EventNameError::Store(e) => Self::Store(e),
            e => Self::Events(e),
        }
    }
}

impl From<rusqlite::Error> for SendError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

impl Send {
    /// Begins a send, or resumes the send of that name if it was stopped or failed. A completed send stays as it is.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn begin(
        conn: &mut Connection,
        tenant: &TenantContext,
        name: &str,
        terms: &SendTerms,
        random: u64,
        now: Millis,
    ) -> Result<Self, SendError> {
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let there = find_send(&tx, tenant.no, name)?;
        // A completed send is returned as it is, even if its experiment or its webhook no longer exists.
        if let Some(over) = &there
            && over.terms == *terms
            && over.is_done()
        {
            return Ok(over.clone());
        }
        check_terms(&tx, tenant, name, terms, now)?;
        if let Some(there) = there {
            if there.terms != *terms {
                return Err(SendError::Other(name.to_owned()));
            }
            tx.execute(sends::SENDS_RESUME, (there.no, signed(now)))?;
        } else {
            let sends: i64 = tx.query_row(sends::SENDS_COUNT_OF_TENANT, [tenant.no.0], |row| row.get(0))?;
            if unsigned(sends) >= limits::SENDS as u64 {
                return Err(SendError::TooMany);
            }
            let SendTerms { filter, count, experiment, webhook, per_second } = terms;
            if let Ok(filter) = query::parse_stored(&tx, tenant, filter)? {
                events::declare_of(&tx, tenant.no, &filter, now)?;
            }
            let (no, random, now) = (tenant.no.0, random.cast_signed(), signed(now));
            let per_second = per_second.map_or(0, NonZeroU32::get);
            tx.execute(sends::SENDS_INSERT, (no, name, filter, count, experiment, webhook, per_second, random, now))?;
        }
        let begun = find_send(&tx, tenant.no, name)?;
        tx.commit()?;
        begun.ok_or_else(|| StoreError::Corrupt { what: "send" }.into())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(unsigned));
        Ok(Self {
            no: row.get(0)?,
            tenant: TenantNo(row.get(1)?),
            name: row.get(2)?,
            terms: SendTerms {
                filter: row.get(3)?,
                count: row.get(4)?,
                experiment: row.get(5)?,
                webhook: row.get(6)?,
                per_second: NonZeroU32::new(row.get(7)?),
            },
            random: row.get::<_, i64>(8)?.cast_unsigned(),
            asked: row.get(9).map(unsigned)?,
            chosen: row.get(10)?,
            next: row.get(11)?,
            sums: SendTotals {
                delivered: row.get(12)?,
                control: row.get(13)?,
                gone: row.get(14)?,
                merged: row.get(15)?,
                left: row.get(16)?,
            },
            due: time(17)?,
            error: row.get(18)?,
        })
    }

    /// Whether the send ended without an error. A send that drew no person counts as done; its `error` is the reason.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.due.is_none() && (self.error.is_none() || self.chosen == Some(0))
    }

    /// Idempotency key of a person's delivery: a repeated delivery has the same key.
    #[must_use]
    pub fn key(&self, tenant: &str, place: u32) -> String {
        format!("{tenant}/{}/{place}", self.name)
    }
}

fn check_terms(
    conn: &Connection,
    tenant: &TenantContext,
    name: &str,
    terms: &SendTerms,
    now: Millis,
) -> Result<(), SendError> {
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_name) {
        return Err(SendError::Name);
    }
    if !(1..=limits::SEND_PEOPLE).contains(&terms.count) {
        return Err(SendError::Count);
    }
    if terms.per_second.is_some_and(|most| most.get() > limits::SEND_PER_SECOND) {
        return Err(SendError::PerSecond);
    }
    if terms.webhook && Webhook::of(tenant).is_none() {
        return Err(SendError::Webhook);
    }
    if let Some(id) = &terms.experiment {
        let tested = find_experiment(conn, tenant.no, id)?.filter(|experiment| experiment.runs(now));
        tested.ok_or_else(|| SendError::Experiment(id.clone()))?;
    }
    Ok(())
}

/// Finds an experiment of a tenant's current catalogue.
///
/// # Errors
/// [`StoreError`].
pub fn find_experiment(conn: &Connection, tenant: TenantNo, id: &str) -> Result<Option<Experiment>, StoreError> {
    Ok(catalogue::experiments_of_tenant(conn, tenant)?.into_iter().find(|experiment| experiment.id == id))
}

/// Finds a send by its name.
///
/// # Errors
/// [`StoreError`].
pub fn find_send(conn: &Connection, tenant: TenantNo, name: &str) -> Result<Option<Send>, StoreError> {
    Ok(conn.prepare_cached(sends::SENDS_BY_NAME)?.query_row((tenant.0, name), Send::read).optional()?)
}

/// The sends of one tenant, or of all tenants, in the order of their requests.
///
/// # Errors
/// [`StoreError`].
pub fn list_sends(conn: &Connection, tenant: Option<TenantNo>) -> Result<Vec<Send>, StoreError> {
    let mut statement = conn.prepare_cached(sends::SENDS_ALL_OR_OF_TENANT)?;
    Ok(statement.query_map([tenant.map(|no| no.0)], Send::read)?.collect::<Result<_, _>>()?)
}

/// Longest pause of a send, in milliseconds. A later due time was set by a clock that was ahead, and counts as due.
const FAR_MS: u64 = 86_400_000;

/// The sends that are due, ordered by due time.
///
/// # Errors
/// [`StoreError`].
pub fn due_sends(conn: &Connection, now: Millis) -> Result<Vec<Send>, StoreError> {
    let mut statement = conn.prepare_cached(sends::SENDS_DUE)?;
    Ok(statement.query_map([signed(now), signed(FAR_MS)], Send::read)?.collect::<Result<_, _>>()?)
}

/// Time of the earliest due send.
///
/// # Errors
/// [`StoreError`].
pub fn next_due(conn: &Connection, now: Millis) -> Result<Option<Millis>, StoreError> {
    let row = [signed(now), signed(FAR_MS)];
    let due: Option<i64> = conn.prepare_cached(sends::SENDS_NEXT_DUE)?.query_row(row, |row| row.get(0))?;
    Ok(due.map(unsigned))
}

/// Stops a send: the remaining people get no delivery. Returns whether a send of that name had not ended.
///
/// # Errors
/// [`StoreError`].
pub fn stop_send(conn: &Connection, tenant: TenantNo, name: &str) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(sends::SENDS_STOP_BY_NAME)?.execute((tenant.0, name))? > 0)
}

/// A line of the delivered people of a send.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RecipientLine {
    /// Number in the order of delivery, from 0. Numbers of people that were not delivered are left out.
    pub place: u32,
    /// Master of the person at the time of the draw.
    #[schema(format = "uuid")]
    pub person: String,
    /// Arm of the experiment.
    pub arm: Option<String>,
    /// Time of the delivery.
    pub at_ms: u64,
    /// Key of the delivery, as the webhook receives it. A repeated delivery has the same key.
    pub key: String,
}

/// A person with a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Position in the send.
    pub place: u32,
    /// The person's oldest visitor at the time of the draw.
    pub person: VisitorId,
    /// Code of the experiment's arm.
    pub arm: Option<u8>,
    /// Time of the delivery, in milliseconds since 1970.
    pub at: Millis,
}

/// The deliveries at `most` positions from `from` on, and the next position to continue from; `None` after the last.
///
/// # Errors
/// [`StoreError`].
pub fn list_recipients(
    conn: &Connection,
    send: &Send,
    from: u32,
    most: u32,
) -> Result<(Vec<Recipient>, Option<u32>), StoreError> {
    let until = from.saturating_add(most).min(send.next);
    let mut statement = conn.prepare_cached(send_people::SEND_PEOPLE_DELIVERED_IN_RANGE)?;
    let rows = statement.query_map((send.no, from, until), |row| {
        Ok(Recipient {
            place: row.get(0)?,
            person: visitor_at(row, 1)?,
            arm: row.get(2)?,
            at: row.get(3).map(unsigned)?,
        })
    })?;
    Ok((rows.collect::<Result<_, _>>()?, (until < send.next).then_some(until)))
}

/// Names of an experiment's arms, by code.
#[derive(Debug, Clone, Default)]
pub struct ArmNames(Vec<(u8, String)>);

impl ArmNames {
    /// The arms of a send's experiment, from the current catalogue or from the last version that had the experiment.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(conn: &Connection, send: &Send) -> Result<Self, StoreError> {
        let Some(id) = &send.terms.experiment else { return Ok(Self::default()) };
        let found = results::find_experiment(conn, send.tenant, id)?;
        Ok(found.map_or_else(Self::default, |(experiment, _)| Self::named(&experiment)))
    }

    /// The arms of an experiment.
    #[must_use]
    pub fn named(experiment: &Experiment) -> Self {
        Self(experiment.arms.iter().map(|arm| (arm.code, arm.id.clone())).collect())
    }

    /// Name of an arm; the code as text if the catalogue no longer has the arm.
    #[must_use]
    pub fn name(&self, code: u8) -> String {
        self.0.iter().find(|(other, _)| *other == code).map_or_else(|| code.to_string(), |(_, name)| name.clone())
    }
}

/// Header before the first line of recipients.
#[must_use]
pub fn format_head(lines: MemberFormat) -> &'static str {
    if lines == MemberFormat::Csv { "place,person,arm,at_ms,key\n" } else { "" }
}

/// Formats recipients, one line each. No value needs escaping.
#[must_use]
pub fn format_recipients(
    lines: MemberFormat,
    tenant: &str,
    send: &Send,
    arms: &ArmNames,
    recipients: &[Recipient],
) -> String {
    let mut text = String::with_capacity(recipients.len() * 160);
    for Recipient { place, person, arm, at } in recipients {
        let (key, arm) = (send.key(tenant, *place), arm.map(|arm| arms.name(arm)));
        text.push_str(&match lines {
            MemberFormat::Csv => format!("{place},{person},{},{at},{key}\n", arm.unwrap_or_default()),
            MemberFormat::Ndjson => {
                let line = RecipientLine { place: *place, person: person.to_string(), arm, at_ms: *at, key };
                serde_json::to_string(&line).unwrap_or_default() + "\n"
            }
        });
    }
    text
}

/// Deletes an erased visitor from the draws of a tenant.
///
/// # Errors
/// [`StoreError`].
pub fn forget_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<(), StoreError> {
    conn.prepare_cached(send_people::SEND_PEOPLE_DELETE_VISITOR)?.execute((tenant.0, visitor.as_bytes()))?;
    Ok(())
}
