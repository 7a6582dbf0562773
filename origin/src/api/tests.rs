#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::api::serve;
use crate::api::tokens::{self, TokenGrant, TokenRole};
use crate::base::config::LogFormat;
use crate::base::job_kinds::JobIntervals;
use crate::base::metrics::VOUCHED_MS;
use crate::store;
use crate::testing::{Origin, visitor};

/// The state of a server for the origin's store.
fn app(origin: &Origin) -> Arc<ApiState> {
    let config = Config {
        listen: String::new(),
        data: origin.data().to_owned(),
        keys: origin.data().join("keys.json"),
        sibling_publish_ms: 60_000,
        kv_settled_ms: 120_000,
        log: String::new(),
        log_format: LogFormat::Text,
        readers: 2,
        most_unfolded: 1_000,
        drain: Duration::from_secs(1),
        http: listener::tests::LIMITS,
        jobs: JobIntervals::default(),
        publish: None,
        edge: origin.edge.clone(),
    };
    Arc::new(ApiState::new(config, origin.keys.clone()))
}

/// Calls a route, and returns the status and the whole answer.
async fn call(to: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
    let head = format!("{method} {path}?tenant=demo HTTP/1.1\r\nhost: a\r\nconnection: close\r\n");
    let whole = format!("{head}authorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let called = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(whole.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = called.await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn grant(role: TokenRole) -> TokenGrant<'static> {
    TokenGrant { role, name: "tests", tenant: None, expires_ms: None }
}

#[tokio::test]
async fn a_link_that_a_clock_put_far_off_can_be_ended() {
    let mut origin = Origin::new();
    origin.now = clock::now();
    let ahead = origin.now + 3 * 86_400_000;
    let logins = [1, 2].map(|v| origin.login(visitor(v), 1, ahead, "ann"));
    origin.admin("demo", &logins);
    let app = app(&origin);
    let token = tokens::create_token(&origin.conn, grant(TokenRole::Operator), origin.now).unwrap().1;
    let threads = serve::open(&app).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let served = tokio::spawn(axum::serve(listener, router(Arc::clone(&app))).into_future());
    let link = format!("/admin/v1/links/{}/{}", visitor(1), visitor(2));
    let segments = format!("/admin/v1/visitors/{}/segments", visitor(1));
    let write = format!(r#"{{"set":[{{"segment":7,"expires_ms":{}}}]}}"#, ahead + 86_400_000);
    let calls = [("DELETE", &link, ""), ("PUT", &segments, &write)];
    // A clock that no sync confirms dates no change.
    app.metrics.dated_ms.set(clock::now() - VOUCHED_MS - 60_000);
    for (method, path, body) in calls {
        assert_eq!(call(to, method, path, &token, body).await.0, 503, "{path}");
    }
    app.metrics.dated_ms.set(clock::now());
    for (method, path, body) in calls {
        let (status, answer) = call(to, method, path, &token, body).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let persons = "SELECT count(DISTINCT person) FROM visitors";
    let conn = store::open(origin.data()).unwrap();
    assert_eq!(conn.query_row(persons, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    served.abort();
    app.drain();
    tokio::task::spawn_blocking(move || threads.map(|thread| thread.join().unwrap())).await.unwrap();
}

#[tokio::test]
async fn a_body_with_a_field_that_its_route_does_not_have_is_refused_and_the_field_is_named() {
    let mut origin = Origin::new();
    origin.now = clock::now();
    let page = crate::testing::page(visitor(1), 1, origin.now);
    origin.send("demo", &[page]);
    let app = app(&origin);
    let token_of = |role| tokens::create_token(&origin.conn, grant(role), origin.now).unwrap().1;
    let (operator, privacy) = (token_of(TokenRole::Operator), token_of(TokenRole::Privacy));
    let threads = serve::open(&app).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let served = tokio::spawn(axum::serve(listener, router(Arc::clone(&app))).into_future());
    let of = visitor(1);
    let (ids, last) = (r#""actions":["impression"],"level":"ad","ids":[1]"#, r#""last":{"interval":1,"unit":"days"}"#);
    let in_last = r#""last":{"interval":1,"unit":"days","odd":1}"#;
    let far = origin.now + 86_400_000;
    let calls = [
        (
            "PUT",
            format!("visitors/{of}/segments"),
            format!(r#"{{"set":[{{"segment":7,"expires_ms":{far}}}],"odd":[4242]}}"#),
        ),
        (
            "PUT",
            format!("visitors/{of}/segments"),
            format!(r#"{{"set":[{{"segment":7,"expires_ms":{far},"odd":1}}]}}"#),
        ),
        ("POST", format!("visitors/{of}/segments/query"), r#"{"newest":5,"odd":1}"#.to_owned()),
        ("POST", format!("visitors/{of}/segments/7/extend"), r#"{"hours":5,"odd":1}"#.to_owned()),
        ("PUT", format!("visitors/{of}/attributes"), r#"{"set":{"a":1},"odd":["b"]}"#.to_owned()),
        ("POST", "attributes/forget".to_owned(), r#"{"names":["a"],"odd":1}"#.to_owned()),
        ("POST", "events/declare".to_owned(), r#"{"names":["a"],"odd":1}"#.to_owned()),
        (
            "POST",
            "links".to_owned(),
            format!(r#"{{"visitor":"{of}","kind":"partner","value":"p","weight":0.5,"source":"match","odd":1}}"#),
        ),
        ("POST", "erase".to_owned(), format!(r#"{{"visitor":"{of}","odd":1}}"#)),
        ("POST", "audience/estimate".to_owned(), r#"{"filter":{"devices":1},"odd":1}"#.to_owned()),
        ("POST", "audience/members".to_owned(), r#"{"filter":{"devices":1},"odd":1}"#.to_owned()),
        ("POST", "audience/schedule".to_owned(), r#"{"filter":{"devices":1},"odd":1}"#.to_owned()),
        ("PUT", "audiences/9".to_owned(), r#"{"filter":{"devices":1},"hours":5,"odd":1}"#.to_owned()),
        ("PUT", "sends/may".to_owned(), r#"{"filter":{"devices":1},"count":5,"odd":1}"#.to_owned()),
        ("POST", "catalogue/rollback".to_owned(), r#"{"version":1,"odd":1}"#.to_owned()),
        ("POST", "counts".to_owned(), format!(r#"{{"visitor":"{of}",{ids},{last},"odd":1}}"#)),
        ("POST", "counts/groups".to_owned(), format!(r#"{{"visitor":"{of}",{last},"odd":1}}"#)),
        ("POST", "counts".to_owned(), format!(r#"{{"visitor":"{of}",{ids},{in_last}}}"#)),
    ];
    for (method, path, body) in calls {
        let token = if path == "erase" { &privacy } else { &operator };
        let (status, answer) = call(to, method, &format!("/admin/v1/{path}"), token, &body).await;
        let names = answer.contains(r#"odd""#) || body.contains(in_last);
        assert!(status == 400 && answer.contains("bad_json") && names, "{path} {body}: {answer}");
    }
    served.abort();
    app.drain();
    tokio::task::spawn_blocking(move || threads.map(|thread| thread.join().unwrap())).await.unwrap();
}

#[tokio::test]
async fn nothing_is_deleted_up_to_a_date_that_no_sync_confirms() {
    let mut origin = Origin::new();
    origin.now = clock::now();
    let logins = [1, 2].map(|v| origin.login(visitor(v), 1, origin.now, "ann"));
    origin.send("demo", &logins);
    let token = |role| tokens::create_token(&origin.conn, grant(role), origin.now).unwrap().1;
    let app = app(&origin);
    let threads = serve::open(&app).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let served = tokio::spawn(axum::serve(listener, router(Arc::clone(&app))).into_future());
    let link = format!("/admin/v1/links/{}/{}", visitor(1), visitor(2));
    let ann = r#"{"kind":"member","value":"ann"}"#;
    let conn = store::open(origin.data()).unwrap();
    let taken = || {
        let taken = "SELECT (SELECT count(*) FROM erased_ids) + (SELECT count(*) FROM cancellations)";
        conn.query_row(taken, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let calls = [
        ("DELETE", &*link, token(TokenRole::Operator), "", 200),
        ("POST", "/admin/v1/erase", token(TokenRole::Privacy), ann, 202),
    ];
    app.metrics.dated_ms.set(clock::now() - VOUCHED_MS - 60_000);
    for (method, path, token, body, _) in &calls {
        let (status, answer) = call(to, method, path, token, body).await;
        assert!(status == 503 && answer.contains(r#""code":"clock""#), "{answer}");
        assert_eq!(taken(), 0);
    }
    app.metrics.dated_ms.set(clock::now() - VOUCHED_MS + 60_000);
    for ((method, path, token, body, expected), all) in calls.iter().zip(1..) {
        let (status, answer) = call(to, method, path, token, body).await;
        assert_eq!((status, taken()), (*expected, all), "{answer}");
    }
    served.abort();
    app.drain();
    tokio::task::spawn_blocking(move || threads.map(|thread| thread.join().unwrap())).await.unwrap();
}

#[tokio::test]
async fn what_is_measured_waits_for_no_slow_read() {
    let mut origin = Origin::new();
    let login = origin.login(visitor(1), 1, origin.now, "ann");
    origin.send("demo", &[login]);
    let app = app(&origin);
    let threads = serve::open(&app).await.unwrap();
    let (began, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let slow: Vec<_> = (0..app.config.readers)
        .map(|_| {
            let (app, began) = (Arc::clone(&app), began.clone());
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let read = async move {
                let read = app.live().unwrap().readers.read(move |_| {
                    began.send(()).unwrap();
                    ended.recv().unwrap_or_default();
                    Ok(())
                });
                read.await.unwrap();
            };
            (end, tokio::spawn(read))
        })
        .collect();
    for _ in &slow {
        beginning.recv().await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(5), measure_process(&app)).await.unwrap();
    assert!(app.metrics.outbox_depth.get() > 0);
    for (end, reading) in slow {
        drop(end);
        reading.await.unwrap();
    }
    app.drain();
    tokio::task::spawn_blocking(move || threads.map(|thread| thread.join().unwrap())).await.unwrap();
}

#[tokio::test]
async fn every_route_admits_the_roles_that_the_document_names() {
    let mut origin = Origin::new();
    origin.now = clock::now();
    let app = app(&origin);
    let roles = [TokenRole::Viewer, TokenRole::Operator, TokenRole::Privacy];
    let roles = roles.map(|role| (role, tokens::create_token(&origin.conn, grant(role), origin.now).unwrap().1));
    let threads = serve::open(&app).await.unwrap();
    let document: Value = serde_json::from_str(openapi::document_text()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/admin/v1/"));
    let mut calls = 0;
    for (path, method, operation) in
        paths.flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |(method, of)| (path, method, of)))
    {
        let named = operation["security"][0]["bearer"][0].as_str().unwrap();
        let (needed, _) = roles.iter().find(|(role, _)| role.as_str() == named).unwrap();
        for (role, token) in &roles {
            let request = axum::http::Request::builder().method(method.to_uppercase().as_str());
            let uri = path.replace(['{', '}'], "") + "?tenant=demo";
            let request =
                request.uri(uri).header(header::HOST, "a").header(header::AUTHORIZATION, format!("Bearer {token}"));
            let answer = router(Arc::clone(&app)).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let is_admitted = answer.status() != StatusCode::FORBIDDEN;
            assert_eq!(is_admitted, role.may(*needed), "{method} {path} as {role:?}: {}", answer.status());
            calls += 1;
        }
    }
    assert!(calls > 120, "{calls}");
    app.drain();
    tokio::task::spawn_blocking(move || threads.map(|thread| thread.join().unwrap())).await.unwrap();
}

fn sources() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_source =
        |file: &std::path::PathBuf| file.extension().is_some_and(|of| of == "rs") && !file.ends_with("tests.rs");
    files.filter(is_source).map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn every_route_is_registered_with_its_description() {
    for text in sources() {
        assert!(!text.contains(".route(") && !text.contains(".nest("), "use `routes!`: {text}");
    }
}

#[test]
fn every_handler_returns_the_type_that_its_description_names() {
    let mut handlers = 0;
    for text in sources() {
        for described in text.split("#[utoipa::path(").skip(1) {
            let returned = described.split_once(") -> ").and_then(|(_, rest)| rest.split_once(" {")).unwrap().0;
            let answer = ["JsonAnswer<", "AcceptedAnswer<"].into_iter().find_map(|of| returned.strip_prefix(of));
            let Some(answer) = answer.map(|answer| answer.trim_end_matches('>')) else { continue };
            assert!(described.contains(&format!("body = {answer}")), "{answer}: {described}");
            handlers += 1;
        }
    }
    assert!(handlers > 30, "{handlers}");
}

/// The answer of the router before its store is open.
async fn ask(app: &Arc<ApiState>, path: &str, headers: &[(&str, &str)]) -> Response {
    let request =
        headers.iter().fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
    router(Arc::clone(app)).oneshot(request.header("host", "a").body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_long_answer_is_compressed_for_a_caller_that_reads_gzip() {
    let origin = Origin::new();
    let app = app(&origin);
    let encoding = |answer: &Response| answer.headers().get(header::CONTENT_ENCODING).cloned();
    let gzip = [("accept-encoding", "gzip")];
    let (plain, packed) = (ask(&app, "/metrics", &[]).await, ask(&app, "/metrics", &gzip).await);
    assert_eq!((encoding(&plain), encoding(&packed)), (None, Some(HeaderValue::from_static("gzip"))));
    let bytes = axum::body::to_bytes(packed.into_body(), usize::MAX).await.unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    assert!(text.contains("causeway_ready 0") && bytes.len() * 2 < text.len());
    assert_eq!(encoding(&ask(&app, "/healthz", &gzip).await), None, "it is short");
}

#[tokio::test]
async fn an_answer_names_the_id_of_its_request() {
    let origin = Origin::new();
    let app = app(&origin);
    let id = |answer: Response| answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(id(ask(&app, "/healthz", &[("x-request-id", "proxy-7")]).await), "proxy-7");
    let drawn = [id(ask(&app, "/nowhere", &[]).await), id(ask(&app, "/healthz", &[("x-request-id", "a b")]).await)];
    assert!(drawn.iter().all(|id| id.len() == 36) && drawn[0] != drawn[1], "{drawn:?}");
}
