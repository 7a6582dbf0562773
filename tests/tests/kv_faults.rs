//! The worker with a hostile platform behind it: a KV that is late, broken, garbled or behind, a queue and an
//! origin that refuse; and what may be read and sent without permission.
#![expect(clippy::unwrap_used, reason = "tests end at the first thing that is not so")]

use std::collections::BTreeSet;
use std::time::Duration;

use causeway_shared::base::ids::{Epoch, SnapshotVersion, VisitorId};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::keys::sync_auth;
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{NewestNames, ProfileTotals, SubContent, SubProfile};
use causeway_shared::profiles::view::{Snapshot, StoredValue};
use causeway_shared::wire::sync::SyncRequest;
use causeway_shared::wire::{self, kv_keys};
use causeway_tests::bare::{Bare, now, tenant};
use causeway_tests::browser::{Browser, CONSENTS, CONSENTS_TO_NOTHING};
use causeway_tests::run_in_turn;
use causeway_tests::standin::{Held, Reads};
use serde_json::{Value, json};

/// A refusal that a browser sends with every call: the header, or IAB's cookies. The last is an opt-out that can be read.
const REFUSALS: [&[(&str, &str)]; 4] = [
    &[("sec-gpc", "1")],
    &[("euconsent-v2", CONSENTS_TO_NOTHING)],
    &[("euconsent-v2", "garbage")],
    &[("__gpp", "DBABL~BVVVVVVVVWA.YA"), ("__gpp_sid", "7")],
];

fn main() {
    run_in_turn(
        Bare::start,
        &[
            ("a_bad_snapshot_is_not_there_and_says_so", garbage),
            ("s1_10_a_kv_that_throws_is_answered", failing),
            ("field_09_a_request_never_writes_the_kv", never_writes),
            ("field_10_a_visitor_minted_now_is_not_asked_for", new_is_not_asked_for),
            ("field_10_a_cached_miss_of_a_returning_visitor_is_no_new_visitor", miss_is_not_new),
            ("field_12_without_permission_no_kv_read_and_no_fact_carries_an_id", no_permission),
            ("field_12_a_refusal_in_a_header_or_a_cookie_is_heard_on_every_route", refused_anywhere),
            ("field_12_where_silence_refuses_no_kv_read_and_no_fact_carries_an_id", silence),
            (
                "field_12_without_permission_an_ad_s_addresses_and_an_erasure_read_nothing_of_anybody",
                no_permission_elsewhere,
            ),
            ("bodies_that_are_no_requests_are_refused_and_trap_nothing", hostile),
            ("field_20_a_stale_snapshot_brings_no_cut_visitor_back", stale),
            ("field_20_a_withdrawn_visitor_is_not_recognised_again", tombstone),
            ("s1_10_the_queue_is_told_after_the_answer_and_before_an_acknowledgement", queue_takes),
            ("the_facts_of_a_request_are_one_message_of_its_own", queue_takes_each_as_its_own),
            ("answers_that_wait_for_the_queue_are_their_own", own_answers),
            ("a_refused_queue_hands_facts_to_the_origin", straight_to_origin),
            ("a_dead_letter_goes_back_to_the_facts_queue_and_stays_while_that_refuses", dead_letters),
            ("what_nobody_takes_is_never_acknowledged_and_is_counted", nobody_takes),
            ("a_worker_that_cannot_be_configured_breaks_no_page", misconfigured),
            ("a_request_that_loses_its_place_is_answered_and_counted", overloaded),
        ],
    )
}

/// A snapshot in which the visitor's own sums name no fact, as if all were older than the newest ones.
fn snapshot(visitor: VisitorId, counter: u64, membership: Membership, pages: &[(VisitorId, u64)]) -> StoredValue {
    let version = SnapshotVersion { restore: 0, counter };
    let sub = |own: bool, pages| {
        let totals = ProfileTotals { pages, ..ProfileTotals::default() };
        SubProfile::pack(
            version,
            &SubContent { totals, seen: None, names: own.then(NewestNames::default), ..SubContent::default() },
        )
    };
    let profiles = pages.iter().map(|(v, pages)| (*v, sub(*v == visitor, *pages))).collect();
    StoredValue::Snapshot(Box::new(Snapshot { version, visitor, unique: Vec::new(), membership, profiles, best: None }))
}

fn member_of(epoch: u64, admits: &[VisitorId], cuts: &[VisitorId]) -> Membership {
    Membership {
        epoch: Epoch(epoch),
        devices: u32::try_from(admits.len()).unwrap(),
        admits: admits.iter().copied().collect(),
        cuts: cuts.iter().map(|v| (*v, VisitorCut { at: now(), gone: false })).collect(),
        ..Membership::default()
    }
}

fn put(bare: &Bare, visitor: VisitorId, stored: &StoredValue) {
    let key = kv_keys::snapshot_key(&tenant(), visitor);
    let value = wire::kv::encode_stored(&key, stored).unwrap();
    bare.standin.held().kv.insert(key, value);
}

/// Those that wait may hold 2 MB of bodies together: forty of 60 KB are more, and the first of them make room.
fn overloaded(bare: &Bare) {
    let counted = || {
        let health = bare.browser().send("GET", "/healthz", &[], b"").json();
        health["notes"]["overloaded"].as_u64().unwrap_or_default()
    };
    let body = format!("{{}}{}", " ".repeat(60_000));
    let call = &|browser: Browser| {
        let answer = browser.send("POST", "/v1/decide", &[], body.as_bytes());
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        answer.json()["reason"] == "overloaded"
    };
    // A busy machine may spread them so far that never forty wait at once.
    causeway_tests::eventually("a request loses its place", || {
        bare.standin.reset();
        bare.standin.held().reads = Reads::Late(Duration::from_secs(1));
        let browsers: Vec<Browser> = (0..40).map(|_| bare.returning().0).collect();
        let before = counted();
        let lost = std::thread::scope(|scope| {
            let calls: Vec<_> = browsers.into_iter().map(|browser| scope.spawn(move || call(browser))).collect();
            calls.into_iter().map(|call| u64::from(call.join().unwrap())).sum::<u64>()
        });
        assert_eq!(counted() - before, lost);
        (lost > 0).then_some(())
    });
}

fn garbage(bare: &Bare) {
    bare.standin.reset();
    let long = "A".repeat(2 << 20);
    for bad in ["", "x", "s1AAAA", "t1garbage", "l1\u{1F980}", "line\nbreak", "{\"json\":1}", long.as_str()] {
        bare.standin.held().reads = Reads::Garbage(bad.to_owned());
        let (browser, visitor) = bare.returning();
        let answer = browser.decide(&json!({ "user": { "ids": { "partner": "p" } } }));
        assert_eq!((answer.status, answer.json()["visitor"].clone()), (200, json!(visitor.to_string())), "{bad:.20}");
        assert_eq!(answer.json()["degraded"], json!(["snapshot_bad", "lookup_bad"]), "{bad:.20}");
    }
    let health = bare.browser().send("GET", "/healthz", &[], b"").json();
    assert!(health["notes"]["snapshot_bad"].as_u64().unwrap() >= 8, "{health}");
}

fn failing(bare: &Bare) {
    bare.standin.reset();
    bare.standin.held().reads = Reads::Failing;
    let (browser, visitor) = bare.returning();
    let answer = browser.decide(&json!({ "user": { "ids": { "partner": "p" } } }));
    assert_eq!((answer.status, answer.json()["visitor"].clone()), (200, json!(visitor.to_string())));
    assert_eq!(answer.json()["degraded"], json!(["kv_failed"]));
    // A lookup that could not be read is asked for again.
    bare.standin.held().reads = Reads::Well;
    browser.decide(&json!({ "user": { "ids": { "partner": "p" } } }));
    let asked = bare.standin.held().asked.last().unwrap().clone();
    assert!(asked.iter().any(|key| key.starts_with("a:demo:2:")), "{asked:?}");
}

fn never_writes(bare: &Bare) {
    bare.standin.reset();
    let proof = bare.proof("writer");
    let (browser, visitor) = bare.returning();
    browser.view_as("writer", &proof);
    browser.buy("w-1", 1);
    browser.me(Some(&proof));
    let facts = bare.standin.wait("the facts are queued", |held| Some(held.facts_of(visitor)).filter(|f| f.len() == 3));
    let aliases = facts.iter().filter(|fact| matches!(fact.what, FactKind::Alias { .. })).count();
    assert_eq!(aliases, 1);
    assert_eq!(bare.standin.held().writes, 0);
}

fn new_is_not_asked_for(bare: &Bare) {
    bare.standin.reset();
    bare.standin.held().reads = Reads::Missing;
    let browser = bare.browser();
    browser.view();
    browser.view();
    assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new());
    // Its own pages are known at once all the same.
    assert_eq!(browser.me(None)["own"]["pages"], 2);
    // They leave after their answers: none is to be another test's.
    let queued = |held: &Held| held.queued.iter().map(|batch| batch.facts.len()).sum::<usize>();
    bare.standin.wait("both pages are queued", |held| (queued(held) == 2).then_some(()));
}

fn miss_is_not_new(bare: &Bare) {
    bare.standin.reset();
    let ((browser, visitor), (_, sibling)) = (bare.returning(), bare.returning());
    let membership = member_of(3, &[visitor, sibling], &[]);
    put(bare, visitor, &snapshot(visitor, 1, membership, &[(visitor, 5), (sibling, 7)]));
    let pages = |browser: &Browser| browser.me(None)["own"]["pages"].clone();
    let view = |browser: &Browser| {
        let told = browser.view();
        assert_eq!((&told["visitor"], &told["person"]["new_visitor"]), (&json!(visitor.to_string()), &json!(false)));
        told["person"]["devices"].clone()
    };
    // Its ledger gets a page that no snapshot has yet.
    assert_eq!((pages(&browser), view(&browser), pages(&browser)), (json!(5), json!(2), json!(6)));
    bare.standin.held().reads = Reads::Missing;
    assert_eq!((view(&browser), pages(&browser)), (json!(2), json!(7)), "the isolate has met the snapshot");
    // One that has not has the cookie alone.
    let elsewhere = Bare::start();
    let moved = elsewhere.browser();
    moved.put_back(browser.cookies());
    assert_eq!((pages(&moved), view(&moved), pages(&moved)), (json!(2), json!(1), json!(3)));
    assert!(elsewhere.standin.held().asked.iter().flatten().any(|key| key.ends_with(&visitor.to_string())));
    bare.standin.held().reads = Reads::Well;
    browser.put_back(moved.cookies());
    assert_eq!(
        (pages(&browser), view(&browser), pages(&browser)),
        (json!(8), json!(2), json!(9)),
        "none is lost or doubled"
    );
    let facts = bare.standin.wait("all pages are queued", |held| Some(held.facts_of(visitor)).filter(|f| f.len() >= 3));
    assert!(facts.len() == 3 && facts.iter().all(|fact| matches!(fact.what, FactKind::Page { .. })), "{facts:?}");
}

fn no_permission(bare: &Bare) {
    let member = json!({ "ids": { "member": "m", "partner": "p" }, "proofs": { "member": bare.proof("m") } });
    let consents = [
        json!({ "user": member, "consent": { "tcf": "not a consent string" } }),
        json!({ "user": member, "consent": { "tcf": "" } }),
        json!({ "user": member, "consent": { "tcf": CONSENTS_TO_NOTHING } }),
        json!({ "user": member, "consent": { "gpp": "DBABL~BVVVVVVVVWA.YA", "gpp_sid": [7] } }),
    ];
    for body in &consents {
        bare.standin.reset();
        let (browser, visitor) = bare.returning();
        let refused = || {
            let answer = browser.decide(body);
            assert_eq!((answer.status, answer.json()["consent"].clone()), (200, json!("none")), "{body}");
            answer
        };
        withdrawn(bare, visitor, &refused().json());
        assert_eq!(browser.cookie("cw_id"), None);
        bare.standin.reset();
        let again = refused();
        assert_eq!(again.json()["visitor"], Value::Null);
        assert_eq!(again.set_cookies(), Vec::<&str>::new(), "the second time there is nothing left to expire");
        nobody_s(bare, "decide");
    }
}

/// One whose cookie is ours, and that refuses from now on.
fn refusing(bare: &Bare, refusal: &[(&str, &str)]) -> (Browser, VisitorId) {
    let (browser, visitor) = bare.returning();
    for (name, value) in refusal {
        if name.starts_with("sec-") {
            browser.send_header(name, value);
        } else {
            browser.set_cookie(name, value);
        }
    }
    (browser, visitor)
}

fn refused_anywhere(bare: &Bare) {
    let proof = bare.proof("m");
    let member = json!({ "ids": { "member": "m", "partner": "p" }, "proofs": { "member": proof } });
    let decide = json!({ "placements": [{ "id": "top" }], "user": member }).to_string();
    let routes =
        [("POST", "/v1/decide", &*decide), ("GET", "/v1/me", ""), ("POST", "/v1/events", r#"[{"type":"page"}]"#)];
    for refusal in REFUSALS {
        for (method, path, body) in routes {
            bare.standin.reset();
            let (browser, visitor) = refusing(bare, refusal);
            let call = || browser.send(method, path, &[("x-causeway-proof", &proof)], body.as_bytes());
            let answer = call();
            assert!(answer.status < 300, "{path} with {refusal:?}");
            withdrawn(bare, visitor, &answer.json());
            let expire = |cookie: &&str| cookie.contains("Max-Age=0;");
            assert!(answer.set_cookies().iter().all(expire), "{path} with {refusal:?}: {answer:?}");
            assert_eq!(browser.cookie("cw_id"), None, "{path} with {refusal:?}: the cookie is expired");
            bare.standin.reset();
            let again = call();
            assert_eq!(again.json().get("visitor").unwrap_or(&Value::Null), &Value::Null, "{path} with {refusal:?}");
            assert_eq!(again.set_cookies(), Vec::<&str>::new(), "{path} with {refusal:?}");
            nobody_s(bare, path);
        }
    }
}

/// The addresses of an ad that somebody else was shown; and an erasure, which needs no permission.
fn no_permission_elsewhere(bare: &Bare) {
    bare.standin.reset();
    let (watcher, seen) = bare.returning();
    let insertion = watcher.view()["decisions"][0]["insertion"].as_str().unwrap().to_owned();
    bare.standin.wait("the page is queued", |held| (held.facts_of(seen).len() == 1).then_some(()));
    for refusal in REFUSALS {
        for (route, status) in [("i", 200), ("c", 302)] {
            bare.standin.reset();
            let (browser, _) = refusing(bare, refusal);
            let answer = browser.send("GET", &format!("/v1/{route}/{insertion}"), &[], b"");
            assert_eq!((answer.status, answer.set_cookies().len()), (status, 0), "{route} with {refusal:?}");
            nobody_s(bare, route);
        }
        bare.standin.reset();
        let (browser, visitor) = refusing(bare, refusal);
        assert_eq!(browser.send("DELETE", "/v1/me", &[], b"").status, 202, "{refusal:?}");
        let facts = before_a_view(bare);
        assert!(
            matches!(facts.as_slice(), [f] if f.visitor == visitor && matches!(f.what, FactKind::Erasure { .. })),
            "{refusal:?}: {facts:?}"
        );
        assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new(), "{refusal:?}");
    }
}

/// Where silence means refusal.
fn silence(_: &Bare) {
    let bare = Bare::denying();
    let member = json!({ "ids": { "member": "m", "partner": "p" }, "proofs": { "member": bare.proof("m") } });
    let decide = json!({ "placements": [{ "id": "top" }], "user": member }).to_string();
    for (method, path, body) in
        [("POST", "/v1/decide", &*decide), ("GET", "/v1/me", ""), ("POST", "/v1/events", r#"[{"type":"page"}]"#)]
    {
        let answer = bare.browser().send(method, path, &[("x-causeway-proof", &bare.proof("m"))], body.as_bytes());
        assert!(answer.status < 300 && answer.set_cookies().is_empty(), "{path}: {answer:?}");
        assert_eq!(answer.json().get("visitor").unwrap_or(&Value::Null), &Value::Null, "{path}");
    }
    let (browser, visitor) = bare.returning();
    // What a decision was given stands for calls that can bring no signal; the next decision without one takes it back.
    let me = browser.send("GET", "/v1/me", &[], b"").json();
    assert_eq!(me["visitor"], json!(visitor.to_string()));
    bare.standin.held().asked.clear();
    let answer = browser.decide(&json!({ "user": member }));
    assert_eq!((answer.json()["consent"].clone(), answer.json()["reason"].clone()), (json!("none"), json!("policy")));
    assert_eq!(browser.send("GET", "/v1/me", &[], b"").json()["visitor"], Value::Null);
    // Of those before it nothing was queued either.
    withdrawn(&bare, visitor, &answer.json());
    assert_eq!(browser.cookie("cw_id"), None);
}

fn queue_takes(bare: &Bare) {
    bare.standin.reset();
    let takes = Duration::from_secs(1);
    let (browser, visitor) = bare.returning();
    browser.view();
    bare.standin.wait("the first page is queued", |held| (held.facts_of(visitor).len() == 1).then_some(()));
    bare.standin.held().queue_takes = takes;
    assert!(browser.decide(&json!({ "page_view": true })).took < takes);
    assert_eq!(bare.standin.held().facts_of(visitor).len(), 1, "the second page is not there yet");
    bare.standin.wait("the second page is queued", |held| (held.facts_of(visitor).len() == 2).then_some(()));
    let events = browser.send("POST", "/v1/events", &[], br#"[{"type":"page","id":"p"}]"#);
    assert!(events.status == 202 && events.took >= takes, "{events:?}");
}

fn queue_takes_each_as_its_own(bare: &Bare) {
    bare.standin.reset();
    let viewers: Vec<_> = (0..10).map(|_| bare.returning()).collect();
    bare.standin.held().queue_takes = Duration::from_millis(300);
    viewers.iter().for_each(|(browser, _)| drop(browser.view()));
    let (batches, calls) = bare.standin.wait("all ten are queued", |held| {
        let own = |visitor: &VisitorId| {
            held.queued.iter().filter(|batch| batch.facts.iter().all(|fact| fact.visitor == *visitor)).count()
        };
        let batches: Vec<_> = viewers.iter().map(|(_, visitor)| own(visitor)).collect();
        batches.iter().all(|batches| *batches > 0).then_some((batches, held.queue_calls))
    });
    // One call of the queue takes the pages of 5 ms.
    assert_eq!(batches, vec![1; 10]);
    assert!((1..=10).contains(&calls), "{calls}");
}

/// Answers that wait for the queue are not mixed up with those that are made meanwhile.
fn own_answers(bare: &Bare) {
    bare.standin.reset();
    let callers: Vec<_> = (0..8).map(|refused| (bare.returning().0, refused)).collect();
    let (quick, _) = bare.returning();
    bare.standin.held().queue_takes = Duration::from_millis(300);
    let call = |(browser, refused): (Browser, usize)| {
        let events: Vec<_> = (0..refused).map(|_| json!({ "type": "x" })).chain([json!({ "type": "page" })]).collect();
        let told = browser.events(&json!(events)).json();
        assert_eq!((&told["accepted"], told["rejected"].as_array().unwrap().len()), (&json!(1), refused), "{told}");
    };
    std::thread::scope(|scope| {
        let waiting: Vec<_> = callers.into_iter().map(|caller| scope.spawn(move || call(caller))).collect();
        while waiting.iter().any(|waits| !waits.is_finished()) {
            // Without facts, which would leave after their answers and meet the next test.
            assert!(quick.decide(&json!({ "page_view": false })).json()["visitor"].is_string());
        }
    });
}

/// No key was read, and the one fact is the withdrawal.
fn withdrawn(bare: &Bare, visitor: VisitorId, answer: &Value) {
    assert_eq!(answer.get("visitor").unwrap_or(&Value::Null), &Value::Null);
    bare.standin.wait("the withdrawal is queued", |held| (!held.facts_of(visitor).is_empty()).then_some(()));
    assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new());
    let facts = before_a_view(bare);
    assert!(matches!(facts.as_slice(), [f] if f.visitor == visitor && f.what == FactKind::Withdrawal), "{facts:?}");
}

/// No key was read, and nothing is told of anybody.
fn nobody_s(bare: &Bare, path: &str) {
    assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new(), "{path}");
    assert_eq!(before_a_view(bare), Vec::new(), "{path}");
}

/// Everything that was queued but for a page of another browser, which permits it, and is seen behind all that. Facts leave
/// after their answers, one behind the other: of what none is to come, none has come once this one is there.
fn before_a_view(bare: &Bare) -> Vec<Fact> {
    let (other, viewer) = bare.returning();
    other.set_cookie("euconsent-v2", CONSENTS);
    other.view();
    bare.standin.wait("the page is queued", |held| {
        let all = held.queued.iter().flat_map(|batch| &batch.facts).cloned();
        let (seen, before): (Vec<Fact>, Vec<Fact>) = all.partition(|fact| fact.visitor == viewer);
        if seen.is_empty() {
            return None;
        }
        // Its own key was read.
        held.asked.pop();
        Some(before)
    })
}

fn hostile(bare: &Bare) {
    bare.standin.reset();
    let deep = "[".repeat(10_000);
    let bodies =
        ["", "null", "[]", "{", deep.as_str(), "\u{0}", r#"{"placements":[{"id":1}]}"#, r#"{"page_view":NaN}"#];
    for body in bodies {
        for path in ["/v1/decide", "/v1/events"] {
            let answer = bare.browser().send("POST", path, &[], body.as_bytes());
            // A line that is no event is one bad event of a batch; everything else is a bad request.
            let told = answer.json();
            let refused = told["error"]["code"].is_string() || told["rejected"][0]["code"].is_string();
            assert!(refused && answer.status < 500, "{path} {body:.20}: {} {told}", answer.status);
            assert!(told.get("accepted").is_none_or(|n| n == 0), "{path} {body:.20}");
        }
    }
    let health = bare.browser().send("GET", "/healthz", &[], b"").json();
    assert_eq!(health["module_restarts"], 0, "no input traps the module");
    assert_eq!(bare.browser().decide(&json!({})).status, 200);
}

fn stale(bare: &Bare) {
    bare.standin.reset();
    let (own, visitor) = bare.returning();
    let (_, sibling) = bare.returning();
    let pages = [(visitor, 3), (sibling, 4)];
    put(bare, visitor, &snapshot(visitor, 10, member_of(5, &[visitor, sibling], &[]), &pages));
    assert_eq!(own.view()["person"]["devices"], 2);
    put(bare, visitor, &snapshot(visitor, 20, member_of(9, &[visitor], &[sibling]), &pages[..1]));
    assert_eq!(own.view()["person"], json!({ "devices": 1, "new_visitor": false, "bridged": false }));
    // Another location still has the older snapshot.
    put(bare, visitor, &snapshot(visitor, 10, member_of(5, &[visitor, sibling], &[]), &pages));
    let answer = own.view();
    assert_eq!(answer["person"], json!({ "devices": 1, "new_visitor": false, "bridged": false }));
    assert_eq!(
        own.me(None)["own"]["pages"],
        6,
        "its own facts are believed, and the ledger adds the three pages since"
    );
}

fn tombstone(bare: &Bare) {
    bare.standin.reset();
    let (browser, visitor) = bare.returning();
    put(bare, visitor, &StoredValue::Tombstone);
    let answer = browser.decide(&json!({}));
    assert_eq!((answer.json()["visitor"].clone(), answer.json()["reason"].clone()), (Value::Null, json!("forgotten")));
    assert_eq!(browser.cookie("cw_id"), None);
    let anew = browser.view();
    assert_ne!(anew["visitor"], json!(visitor.to_string()));
    assert_eq!(anew["person"]["new_visitor"], true);
}

fn straight_to_origin(bare: &Bare) {
    bare.standin.reset();
    bare.standin.held().queue_refuses = true;
    let (browser, visitor) = bare.returning();
    browser.buy("direct", 5);
    // A page view of the test before may still be on its way: the sync waited for is this visitor's.
    let of_visitor = |request: &SyncRequest| {
        let batch = wire::facts::decode_batch(&request.facts[0]).unwrap();
        batch.facts.len() == 1 && batch.facts[0].visitor == visitor
    };
    let (request, headers) = bare
        .standin
        .wait("the origin has the sync", |held| held.synced.iter().find(|(request, _)| of_visitor(request)).cloned());
    let header = |name: &str| headers[name].as_str();
    let (key, time, mac) =
        (header(sync_auth::KEY_HEADER), header(sync_auth::TIME_HEADER), header(sync_auth::MAC_HEADER));
    let body = wire::sync::encode_request(&request);
    assert_eq!(sync_auth::verify_sync(&bare.keys.sync, now(), &body, key, time, mac), Ok(()));
}

fn dead_letters(bare: &Bare) {
    bare.standin.reset();
    let (browser, _) = bare.returning();
    browser.buy("dead", 5);
    let batch = bare.standin.wait("the queue has the purchase", |held| held.messages.pop());
    bare.standin.held().queue_refuses = true;
    let again = bare.deliver("causeway-facts-dead", &[(1, batch.clone()), (100, batch.clone())]);
    assert_eq!(again.into_iter().collect::<BTreeSet<usize>>(), BTreeSet::from([0, 1]));
    bare.standin.reset();
    assert_eq!(bare.deliver("causeway-facts-dead", &[(2, batch.clone())]), [0; 0]);
    let held = bare.standin.held();
    assert_eq!((&held.messages, held.synced.len()), (&vec![batch], 0), "sent as it was, and not to the origin");
}

fn nobody_takes(bare: &Bare) {
    bare.standin.reset();
    let (browser, _) = bare.returning();
    let lost = |bare: &Bare| bare.browser().send("GET", "/healthz", &[], b"").json()["facts_lost"].as_u64().unwrap();
    let before = lost(bare);
    {
        let mut held = bare.standin.held();
        (held.queue_refuses, held.origin_refuses) = (true, true);
    }
    let answer = browser.events(&json!([{ "type": "page", "id": "a" }, { "type": "page", "id": "b" }]));
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (503, json!("retry")));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(lost(bare), before, "they are asked for again");
    assert_eq!(browser.decide(&json!({})).status, 200, "the page does not notice");
    causeway_tests::eventually("its page view is counted", || (lost(bare) > before).then_some(()));
    assert_eq!(lost(bare), before + 1);
    // The next sync tells the origin how many were lost.
    bare.standin.held().origin_refuses = false;
    browser.buy("after", 5);
    let told = bare.standin.wait("the origin is told", |held| held.synced.iter().map(|(s, _)| s.lost).find(|n| *n > 0));
    assert_eq!(told, 1);
}

fn misconfigured(_: &Bare) {
    let bare = Bare::misconfigured();
    let browser = bare.browser();
    browser.send_header("origin", "https://pub.example");
    let preflight = [("access-control-request-method", "POST"), ("access-control-request-headers", "content-type")];
    let [asked, answer] = [browser.send("OPTIONS", "/v1/decide", &preflight, b""), browser.decide(&json!({}))];
    assert_eq!((asked.status, asked.header("access-control-allow-headers")), (204, Some("content-type")));
    assert_eq!((answer.status, answer.json()["reason"].clone()), (200, json!("internal")));
    for answer in [asked, answer] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://pub.example"));
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
    }
    let events = browser.send("POST", "/v1/events", &[], br#"{"type":"page","messageId":"m-1"}"#);
    assert_eq!((events.status, events.header("retry-after")), (503, Some("1")));
    assert_eq!(browser.send("DELETE", "/v1/me", &[], b"").status, 503);
    let click = browser.send("GET", "/v1/c/token", &[], b"");
    assert_eq!((click.status, click.header("location")), (302, Some("/v1/c/token?again")));
    assert_eq!(browser.send("GET", "/v1/c/token?again", &[], b"").json()["reason"], json!("internal"));
    assert_eq!(browser.send("GET", "/healthz", &[], b"").status, 503);
    // Facts come again, and dead letters need no module to be sent anew.
    let facts = [(1, b"facts".to_vec())];
    let told = bare.handed("causeway-facts", &facts);
    assert_eq!((&told["outcome"], &told["retryBatch"]), (&json!("ok"), &json!({ "retry": true, "delaySeconds": 300 })));
    assert_eq!(bare.deliver("causeway-facts-dead", &facts), Vec::<usize>::new());
    assert!(bare.standin.held().woken, "what is no batch is told from one that is");
}
