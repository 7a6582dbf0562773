#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::store::{PersonNo, VisitorRow};
use causeway_shared::facts::exposures::FirstExposure;
use rusqlite::Row;
use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::fact::ErasureScope;
use serde_json::json;

use super::*;
use crate::campaigns::catalogue;
use crate::testing::{
    NOW, Numbers, Origin, exposure, fact, impression, ordered, page, purchase, snapshot, visitor, withdrawal,
};

const HOUR: u64 = 3_600_000;
/// Experiment, arm, hour.
type Place = (u32, i64, u32);
/// Exposed people; the cohort's converted people, conversions and revenue; converted people, conversions and revenue of
/// the hour.
type Sums = BTreeMap<Place, [i64; 7]>;
/// Experiment, hour of the exposure, hours until the conversion.
type Delays = BTreeMap<(u32, u32, u32), i64>;

fn sums(origin: &Origin) -> (Sums, Delays) {
    let hours =
        "SELECT experiment, arm, hour, exposed, cohort_converted, cohort_conversions, cohort_revenue, converted,
        conversions, revenue FROM experiment_hours";
    let mut read = origin.conn.prepare(hours).unwrap();
    let row = |row: &Row<'_>| {
        let mut sums = [0; 7];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = row.get(i + 3)?;
        }
        Ok(((row.get(0)?, row.get(1)?, row.get(2)?), sums))
    };
    let hours = read.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap();
    let mut read = origin.conn.prepare("SELECT experiment, hour, delay, people FROM experiment_delays").unwrap();
    let row = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?));
    (hours, read.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap())
}

/// Computes all sums from scratch, from the facts of the people as the store links them.
fn expected(origin: &Origin, facts: &BTreeMap<FactId, Fact>, gone: &BTreeSet<VisitorId>) -> (Sums, Delays) {
    let mut people: BTreeMap<Option<PersonNo>, Vec<&Fact>> = BTreeMap::new();
    for fact in facts.values().filter(|fact| !gone.contains(&fact.visitor)) {
        people.entry(origin.row("demo", fact.visitor).person).or_default().push(fact);
    }
    let (mut sums, mut delays) = (Sums::new(), Delays::new());
    for facts in people.values() {
        for (experiment, conversion) in [(1, "purchase"), (2, "click")] {
            let seen = facts.iter().filter_map(|fact| match fact.what {
                FactKind::Exposure { experiment: e, arm } if e == experiment => Some((fact.received, arm)),
                _ => None,
            });
            let seen: BTreeSet<(Millis, u8)> = seen.collect();
            let Some((exposed, arm)) = seen.first().copied() else { continue };
            let cohort = HourStamp::at(exposed).0;
            if seen.iter().any(|(_, other)| *other != arm) {
                sums.entry((experiment, person_results::mixed_arm(arm), cohort)).or_default()[0] += 1;
                continue;
            }
            let mut add =
                |hour, which: usize, n| sums.entry((experiment, i64::from(arm), hour)).or_default()[which] += n;
            add(cohort, 0, 1);
            let mut first = None;
            for fact in facts.iter().filter(|fact| fact.received >= exposed) {
                let value = match &fact.what {
                    FactKind::Track { name, value, .. } if name == conversion => value.unwrap().get(),
                    FactKind::Action { action_type, .. } if action_type.0 == 2 && conversion == "click" => 0,
                    _ => continue,
                };
                let hour = HourStamp::at(fact.received).0;
                for (hour, which, n) in [(cohort, 2, 1), (cohort, 3, value), (hour, 5, 1), (hour, 6, value)] {
                    add(hour, which, n);
                }
                first = Some(first.unwrap_or(fact.received).min(fact.received));
            }
            if let Some(first) = first {
                add(cohort, 1, 1);
                add(HourStamp::at(first).0, 4, 1);
                let delay = u32::try_from((first - exposed) / HOUR).unwrap();
                *delays.entry((experiment, cohort, delay)).or_default() += 1;
            }
        }
    }
    (sums, delays)
}

#[test]
fn only_a_conversion_that_happened_after_the_exposure_counts() {
    const DAY: u64 = 24 * HOUR;
    let mut origin = Origin::tested();
    let converted = |origin: &Origin| -> Option<i64> {
        let read = "SELECT converted FROM experiment_people WHERE experiment = 1";
        origin.conn.query_row(read, [], |row| row.get(0)).unwrap()
    };
    let v = visitor(1);
    origin.send("demo", &[exposure(v, 1, NOW, 1, 2)]);
    // The purchase happened two days before the exposure and was reported after it.
    let before = Fact { at: NOW - 2 * DAY, ..purchase(v, 2, NOW + HOUR, 5) };
    origin.send("demo", &[before]);
    assert_eq!(converted(&origin), None);
    // The purchase happened an hour after the exposure and was reported three days later.
    let after = Fact { at: NOW + HOUR, ..purchase(v, 3, NOW + 3 * DAY, 5) };
    origin.now = NOW + 3 * DAY;
    origin.send("demo", &[after]);
    assert_eq!(converted(&origin), Some(i64::try_from(NOW + HOUR).unwrap()));
}

#[test]
fn an_order_of_two_browsers_converts_its_person_once_also_over_midnight_and_around_the_exposure() {
    let midnight = NOW - NOW % (24 * HOUR) + 48 * HOUR;
    let of = |origin: &Origin| -> (i64, i64) {
        let read =
            "SELECT ifnull(sum(conversions), 0), ifnull(sum(revenue), 0) FROM experiment_hours WHERE experiment = 1";
        origin.conn.query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    let person = |origin: &mut Origin, exposed: Millis| {
        let logins = [1, 2].map(|v| origin.login(visitor(v), 9, NOW, "ann"));
        origin.send("demo", &logins);
        origin.now = midnight + HOUR;
        origin.send("demo", &[exposure(visitor(1), 1, exposed, 1, 2)]);
    };
    let purchases =
        [ordered(visitor(1), "order-7", midnight - 60_000, 5), ordered(visitor(2), "order-7", midnight + 60_000, 5)];
    for facts in [purchases.clone(), [purchases[1].clone(), purchases[0].clone()]] {
        let mut origin = Origin::tested();
        person(&mut origin, midnight - HOUR);
        facts.iter().for_each(|fact| drop(origin.send("demo", std::slice::from_ref(fact))));
        assert_eq!(of(&origin), (1, 5));
        let mut origin = Origin::tested();
        person(&mut origin, midnight);
        facts.iter().for_each(|fact| drop(origin.send("demo", std::slice::from_ref(fact))));
        assert_eq!(of(&origin), (0, 0), "it was bought before the exposure");
    }
}

fn click(visitor: VisitorId, n: u32, received: Millis) -> Fact {
    let mut fact = impression(visitor, n, received);
    if let FactKind::Action { action_type, .. } = &mut fact.what {
        action_type.0 = 2;
    }
    fact
}

/// The `n`th random fact, of one of twelve visitors of three members.
fn anything(origin: &Origin, numbers: &mut Numbers, n: u32) -> Fact {
    let (v, received) = (visitor(numbers.below(12)), NOW - u64::from(numbers.below(200)) * HOUR / 7);
    let member = ["ann", "bob", "cid"][numbers.below(3) as usize];
    match numbers.below(20) {
        0..=4 => exposure(v, n, received, 1 + numbers.below(2), 1 + u8::from(numbers.below(6) == 0)),
        5..=9 => purchase(v, n, received, i64::from(numbers.below(9)) * 1_000_000),
        10..=11 => click(v, n, received),
        12 => impression(v, n, received),
        13..=14 => page(v, n, received),
        15..=17 => origin.login(v, n, received, member),
        18 => fact(v, n, received, FactKind::Cancellation { id: origin.member("demo", member) }),
        _ if !n.is_multiple_of(3) => page(v, n, received),
        _ if n.is_multiple_of(2) => withdrawal(v, received),
        _ => Fact {
            id: FactId::of_erasure(v),
            ..fact(v, n, received, FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() })
        },
    }
}

#[test]
fn after_any_facts_merges_unlinks_and_erasures_the_sums_equal_a_recount() {
    let (mut merged, mut mixed) = (0, 0);
    for seed in 1..=12 {
        let mut origin = Origin::tested();
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (mut facts, mut gone) = (BTreeMap::new(), BTreeSet::new());
        for step in 0..60 {
            let batch: Vec<Fact> =
                (0..1 + numbers.below(4)).map(|i| anything(&origin, &mut numbers, step * 4 + i)).collect();
            origin.admin("demo", &batch);
            for fact in batch {
                match fact.what {
                    FactKind::Withdrawal | FactKind::Erasure { .. } => drop(gone.insert(fact.visitor)),
                    FactKind::Exposure { .. } | FactKind::Track { .. } | FactKind::Action { .. } => {
                        drop(facts.insert(fact.id, fact))
                    }
                    _ => {}
                }
            }
            let (hours, delays) = sums(&origin);
            assert_eq!(
                (&hours, &delays),
                (&expected(&origin, &facts, &gone).0, &expected(&origin, &facts, &gone).1),
                "seed {seed}, step {step}"
            );
            let people = "SELECT count(*) FROM people WHERE devices > 1";
            merged += origin.conn.query_row(people, [], |row| row.get::<_, i64>(0)).unwrap();
            mixed += hours.iter().filter(|((_, arm, _), _)| person_results::is_mixed(*arm)).count();
        }
    }
    assert!(merged > 500 && mixed > 200, "too little happened: {merged} {mixed}");
}

#[test]
fn the_order_of_facts_changes_no_sum() {
    for seed in 1..=6 {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut forward = Origin::tested();
        let facts: Vec<Fact> = (0..120).map(|n| anything(&forward, &mut numbers, n)).collect();
        let lasting = |fact: &&Fact| !matches!(fact.what, FactKind::Erasure { .. } | FactKind::Withdrawal);
        let facts: Vec<Fact> = facts.iter().filter(lasting).cloned().collect();
        forward.admin("demo", &facts);
        let mut backward = Origin::tested();
        let again: Vec<Fact> = facts.iter().rev().cloned().collect();
        again.chunks(7).for_each(|some| backward.admin("demo", some));
        again.chunks(5).for_each(|some| backward.admin("demo", some));
        assert!(!sums(&forward).0.is_empty());
        assert_eq!(sums(&forward), sums(&backward), "seed {seed}");
    }
}

fn recipients(origin: &Origin) -> Vec<(i64, i64, i64)> {
    let read = "SELECT arm, sum(exposed), sum(cohort_converted) FROM experiment_hours WHERE experiment = 1
        GROUP BY arm ORDER BY arm";
    let mut read = origin.conn.prepare(read).unwrap();
    read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_arm_survives_a_login_and_a_person_with_two_arms_counts_only_after_an_unlink() {
    let (mut origin, mut kv) = (Origin::tested(), BTreeMap::new());
    // An old browser of Ann's, and a phone that sees an arm before her login on it.
    origin.send("demo", &[page(visitor(1), 1, NOW - 9 * HOUR), origin.login(visitor(1), 2, NOW - 9 * HOUR, "ann")]);
    origin.send("demo", &[exposure(visitor(2), 1, NOW - 5 * HOUR, 1, 2)]);
    origin.send(
        "demo",
        &[origin.login(visitor(2), 2, NOW - 4 * HOUR, "ann"), purchase(visitor(1), 3, NOW - 3 * HOUR, 7)],
    );
    let phones = FirstExposure { arm: 2, at: NOW - 5 * HOUR, mixed: false };
    let person = |origin: &Origin, v| origin.person("demo", visitor(v)).exposures.get(1);
    assert_eq!([1, 2].map(|v| person(&origin, v)), [Some(phones); 2]);
    assert_eq!(recipients(&origin), [(2, 1, 1)], "the older browser's purchase is the person's");
    // The exposure is repeated with an earlier client time: nothing changes.
    origin.send("demo", &[Fact { at: NOW - 99 * HOUR, ..exposure(visitor(1), 4, NOW - 2 * HOUR, 1, 2) }]);
    assert_eq!(person(&origin, 1), Some(phones));
    origin.settle(&mut kv);
    let mut view = causeway_shared::profiles::view::JoinedView::default();
    view.add_snapshot(snapshot(&kv, visitor(1)));
    assert_eq!(
        view.of(visitor(1)).exposures().get(1),
        Some(phones),
        "the edge knows it from the older browser's snapshot"
    );

    // A third browser was in the other arm earlier.
    origin.send("demo", &[exposure(visitor(3), 1, NOW - 6 * HOUR, 1, 1)]);
    assert_eq!(recipients(&origin), [(1, 1, 0), (2, 1, 1)]);
    origin.send("demo", &[origin.login(visitor(3), 2, NOW - HOUR, "ann")]);
    let mixed = FirstExposure { arm: 1, at: NOW - 6 * HOUR, mixed: true };
    assert_eq!([1, 2, 3].map(|v| person(&origin, v)), [Some(mixed); 3]);
    assert_eq!(recipients(&origin), [(person_results::mixed_arm(1), 1, 0)]);
    let told = crate::views::describe::describe_visitor(
        &crate::views::read::StoreView::folded(&origin.conn),
        origin.tenant("demo"),
        visitor(2),
    );
    let told = crate::testing::as_json(told.unwrap().unwrap().experiments);
    let since = NOW - 6 * HOUR;
    assert_eq!(told, serde_json::json!([{"experiment": "e-1", "arm": "none", "since_ms": since, "mixed": true}]));

    let id = origin.member("demo", "ann");
    origin.admin("demo", &[fact(visitor(3), 9, NOW, FactKind::Cancellation { id })]);
    assert_eq!(recipients(&origin), [(1, 1, 0), (2, 1, 1)], "unlinked, both count again");
    assert_eq!(person(&origin, 1), Some(phones));
}

#[test]
fn the_newest_conversions_of_a_visitor_are_stored_and_old_ones_are_trimmed() {
    let mut origin = Origin::tested();
    let most = u32::try_from(limits::CONVERSIONS).unwrap();
    let buys: Vec<Fact> = (0..most + 50).map(|n| purchase(visitor(1), n, NOW - u64::from(n) * 1_000, 1)).collect();
    origin.send("demo", &buys);
    let count = |origin: &Origin| {
        let read = "SELECT count(*), min(received) FROM conversions";
        origin.conn.query_row(read, [], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?))).unwrap()
    };
    let oldest = signed(NOW - u64::from(most - 1) * 1_000);
    assert_eq!(count(&origin), (most, oldest));
    origin.send("other", &[purchase(visitor(1), 1, NOW, 1)]);
    assert_eq!(count(&origin), (most, oldest), "a tenant without experiments keeps none");
    let row = origin.row("demo", visitor(1)).row.unwrap();
    crate::maintenance::trim::trim_visitor(&mut origin.conn, row, NOW + limits::CONVERSION_DAYS * 24 * HOUR).unwrap();
    assert_eq!(count(&origin), (1, signed(NOW)));
}

#[test]
fn a_revenue_beyond_all_bounds_goes_in_and_comes_out_again() {
    let mut origin = Origin::tested();
    let most = limits::VALUE_MICROS.get();
    let buys = (0..30).map(|n| purchase(visitor(1), n + 2, NOW, most));
    origin.send("demo", &[exposure(visitor(1), 1, NOW, 1, 2)].into_iter().chain(buys).collect::<Vec<_>>());
    origin.send("demo", &[exposure(visitor(2), 1, NOW, 1, 2), purchase(visitor(2), 2, NOW, 5)]);
    origin.admin("demo", &[withdrawal(visitor(1), NOW)]);
    let (hours, _) = sums(&origin);
    assert_eq!(hours.values().collect::<Vec<_>>(), [&[1, 1, 1, 5, 1, 1, 5]]);
}

#[test]
fn a_rollup_restores_damaged_rows_and_sums() {
    let mut origin = Origin::tested();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let lasting = |fact: &Fact| !matches!(fact.what, FactKind::Erasure { .. } | FactKind::Withdrawal);
    let facts: Vec<Fact> = (0..300).map(|n| anything(&origin, &mut numbers, n)).filter(lasting).collect();
    origin.admin("demo", &facts);
    let right = sums(&origin);
    let roll = |origin: &mut Origin, now| {
        let (mut rolled, mut after) = (rollup::RollupReport::default(), PersonNo(0));
        while let Some(last) = rollup::rebuild_people(&origin.conn, after, 2, now, &mut rolled).unwrap() {
            after = last;
        }
        let wrong = || rollup::find_corrections(&origin.conn, &|| Ok(())).unwrap();
        let (mut found, mut rounds) = (wrong(), 0);
        let all = found.len();
        while !found.is_empty() {
            found.mend(&origin.conn, 2).unwrap();
            rounds += 1;
        }
        assert_eq!((wrong().len(), rounds), (0, all.div_ceil(2)));
        (rolled.changed, all)
    };
    assert_eq!(roll(&mut origin, NOW), (0, 0));
    for damage in [
        "UPDATE experiment_hours SET conversions = conversions + 3, revenue = 0 WHERE hour % 3 = 0",
        "UPDATE experiment_people SET hours = x'ff' WHERE person % 2 = 0",
        "DELETE FROM experiment_hours WHERE hour % 2 = 0",
        "INSERT INTO experiment_hours VALUES (1, 77, 1, 9, 1, 1, 1, 1, 1, 1, 1)",
        "UPDATE experiment_delays SET people = people + 1",
        "UPDATE experiment_people SET arm = 3 WHERE person % 2 = 0",
        "DELETE FROM experiment_people",
        "INSERT INTO experiment_people SELECT person, 9, tenant, arm, exposed, NULL, x'' FROM experiment_people WHERE experiment = 1",
        "INSERT INTO experiment_people SELECT person + 1000000, 1, tenant, arm, exposed, NULL, x'' FROM experiment_people WHERE experiment = 1",
    ] {
        origin.conn.execute_batch(damage).unwrap();
        let mended = roll(&mut origin, NOW);
        assert!(mended.0 + mended.1 as u64 > 0, "{damage}");
        assert_eq!(sums(&origin), right, "{damage}");
        assert_eq!(roll(&mut origin, NOW), (0, 0), "{damage}");
    }
    // Only the sums of old conversions are left.
    let later = NOW + (limits::CONVERSION_DAYS + 10) * 24 * HOUR;
    origin.conn.execute("DELETE FROM conversions", []).unwrap();
    assert_eq!(roll(&mut origin, later), (0, 0));
    assert_eq!(sums(&origin), right);
}

#[test]
fn what_was_bought_before_the_exposure_and_imported_after_it_is_no_conversion() {
    let mut origin = Origin::tested();
    origin.send("demo", &[exposure(visitor(1), 1, NOW, 1, 2)]);
    origin.now = NOW + 2 * HOUR;
    let converted = |origin: &Origin| {
        let known = origin.tenant("demo").clone();
        let shown = crate::testing::as_json(
            results::describe_experiment(&origin.conn, &known, "e-1", origin.now).unwrap().unwrap(),
        );
        shown["arms"][1]["converted"].clone()
    };
    // As `causeway import` creates them: received now, with times before and after the exposure.
    for (n, at, expected) in [(2, NOW - 120 * HOUR, 0), (3, NOW + HOUR, 1)] {
        origin.admin("demo", &[Fact { at, ..purchase(visitor(1), n, origin.now, 5_000_000) }]);
        assert_eq!(converted(&origin), expected);
    }
}

fn conversions(origin: &Origin, experiment: u32) -> i64 {
    let read = "SELECT ifnull(sum(conversions), 0) FROM experiment_hours WHERE experiment = ?1";
    origin.conn.query_row(read, [experiment], |row| row.get(0)).unwrap()
}

#[test]
fn an_experiment_outside_the_catalogue_continues_to_count_its_people() {
    let mut origin = Origin::new();
    let known = origin.tenant("demo").clone();
    let catalogue = |conversion: &str| {
        let experiment = json!({
            "id": "e-1", "code": 1, "starts": 1, "conversion": conversion, "arm": [
                { "id": "none", "code": 1, "share": 5000, "control": true }, { "id": "b", "code": 2, "share": 5000 }],
        });
        json!({ "experiment": if conversion.is_empty() { json!([]) } else { json!([experiment]) } })
    };
    let apply = |origin: &mut Origin, conversion: &str| {
        let given = origin.given();
        catalogue::apply(&mut origin.conn, &origin.rules, given, &known, catalogue(conversion), "tests").unwrap();
    };
    apply(&mut origin, "saved");
    let saved = |n| {
        fact(
            visitor(1),
            n,
            NOW + u64::from(n),
            FactKind::Track { name: "saved".to_owned(), value: None, properties: None, order: None },
        )
    };
    origin.send("demo", &[exposure(visitor(1), 1, NOW, 1, 2), saved(2)]);
    assert_eq!(conversions(&origin, 1), 1);
    apply(&mut origin, "");
    origin.send("demo", &[saved(3), purchase(visitor(1), 4, NOW + 4, 5)]);
    assert_eq!(conversions(&origin, 1), 2, "what it counts, and nothing else");
    origin.send("demo", &[exposure(visitor(2), 5, NOW, 1, 2), purchase(visitor(2), 6, NOW + 6, 5)]);
    // An experiment is changed by mistake and changed back.
    apply(&mut origin, "purchase");
    let given = origin.given();
    catalogue::rollback(&mut origin.conn, &origin.rules, given, &known, 1).unwrap();
    origin.now += 1;
    apply(&mut origin, "");
    origin.send("demo", &[saved(7)]);
    assert_eq!(conversions(&origin, 1), 3);
    // The conversion of a dropped experiment is stored with the time of its removal.
    let read = "SELECT conversion, conversion_until FROM catalogue_codes WHERE sort = 'experiment'";
    let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?));
    let out = origin.conn.query_row(read, [], row).unwrap();
    assert_eq!(out, ("saved".to_owned(), Some(signed(origin.now))));
    // It counts for as long as conversions are stored.
    origin.now += (limits::CONVERSION_DAYS + 1) * 24 * HOUR;
    let late = Fact { received: origin.now, at: origin.now, ..saved(8) };
    origin.send("demo", &[late]);
    let kept = "SELECT count(*) FROM conversions WHERE received > ?1";
    assert_eq!(origin.conn.query_row(kept, [signed(NOW + HOUR)], |row| row.get::<_, u32>(0)).unwrap(), 0);
}

#[test]
fn one_click_reported_by_two_browsers_of_a_person_is_one_conversion() {
    let mut origin = Origin::tested();
    let [phone, laptop] = [visitor(1), visitor(2)];
    let clicked = click(phone, 2, NOW);
    let again = Fact { visitor: laptop, ..click(laptop, 3, NOW + 1) };
    let again = Fact { what: clicked.what.clone(), ..again };
    let other = click(laptop, 4, NOW + 2);
    let logins = [phone, laptop].map(|of| origin.login(of, 9, NOW, "ann"));
    origin.send("demo", &[exposure(phone, 1, NOW, 2, 2), clicked, again, other]);
    assert_eq!(conversions(&origin, 2), 1, "of the phone alone");
    origin.send("demo", &logins);
    assert_eq!(conversions(&origin, 2), 2);
}

#[test]
fn the_conversions_of_another_experiment_displace_none() {
    let mut origin = Origin::tested();
    let of = visitor(1);
    origin.send("demo", &[exposure(of, 1, NOW, 1, 2), exposure(of, 2, NOW, 2, 2), purchase(of, 3, NOW, 5)]);
    let most = u32::try_from(limits::CONVERSIONS).unwrap();
    let clicks: Vec<Fact> = (0..most + 10).map(|n| click(of, n + 10, NOW + u64::from(n))).collect();
    origin.send("demo", &clicks);
    assert_eq!((conversions(&origin, 1), conversions(&origin, 2)), (1, i64::from(most)));
    // Two action types on one placed ad, reported in one call.
    let words: causeway_shared::settings::vocabulary::Vocabulary =
        serde_json::from_value(json!({ "action_type": [{ "name": "save", "code": 3 }] })).unwrap();
    let (clicked, mut saved) = (click(visitor(2), 2, NOW), impression(visitor(2), 2, NOW));
    if let FactKind::Action { action_type, .. } = &mut saved.what {
        action_type.0 = 3;
    }
    let row = VisitorRow::from_number(77);
    let both = [(NOW, &clicked), (NOW, &saved)];
    assert!(
        keep_conversions(&origin.conn, &["click", "save"].map(str::to_owned).into(), &words, row, both.into_iter())
            .unwrap()
    );
    let read = "SELECT count(*) FROM conversions WHERE visitor = 77";
    assert_eq!(origin.conn.query_row(read, [], |row| row.get::<_, u32>(0)).unwrap(), 2);
}
