//! Audiences over the admin side and on the command line.

use std::time::{Duration, Instant};

use causeway_shared::attributes::Value as Attribute;
use causeway_shared::fact::{Fact, What};
use serde_json::{Value, json};

use crate::support::{Answer, Origin, Place, fact, page, purchase, visitor};

fn says(n: u32, name: &str, value: Attribute) -> Fact {
    fact(visitor(n), 9, What::Attributes { writes: vec![(name.to_owned(), Some(value))] })
}

fn ask(origin: &Origin, token: &str, what: &str, accept: &str, body: &Value) -> Answer {
    let headers = [("authorization", format!("Bearer {token}")), ("accept", accept.to_owned())];
    origin.call("POST", &format!("/admin/v1/audience/{what}?tenant=demo"), &headers, body.to_string().as_bytes())
}

/// Until the columns have what was sent: they follow by themselves.
fn counted(origin: &Origin, token: &str, filter: &Value, expected: u64) -> Value {
    let started = Instant::now();
    loop {
        let answer = ask(origin, token, "members", "*/*", &json!({ "filter": filter }));
        if answer.status == 200 && answer.json()["count"] == expected {
            return answer.json();
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{} {}", answer.status, answer.text());
    }
}

#[test]
fn s4_02_s4_04_an_audience_is_estimated_counted_and_listed() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    // 600 people, a third of them from Bonn; a tenth bought.
    let mut facts: Vec<Fact> = (0..600).map(|n| page(visitor(n), 1)).collect();
    facts.extend(
        (0..600).map(|n| says(n, "city", Attribute::String(if n % 3 == 0 { "Bonn" } else { "Ulm" }.to_owned()))),
    );
    facts.extend((0..600).step_by(10).map(|n| purchase(visitor(n), 2, 1_000_000 + i64::from(n))));
    for some in facts.chunks(200) {
        origin.send(some);
    }
    let bonn = json!({"attributes.city": "Bonn"});
    let answer = counted(&origin, &token, &bonn, 200);
    assert_eq!(answer["population"], 600);
    assert!(answer["as_of_ms"].as_u64().unwrap() > 0);

    let precise = json!({"filter": bonn, "precision": 0.000_01, "measure": "revenue_micros"});
    let lines = ask(&origin, &token, "estimate", "application/x-ndjson", &precise).text();
    let looks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = looks.last().unwrap();
    assert!(looks.iter().all(|look| (look["final"] == true) == (look == last)), "{lines}");
    // Everybody was looked at: the count itself.
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

    // A login makes one of two people: within a second, whatever else goes on.
    origin.send(&[origin.login(visitor(0), 7, "ann"), origin.login(visitor(1), 7, "ann")]);
    let merged = Instant::now();
    counted(&origin, &token, &json!({"devices": 2, "attributes.city": {"$in": ["Bonn", "Ulm"]}}), 1);
    assert!(merged.elapsed() < Duration::from_secs(5), "{:?}", merged.elapsed());
    counted(&origin, &token, &json!({}), 599);

    commands(&place, &bonn);
}

/// The commands find the same from the store alone.
fn commands(place: &Place, bonn: &Value) {
    let told = place.json(&["audience", "members", "{}", "--tenant", "demo"]);
    assert_eq!(told["count"], 599);
    let told = place.json(&["audience", "estimate", &bonn.to_string(), "--precision", "0.00001", "--tenant", "demo"]);
    assert_eq!(told["population"], 599);
    let exported = place.run(&["audience", "export", r#"{"devices": 2}"#, "--form", "csv", "--tenant", "demo"]);
    assert_eq!(String::from_utf8(exported.stdout).unwrap(), format!("person\n{}\n", visitor(0)));
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
        (json!({"page.url": "https://a.example/"}), "filter.page.url: an audience is of people"),
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
