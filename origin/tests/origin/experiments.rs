//! Experiments over the admin API and on the command line.

use std::process::Output;

use causeway_shared::facts::fact::{Fact, FactKind};
use serde_json::{Value, json};

use crate::support::{Place, SOON, once, page, purchase, visitor, within};

const CATALOGUE: &str = r#"
[[experiment]]
id = "e-1"
code = 1
starts = 0
arm = [
    { id = "none", code = 1, share = 5000, control = true },
    { id = "b", code = 2, share = 5000 },
]
"#;

fn apply(place: &Place, text: &str) -> Output {
    let file = place.path().join("ads.toml");
    std::fs::write(&file, text).unwrap();
    place.run(&["catalogue", "apply", file.to_str().unwrap(), "--tenant", "demo"])
}

fn exposure(n: u32, arm: u8) -> Fact {
    Fact { what: FactKind::Exposure { experiment: 1, arm }, ..page(visitor(n), 1) }
}

#[test]
fn an_experiment_shows_its_arms_traffic_conversions_and_uplift() {
    let place = Place::new();
    assert_eq!(apply(&place, CATALOGUE).status.code(), Some(0));
    let origin = place.serve();
    let exposed = (0..40).map(|n| exposure(n, if n % 2 == 0 { 1 } else { 2 }));
    // Conversions: five of twenty in the control, ten of twenty in b; one person of b bought twice.
    let bought = (0..40).filter(|n| n % 4 == 1 || n % 8 == 0).map(|n| purchase(visitor(n), 2, 3_000_000));
    // The repeated purchase is made last, because a conversion before its exposure does not count.
    let again = std::iter::once_with(|| purchase(visitor(1), 3, 1_000_000));
    origin.send(&exposed.chain(bought).chain(again).collect::<Vec<_>>());
    let token = place.token("viewer");
    let path = "experiments/e-1?tenant=demo";
    assert_eq!(origin.get(&format!("/admin/v1/{path}")).status, 401);
    assert_eq!(origin.admin(&token, "experiments/e-2?tenant=demo").code(), "unknown_experiment");
    // The answer covers folded facts, which takes a moment after the sync.
    let found = within(SOON, "all is folded", || {
        once(origin.admin(&token, path).json(), |found| found["arms"][1]["conversions"] == 11)
    });
    let arm = |i: usize, field: &str| found["arms"][i][field].clone();
    let counts = ["arm", "recipients", "converted", "conversions", "revenue_micros", "share_now"];
    assert_eq!(
        counts.map(|field| arm(0, field)),
        [json!("none"), json!(20), json!(5), json!(5), json!(15_000_000), json!(5_000)]
    );
    assert_eq!(
        counts.map(|field| arm(1, field)),
        [json!("b"), json!(20), json!(10), json!(11), json!(31_000_000), json!(5_000)]
    );
    assert_eq!((arm(1, "rate")["value"].clone(), arm(1, "difference")["value"].clone()), (json!(0.5), json!(0.25)));
    assert!((arm(1, "uplift")["value"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert_eq!([arm(0, "uplift"), arm(0, "best")], [Value::Null, Value::Null]);
    assert!(arm(1, "posterior")["low"].as_f64() < arm(1, "posterior")["value"].as_f64());
    assert_eq!((&found["sample_ratio"]["mismatch"], &found["mixed"]), (&json!(false), &json!(0)));
    for periods in ["hours", "days"] {
        let sum = |field: &str| {
            found[periods].as_array().unwrap().iter().map(|period| period[field].as_i64().unwrap()).sum::<i64>()
        };
        let fields =
            ["exposed", "cohort_converted", "cohort_conversions", "converted", "conversions", "revenue_micros"];
        assert_eq!(fields.map(sum), [40, 15, 16, 15, 16, 46_000_000], "{periods}");
    }
    let shown = place.json(&["experiment", "show", "e-1", "--tenant", "demo"]);
    assert_eq!(shown["arms"], found["arms"]);
    assert_eq!(place.run(&["experiment", "show", "e-9", "--tenant", "demo"]).status.code(), Some(1));
}

#[test]
fn an_experiment_plan_states_people_and_duration() {
    let place = Place::new();
    let plan = |more: &[&str]| place.json(&[&["experiment", "plan", "--base", "0.1", "--uplift", "1"], more].concat());
    let two = plan(&["--traffic", "100"]);
    assert_eq!([&two["people_an_arm"], &two["people"], &two["days"]], [&json!(199), &json!(398), &json!(4)]);
    let three = plan(&["--arms", "3", "--power", "0.9"]);
    assert!(three["people_an_arm"].as_u64() > Some(199) && three["days"].is_null());
    for bad in [["--base", "0"], ["--uplift", "0"], ["--arms", "1"], ["--power", "1"], ["--traffic", "0"]] {
        let base = if bad[0] == "--base" {
            &["experiment", "plan", "--uplift", "1"][..]
        } else {
            &["experiment", "plan", "--base", "0.1"][..]
        };
        let uplift = if bad[0] == "--uplift" || bad[0] == "--base" { &[][..] } else { &["--uplift", "1"][..] };
        assert_eq!(place.run(&[base, uplift, &bad].concat()).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_wrong_experiment_is_told_with_its_path() {
    let wrong = CATALOGUE.replace("share = 5000 },", "share = 6000 },").replace("code = 2", "code = 1");
    let output = apply(&Place::new(), &wrong);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for path in ["experiment[0].arm ", "experiment[0].arm[1].code "] {
        assert!(printed.contains(path), "{path} is missing in {printed}");
    }
}
