//! The origin's metrics and their Prometheus text. No label carries an id.

use std::sync::atomic::AtomicU64;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{DAY_MS, MINUTE_MS};
use causeway_shared::wire::sync::FilterReason;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use prometheus_client::metrics::counter::Counter;

use crate::base::job_kinds::{JobKind, RunOutcome};
use crate::base::log_output;

/// A current number.
pub type Gauge = prometheus_client::metrics::gauge::Gauge<u64, AtomicU64>;
/// A current duration or time, in seconds.
pub type SecondsGauge = prometheus_client::metrics::gauge::Gauge<f64, AtomicU64>;

/// A metric with `N` labels: names and values.
pub type Labelled<const N: usize, M> = Family<[(&'static str, &'static str); N], M>;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 5.0, 10.0, 30.0];

/// All metrics of the origin.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Facts counted.
    pub accepted: Counter,
    /// Facts that were counted before.
    pub duplicate: Counter,
    /// Facts refused, by reason: see [`REASONS`].
    pub rejected: Labelled<1, Counter>,
    /// Syncs committed.
    pub syncs: Counter,
    /// Connections that are open.
    pub connections: Gauge,
    /// Connections closed to make room for others.
    pub connections_displaced: Counter,
    /// Connections that a time limit ended.
    pub connection_timeouts: Labelled<1, Counter>,
    /// Calls of `/v1/sync` refused, by status: see [`REFUSALS`].
    pub refused: Labelled<1, Counter>,
    /// Facts lost at the edges, as the edges report.
    pub lost: Counter,
    /// Queue messages that edges gave up (dead letters).
    pub dead: Counter,
    /// Requests that edges answered without counting them, as the edges report.
    pub filtered: Labelled<1, Counter>,
    /// KV keys waiting for a write.
    pub outbox_depth: Gauge,
    /// KV writes handed out to the publish consumer, or sent in bulk.
    pub handed_out: Counter,
    /// KV writes acknowledged.
    pub applied: Counter,
    /// Calls of the platform's bulk API, by outcome: see [`BULK_OUTCOMES`].
    pub bulk_calls: Labelled<1, Counter>,
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
    /// Duration of appends to the log, in seconds.
    pub append: Histogram,
    /// Duration of transactions of the store, in seconds.
    pub commit: Histogram,
    /// Facts in the log that were not folded at the last look.
    pub unfolded: Gauge,
    /// Facts that wait because their visitor's row, or their tenant's stored catalogue, cannot be read.
    pub quarantined_facts: Gauge,
    /// Length of the store's write-ahead log, in bytes.
    pub wal_bytes: Gauge,
    /// Tenants with an unreadable part of their current catalogue.
    pub held_tenants: Gauge,
    /// Metrics of the jobs.
    pub jobs: JobMetrics,
    /// Age of the oldest fact in the last sync with facts, in milliseconds. `/metrics` shows ages of this gauge and the
    /// next six, which are not registered.
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
    /// Time since which the oldest of the waiting KV keys is due, in milliseconds since the epoch; 0: none is due.
    pub outbox_oldest_ms: Gauge,
}

/// Metrics of the jobs. The gauges show the state of the store at the last look.
#[derive(Debug)]
pub struct JobMetrics {
    /// Runs that ended in this process, dry runs included.
    pub runs: Labelled<2, Counter>,
    /// Duration of a job's last run; 0: none.
    pub duration: Labelled<1, SecondsGauge>,
    /// End of a job's last successful run, in seconds since the epoch; 0: none.
    pub last_success: Labelled<1, SecondsGauge>,
    /// Completed work of a job's current run.
    pub done: Labelled<1, Gauge>,
    /// Total work of a job's current run.
    pub all: Labelled<1, Gauge>,
    /// Keys by result of the newest run of `verify`: see [`FOUND`].
    pub verified: Labelled<1, Gauge>,
}

/// Outcomes of a call of the platform's bulk API.
pub const BULK_OUTCOMES: [&str; 4] = ["written", "busy", "refused", "unknown"];

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
pub(crate) const VOUCHED_MS: u64 = DAY_MS;
/// Most that this clock may be before that sync, in milliseconds; a correct clock is corrected by less.
pub(crate) const BACK_MS: u64 = 10 * MINUTE_MS;
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
    const ALL: [Self; 4] = [Self::Idle, Self::Head, Self::Body, Self::Write];

    /// Name of the limit in the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Head => "head",
            Self::Body => "body",
            Self::Write => "write",
        }
    }
}

/// Statuses with which a sync is refused.
pub const REFUSALS: [&str; 5] = ["400", "401", "408", "413", "503"];

/// Results of `verify` by name, in metrics and reports.
pub const FOUND: [&str; 6] = ["right", "waiting", "older", "missing", "differs", "not_erased"];

/// A new registry, and its metrics by the methods that register them. The library adds `causeway_` to a name, `_total`
/// to that of a counter, and a full stop to a help text.
struct NewRegistry(Registry);

impl NewRegistry {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn counter(&mut self, name: &str, help: &str) -> Counter {
        self.add(name, help, Counter::default())
    }

    fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.add(name, help, Gauge::default())
    }

    fn histogram(&mut self, name: &str, help: &str) -> Histogram {
        self.add(name, help, Histogram::new(BUCKETS))
    }

    /// Registers a metric with labels. Each label set is there from the start: an alert on an increase misses the first
    /// count of a series that begins with it.
    fn labelled<const N: usize, M>(
        &mut self,
        name: &str,
        help: &str,
        labels: impl IntoIterator<Item = [(&'static str, &'static str); N]>,
    ) -> Labelled<N, M>
    where
        M: Default + Clone + Metric + TypedMetric,
    {
        let family = Family::default();
        labels.into_iter().for_each(|labels| drop(family.get_or_create(&labels)));
        self.add(name, help, family)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut new = NewRegistry(Registry::with_prefix("causeway"));
        Self {
            accepted: new.counter("facts_accepted", "Facts counted"),
            duplicate: new.counter("facts_duplicate", "Facts that were counted before"),
            rejected: new.labelled(
                "facts_rejected",
                "Facts refused, and single attributes",
                REASONS.map(|reason| [("reason", reason)]),
            ),
            syncs: new.counter("syncs", "Syncs committed"),
            connections: new.gauge("connections", "Connections that are open"),
            connections_displaced: new.counter("connections_displaced", "Connections closed to make room for others"),
            connection_timeouts: new.labelled(
                "connection_timeouts",
                "Connections that a time limit ended",
                ConnectionLimit::ALL.map(|limit| [("limit", limit.name())]),
            ),
            refused: new.labelled("syncs_refused", "Syncs refused", REFUSALS.map(|status| [("status", status)])),
            lost: new.counter("edge_facts_lost", "Facts lost at the edges, as they report it"),
            dead: new.counter("edge_dead_letters", "Queue messages that edges gave up on"),
            filtered: new.labelled(
                "edge_filtered_requests",
                "Requests that edges answered without counting them, as they report",
                FilterReason::ALL.map(|reason| [("reason", reason.name())]),
            ),
            outbox_depth: new.gauge("outbox_depth", "KV keys waiting for a write, counted up to 10000"),
            handed_out: new
                .counter("publish_handed_out", "KV writes handed out to the publish consumer, or sent in bulk"),
            applied: new.counter("publish_applied", "KV writes acknowledged"),
            bulk_calls: new.labelled(
                "publish_bulk_calls",
                "Calls of the platform's bulk API",
                BULK_OUTCOMES.map(|outcome| [("outcome", outcome)]),
            ),
            bad_values: new.counter("publish_bad_values", "KV values that could not be built, or failed their check"),
            people_too_large: new.counter("people_too_large", "People too large to be recomputed in one transaction"),
            ids_over: new.counter("ids_over", "Observations of an id with a visitor that has too many"),
            events_uncounted: new.counter(
                "events_uncounted",
                "Events with names that audiences do not count: the list is full, or the pages' quota is used up",
            ),
            commit_failures: new.counter("commit_failures", "Transactions that failed"),
            threads_ended: new.counter("threads_ended", "Threads of jobs or audiences that a fault ended"),
            append: new.histogram("append_seconds", "Time of one durable append to the log"),
            commit: new
                .histogram("commit_seconds", "Time of one transaction of the store, from its begin to its commit"),
            unfolded: new.gauge("unfolded_facts", "Facts durable in the log and not folded yet"),
            quarantined_facts: new.gauge(
                "quarantined_facts",
                "Facts that wait because their visitor's row or their tenant's stored catalogue cannot be read",
            ),
            wal_bytes: new.gauge("wal_bytes", "Length of the store's write-ahead log, in bytes"),
            held_tenants: new.gauge("held_tenants", "Tenants whose stored catalogue cannot be read: their facts wait"),
            jobs: JobMetrics::register(&mut new),
            registry: new.0,
            queue_age_ms: Gauge::default(),
            queue_aged_ms: Gauge::default(),
            last_sync_ms: Gauge::default(),
            serving_ms: Gauge::default(),
            dated_ms: Gauge::default(),
            contradicted_ms: Gauge::default(),
            outbox_oldest_ms: Gauge::default(),
        }
    }
}

impl JobMetrics {
    fn register(new: &mut NewRegistry) -> Self {
        let jobs = || JobKind::ALL.map(|job| [("job", job.name())]);
        let runs = JobKind::ALL
            .iter()
            .flat_map(|job| RunOutcome::ALL.map(|outcome| [("job", job.name()), ("outcome", outcome.name())]));
        Self {
            runs: new.labelled("job_runs", "Runs of jobs that ended in this process", runs),
            duration: new.labelled("job_seconds", "Duration of the last run that was not a dry run", jobs()),
            last_success: new.labelled(
                "job_last_success_seconds",
                "End of the last successful run that was not a dry run, Unix time; 0: none",
                jobs(),
            ),
            done: new.labelled("job_done", "Completed work of the current run", jobs()),
            all: new.labelled("job_all", "Total work of the current run; 0 if there is none", jobs()),
            verified: new.labelled(
                "verify_keys",
                "KV keys by result of the newest run of verify, dry runs included",
                FOUND.map(|found| [("found", found)]),
            ),
        }
    }
}

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
    pub fn warn_of_delays(&self, now: Millis) {
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
        let reason = REASONS.into_iter().find(|known| *known == reason).unwrap_or("other");
        self.rejected.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a connection that a time limit ended.
    pub fn count_timeout(&self, limit: ConnectionLimit) {
        self.connection_timeouts.get_or_create(&[("limit", limit.name())]).inc();
    }

    /// Counts a refused sync.
    pub fn refuse(&self, status: u16) {
        if let Some(status) = REFUSALS.into_iter().find(|known| known.parse() == Ok(status)) {
            self.refused.get_or_create(&[("status", status)]).inc();
        }
    }

    /// Counts a run that ended.
    pub fn count_run(&self, job: JobKind, outcome: RunOutcome) {
        self.jobs.runs.get_or_create(&[("job", job.name()), ("outcome", outcome.name())]).inc();
    }

    /// The metrics in Prometheus text format 0.0.4. `ready`: whether the origin accepts syncs.
    #[must_use]
    pub fn render(&self, now: Millis, steady: Millis, ready: bool) -> String {
        let mut page = String::with_capacity(16_384);
        for registry in [&self.registry, &self.computed(now, steady, ready)] {
            // Writing into a string cannot fail.
            let encoded = prometheus_text::encode(&mut page, registry);
            debug_assert!(encoded.is_ok());
        }
        page
    }

    /// Metrics whose values are known at a call of `/metrics` only.
    fn computed(&self, now: Millis, steady: Millis, ready: bool) -> Registry {
        let mut page = Registry::with_prefix("causeway");
        let lost = ConstCounter::new(log_output::lost_lines());
        page.register("log_lines_lost", "Log lines that could not be written", lost);
        page.register("ready", "1 if syncs are accepted", ConstGauge::new(u64::from(ready)));
        let outbox_oldest = Some(self.outbox_oldest_ms.get()).filter(|since| *since > 0).unwrap_or(now);
        for (name, help, ms) in [
            (
                "outbox_age_seconds",
                "Time for which the oldest waiting KV key is due",
                now.saturating_sub(outbox_oldest),
            ),
            (
                "queue_age_seconds",
                "Age of the oldest fact in the last sync with facts; 0 from a minute after that sync",
                self.queue_ms(now),
            ),
            (
                "last_sync_age_seconds",
                "Time since the last sync, or since the start if there was none",
                // By the monotonic clock: by a clock that was set back, the age would be 0 for as long as it lags.
                steady.saturating_sub(self.last_sync_ms.get().max(self.serving_ms.get())),
            ),
        ] {
            page.register(name, help, ConstGauge::new(seconds(ms)));
        }
        page
    }
}

/// A time or duration in seconds.
#[must_use]
pub fn seconds(ms: Millis) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_was_counted() {
        let metrics = Metrics::default();
        metrics.accepted.inc_by(3);
        metrics.reject("too_old");
        metrics.reject("something new");
        metrics.refuse(401);
        metrics.count_timeout(ConnectionLimit::Write);
        metrics.serving_ms.set(8_000);
        metrics.last_sync_ms.set(10_000);
        metrics.queue_age_ms.set(61_500);
        metrics.queue_aged_ms.set(10_000);
        metrics.set_outbox(2, Some(9_000));
        metrics.commit.observe(0.0007);
        let page = metrics.render(12_345, 12_345, true);
        for line in [
            "causeway_facts_accepted_total 3",
            "causeway_facts_rejected_total{reason=\"too_old\"} 1",
            "causeway_facts_rejected_total{reason=\"other\"} 1",
            "causeway_syncs_refused_total{status=\"401\"} 1",
            "causeway_connection_timeouts_total{limit=\"head\"} 0",
            "causeway_connection_timeouts_total{limit=\"write\"} 1",
            "causeway_last_sync_age_seconds 2.345",
            "causeway_queue_age_seconds 61.5",
            "causeway_outbox_depth 2",
            "causeway_outbox_age_seconds 3.345",
            "causeway_ready 1",
            "causeway_commit_seconds_bucket{le=\"0.0005\"} 0",
            "causeway_commit_seconds_bucket{le=\"0.001\"} 1",
            "causeway_commit_seconds_count 1",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
        metrics.set_outbox(0, None);
        assert!(metrics.render(12_345, 12_345, true).lines().any(|l| l == "causeway_outbox_age_seconds 0.0"));
        // A quiet night after one late batch, then a start without any sync.
        metrics.last_sync_ms.set(0);
        let page = metrics.render(188_001, 188_001, true);
        for line in ["causeway_queue_age_seconds 0.0", "causeway_last_sync_age_seconds 180.001"] {
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
        assert!(page.lines().any(|line| line == "causeway_last_sync_age_seconds 3600.0"), "{page}");
    }

    #[test]
    fn the_log_says_what_waits_for_too_long() {
        let metrics = Metrics::default();
        let log_at = |now| logged(|| metrics.warn_of_delays(now));
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
