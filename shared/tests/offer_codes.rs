//! Limited offers: codes are given in parallel, each once and all of them, whatever is lost.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::bucket::PersonRandom;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::random::Random;
use causeway_shared::facts::offer_codes::{
    GivenOfferCode, OfferCall, OfferCodeRows, OfferCodeStock, OfferStep, RANGES, RecipientLimit, VisitorOfferCodes,
};
use proptest::prelude::*;

fn visitor(n: u32) -> VisitorId {
    let mut bytes = *b"\x01\xa3\x18\x5c\x50\x00\x71\x02\x83\x04\x00\x00\x00\x00\x00\x00";
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    VisitorId::from_bytes(bytes).unwrap()
}

fn everybody(limit: u32) -> RecipientLimit {
    RecipientLimit { limit, share: 10_000 }
}

/// All objects of one campaign, and the loss of messages to them.
#[derive(Default)]
struct Objects {
    stored: BTreeMap<u8, (OfferCodeStock, OfferCodeRows)>,
    calls: u32,
    /// Which messages are lost, by their number; the pattern repeats.
    lost: Vec<bool>,
    messages: usize,
}

impl Objects {
    fn is_lost(&mut self) -> bool {
        self.messages += 1;
        !self.lost.is_empty() && self.lost[self.messages % self.lost.len()]
    }

    fn keep(rows: &mut OfferCodeRows, writes: causeway_shared::facts::offer_codes::OfferCodeWrites) {
        for (visitor, row) in writes {
            match row {
                Some(row) => drop(rows.insert(visitor, row)),
                None => drop(rows.remove(&visitor)),
            }
        }
    }

    /// Calls the object of a person; `None` if no answer arrived.
    fn ask(&mut self, members: &[u32], own: u32, limit: u32) -> Option<Option<GivenOfferCode>> {
        let members: Vec<VisitorId> = members.iter().map(|n| visitor(*n)).collect();
        let random = PersonRandom::of_visitor(*members.iter().min()?);
        let range = everybody(limit).range_of(&random, "codes")?;
        let tenant = "pub".parse().ok()?;
        self.call(&OfferCall { tenant, campaign: 3, limit, range, asked: 0, again: false, own: visitor(own), members })
    }

    fn call(&mut self, call: &OfferCall) -> Option<Option<GivenOfferCode>> {
        if self.is_lost() {
            return None;
        }
        self.calls += 1;
        let (stock, rows) = self.stored.entry(call.range).or_default();
        let (step, writes) = stock.call(rows, call);
        Self::keep(rows, writes);
        let answer = match step {
            OfferStep::Answer(answer) => answer,
            OfferStep::Forward(next) => {
                let answer = self.call(&next)?;
                let (stock, rows) = self.stored.get_mut(&call.range)?;
                let writes = stock.passed(&next, answer);
                Self::keep(rows, writes);
                answer
            }
        };
        if self.is_lost() { None } else { Some(answer) }
    }
}

#[test]
fn fifty_thousand_offer_codes_go_to_as_many_people_over_bucket_ranges() {
    let mut objects = Objects::default();
    let mut numbers = BTreeSet::new();
    // People call in no order of their ids; there are a few more people than codes.
    let came = (0..50_100).filter(|n| {
        let person = n * 7_919 % 50_101;
        let given = objects.ask(&[person], person, 50_000).unwrap();
        given.is_some_and(|given| numbers.insert(given.number) && given.holder == visitor(person))
    });
    assert_eq!(came.count(), 50_000);
    assert_eq!((numbers.first(), numbers.last()), (Some(&0), Some(&49_999)));
    // Each object gave its sixteenth; calls to an empty object were forwarded.
    assert!(objects.stored.values().all(|(stock, _)| stock.given == 3_125), "{:?}", objects.stored.len());
    // Once all codes are given, one call is enough to refuse.
    let before = objects.calls;
    let refused = (60_000..61_000).filter(|n| objects.ask(&[*n], *n, 50_000) == Some(None));
    assert_eq!(refused.count(), 1_000);
    assert!(objects.calls - before <= 1_000 + u32::from(RANGES) * u32::from(RANGES), "{}", objects.calls - before);
}

#[test]
fn a_person_has_one_offer_code_whichever_browser_asks() {
    let mut objects = Objects::default();
    let first = objects.ask(&[1, 2], 2, 100).unwrap().unwrap();
    assert_eq!(first.holder, visitor(2));
    for own in [1, 2, 3] {
        assert_eq!(objects.ask(&[1, 2, 3], own, 100), Some(Some(first)), "{own}");
    }
    // After a cut from the holder, the other visitor is another person.
    let other = objects.ask(&[1], 1, 100).unwrap().unwrap();
    assert!(other.number != first.number && other.holder == visitor(1));
}

#[test]
fn a_raised_limit_gives_more_offer_codes_and_a_lowered_one_gives_none() {
    let mut objects = Objects::default();
    let mut given = |from: u32, limit: u32| {
        (from..from + 1_000).filter(|n| objects.ask(&[*n], *n, limit).unwrap().is_some()).count()
    };
    assert_eq!([given(0, 100), given(1_000, 100), given(2_000, 250), given(3_000, 50)], [100, 0, 150, 0]);
}

#[test]
fn the_drawn_share_is_spread_over_all_ranges() {
    let recipients = RecipientLimit { limit: 1, share: 2_500 };
    let mut ranges = BTreeMap::new();
    for n in 0..40_000 {
        let range = recipients.range_of(&PersonRandom::of_visitor(visitor(n)), "codes");
        *ranges.entry(range).or_insert(0_u32) += 1;
    }
    // Six standard deviations on either side: 6 × 87 and 6 × 24.6.
    assert!(ranges[&None].abs_diff(30_000) < 520, "{ranges:?}");
    assert!((0..RANGES).all(|range| ranges[&Some(range)].abs_diff(625) < 148), "{ranges:?}");
    let same = |n: u32, campaign| recipients.range_of(&PersonRandom::of_visitor(visitor(n)), campaign).is_some();
    let both = (0..40_000).filter(|n| same(*n, "codes") && same(*n, "others")).count();
    assert!(both.abs_diff(2_500) < 300, "another campaign draws others: {both}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Calls and answers are lost at every step; each person repeats its call until an answer arrives.
    #[test]
    fn lost_messages_give_no_offer_code_twice_and_withhold_none(
        lost in prop::collection::vec(prop::bool::weighted(0.2), 1..200),
        limit in 1_u32..80,
        seed in any::<[u8; 32]>(),
    ) {
        prop_assume!(lost.iter().any(|lost| !lost));
        let mut objects = Objects { lost, ..Objects::default() };
        let mut random = Random::new(seed);
        let mut holders: BTreeMap<u32, VisitorId> = BTreeMap::new();
        let mut waiting: Vec<u32> = (0..100).collect();
        let mut turns = 0;
        while !waiting.is_empty() && turns < 100_000 {
            turns += 1;
            let at = usize::from(random.draw::<1>()[0]) % waiting.len();
            let person = waiting[at];
            // Some calls get no answer, and the person repeats the call later.
            let Some(answer) = objects.ask(&[person], person, limit) else { continue };
            waiting.swap_remove(at);
            let Some(given) = answer else { continue };
            prop_assert!(given.number < limit && given.holder == visitor(person));
            prop_assert_eq!(holders.insert(given.number, given.holder), None);
        }
        // A pattern of losses may block a person for ever. All other people have an answer, and no code is left for
        // them.
        let given: u32 = objects.stored.values().map(|(stock, _)| stock.given).sum();
        prop_assert!(given <= limit);
        if waiting.is_empty() {
            prop_assert_eq!(u32::try_from(holders.len()).unwrap(), limit);
            let asked = objects.stored.values().flat_map(|(_, rows)| rows.values()).filter(|row| **row == VisitorOfferCodes::Asked);
            prop_assert!(given == limit && asked.count() <= 100);
        }
    }
}
