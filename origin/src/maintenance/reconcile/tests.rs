#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, KindCode, VisitorId};
use causeway_shared::base::random::Random;
use causeway_shared::facts::evidence::{EvidenceSource, EvidenceWeight};
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::kv::decode_stored;
use rusqlite::Connection;

use super::*;
use crate::store::visitor_at;
use crate::testing::{NOW, Origin, alias, exposure, fact, page, visitor, withdrawal};

const VISITORS: u32 = 40;

fn quiet(_: u64, _: u64) -> Result<(), JobError> {
    Ok(())
}

fn planned(origin: &Origin) -> ReconcilePlan {
    plan(&origin.conn, &origin.rules.tenants, &quiet).unwrap()
}

fn mended(origin: &mut Origin, plan: &ReconcilePlan) -> u64 {
    let Origin { conn, rules, metrics, now, .. } = origin;
    let mut seed = 0;
    let given = || {
        seed += 1;
        Ok(TxnInputs { now: *now, random: [seed; 32] })
    };
    mend(conn, rules, metrics, given, plan, &quiet).unwrap()
}

fn said(id: AlternateId, weight: EvidenceWeight, source: EvidenceSource) -> FactKind {
    FactKind::Evidence { id, also: Vec::new(), weight, source }
}

/// Logins on shared devices, households that chain them, cancellations and withdrawals, over forty visitors of two
/// tenants.
fn life(origin: &mut Origin, seed: u8) {
    let mut together: BTreeMap<&str, Vec<Fact>> = BTreeMap::new();
    let mut random = Random::new([seed; 32]);
    let mut some = |most: u32| {
        let [a, b, ..] = random.draw::<8>();
        u32::from(u16::from_be_bytes([a, b])) % most
    };
    for n in 0..160 {
        let (who, at) = (visitor(1 + some(VISITORS)), NOW + u64::from(some(1_000)));
        let (kind, value) = (KindCode(if some(3) == 0 { 2 } else { 1 }), some(12));
        let tenant = if some(8) == 0 { "other" } else { "demo" };
        let id = origin.id(tenant, kind, &format!("{kind:?}-{value}"));
        // The same id under the other key of a rotation. Until both arrive together, they are two ids.
        let other = AltHash([u8::try_from(100 + value).unwrap(); 16]);
        let fact: Fact = match some(24) {
            20 => alias(who, n, at, AlternateId { hash: other, ..id }),
            21 => fact(who, n, at, FactKind::Alias { id, also: vec![other], proven: true }),
            22 | 23 if seed.is_multiple_of(3) => {
                let scope = if some(2) == 0 { ErasureScope::Person } else { ErasureScope::Visitor };
                let (who, id) = if some(2) == 0 { (who, None) } else { (VisitorId::ANONYMOUS, Some(id)) };
                let what = FactKind::Erasure { scope, id, also: Vec::new() };
                origin.admin(
                    tenant,
                    &[Fact { id: FactId::from_bytes([u8::try_from(n).unwrap(); 16]), ..fact(who, n, at, what) }],
                );
                continue;
            }
            0 => withdrawal(who, at),
            1..4 => fact(who, n, at, FactKind::Cancellation { id }),
            4..7 => page(who, n, at),
            7 => fact(who, n, at, FactKind::Alias { id, also: Vec::new(), proven: false }),
            8 => fact(who, n, at, said(id, EvidenceWeight(300 + some(700) as u16), EvidenceSource::Model)),
            9 | 10 => {
                // Two visitors, each with a fact of its own. The second fact arrives later, or never.
                let id = AlternateId::pair(who, visitor(1 + some(VISITORS)));
                fact(who, n, at, said(id, EvidenceWeight(300 + some(700) as u16), EvidenceSource::Match))
            }
            11 | 12 => {
                let other = visitor(1 + some(VISITORS));
                let (id, weight) = (AlternateId::pair(who, other), EvidenceWeight(300 + some(700) as u16));
                let tie = |of| fact(of, n, at, said(id, weight, EvidenceSource::Household));
                origin.admin(tenant, &[tie(who), tie(other)]);
                continue;
            }
            _ => alias(who, n, at, id),
        };
        match &fact.what {
            FactKind::Cancellation { .. } | FactKind::Evidence { .. } => origin.admin(tenant, &[fact]),
            _ => {
                let facts = together.entry(tenant).or_default();
                facts.push(fact);
                // Facts one by one, or several in one transaction.
                if n % 3 == 0 || seed.is_multiple_of(2) {
                    origin.send(tenant, &std::mem::take(facts));
                }
            }
        }
    }
    together.into_iter().for_each(|(tenant, facts)| drop(origin.send(tenant, &facts)));
}

/// A store in which an id is oversized from 1,000 visitors on, or from a few; and in which only logins link, or weaker
/// evidence too.
fn of(seed: u8) -> Origin {
    match seed % 6 {
        0 => Origin::new(),
        few @ 1..4 => Origin::of_group_limit(u32::from(few) + 1),
        few => Origin::of_threshold(u32::from(few) * 3 - 10, 0.5),
    }
}

/// The stored people by tenant and visitor: master, number of devices, members and weight.
type World = BTreeMap<(i64, VisitorId), (VisitorId, i64, Vec<VisitorId>, u16)>;

fn world(conn: &Connection) -> World {
    let mut members: BTreeMap<i64, Vec<VisitorId>> = BTreeMap::new();
    let mut read = conn.prepare("SELECT tenant, visitor, person, weight FROM visitors ORDER BY visitor").unwrap();
    let rows = read.query_map([], |row| Ok((row.get(0)?, visitor_at(row, 1)?, row.get(2)?, row.get(3)?)));
    let rows: Vec<(i64, VisitorId, i64, u16)> = rows.unwrap().map(Result::unwrap).collect();
    rows.iter().for_each(|(_, visitor, person, _)| members.entry(*person).or_default().push(*visitor));
    let row = |person: i64| {
        let read = "SELECT master, devices FROM people WHERE person = ?1";
        conn.query_row(read, [person], |row| Ok((visitor_at(row, 0)?, row.get(1)?))).unwrap()
    };
    let people = rows.into_iter().map(|(tenant, visitor, person, weight)| {
        let (master, devices) = row(person);
        ((tenant, visitor), (master, devices, members[&person].clone(), weight))
    });
    people.collect()
}

fn flags(conn: &Connection) -> Vec<(VisitorId, Vec<u8>, Option<u8>)> {
    let read = "SELECT visitor, hash, flag FROM evidence WHERE weight > 0 ORDER BY tenant, visitor, kind, hash, source, weight";
    let mut read = conn.prepare(read).unwrap();
    let rows = read.query_map([], |row| Ok((visitor_at(row, 0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn people_linked_incrementally_equal_people_from_all_evidence() {
    for seed in 0..90 {
        let mut origin = of(seed);
        life(&mut origin, seed);
        let plan = planned(&origin);
        assert_eq!(plan.differences, [], "seed {seed}");
        let people: i64 = origin.conn.query_row("SELECT count(*) FROM people", [], |row| row.get(0)).unwrap();
        assert_eq!(plan.people, people.unsigned_abs(), "seed {seed}");
        assert!(plan.links > 10 && plan.visitors > 30, "seed {seed}: {plan:?}");
    }
}

/// Damages the stored people, once for every cause.
fn damage(conn: &Connection, seed: u8) {
    let one_of = |column: &str, table: &str| {
        format!(
            "(SELECT {column} FROM {table} ORDER BY substr(hex({column}), -1, 1), {column} LIMIT 1 OFFSET {})",
            seed % 7
        )
    };
    let (person, visitor) = (one_of("person", "people"), one_of("visitor", "visitors"));
    let wrong = [
        format!("UPDATE visitors SET person = {person} WHERE row % 11 = {}", seed % 11),
        format!("UPDATE people SET master = {visitor} WHERE person % 7 = {}", seed % 7),
        format!("UPDATE people SET devices = devices + 3 WHERE person % 5 = {}", seed % 5),
        format!("UPDATE people SET devices = -1, tenant = 3 - tenant WHERE person % 8 = {}", seed % 8),
        format!("DELETE FROM people WHERE person % 13 = {}", seed % 13),
        format!("UPDATE visitors SET person = 100000 + row WHERE row % 9 = {}", seed % 9),
        "INSERT INTO people (tenant, master, devices, epoch, changed, random)
            SELECT tenant, master, 1, 0, 0, random FROM people WHERE person % 6 = 0"
            .to_owned(),
        format!(
            "UPDATE evidence SET flag = iif(flag IS NULL, 1 + rowid_of % 2, NULL) WHERE rowid_of % 6 = {}",
            seed % 6
        )
        .replace("rowid_of", "(first + last + kind)"),
        format!("UPDATE visitors SET weight = 1700 - weight WHERE row % 6 = {}", seed % 6),
        format!("UPDATE people SET weight = 500 WHERE person % 6 = {}", seed % 6),
    ];
    for (n, statement) in (0_u32..).zip(&wrong) {
        // Each damage alone in turn, and all together.
        if seed % 11 == 10 || u32::from(seed % 11) == n {
            conn.execute(statement, []).unwrap();
        }
    }
}

#[test]
fn damage_is_reported_by_cause_and_mended() {
    let mut causes = BTreeMap::new();
    for seed in 0..66 {
        let mut origin = of(seed / 11);
        life(&mut origin, seed);
        let before = (world(&origin.conn), flags(&origin.conn));
        damage(&origin.conn, seed);
        let plan = planned(&origin);
        plan.causes().into_iter().for_each(|(cause, n)| *causes.entry(cause).or_insert(0) += n);
        mended(&mut origin, &plan);
        assert_eq!(planned(&origin).differences, [], "seed {seed}, after {:?}", plan.differences);
        assert_eq!((world(&origin.conn), flags(&origin.conn)), before, "seed {seed}");
        assert_eq!(mended(&mut origin, &plan), 0, "once more it finds nothing to do");
    }
    let all = ["apart", "devices", "empty", "flag", "master", "no_row", "together", "weight"];
    assert_eq!(causes.keys().copied().collect::<Vec<_>>(), all, "{causes:?}");
}

#[test]
fn mending_interrupted_between_any_two_transactions_is_completed_by_the_next_run() {
    for end in 0..6 {
        let mut origin = Origin::new();
        life(&mut origin, 3);
        let before = world(&origin.conn);
        damage(&origin.conn, 10);
        let plan = planned(&origin);
        let Origin { conn, rules, metrics, now, .. } = &mut origin;
        let mut left = end;
        // One difference per transaction, for the most points of interruption.
        let each: Vec<ReconcilePlan> = plan
            .differences
            .iter()
            .map(|one| ReconcilePlan { differences: vec![*one], ..ReconcilePlan::default() })
            .collect();
        let ended = each.iter().take_while(|one| {
            let given = || {
                left -= 1;
                if left < 0 {
                    Err(rusqlite::Error::InvalidQuery.into())
                } else {
                    Ok(TxnInputs { now: *now, random: [1; 32] })
                }
            };
            mend(conn, rules, metrics, given, one, &quiet).is_ok()
        });
        assert_eq!(ended.count(), usize::try_from(end).unwrap());
        let rest = planned(&origin);
        mended(&mut origin, &rest);
        assert_eq!((planned(&origin).differences, world(&origin.conn)), (vec![], before), "ended after {end}");
    }
}

#[test]
fn a_mended_visitor_is_published() {
    let mut origin = Origin::new();
    let logins = [1, 2].map(|n| origin.login(visitor(n), n, NOW, "ann"));
    origin.send("demo", &logins);
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    origin
        .conn
        .execute("INSERT INTO people SELECT 77, tenant, master, 1, 0, 0, NULL, random, 1000 FROM people", [])
        .unwrap();
    origin.conn.execute("UPDATE visitors SET person = 77 WHERE visitor = ?1", [visitor(2).as_bytes()]).unwrap();
    let plan = planned(&origin);
    assert_eq!(plan.causes(), [("apart", 1), ("devices", 1), ("master", 1)].into());
    assert_eq!(mended(&mut origin, &plan), 1);
    origin.now += 60_000;
    assert!(origin.drain(100).iter().any(|write| write.key.ends_with(&visitor(1).to_string())), "its siblings wait");
}

#[test]
fn a_mended_visitor_without_siblings_is_published_too() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    origin.conn.execute("UPDATE people SET devices = 4", []).unwrap();
    let plan = planned(&origin);
    assert_eq!((plan.causes(), mended(&mut origin, &plan)), ([("devices", 1)].into(), 1));
    origin.now += 60_000;
    assert_eq!(origin.drain(100).len(), 1);
}

#[test]
fn mending_an_empty_person_row_removes_its_experiment_rows() {
    let mut origin = Origin::tested();
    origin.send("demo", &[page(visitor(1), 1, NOW), exposure(visitor(1), 2, NOW, 1, 2)]);
    let people = |origin: &Origin| {
        let read =
            "SELECT count(*), count(DISTINCT p.person) FROM experiment_people e LEFT JOIN people p USING (person)";
        origin.conn.query_row(read, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap()
    };
    assert_eq!(people(&origin), (1, 1));
    origin
        .conn
        .execute("INSERT INTO people SELECT 77, tenant, master, 1, 0, 0, NULL, random, 1000 FROM people", [])
        .unwrap();
    origin.conn.execute("UPDATE visitors SET person = 77", []).unwrap();
    let plan = planned(&origin);
    assert_eq!(plan.causes(), [("empty", 1)].into());
    mended(&mut origin, &plan);
    assert_eq!(people(&origin).0, 0, "of the row that is gone nothing is counted");
}

/// A visitor, and the id that it is tied to.
type Tie = (VisitorId, AlternateId);

/// Ties of all kinds, with the facts that make them.
fn ties(origin: &Origin, some: &mut impl FnMut(u32) -> u32) -> Vec<(Tie, Vec<Fact>)> {
    let mut ties: BTreeMap<Tie, Vec<Fact>> = BTreeMap::new();
    for n in 0..120 {
        let (who, at) = (visitor(1 + some(VISITORS)), NOW + u64::from(some(1_000)));
        let (kind, value) = (KindCode(if some(3) == 0 { 2 } else { 1 }), some(12));
        let id = origin.id("demo", kind, &format!("{kind:?}-{value}"));
        let weight = EvidenceWeight(300 + u16::try_from(some(700)).unwrap());
        match some(6) {
            0 => {
                let other = visitor(1 + some(VISITORS));
                let id = AlternateId::pair(who, other);
                for of in [who, other] {
                    let what = FactKind::Evidence { id, also: Vec::new(), weight, source: EvidenceSource::Match };
                    ties.entry((of, id)).or_default().push(fact(of, n, at, what));
                }
            }
            1 => {
                let what = FactKind::Evidence { id, also: Vec::new(), weight, source: EvidenceSource::Device };
                ties.entry((who, id)).or_default().push(fact(who, n, at, what));
            }
            2 => ties.entry((who, id)).or_default().push(fact(
                who,
                n,
                at,
                FactKind::Alias { id, also: Vec::new(), proven: false },
            )),
            _ => ties.entry((who, id)).or_default().push(alias(who, n, at, id)),
        }
    }
    ties.into_iter().collect()
}

/// The edge's knowledge: of each visitor its siblings with their totals, and the unique id; and the lookups.
fn published_view(origin: &mut Origin) -> BTreeMap<String, String> {
    let mut kv = BTreeMap::new();
    origin.settle(&mut kv);
    let value = |(key, value): (String, String)| {
        let Some(of) = key.rsplit(':').next().and_then(|of| of.parse().ok()).filter(|_| key.starts_with("v:")) else {
            return (key, value);
        };
        let StoredValue::Snapshot(of) = decode_stored(&key, of, value.as_bytes()).unwrap() else { return (key, value) };
        let visitors = of.profiles.iter().map(|(visitor, of)| (*visitor, of.totals())).collect::<Vec<_>>();
        (key, format!("{:?} {:?} {} {}", of.unique, visitors, of.membership.devices, !of.missing().is_empty()))
    };
    kv.into_iter().map(value).collect()
}

#[test]
fn after_any_cancelled_ties_the_world_equals_one_that_never_had_them() {
    let mut parted = 0;
    for seed in 0..60 {
        let [mut undone, mut never] = [of(seed), of(seed)];
        let mut random = Random::new([seed; 32]);
        let mut some = |most: u32| {
            let [a, b, ..] = random.draw::<8>();
            u32::from(u16::from_be_bytes([a, b])) % most
        };
        let ties = ties(&never, &mut some);
        let wrong: Vec<AlternateId> = ties.iter().map(|((_, id), _)| *id).filter(|_| some(4) == 0).collect();
        let is_wrong = |(of, id): &Tie| wrong.contains(id) && (id.kind == KindCode::PAIR || of.as_bytes()[15] % 2 == 0);
        let pages = |from| (1..=VISITORS).map(move |v| page(visitor(v), from + v, NOW + u64::from(from + v)));
        for ((of, facts), n) in ties.iter().zip(0..) {
            undone.admin("demo", facts);
            if !is_wrong(of) {
                never.admin("demo", facts);
            } else if n % 2 == 0 {
                let what = FactKind::Cancellation { id: of.1 };
                undone.admin("demo", &[fact(of.0, 500 + n, NOW + 2_000, what)]);
            }
        }
        for origin in [&mut undone, &mut never] {
            origin.send("demo", &pages(3_000).collect::<Vec<_>>());
        }
        let between = world(&undone.conn);
        for ((of, _), n) in ties.iter().zip(0..).filter(|((of, _), n)| is_wrong(of) && n % 2 == 1) {
            undone.admin("demo", &[fact(of.0, 500 + n, NOW + 2_000, FactKind::Cancellation { id: of.1 })]);
        }
        for origin in [&mut undone, &mut never] {
            origin.send("demo", &pages(4_000).collect::<Vec<_>>());
        }
        assert_eq!(planned(&undone).differences, [], "seed {seed}");
        assert_eq!(world(&undone.conn), world(&never.conn), "seed {seed}");
        parted += u32::from(between != world(&undone.conn));
        let [undone, never] = [&mut undone, &mut never].map(published_view);
        for (key, value) in &never {
            assert_eq!(undone.get(key), Some(value), "seed {seed}: {key}");
        }
        // An id that no visitor has any more has no key.
        assert_eq!(undone.len(), never.len(), "seed {seed}");
    }
    assert!(parted > 40, "only {parted} worlds had anything undone");
}
