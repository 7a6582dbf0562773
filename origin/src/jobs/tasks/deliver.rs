//! The job `send`: draws the people of due sends and delivers to them in their order, within the sends' rate limits
//! ([`crate::jobs::tasks::dispatch`]). Tenants are served in parallel, so that a receiver that does not answer delays
//! only its own tenant.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Duration;

use causeway_shared::base::ids::Millis;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::audience::send::{self, Send};
use crate::audience::webhook::{PATIENCE, WebhookAnswer};
use crate::base::integers::signed;
use crate::jobs::context::BackgroundJob;
use crate::jobs::context::{JobContext, JobReport, PAUSE, isolate_failure};
use crate::jobs::runs::JobRun;
use crate::jobs::tasks::dispatch::{AGAIN_MS, StalledReason};
use crate::jobs::tasks::dispatch::{DispatchContext, ExaminedBatch, StartedCall};
use crate::store::job_error::JobError;
use crate::store::tables::sends;
use crate::store::tenants::Tenants;
use crate::store::{SendNo, StoreError};

/// Time for which a run delivers before other jobs get their turn.
const SLICE: Duration = Duration::from_secs(20);
/// Interval between two searches for due sends.
const LOOK: Duration = Duration::from_secs(1);
/// Most receivers called in parallel; each call takes a thread.
const RECEIVERS: usize = 16;
/// Most sends named in a report.
const REPORTED: usize = 100;

/// The job `send`: delivers to the people that sends have drawn.
#[derive(Debug)]
pub(crate) struct SendJob;

impl BackgroundJob for SendJob {
    fn run(&self, context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
        deliver_sends(context, run)
    }
}

/// Continues all sends that are due.
///
/// # Errors
/// [`JobError`]. A failed send does not stop the others; it fails the run.
fn deliver_sends(context: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, JobError> {
    let due = send::due_sends(context.conn, (context.draw_inputs)()?.now)?;
    let failed = if run.request.dry_run { None } else { deliver_in_parallel(context)? };
    let mut reports = Vec::new();
    for send in due.iter().take(REPORTED) {
        let now = send::find_send(context.conn, send.tenant, &send.name)?;
        reports.extend(now.map(|send| send_report(&send, &context.rules.tenants)));
    }
    Ok(JobReport { report: json!({ "sends": due.len(), "reports": reports }), failed })
}

/// A send for a run's report, without its filter: a hundred filters would be too long.
fn send_report(send: &Send, tenants: &Tenants) -> Value {
    let mut report = json!(send.describe(tenants));
    report.as_object_mut().map(|report| report.remove("filter"));
    report
}

/// Postpones a send whose receiver accepts no more messages for now. This is not an error. The delays are those of
/// [`StalledReason::keep`].
fn hold_send(conn: &Connection, send: &Send, after: Option<u64>, now: Millis) -> Result<(), StoreError> {
    let after = after.map(|after| signed(after.max(1_000)));
    conn.prepare_cached(sends::SENDS_HOLD)?.execute((send.no, signed(now), after, signed(AGAIN_MS)))?;
    Ok(())
}

/// Delivers all due sends for a time slice, interleaved. Returns the reason of the first send that failed.
fn deliver_in_parallel(context: &mut JobContext<'_>) -> Result<Option<String>, JobError> {
    let (answer, answers) = channel();
    std::thread::scope(|scope| {
        let begun = (context.elapsed)();
        let (open, posted) = Default::default();
        let mut round = DeliveryRound { scope, open, posted, answer, begun, looks: begun, failed: None };
        let cut = round.go_on(context, &answers).err();
        // Calls under way are waited for and recorded, because their people may have been delivered.
        while !round.posted.is_empty() {
            round.hear(context, &answers, PAUSE)?;
        }
        cut.map_or(Ok(round.failed), Err)
    })
}

/// A send that has not ended.
struct OpenSend<'a> {
    send: Send,
    /// Created at the send's first turn.
    sending: Option<DispatchContext<'a>>,
    /// Earliest time of the next batch, by the run's clock.
    ready: Duration,
}

/// A batch whose webhook call is under way.
struct PostedBatch {
    batch: ExaminedBatch,
    begun: Duration,
}

struct DeliveryRound<'a, 'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// Open sends by number.
    open: BTreeMap<SendNo, OpenSend<'a>>,
    posted: BTreeMap<SendNo, PostedBatch>,
    answer: Sender<(SendNo, WebhookAnswer)>,
    begun: Duration,
    /// Time of the next search for due sends.
    looks: Duration,
    failed: Option<String>,
}

impl<'a> DeliveryRound<'a, '_, '_> {
    fn go_on(
        &mut self,
        context: &mut JobContext<'a>,
        answers: &Receiver<(SendNo, WebhookAnswer)>,
    ) -> Result<(), JobError> {
        loop {
            let now = (context.elapsed)();
            let (mut is_stored, mut wait) = (false, Duration::ZERO);
            if self.looks <= now {
                self.looks = now + LOOK;
                for send in send::due_sends(context.conn, (context.draw_inputs)()?.now)? {
                    self.open.entry(send.no).or_insert(OpenSend { send, sending: None, ready: now });
                }
            }
            match self.next(now - self.begun) {
                Some((of, ready)) if ready <= now => is_stored = self.deliver_batch(context, of)?,
                Some((_, ready)) => wait = PAUSE.min(ready - now),
                // The next run assumes that each send may continue at once, so that this run waits for the last rate
                // limit.
                None if self.posted.is_empty() => match self.open.values().map(|open| open.ready).max() {
                    Some(ready) if ready > now => wait = PAUSE.min(ready - now),
                    _ => return Ok(()),
                },
                None => wait = PAUSE,
            }
            if self.posted.is_empty() {
                (context.wait)(wait);
            } else {
                is_stored |= self.hear(context, answers, wait)?;
            }
            if is_stored || !wait.is_zero() {
                self.report_progress(context)?;
            }
            if is_stored {
                (context.pause)();
            }
        }
    }

    /// The next send and its earliest time. A tenant has one call at a time, because the next batch depends on its
    /// outcome.
    fn next(&self, since: Duration) -> Option<(SendNo, Duration)> {
        // While a call is under way, other sends continue for at most the call's time limit.
        let is_waited_for = self.posted.values().any(|posted| posted.begun - self.begun <= SLICE);
        let until = if is_waited_for { SLICE + PATIENCE } else { SLICE };
        let tenants: Vec<_> = self.posted.keys().filter_map(|of| Some(self.open.get(of)?.send.tenant)).collect();
        let is_full = self.posted.len() >= RECEIVERS;
        let may = |open: &OpenSend<'_>| !(tenants.contains(&open.send.tenant) || is_full && open.send.terms.webhook);
        let all = self.open.iter().filter(|(_, open)| may(open)).map(|(of, open)| (*of, open.ready));
        all.min_by_key(|(of, ready)| (*ready, *of)).filter(|_| since <= until)
    }

    /// Delivers the next batch of a send. Returns whether anything was stored.
    fn deliver_batch(&mut self, context: &mut JobContext<'a>, of: SendNo) -> Result<bool, JobError> {
        let Some(open) = self.open.get_mut(&of) else { return Ok(false) };
        let begun = (context.elapsed)();
        match isolate_failure(open.begin(context))? {
            Err(why) => self.stuck(context, of, &StalledReason { why, again: Some(None) }),
            Ok(Err(stuck)) => self.stuck(context, of, &stuck),
            Ok(Ok(None)) => {
                self.open.remove(&of);
                Ok(false)
            }
            Ok(Ok(Some(StartedCall { batch, post: None }))) => self.taken(context, of, PostedBatch { batch, begun }),
            Ok(Ok(Some(StartedCall { batch, post: Some(post) }))) => {
                let answer = self.answer.clone();
                let call = move || {
                    let answered = catch_unwind(AssertUnwindSafe(post));
                    let broken =
                        |_| WebhookAnswer::Later { why: "an internal error ended the call".to_owned(), after: None };
                    // The receiver of the channel outlives the thread, so that the send cannot fail.
                    answer.send((of, answered.unwrap_or_else(broken))).unwrap_or_default();
                };
                match Builder::new().name("webhook".to_owned()).spawn_scoped(self.scope, call) {
                    Ok(_) => {
                        self.posted.insert(of, PostedBatch { batch, begun });
                        Ok(false)
                    }
                    Err(e) => self.stuck(context, of, &StalledReason { why: e.to_string(), again: Some(None) }),
                }
            }
        }
    }

    /// Handles one answer of a receiver, or returns after `wait`. Returns whether anything was stored.
    fn hear(
        &mut self,
        context: &mut JobContext<'a>,
        answers: &Receiver<(SendNo, WebhookAnswer)>,
        wait: Duration,
    ) -> Result<bool, JobError> {
        let Ok((of, answer)) = answers.recv_timeout(wait) else { return Ok(false) };
        let Some(posted) = self.posted.remove(&of) else { return Ok(false) };
        match answer {
            WebhookAnswer::Taken => self.taken(context, of, posted),
            WebhookAnswer::Refused(why) => self.stuck(context, of, &StalledReason::for_good(why)),
            WebhookAnswer::Busy { after } => self.busy(context, of, after),
            WebhookAnswer::Later { why, after } => self.stuck(context, of, &StalledReason { why, again: Some(after) }),
        }
    }

    fn taken(
        &mut self,
        context: &mut JobContext<'a>,
        of: SendNo,
        PostedBatch { batch, begun }: PostedBatch,
    ) -> Result<bool, JobError> {
        let Some(open) = self.open.get_mut(&of) else { return Ok(false) };
        let stored = isolate_failure(open.keep(context, &batch))?;
        let each = open.send.terms.per_second.map_or(Duration::ZERO, |most| Duration::from_secs(1) / most.get());
        open.ready = (begun + each.saturating_mul(batch.people_count())).max((context.elapsed)());
        match stored {
            Ok(()) => Ok(true),
            Err(why) => self.stuck(context, of, &StalledReason { why, again: Some(None) }),
        }
    }

    /// Postpones a send because its receiver is busy.
    fn busy(&mut self, context: &JobContext<'_>, of: SendNo, after: Option<u64>) -> Result<bool, JobError> {
        let Some(OpenSend { send, .. }) = self.open.remove(&of) else { return Ok(false) };
        hold_send(context.conn, &send, after, (context.draw_inputs)()?.now)?;
        tracing::info!(
            send = send.name,
            after_ms = after,
            "the webhook accepts no more messages for now: the send waits"
        );
        Ok(true)
    }

    /// Records why a send cannot continue, and when it is tried again.
    fn stuck(&mut self, context: &JobContext<'_>, of: SendNo, stuck: &StalledReason) -> Result<bool, JobError> {
        let Some(OpenSend { send, .. }) = self.open.remove(&of) else { return Ok(false) };
        stuck.keep(context.conn, &send, (context.draw_inputs)()?.now)?;
        self.failed.get_or_insert_with(|| format!("send {}: {}", send.name, stuck.why));
        Ok(true)
    }

    fn report_progress(&self, context: &JobContext<'_>) -> Result<(), JobError> {
        let sum = |of: fn(&Send) -> u32| self.open.values().map(|open| u64::from(of(&open.send))).sum();
        (context.report_progress)(sum(|send| send.next), sum(|send| send.chosen.unwrap_or_default()))
    }
}

impl<'a> OpenSend<'a> {
    /// Prepares the next batch and its call. Returns `None` if the send has ended or was stopped.
    fn begin(&mut self, context: &mut JobContext<'a>) -> Result<Result<Option<StartedCall>, StalledReason>, JobError> {
        let sending = match &self.sending {
            Some(sending) => sending,
            None => match DispatchContext::of(context, &mut self.send)? {
                Ok(sending) => self.sending.insert(sending),
                Err(stuck) => return Ok(Err(stuck)),
            },
        };
        sending.begin(context, &self.send)
    }

    fn keep(&mut self, context: &mut JobContext<'a>, batch: &ExaminedBatch) -> Result<(), JobError> {
        match &self.sending {
            Some(sending) => Ok(sending.keep(context, &mut self.send, batch)?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::audience::send::SendTerms;
    use crate::testing::{NOW, Origin};

    #[test]
    fn one_that_is_stuck_waits_twice_as_long_each_time_from_when_it_last_got_on() {
        let mut origin = Origin::new();
        let known = origin.tenant("demo").clone();
        let filter = "{}".to_owned();
        let terms = SendTerms { filter, count: 9, experiment: None, webhook: false, per_second: None };
        let send = Send::begin(&mut origin.conn, &known, "may", &terms, 7, NOW).unwrap();
        let wait = |again| {
            StalledReason { why: "busy".to_owned(), again }.keep(&origin.conn, &send, NOW).unwrap();
            send::find_send(&origin.conn, send.tenant, "may").unwrap().unwrap().due.map(|due| due - NOW)
        };
        let again = Some(None);
        assert_eq!([again; 4].map(wait), [1_000, 2_000, 4_000, 8_000].map(Some));
        assert_eq!(wait(Some(Some(77_000))), Some(77_000), "as its receiver says");
        assert_eq!(wait(Some(Some(0))), Some(1_000), "and no sooner than by itself");
        // The send made progress in the same run of the job.
        origin.conn.execute("UPDATE sends SET tries = 0", []).unwrap();
        assert_eq!([again; 2].map(wait), [1_000, 2_000].map(Some));
        origin.conn.execute("UPDATE sends SET tries = 40", []).unwrap();
        assert_eq!(wait(again), Some(AGAIN_MS));
        assert_eq!([None, again].map(wait), [None; 2], "for good");
    }

    #[test]
    fn one_whose_receiver_takes_no_more_for_now_waits_as_it_is_asked_and_has_no_error() {
        let mut origin = Origin::new();
        let known = origin.tenant("demo").clone();
        let terms = SendTerms { filter: "{}".to_owned(), count: 9, experiment: None, webhook: false, per_second: None };
        let send = Send::begin(&mut origin.conn, &known, "may", &terms, 7, NOW).unwrap();
        let found = |origin: &Origin| send::find_send(&origin.conn, send.tenant, "may").unwrap().unwrap();
        StalledReason { why: "down".to_owned(), again: Some(None) }.keep(&origin.conn, &send, NOW).unwrap();
        let mut waits = Vec::new();
        for after in [Some(77_000), Some(0), None] {
            hold_send(&origin.conn, &send, after, NOW).unwrap();
            waits.push(found(&origin).due.unwrap() - NOW);
            assert_eq!(found(&origin).error, None);
        }
        assert_eq!(waits, [77_000, 1_000, 8_000]);
        // A send that was stopped meanwhile stays stopped.
        send::stop_send(&origin.conn, send.tenant, "may").unwrap();
        hold_send(&origin.conn, &send, None, NOW).unwrap();
        assert_eq!((found(&origin).due, found(&origin).error.as_deref()), (None, Some("stopped")));
    }
}
