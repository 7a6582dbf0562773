#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::settings::vocabulary::VocabularyWord;

fn words() -> Vocabulary {
    Vocabulary { action_types: vec![VocabularyWord { name: "hide".to_owned(), code: 3 }], view_types: Vec::new() }
}

fn catalogue(value: Value) -> Catalogue {
    serde_json::from_value(value).unwrap()
}

fn compiled(catalogue: &Catalogue) -> CompiledCatalogue {
    CompiledCatalogue::of(catalogue.flat(&NameDictionary::default(), &words()).unwrap())
}

fn small() -> Value {
    json!({
        "advertiser": [{ "id": "shoes", "code": 1 }],
        "campaign": [{ "id": "spring", "code": 1, "advertiser": "shoes", "cap_mode": "strict" }],
        "ad_group": [{ "id": "red", "code": 1, "campaign": "spring", "caps": [
            { "action": "hide", "limit": 1, "window": { "interval": 30, "unit": "days" } },
        ] }],
        "ad": [
            { "id": "light", "code": 1, "ad_group": "red", "creative": {}, "landing": "https://shoes.example/", "weight": 0 },
            { "id": "second", "code": 3, "ad_group": "red", "creative": {}, "landing": "https://shoes.example/" },
            { "id": "first", "code": 2, "ad_group": "red", "creative": {}, "landing": "https://shoes.example/" },
        ],
    })
}

#[test]
fn ads_are_chosen_by_weight_and_then_by_code() {
    let catalogue = catalogue(small());
    assert_eq!(catalogue.problems("c", &words()), []);
    let compiled = compiled(&catalogue);
    let ids: Vec<&str> = compiled.offers.iter().map(|offer| &*offer.ids[0]).collect();
    assert_eq!(ids, ["first", "second", "light"]);
    assert_eq!(compiled.questions.len(), 1, "one question for the three");
    let first = compiled.ad(2).unwrap();
    assert_eq!(
        (first.strict, compiled.bounds(first).count(), first.entity.ad),
        (false, 1, 2),
        "it has no cap on impressions"
    );
    assert!(compiled.ad(9).is_none() && !compiled.has_strict());
    let mut seen = small();
    *seen.pointer_mut("/ad_group/0/caps/0/action").unwrap() = json!("impression");
    assert!(self::compiled(&self::catalogue(seen)).ad(2).unwrap().strict);
}

#[test]
fn everything_wrong_is_named_with_its_place() {
    let cap = json!({ "action": "frown", "limit": 0, "window": { "interval": 31, "unit": "days" } });
    let ad = json!({
        "id": "a", "code": 1, "ad_group": "none", "creative": "x".repeat(limits::CREATIVE_BYTES), "landing": "ftp://a",
        "sizes": [[0, 1]], "weight": limits::WEIGHT + 1, "caps": vec![cap.clone(); limits::CAPS + 1],
    });
    let found = catalogue(json!({
        "advertiser": [{ "id": "A", "code": 0 }, { "id": "b", "code": 1 }, { "id": "b", "code": 1, "caps": [cap] }],
        "campaign": [{ "id": "c", "code": 1, "advertiser": "c" }],
        "ad": [ad],
    }))
    .problems("c", &words());
    let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
    for path in [
        "c.advertiser[0].id",
        "c.advertiser[0].code",
        "c.advertiser[2].id",
        "c.advertiser[2].code",
        "c.advertiser[2].caps[0].action",
        "c.advertiser[2].caps[0].limit",
        "c.advertiser[2].caps[0].window",
        "c.campaign[0].advertiser",
        "c.ad[0].ad_group",
        "c.ad[0].caps",
        "c.ad[0].creative",
        "c.ad[0].landing",
        "c.ad[0].sizes",
        "c.ad[0].weight",
    ] {
        assert!(paths.contains(&path), "{path} is missing in {paths:?}");
    }
}

#[test]
fn the_bounds_of_a_whole_catalogue_are_kept() {
    let cap =
        |interval: usize| json!({ "action": "click", "limit": 1, "window": { "interval": interval, "unit": "hours" } });
    let rows = |count: usize| -> Value {
        (1..=count).map(|n| json!({ "id": format!("a{n}"), "code": n, "caps": [cap(n % 50 + 1)] })).collect()
    };
    let paths = |count| -> Vec<String> {
        catalogue(json!({ "advertiser": rows(count) })).problems("c", &words()).into_iter().map(|p| p.path).collect()
    };
    assert_eq!(paths(limits::CAP_QUESTIONS), [""; 0]);
    assert_eq!(paths(limits::CATALOGUE_ROWS + 1), ["c.advertiser", "c"]);
}

#[test]
fn a_campaigns_terms_are_checked_with_their_paths() {
    let mut all = small();
    all["campaign"][0]["starts"] = json!("2026-11-01");
    all["campaign"][0]["bid"] = json!({ "cpm_micros": -1 });
    all["campaign"][0]["categories"] = json!([""]);
    all["campaign"][0]["roadblock"] = json!(true);
    let paths = |all: Value| -> Vec<String> {
        catalogue(all).problems("c", &words()).into_iter().map(|problem| problem.path).collect()
    };
    let expected = ["c.campaign[0].starts", "c.campaign[0].bid", "c.campaign[0].categories", "c.campaign[0].roadblock"];
    assert_eq!(paths(all), expected);
    let mut all = small();
    all["campaign"][0]["starts"] = json!("2026-11-02T00:00:00+01:00");
    all["campaign"][0]["ends"] = json!("2026-11-01T23:00:00Z");
    assert_eq!(paths(all), ["c.campaign[0].ends"]);
    let mut all = small();
    all["campaign"][0]["ends"] = json!("1970-01-01T00:00:00+01:00");
    assert_eq!(catalogue(all).campaigns[0].runs(), 0..0, "the campaign is over");
    let mut all = small();
    all["campaign"][0]["targeting"] = json!({ "attributes.age": 3, "devices": "two" });
    all["ad_group"][0]["targeting"] = json!({ "actions.hide": { "$count": { "$lt": 1 }, "campaign": ["winter"], "within": { "interval": 1, "unit": "days" } } });
    let found = catalogue(all).targets("c", &NameDictionary::default(), &words()).unwrap_err();
    let paths: Vec<String> = found.into_iter().map(|problem| problem.path).collect();
    assert!(
        paths
            .iter()
            .all(|path| path.starts_with("c.campaign[0].targeting.") || path.starts_with("c.ad_group[0].targeting."))
    );
    assert_eq!(paths.len(), 3, "{paths:?}");
}

#[test]
fn an_unknown_or_unreachable_arm_is_reported_with_its_path() {
    let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 5_000 });
    let mut file = small();
    file["experiment"] = json!([{ "id": "e", "code": 1, "starts": 0, "arm": [arm("a", 1), arm("b", 2)] }]);
    file["campaign"][0]["arm"] = json!("e/a");
    assert_eq!(catalogue(file.clone()).problems("c", &words()), []);
    file["ad_group"][0]["arm"] = json!("e/a");
    file["ad"][0]["arm"] = json!("e/b");
    file["ad"][1]["arm"] = json!("e/c");
    file["ad"][2]["arm"] = json!("e");
    let found = catalogue(file).problems("c", &words());
    let reported: Vec<(&str, &str)> = found.iter().map(|p| (p.path.as_str(), p.message.as_str())).collect();
    assert_eq!(
        reported,
        [
            ("c.ad[0].arm", "its campaign or ad group is for the arm `e/a`: no person is in both arms"),
            ("c.ad[1].arm", "there is no experiment and arm `e/c`; `experiment/arm` is needed"),
            ("c.ad[2].arm", "there is no experiment and arm `e`; `experiment/arm` is needed"),
        ]
    );
}

#[test]
fn targetings_count_so_many_things_in_so_many_windows() {
    let counting = |field: &str, windows: u32, codes: u32| {
        let all: Vec<String> = (0..codes).map(|n| format!("c{n}")).collect();
        let ask = |n: u32| {
            let within = json!({ "interval": 1 + n, "unit": "minutes" });
            let mut count = json!({ "$count": 0, "within": within });
            if field == "actions.click" {
                count["campaign"] = json!(all);
            }
            json!({ field: count })
        };
        let campaign = |n: u32| json!({ "id": format!("c{n}"), "code": 1 + n, "advertiser": "v" });
        let group = |n| json!({ "id": format!("g{n}"), "code": 1 + n, "campaign": "c0", "targeting": ask(n) });
        let catalogue: Catalogue = serde_json::from_value(json!({
            "advertiser": [{ "id": "v", "code": 1 }],
            "campaign": (0..codes).map(campaign).collect::<Vec<_>>(),
            "ad_group": (0..windows).map(group).collect::<Vec<_>>(),
        }))
        .unwrap();
        let found = catalogue.targets("c", &NameDictionary::default(), &words()).err().unwrap_or_default();
        found.into_iter().map(|problem| (problem.path, problem.message)).collect::<Vec<_>>()
    };
    assert_eq!(counting("actions.click", 32, 128), []);
    assert_eq!(counting("events.purchase", 32, 1), []);
    let problem = |message: &str| [("c".to_owned(), message.to_owned())];
    let windows = "all targetings use 33 different windows in which actions are counted: at most 32 are allowed";
    assert_eq!(counting("actions.click", 33, 1), problem(windows));
    assert_eq!(counting("events.page", 33, 1), problem(&windows.replace("actions", "pages or purchases")));
    let counts =
        "all targetings use 4128 different counts of actions (each code of a list is one): at most 4096 are allowed";
    assert_eq!(counting("actions.click", 32, 129), problem(counts));
}

#[test]
fn the_number_of_recipients_is_bounded() {
    let problem_paths = |recipients: Value| {
        let mut all = small();
        all["campaign"][0]["recipients"] = recipients;
        let found = catalogue(all).problems("c", &words());
        found.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
    };
    for bad in [json!({ "limit": 0 }), json!({ "limit": 1_000_000_001 }), json!({ "limit": 1, "share": 10_001 })] {
        assert_eq!(problem_paths(bad), ["c.campaign[0].recipients"]);
    }
    for good in [json!({ "limit": 1 }), json!({ "limit": 1_000_000_000, "share": 1 })] {
        assert_eq!(problem_paths(good), [""; 0]);
    }
    for bad in [json!({}), json!({ "limit": -1 }), json!({ "limit": 1.5 }), json!({ "limit": 1, "of": 2 })] {
        assert!(serde_json::from_value::<crate::facts::offer_codes::RecipientLimit>(bad.clone()).is_err(), "{bad}");
    }
}
