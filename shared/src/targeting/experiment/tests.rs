#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::first_records::FirstRecord as _;
use crate::base::ids::VisitorId;
use crate::facts::exposures::FirstExposure;

const FILE: &str = r#"{"id":"e-1","code":3,"starts":100,"ends":200,"arm":[
    {"id":"a","code":1,"share":3000},{"id":"none","code":2,"share":2000,"control":true},{"id":"b","code":3,"share":3000}]}"#;

fn experiment() -> Experiment {
    serde_json::from_str(FILE).unwrap()
}

fn people() -> impl Iterator<Item = PersonRandom> {
    (0..40_000_u32).map(|n| {
        let [a, b, c, d] = n.to_be_bytes();
        PersonRandom::of_visitor(VisitorId::mint(1_800_000_000_000, [0, 0, 0, 0, 0, 0, a, b, c, d]))
    })
}

fn counts(shares: &[u32]) -> BTreeMap<Option<String>, u32> {
    let experiment = experiment();
    people().fold(BTreeMap::new(), |mut counts, person| {
        *counts.entry(experiment.arm(&person, shares).map(|arm| arm.id.clone())).or_default() += 1;
        counts
    })
}

#[test]
fn people_are_assigned_to_arms_by_share_and_the_rest_is_outside() {
    let near = |counts: &BTreeMap<Option<String>, u32>, arm: Option<&str>, share: f64| {
        let count = f64::from(counts.get(&arm.map(str::to_owned)).copied().unwrap_or_default());
        // Six standard deviations of a binomial count.
        assert!(
            (count - 40_000.0 * share).abs() <= 6.0 * (40_000.0 * share * (1.0 - share)).sqrt(),
            "{arm:?}: {count}"
        );
    };
    let own = counts(&[]);
    [(Some("a"), 0.3), (Some("none"), 0.2), (Some("b"), 0.3), (None, 0.2)]
        .into_iter()
        .for_each(|(arm, share)| near(&own, arm, share));
    let moved = counts(&[500, 2_000, 5_500]);
    [(Some("a"), 0.05), (Some("none"), 0.2), (Some("b"), 0.55), (None, 0.2)]
        .into_iter()
        .for_each(|(arm, share)| near(&moved, arm, share));
    assert_eq!(own, counts(&[1, 2]), "shares of another number of arms are not used");
}

#[test]
fn changed_shares_of_other_arms_move_no_person_into_or_out_of_the_control_or_the_experiment() {
    let experiment = experiment();
    let side = |person: &PersonRandom, shares: &[u32]| experiment.arm(person, shares).map(|arm| arm.control);
    for person in people() {
        assert_eq!(side(&person, &[]), side(&person, &[5_900, 2_000, 100]));
    }
}

#[test]
fn the_arm_of_an_experiment_is_independent_of_the_sampling_bucket() {
    let experiment = experiment();
    let mut by_half = [[0_u32; 2]; 2];
    for person in people() {
        let half = usize::from(person.bucket(BucketPurpose::Sampling) < 5_000);
        by_half[half][usize::from(experiment.arm(&person, &[]).is_some_and(|arm| arm.id == "a"))] += 1;
    }
    let rate = |[not, is]: [u32; 2]| f64::from(is) / f64::from(not + is);
    assert!((rate(by_half[0]) - rate(by_half[1])).abs() < 6.0 * (2.0 * 0.3 * 0.7 / 20_000.0_f64).sqrt());
}

#[test]
fn an_experiment_runs_from_its_start_to_before_its_end() {
    let experiment = experiment();
    assert_eq!([99, 100, 199, 200].map(|now| experiment.runs(now)), [false, true, true, false]);
    assert!(Experiment { ends: None, ..experiment }.runs(u64::MAX));
}

#[test]
fn everything_wrong_with_an_experiment_is_said_with_its_path() {
    let wrong = |change: fn(&mut Experiment)| {
        let mut changed = experiment();
        change(&mut changed);
        let mut found = ProblemList::default();
        problems(&[experiment(), changed], "experiment", &Vocabulary::default(), &mut found);
        let of_second = found.0.into_iter().map(|problem| problem.path);
        of_second
            .filter_map(|path| path.strip_prefix("experiment[1].").map(str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
    };
    fn other(e: &mut Experiment) {
        (e.id, e.code) = ("e-2".to_owned(), 4);
    }
    assert_eq!(wrong(|_| {}), "id code");
    assert_eq!(wrong(other), "");
    type Case = (fn(&mut Experiment), &'static str);
    let cases: [Case; 9] = [
        (|e| e.id = "É".to_owned(), "id"),
        (|e| e.code = 0, "code"),
        (|e| e.arms.clear(), "arm"),
        (|e| e.arms[0].code = 0, "arm[0].code"),
        (|e| e.arms[1].code = 1, "arm[1].code"),
        (|e| e.arms[2].id = "a".to_owned(), "arm[2].id"),
        (|e| e.arms[0].share = u32::MAX, "arm"),
        (|e| e.arms[0].control = true, "arm"),
        (|e| e.ends = Some(100), "ends"),
    ];
    for (change, path) in cases {
        let mut changed = experiment();
        other(&mut changed);
        change(&mut changed);
        let mut found = ProblemList::default();
        problems(&[changed], "experiment", &Vocabulary::default(), &mut found);
        assert_eq!(found.0.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(), [format!("experiment[0].{path}")]);
    }
    let conversion = |name: &str| {
        let changed = Experiment { conversion: name.to_owned(), ..experiment() };
        let mut found = ProblemList::default();
        problems(&[changed], "experiment", &Vocabulary::default(), &mut found);
        found.0.len()
    };
    assert_eq!(["purchase", "signup", "click", "impression", ""].map(conversion), [0, 0, 0, 1, 1]);
    assert!(serde_json::from_str::<Experiment>(&FILE.replace("\"ends\"", "\"end\"")).is_err());
    assert_eq!(experiment().conversion, "purchase");
}

#[test]
fn more_than_the_bound_of_experiments_are_too_many() {
    let many = (1..34).map(|code| Experiment { id: format!("e-{code}"), code, ..experiment() });
    let mut found = ProblemList::default();
    problems(&many.collect::<Vec<_>>(), "experiment", &Vocabulary::default(), &mut found);
    assert_eq!(found.0.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(), ["experiment"]);
}

#[test]
fn the_arm_seen_first_wins_and_a_second_one_is_flagged() {
    let exposure = |arm, at| FirstExposure { arm, at, mixed: false };
    assert_eq!(exposure(2, 5).join(exposure(2, 3)), exposure(2, 3));
    assert_eq!(exposure(2, 5).join(exposure(1, 7)), FirstExposure { arm: 2, at: 5, mixed: true });
    assert_eq!(exposure(2, 5).join(exposure(1, 5)), FirstExposure { arm: 1, at: 5, mixed: true });
}

#[test]
fn exposures_beyond_the_bound_are_those_of_the_oldest_experiments_whatever_came_first() {
    let all: Vec<(u32, FirstExposure)> =
        (1..=40).map(|code| (code, FirstExposure { arm: 1, at: 1_000 - u64::from(code), mixed: false })).collect();
    let forward: Exposures = all.iter().copied().collect();
    let backward: Exposures = all.iter().rev().copied().collect();
    assert_eq!(forward, backward);
    assert_eq!(forward.iter().map(|(code, _)| code).collect::<Vec<_>>(), (9..=40).collect::<Vec<_>>());
    assert_eq!(Exposures::read(&forward.pack()), Some(forward.clone()));
    assert_eq!(forward.pack().len(), 32 * 4);
    let whole = forward.pack();
    assert!((1..whole.len()).filter(|end| end % 4 != 0).all(|end| Exposures::read(&whole[..end]).is_none()));
    assert_eq!(Exposures::read(&[1, 2, 3, 0, 2, 3]), None, "an experiment named twice");
    assert_eq!(Exposures::read(&[&whole[..], &[1, 2, 3]].concat()), None, "one too many");
}

#[test]
fn the_arm_seen_first_wins_over_the_draw_and_a_stopped_experiment_has_no_people() {
    let tested = [experiment()];
    let of = |exposures: &Exposures, shares: &Shares, now| {
        let arms = |person: PersonRandom| arms(&tested, exposures, &person, shares, now);
        people().take(200).map(arms).collect::<BTreeSet<_>>()
    };
    let (none, no_shares) = (Exposures::default(), Shares::new());
    assert_eq!(of(&none, &no_shares, 100), [None, Some(1), Some(2), Some(3)].map(|arm| vec![arm]).into());
    assert_eq!(of(&none, &no_shares, 200), [vec![None]].into());
    let seen = Exposures::from_iter([(3, FirstExposure { arm: 3, at: 50, mixed: false })]);
    assert_eq!(of(&seen, &no_shares, 150), [vec![Some(3)]].into());
    assert_eq!(of(&none, &Shares::from([(3, vec![0, 10_000, 0])]), 100), [vec![Some(2)]].into());
    let gone = Exposures::from_iter([(3, FirstExposure { arm: 9, at: 50, mixed: true })]);
    assert_eq!(of(&gone, &no_shares, 150), [vec![Some(9)]].into(), "a removed arm keeps its people");
}

#[test]
fn an_arm_is_named_by_its_experiment_and_its_own_id() {
    let tested = [experiment()];
    assert_eq!(arm_named(&tested, "e-1/none").map(|(place, arm)| (place, arm.code)), Some((0, 2)));
    for name in ["e-1/c", "e-2/none", "e-1", "/none", "e-1/none/", ""] {
        assert_eq!(arm_named(&tested, name), None, "{name}");
    }
}
