//! Damage of the store: flipped bits.

use crate::store::VisitorRow;
use causeway_shared::facts::attributes::AttributeValue;

use super::*;
use crate::campaigns::catalogue;

/// Stored values of a visitor: table, column, and condition on the rows.
const FORMS: [(&str, &str, &str); 6] = [
    ("visitors", "profile", "visitor = ?1"),
    ("visitors", "segments", "visitor = ?1"),
    ("visitors", "attributes", "visitor = ?1"),
    ("visitors", "events", "visitor = ?1"),
    ("actions", "body", "place >> 32 = (SELECT row FROM visitors WHERE visitor = ?1)"),
    ("fact_ids", "ids", "visitor = (SELECT row FROM visitors WHERE visitor = ?1)"),
];

/// Two visitors with a value of every form, one of them of a member.
fn lived() -> World {
    let mut world = World::with(0);
    let login = world.origin.login(visitor(1), 9, NOW, "ann");
    for v in 1..=2 {
        let named = FactKind::Track { name: "signup".to_owned(), value: None, properties: None, order: None };
        let city = vec![("city".to_owned(), Some(AttributeValue::String("Ulm".to_owned())))];
        let state = SegmentState::held(HourStamp(HourStamp::at(NOW).0 + 24), []);
        world.origin.send(
            "demo",
            &[
                page(visitor(v), 1, NOW),
                impression(visitor(v), 2, NOW),
                fact(visitor(v), 3, NOW, named),
                fact(visitor(v), 4, NOW, FactKind::Attributes { writes: city }),
                fact(visitor(v), 5, NOW, FactKind::Segments { writes: vec![(SegmentId(7), state)] }),
            ],
        );
    }
    world.origin.send("demo", &[login]);
    world
}

/// Flips a bit of a stored value and returns the original value.
fn flip(conn: &Connection, (table, column, rows): (&str, &str, &str), of: &[u8], bit: usize) -> Vec<u8> {
    let read = format!("SELECT {column} FROM {table} WHERE {rows}");
    let was: Vec<u8> = conn.query_row(&read, [of], |row| row.get(0)).unwrap();
    assert!(!was.is_empty(), "{table}.{column}");
    let (mut bytes, bit) = (was.clone(), bit % (was.len() * 8));
    bytes[bit / 8] ^= 1 << (bit % 8);
    conn.execute(&format!("UPDATE {table} SET {column} = ?2 WHERE {rows}"), (of, bytes)).unwrap();
    was
}

fn quarantined(world: &World) -> Vec<VisitorRow> {
    let mut read = world.origin.conn.prepare("SELECT row FROM unreadable ORDER BY row").unwrap();
    read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_flipped_bit_of_every_stored_form_of_a_visitor_is_found_and_the_visitor_quarantined() {
    let mut world = lived();
    let whole = world.all(JobKind::Scrub, false);
    assert_eq!(whole.outcome, Some(RunOutcome::Done), "{}", whole.report);
    let read = ["visitors", "lookups", "damaged_visitors", "damaged_lookups", "damaged_tenant_values"];
    assert_eq!(read.map(|name| whole.report[name].as_u64()), [2, 1, 0, 0, 0].map(Some));
    let row = world.origin.row("demo", visitor(1)).row.unwrap();
    for form in FORMS {
        for bit in [0, 9, 40, 77, 131, usize::MAX] {
            let was = flip(&world.origin.conn, form, visitor(1).as_bytes(), bit);
            let dry = world.all(JobKind::Scrub, true);
            assert_eq!(dry.report["damaged_visitors"], 1, "{form:?}, bit {bit}: {}", dry.report);
            assert_eq!(quarantined(&world), [], "a dry run changes nothing");
            let run = world.all(JobKind::Scrub, false);
            assert_eq!((run.outcome, &run.report["first"][0]["row"]), (Some(RunOutcome::Failed), &json!(row.number())));
            assert_eq!(quarantined(&world), [row]);
            let (table, column, rows) = form;
            let mend = format!("UPDATE {table} SET {column} = ?2 WHERE {rows}");
            world.origin.conn.execute(&mend, (visitor(1).as_bytes(), was)).unwrap();
            world.origin.conn.execute("DELETE FROM unreadable", []).unwrap();
        }
    }
}

#[test]
fn of_a_visitor_with_a_flipped_bit_no_sum_is_read_or_published() {
    for form in &FORMS[..5] {
        for bit in [3, 66, 101] {
            let mut world = lived();
            flip(&world.origin.conn, *form, visitor(1).as_bytes(), bit);
            let mut kv = BTreeMap::new();
            world.origin.settle(&mut kv);
            let key = |v| kv.keys().any(|key| key.contains(&visitor(v).to_string()));
            assert_eq!([1, 2].map(key), [false, true], "{form:?}, bit {bit}");
        }
    }
}

#[test]
fn a_new_fact_of_a_visitor_with_flipped_fact_ids_waits() {
    let mut world = lived();
    let row = world.origin.row("demo", visitor(1)).row.unwrap();
    flip(&world.origin.conn, FORMS[5], visitor(1).as_bytes(), 50);
    assert_eq!(world.all(JobKind::Scrub, false).outcome, Some(RunOutcome::Failed));
    // Counted a second time, the fact would also give the other visitor two pages.
    world.origin.send("demo", &[page(visitor(1), 1, NOW), page(visitor(2), 1, NOW)]);
    let pages = [1, 2].map(|v| world.origin.profile("demo", visitor(v)).totals().pages);
    let waiting = "SELECT count(*) FROM quarantined_facts WHERE row = ?1";
    let waiting: i64 = world.origin.conn.query_row(waiting, [row], |row| row.get(0)).unwrap();
    assert_eq!((pages, waiting), ([1, 1], 1));
}

#[test]
fn a_lookup_with_a_flipped_bit_names_nobody_and_is_written_again_from_its_evidence() {
    let mut world = lived();
    let member = world.origin.member("demo", "ann");
    for bit in [5, 70, 127] {
        flip(&world.origin.conn, ("lookups", "visitors", "hash = ?1"), &member.hash.0, bit);
        let read = crate::views::read::load_lookup(&world.origin.conn, world.origin.tenant("demo").no, member);
        assert!(read.is_err_and(|why| why.is_of_a_value()), "bit {bit}");
        let run = world.all(JobKind::Scrub, false);
        assert_eq!(
            (run.outcome, &run.report["damaged_lookups"]),
            (Some(RunOutcome::Done), &json!(1)),
            "{}",
            run.report
        );
        assert_eq!(world.origin.lookup("demo", "ann"), [visitor(1)]);
    }
}

#[test]
fn a_damaged_catalogue_is_found_and_never_handed_out() {
    let mut world = lived();
    let (conn, tenant) = (&world.origin.conn, world.origin.tenant("demo").no);
    let put = "INSERT INTO catalogues (tenant, version, applied, by, sha256, experiments, document)
        VALUES (?1, 7, ?2, 'cli', zeroblob(32), '[]', '{}')";
    conn.execute(put, (tenant.0, NOW.cast_signed())).unwrap();
    assert!(catalogue::stored_version(conn, tenant, Some(7)).is_err_and(|why| why.is_of_a_value()));
    let run = world.all(JobKind::Scrub, false);
    assert_eq!((run.outcome, &run.report["damaged_tenant_values"]), (Some(RunOutcome::Failed), &json!(1)));
    assert_eq!(run.report["first"][0]["table"], "catalogues");
}
