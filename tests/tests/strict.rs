//! Strict caps and limited offers with the real worker and its objects: parallel pages of one person, impressions that
//! no object granted, and the recipients of the offer codes.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::FactKind;
use causeway_tests::bare::Bare;
use causeway_tests::browser::Browser;
use causeway_tests::run;
use causeway_tests::standin::Held;
use serde_json::{Value, json};

fn main() {
    run(
        || Bare::with(&once()),
        &[
            ("one_of_parallel_pages_is_served_at_a_limit_of_one", parallel),
            ("a_strict_impression_counts_once_and_only_through_its_address", counts_once),
            ("twenty_of_sixty_people_at_once_get_the_twenty_offer_codes", offer_codes),
        ],
    )
}

/// One ad with a strict cap of one a day per person; and, on pages with the keyword `offers`, one with twenty offer
/// codes.
fn once() -> Value {
    let cap = json!([{ "action": "impression", "limit": 1, "window": { "interval": 1, "unit": "days" } }]);
    json!({
        "advertiser": [{ "id": "shoes", "code": 1, "repeats": true }],
        "campaign": [
            { "id": "once", "code": 1, "advertiser": "shoes", "cap_mode": "strict", "caps": cap },
            { "id": "codes", "code": 2, "advertiser": "shoes", "bid": { "cpm_micros": 9 },
                "recipients": { "limit": 20 }, "targeting": { "page.keywords": "offers" } },
        ],
        "ad_group": [{ "id": "one", "code": 1, "campaign": "once" }, { "id": "two", "code": 2, "campaign": "codes" }],
        "ad": [
            { "id": "red", "code": 1, "ad_group": "one", "creative": {}, "landing": "https://red.example/" },
            { "id": "code", "code": 2, "ad_group": "two", "creative": { "code": "SAVE-{offer_code}" }, "landing": "https://red.example/" },
        ],
    })
}

fn page(browser: &Browser) -> Value {
    let answer = browser.decide(&json!({ "placements": [{ "id": "top" }] }));
    assert_eq!(answer.status, 200);
    answer.json()["decisions"][0].clone()
}

/// A page that was served the ad, and the number of pages requested: on a busy machine an object may answer too late,
/// which is not a failure.
fn served(browser: &Browser) -> (Value, usize) {
    let mut pages = 0;
    let decision = causeway_tests::eventually("an object answers in time", || {
        pages += 1;
        Some(page(browser)).filter(|decision| decision["ad"]["id"] == "red")
    });
    (decision, pages)
}

fn parallel(world: &Bare) {
    causeway_tests::eventually("an object answers in time", || (at_once(world) == 1).then_some(()));
}

/// Number of eight parallel pages on which a new person is served the ad.
fn at_once(world: &Bare) -> usize {
    let (browser, _) = world.returning();
    // All pages carry the same cookies, so that no ledger names another page's ad.
    let pages: Vec<Browser> = (0..8).map(|_| world.browser()).collect();
    pages.iter().for_each(|page| page.put_back(browser.cookies()));
    let shown: Vec<Value> = std::thread::scope(|scope| {
        let each: Vec<_> = pages.into_iter().map(|one| scope.spawn(move || page(&one))).collect();
        each.into_iter().map(|page| page.join().unwrap()).collect()
    });
    let count = |ad: &str| shown.iter().filter(|decision| decision["ad"]["id"] == ad).count();
    assert!(count("red") <= 1 && count("red") + count("house") == 8, "{shown:?}");
    count("red")
}

fn counts_once(world: &Bare) {
    let (browser, visitor) = world.returning();
    let (decision, pages) = served(&browser);
    let event = json!([{ "type": "action", "insertion": decision["insertion"], "action": "impression" }]);
    assert_eq!(browser.events(&event).json()["rejected"][0]["code"], "strict");
    let seen = || facts(&world.standin.held(), visitor, |what| matches!(what, FactKind::Action { .. }));
    causeway_tests::eventually("an impression is confirmed", || {
        browser.send("GET", decision["impression_url"].as_str().unwrap(), &[], b"");
        (seen() > 0).then_some(())
    });
    for _ in 0..3 {
        let pixel = browser.send("GET", decision["impression_url"].as_str().unwrap(), &[], b"");
        assert_eq!(pixel.status, 200);
    }
    // The page view follows the impressions in the same queue.
    assert_eq!(page(&browser)["ad"]["id"], "house");
    let viewed = |held: &Held| facts(held, visitor, |what| matches!(what, FactKind::Page { .. }));
    world.standin.wait("the page view is queued", |held| (viewed(held) == pages + 1).then_some(()));
    assert_eq!(seen(), 1);
}

/// Number of a visitor's facts of this kind that the queue accepted.
fn facts(held: &Held, visitor: VisitorId, is_kind: impl Fn(&FactKind) -> bool) -> usize {
    held.facts_of(visitor).iter().filter(|fact| is_kind(&fact.what)).count()
}

/// The offer code that a person is shown on a page of offers, after an object answered in time.
fn offer_code(browser: &Browser) -> Option<u64> {
    causeway_tests::eventually("an object answers in time", || {
        let page = json!({ "placements": [{ "id": "top" }], "page": { "keywords": ["offers"] } });
        let answer = browser.decide(&page).json();
        // An object that did not answer in time, or a snapshot that was read late.
        let late = answer["degraded"].is_array();
        let ad = &answer["decisions"][0]["ad"];
        if ad["id"] == "code" {
            assert_eq!(ad["creative"]["code"], format!("SAVE-{}", ad["offer_code"]));
        }
        (!late).then(|| ad["offer_code"].as_u64())
    })
}

fn offer_codes(world: &Bare) {
    let people: Vec<(Browser, VisitorId)> = (0..60).map(|_| world.returning()).collect();
    let got: Vec<(Browser, VisitorId, Option<u64>)> = std::thread::scope(|scope| {
        let ask = |(browser, visitor)| {
            scope.spawn(move || {
                let number = offer_code(&browser);
                (browser, visitor, number)
            })
        };
        let each: Vec<_> = people.into_iter().map(ask).collect();
        each.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut numbers: Vec<u64> = got.iter().filter_map(|(_, _, number)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
    for (browser, visitor, had) in got {
        assert_eq!(offer_code(&browser), had);
        let reported = || {
            let facts = world.standin.held().facts_of(visitor).into_iter();
            let numbers = facts.filter_map(|fact| match fact.what {
                FactKind::OfferCode { campaign: 2, number } => Some(u64::from(number)),
                _ => None,
            });
            numbers.collect::<std::collections::BTreeSet<u64>>()
        };
        causeway_tests::eventually("its offer code is reported", || {
            (reported() == had.into_iter().collect()).then_some(())
        });
    }
}
