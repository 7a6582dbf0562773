//! Sends: campaigns to exactly so many people, drawn at random of those that a filter means (S4.7). A send is a row, and a row
//! for each person drawn. Once drawn, nobody is exchanged; [`crate::jobs::tasks::deliver`] tells them, in their order.

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::{Value, json};

use super::webhook::Webhook;
use crate::audience::query::{self, MemberFormat};
use crate::base::integers::{signed, unsigned};
use crate::campaigns::catalogue;
use crate::campaigns::experiment::results;
use crate::store::names::events::{self, EventNameError};
use crate::store::tenants::{TenantContext, Tenants};
use crate::store::{StoreError, TenantNo, visitor_at};

/// What a send is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendTerms {
    /// Whom it means, as JSON.
    pub filter: String,
    /// How many people: 1 to [`limits::SEND_PEOPLE`].
    pub count: u32,
    /// The experiment whose arms they are dealt to.
    pub experiment: Option<String>,
    /// Whether the tenant's webhook is told.
    pub webhook: bool,
    /// How many a second at most; 0: as fast as it goes.
    pub per_second: u32,
}

/// What became of a person that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// It was told.
    Delivered = 1,
    /// It is in the control, and is not told.
    Control = 2,
    /// It withdrew or was erased.
    Gone = 3,
    /// It turned out to be a person that came before.
    Merged = 4,
    /// The filter does not mean it any more.
    Left = 5,
}

/// How many came to what.
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
    /// One more.
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

/// A send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// Its number in the store.
    pub no: i64,
    /// Whose people.
    pub tenant: TenantNo,
    /// Its name: one of its tenant has it, for ever.
    pub name: String,
    /// What it is to be.
    pub terms: SendTerms,
    /// What its people are drawn by.
    pub random: u64,
    /// When it was asked for.
    pub asked: Millis,
    /// How many were drawn; `None` until all of them are written.
    pub chosen: Option<u32>,
    /// The place of the first that was not looked at yet.
    pub next: u32,
    /// What those before it came to.
    pub sums: SendTotals,
    /// When it goes on; `None` once it is over.
    pub due: Option<Millis>,
    /// What was in the way last; of a send that is over with nobody drawn, why nobody was.
    pub error: Option<String>,
}

/// Why there is no such send.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A name that is none.
    #[error("a send's name has 1 to 64 of a-z, 0-9, - and _")]
    Name,
    /// How many.
    #[error("a send has 1 to {} people", limits::SEND_PEOPLE)]
    Count,
    /// How fast.
    #[error("{} people a second at most, or 0 for as fast as it goes", limits::SEND_PER_SECOND)]
    PerSecond,
    /// No experiment that has arms to deal.
    #[error("the current catalogue has no experiment `{0}` that runs now")]
    Experiment(String),
    /// No webhook.
    #[error(
        "the tenant has no `webhook` in the configuration, or no key for it: `causeway keys rotate webhook` makes one, which the origin \
         reads when it starts"
    )]
    Webhook,
    /// The name is taken.
    #[error("send `{0}` has other terms: they stay, as nobody is told twice. Another name is another send")]
    Other(String),
    /// Too many.
    #[error("a tenant has {} sends at most", limits::SENDS)]
    TooMany,
    /// Events of the filter cannot be counted.
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

const COLUMNS: &str = "send, tenant, name, filter, count, experiment, webhook, per_second, random, asked, chosen, next,
    delivered, control, gone, merged, \"left\", due, error";

impl Send {
    /// Begins a send, or goes on with the one of that name, where it was stopped or failed; one that is over stays as it is.
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
        const COUNT: &str = "SELECT count(*) FROM sends WHERE tenant = ?1";
        const PUT: &str =
            "INSERT INTO sends (tenant, name, filter, count, experiment, webhook, per_second, random, asked, due)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)";
        const ON: &str = "UPDATE sends SET due = ?2, tries = 0, error = NULL
            WHERE send = ?1 AND (error IS NOT NULL OR due > ?2)";
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let there = find_send(&tx, tenant.no, name)?;
        // Whoever asks again may do so after the end of what it needed.
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
            tx.execute(ON, (there.no, signed(now)))?;
        } else {
            let sends: i64 = tx.query_row(COUNT, [tenant.no.0], |row| row.get(0))?;
            if unsigned(sends) >= limits::SENDS as u64 {
                return Err(SendError::TooMany);
            }
            let SendTerms { filter, count, experiment, webhook, per_second } = terms;
            if let Ok(filter) = query::parse_stored(&tx, tenant, filter)? {
                events::declare_of(&tx, tenant.no, &filter, now)?;
            }
            let (no, random, now) = (tenant.no.0, random.cast_signed(), signed(now));
            tx.execute(PUT, (no, name, filter, count, experiment, webhook, per_second, random, now))?;
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
                per_second: row.get(7)?,
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

    /// Whether it is over, and nothing was in the way. With nobody to draw it has only the reason for that.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.due.is_none() && (self.error.is_none() || self.chosen == Some(0))
    }

    /// As callers and commands are told.
    #[must_use]
    pub fn told(&self, tenants: &Tenants) -> Value {
        let tenant = tenants.by_no(self.tenant).ok().map(|known| known.config.name.clone());
        let filter: Option<Value> = serde_json::from_str(&self.terms.filter).ok();
        let SendTerms { count, experiment, webhook, per_second, .. } = &self.terms;
        let SendTotals { delivered, control, gone, merged, left } = self.sums;
        let (error, reason) = if self.chosen == Some(0) { (None, &self.error) } else { (self.error.as_ref(), &None) };
        json!({
            "tenant": tenant, "name": self.name, "filter": filter, "count": count, "experiment": experiment,
            "webhook": webhook, "per_second": per_second, "asked_ms": self.asked, "chosen": self.chosen,
            "delivered": delivered, "control": control, "gone": gone, "merged": merged, "left": left,
            "waits": self.chosen.map(|chosen| chosen.saturating_sub(self.next)),
            "due_ms": self.due, "error": error, "reason": reason,
        })
    }

    /// What a person's delivery is called, so that whoever is told knows one that comes again.
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
    if terms.per_second > limits::SEND_PER_SECOND {
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

/// An experiment of a tenant's current catalogue.
///
/// # Errors
/// [`StoreError`].
pub fn find_experiment(conn: &Connection, tenant: TenantNo, id: &str) -> Result<Option<Experiment>, StoreError> {
    Ok(catalogue::experiments_of_tenant(conn, tenant)?.into_iter().find(|experiment| experiment.id == id))
}

/// The send of a name.
///
/// # Errors
/// [`StoreError`].
pub fn find_send(conn: &Connection, tenant: TenantNo, name: &str) -> Result<Option<Send>, StoreError> {
    let read = format!("SELECT {COLUMNS} FROM sends WHERE tenant = ?1 AND name = ?2");
    Ok(conn.prepare_cached(&read)?.query_row((tenant.0, name), Send::read).optional()?)
}

/// The sends of a tenant, or of all, in the order in which they were asked for.
///
/// # Errors
/// [`StoreError`].
pub fn list_sends(conn: &Connection, tenant: Option<TenantNo>) -> Result<Vec<Send>, StoreError> {
    let read = format!("SELECT {COLUMNS} FROM sends WHERE ?1 IS NULL OR tenant = ?1 ORDER BY send");
    let mut statement = conn.prepare_cached(&read)?;
    Ok(statement.query_map([tenant.map(|no| no.0)], Send::read)?.collect::<Result<_, _>>()?)
}

/// No send waits for longer than this: one that seems to was put off by a clock that was set back since, and goes on now.
const FAR_MS: Millis = 86_400_000;

/// Those that go on by a time, the one that waits longest first.
///
/// # Errors
/// [`StoreError`].
pub fn due_sends(conn: &Connection, now: Millis) -> Result<Vec<Send>, StoreError> {
    let read = format!("SELECT {COLUMNS} FROM sends WHERE due <= ?1 OR due > ?1 + ?2 ORDER BY due, send");
    let mut statement = conn.prepare_cached(&read)?;
    Ok(statement.query_map([signed(now), signed(FAR_MS)], Send::read)?.collect::<Result<_, _>>()?)
}

/// When the first of all goes on.
///
/// # Errors
/// [`StoreError`].
pub fn next_due(conn: &Connection, now: Millis) -> Result<Option<Millis>, StoreError> {
    const FIRST: &str = "SELECT min(iif(due > ?1 + ?2, ?1, due)) FROM sends WHERE due IS NOT NULL";
    let row = [signed(now), signed(FAR_MS)];
    let due: Option<i64> = conn.prepare_cached(FIRST)?.query_row(row, |row| row.get(0))?;
    Ok(due.map(unsigned))
}

/// Ends a send: who was not told yet is not. Whether there is one that was not over.
///
/// # Errors
/// [`StoreError`].
pub fn stop_send(conn: &Connection, tenant: TenantNo, name: &str) -> Result<bool, StoreError> {
    const STOP: &str =
        "UPDATE sends SET due = NULL, error = 'stopped' WHERE tenant = ?1 AND name = ?2 AND due IS NOT NULL";
    Ok(conn.prepare_cached(STOP)?.execute((tenant.0, name))? > 0)
}

/// A person that was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// Its place.
    pub place: u32,
    /// Its oldest visitor when it was drawn.
    pub person: VisitorId,
    /// Its arm's code.
    pub arm: Option<u8>,
    /// When it was told.
    pub at: Millis,
}

/// Those that were told, from a place on, at most `most` places; and the place behind them, `None` behind the last.
///
/// # Errors
/// [`StoreError`].
pub fn list_recipients(
    conn: &Connection,
    send: &Send,
    from: u32,
    most: u32,
) -> Result<(Vec<Recipient>, Option<u32>), StoreError> {
    const READ: &str = "SELECT place, visitor, arm, at FROM send_people
        WHERE send = ?1 AND place >= ?2 AND place < ?3 AND outcome = 1 ORDER BY place";
    let until = from.saturating_add(most).min(send.next);
    let mut statement = conn.prepare_cached(READ)?;
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

/// The names of an experiment's arms, by code.
#[derive(Debug, Clone, Default)]
pub struct ArmNames(Vec<(u8, String)>);

impl ArmNames {
    /// Those of a send's experiment, as the current catalogue has them, or the last that had it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(conn: &Connection, send: &Send) -> Result<Self, StoreError> {
        let Some(id) = &send.terms.experiment else { return Ok(Self::default()) };
        let found = results::find_experiment(conn, send.tenant, id)?;
        Ok(found.map_or_else(Self::default, |(experiment, _)| Self::named(&experiment)))
    }

    /// Those of an experiment.
    #[must_use]
    pub fn named(experiment: &Experiment) -> Self {
        Self(experiment.arms.iter().map(|arm| (arm.code, arm.id.clone())).collect())
    }

    /// An arm's name; its code where the catalogue has it no more.
    #[must_use]
    pub fn name(&self, code: u8) -> String {
        self.0.iter().find(|(other, _)| *other == code).map_or_else(|| code.to_string(), |(_, name)| name.clone())
    }
}

/// What stands before the first line of recipients.
#[must_use]
pub fn format_head(lines: MemberFormat) -> &'static str {
    if lines == MemberFormat::Csv { "place,person,arm,at_ms,key\n" } else { "" }
}

/// Recipients, a line each; nothing in them has to be escaped.
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
                json!({ "place": place, "person": person.to_string(), "arm": arm, "at_ms": at, "key": key }).to_string()
                    + "\n"
            }
        });
    }
    text
}

/// Forgets of a visitor that is erased that it was drawn.
///
/// # Errors
/// [`StoreError`].
pub fn forget_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<(), StoreError> {
    const FORGET: &str =
        "DELETE FROM send_people WHERE visitor = ?2 AND send IN (SELECT send FROM sends WHERE tenant = ?1)";
    conn.prepare_cached(FORGET)?.execute((tenant.0, visitor.as_bytes()))?;
    Ok(())
}
