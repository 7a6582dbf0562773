//! Laws that hold in small markets.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use causeway_market::budgets::{self, Day};
use causeway_market::compare::{Size, Way, play};

#[test]
fn a_model_over_bridged_people_earns_more_than_chance_and_than_bids_alone() {
    let size = Size { people: 8_000, before: 4, days: 1, seed: 1 };
    let [own, bids, chance] = std::thread::scope(|scope| {
        let ways = [Way::Causeway, Way::HighestBid, Way::Random];
        ways.map(|way| scope.spawn(move || play(way, size, &|_| {}).unwrap())).map(|one| one.join().unwrap())
    });
    assert!(own.impressions > 20_000 && chance.impressions > 20_000, "{own:?} {chance:?}");
    assert!(own.rpm() > 1.2 * chance.rpm() && own.rpm() > 1.5 * bids.rpm(), "{own:?} {bids:?} {chance:?}");
}

#[test]
fn the_same_seed_gives_the_same_market() {
    let [one, same, other] =
        [1, 1, 2].map(|seed| play(Way::Random, Size { people: 300, before: 1, days: 1, seed }, &|_| {}).unwrap());
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn a_daily_budget_is_spent_and_hardly_more_wherever_its_ads_are_placed() {
    for (locations, even) in [(1, true), (10, true), (10, false)] {
        let day = Day { locations, calls: 40_000, budget: 8_000, even, seed: 1 };
        let came = budgets::play(&day).unwrap();
        assert!((-1.5..=1.0).contains(&came.over(day.budget)), "{locations} {even} {came:?}");
        let morning: u64 = came.hours.iter().take(12).sum();
        let spread = if even { 3_400..4_600 } else { 7_500..8_200 };
        assert!(spread.contains(&morning), "{locations} {even} {came:?}");
    }
}
