//! Delivery: when a message is tried again, how messages share a sync, when the KV writer is woken and when it stops.
//!
//! The worker moves bytes and waits; these are all of its rules. A simulator plays the same ones.

use crate::base::ids::Millis;

/// Queue messages in one sync. With [`crate::base::limits::EVENTS`] facts each they stay under
/// [`crate::base::limits::SYNC_FACTS`], and with the platform's 128 KB each under [`crate::base::limits::SYNC_BYTES`].
pub const SYNC_MESSAGES: usize = 25;
/// How often a queue message is tried again before the platform puts it with the dead letters, whose consumer sends it
/// anew: `max_retries` of the facts queue in `wrangler.toml`, which a test compares.
pub const MAX_RETRIES: u32 = 100;
/// Longest pause before a message is tried again, in seconds.
pub const RETRY_MOST_S: u32 = 300;
/// How long a sync waits for the origin's answer, in milliseconds.
pub const ORIGIN_TIMEOUT_MS: Millis = 10_000;
/// How long all KV reads of one request may take together, in milliseconds (invariant 9).
pub const KV_DEADLINE_MS: Millis = 100;

/// Outbox entries wanted of the origin with one sync.
const DRAIN: u16 = 100;
/// How long one drain goes on, in milliseconds; what is left comes with the next wake-up.
const DRAIN_MS: Millis = 20_000;
/// Operations, syncs among them, after which a drain asks for no more. The platform allows an invocation 1,000: the last batch
/// may bring it to 901, and one more sync and a wake-up come on top.
const DRAIN_OPERATIONS: usize = 800;

/// The pause before a message is tried again, in seconds: 2, 4, 8 and so on up to [`RETRY_MOST_S`]. `attempts` is how
/// often it was handed out so far, this time among them, so 1 at least. All [`MAX_RETRIES`] take 7 h 48 min.
#[must_use]
pub fn retry_delay_s(attempts: u32) -> u32 {
    2_u32.saturating_pow(attempts).min(RETRY_MOST_S)
}

/// Whether a message that could not be delivered goes to the dead letters when it is given back: it was handed out
/// once and tried again [`MAX_RETRIES`] times. `attempts` as for [`retry_delay_s`].
#[must_use]
pub fn is_dead(attempts: u32) -> bool {
    attempts > MAX_RETRIES
}

/// Whether the one consumer that writes the KV is woken after facts were delivered: when outbox entries are due.
#[must_use]
pub fn wakes(pending: u64) -> bool {
    pending > 0
}

/// One drain of the origin's outbox into the KV, by one invocation of the publish consumer.
///
/// It goes: sync (acknowledging what was written, asking for [`OutboxDrain::wanted`]), [`next`], write, [`goes_on`], and
/// again. After the last writes one more sync asks for nothing, so that they are acknowledged.
/// A sync without an answer ends it: entries handed out or not acknowledged are leased for a minute, then handed out
/// again, under a higher version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxDrain {
    /// When it began.
    pub began: Millis,
    /// Operations so far: writes tried, those that failed among them, reads and syncs.
    pub operations: usize,
}

/// What a drain does with the origin's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainStep {
    /// Write what was handed out.
    Write,
    /// Stop: nothing is due.
    Done,
    /// Stop, and wake the consumer once more: something is due that was not handed out. The time is over, or a key was
    /// written within the last second, or the origin takes up its timers in parts.
    WakeAgain,
}

impl DrainStep {
    /// Its stable name, for the log.
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
    /// A drain that begins now.
    #[must_use]
    pub fn new(began: Millis) -> Self {
        Self { began, operations: 0 }
    }

    /// Outbox entries to ask for with the next sync: 100, or 0 once 20 seconds passed or there were 800 operations.
    #[must_use]
    pub fn wanted(self, now: Millis) -> u16 {
        let over = now >= self.began.saturating_add(DRAIN_MS) || self.operations >= DRAIN_OPERATIONS;
        if over { 0 } else { DRAIN }
    }
}

/// What follows an answer that hands out so many entries and says that so many are due and not leased.
#[must_use]
pub fn next(handed: usize, pending: u64) -> DrainStep {
    match handed {
        0 if wakes(pending) => DrainStep::WakeAgain,
        0 => DrainStep::Done,
        _ => DrainStep::Write,
    }
}

/// Whether a drain goes on after writes of which so many were acknowledged. A KV that took none is left alone until the
/// next wake-up.
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

    /// What `wrangler.toml` says of a queue's consumer.
    fn consumer(queue: &str) -> Option<&'static str> {
        let of_queue =
            |part: &&str| part.contains("[[queues.consumers]]") && part.contains(&format!("\nqueue = {queue}\n"));
        include_str!("../../../wrangler.toml").split("\n\n").find(of_queue)
    }

    fn told(part: &'static str, key: &str) -> Option<&'static str> {
        part.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
    }

    #[test]
    fn the_platform_retries_as_often_as_is_counted_here() {
        let facts = consumer("\"causeway-facts\"").unwrap_or_default();
        assert_eq!(told(facts, "max_retries"), Some(MAX_RETRIES.to_string().as_str()));
        // What is given up on there is sent anew by the consumer of the dead letters.
        let dead = told(facts, "dead_letter_queue").unwrap_or_default();
        assert!(dead.ends_with("dead\"") && consumer(dead).is_some(), "{dead}");
    }

    #[test]
    fn a_dead_letter_is_kept_trying_for_the_14_days_that_its_queue_keeps_it() {
        let dead = consumer("\"causeway-facts-dead\"").unwrap_or_default();
        let number = |key| told(dead, key).and_then(|value| value.parse::<u32>().ok()).unwrap_or_default();
        assert!(number("max_retries") * number("retry_delay") >= 14 * 86_400, "{dead}");
    }

    #[test]
    fn every_minute_the_platform_makes_good_a_wake_up_that_was_lost() {
        assert!(include_str!("../../../wrangler.toml").contains("\n[triggers]\ncrons = [\"* * * * *\"]\n"));
    }

    #[test]
    fn the_platform_runs_one_consumer_that_writes_the_kv_and_no_second_beside_it() {
        let publish = consumer("\"causeway-publish\"").unwrap_or_default();
        assert_eq!(told(publish, "max_concurrency"), Some("1"));
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
        // A clock that was set back ends no drain early.
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
