//! Events by name: laws, the packed form and the counts, compared with a list of all events.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::BTreeSet;

use crate::common::{law, scramble, visitor};
use causeway_shared::base::ids::FactId;
use causeway_shared::base::limits;
use causeway_shared::base::time::{Day, EPOCH_MS, Minute};
use causeway_shared::facts::actions::{TimeWindow, WindowUnit};
use causeway_shared::facts::events::{self, EventCount, VisitorEvents};
use causeway_shared::facts::fact::{Fact, FactKind, PAGE, PURCHASE};
use causeway_shared::profiles::profile::Profile;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A name and a minute.
type Event = (String, u32);

const DAY: u32 = 1_440;
const NOW: u32 = 4_000_000;

fn of<'a>(all: impl IntoIterator<Item = &'a Event>) -> VisitorEvents {
    let mut events = VisitorEvents::default();
    all.into_iter().for_each(|(name, at)| events.add(name, Minute(*at)));
    events
}

fn stored_order(name: &str) -> (bool, usize, &str) {
    (![PAGE, PURCHASE].contains(&name), name.len(), name)
}

/// The stored names, and whether there were more.
fn stored_names(all: &[Event]) -> (Vec<&str>, bool) {
    let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    names.sort_by(|a, b| stored_order(a).cmp(&stored_order(b)));
    let more = names.len() > limits::EVENT_NAMES;
    names.truncate(limits::EVENT_NAMES);
    (names, more)
}

/// The expected counts and last minute of a name, from a list of all events.
fn naive(all: &[Event], name: &str, from: u32, to: u32) -> (u64, Option<u64>, Option<u64>, Option<Minute>) {
    let (names, more) = stored_names(all);
    let of_it: Vec<u32> = all.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect();
    let within = of_it.iter().filter(|at| (from..to).contains(at)).count() as u64;
    let held = names.contains(&name);
    if !held && more && names.last().is_some_and(|last| stored_order(last) < stored_order(name)) {
        return (within, None, None, None);
    }
    let floor = |most: usize, unit: u32| {
        let all: BTreeSet<u32> = of_it.iter().map(|at| at / unit).collect();
        all.into_iter().rev().nth(most).map_or(0, |dropped| dropped + 1)
    };
    let by_minutes = from >= floor(limits::EVENT_MINUTES, 1);
    let by_days = from.is_multiple_of(DAY) && to.is_multiple_of(DAY) && from / DAY >= floor(limits::EVENT_DAYS, DAY);
    let said = (by_minutes || by_days).then_some(within);
    (within, Some(of_it.len() as u64), said, of_it.iter().max().map(|at| Minute(*at)))
}

/// Some frequent names and many rare ones, of similar lengths; some minutes repeat.
fn some_events() -> impl Strategy<Value = Vec<Event>> {
    (any::<u64>(), 0..600u64).prop_map(|(seed, length)| (0..length).map(|n| event(scramble(seed ^ n))).collect())
}

fn event(drawn: u64) -> Event {
    let [name, part, minute, length, a, b, c, d] = drawn.to_be_bytes();
    let made_up: String =
        [a, b, c, d].iter().take(1 + usize::from(length % 4)).map(|b| char::from(b'a' + b % 4)).collect();
    let name = match name % 8 {
        of @ 0..5 => [PAGE, PURCHASE, "saved", "a", "zz"][usize::from(of)].to_owned(),
        _ => made_up,
    };
    let (minute, far) = (u32::from(minute), u32::from_be_bytes([0, a, b, c]) % (200 * DAY));
    let at = match part % 8 {
        0..3 => NOW + minute % 200,
        3..5 => NOW - minute % 200 * 700,
        5..7 => NOW - far,
        _ => minute % 3,
    };
    (name, at)
}

fn least(said: EventCount) -> u64 {
    let (EventCount::Exactly(count) | EventCount::AtLeast(count)) = said;
    count
}

fn range() -> impl Strategy<Value = (u32, u32)> {
    let days = (0..210u32, 1..100u32).prop_map(|(back, days)| {
        let last = NOW / DAY + 2 - back;
        ((last - days) * DAY, last * DAY)
    });
    let minutes = (0..300u32, 1..300u32).prop_map(|(back, length)| (NOW + 200 - back - length, NOW + 200 - back));
    prop_oneof![days, minutes, Just((0, u32::MAX))]
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn event_counts_do_not_depend_on_order_or_batches(all in some_events(), shuffle in any::<u64>(), cuts in any::<[Index; 2]>()) {
        let at_once = of(&all);
        let mut shuffled: Vec<(u64, Event)> =
            all.iter().enumerate().map(|(i, event)| (scramble(i as u64 ^ shuffle), event.clone())).collect();
        shuffled.sort();
        let shuffled: Vec<Event> = shuffled.into_iter().map(|(_, event)| event).collect();
        prop_assert_eq!(&of(&shuffled), &at_once);
        let mut cuts = cuts.map(|cut| cut.index(shuffled.len() + 1));
        cuts.sort_unstable();
        let (two, c) = shuffled.split_at(cuts[1]);
        let (a, b) = two.split_at(cuts[0]);
        let [a, b, c] = [a, b, c].map(|part| VisitorEvents::read(&of(part).pack()).unwrap());
        prop_assert_eq!(&a.clone().plus(b.clone()).plus(c.clone()), &at_once);
        prop_assert_eq!(&c.plus(b).plus(a), &at_once);
    }

    #[test]
    fn event_counts_equal_those_of_a_plain_list(all in some_events(), name in "[a-d]{1,4}|page|saved|zz", (from, to) in range()) {
        let events = of(&all);
        let (exact, total, within, last) = naive(&all, &name, from, to);
        let said = events.events_within(&name, Minute(from), Minute(to));
        prop_assert_eq!(events.total_events(&name).exact(), total);
        prop_assert_eq!(said.exact(), within);
        prop_assert_eq!(events.last(&name), last);
        prop_assert!(least(said) <= exact && (said.exact().is_none() || least(said) == exact), "{said:?} of {exact}");
        // The count over several visitors is the sum, and exact if each count is.
        let half = of(&all[..all.len() / 2]);
        let (other, both) = (half.events_within(&name, Minute(from), Minute(to)), [&events, &half]);
        let sum = events::within(&both, &name, Minute(from), Minute(to));
        prop_assert_eq!(least(sum), least(said) + least(other));
        prop_assert_eq!(sum.exact(), said.exact().zip(other.exact()).map(|(a, b)| a + b));
        let sum = events.total_events(&name).exact().zip(half.total_events(&name).exact()).map(|(a, b)| a + b);
        prop_assert_eq!(events::total(&both, &name).exact(), sum);
    }

    #[test]
    fn a_retained_event_name_has_its_newest_64_minutes_and_all_whole_days(all in some_events(), (from, to) in range()) {
        let name = PAGE;
        let of_it = |from: u32, to: u32| all.iter().filter(|(of, at)| of == name && (from..to).contains(at)).count() as u64;
        let mut minutes: Vec<u32> = all.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect();
        minutes.sort_unstable();
        minutes.dedup();
        let oldest = minutes.iter().rev().nth(limits::EVENT_MINUTES - 1).copied().unwrap_or_default();
        let said = least(of(&all).events_within(name, Minute(from), Minute(to)));
        prop_assert!(said >= of_it(from.max(oldest), to));
        if minutes.iter().map(|minute| minute / DAY).collect::<BTreeSet<_>>().len() <= limits::EVENT_DAYS {
            prop_assert!(said >= of_it(from.div_ceil(DAY) * DAY, to / DAY * DAY));
        }
    }

    #[test]
    fn every_window_of_days_is_answered_for_a_retained_event_name(all in some_events(), interval in 1..=u32::from(limits::ACTION_DAYS)) {
        let events = of(&all);
        let (from, to) = TimeWindow { interval, unit: WindowUnit::Days }.range(Minute(NOW + 200));
        for name in stored_names(&all).0 {
            prop_assert!(events.events_within(name, from, to).exact().is_some(), "{}", name);
        }
    }

    #[test]
    fn pages_and_purchases_in_a_snapshot_equal_those_of_a_plain_list(
        all in some_events(), since in select(vec![0, NOW - 100, NOW + 50, NOW + 320]), stored_since in select(vec![0, NOW + 20]),
        (from, to) in range(), cut in any::<Index>(), at in any::<Index>(), bit in 0..8u8,
    ) {
        let events = VisitorEvents::since(Minute(stored_since)).plus(of(&all));
        let packed = events.pack_recent(Minute(since));
        for name in [PAGE, PURCHASE] {
            let of_it: BTreeSet<u32> = all.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect();
            let floor = of_it.iter().rev().nth(limits::SNAPSHOT_EVENT_MINUTES).map_or(0, |dropped| dropped + 1);
            let exact = all.iter().filter(|(of, at)| of == name && (from..to).contains(at)).count() as u64;
            let said = events::recent_within(&packed, name, Minute(from), Minute(to)).unwrap();
            prop_assert!(least(said) <= exact, "{said:?} of {exact}");
            prop_assert_eq!(said.exact(), (from >= floor.max(since).max(stored_since)).then_some(exact));
            // Cut bytes give a lower bound of 0 or the whole answer; flipped bits give some answer.
            let less = events::recent_within(&packed[..cut.index(packed.len())], name, Minute(from), Minute(to)).unwrap();
            prop_assert!(less == EventCount::AtLeast(0) || less == said, "{less:?} of {said:?}");
            let mut flipped = packed.clone();
            flipped[at.index(packed.len())] ^= 1 << bit;
            prop_assert!(events::recent_within(&flipped, name, Minute(from), Minute(to)).is_some());
        }
        prop_assert_eq!(events::recent_within(&packed, "saved", Minute(from), Minute(to)), None);
        prop_assert_eq!(events::recent_within(&[], PAGE, Minute(from), Minute(to)), Some(EventCount::AtLeast(0)));
    }

    #[test]
    fn packed_events_have_one_form(all in some_events(), at in any::<Index>(), bit in 0..8u8, since in select(vec![0, NOW - 100, NOW + 50, NOW + 320]), cut in any::<Index>()) {
        // Also for a visitor whose older events were not stored.
        let events = VisitorEvents::since(Minute(since)).plus(of(&all));
        let bytes = events.pack();
        prop_assert_eq!(VisitorEvents::read(&bytes), Some(events.clone()));
        prop_assert_eq!(VisitorEvents::read(&bytes[..cut.index(bytes.len())]), None);
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= 1 << bit;
        if let Some(other) = VisitorEvents::read(&flipped) {
            prop_assert_eq!(other.pack(), flipped);
            prop_assert!(other != events);
            // Every map that was read can be added to and stored.
            prop_assert!(VisitorEvents::read(&other.plus(events).pack()).is_some());
        }
    }

    #[test]
    fn events_of_before_they_were_kept_cannot_be_said(all in some_events(), cut in any::<Index>(), since in NOW - 100..NOW + 200, (from, to) in range()) {
        let (first, second) = all.split_at(cut.index(all.len() + 1));
        let at_once = VisitorEvents::since(Minute(since)).plus(of(&all));
        prop_assert_eq!(&of(second).plus(VisitorEvents::since(Minute(since)).plus(of(first))), &at_once);
        let mut one_by_one = VisitorEvents::since(Minute(since));
        all.iter().for_each(|(name, at)| one_by_one.add(name, Minute(*at)));
        prop_assert_eq!(&one_by_one, &at_once);
        for name in [PAGE, "saved", "never"] {
            prop_assert_eq!(at_once.total_events(name).exact(), None);
            let (_, _, said, _) = naive(&all, name, from, to);
            let whole_days = from % DAY == 0 && to % DAY == 0;
            if from >= since {
                prop_assert_eq!(at_once.events_within(name, Minute(from), Minute(to)).exact(), said);
            } else if !whole_days || from / DAY < since / DAY {
                prop_assert_eq!(at_once.events_within(name, Minute(from), Minute(to)).exact(), None);
            }
        }
    }
}

fn tracked(n: u32, name: &str, at: Minute) -> Fact {
    let (id, at) = (FactId::of_message(visitor(1), &n.to_string()), EPOCH_MS + u64::from(at.0) * 60_000);
    let what = FactKind::Track { name: name.to_owned(), value: None, properties: None, order: None };
    Fact { position: 0, id, visitor: visitor(1), received: at, at, what }
}

#[test]
fn a_hostile_page_displaces_no_page_view_and_no_purchase() {
    let now = Day(3_000).start();
    let names = (0..100).map(|n| format!("{n:02}")).chain([PURCHASE.to_owned(), "bought_shoes".to_owned()]);
    let facts: Vec<Fact> = (0u32..).zip(names).map(|(n, name)| tracked(n, &name, now)).collect();
    for facts in [facts.iter().collect::<Vec<_>>(), facts.iter().rev().collect()] {
        let events = Profile::of(facts).events().clone();
        assert_eq!(events.iter().count(), limits::EVENT_NAMES);
        let total = |name: &str| events.total_events(name).exact();
        assert_eq!((total(PURCHASE), total(PAGE), total("00")), (Some(1), Some(0), Some(1)));
        // A name before the last stored name was not left out.
        assert_eq!((total("a"), total("62"), total("63")), (Some(0), Some(1), None));
        assert_eq!((total("zz"), total("bought_shoes")), (None, None));
        assert!(events.pack().len() < 1_000, "{}", events.pack().len());
    }
}

#[test]
fn the_longest_events_have_a_bound() {
    let mut events = VisitorEvents::default();
    let name = |n: usize| format!("{n:0width$}", width = limits::NAME_BYTES);
    for (n, minute) in (0..limits::EVENT_NAMES).flat_map(|n| (0..300).map(move |minute| (n, minute))) {
        events.add(&name(n), Minute(NOW - minute * 719));
        events.add(&name(n), Minute(NOW - minute * 719));
    }
    let bytes = events.pack();
    assert!((20_000..48 * 1_024).contains(&bytes.len()), "{}", bytes.len());
    assert_eq!(VisitorEvents::read(&bytes), Some(events.clone()));
    let too_long = "x".repeat(limits::NAME_BYTES + 1);
    events.add(&too_long, Minute(1));
    events.add("", Minute(1));
    assert_eq!(events.pack(), bytes);
}

#[test]
fn what_a_page_tracks_as_a_page_is_no_page_view() {
    let now = Day(3_000).start();
    let profile = Profile::of(&[tracked(1, PAGE, now), tracked(2, "saved", now)]);
    let [page, saved] = [PAGE, "saved"].map(|name| profile.events().total_events(name).exact());
    assert_eq!((page, saved, profile.totals().pages), (Some(0), Some(1), 0));
}

#[test]
fn hostile_bytes_are_refused() {
    let mut one = VisitorEvents::default();
    one.add("a", Minute(NOW));
    let good = one.pack();
    assert_eq!(VisitorEvents::default().pack(), [0, 0]);
    let name = |name: &[u8]| [&[0, 2, u8::try_from(name.len()).unwrap()], name, &[0, 1, 2]].concat();
    assert!(VisitorEvents::read(&name(b"a")).is_some());
    let bad = [
        vec![],
        [good.as_slice(), &[0]].concat(),
        name(b""),
        name(b"\xff"),
        // A repeated name, and names out of order.
        vec![0, 4, 1, b'a', 0, 1, 2, 1, b'a', 0, 1, 2],
        vec![0, 4, 1, b'b', 0, 1, 2, 1, b'a', 0, 1, 2],
        // A name without events; a name with left-out minutes although there was room.
        vec![0, 2, 1, b'a', 0, 0],
        vec![0, 2, 1, b'a', 9, 1, 2, 1, 0, 1, 2],
        // Too many names, too many minutes, and a minute out of range.
        [&[0, 0x82, 1], [1, b'a', 0, 1, 2].as_slice()].concat(),
        [&[0, 2, 1, b'a', 0, 65][..], &[2; 65]].concat(),
        vec![0, 2, 1, b'a', 0, 1, 0xfe, 0xff, 0xff, 0xff, 0xff, 1],
    ];
    for bytes in bad {
        assert_eq!(VisitorEvents::read(&bytes), None, "{bytes:?}");
    }
}
