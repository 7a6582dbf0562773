//! Hostile and damaged input: each has a defined answer, and the origin continues to work.

use causeway_shared::base::limits;
use causeway_shared::keys::sync_auth::{KEY_HEADER, MAC_HEADER, TIME_HEADER};
use causeway_shared::wire::sync::{SyncRequest, encode_request};

use crate::support::{Origin, Place, now, page, request, visitor};

/// The origin still accepts facts, and nothing panicked.
fn still_works(place: &Place, origin: &Origin) {
    let answer = origin.send(&[page(visitor(99), 1)]);
    assert_eq!(answer.accepted, 1, "{}", place.log());
    assert!(!place.log().contains("panicked"), "{}", place.log());
}

#[test]
fn a_signature_that_is_wrong_old_or_missing_is_refused() {
    let place = Place::new();
    let origin = place.serve();
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    let good = origin.signed(now(), &body);
    let with = |name: &str, value: &str| -> Vec<(&'static str, String)> {
        let mut headers = good.clone();
        for (n, v) in &mut headers {
            if *n == name {
                *v = value.to_owned();
            }
        }
        headers
    };
    let old = origin.signed(now() - limits::SYNC_SKEW_MS - 10_000, &body);
    let early = origin.signed(now() + limits::SYNC_SKEW_MS + 10_000, &body);
    let other_body = origin.signed(now(), b"another body");
    let cases = [
        vec![],
        with(KEY_HEADER, "77"),
        with(KEY_HEADER, "1e3"),
        with(KEY_HEADER, "\u{fffd}"),
        with(TIME_HEADER, "18446744073709551616"),
        with(TIME_HEADER, "-1"),
        with(MAC_HEADER, "AAAA"),
        with(MAC_HEADER, &"A".repeat(43)),
        with(MAC_HEADER, &"A".repeat(9_000)),
        old,
        early,
        other_body,
    ];
    for headers in &cases {
        let answer = origin.call("POST", "/v1/sync", headers, &body);
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{headers:?}");
    }
    assert_eq!(origin.metric("causeway_syncs_refused_total{status=\"401\"}"), cases.len().to_string());
    still_works(&place, &origin);
    let missing = place.run(&["inspect", "visitor", &visitor(1).to_string(), "--tenant", "demo"]);
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn headers_that_are_no_text_are_refused_and_break_nothing() {
    let place = Place::new();
    let origin = place.serve();
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    let good = origin.signed(now(), &body);
    let bytes: [&[u8]; 3] = [b"\xff\xfe\x80", b"Bearer \xc3(", b"1\xf0\x9f"];
    for bad in bytes {
        for name in [KEY_HEADER, TIME_HEADER, MAC_HEADER] {
            let value =
                |(n, v): &(&'static str, String)| (*n, if *n == name { bad.to_vec() } else { v.clone().into_bytes() });
            let owned: Vec<_> = good.iter().map(value).collect();
            let headers: Vec<_> = owned.iter().map(|(n, v)| (*n, v.as_slice())).collect();
            let answer = origin.try_bytes("POST", "/v1/sync", &headers, &body).unwrap();
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{name}: {bad:?}");
        }
        let path = format!("/admin/v1/visitors/{}?tenant=demo", visitor(1));
        let answer = origin.try_bytes("GET", &path, &[("authorization", bad)], b"").unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "authorization: {bad:?}");
    }
    // The unchanged headers are accepted.
    assert_eq!(origin.call("POST", "/v1/sync", &good, &body).status, 200);
    still_works(&place, &origin);
}

#[test]
fn cbor_bombs_are_refused_before_they_unfold() {
    let place = Place::new();
    let origin = place.serve();
    let huge_array = [&b"\xa4\x61f\x01\x61e\x61e\x61b\x50"[..], &[0; 16], b"\x61q\x9b", &[0xff; 8]].concat();
    let bombs = [
        vec![],
        vec![0xff],
        vec![0x9f; 1_000_000],
        vec![0x81; 1_000_000],
        vec![0xa1; 1_000_000],
        vec![0xc1; 1_000_000],
        vec![0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        huge_array,
        b"{\"edge\": \"json\"}".to_vec(),
    ];
    for bomb in &bombs {
        let answer = origin.post_signed(bomb);
        assert_eq!(answer.status, 400, "{:?}", &bomb[..bomb.len().min(20)]);
    }
    // The same bytes as batches of a valid sync: each batch is refused alone.
    let facts = bombs.to_vec();
    let answer = origin.sync(&SyncRequest { facts, ..SyncRequest::default() });
    assert_eq!((answer.accepted, answer.rejected.len()), (0, bombs.len()));
    still_works(&place, &origin);
}

#[test]
fn every_truncation_and_bit_flip_has_an_answer() {
    let place = Place::new();
    let origin = place.serve();
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    for cut in 0..body.len() {
        let status = origin.post_signed(&body[..cut]).status;
        assert!(matches!(status, 200 | 400), "cut at {cut}: {status}");
    }
    for place in 0..body.len() {
        let mut flipped = body.clone();
        flipped[place] ^= 0x80;
        let status = origin.post_signed(&flipped).status;
        assert!(matches!(status, 200 | 400), "flipped at {place}: {status}");
    }
    still_works(&place, &origin);
}

#[test]
fn a_body_over_the_bound_is_refused_whether_it_is_announced_or_not() {
    let place = Place::new();
    let origin = place.serve();
    let large = vec![0u8; limits::SYNC_BYTES + 1];
    let unannounced = [origin.signed(now(), &large), vec![("transfer-encoding", "chunked".to_owned())]].concat();
    for answer in [origin.post_signed(&large), origin.call("POST", "/v1/sync", &unannounced, &large)] {
        assert_eq!((answer.status, answer.code().as_str()), (413, "too_large"));
    }
    // A body within the bound is read without a length too.
    let body = encode_request(&request(&[page(visitor(1), 1)]));
    let chunked = [origin.signed(now(), &body), vec![("transfer-encoding", "chunked".to_owned())]].concat();
    assert_eq!(origin.call("POST", "/v1/sync", &chunked, &body).status, 200);
    still_works(&place, &origin);
}

#[test]
fn other_paths_and_methods_have_errors_of_the_same_form() {
    let place = Place::new();
    let origin = place.serve();
    assert_eq!(origin.get("/nowhere").code(), "not_found");
    let answer = origin.get("/v1/sync");
    assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"));
    assert_eq!(origin.get("/healthz").json()["status"], "ok");
    assert_eq!(origin.get("/readyz").status, 200);
}

#[test]
fn a_path_that_is_no_text_has_an_error_of_the_same_form_on_every_route() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    let bearer = [("authorization", format!("Bearer {token}"))];
    let document = origin.admin(&token, "openapi.json").json();
    let (mut seen, mut strangers, mut wrong) = (0, 0, Vec::new());
    for (path, methods) in document["paths"].as_object().unwrap() {
        let named = |part: &&str| part.starts_with('{');
        let naming = |text: &str| {
            let parts: Vec<_> = path.split('/').map(|part| if named(&part) { text } else { part }).collect();
            parts.join("/")
        };
        let methods: Vec<_> = methods.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        for method in methods.iter().filter(|_| path.starts_with("/admin/")) {
            let stranger = origin.call(method, &naming("x"), &[], b"");
            let found = (stranger.status, stranger.code());
            wrong.extend(
                (found != (401, "unauthorized".to_owned())).then(|| format!("{method} {path}, no token: {found:?}")),
            );
            strangers += 1;
        }
        let Some(field) = path.split('/').find(named).map(|part| part.trim_matches(['{', '}'])) else { continue };
        for method in &methods {
            let answers = [&[][..], &bearer].map(|headers| origin.call(method, &naming("%FF"), headers, b""));
            let found = answers.each_ref().map(|answer| {
                let error = serde_json::from_slice(&answer.body).unwrap_or(serde_json::Value::Null)["error"].take();
                (answer.status, error["code"].as_str().map(str::to_owned), error["field"].as_str().map(str::to_owned))
            });
            let right = [(401, "unauthorized", None), (400, "bad_id", Some(field))]
                .map(|(status, code, field)| (status, Some(code.to_owned()), field.map(str::to_owned)));
            seen += 1;
            wrong.extend((found != right).then(|| format!("{method} {path}: {found:?}")));
        }
    }
    assert!(wrong.is_empty(), "{} of {seen}: {wrong:#?}", wrong.len());
    assert!(seen > 20 && strangers > seen + 15, "{seen} {strangers}");
}
