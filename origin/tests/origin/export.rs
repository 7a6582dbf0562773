//! `causeway export` and `causeway import everything`, and a Spark job on the export.

use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_shared::base::ids::KindCode;
use causeway_shared::facts::fact::{Fact, FactKind};
use serde_json::{Value, json};

use crate::support::{Origin, Place, fact, impression, page, purchase, python_with, visitor};

const PYSPARK: &str = "pyspark==4.0.1";

/// Logins of forty visitors: members on several browsers, two of them on one, and a chain of partner ids.
fn logins(origin: &Origin) -> Vec<Fact> {
    let partner = |value: &str| {
        let keys = &origin.keys.tenants["demo"].alternate;
        causeway_shared::base::ids::AlternateId { kind: KindCode(2), hash: keys.hash_alternate(KindCode(2), value)[0] }
    };
    let link = |v: u32, n: u32, value: String| {
        fact(visitor(v), n, FactKind::Alias { id: partner(&value), also: Vec::new(), proven: true })
    };
    let mut facts: Vec<Fact> = (1..=40).map(|v| page(visitor(v), 1)).collect();
    facts.extend((1..=20).map(|v| origin.login(visitor(v), 2, &format!("m{}", v % 7))));
    facts.push(origin.login(visitor(3), 3, "m5"));
    // The chain is in reverse, so that the smallest visitor has the longest path.
    facts.extend((25..=35).flat_map(|v| [link(v, 4, format!("p{v}")), link(v, 5, format!("p{}", v + 1))]));
    facts
}

fn export(place: &Place, name: &str, form: &str) -> (PathBuf, Value) {
    let folder = place.path().join(name);
    let summary = place.json(&["export", "--to", folder.to_str().unwrap(), "--form", form]);
    (folder, summary)
}

#[test]
fn a_running_origin_is_exported_and_moved_to_another_folder() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&logins(&origin));
    origin.send(&[purchase(visitor(1), 6, 5_000_000), impression(visitor(1), 7)]);
    let (folder, summary) = export(&place, "lines", "ndjson");
    assert_eq!((&summary["rows"]["visitors"], &summary["tenants"]), (&json!(40), &json!(["demo", "pub"])), "{summary}");
    let from = folder.to_str().unwrap();
    let twice = place.run(&["export", "--to", from]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("choose another folder"), "{twice:?}");

    let other = Place::new();
    std::fs::copy(place.path().join("keys.json"), other.path().join("keys.json")).unwrap();
    let token = other.token("viewer");
    let asked = other.run(&["import", "everything", from]);
    assert!(String::from_utf8_lossy(&asked.stderr).contains("add --yes"), "{asked:?}");
    let serving = other.serve();
    let served = other.run(&["import", "everything", from, "--yes"]);
    assert!(String::from_utf8_lossy(&served.stderr).contains("stop it first"), "{served:?}");
    serving.kill();
    let done = other.json(&["import", "everything", from, "--yes"]);
    assert_eq!((&done["done"], &done["not_configured"]), (&json!(true), &json!([])), "{done}");
    let again = other.run(&["import", "everything", from, "--yes"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"), "{again:?}");

    let moved = other.serve();
    assert_eq!(moved.admin(&token, &format!("visitors/{}?tenant=demo", visitor(1))).status, 200);
    // Repeats of facts that the exporting origin counted change nothing.
    moved.send(&logins(&moved));
    for v in [1, 3, 30, 40] {
        let [mut here, mut there] = [place.inspect(visitor(v)), other.inspect(visitor(v))];
        for shown in [&mut here, &mut there] {
            shown.as_object_mut().unwrap().retain(|field, _| !field.ends_with("version"));
        }
        assert_eq!(here, there);
    }
    let job = other.json(&["job", "run", "reconcile", "--dry-run"]);
    assert_eq!(job["differences"], json!({}), "{job}");
}

#[test]
fn spark_reads_the_export_and_finds_the_same_people() {
    let Some(python) = python_with("pyspark", &[PYSPARK], &["java"]) else { return };
    let place = Place::new();
    let origin = place.serve();
    origin.send(&logins(&origin));
    let (folder, summary) = export(&place, "columns", "parquet");
    assert_eq!(summary["rows"]["visitors"], 40, "{summary}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/spark/components.py");
    let spark = |folder: &Path| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(folder).env("SPARK_LOCAL_IP", "127.0.0.1").env("PYSPARK_PYTHON", &python);
        let settings = "--master local[1] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 \
                        --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell";
        let output = command.env("PYSPARK_SUBMIT_ARGS", settings).output().unwrap();
        let result: Option<Value> = output.stdout.split(|b| *b == b'\n').find_map(|l| serde_json::from_slice(l).ok());
        let result = result.unwrap_or_else(|| unreachable!("{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), result)
    };
    let (code, result) = spark(&folder);
    // Seven members, eleven visitors in a chain, and the others alone.
    let people = 7 + 1 + (40 - 20 - 11);
    assert_eq!((code, &result["visitors"], &result["people"]), (Some(0), &json!(40), &json!(people)), "{result}");
    assert!(result["rounds"].as_u64().unwrap() > 10, "the chain takes one round for each link: {result}");

    // The job reports a store with wrong people.
    let conn = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
    let wrong = "UPDATE visitors SET person = (SELECT person FROM visitors WHERE visitor = ?1) WHERE visitor = ?2";
    conn.execute(wrong, [visitor(40).as_bytes(), visitor(35).as_bytes()]).unwrap();
    conn.execute("UPDATE people SET devices = 2 WHERE master = ?1", [visitor(40).as_bytes()]).unwrap();
    let (folder, _) = export(&place, "wrong", "parquet");
    let (code, result) = spark(&folder);
    assert_eq!((code, &result["visitors_that_differ"]), (Some(1), &json!(1)), "{result}");
    assert_eq!(result["people_that_differ"], 1, "{result}");
}
