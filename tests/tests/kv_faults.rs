//! The worker on a hostile platform: a KV that is late, failing, damaged or stale, and a queue and an origin that
//! refuse. It also checks which keys are read and which facts are sent without permission.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

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

/// Refusals that a browser sends with every call: a header, or the cookies of the IAB. The last one is a valid opt-out.
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
            ("an_invalid_snapshot_counts_as_absent_and_leaves_a_note", garbage),
            ("a_request_is_answered_although_the_kv_fails", failing),
            ("a_request_never_writes_the_kv", never_writes),
            ("a_new_visitor_is_not_read", new_is_not_asked_for),
            ("a_cached_miss_makes_no_returning_visitor_new", miss_is_not_new),
            ("without_permission_no_kv_read_and_no_fact_carries_an_id", no_permission),
            ("a_refusal_in_a_header_or_a_cookie_counts_on_every_route", refused_anywhere),
            ("without_a_signal_no_kv_read_and_no_fact_carries_an_id_if_silence_refuses", silence),
            ("without_permission_ad_addresses_and_an_erasure_read_no_visitors_keys", no_permission_elsewhere),
            ("invalid_bodies_are_refused_and_trap_nothing", hostile),
            ("a_stale_snapshot_restores_no_cut_visitor", stale),
            ("a_withdrawn_visitor_is_not_recognised_again", tombstone),
            ("facts_are_queued_after_an_answer_but_before_an_acknowledgement", queue_takes),
            ("the_facts_of_each_request_are_a_separate_message", queue_takes_each_as_its_own),
            ("answers_that_wait_for_the_queue_are_not_mixed_up", own_answers),
            ("a_refused_queue_hands_facts_to_the_origin", straight_to_origin),
            ("a_dead_letter_goes_back_to_the_facts_queue_and_stays_while_that_refuses", dead_letters),
            ("facts_that_no_side_accepts_are_never_acknowledged_and_are_counted", nothing_accepts),
            ("a_worker_that_cannot_be_configured_breaks_no_page", misconfigured),
            ("a_pending_request_that_makes_room_is_answered_and_counted", overloaded),
        ],
    )
}

/// A snapshot whose own sums name no fact, as if all its facts were older than the newest ones that are named.
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

/// Pending requests may hold 2 MB of bodies together. Forty bodies of 60 KB exceed that, and the oldest requests make
/// room.
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
    // On a busy machine, fewer than forty may be pending at once.
    causeway_tests::eventually("a pending request makes room", || {
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
    // A lookup that could not be read is requested again.
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
    // The visitor's own pages are known at once nevertheless.
    assert_eq!(browser.me(None)["own"]["pages"], 2);
    // The facts leave after the answers; the next test must not find them.
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
        let reply = browser.view();
        assert_eq!((&reply["visitor"], &reply["person"]["new_visitor"]), (&json!(visitor.to_string()), &json!(false)));
        reply["person"]["devices"].clone()
    };
    // The ledger gets a page that no snapshot contains yet.
    assert_eq!((pages(&browser), view(&browser), pages(&browser)), (json!(5), json!(2), json!(6)));
    bare.standin.held().reads = Reads::Missing;
    assert_eq!((view(&browser), pages(&browser)), (json!(2), json!(7)), "the isolate has read the snapshot before");
    // An isolate that has not read the snapshot has only the cookie.
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
        assert_anonymous(bare, "decide");
    }
}

/// A browser with a valid cookie that refuses from now on.
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
            assert_anonymous(bare, path);
        }
    }
}

/// The addresses of an ad that another visitor was shown, and an erasure, which needs no permission.
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
            assert_anonymous(bare, route);
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

/// A tenant that treats a missing signal as a refusal.
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
    // A call that cannot carry a signal uses the consent of the last decision; the next decision without a signal
    // withdraws it.
    let me = browser.send("GET", "/v1/me", &[], b"").json();
    assert_eq!(me["visitor"], json!(visitor.to_string()));
    bare.standin.held().asked.clear();
    let answer = browser.decide(&json!({ "user": member }));
    assert_eq!((answer.json()["consent"].clone(), answer.json()["reason"].clone()), (json!("none"), json!("policy")));
    assert_eq!(browser.send("GET", "/v1/me", &[], b"").json()["visitor"], Value::Null);
    // The calls before it queued nothing either.
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

/// Answers that wait for the queue are not mixed up with answers that are made meanwhile.
fn own_answers(bare: &Bare) {
    bare.standin.reset();
    let callers: Vec<_> = (0..8).map(|refused| (bare.returning().0, refused)).collect();
    let (quick, _) = bare.returning();
    bare.standin.held().queue_takes = Duration::from_millis(300);
    let call = |(browser, refused): (Browser, usize)| {
        let events: Vec<_> = (0..refused).map(|_| json!({ "type": "x" })).chain([json!({ "type": "page" })]).collect();
        let reply = browser.events(&json!(events)).json();
        assert_eq!((&reply["accepted"], reply["rejected"].as_array().unwrap().len()), (&json!(1), refused), "{reply}");
    };
    std::thread::scope(|scope| {
        let waiting: Vec<_> = callers.into_iter().map(|caller| scope.spawn(move || call(caller))).collect();
        while waiting.iter().any(|waits| !waits.is_finished()) {
            // Without facts, which would leave after their answers and disturb the next test.
            assert!(quick.decide(&json!({ "page_view": false })).json()["visitor"].is_string());
        }
    });
}

/// Checks that no key was read and that the only fact is the withdrawal.
fn withdrawn(bare: &Bare, visitor: VisitorId, answer: &Value) {
    assert_eq!(answer.get("visitor").unwrap_or(&Value::Null), &Value::Null);
    bare.standin.wait("the withdrawal is queued", |held| (!held.facts_of(visitor).is_empty()).then_some(()));
    assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new());
    let facts = before_a_view(bare);
    assert!(matches!(facts.as_slice(), [f] if f.visitor == visitor && f.what == FactKind::Withdrawal), "{facts:?}");
}

/// Checks that no key was read and that no fact was sent.
fn assert_anonymous(bare: &Bare, path: &str) {
    assert_eq!(bare.standin.held().asked, Vec::<Vec<String>>::new(), "{path}");
    assert_eq!(before_a_view(bare), Vec::new(), "{path}");
}

/// All facts queued before a page view of another browser, which has permission. Facts leave in the order of their
/// answers; a fact that has not arrived before this page view was not sent.
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
        // The key of the viewer was read.
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
            // A line that is not an event is one bad event of a batch; any other body is a bad request.
            let reply = answer.json();
            let refused = reply["error"]["code"].is_string() || reply["rejected"][0]["code"].is_string();
            assert!(refused && answer.status < 500, "{path} {body:.20}: {} {reply}", answer.status);
            assert!(reply.get("accepted").is_none_or(|n| n == 0), "{path} {body:.20}");
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
        "the visitor's own facts are used, and the ledger adds the three pages since"
    );
}

fn tombstone(bare: &Bare) {
    bare.standin.reset();
    let (browser, visitor) = bare.returning();
    put(bare, visitor, &StoredValue::Tombstone);
    let answer = browser.decide(&json!({}));
    assert_eq!((answer.json()["visitor"].clone(), answer.json()["reason"].clone()), (Value::Null, json!("forgotten")));
    assert_eq!(browser.cookie("cw_id"), None);
    let next = browser.view();
    assert_ne!(next["visitor"], json!(visitor.to_string()));
    assert_eq!(next["person"]["new_visitor"], true);
}

fn straight_to_origin(bare: &Bare) {
    bare.standin.reset();
    bare.standin.held().queue_refuses = true;
    let (browser, visitor) = bare.returning();
    browser.buy("direct", 5);
    // A page view of an earlier test may still arrive; this waits for the sync of this visitor.
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
    assert_eq!((&held.messages, held.synced.len()), (&vec![batch], 0), "sent unchanged, and not to the origin");
}

fn nothing_accepts(bare: &Bare) {
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
    assert_eq!(lost(bare), before, "the client sends them again");
    assert_eq!(browser.decide(&json!({})).status, 200, "the page does not notice");
    causeway_tests::eventually("its page view is counted", || (lost(bare) > before).then_some(()));
    assert_eq!(lost(bare), before + 1);
    // The next sync reports the number of lost facts to the origin.
    bare.standin.held().origin_refuses = false;
    browser.buy("after", 5);
    let lost_facts = bare
        .standin
        .wait("the origin gets the number", |held| held.synced.iter().map(|(s, _)| s.lost).find(|n| *n > 0));
    assert_eq!(lost_facts, 1);
}

fn misconfigured(_: &Bare) {
    let bare = Bare::misconfigured();
    let browser = bare.browser();
    browser.send_header("origin", "https://pub.example");
    let preflight = [("access-control-request-method", "POST"), ("access-control-request-headers", "content-type")];
    let [allowed, answer] = [browser.send("OPTIONS", "/v1/decide", &preflight, b""), browser.decide(&json!({}))];
    assert_eq!((allowed.status, allowed.header("access-control-allow-headers")), (204, Some("content-type")));
    assert_eq!((answer.status, answer.json()["reason"].clone()), (200, json!("internal")));
    for answer in [allowed, answer] {
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
    // Facts are delivered again, and dead letters are sent again without the module.
    let facts = [(1, b"facts".to_vec())];
    let outcome = bare.handed("causeway-facts", &facts);
    assert_eq!(
        (&outcome["outcome"], &outcome["retryBatch"]),
        (&json!("ok"), &json!({ "retry": true, "delaySeconds": 300 }))
    );
    assert_eq!(bare.deliver("causeway-facts-dead", &facts), Vec::<usize>::new());
    assert!(bare.standin.held().woken, "a message that is not a batch is recognised");
}
