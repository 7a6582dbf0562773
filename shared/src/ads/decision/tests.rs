#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::ads::model::features::ModelFeature;
use crate::ads::model::{FRACTION, Model, Part};
use crate::base::ids::{FactId, InsertionId, SessionId, SnapshotVersion, VisitorId};
use crate::base::limits;
use crate::base::time::{Day, EPOCH_MS};
use crate::facts::actions::{ActionList, AdAction, AdLevel, InsertionHash, ViewType};
use crate::facts::attributes::NameDictionary;
use crate::facts::fact::{Fact, FactKind};
use crate::facts::segments::SegmentId;
use crate::profiles::profile::{Profile, QueriedNames, SnapshotRoom};
use crate::settings::vocabulary::Vocabulary;
use crate::targeting::filter;

const TOP: &[[u32; 2]] = &[[728, 90]];

fn now() -> Minute {
    Minute(Day(100).start().0 + 600)
}

fn cap(action: &str, limit: u32, interval: u32, unit: &str) -> Value {
    json!([{ "action": action, "limit": limit, "window": { "interval": interval, "unit": unit } }])
}

/// Two advertisers; the first has two campaigns with three ad groups, one ad in each. Every ad's id is its code.
fn catalogue(change: impl FnOnce(&mut Value)) -> CompiledCatalogue {
    let ad = |code: u32, group: &str| json!({ "id": code.to_string(), "code": code, "ad_group": group, "creative": {}, "landing": "https://a.example/" });
    let group = |code: u32, campaign: &str| json!({ "id": format!("g{code}"), "code": code, "campaign": campaign });
    let campaign = |code: u32, of: &str| json!({ "id": format!("c{code}"), "code": code, "advertiser": of });
    let mut all = json!({
        "advertiser": [{ "id": "v1", "code": 1, "repeats": true }, { "id": "v2", "code": 2 }],
        "campaign": [campaign(1, "v1"), campaign(2, "v1"), campaign(3, "v2")],
        "ad_group": [group(1, "c1"), group(2, "c1"), group(3, "c2"), group(4, "c3")],
        "ad": [ad(1, "g1"), ad(2, "g2"), ad(3, "g3"), ad(4, "g4")],
    });
    change(&mut all);
    let catalogue: crate::ads::catalogue::Catalogue = serde_json::from_value(all).unwrap();
    assert_eq!(catalogue.targets("c", &NameDictionary::default(), &Vocabulary::default()).err(), None);
    assert_eq!(catalogue.problems("c", &Vocabulary::default()), []);
    CompiledCatalogue::of(catalogue.flat(&NameDictionary::default(), &Vocabulary::default()).unwrap())
}

fn seen(catalogue: &CompiledCatalogue, ad: u32, insertion: u8, minute: Minute) -> AdAction {
    let entity = catalogue.ad(ad).unwrap().entity;
    AdAction {
        insertion: InsertionHash([insertion; 6]),
        action_type: ActionType::IMPRESSION,
        view_type: ViewType(1),
        entity,
        minute,
    }
}

fn at_noon() -> Millis {
    EPOCH_MS + u64::from(now().0) * 60_000
}

fn given<'a>(now: Millis) -> DecisionInputs<'a> {
    DecisionInputs { now, ..DecisionInputs::default() }
}

fn noon<'a>() -> DecisionInputs<'a> {
    given(at_noon())
}

/// Placements of these sizes, without a view type and without a floor.
fn sized<'a>(sizes: &[&'a [[u32; 2]]]) -> Vec<Placement<'a>> {
    sizes.iter().map(|sizes| Placement { sizes, ..Placement::default() }).collect()
}

/// The ads placed in front of a person without a history, by code, or the reasons why there is none.
fn chosen(
    catalogue: &CompiledCatalogue,
    subject: &FilterSubject<'_>,
    placements: &[Placement<'_>],
) -> Vec<Result<u32, NoAd>> {
    let question = PageDecision::new(catalogue, Some(&DecidedPerson::default()), subject, placements.to_vec(), noon());
    question.decide(None).into_iter().map(|one| one.map(|place| catalogue.offers[place].entity.ad)).collect()
}

/// The ads placed, by code, or the reasons why there is none.
fn placed(catalogue: &CompiledCatalogue, held: &[Vec<AdAction>], placements: &[&[[u32; 2]]]) -> Vec<Result<u32, NoAd>> {
    let packed: Vec<Vec<u8>> =
        held.iter().map(|one| one.iter().copied().collect::<ActionList>().pack_actions()).collect();
    let actions = packed.iter().map(|bytes| PackedActions::read(bytes).unwrap()).collect();
    let (person, nobody) = (DecidedPerson { actions, ..DecidedPerson::default() }, FilterSubject::default());
    let decided = PageDecision::new(catalogue, Some(&person), &nobody, sized(placements), noon()).decide(None);
    decided.into_iter().map(|one| one.map(|place| catalogue.offers[place].entity.ad)).collect()
}

#[test]
fn caps_of_all_four_levels_must_hold() {
    for (level, left) in [("ad", 2), ("ad_group", 2), ("campaign", 3), ("advertiser", 4)] {
        let catalogue = catalogue(|all| all[level][0]["caps"] = cap("impression", 2, 1, "days"));
        let once = vec![seen(&catalogue, 1, 1, now())];
        let twice = vec![seen(&catalogue, 1, 1, now()), seen(&catalogue, 1, 2, now())];
        assert_eq!(placed(&catalogue, &[once], &[&[]]), [Ok(1)], "{level}");
        assert_eq!(placed(&catalogue, &[twice], &[&[]]), [Ok(left)], "{level}");
    }
}

#[test]
fn caps_of_one_seven_and_thirty_days_count_whole_buckets() {
    for days in [1, 7, 30] {
        let catalogue = catalogue(|all| all["advertiser"][0]["caps"] = cap("impression", 1, days, "days"));
        let first = Day(u16::try_from(101 - days).unwrap()).start();
        let at = |minute| placed(&catalogue, &[vec![seen(&catalogue, 2, 1, minute)]], &[&[]]);
        assert_eq!(at(first), [Ok(4)], "{days} days");
        assert_eq!(at(Minute(first.0 - 1)), [Ok(1)], "{days} days");
    }
}

#[test]
fn the_trace_names_the_binding_cap_and_its_count() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["caps"] = cap("impression", 2, 7, "days");
        all["ad"][1]["sizes"] = json!([[300, 250]]);
    });
    let bytes: Vec<u8> = (1..=3).map(|n| seen(&catalogue, 1, n, now())).collect::<ActionList>().pack_actions();
    let person = DecidedPerson { actions: vec![PackedActions::read(&bytes).unwrap()], ..DecidedPerson::default() };
    let question = PageDecision::new(&catalogue, Some(&person), &FilterSubject::default(), sized(&[TOP]), noon());
    let outcomes = question.outcomes(None).remove(0);
    let [AdOutcome::Capped(bound, 3), AdOutcome::Size, AdOutcome::Won, AdOutcome::Outbid] = outcomes[..] else {
        unreachable!("{outcomes:?}")
    };
    assert_eq!((bound.level, bound.cap.limit), (AdLevel::Campaign, 2));
}

#[test]
fn a_cap_counts_only_its_action_type() {
    let catalogue = catalogue(|all| all["ad"][0]["caps"] = cap("click", 1, 1, "days"));
    let impression = seen(&catalogue, 1, 1, now());
    let click = AdAction { action_type: ActionType::CLICK, ..impression };
    assert_eq!(placed(&catalogue, &[vec![impression]], &[&[]]), [Ok(1)]);
    assert_eq!(placed(&catalogue, &[vec![impression, click]], &[&[]]), [Ok(2)]);
}

#[test]
fn placements_of_one_call_count_for_each_other_and_no_ad_is_placed_twice() {
    let catalogue = catalogue(|all| all["campaign"][0]["caps"] = cap("impression", 1, 1, "days"));
    let expected = [Ok(1), Ok(3), Ok(4), Err(NoAd::AllCapped)];
    assert_eq!(placed(&catalogue, &[], &[&[], &[], &[], &[]]), expected);
    let catalogue = self::catalogue(|_| ());
    assert_eq!(placed(&catalogue, &[], &[&[], &[], &[], &[], &[]]), [Ok(1), Ok(2), Ok(3), Ok(4), Err(NoAd::AllCapped)]);
}

#[test]
fn an_insertion_in_two_histories_counts_once_and_reservations_count() {
    let catalogue = catalogue(|all| all["ad"][0]["caps"] = cap("impression", 2, 1, "days"));
    let [a, b] = [1, 2].map(|insertion| seen(&catalogue, 1, insertion, now()));
    assert_eq!(placed(&catalogue, &[vec![a], vec![a]], &[&[]]), [Ok(1)]);
    assert_eq!(placed(&catalogue, &[vec![a], vec![b]], &[&[]]), [Ok(2)]);
}

#[test]
fn an_anonymous_request_gets_only_ads_without_caps() {
    let catalogue = catalogue(|all| all["advertiser"][0]["caps"] = cap("impression", 9, 1, "days"));
    let question = PageDecision::new(&catalogue, None, &FilterSubject::default(), sized(&[&[], &[]]), noon());
    assert_eq!(
        question.outcomes(None)[0],
        [AdOutcome::Anonymous, AdOutcome::Anonymous, AdOutcome::Anonymous, AdOutcome::Won]
    );
    assert_eq!(question.decide(None)[1], Err(NoAd::AllCapped));
    assert_eq!(placed(&catalogue, &[], &[&[]]), [Ok(1)], "a visitor that was just minted can be counted");
}

#[test]
fn why_there_is_none() {
    let catalogue = catalogue(|all| {
        for place in 0..4 {
            all["ad"][place]["sizes"] = json!([[300, 250], [1, 1]]);
        }
    });
    assert_eq!(placed(&catalogue, &[], &[TOP, &[[1, 1]], &[]]), [Err(NoAd::NoSize), Ok(1), Ok(2)]);
    assert_eq!(placed(&CompiledCatalogue::default(), &[], &[TOP]), [Err(NoAd::NoCatalogue)]);
}

/// Outcomes for the first placement, of any size, in front of a person without a history.
fn outcomes(catalogue: &CompiledCatalogue, subject: &FilterSubject<'_>) -> Vec<AdOutcome> {
    let any = vec![Placement::default()];
    PageDecision::new(catalogue, Some(&DecidedPerson::default()), subject, any, noon()).outcomes(None).remove(0)
}

#[test]
fn the_ad_worth_most_is_placed_and_of_equals_the_first() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["bid"] = json!({ "cpm_micros": 1_000_000 });
        all["campaign"][1]["bid"] = json!({ "cpc_micros": 3_000_000 });
        all["campaign"][2]["bid"] = json!({ "cpa_micros": 200_000_000 });
    });
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    assert_eq!(chosen(&catalogue, &nobody, &[any; 5]), [Ok(3), Ok(4), Ok(1), Ok(2), Err(NoAd::AllCapped)]);
    let floor = Placement { floor_micros: 2_000_001, ..any };
    assert_eq!(chosen(&catalogue, &nobody, &[floor, floor]), [Ok(3), Err(NoAd::AllCapped)]);
    let high = Placement { floor_micros: 3_000_001, ..any };
    assert_eq!(chosen(&catalogue, &nobody, &[high]), [Err(NoAd::NoneMatches)]);
}

#[test]
fn a_campaign_runs_from_its_start_to_before_its_end() {
    let moment = |minutes: i64| {
        let day = if minutes < 0 { "2019-04-10" } else { "2019-04-11" };
        let clock = 600 + minutes;
        format!("{day}T{:02}:{:02}:00+00:00", clock.rem_euclid(1440) / 60, clock % 60)
    };
    assert_eq!(crate::base::calendar::parse_rfc3339(&moment(0)), Some(i64::try_from(at_noon()).unwrap()));
    for (starts, ends, runs) in
        [(Some(0), None, true), (Some(1), None, false), (None, Some(0), false), (None, Some(1), true)]
    {
        let catalogue = catalogue(|all| {
            for (field, minutes) in [("starts", starts), ("ends", ends)] {
                if let Some(minutes) = minutes {
                    all["campaign"][0][field] = json!(moment(minutes));
                }
            }
        });
        let expected = if runs { AdOutcome::Won } else { AdOutcome::Dates };
        assert_eq!(outcomes(&catalogue, &FilterSubject::default())[0], expected, "{starts:?} {ends:?}");
    }
}

#[test]
fn an_ad_needs_the_targeting_of_its_campaign_and_its_group() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["targeting"] = json!({ "segments": { "$in": [7, 8] } });
        all["ad_group"][0]["targeting"] = json!({ "page.keywords": "hotel" });
        all["ad_group"][1]["targeting"] = json!({
            "page.view_type": { "$exists": false },
            "actions.impression": { "$count": { "$gte": 1 }, "within": { "interval": 1, "unit": "days" } },
        });
    });
    let person = |segments| Some(filter::SubjectPerson { segments, ..filter::SubjectPerson::default() });
    let (held, hotel) = ([SegmentId(8)], ["hotel"]);
    let both = FilterSubject { person: person(&held), keywords: &hotel, ..FilterSubject::default() };
    assert_eq!(outcomes(&catalogue, &both)[..3], [AdOutcome::Won, AdOutcome::Targeting, AdOutcome::Outbid]);
    let page = FilterSubject { person: person(&[]), ..both };
    assert_eq!(outcomes(&catalogue, &page)[..3], [AdOutcome::Targeting, AdOutcome::Targeting, AdOutcome::Won]);
    // A condition on seen ads is counted from the actions.
    let bytes: Vec<u8> = [seen(&catalogue, 4, 1, now())].into_iter().collect::<ActionList>().pack_actions();
    let known = DecidedPerson { actions: vec![PackedActions::read(&bytes).unwrap()], ..DecidedPerson::default() };
    let question = PageDecision::new(&catalogue, Some(&known), &both, vec![Placement::default()], noon());
    assert_eq!(question.outcomes(None)[0][..3], [AdOutcome::Won, AdOutcome::Outbid, AdOutcome::Outbid]);
}

#[test]
fn one_page_shows_an_advertiser_once_and_no_two_that_compete() {
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    let once = catalogue(|all| all["advertiser"][0]["repeats"] = json!(false));
    assert_eq!(chosen(&once, &nobody, &[any; 3]), [Ok(1), Ok(4), Err(NoAd::AllCapped)]);
    let cars = catalogue(|all| {
        all["campaign"][0]["categories"] = json!(["cars"]);
        all["campaign"][2]["categories"] = json!(["travel", "cars"]);
    });
    assert_eq!(chosen(&cars, &nobody, &[any; 4]), [Ok(1), Ok(2), Ok(3), Err(NoAd::AllCapped)]);
    assert_eq!(chosen(&cars, &nobody, &[any]), [Ok(1)]);
}

#[test]
fn a_roadblock_fills_the_page_or_is_not_there() {
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    let catalogue = catalogue(|all| {
        all["advertiser"][0]["repeats"] = json!(false);
        all["campaign"][0]["roadblock"] = json!(true);
        all["ad"][1]["sizes"] = json!([[728, 90]]);
    });
    assert_eq!(chosen(&catalogue, &nobody, &[any; 2]), [Ok(1), Ok(2)], "its own advertiser may come again");
    assert_eq!(chosen(&catalogue, &nobody, &[any; 3]), [Ok(3), Ok(4), Err(NoAd::AllCapped)], "two ads fill no three");
    let small = Placement { sizes: &[[300, 250]], ..any };
    assert_eq!(chosen(&catalogue, &nobody, &[any, small]), [Ok(3), Ok(4)]);
    let question = PageDecision::new(&catalogue, None, &nobody, vec![any, small], noon());
    assert_eq!(
        question.outcomes(None)[0],
        [AdOutcome::Roadblock, AdOutcome::Roadblock, AdOutcome::Won, AdOutcome::Outbid]
    );
}

/// The ads placed by one call after the other; each call reports the ads of the earlier calls.
fn one_by_one(catalogue: &CompiledCatalogue, count: usize) -> Vec<Result<u32, NoAd>> {
    let (mut shown, mut all) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let given = DecisionInputs { shown: &shown, ..noon() };
        let question = PageDecision::new(
            catalogue,
            Some(&DecidedPerson::default()),
            &FilterSubject::default(),
            vec![Placement::default()],
            given,
        );
        let placed = question.decide(None)[0].map(|place| catalogue.offers[place].entity.ad);
        all.push(placed);
        shown.extend(placed.ok());
    }
    all
}

#[test]
fn the_rules_of_a_page_hold_over_its_calls_as_within_one() {
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    let once = catalogue(|all| all["advertiser"][0]["repeats"] = json!(false));
    let cars = catalogue(|all| {
        all["campaign"][0]["categories"] = json!(["cars"]);
        all["campaign"][2]["categories"] = json!(["travel", "cars"]);
    });
    for catalogue in [&once, &cars] {
        assert_eq!(one_by_one(catalogue, 4), chosen(catalogue, &nobody, &[any; 4]));
    }
}

#[test]
fn a_roadblock_keeps_the_page_that_it_fills_and_comes_to_no_other() {
    let catalogue = catalogue(|all| all["campaign"][0]["roadblock"] = json!(true));
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    let place = |shown: &[u32], count| {
        let given = DecisionInputs { shown, ..noon() };
        let question = PageDecision::new(&catalogue, Some(&DecidedPerson::default()), &nobody, vec![any; count], given);
        let outcomes = question.outcomes(None).remove(0);
        let decided =
            question.decide(None).into_iter().map(|one| one.ok().map(|place| catalogue.offers[place].entity.ad));
        (decided.collect::<Vec<_>>(), outcomes)
    };
    // The campaign's two ads fill a page of two placements. On a third placement they are still the only ones allowed.
    assert_eq!(place(&[], 2).0, [Some(1), Some(2)]);
    assert_eq!(
        place(&[1, 2], 1),
        (vec![None], vec![AdOutcome::OnPage, AdOutcome::OnPage, AdOutcome::Roadblock, AdOutcome::Roadblock])
    );
    assert_eq!(place(&[1], 2).0, [Some(2), None]);
    // A roadblock does not join another ad's page.
    assert_eq!(
        place(&[4], 1),
        (vec![Some(3)], vec![AdOutcome::Roadblock, AdOutcome::Roadblock, AdOutcome::Won, AdOutcome::OnPage])
    );
    assert_eq!(place(&[77], 1).0, [Some(1)], "an ad that the catalogue no longer has is ignored");
}

#[test]
fn roadblocks_that_cannot_fill_the_page_are_not_tried_one_by_one() {
    let catalogue = catalogue(|all| {
        for (campaign, bid) in [(0, 9), (1, 8), (2, 7)] {
            all["campaign"][campaign]["roadblock"] = json!(true);
            all["campaign"][campaign]["bid"] = json!({ "cpm_micros": bid });
        }
        all["ad"][1]["sizes"] = json!([[728, 90]]);
    });
    let (nobody, any) = (FilterSubject::default(), Placement::default());
    let small = Placement { sizes: &[[300, 250]], ..any };
    let question = PageDecision::new(&catalogue, None, &nobody, vec![any, small], noon());
    let tried = std::cell::Cell::new(0);
    let (_, barred) = question.filled(|page| {
        tried.set(tried.get() + 1);
        let best = question.best(&any, page, |_, _| true).map(PlacementCandidate::index);
        page.placed.extend(best.map(|place| &catalogue.offers[place]));
    });
    assert_eq!((tried.get(), barred.len()), (2, 3), "the first of two ads, one of them too large, and two of one each");
}

/// A model with a weight for each ad's clicks and a fatigue weight after the first impression, and nothing else.
fn taste(of: &[(u32, i16)], tired: i16) -> Model {
    let part =
        |intercept: i32| Part { intercept: intercept << FRACTION, scale: 8, weights: vec![0; 1 << 12], quality: None };
    let (mut click, conversion) = (part(-7), part(-3));
    for (ad, weight) in of {
        click.weights[usize::from(ModelFeature::Entity(AdLevel::Ad, *ad).index(12))] = *weight << 8;
    }
    for bucket in 1..16 {
        let feature = ModelFeature::Impressions { window: 0, level: AdLevel::Ad, bucket };
        click.weights[usize::from(feature.index(12))] = tired << 8;
    }
    // 2^24 micros, about 17 units of currency.
    let price = Part { intercept: 1_089_929, ..Part::default() };
    let (trained_ms, expires_ms) = (at_noon() - 1, at_noon() + 1);
    Model { bits: 12, trained_ms, expires_ms, click, conversion, price, ..Model::default() }
}

#[test]
fn a_bid_per_click_is_worth_what_the_model_expects_of_this_person() {
    let catalogue = catalogue(|all| {
        for (campaign, bid) in [
            (0, json!({ "cpc_micros": 200_000 })),
            (1, json!({ "cpa_micros": 5_000_000 })),
            (2, json!({ "share_ppm": 100_000 })),
        ] {
            all["campaign"][campaign]["bid"] = bid;
        }
    });
    let worths = |scores: Option<&ModelScores>, actions: &[AdAction], now: Millis| {
        let packed = actions.iter().copied().collect::<ActionList>().pack_actions();
        let person = DecidedPerson { actions: vec![PackedActions::read(&packed).unwrap()], ..DecidedPerson::default() };
        let any = vec![Placement::default()];
        let question = PageDecision::new(
            &catalogue,
            Some(&person),
            &FilterSubject::default(),
            any,
            DecisionInputs { scores, ..given(now) },
        );
        let won = catalogue.offers[question.decide(None)[0].unwrap()].entity.ad;
        (won, [1, 2, 3, 4].map(|ad| question.worth(0, catalogue.index_of(ad).unwrap())))
    };
    // Defaults without a model: one click per thousand impressions, one conversion per hundred clicks, ten units of
    // currency.
    assert_eq!(worths(None, &[], at_noon()), (1, [200_000, 200_000, 50_000, 10_000]));
    let scores = ModelScores::new(&taste(&[(2, 2), (3, 1)], -3), &catalogue).unwrap();
    let (won, [first, second, third, fourth]) = worths(Some(&scores), &[], at_noon());
    // The logistic function is 0.000911 at -7, 0.006693 at -5, 0.002473 at -6, and 0.047426 at -3.
    let near = |worth: u64, expected: f64| assert!((worth as f64 / expected - 1.0).abs() < 0.005, "{worth} {expected}");
    near(first, 200.0 * 911.05);
    near(second, 200.0 * 6_692.85);
    near(third, 5_000.0 * 2_472.62 * 0.047_425_9);
    near(fourth, 1_677.7 * 911.05 * 0.047_425_9);
    assert_eq!(won, 2);
    // After one impression today, fatigue lowers the logit by three.
    let seen_once = [seen(&catalogue, 2, 1, Minute(now().0 - 60))];
    let (won, [_, tired, ..]) = worths(Some(&scores), &seen_once, at_noon());
    near(tired, 200.0 * 335.35);
    assert_eq!(won, 3);
    // A model outside its time range is not used.
    assert_eq!(worths(Some(&scores), &[], at_noon() + 1).1, worths(None, &[], at_noon()).1);
}

#[test]
fn the_number_of_devices_affects_the_decision_like_segments_and_the_last_action() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["bid"] = json!({ "cpc_micros": 200_000 });
        all["campaign"][2]["bid"] = json!({ "cpm_micros": 500_000 });
    });
    let won = |feature: Option<ModelFeature>, devices: u32, segments: &[SegmentId], seen_before: Option<u32>| {
        let mut model = taste(&[], 0);
        model.segments = vec![SegmentId(7)];
        if let Some(feature) = feature {
            model.click.weights[usize::from(feature.index(12))] = 2 << 8;
        }
        let scores = ModelScores::new(&model, &catalogue).unwrap();
        let action = seen_before.map(|minutes| seen(&catalogue, 4, 1, Minute(now().0 - minutes)));
        let packed = action.into_iter().collect::<ActionList>().pack_actions();
        let person = DecidedPerson { actions: vec![PackedActions::read(&packed).unwrap()], ..DecidedPerson::default() };
        let of = crate::targeting::filter::SubjectPerson {
            devices,
            segments,
            ..crate::targeting::filter::SubjectPerson::default()
        };
        let subject = FilterSubject { person: Some(of), ..FilterSubject::default() };
        let given = DecisionInputs { scores: Some(&scores), ..noon() };
        let decided = PageDecision::new(&catalogue, Some(&person), &subject, sized(&[&[]]), given).decide(None);
        catalogue.offers[decided[0].unwrap()].entity.ad
    };
    let recency = ModelFeature::Recency(crate::ads::model::features::bucket(60));
    // A CPC bid is worth 182,210 per thousand impressions, and 1,338,570 if the logit is greater by two.
    assert_eq!(won(None, 3, &[SegmentId(7)], Some(60)), 4);
    for (feature, [with, without]) in [
        (
            ModelFeature::Devices(3),
            [won(Some(ModelFeature::Devices(3)), 3, &[], None), won(Some(ModelFeature::Devices(3)), 1, &[], None)],
        ),
        (
            ModelFeature::Segment(SegmentId(7)),
            [&[SegmentId(7)][..], &[]].map(|held| won(Some(ModelFeature::Segment(SegmentId(7))), 1, held, None)),
        ),
        (recency, [Some(60), None].map(|last| won(Some(recency), 1, &[], last))),
    ] {
        assert_eq!([with, without], [1, 4], "{feature:?}");
    }
}

/// Ads 1 and 2 belong to the two arms of an experiment with an empty control, ad 3 to an arm of another one; ad 4 is
/// for everyone.
fn tested() -> CompiledCatalogue {
    catalogue(|all| {
        let arm = |id: &str, code: u8| json!({ "id": id, "code": code, "share": 3_000 });
        let none = json!({ "id": "none", "code": 3, "share": 3_000, "control": true });
        all["experiment"] = json!([
            { "id": "e", "code": 5, "starts": 0, "arm": [arm("a", 1), arm("b", 2), none] },
            { "id": "f", "code": 6, "starts": 0, "arm": [arm("a", 1)] },
        ]);
        all["ad_group"][0]["arm"] = json!("e/a");
        all["ad"][1]["arm"] = json!("e/b");
        all["campaign"][1]["arm"] = json!("f/a");
        all["ad"][2]["sizes"] = json!([[300, 250]]);
    })
}

fn codes(
    catalogue: &CompiledCatalogue,
    person: Option<&DecidedPerson<'_>>,
    sizes: &[[u32; 2]],
) -> (PlacementOutcome, Vec<&'static str>) {
    let question = PageDecision::new(catalogue, person, &FilterSubject::default(), sized(&[sizes]), noon());
    let codes = question.outcomes(None).remove(0).into_iter().map(AdOutcome::code).collect();
    (question.decide(None).remove(0), codes)
}

#[test]
fn a_person_sees_the_ads_of_its_arm_and_the_control_and_anonymous_requests_see_none() {
    let catalogue = tested();
    let of = |arms: [Option<u8>; 2]| {
        codes(&catalogue, Some(&DecidedPerson { arms: arms.to_vec(), ..DecidedPerson::default() }), TOP)
    };
    assert_eq!(of([Some(1), None]), (Ok(0), vec!["won", "arm", "size", "outbid"]));
    assert_eq!(of([Some(2), None]), (Ok(1), vec!["arm", "won", "size", "outbid"]));
    assert_eq!(of([Some(3), None]), (Ok(3), vec!["holdout", "holdout", "size", "won"]));
    assert_eq!(of([None, Some(1)]), (Ok(3), vec!["arm", "arm", "size", "won"]));
    assert_eq!(codes(&catalogue, None, TOP), (Ok(3), vec!["anonymous", "anonymous", "size", "won"]));
    assert_eq!(codes(&catalogue, None, &[]).1, ["anonymous", "anonymous", "anonymous", "won"]);
}

#[test]
fn a_page_takes_part_in_an_experiment_whatever_the_arm_of_its_person() {
    let catalogue = tested();
    let met = |arms: Option<u8>, subject: &FilterSubject<'_>, sizes: &[[u32; 2]], now| {
        let person = DecidedPerson { arms: vec![arms, None], ..DecidedPerson::default() };
        PageDecision::new(&catalogue, Some(&person), subject, sized(&[sizes]), given(now)).exposing_experiments()
    };
    for arms in [Some(1), Some(2), Some(3), None] {
        assert_eq!(met(arms, &FilterSubject::default(), TOP, at_noon()), [0].into(), "{arms:?}");
        assert_eq!(met(arms, &FilterSubject::default(), &[[300, 250]], at_noon()), [0, 1].into(), "{arms:?}");
    }
    let over = self::catalogue(|all| {
        all["experiment"] =
            json!([{ "id": "e", "code": 5, "starts": 0, "arm": [{ "id": "a", "code": 1, "share": 1 }] }]);
        all["campaign"][0]["ends"] = json!("1970-01-02T00:00:00Z");
        all["campaign"][0]["arm"] = json!("e/a");
        all["campaign"][1]["targeting"] = json!({ "page.keywords": "shoes" });
        all["campaign"][1]["arm"] = json!("e/a");
    });
    let met_with = |keywords: &[&str]| {
        let subject = FilterSubject { keywords, ..FilterSubject::default() };
        PageDecision::new(&over, Some(&DecidedPerson::default()), &subject, sized(&[TOP]), noon())
            .exposing_experiments()
    };
    assert_eq!(
        (met_with(&[]), met_with(&["shoes"])),
        ([].into(), [0].into()),
        "only with matching targeting and in the run time"
    );
}

#[test]
fn only_recipients_see_a_limited_offer_and_a_code_is_requested_when_it_would_be_placed() {
    let limited = |change: &dyn Fn(&mut Value)| {
        catalogue(|all| {
            all["campaign"][0]["recipients"] = json!({ "limit": 5 });
            change(all);
        })
    };
    let with = |catalogue: &CompiledCatalogue, holding: Option<Holding>, placements: &[&[[u32; 2]]]| {
        let offer_codes = holding.map(|holding| (1, holding)).into_iter().collect();
        let person = DecidedPerson { offer_codes, ..DecidedPerson::default() };
        let question =
            PageDecision::new(catalogue, Some(&person), &FilterSubject::default(), sized(placements), noon());
        let shown = question.decide(None).remove(0).map(|place| &catalogue.offers[place]);
        let code = shown.ok().and_then(|offer| question.offer_code(offer));
        let codes: Vec<&str> = question.outcomes(None).remove(0).into_iter().map(AdOutcome::code).collect();
        (shown.map(|offer| offer.entity.ad), code, question.wants_offer_code(None), codes)
    };
    let plain = limited(&|_| ());
    let (none, may) = (["recipients", "recipients", "won", "outbid"], ["unconfirmed", "unconfirmed", "won", "outbid"]);
    assert_eq!(with(&plain, None, &[TOP]), (Ok(3), None, None, none.to_vec()));
    assert_eq!(with(&plain, Some(Holding::May), &[TOP]), (Ok(3), None, Some(1), may.to_vec()));
    let has = ["won", "outbid", "outbid", "outbid"];
    assert_eq!(with(&plain, Some(Holding::Has(3)), &[TOP]), (Ok(1), Some(3), None, has.to_vec()));
    assert_eq!(codes(&plain, None, TOP).1, ["anonymous", "anonymous", "won", "outbid"]);
    // The person may get no offer code, so that the next ad under strict caps is requested too.
    let strict = limited(&|all| {
        all["campaign"][1]["cap_mode"] = json!("strict");
        all["campaign"][1]["caps"] = cap("impression", 9, 1, "days");
    });
    let strict_choices = |holding| {
        let person = DecidedPerson { offer_codes: [(1, holding)].into_iter().collect(), ..DecidedPerson::default() };
        PageDecision::new(&strict, Some(&person), &FilterSubject::default(), sized(&[TOP]), noon()).strict(|_| false)
    };
    assert_eq!([Holding::May, Holding::Has(3)].map(strict_choices), [vec![vec![2]], vec![vec![]]]);
    // A sold-out offer is requested last.
    let both = limited(&|all| {
        for (campaign, bid) in [(0, 9), (1, 5)] {
            all["campaign"][campaign]["cap_mode"] = json!("strict");
            all["campaign"][campaign]["caps"] = cap("impression", 9, 1, "days");
            all["campaign"][campaign]["bid"] = json!({ "cpm_micros": bid });
        }
    });
    let person = DecidedPerson { offer_codes: [(1, Holding::May)].into_iter().collect(), ..DecidedPerson::default() };
    let question = PageDecision::new(&both, Some(&person), &FilterSubject::default(), sized(&[TOP]), noon());
    let ads = |empty| {
        let [choices] = &question.strict(|campaign| empty && campaign == 1)[..] else { return Vec::new() };
        choices.iter().map(|place| both.offers[*place].entity.ad).collect()
    };
    assert_eq!([false, true].map(ads), [[1, 2, 3], [3, 1, 2]]);
    // An offer code is requested only for an ad that would be placed.
    let outbid = limited(&|all| all["campaign"][2]["bid"] = json!({ "cpm_micros": 9 }));
    assert_eq!(with(&outbid, Some(Holding::May), &[TOP]).2, None);
    assert_eq!(with(&outbid, Some(Holding::May), &[TOP, TOP]).2, Some(1), "in the second place it would");
    let small = limited(&|all| {
        all["ad"][0]["sizes"] = json!([[1, 1]]);
        all["ad"][1]["sizes"] = json!([[1, 1]]);
    });
    assert_eq!(with(&small, Some(Holding::May), &[TOP]).2, None);
}

#[test]
fn a_cap_of_so_many_hours_needs_what_a_snapshot_holds() {
    let catalogue = catalogue(|all| all["campaign"][0]["caps"] = cap("impression", 1, 720, "hours"));
    let then = noon().now - 715 * 3_600_000;
    let visitor = VisitorId::mint(then - 1_000, [1; 10]);
    let entity = catalogue.ad(1).unwrap().entity;
    let what = FactKind::Action {
        insertion: InsertionId([7; 16]),
        action_type: ActionType::IMPRESSION,
        view_type: ViewType(0),
        entity,
    };
    let old = Fact { position: 0, id: FactId::from_bytes([1; 16]), visitor, received: then, at: then, what };
    let page = FactKind::Page { session: SessionId(1) };
    let page = Fact {
        position: 0,
        id: FactId::from_bytes([2; 16]),
        visitor,
        received: noon().now,
        at: noon().now,
        what: page,
    };
    let profile = Profile::of([&old, &page]);
    let since = Day(Minute::at(noon().now).day().0 - (limits::SNAPSHOT_WINDOWS[0] - 1));
    let queried = QueriedNames::default();
    let sub = profile.sub_profile_within(SnapshotVersion::default(), true, &SnapshotRoom::whole(since, &queried));
    let person = DecidedPerson { actions: sub.actions().into_iter().collect(), ..DecidedPerson::default() };
    let decided =
        PageDecision::new(&catalogue, Some(&person), &FilterSubject::default(), sized(&[&[]]), noon()).decide(None);
    let ad = catalogue.offers[decided[0].unwrap()].entity.ad;
    assert_eq!(ad, 3, "the impression of 715 hours ago reaches the cap");
}

#[test]
fn a_campaign_that_cannot_fill_the_page_keeps_no_strict_ad_from_being_asked_for() {
    let catalogue = catalogue(|all| {
        all["campaign"][0]["roadblock"] = json!(true);
        all["campaign"][0]["bid"] = json!({ "cpm_micros": 9 });
        // One ad cannot fill two placements.
        all["ad"][1]["ad_group"] = json!("g3");
        for strict in [1, 2] {
            all["campaign"][strict]["cap_mode"] = json!("strict");
            all["campaign"][strict]["caps"] = cap("impression", 5, 1, "days");
            all["campaign"][strict]["bid"] = json!({ "cpm_micros": 5 });
        }
    });
    let (person, nobody, any) = (DecidedPerson::default(), FilterSubject::default(), Placement::default());
    let question = PageDecision::new(&catalogue, Some(&person), &nobody, vec![any, any], noon());
    let choices = question.strict(|_| false);
    assert!(choices.iter().all(|choices| choices.len() > 1), "{choices:?}");
    let granted: Vec<Option<usize>> = vec![choices[0].first().copied(), choices[1].get(1).copied()];
    let decided = question.decide(Some(&granted));
    assert_eq!(decided.iter().map(|won| won.ok()).collect::<Vec<_>>(), granted);
}
