//! Delivery of a send's people.
//!
//! The outcomes of a batch are stored in the transaction that exposes its people to their arms, after the webhook
//! accepted the batch. A run that is interrupted between the two delivers the same people again with the same keys and
//! the same message id; two sends never share a key. A person whose filter match, consent or master changed since the
//! draw is judged by its current state.

use std::collections::BTreeSet;
use std::sync::Arc;

use causeway_shared::audience::send::{ArmDealer, RandomDraw, arm_quotas};
use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::targeting::experiment::Experiment;
use causeway_shared::targeting::filter::Filter;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use serde_json::{Value, json};

use super::materialise;
use crate::audience::person_row;
use crate::audience::query::{self, AllMembers};
use crate::audience::send::{self, ArmNames, Send, SendOutcome, SendTotals};
use crate::audience::webhook::{Webhook, WebhookAnswer};
use crate::base::attribution::Attribution;
use crate::base::error_chain;
use crate::base::integers::signed;
use crate::campaigns::experiment::{self, results};
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::jobs::context::JobContext;
use crate::pipeline::commit;
use crate::store::job_error::JobError;
use crate::store::tables::{send_people, sends, visitors};
use crate::store::tenants::TenantContext;
use crate::store::{PersonNo, StoreError, visitor_at};

/// People of one batch: one POST and one transaction.
const BATCH: u32 = 100;
/// Drawn people written in one transaction.
const PIECE: usize = 2_000;

/// A webhook call.
pub(super) type Post = Box<dyn FnOnce() -> WebhookAnswer + std::marker::Send>;

/// People of a batch with their outcomes.
pub(crate) struct ExaminedBatch {
    looked: Vec<ExaminedPerson>,
    next: u32,
}

impl ExaminedBatch {
    /// Number of people in the batch.
    pub(crate) fn people_count(&self) -> u32 {
        self.looked.len() as u32
    }
}

/// The next batch and its webhook call; `None` if no receiver is called.
pub(crate) struct StartedCall {
    pub(crate) batch: ExaminedBatch,
    pub(crate) post: Option<Post>,
}

/// Inputs for the delivery of a send.
pub(crate) struct DispatchContext<'a> {
    known: &'a TenantContext,
    filter: Filter,
    tested: Option<Experiment>,
    webhook: Option<Webhook>,
}

/// A person of a batch with its outcome.
#[derive(Debug, Clone, Copy)]
struct ExaminedPerson {
    place: u32,
    visitor: VisitorId,
    arm: Option<u8>,
    outcome: SendOutcome,
}

impl<'a> DispatchContext<'a> {
    /// Loads the inputs of a send, and draws its people if that has not happened.
    pub(crate) fn of(context: &mut JobContext<'a>, send: &mut Send) -> Result<Result<Self, StalledReason>, JobError> {
        let rules = context.rules;
        let Ok(known) = rules.tenants.by_no(send.tenant) else {
            let why = "its tenant is not configured".to_owned();
            return Ok(Err(StalledReason { why, again: Some(Some(AGAIN_MS)) }));
        };
        let filter = match query::parse_stored(context.conn, known, &send.terms.filter)? {
            Ok(filter) => filter,
            Err(why) => return Ok(Err(StalledReason::for_good(why))),
        };
        let tested = match &send.terms.experiment {
            None => None,
            Some(id) => match send::find_experiment(context.conn, known.no, id)? {
                Some(tested) => Some(tested),
                None => {
                    return Ok(Err(StalledReason::for_good(format!("the current catalogue has no experiment `{id}`"))));
                }
            },
        };
        let webhook = send.terms.webhook.then(|| Webhook::of(known));
        if let Some(None) = webhook {
            return Ok(Err(StalledReason::for_good("the tenant has no webhook, or no key for it")));
        }
        if send.chosen.is_none() {
            match choose_people(context, send, &filter, tested.as_ref())? {
                Ok(chosen) => send.chosen = Some(chosen),
                Err(why) => return Ok(Err(StalledReason::for_good(why))),
            }
        }
        Ok(Ok(Self { known, filter, tested, webhook: webhook.flatten() }))
    }

    /// Examines the next batch. Returns `None` if the send has ended or was stopped.
    pub(crate) fn begin(
        &self,
        context: &JobContext<'_>,
        send: &Send,
    ) -> Result<Result<Option<StartedCall>, StalledReason>, JobError> {
        let chosen = send.chosen.unwrap_or_default();
        if send.next >= chosen {
            context.conn.prepare_cached(sends::SENDS_COMPLETE)?.execute([send.no])?;
            return Ok(Ok(None));
        }
        if !is_open(context.conn, send)? {
            return Ok(Ok(None));
        }
        if let Some(why) = self.is_over((context.draw_inputs)()?.now) {
            return Ok(Err(why));
        }
        let size = send.terms.per_second.map_or(BATCH, |most| most.get().min(BATCH));
        let next = chosen.min(send.next + size);
        let looked = match self.look(context, send, next)? {
            Ok(looked) => looked,
            Err(stuck) => return Ok(Err(stuck)),
        };
        let post = self.post(context, send, &looked)?;
        Ok(Ok(Some(StartedCall { batch: ExaminedBatch { looked, next }, post })))
    }

    /// Reason to end the send: a delivery after the end of its experiment would expose people after the end.
    fn is_over(&self, now: Millis) -> Option<StalledReason> {
        let over = self.tested.as_ref().filter(|tested| !tested.runs(now))?;
        Some(StalledReason::for_good(format!("the experiment `{}` does not run now", over.id)))
    }

    /// Outcomes of the people from position `send.next` to before `next`. Erased people have no row and are left out.
    fn look(
        &self,
        context: &JobContext<'_>,
        send: &Send,
        next: u32,
    ) -> Result<Result<Vec<ExaminedPerson>, StalledReason>, JobError> {
        let now = (context.draw_inputs)()?.now;
        let mut statement = context.conn.prepare_cached(send_people::SEND_PEOPLE_IN_RANGE)?;
        let rows = statement.query_map((send.no, send.next, next), |row| {
            Ok((row.get::<_, u32>(0)?, visitor_at(row, 1)?, row.get::<_, Option<u8>>(2)?))
        })?;
        let (mut looked, mut people) = (Vec::new(), BTreeSet::new());
        for row in rows {
            let (place, visitor, arm) = row?;
            match self.outcome(context.conn, send, (visitor, arm), &mut people, now)? {
                Ok((outcome, arm)) => looked.push(ExaminedPerson { place, visitor, arm, outcome }),
                Err(stuck) => return Ok(Err(stuck)),
            }
        }
        Ok(Ok(looked))
    }

    fn outcome(
        &self,
        conn: &Connection,
        send: &Send,
        (visitor, arm): (VisitorId, Option<u8>),
        people: &mut BTreeSet<PersonNo>,
        now: Millis,
    ) -> Result<Result<(SendOutcome, Option<u8>), StalledReason>, StoreError> {
        let Some(person) = person_of(conn, send, visitor)? else { return Ok(Ok((SendOutcome::Gone, arm))) };
        if people.contains(&person)
            || conn.prepare_cached(visitors::VISITORS_OF_PERSON_WITH_OUTCOME)?.exists((send.no, person.0))?
        {
            return Ok(Ok((SendOutcome::Merged, arm)));
        }
        let someone = match person_row::read(conn, person) {
            // Whether the person matches is unknown, so that it is left out. The others are delivered.
            Err(e) if e.is_of_a_value() => {
                tracing::error!(person = person.0, error = %error_chain(&e), "a person cannot be read");
                return Ok(Ok((SendOutcome::Left, arm)));
            }
            someone => someone?,
        };
        let Some(someone) = someone else { return Ok(Ok((SendOutcome::Gone, arm))) };
        if !someone.matches_filter(&self.filter, now) {
            return Ok(Ok((SendOutcome::Left, arm)));
        }
        people.insert(person);
        let Some(tested) = &self.tested else { return Ok(Ok((SendOutcome::Delivered, arm))) };
        // A person that saw an arm since the draw stays in that arm.
        let Some(code) = first_exposure(conn, person, tested)?.or(arm) else {
            return Ok(Ok((SendOutcome::Delivered, None)));
        };
        let Some(arm) = tested.arm_of(code) else {
            // Without the catalogue it is unknown whether the arm was the control.
            let why =
                format!("people are in the arm of code {code}, which the experiment `{}` no longer has", tested.id);
            return Ok(Err(StalledReason::for_good(why)));
        };
        Ok(Ok((if arm.control { SendOutcome::Control } else { SendOutcome::Delivered }, Some(code))))
    }

    fn post(&self, context: &JobContext<'_>, send: &Send, looked: &[ExaminedPerson]) -> Result<Option<Post>, JobError> {
        let Some(webhook) = &self.webhook else { return Ok(None) };
        let (tenant, arms) =
            (&self.known.config.name, self.tested.as_ref().map_or_else(ArmNames::default, ArmNames::named));
        let delivered = looked.iter().filter(|one| one.outcome == SendOutcome::Delivered);
        let people: Vec<Value> = delivered
            .map(|ExaminedPerson { place, visitor, arm, .. }| {
                let arm = arm.map(|arm| arms.name(arm));
                json!({ "person": visitor.to_string(), "arm": arm, "key": send.key(tenant, *place) })
            })
            .collect();
        if people.is_empty() {
            return Ok(None);
        }
        let body =
            json!({ "tenant": tenant, "send": send.name, "experiment": send.terms.experiment, "people": people });
        let (webhook, body, now) = (webhook.clone(), body.to_string(), (context.draw_inputs)()?.now);
        Ok(Some(Box::new(move || webhook.post(body.as_bytes(), now))))
    }

    /// Stores the outcomes of a batch and exposes its people to their arms.
    pub(crate) fn keep(
        &self,
        context: &mut JobContext<'_>,
        send: &mut Send,
        ExaminedBatch { looked, next }: &ExaminedBatch,
    ) -> Result<(), StoreError> {
        let (given, mut sums) = ((context.draw_inputs)()?, send.sums);
        let now = given.now;
        looked.iter().for_each(|one| sums.add(one.outcome));
        // People erased since the draw have no row.
        let next = *next;
        sums.gone += (next - send.next).saturating_sub(looked.len() as u32);
        let note = |tx: &Connection| {
            for ExaminedPerson { place, arm, outcome, .. } in looked {
                tx.prepare_cached(send_people::SEND_PEOPLE_SET_OUTCOME)?.execute((
                    send.no,
                    place,
                    *outcome as u8,
                    arm,
                    signed(now),
                ))?;
            }
            let SendTotals { delivered, control, gone, merged, left } = sums;
            tx.prepare_cached(sends::SENDS_SET_PROGRESS)?.execute((
                send.no,
                next,
                delivered,
                control,
                gone,
                merged,
                left,
                signed(now),
            ))?;
            Ok(())
        };
        let facts: Vec<CheckedFact> = looked.iter().filter_map(|one| self.exposure(send, one, now)).collect();
        let records: Vec<Arc<LogRecord>> = if facts.is_empty() {
            Vec::new()
        } else {
            vec![Arc::new(LogRecord::bulk(facts, Attribution::by("job:send")))]
        };
        commit::commit_with(context.conn, context.rules, context.metrics, given, |_| Ok(records), &[], note)?;
        (send.next, send.sums) = (next, sums);
        Ok(())
    }

    fn exposure(&self, send: &Send, one: &ExaminedPerson, now: Millis) -> Option<CheckedFact> {
        let (experiment, arm) = (self.tested.as_ref()?.code, one.arm?);
        matches!(one.outcome, SendOutcome::Delivered | SendOutcome::Control).then(|| {
            let id = FactId::of_job(one.visitor, &format!("send {}", send.name));
            let what = FactKind::Exposure { experiment, arm };
            CheckedFact {
                tenant: send.tenant,
                fact: Fact { position: 0, id, visitor: one.visitor, received: now, at: now, what },
            }
        })
    }
}

/// Draws a send's people and assigns their arms. People who were exposed to the experiment before are not drawn.
/// Returns the number of drawn people; the inner error is the reason why none could be drawn. A draw without people
/// ends the send with a reason.
fn choose_people(
    context: &mut JobContext<'_>,
    send: &Send,
    filter: &Filter,
    tested: Option<&Experiment>,
) -> Result<Result<u32, String>, JobError> {
    let AllMembers { mut members, unreadable, .. } = match materialise::audience_members(context, send.tenant, filter)?
    {
        Ok(everyone) => everyone,
        Err(why) => return Ok(Err(why)),
    };
    let (mut drawn, all) = (Vec::new(), u64::from(send.terms.count));
    let mut left_out = LeftOut { matching: members.len(), exposed: 0, unreadable };
    for (looked, visitor) in RandomDraw::new(&mut members, send.random).enumerate() {
        // Nearly all of very many people may be left out, so that the loop must pause.
        if looked % PIECE == PIECE - 1 {
            (context.report_progress)(0, all)?;
            (context.pause)();
        }
        let Some(person) = person_of(context.conn, send, visitor)? else { continue };
        let exposed = tested.map(|tested| first_exposure(context.conn, person, tested)).transpose()?.flatten();
        if exposed.is_none() {
            drawn.push(visitor);
        } else {
            left_out.exposed += 1;
        }
        if drawn.len() as u64 == all {
            break;
        }
    }
    let (chosen, now) = (drawn.len() as u32, (context.draw_inputs)()?.now);
    let shares = tested.map(|tested| results::shares_report(context.conn, send.tenant, tested, now)).transpose()?;
    let (codes, shares): (Vec<u8>, Vec<u32>) = shares.unwrap_or_default().into_iter().unzip();
    let mut arms = ArmDealer::new(arm_quotas(&shares, chosen)).map(|arm| codes.get(arm).copied());
    // Deletes rows that an interrupted run had written.
    while context.conn.prepare_cached(send_people::SEND_PEOPLE_DELETE_SOME)?.execute((send.no, signed(PIECE as u64)))?
        == PIECE
    {
        (context.report_progress)(0, chosen.into())?;
        (context.pause)();
    }
    let mut next = 0_u32;
    for some in drawn.chunks(PIECE) {
        let tx = context.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut put = tx.prepare_cached(send_people::SEND_PEOPLE_INSERT_UNLESS_ERASED)?;
        for visitor in some {
            put.execute((send.no, next, visitor.as_bytes(), arms.next().flatten(), send.tenant.0))?;
            next += 1;
        }
        drop(put);
        tx.commit()?;
        (context.report_progress)(0, chosen.into())?;
        (context.pause)();
    }
    let reason = (chosen == 0).then(|| left_out.reason(send));
    context.conn.prepare_cached(sends::SENDS_SET_CHOSEN)?.execute((send.no, chosen, reason))?;
    Ok(Ok(chosen))
}

/// People who match a send's filter but are not drawn.
struct LeftOut {
    matching: usize,
    /// People who were exposed to the send's experiment.
    exposed: usize,
    /// People of the tenant whose stored values cannot be read. Whether they match is unknown.
    unreadable: u64,
}

impl LeftOut {
    /// Reason why no person was drawn.
    fn reason(&self, send: &Send) -> String {
        let Self { matching, exposed, unreadable } = *self;
        let experiment = send.terms.experiment.as_deref().unwrap_or_default();
        match matching.saturating_sub(exposed) {
            _ if matching == 0 && unreadable > 0 => {
                format!("no person matches the filter; {unreadable} people cannot be read")
            }
            _ if matching == 0 => "no person matches the filter".to_owned(),
            0 => format!(
                "all {matching} people who match the filter were exposed to the experiment `{experiment}` before: a \
                 send draws only other people"
            ),
            others if exposed == 0 => format!("all {others} people who match the filter withdrew or were erased"),
            others => format!(
                "none of the {matching} people who match the filter can be drawn: {exposed} were exposed to the experiment \
                 `{experiment}` before, {others} withdrew or were erased"
            ),
        }
    }
}

/// The person of a visitor that did not withdraw.
fn person_of(conn: &Connection, send: &Send, visitor: VisitorId) -> Result<Option<PersonNo>, StoreError> {
    let key = (send.tenant.0, visitor.as_bytes());
    Ok(conn
        .prepare_cached(visitors::VISITORS_PERSON_OF_ID_WITH_PERMISSION)?
        .query_row(key, |row| row.get(0).map(PersonNo))
        .optional()?)
}

/// The first arm that a person was exposed to.
fn first_exposure(conn: &Connection, person: PersonNo, tested: &Experiment) -> Result<Option<u8>, StoreError> {
    Ok(experiment::of_person(conn, person)?.get(tested.code).map(|exposure| exposure.arm))
}

/// Whether the send was not stopped meanwhile.
fn is_open(conn: &Connection, send: &Send) -> Result<bool, StoreError> {
    Ok(conn.prepare_cached(sends::SENDS_IS_OPEN)?.exists([send.no])?)
}

/// Longest delay between two failed attempts, in milliseconds.
pub(crate) const AGAIN_MS: u64 = 3_600_000;

/// Reason why a send cannot continue now.
#[derive(Debug)]
pub(crate) struct StalledReason {
    pub(crate) why: String,
    /// `None` for a permanent failure. Otherwise the delay that the receiver requested, if any.
    pub(crate) again: Option<Option<Millis>>,
}

impl StalledReason {
    pub(crate) fn for_good(why: impl Into<String>) -> Self {
        Self { why: why.into(), again: None }
    }

    /// Records the reason. The send is tried again after the requested delay, but at least a second, or after 1, 2, 4,
    /// … seconds since its last progress.
    pub(crate) fn keep(&self, conn: &Connection, send: &Send, now: Millis) -> Result<(), StoreError> {
        let after = self.again.flatten().map(|after| signed(after.max(1_000)));
        let from = self.again.map(|_| signed(now));
        conn.prepare_cached(sends::SENDS_SET_ERROR)?.execute((send.no, &self.why, from, after, signed(AGAIN_MS)))?;
        Ok(())
    }
}
