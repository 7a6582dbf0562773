//! Audiences over the admin API and on the command line.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use causeway_shared::facts::attributes::AttributeValue as Attribute;
use causeway_shared::facts::fact::{Fact, FactKind};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use serde_json::{Value, json};

use crate::support::{Answer, Origin, Place, SOON, TENANTS, fact, now, once, page, purchase, visitor, within};

fn says(n: u32, name: &str, value: Attribute) -> Fact {
    fact(visitor(n), 9, FactKind::Attributes { writes: vec![(name.to_owned(), Some(value))] })
}

fn ask(origin: &Origin, token: &str, what: &str, accept: &str, body: &Value) -> Answer {
    let headers = [("authorization", format!("Bearer {token}")), ("accept", accept.to_owned())];
    origin.call("POST", &format!("/admin/v1/audience/{what}?tenant=demo"), &headers, body.to_string().as_bytes())
}

/// Waits until the audience index has followed the facts that were sent, and counts the filter.
fn counted(origin: &Origin, token: &str, filter: &Value, expected: u64) -> Value {
    within(SOON, "the audience index has it", || {
        let answer = ask(origin, token, "members", "*/*", &json!({ "filter": filter }));
        once(answer.json(), |reply| answer.status == 200 && reply["count"] == expected)
    })
}

#[test]
fn an_audience_is_estimated_counted_and_listed() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    // 600 people: a third from Bonn, a tenth with a purchase.
    let mut facts: Vec<Fact> = (0..600).map(|n| page(visitor(n), 1)).collect();
    facts.extend(
        (0..600).map(|n| says(n, "city", Attribute::String(if n % 3 == 0 { "Bonn" } else { "Ulm" }.to_owned()))),
    );
    facts.extend((0..600).step_by(10).map(|n| purchase(visitor(n), 2, 1_000_000 + i64::from(n))));
    for some in facts.chunks(200) {
        origin.send(some);
    }
    let bonn = json!({"attributes.city": "Bonn"});
    counted(&origin, &token, &json!({"events.purchase": {"$count": {"$gte": 1}}}), 60);
    let answer = counted(&origin, &token, &bonn, 200);
    assert_eq!(answer["population"], 600);
    assert!(answer["as_of_ms"].as_u64().unwrap() > 0);

    let precise = json!({"filter": bonn, "precision": 0.000_01, "measure": "revenue_micros"});
    let lines = ask(&origin, &token, "estimate", "application/x-ndjson", &precise).text();
    let looks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = looks.last().unwrap();
    assert!(looks.iter().all(|look| (look["final"] == true) == (look == last)), "{lines}");
    // The sample is the whole population: the estimate is the count.
    assert_eq!(
        (&last["estimate"], &last["interval"], &last["sample_size"]),
        (&json!(200), &json!([200, 200]), &json!(600))
    );
    let bought: f64 = (0..600).step_by(30).map(|n| f64::from(1_000_000 + n)).sum();
    assert_eq!(last["measure"]["total"]["value"], json!(bought));
    assert_eq!(last["measure"]["mean"]["value"], json!(bought / 200.0));
    let coarse = ask(&origin, &token, "estimate", "*/*", &json!({"filter": bonn, "precision": 0.3})).json();
    assert!(coarse["precision"].as_f64().unwrap() <= 0.3 && coarse["sample_size"].as_u64().unwrap() <= 600, "{coarse}");

    let listed = ask(&origin, &token, "members", "application/x-ndjson", &json!({"filter": bonn}));
    let mut people: Vec<String> = listed
        .text()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["person"].as_str().unwrap().to_owned())
        .collect();
    people.sort();
    let mut expected: Vec<String> = (0..600).step_by(3).map(|n| visitor(n).to_string()).collect();
    expected.sort();
    assert_eq!(people, expected);
    let csv =
        ask(&origin, &token, "members", "text/csv", &json!({"filter": {"events.purchase": {"$count": {"$gte": 1}}}}))
            .text();
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("person"), 61));

    // Logins join two people to one within a second.
    origin.send(&[origin.login(visitor(0), 7, "ann"), origin.login(visitor(1), 7, "ann")]);
    let merged = Instant::now();
    counted(&origin, &token, &json!({"devices": 2, "attributes.city": {"$in": ["Bonn", "Ulm"]}}), 1);
    assert!(merged.elapsed() < Duration::from_secs(5), "{:?}", merged.elapsed());
    counted(&origin, &token, &json!({}), 599);

    commands(&place, &bonn);
}

/// The commands find the same people in the store alone.
fn commands(place: &Place, bonn: &Value) {
    let reply = place.json(&["audience", "members", "{}", "--tenant", "demo"]);
    assert_eq!(reply["count"], 599);
    let reply = place.json(&["audience", "estimate", &bonn.to_string(), "--precision", "0.00001", "--tenant", "demo"]);
    assert_eq!(reply["population"], 599);
    let exported = place.run(&["audience", "export", r#"{"devices": 2}"#, "--form", "csv", "--tenant", "demo"]);
    assert_eq!(String::from_utf8(exported.stdout).unwrap(), format!("person\n{}\n", visitor(0)));
    let [csv, parquet] = ["all.csv", "all.parquet"].map(|name| place.path().join(name));
    for (form, file) in [("csv", &csv), ("parquet", &parquet)] {
        let into = file.to_str().unwrap();
        let reply = place.json(&["audience", "export", "{}", "--form", form, "--to", into, "--tenant", "demo"]);
        assert_eq!(reply, json!({ "file": into, "rows": 599 }));
    }
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 600);
    let rows = SerializedFileReader::new(std::fs::File::open(&parquet).unwrap()).unwrap();
    let rows = rows.get_row_iter(None).unwrap().map(|row| row.unwrap().get_string(0).unwrap().clone());
    assert_eq!(rows.collect::<BTreeSet<_>>().len(), 599);
    for (command, wrong) in [("export", "--to FILE"), ("schedule", "only `audience export` writes Parquet")] {
        let refused = place.run(&["audience", command, "{}", "--form", "parquet", "--tenant", "demo"]);
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(wrong), "{command}");
    }
}

#[test]
fn a_bad_audience_is_refused_with_the_path_of_what_is_wrong() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    origin.send(&[says(1, "age", Attribute::Integer(30))]);
    counted(&origin, &token, &json!({"attributes.age": 30}), 1);
    let deep = (0..40).fold(json!({"devices": 1}), |inner, _| json!({ "$not": inner }));
    let long: Vec<u32> = (0..10_000).collect();
    for (filter, wrong) in [
        (json!({"attributes.age": "old"}), "filter.attributes.age"),
        (json!({"attributes.height": 3}), "filter.attributes.height: there is no attribute"),
        (json!({"segments": {"$in": long}}), "filter.segments.$in"),
        (json!({"page.url": "https://a.example/"}), "filter.page.url: an audience filter cannot use a page"),
        (deep, "levels at most"),
        (json!([]), "filter: an array was given"),
    ] {
        let answer = ask(&origin, &token, "members", "*/*", &json!({ "filter": filter }));
        assert_eq!(
            (answer.status, answer.json()["error"]["field"].as_str()),
            (400, Some("filter")),
            "{}",
            answer.text()
        );
        assert!(answer.text().contains(wrong), "{wrong}: {}", answer.text());
    }
    let estimate = |body: Value| ask(&origin, &token, "estimate", "*/*", &body);
    let precise = estimate(json!({"filter": {}, "precision": 0.0}));
    assert_eq!((precise.status, precise.code()), (400, "bad_precision".to_owned()));
    let measured = estimate(json!({"filter": {}, "measure": "attributes.name"}));
    assert_eq!((measured.status, measured.code()), (400, "bad_measure".to_owned()));
    assert_eq!(ask(&origin, "wrong", "members", "*/*", &json!({"filter": {}})).status, 401);
}

#[test]
fn an_audience_is_stored_as_a_segment_by_the_admin_api_and_by_the_command() {
    let place = Place::new();
    let origin = place.serve();
    let (viewer, operator) = (place.token("viewer"), place.token("operator"));
    let facts: Vec<Fact> =
        (0..40).map(|n| says(n, "language", Attribute::String(if n < 30 { "es" } else { "de" }.to_owned()))).collect();
    origin.send(&facts);
    let spanish = json!({"attributes.language": "es"});
    counted(&origin, &viewer, &spanish, 30);
    let body = json!({"filter": spanish, "hours": 48, "every_hours": 24});
    assert_eq!(origin.asked(&viewer, "PUT", "audiences/77", &body).status, 403);
    let created = origin.asked(&operator, "PUT", "audiences/77", &body);
    assert_eq!(created.status, 202, "{}", created.text());
    assert_eq!(created.json()["audience"]["filter"], spanish);
    let run = origin.ended(&operator, &created.json()["run"]["run"]);
    assert_eq!((&run["outcome"], &run["report"]["refreshed"][0]["added"]), (&json!("done"), &json!(30)), "{run}");
    counted(&origin, &viewer, &json!({"segments": 77}), 30);
    let listed = origin.asked(&viewer, "GET", "audiences", &Value::Null).json();
    assert_eq!(listed["audiences"][0]["members"], 30);
    for (path, body, code) in [
        ("audiences/x", &body, "bad_id"),
        ("audiences/77", &json!({"filter": {"segments": 77}, "hours": 4}), "asks_itself"),
        ("audiences/77", &json!({"filter": {}, "hours": 0}), "bad_hours"),
        ("audiences/77", &json!({"filter": {}, "hours": 4, "every_hours": 3}), "bad_hours"),
        ("audiences/77", &json!({"filter": {"attributes.none": 1}, "hours": 4}), "bad_filter"),
    ] {
        let refused = origin.asked(&operator, "PUT", path, body);
        assert_eq!((refused.status, refused.code().as_str()), (400, code), "{}", refused.text());
    }

    // The commands, in parallel with a serving origin.
    let german = r#"{"attributes.language": "de"}"#;
    let command = ["audience", "materialise", german, "--segment", "78", "--hours", "24", "--tenant", "demo"];
    let plan = place.json(&[&command[..], &["--dry-run"]].concat());
    assert_eq!((&plan["members"], &plan["added"]), (&json!(10), &json!(10)));
    let run = place.json(&command);
    assert_eq!(run["refreshed"][0]["added"], 10, "{run}");
    counted(&origin, &viewer, &json!({"segments": 78}), 10);
    let listed = place.json(&["audience", "list", "--tenant", "demo"]);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let dropped = place.json(&["audience", "drop", "78", "--tenant", "demo"]);
    assert_eq!(dropped["refreshed"][0]["removed"], 10, "{dropped}");
    let one = |segment: u32| origin.asked(&viewer, "GET", &format!("audiences/{segment}"), &Value::Null);
    assert_eq!((one(77).status, &one(77).json()["segment"]), (200, &json!(77)));
    assert_eq!((one(78).status, one(78).code()), (404, "unknown_audience".to_owned()));
    let dropped = origin.asked(&operator, "DELETE", "audiences/77", &Value::Null);
    assert_eq!(dropped.status, 202);
    origin.ended(&operator, &dropped.json()["run"]["run"]);
    counted(&origin, &viewer, &json!({"segments": {"$exists": true}}), 0);
    assert_eq!(origin.asked(&operator, "DELETE", "audiences/77", &Value::Null).status, 404);
}

#[test]
fn a_due_audience_is_refreshed_without_a_request_and_never_early() {
    let place = Place::new();
    let spanish = r#"{"attributes.language": "es"}"#;
    {
        let origin = place.serve();
        origin.send(&[says(1, "language", Attribute::String("es".to_owned()))]);
        let command = ["audience", "materialise", spanish, "--segment", "77", "--hours", "48", "--every", "24"];
        place.json(&[&command[..], &["--tenant", "demo"]].concat());
    }
    let runs = || place.json(&["job", "list", "--job", "materialise"]);
    assert_eq!(runs()[0]["trigger"], "command");
    let conn = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
    conn.execute("UPDATE audiences SET due = 1", []).unwrap();
    let origin = place.serve();
    within(SOON, "the job ran by its timer", || {
        once(runs(), |runs| runs[0]["outcome"] == "done" && runs[0]["trigger"] == "timer")
    });
    drop(origin);
    let before = place.activity_due();
    let _origin = place.serve();
    place.looked(before);
    assert_eq!(runs().as_array().unwrap().len(), 2, "the job is not due at this start: {}", runs());
}

#[test]
fn the_openapi_documents_examples_of_audiences_are_answered_as_it_says() {
    let place = Place::new();
    let origin = place.serve();
    let operator = place.token("operator");
    origin.send(&[says(1, "language", Attribute::String("es".to_owned()))]);
    counted(&origin, &operator, &json!({"attributes.language": "es"}), 1);
    let document = origin.admin(&operator, "openapi.json").json();
    let mut called = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(path) =
            path.strip_prefix("/admin/v1/").filter(|path| path.starts_with("audience") || path.starts_with("sends"))
        else {
            continue;
        };
        for (method, operation) in methods.as_object().unwrap() {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            if operation["requestBody"].is_object() {
                let path = path.replace("{segment}", "5").replace("{name}", "may");
                let answer = origin.asked(&operator, &method.to_uppercase(), &path, example);
                assert!(answer.status < 300, "{method} {path}: {}", answer.text());
                // The schema of an answer in lines describes one line.
                let content = &operation["responses"][answer.status.to_string()]["content"];
                let described =
                    ["application/json", "application/x-ndjson"].map(|form| &content[form]["schema"]["$ref"]);
                let schema = described.into_iter().find_map(|name| name.as_str()?.strip_prefix('#')).unwrap();
                let fields = document.pointer(schema).unwrap()["properties"].as_object().unwrap();
                let reply = answer.json();
                let unsaid: Vec<&String> =
                    reply.as_object().unwrap().keys().filter(|key| !fields.contains_key(*key)).collect();
                assert!(unsaid.is_empty(), "{method} {path}: {unsaid:?} are not described");
                called += 1;
            }
        }
    }
    assert!(called >= 5, "{called}");
}

#[test]
fn each_member_of_an_audience_has_its_next_best_send_time() {
    const HOUR_MS: u64 = 3_600_000;
    let place = Place::with(&TENANTS.replacen("dev = true", "dev = true\ntime_zone = \"Asia/Kolkata\"", 1));
    let origin = place.serve();
    let token = place.token("viewer");
    // One person came each day at this hour, one once, and both twenty more times: the population has the first's hour.
    let today = now() / HOUR_MS * HOUR_MS + 60_000 - 24 * HOUR_MS;
    let came = |of: u32, days: u64| Fact {
        received: today - days * 24 * HOUR_MS,
        at: today - days * 24 * HOUR_MS,
        ..page(visitor(of), u32::try_from(days).unwrap())
    };
    origin.send(&(0..21).map(|days| came(1, days)).chain([came(2, 0)]).collect::<Vec<_>>());
    counted(&origin, &token, &json!({}), 2);
    assert_eq!(place.json(&["job", "run", "activity"]), json!({ "people": 2 }));

    let ask = |accept: &str, body: Value| ask(&origin, &token, "schedule", accept, &body);
    let answer = ask("application/x-ndjson", json!({"filter": {}, "hours": 169}));
    let mut lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["person"].to_string());
    let [first, second] = lines.as_slice() else { unreachable!("{}", answer.text()) };
    assert_eq!(first["person"], visitor(1).to_string());
    assert_eq!(
        (&first["time_zone"], &first["best"], &first["source"]),
        (&json!("Asia/Kolkata"), &json!(true), &json!("person"))
    );
    let at = first["at_ms"].as_u64().unwrap();
    let daily = (at / HOUR_MS) % 24 == (today / HOUR_MS) % 24;
    assert!(daily && at + HOUR_MS > now() && at < now() + 169 * HOUR_MS, "{first}");
    assert!(first["confidence"].as_u64().unwrap() >= 80, "{first}");
    // Half past by the tenant's clock if the hour begins in the future; later if it has begun.
    assert!(at % HOUR_MS > 0 || first["local"].as_str().unwrap().ends_with(":30"), "{first}");
    assert_eq!((&second["source"], &second["confidence"]), (&json!("population"), &json!(0)));

    let later =
        json!({"filter": {"events.page": {"$count": {"$gte": 2}}}, "from_ms": today + 72 * HOUR_MS, "hours": 168});
    let csv = ask("text/csv", later).text();
    let (head, rows) = csv.split_once('\n').unwrap();
    assert_eq!(head, "person,at_ms,local,time_zone,best,source,confidence");
    assert!(rows.starts_with(&visitor(1).to_string()) && rows.contains(",Asia/Kolkata,true,person,"), "{csv}");
    for (body, wrong) in [
        (json!({"filter": {}, "hours": 0}), "1 to 8784 hours"),
        (json!({"filter": {}, "from_ms": today, "hours": 1}), "the window is over"),
        (json!({"filter": {}, "from_ms": u64::MAX}), "must begin within"),
        (json!({"filter": {"attributes.height": 3}}), "there is no attribute"),
    ] {
        let answer = ask("*/*", body);
        assert!(answer.status == 400 && answer.text().contains(wrong), "{wrong}: {}", answer.text());
    }

    // The command returns the same for a window in the future.
    let from = (today + 72 * HOUR_MS).to_string();
    let filter = r#"{"events.page": {"$count": {"$gte": 2}}}"#;
    let schedule = |form: &str| {
        let arguments =
            ["audience", "schedule", filter, "--from", &from, "--hours", "168", "--form", form, "--tenant", "demo"];
        String::from_utf8(place.run(&arguments).stdout).unwrap()
    };
    assert_eq!(schedule("csv"), csv);
    let one: Value = serde_json::from_str(&schedule("ndjson")).unwrap();
    assert_eq!(one["person"], visitor(1).to_string());
    let bad = place.run(&["audience", "schedule", "{}", "--from", "soon", "--tenant", "demo"]);
    assert!(!bad.status.success() && String::from_utf8_lossy(&bad.stderr).contains("invalid --from `soon`"));
}

#[test]
fn an_unknown_time_zone_ends_the_start() {
    let place = Place::new();
    let configured = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), configured.replacen("dev = true", "time_zone = \"Mars/Olympus\"", 1)).unwrap();
    let refused = place.run(&["serve"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("tenant[0].time_zone: `Mars/Olympus` is none"), "{message}");
}
