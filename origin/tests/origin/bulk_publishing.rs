//! Publishing in bulk against a stand-in for the platform's REST API.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::kv;
use causeway_shared::wire::sync::SyncRequest;
use causeway_standins::kv_api::{ACCOUNT, CallFault, KvApi, NAMESPACE, TOKEN};

use crate::support::{Place, SOON, TENANTS, cases, once, page, visitor, within};

/// A place whose origin publishes to this API.
fn place(api: &str, account: &str, token: &str) -> Place {
    let table = format!("[publish]\napi = \"{api}\"\naccount = \"{account}\"\nnamespace = \"{NAMESPACE}\"\n");
    let place = Place::with(&format!("{table}{TENANTS}"));
    let mut child = place.command(&["keys", "set-platform-token"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    place
}

/// Sends a page of each visitor, and waits until the KV has this many of their snapshots.
fn publish(api: &KvApi, place: &Place, visitors: u32, limit: Duration) {
    let origin = place.serve();
    let all: Vec<u32> = (0..visitors).collect();
    for some in all.chunks(1_000) {
        let facts: Vec<_> = some.iter().map(|v| page(visitor(*v), *v)).collect();
        origin.send(&facts);
    }
    within(limit, "every snapshot is in the KV", || once(api.values().len(), |keys| *keys == visitors as usize));
    origin.stop();
}

/// Whether the KV has a whole snapshot of each visitor, with its page.
fn assert_published(api: &KvApi, visitors: u32) {
    let values = api.values();
    for v in (0..visitors).map(visitor) {
        let key = format!("v:demo:{v}");
        match kv::decode_stored(&key, v, values[&key].as_bytes()).unwrap() {
            StoredValue::Snapshot(snapshot) => assert_eq!(snapshot.profiles[&v].totals().pages, 1),
            StoredValue::Tombstone => unreachable!("no visitor has withdrawn"),
        }
    }
    assert_eq!(api.counts().too_soon, 0, "a key was written twice in a second");
}

#[test]
fn many_keys_are_written_by_few_calls_through_a_busy_and_slow_platform() {
    const VISITORS: u32 = 3_000;
    let api = KvApi::start().unwrap();
    api.fail_next([CallFault::Busy(1), CallFault::Slow(Duration::from_millis(300)), CallFault::Busy(1)]);
    let place = place(&api.url(), ACCOUNT, TOKEN);
    publish(&api, &place, VISITORS, SOON * 2);
    assert_published(&api, VISITORS);
    let counts = api.counts();
    assert!((4..=12).contains(&counts.calls), "{counts:?}");
    assert_eq!(counts.written, u64::from(VISITORS), "no key was written twice");
    assert!(!place.log().contains(TOKEN), "the log has the token");
}

/// A lost answer delays keys by a minute; the short form has the failures that delay nothing.
#[test]
fn keys_of_lost_and_partial_calls_are_written_again() {
    let faults = [CallFault::Partial(40), CallFault::LostBefore, CallFault::Status(503), CallFault::LostAfter];
    let [few, all] = [1, faults.len() as u64];
    let count = usize::try_from(cases([few, all])).unwrap();
    let api = KvApi::start().unwrap();
    api.fail_next(faults.into_iter().take(count));
    let place = place(&api.url(), ACCOUNT, TOKEN);
    let visitors = 2_000;
    if count == 1 {
        // The keys that were not written are tried again after a minute, when fewer than a bulk call's are due.
        let origin = place.serve();
        for some in (0..visitors).collect::<Vec<_>>().chunks(1_000) {
            let facts: Vec<_> = some.iter().map(|v| page(visitor(*v), *v)).collect();
            origin.send(&facts);
        }
        within(SOON, "the keys of the call but 40 are in the KV", || {
            once(api.counts().written, |keys| *keys == u64::from(visitors) - 40)
        });
        let log = || once(place.log(), |log| log.contains("did not write all keys"));
        within(SOON, "the log names the keys that were not written", log);
        origin.stop();
    } else {
        publish(&api, &place, visitors, SOON * 20);
        assert_published(&api, visitors);
    }
}

#[test]
fn the_command_that_publishes_all_keys_waits_until_they_are_written() {
    const VISITORS: u32 = 2_000;
    let api = KvApi::start().unwrap();
    let place = place(&api.url(), ACCOUNT, TOKEN);
    publish(&api, &place, VISITORS, SOON);
    let origin = place.serve();
    let mut child = place.command(&["job", "run", "publish", "--wait"]).stderr(Stdio::piped()).spawn().unwrap();
    // Fewer keys than those of a bulk call are the publish consumer's.
    let mut applied = Vec::new();
    while child.try_wait().unwrap().is_none() {
        let request = SyncRequest { drain: 100, applied, ..SyncRequest::default() };
        applied = origin.sync(&request).publish.iter().map(|write| write.entry).collect();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("keys are written, after"), "{said}");
    origin.stop();
    let said = String::from_utf8(place.run(&["job", "run", "publish", "--wait"]).stderr).unwrap();
    assert!(said.contains("once `causeway serve` runs"), "{said}");
}

#[test]
fn a_wrong_token_account_or_address_is_reported_with_its_remedy_and_without_the_token() {
    let api = KvApi::start().unwrap();
    let unknown = "f".repeat(32);
    let closed = "http://127.0.0.1:9/client/v4".to_owned();
    let wrong = "another-token-of-the-kv-api";
    for (url, account, token, remedy) in [
        (api.url(), ACCOUNT, wrong, "keys set-platform-token"),
        (api.url(), &unknown, TOKEN, "wrangler kv namespace list"),
        (closed, ACCOUNT, TOKEN, "check `publish.api`"),
    ] {
        let place = place(&url, account, token);
        let output = place.run(&["config", "check"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(remedy), "{said}");
        let origin = place.serve();
        let log = || once(place.log(), |log| log.contains("in bulk") || log.contains("does not answer"));
        within(SOON, "the start reports the fault", log);
        origin.stop();
        assert!(!said.contains(token) && !place.log().contains(token));
    }
    let place = place(&api.url(), ACCOUNT, TOKEN);
    assert!(place.run(&["config", "check"]).status.success());
    std::fs::write(place.path().join("keys.json"), serde_json::to_vec(&place.keys()).unwrap()).unwrap();
    let said = String::from_utf8(place.run(&["config", "check"]).stderr).unwrap();
    assert!(said.contains("causeway keys set-platform-token"), "{said}");
}
