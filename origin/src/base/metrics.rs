//! What the origin counts, and its Prometheus text. No label ever carries an id.

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
    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The sum so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number as it is now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 13] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000];

/// Durations, counted in buckets.
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

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Facts counted.
    pub accepted: Counter,
    /// Facts that were there already.
    pub duplicate: Counter,
    /// Facts refused, by reason: see [`REASONS`].
    pub rejected: [Counter; REASONS.len()],
    /// Syncs committed.
    pub syncs: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections closed to make room for another.
    pub connections_displaced: Counter,
    /// Connections that a time limit ended, in the order of [`ConnectionLimit::NAMES`].
    pub connection_timeouts: [Counter; ConnectionLimit::NAMES.len()],
    /// Calls of `/v1/sync` refused, by status: see [`REFUSALS`].
    pub refused: [Counter; REFUSALS.len()],
    /// Facts lost at the edges, as they report it.
    pub lost: Counter,
    /// Queue messages that edges gave up on.
    pub dead: Counter,
    /// Requests that edges answered and did not count, as they report it, in the order of [`FilterReason::ALL`].
    pub filtered: [Counter; FilterReason::ALL.len()],
    /// Age of the oldest fact in the last sync with facts, in milliseconds.
    pub queue_age_ms: Gauge,
    /// When it was, milliseconds since the epoch.
    pub queue_aged_ms: Gauge,
    /// When the last sync was committed, by [`crate::base::clock::steady`].
    pub last_sync_ms: Gauge,
    /// From when on this process took syncs, by [`crate::base::clock::steady`].
    pub serving_ms: Gauge,
    /// The time at which a sync's signed time agreed last with this clock, milliseconds since the epoch; 0 before the first.
    pub dated_ms: Gauge,
    /// The time of a sync that was refused for it, as long as none agreed; else 0.
    pub contradicted_ms: Gauge,
    /// KV keys waiting for a write.
    pub outbox_depth: Gauge,
    /// Since when the oldest of them is due, milliseconds since the epoch; 0: none is.
    pub outbox_oldest_ms: Gauge,
    /// KV writes handed out.
    pub handed_out: Counter,
    /// KV writes acknowledged.
    pub applied: Counter,
    /// Values that could not be built or failed their check before they were handed out.
    pub bad_values: Counter,
    /// People too large to be recomputed in a transaction.
    pub people_too_large: Counter,
    /// Sightings of an id by visitors that were seen with too many.
    pub ids_over: Counter,
    /// Events under names that audiences do not count.
    pub events_uncounted: Counter,
    /// Transactions that failed.
    pub commit_failures: Counter,
    /// Threads, of jobs or of audiences, that a fault of the program ended.
    pub threads_ended: Counter,
    /// How long appends to the log took.
    pub append: Histogram,
    /// How long transactions of the store took.
    pub commit: Histogram,
    /// Facts in the log that were not folded when it was looked at last.
    pub unfolded: Gauge,
    /// Facts that wait for a visitor whose row cannot be read.
    pub set_aside: Gauge,
    /// Length of the store's write-ahead log, in bytes.
    pub wal_bytes: Gauge,
    /// Tenants of whose current catalogue a stored part cannot be read.
    pub held_tenants: Gauge,
    /// What jobs came to, in the order of [`JobKind::ALL`].
    pub jobs: [OfJob; JobKind::ALL.len()],
    /// Keys that the newest run of `verify` found so, in the order of [`FOUND`].
    pub verified: [Gauge; FOUND.len()],
}

/// What a job came to. The gauges are those of the store when it was looked at last.
#[derive(Debug, Default)]
pub struct OfJob {
    /// Runs that ended in this process, dry ones too, in the order of [`RunOutcome::ALL`].
    pub runs: [Counter; RunOutcome::ALL.len()],
    /// How long the last run took, in milliseconds.
    pub last_ms: Gauge,
    /// When one last ended well, milliseconds since the epoch; 0: none yet.
    pub well_ms: Gauge,
    /// What the run under way has done.
    pub done: Gauge,
    /// Of how much.
    pub all: Gauge,
}

/// Reasons a fact is refused for; the last one stands for all others.
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

/// What goes by age begins by itself, and what ends a history is taken over HTTP, only on a date that is no more than so far
/// behind the last sync whose signed time was that of this clock, in milliseconds. A clock that jumps takes no sync, and a day
/// more harms nobody.
pub(crate) const VOUCHED_MS: Millis = DAY_MS;
/// And no more than so far before it: a clock that is right is corrected by less.
pub(crate) const BACK_MS: Millis = 10 * MINUTE_MS;
/// What the alerts of docs/DEPLOY.md call late: a fact in the queue, and a KV key that is due.
const LATE_FACTS_MS: u64 = 60_000;
const LATE_KEYS_MS: u64 = 120_000;

/// A time limit of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// No request came.
    Idle,
    /// A head was not whole in time.
    Head,
    /// A body was not whole in time.
    Body,
    /// The reader of an answer took nothing of it.
    Write,
}

impl ConnectionLimit {
    /// Their names, as the metrics have them.
    pub const NAMES: [&str; 4] = ["idle", "head", "body", "write"];
}

/// Statuses a sync is refused with.
pub const REFUSALS: [&str; 5] = ["400", "401", "408", "413", "503"];

impl Metrics {
    /// Says how many KV keys wait for a write, and since when the oldest is due.
    pub fn set_outbox(&self, depth: u64, oldest: Option<Millis>) {
        self.outbox_depth.set(depth);
        self.outbox_oldest_ms.set(oldest.unwrap_or(0));
    }

    /// Whether a sync vouches for a date; `None` before the first, also of those refused for their time.
    pub fn vouches(&self, now: Millis) -> Option<bool> {
        let last = self.dated_ms.get();
        if last == 0 && self.contradicted_ms.get() > 0 {
            return Some(false);
        }
        (last > 0).then(|| last.saturating_sub(now) <= BACK_MS && now.saturating_sub(last) <= VOUCHED_MS)
    }

    /// How old the oldest fact of the last sync with facts was; 0 once that is over a minute ago: how late the next ones are
    /// nobody knows.
    fn queue_ms(&self, now: Millis) -> u64 {
        if now < self.queue_aged_ms.get().saturating_add(MINUTE_MS) { self.queue_age_ms.get() } else { 0 }
    }

    /// Says in the log what waits for longer than anything should: it is to be called once a minute. How old facts were longer
    /// ago was said then.
    pub fn tell_ages(&self, now: Millis) {
        let queue_ms = self.queue_ms(now);
        if queue_ms > LATE_FACTS_MS {
            tracing::warn!(queue_age_s = queue_ms / 1_000, "facts come late out of the queue");
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
        let place = REASONS.iter().position(|r| *r == reason);
        if let Some(counter) = self.rejected.get(place.unwrap_or(REASONS.len() - 1)) {
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
        let place = REFUSALS.iter().position(|r| r.parse() == Ok(status));
        if let Some(counter) = place.and_then(|p| self.refused.get(p)) {
            counter.add(1);
        }
    }

    /// The Prometheus text (exposition format 0.0.4). `ready` is whether the origin takes syncs.
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
        // Writing into a text cannot fail.
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
            ("causeway_facts_duplicate_total", "Facts that were there already.", &m.duplicate),
            ("causeway_syncs_total", "Syncs committed.", &m.syncs),
            (
                "causeway_connections_displaced_total",
                "Connections closed to make room for another.",
                &m.connections_displaced,
            ),
            ("causeway_edge_facts_lost_total", "Facts lost at the edges, as they report it.", &m.lost),
            ("causeway_edge_dead_letters_total", "Queue messages that edges gave up on.", &m.dead),
            ("causeway_publish_handed_out_total", "KV writes handed out.", &m.handed_out),
            ("causeway_publish_applied_total", "KV writes acknowledged.", &m.applied),
            (
                "causeway_publish_bad_values_total",
                "KV values that could not be made, or failed their check.",
                &m.bad_values,
            ),
            (
                "causeway_people_too_large_total",
                "People too large to be recomputed in a transaction.",
                &m.people_too_large,
            ),
            ("causeway_ids_over_total", "Ids that visitors with too many of them were seen with.", &m.ids_over),
            (
                "causeway_events_uncounted_total",
                "Events under names that audiences do not count: no place was left, or the quota of pages was over.",
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
        let help = "Requests that edges answered and did not count, as they report it.";
        self.labelled(name, help, "reason", &FilterReason::ALL.map(FilterReason::name), &m.filtered);
        let name = "causeway_connection_timeouts_total";
        let help = "Connections that a time limit ended.";
        self.labelled(name, help, "limit", &ConnectionLimit::NAMES, &m.connection_timeouts);
    }

    fn gauges(&mut self, m: &Metrics, now: Millis, steady: Millis, ready: bool) {
        let age = |since: u64| if since == 0 { 0 } else { now.saturating_sub(since) };
        self.one("causeway_ready", "gauge", "1 when syncs are taken.", u64::from(ready));
        self.one("causeway_connections", "gauge", "Connections that are open.", m.connections.get());
        self.one("causeway_unfolded_facts", "gauge", "Facts durable in the log and not folded yet.", m.unfolded.get());
        let help = "Facts that wait, as their visitor's row or their tenant's stored catalogue cannot be read.";
        self.one("causeway_set_aside_facts", "gauge", help, m.set_aside.get());
        let help = "Length of the store's write-ahead log, in bytes.";
        self.one("causeway_wal_bytes", "gauge", help, m.wal_bytes.get());
        let help = "Tenants whose stored catalogue cannot be read: their facts are set aside.";
        self.one("causeway_held_tenants", "gauge", help, m.held_tenants.get());
        self.one(
            "causeway_outbox_depth",
            "gauge",
            "KV keys waiting for a write, counted up to 10000.",
            m.outbox_depth.get(),
        );
        self.seconds(
            "causeway_outbox_age_seconds",
            "How long the oldest waiting KV key is overdue.",
            age(m.outbox_oldest_ms.get()),
        );
        self.seconds(
            "causeway_queue_age_seconds",
            "Age of the oldest fact in the last sync with facts; 0 a minute after it.",
            m.queue_ms(now),
        );
        self.seconds(
            "causeway_last_sync_age_seconds",
            "Time since the last sync, before the first since the start.",
            // By a clock that never goes back: one that was set back would say 0 for as long as it lags.
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
        let help = "How long the last run took that was to change something.";
        self.of_jobs("causeway_job_seconds", help, of, |job| seconds(job.last_ms.get()));
        let help = "When such a run last ended well, Unix time; 0: never.";
        self.of_jobs("causeway_job_last_success_seconds", help, of, |job| seconds(job.well_ms.get()));
        self.of_jobs("causeway_job_done", "What the run under way has done.", of, |job| job.done.get().to_string());
        let help = "Of how much; 0 when none is under way.";
        self.of_jobs("causeway_job_all", help, of, |job| job.all.get().to_string());
    }

    fn verified(&mut self, of: &[Gauge]) {
        let help = "KV keys as the newest run of verify found them, a dry one too.";
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

/// Outcomes by name, as metrics and reports have them.
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
        // A quiet night after one late batch; and a start after which no sync comes.
        metrics.last_sync_ms.set(0);
        let page = metrics.render(188_001, 188_001, true);
        for line in ["causeway_queue_age_seconds 0.000", "causeway_last_sync_age_seconds 180.001"] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
    }

    /// What a call writes to the log.
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
        // The clock was set back by a day, and an hour has gone since.
        let page = metrics.render(10, 5_000 + 3_600_000, true);
        assert!(page.lines().any(|line| line == "causeway_last_sync_age_seconds 3600.000"), "{page}");
    }

    #[test]
    fn the_log_says_what_waits_for_too_long() {
        let metrics = Metrics::default();
        let told = |now| logged(|| metrics.tell_ages(now));
        metrics.queue_aged_ms.set(1_000_000);
        metrics.queue_age_ms.set(60_000);
        metrics.set_outbox(3, Some(1_000_000));
        assert_eq!(told(1_059_999), "");
        metrics.queue_age_ms.set(61_000);
        assert!(told(1_059_999).contains("queue_age_s=61"));
        metrics.last_sync_ms.set(1_060_000);
        assert_eq!(told(1_060_000), "", "the last with facts was over a minute ago");
        assert!(told(1_120_001).contains("outbox_age_s=120 depth=3"));
        metrics.set_outbox(0, None);
        assert_eq!(told(1_120_001), "");
    }
}
