//! The origin's metrics and their Prometheus text. No label carries an id.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{DAY_MS, MINUTE_MS};
use causeway_shared::wire::sync::FilterReason;

use crate::base::job_kinds::{JobKind, RunOutcome};
use crate::base::log_output;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The total.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A current value.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 13] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS_US.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (bucket, bound) in self.buckets.iter().zip(BUCKETS_US) {
            if us <= bound {
                bucket.fetch_add(1, Relaxed);
            }
        }
        self.count.fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }
}

/// All metrics of the origin.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Facts counted.
    pub accepted: Counter,
    /// Facts that were counted before.
    pub duplicate: Counter,
    /// Facts refused, by reason: see [`REASONS`].
    pub rejected: [Counter; REASONS.len()],
    /// Syncs committed.
    pub syncs: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections closed to make room for others.
    pub connections_displaced: Counter,
    /// Connections that a time limit ended, in the order of [`ConnectionLimit::NAMES`].
    pub connection_timeouts: [Counter; ConnectionLimit::NAMES.len()],
    /// Calls of `/v1/sync` refused, by status: see [`REFUSALS`].
    pub refused: [Counter; REFUSALS.len()],
    /// Facts lost at the edges, as the edges report.
    pub lost: Counter,
    /// Queue messages that edges gave up (dead letters).
    pub dead: Counter,
    /// Requests that edges answered without counting them, as the edges report, in the order of [`FilterReason::ALL`].
    pub filtered: [Counter; FilterReason::ALL.len()],
    /// Age of the oldest fact in the last sync with facts, in milliseconds.
    pub queue_age_ms: Gauge,
    /// Time of that sync, in milliseconds since the epoch.
    pub queue_aged_ms: Gauge,
    /// Time of the last committed sync, by [`crate::base::clock::steady_now`].
    pub last_sync_ms: Gauge,
    /// Time at which this process began to accept syncs, by [`crate::base::clock::steady_now`].
    pub serving_ms: Gauge,
    /// Last time at which a sync's signed time agreed with this clock, in milliseconds since the epoch; 0: never.
    pub dated_ms: Gauge,
    /// Time of a sync that was refused for its signed time, while no other has agreed; 0: none.
    pub contradicted_ms: Gauge,
    /// KV keys waiting for a write.
    pub outbox_depth: Gauge,
    /// Time since which the oldest of them is due, in milliseconds since the epoch; 0: none is due.
    pub outbox_oldest_ms: Gauge,
    /// KV writes handed out to the publish consumer.
    pub handed_out: Counter,
    /// KV writes acknowledged.
    pub applied: Counter,
    /// Values that could not be built, or failed their check before they were handed out.
    pub bad_values: Counter,
    /// People too large to be recomputed in one transaction.
    pub people_too_large: Counter,
    /// Observations of an id with a visitor that already has the most ids.
    pub ids_over: Counter,
    /// Events with names that audiences do not count.
    pub events_uncounted: Counter,
    /// Transactions that failed.
    pub commit_failures: Counter,
    /// Threads of jobs or audiences that a fault of the program ended.
    pub threads_ended: Counter,
    /// Duration of appends to the log.
    pub append: Histogram,
    /// Duration of transactions of the store.
    pub commit: Histogram,
    /// Facts in the log that were not folded at the last look.
    pub unfolded: Gauge,
    /// Facts that wait because their visitor's row cannot be read.
    pub quarantined_facts: Gauge,
    /// Length of the store's write-ahead log, in bytes.
    pub wal_bytes: Gauge,
    /// Tenants with an unreadable part of their current catalogue.
    pub held_tenants: Gauge,
    /// Metrics of each job, in the order of [`JobKind::ALL`].
    pub jobs: [OfJob; JobKind::ALL.len()],
    /// Keys by result of the newest run of `verify`, in the order of [`FOUND`].
    pub verified: [Gauge; FOUND.len()],
}

/// Metrics of one job. The gauges show the state of the store at the last look.
#[derive(Debug, Default)]
pub struct OfJob {
    /// Runs that ended in this process, dry runs included, in the order of [`RunOutcome::ALL`].
    pub runs: [Counter; RunOutcome::ALL.len()],
    /// Duration of the last run, in milliseconds.
    pub last_ms: Gauge,
    /// End of the last successful run, in milliseconds since the epoch; 0: none.
    pub well_ms: Gauge,
    /// Completed work of the current run.
    pub done: Gauge,
    /// Total work of the current run.
    pub all: Gauge,
}

/// Reasons for which a fact is refused; the last one stands for all others.
pub const REASONS: [&str; 14] = [
    "too_old",
    "ahead",
    "at_out_of_range",
    "too_long",
    "value_out_of_range",
    "unknown_tenant",
    "malformed",
    "expiry_out_of_range",
    "type_mismatch",
    "too_many_names",
    "unknown_name",
    "erased",
    "not_admin",
    "other",
];

/// Greatest age, in milliseconds, of the last sync that agreed with this clock for a date to count as confirmed. Jobs
/// that delete by age, and HTTP calls that end a history, need a confirmed date. After a jump of the clock no sync is
/// accepted, and one day more is harmless.
pub(crate) const VOUCHED_MS: Millis = DAY_MS;
/// Most that this clock may be before that sync, in milliseconds; a correct clock is corrected by less.
pub(crate) const BACK_MS: Millis = 10 * MINUTE_MS;
/// Ages from which docs/DEPLOY.md calls a fact in the queue, and a due KV key, late.
const LATE_FACTS_MS: u64 = 60_000;
const LATE_KEYS_MS: u64 = 120_000;

/// A time limit of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// No request arrived.
    Idle,
    /// The head was incomplete.
    Head,
    /// The body was incomplete.
    Body,
    /// The client accepted no part of the answer.
    Write,
}

impl ConnectionLimit {
    /// Names of the limits in the metrics, in the order of the variants.
    pub const NAMES: [&str; 4] = ["idle", "head", "body", "write"];
}

/// Statuses with which a sync is refused.
pub const REFUSALS: [&str; 5] = ["400", "401", "408", "413", "503"];

impl Metrics {
    /// Sets the number of KV keys that wait for a write, and the time since which the oldest is due.
    pub fn set_outbox(&self, depth: u64, oldest: Option<Millis>) {
        self.outbox_depth.set(depth);
        self.outbox_oldest_ms.set(oldest.unwrap_or(0));
    }

    /// Whether syncs confirm the date `now`. `None`: no sync arrived yet. `Some(false)`: also if only syncs with
    /// another time arrived.
    pub fn vouches(&self, now: Millis) -> Option<bool> {
        let last = self.dated_ms.get();
        if last == 0 && self.contradicted_ms.get() > 0 {
            return Some(false);
        }
        (last > 0).then(|| last.saturating_sub(now) <= BACK_MS && now.saturating_sub(last) <= VOUCHED_MS)
    }

    /// Age of the oldest fact in the last sync with facts, in milliseconds; 0 if that sync was over a minute ago,
    /// because the current delay is then unknown.
    fn queue_ms(&self, now: Millis) -> u64 {
        if now < self.queue_aged_ms.get().saturating_add(MINUTE_MS) { self.queue_age_ms.get() } else { 0 }
    }

    /// Warns in the log about facts and KV keys that wait too long; called once a minute.
    pub fn tell_ages(&self, now: Millis) {
        let queue_ms = self.queue_ms(now);
        if queue_ms > LATE_FACTS_MS {
            tracing::warn!(queue_age_s = queue_ms / 1_000, "facts leave the queue late");
        }
        let outbox_ms =
            Some(self.outbox_oldest_ms.get()).filter(|since| *since > 0).map(|since| now.saturating_sub(since));
        if let Some(outbox_ms) = outbox_ms.filter(|ms| *ms > LATE_KEYS_MS) {
            let depth = self.outbox_depth.get();
            tracing::warn!(outbox_age_s = outbox_ms / 1_000, depth, "KV keys wait for a write");
        }
    }

    /// Counts a refused fact.
    pub fn reject(&self, reason: &str) {
        let index = REASONS.iter().position(|r| *r == reason);
        if let Some(counter) = self.rejected.get(index.unwrap_or(REASONS.len() - 1)) {
            counter.add(1);
        }
    }

    /// Counts a connection that a time limit ended.
    pub fn count_timeout(&self, limit: ConnectionLimit) {
        if let Some(counter) = self.connection_timeouts.get(limit as usize) {
            counter.add(1);
        }
    }

    /// Counts a refused sync.
    pub fn refuse(&self, status: u16) {
        let index = REFUSALS.iter().position(|r| r.parse() == Ok(status));
        if let Some(counter) = index.and_then(|p| self.refused.get(p)) {
            counter.add(1);
        }
    }

    /// The metrics in Prometheus text format 0.0.4. `ready`: whether the origin accepts syncs.
    #[must_use]
    pub fn render(&self, now: Millis, steady: Millis, ready: bool) -> String {
        let mut page = MetricsPage(String::with_capacity(4_096));
        page.counters(self);
        page.gauges(self, now, steady, ready);
        page.jobs(&self.jobs);
        page.verified(&self.verified);
        page.histogram("causeway_append_seconds", "Time of one durable append to the log.", &self.append);
        page.histogram(
            "causeway_commit_seconds",
            "Time of one transaction of the store, from its begin to its commit.",
            &self.commit,
        );
        page.0
    }
}

struct MetricsPage(String);

impl MetricsPage {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let written = self.0.write_fmt(text);
        debug_assert!(written.is_ok());
        self.0.push('\n');
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn seconds(&mut self, name: &str, help: &str, ms: u64) {
        self.head(name, "gauge", help);
        self.line(format_args!("{name} {}.{:03}", ms / 1_000, ms % 1_000));
    }

    fn labelled(&mut self, name: &str, help: &str, label: &str, names: &[&str], of: &[Counter]) {
        self.head(name, "counter", help);
        for (value, counter) in names.iter().zip(of) {
            self.line(format_args!("{name}{{{label}=\"{value}\"}} {}", counter.get()));
        }
    }

    fn counters(&mut self, m: &Metrics) {
        for (name, help, counter) in [
            ("causeway_facts_accepted_total", "Facts counted.", &m.accepted),
            ("causeway_facts_duplicate_total", "Facts that were counted before.", &m.duplicate),
            ("causeway_syncs_total", "Syncs committed.", &m.syncs),
            (
                "causeway_connections_displaced_total",
                "Connections closed to make room for others.",
                &m.connections_displaced,
            ),
            ("causeway_edge_facts_lost_total", "Facts lost at the edges, as they report it.", &m.lost),
            ("causeway_edge_dead_letters_total", "Queue messages that edges gave up on.", &m.dead),
            ("causeway_publish_handed_out_total", "KV writes handed out.", &m.handed_out),
            ("causeway_publish_applied_total", "KV writes acknowledged.", &m.applied),
            (
                "causeway_publish_bad_values_total",
                "KV values that could not be built, or failed their check.",
                &m.bad_values,
            ),
            (
                "causeway_people_too_large_total",
                "People too large to be recomputed in one transaction.",
                &m.people_too_large,
            ),
            ("causeway_ids_over_total", "Observations of an id with a visitor that has too many.", &m.ids_over),
            (
                "causeway_events_uncounted_total",
                "Events with names that audiences do not count: the list is full, or the pages' quota is used up.",
                &m.events_uncounted,
            ),
            ("causeway_commit_failures_total", "Transactions that failed.", &m.commit_failures),
            ("causeway_threads_ended_total", "Threads of jobs or audiences that a fault ended.", &m.threads_ended),
        ] {
            self.one(name, "counter", help, counter.get());
        }
        let lost = log_output::lost_lines();
        self.one("causeway_log_lines_lost_total", "counter", "Log lines that could not be written.", lost);
        let name = "causeway_facts_rejected_total";
        self.labelled(name, "Facts refused, and single attributes.", "reason", &REASONS, &m.rejected);
        let name = "causeway_syncs_refused_total";
        self.labelled(name, "Syncs refused.", "status", &REFUSALS, &m.refused);
        let name = "causeway_edge_filtered_requests_total";
        let help = "Requests that edges answered without counting them, as they report.";
        self.labelled(name, help, "reason", &FilterReason::ALL.map(FilterReason::name), &m.filtered);
        let name = "causeway_connection_timeouts_total";
        let help = "Connections that a time limit ended.";
        self.labelled(name, help, "limit", &ConnectionLimit::NAMES, &m.connection_timeouts);
    }

    fn gauges(&mut self, m: &Metrics, now: Millis, steady: Millis, ready: bool) {
        let age = |since: u64| if since == 0 { 0 } else { now.saturating_sub(since) };
        self.one("causeway_ready", "gauge", "1 if syncs are accepted.", u64::from(ready));
        self.one("causeway_connections", "gauge", "Connections that are open.", m.connections.get());
        self.one("causeway_unfolded_facts", "gauge", "Facts durable in the log and not folded yet.", m.unfolded.get());
        let help = "Facts that wait because their visitor's row or their tenant's stored catalogue cannot be read.";
        self.one("causeway_quarantined_facts", "gauge", help, m.quarantined_facts.get());
        let help = "Length of the store's write-ahead log, in bytes.";
        self.one("causeway_wal_bytes", "gauge", help, m.wal_bytes.get());
        let help = "Tenants whose stored catalogue cannot be read: their facts wait.";
        self.one("causeway_held_tenants", "gauge", help, m.held_tenants.get());
        self.one(
            "causeway_outbox_depth",
            "gauge",
            "KV keys waiting for a write, counted up to 10000.",
            m.outbox_depth.get(),
        );
        self.seconds(
            "causeway_outbox_age_seconds",
            "Time for which the oldest waiting KV key is due.",
            age(m.outbox_oldest_ms.get()),
        );
        self.seconds(
            "causeway_queue_age_seconds",
            "Age of the oldest fact in the last sync with facts; 0 from a minute after that sync.",
            m.queue_ms(now),
        );
        self.seconds(
            "causeway_last_sync_age_seconds",
            "Time since the last sync, or since the start if there was none.",
            // By the monotonic clock: by a clock that was set back, the age would be 0 for as long as it lags.
            steady.saturating_sub(m.last_sync_ms.get().max(m.serving_ms.get())),
        );
    }

    fn jobs(&mut self, of: &[OfJob]) {
        self.head("causeway_job_runs_total", "counter", "Runs of jobs that ended in this process.");
        for (name, job) in JobKind::names().into_iter().zip(of) {
            for (outcome, counter) in RunOutcome::names().into_iter().zip(&job.runs) {
                let value = counter.get();
                self.line(format_args!("causeway_job_runs_total{{job=\"{name}\",outcome=\"{outcome}\"}} {value}"));
            }
        }
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1_000, ms % 1_000);
        let help = "Duration of the last run that was not a dry run.";
        self.of_jobs("causeway_job_seconds", help, of, |job| seconds(job.last_ms.get()));
        let help = "End of the last successful run that was not a dry run, Unix time; 0: none.";
        self.of_jobs("causeway_job_last_success_seconds", help, of, |job| seconds(job.well_ms.get()));
        self.of_jobs("causeway_job_done", "Completed work of the current run.", of, |job| job.done.get().to_string());
        let help = "Total work of the current run; 0 if there is none.";
        self.of_jobs("causeway_job_all", help, of, |job| job.all.get().to_string());
    }

    fn verified(&mut self, of: &[Gauge]) {
        let help = "KV keys by result of the newest run of verify, dry runs included.";
        self.head("causeway_verify_keys", "gauge", help);
        for (found, gauge) in FOUND.iter().zip(of) {
            self.line(format_args!("causeway_verify_keys{{found=\"{found}\"}} {}", gauge.get()));
        }
    }

    fn of_jobs(&mut self, name: &str, help: &str, of: &[OfJob], value: impl Fn(&OfJob) -> String) {
        self.head(name, "gauge", help);
        for (job, of) in JobKind::names().into_iter().zip(of) {
            self.line(format_args!("{name}{{job=\"{job}\"}} {}", value(of)));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, of: &Histogram) {
        self.head(name, "histogram", help);
        for (bucket, us) in of.buckets.iter().zip(BUCKETS_US) {
            let (s, rest) = (us / 1_000_000, us % 1_000_000);
            self.line(format_args!("{name}_bucket{{le=\"{s}.{rest:06}\"}} {}", bucket.load(Relaxed)));
        }
        let (count, sum) = (of.count.load(Relaxed), of.sum_us.load(Relaxed));
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(format_args!("{name}_sum {}.{:06}", sum / 1_000_000, sum % 1_000_000));
        self.line(format_args!("{name}_count {count}"));
    }
}

/// Results of `verify` by name, in metrics and reports.
pub const FOUND: [&str; 6] = ["right", "waiting", "older", "missing", "differs", "not_erased"];

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_was_counted() {
        let metrics = Metrics::default();
        metrics.accepted.add(3);
        metrics.reject("too_old");
        metrics.reject("something new");
        metrics.refuse(401);
        metrics.count_timeout(ConnectionLimit::Write);
        metrics.serving_ms.set(8_000);
        metrics.last_sync_ms.set(10_000);
        metrics.queue_age_ms.set(61_500);
        metrics.queue_aged_ms.set(10_000);
        metrics.set_outbox(2, Some(9_000));
        metrics.commit.record(Duration::from_micros(700));
        let page = metrics.render(12_345, 12_345, true);
        for line in [
            "causeway_facts_accepted_total 3",
            "causeway_facts_rejected_total{reason=\"too_old\"} 1",
            "causeway_facts_rejected_total{reason=\"other\"} 1",
            "causeway_syncs_refused_total{status=\"401\"} 1",
            "causeway_connection_timeouts_total{limit=\"head\"} 0",
            "causeway_connection_timeouts_total{limit=\"write\"} 1",
            "causeway_last_sync_age_seconds 2.345",
            "causeway_queue_age_seconds 61.500",
            "causeway_outbox_depth 2",
            "causeway_outbox_age_seconds 3.345",
            "causeway_ready 1",
            "causeway_commit_seconds_bucket{le=\"0.000500\"} 0",
            "causeway_commit_seconds_bucket{le=\"0.001000\"} 1",
            "causeway_commit_seconds_count 1",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
        metrics.set_outbox(0, None);
        assert!(metrics.render(12_345, 12_345, true).lines().any(|l| l == "causeway_outbox_age_seconds 0.000"));
        // A quiet night after one late batch, then a start without any sync.
        metrics.last_sync_ms.set(0);
        let page = metrics.render(188_001, 188_001, true);
        for line in ["causeway_queue_age_seconds 0.000", "causeway_last_sync_age_seconds 180.001"] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
    }

    /// Log output of a call.
    fn logged(call: impl FnOnce()) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(file.reopen().unwrap()).finish();
        tracing::subscriber::with_default(subscriber, call);
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn the_age_of_the_last_sync_grows_while_the_clock_lags() {
        let metrics = Metrics::default();
        metrics.serving_ms.set(1_000);
        metrics.last_sync_ms.set(5_000);
        // The clock was set back by a day, and an hour has passed.
        let page = metrics.render(10, 5_000 + 3_600_000, true);
        assert!(page.lines().any(|line| line == "causeway_last_sync_age_seconds 3600.000"), "{page}");
    }

    #[test]
    fn the_log_says_what_waits_for_too_long() {
        let metrics = Metrics::default();
        let log_at = |now| logged(|| metrics.tell_ages(now));
        metrics.queue_aged_ms.set(1_000_000);
        metrics.queue_age_ms.set(60_000);
        metrics.set_outbox(3, Some(1_000_000));
        assert_eq!(log_at(1_059_999), "");
        metrics.queue_age_ms.set(61_000);
        assert!(log_at(1_059_999).contains("queue_age_s=61"));
        metrics.last_sync_ms.set(1_060_000);
        assert_eq!(log_at(1_060_000), "", "the last with facts was over a minute ago");
        assert!(log_at(1_120_001).contains("outbox_age_s=120 depth=3"));
        metrics.set_outbox(0, None);
        assert_eq!(log_at(1_120_001), "");
    }
}
