//! The queues of facts: the name of each binding and queue, and the queue of a message of facts.
//!
//! Order between facts changes nothing (invariant 1). A message in a queue that is no longer chosen is still consumed,
//! so the number of queues can change at any time.

use crate::base::ids::VisitorId;
use crate::base::random;
use crate::facts::fact::Fact;

/// The first queue, and the beginning of the names of the others.
pub const FIRST_QUEUE: &str = "causeway-facts";
/// The worker's binding of the first queue, and the beginning of the names of the others.
pub const FIRST_BINDING: &str = "FACTS";

/// The name of number `queue` (from 0): that of the first queue or binding, otherwise with its position from 2 on, as
/// in `FACTS_2` (`separator` `_`) or `causeway-facts-2` (`-`).
#[must_use]
pub fn numbered_name(first: &str, separator: char, queue: u32) -> String {
    if queue == 0 { first.to_owned() } else { format!("{first}{separator}{}", queue.saturating_add(1)) }
}

/// The binding of number `queue`, from 0: `FACTS`, `FACTS_2`, `FACTS_3` …
#[must_use]
pub fn binding_of(queue: u32) -> String {
    numbered_name(FIRST_BINDING, '_', queue)
}

/// The number by which the queue of a message is chosen, evenly distributed over 64 bits. It derives from the visitor
/// of the message's first fact, so that the facts of a visitor stay in one queue; without a visitor, from the first
/// fact's id.
#[must_use]
pub fn hash_message(facts: &[Fact]) -> u64 {
    let Some(first) = facts.first() else { return 0 };
    let id = if first.visitor == VisitorId::ANONYMOUS { first.id.as_bytes() } else { first.visitor.as_bytes() };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *id;
    let halves = [[a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]].map(u64::from_be_bytes);
    halves.into_iter().fold(0, |hash, half| random::finish((hash ^ half).wrapping_add(random::GAMMA)))
}

/// The queue of a message, below `queues`; 0 if there is one queue.
#[must_use]
pub fn choose_queue(hash: u64, queues: u32) -> u32 {
    let queue = hash.checked_rem(u64::from(queues)).unwrap_or_default();
    u32::try_from(queue).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::ids::FactId;
    use crate::base::limits;
    use crate::base::random::Random;
    use crate::facts::fact::FactKind;

    const NOW: u64 = 1_800_000_000_000;

    fn fact(visitor: VisitorId, id: [u8; 16]) -> Fact {
        let what = FactKind::Withdrawal;
        Fact { id: FactId::from_bytes(id), visitor, received: NOW, at: NOW, position: 0, what }
    }

    /// The number of messages in each queue.
    fn spread(messages: impl Iterator<Item = Fact>, queues: u32) -> Vec<usize> {
        let mut counts = vec![0; queues as usize];
        messages.for_each(|fact| counts[choose_queue(hash_message(&[fact]), queues) as usize] += 1);
        counts
    }

    #[test]
    fn a_thousand_visitors_are_spread_evenly() {
        let mut random = Random::new([7; 32]);
        // All are minted in the same millisecond.
        let visitors: Vec<Fact> = (0..1_000).map(|_| fact(VisitorId::mint(NOW, random.draw()), [1; 16])).collect();
        for queues in 1..=limits::FACTS_QUEUES {
            let counts = spread(visitors.iter().cloned(), queues);
            // Five standard deviations.
            let (even, off) = (1_000.0 / f64::from(queues), (1_000.0 / f64::from(queues)).sqrt() * 5.0);
            assert!(counts.iter().all(|count| (*count as f64 - even).abs() <= off), "{counts:?}");
        }
    }

    #[test]
    fn facts_without_a_visitor_are_spread_too() {
        let mut random = Random::new([8; 32]);
        let counts = spread((0..1_000).map(|_| fact(VisitorId::ANONYMOUS, random.draw())), 4);
        assert!(counts.iter().all(|count| (180..=320).contains(count)), "{counts:?}");
    }

    #[test]
    fn facts_of_a_visitor_stay_in_one_queue() {
        let visitor = VisitorId::mint(NOW, [3; 10]);
        let hashes: Vec<u64> = (0..100).map(|n| hash_message(&[fact(visitor, [n; 16])])).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]));
        // The same in every release.
        assert_eq!((hashes[0], choose_queue(hashes[0], 5)), (8_240_112_743_301_024_336, 1));
    }

    #[test]
    fn one_queue_takes_everything() {
        assert_eq!([0, 1, u64::MAX].map(|hash| choose_queue(hash, 1)), [0; 3]);
        assert_eq!((hash_message(&[]), choose_queue(5, 0)), (0, 0));
    }

    #[test]
    fn names_count_from_two_on() {
        assert_eq!([0, 1, 15].map(binding_of), ["FACTS", "FACTS_2", "FACTS_16"]);
        assert_eq!(numbered_name(FIRST_QUEUE, '-', 2), "causeway-facts-3");
    }
}
