//! The job `send`: sends that are due are drawn, and their people told, in their order and no faster than is said
//! ([`crate::jobs::tasks::dispatch`]). Tenants are told beside each other, so that a receiver that says nothing holds up its own tenant alone.

use crate::base::job_kinds::JobKind;
use crate::jobs::context::BackgroundJob;
use crate::jobs::tasks::dispatch::{AGAIN_MS, StalledReason};
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
use crate::jobs::context::{JobContext, JobReport, PAUSE, isolate_failure};
use crate::jobs::runs::JobRun;
use crate::jobs::tasks::dispatch::{DispatchContext, ExaminedBatch, StartedCall};
use crate::store::StoreError;
use crate::store::tenants::Tenants;

/// How long a run tells people, where other jobs wait.
const SLICE: Duration = Duration::from_secs(20);
/// How often it is looked for sends that became due.
const LOOK: Duration = Duration::from_secs(1);
/// So many receivers are told at once: each takes a thread.
const RECEIVERS: usize = 16;
/// Sends told in a report.
const TOLD: usize = 100;

/// The job `send`: notifies the people that sends have drawn.
#[derive(Debug)]
pub(crate) struct SendJob;

impl BackgroundJob for SendJob {
    fn kind(&self) -> JobKind {
        JobKind::Send
    }

    fn run(&self, place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
        deliver_sends(place, run)
    }
}

/// Goes on with all sends that are due.
///
/// # Errors
/// [`StoreError`]. A send that cannot go on, as the store cannot give what it needs too, lets the others go on, and fails the
/// run.
fn deliver_sends(place: &mut JobContext<'_>, run: &JobRun) -> Result<JobReport, StoreError> {
    let due = send::due_sends(place.conn, (place.given)()?.now)?;
    let failed = if run.asked.dry_run { None } else { beside_each_other(place)? };
    let mut told = Vec::new();
    for send in due.iter().take(TOLD) {
        let now = send::find_send(place.conn, send.tenant, &send.name)?;
        told.extend(now.map(|send| send_report(&send, &place.rules.tenants)));
    }
    Ok(JobReport { report: json!({ "sends": due.len(), "told": told }), failed })
}

/// A send as a run's report tells it, without its filter: a hundred of those would be too long.
fn send_report(send: &Send, tenants: &Tenants) -> Value {
    let mut told = send.told(tenants);
    told.as_object_mut().map(|told| told.remove("filter"));
    told
}

/// Has a send wait whose receiver takes no more for now, which is no error; as [`StalledReason::keep`] has it.
fn hold_send(conn: &Connection, send: &Send, after: Option<Millis>, now: Millis) -> Result<(), StoreError> {
    const HOLD: &str = "UPDATE sends SET error = NULL, due = ?2 + ifnull(?3, min(?4, 1000 << min(tries, 12))),
        tries = tries + 1 WHERE send = ?1 AND due IS NOT NULL";
    let after = after.map(|after| signed(after.max(1_000)));
    conn.prepare_cached(HOLD)?.execute((send.no, signed(now), after, signed(AGAIN_MS)))?;
    Ok(())
}

/// Tells the people of all sends that are due for a time, some of one after some of another; gives why the first that cannot go on
/// does not.
fn beside_each_other(place: &mut JobContext<'_>) -> Result<Option<String>, StoreError> {
    let (answer, answers) = channel();
    std::thread::scope(|scope| {
        let begun = (place.elapsed)();
        let (open, posted) = Default::default();
        let mut round = DeliveryRound { scope, open, posted, answer, begun, looks: begun, failed: None };
        let cut = round.go_on(place, &answers).err();
        // Whoever was told already: it is waited for, and kept.
        while !round.posted.is_empty() {
            round.hear(place, &answers, PAUSE)?;
        }
        cut.map_or(Ok(round.failed), Err)
    })
}

/// A send that is not over.
struct OpenSend<'a> {
    send: Send,
    /// Made when its turn comes.
    sending: Option<DispatchContext<'a>>,
    /// When it may be told next, by the run's clock.
    ready: Duration,
}

/// Some that its receiver is being told of.
struct PostedBatch {
    batch: ExaminedBatch,
    begun: Duration,
}

struct DeliveryRound<'a, 'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// By the sends' numbers.
    open: BTreeMap<i64, OpenSend<'a>>,
    posted: BTreeMap<i64, PostedBatch>,
    answer: Sender<(i64, WebhookAnswer)>,
    begun: Duration,
    /// When it looks next for what is due.
    looks: Duration,
    failed: Option<String>,
}

impl<'a> DeliveryRound<'a, '_, '_> {
    fn go_on(
        &mut self,
        place: &mut JobContext<'a>,
        answers: &Receiver<(i64, WebhookAnswer)>,
    ) -> Result<(), StoreError> {
        loop {
            let now = (place.elapsed)();
            let (mut kept, mut wait) = (false, Duration::ZERO);
            if self.looks <= now {
                self.looks = now + LOOK;
                for send in send::due_sends(place.conn, (place.given)()?.now)? {
                    self.open.entry(send.no).or_insert(OpenSend { send, sending: None, ready: now });
                }
            }
            match self.next(now - self.begun) {
                Some((of, ready)) if ready <= now => kept = self.tell(place, of)?,
                Some((_, ready)) => wait = PAUSE.min(ready - now),
                // The next run takes it that each may be told at once.
                None if self.posted.is_empty() => match self.open.values().map(|open| open.ready).max() {
                    Some(ready) if ready > now => wait = PAUSE.min(ready - now),
                    _ => return Ok(()),
                },
                None => wait = PAUSE,
            }
            if self.posted.is_empty() {
                (place.wait)(wait);
            } else {
                kept |= self.hear(place, answers, wait)?;
            }
            if kept || !wait.is_zero() {
                self.told(place)?;
            }
            if kept {
                (place.pause)();
            }
        }
    }

    /// Whose turn is next, and when: of each tenant one at a time, as the next goes by what became of it.
    fn next(&self, since: Duration) -> Option<(i64, Duration)> {
        // Beside a receiver that says nothing others go on for as long as it may take.
        let is_waited_for = self.posted.values().any(|posted| posted.begun - self.begun <= SLICE);
        let until = if is_waited_for { SLICE + PATIENCE } else { SLICE };
        let tenants: Vec<_> = self.posted.keys().filter_map(|of| Some(self.open.get(of)?.send.tenant)).collect();
        let is_full = self.posted.len() >= RECEIVERS;
        let may = |open: &OpenSend<'_>| !(tenants.contains(&open.send.tenant) || is_full && open.send.terms.webhook);
        let all = self.open.iter().filter(|(_, open)| may(open)).map(|(of, open)| (*of, open.ready));
        all.min_by_key(|(of, ready)| (*ready, *of)).filter(|_| since <= until)
    }

    /// Tells some of a send; gives whether anything was kept.
    fn tell(&mut self, place: &mut JobContext<'a>, of: i64) -> Result<bool, StoreError> {
        let Some(open) = self.open.get_mut(&of) else { return Ok(false) };
        let begun = (place.elapsed)();
        match isolate_failure(open.begin(place))? {
            Err(why) => self.stuck(place, of, &StalledReason { why, again: Some(None) }),
            Ok(Err(stuck)) => self.stuck(place, of, &stuck),
            Ok(Ok(None)) => {
                self.open.remove(&of);
                Ok(false)
            }
            Ok(Ok(Some(StartedCall { batch, post: None }))) => self.taken(place, of, PostedBatch { batch, begun }),
            Ok(Ok(Some(StartedCall { batch, post: Some(post) }))) => {
                let answer = self.answer.clone();
                let told = move || {
                    let said = catch_unwind(AssertUnwindSafe(post));
                    let broken = |_| WebhookAnswer::Later {
                        why: "the call ended by a fault of the program".to_owned(),
                        after: None,
                    };
                    // Who would hear it waits for it.
                    answer.send((of, said.unwrap_or_else(broken))).unwrap_or_default();
                };
                match Builder::new().name("webhook".to_owned()).spawn_scoped(self.scope, told) {
                    Ok(_) => {
                        self.posted.insert(of, PostedBatch { batch, begun });
                        Ok(false)
                    }
                    Err(e) => self.stuck(place, of, &StalledReason { why: e.to_string(), again: Some(None) }),
                }
            }
        }
    }

    /// Hears what a receiver answers, for so long at most; gives whether anything was kept.
    fn hear(
        &mut self,
        place: &mut JobContext<'a>,
        answers: &Receiver<(i64, WebhookAnswer)>,
        wait: Duration,
    ) -> Result<bool, StoreError> {
        let Ok((of, answer)) = answers.recv_timeout(wait) else { return Ok(false) };
        let Some(posted) = self.posted.remove(&of) else { return Ok(false) };
        match answer {
            WebhookAnswer::Taken => self.taken(place, of, posted),
            WebhookAnswer::Refused(why) => self.stuck(place, of, &StalledReason::for_good(why)),
            WebhookAnswer::Busy { after } => self.busy(place, of, after),
            WebhookAnswer::Later { why, after } => self.stuck(place, of, &StalledReason { why, again: Some(after) }),
        }
    }

    fn taken(
        &mut self,
        place: &mut JobContext<'a>,
        of: i64,
        PostedBatch { batch, begun }: PostedBatch,
    ) -> Result<bool, StoreError> {
        let Some(open) = self.open.get_mut(&of) else { return Ok(false) };
        let kept = isolate_failure(open.keep(place, &batch))?;
        let each = Duration::from_secs(1).checked_div(open.send.terms.per_second).unwrap_or_default();
        open.ready = (begun + each.saturating_mul(batch.told())).max((place.elapsed)());
        match kept {
            Ok(()) => Ok(true),
            Err(why) => self.stuck(place, of, &StalledReason { why, again: Some(None) }),
        }
    }

    /// Has a send wait for its receiver, which asked for it.
    fn busy(&mut self, place: &JobContext<'_>, of: i64, after: Option<Millis>) -> Result<bool, StoreError> {
        let Some(OpenSend { send, .. }) = self.open.remove(&of) else { return Ok(false) };
        hold_send(place.conn, &send, after, (place.given)()?.now)?;
        tracing::info!(send = send.name, after_ms = after, "the webhook takes no more for now: the send waits");
        Ok(true)
    }

    /// Has a send wait.
    fn stuck(&mut self, place: &JobContext<'_>, of: i64, stuck: &StalledReason) -> Result<bool, StoreError> {
        let Some(OpenSend { send, .. }) = self.open.remove(&of) else { return Ok(false) };
        stuck.keep(place.conn, &send, (place.given)()?.now)?;
        self.failed.get_or_insert_with(|| format!("send {}: {}", send.name, stuck.why));
        Ok(true)
    }

    fn told(&self, place: &JobContext<'_>) -> Result<(), StoreError> {
        let sum = |of: fn(&Send) -> u32| self.open.values().map(|open| u64::from(of(&open.send))).sum();
        (place.told)(sum(|send| send.next), sum(|send| send.chosen.unwrap_or_default()))
    }
}

impl<'a> OpenSend<'a> {
    /// What is to be told of some, and by which call; `None` when all are told, or it was stopped.
    fn begin(&mut self, place: &mut JobContext<'a>) -> Result<Result<Option<StartedCall>, StalledReason>, StoreError> {
        let sending = match &self.sending {
            Some(sending) => sending,
            None => match DispatchContext::of(place, &mut self.send)? {
                Ok(sending) => self.sending.insert(sending),
                Err(stuck) => return Ok(Err(stuck)),
            },
        };
        sending.begin(place, &self.send)
    }

    fn keep(&mut self, place: &mut JobContext<'a>, batch: &ExaminedBatch) -> Result<(), StoreError> {
        match &self.sending {
            Some(sending) => sending.keep(place, &mut self.send, batch),
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
        let terms = SendTerms { filter, count: 9, experiment: None, webhook: false, per_second: 0 };
        let send = Send::begin(&mut origin.conn, &known, "may", &terms, 7, NOW).unwrap();
        let wait = |again| {
            StalledReason { why: "busy".to_owned(), again }.keep(&origin.conn, &send, NOW).unwrap();
            send::find_send(&origin.conn, send.tenant, "may").unwrap().unwrap().due.map(|due| due - NOW)
        };
        let again = Some(None);
        assert_eq!([again; 4].map(wait), [1_000, 2_000, 4_000, 8_000].map(Some));
        assert_eq!(wait(Some(Some(77_000))), Some(77_000), "as its receiver says");
        assert_eq!(wait(Some(Some(0))), Some(1_000), "and no sooner than by itself");
        // It got on, in the same run of the job.
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
        let terms = SendTerms { filter: "{}".to_owned(), count: 9, experiment: None, webhook: false, per_second: 0 };
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
        // One that was stopped meanwhile stays so.
        send::stop_send(&origin.conn, send.tenant, "may").unwrap();
        hold_send(&origin.conn, &send, None, NOW).unwrap();
        assert_eq!((found(&origin).due, found(&origin).error.as_deref()), (None, Some("stopped")));
    }
}
