#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::actions::{Action, Actions, InsertionHash, ViewType};
use crate::time::Day;
use crate::vocabulary::Vocabulary;

const TOP: &[[u32; 2]] = &[[728, 90]];

fn now() -> Minute {
    Minute(Day(100).start().0 + 600)
}

fn cap(action: &str, limit: u32, interval: u32, unit: &str) -> Value {
    json!([{ "action": action, "limit": limit, "window": { "interval": interval, "unit": unit } }])
}

/// Two advertisers; the first has two campaigns of two groups of one ad each. Every ad's id is its code.
fn catalogue(change: impl FnOnce(&mut Value)) -> Compiled {
    let ad = |code: u32, group: &str| json!({ "id": code.to_string(), "code": code, "ad_group": group, "creative": {}, "landing": "https://a.example/" });
    let group = |code: u32, campaign: &str| json!({ "id": format!("g{code}"), "code": code, "campaign": campaign });
    let campaign = |code: u32, of: &str| json!({ "id": format!("c{code}"), "code": code, "advertiser": of });
    let mut all = json!({
        "advertiser": [{ "id": "v1", "code": 1 }, { "id": "v2", "code": 2 }],
        "campaign": [campaign(1, "v1"), campaign(2, "v1"), campaign(3, "v2")],
        "ad_group": [group(1, "c1"), group(2, "c1"), group(3, "c2"), group(4, "c3")],
        "ad": [ad(1, "g1"), ad(2, "g2"), ad(3, "g3"), ad(4, "g4")],
    });
    change(&mut all);
    let catalogue: crate::catalogue::Catalogue = serde_json::from_value(all).unwrap();
    assert_eq!(catalogue.problems("c", &Vocabulary::default()), []);
    Compiled::new(&catalogue, &Vocabulary::default())
}

fn seen(catalogue: &Compiled, ad: u32, insertion: u8, minute: Minute) -> Action {
    let entity = catalogue.ad(ad).unwrap().entity;
    Action { insertion: InsertionHash([insertion; 6]), verb: Verb::IMPRESSION, view_type: ViewType(1), entity, minute }
}

/// The ads placed, by code, or why there is none.
fn placed(catalogue: &Compiled, held: &[Vec<Action>], placements: &[&[[u32; 2]]]) -> Vec<Result<u32, NoAd>> {
    let packed: Vec<Vec<u8>> = held.iter().map(|one| one.iter().copied().collect::<Actions>().pack()).collect();
    let person = Person { actions: packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect() };
    let decided = Question::new(catalogue, Some(&person), placements.to_vec(), now()).decide(None);
    decided.into_iter().map(|one| one.ad.map(|place| catalogue.offers[place].entity.ad)).collect()
}

#[test]
fn s3_05_each_of_the_four_levels_binds_and_all_must_hold() {
    for (level, left) in [("ad", 2), ("ad_group", 2), ("campaign", 3), ("advertiser", 4)] {
        let catalogue = catalogue(|all| all[level][0]["caps"] = cap("impression", 2, 1, "days"));
        let once = vec![seen(&catalogue, 1, 1, now())];
        let twice = vec![seen(&catalogue, 1, 1, now()), seen(&catalogue, 1, 2, now())];
        assert_eq!(placed(&catalogue, &[once], &[&[]]), [Ok(1)], "{level}");
        assert_eq!(placed(&catalogue, &[twice], &[&[]]), [Ok(left)], "{level}");
    }
}

#[test]
fn s3_05_one_and_seven_and_thirty_days_in_whole_buckets() {
    for days in [1, 7, 30] {
        let catalogue = catalogue(|all| all["advertiser"][0]["caps"] = cap("impression", 1, days, "days"));
        let first = Day(u16::try_from(101 - days).unwrap()).start();
        let at = |minute| placed(&catalogue, &[vec![seen(&catalogue, 2, 1, minute)]], &[&[]]);
        assert_eq!(at(first), [Ok(4)], "{days} days");
        assert_eq!(at(Minute(first.0 - 1)), [Ok(1)], "{days} days");
    }
}

#[test]
fn s3_05_the_trace_says_which_cap_bound_and_at_how_many() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["caps"] = cap("impression", 2, 7, "days");
        all["ad"][1]["sizes"] = json!([[300, 250]]);
    });
    let bytes: Vec<u8> = (1..=3).map(|n| seen(&catalogue, 1, n, now())).collect::<Actions>().pack();
    let person = Person { actions: vec![PackedActions::read(&bytes).unwrap()] };
    let decided = Question::new(&catalogue, Some(&person), vec![TOP], now()).decide(None);
    let [Fate::Capped(bound, 3), Fate::Size, Fate::Won, Fate::Outbid] = decided[0].fates[..] else {
        unreachable!("{:?}", decided[0].fates)
    };
    assert_eq!((bound.level, bound.cap.limit), (Level::Campaign, 2));
}

#[test]
fn s3_05_a_cap_counts_its_own_action() {
    let catalogue = catalogue(|all| all["ad"][0]["caps"] = cap("click", 1, 1, "days"));
    let impression = seen(&catalogue, 1, 1, now());
    let click = Action { verb: Verb::CLICK, ..impression };
    assert_eq!(placed(&catalogue, &[vec![impression]], &[&[]]), [Ok(1)]);
    assert_eq!(placed(&catalogue, &[vec![impression, click]], &[&[]]), [Ok(2)]);
}

#[test]
fn field_13_placements_of_one_call_count_for_each_other_and_no_ad_comes_twice() {
    let catalogue = catalogue(|all| all["campaign"][0]["caps"] = cap("impression", 1, 1, "days"));
    let expected = [Ok(1), Ok(3), Ok(4), Err(NoAd::AllCapped)];
    assert_eq!(placed(&catalogue, &[], &[&[], &[], &[], &[]]), expected);
    let catalogue = self::catalogue(|_| ());
    assert_eq!(placed(&catalogue, &[], &[&[], &[], &[], &[], &[]]), [Ok(1), Ok(2), Ok(3), Ok(4), Err(NoAd::AllCapped)]);
}

#[test]
fn field_13_an_insertion_that_two_hold_counts_once_and_reservations_count() {
    let catalogue = catalogue(|all| all["ad"][0]["caps"] = cap("impression", 2, 1, "days"));
    let [a, b] = [1, 2].map(|insertion| seen(&catalogue, 1, insertion, now()));
    assert_eq!(placed(&catalogue, &[vec![a], vec![a]], &[&[]]), [Ok(1)]);
    assert_eq!(placed(&catalogue, &[vec![a], vec![b]], &[&[]]), [Ok(2)]);
}

#[test]
fn field_13_with_nobody_to_count_for_only_ads_without_caps_are_placed() {
    let catalogue = catalogue(|all| all["advertiser"][0]["caps"] = cap("impression", 9, 1, "days"));
    let decided = Question::new(&catalogue, None, vec![&[], &[]], now()).decide(None);
    assert_eq!(decided[0].fates, [Fate::Nobody, Fate::Nobody, Fate::Nobody, Fate::Won]);
    assert_eq!(decided[1].ad, Err(NoAd::AllCapped));
    assert_eq!(placed(&catalogue, &[], &[&[]]), [Ok(1)], "a visitor minted now is somebody");
}

#[test]
fn why_there_is_none() {
    let catalogue = catalogue(|all| {
        for place in 0..4 {
            all["ad"][place]["sizes"] = json!([[300, 250], [1, 1]]);
        }
    });
    assert_eq!(placed(&catalogue, &[], &[TOP, &[[1, 1]], &[]]), [Err(NoAd::NoSize), Ok(1), Ok(2)]);
    assert_eq!(placed(&Compiled::default(), &[], &[TOP]), [Err(NoAd::NoCatalogue)]);
}
