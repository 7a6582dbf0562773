#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use causeway_shared::base::ids::{AltHash, AlternateId, FactId, InsertionId, KindCode, SnapshotVersion};
use causeway_shared::base::random::Random;
use causeway_shared::base::time::{DAY_MS, HourStamp, Minute};
use causeway_shared::facts::actions::{ActionType, AdEntity, ViewType};
use causeway_shared::facts::attributes::{AttributeValue as Attribute, FiniteNumber};
use causeway_shared::facts::events::VisitorEvents;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::fact::{ErasureScope, Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::file::TableSource;
use super::*;
use crate::base::attribution::Attribution;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::kv::value;
use crate::maintenance::backup::{self, ReplacedStore};
use crate::maintenance::{reconcile, trim};
use crate::outbox::kv_key::KvKey;
use crate::pipeline::commit;
use crate::profiles::parts;
use crate::store;
use crate::store::LockError;
use crate::store::OpenError;
use crate::store::VisitorRow;
use crate::store::visitor_at;
use crate::testing::{NOW, Origin, exposure, fact, impression, page, purchase, visitor, withdrawal};

const HOUR: u32 = 70_000;

/// One attribute of each kind, including values that a text format could lose.
fn attribute(n: u32) -> (String, Option<Attribute>) {
    let value = match n % 6 {
        0 => Attribute::Bool(n.is_multiple_of(4)),
        1 => Attribute::Integer(i64::MIN + i64::from(n)),
        2 => Attribute::Float(FiniteNumber::new(0.1 + f64::from(n) * 1e-17 + 5.4e-300).unwrap()),
        3 => Attribute::String(if n.is_multiple_of(2) { "2020-02-29".to_owned() } else { format!("\u{fc}\"\\\n{n}") }),
        4 => Attribute::Date(18_321 + i32::try_from(n).unwrap()),
        _ => Attribute::Strings([format!("a{n}"), "2020-01-01".to_owned()].into()),
    };
    // The fourth name has string values, some of which look like a date.
    (format!("name_{}", n % 6), (!n.is_multiple_of(7)).then_some(value))
}

/// One fact of any kind.
fn any(origin: &Origin, tenant: &str, n: u32, some: &mut impl FnMut(u32) -> u32) -> Fact {
    let (who, at) = (visitor(1 + some(30)), NOW + u64::from(some(1_000)) - u64::from(some(20)) * DAY_MS);
    let kind = KindCode(if some(3) == 0 { 2 } else { 1 });
    let id = origin.id(tenant, kind, &format!("{}", some(9)));
    let mut other = [0; 16];
    other.copy_from_slice(&[u8::try_from(some(200)).unwrap(); 16]);
    let also = if some(4) == 0 { vec![AltHash(other)] } else { Vec::new() };
    match some(20) {
        0 => withdrawal(who, at),
        1 => fact(who, n, at, FactKind::Cancellation { id }),
        2 => fact(who, n, at, FactKind::Alias { id, also, proven: false }),
        3 => {
            let id = if some(2) == 0 { id } else { AlternateId::pair(who, visitor(1 + some(30))) };
            fact(
                who,
                n,
                at,
                FactKind::Evidence {
                    id,
                    also: Vec::new(),
                    weight: EvidenceWeight(1 + some(999) as u16),
                    source: causeway_shared::facts::evidence::EvidenceSource::Household,
                },
            )
        }
        4..6 => fact(who, n, at, FactKind::Alias { id, also, proven: true }),
        6 => purchase(who, n, at, i64::from(some(1_000_000))),
        7 => exposure(who, n, at, 1 + some(2), 1 + u8::try_from(some(2)).unwrap()),
        8 => fact(who, n, at, FactKind::OfferCode { campaign: 1 + some(4), number: n }),
        9 | 10 => {
            let state = |n: u32| match n % 3 {
                0 => SegmentState::Removed,
                pairs => SegmentState::held(HourStamp(HOUR + n), (0..pairs).map(|t| (t as u16 * 9, -1 - n as i32))),
            };
            fact(
                who,
                n,
                at,
                FactKind::Segments { writes: (0..some(9)).map(|_| (SegmentId(some(50)), state(some(99)))).collect() },
            )
        }
        11 | 12 => {
            let writes: BTreeMap<_, _> = (0..1 + some(5)).map(|_| attribute(some(60))).collect();
            fact(who, n, at, FactKind::Attributes { writes: writes.into_iter().collect() })
        }
        13 if some(6) == 0 => {
            let scope = if some(2) == 0 { ErasureScope::Visitor } else { ErasureScope::Person };
            Fact { id: FactId::of_erasure(who), ..fact(who, n, at, FactKind::Erasure { scope, id: Some(id), also }) }
        }
        13..18 => {
            let entity = AdEntity { ad: some(9), ad_group: 3, campaign: 2, advertiser: u32::MAX };
            let insertion = InsertionId((u128::from(n) << 96 | 7).to_be_bytes());
            let action_type = ActionType(1 + u8::try_from(some(2)).unwrap());
            fact(
                who,
                n,
                at,
                FactKind::Action {
                    insertion,
                    action_type,
                    view_type: ViewType(u8::try_from(some(3)).unwrap()),
                    entity,
                },
            )
        }
        _ => page(who, n, at),
    }
}

/// A write that an edge received up to a day after it was made, as one of several in its call.
fn written_before_receipt(fact: Fact, n: u32) -> Fact {
    match fact.what {
        FactKind::Segments { .. } | FactKind::Attributes { .. } => {
            Fact { at: fact.at - u64::from(n % 5) * 20_000_003, position: n % 3, ..fact }
        }
        _ => fact,
    }
}

/// Sends facts of all kinds, of two tenants; some are erased or trimmed. Returns the facts that were sent.
fn life(origin: &mut Origin, seed: u8) -> Vec<(&'static str, Fact)> {
    let mut random = Random::new([seed; 32]);
    let mut some = |most: u32| u32::from_be_bytes(random.draw()) % most;
    let mut sent: Vec<(&str, Fact)> = Vec::new();
    for n in 0..400 {
        // A few facts of one tenant in a row.
        let tenant = if n / 8 % 5 == 0 { "other" } else { "demo" };
        sent.push((tenant, written_before_receipt(any(origin, tenant, n, &mut some), n)));
    }
    let is_admins = |fact: &Fact| matches!(fact.what, FactKind::Cancellation { .. });
    for some in sent.chunk_by(|a, b| a.0 == b.0 && is_admins(&a.1) == is_admins(&b.1)) {
        let facts: Vec<Fact> = some.iter().map(|(_, fact)| fact.clone()).collect();
        if facts.iter().any(is_admins) { origin.admin(some[0].0, &facts) } else { drop(origin.send(some[0].0, &facts)) }
    }
    let demo = origin.tenant("demo").no;
    crate::store::names::events::declare_names(&mut origin.conn, demo, &["signup".to_owned()].into(), NOW).unwrap();
    // A change with an author and a reason.
    let [one, two] = [visitor(28), visitor(29)];
    let what = FactKind::Evidence {
        id: AlternateId::pair(one, two),
        also: Vec::new(),
        weight: EvidenceWeight(1),
        source: causeway_shared::facts::evidence::EvidenceSource::Match,
    };
    let tie = fact(one, 999, NOW, what);
    let record = LogRecord::with_attribution(
        vec![CheckedFact { tenant: origin.tenant("demo").no, fact: tie.clone() }],
        Attribution::cli(Some("ann"), Some("a \"reason\", \u{fc}".to_owned())),
    );
    let given = origin.given();
    commit::commit_group(&mut origin.conn, &origin.rules, &origin.metrics, given, &[Arc::new(record)], &[]).unwrap();
    sent.push(("demo", tie));
    // Many actions on one day fill hours and minutes.
    let many: Vec<Fact> =
        (0..300).map(|n| impression(visitor(2), 5_000 + n, NOW - DAY_MS + u64::from(n % 90) * 60_000)).collect();
    origin.send("demo", &many);
    sent.extend(many.into_iter().map(|fact| ("demo", fact)));
    trim::trim_page(&origin.conn, VisitorRow::default(), 1_000, NOW + 2 * DAY_MS, &mut trim::TrimReport::default())
        .unwrap();
    // One visitor has more events than are stored; for another, some names were left out.
    let mut many = VisitorEvents::default();
    for n in 0..300 {
        many.add("page", Minute(4_000_000 - n * 777));
        many.add(&format!("view_{n}"), Minute(4_000_000 - n / 200));
    }
    assert!(parts::write_events(&origin.conn, VisitorRow::from_number(3), many).unwrap());
    let old = "UPDATE visitors SET events = x'' WHERE row % 5 = 1";
    assert!(origin.conn.execute(old, []).unwrap() > 3);
    // Rows that none of these facts create.
    let fixed = "INSERT INTO models VALUES (1, 3, 5, x'6cdbfd7200ff', '{}'); INSERT INTO spend VALUES (1, 2, -1, 77), (2, 2, 9, -5);
        INSERT INTO purchases_unpaid VALUES (2, -9223372036854775808, 7, 8, -9, 10, -3), (2, 4, 7, 8, -9, 10, NULL);
        INSERT INTO orders_paid VALUES (2, -3, 7);
        INSERT INTO fact_ids_over VALUES (2, 2000, 5), (2, 2000, -9223372036854775808);
        INSERT INTO anonymous_facts VALUES (1, 2000, -9223372036854775808); INSERT INTO catalogue_codes VALUES (1, 'ad', 'a''\"', 4, NULL, NULL);
        INSERT INTO catalogues (tenant, version, document, sha256, experiments, applied, by, replaced)
            VALUES (1, 9, '{\"a\":\"\u{fc}\"}', zeroblob(32), '[]', 1, 'cli', 7);
        INSERT INTO audiences VALUES (1, 9, '{}', 48, 24, 5, NULL, 1), (1, 10, NULL, 1, 0, NULL, 7, 0);
        INSERT INTO audience_members SELECT tenant, 9, visitor, 70001 FROM visitors WHERE tenant = 1 LIMIT 3;
        INSERT INTO sends (tenant, name, filter, count, experiment, webhook, per_second, random, requested, chosen, next, delivered, due)
            VALUES (1, 'may', '{\"segments\":9}', 3, 'e-1', 1, 40, -7, 5, 3, 2, 2, 6), (1, 'june', '{}', 1, NULL, 0, 0, 8, 5, NULL, 0, 0, NULL);
        INSERT INTO send_people SELECT 1, row, visitor, 2, nullif(row % 6, 0), nullif(row, 3) FROM visitors WHERE tenant = 1;
        INSERT INTO tokens VALUES (1, x'01', 'viewer', 'one', 1, NULL, NULL, NULL, NULL)";
    origin.conn.execute_batch(fixed).unwrap();
    sent
}

fn quiet(_: &str, _: u64) {}

fn export(conn: &mut Connection, form: ExportFormat) -> (TempDir, Manifest) {
    let folder = tempfile::tempdir().unwrap();
    let manifest =
        run(conn, Job { to: folder.path(), form, tenant: None, thresholds: &BTreeMap::new(), now: NOW }, &mut quiet)
            .unwrap();
    assert_eq!(load::read_manifest(folder.path()).unwrap(), manifest);
    (folder, manifest)
}

/// Loads an export as the command does.
fn loaded(from: &Path, data: &Path) -> Result<Connection, load::LoadError> {
    let manifest = load::read_manifest(from)?;
    load::check_files(from, &manifest, &mut quiet)?;
    load::run(data, from, &manifest, NOW, &mut quiet)?;
    Ok(store::open(data)?)
}

/// The files of an export by name, without the manifest.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| name != MANIFEST).collect()
}

fn rows_of(folder: &Path, form: ExportFormat, table: &ExportTable) -> Vec<Vec<FileCell>> {
    let mut source = TableSource::open(form, &folder.join(form.name(table.name)), table).unwrap();
    std::iter::from_fn(|| source.next().unwrap()).collect()
}

#[test]
fn the_round_trip_is_exact_in_every_form() {
    let mut met = BTreeSet::new();
    for seed in 0..4 {
        let mut origin = Origin::tested();
        life(&mut origin, seed);
        let (lines, manifest) = export(&mut origin.conn, ExportFormat::Ndjson);
        let (columns, _) = export(&mut origin.conn, ExportFormat::Parquet);
        let (cells, _) = export(&mut origin.conn, ExportFormat::Csv);
        for (table, entry) in TABLES.iter().zip(&manifest.tables) {
            let rows = rows_of(lines.path(), ExportFormat::Ndjson, table);
            for (form, folder) in [(ExportFormat::Parquet, &columns), (ExportFormat::Csv, &cells)] {
                assert_eq!(rows, rows_of(folder.path(), form, table), "{}, {form:?}, seed {seed}", table.name);
            }
            assert_eq!(rows.len() as u64, entry.rows);
            met.extend((!rows.is_empty()).then_some(table.name));
        }
        for (form, folder) in
            [(ExportFormat::Ndjson, &lines), (ExportFormat::Parquet, &columns), (ExportFormat::Csv, &cells)]
        {
            let data = tempfile::tempdir().unwrap();
            let mut conn = loaded(folder.path(), data.path()).unwrap();
            let (again, after) = export(&mut conn, form);
            assert_eq!(after.tables.len(), manifest.tables.len());
            for (name, bytes) in files(folder.path()) {
                assert!(bytes == files(again.path())[&name], "{name} differs, seed {seed}");
            }
            assert!(after.restore_epoch > manifest.restore_epoch);
            let plan = reconcile::plan(&conn, &origin.rules.tenants, &|_, _| Ok(())).unwrap();
            assert_eq!(plan.differences, [], "seed {seed}");
            assert!(plan.visitors > 20 && !data.path().join(store::RESTORING).exists());
        }
    }
    let all: BTreeSet<&str> = TABLES.iter().map(|table| table.name).collect();
    assert_eq!(met, all, "every table had rows");
}

#[test]
fn writes_that_were_received_after_they_were_made_come_back_as_they_were() {
    let mut origin = Origin::tested();
    let writes = [
        FactKind::Segments { writes: vec![(SegmentId(7), SegmentState::held(HourStamp(HOUR), []))] },
        FactKind::Attributes { writes: vec![attribute(6)] },
    ];
    // From no delay to the longest that a stamp can express.
    let delays = [0, 1, 2, 1_000, 35 * DAY_MS, u64::from(u32::MAX)];
    for (n, delay) in (1..).zip(delays) {
        let facts: Vec<Fact> = (0..).zip(&writes).map(|(at, what)| fact(visitor(n), at, NOW, what.clone())).collect();
        let facts = facts.into_iter().map(|fact| Fact { at: NOW - delay, position: u32::MAX, ..fact });
        origin.admin("demo", &facts.collect::<Vec<_>>());
    }
    for form in [ExportFormat::Ndjson, ExportFormat::Csv, ExportFormat::Parquet] {
        let (folder, manifest) = export(&mut origin.conn, form);
        let rows = |table: &str| manifest.tables.iter().find(|entry| entry.name == table).map(|entry| entry.rows);
        assert_eq!([rows("segments"), rows("attributes")], [Some(delays.len() as u64); 2]);
        let data = tempfile::tempdir().unwrap();
        let mut conn = loaded(folder.path(), data.path()).unwrap();
        let (again, _) = export(&mut conn, form);
        assert!(files(folder.path()) == files(again.path()), "{form:?}");
    }
}

/// The published values of all visitors and ids, each under the same version.
fn published(conn: &Connection, origin: &Origin) -> BTreeMap<String, Option<String>> {
    let mut read = conn
        .prepare("SELECT t.name, o.kind, o.subject FROM outbox o JOIN tenants t USING (tenant) WHERE kind < 256")
        .unwrap();
    let rows = read.query_map([], |row| {
        let subject = match row.get(1)? {
            0 => KvKey::Snapshot(visitor_at(row, 2)?),
            kind => KvKey::Lookup(KindCode(kind), AltHash(row.get(2)?)),
        };
        Ok((row.get::<_, String>(0)?, subject))
    });
    let version = SnapshotVersion { restore: u32::MAX, counter: 1 };
    let build = |(tenant, subject): (String, KvKey)| {
        let built = value::build(conn, origin.tenant(&tenant), subject, version, NOW).unwrap();
        (built.key, built.value)
    };
    rows.unwrap().map(Result::unwrap).map(build).collect()
}

#[test]
fn an_imported_store_publishes_the_same_as_the_exported_one_and_counts_nothing_twice() {
    for seed in 20..22 {
        let mut origin = Origin::tested();
        let sent = life(&mut origin, seed);
        let (folder, _) = export(&mut origin.conn, ExportFormat::Parquet);
        let data = tempfile::tempdir().unwrap();
        let conn = loaded(folder.path(), data.path()).unwrap();
        // As after a restore; then only the versions of visitors differ.
        backup::renew_store(&mut origin.conn, &ReplacedStore::default(), NOW).unwrap();
        origin.conn.execute("UPDATE visitors SET version = 1", []).unwrap();
        let expected = published(&origin.conn, &origin);
        assert!(expected.len() > 40, "seed {seed}: {}", expected.len());
        assert_eq!(published(&conn, &origin), expected, "seed {seed}");
        let exported = std::mem::replace(&mut origin.conn, conn);
        drop(exported);
        for tenant in ["demo", "other"] {
            let again =
                sent.iter().filter(|(of, fact)| *of == tenant && !matches!(fact.what, FactKind::Cancellation { .. }));
            let again: Vec<Fact> = again.map(|(_, fact)| fact.clone()).collect();
            assert_eq!(origin.send(tenant, &again).accepted, 0, "seed {seed}");
        }
    }
}

#[test]
fn what_belongs_to_the_empty_store_stays_and_versions_go_on_above_both() {
    let mut origin = Origin::tested();
    life(&mut origin, 1);
    origin.conn.execute("UPDATE meta SET restore_epoch = 2000000000", []).unwrap();
    let (folder, _) = export(&mut origin.conn, ExportFormat::Ndjson);
    let data = tempfile::tempdir().unwrap();
    let empty = store::open(data.path()).unwrap();
    store::tenant_no(&empty, "zebra").unwrap();
    empty
        .execute_batch("INSERT INTO tokens VALUES (7, x'07', 'viewer', 'kept', 1, NULL, NULL, NULL, NULL); UPDATE meta SET folded = 5")
        .unwrap();
    drop(empty);
    let mut conn = loaded(folder.path(), data.path()).unwrap();
    let kept: (String, i64, i64) = conn
        .query_row(
            "SELECT (SELECT group_concat(name) FROM tokens), (SELECT tenant FROM tenants WHERE name = 'zebra'), folded
            FROM meta",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(kept, ("kept".to_owned(), 1, 5));
    let counters = StoreCounters::load(&conn).unwrap();
    assert_eq!((counters.version().restore, counters.epoch().0 >> 32), (2_000_000_001, 2_000_000_001));
    let lower =
        "SELECT count(*) FROM people WHERE epoch >> 32 <> 2000000001 OR epoch > (SELECT epoch_counter FROM meta)";
    assert_eq!(conn.query_row(lower, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    let undue = "SELECT count(*) FROM visitors v WHERE NOT EXISTS
        (SELECT 1 FROM outbox o WHERE o.kind = 0 AND o.tenant = v.tenant AND o.subject = v.visitor AND o.due IS NOT NULL)";
    assert_eq!(conn.query_row(undue, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    // A tenant stays the same under another number.
    let (again, _) = export(&mut conn, ExportFormat::Ndjson);
    assert!(files(folder.path()) == files(again.path()));
}

#[test]
fn one_tenant_alone_can_be_exported() {
    let mut origin = Origin::tested();
    life(&mut origin, 2);
    let folder = tempfile::tempdir().unwrap();
    let job = Job {
        to: folder.path(),
        form: ExportFormat::Ndjson,
        tenant: Some("other"),
        thresholds: &BTreeMap::new(),
        now: NOW,
    };
    let manifest = run(&mut origin.conn, job, &mut quiet).unwrap();
    assert_eq!(manifest.tenants, ["other"]);
    let visitors = rows_of(folder.path(), ExportFormat::Ndjson, &TABLES[1]);
    assert!(visitors.len() > 5 && visitors.iter().all(|row| row[0] == FileCell::Text("other".to_owned())));
    let nobody = Job { tenant: Some("nobody"), ..job };
    assert!(matches!(run(&mut origin.conn, nobody, &mut quiet), Err(ExportError::Tenant(_))));
    assert!(matches!(run(&mut origin.conn, job, &mut quiet), Err(ExportError::NotEmpty(_))));
}

/// Replaces the file of a table and updates the manifest.
fn replace(folder: &Path, form: ExportFormat, table: &str, bytes: &[u8]) {
    fs::write(folder.join(form.name(table)), bytes).unwrap();
    let mut manifest = load::read_manifest(folder).unwrap();
    let entry = manifest.tables.iter_mut().find(|entry| entry.name == table).unwrap();
    (entry.bytes, entry.sha256) = crate::maintenance::file_digest::file_digest(&folder.join(form.name(table))).unwrap();
    fs::write(folder.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
}

/// Changes one row of a table in lines; returns the error of loading it.
fn broken(folder: &Path, table: &str, row: usize, change: impl FnOnce(&mut Value)) -> String {
    let path = folder.join(ExportFormat::Ndjson.name(table));
    let (before, manifest) = (fs::read(&path).unwrap(), fs::read(folder.join(MANIFEST)).unwrap());
    let mut lines: Vec<Value> =
        before.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
    change(&mut lines[row - 1]);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    replace(folder, ExportFormat::Ndjson, table, text.as_bytes());
    let data = tempfile::tempdir().unwrap();
    let said = loaded(folder, data.path()).unwrap_err();
    let left: Vec<_> = fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left.contains(&crate::store::data_fault::STORE.into()) && !left.contains(&store::RESTORING.into()),
        "{left:?}"
    );
    fs::write(path, before).unwrap();
    fs::write(folder.join(MANIFEST), manifest).unwrap();
    crate::base::error_chain(&said)
}

#[test]
fn broken_rows_are_refused_with_file_row_and_reason() {
    let mut origin = Origin::tested();
    life(&mut origin, 3);
    let (folder, _) = export(&mut origin.conn, ExportFormat::Ndjson);
    let set = |field: &'static str, value: Value| move |row: &mut Value| row[field] = value;
    let unknown = visitor(999).to_string();
    type Change = Box<dyn FnOnce(&mut Value)>;
    let cases: [(&str, usize, Change, &str); 19] = [
        ("visitors", 2, Box::new(set("tenant", json!("nobody"))), "no tenant `nobody`"),
        ("visitors", 3, Box::new(set("visitor", json!("0192"))), "`visitor` is not a UUID of version 7"),
        ("visitors", 3, Box::new(set("master", json!(unknown))), "that it refers to"),
        ("visitors", 3, Box::new(set("profile", json!("AAAA"))), "`profile` cannot be read"),
        ("visitors", 3, Box::new(set("pages", json!(1_000_000))), "after `profile`"),
        ("visitors", 4, Box::new(|row| drop(row.as_object_mut().unwrap().remove("master"))), "`master` is missing"),
        ("evidence", 2, Box::new(set("hash", json!("00"))), "32 hexadecimal digits"),
        ("evidence", 2, Box::new(set("weight", json!(70_000))), "from 0 to 65535"),
        ("evidence", 2, Box::new(set("first_ms", json!(1.5))), "`first_ms` is not a whole number"),
        ("attribute_names", 1, Box::new(set("name", json!("n".repeat(5_000)))), "at most 4096 bytes"),
        ("exposures", 1, Box::new(set("mixed", json!(1))), "`mixed` is not true or false"),
        ("segments", 1, Box::new(set("attributes", json!("[7]"))), "not an object of whole numbers"),
        ("attributes", 1, Box::new(set("name", json!("another"))), "is not in attribute_names"),
        ("events", 1, Box::new(set("count", json!(0))), "less than the sum of `minutes`"),
        ("events", 1, Box::new(set("minutes", json!("{\"x\":1}"))), "`minutes` is not an object of whole numbers"),
        ("events", 1, Box::new(set("days", json!("{\"0\":0}"))), "`days` has an entry before its first one"),
        ("events", 1, Box::new(set("name", json!("n".repeat(129)))), "1 to 128 bytes"),
        ("event_gaps", 1, Box::new(set("left_out", json!(1))), "`left_out` is not true or false"),
        ("offer_codes", 1, Box::new(set("visitor", json!(unknown))), "that it refers to"),
    ];
    for (table, row, change, why) in cases {
        let said = broken(folder.path(), table, row, change);
        assert!(said.contains(&format!("{table}.ndjson, row {row}: ")) && said.contains(why), "{table} {why}: {said}");
    }
    let said = broken(folder.path(), "actions", 1, set("visitor", json!(unknown)));
    assert!(said.contains("actions.ndjson, row 2: up to here: its visitor"), "{said}");
    let whole = |row: &Value| row["minutes_from"] == 0;
    let events = fs::read_to_string(folder.path().join("events.ndjson")).unwrap();
    let row = events.lines().position(|line| whole(&serde_json::from_str(line).unwrap())).unwrap() + 1;
    let said = broken(folder.path(), "events", row, |row| row["count"] = json!(row["count"].as_u64().unwrap() + 1));
    assert!(said.contains("events.ndjson, row") && said.contains("no facts add up to the visitor's events"), "{said}");
    let twice = fs::read(folder.path().join("evidence.ndjson")).unwrap();
    replace(folder.path(), ExportFormat::Ndjson, "evidence", &[twice.clone(), twice].concat());
    let data = tempfile::tempdir().unwrap();
    let said = crate::base::error_chain(&loaded(folder.path(), data.path()).unwrap_err());
    assert!(said.contains("evidence.ndjson, row") && said.contains("UNIQUE"), "{said}");
}

#[test]
fn broken_files_and_manifests_are_refused_before_anything_is_written() {
    let mut origin = Origin::tested();
    life(&mut origin, 4);
    for form in [ExportFormat::Parquet, ExportFormat::Ndjson, ExportFormat::Csv] {
        let refused = |change: &dyn Fn(&Path), why: &str| {
            let (folder, _) = export(&mut Connection::open(origin.conn.path().unwrap()).unwrap(), form);
            change(folder.path());
            let data = tempfile::tempdir().unwrap();
            let said = crate::base::error_chain(&loaded(folder.path(), data.path()).unwrap_err());
            assert!(said.contains(why), "{form:?}: {said}");
            assert!(!store::store_file(data.path()).exists() && !data.path().join(store::RESTORING).exists());
        };
        let visitors = form.name("visitors");
        let change = |with: &dyn Fn(&mut Vec<u8>), folder: &Path| {
            let mut bytes = fs::read(folder.join(&visitors)).unwrap();
            with(&mut bytes);
            fs::write(folder.join(&visitors), bytes).unwrap();
        };
        refused(&|folder| change(&|bytes| bytes.truncate(bytes.len() - 9), folder), "the manifest says");
        refused(
            &|folder| {
                change(
                    &|bytes| {
                        let at = bytes.len() / 2;
                        bytes[at] ^= 1
                    },
                    folder,
                )
            },
            "sha256",
        );
        refused(&|folder| fs::remove_file(folder.join(&visitors)).unwrap(), "cannot read");
        refused(&|folder| fs::remove_file(folder.join(MANIFEST)).unwrap(), "manifest.json");
        let said = |with: &dyn Fn(&mut Value), folder: &Path| {
            let mut manifest: Value = serde_json::from_slice(&fs::read(folder.join(MANIFEST)).unwrap()).unwrap();
            with(&mut manifest);
            fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
        };
        refused(
            &|folder| said(&|manifest| manifest["schema"] = json!(1), folder),
            "its schema is 1, this release reads 10",
        );
        refused(&|folder| said(&|manifest| manifest["tables"][1]["file"] = json!("../x"), folder), "its tables");
        refused(
            &|folder| said(&|manifest| manifest["tables"][1]["rows"] = json!(1), folder),
            "rows, the manifest says 1",
        );
        refused(&|folder| said(&|manifest| manifest["restore_epoch"] = json!(u32::MAX), folder), "its restore epoch");
        refused(&|folder| said(&|manifest| manifest["tenants"] = json!(["a", "a"]), folder), "its tenants");
        // A manifest with the digest of an invalid file.
        let cut = |folder: &Path| {
            let bytes = fs::read(folder.join(&visitors)).unwrap();
            replace(folder, form, "visitors", &bytes[..bytes.len() / 2]);
        };
        refused(&cut, &visitors);
        let other = |folder: &Path| {
            let bytes = fs::read(folder.join(form.name("people"))).unwrap();
            replace(folder, form, "visitors", &bytes);
        };
        refused(&other, &visitors);
    }
}

#[test]
fn a_flipped_byte_of_a_parquet_file_never_ends_the_process() {
    let mut origin = Origin::tested();
    life(&mut origin, 5);
    let (folder, _) = export(&mut origin.conn, ExportFormat::Parquet);
    let (table, path) = (&TABLES[0], folder.path().join("people.parquet"));
    let (whole, rows) = (fs::read(&path).unwrap(), rows_of(folder.path(), ExportFormat::Parquet, table));
    let mut refused = 0;
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        let read = |mut source: TableSource| -> Result<usize, String> {
            let mut count = 0;
            while count <= 2 * rows.len() && source.next()?.is_some() {
                count += 1;
            }
            Ok(count)
        };
        refused += usize::from(TableSource::open(ExportFormat::Parquet, &path, table).and_then(read).is_err());
    }
    assert!(refused > whole.len() / 12, "{refused} of {}", whole.len());
}

#[test]
fn a_store_that_knows_something_is_not_replaced() {
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(1), 1, NOW)]);
    let (folder, _) = export(&mut origin.conn, ExportFormat::Ndjson);
    let data = tempfile::tempdir().unwrap();
    drop(loaded(folder.path(), data.path()).unwrap());
    let again = loaded(folder.path(), data.path()).unwrap_err();
    assert!(again.to_string().ends_with("is not empty: it has people"), "{again}");
    // Facts that are acknowledged but not folded yet.
    let data = tempfile::tempdir().unwrap();
    let log = Connection::open(data.path().join(crate::store::data_fault::LOG)).unwrap();
    drop(crate::ingest::log::FactLog::of(log, 0).unwrap());
    let log = Connection::open(data.path().join(crate::store::data_fault::LOG)).unwrap();
    log.execute("INSERT INTO log (seq, taken, body) VALUES (3, 1, x'00')", []).unwrap();
    let waiting = loaded(folder.path(), data.path()).unwrap_err();
    assert!(waiting.to_string().contains("facts that wait in its log"), "{waiting}");
    let _serving = store::lock_folder(data.path()).unwrap();
    log.execute("DELETE FROM log", []).unwrap();
    let served = loaded(folder.path(), data.path()).unwrap_err();
    assert!(matches!(served, load::LoadError::Lock(LockError::InUse(_))), "{served}");
}

#[test]
fn an_interrupted_load_leaves_a_store_that_nobody_serves_and_begins_again() {
    let mut origin = Origin::tested();
    life(&mut origin, 6);
    let (folder, _) = export(&mut origin.conn, ExportFormat::Parquet);
    let data = tempfile::tempdir().unwrap();
    let manifest = load::read_manifest(folder.path()).unwrap();
    let ended = std::panic::catch_unwind(|| {
        let mut some = |table: &str, rows: u64| assert!(table != "evidence" || rows == 0, "the power goes");
        load::run(data.path(), folder.path(), &manifest, NOW, &mut some)
    });
    assert!(ended.is_err() && data.path().join(store::RESTORING).exists());
    assert!(matches!(store::open(data.path()), Err(OpenError::HalfRestored(_))));
    let mut conn = loaded(folder.path(), data.path()).unwrap();
    let (again, _) = export(&mut conn, ExportFormat::Parquet);
    assert!(files(folder.path()) == files(again.path()));
}

#[test]
fn no_table_is_sorted_as_a_whole_to_be_exported() {
    let origin = Origin::new();
    for table in TABLES {
        let Some(read) = table.read() else { continue };
        let mut plan = origin.conn.prepare(&format!("EXPLAIN QUERY PLAN {read}")).unwrap();
        let steps = plan.query_map([1], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        assert!(!steps.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY"), "{}: {steps:?}", table.name);
    }
}

#[test]
fn the_document_says_every_column_of_every_table() {
    let document = include_str!("../../../../docs/EXPORT.md");
    for table in TABLES {
        let section = document.split(&format!("### `{}`", table.name)).nth(1);
        let section = section.unwrap_or_else(|| unreachable!("no section of {}", table.name));
        let section = section.split("\n### ").next().unwrap();
        let listed: Vec<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let specs: Vec<&str> = table.columns.split(", ").collect();
        let parsed = table.columns();
        assert_eq!(parsed.len(), specs.len(), "a kind of {} is not known", table.name);
        assert_eq!(listed, parsed.iter().map(|column| column.name).collect::<Vec<_>>(), "{}", table.name);
        for (spec, column) in specs.iter().zip(parsed) {
            let kind = spec.split_once(' ').unwrap().1.trim_start_matches("checked ");
            let line = format!("| `{}` | {kind} |", column.name);
            assert!(section.contains(&line), "{}: `{line}` is not there", table.name);
        }
    }
}

/// The people that the evidence of an export gives: the smallest visitor connected to each visitor.
#[test]
fn connected_components_of_the_exported_files_are_the_people() {
    for seed in 30..34 {
        let mut origin = Origin::tested();
        life(&mut origin, seed);
        let (folder, _) = export(&mut origin.conn, ExportFormat::Ndjson);
        let lines = |table: &str| -> Vec<Value> {
            let text = fs::read_to_string(folder.path().join(ExportFormat::Ndjson.name(table))).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let name = |row: &Value, column: &str| format!("{}/{}", row["tenant"], row[column]);
        let mut least: BTreeMap<String, String> =
            lines("visitors").iter().map(|row| (name(row, "visitor"), name(row, "visitor"))).collect();
        let links: Vec<(String, String)> = lines("evidence")
            .iter()
            .filter(|row| row["weight"] == 1_000 && row["flag"].is_null())
            .filter(|row| row["cancelled_ms"].as_u64().is_none_or(|at| row["last_ms"].as_u64().unwrap() > at))
            .map(|row| (name(row, "visitor"), format!("{}/{}/{}", row["tenant"], row["kind"], row["hash"])))
            .collect();
        loop {
            let mut of_id: BTreeMap<&str, String> = BTreeMap::new();
            for (visitor, id) in &links {
                let there = of_id.entry(id).or_insert_with(|| least[visitor].clone());
                *there = least[visitor].clone().min(there.clone());
            }
            let before = least.clone();
            for (visitor, id) in &links {
                let smaller = of_id[id.as_str()].clone().min(least[visitor].clone());
                least.insert(visitor.clone(), smaller);
            }
            if least == before {
                break;
            }
        }
        let stored: BTreeMap<String, String> =
            lines("visitors").iter().map(|row| (name(row, "visitor"), name(row, "master"))).collect();
        assert_eq!(least, stored, "seed {seed}");
        assert!(stored.values().collect::<BTreeSet<_>>().len() < stored.len());
    }
}

#[test]
fn a_file_has_its_name_once_it_is_whole_and_replaces_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("people.csv");
    let names = || {
        let all = std::fs::read_dir(folder.path()).unwrap();
        all.map(|one| one.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    // The rest of a killed process.
    std::fs::write(folder.path().join("people.csv.part"), "half of it, and longer than all").unwrap();
    let write = |text: &'static str| {
        whole(&path, |mut file| {
            file.write_all(text.as_bytes())?;
            assert_eq!(names(), ["people.csv.part"]);
            if text.is_empty() { Err(io::Error::other("the disk is full")) } else { Ok(text.len()) }
        })
    };
    assert_eq!(write("").unwrap_err().to_string(), "the disk is full");
    assert_eq!(names(), [""; 0]);
    let other = std::fs::File::create(folder.path().join("people.csv.part")).unwrap();
    other.lock().unwrap();
    assert_eq!(write("one\n").unwrap_err().kind(), io::ErrorKind::WouldBlock, "another writes it");
    drop(other);
    assert_eq!(write("one\n").unwrap(), 4);
    assert_eq!((names(), std::fs::read_to_string(&path).unwrap()), (vec!["people.csv".to_owned()], "one\n".to_owned()));
    assert_eq!(write("two\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
}
