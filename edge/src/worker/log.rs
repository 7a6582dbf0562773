//! The worker's log and counters. Neither contains an id.

use std::cell::Cell;

use causeway_shared::wire::sync::FilterReason;
use serde::Serialize;
use serde_json::{Map, Value};

use super::bindings::{add_count, list_counts, read_count};

/// Facts that neither the queue nor the origin accepted.
pub(super) const FACTS_LOST: &str = "facts_lost";
/// Queue messages that were given up.
pub(super) const DEAD_LETTERS: &str = "dead_letters";
/// Instances that were replaced after a trap.
pub(super) const RESTARTS: &str = "module_restarts";
/// Time at which the origin last answered a sync, in milliseconds since the epoch; 0 for never.
pub(super) const LAST_SYNC: &str = "last_sync_ms";
const NOTE_PREFIX: &str = "note_";

/// A counter that syncs report to the origin.
pub(super) struct ReportedCounter {
    pub(super) name: &'static str,
    /// Name of the counter of the reported part.
    reported: &'static str,
    /// Part that syncs of this instance are reporting now, so that concurrent syncs do not report it twice.
    in_progress: Cell<u64>,
    /// Whether everything was reported when last checked, and nothing was added since. An earlier instance may have
    /// added to the counter.
    is_reported: Cell<bool>,
}

thread_local! {
    pub(super) static LOST: ReportedCounter = const { ReportedCounter::new(FACTS_LOST, "facts_lost_reported") };
    pub(super) static DEAD: ReportedCounter = const { ReportedCounter::new(DEAD_LETTERS, "dead_letters_reported") };
    /// Requests that were answered but not counted, by reason. They are the counters of their notes.
    static FILTERED: [ReportedCounter; FilterReason::ALL.len()] = const {
        [
            ReportedCounter::new("note_bot", "bots_reported"),
            ReportedCounter::new("note_prefetch", "prefetches_reported"),
            ReportedCounter::new("note_head", "heads_reported"),
        ]
    };
}

/// The part of the counters that one sync reports. [`Self::end`] must follow.
pub(super) struct CounterReport {
    pub(super) lost: u64,
    pub(super) dead: u64,
    pub(super) filtered: [u64; FilterReason::ALL.len()],
}

impl CounterReport {
    pub(super) fn begin() -> Self {
        Self {
            lost: LOST.with(ReportedCounter::begin_report),
            dead: DEAD.with(ReportedCounter::begin_report),
            filtered: FILTERED.with(|all| all.each_ref().map(ReportedCounter::begin_report)),
        }
    }

    /// Ends the report; `is_accepted` is whether the origin accepted it.
    pub(super) fn end(&self, is_accepted: bool) {
        LOST.with(|counter| counter.end_report(self.lost, is_accepted));
        DEAD.with(|counter| counter.end_report(self.dead, is_accepted));
        FILTERED.with(|all| all.iter().zip(self.filtered).for_each(|(one, by)| one.end_report(by, is_accepted)));
    }
}

/// Whether filtered requests wait to be reported. Checked on every request.
pub(super) fn has_unreported_filtered() -> bool {
    FILTERED.with(|all| all.iter().any(ReportedCounter::has_unreported))
}

impl ReportedCounter {
    const fn new(name: &'static str, reported: &'static str) -> Self {
        Self { name, reported, in_progress: Cell::new(0), is_reported: Cell::new(false) }
    }

    /// Adds to the counter.
    pub(super) fn add(&self, by: u64) {
        self.is_reported.set(false);
        add(self.name, by);
    }

    /// The part that the origin does not know yet and no sync is reporting.
    fn unreported(&self) -> u64 {
        count(self.name).saturating_sub(count(self.reported) + self.in_progress.get())
    }

    /// Begins a report and returns its part. [`Self::end_report`] must follow.
    fn begin_report(&self) -> u64 {
        let by = self.unreported();
        self.in_progress.set(self.in_progress.get() + by);
        by
    }

    /// Ends a report; `is_accepted` is whether the origin accepted it.
    fn end_report(&self, by: u64, is_accepted: bool) {
        self.in_progress.set(self.in_progress.get().saturating_sub(by));
        if is_accepted {
            add(self.reported, by);
        }
    }

    /// Whether there is an unreported part. Checked on every request.
    pub(super) fn has_unreported(&self) -> bool {
        if !self.is_reported.get() {
            self.is_reported.set(count(self.name) == count(self.reported));
        }
        !self.is_reported.get() && self.unreported() > 0
    }
}

/// Adds to a counter.
pub(super) fn add(name: &str, by: u64) {
    if by > 0 {
        #[expect(clippy::cast_precision_loss, reason = "a counter of an isolate is far below 2^53")]
        add_count(name, by as f64);
    }
}

/// The value of a counter.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are whole and not negative")]
pub(super) fn count(name: &str) -> u64 {
    read_count(name) as u64
}

/// Counts the causes that degraded an answer, and the reason why a request was not counted.
pub(super) fn count_notes(notes: &[&'static str]) {
    for note in notes {
        let name = format!("{NOTE_PREFIX}{note}");
        FILTERED.with(|all| match all.iter().find(|counter| counter.name == name) {
            Some(counter) => counter.add(1),
            None => add(&name, 1),
        });
    }
}

/// The counters of notes, by note.
pub(super) fn list_notes() -> Map<String, Value> {
    let all: Map<String, Value> = serde_json::from_str(&list_counts()).unwrap_or_default();
    let note = |(name, value): (String, Value)| Some((name.strip_prefix(NOTE_PREFIX)?.to_owned(), value));
    all.into_iter().filter_map(note).collect()
}

/// Writes one line of JSON to the log.
pub(super) fn log_event(event: &str, fields: impl Serialize) {
    let mut line = Map::from_iter([("event".to_owned(), Value::from(event))]);
    if let Ok(Value::Object(fields)) = serde_json::to_value(fields) {
        line.extend(fields);
    }
    worker::console_log!("{}", Value::Object(line));
}
