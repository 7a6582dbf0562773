//! Contents of truncated snapshots, and the law that no missing data makes a filter match.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ads::decision::DescribedPerson;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::random::Random;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::attributes::{AttributeValue as Attribute, NameToken};
use causeway_shared::facts::fact::FactKind;
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use causeway_shared::profiles::profile::MissingParts;
use causeway_shared::profiles::view::{JoinedView, PersonView, Snapshot};
use causeway_shared::targeting::filter::{
    CountAnswerer, Entities, EventEvidence, Filter, FilterSubject, FilterWords, PersonHistory, parse,
};
use serde_json::{Value, json};

use crate::audience::person_row;
use crate::campaigns::catalogue;
use crate::kv::explain::{ExplainRequest, explain_decision};
use crate::store::names;
use crate::testing::{NOW, Origin, fact, page, snapshot, visitor};

/// Gives a visitor many segments, possibly segment 4242 and the attribute X, and then 18 KB of attributes.
fn overfill(origin: &mut Origin, of: VisitorId, is_suppressed: bool) {
    let held = |id: u32| {
        let attributes = (0..4).map(|token| (token, i32::MAX - i32::from(token)));
        (SegmentId(id), SegmentState::held(HourStamp(184_104), attributes))
    };
    let text = |n: u32| Attribute::String(format!("{n:0>200}"));
    let mut facts = Vec::new();
    if is_suppressed {
        facts.push(fact(of, 1, NOW, FactKind::Segments { writes: vec![held(4_242)] }));
        facts.push(fact(of, 2, NOW, FactKind::Attributes { writes: vec![("X".to_owned(), Some(text(0)))] }));
    }
    for n in 0..9 {
        let writes = (0..1_000).map(|i| held(100_000 + (n * 1_000 + i) * 4_000)).collect();
        facts.push(fact(of, 10 + n, NOW + 10 + u64::from(n), FactKind::Segments { writes }));
    }
    for n in 0..3 {
        let name = |i: u32| (format!("a{}", n * 30 + i), Some(text(i)));
        let writes = (0..30).map(name).collect();
        facts.push(fact(of, 50 + n, NOW + 50 + u64::from(n), FactKind::Attributes { writes }));
    }
    for fact in facts {
        origin.send("demo", &[fact]);
    }
}

fn document(targets: &[(&str, Value)]) -> Value {
    let rows = |row: &dyn Fn(&str) -> Value| targets.iter().map(|(id, _)| row(id)).collect::<Value>();
    let targeted = |(id, targeting): &(&str, Value)| json!({ "id": id, "advertiser": id, "targeting": targeting });
    json!({
        "advertiser": rows(&|id| json!({ "id": id })),
        "campaign": targets.iter().map(targeted).collect::<Value>(),
        "ad_group": rows(&|id| json!({ "id": id, "campaign": id })),
        "ad": rows(&|id| json!({ "id": id, "ad_group": id, "creative": {}, "landing": "https://a.example/" })),
    })
}

fn apply(origin: &mut Origin, targets: &[(&str, Value)]) {
    let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
    catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document(targets), "tests").unwrap();
}

/// Outcome of each ad for a visitor at the edge.
fn outcomes(origin: &Origin, of: VisitorId, ads: usize) -> BTreeMap<String, String> {
    let placements: Value = (0..ads).map(|n| json!({ "id": format!("p{n}") })).collect();
    let (place, agent) = (String::new(), "Mozilla/5.0".to_owned());
    let ask = ExplainRequest { visitor: of, body: json!({ "placements": placements }), place, agent, now: origin.now };
    let answer = explain_decision(&origin.conn, &origin.edge, &origin.keys, origin.tenant("demo"), &ask).unwrap();
    let first = answer["trace"]["placements"][0]["candidates"].as_array().unwrap();
    let outcome = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        (text("ad"), if text("reason").is_empty() { text("outcome") } else { text("reason") })
    };
    first.iter().map(outcome).collect()
}

/// A suppressed visitor gets more attributes and segments than its snapshot holds.
#[test]
fn a_suppression_never_fails_open_and_what_a_catalogue_newly_names_is_published_again() {
    let mut origin = Origin::new();
    let mut kv = BTreeMap::new();
    overfill(&mut origin, visitor(1), true);
    overfill(&mut origin, visitor(2), false);
    origin.send("demo", &[page(visitor(3), 1, NOW)]);
    origin.settle(&mut kv);
    let held = |kv: &BTreeMap<String, String>, of: u32| {
        let snapshot = snapshot(kv, visitor(of));
        let own = &snapshot.profiles[&visitor(of)];
        let segments: BTreeSet<SegmentId> = own.segments().unwrap().ids().collect();
        let attributes: BTreeSet<NameToken> = own.attributes().unwrap().tokens().collect();
        (snapshot.missing(), segments.contains(&SegmentId(4_242)), attributes.len())
    };
    let both = MissingParts::ATTRIBUTES.union(MissingParts::SEGMENTS);
    assert_eq!(held(&kv, 1), (both, false, 38));
    let version = |kv: &BTreeMap<String, String>, of| snapshot(kv, visitor(of)).version;
    let before = [1, 2, 3].map(|of| version(&kv, of));
    let targets = [
        ("suppressed", json!({ "segments": { "$nin": [4_242] } })),
        ("without_x", json!({ "attributes.X": { "$exists": false } })),
    ];
    apply(&mut origin, &targets);
    origin.settle(&mut kv);
    let after = [1, 2, 3].map(|of| version(&kv, of));
    assert!(after[0] > before[0] && after[1] > before[1] && after[2] == before[2], "{before:?} {after:?}");
    assert!(held(&kv, 1).1 && held(&kv, 2).1, "whether they are in it is known");
    let never = |ad: &str| (ad.to_owned(), "targeting".to_owned());
    let suppressed = outcomes(&origin, visitor(1), 2);
    assert!(suppressed.values().all(|outcome| outcome != "won" && outcome != "outbid"), "{suppressed:?}");
    assert_eq!(suppressed["without_x"], never("without_x").1);
    let won = outcomes(&origin, visitor(2), 1);
    assert!(won.values().all(|outcome| outcome == "won" || outcome == "outbid"), "{won:?}");
    // The same targets in another order, and a target that does not concern people, cause no write.
    apply(&mut origin, &[targets[1].clone(), targets[0].clone(), ("all", json!({ "geo.country": "DE" }))]);
    origin.settle(&mut kv);
    assert_eq!([1, 2, 3].map(|of| version(&kv, of)), after);
    apply(&mut origin, &[("a", json!({ "segments": { "$nin": [9] } }))]);
    origin.settle(&mut kv);
    assert!(version(&kv, 1) > after[0] && version(&kv, 3) == after[2]);
}

#[test]
fn an_audience_that_negates_what_was_not_read_means_nobody_and_names_it() {
    let mut origin = Origin::new();
    overfill(&mut origin, visitor(1), true);
    origin.settle(&mut BTreeMap::new());
    apply(&mut origin, &[("suppressed", json!({ "segments": { "$nin": [4_242, 77] } }))]);
    // The state of an edge before the snapshot is written again.
    let queried = "UPDATE catalogues SET queried = '{\"attributes\":[],\"segments\":[],\"caps\":[]}'";
    origin.conn.execute(queried, []).unwrap();
    assert_eq!(outcomes(&origin, visitor(1), 1)["suppressed"], "unknown: segments");
}

/// A person of some visitors whose attributes and segments do not fit into one snapshot.
fn person_of(origin: &mut Origin, first: u32, visitors: u32, random: &mut Random) {
    let mut draw = |below: u32| u32::from_be_bytes(random.draw()) % below;
    for v in first..first + visitors {
        let of = visitor(v);
        let mut facts = vec![page(of, 1, NOW), origin.login(of, 2, NOW, &format!("m{first}"))];
        let text = |n: u32| Attribute::String(format!("{:0>250}", n % 3));
        let names: BTreeSet<u32> = (0..draw(60)).map(|_| draw(60)).collect();
        let writes = names.into_iter().map(|n| (format!("b{n}"), Some(text(n)))).collect::<Vec<_>>();
        if !writes.is_empty() {
            facts.push(fact(of, 3, NOW, FactKind::Attributes { writes }));
        }
        let held: BTreeSet<u32> = (0..draw(6)).map(|_| draw(12)).collect();
        let state =
            |id: u32| SegmentState::held(HourStamp::at(NOW + 400 * 3_600_000), [(1, i32::try_from(id).unwrap())]);
        let writes = held.into_iter().map(|id| (SegmentId(id), state(id))).collect::<Vec<_>>();
        if !writes.is_empty() {
            facts.push(fact(of, 4, NOW, FactKind::Segments { writes }));
        }
        origin.send("demo", &facts);
    }
}

fn random_filter(random: &mut Random) -> Value {
    let mut draw = |below: u32| u32::from_be_bytes(random.draw()) % below;
    let mut condition = || {
        let name = format!("attributes.b{}", draw(60));
        let value = format!("{:0>250}", draw(3));
        match draw(8) {
            0 => json!({ name: value }),
            1 => json!({ name: { "$ne": value } }),
            2 => json!({ name: { "$exists": false } }),
            3 => json!({ name: { "$nin": [value] } }),
            4 => json!({ "segments": { "$nin": [draw(12), draw(12)] } }),
            5 => json!({ "segments": draw(12) }),
            6 => json!({ "devices": { "$lte": draw(12) } }),
            _ => json!({ "events.page": { "$count": { "$lt": draw(12) } } }),
        }
    };
    let both = [condition(), condition()];
    match draw(4) {
        0 => both[0].clone(),
        1 => json!({ "$and": both }),
        2 => json!({ "$or": both }),
        _ => json!({ "$not": { "$or": both } }),
    }
}

fn matches_filter(filter: &Filter, counted: &PersonView<'_>) -> bool {
    let described = DescribedPerson::of(counted, NOW);
    let actions = counted.actions();
    let (totals, events, missing) = (counted.totals(), EventEvidence::Snapshots(counted), counted.missing());
    let counts = filter.answers(&PersonHistory { totals, actions: &actions, events, missing }, Minute::at(NOW));
    filter.matches(&FilterSubject { person: Some(described.person()), counts: &counts, ..FilterSubject::default() })
}

fn view(snapshot: Snapshot) -> JoinedView {
    let mut view = JoinedView::default();
    view.add_snapshot(snapshot);
    view
}

#[test]
fn a_filter_that_does_not_mean_a_person_at_the_origin_means_none_of_its_snapshots() {
    let (mut origin, mut random, mut kv) = (Origin::new(), Random::new([7; 32]), BTreeMap::new());
    for first in (0..200).step_by(20) {
        let visitors = 1 + u32::from_be_bytes(random.draw()) % 14;
        person_of(&mut origin, first, visitors, &mut random);
    }
    apply(&mut origin, &[("x", json!({ "attributes.b1": { "$exists": false }, "segments": { "$nin": [1] } }))]);
    origin.settle(&mut kv);
    let tenant = origin.tenant("demo");
    let attributes = names::load_dictionary(&origin.conn, tenant.no).unwrap();
    let entities = Entities::default();
    let vocabulary = &tenant.config.vocabulary;
    let words =
        FilterWords { attributes: &attributes, vocabulary, entities: &entities, answers: CountAnswerer::Snapshot };
    let filters: Vec<Filter> = (0..1_000).map(|_| parse(&random_filter(&mut random), "", &words).unwrap()).collect();
    let (mut truncated, mut matched) = (0, 0);
    for first in (0..200).step_by(20) {
        let row = origin.row("demo", visitor(first)).person.unwrap();
        let whole = person_row::read(&origin.conn, row).unwrap().unwrap();
        let view = view(snapshot(&kv, visitor(first)));
        let counted = view.of(visitor(first));
        truncated += u32::from(!counted.missing().is_empty());
        for filter in &filters {
            let at_edge = matches_filter(filter, &counted);
            matched += u32::from(at_edge);
            assert!(!at_edge || whole.matches_filter(filter, NOW), "{filter:?} {:?}", counted.missing());
        }
    }
    assert!(truncated > 5 && matched > 1_000, "{truncated} {matched}");
}
