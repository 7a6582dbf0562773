//! Links without a login: added over HTTP and by the command, and imported from files.

use std::sync::Arc;

use causeway_shared::facts::fact::Fact;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use serde_json::{Value, json};

use crate::support::{Place, hold, now, page, request, visitor};

/// A tenant that joins views over links without proof, and another tenant.
const TENANTS: &str = r#"
[[tenant]]
name = "demo"
hosts = ["a.example"]
link_threshold = 0.6
kinds = [{ name = "member", code = 1, unique = true }, { name = "household", code = 2 }]

[[tenant]]
name = "other"
hosts = ["b.example"]
"#;

fn id(n: u32) -> String {
    visitor(n).to_string()
}

fn check(place: &Place, a: u32, b: u32) -> Value {
    place.json(&["links", "check", &id(a), &id(b), "--tenant", "demo"])
}

#[test]
fn added_links_join_at_the_threshold_and_an_unlink_ends_them() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    origin.send(&(1..=6).map(|n| page(visitor(n), n)).collect::<Vec<_>>());
    origin.send(&[origin.login(visitor(1), 11, "ann"), origin.login(visitor(5), 11, "bert")]);
    let token = place.token("operator");
    let post = |body: Value| {
        let headers = [("authorization", format!("Bearer {token}"))];
        origin.call("POST", "/admin/v1/links?tenant=demo", &headers, body.to_string().as_bytes())
    };
    let pair = |a: u32, b: u32, weight: f64, source: &str| json!({ "visitor": id(a), "other": id(b), "weight": weight, "source": source });
    // Evidence below the threshold is stored and shown.
    assert_eq!(post(pair(1, 2, 0.5, "household")).status, 204);
    assert_eq!(check(&place, 1, 2)["connected"], json!(false));
    let evidence = &place.inspect(visitor(2))["links"][0];
    assert_eq!(
        (&evidence["visitor"], &evidence["weight"], &evidence["source"]),
        (&json!(id(1)), &json!(0.5), &json!("household"))
    );
    // Two sources give a higher weight than one: 1 - 0.5 × 0.4.
    assert_eq!(post(pair(2, 1, 0.6, "device")).status, 204);
    assert_eq!(check(&place, 1, 2), json!({ "connected": true, "weight": 0.8, "path": 1, "reads": 1 }));
    assert_eq!(origin.admin(&token, &format!("visitors/{}?tenant=demo", id(2))).json()["view"]["pages"], json!(2));
    // In a chain to another member, the weakest link does not count.
    place.json(&["links", "add", &id(2), &id(3), "--weight", "0.61", "--source", "model", "--tenant", "demo"]);
    place.json(&["links", "add", &id(3), &id(4), "--weight", "0.9", "--source", "match", "--tenant", "demo"]);
    assert_eq!(check(&place, 1, 4)["weight"], json!(0.61));
    place.json(&["links", "add", &id(4), &id(5), "--weight", "1", "--source", "match", "--tenant", "demo"]);
    assert_eq!([check(&place, 1, 2), check(&place, 2, 3)].map(|c| c["connected"].clone()), [json!(true), json!(false)]);
    assert_eq!(check(&place, 4, 5), json!({ "connected": true, "weight": 0.999, "path": 2, "reads": 2 }));
    assert_eq!(check(&place, 3, 5)["weight"], json!(0.9));
    let flags = place.inspect(visitor(3))["links"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|l| l["flag"] == "joins_two_people")
        .count();
    let other = place.inspect(visitor(2))["links"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|l| l["flag"] == "joins_two_people")
        .count();
    assert_eq!(flags + other, 1, "with its reason");
    // An alternate id with a weight below 1.
    let household = json!({ "visitor": id(6), "kind": "household", "value": "h-1", "weight": 0.7, "source": "match" });
    assert_eq!(post(household).status, 204);
    // A removed link stays removed.
    let unlink = ["links", "remove", &id(2), &id(1), "--tenant", "demo", "--yes"];
    place.json(&unlink);
    place.json(&["job", "run", "reconcile"]);
    assert_eq!(check(&place, 1, 2)["connected"], json!(false));
    assert_eq!(check(&place, 2, 3)["weight"], json!(0.61), "the chain no longer joins two members");
    assert_eq!(place.json(&["job", "run", "reconcile", "--dry-run"])["differences"], json!({}));
}

#[test]
fn an_unlink_reports_whether_other_evidence_still_connects_the_two() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    origin.send(&(1..=3).map(|n| page(visitor(n), n)).collect::<Vec<_>>());
    // A ring of three visitors, each two with a common id.
    for (value, of) in [("r1", [1, 2]), ("r2", [2, 3]), ("r3", [1, 3])] {
        for v in of.map(id) {
            let add =
                ["links", "add", &v, "--kind", "household", "--value", value, "--weight", "0.9", "--source", "match"];
            place.json(&[&add[..], &["--tenant", "demo"]].concat());
        }
    }
    let token = place.token("operator");
    let unlink =
        |a: u32, b: u32| origin.asked(&token, "DELETE", &format!("links/{}/{}", id(a), id(b)), &Value::Null).json();
    assert_eq!(check(&place, 1, 2)["connected"], true);
    assert_eq!(unlink(1, 2)["connected"], true, "over the third");
    assert_eq!(check(&place, 1, 2)["connected"], true);
    assert_eq!(unlink(1, 3)["connected"], false);
    // An erased visitor cannot be linked.
    place.json(&["erase", "--visitor", &id(1), "--yes", "--tenant", "demo"]);
    let link = json!({ "visitor": id(1), "other": id(2), "weight": 0.9, "source": "match" });
    let refused = origin.asked(&token, "POST", "links", &link);
    assert_eq!((refused.status, refused.code()), (404, "unknown_visitor".to_owned()));
}

#[test]
fn an_impossible_link_is_refused_with_a_reason() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), page(visitor(2), 2)]);
    let token = place.token("operator");
    let ask = |token: &str, body: Value| {
        let headers = [("authorization", format!("Bearer {token}"))];
        let answer = origin.call("POST", "/admin/v1/links?tenant=demo", &headers, body.to_string().as_bytes());
        (answer.status, answer.code())
    };
    let sound = json!({ "visitor": id(1), "other": id(2), "weight": 0.7, "source": "match" });
    let with = |field: &str, value: Value| {
        let mut body = sound.clone();
        body[field] = value;
        body
    };
    let refused = [
        (with("other", json!(id(1))), 400, "itself"),
        (with("weight", json!(0)), 400, "bad_weight"),
        (with("weight", json!(1.5)), 400, "bad_weight"),
        (with("weight", json!(-0.1)), 400, "bad_weight"),
        (with("weight", json!("NaN")), 400, "bad_json"),
        (with("weight", Value::Null), 400, "bad_weight"),
        (with("source", json!("login")), 400, "unknown_source"),
        (with("visitor", json!("x")), 400, "bad_id"),
        (with("other", json!("x")), 400, "bad_id"),
        (with("other", json!(id(99))), 404, "unknown_visitor"),
        (with("visitor", json!(id(99))), 404, "unknown_visitor"),
        (with("kind", json!("member")), 400, "malformed"),
        (
            json!({ "visitor": id(1), "kind": "nothing", "value": "v", "weight": 0.7, "source": "match" }),
            400,
            "unknown_kind",
        ),
        (json!({ "visitor": id(1), "kind": "member", "value": "", "weight": 0.7, "source": "match" }), 400, "too_long"),
        (json!([]), 400, "bad_json"),
    ];
    for (body, status, code) in refused {
        assert_eq!(ask(&token, body.clone()), (status, code.to_owned()), "{body}");
    }
    assert_eq!(ask(&place.token("viewer"), sound.clone()).0, 403);
    // A visitor of another tenant is unknown here.
    let headers = [("authorization", format!("Bearer {token}"))];
    let other = origin.call("POST", "/admin/v1/links?tenant=other", &headers, sound.to_string().as_bytes());
    assert_eq!((other.status, other.code()), (404, "unknown_visitor".to_owned()));
    assert_eq!(place.inspect(visitor(1))["links"], json!([]));
}

#[test]
fn an_import_of_links_with_broken_lines_takes_the_others() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    let all: Vec<_> = (1..=600).map(|n| page(visitor(n), n)).collect();
    origin.send(&all);
    drop(origin);
    let mut lines = vec!["visitor,other,kind,value,weight,source".to_owned()];
    // Pairs of neighbours, one in a hundred invalid.
    for n in 1..=500_u32 {
        let (a, b) = (id(n), id(n + 1));
        lines.push(match n {
            100 => format!("{a},{a},,,0.7,match"),
            200 => format!("{a},{b},,,1.5,match"),
            300 => format!("{a},{b},,,NaN,match"),
            400 => format!("{a},{},,,0.7,match", id(9_999)),
            500 => format!("{a},{b},,,0.7,gossip"),
            _ if n % 2 == 0 => format!("{a},,household,h-{n},0.8,household"),
            _ => format!("{a},{b},,,0.7,match"),
        });
    }
    let file = place.path().join("links.csv");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let bad = ["--max-bad", "5"];
    let output = place.run(&[&["links", "import", file, "--tenant", "demo", "--output", "json"], &bad[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let code = |line| serde_json::from_str::<Value>(line).unwrap()["code"].as_str().unwrap().to_owned();
    let mut codes: Vec<String> = stderr.lines().map(code).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["bad_weight", "bad_weight", "itself", "unknown_source", "unknown_visitor"], "{stderr}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["lines"], &summary["facts"], &summary["bad_lines"]), (&json!(501), &json!(745), &json!(5)));
    assert_eq!([check(&place, 1, 2), check(&place, 2, 3)].map(|c| c["connected"].clone()), [json!(true), json!(false)]);
    // The same file changes nothing, as CSV or as lines of JSON.
    let again = place.json(&[&["import", "links", file, "--tenant", "demo"], &bad[..]].concat());
    let counted = ["facts", "repeats", "lines_before"].map(|of| again[of].as_u64().unwrap());
    assert_eq!(counted, [0, 745, 0], "the whole file is read again, because refused lines may be valid now");
    let ndjson = place.path().join("links.ndjson");
    let line = json!({ "visitor": id(2), "other": id(3), "weight": 0.9, "source": "device" });
    std::fs::write(&ndjson, format!("{line}\n{{}}\n")).unwrap();
    let more = place.json(&[&["links", "import", ndjson.to_str().unwrap(), "--tenant", "demo"], &bad[..]].concat());
    assert_eq!((&more["facts"], &more["bad_lines"]), (&json!(2), &json!(1)));
    assert_eq!(check(&place, 1, 4), json!({ "connected": true, "weight": 0.7, "path": 1, "reads": 1 }));
    // A fault in a Parquet file is reported with its row.
    let parquet = place.path().join("links.parquet");
    let rows = [(501, Some(503), 0.9), (502, Some(504), f64::NAN), (505, None, 0.9), (506, Some(507), 0.9)];
    std::fs::write(&parquet, links_of(&rows)).unwrap();
    let file = parquet.to_str().unwrap();
    let import = ["links", "import", file, "--tenant", "demo", "--max-bad", "2", "--output", "json"];
    let output = place.run(&import);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let faults = [r#"{"code":"bad_weight","line":2,"#, r#"{"code":"malformed","line":3,"#];
    assert!(faults.iter().all(|fault| stderr.contains(fault)), "{stderr}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["lines"], &summary["facts"], &summary["bad_lines"]), (&json!(4), &json!(4), &json!(2)));
    let joined = [(501, 503), (502, 504), (506, 507)].map(|(a, b)| check(&place, a, b)["connected"].clone());
    assert_eq!(joined, [json!(true), json!(false), json!(true)]);
    assert_eq!(place.json(&import[..7])["repeats"], 4);
    std::fs::write(&parquet, b"PAR1 and no more").unwrap();
    let broken = place.run(&import);
    assert_eq!(broken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("links.parquet"));
}

/// Matches of visitors with other visitors as a Parquet file.
fn links_of(rows: &[(u32, Option<u32>, f64)]) -> Vec<u8> {
    const SCHEMA: &str = "message links { optional binary visitor (UTF8); optional binary other (UTF8);
        optional double weight; optional binary source (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let text = |text: String| ByteArray::from(text.as_str());
    let texts: [Vec<Option<ByteArray>>; 3] = [
        rows.iter().map(|(visitor, ..)| Some(text(id(*visitor)))).collect(),
        rows.iter().map(|(_, other, _)| other.map(|other| text(id(other)))).collect(),
        rows.iter().map(|_| Some(text("match".to_owned()))).collect(),
    ];
    let weights: Vec<f64> = rows.iter().map(|(.., weight)| *weight).collect();
    let mut texts = texts.into_iter();
    while let Some(mut column) = group.next_column().unwrap() {
        if let ColumnWriter::DoubleColumnWriter(to) = column.untyped() {
            to.write_batch(&weights, Some(&vec![1; rows.len()]), None).unwrap();
        } else {
            let values = texts.next().unwrap();
            let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<ByteArray> = values.into_iter().flatten().collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&there), None).unwrap();
        }
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// The fields of an answer that its schema does not name.
fn undescribed(answer: &Value, schema: &Value, document: &Value, at: &str) -> Vec<String> {
    fn properties<'d>(schema: &'d Value, document: &'d Value) -> Vec<(&'d String, &'d Value)> {
        let named = schema["$ref"].as_str().map(|name| document.pointer(name.trim_start_matches('#')).unwrap());
        let parts = ["allOf", "oneOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten().chain(named);
        let parts = parts.flat_map(|part| properties(part, document));
        schema["properties"].as_object().into_iter().flatten().chain(parts).collect()
    }
    let known = properties(schema, document);
    let of_field = |(name, answer): (&String, &Value)| {
        let at = format!("{at}.{name}");
        let Some((_, schema)) = known.iter().find(|(known, _)| *known == name) else { return vec![at] };
        match answer {
            Value::Array(items) => {
                items.iter().flat_map(|item| undescribed(item, &schema["items"], document, &at)).collect()
            }
            answer => undescribed(answer, schema, document, &at),
        }
    };
    answer.as_object().into_iter().flatten().flat_map(of_field).collect()
}

#[test]
fn the_openapi_document_describes_all_that_is_told_of_a_visitor() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), page(visitor(2), 2), origin.login(visitor(1), 3, "ann")]);
    place.json(&["links", "add", &id(1), &id(2), "--weight", "0.9", "--source", "match", "--tenant", "demo"]);
    let token = place.token("viewer");
    let document = origin.admin(&token, "openapi.json").json();
    let answer = origin.admin(&token, &format!("visitors/{}?tenant=demo", id(1))).json();
    assert_eq!(answer["links"].as_array().unwrap().len(), 2);
    let schema = &document["components"]["schemas"]["VisitorAnswer"];
    assert_eq!(undescribed(&answer, schema, &document, ""), Vec::<String>::new());
}

#[test]
fn an_acknowledged_login_that_is_not_folded_is_undone_even_with_a_fast_clock() {
    let place = Place::with(TENANTS);
    let origin = place.serve();
    origin.send(&[origin.login(visitor(1), 1, "ann"), page(visitor(2), 2), page(visitor(3), 3)]);
    let token = place.token("operator");
    let (one, two, three) = (&id(1), &id(2), &id(3));
    let connected = |v: u32| check(&place, 1, v)["connected"] == json!(true);
    // Facts are acknowledged but not folded while the store is locked; a call about them waits for the fold.
    let meanwhile = |facts: &[Fact], asked: &(dyn Fn() -> bool + Sync)| {
        let held = hold(&place, "causeway.db");
        origin.sync(&request(facts));
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn(move || sender.send(asked()).unwrap());
            let early = receiver.recv_timeout(std::time::Duration::from_millis(500));
            assert!(early.is_err(), "nothing can be folded now");
            drop(held);
            assert!(receiver.recv().unwrap());
        });
    };
    let ahead = now() + 120_000;
    let login = |v: u32| Fact { received: ahead, at: ahead, ..origin.login(visitor(v), v + 10, "ann") };
    let path = format!("links/{two}/{one}");
    meanwhile(&[login(2)], &|| origin.asked(&token, "DELETE", &path, &Value::Null).status == 200);
    assert!(!connected(2));
    let cancel = ["links", "cancel", "--visitor", three, "--kind", "member", "--value", "ann", "--yes"];
    meanwhile(&[login(3)], &|| place.json(&[&cancel[..], &["--tenant", "demo"]].concat())["done"] == json!(true));
    assert!(!connected(3));
    // A visitor with an acknowledged fact is known.
    let pair = |v: u32| json!({ "visitor": id(v), "other": one, "weight": 1, "source": "match" });
    meanwhile(&[page(visitor(4), 4)], &|| origin.asked(&token, "POST", "links", &pair(4)).status == 204);
    let add = ["links", "add", &id(5), one, "--weight", "1", "--source", "match", "--tenant", "demo"];
    meanwhile(&[page(visitor(5), 5)], &|| place.json(&add)["connected"] == json!(true));
    let file = place.path().join("links.ndjson");
    std::fs::write(&file, pair(6).to_string()).unwrap();
    let import = ["links", "import", file.to_str().unwrap(), "--tenant", "demo"];
    meanwhile(&[page(visitor(6), 6)], &|| place.json(&import)["facts"] == json!(2));
    assert!(connected(4) && connected(5) && connected(6));
}
