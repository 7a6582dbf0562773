//! Rules of delivery: when a message is retried, how messages share a sync, when the publish consumer is triggered and
//! when it stops.
//!
//! The worker only moves bytes and waits; all of its decisions are here. The simulator runs the same rules.

use crate::base::ids::Millis;

/// Most queue messages in one sync. With [`crate::base::limits::EVENTS`] facts each, a sync stays under
/// [`crate::base::limits::SYNC_FACTS`]; with the platform's 128 KB each, it stays under
/// [`crate::base::limits::SYNC_BYTES`].
pub const SYNC_MESSAGES: usize = 25;
/// Retries of a queue message before the platform moves it to the dead-letter queue, whose consumer sends it again. A
/// test compares this with `max_retries` of the facts queue in `wrangler.toml`.
pub const MAX_RETRIES: u32 = 100;
/// Longest pause before a retry, in seconds.
pub const RETRY_MOST_S: u32 = 300;
/// Time limit for the origin's answer to a sync, in milliseconds.
pub const ORIGIN_TIMEOUT_MS: u64 = 10_000;
/// Time limit for all KV reads of one request together, in milliseconds (invariant 9).
pub const KV_DEADLINE_MS: u64 = 100;

/// Outbox entries requested with one sync.
const DRAIN: u16 = 100;
/// Longest duration of one drain, in milliseconds; the next trigger continues.
const DRAIN_MS: u64 = 20_000;
/// Number of operations (writes, reads and syncs) after which a drain requests no more entries. The platform allows
/// 1,000 per invocation: the last batch may raise the number to 901, and one more sync and a trigger follow.
const DRAIN_OPERATIONS: usize = 800;

/// Pause before a message is retried, in seconds: 2, 4, 8 and so on up to [`RETRY_MOST_S`]. `attempts` counts the
/// deliveries so far including this one, at least 1. All [`MAX_RETRIES`] take 7 h 48 min.
#[must_use]
pub fn retry_delay_s(attempts: u32) -> u32 {
    2_u32.saturating_pow(attempts).min(RETRY_MOST_S)
}

/// Whether the platform moves an undelivered message to the dead-letter queue: it was delivered once and retried
/// [`MAX_RETRIES`] times. `attempts` as in [`retry_delay_s`].
#[must_use]
pub fn is_dead(attempts: u32) -> bool {
    attempts > MAX_RETRIES
}

/// Whether to trigger the publish consumer after facts were delivered: if outbox entries are due.
#[must_use]
pub fn wakes(pending: u64) -> bool {
    pending > 0
}

/// One drain of the origin's outbox into the KV, by one invocation of the publish consumer.
///
/// A drain repeats these steps: a sync, which acknowledges the previous writes and requests [`OutboxDrain::wanted`]
/// entries; [`next`]; the writes; [`goes_on`]. After the last writes, one more sync requests nothing and only
/// acknowledges. A sync without an answer ends the drain: entries that were handed out or not acknowledged stay leased
/// for a minute and are then handed out again, under a higher version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxDrain {
    /// Start of the drain.
    pub began: Millis,
    /// Operations so far: attempted writes, including failed ones, reads and syncs.
    pub operations: usize,
}

/// Next step of a drain after the origin's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// Write the entries that were handed out.
    Write,
    /// Stop: nothing is due.
    Done,
    /// Stop and trigger the consumer once more, because an entry is due that was not handed out: the drain's time is
    /// over, its key was written within the last second, or the origin processes its timers in parts.
    WakeAgain,
}

impl DrainStep {
    /// Stable name for the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Done => "done",
            Self::WakeAgain => "wake_again",
        }
    }
}

impl OutboxDrain {
    /// A drain that starts now.
    #[must_use]
    pub fn new(began: Millis) -> Self {
        Self { began, operations: 0 }
    }

    /// Outbox entries to request with the next sync: 100, or 0 after 20 seconds or 800 operations.
    #[must_use]
    pub fn wanted(self, now: Millis) -> u16 {
        let over = now >= self.began.saturating_add(DRAIN_MS) || self.operations >= DRAIN_OPERATIONS;
        if over { 0 } else { DRAIN }
    }
}

/// Next step after an answer with `handed` entries, while `pending` entries are due and not leased.
#[must_use]
pub fn next(handed: usize, pending: u64) -> DrainStep {
    match handed {
        0 if wakes(pending) => DrainStep::WakeAgain,
        0 => DrainStep::Done,
        _ => DrainStep::Write,
    }
}

/// Whether a drain continues after writes, of which `applied` were acknowledged. If the KV accepted none, the drain
/// stops until the next trigger.
#[must_use]
pub fn goes_on(applied: usize) -> bool {
    applied > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits;

    const NOW: Millis = 1_800_000_000_000;

    #[test]
    fn a_message_is_tried_again_after_2_4_8_seconds_and_5_minutes_at_most() {
        let delays: Vec<u32> = (1..=10).map(retry_delay_s).collect();
        assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!([retry_delay_s(0), retry_delay_s(u32::MAX)], [1, 300]);
        let all: u32 = (1..=MAX_RETRIES).map(retry_delay_s).sum();
        assert_eq!((all / 3_600, all % 3_600 / 60), (7, 48));
    }

    #[test]
    fn a_message_is_dead_when_its_last_retry_failed() {
        assert_eq!([1, 100, 101].map(is_dead), [false, false, true]);
    }

    /// The section of a queue's consumer in `wrangler.toml`.
    fn consumer(queue: &str) -> Option<&'static str> {
        let of_queue =
            |part: &&str| part.contains("[[queues.consumers]]") && part.contains(&format!("\nqueue = {queue}\n"));
        include_str!("../../../wrangler.toml").split("\n\n").find(of_queue)
    }

    fn setting(part: &'static str, key: &str) -> Option<&'static str> {
        part.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
    }

    #[test]
    fn the_platform_retries_as_often_as_is_counted_here() {
        let facts = consumer("\"causeway-facts\"").unwrap_or_default();
        assert_eq!(setting(facts, "max_retries"), Some(MAX_RETRIES.to_string().as_str()));
        // A message that is given up there is sent again by the consumer of the dead letters.
        let dead = setting(facts, "dead_letter_queue").unwrap_or_default();
        assert!(dead.ends_with("dead\"") && consumer(dead).is_some(), "{dead}");
    }

    #[test]
    fn a_dead_letter_is_kept_trying_for_the_14_days_that_its_queue_keeps_it() {
        let dead = consumer("\"causeway-facts-dead\"").unwrap_or_default();
        let number = |key| setting(dead, key).and_then(|value| value.parse::<u32>().ok()).unwrap_or_default();
        assert!(number("max_retries") * number("retry_delay") >= 14 * 86_400, "{dead}");
    }

    #[test]
    fn every_minute_the_platform_makes_good_a_wake_up_that_was_lost() {
        assert!(include_str!("../../../wrangler.toml").contains("\n[triggers]\ncrons = [\"* * * * *\"]\n"));
    }

    #[test]
    fn the_platform_runs_one_consumer_that_writes_the_kv_and_no_second_beside_it() {
        let publish = consumer("\"causeway-publish\"").unwrap_or_default();
        assert_eq!(setting(publish, "max_concurrency"), Some("1"));
    }

    #[test]
    fn a_full_sync_is_within_the_origin_s_bounds() {
        const { assert!(SYNC_MESSAGES * limits::EVENTS <= limits::SYNC_FACTS) };
        const { assert!(SYNC_MESSAGES * 128_000 < limits::SYNC_BYTES) };
        assert!(usize::from(DRAIN) <= limits::SYNC_PUBLISH);
    }

    #[test]
    fn a_drain_asks_for_100_until_its_time_or_its_writes_are_over() {
        let mut drain = OutboxDrain::new(NOW);
        assert_eq!([0, 19_999, 20_000, 60_000].map(|ms| drain.wanted(NOW + ms)), [100, 100, 0, 0]);
        for _ in 0..8 {
            assert_eq!(drain.wanted(NOW), 100);
            drain.operations += 100;
        }
        assert_eq!(drain.wanted(NOW), 0);
        // A clock that was set back does not end a drain early.
        assert_eq!(OutboxDrain::new(NOW).wanted(NOW - 1), 100);
    }

    #[test]
    fn a_drain_ends_when_nothing_is_due_and_wakes_again_when_something_is() {
        assert_eq!(
            [next(0, 0), next(0, 1), next(1, 0), next(100, 9)],
            [DrainStep::Done, DrainStep::WakeAgain, DrainStep::Write, DrainStep::Write]
        );
        assert_eq!([0, 1].map(goes_on), [false, true], "a KV that takes nothing is left alone");
    }
}
