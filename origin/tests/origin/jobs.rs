//! Jobs: by the command in parallel with a serving origin, by calls of the admin API, and by timers.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::Fact;
use serde_json::{Value, json};

use crate::support::{Answer, Origin, Place, SOON, TENANTS, hold, once, page, visitor, within};

/// A configuration without timers, with a tenant that has a retention.
const CALLED: &str = r#"
jobs = { trim_hours = 0, retention_hours = 0, reconcile_hours = 0, train_hours = 0, rollup_hours = 0, activity_hours = 0, scrub_hours = 0 }

[[tenant]]
name = "demo"
hosts = ["localhost"]
forget_after_days = 10
"#;

const DAY_MS: u64 = 86_400_000;

fn start(origin: &Origin, token: &str, job: &str) -> Answer {
    let bearer = [("authorization", format!("Bearer {token}"))];
    origin.call("POST", &format!("/admin/v1/jobs/{job}"), &bearer, b"")
}

/// The report of `scrub` over an empty store.
static SOUND: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
    json!({
        "visitors": 0, "lookups": 0, "experiment_people": 0, "damaged_visitors": 0, "damaged_lookups": 0,
        "damaged_experiment_people": 0, "damaged_tenant_values": 0, "first": [],
    })
});

/// A page view this number of days ago.
fn ago(v: u32, days: u64) -> Fact {
    let fact = page(visitor(v), 1);
    let at = fact.received - days * DAY_MS;
    Fact { received: at, at, ..fact }
}

#[test]
fn a_call_starts_a_job_and_its_run_tells_what_came_of_it() {
    let place = Place::with(CALLED);
    let (operator, viewer) = (place.token("operator"), place.token("viewer"));
    let origin = place.serve();
    origin.send(&[ago(1, 9), ago(2, 11), ago(3, 12)]);
    for (path, status, code) in [
        ("everything", 404, "unknown_job"),
        ("trim?dry_run=maybe", 400, "bad_query"),
        ("train?tenant=nobody", 400, "unknown_tenant"),
    ] {
        let refused = start(&origin, &operator, path);
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{path}");
    }
    assert_eq!(start(&origin, &viewer, "trim").status, 403);
    // Parameters in a body that is not read would start the job without `dry_run`.
    let bearer = [("authorization", format!("Bearer {operator}"))];
    let body = origin.call("POST", "/admin/v1/jobs/trim", &bearer, br#"{"dry_run":true}"#);
    assert_eq!((body.status, body.code().as_str()), (400, "unexpected_body"));
    assert_eq!(origin.admin(&viewer, "jobs/77").code(), "unknown_run");
    assert_eq!(origin.admin(&viewer, "jobs/x").code(), "bad_id");
    assert_eq!(origin.admin(&viewer, "jobs?limit=0").status, 400);

    let dry = start(&origin, &operator, "retention?dry_run=true");
    assert_eq!(dry.status, 202);
    let (dry, forgotten) = (dry.json(), json!({ "visitors": 3, "forgotten": 2 }));
    assert_eq!((&dry["job"], &dry["trigger"], &dry["dry_run"]), (&json!("retention"), &json!("signal"), &json!(true)));
    let dry = origin.ended(&viewer, &dry["run"]);
    assert_eq!((&dry["outcome"], &dry["report"]), (&json!("done"), &forgotten), "{dry}");
    assert!((1..=3).all(|v| place.inspect(visitor(v))["own"]["pages"] == 1), "a dry run changes nothing");
    assert_eq!(origin.metric("causeway_job_last_success_seconds{job=\"retention\"}"), "0.0");

    let run = origin.ended(&viewer, &start(&origin, &operator, "retention").json()["run"]);
    assert_eq!((&run["outcome"], &run["report"]), (&json!("done"), &forgotten), "{run}");
    let gone: Vec<bool> = (1..=3).map(|v| place.inspect(visitor(v))["tombstone"] == true).collect();
    assert_eq!(gone, [false, true, true]);
    let list = origin.admin(&viewer, "jobs?job=retention").json();
    assert_eq!(list["runs"], json!([run, dry]));
    assert_eq!(origin.admin(&viewer, "jobs?job=trim").json(), json!({ "runs": [] }));
    let count = "causeway_job_runs_total{job=\"retention\",outcome=\"done\"}";
    assert_eq!(origin.metric(count), "2");
    assert_ne!(origin.metric("causeway_job_last_success_seconds{job=\"retention\"}"), "0.0");
    assert_eq!(place.json(&["job", "show", &run["run"].to_string()]), run);
    assert_eq!(place.json(&["job", "list", "--limit", "1"]), json!([run]));
}

#[test]
fn a_command_says_what_it_would_do_and_its_runs_are_history_too() {
    let place = Place::with(CALLED);
    drop(place.serve());
    for (job, came) in [
        ("trim", json!({ "visitors": 0, "changed": 0, "segments": 0, "actions": 0, "lookups": 0 })),
        ("retention", json!({ "visitors": 0, "forgotten": 0 })),
        ("rollup", json!({ "people": 0, "changed": 0, "sums": 0 })),
        ("activity", json!({ "people": 0 })),
        ("scrub", SOUND.clone()),
    ] {
        assert_eq!(place.json(&["job", "run", job, "--dry-run"]), came);
        assert_eq!(place.json(&["job", "run", job]), came);
        let runs = place.json(&["job", "list", "--job", job]);
        let triggers: Vec<_> = runs.as_array().unwrap().iter().map(|run| (&run["dry_run"], &run["trigger"])).collect();
        assert_eq!(triggers, [(&json!(false), &json!("command")), (&json!(true), &json!("command"))]);
    }
    assert_eq!(place.run(&["job", "list", "--job", "everything"]).status.code(), Some(2));
    let unknown = place.run(&["job", "show", "77"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("run 77 not found"));
}

#[test]
fn one_run_goes_on_at_a_time() {
    let place = Place::with(CALLED);
    let operator = place.token("operator");
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    // The test holds the job lock, as another process with a run would. The origin holds it while it checks timers.
    let alone = within(SOON, "the lock is free", || causeway_origin::store::lock_job(&place.path().join("data")));
    let waiting = start(&origin, &operator, "trim");
    assert_eq!((waiting.status, &waiting.json()["started_ms"]), (202, &Value::Null));
    let second = start(&origin, &operator, "trim?dry_run=true");
    assert_eq!((second.status, second.code()), (409, "under_way".to_owned()));
    assert_eq!(second.json()["run"], waiting.json());
    assert_eq!(start(&origin, &operator, "reconcile?dry_run=true").status, 202, "a run of another job may wait too");
    let refused = place.run(&["job", "run", "trim"]);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(message.contains("a job is running") && message.contains("let it end first"), "{message}");
    drop(alone);
    assert_eq!(origin.ended(&operator, &waiting.json()["run"])["outcome"], "done");
}

#[test]
fn a_stop_ends_a_run_between_two_transactions_and_the_next_start_goes_on() {
    let place = Place::with(CALLED);
    let operator = place.token("operator");
    let mut origin = place.serve();
    origin.send(&(1..=2_500).map(|v| ago(v, 12)).collect::<Vec<_>>());
    let no = start(&origin, &operator, "retention").json()["run"].clone();
    let run = |origin: &Origin| origin.admin(&operator, &format!("jobs/{no}")).json();
    within(SOON, "some are forgotten", || once(run(&origin), |run| !run["report"]["forgotten"].is_null()));
    origin.signal("-TERM");
    assert_eq!(origin.wait(), Some(0));
    let cut = place.json(&["job", "show", &no.to_string()]);
    assert_eq!(cut["outcome"], "interrupted", "{cut}");
    let forgotten = cut["report"]["forgotten"].as_u64().unwrap();
    assert!((250..2_500).contains(&forgotten), "{cut}");

    let origin = place.serve();
    let last = within(SOON, "the run continues", || once(run(&origin), |run| run["outcome"] == "done"));
    assert_eq!(last["report"], json!({ "visitors": 2_500, "forgotten": 2_500 }));
    assert_eq!(last["started_ms"], cut["started_ms"]);
}

#[test]
fn a_job_that_is_due_at_the_start_runs_then_and_not_again() {
    let place = Place::with(TENANTS);
    let viewer = place.token("viewer");
    let named = |origin: &Origin| -> Vec<(String, String)> {
        let list = origin.admin(&viewer, "jobs").json()["runs"].as_array().unwrap().clone();
        let text = |run: &Value, name: &str| run[name].as_str().unwrap_or_default().to_owned();
        list.iter().filter(|run| run["outcome"] == "done").map(|run| (text(run, "job"), text(run, "trigger"))).collect()
    };
    let by_timer = |jobs: &[&str]| jobs.iter().map(|job| ((*job).to_owned(), "timer".to_owned())).collect::<Vec<_>>();
    // Newest first: jobs that delete by age wait for a sync that confirms the date.
    let all = by_timer(&["rollup", "retention", "trim", "scrub", "activity", "reconcile"]);
    let origin = place.serve();
    let ran = |all: &[(String, String)]| {
        let named = named(&origin);
        if named == all { Ok(()) } else { Err(format!("{named:?}")) }
    };
    within(SOON, "due jobs run", || ran(all.get(3..).unwrap()));
    origin.send(&[page(visitor(1), 1)]);
    within(SOON, "jobs that wait for a date run", || ran(&all));
    drop(origin);
    let before = place.activity_due();
    let origin = place.serve();
    place.looked(before);
    assert_eq!(named(&origin), [by_timer(&["activity", "activity"]), all].concat(), "the due job and no other");
}

/// Flips a bit of a visitor's id in the table of visitors in the store's file; the indexes keep the old id.
fn flip_id(store: &std::path::Path, visitor: VisitorId) {
    let conn = rusqlite::Connection::open(store).unwrap();
    let profile: Vec<u8> = conn
        .query_row("SELECT profile FROM visitors WHERE visitor = ?1", [visitor.as_bytes()], |row| row.get(0))
        .unwrap();
    conn.pragma_query(None, "wal_checkpoint", |_| Ok(())).unwrap();
    drop(conn);
    let mut bytes = std::fs::read(store).unwrap();
    let is_table = |at: &usize| bytes[*at..].windows(profile.len()).take(64).any(|some| some == profile);
    let found = |(at, some): (usize, &[u8])| (some == visitor.as_bytes()).then_some(at);
    let places: Vec<usize> = bytes.windows(16).enumerate().filter_map(found).filter(is_table).collect();
    assert_eq!(places.len(), 1);
    bytes[places[0] + 15] ^= 4;
    std::fs::write(store, bytes).unwrap();
}

#[test]
fn a_flipped_bit_in_a_visitors_id_is_found_and_affects_only_that_visitor() {
    let place = Place::with(CALLED);
    let mut origin = place.serve();
    origin.send(&[page(visitor(1), 1), page(visitor(2), 1)]);
    origin.signal("-TERM");
    assert_eq!(origin.wait(), Some(0));
    flip_id(&place.path().join("data/causeway.db"), visitor(1));

    let dry = place.run(&["job", "run", "scrub", "--dry-run", "--output", "json"]);
    let run = place.run(&["job", "run", "scrub", "--output", "json"]);
    assert_eq!([dry.status.code(), run.status.code()], [Some(1), Some(1)]);
    let message = String::from_utf8(run.stderr).unwrap();
    assert!(message.contains("1 stored values are damaged") && message.contains("restore a backup"), "{message}");
    let report = place.json(&["job", "list", "--job", "scrub"])[0]["report"].clone();
    assert_eq!((&report["visitors"], &report["damaged_visitors"]), (&json!(2), &json!(1)), "{report}");
    assert!(report["first"][0]["why"].as_str().unwrap().contains("another in its index"), "{report}");

    let origin = place.serve();
    assert_eq!(origin.send(&[page(visitor(1), 2), page(visitor(2), 2)]).rejected.len(), 0, "both are acknowledged");
    within(SOON, "one fact waits", || match origin.metric("causeway_quarantined_facts").as_str() {
        "1" => Ok(()),
        other => Err(other.to_owned()),
    });
    assert_eq!(place.inspect(visitor(2))["own"]["pages"], 2);
}

#[test]
fn a_store_that_cannot_be_written_takes_no_run_and_says_so() {
    let place = Place::with(CALLED);
    let operator = place.token("operator");
    let origin = place.serve();
    let held = hold(&place, "causeway.db");
    let refused = start(&origin, &operator, "trim");
    assert_eq!((refused.status, refused.code()), (503, "store".to_owned()));
    drop(held);
    assert_eq!(start(&origin, &operator, "trim").status, 202);
}

#[test]
fn broken_people_are_shown_by_the_plan_and_mended_while_the_origin_runs() {
    let place = Place::new();
    let origin = place.serve();
    for v in 1..=3 {
        origin.send(&[page(visitor(v), 1), origin.login(visitor(v), 2, "ann")]);
    }
    origin.send(&[page(visitor(4), 1)]);
    let job = |more: &[&str]| place.json(&[&["job", "run", "reconcile"], more].concat());
    let sound = json!({ "visitors": 4, "links": 3, "people": 2, "differences": {}, "first": [] });
    // An acknowledged fact is folded a moment later.
    assert!((0..1_000).any(|_| job(&["--dry-run"]) == sound), "{}", job(&["--dry-run"]));
    {
        let conn = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
        let wrong = "UPDATE visitors SET person = (SELECT person FROM visitors WHERE visitor = ?1) WHERE visitor = ?2";
        conn.execute(wrong, [visitor(4).as_bytes(), visitor(3).as_bytes()]).unwrap();
    }
    let plan = job(&["--dry-run"]);
    assert_eq!(plan["differences"], json!({ "apart": 1, "devices": 1, "together": 2 }), "{plan}");
    assert_eq!(job(&["--dry-run"]), plan, "a plan changes nothing");
    let named = json!({ "tenant": "demo", "cause": "together", "master": visitor(1).to_string(), "visitors": 3 });
    assert!(plan["first"].as_array().unwrap().contains(&named), "{plan}");
    let done = job(&[]);
    assert_eq!((&done["mended"], &done["left"]), (&json!(2), &json!({})), "{done}");
    origin.send(&[page(visitor(3), 3)]);
    let whose = |v: u32| place.inspect(visitor(v))["person"].clone();
    assert_eq!((whose(3)["devices"].clone(), whose(4)["devices"].clone()), (json!(3), json!(1)));
    assert_eq!(job(&[])["mended"], 0);
}
