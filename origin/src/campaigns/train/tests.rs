#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::store::VisitorRow;
use causeway_shared::base::ids::Micros;
use std::collections::BTreeMap;

use causeway_shared::ads::model::features::{CLICKED, ImpressionFeatures, windows};
use causeway_shared::ads::model::{AdScore, Fatigue, PersonFeatures, Score, Scorer};
use causeway_shared::base::time::{Day, HourStamp};
use causeway_shared::facts::actions::{
    ActionCounter, ActionList, ActionQuestion, AdAction, AdEntity, InsertionHash, PackedActions, ViewType, ViewTypes,
};
use causeway_shared::facts::segments::{SegmentId, SegmentState};

use super::examples::{ExampleShard, Examples};
use super::person_history::{HistoryReplay, PersonHistory};
use super::*;
use crate::profiles::buckets;
use crate::profiles::purchases::MinutePurchases;
use crate::testing::{NOW, Numbers, Origin, fact, impression, purchase, visitor};
use causeway_shared::base::limits;
use causeway_shared::facts::fact::FactKind;

const DAY: u64 = 86_400_000;

/// Entity of a market's ad, numbered from 0. Codes begin with 1.
fn entity(ad: u32) -> AdEntity {
    AdEntity { ad: 1 + ad, ad_group: 100 + ad / 2, campaign: 200 + ad / 4, advertiser: 300 + ad / 8 }
}

fn action(n: u64, action_type: ActionType, ad: u32, minute: u32) -> AdAction {
    let [.., a, b, c, d, e, f] = n.to_be_bytes();
    let insertion = InsertionHash([a, b, c, d, e, f]);
    AdAction {
        insertion,
        action_type,
        view_type: ViewType(u8::try_from(ad % 3).unwrap()),
        entity: entity(ad),
        minute: Minute(minute),
    }
}

/// A stored market: people with one visitor see ads over 40 days. A click depends on the campaign and on the number of
/// times that the person saw the ad that day; a purchase and its value depend on the campaign.
struct Market {
    folder: tempfile::TempDir,
    tenant: TenantNo,
    clicks: u32,
}

fn market(people: u32, impressions: u32, shuffled: bool) -> Market {
    let folder = tempfile::tempdir().unwrap();
    let conn = crate::store::open(folder.path()).unwrap();
    let tenant = crate::store::tenant_no(&conn, "demo").unwrap();
    conn.execute_batch("BEGIN").unwrap();
    let mut numbers = Numbers(88_172_645_463_325_252 ^ 7 << 32);
    let (first, mut clicks) = (Minute::at(NOW).day().0 - 40, 0);
    for row in (1..=i64::from(people)).map(VisitorRow::from_number) {
        put_visitor(&conn, tenant, row);
        let mut seen: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        let mut minutes: Vec<u32> =
            (0..impressions).map(|_| Day(first).start().0 + numbers.below(40 * 1_440)).collect();
        minutes.sort_unstable();
        let mut actions = ActionList::default();
        for minute in minutes {
            let (ad, day) = (numbers.below(16), Minute(minute).day().0);
            let times = seen.entry((ad, day)).or_default();
            let taste = if shuffled { 0.1 } else { 0.02 + 0.06 * f64::from(ad / 4) };
            let tired = if shuffled { 1.0 } else { 0.4f64.powi(i32::try_from(*times).unwrap()) };
            *times += 1;
            let n = numbers.next();
            actions.insert(action(n, ActionType::IMPRESSION, ad, minute));
            if numbers.unit() < taste * tired {
                clicks += 1;
                actions.insert(action(n, ActionType::CLICK, ad, minute + 1));
                let sells = if shuffled { 0.3 } else { 0.1 + 0.2 * f64::from(ad / 4) };
                if numbers.unit() < sells {
                    let price = if shuffled { 20e6 } else { 5e6 * f64::from(1 + ad / 4) };
                    let value = (price * (0.8 + 0.4 * numbers.unit())) as i64;
                    let place = row.minute_key(Minute(minute + 30));
                    let put = "INSERT OR REPLACE INTO purchases VALUES (?1, 1, ?2)";
                    conn.prepare_cached(put).unwrap().execute([place, value]).unwrap();
                }
            }
        }
        buckets::add(&conn, row, 0, actions).unwrap();
    }
    conn.execute_batch("COMMIT").unwrap();
    Market { folder, tenant, clicks }
}

fn put_visitor(conn: &Connection, tenant: TenantNo, row: VisitorRow) {
    let id = visitor(u32::try_from(row.number()).unwrap());
    let person = "INSERT INTO people VALUES (?1, ?2, ?3, 1, 1, 1, NULL, zeroblob(16), 1000)";
    conn.prepare_cached(person).unwrap().execute((row, tenant.0, id.as_bytes())).unwrap();
    let put = "INSERT INTO visitors (row, tenant, visitor, last_seen, version, restore, published, person, profile)
        VALUES (?1, ?2, ?3, 0, 1, 0, 0, ?1, x'')";
    conn.prepare_cached(put).unwrap().execute((row, tenant.0, id.as_bytes())).unwrap();
}

fn train(market: &Market) -> Outcome {
    let options = Options { bits: 12, ..Options::default() };
    run(market.folder.path(), market.tenant, NOW, &options, &|_, _| Ok(())).unwrap()
}

#[test]
fn a_market_with_fatigue_is_learned_and_beats_the_base_rate() {
    let market = market(1_500, 60, false);
    assert!(market.clicks > 4_000, "{}", market.clicks);
    let Outcome::Trained(bytes, report) = train(&market) else { unreachable!("not trained") };
    let [click, conversion, price] = &report.parts[..] else { unreachable!("three parts") };
    for part in [click, conversion, price] {
        assert_eq!(part.outcome, PartVerdict::Trained, "{part:?}");
        assert!((part.loss - part.unrounded_loss).abs() < 0.001 * part.base_loss, "rounding costs nothing: {part:?}");
    }
    assert!(click.loss < 0.93 * click.base_loss && click.auc > 0.7, "{click:?}");
    assert!(click.calibration_error < 0.012 && conversion.calibration_error < 0.08, "{report:?}");
    assert!(price.loss < 0.25 * price.base_loss && price.calibration_error < 0.05, "{price:?}");

    let model = causeway_shared::wire::model::decode_model(&bytes).unwrap();
    let usable = [NOW - DAY, NOW, NOW + 14 * DAY].map(|now| model.used().contains(&now));
    assert_eq!(usable, [false, true, false]);
    let scorer = Scorer::new(&model).unwrap();
    let person = PersonFeatures { now: Minute::at(NOW), devices: 1, segments: &[], last: None };
    let ctr = |ad: u32, times: u32| {
        let fatigue = Fatigue { impressions: [[times; 4]; 3], ..Fatigue::default() };
        let ad: AdScore = scorer.ad(entity(ad));
        f64::from(scorer.score(scorer.person(&person), &ad, ViewType(0), &fatigue).ctr_ppb()) / 1e9
    };
    assert!(ctr(15, 0) > 2.5 * ctr(3, 0), "campaigns: {} {}", ctr(15, 0), ctr(3, 0));
    assert!(ctr(15, 0) > 1.5 * ctr(15, 1), "fatigue: {} {}", ctr(15, 0), ctr(15, 1));

    assert_eq!(train(&market), Outcome::Trained(bytes.clone(), report.clone()), "the same store, the same model");
    let mut conn = crate::store::open(market.folder.path()).unwrap();
    assert_eq!(newest(&conn, market.tenant).unwrap(), None);
    let (origin, given) = (Origin::new(), TxnInputs { now: NOW, random: [0; 32] });
    let mut keep = || keep(&mut conn, &origin.rules, given, market.tenant, &bytes, &report).unwrap();
    assert_eq!((1..=12).map(|_| keep()).last(), Some(12));
    let (kept, told) = newest(&conn, market.tenant).unwrap().unwrap();
    assert_eq!((kept, &told["parts"][0]["outcome"]), (bytes, &"trained".into()));
    assert_eq!(conn.query_row("SELECT count(*) FROM models", [], |row| row.get(0)), Ok(10));
}

#[test]
fn a_model_no_better_than_the_base_rate_is_not_published() {
    let market = market(1_000, 60, true);
    let Outcome::NotBetter(report) = train(&market) else { unreachable!("published") };
    assert_eq!(report.parts[0].outcome, PartVerdict::NotBetter);
    assert!(report.parts[0].held_out_positives > 500, "{report:?}");
}

#[test]
fn an_outcome_without_any_observation_has_a_small_probability() {
    let market = market(1_500, 60, false);
    crate::store::open(market.folder.path()).unwrap().execute("DELETE FROM purchases", []).unwrap();
    let (score, report) = scored(&market);
    assert_eq!(report.parts[1].outcome, PartVerdict::TooFew);
    // Thousands of clicks without a conversion: less than the default of one in a hundred, but not 0.
    assert!((10_000..1_000_000).contains(&score.cvr_ppb()), "{}", score.cvr_ppb());
    assert!((9_990_000..10_010_000).contains(&score.price_micros().get()), "{}", score.price_micros());
}

/// Score of an ad for a new person by the trained model, and the report of the training.
fn scored(market: &Market) -> (Score, Report) {
    let Outcome::Trained(bytes, report) = train(market) else { unreachable!("not trained") };
    let scorer = Scorer::new(&causeway_shared::wire::model::decode_model(&bytes).unwrap()).unwrap();
    let person = PersonFeatures { now: Minute::at(NOW), devices: 1, segments: &[], last: None };
    (scorer.score(scorer.person(&person), &scorer.ad(entity(1)), ViewType(0), &Fatigue::default()), report)
}

/// Published price if these are all purchases, by the first buyers.
fn price_of(values: &[i64]) -> i64 {
    let market = market(1_500, 60, false);
    let conn = crate::store::open(market.folder.path()).unwrap();
    let places = "SELECT place FROM purchases ORDER BY place";
    let places: Vec<i64> =
        conn.prepare(places).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(places.len() > 1_000, "{}", places.len());
    conn.execute("DELETE FROM purchases", []).unwrap();
    for row in places.iter().zip(values) {
        conn.execute("INSERT INTO purchases VALUES (?1, 1, ?2)", row).unwrap();
    }
    scored(&market).0.price_micros().get()
}

#[test]
fn a_few_purchases_of_very_different_value_give_no_price_far_from_all_of_them() {
    // The default of ten currency units counts as a hundred purchases.
    let few = price_of(&[1_000_000, 1_000_000_000, 1_000_000, 1_000_000_000]);
    assert!((10_000_000..80_000_000).contains(&few), "{few}");
    let nothing = price_of(&[1, 50_000_000, 1, 50_000_000, 1]);
    assert!((9_000_000..20_000_000).contains(&nothing), "{nothing}");
    // Many purchases, every second one of no value: the mean, and not the estimate for log-normal values of that
    // variance.
    let many: Vec<i64> = (0..600).map(|n| if n % 2 == 0 { 1 } else { 20_000_000 }).collect();
    let half = price_of(&many);
    assert!((5_000_000..20_000_000).contains(&half), "{half}");
    // One page with an absurd value has no more weight than a hundred purchases.
    let lied = |n: usize| price_of(&[vec![20_000_000; n], vec![limits::VALUE_MICROS.get()]].concat());
    let (among_few, among_many) = (lied(9), lied(600));
    assert!((10_000_000..30_000_000).contains(&among_few), "{among_few}");
    assert!((19_000_000..30_000_000).contains(&among_many), "{among_many}");
}

#[test]
fn of_too_little_nothing_is_learned() {
    let market = market(20, 20, false);
    assert!(matches!(train(&market), Outcome::TooFew(_)));
    let empty = tempfile::tempdir().unwrap();
    crate::store::open(empty.path()).unwrap();
    let outcome = run(empty.path(), TenantNo(1), NOW, &Options::default(), &|_, _| Ok(())).unwrap();
    assert_eq!(outcome.report().impressions, 0);
}

#[test]
fn what_is_learned_from_is_what_a_request_would_have_seen() {
    let mut numbers = Numbers(88_172_645_463_325_252 ^ 3 << 32);
    let first = Day(2_900).start().0;
    let mut actions: Vec<AdAction> = Vec::new();
    for n in 0..400 {
        let minute = first + numbers.below(60 * 1_440);
        let ad = numbers.below(12);
        actions.push(action(n, ActionType::IMPRESSION, ad, minute));
        // Pages have several placements that are seen in the same minute.
        actions.push(action(n + 1_000, ActionType::IMPRESSION, numbers.below(12), minute));
        if numbers.below(4) == 0 {
            actions.push(action(n, ActionType::CLICK, ad, minute + numbers.below(3)));
        }
    }
    let all: ActionList = actions.iter().copied().collect();
    let person = PersonHistory { actions, minted: vec![Minute(0), Minute(first + 5_000)], ..PersonHistory::default() };
    let mut shard = ExampleShard::new(12, 10);
    HistoryReplay::default().walk(person, &[], &mut shard);
    let examples = Examples::new(vec![shard]);
    assert_eq!(examples.len(), 800);

    let packed = all.pack_actions();
    let packed = [PackedActions::read(&packed).unwrap()];
    let mut expected: Vec<Vec<u16>> = Vec::new();
    for seen in all.iter().filter(|action| action.action_type == ActionType::IMPRESSION) {
        let now = seen.minute;
        let counter = ActionCounter::new([seen.entity].into_iter());
        let count = |action_type, (from, to)| {
            let question = ActionQuestion { action_types: &[action_type], view_types: ViewTypes::All, from, to };
            counter.count(&packed, &question).next().unwrap()
        };
        let impressions = windows(now).map(|window| count(ActionType::IMPRESSION, window));
        let clicks = count(ActionType::CLICK, windows(now)[CLICKED]);
        let last = all.iter().map(|action| action.minute).filter(|minute| *minute < now).max();
        let devices = 1 + u32::from(now.0 >= first + 5_000);
        let features = PersonFeatures { now, devices, segments: &[], last };
        let mut places = Vec::new();
        ImpressionFeatures::new(&features, seen.view_type, &Fatigue { impressions, clicks }).places(
            seen.entity,
            12,
            &mut places,
        );
        expected.push(places);
    }
    let mut found = Vec::new();
    for number in 0..u32::try_from(examples.len()).unwrap() {
        let mut places = Vec::new();
        examples.places(number, &mut places);
        found.push(places);
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn clicks_conversions_and_purchases_are_of_the_insertion_they_came_from() {
    let at = |day: u32, minute: u32| Day(2_900).start().0 + day * 1_440 + minute;
    let action_type = ActionType(7);
    let actions = vec![
        action(1, ActionType::IMPRESSION, 1, at(0, 0)),
        action(1, ActionType::CLICK, 1, at(0, 1)),
        action(2, ActionType::IMPRESSION, 2, at(1, 0)),
        action(2, ActionType::CLICK, 2, at(1, 3)),
        action(2, action_type, 2, at(1, 9)),
        action(3, ActionType::IMPRESSION, 1, at(5, 0)),
        // The same action under another visitor counts once.
        action(3, ActionType::IMPRESSION, 1, at(5, 1)),
    ];
    let bought = |minute, count, micros| MinutePurchases { minute: Minute(minute), count, value: Micros::new(micros) };
    let purchases = vec![bought(at(0, 0), 1, 99), bought(at(1, 1), 2, 600), bought(at(2, 900), 1, 7)];
    let came = |action_types: &[ActionType]| {
        let person = PersonHistory {
            actions: actions.clone(),
            minted: vec![Minute(0); 2],
            purchases: purchases.clone(),
            ..PersonHistory::default()
        };
        let mut shard = ExampleShard::new(12, 10);
        HistoryReplay::default().walk(person, action_types, &mut shard);
        let examples = Examples::new(vec![shard]);
        assert_eq!(examples.clicked(Minute(at(9, 0))), [0, 1]);
        assert_eq!(examples.clicked(Minute(at(1, 70))), [0], "its conversion may still come");
        let of = |number| {
            let came = examples.result_of(number);
            (came.clicked, came.converted, examples.value(number).map(Micros::get))
        };
        (0..u32::try_from(examples.len()).unwrap()).map(of).collect::<Vec<_>>()
    };
    // Purchases before the click, and two days after the other click, belong to none; two purchases count with their
    // mean value.
    assert_eq!(came(&[]), [(true, true, Some(300)), (true, false, None), (false, false, None)]);
    assert_eq!(came(&[action_type])[1], (true, true, None));
}

#[test]
fn the_house_ads_impressions_are_no_examples() {
    let house = AdAction {
        entity: AdEntity { ad: 0, ad_group: 0, campaign: 0, advertiser: 0 },
        ..action(2, ActionType::IMPRESSION, 1, 4_000_000)
    };
    let actions = vec![
        action(1, ActionType::IMPRESSION, 1, 4_000_000),
        house,
        AdAction { action_type: ActionType::CLICK, ..house },
    ];
    let mut shard = ExampleShard::new(12, 10);
    HistoryReplay::default().walk(
        PersonHistory { actions, minted: vec![Minute(0)], ..PersonHistory::default() },
        &[],
        &mut shard,
    );
    let examples = Examples::new(vec![shard]);
    assert_eq!((examples.len(), examples.result_of(0).clicked), (1, false));
}

#[test]
fn segments_are_features_from_their_writing_on_and_people_are_joined() {
    let mut origin = Origin::new();
    let hour = HourStamp::at(NOW).0;
    let write = |v, n, at, expiry| {
        let state = SegmentState::held(HourStamp(expiry), []);
        fact(visitor(v), n, at, FactKind::Segments { writes: vec![(SegmentId(7), state)] })
    };
    let mut facts = Vec::new();
    for v in 0..6 {
        facts.push(impression(visitor(v), 100 + v, NOW - 2 * DAY));
        facts.push(write(v, 200 + v, NOW - DAY, hour + 9));
        facts.push(impression(visitor(v), 300 + v, NOW - 3_600_000));
    }
    facts.push(origin.login(visitor(0), 1, NOW, "ann"));
    facts.push(origin.login(visitor(1), 2, NOW, "ann"));
    facts.push(crate::testing::withdrawal(visitor(5), NOW));
    facts.push(purchase(visitor(2), 3, NOW, 5));
    origin.send("demo", &facts);
    let tenant = origin.tenant("demo").no;
    let path = origin.conn.path().unwrap().to_owned();
    let data = Path::new(&path).parent().unwrap();
    let asked = GatherRequest { data, tenant, bits: 12, most: 1_000, conversions: &[] };
    let gathered = gather::gather_examples(&asked, &|_, _| Ok(())).unwrap();
    assert_eq!(gathered.segments, [SegmentId(7)]);
    assert_eq!(gathered.examples.len(), 10, "no example of a withdrawn visitor");
    let place = causeway_shared::ads::model::features::ModelFeature::Segment(SegmentId(7)).index(12);
    let mut by_time = BTreeMap::new();
    let mut places = Vec::new();
    for number in 0..10 {
        gathered.examples.places(number, &mut places);
        let held = places.contains(&place);
        *by_time.entry((gathered.examples.minute(number), held)).or_insert(0) += 1;
    }
    let [early, late] = [NOW - 2 * DAY, NOW - 3_600_000].map(Minute::at);
    assert_eq!(by_time, BTreeMap::from([((early, false), 5), ((late, true), 5)]));
    let few = GatherRequest { most: 1, ..asked };
    assert!(
        gather::gather_examples(&few, &|_, _| Ok(())).unwrap().examples.len() < 10,
        "a share of the people is drawn"
    );
}
