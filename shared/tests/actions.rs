//! Actions: laws of the list, and counts compared with a naive model on random visitors and questions.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::law;
use causeway_shared::base::ids::InsertionId;
use causeway_shared::base::limits;
use causeway_shared::base::time::{DAY_MINUTES, Day, Minute};
use causeway_shared::facts::actions::{
    ActionCounter, ActionDimension, ActionList, ActionQuestion, ActionType, AdAction, AdEntity, AdLevel,
    DimensionFilter, FrequencyCap, InsertionHash, PackedActions, TimeWindow, ViewType, ViewTypes, WindowUnit,
    group_actions,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// An ad of a small catalogue: two ads per group, two groups per campaign, two campaigns per advertiser.
fn entity(ad: u32) -> AdEntity {
    AdEntity { ad: 1 + ad, ad_group: 100 + ad / 2, campaign: 200 + ad / 4, advertiser: 300 + ad / 8 }
}

fn insertion(n: u64) -> InsertionHash {
    InsertionHash::of(InsertionId(u128::from(n).to_be_bytes()))
}

/// Few insertions and ads, and minutes around midnight, so that repeats and edge cases are common.
fn action() -> impl Strategy<Value = AdAction> {
    let minute = prop_oneof![
        3 => 0..4 * DAY_MINUTES,
        1 => (0u32..4, prop_oneof![Just(0u32), Just(1), Just(59), Just(60), Just(DAY_MINUTES - 1)]).prop_map(|(d, m)| d * DAY_MINUTES + m),
    ];
    (0u64..24, 1u8..4, 0u8..3, 0u32..12, minute).prop_map(|(n, action_type, view_type, ad, minute)| AdAction {
        // An insertion has one ad and one view type.
        insertion: insertion(n * 100 + u64::from(ad)),
        action_type: ActionType(action_type),
        view_type: ViewType(view_type),
        entity: entity(ad),
        minute: Minute(Day(100).start().0 + minute),
    })
}

fn actions() -> impl Strategy<Value = Vec<AdAction>> {
    vec(action(), 0..60)
}

fn set(all: &[AdAction]) -> ActionList {
    all.iter().copied().collect()
}

#[derive(Debug, Clone)]
struct Asked {
    action_types: Vec<ActionType>,
    view_types: Option<Vec<ViewType>>,
    from: Minute,
    to: Minute,
}

fn asked() -> impl Strategy<Value = Asked> {
    let minute = || {
        prop_oneof![
            0..5 * DAY_MINUTES,
            (0u32..5).prop_map(|d| d * DAY_MINUTES),
            (0u32..5).prop_map(|d| d * DAY_MINUTES + 60),
        ]
        .prop_map(|m| Minute(Day(100).start().0 + m))
    };
    let action_types = vec((1u8..4).prop_map(ActionType), 0..4);
    (action_types, proptest::option::of(vec((0u8..3).prop_map(ViewType), 0..3)), minute(), minute())
        .prop_map(|(action_types, view_types, from, to)| Asked { action_types, view_types, from, to })
}

impl Asked {
    fn question(&self) -> ActionQuestion<'_> {
        let view_types = self.view_types.as_deref().map_or(ViewTypes::All, ViewTypes::Only);
        ActionQuestion { action_types: &self.action_types, view_types, from: self.from, to: self.to }
    }

    fn holds(&self, action: &AdAction) -> bool {
        self.action_types.contains(&action.action_type)
            && self.view_types.as_ref().is_none_or(|types| types.contains(&action.view_type))
            && (self.from..self.to).contains(&action.minute)
    }
}

/// The naive model. Of repeats within one visitor the earliest counts; over several visitors, each insertion in the
/// window counts once.
fn naive(visitors: &[Vec<AdAction>], asked: &Asked, level: AdLevel, code: u32) -> u32 {
    let mut counted: Vec<AdAction> = Vec::new();
    for visitor in visitors {
        let mut sorted = visitor.clone();
        sorted.sort();
        sorted.sort_by_key(|a| a.minute);
        let mut own: Vec<AdAction> = Vec::new();
        for action in sorted {
            if !own.iter().any(|other| other.repeats(&action)) {
                own.push(action);
            }
        }
        for action in own {
            let here = asked.holds(&action) && action.entity.at(level) == code;
            if here && !counted.iter().any(|other| other.repeats(&action)) {
                counted.push(action);
            }
        }
    }
    u32::try_from(counted.len()).unwrap()
}

fn counts(visitors: &[Vec<AdAction>], asked: &Asked, candidates: &[AdEntity]) -> Vec<[u32; 4]> {
    let packed: Vec<Vec<u8>> = visitors.iter().map(|actions| set(actions).pack_actions()).collect();
    let read: Vec<PackedActions<'_>> = packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
    ActionCounter::new(candidates.iter().copied()).count(&read, &asked.question()).collect()
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn join_of_actions_is_commutative_associative_idempotent(a in actions(), b in actions(), c in actions()) {
        let [a, b, c] = [set(&a), set(&b), set(&c)];
        prop_assert_eq!(a.clone().join(b.clone()), b.clone().join(a.clone()));
        prop_assert_eq!(a.clone().join(b.clone()).join(c.clone()), a.clone().join(b.join(c)));
        prop_assert_eq!(a.clone().join(a.clone()), a);
    }

    #[test]
    fn actions_in_any_order_and_batch_give_the_same_set(all in actions(), cut in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let mut shuffled = all.clone();
        shuffled.sort_by_key(|a| crate::common::scramble(seed ^ u64::from(a.minute.0) ^ u64::from(a.insertion.0[0])));
        let (first, second) = shuffled.split_at(cut.index(shuffled.len() + 1));
        prop_assert_eq!(set(first).join(set(second)), set(&all));
    }

    #[test]
    fn what_is_packed_is_read_again_and_equal_sets_pack_to_equal_bytes(all in actions()) {
        let actions = set(&all);
        let bytes = actions.pack_actions();
        let back: ActionList = PackedActions::read(&bytes).unwrap().iter().collect();
        prop_assert_eq!(&back, &actions);
        prop_assert_eq!(back.pack_actions(), bytes.clone());
        prop_assert!(PackedActions::is_whole(&bytes));
    }

    #[test]
    fn counts_of_all_candidates_at_all_levels_equal_the_naive_reference(
        visitors in vec(actions(), 0..4), asked in asked(), ads in vec(0u32..16, 0..10)
    ) {
        let candidates: Vec<AdEntity> = ads.into_iter().map(entity).collect();
        let counted = counts(&visitors, &asked, &candidates);
        prop_assert_eq!(counted.len(), candidates.len());
        for (entity, counts) in candidates.iter().zip(counted) {
            let expected = AdLevel::ALL.map(|level| naive(&visitors, &asked, level, entity.at(level)));
            prop_assert_eq!(counts, expected, "{:?}", entity);
        }
    }

    #[test]
    fn groups_equal_the_naive_reference(visitors in vec(actions(), 0..4), asked in asked(), level in 0usize..4) {
        let packed: Vec<Vec<u8>> = visitors.iter().map(|actions| set(actions).pack_actions()).collect();
        let read: Vec<PackedActions<'_>> = packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
        let codes = |action_types: &[ActionType]| action_types.iter().map(|v| u32::from(v.0)).collect::<BTreeSet<_>>();
        let mut filter = DimensionFilter(vec![(ActionDimension::ActionType, codes(&asked.action_types))]);
        if let Some(types) = &asked.view_types {
            filter.0.push((ActionDimension::ViewType, types.iter().map(|t| u32::from(t.0)).collect()));
        }
        let level = AdLevel::ALL[level];
        let groups = group_actions(&read, &filter, &[ActionDimension::Entity(level)], asked.from, asked.to).unwrap();
        let codes: BTreeSet<u32> = visitors.iter().flatten().map(|a| a.entity.at(level)).collect();
        let expected: BTreeMap<Vec<u32>, u64> = codes
            .into_iter()
            .map(|code| (vec![code], u64::from(naive(&visitors, &asked, level, code))))
            .filter(|(_, count)| *count > 0)
            .collect();
        prop_assert_eq!(groups.into_iter().collect::<BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn bytes_that_are_not_ours_are_refused_or_harmless(all in actions(), flip in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
        let bytes = set(&all).pack_actions();
        let mut flipped = bytes.clone();
        let at = flip.index(flipped.len());
        flipped[at] ^= 1 << bit;
        harmless(&flipped);
        let cut = &bytes[..cut.index(bytes.len())];
        prop_assert!(cut.is_empty() || PackedActions::read(cut).is_none());
    }

    #[test]
    fn any_bytes_are_refused_or_harmless(bytes in vec(any::<u8>(), 0..200)) {
        harmless(&bytes);
    }
}

/// For any bytes, reading and counting end, and count at most the number of rows.
fn harmless(bytes: &[u8]) {
    let Some(read) = PackedActions::read(bytes) else { return };
    assert!(read.iter().count() <= read.len());
    let action_types: Vec<ActionType> = (0..=255).map(ActionType).collect();
    let question = ActionQuestion {
        action_types: &action_types,
        view_types: ViewTypes::All,
        from: Minute(0),
        to: Minute(u32::MAX),
    };
    for visitors in [vec![read], vec![read, read]] {
        for counts in ActionCounter::new([entity(0)].into_iter()).count(&visitors, &question) {
            assert!(counts.iter().all(|count| *count as usize <= read.len()), "{counts:?}");
        }
    }
}

fn on(ad: u32, n: u64, action_type: ActionType, minute: u32) -> AdAction {
    let minute = Minute(Day(100).start().0 + minute);
    AdAction { insertion: insertion(n), action_type, view_type: ViewType(1), entity: entity(ad), minute }
}

fn all_time(action_type: &[ActionType]) -> Asked {
    Asked { action_types: action_type.to_vec(), view_types: None, from: Minute(0), to: Minute(u32::MAX) }
}

#[test]
fn a_repeat_counts_once_a_utc_day() {
    let seen = |minute| on(0, 1, ActionType::IMPRESSION, minute);
    let actions = vec![seen(5), seen(0), seen(DAY_MINUTES - 1), seen(DAY_MINUTES), on(0, 2, ActionType::IMPRESSION, 5)];
    assert_eq!(counts(std::slice::from_ref(&actions), &all_time(&[ActionType::IMPRESSION]), &[entity(0)]), [[3; 4]]);
    let earliest = set(&actions).iter().find(|a| a.insertion == insertion(1)).unwrap().minute;
    assert_eq!(earliest, Day(100).start(), "of repeats the earliest counts");
}

#[test]
fn each_configured_action_type_counts_separately() {
    let actions = vec![on(0, 1, ActionType::IMPRESSION, 0), on(0, 1, ActionType::CLICK, 1), on(0, 1, ActionType(9), 2)];
    for action_type in [ActionType::IMPRESSION, ActionType::CLICK, ActionType(9)] {
        assert_eq!(counts(std::slice::from_ref(&actions), &all_time(&[action_type]), &[entity(0)]), [[1; 4]]);
    }
    assert_eq!(counts(&[actions], &all_time(&[ActionType::CLICK, ActionType(9)]), &[entity(0)]), [[2; 4]]);
}

#[test]
fn one_action_counts_at_four_levels() {
    let actions = vec![
        on(0, 1, ActionType::IMPRESSION, 0),
        on(1, 2, ActionType::IMPRESSION, 0),
        on(2, 3, ActionType::IMPRESSION, 0),
        on(4, 4, ActionType::IMPRESSION, 0),
    ];
    assert_eq!(
        counts(&[actions], &all_time(&[ActionType::IMPRESSION]), &[entity(0), entity(7)]),
        [[1, 2, 3, 4], [0, 0, 1, 4]]
    );
}

#[test]
fn a_window_counts_from_its_first_to_its_last_minute() {
    let now = Minute(Day(103).start().0 + 30);
    let actions: Vec<AdAction> =
        [0, DAY_MINUTES - 1, DAY_MINUTES, 3 * DAY_MINUTES - 1, 3 * DAY_MINUTES, 3 * DAY_MINUTES + 30]
            .into_iter()
            .zip(1..)
            .map(|(minute, n)| on(0, n, ActionType::IMPRESSION, minute))
            .collect();
    let count = |interval, unit| {
        let (from, to) = TimeWindow { interval, unit }.range(now);
        counts(std::slice::from_ref(&actions), &Asked { from, to, ..all_time(&[ActionType::IMPRESSION]) }, &[entity(0)])
            [0][0]
    };
    assert_eq!([1, 2, 3, 4].map(|days| count(days, WindowUnit::Days)), [2, 3, 4, 6]);
    assert_eq!([1, 2].map(|hours| count(hours, WindowUnit::Hours)), [2, 3]);
    assert_eq!([1, 31, 32].map(|minutes| count(minutes, WindowUnit::Minutes)), [1, 2, 3]);
}

#[test]
fn all_caps_of_all_levels_must_hold() {
    let day = TimeWindow { interval: 1, unit: WindowUnit::Days };
    let caps = [
        (AdLevel::Ad, FrequencyCap { action_type: ActionType::IMPRESSION, limit: 3, window: day }),
        (AdLevel::Advertiser, FrequencyCap { action_type: ActionType::IMPRESSION, limit: 2, window: day }),
    ];
    let actions = vec![on(0, 1, ActionType::IMPRESSION, 0), on(5, 2, ActionType::IMPRESSION, 1)];
    let (from, to) = day.range(Minute(Day(100).start().0 + 10));
    let counted = counts(&[actions], &Asked { from, to, ..all_time(&[ActionType::IMPRESSION]) }, &[entity(0)])[0];
    let binding: Vec<AdLevel> =
        caps.into_iter().filter(|(level, cap)| !cap.admits(counted[*level as usize])).map(|(level, _)| level).collect();
    assert_eq!(binding, [AdLevel::Advertiser], "{counted:?}");
}

#[test]
fn only_the_newest_are_kept_and_leaving_out_commutes_with_the_join() {
    let many = |days: std::ops::Range<u32>| -> Vec<AdAction> {
        days.flat_map(|day| {
            (0..300).map(move |n| on(n % 12, u64::from(day * 1_000 + n), ActionType::IMPRESSION, day * DAY_MINUTES + n))
        })
        .collect()
    };
    let (old, new) = (many(0..30), many(15..45));
    let at_once = set(&old.iter().chain(&new).copied().collect::<Vec<_>>());
    assert_eq!(at_once.len(), limits::ACTIONS);
    assert_eq!(set(&old).join(set(&new)), at_once);
    assert_eq!(set(&new).join(set(&old)), at_once);
    // A repeat earlier on the same day evicts no action that the whole history would store.
    let mut moved = new.clone();
    moved.iter_mut().for_each(|a| a.minute = a.minute.day().start());
    assert_eq!(
        set(&old).join(set(&moved)).join(set(&new)),
        set(&old.iter().chain(&moved).chain(&new).copied().collect::<Vec<_>>())
    );
    assert!(PackedActions::is_whole(&at_once.pack_actions()));
}

#[test]
fn days_past_their_keeping_are_left_out() {
    let mut actions = set(&[on(0, 1, ActionType::IMPRESSION, 0), on(0, 2, ActionType::IMPRESSION, DAY_MINUTES)]);
    actions.retain_from(Day(101));
    assert_eq!(actions.iter().map(|a| a.minute.day()).collect::<Vec<_>>(), [Day(101)]);
}

#[test]
fn more_groups_than_the_bound_are_refused() {
    let actions: Vec<AdAction> = (0..10_000)
        .map(|n| AdAction { entity: AdEntity { ad: n, ..entity(0) }, ..on(0, n.into(), ActionType::IMPRESSION, 0) })
        .collect();
    let other: Vec<AdAction> =
        actions.iter().map(|a| AdAction { entity: AdEntity { ad: a.entity.ad + 20_000, ..a.entity }, ..*a }).collect();
    let packed = [set(&actions).pack_actions(), set(&other).pack_actions()];
    let read: Vec<_> = packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
    let grouped = |read: &[PackedActions<'_>]| {
        group_actions(
            read,
            &DimensionFilter::default(),
            &[ActionDimension::Entity(AdLevel::Ad)],
            Minute(0),
            Minute(u32::MAX),
        )
    };
    assert_eq!(grouped(&read[..1]).unwrap().len(), limits::GROUPS);
    assert!(grouped(&read).is_err());
}

/// AdCP Trusted Match: impressions are logged under each id that saw them, and deduplicated at the time of the read.
#[test]
fn five_impressions_of_which_one_names_only_one_id_count_as_five() {
    let seen = |n| on(0, n, ActionType::IMPRESSION, 10);
    let under_a: Vec<AdAction> = (1..=4).map(seen).collect();
    let under_b: Vec<AdAction> = (1..=5).map(seen).collect();
    for visitors in [vec![under_a.clone(), under_b.clone()], vec![under_b, under_a.clone(), under_a]] {
        assert_eq!(counts(&visitors, &all_time(&[ActionType::IMPRESSION]), &[entity(0)]), [[5; 4]]);
    }
}

#[test]
fn a_cap_is_shared_by_two_campaigns_of_an_advertiser() {
    // Ads 0 and 4 are of two campaigns of one advertiser.
    let actions = vec![
        on(0, 1, ActionType::IMPRESSION, 0),
        on(4, 2, ActionType::IMPRESSION, 1),
        on(4, 3, ActionType::IMPRESSION, 2),
    ];
    let counted = counts(&[actions], &all_time(&[ActionType::IMPRESSION]), &[entity(0), entity(4)]);
    assert_eq!(counted, [[1, 1, 1, 3], [2, 2, 2, 3]]);
    let cap = FrequencyCap {
        action_type: ActionType::IMPRESSION,
        limit: 3,
        window: TimeWindow { interval: 7, unit: WindowUnit::Days },
    };
    assert!(counted.iter().all(|counts| !cap.admits(counts[AdLevel::Advertiser as usize])));
    assert!(counted.iter().all(|counts| cap.admits(counts[AdLevel::Campaign as usize])));
}
