//! `causeway import`, and the commands that read the imported data.

use std::io::Write as _;
use std::path::PathBuf;

use causeway_shared::base::ids::OrderHash;
use causeway_shared::base::ids::{FactId, VisitorId};
use causeway_shared::facts::fact::{Fact, FactKind};
use serde_json::{Value, json};

use crate::support::{Place, now, page, visitor};

const DAY_MS: u64 = 86_400_000;
/// Hours since 2019 of a day in 2040.
const LATER: u32 = 184_104;

fn write(place: &Place, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = place.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn segments(place: &Place, of: VisitorId, query: &str) -> Value {
    place.json(&["segments", "get", &of.to_string(), "--tenant", "demo", "--query", query])
}

fn count(place: &Place, of: VisitorId) -> Value {
    segments(place, of, r#"{"count": {"from": 0, "to": 4000000000}}"#)["count"].clone()
}

#[test]
fn files_as_spreadsheets_write_them_are_read() {
    let place = Place::new();
    let (a, b) = (visitor(1), visitor(2));
    let csv = format!("\u{feff}\"visitor\",\"segment\",\"expires_ms\"\r\n\"{a}\",\"7\",\"2208988800000\"\r\n");
    let csv = write(&place, "segments.csv", csv.as_bytes());
    let lines = format!("\u{feff}{{\"visitor\":\"{b}\",\"set\":[{{\"segment\":7,\"expires_ms\":2208988800000}}]}}\n");
    let lines = write(&place, "segments.ndjson", lines.as_bytes());
    for file in [csv, lines] {
        let done = place.json(&["import", "segments", &file, "--tenant", "demo"]);
        assert_eq!((&done["facts"], &done["bad_lines"]), (&json!(1), &json!(0)), "{file}");
    }
    assert_eq!([count(&place, a), count(&place, b)], [json!(1), json!(1)]);
    let twice = write(&place, "twice.csv", format!("visitor,visitor,segment,expires_ms\n{a},{b},7,2\n").as_bytes());
    let refused = place.run(&["import", "segments", &twice, "--tenant", "demo"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the column `visitor` is given twice"), "{refused:?}");
}

#[test]
fn an_import_goes_on_when_nobody_reads_what_it_says() {
    let place = Place::new();
    let lines: String = (0..200)
        .map(|n| if n % 2 == 0 { format!("{},7:{LATER}\n", visitor(n)) } else { "nobody,7:1\n".to_owned() })
        .collect();
    let file = write(&place, "segments.csv", format!("visitor,segments\n{lines}").as_bytes());
    let all = ["import", "segments", &file, "--tenant", "demo", "--output", "json", "--max-bad", "100"];
    let mut import = place.command(&all);
    let mut import = import.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(import.stderr.take());
    let output = import.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["facts"], &done["bad_lines"]), (&json!(100), &json!(100)));
}

#[test]
fn broken_lines_are_reported_by_number_and_the_others_are_imported() {
    let place = Place::new();
    let (a, b) = (visitor(1), visitor(2));
    let lines = [
        "visitor,segments".to_owned(),
        format!("{a},7:{LATER} 8:{LATER} 9:{LATER}"),
        "nobody,7:1".to_owned(),
        format!("{a}"),
        format!("{b},7:1"),
        format!("{b},7:900000"),
        format!("{b},seven:{LATER}"),
        format!("{b},{}", "7:1 ".repeat(1_001)),
        String::new(),
        format!("\"{b}\",\"5:{LATER} -9\""),
        format!("{b},\u{fffd}"),
    ];
    let file = write(&place, "segments.csv", lines.join("\n").as_bytes());
    let all = ["import", "segments", &file, "--tenant", "demo", "--output", "json", "--max-bad", "7"];
    let output = place.run(&all);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let refused = stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let codes: Vec<String> = refused.map(|bad| format!("{} {}", bad["line"], bad["code"].as_str().unwrap())).collect();
    let expected = [
        "3 bad_id",
        "4 malformed",
        "5 expiry_out_of_range",
        "6 expiry_out_of_range",
        "7 malformed",
        "8 out_of_bounds",
        "11 malformed",
    ];
    assert_eq!(codes, expected, "{stderr}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        summary,
        json!({ "lines": 11, "lines_before": 0, "facts": 2, "repeats": 0, "erased": 0, "bad_lines": 7, "bad_lines_before": 0 })
    );
    assert_eq!((count(&place, a), count(&place, b)), (json!(3), json!(1)));
}

#[test]
fn bad_lines_fail_every_import_unless_max_bad_allows_them() {
    let place = Place::new();
    let (a, b) = (visitor(1), visitor(2));
    let segments =
        write(&place, "s.csv", format!("visitor,segments\n{a},7:{LATER}\nx,7:1\n{b},7:{LATER}\ny,7:1\n").as_bytes());
    let event = |visitor: &str, id| json!({ "visitor": visitor, "type": "page", "id": id });
    let events = [event(&a.to_string(), "e-1"), event("x", "e-2"), event("y", "e-3")].map(|line| line.to_string());
    let events = write(&place, "e.ndjson", events.join("\n").as_bytes());
    let links = format!(
        "visitor,kind,value,weight,source\n{a},partner,p,0.5,match\n{a},partner,p,7,match\n{b},partner,p,0.5,us\n"
    );
    let links = write(&place, "l.csv", links.as_bytes());
    let all: [&[&str]; 4] = [
        &["import", "segments", &segments],
        &["import", "events", &events],
        &["import", "links", &links],
        &["links", "import", &links],
    ];
    for import in all {
        let run = |more: &[&str]| place.run(&[import, &["--tenant", "demo", "--output", "json"], more].concat());
        for (more, code) in [(&[][..], 1), (&["--max-bad", "1"], 1), (&["--max-bad", "2"], 0)] {
            let output = run(more);
            assert_eq!(output.status.code(), Some(code), "{import:?} {more:?} {output:?}");
            let done: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(done["bad_lines"], 2, "{import:?}: the other lines are imported");
            let is_named = String::from_utf8_lossy(&output.stderr).contains(": 2, and --max-bad is ");
            assert_eq!(is_named, code == 1, "{output:?}");
        }
    }
    assert_eq!([count(&place, a), count(&place, b)], [json!(1), json!(1)]);
}

#[test]
fn all_import_formats_give_the_same_store_and_a_second_run_changes_nothing() {
    let long = |v: VisitorId| {
        format!("segment,visitor,expires_ms\n1,{v},{e}\n2,{v},{e}\n3,{v},{e}\n3,{v},\n", e = now() + 90 * DAY_MS)
    };
    let wide = |v: VisitorId| format!("visitor,segments\n{v},1:{LATER} 2:{LATER}\n");
    let json = |v: VisitorId| {
        let set = [1, 2].map(|s| json!({ "segment": s, "expires_ms": now() + DAY_MS, "attributes": {"4": s} }));
        format!("{}\n", json!({ "visitor": v.to_string(), "set": set, "remove": [3] }))
    };
    let gzip = |text: String| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let zstd = |text: String| zstd::encode_all(text.as_bytes(), 1).unwrap();
    let place = Place::new();
    let v = visitor;
    let files = [
        write(&place, "long.csv", long(v(1)).as_bytes()),
        write(&place, "wide.csv.gz", &gzip(wide(v(2)))),
        write(&place, "json.ndjson", json(v(3)).as_bytes()),
        write(&place, "json.jsonl.zst", &zstd(json(v(4)))),
    ];
    for file in &files {
        let first = place.json(&["import", "segments", file, "--tenant", "demo", "--workers", "3"]);
        assert_eq!(first["bad_lines"], 0, "{file}");
        let second = place.json(&["import", "segments", file, "--tenant", "demo"]);
        assert_eq!((&second["facts"], &second["lines_before"]), (&json!(0), &first["lines"]), "{file}");
    }
    for n in 1..=4 {
        assert_eq!(count(&place, v(n)), 2, "{n}");
    }
    write(&place, "x.txt", b"");
    for (name, why, code) in [("x.txt", "must end in", 2), ("none.csv", "cannot read", 1)] {
        let output = place.run(&["import", "segments", place.path().join(name).to_str().unwrap(), "--tenant", "demo"]);
        assert_eq!(output.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
    let bad = write(&place, "bad.csv", b"visitor,shoe\n");
    let output = place.run(&["import", "segments", &bad, "--tenant", "demo"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown column `shoe`"), "{output:?}");
}

#[test]
fn one_impression_seen_under_two_ids_counts_once_for_their_person() {
    let place = Place::new();
    let origin = place.serve();
    let (a, b) = (visitor(1), visitor(2));
    origin.send(&[page(a, 1), page(b, 1), origin.login(a, 2, "ann"), origin.login(b, 2, "ann")]);
    // Five impressions: four under both ids, one under one id alone.
    let mut lines = vec!["visitor,type,action,insertion,ad,ad_group,campaign,advertiser,at_ms".to_owned()];
    let at = now() - 5_000;
    for n in 1..=5 {
        lines.push(format!("{a},action,impression,i-{n},{n},3,42,1,{at}"));
        if n < 5 {
            lines.push(format!("{b},action,impression,i-{n},{n},3,42,1,{at}"));
        }
    }
    lines.push(format!("{a},action,frown,i-9,1,3,42,1,{at}"));
    lines.push(format!("{a},action,impression,i-9,1,3,42,1,{}", at - 70 * DAY_MS));
    lines.push(format!("{a},page,,,,,,,{}", at - 25 * DAY_MS));
    lines.push(format!("{a},page,,,,,,,"));
    lines.push(format!("{a},track,,,,,,,{at}"));
    // The origin serves during the import.
    let file = write(&place, "events.csv", lines.join("\n").as_bytes());
    let done = place.json(&["import", "events", &file, "--tenant", "demo", "--max-bad", "4"]);
    assert_eq!(
        done,
        json!({ "lines": 15, "lines_before": 0, "facts": 10, "repeats": 0, "erased": 0, "bad_lines": 4, "bad_lines_before": 0 })
    );
    // The same lines in another file, and as another kind of data.
    let again = write(&place, "again.csv", format!("{}\n", lines.join("\n")).as_bytes());
    let done = place.json(&["import", "events", &again, "--tenant", "demo", "--max-bad", "4"]);
    assert_eq!((&done["facts"], &done["repeats"]), (&json!(0), &json!(10)));
    let ask = |own: bool| {
        json!({ "visitor": b.to_string(), "actions": ["impression"], "level": "campaign", "ids": [42], "own": own,
            "last": { "interval": 2, "unit": "days" } })
        .to_string()
    };
    let counted = |own| place.json(&["count", &ask(own), "--tenant", "demo"])["counts"]["42"].clone();
    assert_eq!((counted(false), counted(true)), (json!(5), json!(4)));
    let by = json!({ "visitor": a.to_string(), "by": ["campaign"], "last": { "interval": 2, "unit": "days" } });
    let groups = place.json(&["count", &by.to_string(), "--tenant", "demo"]);
    assert_eq!(groups, json!({ "groups": [{ "campaign": 42, "count": 5 }] }));
    assert_eq!(place.inspect(a)["own"]["pages"], 2);
    assert_eq!(origin.send(&[page(a, 9)]).accepted, 1, "the origin still accepts facts");
}

#[test]
fn an_imported_order_counts_once_for_a_person_as_a_number_and_as_a_text() {
    let place = Place::new();
    let origin = place.serve();
    let (ann, her_phone, other) = (visitor(1), visitor(2), visitor(3));
    let page_sent = {
        let order = OrderHash::of("1001");
        let bought = crate::support::purchase(ann, 7, 5);
        let FactKind::Track { name, value, properties, .. } = bought.what else { unreachable!() };
        Fact {
            id: FactId::of_order(ann, order),
            what: FactKind::Track { name, value, properties, order: Some(order) },
            ..bought
        }
    };
    origin.send(&[origin.login(ann, 1, "ann"), origin.login(her_phone, 1, "ann"), page(other, 1), page_sent]);
    let at = now() - 5_000;
    let line = |visitor: VisitorId, order: Value, properties: Value| {
        json!({ "visitor": visitor.to_string(), "type": "track", "name": "purchase", "value_micros": 5, "at_ms": at,
            "order_id": order, "properties": properties })
        .to_string()
    };
    let in_properties = |order: Value| json!({ "order_id": order });
    let lines = [
        // The order that a page sent before.
        line(ann, json!(1001), Value::Null),
        line(ann, json!("1001"), json!({ "size": 4 })),
        line(her_phone, json!(1001), Value::Null),
        line(her_phone, Value::Null, in_properties(json!("1001"))),
        line(her_phone, json!(1002), Value::Null),
        line(her_phone, Value::Null, in_properties(json!(1002))),
        // The order of another person with the same number.
        line(other, json!(1001), Value::Null),
        // Each purchase without an order counts, even if its properties have an invalid order id.
        line(other, Value::Null, in_properties(json!(0.5))),
        line(other, json!(-1), Value::Null),
    ];
    let file = write(&place, "orders.ndjson", lines.join("\n").as_bytes());
    let done = place.json(&["import", "events", &file, "--tenant", "demo", "--max-bad", "1"]);
    assert_eq!([&done["facts"], &done["repeats"], &done["bad_lines"]], [&json!(4), &json!(4), &json!(1)]);
    let rows = [
        "visitor,type,name,value_micros,id,order_id".to_owned(),
        format!("{ann},track,purchase,5,e-1,1002"),
        format!("{her_phone},track,purchase,5,e-2,\"1001\""),
        format!("{other},track,purchase,5,e-3,1003"),
    ];
    let file = write(&place, "orders.csv", rows.join("\n").as_bytes());
    let done = place.json(&["import", "events", &file, "--tenant", "demo"]);
    assert_eq!([&done["facts"], &done["repeats"]], [&json!(2), &json!(1)]);
    let counted = |of: VisitorId| {
        let found = place.inspect(of);
        ["own", "view"].map(|of| [found[of]["purchases"].clone(), found[of]["revenue_micros"].clone()])
    };
    let [two, three] = [2, 3].map(|n| [json!(n), json!(5 * n)]);
    assert_eq!(counted(ann), [two.clone(), two.clone()]);
    assert_eq!(counted(her_phone), [two.clone(), two]);
    assert_eq!(counted(other), [three.clone(), three]);
}

#[test]
fn segments_are_put_extended_and_trimmed_by_the_command() {
    let place = Place::new();
    let origin = place.serve();
    let v = visitor(1);
    origin.send(&[page(v, 1), origin.login(v, 2, "ann")]);
    let by = |command: &[&str]| place.json(&[&["segments"], command, &["--tenant", "demo"]].concat());
    let expires = now() + 2 * DAY_MS;
    let set = json!({ "set": [{ "segment": 7, "expires_ms": expires }, { "segment": 9, "expires_ms": expires }] });
    assert_eq!(by(&["put", "member:ann", &set.to_string()])["written"], 2);
    by(&["put", &v.to_string(), r#"{"remove": [9]}"#]);
    by(&["extend", "member:ann", "7", "24"]);
    let shown = by(&["get", &v.to_string()]);
    let extended = shown["own"][0]["expires_ms"].as_u64().unwrap();
    assert_eq!((shown["own"].as_array().unwrap().len(), extended / 3_600_000), (1, expires.div_ceil(3_600_000) + 24));
    // A segment is not trimmed while an older fact may still contradict it.
    assert_eq!(by(&["trim", &v.to_string()])["segments"], 0);
    assert_eq!(
        place.json(&["job", "run", "trim"]),
        json!({ "visitors": 1, "changed": 0, "segments": 0, "actions": 0, "lookups": 0 })
    );
    let unknown = place.run(&["segments", "extend", "member:ann", "8", "1", "--tenant", "demo"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("not in this segment"));
}

#[test]
fn parallel_extensions_by_the_command_and_over_http_all_count() {
    let place = Place::new();
    let token = place.token("operator");
    let origin = place.serve();
    let v = visitor(1);
    origin.send(&[page(v, 1)]);
    let set = json!({ "set": [{ "segment": 7, "expires_ms": now() + DAY_MS }] }).to_string();
    place.json(&["segments", "put", &v.to_string(), &set, "--tenant", "demo"]);
    let expires = || {
        let shown = place.json(&["segments", "get", &v.to_string(), "--tenant", "demo"]);
        shown["own"][0]["expires_ms"].as_u64().unwrap() / 3_600_000
    };
    let before = expires();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    place.json(&["segments", "extend", &v.to_string(), "7", "1", "--tenant", "demo"]);
                    let header = [("authorization", format!("Bearer {token}"))];
                    let path = format!("/admin/v1/visitors/{v}/segments/7/extend?tenant=demo");
                    assert_eq!(origin.call("POST", &path, &header, br#"{"hours": 1}"#).status, 200);
                }
            });
        }
    });
    assert_eq!(expires() - before, 40);
}
