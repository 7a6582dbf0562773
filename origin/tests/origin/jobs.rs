//! Jobs, by the command, beside a serving origin.

use serde_json::json;

use crate::support::{Place, page, visitor};

#[test]
fn s5_06_broken_people_are_shown_by_the_plan_and_mended_while_the_origin_serves() {
    let place = Place::new();
    let origin = place.serve();
    for v in 1..=3 {
        origin.send(&[page(visitor(v), 1), origin.login(visitor(v), 2, "ann")]);
    }
    origin.send(&[page(visitor(4), 1)]);
    let job = |more: &[&str]| place.json(&[&["job", "run", "reconcile"], more].concat());
    let sound = json!({ "visitors": 4, "links": 3, "people": 2, "differences": {}, "first": [] });
    // What was acknowledged is folded a moment later.
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
